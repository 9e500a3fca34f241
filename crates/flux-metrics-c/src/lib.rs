//! The C interface of `flux-metrics`: libflux-metrics.so, declared and documented in `include/flux-metrics.h`.
//!
//! A leaf: no module of ours links it, since a module exports every `#[no_mangle]` of the crates that it links.
//! No panic leaves a function, and no argument but a pointer that is neither null nor valid is undefined.

pub mod handles;
mod state;

use flux::Error;
use flux_metrics::Histogram;
use libc::{c_char, c_double, c_int};
use state::{State, with_state};
use std::ffi::{CStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// A member of a set, in bytes.
const MEMBER_MAX: usize = 200;

/// A `flux_t *`.
type RawHandle = *mut c_void;

fn set_errno(errnum: c_int) {
    // SAFETY: errno is always there.
    unsafe { *libc::__errno_location() = errnum };
}

/// Runs `body`; what went wrong becomes `errno`, and a panic `EIO`.
fn guarded<R>(body: impl FnOnce() -> Result<R, Error>) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(result)) => Some(result),
        Ok(Err(error)) => {
            set_errno(error.errnum());
            None
        }
        Err(_) => {
            set_errno(libc::EIO);
            None
        }
    }
}

fn result(done: Option<()>) -> c_int {
    if done.is_some() { 0 } else { -1 }
}

/// # Safety
/// `text` is null or a C string that outlives what is returned.
unsafe fn bytes<'a>(text: *const c_char, what: &str) -> Result<&'a CStr, Error> {
    if text.is_null() {
        return Err(Error::invalid(format!("the {what} is null")));
    }
    // SAFETY: see above.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// Gives `body` the handle's state and the name.
///
/// # Safety
/// `h` is null or a live handle of this thread, `name` null or a C string.
unsafe fn named(
    h: RawHandle,
    name: *const c_char,
    body: impl FnOnce(&State, &CStr) -> Result<(), Error>,
) -> c_int {
    result(guarded(|| {
        // SAFETY: as the caller says.
        let name = unsafe { bytes(name, "name") }?;
        // SAFETY: as the caller says.
        unsafe { with_state(h, |state| body(state, name)) }
    }))
}

fn finite(value: f64) -> Result<f64, Error> {
    if value.is_finite() { Ok(value) } else { Err(Error::invalid(format!("{value} is not finite"))) }
}

fn duration(seconds: f64) -> Result<Duration, Error> {
    Duration::try_from_secs_f64(seconds).map_err(|error| Error::invalid(format!("{seconds} s: {error}")))
}

/// See `include/flux-metrics.h`, here and below.
///
/// # Safety
/// As there: `h` and `name` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_metric_count(h: RawHandle, name: *const c_char, n: i64) -> c_int {
    // SAFETY: as the caller says.
    unsafe { named(h, name, |state, name| state.counters.with(state, name, |counter| counter.add(n))) }
}

/// # Safety
/// `h` and `name` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_metric_gauge(h: RawHandle, name: *const c_char, value: c_double) -> c_int {
    let body = |state: &State, name: &CStr| {
        let value = finite(value)?;
        state.gauges.with(state, name, |gauge| gauge.set(value))
    };
    // SAFETY: as the caller says.
    unsafe { named(h, name, body) }
}

/// # Safety
/// `h` and `name` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_metric_gauge_add(h: RawHandle, name: *const c_char, by: c_double) -> c_int {
    let body = |state: &State, name: &CStr| {
        let by = finite(by)?;
        state.gauges.with(state, name, |gauge| gauge.add(by))
    };
    // SAFETY: as the caller says.
    unsafe { named(h, name, body) }
}

/// # Safety
/// `h` and `name` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_metric_timing(h: RawHandle, name: *const c_char, seconds: c_double) -> c_int {
    let body = |state: &State, name: &CStr| {
        let duration = duration(seconds)?;
        state.timers.with(state, name, |timer| timer.record(duration))
    };
    // SAFETY: as the caller says.
    unsafe { named(h, name, body) }
}

/// # Safety
/// `h` and `name` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_metric_histogram(h: RawHandle, name: *const c_char, sample: c_double) -> c_int {
    let body = |state: &State, name: &CStr| {
        let bad = || Error::invalid("expected a number from 0 up to 9e12");
        Some(sample).filter(|&sample| Histogram::takes(sample)).ok_or_else(bad)?;
        state.histograms.with(state, name, |histogram| histogram.record(sample))
    };
    // SAFETY: as the caller says.
    unsafe { named(h, name, body) }
}

/// # Safety
/// `h`, `name` and `member` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_metric_set(h: RawHandle, name: *const c_char, member: *const c_char) -> c_int {
    let body = |state: &State, name: &CStr| {
        // SAFETY: as the caller says.
        let member = unsafe { bytes(member, "member") }?.to_str().ok();
        let member = member.filter(|member| (1..=MEMBER_MAX).contains(&member.len()));
        let bad = || Error::invalid(format!("a member is UTF-8 of 1 to {MEMBER_MAX} bytes"));
        let member = member.ok_or_else(bad)?;
        state.sets.with(state, name, |set| set.insert(member))
    };
    // SAFETY: as the caller says.
    unsafe { named(h, name, body) }
}

/// # Safety
/// `h` and `prefix` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_metric_period(h: RawHandle, prefix: *const c_char, seconds: c_double) -> c_int {
    // SAFETY: as the caller says.
    unsafe { named(h, prefix, |state, prefix| state.route(prefix, duration(seconds)?)) }
}

/// # Safety
/// `h` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_metric_instrument(h: RawHandle) -> c_int {
    // SAFETY: as the caller says.
    result(guarded(|| unsafe { with_state(h, State::instrument) }))
}

/// # Safety
/// `h` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_metric_flush(h: RawHandle, seconds: c_double) -> c_int {
    result(guarded(|| {
        let timeout = duration(seconds)?;
        // SAFETY: as the caller says.
        unsafe { with_state(h, |state| state.flush(timeout)) }
    }))
}

/// # Safety
/// `h` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_metric_close(h: RawHandle, seconds: c_double) -> c_int {
    result(guarded(|| {
        // Whatever the time is, the handle is let go.
        let timeout = duration(seconds);
        // SAFETY: as the caller says.
        let closed = unsafe { state::close(h, timeout.as_ref().copied().unwrap_or_default()) };
        timeout.and(closed)
    }))
}
