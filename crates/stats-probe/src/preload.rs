//! The hook from birth: what `reactor-probe.so` exports, and how an attach notices it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering::*;

use crate::attach;
use crate::clock::Clock;
use crate::object;
use crate::slots::{MAGIC, Table, VERSION};

/// The function by which a preloaded probe is known, of type [`Shared`]. Its name carries the version of
/// the slot table's layout: an attach of another version puts its own hook above.
const SHARED: &CStr = c"flux_stats_probe_slots_v3";

/// Returns the address of the process's slot table, null if nothing is hooked. A path that is not NULL is
/// made to show the table (1) or ceases to (0).
pub type Shared = extern "C" fn(path: *const c_char, show: c_int) -> *const c_void;

/// Hooks the libflux that holds `anchor`, the address of its `flux_reactor_run`, for the life of the
/// process. An error says in one sentence why not.
pub fn install(anchor: *const c_void) -> Result<(), String> {
    attach::attach(anchor as usize, None, Clock::Auto).map(drop)
}

/// The body of [`Shared`], for `reactor-probe.so` to export.
///
/// # Safety
///
/// `path` is NULL or a NUL-terminated string.
pub unsafe fn shared(path: *const c_char, show: c_int) -> *const c_void {
    let path = (!path.is_null()).then(|| {
        // SAFETY: by this function's contract.
        unsafe { CStr::from_ptr(path) }
    });
    let path = path.map(|p| Path::new(std::ffi::OsStr::from_bytes(p.to_bytes())));
    attach::show(path, show != 0).map_or(std::ptr::null(), |table| (table as *const Table).cast())
}

/// libflux in this process, however it was loaded: the addresses of its `flux_reactor_create` and
/// `flux_reactor_run`. For callers that define `flux_reactor_create` themselves.
pub fn libflux() -> Option<(*const c_void, *const c_void)> {
    // In the global scope behind us; else, loaded RTLD_LOCAL (as Python does), by its name.
    let next = |name: &CStr| {
        // SAFETY: the name is NUL-terminated.
        unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
    };
    let (create, run) = (next(c"flux_reactor_create"), next(c"flux_reactor_run"));
    if !create.is_null() && !run.is_null() {
        return Some((create, run));
    }
    let path = object::path_with("/libflux-core.so")?;
    // SAFETY: the path is that of a loaded object; NOLOAD runs no code of it.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    let of = |name: &CStr| {
        // SAFETY: an open handle (or NULL, which finds our own) and a NUL-terminated name.
        unsafe { libc::dlsym(handle, name.as_ptr()) }
    };
    let (create, run) = (of(c"flux_reactor_create"), of(c"flux_reactor_run"));
    (!handle.is_null() && !create.is_null() && !run.is_null()).then_some((create, run))
}

/// The table of a hook that was preloaded into this process.
pub(crate) fn find(path: Option<&Path>, show: bool) -> Option<&'static Table> {
    let address = object::default_symbol(SHARED);
    if address == 0 {
        return None;
    }
    // SAFETY: the symbol is a function of this type in every reactor-probe.so that exports it.
    let shared = unsafe { std::mem::transmute::<*const (), Shared>(address as *const ()) };
    let path = path.and_then(|p| CString::new(p.as_os_str().as_bytes()).ok());
    let table = shared(path.as_ref().map_or(std::ptr::null(), |p| p.as_ptr()), show.into()).cast::<Table>();
    if table.is_null() {
        return None;
    }
    // SAFETY: the table is never unmapped, and its first words are the same in every version.
    let table = unsafe { &*table };
    let known = table.header.magic.load(Acquire) == MAGIC && table.header.version.load(Relaxed) == VERSION;
    (known && table.header.generation.load(Acquire) & 1 == 1).then_some(table)
}
