//! Two copies of this code in one process, as after an upgrade of a module that is linked `nodelete`, and
//! attaching and detaching while reactors turn.

#[allow(dead_code)]
mod standin;

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use standin::{Standin, alone, build, load};
use stats_probe::{Options, Probe};

struct Copy {
    attach: unsafe extern "C" fn(*const c_void) -> i32,
    detach: unsafe extern "C" fn(),
    wakeups: unsafe extern "C" fn() -> u64,
}

fn example() -> PathBuf {
    // Beside the directory of this test's own executable.
    let me = std::env::current_exe().unwrap();
    me.parent().unwrap().parent().unwrap().join("examples/libprobe_copy.so")
}

fn load_copy(directory: &Path, name: &str) -> Copy {
    let file = directory.join(name);
    std::fs::copy(example(), &file).unwrap();
    let path = CString::new(file.to_str().unwrap()).unwrap();
    // SAFETY: the example has no constructors beyond Rust's own.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null());
    let symbol = |name: &std::ffi::CStr| {
        // SAFETY: an open handle and a NUL-terminated name.
        unsafe { libc::dlsym(handle, name.as_ptr()) }
    };
    // SAFETY: the signatures of the example's functions.
    unsafe {
        Copy {
            attach: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_void) -> i32>(symbol(
                c"copy_attach",
            )),
            detach: std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(symbol(c"copy_detach")),
            wakeups: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> u64>(symbol(
                c"copy_wakeups",
            )),
        }
    }
}

/// Runs `count` turns without a wait in a thread of their own.
fn turns(lib: Standin, count: u32) {
    let run = move || {
        // SAFETY: a reactor of the stand-in, used by this thread alone.
        unsafe {
            let reactor = (lib.create)(0, None, std::ptr::null_mut());
            for _ in 0..count {
                (lib.run)(reactor, 1);
            }
            (lib.destroy)(reactor);
        }
    };
    std::thread::spawn(run).join().unwrap();
}

#[test]
fn two_copies_attach_and_detach_in_any_order_and_each_counts_its_own() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    for (name, flags) in
        [("libchain.so", &["-Wl,-z,relro,-z,now"][..]), ("libchainlazy.so", &["-Wl,-z,lazy"])]
    {
        let Some(object) = build(dir.path(), name, flags) else { return };
        let lib = load(&object, libc::RTLD_LAZY);
        let copies =
            [load_copy(dir.path(), &format!("one-{name}")), load_copy(dir.path(), &format!("two-{name}"))];
        let mut attached = [false, false];
        // Every sequence of three steps of two copies occurs: below, above, out of order, again.
        let steps = [0, 1, 0, 0, 1, 1, 0, 1, 1, 0, 0, 1, 0, 1, 0, 1, 1, 0];
        for step in steps {
            let copy = &copies[step];
            // SAFETY: the example's functions may be called at any time.
            unsafe {
                if attached[step] {
                    (copy.detach)();
                } else {
                    assert_eq!((copy.attach)(lib.anchor), 0);
                }
            }
            attached[step] = !attached[step];
            // SAFETY: as above.
            let count = || copies.iter().map(|c| unsafe { (c.wakeups)() }).collect::<Vec<_>>();
            let before = count();
            turns(lib, 10);
            let seen = || count().iter().zip(&before).map(|(now, then)| now - then).collect::<Vec<u64>>();
            let expected = attached.map(|a| if a { 10 } else { 0 });
            // A thread that has been joined may live for a moment yet, as the kernel sees it; then its last turns come later.
            let (begun, mut last) = (Instant::now(), seen());
            while last != expected && begun.elapsed() < Duration::from_secs(5) {
                std::thread::sleep(Duration::from_millis(1));
                last = seen();
            }
            assert_eq!(last, expected, "{name}: step of copy {step}, attached {attached:?}");
        }
    }
}

/// `FLUX_STATS_CHURN` cycles (default 100) of attach and detach while 25 threads turn their reactors and
/// make synchronous calls: nobody crashes and nobody is left behind.
#[test]
fn reactors_turn_on_while_the_hook_comes_and_goes() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let Some(object) = build(dir.path(), "libchurn.so", &["-Wl,-z,relro,-z,now"]) else { return };
    let lib = load(&object, libc::RTLD_NOW);
    let cycles: u32 = std::env::var("FLUX_STATS_CHURN").ok().and_then(|n| n.parse().ok()).unwrap_or(100);
    let (stop, turned) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 25]);
    std::thread::scope(|scope| {
        for counter in &turned {
            let stop = &stop;
            scope.spawn(move || {
                // SAFETY: a reactor of the stand-in, used by this thread alone.
                unsafe {
                    // Often enough to meet every moment of a cycle, seldom enough to leave it a processor.
                    let reactor = (lib.create)(1_000_000, None, std::ptr::null_mut());
                    while !stop.load(Relaxed) {
                        assert_eq!((lib.run)(reactor, 2), 0);
                        assert_eq!((lib.rpc)(100_000), 0);
                        counter.fetch_add(1, Relaxed);
                    }
                    (lib.destroy)(reactor);
                }
            });
        }
        let options = Options { clock: stats_probe::Clock::Monotonic, ..Options::attach(lib.anchor) };
        for cycle in 0..cycles {
            let mut probe = Probe::start(options.clone());
            assert_eq!(probe.status().fallback, None, "cycle {cycle}");
            if cycle % 10 == 0 {
                probe.sample();
            }
            if cycle % 1000 == 999 {
                eprintln!("{} cycles", cycle + 1);
            }
        }
        let before: Vec<u64> = turned.iter().map(|t| t.load(Relaxed)).collect();
        let start = Instant::now();
        while turned.iter().zip(&before).any(|(now, then)| now.load(Relaxed) < then + 3) {
            assert!(start.elapsed() < Duration::from_secs(30), "a thread is lost");
            std::thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Relaxed);
    });
}

/// One more thread than the table has slots for: it runs untimed and is counted.
#[test]
fn a_full_table_is_counted_and_nobody_is_harmed() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let Some(object) = build(dir.path(), "libfull.so", &[]) else { return };
    let lib = load(&object, libc::RTLD_NOW);
    let mut probe = Probe::start(Options::attach(lib.anchor));
    assert_eq!(probe.status().overflow, 0);
    let (ready, done) = (std::sync::Barrier::new(141), std::sync::Barrier::new(141));
    std::thread::scope(|scope| {
        for _ in 0..140 {
            scope.spawn(|| {
                // SAFETY: a reactor of the stand-in, used by this thread alone.
                unsafe {
                    let reactor = (lib.create)(0, None, std::ptr::null_mut());
                    (lib.run)(reactor, 1);
                    ready.wait();
                    done.wait();
                    assert_eq!((lib.run)(reactor, 1), 0);
                    (lib.destroy)(reactor);
                }
            });
        }
        ready.wait();
        let overflow = probe.status().overflow;
        assert!((12..=140).contains(&overflow), "{overflow}");
        // Whoever comes later is told of those who come later.
        assert_eq!(Probe::start(Options::attach(lib.anchor)).status().overflow, 0);
        probe.sample();
        done.wait();
    });
}
