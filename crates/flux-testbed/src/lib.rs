//! Flux instances for tests and the demo, with one API over two backends: real Flux, where a `flux` is found, and the
//! embedded broker, a double for machines without one. Both load the same modules.
//!
//! ```no_run
//! use flux_testbed::{Backend, Instance, Options};
//! use serde_json::json;
//!
//! for backend in Backend::available()? {
//!     let instance = Instance::start(Options { size: 4, ..Options::new(backend) })?;
//!     instance.load(0..4, "stats-agg", &["period=1s"])?;
//!     println!("{}", instance.rpc(0, "stats-agg.stats-get", json!({}))?);
//! }
//! # Ok::<(), flux_testbed::Error>(())
//! ```
//!
//! An instance holds a lock of the machine while it lives, so that suites run side by side do not take each other's
//! processors. Everything it started ends with it.
#![forbid(unsafe_code)]

mod backend;
mod client;
mod embedded;
mod instance;
mod real;
mod stage;

pub use backend::Backend;
pub use instance::{Instance, Options, Topology};
pub use stage::{Profile, Stage, Start, workspace_root};

/// What can go wrong with an instance.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something of the operating system's.
    #[error("{0}: {1}")]
    Io(String, #[source] std::io::Error),
    /// A command failed.
    #[error("{command}: {said}")]
    Command {
        /// What was run.
        command: String,
        /// What it wrote to standard error, or how it ended.
        said: String,
    },
    /// The instance did not come up.
    #[error("the instance did not come up: {0}")]
    Start(String),
    /// A request was answered with an error.
    #[error("{topic}: {text} (error {errnum})")]
    Rpc {
        /// What was asked.
        topic: String,
        /// As in `<errno.h>`.
        errnum: i32,
        /// In words.
        text: String,
    },
    /// A real Flux is demanded (`FLUX_STATS_REQUIRE_FLUX=1`) and there is none.
    #[error(
        "FLUX_STATS_REQUIRE_FLUX is set and no flux is found: not on PATH, and FLUX_STATS_FLUX names none"
    )]
    NoFlux,
}

impl Error {
    /// The error number of a request that was answered with an error.
    pub fn errnum(&self) -> Option<i32> {
        match self {
            Error::Rpc { errnum, .. } => Some(*errnum),
            _ => None,
        }
    }

    fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let doing = doing.into();
        move |error| Error::Io(doing, error)
    }
}

/// The result of most calls in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
