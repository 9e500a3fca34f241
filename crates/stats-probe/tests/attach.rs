//! The hook in a live process: on a stand-in for libflux in every way that one can be linked, and on the real one
//! where it is installed.

use stats_probe::{Blocked, Mode, ModuleSample, NamedModule, Options, Probe, Source};
use std::ffi::{CString, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const TURNS: u64 = 20;
const WORK: Duration = Duration::from_millis(2);
const BLOCK_MS: c_int = 4;

fn build(folder: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standin.c");
    let library = folder.join(format!("lib{name}.so"));
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut command = Command::new(&compiler);
    command.args(["-shared", "-fPIC", "-O1", "-fno-inline"]).args(flags).arg("-o").arg(&library).arg(source);
    assert!(command.status().unwrap_or_else(|error| panic!("running {compiler}: {error}")).success());
    library
}

/// A library, opened and never closed: threads may sleep in it.
struct Library(*mut c_void);

impl Library {
    fn open(path: &Path) -> Self {
        let name = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the stand-in has no initialisers, libflux none with preconditions.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        assert!(!handle.is_null());
        Library(handle)
    }

    fn symbol(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: an open library and a C string.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!symbol.is_null());
        symbol
    }
}

type Run = unsafe extern "C-unwind" fn(*mut c_void, c_int) -> c_int;
type Drain = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;
type Receive = unsafe extern "C-unwind" fn(c_int) -> c_int;

#[derive(Clone, Copy)]
struct Standin {
    run: Run,
    sync: Run,
    drain: Drain,
    receive: Receive,
}

impl Standin {
    fn of(library: &Library) -> Self {
        // SAFETY: the types are those of standin.c.
        unsafe {
            Standin {
                run: std::mem::transmute::<*mut c_void, Run>(library.symbol("flux_reactor_run")),
                sync: std::mem::transmute::<*mut c_void, Run>(library.symbol("standin_sync")),
                drain: std::mem::transmute::<*mut c_void, Drain>(library.symbol("standin_drain")),
                receive: std::mem::transmute::<*mut c_void, Receive>(library.symbol("standin_receive")),
            }
        }
    }

    /// A reactor on which nothing happens.
    fn reactor() -> c_int {
        // SAFETY: no preconditions.
        unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }
    }

    /// Turns a reactor as a module does: sleeps, drains, works, blocks. `body` is told before the thread ends.
    fn turn(self, turns: u64) {
        let mut epfd = Self::reactor();
        let reactor: *mut c_int = &mut epfd;
        for _ in 0..turns {
            // SAFETY: a live reactor, and functions of the stand-in with their own types.
            unsafe {
                (self.run)(reactor.cast(), 1);
                (self.drain)(reactor.cast());
                let start = Instant::now();
                while start.elapsed() < WORK {}
                (self.sync)(reactor.cast(), BLOCK_MS);
                (self.receive)(1);
            }
        }
        // The last turn is complete with the wait that follows it.
        // SAFETY: as above.
        unsafe { (self.run)(reactor.cast(), 0) };
    }
}

fn attached(anchor: *mut c_void) -> Probe {
    let mut probe = Probe::start(Options { mode: Mode::Attach, anchor, broker_pid: 0 });
    assert_eq!(probe.status().fallback, None);
    probe.set_names(vec![NamedModule { name: "standin-with-a-long-name".into(), path: String::new() }]);
    probe
}

fn module(probe: &mut Probe) -> ModuleSample {
    probe.sample();
    probe.modules().find(|module| module.name == "standin-with-a-long-name").cloned().unwrap()
}

/// A thread with the name of a module, cut as the kernel cuts it.
fn thread(body: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::Builder::new().name("standin-with-a-".into()).spawn(body).unwrap()
}

/// One test: the hook is the process's.
#[test]
fn a_reactor_is_timed_however_its_library_is_linked() {
    let folder = tempfile::tempdir().unwrap();
    let variants: [(&str, &[&str], Blocked); 3] = [
        ("lazy", &["-Wl,-z,lazy"], Blocked::Known),
        ("relro", &["-Wl,-z,relro,-z,now"], Blocked::Known),
        ("bsymbolic", &["-Wl,-Bsymbolic-functions"], Blocked::Unknown),
    ];
    for (name, flags, blocked) in variants {
        let library = Library::open(&build(folder.path(), name, flags));
        times_add_up(&library, name, blocked);
        threads_that_end_lose_nothing(&library);
        a_cancelled_wait_unwinds(&library);
        a_thread_asleep_across_a_detach_returns(&library);
    }
    bare_libflux_is_hooked();
}

