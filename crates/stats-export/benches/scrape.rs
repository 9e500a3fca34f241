//! What a snapshot and a scrape of many series cost: the first is the reactor's, in slices, the second the thread's.
//! Prints milliseconds of the thread's own time; the targets are 5 for a slice and 50 for a scrape of 20,000 series.

use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use stats_core::{Amount, Key, Kind, Node, NodeConfig, Now, Query, Samples, Unit, Walk, Walked};
use stats_export::formats::prometheus::{Format, expose};
use stats_export::formats::{graphite, influx, jsonl, otlp};
use stats_export::{Raw, Snapshot};
use std::hint::black_box;
use std::time::Duration;

const SERIES: usize = 20_000;
const ROUNDS: usize = 15;
/// As the module has them.
const STEP: usize = 64;
const SLICE: Duration = Duration::from_millis(1);

/// As on a large instance: mostly counters and gauges with tags, some timers.
fn node() -> Node {
    let period = Duration::from_secs(2);
    let max_series = 2 * SERIES;
    let config = NodeConfig { rank: 0, size: 64, level: 0, max_level: 1, epoch: 1, period, max_series };
    let mut node = Node::new(config, Now { mono_ns: 0, wall_ns: 1_700_000_000_000_000_000 });
    for number in 0..SERIES {
        let (module, what) = (format!("module{}", number % 40), number / 40);
        let queue = (number % 7).to_string();
        let declare = |node: &mut Node, ending: &str, kind, unit| {
            let name = format!("modules.{module}.stat{what}{ending}");
            node.declare(Key::new(&name, &[("queue", &queue)], kind, unit).unwrap()).unwrap()
        };
        match number % 20 {
            0 => {
                let id = declare(&mut node, "_s", Kind::Timer, Unit::Nanoseconds);
                let mut samples = Samples::default();
                (0..200_u64).for_each(|n| samples.add(n * n * 1000, 1));
                node.observe(id, &samples);
            }
            1..=9 => {
                let id = declare(&mut node, "_bytes", Kind::Gauge, Unit::Bytes);
                node.set(id, Some(Amount::whole(number as i128 * 4096)));
            }
            _ => {
                let id = declare(&mut node, "", Kind::Counter, Unit::None);
                node.add(id, Amount::whole(number as i128 * 1001));
            }
        }
    }
    node
}

/// The snapshot, its longest slice, and all of them.
fn gather(node: &Node) -> (Raw, Duration, Duration) {
    let (mut longest, mut all) = (Duration::ZERO, Duration::ZERO);
    let mut raw =
        Raw::with_capacity(json!({ "time": 1.7e9, "period": 2.0, "instance": { "size": 64 } }), SERIES);
    let mut walk = Walk::new(node, Query::default());
    loop {
        let begun = now();
        let whole = loop {
            if walk.go_on(node, STEP, |reading| raw.push(reading)) == Walked::Whole {
                break true;
            }
            if now() - begun > SLICE {
                break false;
            }
        };
        longest = longest.max(now() - begun);
        all += now() - begun;
        if whole {
            return (raw, longest, all);
        }
    }
}

/// This thread's own time: others have the processor, too.
fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e3
}

fn measure(what: &str, mut work: impl FnMut() -> usize) {
    let mut bytes = 0;
    let times = (0..ROUNDS).map(|_| {
        let begun = now();
        bytes = black_box(work());
        now() - begun
    });
    println!("{what:<42} {:>8.2} ms {:>9} bytes", median(times.collect()), bytes);
}

fn main() {
    let node = node();
    let rounds: Vec<(Duration, Duration)> =
        (0..ROUNDS).map(|_| gather(&node)).map(|(_, one, all)| (one, all)).collect();
    println!("{SERIES} series");
    println!(
        "{:<42} {:>8.2} ms",
        "reactor: the longest slice",
        median(rounds.iter().map(|(one, _)| *one).collect())
    );
    println!(
        "{:<42} {:>8.2} ms",
        "reactor: all slices",
        median(rounds.iter().map(|(_, all)| *all).collect())
    );
    let mut raws: Vec<Raw> = (0..ROUNDS).map(|_| gather(&node).0).collect();
    measure("thread: the snapshot made ready", || raws.pop().map_or(0, |raw| raw.finish().points.len()));
    let snapshot: Snapshot = gather(&node).0.finish();
    let view = snapshot.view();
    let text = |format| expose(&view, "flux", format).text.len();
    measure("thread: Prometheus text", || text(Format::Text));
    measure("thread: OpenMetrics", || text(Format::OpenMetrics));
    let body = expose(&view, "flux", Format::OpenMetrics).text;
    measure("thread: gzip of that", || {
        use std::io::Write;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(body.as_bytes()).unwrap();
        encoder.finish().unwrap().len()
    });
    measure("thread: Graphite lines", || graphite::plaintext(&view, "flux").len());
    measure("thread: Graphite pickles", || graphite::pickle(&view, "flux").len());
    measure("thread: InfluxDB lines", || influx::lines(&view, "flux").len());
    measure("thread: OTLP protobuf", || otlp::protobuf(&view, "flux").len());
    measure("thread: OTLP JSON", || otlp::json(&view, "flux").len());
    measure("thread: JSON lines", || jsonl::lines(&view).len());
}
