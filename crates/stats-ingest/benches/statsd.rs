//! What a line costs, beside the floor: receiving the same datagrams and doing nothing with them.
//!
//! Three ways. A sender that never stops keeps the receiver busy: the CPU time of the listener's thread for each datagram
//! that it received, beside that of a thread which only receives; this is what the targets are of. A sender at a pace:
//! the same, and nothing may be lost. At rest: datagrams wait in the socket, and what is timed is taking them out; no
//! wake-up and no other processor is in it, so this is the lowest floor there can be.

mod brubeck;

use brubeck::Brubeck;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{MsgFlags, MultiHeaders, recvmmsg};
use stats_core::Amount;
use stats_ingest::parts::{BATCH, Buffers, Receiver, Socket};
use stats_ingest::{Address, Delta, HandOver, Limits, Listener, Shard};
use std::fs;
use std::hint::black_box;
use std::io::IoSliceMut;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NAMES: usize = 1000;
const LIMITS: Limits = Limits { series: 20_000, tags: 16, ttl: Duration::from_secs(600) };
/// Rounds at rest: in each, one batch for the floor and one for the shard.
const ROUNDS: usize = 4000;
/// Rounds of which the median is one measurement; the best of those is told, as the least disturbed.
const GROUP: usize = 200;
/// As used.
const PACE_S: f64 = 2.0;
/// Datagrams a second.
const PACES: [f64; 2] = [20_000.0, 100_000.0];
const PAIRS: usize = 3;

/// How others did, measured by themselves on a quiet machine: for the order of magnitude.
struct Reference {
    metrics: usize,
    target: f64,
    /// Of a metric.
    others: &'static str,
}

const REFERENCES: [Reference; 2] = [
    Reference {
        metrics: 1,
        target: 1.15,
        others: "brubeck 2430 ns, etsy 3240 ns, floor 915 ns when they were measured",
    },
    Reference {
        metrics: 20,
        target: 1.5,
        others: "brubeck 132 ns, etsy 1180 ns, floor 60 ns when they were measured",
    },
];

/// Datagrams of so many metrics, over all names: counters, or every kind.
fn datagrams(metrics: usize, mixed: bool) -> Vec<Vec<u8>> {
    let mut number = 0;
    let mut line = || {
        number += 1;
        // A stride that meets every name, in no order that a cache would like.
        let name = (number * 387) % NAMES;
        let kind = match name % 10 {
            8 if mixed => "g",
            9 if mixed => "ms",
            _ => "c",
        };
        format!("app.part{}.metric{name}:{}|{kind}", name % 7, number % 100)
    };
    let datagram = |_| (0..metrics).map(|_| line()).collect::<Vec<_>>().join("\n").into_bytes();
    (0..NAMES).map(datagram).collect()
}

fn open() -> (Socket, UdpSocket) {
    let address: Address = "127.0.0.1:0".parse().expect("an address");
    let socket = Socket::open(&address, Path::new("/")).expect("a socket");
    let Address::Udp(to) = socket.bound else { panic!("not UDP") };
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    sender.connect(to).expect("connected");
    (socket, sender)
}

/// Nothing but the system call, into buffers that are as near to each other as they can be.
struct Floor {
    headers: MultiHeaders<()>,
    buffers: Vec<u8>,
}

impl Floor {
    const ROOM: usize = 1600;

    fn new() -> Self {
        Floor { headers: MultiHeaders::preallocate(BATCH, None), buffers: vec![0; BATCH * Self::ROOM] }
    }