fn times_add_up(library: &Library, name: &str, blocked: Blocked) {
    let standin = Standin::of(library);
    let mut probe = attached(library.symbol("flux_reactor_run"));
    assert_eq!(probe.status().blocked, blocked, "{name}");
    let (done, is_done) = mpsc::channel();
    let (end, may_end) = mpsc::channel::<()>();
    let start = Instant::now();
    let worker = thread(move || {
        standin.turn(TURNS);
        done.send(()).unwrap();
        let _ = may_end.recv();
    });
    is_done.recv().unwrap();
    let sample = module(&mut probe);
    let wall = start.elapsed();
    end.send(()).unwrap();
    worker.join().unwrap();

    assert_eq!((sample.source, sample.threads), (Source::Attach, 1));
    // With a library that calls itself directly, synchronous waits cannot be told from turns: reported as unknown.
    let syncs = if blocked == Blocked::Known { 0 } else { TURNS };
    assert_eq!(sample.wakeups, TURNS + 1 + syncs, "{name}");
    assert_eq!(sample.blocks, 2 * TURNS - syncs, "{name}");
    let counted: u64 = sample.work_histogram().map(|(_, count)| count).sum();
    assert_eq!(counted, TURNS + syncs, "every complete turn is in the histogram");
    let least_work = WORK.as_nanos() as u64 * TURNS;
    assert!(sample.work_ns >= least_work && sample.longest_work_ns >= WORK.as_nanos() as u64, "{sample:?}");
    assert!(sample.cpu_ns > 0 && sample.switches_voluntary >= TURNS, "{sample:?}");
    let sum = sample.work_ns + sample.sleep_ns + sample.blocked_ns;
    assert!(sum <= wall.as_nanos() as u64, "{sum} of {wall:?}");
    // Monotone, and time goes on.
    let later = module(&mut probe);
    assert!(later.work_ns + later.sleep_ns + later.blocked_ns >= sum);
}

fn threads_that_end_lose_nothing(library: &Library) {
    let standin = Standin::of(library);
    let mut probe = attached(library.symbol("flux_reactor_run"));
    let nested = if probe.status().blocked == Blocked::Known { 0 } else { 1 };
    let mut wakeups = 0;
    for _ in 0..3 {
        let (done, is_done) = mpsc::channel();
        let (go, may_go) = mpsc::channel();
        let worker = thread(move || {
            standin.turn(3);
            done.send(()).unwrap();
            may_go.recv().unwrap();
            standin.turn(4);
        });
        is_done.recv().unwrap();
        wakeups += 3 + 1 + 3 * nested;
        assert_eq!(module(&mut probe).wakeups, wakeups);
        // What it does after the last sample of its life is read from the slot that it leaves.
        go.send(()).unwrap();
        worker.join().unwrap();
        wakeups += 4 + 1 + 4 * nested;
        let after = module(&mut probe);
        assert_eq!((after.wakeups, after.threads), (wakeups, 0));
    }
    assert_eq!(probe.status().untimed, 0);
}

fn a_cancelled_wait_unwinds(library: &Library) {
    let _probe = attached(library.symbol("flux_reactor_run"));
    let run = library.symbol("flux_reactor_run") as usize;
    extern "C-unwind" fn wait_for_ever(run: *mut c_void) -> *mut c_void {
        let mut epfd = Standin::reactor();
        let reactor: *mut c_int = &mut epfd;
        // SAFETY: the stand-in's function; this frame owns nothing, so that a forced unwind may pass.
        unsafe { std::mem::transmute::<*mut c_void, Run>(run)(reactor.cast(), -1) };
        std::ptr::null_mut()
    }
    // SAFETY: a thread that ends by cancellation in the wait and is joined.
    unsafe {
        let mut id: libc::pthread_t = std::mem::zeroed();
        let body = std::mem::transmute::<
            extern "C-unwind" fn(*mut c_void) -> *mut c_void,
            extern "C" fn(*mut c_void) -> *mut c_void,
        >(wait_for_ever);
        assert_eq!(libc::pthread_create(&mut id, std::ptr::null(), body, run as *mut c_void), 0);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(libc::pthread_cancel(id), 0);
        let mut result = std::ptr::null_mut();
        assert_eq!(libc::pthread_join(id, &mut result), 0);
        assert_eq!(result as isize, -1, "PTHREAD_CANCELED");
    }
}

fn a_thread_asleep_across_a_detach_returns(library: &Library) {
    let standin = Standin::of(library);
    let anchor = library.symbol("flux_reactor_run");
    let mut probe = attached(anchor);
    let sleeper = thread(move || {
        let mut epfd = Standin::reactor();
        let reactor: *mut c_int = &mut epfd;
        // SAFETY: a live reactor and the stand-in's function.
        unsafe { (standin.run)(reactor.cast(), 60) };
        standin.turn(2);
    });
    std::thread::sleep(Duration::from_millis(20));
    let before = module(&mut probe);
    assert_eq!((before.threads, before.wakeups), (1, 0));
    for _ in 0..100 {
        drop(probe);
        probe = attached(anchor);
    }
    sleeper.join().unwrap();
}

fn bare_libflux_is_hooked() {
    let name = CString::new("libflux-core.so.2").unwrap();
    // SAFETY: libflux's initialisers have no preconditions.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        println!("skipped: no libflux-core.so.2 on this machine");
        return;
    }
    let library = Library(handle);
    let probe = attached(library.symbol("flux_reactor_run"));
    assert_eq!((probe.status().mode, probe.status().blocked), (Mode::Attach, Blocked::Known));
}

#[test]
fn without_libflux_the_probe_falls_back_to_proc_and_says_why() {
    let mut probe = Probe::start(Options { mode: Mode::Attach, ..Options::default() });
    let status = probe.status();
    assert_eq!((status.mode, status.blocked), (Mode::Proc, Blocked::Unknown));
    assert_eq!(status.fallback.unwrap().to_string(), "libflux is not in this process");
    probe.sample();
    let broker = probe.modules().find(|module| module.name == "broker").unwrap();
    assert_eq!((broker.source, broker.threads), (Source::Proc, 1));
}
