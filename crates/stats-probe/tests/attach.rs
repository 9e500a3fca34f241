//! The hook on a stand-in library, in every way such a library may be linked.

#[allow(dead_code)]
mod standin;

use std::ffi::c_void;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use standin::{OTHER_WAITS, Standin, VARIANTS, alone, build, load};
use stats_probe::{Clock, Mode, ModuleSample, Options, Probe, Source, State};

/// A thread that runs a reactor of the stand-in until it is dropped.
struct Reactor {
    lib: Standin,
    reactor: usize,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Reactor {
    fn start(lib: Standin, name: &str, period: Duration, turn: standin::Turn, arg: usize) -> Self {
        // SAFETY: the callback outlives the reactor; `arg` is what it expects.
        let reactor =
            unsafe { (lib.create)(period.as_nanos() as i64, Some(turn), arg as *mut c_void) } as usize;
        let run = move || {
            // SAFETY: the reactor lives until this thread is joined.
            assert_eq!(unsafe { (lib.run)(reactor as *mut c_void, 0) }, 0);
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(run).unwrap();
        Self { lib, reactor, thread: Some(thread) }
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        // SAFETY: the reactor is alive until it is destroyed here, after its thread.
        unsafe {
            (self.lib.stop)(self.reactor as *mut c_void);
            self.thread.take().unwrap().join().unwrap();
            (self.lib.destroy)(self.reactor as *mut c_void);
        }
    }
}

fn spin(duration: Duration) {
    let start = Instant::now();
    while start.elapsed() < duration {
        std::hint::spin_loop();
    }
}

/// Counts its calls in the AtomicU64 that it is given.
extern "C" fn count(arg: *mut c_void) {
    // SAFETY: every reactor of `count` is given an AtomicU64 that outlives it.
    unsafe { &*arg.cast::<AtomicU64>() }.fetch_add(1, Relaxed);
}

extern "C" fn nothing(_: *mut c_void) {}

fn find<'a>(samples: &'a [ModuleSample], name: &str) -> &'a ModuleSample {
    samples.iter().find(|s| s.name == name).unwrap_or_else(|| panic!("{name} is not in {samples:#?}"))
}

fn wait_for(what: impl Fn() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < Duration::from_secs(20), "it does not come to pass");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn attach(lib: &Standin, clock: Clock) -> Probe {
    Probe::start(Options { clock, ..Options::attach(lib.anchor) })
}

#[test]
fn every_turn_is_counted_however_the_library_is_linked() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    for (i, (variant, flags)) in VARIANTS.iter().enumerate() {
        let Some(object) = build(dir.path(), &format!("libturns{i}.so"), flags) else { return };
        for clock in [Clock::Monotonic, Clock::Counter] {
            let lib = load(&object, libc::RTLD_LAZY);
            let turns: &'static AtomicU64 = Box::leak(Box::default());
            let arg = turns as *const _ as usize;
            // Shorter than what the kernel cuts, so that no list is needed to know it.
            let name = format!("turns-{i}-{}", if clock == Clock::Counter { "tsc" } else { "mono" });
            let mut probe = attach(&lib, clock);
            assert_eq!(probe.status().mode, Mode::Attach, "{variant}: {:?}", probe.status());
            assert_eq!(probe.status().blocked_available, *variant != "bound to itself", "{variant}");
            let reactor = Reactor::start(lib, &name, Duration::from_millis(1), count, arg);
            wait_for(|| turns.load(Relaxed) >= 50);
            drop(reactor);
            let seen = find(probe.sample(), &name).clone();
            assert_eq!(seen.wakeups, turns.load(Relaxed), "{variant}");
            assert_eq!(seen.source, Source::Attach);
            assert!(seen.sleep_ns > 0 && seen.work_ns > 0, "{variant} {seen:?}");
            probe.stop();
            let before = turns.load(Relaxed);
            let _reactor = Reactor::start(lib, "unseen", Duration::from_millis(1), count, arg);
            wait_for(|| turns.load(Relaxed) >= before + 10);
            assert!(!probe.sample().iter().any(|s| s.name == "unseen" && s.wakeups > 0), "{variant}");
        }
    }
}

/// Runs `work` in a thread of that name, and what was seen of it.
fn observe(probe: &mut Probe, name: &str, work: impl FnOnce() + Send) -> ModuleSample {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name.into()).spawn_scoped(scope, work).unwrap();
        thread.join().unwrap();
    });
    find(probe.sample(), name).clone()
}

