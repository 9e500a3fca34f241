//! A double of libflux and of a broker: what `include/libflux.h` declares, and as much of a broker as the suites and
//! the demo need on a machine without Flux. It is no Flux: results that count are seen on the real thing, and the same
//! suites run on both, so that the double is held to it.
//!
//! One process is one broker. All its code is in this library, as libflux's is, so that what the probe relies on is
//! the same on both: reactors wait by calling `epoll_wait` through this library's GOT, and a synchronous wait runs a
//! second reactor by calling `flux_reactor_run` through it. Modules are threads that open the same shared objects as
//! real Flux opens, and speak to their broker over a socket pair; clients and other brokers over Unix sockets.
//!
//! | file | what |
//! |---|---|
//! | `reactor` | watchers and the loop |
//! | `message` | messages and their frames |
//! | `handle` | connections, handlers, futures |
//! | `api` | the C functions |
//! | `module` | the thread of a module |
//! | `broker` | routing, services, the tree |
//!
//! Safety: every exported function is called with what `include/libflux.h` and Flux's manual pages allow; a handle,
//! its reactor and all that hangs on them stay on one thread. That contract stands for the comment that each unsafe
//! block would otherwise repeat.
#![allow(clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc, missing_docs, unreachable_pub)]

mod api;
mod broker;
mod handle;
mod message;
mod module;
mod reactor;

pub use broker::embedded_broker_main;
