//! Hostile senders: whatever bytes arrive, a shard counts them in memory that its limits bound, and goes on.
//!
//! Each target runs for a second among the tests and for a minute in `ci/fuzz`, which also sends a gigabyte of lines
//! through; `BOLERO_RANDOM_TEST_TIME_MS` sets another time, `BOLERO_RANDOM_SEED` repeats a run, and `cargo bolero test
//! --engine libfuzzer` (cargo-bolero, a nightly compiler) searches by coverage.

use peak_alloc::PeakAlloc;
use stats_core::{Amount, Metric, Node, NodeConfig, Now, Pushed, Query};
use stats_ingest::{Delta, HandOver, Limits, Line, Pushing, Recorder, Shard};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const SERIES: usize = 500;
/// What a shard with these limits and its hand-over may hold: half of them are timers of 30 KiB each at worst.
const HEAP_MAX: usize = 40 << 20;

/// Good lines of every form, to be mutated.
const SEEDS: &[&[u8]] = &[
    b"app.requests:1|c",
    b"app.requests:-2.5|c|@0.1|#host:a,route:/x",
    b"app.total:100|C",
    b"app.load:+0.5|g",
    b"app.time:1:2:3|ms|@0.5|c:ci-1|T1656581400",
    b"app.size:1e3|h|#a:b:c,,d",
    b"app.users:someone|s",
    b"app:1|c:2|ms:x|s",
    b"flux.3.content-cache.dirty:7|g",
    b"x,a=1,b=2:1|c\ny;a=1:1|c\nz[a=1]q:1|c\nw#a=1:1|c",
    b"_e{5,4}:title|text|#a:b",
    b"_sc|name|0|m:well",
    b"modules.kvs.wakeups:1|c",
    b"\xc3\xa4:1|c|#\xc3\xb6:\xc3\xbc",
];

/// Which seeds; bytes that are set; a place that is cut out; bytes that are put at the end.
type Changes = (Vec<u8>, Vec<(u16, u8)>, Option<(u16, u8)>, Vec<u8>);

/// The heap is the process's: one target at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn shard() -> Shard {
    Shard::new(Limits { series: SERIES, tags: 8, ttl: Duration::from_secs(60) })
}

fn node() -> Node {
    let (epoch, period, max_series) = (7, Duration::from_secs(2), 2 * SERIES);
    let config = NodeConfig { rank: 0, size: 1, level: 0, max_level: 0, epoch, period, max_series };
    Node::new(config, Now { mono_ns: 0, wall_ns: 0 })
}

fn datagram((seeds, bytes, cut, more): &Changes) -> Vec<u8> {
    let mut datagram = Vec::new();
    for &seed in seeds {
        datagram.extend_from_slice(SEEDS[usize::from(seed) % SEEDS.len()]);
        datagram.push(b'\n');
    }
    let alphabet = b":|@#,;=[].+-eE0159cgmshdC\r\n\xff\0 xT_{}";
    for &(place, byte) in bytes {
        let length = datagram.len().max(1);
        if let Some(at) = datagram.get_mut(usize::from(place) % length) {
            // What means something is rare among random bytes.
            *at = if byte < 200 { alphabet[usize::from(byte) % alphabet.len()] } else { byte };
        }
    }
    if let Some((place, length)) = cut {
        let start = usize::from(*place).min(datagram.len());
        let end = (start + usize::from(*length)).min(datagram.len());
        datagram.drain(start..end);
    }
    datagram.extend_from_slice(more);
    datagram
}

/// Lines that are not empty, whatever they are.
fn lines(datagram: &[u8]) -> u64 {
    let nothing = |line: &&[u8]| !matches!(line, [] | [b'\r']);
    datagram.split(|&byte| byte == b'\n').filter(nothing).count() as u64
}

fn check(over: &HandOver, datagrams: u64, lines: u64) {
    let counts = &over.counts;
    assert_eq!((counts.packets, counts.lines), (datagrams, lines));
    // Each line is one of these; a line with several values may be both refused and taken.
    let bad: u64 = counts.bad.iter().sum();
    let refused: u64 = over.refused.iter().map(|refused| refused.lines).sum();
    assert!(bad + counts.events + counts.service_checks + refused <= lines);
    assert!(bad + counts.events + counts.service_checks + refused + counts.samples >= lines);
    assert!(over.series <= SERIES);
    for change in &over.changes {
        if let Delta::Count(amount) | Delta::Gauge(amount) = change.delta {
            assert!(amount < Amount::from_parts(i128::MAX) && amount > Amount::from_parts(-i128::MAX));
        }
    }
}

