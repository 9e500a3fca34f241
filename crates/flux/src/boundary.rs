//! What stands between a C callback and our code: no panic and no thread cancellation gets through.

use crate::handle::{Handle, Level};
use libc::{c_int, c_void};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// Places whose panics are remembered as logged; beyond it every panic counts and none is logged.
const PLACES_MAX: usize = 64;

thread_local! {
    /// The message and place of the panic that is under way on this thread.
    static LAST_PANIC: RefCell<Option<(String, String)>> = const { RefCell::new(None) };
}

/// Counts panics and logs each place once.
#[derive(Default)]
pub(crate) struct Panics {
    caught: Cell<u64>,
    places: RefCell<BTreeSet<String>>,
}

impl Panics {
    /// How many were caught.
    pub(crate) fn caught(&self) -> u64 {
        self.caught.get()
    }

    /// Runs `body`; a panic in it is counted, logged once for its place as having happened in `what`, and `None`.
    pub(crate) fn contain<R>(&self, handle: &Handle, what: &str, body: impl FnOnce() -> R) -> Option<R> {
        keep_panics_quiet();
        let result = catch_unwind(AssertUnwindSafe(body));
        if result.is_err() {
            self.caught.set(self.caught.get() + 1);
            let (message, place) =
                LAST_PANIC.take().unwrap_or_else(|| ("unknown".to_owned(), "an unknown place".to_owned()));
            let mut places = self.places.borrow_mut();
            if places.len() < PLACES_MAX && places.insert(place.clone()) {
                let text = format!("panic in {what}: {message} ({place}); logged once, the module goes on");
                handle.log(Level::Err, &text);
            }
        }
        result.ok()
    }
}

/// The default hook writes a backtrace to the broker's standard error: keep message and place for the log instead.
/// The hook belongs to this shared object's own copy of the standard library, so no other module is affected.
fn keep_panics_quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            let payload = info.payload();
            let message = payload
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| payload.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "no message".to_owned());
            let place = info.location().map_or_else(String::new, ToString::to_string);
            LAST_PANIC.set(Some((message, place)));
        }));
    });
}

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    fn pthread_testcancel();
    /// What the macros of <pthread.h> lead to in programs that are not compiled for it (glibc and musl have them).
    fn _pthread_cleanup_push(
        buffer: *mut CleanupBuffer,
        routine: unsafe extern "C" fn(*mut c_void),
        arg: *mut c_void,
    );
    fn _pthread_cleanup_pop(buffer: *mut CleanupBuffer, execute: c_int);
}

/// glibc's values, the same on every Linux.
const PTHREAD_CANCEL_ENABLE: c_int = 0;
const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// Holds thread cancellation back while it lives: our frames own things, and a forced unwind must not meet them.
pub(crate) struct NoCancel {
    before: c_int,
}

impl NoCancel {
    pub(crate) fn new() -> Self {
        NoCancel { before: set_cancel(PTHREAD_CANCEL_DISABLE) }
    }
}

impl Drop for NoCancel {
    fn drop(&mut self) {
        set_cancel(self.before);
    }
}

/// Runs `body` with thread cancellation held back: for what is called from threads of others, whose cancellation must
/// not meet frames of ours.
pub fn uncancelled<R>(body: impl FnOnce() -> R) -> R {
    let _no_cancel = NoCancel::new();
    body()
}

fn set_cancel(state: c_int) -> c_int {
    let mut before = PTHREAD_CANCEL_DISABLE;
    // SAFETY: one of the two states, and a valid place for the old one; it is no cancellation point itself.
    unsafe { pthread_setcancelstate(state, &mut before) };
    before
}

/// From here on the thread is cancelled at a [`cancellation_point`] alone.
pub(crate) fn forbid_cancel() {
    set_cancel(PTHREAD_CANCEL_DISABLE);
}

/// `struct _pthread_cleanup_buffer` of <pthread.h>.
#[repr(C)]
struct CleanupBuffer {
    routine: Option<unsafe extern "C" fn(*mut c_void)>,
    arg: *mut c_void,
    cancel_type: c_int,
    previous: *mut CleanupBuffer,
}

/// Where a module's thread may be cancelled; `cleanup` is called then, before the handle is closed. To be called from
/// a watcher's callback.
///
/// Nowhere else: libflux reads and writes an eventfd while it holds the lock of a module's queue
/// (`msg_deque.c`), and a thread that is cancelled there takes the lock with it, for which the broker then waits for
/// ever. (Seen on 0.88 within seconds, of Flux's own modules too.) Between the phases of a reactor nobody holds a lock.
///
/// The clean-up cannot be left to the handle's auxiliary items: each request under way holds a reference to the handle,
/// so that it would outlive the thread that closes it.
///
/// # Safety
/// `cleanup` may be called with `arg` on this thread, at most once, and does not unwind.
#[inline]
pub(crate) unsafe extern "C-unwind" fn cancellation_point(
    cleanup: unsafe extern "C" fn(*mut c_void),
    arg: *mut c_void,
) {
    let mut buffer = MaybeUninit::<CleanupBuffer>::uninit();
    // SAFETY: a place for the buffer that is in this frame until it is popped, a valid state, nowhere to put the old
    // one, and a frame that owns nothing for an unwind to meet.
    unsafe {
        _pthread_cleanup_push(buffer.as_mut_ptr(), cleanup, arg);
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, std::ptr::null_mut());
        pthread_testcancel();
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, std::ptr::null_mut());
        _pthread_cleanup_pop(buffer.as_mut_ptr(), 0);
    }
}
