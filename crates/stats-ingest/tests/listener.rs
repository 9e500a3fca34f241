//! The thread and its sockets: nothing lost, nothing left behind.

use stats_core::{Node, NodeConfig, Now, Query};
use stats_ingest::{Address, Limits, Listener, OpenError, Recorder};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LIMITS: Limits = Limits { series: 10_000, tags: 16, ttl: Duration::from_secs(600) };
/// Far beyond what is awaited.
const LIMIT: Duration = Duration::from_secs(20);

fn node() -> Node {
    let (epoch, period, max_series) = (7, Duration::from_secs(2), 20_000);
    let config = NodeConfig { rank: 0, size: 1, level: 0, max_level: 0, epoch, period, max_series };
    Node::new(config, Now { mono_ns: 0, wall_ns: 0 })
}

fn total(node: &Node, name: &str) -> f64 {
    let query = Query::parse(&serde_json::json!({ "match": [name] })).unwrap();
    let answer = node.answer(&query, Now { mono_ns: 1, wall_ns: 1 });
    answer["series"][0]["total"].as_f64().unwrap_or(0.0)
}

fn address(text: &str) -> Address {
    text.parse().unwrap()
}

fn udp(listener: &Listener) -> SocketAddr {
    let found = listener.bound().iter().find_map(|bound| match bound {
        Address::Udp(at) => Some(*at),
        Address::Unix(_) => None,
    });
    found.unwrap()
}

fn start(addresses: &[Address], folder: &Path) -> Result<Listener, OpenError> {
    Listener::start(addresses, folder.join("statsd"), LIMITS)
}

/// Some milliseconds on a machine that has nothing else to do.
const PROMPT: Duration = Duration::from_secs(5);

/// Threads of this process that listen.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name =
        |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.flatten().map(name).filter(|name| name.trim() == "statsd").count()
}

/// A thread that has been joined may be seen for a moment yet.
fn no_threads() {
    let begun = std::time::Instant::now();
    while threads() > 0 {
        assert!(begun.elapsed() < PROMPT, "{} threads are left", threads());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// One at a time: they count the process's threads.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn lines_of_both_kinds_of_socket_are_counted_exactly_also_across_changes_and_the_end() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let both = [address("127.0.0.1:0"), address("unix:")];
    let mut listener = start(&both, folder.path()).unwrap();
    let (mut node, mut recorder) = (node(), Recorder::default());
    let (inet, unix) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UnixDatagram::unbound().unwrap());
    inet.connect(udp(&listener)).unwrap();
    for round in 0..200_u32 {
        inet.send(b"u:1|c\nu:2|c\nt:5|ms").unwrap();
        unix.send_to(b"x:1|c", folder.path().join("statsd")).unwrap();
        if round % 50 == 20 {
            // Other limits, the same sockets: nobody who sends notices.
            listener.reconfigure(&both, Limits { tags: 8, ..LIMITS }).unwrap();
        }
        if round % 10 == 0 {
            listener.take().into_iter().for_each(|over| recorder.record(&mut node, over));
        }
    }
    listener.stop().into_iter().for_each(|over| recorder.record(&mut node, over));
    // The thread may not have received the last of them: then they were dropped with the sockets.
    no_threads();
    assert!(!folder.path().join("statsd").exists());
    assert_eq!((total(&node, "u"), total(&node, "x")), (600.0, 200.0));
    assert_eq!(total(&node, "stats-agg.statsd.packets"), 400.0);
}

#[test]
fn a_hand_over_is_there_at_once_and_holds_all_that_was_received() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let mut listener = start(&[address("unix:")], folder.path()).unwrap();
    let sender = UnixDatagram::unbound().unwrap();
    let (mut node, mut recorder, start) = (node(), Recorder::default(), Instant::now());
    for _ in 0..1000 {
        sender.send_to(b"x:1|c", folder.path().join("statsd")).unwrap();
    }
    while total(&node, "x") < 1000.0 {
        let asked = Instant::now();
        listener.take().into_iter().for_each(|over| recorder.record(&mut node, over));
        assert!(asked.elapsed() < PROMPT);
        assert!(start.elapsed() < LIMIT);
    }
    assert_eq!(listener.failures(), 0);
}

