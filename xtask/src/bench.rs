//! `cargo xtask bench`: every crate's own benchmarks, then what only a whole instance can tell.

use crate::cargo;
use anyhow::{Result, bail};
use clap::Args;
use flux_testbed::{Backend, Instance, Options as InstanceOptions, Profile, Stage};

mod collectors;
mod exporters;
mod throughput;

/// Packages that have benchmarks.
const PACKAGES: &[&str] =
    &["stats-core", "stats-export", "flux-metrics", "stats-probe", "stats-ingest", "stats-sim"];

/// What `--only` calls those that are no package's.
const THROUGHPUT: &str = "throughput";
const FLAT: &str = "flat";
const COLLECTORS: &str = "collectors";
const EXPORTERS: &str = "exporters";
const INSTANCES: [&str; 4] = [THROUGHPUT, FLAT, COLLECTORS, EXPORTERS];

/// Ranks of a flat instance.
const FLAT_RANKS: u32 = 11_000;
/// Series of each, of 300, that change in a period on an idle node; all change where all is at work.
const FLAT_CHANGING: &str = "30";

#[derive(Args)]
pub(crate) struct Options {
    /// Pairs of runs with and without the module
    #[arg(long, default_value_t = 10)]
    pairs: u32,
    /// Jobs in each run
    #[arg(long, default_value_t = 2000)]
    jobs: u32,
    /// Modules as they are built quickly, for a first look (exporters alone)
    #[arg(long)]
    debug: bool,
    /// This package's alone, `throughput`, `flat`, `collectors` or `exporters`
    #[arg(long)]
    only: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let wanted = |name: &str| options.only.as_deref().is_none_or(|only| only == name);
    if let Some(only) = &options.only
        && !INSTANCES.contains(&only.as_str())
        && !PACKAGES.contains(&only.as_str())
    {
        bail!("--only {only}: expected one of {}, {}", INSTANCES.join(", "), PACKAGES.join(", "));
    }
    for package in PACKAGES.iter().filter(|package| wanted(package)) {
        cargo(&["bench", "--quiet", "--package", package], &[])?;
    }
    if !INSTANCES.into_iter().any(wanted) {
        return Ok(());
    }
    let Some(backend) = Backend::real()? else {
        println!(
            "skipped: job throughput, the flat root, the collectors' cost and the exporters', no flux on this machine"
        );
        return Ok(());
    };
    if wanted(FLAT) {
        flat(backend.clone())?;
    }
    if wanted(COLLECTORS) {
        collectors::cost(backend.clone())?;
    }
    if wanted(THROUGHPUT) {
        throughput::throughput(backend.clone(), options)?;
    }
    if wanted(EXPORTERS) {
        exporters::exporters(backend, options)?;
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
