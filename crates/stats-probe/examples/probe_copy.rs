//! A shared object with a probe of its own: what two versions of a module are to a broker. The tests load
//! it twice, under two names.

use std::ffi::c_void;
use std::sync::Mutex;

use stats_probe::{Options, Probe};

static PROBE: Mutex<Option<Probe>> = Mutex::new(None);

/// Attaches to the object that holds `anchor`. Returns 0 on success.
#[unsafe(no_mangle)]
pub extern "C" fn copy_attach(anchor: *const c_void) -> i32 {
    let Ok(mut held) = PROBE.lock() else { return -1 };
    let probe = Probe::start(Options::attach(anchor));
    let attached = probe.status().fallback.is_none();
    *held = Some(probe);
    if attached { 0 } else { -1 }
}

/// Detaches.
#[unsafe(no_mangle)]
pub extern "C" fn copy_detach() {
    if let Ok(mut held) = PROBE.lock() {
        *held = None;
    }
}

/// The wakeups of all modules since the attach.
#[unsafe(no_mangle)]
pub extern "C" fn copy_wakeups() -> u64 {
    match PROBE.lock() {
        Ok(mut held) => held.as_mut().map_or(0, |p| p.sample().iter().map(|m| m.wakeups).sum()),
        Err(_) => 0,
    }
}