    fn receive(&mut self, socket: impl AsFd) -> usize {
        let mut rooms = self.buffers.chunks_exact_mut(Self::ROOM);
        let mut slices: [[IoSliceMut<'_>; 1]; BATCH] =
            std::array::from_fn(|_| [IoSliceMut::new(rooms.next().unwrap_or_default())]);
        let fd = socket.as_fd().as_raw_fd();
        match recvmmsg(fd, &mut self.headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None) {
            Ok(results) => results.count(),
            Err(_) => 0,
        }
    }
}

fn gained(over: &HandOver) -> i128 {
    let gain = |delta: &Delta| match delta {
        Delta::Count(amount) => *amount,
        _ => Amount::ZERO,
    };
    over.changes.iter().map(|change| gain(&change.delta).parts() / 1_000_000).sum()
}

fn sum_of(datagram: &[u8]) -> i128 {
    let values = datagram.split(|&byte| byte == b'\n').filter(|line| line.ends_with(b"|c"));
    let value = |line: &[u8]| {
        let text = String::from_utf8_lossy(line);
        let text = text
            .split_once(':')
            .and_then(|(_, rest)| rest.split_once('|'))
            .map(|(value, _)| value.to_owned());
        text.and_then(|value| value.parse::<i128>().ok()).unwrap_or(0)
    };
    values.map(value).sum()
}

/// Nanoseconds of a datagram, without and with the shard.
fn at_rest(datagrams: &[Vec<u8>]) -> (f64, f64) {
    let (socket, sender) = open();
    let (mut floor, mut receiver, mut buffers) = (Floor::new(), Receiver::default(), Buffers::default());
    let mut shard = Shard::new(LIMITS);
    datagrams.iter().for_each(|datagram| shard.receive(datagram));
    shard.hand_over();
    let (mut expected, mut found) = (0, 0);
    // Beforehand: between sending and receiving nothing else may fill the caches.
    let sums: Vec<i128> = datagrams.iter().map(|datagram| sum_of(datagram)).collect();
    let mut next = datagrams.iter().zip(sums).cycle();
    let mut samples = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        for with in [round % 2 == 0, round % 2 == 1] {
            for (datagram, sum) in next.by_ref().take(BATCH) {
                sender.send(datagram).expect("sent");
                expected += if with { sum } else { 0 };
            }
            let begun = Instant::now();
            let received = if with {
                receiver
                    .receive(&socket, &mut buffers, |datagram| shard.receive(datagram))
                    .expect("received")
                    .datagrams
            } else {
                black_box(floor.receive(&socket))
            };
            samples[usize::from(with)].push(begun.elapsed().as_nanos() as f64 / BATCH as f64);
            assert_eq!(received, BATCH);
        }
        if round % 100 == 0 {
            found += gained(&shard.hand_over());
        }
    }
    found += gained(&shard.hand_over());
    assert_eq!(found, expected, "totals");
    let best = |samples: &[f64]| {
        let median = |group: &[f64]| {
            let mut group = group.to_vec();
            group.sort_by(f64::total_cmp);
            group[group.len() / 2]
        };
        samples.chunks(GROUP).map(median).fold(f64::INFINITY, f64::min)
    };
    (best(&samples[0]), best(&samples[1]))
}

/// CPU nanoseconds of the thread of this name.
fn cpu_ns(thread: &str) -> Option<u64> {
    let tasks = fs::read_dir("/proc/self/task").ok()?;
    let read =
        |task: &fs::DirEntry, file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
    let task = tasks.flatten().find(|task| read(task, "comm").trim() == thread)?;
    read(&task, "schedstat").split(' ').next()?.parse().ok()
}

/// Sends bursts at a pace; how many datagrams, and the sum of their counters.
fn send(to: SocketAddr, datagrams: &[Vec<u8>], rate: f64) -> (u64, i128) {
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    sender.connect(to).expect("connected");
    let (begun, mut sent, mut sum) = (Instant::now(), 0_u64, 0);
    let sums: Vec<i128> = datagrams.iter().map(|datagram| sum_of(datagram)).collect();
    while begun.elapsed().as_secs_f64() < PACE_S {
        if sent as f64 >= begun.elapsed().as_secs_f64() * rate {
            std::hint::spin_loop();
            continue;
        }
        for _ in 0..BATCH / 2 {
            let at = sent as usize % datagrams.len();
            sender.send(&datagrams[at]).expect("sent");
            (sent, sum) = (sent + 1, sum + sums[at]);
        }
    }
    (sent, sum)
}

/// CPU nanoseconds of a datagram on a thread that does nothing with it.
fn used_floor(datagrams: &[Vec<u8>], rate: f64) -> f64 {
    let (socket, _) = open();
    let Address::Udp(to) = socket.bound else { panic!("not UDP") };
    let (done, got) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (theirs, count) = (done.clone(), got.clone());
    let run = move || {
        let mut floor = Floor::new();
        while !theirs.load(Ordering::Relaxed) {
            let mut ready = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut ready, 50_u8);
            loop {
                let received = floor.receive(&socket);
                count.fetch_add(received as u64, Ordering::Relaxed);
                if received < BATCH {
                    break;
                }
            }
        }
    };
    let thread = std::thread::Builder::new().name("floor".to_owned()).spawn(run).expect("a thread");
    send(to, datagrams, rate);
    std::thread::sleep(Duration::from_millis(50));
    let ns = cpu_ns("floor").unwrap_or(0);
    done.store(true, Ordering::Relaxed);
    thread.join().expect("ended");
    ns as f64 / got.load(Ordering::Relaxed) as f64
}

/// What the listener did with what was sent to it.
struct Used {
    cpu_ns_a_datagram: f64,
    sent: u64,
    /// By the kernel, since the listener did not keep up.
    lost: u64,
}

