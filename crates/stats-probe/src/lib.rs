//! Times every reactor of a live Flux broker, from inside, without a change to Flux.
//!
//! libflux calls `epoll_wait` through its global offset table. A module that is loaded into the broker
//! replaces that one pointer, and from then on every turn of every reactor of the broker is timed: how
//! often it wakes up, how long it works, sleeps, or is blocked in a nested wait. Beside it the kernel's
//! own numbers of every thread are read from /proc; they are all there is where nothing can be hooked.
//!
//! ```no_run
//! use stats_probe::{Options, Probe};
//! # let flux_reactor_run = std::ptr::null();
//! let mut probe = Probe::start(Options::attach(flux_reactor_run));
//! if let Some(why) = &probe.status().fallback {
//!     eprintln!("turns are not timed: {why}");
//! }
//! for module in probe.sample() {
//!     println!("{} {} wakeups, {} ns of work", module.name, module.wakeups, module.work_ns);
//! }
//! ```

mod accounts;
mod attach;
mod clock;
pub mod elf;
pub mod histogram;
mod hook;
mod instrument;
#[cfg(feature = "flux")]
mod instrumented;
mod ledger;
mod mapping;
mod names;
mod object;
pub mod peek;
pub mod preload;
mod probe;
mod proc;
mod registry;
mod sample;
mod slots;
mod thread;
mod totals;

pub use clock::{Clock, monotonic_ns, thread_cpu_ns};
pub use histogram::WorkHistogram;
pub use instrument::{Instrument, ReactorSample};
#[cfg(feature = "flux")]
pub use instrumented::{Instrumented, instrument};
pub use names::{AsOf, Name};
pub use probe::{Mode, Options, Probe, Status};
pub use proc::{ModuleProcess, ThreadStat, module_processes};
pub use sample::{ModuleSample, Source};
pub use thread::State;
