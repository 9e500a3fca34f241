//! libflux as C sees it: raw bindings, found and loaded at run time.
//!
//! Nothing links libflux. A broker module, a preloaded probe or a command calls [`libflux`] once and gets the
//! functions of the libflux that is already in its process, or else of the one that the system has:
//!
//! ```
//! match flux_sys::libflux() {
//!     Ok(libflux) => println!("flux-core {}", libflux.version()),
//!     Err(error) => println!("{error}"), // says what was looked for, and where
//! }
//! ```
//!
//! The bindings come from `include/libflux.h`, our own declarations of the slice that we use, and are checked in,
//! so that a build needs neither Flux nor libclang. The safe layer over this is the crate `flux`.

/// The generated bindings: types, constants, and one struct with a field for every function.
#[allow(missing_docs, unsafe_op_in_unsafe_fn, non_camel_case_types, clippy::all, clippy::undocumented_unsafe_blocks)]
#[rustfmt::skip]
mod bindings;
mod load;

pub use bindings::*;
pub use load::{LoadError, Loaded, MINIMUM, SONAME, Source, Version, libflux};
