//! Finding libflux: first in the running process, else on the system.

use crate::bindings::LibFlux;
use libc::c_int;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::OsString;
use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

/// The name under which libflux is installed.
pub const SONAME: &str = "libflux-core.so.2";

/// The oldest flux-core that is supported: payload sizes became `size_t` in it.
pub const MINIMUM: Version = Version { major: 0, minor: 70, patch: 0 };

/// Names another libflux than [`SONAME`], for a process that has none yet.
const ENV_LIBFLUX: &str = "FLUX_STATS_LIBFLUX";

/// A version of flux-core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major number.
    pub major: c_int,
    /// Minor number.
    pub minor: c_int,
    /// Patch number.
    pub patch: c_int,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Where the libflux in use was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// In the running process: we are inside a broker, or a program that has loaded it.
    Process,
    /// Loaded by us under this name.
    Opened(OsString),
}

/// Why there is no usable libflux.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LoadError {
    /// Neither in the process nor on the system.
    #[error(
        "libflux not found: looked in the running process, then for {name:?} ({reason}); install flux-core {MINIMUM} \
         or newer, or name its library in {ENV_LIBFLUX}"
    )]
    Absent {
        /// What was opened.
        name: OsString,
        /// What the dynamic loader said.
        reason: String,
    },
    /// Found, and older than we support.
    #[error("libflux {found} is too old: flux-core {MINIMUM} or newer is needed")]
    TooOld {
        /// The version found.
        found: Version,
    },
    /// Found, and without functions that every supported version has.
    #[error("libflux {found} lacks {}: flux-core {MINIMUM} or newer is needed", missing.join(", "))]
    Incomplete {
        /// The version found, or "of unknown version".
        found: String,
        /// The missing functions.
        missing: Vec<&'static str>,
    },
}

/// A libflux that has every function we need.
pub struct Loaded {
    functions: LibFlux,
    version: Version,
    source: Source,
}

impl Loaded {
    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Where it was found.
    pub fn source(&self) -> &Source {
        &self.source
    }
}

impl Deref for Loaded {
    type Target = LibFlux;

    fn deref(&self) -> &LibFlux {
        &self.functions
    }
}

/// Names the bound functions, and says which of them a library lacks.
macro_rules! functions {
    ($($name:ident)*) => {
        #[cfg(test)]
        const FUNCTIONS: &[&str] = &[$(stringify!($name)),*];

        fn missing(functions: &LibFlux) -> Vec<&'static str> {
            let mut missing = Vec::new();
            $(if functions.$name.is_err() { missing.push(stringify!($name)); })*
            missing
        }
    };
}

functions! {
    flux_core_version_string flux_core_version
    flux_open_ex flux_close flux_get_reactor flux_set_reactor flux_aux_get flux_aux_set flux_opt_set
    flux_attr_get flux_get_rank flux_get_size
    flux_log flux_strerror
    flux_reactor_create flux_reactor_destroy flux_reactor_run flux_reactor_stop flux_reactor_stop_error
    flux_reactor_now
    flux_watcher_start flux_watcher_stop flux_watcher_ref flux_watcher_unref flux_watcher_destroy
    flux_watcher_set_priority flux_timer_watcher_create flux_timer_watcher_reset flux_fd_watcher_create
    flux_prepare_watcher_create flux_check_watcher_create flux_idle_watcher_create
    flux_future_then flux_future_wait_for flux_future_is_ready flux_future_reset flux_future_destroy
    flux_future_get flux_future_has_error flux_future_error_string
    flux_rpc flux_rpc_raw flux_rpc_get flux_rpc_get_raw flux_rpc_get_matchtag
    flux_msg_incref flux_msg_decref flux_msg_get_topic flux_msg_get_rolemask flux_msg_get_userid
    flux_msg_is_streaming flux_msg_is_noresponse flux_msg_route_first flux_disconnect_match flux_cancel_match
    flux_request_decode flux_request_decode_raw flux_respond flux_respond_raw flux_respond_error
    flux_msg_handler_create flux_msg_handler_destroy flux_msg_handler_start flux_msg_handler_stop
    flux_msg_handler_allow_rolemask
    flux_event_subscribe flux_event_unsubscribe flux_event_decode flux_event_publish flux_event_publish_get_seq
    flux_msg_get_seq
    flux_module_set_running flux_service_register flux_service_unregister
}

