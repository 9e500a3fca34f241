//! Watchers: what a reactor calls, and when.

use crate::boundary::NoCancel;
use crate::error::{Error, Result};
use crate::handle::Handle;
use flux_sys::{Loaded, flux_reactor_t, flux_watcher_t};
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::Duration;

/// What a descriptor is watched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// It can be read.
    Read,
    /// It can be written.
    Write,
}

/// How soon a module that has nothing to do notices that its thread is to be cancelled.
const CANCEL_PERIOD: Duration = Duration::from_secs(1);

/// The highest priority that a check watcher can have.
const FIRST: c_int = 2;

/// A watcher's callback through which a forced unwind may pass.
pub(crate) type CancellationPoint =
    unsafe extern "C-unwind" fn(*mut flux_reactor_t, *mut flux_watcher_t, c_int, *mut c_void);

/// What a watcher calls. Shared, so that a watcher may be dropped from inside its own callback.
struct Callback {
    /// Runs the body and contains its panics; the argument is libflux's `revents`.
    body: RefCell<Box<dyn FnMut(c_int)>>,
}

/// A timer, a descriptor or a phase of the reactor being watched; stopped and freed when dropped.
pub struct Watcher {
    raw: NonNull<flux_watcher_t>,
    libflux: &'static Loaded,
    /// Keeps what `raw` points to as its argument, if anything.
    _callback: Option<Rc<Callback>>,
}

impl Watcher {
    /// Calls `body` `after` that time and, unless `repeat` is zero, every `repeat` from then on.
    pub(crate) fn timer(
        handle: &Handle,
        after: Duration,
        repeat: Duration,
        body: impl FnMut(c_int) + 'static,
    ) -> Result<Self> {
        let (libflux, reactor) = (handle.libflux(), reactor_of(handle)?);
        // SAFETY: a live reactor, the trampoline and the argument that it expects.
        Self::create(handle, "timer", body, |arg| unsafe {
            libflux.flux_timer_watcher_create(
                reactor.as_ptr(),
                after.as_secs_f64(),
                repeat.as_secs_f64(),
                Some(call),
                arg,
            )
        })
    }

    /// Calls `body` whenever `fd` is ready for `interest`.
    pub(crate) fn fd(
        handle: &Handle,
        fd: RawFd,
        interest: Interest,
        body: impl FnMut(c_int) + 'static,
    ) -> Result<Self> {
        let (libflux, reactor) = (handle.libflux(), reactor_of(handle)?);
        let events = match interest {
            Interest::Read => flux_sys::FLUX_POLLIN,
            Interest::Write => flux_sys::FLUX_POLLOUT,
        };
        // SAFETY: a live reactor, the trampoline and the argument that it expects.
        Self::create(handle, "descriptor", body, |arg| unsafe {
            libflux.flux_fd_watcher_create(reactor.as_ptr(), fd, events as c_int, Some(call), arg)
        })
    }

    fn create(
        handle: &Handle,
        what: &str,
        body: impl FnMut(c_int) + 'static,
        make: impl FnOnce(*mut c_void) -> *mut flux_watcher_t,
    ) -> Result<Self> {
        let libflux = handle.libflux();
        let callback = Rc::new(Callback { body: RefCell::new(Box::new(body)) });
        let raw = make(Rc::as_ptr(&callback).cast_mut().cast());
        Self::start(libflux, raw, what, Some(callback))
    }

    fn start(
        libflux: &'static Loaded,
        raw: *mut flux_watcher_t,
        what: &str,
        callback: Option<Rc<Callback>>,
    ) -> Result<Self> {
        let raw = NonNull::new(raw).ok_or_else(|| Error::last(libflux, &format!("watching a {what}")))?;
        // SAFETY: just created.
        unsafe { libflux.flux_watcher_start(raw.as_ptr()) };
        Ok(Watcher { raw, libflux, _callback: callback })
    }

    /// Calls `point`, with the handle, at each turn of the reactor and at least every [`CANCEL_PERIOD`].
    ///
    /// # Safety
    /// `point` may be called with the handle for as long as the watchers live.
    pub(crate) unsafe fn cancellation(handle: &Handle, point: CancellationPoint) -> Result<[Self; 2]> {
        type Plain = unsafe extern "C" fn(*mut flux_reactor_t, *mut flux_watcher_t, c_int, *mut c_void);
        let (libflux, reactor) = (handle.libflux(), reactor_of(handle)?.as_ptr());
        // SAFETY: the same C calling convention; libev and libflux are C, through which a forced unwind passes.
        let point = unsafe { std::mem::transmute::<CancellationPoint, Plain>(point) };
        let (period, arg) = (CANCEL_PERIOD.as_secs_f64(), handle.raw().cast());
        // SAFETY: a live reactor, and a callback that may be called with the handle.
        let (turn, timer) = unsafe {
            (
                libflux.flux_prepare_watcher_create(reactor, Some(point), arg),
                libflux.flux_timer_watcher_create(reactor, period, period, Some(point), arg),
            )
        };
        let turn = Self::start(libflux, turn, "turn of the reactor", None)?;
        let timer = Self::start(libflux, timer, "timer", None)?;
        turn.unreference();
        timer.unreference();
        Ok([turn, timer])
    }

