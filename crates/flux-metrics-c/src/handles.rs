//! What C holds: a counter, a gauge, a timer, a histogram.

use crate::state::{Names, State, destroy, with_state};
use crate::{RawHandle, bytes, guarded};
use flux_metrics::{Counter, Gauge, Histogram, Timer};
use libc::{c_char, c_double};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Finds an instrument for C to keep; null: `errno` says why.
///
/// # Safety
/// `h` is null or a live handle of this thread, `name` null or a C string.
unsafe fn find<T: Clone>(
    h: RawHandle,
    name: *const c_char,
    names: impl FnOnce(&State) -> &Names<T>,
) -> *mut T {
    let found = guarded(|| {
        // SAFETY: as the caller says.
        let name = unsafe { bytes(name, "name") }?;
        // SAFETY: as the caller says.
        unsafe { with_state(h, |state| names(state).get(state, name)) }
    });
    found.map_or(std::ptr::null_mut(), |found| Box::into_raw(Box::new(found)))
}

/// Gives `body` what C holds; nothing happens with null.
///
/// # Safety
/// `item` is null or came from [`find`], and has not been destroyed.
#[inline]
unsafe fn with<T>(item: *const T, body: impl FnOnce(&T)) {
    // SAFETY: see above.
    if let Some(item) = unsafe { item.as_ref() } {
        // A panic would be a bug; it must not cross into C.
        let _ = catch_unwind(AssertUnwindSafe(|| body(item)));
    }
}

/// See `include/flux-metrics.h`, here and below.
///
/// # Safety
/// As there: `h` and `name` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_metric_counter(h: RawHandle, name: *const c_char) -> *mut Counter {
    // SAFETY: as the caller says.
    unsafe { find(h, name, |state| &state.counters) }
}

/// # Safety
/// `c` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_counter_add(c: *mut Counter, n: i64) {
    // SAFETY: as the caller says.
    unsafe { with(c, |counter| counter.add(n)) }
}

/// # Safety
/// `c` is null or valid, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_counter_destroy(c: *mut Counter) {
    // SAFETY: as the caller says.
    unsafe { destroy(c) }
}

/// # Safety
/// `h` and `name` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_metric_gauge_handle(h: RawHandle, name: *const c_char) -> *mut Gauge {
    // SAFETY: as the caller says.
    unsafe { find(h, name, |state| &state.gauges) }
}

/// # Safety
/// `g` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_gauge_set(g: *mut Gauge, value: c_double) {
    // SAFETY: as the caller says.
    unsafe { with(g, |gauge| gauge.set(value)) }
}

/// # Safety
/// `g` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_gauge_add(g: *mut Gauge, by: c_double) {
    // SAFETY: as the caller says.
    unsafe { with(g, |gauge| gauge.add(by)) }
}

/// # Safety
/// `g` is null or valid, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_gauge_destroy(g: *mut Gauge) {
    // SAFETY: as the caller says.
    unsafe { destroy(g) }
}

/// # Safety
/// `h` and `name` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_metric_timer(h: RawHandle, name: *const c_char) -> *mut Timer {
    // SAFETY: as the caller says.
    unsafe { find(h, name, |state| &state.timers) }
}

/// # Safety
/// `t` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_timing_record(t: *mut Timer, seconds: c_double) {
    // SAFETY: as the caller says.
    unsafe { with(t, |timer| timer.record_s(seconds)) }
}

/// # Safety
/// `t` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_timing_record_ns(t: *mut Timer, nanoseconds: u64) {
    // SAFETY: as the caller says.
    unsafe { with(t, |timer| timer.record_ns(nanoseconds)) }
}

/// # Safety
/// `t` is null or valid, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_timing_destroy(t: *mut Timer) {
    // SAFETY: as the caller says.
    unsafe { destroy(t) }
}

/// # Safety
/// `h` and `name` are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_metric_histogram_handle(h: RawHandle, name: *const c_char) -> *mut Histogram {
    // SAFETY: as the caller says.
    unsafe { find(h, name, |state| &state.histograms) }
}

/// # Safety
/// `g` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_histogram_record(g: *mut Histogram, sample: c_double) {
    // SAFETY: as the caller says.
    unsafe { with(g, |histogram| histogram.record(sample)) }
}

/// # Safety
/// `g` is null or valid, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_histogram_destroy(g: *mut Histogram) {
    // SAFETY: as the caller says.
    unsafe { destroy(g) }
}
