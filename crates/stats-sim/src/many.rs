//! Many runs, several at a time, told in the order of their seeds.

use crate::arguments::Arguments;
use anyhow::{Context, Result};
use stats_sim::{Config, Kind, Report, Run, run, shrink};
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Instant;

/// What all runs amount to.
#[derive(Default)]
struct Sum {
    runs: u64,
    failed: u64,
    events: u64,
    faults: BTreeMap<Kind, u64>,
    deaths: u64,
    repeats: u64,
    merged_values: u64,
    merge_ns: u64,
    converged_ns: u64,
    fresh_ns: u64,
}

/// Runs all seeds; how many of them failed.
pub(crate) fn run_all(arguments: &Arguments, config: &Config) -> Result<u64> {
    let (first, last) = (arguments.seeds.first, arguments.seeds.last);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = arguments.threads.map_or(processors, usize::from);
    let only = arguments.only();
    let (next, stop) = (AtomicU64::new(first), AtomicBool::new(false));
    let (done, results) = mpsc::channel();
    let (begin, mut sum) = (Instant::now(), Sum::default());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (done, next, stop, only) = (done.clone(), &next, &stop, only.as_ref());
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !(first..=last).contains(&seed) {
                        return;
                    }
                    let result = run(config, seed, only, arguments.trace);
                    if done.send((seed, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(done);
        let (mut waiting, mut turn) = (BTreeMap::new(), first);
        for (seed, result) in results {
            waiting.insert(seed, result);
            while let Some(result) = waiting.remove(&turn) {
                turn += 1;
                sum.add(&result);
                // Nobody reads any more: the runs under way are the last.
                tell(arguments, config, &result)
                    .inspect_err(|_| stop.store(true, Ordering::Relaxed))
                    .context("writing to standard output")?;
            }
        }
        anyhow::Ok(())
    })?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", sum.text(config, begin.elapsed().as_secs_f64()))?;
    Ok(sum.failed)
}

/// What became of a run; of one that failed, then also the shortest that still fails, which takes its time to be found.
fn tell(arguments: &Arguments, config: &Config, result: &Run) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if arguments.trace {
        result.trace.iter().try_for_each(|told| writeln!(out, "{told}"))?;
    }
    let Some(violation) = &result.violation else { return writeln!(out, "{}; ok", result.report) };
    writeln!(
        out,
        "{}; VIOLATED at {:.4} s on rank {}: {}",
        result.report,
        seconds(violation.at_ns),
        violation.rank,
        violation.what
    )?;
    let Some(shrunk) = shrink(config, result.report.seed, result) else { return Ok(()) };
    writeln!(
        out,
        "  the shortest of {} runs that fail has {} of {} faults and {} of {} ranks; what happens in it:",
        shrunk.runs,
        shrunk.faults.len(),
        result.faults.len(),
        shrunk.ranks,
        config.shape.ranks()
    )?;
    shrunk.trace.iter().try_for_each(|told| writeln!(out, "  {told}"))?;
    if shrunk.untold > 0 {
        writeln!(out, "  ({} events on other ranks are left out)", shrunk.untold)?;
    }
    let violation = &shrunk.violation;
    writeln!(
        out,
        "  {:9.4} s  rank {}: VIOLATED: {}",
        seconds(violation.at_ns),
        violation.rank,
        violation.what
    )?;
    writeln!(out, "  repeat: {}", arguments.repeated(shrunk.ranks, result.report.seed, &shrunk.faults))
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Sum {
    fn add(&mut self, result: &Run) {
        let report: &Report = &result.report;
        self.runs += 1;
        self.failed += u64::from(result.violation.is_some());
        self.events += report.events;
        for (&kind, count) in &report.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        self.deaths += report.deaths;
        self.repeats += report.repeats;
        self.merged_values += report.merged_values;
        self.merge_ns += report.merge_ns;
        self.converged_ns = self.converged_ns.max(report.converged_ns);
        self.fresh_ns = self.fresh_ns.max(report.fresh_ns);
    }

    fn text(&self, config: &Config, took_s: f64) -> String {
        let faults: Vec<_> = self.faults.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        let faults = if faults.is_empty() { "none".to_owned() } else { faults.join(", ") };
        let verdict = match self.failed {
            0 => "every invariant held".to_owned(),
            failed => format!("VIOLATED in {failed}"),
        };
        format!(
            "{} runs of {} ranks in {took_s:.1} s: {} events; faults: {faults}; {} brokers died; {} repeats; merge {:.0} ns \
             a series; converged within {:.3} s, fresh within {:.3} s: {verdict}",
            self.runs,
            config.shape.ranks(),
            self.events,
            self.deaths,
            self.repeats,
            self.merge_ns as f64 / self.merged_values.max(1) as f64,
            seconds(self.converged_ns),
            seconds(self.fresh_ns),
        )
    }
}
