//! Which instances this machine can have.

use crate::{Error, Result};
use std::env;
use std::fmt;
use std::path::PathBuf;

/// What an instance is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backend {
    /// Real Flux: the `flux` command at this path.
    Real(PathBuf),
    /// The embedded broker.
    Embedded,
}

impl Backend {
    /// Real Flux, where `FLUX_STATS_FLUX` names a `flux` or one is on PATH.
    pub fn real() -> Result<Option<Backend>> {
        let named = env::var_os("FLUX_STATS_FLUX").filter(|name| !name.is_empty()).map(PathBuf::from);
        let on_path = || {
            env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join("flux")).find(|f| f.is_file())
        };
        match named.or_else(on_path) {
            Some(flux) => Ok(Some(Backend::Real(flux))),
            None if env::var_os("FLUX_STATS_REQUIRE_FLUX").is_some_and(|value| value == "1") => {
                Err(Error::NoFlux)
            }
            None => Ok(None),
        }
    }

    /// Every backend that this machine has.
    pub fn available() -> Result<Vec<Backend>> {
        Ok(Self::real()?.into_iter().chain([Backend::Embedded]).collect())
    }

    /// Whether it is the real thing.
    pub fn is_real(&self) -> bool {
        matches!(self, Backend::Real(_))
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Backend::Real(flux) => write!(f, "real Flux ({})", flux.display()),
            Backend::Embedded => f.write_str("the embedded broker (a double for machines without Flux)"),
        }
    }
}
