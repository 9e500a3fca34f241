//! How soon what is measured is at the root of a large instance, in virtual time.

use stats_sim::{Config, Rates, Shape, Topology, run};

const RANKS: u32 = 16_384;
const FANOUT: u32 = 32;
const SEEDS: u64 = 3;

fn main() {
    let shape = Shape::new(&Topology::Kary(FANOUT), Some(RANKS)).expect("a topology");
    let config = Config { faults: Rates::none(), ..Config::new(shape) };
    let results: Vec<_> = (1..=SEEDS).map(|seed| run(&config, seed, None, false)).collect();
    let worst_ns = results.iter().map(|result| result.report.fresh_ns).max().unwrap_or(0);
    let held = results.iter().all(|result| result.violation.is_none());
    let (worst_s, target_s) = (worst_ns as f64 / 1e9, config.period.as_secs_f64() + 0.5);
    println!(
        "simulated tree of {RANKS} ranks, fan-out {FANOUT}: what all measure at one moment is at the root within \
         {worst_s:.2} s in each of {SEEDS} runs (target <= period + 0.5 s = {target_s:.2} s: x {:.2}); invariants {}",
        worst_s / target_s,
        if held { "held" } else { "VIOLATED" }
    );
}
