//! The hook on the real libflux, where it is installed: reactor, handle and synchronous RPC, without a
//! broker (Flux's loop connector stands in for one).

#[allow(dead_code)]
mod standin;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::time::Duration;

use standin::alone;
use stats_probe::{ModuleSample, Options, Probe, Source};

type Pointer = *mut c_void;
type Callback = extern "C" fn(Pointer, Pointer, c_int, Pointer);

struct Libflux(Pointer);

impl Libflux {
    /// None, with a line that says so, where there is no libflux.
    fn load() -> Option<Self> {
        let name = std::env::var("FLUX_STATS_LIBFLUX").unwrap_or_else(|_| "libflux-core.so.2".into());
        let path = CString::new(name.clone()).unwrap();
        // SAFETY: libflux has no constructors that matter here.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        if handle.is_null() {
            eprintln!("SKIPPED: {name} is not installed");
        }
        (!handle.is_null()).then_some(Self(handle))
    }

    fn symbol(&self, name: &CStr) -> Pointer {
        // SAFETY: an open handle and a NUL-terminated name.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!address.is_null(), "{name:?}");
        address
    }
}

macro_rules! function {
    ($lib:expr, $name:expr, fn($($arg:ty),*) $(-> $ret:ty)?) => {
        // SAFETY: the prototype of libflux's manual pages.
        unsafe {
            std::mem::transmute::<Pointer, unsafe extern "C" fn($($arg),*) $(-> $ret)?>($lib.symbol($name))
        }
    };
}

struct Countdown {
    left: u32,
    stop: unsafe extern "C" fn(Pointer),
}

extern "C" fn count_down(reactor: Pointer, _: Pointer, _: c_int, arg: Pointer) {
    // SAFETY: the watcher was given a Countdown that outlives it.
    let this = unsafe { &mut *arg.cast::<Countdown>() };
    this.left -= 1;
    if this.left == 0 {
        // SAFETY: called on the reactor's own thread.
        unsafe { (this.stop)(reactor) };
    }
}

/// Runs `work` in a thread of that name under a probe, and returns what was seen of it.
fn observe(anchor: Pointer, name: &str, work: impl FnOnce() + Send) -> ModuleSample {
    let mut probe = Probe::start(Options::attach(anchor));
    let status = probe.status();
    assert_eq!((status.fallback, status.blocked_available), (None, true));
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name.into()).spawn_scoped(scope, work).unwrap();
        thread.join().unwrap();
    });
    probe.sample().iter().find(|s| s.name == name).unwrap().clone()
}

#[test]
fn every_turn_of_a_flux_reactor_is_counted_and_told_into_work_and_sleep() {
    let _alone = alone();
    let Some(lib) = Libflux::load() else { return };
    let create = function!(lib, c"flux_reactor_create", fn(c_int) -> Pointer);
    let destroy = function!(lib, c"flux_reactor_destroy", fn(Pointer));
    let run = function!(lib, c"flux_reactor_run", fn(Pointer, c_int) -> c_int);
    let stop = function!(lib, c"flux_reactor_stop", fn(Pointer));
    let timer =
        function!(lib, c"flux_timer_watcher_create", fn(Pointer, f64, f64, Callback, Pointer) -> Pointer);
    let start = function!(lib, c"flux_watcher_start", fn(Pointer));
    let unwatch = function!(lib, c"flux_watcher_destroy", fn(Pointer));
    let anchor = lib.symbol(c"flux_reactor_run");
    let seen = observe(anchor, "flux-timer", || {
        let mut countdown = Countdown { left: 50, stop };
        // SAFETY: libflux's functions on a reactor of this thread.
        unsafe {
            let reactor = create(0);
            let watcher = timer(reactor, 0.002, 0.002, count_down, (&raw mut countdown).cast());
            start(watcher);
            assert!(run(reactor, 0) >= 0);
            unwatch(watcher);
            destroy(reactor);
        }
    });
    assert_eq!(seen.source, Source::Attach);
    // Waking a little early, libev looks again before it calls the watcher.
    assert!((50..=150).contains(&seen.wakeups), "{seen:?}");
    assert!(seen.sleep_ns >= 50_000_000, "{seen:?}");
    assert_eq!(seen.blocked_ns, Some(0));
    assert!(seen.work.count() == seen.wakeups, "{seen:?}");
}

#[test]
fn a_synchronous_rpc_is_blocked_and_draining_the_handle_is_no_turn() {
    let _alone = alone();
    let Some(lib) = Libflux::load() else { return };
    let open = function!(lib, c"flux_open", fn(*const c_char, c_int) -> Pointer);
    let close = function!(lib, c"flux_close", fn(Pointer));
    let pollfd = function!(lib, c"flux_pollfd", fn(Pointer) -> c_int);
    let pollevents = function!(lib, c"flux_pollevents", fn(Pointer) -> c_int);
    let rpc = function!(lib, c"flux_rpc", fn(Pointer, *const c_char, *const c_char, u32, c_int) -> Pointer);
    let wait_for = function!(lib, c"flux_future_wait_for", fn(Pointer, f64) -> c_int);
    let forget = function!(lib, c"flux_future_destroy", fn(Pointer));
    let anchor = lib.symbol(c"flux_reactor_run");
    // SAFETY: opens a handle without a broker.
    let handle = unsafe { open(c"loop://".as_ptr(), 0) } as usize;
    if handle == 0 {
        eprintln!("SKIPPED: this libflux has no loop connector");
        return;
    }
    let seen = observe(anchor, "flux-rpc", || {
        let handle = handle as Pointer;
        // SAFETY: libflux's functions on a handle that only this thread uses.
        unsafe {
            pollfd(handle);
            for _ in 0..100 {
                pollevents(handle);
            }
            let future = rpc(handle, c"nobody.answers".as_ptr(), std::ptr::null(), u32::MAX, 0);
            assert!(!future.is_null());
            assert_eq!(wait_for(future, 0.05), -1);
            forget(future);
        }
    });
    // SAFETY: nobody uses it any more.
    unsafe { close(handle as Pointer) };
    assert_eq!(seen.wakeups, 0, "{seen:?}");
    assert_eq!(seen.blocked_calls, 1, "{seen:?}");
    let blocked = Duration::from_nanos(seen.blocked_ns.unwrap());
    assert!(blocked >= Duration::from_millis(48), "{seen:?}");
    assert!(seen.longest_blocked_ns >= 48_000_000, "{seen:?}");
}