/// The process's libflux. It is looked for once: an error stays the answer, except that an absent library may
/// still appear (a preloaded probe asks before Python has loaded it), so absence is looked for again.
pub fn libflux() -> Result<&'static Loaded, LoadError> {
    static LOADED: OnceLock<Loaded> = OnceLock::new();
    if let Some(loaded) = LOADED.get() {
        return Ok(loaded);
    }
    let found = find()?;
    Ok(LOADED.get_or_init(|| found))
}

fn find() -> Result<Loaded, LoadError> {
    let mut this = Library::this();
    // SAFETY: only the address is taken, to see whether the process has libflux in its global scope.
    if unsafe { this.get::<*const ()>(b"flux_core_version\0") }.is_ok() {
        return check(this, Source::Process);
    }
    // Python loads libflux with RTLD_LOCAL: present, and not in the global scope. RTLD_NOLOAD finds it by name.
    // SAFETY: with RTLD_NOLOAD nothing new is loaded, so no initialiser runs.
    if let Ok(present) = unsafe { Library::open(Some(SONAME), RTLD_NOW | RTLD_LOCAL | libc::RTLD_NOLOAD) } {
        return check(present, Source::Process);
    }
    let name = std::env::var_os(ENV_LIBFLUX).unwrap_or_else(|| SONAME.into());
    // SAFETY: the initialisers of libflux-core and of what it links have no preconditions.
    this = unsafe { Library::open(Some(&name), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|error| LoadError::Absent { name: name.clone(), reason: error.to_string() })?;
    check(this, Source::Opened(name))
}

fn check(library: Library, source: Source) -> Result<Loaded, LoadError> {
    // SAFETY: the symbols have the types of include/libflux.h, which is compiled against Flux's own headers where
    // they are installed; a library without them is refused below before anything is called.
    let functions = unsafe { LibFlux::from_library(library) }
        .map_err(|error| LoadError::Incomplete { found: error.to_string(), missing: Vec::new() })?;
    let version = version(&functions);
    let lacks = missing(&functions);
    match version {
        Some(found) if found < MINIMUM => Err(LoadError::TooOld { found }),
        Some(version) if lacks.is_empty() => Ok(Loaded { functions, version, source }),
        known => {
            let found = known.map_or("of unknown version".to_owned(), |version| version.to_string());
            Err(LoadError::Incomplete { found, missing: lacks })
        }
    }
}

fn version(functions: &LibFlux) -> Option<Version> {
    let flux_core_version = *functions.flux_core_version.as_ref().ok()?;
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: three valid pointers to int, as the declaration asks.
    unsafe { flux_core_version(&mut major, &mut minor, &mut patch) };
    Some(Version { major, minor, patch })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bound_function_is_checked_at_load() {
        let bindings = include_str!("bindings.rs");
        let lookups = bindings.split("b\"").skip(1);
        let mut bound: Vec<&str> =
            lookups.filter_map(|rest| rest.split_once("\\0").map(|(name, _)| name)).collect();
        let mut checked = FUNCTIONS.to_vec();
        bound.sort_unstable();
        checked.sort_unstable();
        assert!(!bound.is_empty());
        assert_eq!(bound, checked);
    }

    #[test]
    fn an_older_version_sorts_below_a_newer_one() {
        let v = |major, minor, patch| Version { major, minor, patch };
        assert!(v(0, 69, 9) < MINIMUM);
        assert!(v(0, 70, 0) >= MINIMUM);
        assert!(v(1, 0, 0) > v(0, 88, 3));
    }
}
