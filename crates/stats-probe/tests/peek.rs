//! Reading the slots of a process that cannot answer.

#[allow(dead_code)]
mod standin;

use std::ffi::c_void;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use stats_probe::peek::{Peek, PeekError, PeekThread, peek, peek_process};
use stats_probe::{Options, Probe, State};

/// This test program again, as the process that is looked at.
struct Watched(Child);

impl Watched {
    /// Starts it and waits until all of its threads do what they are to do.
    fn start(object: &Path, slots: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_process_that_is_looked_at", "--nocapture", "--test-threads=1"])
            .env("FLUX_STATS_TEST_OBJECT", object)
            .env("FLUX_STATS_TEST_SLOTS", slots)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = child.stdout.take().unwrap();
        let mut seen = String::new();
        while !seen.contains("READY") {
            let mut byte = [0];
            assert_eq!(output.read(&mut byte).unwrap(), 1, "the process ended: {seen}");
            seen.push(byte[0] as char);
        }
        Self(child)
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the pid is of our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(self.0.id() as i32, signal) }, 0);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

extern "C" fn spin(_: *mut c_void) {
    loop {
        std::hint::spin_loop();
    }
}

extern "C" fn nothing(_: *mut c_void) {}

/// Not a test of its own: run by the others in a process of its own.
#[test]
fn the_process_that_is_looked_at() {
    let (Some(object), Some(slots)) =
        (std::env::var_os("FLUX_STATS_TEST_OBJECT"), std::env::var_os("FLUX_STATS_TEST_SLOTS"))
    else {
        return;
    };
    let lib = standin::load(Path::new(&object), libc::RTLD_NOW);
    let options = Options { slot_path: Some(slots.into()), ..Options::attach(lib.anchor) };
    let mut probe = Probe::start(options);
    assert_eq!((probe.status().fallback, probe.status().slots_private), (None, None));
    let thread = |name: &str, work: fn(standin::Standin)| {
        std::thread::Builder::new().name(name.into()).spawn(move || work(lib)).unwrap();
    };
    // SAFETY: (in all four) the stand-in's functions on reactors of the calling thread.
    thread("spinning", |lib| unsafe {
        (lib.run)((lib.create)(1_000_000, Some(spin), std::ptr::null_mut()), 0);
    });
    // SAFETY: as above.
    thread("sleeping", |lib| unsafe {
        let reactor = (lib.create)(1_000_000, Some(nothing), std::ptr::null_mut());
        for _ in 0..5 {
            (lib.run)(reactor, 2);
        }
        (lib.run)((lib.create)(0, None, std::ptr::null_mut()), 0);
    });
    // SAFETY: as above.
    thread("blocked", |lib| unsafe {
        (lib.rpc)(3600 * 1_000_000_000);
    });
    std::thread::Builder::new().name("elsewhere".into()).spawn(std::thread::park).unwrap();
    loop {
        let samples = probe.sample();
        let state = |name: &str| samples.iter().find(|s| s.name == name).map(|s| (s.state, s.wakeups));
        if (state("spinning"), state("sleeping"), state("blocked"))
            == (Some((State::Working, 1)), Some((State::Sleeping, 5)), Some((State::Blocked, 0)))
            && state("elsewhere").is_some()
        {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("READY");
    std::thread::sleep(Duration::from_secs(60));
}

fn thread<'a>(peek: &'a Peek, comm: &str) -> &'a PeekThread {
    peek.threads.iter().find(|t| t.comm == comm).unwrap_or_else(|| panic!("{comm} is not in {peek:#?}"))
}

#[test]
fn a_stopped_process_shows_what_each_thread_does_and_for_how_long() {
    let dir = tempfile::tempdir().unwrap();
    let Some(object) = standin::build(dir.path(), "libpeek.so", &[]) else { return };
    let slots = dir.path().join("stats-agg.0.slots");
    let watched = Watched::start(&object, &slots);
    watched.signal(libc::SIGSTOP);
    let pause = Duration::from_millis(300);
    let first = peek(&slots).unwrap();
    std::thread::sleep(pause);
    let seen = peek_process(watched.0.id()).unwrap();
    assert_eq!((seen.pid, seen.active, seen.blocked_available), (watched.0.id(), true, true));
    assert!(seen.sampled_ago_ns.unwrap() >= 300_000_000);
    for (comm, state) in
        [("spinning", State::Working), ("sleeping", State::Sleeping), ("blocked", State::Blocked)]
    {
        let (before, now) = (thread(&first, comm), thread(&seen, comm));
        assert_eq!((now.state, now.consistent), (state, true), "{now:?}");
        let longer = now.state_for_ns.unwrap() - before.state_for_ns.unwrap();
        assert!(longer >= 300_000_000, "{comm} {longer}");
        let sum = |t: &PeekThread| t.work_ns + t.sleep_ns + t.blocked_ns;
        assert!(sum(now) - sum(before) >= 300_000_000, "{comm}");
        assert_eq!(now.turn_for_ns.is_some(), comm != "sleeping");
        assert!(now.stat.is_some());
    }
    assert_eq!(thread(&seen, "sleeping").wakeups, 5);
    assert_eq!(thread(&seen, "sleeping").work.count(), 6);
    let elsewhere = thread(&seen, "elsewhere");
    assert_eq!((elsewhere.state, elsewhere.state_for_ns), (State::UnknownIdle, None));
    watched.signal(libc::SIGCONT);
    drop(watched);
    assert!(peek(&slots).is_err(), "a link to a dead process leads nowhere");
}

#[test]
fn where_nothing_is_to_be_read_the_error_says_so() {
    let missing = peek(Path::new("/nonexistent/x.slots")).unwrap_err().to_string();
    assert!(missing.contains("/nonexistent/x.slots"), "{missing}");
    assert!(matches!(peek_process(1_999_999_999), Err(PeekError::Process(_))));
}
