//! Sinks that do not behave, and scrapers that do worse, all at once with ones that are well: those never notice, and
//! what is lost is counted.

use serde_json::json;
use stats_core::{Amount, Key, Kind, Node, NodeConfig, Now, Query, Unit, Walk, Walked};
use stats_export::{Counts, Exporter, Plan, Raw, Setting, Wanted, settle};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Far beyond what is awaited.
const LIMIT: Duration = Duration::from_secs(60);
/// How often this thread has waited for anything.
fn waits() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

/// A node with some counters, all of which stand at `total`.
fn raw(series: usize, total: i128) -> Raw {
    let period = Duration::from_secs(2);
    let max_series = 1_000_000;
    let config = NodeConfig { rank: 0, size: 1, level: 0, max_level: 0, epoch: 1, period, max_series };
    let mut node = Node::new(config, Now { mono_ns: 0, wall_ns: 1_700_000_000_000_000_000 });
    for number in 0..series {
        let key = Key::new(&format!("modules.m{number}.wakeups"), &[], Kind::Counter, Unit::None).unwrap();
        let id = node.declare(key).unwrap();
        node.add(id, Amount::whole(total));
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let mut raw = Raw::new(json!({ "time": now, "period": 2.0, "instance": { "size": 1 } }));
    let mut walk = Walk::new(&node, Query::default());
    while walk.go_on(&node, usize::MAX, |reading| raw.push(reading)) != Walked::Whole {}
    raw
}

struct Stand {
    exporter: Exporter,
    counts: Vec<Arc<Counts>>,
    /// Hand-overs, and how often they waited.
    offers: u64,
    waited: u64,
    total: i128,
    series: usize,
}

impl Stand {
    fn new(settings: &[String], series: usize) -> Self {
        let mut settings: Vec<Setting> = settings.iter().map(|text| Setting::parse(text).unwrap()).collect();
        settle(&mut settings).unwrap();
        let counts: Vec<Arc<Counts>> = settings.iter().map(|_| Arc::default()).collect();
        let wanted = settings.into_iter().zip(&counts);
        let wanted = wanted.map(|(setting, counts)| Wanted { setting, counts: counts.clone() }).collect();
        let mut exporter = Exporter::start().unwrap();
        exporter.plan(Plan { wanted, private_jobs: false, default_path: "/nonexistent".into() });
        let mut stand = Stand { exporter, counts, offers: 0, waited: 0, total: 0, series };
        // Where to begin.
        stand.offer(0);
        stand
    }

    fn offer(&mut self, gained: i128) {
        self.total += gained;
        let raw = raw(self.series, self.total);
        let before = waits();
        self.exporter.offer(raw);
        self.offers += 1;
        self.waited += waits() - before;
    }

    /// Offers numbers until it is so.
    fn until(&mut self, what: &str, mut so: impl FnMut(&[Arc<Counts>]) -> bool) {
        let begun = Instant::now();
        while !so(&self.counts) {
            let told = |counts: &Arc<Counts>| {
                let of = |count: &AtomicU64| count.load(Relaxed);
                (of(&counts.sent), of(&counts.retried), of(&counts.dropped), counts.last_error())
            };
            assert!(
                begun.elapsed() < LIMIT,
                "{what}: {:?}",
                self.counts.iter().map(told).collect::<Vec<_>>()
            );
            self.offer(1);
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn bound(&self, place: usize) -> SocketAddr {
        let begun = Instant::now();
        loop {
            if let Ok(address) = self.counts[place].bound().parse() {
                return address;
            }
            assert!(begun.elapsed() < LIMIT);
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn end(self) {
        // The allocator's lock may be another thread's for once.
        assert!(self.waited <= self.offers / 20, "{} of {} hand-overs waited", self.waited, self.offers);
        let begun = Instant::now();
        assert!(self.exporter.end(Some(raw(self.series, self.total)), Duration::from_secs(1)));
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }
}

fn sent(counts: &Counts) -> u64 {
    counts.sent.load(Relaxed)
}

/// A server on this machine, each connection with a thread of its own.
fn server(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    port
}

/// Reads a request whole, if there is one.
fn request(stream: &mut TcpStream) -> bool {
    let (mut bytes, mut some) = (Vec::new(), [0; 65536]);
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some(head) = text.find("\r\n\r\n") {
            let length = text.to_ascii_lowercase();
            let length = length
                .split("content-length: ")
                .nth(1)
                .and_then(|rest| rest.split('\r').next()?.parse().ok());
            if bytes.len() >= head + 4 + length.unwrap_or(0) {
                return true;
            }
        }
        match stream.read(&mut some) {
            Ok(0) | Err(_) => return false,
            Ok(length) => bytes.extend_from_slice(&some[..length]),
        }
    }
}

fn answering(answer: &'static [u8]) -> u16 {
    server(move |mut stream| {
        while request(&mut stream) {
            if stream.write_all(answer).is_err() {
                return;
            }
        }
    })
}

const TAKEN: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";

#[test]
fn sinks_that_do_not_behave_do_not_hold_up_those_that_do() {
    // A port where nobody listens.
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let never_reads = server(|stream| {
        thread::sleep(LIMIT * 2);
        drop(stream);
    });
    let half_closed = server(|mut stream| {
        let _ = stream.read(&mut [0; 100]);
        // Closes with bytes unread: a reset.
    });
    let silent = server(|mut stream| while request(&mut stream) {});
    let failing = answering(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\noops");
    let refusing = answering(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 3\r\n\r\nno!");
    let endless = server(|mut stream| while stream.write_all(&[b'x'; 4096]).is_ok() {});
    let well = answering(TAKEN);
    let reader = server(|mut stream| while stream.read(&mut [0; 65536]).is_ok_and(|length| length > 0) {});
    let mut stand = Stand::new(
        &[
            format!("influx,target=http://127.0.0.1:{well}/write?db=a,period=1s,name=well"),
            format!("graphite,target=127.0.0.1:{reader},period=1s,name=reader"),
            format!("graphite,target=127.0.0.1:{dead},period=1s,name=dead"),
            format!("graphite-pickle,target=127.0.0.1:{never_reads},period=1s,name=never-reads"),
            format!("graphite,target=127.0.0.1:{half_closed},period=1s,name=half-closed"),
            format!("otlp,target=http://127.0.0.1:{silent},period=1s,name=silent"),
            format!("otlp-json,target=http://127.0.0.1:{failing},period=1s,name=failing"),
            format!("influx,target=http://127.0.0.1:{refusing}/write?db=a,period=1s,name=refusing"),
            format!("influx,target=http://127.0.0.1:{endless}/write?db=a,period=1s,name=endless"),
            "graphite,target=no-such-host.invalid:2003,period=1s,name=nowhere".to_owned(),
            "json,target=/nonexistent/x.jsonl,period=1s,name=no-file".to_owned(),
            "prometheus,listen=127.0.0.1:0".to_owned(),
        ],
        2000,
    );
    let scraped = stand.bound(11);
    stand.until("those that are well have much, and the others an error", |counts| {
        let well = counts[..2].iter().all(|counts| sent(counts) >= 10 * 2000);
        well && counts[2..11]
            .iter()
            .all(|counts| !counts.last_error().is_empty() || counts.failing_for().is_some())
    });
    let error = |place: usize| stand.counts[place].last_error();
    let says = |place: usize, what: &str| assert!(error(place).contains(what), "{place}: {}", error(place));
    says(2, "Connection refused");
    says(4, "Connection reset");
    says(5, "no answer within 10s");
    says(6, "status 500: oops");
    says(7, "status 400: no!");
    says(8, "its answer is not HTTP");
    says(9, "no-such-host.invalid");
    says(10, "/nonexistent/x.jsonl");
    assert!(stand.counts[7].dropped.load(Relaxed) > 0 && sent(&stand.counts[7]) == 0);
    assert!([2, 5, 6, 9].iter().all(|&place| sent(&stand.counts[place]) == 0));
    // The well ones took no long time for it.
    for counts in &stand.counts[..2] {
        let latency = counts.take_latency().unwrap();
        assert!(latency.quantile(0.5).unwrap() < 0.5e9, "{latency:?}");
    }
    let mut scraper = TcpStream::connect(scraped).unwrap();
    scraper.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    scraper.read_to_string(&mut text).unwrap();
    assert!(text.contains("\nflux_module_wakeups_total{module=\"m0\"} "), "{}", &text[..300]);
    stand.end();
}

#[test]
fn what_waits_is_bounded_and_what_goes_is_counted() {
    // 20,000 series are a megabyte and more each time.
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut stand = Stand::new(&[format!("graphite,target=127.0.0.1:{dead},period=1s")], 20_000);
    stand.until("something is dropped", |counts| counts[0].dropped.load(Relaxed) > 0);
    let waiting = stand.counts[0].buffered_bytes.load(Relaxed);
    assert!((8 << 20..=16 << 20).contains(&waiting), "{waiting}");
    assert_eq!((sent(&stand.counts[0]), stand.counts[0].dropped.load(Relaxed) % 20_000), (0, 0));
    stand.end();
}

#[test]
fn a_receiver_that_comes_back_gets_everything_that_waited() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let mut stand = Stand::new(&[format!("influx,target=http://127.0.0.1:{port}/write?db=a,period=1s")], 10);
    stand.until("it fails", |counts| {
        counts[0].failing_for().is_some_and(|time| time > Duration::from_secs(2))
    });
    let bodies = Arc::new(AtomicU64::new(0));
    let (listener, counted) = (TcpListener::bind(("127.0.0.1", port)).unwrap(), bodies.clone());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let counted = counted.clone();
            thread::spawn(move || {
                while request(&mut stream) {
                    counted.fetch_add(1, Relaxed);
                    // Every third connection ends with its first answer.
                    let _ = stream.write_all(TAKEN);
                    if counted.load(Relaxed) % 3 == 0 {
                        return;
                    }
                }
            });
        }
    });
    stand.until("it is well", |counts| counts[0].failing_for().is_none() && sent(&counts[0]) > 80);
    stand.until("nothing waits", |counts| counts[0].buffered_bytes.load(Relaxed) == 0);
    assert_eq!(stand.counts[0].dropped.load(Relaxed), 0);
    assert_eq!(sent(&stand.counts[0]) / 10, bodies.load(Relaxed));
    stand.end();
}

#[test]
fn a_connection_that_ends_after_a_write_has_the_last_sent_again() {
    let lines = Arc::new(AtomicU64::new(0));
    let counted = lines.clone();
    let port = server(move |mut stream| {
        // Reads one payload, and closes in between two.
        let mut bytes = [0; 4096];
        if let Ok(length) = stream.read(&mut bytes) {
            counted.fetch_add(bytes[..length].iter().filter(|byte| **byte == b'\n').count() as u64, Relaxed);
        }
    });
    let mut stand = Stand::new(&[format!("graphite,target=127.0.0.1:{port},period=1s")], 5);
    stand.until("some are retried", |counts| counts[0].retried.load(Relaxed) >= 10);
    assert!(lines.load(Relaxed) >= sent(&stand.counts[0]), "twice rather than never");
    stand.end();
}

#[test]
fn a_statsd_gets_each_gain_once_and_a_full_one_holds_up_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("statsd");
    let full = UnixDatagram::bind(&path).unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let targets = [udp.local_addr().unwrap().to_string(), format!("unix:{}", path.display())];
    let mut stand = Stand::new(&targets.map(|target| format!("statsd,target={target},period=1s")), 3);
    stand.offer(0);
    let mut gained = 0.0;
    let mut bytes = [0; 2000];
    let mut drain = |gained: &mut f64| {
        while let Ok(length) = udp.recv(&mut bytes) {
            for line in std::str::from_utf8(&bytes[..length]).unwrap().lines() {
                let value =
                    line.strip_prefix("flux.modules.m0.wakeups:").and_then(|rest| rest.strip_suffix("|c"));
                *gained += value.map_or(0.0, |value| value.parse().unwrap());
            }
        }
    };
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        stand.offer(7);
        drain(&mut gained);
    }
    let total = stand.total as f64;
    stand.end();
    drain(&mut gained);
    assert_eq!(gained, total);
    drop(full);
}

