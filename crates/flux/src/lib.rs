//! A safe wrapper of libflux, for broker modules and for clients.
//!
//! A module is a type, a function that makes it, and a table of what it answers; [`module!`] makes it loadable:
//!
//! ```
//! use flux::{Answer, Error, Method, Module, Request, Role, Scope};
//!
//! struct Hello {
//!     greeted: u64,
//! }
//!
//! impl Hello {
//!     fn greet(&mut self, _scope: &Scope<Self>, _request: &Request<'_>) -> Result<Answer, Error> {
//!         self.greeted += 1;
//!         Ok(Answer::json(serde_json::json!({ "greeted": self.greeted })))
//!     }
//! }
//!
//! impl Module for Hello {
//!     fn load(_scope: &Scope<Self>, arguments: &[String]) -> Result<Self, Error> {
//!         match arguments {
//!             [] => Ok(Hello { greeted: 0 }),
//!             [unknown, ..] => Err(Error::invalid(format!("unknown argument {unknown:?}: hello takes none"))),
//!         }
//!     }
//!
//!     fn methods() -> Vec<Method<Self>> {
//!         vec![Method::request("greet", Self::greet).allow(Role::User)]
//!     }
//! }
//!
//! flux::module!(Hello);
//! ```
//!
//! What this layer guarantees, since a module lives in the broker's address space:
//!
//! * A panic never crosses into C. It is caught at the callback, logged once for each place it comes from, counted,
//!   and answered with an error where a request caused it; the module goes on ([`Scope::panics`]).
//! * Once the module is running, `mod_main` never returns failure, which would take the broker down.
//! * `flux module remove --cancel` ends the thread at a turn of its reactor, without unwinding through a Rust frame that
//!   owns anything; everywhere else cancellation is held back. The module is dropped before its handle is closed.
//! * Where an allocation fails, which Rust answers by aborting the process, a module has a reserve, and ends in order
//!   ([`Reserve`]).
//! * A handle belongs to its thread: [`Handle`] is neither `Send` nor `Sync`, and a module cannot close its own.
//!
//! The raw functions are in `flux-sys`; nothing links libflux.

mod belongings;
mod boundary;
mod error;
mod fsd;
mod handle;
mod message;
mod method;
mod module;
mod reactor;
mod reserve;
mod rpc;

pub use belongings::WeakHandle;
pub use boundary::uncancelled;
pub use error::{Error, Result};
pub use fsd::parse_duration;
pub use handle::{Client, Handle, Level, Node};
pub use message::{Event, KeptRequest, Request};
pub use method::{Answer, Method, Role};
pub use module::{Module, Scope};
pub use reactor::{Interest, Watcher};
pub use reserve::{Reserve, afford};
pub use rpc::{Payload, PendingRpc, Reply, Rpc, Stream};

/// The address space's libflux and its version, or why there is none.
pub use flux_sys::{LoadError, Version, libflux};
pub use reactor::reactor_run_address;

#[doc(hidden)]
pub use module::main as module_main;