#[test]
fn by_whatever_function_a_reactor_waits_its_turns_are_counted_and_its_calls_are_blocked() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    for (function, flag) in OTHER_WAITS {
        let flags = ["-Wl,-z,relro,-z,now", flag];
        let Some(object) = build(dir.path(), &format!("lib{function}.so"), &flags) else { return };
        let lib = load(&object, libc::RTLD_NOW);
        let mut probe = attach(&lib, Clock::Auto);
        assert_eq!((probe.status().fallback, probe.status().blocked_available), (None, true), "{function}");
        let seen = observe(&mut probe, function, || {
            // SAFETY: the stand-in's functions on a reactor of this thread.
            unsafe {
                let reactor = (lib.create)(1_000_000, None, std::ptr::null_mut());
                // Turns that wait, turns that look only, drains of a handle, synchronous calls.
                (0..20).for_each(|_| assert_eq!((lib.run)(reactor, 2), 0));
                (0..10).for_each(|_| assert_eq!((lib.run)(reactor, 1), 0));
                (0..50).for_each(|_| assert!((lib.pollevents)(reactor) >= 0));
                (0..5).for_each(|_| assert_eq!((lib.rpc)(2_000_000), 0));
                assert_eq!((lib.errno)(4711), 4711);
                assert_eq!((lib.errno)(0), libc::EBADF);
                (lib.destroy)(reactor);
            }
        });
        assert_eq!((seen.wakeups, seen.work.count(), seen.blocked_calls), (32, 32, 5), "{function}");
        // Half of it, for a machine that is busy with something else.
        assert!(seen.sleep_ns >= 1_000_000, "{function} {seen:?}");
        assert!(seen.blocked_ns.unwrap() >= 5 * 1_000_000, "{function} {seen:?}");
    }
}

#[test]
fn where_nested_reactors_cannot_be_told_every_wait_is_sleep() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let Some(object) = build(dir.path(), "libdirect.so", &["-Wl,-Bsymbolic-functions"]) else { return };
    let lib = load(&object, libc::RTLD_NOW);
    let mut probe = attach(&lib, Clock::Auto);
    let mut ends = [0; 2];
    // SAFETY: two writable ints.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    let start = Instant::now();
    let seen = observe(&mut probe, "direct", || {
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            // SAFETY: writes one byte to an open pipe.
            assert_eq!(unsafe { libc::write(ends[1], b"x".as_ptr().cast(), 1) }, 1);
        });
        // SAFETY: the stand-in's functions on the calling thread.
        unsafe {
            (lib.recv)(ends[0]);
            (lib.rpc)(20_000_000);
        }
    });
    let wall = start.elapsed();
    assert_eq!(seen.blocked_ns, None);
    assert!(seen.sleep_ns >= 45_000_000, "{seen:?}");
    assert!(Duration::from_nanos(seen.wall_ns()) <= wall, "{seen:?} in {wall:?}");
}

#[test]
fn a_thread_asleep_at_attach_is_listed_as_unknown_and_its_time_is_told_from_proc() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let Some(object) = build(dir.path(), "libasleep.so", &[]) else { return };
    let lib = load(&object, libc::RTLD_NOW);
    let _reactor = Reactor::start(lib, "asleep", Duration::from_secs(3600), nothing, 0);
    std::thread::sleep(Duration::from_millis(20));
    let mut probe = attach(&lib, Clock::Auto);
    std::thread::sleep(Duration::from_millis(50));
    let seen = find(probe.sample(), "asleep").clone();
    assert_eq!(seen.state, State::UnknownIdle);
    assert_eq!(seen.wakeups, 0);
    assert!(seen.sleep_ns >= 50_000_000, "{seen:?}");
    assert_eq!(seen.estimated_ns, seen.wall_ns());
    // It cannot be stopped by a flag: it never wakes. Wake it by its timer.
    std::mem::forget(_reactor);
}

struct Behaviour {
    lib: Standin,
    busy: Duration,
    rpc_ns: i64,
}

extern "C" fn behave(arg: *mut c_void) {
    // SAFETY: every reactor of `behave` is given a Behaviour that outlives it.
    let b = unsafe { &*arg.cast::<Behaviour>() };
    spin(b.busy);
    if b.rpc_ns > 0 {
        // SAFETY: called on the reactor's thread, as a module would.
        unsafe { (b.lib.rpc)(b.rpc_ns) };
    }
    spin(b.busy);
}