/// One scraper that is well, while others are not.
#[test]
fn a_receiver_that_never_comes_to_its_answer_holds_up_nobody() {
    let endless = server(|mut stream| {
        request(&mut stream);
        while stream.write_all(&b"HTTP/1.1 100 Continue\r\n\r\n".repeat(4000)).is_ok() {}
    });
    let well = answering(b"HTTP/1.1 204 No Content\r\n\r\n");
    let otlp = |name, port| format!("otlp,name={name},target=http://127.0.0.1:{port}/v1/metrics,period=1s");
    let mut stand = Stand::new(&[otlp("endless", endless), otlp("well", well)], 10);
    stand.until("the other is sent to, and what is wrong is said", |counts| {
        sent(&counts[1]) >= 20 && counts[0].last_error().contains("100 without end")
    });
    stand.end();
}

#[test]
fn all_requests_of_one_connection_are_answered_however_many_come_at_once() {
    let stand = Stand::new(&["prometheus,listen=127.0.0.1:0".to_owned()], 10);
    let mut scraper = TcpStream::connect(stand.bound(0)).unwrap();
    scraper.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    let mut all = b"GET / HTTP/1.1\r\n\r\n".repeat(20);
    all.extend_from_slice(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
    scraper.write_all(&all).unwrap();
    let mut text = String::new();
    scraper.read_to_string(&mut text).unwrap();
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 21);
    stand.end();
}

