//! The body of `mod_main`: a module is made, runs, and is dropped before its handle is closed, whichever way it ends.

use super::{Core, Module, Scope};
use crate::boundary::{NoCancel, Panics, cancellation_point, forbid_cancel};
use crate::error::{Error, Result};
use crate::handle::{Handle, Level};
use crate::reactor::{Watcher, reactor_of};
use crate::reserve::Reserve;
use flux_sys::{Loaded, flux_reactor_t, flux_t, flux_watcher_t};
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::time::Duration;

/// Bounds the farewell, whatever [`Module::unload`] asks for: a module that never ends hangs `flux module remove`.
const UNLOAD_MAX: Duration = Duration::from_secs(30);

/// What stays of a module while its reactor runs: plain pointers, so that the frame which waits owns nothing.
struct Running {
    reactor: *mut flux_reactor_t,
    run: unsafe extern "C-unwind" fn(*mut flux_reactor_t, c_int) -> c_int,
}

/// The name of the auxiliary item that owns a module: freed with the handle, first of all its items.
const AUX: &CStr = c"flux-stats::module";

/// The body of `mod_main`.
///
/// # Safety
/// `h`, `argc` and `argv` as a broker passes them to `mod_main`, on the module's own thread.
#[doc(hidden)]
pub unsafe extern "C-unwind" fn main<T: Module>(
    h: *mut flux_t,
    argc: c_int,
    argv: *mut *mut c_char,
    reserve: &'static Reserve,
) -> c_int {
    // This frame and the calls that wait own nothing: a forced unwind (pthread_cancel) may pass. It comes from a
    // watcher of theirs, see `may_end`; everywhere else cancellation is forbidden.
    forbid_cancel();
    // SAFETY: passed on as they came.
    let Some(running) = (unsafe { start::<T>(h, argc, argv, reserve) }) else { return -1 };
    // SAFETY: a live reactor and libflux's own function; `extern "C-unwind"`, since cancellation unwinds through it.
    let rc = unsafe { run(&running) };
    if let Some(running) = farewell::<T>(h, rc) {
        // SAFETY: as above.
        unsafe { run(&running) };
    }
    finish::<T>(h);
    // Whatever happened since RUNNING: failure now would take the broker down.
    0
}

/// # Safety
/// `running` holds a live reactor and `flux_reactor_run`.
unsafe fn run(running: &Running) -> c_int {
    // SAFETY: see above.
    unsafe { (running.run)(running.reactor, 0) }
}

/// Makes the module. `None`: refused, logged, and `errno` says why.
///
/// # Safety
/// As [`main`].
unsafe fn start<T: Module>(
    h: *mut flux_t,
    argc: c_int,
    argv: *mut *mut c_char,
    reserve: &'static Reserve,
) -> Option<Running> {
    let libflux = match flux_sys::libflux() {
        Ok(libflux) => libflux,
        Err(error) => {
            // Without libflux there is no log either.
            let _ = std::io::Write::write_all(
                &mut std::io::stderr(),
                format!("flux-stats: {error}\n").as_bytes(),
            );
            set_errno(libc::ELIBACC);
            return None;
        }
    };
    // SAFETY: the broker's handle, of this thread; the module is dropped before it is closed.
    let handle = unsafe { Handle::borrow(NonNull::new(h)?, libflux) };
    // SAFETY: as the broker passes them.
    let arguments = unsafe { arguments(argc, argv) };
    match build::<T>(handle, &arguments, reserve) {
        Ok(running) => Some(running),
        Err(error) => {
            reserve.release();
            // SAFETY: as above.
            let handle = unsafe { Handle::borrow(NonNull::new(h)?, libflux) };
            handle.log(Level::Err, &format!("not loaded: {error}"));
            set_errno(error.errnum());
            None
        }
    }
}

fn build<T: Module>(handle: Handle, arguments: &[String], reserve: &'static Reserve) -> Result<Running> {
    reserve.fill()?;
    let libflux = handle.libflux();
    let name = handle
        .aux_string(c"flux::name")
        .ok_or_else(|| Error::new(libc::ENOENT, "the handle has no flux::name: it is not a module's"))?;
    let core = Rc::new(Core {
        handle,
        name,
        panics: Panics::default(),
        state: RefCell::new(None),
        methods: RefCell::new(Vec::new()),
        ending: Cell::new(false),
        farewell: RefCell::new(None),
        cancellation: RefCell::new(None),
        reserve,
        exhausted: Cell::new(false),
        alive: Rc::new(()),
    });
    // There is one from the first line of the module, for what looks for it.
    reactor_of(&core.handle)?;
    let scope = Scope::of(&core);
    let module = core
        .panics
        .contain(&core.handle, "the load of the module", || T::load(&scope, arguments))
        .unwrap_or_else(|| Err(Error::new(libc::EIO, "panic while loading, see above")))?;
    core.state.replace(Some(module));
    let running = register_all(&core).and_then(|()| {
        let reactor = reactor_of(&core.handle)?.as_ptr();
        // SAFETY: the watchers end with the module, and the module before its handle.
        let cancellation = unsafe { Watcher::cancellation(&core.handle, may_end::<T>) };
        core.cancellation.replace(Some(cancellation?));
        Ok(Running { reactor, run: reactor_run(libflux)? })
    });
    match running.and_then(|running| own(&core).map(|()| running)) {
        Ok(running) => Ok(running),
        Err(error) => {
            core.end();
            core.handle.say_last_words();
            Err(error)
        }
    }
}

