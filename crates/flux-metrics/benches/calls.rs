//! What a call costs, beside the crates `metrics` (with the registry that its exporters use) and `cadence` (with a sink
//! that throws lines away), all in one run.

use cadence::{Counted, NopMetricSink, StatsdClient, Timed};
use flux_metrics::Metrics;
use metrics::{Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_util::registry::{AtomicStorage, Registry};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CALLS: u64 = 500_000;
/// The best of so many runs: others share the machine.
const RUNS: u32 = 25;

/// What the exporters of the crate `metrics` are made of.
struct Rival(Registry<Key, AtomicStorage>);

impl Recorder for Rival {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> metrics::Counter {
        self.0.get_or_create_counter(key, |counter| metrics::Counter::from_arc(Arc::clone(counter)))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> metrics::Gauge {
        self.0.get_or_create_gauge(key, |gauge| metrics::Gauge::from_arc(Arc::clone(gauge)))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> metrics::Histogram {
        self.0.get_or_create_histogram(key, |bucket| metrics::Histogram::from_arc(Arc::clone(bucket)))
    }
}

/// Durations over three orders of magnitude, none like the one before.
fn sample(number: u64) -> u64 {
    1000 + (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44)
}

/// Nanoseconds a call.
fn cost(mut call: impl FnMut(u64)) -> f64 {
    let run = |_| {
        let start = Instant::now();
        (0..CALLS).for_each(&mut call);
        start.elapsed().as_nanos() as f64 / CALLS as f64
    };
    (0..RUNS).map(run).fold(f64::INFINITY, f64::min)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ours = Metrics::detached()?;
    let names: Vec<String> = (0..100).map(|number| format!("app.part{number}.requests")).collect();
    names.iter().for_each(|name| ours.count(name, 1));
    let rival = Rival(Registry::new(AtomicStorage));
    let statsd = StatsdClient::from_sink("app", NopMetricSink);

    let counter = ours.counter("app.requests")?;
    let held = cost(|n| black_box(&counter).add((n & 1) as i64));
    let (key, metadata) =
        (Key::from_static_name("app.requests"), Metadata::new("", metrics::Level::INFO, None));
    let handle = rival.register_counter(&key, &metadata);
    let rival_held = cost(|n| black_box(&handle).increment(n & 1));
    println!(
        "counter, held: {held:.1} ns (target <= 3); metrics {rival_held:.1} ns (x {:.1})",
        rival_held / held
    );

    // One name of a hundred, as it is in the program: a literal.
    let by_name = cost(|n| black_box(&ours).count("app.part50.requests", (n & 1) as i64));
    let by_macro = metrics::with_local_recorder(&rival, || {
        cost(|n| metrics::counter!("app.part50.requests").increment(n & 1))
    });
    let line = cost(|n| drop(black_box(&statsd).count("part50.requests", (n & 1) as i64)));
    println!(
        "counter, by name: {by_name:.1} ns (target <= 20); metrics {by_macro:.1} ns (x {:.1}), cadence {line:.1} ns \
         (x {:.1})",
        by_macro / by_name,
        line / by_name
    );

    let timer = ours.timer("app.fetch_s")?;
    let timing = cost(|n| black_box(&timer).record_ns(sample(n)));
    let histogram = rival.register_histogram(&Key::from_static_name("app.fetch_s"), &metadata);
    let rival_timing = cost(|n| black_box(&histogram).record(sample(n) as f64));
    let line = cost(|n| drop(black_box(&statsd).time("fetch", Duration::from_nanos(sample(n)))));
    println!(
        "timing, held, every sample in the sketch: {timing:.1} ns (target <= 6); metrics {rival_timing:.1} ns (x {:.1}), \
         cadence {line:.1} ns (x {:.1})",
        rival_timing / timing,
        line / timing
    );

    let gauge = ours.gauge("app.depth")?;
    println!("gauge, held: {:.1} ns", cost(|n| black_box(&gauge).set((n & 7) as f64)));
    Ok(())
}