fn used(datagrams: &[Vec<u8>], rate: f64) -> Used {
    let address: Address = "127.0.0.1:0".parse().expect("an address");
    let mut listener = Listener::start(&[address], "/nonexistent".into(), LIMITS).expect("a listener");
    let Some(Address::Udp(to)) = listener.bound().first().cloned() else { panic!("not UDP") };
    let (sent, sum) = send(to, datagrams, rate);
    std::thread::sleep(Duration::from_millis(50));
    let ns = cpu_ns("statsd").unwrap_or(0);
    // The kernel says with the next datagrams what it has dropped.
    let (sender, after) = (UdpSocket::bind("127.0.0.1:0").expect("a socket"), 2);
    for _ in 0..after {
        sender.send_to(b"after:0|c", to).expect("sent");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut all = listener.take();
    all.extend(listener.stop());
    let counted = |count: fn(&HandOver) -> u64| all.iter().map(count).sum::<u64>();
    let (received, lost) = (counted(|over| over.counts.packets), counted(|over| over.counts.dropped));
    assert_eq!(received + lost, sent + after, "every datagram is received, or counted as dropped");
    if lost == 0 {
        assert_eq!(all.iter().map(gained).sum::<i128>(), sum, "totals");
    }
    Used { cpu_ns_a_datagram: ns as f64 / (received - after) as f64, sent, lost }
}

/// Nanoseconds of a datagram in the shard alone, from memory.
fn from_memory(datagrams: &[Vec<u8>]) -> f64 {
    let mut shard = Shard::new(LIMITS);
    let mut best = f64::INFINITY;
    for _ in 0..200 {
        let begun = Instant::now();
        datagrams.iter().for_each(|datagram| shard.receive(datagram));
        best = best.min(begun.elapsed().as_nanos() as f64 / datagrams.len() as f64);
        black_box(shard.hand_over());
    }
    best
}

/// CPU nanoseconds of a datagram in brubeck, if it is to be had.
fn used_by_brubeck(datagrams: &[Vec<u8>], rate: f64) -> Option<f64> {
    let mut all: Vec<f64> = (0..PAIRS)
        .map_while(|_| {
            let brubeck = Brubeck::start()?;
            let before = brubeck.cpu_ns();
            let (sent, _) = send(brubeck.to, datagrams, rate);
            std::thread::sleep(Duration::from_millis(50));
            let ns = brubeck.cpu_ns() - before;
            Some(ns as f64 / sent.saturating_sub(brubeck.dropped()).max(1) as f64)
        })
        .collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// The median of a few pairs.
fn beside_the_floor(datagrams: &[Vec<u8>], rate: f64) -> (f64, f64, Used) {
    let mut pairs: Vec<(f64, f64, Used)> = (0..PAIRS)
        .map(|_| {
            let floor = used_floor(datagrams, rate);
            let used = used(datagrams, rate);
            (used.cpu_ns_a_datagram / floor, floor, used)
        })
        .collect();
    let (sent, lost) =
        pairs.iter().fold((0, 0), |(sent, lost), (_, _, used)| (sent + used.sent, lost + used.lost));
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (ratio, floor, used) = pairs.swap_remove(PAIRS / 2);
    (ratio, floor, Used { sent, lost, ..used })
}

fn main() {
    for Reference { metrics, target, others } in &REFERENCES {
        let (counters, mixed) = (datagrams(*metrics, false), datagrams(*metrics, true));
        let each = *metrics as f64;
        let seconds = PAIRS as f64 * PACE_S;
        println!(
            "statsd, {metrics} metrics a datagram, {NAMES} names (of a metric on another day: {others})"
        );
        let (ratio, floor, used) = beside_the_floor(&counters, f64::INFINITY);
        println!(
            "  flat out: {:.0} ns of CPU a metric, floor {:.0} ns: x {ratio:.2} (target <= {target}); {:.0} datagrams/s, \
             {:.0} % of them dropped and counted",
            used.cpu_ns_a_datagram / each,
            floor / each,
            used.sent as f64 / seconds,
            100.0 * used.lost as f64 / used.sent as f64,
        );
        if let Some(ns) = used_by_brubeck(&counters, f64::INFINITY) {
            let ratio = ns / used.cpu_ns_a_datagram;
            println!("  brubeck, flat out: {:.0} ns of CPU a metric: x {ratio:.2} of ours", ns / each);
        }
        for rate in PACES {
            let (ratio, floor, used) = beside_the_floor(&counters, rate);
            println!(
                "  paced: {:.0} ns of CPU a metric, floor {:.0} ns: x {ratio:.2}; {:.0} datagrams/s, {} of {} lost, \
                 totals exact",
                used.cpu_ns_a_datagram / each,
                floor / each,
                used.sent as f64 / seconds,
                used.lost,
                used.sent,
            );
        }
        for (what, datagrams) in [("counters", &counters), ("counters, gauges and timers", &mixed)] {
            let (floor, ours) = at_rest(datagrams);
            println!(
                "  at rest, {what}: {:.0} ns a metric, floor {:.0} ns: x {:.2}; {:.0} ns from memory; totals exact",
                ours / each,
                floor / each,
                ours / floor,
                from_memory(datagrams) / each,
            );
        }
    }
}
