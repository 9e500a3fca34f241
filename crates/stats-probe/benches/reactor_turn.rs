//! What the hook adds to one turn of a real reactor, beside what it could cost otherwise: two reads of the clock in
//! user space, and prepare and check watchers. All in one process, in turns, since the machine's speed drifts.

use stats_probe::{Mode, Options, Probe};
use std::ffi::{CString, c_int, c_void};
use std::time::Instant;

const NAME: &str = "libflux-core.so.2";
const TURNS: u32 = 200_000;
const ROUNDS: usize = 11;

type Create = unsafe extern "C" fn(c_int) -> *mut c_void;
type Run = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
type Callback = unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, *mut c_void);
type Watch = unsafe extern "C" fn(*mut c_void, Callback, *mut c_void) -> *mut c_void;
type Start = unsafe extern "C" fn(*mut c_void);
type Stop = unsafe extern "C" fn(*mut c_void);

struct Libflux(*mut c_void);

impl Libflux {
    fn open() -> Option<Self> {
        let name = std::env::var("FLUX_STATS_LIBFLUX").unwrap_or_else(|_| NAME.into());
        let name = CString::new(name).ok()?;
        // SAFETY: libflux's initialisers have no preconditions.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        (!handle.is_null()).then_some(Libflux(handle))
    }

    fn symbol(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: an open library and a C string.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!symbol.is_null(), "libflux has no {name:?}");
        symbol
    }
}

/// Counts turns and ends the loop: an idle watcher, so that no turn sleeps.
struct Turns {
    left: u32,
    reactor: *mut c_void,
    stop: Stop,
}

unsafe extern "C" fn turn(_: *mut c_void, _: *mut c_void, _: c_int, turns: *mut c_void) {
    // SAFETY: the argument is the Turns of the run that is under way.
    let turns = unsafe { &mut *turns.cast::<Turns>() };
    turns.left -= 1;
    if turns.left == 0 {
        // SAFETY: a live reactor.
        unsafe { (turns.stop)(turns.reactor) };
    }
}

unsafe extern "C" fn read_clock(_: *mut c_void, _: *mut c_void, _: c_int, _: *mut c_void) {
    std::hint::black_box(Instant::now());
}

fn main() {
    let Some(libflux) = Libflux::open() else {
        println!("skipped: the cost of a turn, no {NAME} on this machine");
        return;
    };
    // SAFETY: the types are those of include/libflux.h.
    let (create, run, idle, prepare, check, start, halt, stop) = unsafe {
        (
            std::mem::transmute::<*mut c_void, Create>(libflux.symbol("flux_reactor_create")),
            std::mem::transmute::<*mut c_void, Run>(libflux.symbol("flux_reactor_run")),
            std::mem::transmute::<*mut c_void, Watch>(libflux.symbol("flux_idle_watcher_create")),
            std::mem::transmute::<*mut c_void, Watch>(libflux.symbol("flux_prepare_watcher_create")),
            std::mem::transmute::<*mut c_void, Watch>(libflux.symbol("flux_check_watcher_create")),
            std::mem::transmute::<*mut c_void, Start>(libflux.symbol("flux_watcher_start")),
            std::mem::transmute::<*mut c_void, Stop>(libflux.symbol("flux_watcher_stop")),
            std::mem::transmute::<*mut c_void, Stop>(libflux.symbol("flux_reactor_stop")),
        )
    };
    // SAFETY: no preconditions.
    let reactor = unsafe { create(0) };
    let mut turns = Box::new(Turns { left: 0, reactor, stop });
    let argument: *mut Turns = &mut *turns;
    // SAFETY: a live reactor, and callbacks with the arguments that they expect.
    let (prepare, check) = unsafe {
        start(idle(reactor, turn, argument.cast()));
        (prepare(reactor, read_clock, std::ptr::null_mut()), check(reactor, read_clock, std::ptr::null_mut()))
    };
    let ns_a_turn = || {
        // SAFETY: only the loop below touches the turns.
        unsafe { (*argument).left = TURNS };
        let begin = Instant::now();
        // SAFETY: a live reactor with an active watcher.
        unsafe { run(reactor, 0) };
        begin.elapsed().as_nanos() as f64 / f64::from(TURNS)
    };
    let attached = || {
        Probe::start(Options {
            mode: Mode::Attach,
            anchor: libflux.symbol("flux_reactor_run"),
            broker_pid: 0,
        })
    };
    let clocks = || {
        let begin = Instant::now();
        for _ in 0..TURNS {
            std::hint::black_box((Instant::now(), Instant::now()));
        }
        begin.elapsed().as_nanos() as f64 / f64::from(TURNS)
    };
    let (mut bare, mut added, mut watched, mut clock) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let plain = ns_a_turn();
        let probe = attached();
        assert_eq!(probe.status().fallback, None);
        added.push(ns_a_turn() - plain);
        drop(probe);
        // SAFETY: live watchers.
        unsafe {
            start(prepare);
            start(check);
        }
        watched.push(ns_a_turn() - plain);
        // SAFETY: live watchers.
        unsafe {
            halt(prepare);
            halt(check);
        }
        bare.push(plain);
        clock.push(clocks());
    }
    let (bare, added, watched, clock) = (median(bare), median(added), median(watched), median(clock));
    println!(
        "one reactor turn: bare {bare:.0} ns; attach adds {added:.1} ns ({:.3} of bare; target <= 25 ns); \
         rivals: prepare+check watchers add {watched:.1} ns, two vdso clock reads {clock:.1} ns",
        added / bare
    );
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