#[test]
fn scrapers_that_do_not_behave_do_not_keep_others_from_the_numbers() {
    let mut stand = Stand::new(&["prometheus,listen=127.0.0.1:0".to_owned()], 5000);
    let at = stand.bound(0);
    let stop = Arc::new(AtomicBool::new(false));
    let mut hostile = Vec::new();
    let mut beside = |what: fn(SocketAddr)| {
        let stop = stop.clone();
        hostile.push(thread::spawn(move || {
            while !stop.load(Relaxed) {
                what(at)
            }
        }));
    };
    // One that says nothing, one that sends a byte at a time, one that never reads, rubbish, and many at once.
    beside(|at| {
        let quiet: Vec<_> = (0..40).map(|_| TcpStream::connect(at)).collect();
        thread::sleep(Duration::from_millis(300));
        drop(quiet);
    });
    beside(|at| {
        let Ok(mut slow) = TcpStream::connect(at) else { return };
        for byte in b"GET /metrics HTTP/1.1\r\n" {
            let _ = slow.write_all(&[*byte]);
            thread::sleep(Duration::from_millis(20));
        }
    });
    beside(|at| {
        let Ok(mut deaf) = TcpStream::connect(at) else { return };
        for _ in 0..20 {
            let _ = deaf.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
        }
        thread::sleep(Duration::from_millis(500));
    });
    beside(|at| {
        let Ok(mut rubbish) = TcpStream::connect(at) else { return };
        let _ = rubbish.set_write_timeout(Some(Duration::from_millis(200)));
        while rubbish.write_all(&[0xff; 1000]).is_ok() {}
        thread::sleep(Duration::from_millis(20));
    });
    let (mut scrapes, mut refused) = (0, 0);
    let begun = Instant::now();
    while scrapes < 20 {
        assert!(begun.elapsed() < LIMIT, "{scrapes} scrapes, {refused} refused");
        stand.offer(1);
        let mut text = Vec::new();
        let scrape = TcpStream::connect(at).and_then(|mut scraper| {
            scraper.set_read_timeout(Some(Duration::from_secs(15)))?;
            scraper.write_all(b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n")?;
            scraper.read_to_end(&mut text)
        });
        match scrape {
            Ok(_) if text.starts_with(b"HTTP/1.1 200 OK") => {
                let text = String::from_utf8(text).unwrap();
                let samples = text.lines().filter(|line| line.starts_with("flux_module_wakeups_total{"));
                assert_eq!(samples.count(), 5000);
                scrapes += 1;
            }
            // More are connected than may be: it tries again, as a server does with the next scrape.
            Ok(_) => refused += 1,
            Err(error) => {
                assert!(!matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
                refused += 1;
            }
        }
        thread::sleep(Duration::from_millis(50));
    }
    stop.store(true, Relaxed);
    hostile.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(stand.counts[0].refused.load(Relaxed) > 0);
    stand.end();
}

/// A scrape that is answered whole, with as many series as there are.
fn scraped(at: SocketAddr, series: usize) {
    let mut scraper = TcpStream::connect(at).unwrap();
    scraper.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    scraper.write_all(b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    scraper.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{}", &text[..text.len().min(200)]);
    assert_eq!(text.lines().filter(|line| line.starts_with("flux_module_wakeups_total{")).count(), series);
}

#[test]
fn requests_that_are_begun_and_answers_that_are_not_read_give_way_to_scrapes() {
    const SERIES: usize = 5000;
    let mut stand = Stand::new(&["prometheus,listen=127.0.0.1:0".to_owned()], SERIES);
    let at = stand.bound(0);
    stand.offer(1);
    let begun = |_| {
        let mut lazy = TcpStream::connect(at).unwrap();
        lazy.write_all(b"G").unwrap();
        lazy
    };
    let lazy: Vec<TcpStream> = (0..40).map(begun).collect();
    (0..5).for_each(|_| scraped(at, SERIES));
    drop(lazy);
    // Of each of ten moments and two formats somebody is sent a body that is never read.
    let mut deaf = Vec::new();
    for moment in 0..10 {
        stand.offer(1);
        for accept in ["text/plain", "application/openmetrics-text"] {
            let mut one = TcpStream::connect(at).unwrap();
            let request = format!("GET /metrics HTTP/1.1\r\nAccept: {accept}\r\n\r\n");
            one.write_all(request.repeat(20).as_bytes()).unwrap();
            deaf.push(one);
        }
        // Slow is who has not read it after a second.
        thread::sleep(Duration::from_millis(600));
        scraped(at, SERIES);
        assert_eq!(deaf.len(), 2 * (moment + 1));
    }
    drop(deaf);
    stand.end();
}

#[test]
fn a_socket_whose_file_was_removed_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics");
    let mut stand = Stand::new(&[format!("prometheus,listen=unix:{}", path.display())], 10);
    for _ in 0..2 {
        stand.until("it listens", |_| UnixStream::connect(&path).is_ok());
        std::fs::remove_file(&path).unwrap();
        stand.offer(1);
    }
    stand.until("it listens again", |_| UnixStream::connect(&path).is_ok());
    stand.end();
    assert!(!path.exists());
}

#[test]
fn a_receiver_that_reads_nothing_is_not_well_again_because_a_new_connection_has_buffers() {
    let reads = Arc::new(AtomicBool::new(false));
    let told = reads.clone();
    let port = server(move |mut stream| {
        let mut some = [0; 65536];
        loop {
            if !told.load(Relaxed) {
                thread::sleep(Duration::from_millis(50));
            } else if stream.read(&mut some).is_ok_and(|length| length > 0) {
                continue;
            } else {
                return;
            }
        }
    });
    let mut stand = Stand::new(&[format!("graphite,target=127.0.0.1:{port},name=stuck")], 5000);
    stand.until("it is stuck", |counts| counts[0].failing_for().is_some());
    let before = sent(&stand.counts[0]);
    stand.until("a new connection takes something", |counts| sent(&counts[0]) > before);
    assert!(stand.counts[0].failing_for().is_some());
    reads.store(true, Relaxed);
    stand.until("it reads", |counts| counts[0].failing_for().is_none());
    stand.end();
}
