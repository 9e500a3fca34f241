//! `cargo xtask bench`: every crate's own benchmarks, then what only a whole instance can tell.

use crate::cargo;
use anyhow::{Context, Result};
use clap::Args;
use flux_testbed::{Backend, Instance, Options as InstanceOptions};
use std::time::Instant;

/// Packages that have benchmarks.
const PACKAGES: &[&str] = &["stats-core", "stats-probe"];

#[derive(Args)]
pub(crate) struct Options {
    /// Pairs of runs with and without the module
    #[arg(long, default_value_t = 5)]
    pairs: u32,
    /// Jobs in each run
    #[arg(long, default_value_t = 400)]
    jobs: u32,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    for package in PACKAGES {
        cargo(&["bench", "--quiet", "--package", package], &[])?;
    }
    match Backend::real()? {
        Some(backend) => throughput(backend, options),
        None => {
            println!("skipped: job throughput, no flux on this machine");
            Ok(())
        }
    }
}

/// Jobs a second with the module, all defaults, against without: in pairs, since the machine's speed drifts.
fn throughput(backend: Backend, options: &Options) -> Result<()> {
    let instance = Instance::start(InstanceOptions { size: 4, ..InstanceOptions::new(backend) })?;
    let timed = || -> Result<f64> {
        let start = Instant::now();
        instance.churn(options.jobs)?;
        Ok(f64::from(options.jobs) / start.elapsed().as_secs_f64())
    };
    timed()?;
    let mut ratios = Vec::new();
    for pair in 0..options.pairs {
        // Which goes first alternates, so that what the first run leaves behind favours neither.
        let mut rates = [0.0; 2];
        for with in [pair % 2 == 0, pair % 2 == 1] {
            if with {
                instance.load(0..4, "stats-agg", &[])?;
            }
            rates[usize::from(with)] = timed()?;
            if with {
                instance.remove(0..4, "stats-agg")?;
            }
        }
        println!("jobs/s: {:.1} with, {:.1} without", rates[1], rates[0]);
        ratios.push(rates[1] / rates[0]);
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios.get(ratios.len() / 2).context("no pairs")?;
    let (low, high) = (ratios[0], ratios[ratios.len() - 1]);
    println!(
        "job throughput with the module / without: median {median:.3} of {} pairs of {} jobs ({low:.3} to {high:.3}); \
         target >= 0.99",
        ratios.len(),
        options.jobs
    );
    instance.stop()?;
    Ok(())
}