#[test]
fn a_synchronous_call_is_blocked_and_neither_sleep_nor_work() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let Some(object) = build(dir.path(), "libblocked.so", &[]) else { return };
    let lib = load(&object, libc::RTLD_NOW);
    let behaviour: &'static Behaviour =
        Box::leak(Box::new(Behaviour { lib, busy: Duration::from_millis(1), rpc_ns: 10_000_000 }));
    let mut probe = attach(&lib, Clock::Auto);
    let reactor =
        Reactor::start(lib, "caller", Duration::from_millis(30), behave, behaviour as *const _ as usize);
    std::thread::sleep(Duration::from_millis(400));
    drop(reactor);
    let seen = find(probe.sample(), "caller").clone();
    let turns = seen.wakeups;
    assert!(turns >= 5, "{seen:?}");
    assert_eq!(seen.blocked_calls, turns, "{seen:?}");
    assert!(seen.blocked_ns.unwrap() >= turns * 9_500_000, "{seen:?}");
    assert!(seen.work_ns >= (turns - 1) * 2_000_000, "{seen:?}");
    assert!(seen.longest_blocked_ns >= 10_000_000, "{seen:?}");
    assert!(seen.longest_work_ns >= 2_000_000, "{seen:?}");
    assert!(seen.work.quantile(0.5).unwrap() >= 1_960_000, "{seen:?}");
}

#[test]
fn a_blocking_receive_is_blocked_and_a_drain_of_the_handle_is_no_turn() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let Some(object) = build(dir.path(), "librecv.so", &[]) else { return };
    let lib = load(&object, libc::RTLD_NOW);
    let mut probe = attach(&lib, Clock::Auto);
    let (mut ends, work) = ([0; 2], move |fd: i32| {
        // SAFETY: plain calls of the stand-in on a reactor of its own.
        unsafe {
            let reactor = (lib.create)(1_000_000_000, None, std::ptr::null_mut());
            for _ in 0..100 {
                (lib.pollevents)(reactor);
            }
            (lib.recv)(fd);
            (lib.run)(reactor, 1);
            (lib.destroy)(reactor);
        }
        std::thread::park();
    });
    // SAFETY: two writable ints.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    let thread = std::thread::Builder::new().name("receiver".into()).spawn(move || work(ends[0])).unwrap();
    std::thread::sleep(Duration::from_millis(60));
    let seen = find(probe.sample(), "receiver").clone();
    assert_eq!(seen.state, State::Blocked);
    assert!(seen.blocked_ns.unwrap() >= 30_000_000, "{seen:?}");
    // SAFETY: writes one byte to an open pipe.
    assert_eq!(unsafe { libc::write(ends[1], b"x".as_ptr().cast(), 1) }, 1);
    std::thread::sleep(Duration::from_millis(20));
    let seen = find(probe.sample(), "receiver").clone();
    assert_eq!((seen.state, seen.wakeups, seen.blocked_calls), (State::Working, 1, 1), "{seen:?}");
    thread.thread().unpark();
    thread.join().unwrap();
}

#[test]
fn errno_is_what_epoll_wait_left() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let Some(object) = build(dir.path(), "liberrno.so", &[]) else { return };
    let lib = load(&object, libc::RTLD_NOW);
    let _probe = attach(&lib, Clock::Auto);
    std::thread::spawn(move || {
        // SAFETY: the stand-in's function takes any int.
        unsafe {
            assert_eq!((lib.errno)(4711), 4711, "at first sight of the thread");
            assert_eq!((lib.errno)(4711), 4711);
            assert_eq!((lib.errno)(0), libc::EBADF);
        }
    })
    .join()
    .unwrap();
}

#[test]
fn a_thread_is_cancelled_in_the_hook_and_its_cleanup_runs() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let Some(object) = build(dir.path(), "libcancel.so", &[]) else { return };
    let lib = load(&object, libc::RTLD_NOW);
    let _probe = attach(&lib, Clock::Auto);
    for nested in [0, 1] {
        // SAFETY: the stand-in starts, cancels and joins a thread of its own.
        assert_eq!(unsafe { (lib.cancel)(nested) }, 1, "nested: {nested}");
    }
}

