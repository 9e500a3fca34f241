//! `LD_PRELOAD=reactor-probe.so`: times the reactors of any Flux process from its first turn on, so that
//! modules in processes of their own, Python ones too, are timed as exactly as the broker's threads.
//!
//! Whatever way libflux comes into a process (linked, loaded late, `RTLD_LOCAL` under Python), a reactor is
//! created by `flux_reactor_create`, by libflux itself or its user. That one function is defined here
//! again: its first call puts the hook into libflux's GOT, and hands on. Wrapping `flux_reactor_run` would
//! not do: the broker opens modules with `RTLD_DEEPBIND`, which hides preloaded functions from them. A
//! process that creates no reactor is left alone.
//!
//! The numbers lie in the process's slot table, which stats-agg (probe=attach notices it) and
//! `flux stats peek` read from outside.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use stats_probe::preload;

type Create = unsafe extern "C-unwind" fn(c_int) -> *mut c_void;

/// libflux's own function, after the hook has been put in.
fn real() -> Option<Create> {
    static REAL: OnceLock<usize> = OnceLock::new();
    let address = *REAL.get_or_init(|| {
        let Some((create, run)) = preload::libflux() else { return 0 };
        // Without a hook the process goes on as if nothing had been preloaded.
        let _ = preload::install(run);
        create as usize
    });
    // SAFETY: the address of libflux's flux_reactor_create, whose prototype this is.
    (address != 0).then(|| unsafe { std::mem::transmute::<usize, Create>(address) })
}

/// Stands in for libflux's function of that name.
///
/// # Safety
///
/// As libflux's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn flux_reactor_create(flags: c_int) -> *mut c_void {
    match std::panic::catch_unwind(real) {
        // SAFETY: the caller's argument is passed on as it is.
        Ok(Some(create)) => unsafe { create(flags) },
        _ => {
            // SAFETY: errno's address is valid for the calling thread.
            unsafe { *libc::__errno_location() = libc::ENOSYS };
            std::ptr::null_mut()
        }
    }
}

/// How an attach finds this hook: see [`preload::Shared`].
///
/// # Safety
///
/// `path` is NULL or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_stats_probe_slots_v3(path: *const c_char, show: c_int) -> *const c_void {
    // SAFETY: by this function's contract.
    let shared = || unsafe { preload::shared(path, show) };
    std::panic::catch_unwind(shared).unwrap_or(std::ptr::null())
}
