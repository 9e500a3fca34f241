//! Times every reactor of a process that has libflux: from inside, at run time, without change to it.
//!
//! Flux reactors are libev loops in libflux-core.so, which waits by calling `epoll_wait` through its global offset
//! table (GOT). [`Probe::start`] with [`Mode::Attach`] replaces that one pointer, and those of `poll` and of libflux's
//! own calls of `flux_reactor_run`: from then on every thread's waits pass a hook that keeps the time. /proc is read
//! beside it, for CPU time, run-queue wait and context switches, and for modules that are processes of their own.
//!
//! ```
//! use stats_probe::{Mode, Options, Probe};
//!
//! let mut probe = Probe::start(Options { mode: Mode::Proc, ..Options::default() });
//! probe.sample();
//! for module in probe.modules() {
//!     println!("{} {} ns of CPU", module.name, module.cpu_ns);
//! }
//! ```
//!
//! What the hook takes into account, each point seen on a live broker:
//!
//! * `epoll_wait` with room for one event and no wait is libflux draining a handle's own descriptor, not a turn.
//! * A synchronous RPC runs a second reactor: libflux calls `flux_reactor_run` through its own GOT, which modules and
//!   brokers do not. Waits inside such a call are *blocked*, not sleep.
//! * `pthread_cancel` unwinds through a waiting thread: the hook's frames own nothing.
//! * A thread enters the hook with its next wait; until then its state is what /proc said at the attach.
//!
//! A thread's sleep, blocked and work add up to the wall time since it was first seen.

mod attach;
mod elf;
mod hook;
mod procfs;
mod sample;
mod slot;

pub use attach::AttachError;
pub use sample::{Blocked, Mode, ModuleSample, NamedModule, Options, Probe, Source, Status};
pub use slot::{HISTOGRAM_SLOTS, State};