#[test]
fn two_probes_share_one_hook_and_the_last_takes_it_out() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let Some(object) = build(dir.path(), "libshared.so", &["-Wl,-z,relro,-z,now"]) else { return };
    let lib = load(&object, libc::RTLD_NOW);
    let turns: &'static AtomicU64 = Box::leak(Box::default());
    let mut first = attach(&lib, Clock::Auto);
    let mut second = attach(&lib, Clock::Auto);
    let _reactor = Reactor::start(lib, "shared", Duration::from_millis(1), count, turns as *const _ as usize);
    wait_for(|| turns.load(Relaxed) >= 20);
    assert!(find(first.sample(), "shared").wakeups >= 20);
    assert!(find(second.sample(), "shared").wakeups >= 20);
    first.stop();
    first.stop();
    let (seen, now) = (find(second.sample(), "shared").wakeups, turns.load(Relaxed));
    wait_for(|| turns.load(Relaxed) >= now + 20);
    assert!(find(second.sample(), "shared").wakeups >= seen + 20);
    second.stop();
    let (seen, now) = (find(second.sample(), "shared").wakeups, turns.load(Relaxed));
    wait_for(|| turns.load(Relaxed) >= now + 20);
    assert_eq!(find(second.sample(), "shared").wakeups, seen);
}

/// What this process has open of threads in /proc.
fn open_task_files() -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten().map(|fd| std::fs::read_link(fd.path()));
    links
        .flatten()
        .filter(|to| to.starts_with("/proc") && to.components().any(|c| c.as_os_str() == "task"))
        .count()
}

#[test]
fn the_last_probe_that_goes_leaves_nothing_open_and_the_next_goes_on() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let Some(object) = build(dir.path(), "libleft.so", &[]) else { return };
    let lib = load(&object, libc::RTLD_NOW);
    let turns: &'static AtomicU64 = Box::leak(Box::default());
    let _reactor = Reactor::start(lib, "left", Duration::from_millis(1), count, turns as *const _ as usize);
    let (mut first, second) = (attach(&lib, Clock::Auto), attach(&lib, Clock::Auto));
    drop(second);
    let cpu_ns = |probe: &mut Probe| find(probe.sample(), "left").cpu_ns;
    cpu_ns(&mut first);
    assert!(open_task_files() > 0);
    drop(first);
    assert_eq!(open_task_files(), 0);
    wait_for(|| turns.load(Relaxed) >= 100);
    let mut third = attach(&lib, Clock::Auto);
    let before = (cpu_ns(&mut third), turns.load(Relaxed));
    wait_for(|| turns.load(Relaxed) >= before.1 + 100);
    let seen = find(third.sample(), "left");
    assert!(seen.wakeups >= 100 && seen.cpu_ns > before.0, "{seen:?}");
}

#[test]
fn a_slot_table_s_link_that_is_removed_is_made_again_and_goes_with_the_probe() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let Some(object) = build(dir.path(), "liblink.so", &[]) else { return };
    let lib = load(&object, libc::RTLD_NOW);
    let path = dir.path().join("slots");
    let shown = |path: &Path| stats_probe::peek::peek(path).is_ok();
    std::fs::write(&path, "somebody's").unwrap();
    let start = || Probe::start(Options { slot_path: Some(path.clone()), ..Options::attach(lib.anchor) });
    let mut probe = start();
    assert!(probe.status().slots_private.unwrap().contains("slots"));
    probe.sample();
    assert_eq!(std::fs::read(&path).unwrap(), b"somebody's");
    for _ in 0..2 {
        std::fs::remove_file(&path).unwrap();
        probe.sample();
        assert!(shown(&path));
        assert_eq!(probe.status().slots_private, None);
    }
    probe.stop();
    assert!(std::fs::symlink_metadata(&path).is_err());
    probe.sample();
    assert!(std::fs::symlink_metadata(&path).is_err(), "a probe that was stopped shows nothing");
}

