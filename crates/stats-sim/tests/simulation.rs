//! The simulation itself: it is reproducible, its faults happen, nodes survive them, and bugs are found.

use stats_sim::{Config, Kind, Plant, Rates, Shape, Topology, run, shrink};
use std::collections::BTreeSet;

fn config(topology: &str, ranks: u32, faults: &str) -> Config {
    let topology: Topology = topology.parse().unwrap();
    let ranks = (!matches!(topology, Topology::Custom(_))).then_some(ranks);
    Config { faults: faults.parse().unwrap(), ..Config::new(Shape::new(&topology, ranks).unwrap()) }
}

/// A chain with branches: neither flat nor regular.
const CUSTOM: &str = "custom:0,1,2,3,4,4,2,0,8,8,8,10,12,0,14";

#[test]
fn a_seed_determines_a_run_to_the_byte() {
    let config = config("kary:3", 50, "all");
    let (first, again, other) =
        (run(&config, 11, None, true), run(&config, 11, None, true), run(&config, 12, None, false));
    assert_eq!(first.trace, again.trace);
    assert_eq!(first.faults, again.faults);
    let numbers =
        |report: &stats_sim::Report| (report.digest, report.events, report.bytes.clone(), report.pushed);
    assert_eq!(numbers(&first.report), numbers(&again.report));
    assert_ne!(first.report.digest, other.report.digest);
}

#[test]
fn nodes_survive_each_kind_of_fault_in_each_topology() {
    for kind in Kind::ALL {
        let mut happened = 0;
        for (topology, ranks) in [("kary:2", 24), ("kary:32", 40), ("flat", 16), (CUSTOM, 0)] {
            let probability = (kind.usual() * 6.0).min(1.0);
            let config = config(topology, ranks, &format!("{kind}={probability}"));
            for seed in 1..=4 {
                let result = run(&config, seed, None, false);
                assert_eq!(result.violation, None, "{kind} in {topology}: seed {seed}");
                assert!(result.report.faults.keys().all(|&happened| happened == kind));
                happened += result.report.faults.get(&kind).copied().unwrap_or(0);
            }
        }
        assert!(happened >= 10, "{kind} happened {happened} times");
    }
}

#[test]
fn nodes_survive_all_faults_at_once() {
    let mut repeats = 0;
    for (topology, ranks, seeds) in
        [("kary:2", 1, 5), ("kary:2", 2, 20), ("kary:3", 40, 60), ("kary:8", 100, 30), (CUSTOM, 0, 60)]
    {
        let config = config(topology, ranks, "all");
        for seed in 1..=seeds {
            let result = run(&config, seed, None, false);
            assert_eq!(result.violation, None, "{topology}: seed {seed}");
            repeats += result.report.repeats;
        }
    }
    assert!(repeats > 100, "{repeats} repeats: the checks of repeats were hardly needed");
}

#[test]
fn nodes_survive_many_loads_and_long_runs() {
    for topology in ["kary:2", "flat"] {
        let config = Config { periods: 90, ..config(topology, 10, "all,unload=0.5,road=0.5") };
        for seed in 1..=6 {
            let result = run(&config, seed, None, false);
            assert_eq!(result.violation, None, "{topology}: seed {seed}");
            assert!(result.report.faults[&Kind::Unload] > 30);
        }
    }
}

#[test]
fn a_death_loses_what_its_ranks_had_measured_in_the_last_period_and_no_more() {
    let config = config("kary:3", 40, "death=0.1");
    let (mut deaths, mut lost) = (0, 0);
    for seed in 1..=40 {
        // The bound itself is one of the invariants.
        let result = run(&config, seed, None, false);
        assert_eq!(result.violation, None, "seed {seed}");
        deaths += result.report.deaths;
        lost += result.report.lost;
    }
    assert!(deaths > 50 && lost > 0, "{deaths} deaths lost {lost}");
}

#[test]
fn a_planted_bug_is_found_within_a_hundred_seeds_and_told_in_a_short_run() {
    for plant in [Plant::DoubleMerge, Plant::LostOnUnload, Plant::StateTwice] {
        let config = Config { plant: Some(plant), ..config("kary:4", 64, "all") };
        let found = (1..=100).find_map(|seed| {
            let result = run(&config, seed, None, false);
            result.violation.is_some().then_some((seed, result))
        });
        let (seed, failed) = found.unwrap_or_else(|| panic!("{plant} is not found"));
        let shrunk = shrink(&config, seed, &failed).unwrap();
        assert!(shrunk.faults.len() <= 3 && shrunk.faults.len() < failed.faults.len(), "{plant}: {shrunk:?}");
        assert!(!shrunk.trace.is_empty());
        let shape = config.shape.first(shrunk.ranks).unwrap();
        let small = Config { shape: shape.into(), ..config.clone() };
        assert_eq!(run(&small, seed, Some(&shrunk.faults), false).violation, Some(shrunk.violation));
        let sound = Config { plant: None, ..small };
        assert_eq!(run(&sound, seed, Some(&shrunk.faults), false).violation, None);
    }
}

#[test]
fn a_run_without_its_faults_is_one_without_faults() {
    let config = config("kary:4", 40, "all");
    let none = run(&config, 5, Some(&BTreeSet::new()), false);
    assert_eq!((none.violation, none.faults.len()), (None, 0));
    let quiet = Config { faults: Rates::none(), ..config };
    assert_eq!(run(&quiet, 5, None, false).report.digest, none.report.digest);
}

#[test]
fn without_faults_the_root_has_everything_within_a_period_and_half_a_second() {
    // As deep as 16,384 ranks are with this fan-out.
    let config = config("kary:32", 1200, "none");
    assert_eq!(config.shape.max_level(), 3);
    for seed in 1..=3 {
        let report = run(&config, seed, None, false).report;
        assert!(report.fresh_ns > 0 && report.fresh_ns <= 2_500_000_000, "{} ns", report.fresh_ns);
    }
}
