//! Sketches and sets beside the crates that one would take instead.

use stats_core::{Key, Kind, Members, Node, NodeConfig, Now, Samples, Sketch, Unit};
use std::hint::black_box;
use std::time::{Duration, Instant};

const SAMPLES: u64 = 100_000;
const MERGES: u32 = 20_000;
/// Sets of each size, whose errors are averaged.
const TRIALS: u32 = 60;

/// Samples over five orders of magnitude, all different.
fn sample(number: u64) -> u64 {
    1000 + number * 997 + (number * number) % 811
}

fn nanoseconds(mut merge: impl FnMut()) -> f64 {
    let begun = Instant::now();
    (0..MERGES).for_each(|_| merge());
    begun.elapsed().as_nanos() as f64 / f64::from(MERGES)
}

fn merges() {
    let (mut ours, mut other) = (Sketch::default(), Sketch::default());
    let config = sketches_ddsketch::Config::new(0.01, 2048, 1.0e-9);
    let mut dd = [sketches_ddsketch::DDSketch::new(config), sketches_ddsketch::DDSketch::new(config)];
    let histogram = || hdrhistogram::Histogram::<u64>::new_with_max(1 << 40, 2).expect("valid bounds");
    let mut hdr = [histogram(), histogram()];
    for number in 0..SAMPLES {
        let value = sample(number);
        for (sketch, shift) in [(&mut ours, 0), (&mut other, 7)] {
            sketch.add(value + shift, 1);
        }
        for sketch in &mut dd {
            sketch.add(value as f64);
        }
        hdr.iter_mut().for_each(|histogram| histogram.record(value).expect("within bounds"));
    }
    let ours = nanoseconds(|| black_box(&mut ours).merge(black_box(&other)));
    let [mut first, second] = dd;
    let dd = nanoseconds(|| black_box(&mut first).merge(black_box(&second)).expect("one configuration"));
    let [mut first, second] = hdr;
    let hdr = nanoseconds(|| black_box(&mut first).add(black_box(&second)).expect("one range"));
    println!(
        "sketch merge, {SAMPLES} values, 1 %: {ours:.0} ns (target <= 250); sketches-ddsketch {dd:.0} ns (x {:.2}), \
         hdrhistogram {hdr:.0} ns (x {:.2})",
        dd / ours,
        hdr / ours
    );
}

/// Bytes of one changed series a period, for kinds that are not counters.
fn wire_bytes() {
    const SERIES: usize = 100;
    let config = |rank: u32| NodeConfig {
        rank,
        size: 2,
        level: rank,
        max_level: 1,
        epoch: 5 + u64::from(rank),
        period: Duration::from_secs(2),
        max_series: 1000,
    };
    for (kind, what, target) in [(Kind::Gauge, "gauge", 24), (Kind::Timer, "timer of 20 samples", 96)] {
        let mut now = Now { mono_ns: 0, wall_ns: 0 };
        let (mut root, mut leaf) = (Node::new(config(0), now), Node::new(config(1), now));
        let ids: Vec<_> = (0..SERIES)
            .map(|number| {
                let key = Key::new(&format!("a.b{number}"), &[], kind, Unit::Nanoseconds);
                leaf.declare(key.expect("a valid name")).expect("room for it")
            })
            .collect();
        let (mut bytes, mut changes) = (0, 0);
        for round in 0..50_u64 {
            for &id in &ids {
                leaf.set(id, Some(stats_core::Amount::whole(i128::from(round) * 1_234_567)));
                let mut samples = Samples::default();
                (0..20).for_each(|number| samples.add(sample((round * 37 + number * 611) % SAMPLES), 1));
                leaf.observe(id, &samples);
            }
            now = Now { mono_ns: leaf.next_deadline_ns(), wall_ns: now.wall_ns };
            leaf.tick(now);
            while let Some(transmit) = leaf.poll_transmit(now) {
                let receipt = root.handle_merge(now, &transmit.payload).expect("a good batch");
                leaf.handle_response(transmit.token, Ok(&receipt));
                if round > 0 {
                    bytes += transmit.payload.len();
                    changes += SERIES;
                }
            }
        }
        let each = bytes as f64 / changes as f64;
        println!(
            "bytes on the wire, steady state: {each:.1} a changed {what} (target <= {target}: x {:.2})",
            each / f64::from(target)
        );
    }
}

fn sets() {
    for count in [99_u32, 1_000, 100_000, 1_000_000] {
        let mut errors: Vec<f64> = (0..TRIALS)
            .map(|trial| {
                let mut members = Members::default();
                for number in 0..count {
                    members.insert(&format!("{trial} {number}"));
                }
                (members.estimate() - f64::from(count)) / f64::from(count)
            })
            .collect();
        errors.sort_by(f64::total_cmp);
        let square = errors.iter().map(|error| error * error).sum::<f64>() / errors.len() as f64;
        println!(
            "set of {count}: error {:.2} % (root mean square of {TRIALS}; target <= 1 %)",
            square.sqrt() * 100.0
        );
    }
}

fn main() {
    merges();
    wire_bytes();
    sets();
}