    /// Calls `body` before each wait of the reactor, or (`ends`) after each, ahead of what else that turn has to do.
    fn turn(handle: &Handle, ends: bool, body: impl FnMut(c_int) + 'static) -> Result<Self> {
        let (libflux, reactor) = (handle.libflux(), reactor_of(handle)?.as_ptr());
        // SAFETY: a live reactor, the trampoline and the argument that it expects; a priority is set before the start, of
        // prepare watchers libflux does not take one.
        let watcher = Self::create(handle, "turn of the reactor", body, |arg| unsafe {
            if !ends {
                return libflux.flux_prepare_watcher_create(reactor, Some(call), arg);
            }
            let check = libflux.flux_check_watcher_create(reactor, Some(call), arg);
            if !check.is_null() {
                libflux.flux_watcher_set_priority(check, FIRST);
            }
            check
        })?;
        watcher.unreference();
        Ok(watcher)
    }

    /// Sets a timer anew: it fires `after` that time, and every `repeat` then unless that is zero.
    pub fn reset_timer(&self, after: Duration, repeat: Duration) {
        // SAFETY: a live watcher. On one that is no timer libflux does nothing.
        unsafe {
            self.libflux.flux_watcher_stop(self.raw.as_ptr());
            self.libflux.flux_timer_watcher_reset(
                self.raw.as_ptr(),
                after.as_secs_f64(),
                repeat.as_secs_f64(),
            );
            self.libflux.flux_watcher_start(self.raw.as_ptr());
        }
    }

    /// Lets the reactor end although this watcher is still active.
    pub fn unreference(&self) {
        // SAFETY: a live watcher.
        unsafe { self.libflux.flux_watcher_unref(self.raw.as_ptr()) };
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // SAFETY: live until here; a watcher holds a reference to its reactor, so this is right even after the
        // handle is closed.
        unsafe { self.libflux.flux_watcher_destroy(self.raw.as_ptr()) };
    }
}

impl Handle {
    /// Calls `body` `after` that time and, unless `repeat` is zero, every `repeat` from then on, from the handle's
    /// reactor, which is made if there is none. A module uses [`Scope::timer`](crate::Scope::timer).
    pub fn timer(
        &self,
        after: Duration,
        repeat: Duration,
        mut body: impl FnMut() + 'static,
    ) -> Result<Watcher> {
        Watcher::timer(self, after, repeat, move |_| {
            // A panic must not cross into C; it has been written to standard error.
            let _ = catch_unwind(AssertUnwindSafe(&mut body));
        })
    }

    /// Calls `begins` before each wait of the handle's reactor and `ends` right after it, as long as both watchers live.
    /// They do not keep the reactor going.
    pub fn around_waits(
        &self,
        mut begins: impl FnMut() + 'static,
        mut ends: impl FnMut() + 'static,
    ) -> Result<[Watcher; 2]> {
        // A panic must not cross into C; it has been written to standard error.
        let begins = Watcher::turn(self, false, move |_| drop(catch_unwind(AssertUnwindSafe(&mut begins))))?;
        let ends = Watcher::turn(self, true, move |_| drop(catch_unwind(AssertUnwindSafe(&mut ends))))?;
        Ok([begins, ends])
    }

    /// Runs the handle's reactor until [`Handle::stop`], or until nothing keeps it. Not for modules, whose reactor runs
    /// already.
    pub fn run(&self) -> Result<()> {
        self.run_with(0)
    }

    /// Like [`Handle::run`], for one turn: until something has happened of what is watched.
    pub fn run_once(&self) -> Result<()> {
        self.run_with(flux_sys::FLUX_REACTOR_ONCE)
    }

    fn run_with(&self, flags: u32) -> Result<()> {
        let reactor = reactor_of(self)?;
        // SAFETY: the live reactor of a live handle.
        match unsafe { self.libflux().flux_reactor_run(reactor.as_ptr(), flags as c_int) } {
            0.. => Ok(()),
            _ => Err(Error::last(self.libflux(), "running the reactor")),
        }
    }

    /// Ends [`Handle::run`].
    pub fn stop(&self) -> Result<()> {
        let reactor = reactor_of(self)?;
        // SAFETY: the live reactor of a live handle.
        unsafe { self.libflux().flux_reactor_stop(reactor.as_ptr()) };
        Ok(())
    }
}

/// The reactor of a handle, created with the first call.
pub(crate) fn reactor_of(handle: &Handle) -> Result<NonNull<flux_reactor_t>> {
    let libflux = handle.libflux();
    // SAFETY: a live handle.
    NonNull::new(unsafe { libflux.flux_get_reactor(handle.raw()) })
        .ok_or_else(|| Error::last(libflux, "asking for the reactor"))
}

/// The address of `flux_reactor_run`, by which the libflux of this process can be found; null when there is none.
pub fn reactor_run_address() -> *const c_void {
    let run = flux_sys::libflux().ok().and_then(|libflux| libflux.flux_reactor_run.as_ref().ok().copied());
    run.map_or(std::ptr::null(), |run| run as *const c_void)
}

/// Where C enters.
unsafe extern "C" fn call(_: *mut flux_reactor_t, _: *mut flux_watcher_t, revents: c_int, arg: *mut c_void) {
    let _no_cancel = NoCancel::new();
    // SAFETY: the argument is the callback of the watcher that is firing, alive at this moment. The reference
    // counted here keeps it until we return, even when the body drops the watcher.
    let callback = unsafe {
        Rc::increment_strong_count(arg.cast::<Callback>());
        Rc::from_raw(arg.cast::<Callback>().cast_const())
    };
    // Busy only when the body runs a reactor that fires the same watcher again: then this turn is skipped.
    if let Ok(mut body) = callback.body.try_borrow_mut() {
        body(revents);
    }
}