#[test]
fn a_listener_ends_promptly_under_a_flood() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let mut listener = start(&[address("127.0.0.1:0")], folder.path()).unwrap();
    let (to, done) = (udp(&listener), std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let flag = done.clone();
    let flood = std::thread::spawn(move || {
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let rubbish = b"no line at all\n".repeat(4000);
        while !flag.load(std::sync::atomic::Ordering::Relaxed) {
            let _ = sender.send_to(&rubbish, to);
        }
    });
    std::thread::sleep(Duration::from_millis(300));
    let asked = Instant::now();
    let handed = listener.take();
    assert!(asked.elapsed() < PROMPT, "{:?}", asked.elapsed());
    let stopping = Instant::now();
    let rest = listener.stop();
    assert!(stopping.elapsed() < PROMPT, "{:?}", stopping.elapsed());
    no_threads();
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    flood.join().unwrap();
    let bad: u64 = handed.iter().chain(&rest).map(|over| over.counts.bad.iter().sum::<u64>()).sum();
    assert!(bad > 4000, "{bad}");
}

#[test]
fn what_a_unix_socket_has_accepted_is_counted_when_it_closes_too() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (path, done) = (folder.path().join("statsd"), std::sync::atomic::AtomicBool::new(false));
    let (mut node, mut recorder) = (node(), Recorder::default());
    let send = || {
        let (sender, mut accepted) = (UnixDatagram::unbound().unwrap(), 0_u32);
        while !done.load(std::sync::atomic::Ordering::Relaxed) {
            match sender.send_to(b"x:1|c", &path) {
                Ok(_) => accepted += 1,
                Err(_) => std::thread::yield_now(),
            }
        }
        accepted
    };
    let accepted: u32 = std::thread::scope(|threads| {
        let senders: Vec<_> = (0..3).map(|_| threads.spawn(send)).collect();
        for round in 0..40 {
            let mut listener = start(&[address("unix:")], folder.path()).unwrap();
            std::thread::sleep(Duration::from_millis(10));
            if round % 2 == 0 {
                // By a change, not by the end.
                listener.reconfigure(&[address("127.0.0.1:0")], LIMITS).unwrap();
            }
            listener.stop().into_iter().for_each(|over| recorder.record(&mut node, over));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        senders.into_iter().map(|sender| sender.join().unwrap()).sum()
    });
    assert!(accepted > 1000, "{accepted}");
    assert_eq!(total(&node, "x"), f64::from(accepted));
}

#[test]
fn a_taken_address_is_told_and_the_others_work() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let first = start(&[address("127.0.0.1:0")], folder.path()).unwrap();
    let taken = Address::Udp(udp(&first));
    let second = start(&[taken.clone(), address("unix:")], folder.path()).unwrap();
    assert_eq!(second.taken(), std::slice::from_ref(&taken));
    assert_eq!(second.bound(), [Address::Unix(Some(folder.path().join("statsd")))]);
}

#[test]
fn a_change_that_is_not_possible_changes_nothing() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let mut listener = start(&[address("unix:")], folder.path()).unwrap();
    let before = listener.bound().to_vec();
    let nowhere = Address::Unix(Some(PathBuf::from("/nonexistent/folder/socket")));
    let error = listener.reconfigure(&[address("127.0.0.1:0"), nowhere], LIMITS).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/folder/socket"), "{error}");
    assert_eq!(listener.bound(), before);
    UnixDatagram::unbound().unwrap().send_to(b"x:1|c", folder.path().join("statsd")).unwrap();
    let (mut node, mut recorder, start) = (node(), Recorder::default(), Instant::now());
    while total(&node, "x") < 1.0 {
        listener.take().into_iter().for_each(|over| recorder.record(&mut node, over));
        assert!(start.elapsed() < LIMIT);
    }
    // And one that is possible: the old socket is gone, the new one is there.
    listener.reconfigure(&[address("127.0.0.1:0")], LIMITS).unwrap();
    assert!(!folder.path().join("statsd").exists());
    assert_eq!(listener.bound().len(), 1);
}
