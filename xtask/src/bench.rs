//! `cargo xtask bench`: every crate's own benchmarks, then what only a whole instance can tell.

use crate::cargo;
use anyhow::{Context, Result, bail};
use clap::Args;
use flux_testbed::{Backend, Instance, Options as InstanceOptions, Profile, Stage};
use std::time::Instant;

/// Packages that have benchmarks.
const PACKAGES: &[&str] = &["stats-core", "flux-metrics", "stats-probe", "stats-ingest", "stats-sim"];

/// What `--only` calls those that are no package's.
const THROUGHPUT: &str = "throughput";
const FLAT: &str = "flat";

/// Ranks of a flat instance.
const FLAT_RANKS: u32 = 11_000;
/// Series of each, of 300, that change in a period on an idle node; all change where all is at work.
const FLAT_CHANGING: &str = "30";

#[derive(Args)]
pub(crate) struct Options {
    /// Pairs of runs with and without the module
    #[arg(long, default_value_t = 5)]
    pairs: u32,
    /// Jobs in each run
    #[arg(long, default_value_t = 400)]
    jobs: u32,
    /// This package's alone, `throughput` or `flat`
    #[arg(long)]
    only: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let wanted = |name: &str| options.only.as_deref().is_none_or(|only| only == name);
    if let Some(only) = &options.only
        && ![THROUGHPUT, FLAT].contains(&only.as_str())
        && !PACKAGES.contains(&only.as_str())
    {
        bail!("--only {only}: it is {THROUGHPUT}, {FLAT}, or one of {}", PACKAGES.join(", "));
    }
    for package in PACKAGES.iter().filter(|package| wanted(package)) {
        cargo(&["bench", "--quiet", "--package", package], &[])?;
    }
    if !wanted(THROUGHPUT) && !wanted(FLAT) {
        return Ok(());
    }
    let Some(backend) = Backend::real()? else {
        println!("skipped: job throughput and the flat root, no flux on this machine");
        return Ok(());
    };
    if wanted(FLAT) {
        flat(backend.clone())?;
    }
    if wanted(THROUGHPUT) {
        throughput(backend, options)?;
    }
    Ok(())
}

/// What a flat instance costs its root: synthetic ranks send to a real rank 0, through a real rank 1.
fn flat(backend: Backend) -> Result<()> {
    let options = InstanceOptions { size: 2, profile: Profile::Release, ..InstanceOptions::new(backend) };
    let instance = Instance::start(options)?;
    instance.load([0], "stats-agg", &[&format!("test-ranks={}", FLAT_RANKS + 2)])?;
    instance.load([1], "stats-agg", &[])?;
    let program = Stage::of(Profile::Release)?.simulator();
    for changing in [FLAT_CHANGING, "300"] {
        let arguments = ["--flux", &FLAT_RANKS.to_string(), "--series", "300", "--changing", changing];
        println!("{}", instance.run(1, &program.to_string_lossy(), &arguments)?.trim_end());
    }
    instance.remove(0..2, "stats-agg")?;
    instance.stop()?;
    Ok(())
}

/// Jobs a second with the module, all defaults, against without: in pairs, since the machine's speed drifts.
fn throughput(backend: Backend, options: &Options) -> Result<()> {
    let options_of = InstanceOptions { size: 4, profile: Profile::Release, ..InstanceOptions::new(backend) };
    let instance = Instance::start(options_of)?;
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
    let middle = |at: usize| ratios.get(at).context("no pairs");
    let median = (middle(ratios.len() / 2)? + middle((ratios.len().max(1) - 1) / 2)?) / 2.0;
    let outside = outside_of_median(ratios.len());
    let (low, high) = (ratios[outside], ratios[ratios.len() - 1 - outside]);
    println!(
        "job throughput with the module / without: median {median:.3} of {} pairs of {} jobs (95 %: {low:.3} to \
         {high:.3}); target >= 0.99",
        ratios.len(),
        options.jobs
    );
    instance.stop()?;
    Ok(())
}

/// How many of `n` ordered values at each end are outside the 95 % interval of their median, whatever they are
/// distributed like: the most for which a fair coin shows that few heads in `n` throws with a chance below 2.5 %.
fn outside_of_median(n: usize) -> usize {
    let mut chance = 0.5f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let (mut sum, mut few) = (chance, 0);
    while sum < 0.025 && few < n {
        few += 1;
        chance *= (n - few + 1) as f64 / few as f64;
        sum += chance;
    }
    few.saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::outside_of_median;

    #[test]
    fn the_interval_of_a_median_is_as_in_tables_of_the_sign_test() {
        assert_eq!([5, 6, 9, 10, 20].map(outside_of_median), [0, 0, 1, 1, 5]);
    }
}