fn register_all<T: Module>(core: &Rc<Core<T>>) -> Result<()> {
    for method in T::methods() {
        let registered = core.register(method)?;
        core.methods.borrow_mut().push(registered);
    }
    Ok(())
}

/// `flux_reactor_run`, typed so that a forced unwind may pass through it.
fn reactor_run(libflux: &Loaded) -> Result<unsafe extern "C-unwind" fn(*mut flux_reactor_t, c_int) -> c_int> {
    type Plain = unsafe extern "C" fn(*mut flux_reactor_t, c_int) -> c_int;
    type Unwinding = unsafe extern "C-unwind" fn(*mut flux_reactor_t, c_int) -> c_int;
    match libflux.flux_reactor_run.as_ref() {
        // SAFETY: the same C calling convention; the second type only adds that an unwind may come out.
        Ok(run) => Ok(unsafe { std::mem::transmute::<Plain, Unwinding>(*run) }),
        Err(error) => Err(Error::new(libc::ELIBACC, error.to_string())),
    }
}

/// Gives the module to its handle: whichever way the thread ends, it is dropped before the handle is gone.
fn own<T: Module>(core: &Rc<Core<T>>) -> Result<()> {
    let item = Rc::into_raw(core.clone()).cast_mut().cast::<c_void>();
    let libflux = core.handle.libflux();
    // SAFETY: a live handle, a C string, and an item with the function that frees it.
    if unsafe { libflux.flux_aux_set(core.handle.raw(), AUX.as_ptr(), item, Some(disown::<T>)) } == 0 {
        return Ok(());
    }
    let error = Error::last(libflux, "storing the module");
    // SAFETY: the reference made above, which libflux did not take.
    drop(unsafe { Rc::from_raw(item.cast::<Core<T>>().cast_const()) });
    Err(error)
}

/// Called by libflux when the item is replaced or the handle closed.
unsafe extern "C" fn disown<T: Module>(item: *mut c_void) {
    let _no_cancel = NoCancel::new();
    // SAFETY: the reference that `own` gave away.
    let core = unsafe { Rc::from_raw(item.cast::<Core<T>>().cast_const()) };
    core.end();
}

/// A watcher's callback: here the thread may be cancelled.
unsafe extern "C-unwind" fn may_end<T: Module>(
    _: *mut flux_reactor_t,
    _: *mut flux_watcher_t,
    _: c_int,
    h: *mut c_void,
) {
    // SAFETY: the module's handle, on its thread.
    unsafe { cancellation_point(cancelled::<T>, h) }
}

/// The thread is being cancelled.
unsafe extern "C" fn cancelled<T: Module>(h: *mut c_void) {
    let _no_cancel = NoCancel::new();
    finish::<T>(h.cast());
}

/// The module that `h` owns.
fn owned<T: 'static>(h: *mut flux_t) -> Option<Rc<Core<T>>> {
    let libflux = flux_sys::libflux().ok()?;
    // SAFETY: a live handle and a C string.
    let item = unsafe { libflux.flux_aux_get(h, AUX.as_ptr()) }.cast::<Core<T>>();
    if item.is_null() {
        return None;
    }
    // SAFETY: the item is the reference given away by `own` for the same T; one more is counted for us.
    Some(unsafe {
        Rc::increment_strong_count(item.cast_const());
        Rc::from_raw(item.cast_const())
    })
}

/// The reactor has ended; whether it runs on for a farewell.
fn farewell<T: Module>(h: *mut flux_t, rc: c_int) -> Option<Running> {
    let core = owned::<T>(h)?;
    if rc < 0 {
        core.handle.log(Level::Err, &Error::last(core.handle.libflux(), "the reactor failed").to_string());
        return None;
    }
    core.ending.set(true);
    // To say goodbye takes memory.
    if core.reserve.is_spent() {
        return None;
    }
    let limit = core.enter("the unload of the module", |module, scope| module.unload(scope)).flatten()?;
    let scope = Scope::of(&core);
    let stop = scope.clone();
    let timer =
        Watcher::timer(&core.handle, limit.min(UNLOAD_MAX), Duration::ZERO, move |_| stop.stop_reactor());
    core.farewell.replace(Some(timer.ok()?));
    Some(Running {
        reactor: reactor_of(&core.handle).ok()?.as_ptr(),
        run: reactor_run(core.handle.libflux()).ok()?,
    })
}

/// Drops the module while its handle still works.
fn finish<T: Module>(h: *mut flux_t) {
    if let Some(core) = owned::<T>(h) {
        core.end();
        core.handle.say_last_words();
        // SAFETY: a live handle; setting nothing removes the item, which `disown` frees.
        unsafe { core.handle.libflux().flux_aux_set(h, AUX.as_ptr(), ptr::null_mut(), None) };
        core.reserve.release();
    }
}

/// # Safety
/// `argv` holds `argc` C strings.
unsafe fn arguments(argc: c_int, argv: *mut *mut c_char) -> Vec<String> {
    let count = usize::try_from(argc).unwrap_or(0);
    if argv.is_null() {
        return Vec::new();
    }
    // SAFETY: see above.
    (0..count).map(|i| unsafe { CStr::from_ptr(*argv.add(i)) }.to_string_lossy().into_owned()).collect()
}

fn set_errno(errnum: i32) {
    // SAFETY: errno is always there.
    unsafe { *libc::__errno_location() = errnum };
}
