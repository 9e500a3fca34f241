//! What the hook adds to one empty turn of a reactor.
//!
//! The turn is libflux's own where libflux-core.so.2 is installed (or `$FLUX_STATS_LIBFLUX`), else that of
//! the tests' stand-in. Bare, hooked and the rivals take turns in every round, so that a change of the
//! machine's mood hits all of them; a line gives the median over the rounds of the difference to bare. Times are of the
//! thread on its processor: no turn here sleeps, and what others do meanwhile is not its cost.

#[allow(dead_code)]
#[path = "../tests/standin/mod.rs"]
mod standin;
mod uprobe;

use std::ffi::{CString, c_int, c_void};
use std::hint::black_box;

use stats_probe::{Clock, Options, Probe, thread_cpu_ns};
use uprobe::Uprobe;

/// Few enough that bare and hooked meet the same mood.
const TURNS: u64 = 20_000;
const ROUNDS: usize = 151;
/// Of these, with uprobes: they take a hundred times as long.
const KERNEL_ROUNDS: usize = 5;

type Pointer = *mut c_void;
type Callback = extern "C" fn(Pointer, Pointer, c_int, Pointer);

/// What a turn needs to know.
struct Turn {
    left: u64,
    reactor: Pointer,
    stop: unsafe extern "C" fn(Pointer),
    reads_clock: bool,
}

impl Turn {
    fn take(&mut self) {
        if self.reads_clock {
            black_box(vdso_ns());
            black_box(vdso_ns());
        }
        self.left -= 1;
        if self.left == 0 {
            // SAFETY: called on the reactor's own thread.
            unsafe { (self.stop)(self.reactor) };
        }
    }
}

fn vdso_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

extern "C" fn watcher(_: Pointer, _: Pointer, _: c_int, arg: Pointer) {
    // SAFETY: the watcher was given a Turn that outlives it.
    unsafe { &mut *arg.cast::<Turn>() }.take();
}

extern "C" fn stamp(_: Pointer, _: Pointer, _: c_int, arg: Pointer) {
    // SAFETY: the watcher was given a u64 that outlives it.
    unsafe { *arg.cast::<u64>() = vdso_ns() };
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn report(what: &str, bare: &[f64], with: &[f64]) {
    let added = median(bare.iter().zip(with).map(|(b, w)| w - b).collect());
    let ratio = median(bare.iter().zip(with).map(|(b, w)| w / b).collect());
    println!("  {what:<34} {:7.1} ns  + {added:5.1} ns  x {ratio:.3}", median(with.to_vec()));
}

/// Plays all rounds. `turns` runs TURNS turns and returns ns a turn; its arguments are whether each turn
/// reads the clock twice and whether prepare and check watchers do.
fn play(anchor: *const c_void, has_watchers: bool, mut turns: impl FnMut(bool, bool) -> f64) {
    let attached = |clock: Clock, turns: &mut dyn FnMut(bool, bool) -> f64| {
        let mut probe = Probe::start(Options { clock, ..Options::attach(anchor) });
        assert_eq!(probe.status().fallback, None);
        turns(false, false);
        let ns = turns(false, false);
        probe.stop();
        ns
    };
    // Turns seen by the kernel, which must be all of them.
    let traced = |turns: &mut dyn FnMut(bool, bool) -> f64| {
        let mut uprobe = Uprobe::at(libc::epoll_wait as *const c_void)?;
        let ns = turns(false, false);
        match uprobe.counts() {
            [calls, returns] if calls >= TURNS && returns >= TURNS => Ok(ns),
            counts => Err(format!("it counts {counts:?} of {TURNS} turns")),
        }
    };
    let [mut bare, mut auto, mut vdso, mut reads, mut watched]: [Vec<f64>; 5] = Default::default();
    let mut by_kernel: Result<Vec<f64>, String> = Ok(Vec::new());
    turns(false, false);
    for round in 0..ROUNDS {
        bare.push(turns(false, false));
        auto.push(attached(Clock::Auto, &mut turns));
        reads.push(turns(true, false));
        vdso.push(attached(Clock::Monotonic, &mut turns));
        if has_watchers {
            watched.push(turns(false, true));
        }
        if round < KERNEL_ROUNDS {
            by_kernel = by_kernel.and_then(|mut all| {
                all.push(traced(&mut turns)?);
                Ok(all)
            });
        }
    }
    report("bare", &bare, &bare);
    report("hooked (what attach does)", &bare, &auto);
    report("hooked, vdso clock", &bare, &vdso);
    report("rival: two vdso clock reads", &bare, &reads);
    if has_watchers {
        report("rival: prepare and check watchers", &bare, &watched);
    }
    match by_kernel {
        Ok(by_kernel) => report("rival: kernel uprobes", &bare, &by_kernel),
        Err(why) => println!("  rival: kernel uprobes               not measured: {why}"),
    }
}

fn main() {
    let library = std::env::var("FLUX_STATS_LIBFLUX").unwrap_or_else(|_| "libflux-core.so.2".into());
    let name = CString::new(library.clone()).unwrap();
    // SAFETY: libflux has no constructors that matter here.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    if handle.is_null() {
        println!("no {library} here: turns of the stand-in library, which also reads a timer");
        standin_turns();
        return;
    }
    println!("turns of {library} that find nothing to wait for (time-out 0)");
    libflux_turns(handle, true);
    println!("turns of {library} that wait for a descriptor which is ready");
    libflux_turns(handle, false);
}