#[test]
fn totals_add_up_to_wall_and_never_fall_across_reloads_and_reattach() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let Some(object) = build(dir.path(), "libreload.so", &[]) else { return };
    let lib = load(&object, libc::RTLD_NOW);
    let turns: &'static AtomicU64 = Box::leak(Box::default());
    let arg = turns as *const _ as usize;
    let mut probe = attach(&lib, Clock::Auto);
    let mut last: Option<ModuleSample> = None;
    for round in 0..6 {
        let _other = (round % 2 == 0).then(|| attach(&lib, Clock::Auto));
        let _reactor = Reactor::start(lib, "reloaded", Duration::from_millis(1), count, arg);
        let before = turns.load(Relaxed);
        for more in [5, 10, 15] {
            wait_for(|| turns.load(Relaxed) >= before + more);
            let now = find(probe.sample(), "reloaded").clone();
            if let Some(last) = &last {
                let pairs = [
                    (last.wakeups, now.wakeups),
                    (last.work_ns, now.work_ns),
                    (last.sleep_ns, now.sleep_ns),
                    (last.blocked_ns.unwrap(), now.blocked_ns.unwrap()),
                    (last.cpu_ns, now.cpu_ns),
                    (last.voluntary, now.voluntary),
                    (last.work.count(), now.work.count()),
                ];
                assert!(pairs.iter().all(|(a, b)| a <= b), "{last:?} {now:?}");
            }
            last = Some(now);
        }
    }
    let seen = find(probe.sample(), "reloaded");
    assert_eq!(seen.wakeups, turns.load(Relaxed));
    assert_eq!(seen.tids.len(), 0);
    assert_eq!(seen.state, State::Gone);
}

static FAREWELL: Mutex<Option<Standin>> = Mutex::new(None);

/// Runs a reactor once, when the thread's other keys have lost their values already.
extern "C" fn farewell(_: *mut c_void) {
    let lib = FAREWELL.lock().unwrap().unwrap();
    // SAFETY: the stand-in's functions on a reactor of the calling thread.
    unsafe {
        let reactor = (lib.create)(1_000_000, Some(nothing), std::ptr::null_mut());
        (lib.run)(reactor, 2);
        (lib.destroy)(reactor);
    }
}

#[test]
fn turns_in_a_thread_s_last_moments_are_counted_and_the_earlier_ones_not_again() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let Some(object) = build(dir.path(), "libfarewell.so", &[]) else { return };
    let lib = load(&object, libc::RTLD_NOW);
    let mut probe = attach(&lib, Clock::Auto);
    *FAREWELL.lock().unwrap() = Some(lib);
    let mut key = 0;
    // SAFETY: `key` is writable, and the destructor is a function of this program.
    assert_eq!(unsafe { libc::pthread_key_create(&mut key, Some(farewell)) }, 0);
    let thread = std::thread::Builder::new().name("farewell".into()).spawn(move || {
        // SAFETY: the stand-in's functions on a reactor of this thread, and a key that exists.
        unsafe {
            libc::pthread_setspecific(key, std::ptr::without_provenance(1));
            let reactor = (lib.create)(1_000_000, Some(nothing), std::ptr::null_mut());
            (0..5).for_each(|_| assert_eq!((lib.run)(reactor, 2), 0));
            std::thread::park();
            (lib.destroy)(reactor);
        }
    });
    let thread = thread.unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while probe.sample().iter().find(|s| s.name == "farewell").is_none_or(|s| s.wakeups < 5) {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(2));
    }
    thread.thread().unpark();
    thread.join().unwrap();
    for _ in 0..3 {
        probe.sample();
    }
    assert_eq!(find(probe.sample(), "farewell").wakeups, 6);
    // SAFETY: the key is ours, and no thread has a value of it any more.
    unsafe { libc::pthread_key_delete(key) };
}

#[test]
fn sleep_work_and_blocked_are_the_wall_time_of_a_thread() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let Some(object) = build(dir.path(), "libwall.so", &[]) else { return };
    let lib = load(&object, libc::RTLD_NOW);
    let mut probe = attach(&lib, Clock::Auto);
    let turns: &'static AtomicU64 = Box::leak(Box::default());
    let _reactor = Reactor::start(lib, "wall", Duration::from_millis(3), count, turns as *const _ as usize);
    wait_for(|| turns.load(Relaxed) >= 2);
    // A sample is taken at some moment within its call: hold it against the longest and the shortest time
    // that may lie between the two.
    let from = Instant::now();
    let first = find(probe.sample(), "wall").wall_ns();
    let after = Instant::now();
    std::thread::sleep(Duration::from_millis(200));
    let until = Instant::now();
    let second = find(probe.sample(), "wall").wall_ns();
    let (shortest_ns, longest_ns) = ((until - after).as_nanos() as u64, from.elapsed().as_nanos() as u64);
    let wall = second - first;
    // 100 ppm for the two clocks.
    assert!(wall <= longest_ns + longest_ns / 10_000, "{wall} {longest_ns}");
    assert!(wall >= shortest_ns - shortest_ns / 10_000, "{wall} {shortest_ns}");
}
