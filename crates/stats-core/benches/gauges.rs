//! What the history of gauges costs the root: memory, and the end of a period.

use peak_alloc::PeakAlloc;
use stats_core::{Amount, Key, Kind, Node, NodeConfig, Now, SeriesId, Unit};
use std::time::{Duration, Instant};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const PERIOD: Duration = Duration::from_secs(2);
/// Ten minutes of periods.
const PERIODS: u64 = 300;
/// The ranks of a flat instance.
const RANKS: u32 = 11_000;

fn config(rank: u32, period: Duration) -> NodeConfig {
    let (level, epoch) = (u32::from(rank > 0), 9 + u64::from(rank));
    NodeConfig { rank, size: RANKS, level, max_level: 1, epoch, period, max_series: 30_000 }
}

/// A rank with gauges.
fn rank(rank: u32, gauges: usize, period: Duration, now: Now) -> (Node, Vec<SeriesId>) {
    let mut node = Node::new(config(rank, period), now);
    let ids = (0..gauges).map(|number| {
        let name = format!("modules.m{:03}.gauge{:02}", number / 100, number % 100);
        let key = Key::new(&name, &[], Kind::Gauge, Unit::None).expect("a valid name");
        node.declare(key).expect("room for it")
    });
    let ids = ids.collect();
    (node, ids)
}

fn set(node: &mut Node, gauges: &[SeriesId], round: u64) {
    for (number, &id) in gauges.iter().enumerate() {
        node.set(id, Some(Amount::whole((i128::from(round) * 7 + number as i128) % 90_000)));
    }
}

fn later(now: &mut Now, node: &Node) {
    let passed = node.next_deadline_ns().saturating_sub(now.mono_ns);
    *now = Now { mono_ns: now.mono_ns + passed, wall_ns: now.wall_ns + passed };
}

fn send(leaf: &mut Node, root: &mut Node, now: Now) {
    leaf.tick(now);
    while let Some(transmit) = leaf.poll_transmit(now) {
        let receipt = root.handle_merge(now, &transmit.payload).expect("a good batch");
        leaf.handle_response(transmit.token, Ok(&receipt));
    }
}

fn main() {
    // Every gauge on three ranks, the root itself among them: its own, a sum and a maximum of each are kept.
    let mut now = Now { mono_ns: 0, wall_ns: 1_700_000_000_000_000_000 };
    let before = HEAP.current_usage();
    let (mut root, gauges) = rank(0, 20_000, PERIOD, now);
    let mut leaves: Vec<_> = (1..3).map(|of| rank(of, 20_000, PERIOD, now)).collect();
    for round in 0..PERIODS + 1 {
        for (leaf, gauges) in &mut leaves {
            set(leaf, gauges, round);
            later(&mut now, leaf);
            send(leaf, &mut root, now);
        }
        set(&mut root, &gauges, round);
        later(&mut now, &root);
        root.tick(now);
    }
    drop(leaves);
    let mebibytes = (HEAP.current_usage() - before) as f64 / 1048576.0;
    println!(
        "memory of the root: {mebibytes:.1} MiB with 20,000 gauges of three ranks, two of them children, and ten \
         minutes of history (target <= 64: x {:.2})",
        mebibytes / 64.0
    );
    drop(root);

    let mut now = Now { mono_ns: 0, wall_ns: 1_700_000_000_000_000_000 };
    let (mut root, _) = rank(0, 0, PERIOD, now);
    let (each, rounds) = (36, 31);
    let tell = |leaf: &mut Node, gauges: &[SeriesId], value, root: &mut Node, now| {
        set(leaf, gauges, value);
        leaf.tick(Now { mono_ns: leaf.next_deadline_ns(), ..now });
        send(leaf, root, now);
    };
    let mut greatest = Vec::new();
    for of in 1..RANKS {
        // Not one of them is forgotten while this goes on.
        let (mut leaf, gauges) = rank(of, each, 1000 * PERIOD, now);
        tell(&mut leaf, &gauges, of.into(), &mut root, now);
        if of >= RANKS - rounds {
            greatest.push((leaf, gauges));
        }
    }
    let mut longest = Vec::new();
    let mut taken: Vec<f64> = (0..rounds)
        .filter_map(|_| {
            // The greatest of each gauge falls, and another is to be found.
            let (mut leaf, gauges) = greatest.pop()?;
            tell(&mut leaf, &gauges, 0, &mut root, now);
            later(&mut now, &root);
            let begun = Instant::now();
            root.tick(now);
            while root.has_history_to_keep() {
                let begun = Instant::now();
                root.keep_history();
                longest.push(begun.elapsed().as_secs_f64() * 1e3);
            }
            Some(begun.elapsed().as_secs_f64() * 1e3)
        })
        .collect();
    taken.sort_by(f64::total_cmp);
    longest.sort_by(f64::total_cmp);
    let (whole, p90) = (taken[taken.len() / 2], longest[longest.len() * 9 / 10]);
    println!(
        "the end of a period with {} gauges of {RANKS} ranks, of which each greatest fell: {whole:.2} ms in all, of which 90 % of the parts take less than \
         {p90:.2} ms (target < 5 ms, the longest slice: x {:.2})",
        each * (RANKS as usize - 1),
        p90 / 5.0
    );
}