fn libflux_turns(handle: Pointer, idle: bool) {
    let symbol = |name: &str| {
        let name = CString::new(name).unwrap();
        // SAFETY: an open handle and a NUL-terminated name.
        let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
        assert!(!address.is_null(), "{name:?}");
        address
    };
    macro_rules! function {
        ($name:expr, fn($($arg:ty),*) $(-> $ret:ty)?) => {
            // SAFETY: the prototype of libflux's manual pages.
            unsafe {
                std::mem::transmute::<Pointer, unsafe extern "C" fn($($arg),*) $(-> $ret)?>(symbol($name))
            }
        };
    }
    let create_reactor = function!("flux_reactor_create", fn(c_int) -> Pointer);
    let run = function!("flux_reactor_run", fn(Pointer, c_int) -> c_int);
    let stop = function!("flux_reactor_stop", fn(Pointer));
    let start_watcher = function!("flux_watcher_start", fn(Pointer));
    let stop_watcher = function!("flux_watcher_stop", fn(Pointer));
    let create_idle = function!("flux_idle_watcher_create", fn(Pointer, Callback, Pointer) -> Pointer);
    let create_prepare = function!("flux_prepare_watcher_create", fn(Pointer, Callback, Pointer) -> Pointer);
    let create_check = function!("flux_check_watcher_create", fn(Pointer, Callback, Pointer) -> Pointer);
    let create_fd =
        function!("flux_fd_watcher_create", fn(Pointer, c_int, c_int, Callback, Pointer) -> Pointer);

    let mut stamps = [0u64; 2];
    let mut turn = Turn { left: 0, reactor: std::ptr::null_mut(), stop, reads_clock: false };
    let at = &raw mut turn;
    // SAFETY: watchers are given pointers to locals that outlive all turns; an eventfd of value 1 is ready
    // to be read for ever; 1 is FLUX_POLLIN.
    let watchers = unsafe {
        let reactor = create_reactor(0);
        (*at).reactor = reactor;
        start_watcher(match idle {
            true => create_idle(reactor, watcher, at.cast()),
            false => create_fd(reactor, libc::eventfd(1, libc::EFD_CLOEXEC), 1, watcher, at.cast()),
        });
        let prepare = create_prepare(reactor, stamp, (&raw mut stamps[0]).cast());
        [prepare, create_check(reactor, stamp, (&raw mut stamps[1]).cast())]
    };
    play(symbol("flux_reactor_run"), true, |reads_clock, watched| {
        // SAFETY: no turn is running; the reactor and its watchers are alive.
        unsafe {
            if watched {
                watchers.iter().for_each(|w| start_watcher(*w));
            }
            (*at).left = TURNS;
            (*at).reads_clock = reads_clock;
            let start = thread_cpu_ns();
            run((*at).reactor, 0);
            let ns = (thread_cpu_ns() - start) as f64 / TURNS as f64;
            if watched {
                watchers.iter().for_each(|w| stop_watcher(*w));
            }
            ns
        }
    });
}

extern "C" fn standin_turn(arg: Pointer) {
    watcher(std::ptr::null_mut(), std::ptr::null_mut(), 0, arg);
}

fn standin_turns() {
    let dir = tempfile::tempdir().unwrap();
    let Some(object) = standin::build(dir.path(), "libbench.so", &[]) else { return };
    let lib = standin::load(&object, libc::RTLD_NOW);
    let mut turn = Turn { left: 0, reactor: std::ptr::null_mut(), stop: lib.stop, reads_clock: false };
    let at = &raw mut turn;
    play(lib.anchor, false, |reads_clock, _| {
        // SAFETY: a reactor whose timer has always expired again, alive until the end of its turns.
        unsafe {
            let reactor = (lib.create)(1, Some(standin_turn), at.cast());
            *at = Turn { left: TURNS, reactor, stop: lib.stop, reads_clock };
            let start = thread_cpu_ns();
            (lib.run)(reactor, 0);
            let ns = (thread_cpu_ns() - start) as f64 / TURNS as f64;
            (lib.destroy)(reactor);
            ns
        }
    });
}