#[test]
fn any_line_is_read_or_refused_and_reads_the_same_twice() {
    let _alone = alone();
    bolero::check!().with_test_time(Duration::from_secs(1)).with_type::<Changes>().for_each(|changes| {
        for line in datagram(changes).split(|&byte| byte == b'\n') {
            let parsed = Line::parse(line);
            assert_eq!(parsed, Line::parse(line));
            if let Ok(Line::Metric(metric)) = parsed {
                let mut values = 0;
                metric.for_each(|_, _| values += 1);
                assert!((1..=line.len()).contains(&values), "{values}");
                assert!(!metric.name.is_empty() && !metric.name.contains(&b':'));
            }
        }
    });
}

/// What `flux stats send -` makes of its standard input.
#[test]
fn any_lines_that_are_sent_on_are_metrics_that_a_module_takes() {
    let _alone = alone();
    let (mut shard, mut pushing) = (shard(), Pushing::default());
    let mut now_s = 0;
    bolero::check!().with_test_time(Duration::from_secs(1)).with_type::<Changes>().for_each(|changes| {
        now_s += 1;
        shard.set_time(now_s);
        datagram(changes).split(|&byte| byte == b'\n').for_each(|line| shard.receive(line));
        for metric in pushing.metrics(shard.hand_over().changes) {
            let text = metric.to_json().to_string();
            let read = Metric::parse(serde_json::from_str(&text).unwrap())
                .unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(read.key, metric.key);
            if let Pushed::Samples(_) | Pushed::Members(_) = metric.value {
                assert_eq!(read.value, metric.value);
            }
        }
    });
}

#[test]
fn any_datagram_is_counted_whole_and_goes_into_a_node() {
    let _alone = alone();
    let (mut shard, mut node, mut recorder) = (shard(), node(), Recorder::default());
    let (mut now_s, before) = (0, HEAP.current_usage());
    bolero::check!().with_test_time(Duration::from_secs(1)).with_type::<Changes>().for_each(|changes| {
        let datagram = datagram(changes);
        now_s += 1;
        shard.set_time(now_s);
        shard.receive(&datagram);
        let over = shard.hand_over();
        check(&over, 1, lines(&datagram));
        recorder.record(&mut node, over);
        let grown = HEAP.current_usage().saturating_sub(before);
        assert!(grown < HEAP_MAX, "{grown} bytes");
    });
    let answer = node.answer(&Query::default(), Now { mono_ns: 1, wall_ns: 1 });
    assert!(answer["series"].as_array().unwrap().len() <= 2 * SERIES);
}

/// A generator of its own, fast enough for a gigabyte (xorshift, Marsaglia 2003).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn datagram(&mut self) -> Vec<u8> {
        let mut datagram = Vec::new();
        let length = 1 << (4 + self.below(13));
        while datagram.len() < length {
            match self.below(8) {
                0 => (0..self.below(64)).for_each(|_| datagram.push(self.next() as u8)),
                1 => datagram.extend(format!("n{}.x:{}|c", self.next() % 1_000_000, self.next()).bytes()),
                2 => datagram.extend(format!("t{}:{}|ms", self.below(1000), self.next() >> 20).bytes()),
                3 => datagram.extend(format!("s:{}|s|#jobid:f{}", self.next(), self.below(100_000)).bytes()),
                _ => {
                    let start = datagram.len();
                    datagram.extend_from_slice(SEEDS[self.below(SEEDS.len())]);
                    for _ in 0..self.below(4) {
                        let at = start + self.below(datagram.len() - start);
                        datagram[at] = self.next() as u8;
                    }
                }
            }
            datagram.push(b'\n');
        }
        datagram
    }
}

#[test]
#[ignore = "a gigabyte, half a minute: ci/fuzz runs it"]
fn a_gigabyte_of_lines_grows_nothing() {
    let _alone = alone();
    const BYTES: u64 = 1 << 30;
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_201);
    let (mut random, mut shard, mut recorder) = (Random(seed), shard(), Recorder::default());
    let mut node = node();
    let (mut bytes, mut settled, mut datagrams, mut now_s) = (0, None, 0, 0);
    while bytes < BYTES {
        let mut expected = 0;
        for _ in 0..100 {
            let datagram = random.datagram();
            bytes += datagram.len() as u64;
            expected += lines(&datagram);
            shard.receive(&datagram);
        }
        datagrams += 100;
        now_s += 1;
        shard.set_time(now_s);
        let over = shard.hand_over();
        check(&over, 100, expected);
        recorder.record(&mut node, over);
        // The first tenth fills what there is room for.
        if bytes > BYTES / 10 {
            let settled = *settled.get_or_insert_with(|| HEAP.current_usage());
            let now = HEAP.current_usage();
            assert!(
                now < settled + HEAP_MAX,
                "{settled} bytes after a tenth, {now} after {bytes} bytes of lines"
            );
        }
    }
    let (settled, now) = (settled.unwrap() >> 10, HEAP.current_usage() >> 10);
    println!("{datagrams} datagrams, {bytes} bytes: heap {settled} KiB after a tenth, {now} KiB at the end");
}
