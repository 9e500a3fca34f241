//! What a batch costs where it arrives, and how large it is.

use stats_core::{Amount, Key, Kind, Node, NodeConfig, Now, Query, Unit};
use std::hint::black_box;
use std::time::{Duration, Instant};

const SERIES: usize = 300;
const BATCHES: u64 = 2_000;
const PERIOD: Duration = Duration::from_secs(2);

fn config(rank: u32, level: u32) -> NodeConfig {
    NodeConfig {
        rank,
        size: 1000,
        level,
        max_level: 2,
        epoch: 9 + u64::from(rank),
        period: PERIOD,
        max_series: 20_000,
    }
}

fn main() {
    let mut now = Now { mono_ns: 0, wall_ns: 1_700_000_000_000_000_000 };
    let mut interior = Node::new(config(1, 1), now);
    let mut leaf = Node::new(config(40, 2), now);
    let ids: Vec<_> = (0..SERIES)
        .map(|number| {
            let key = Key::new(&format!("modules.m{number}.wakeups"), &[], Kind::Counter, Unit::None);
            leaf.declare(key.expect("a valid name")).expect("room for it")
        })
        .collect();
    let (mut spent, mut bytes, mut steady) = (Duration::ZERO, 0, 0);
    for round in 0..BATCHES {
        for (number, &id) in ids.iter().enumerate() {
            leaf.add(id, Amount::whole(1 + (round as i128 * 7 + number as i128) % 900));
        }
        let later = leaf.next_deadline_ns();
        now = Now { mono_ns: later, wall_ns: now.wall_ns + (later - now.mono_ns) };
        leaf.tick(now);
        while let Some(transmit) = leaf.poll_transmit(now) {
            let begin = Instant::now();
            let receipt = interior.handle_merge(now, &transmit.payload).expect("a good batch");
            spent += begin.elapsed();
            // The first brings the dictionary.
            if round > 0 {
                bytes += transmit.payload.len();
                steady += SERIES;
            }
            leaf.handle_response(transmit.token, Ok(&receipt));
        }
    }
    let series = BATCHES as f64 * SERIES as f64;
    let merge_ns = spent.as_nanos() as f64 / series;
    println!(
        "merge of a batch of {SERIES} counters at an interior node: {merge_ns:.0} ns a series (target <= 100: x {:.2}); a \
         netdata parent takes 2,000 by its documentation (x {:.3})",
        merge_ns / 100.0,
        merge_ns / 2000.0
    );
    let each = bytes as f64 / steady as f64;
    println!(
        "bytes on the wire, steady state: {each:.1} a changed counter (target <= 6: x {:.2})",
        each / 6.0
    );

    let begin = Instant::now();
    const QUERIES: u32 = 100;
    let query =
        Query::parse(&serde_json::json!({ "match": ["modules.*.wakeups"] })).expect("a good question");
    for _ in 0..QUERIES {
        black_box(interior.answer(&query, now));
    }
    let query_ms = begin.elapsed().as_secs_f64() * 1e3 / f64::from(QUERIES);
    println!("one pattern over {SERIES} series: {query_ms:.2} ms (target <= 2: x {:.2})", query_ms / 2.0);
}
