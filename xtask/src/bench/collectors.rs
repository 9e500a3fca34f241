//! What the default collectors add to the load of an instance that remembers many jobs.

use anyhow::{Context, Result};
use flux_testbed::{Backend, Instance, Options, Profile};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const SIZE: u32 = 8;
const JOBS: u32 = 10_000;
/// How long each run is watched, and how often with and without.
const WATCHED: Duration = Duration::from_secs(60);
const PAIRS: u32 = 2;
/// Until what the end of so many jobs leaves to do is done.
const SETTLED: Duration = Duration::from_secs(60);
/// What the service may add to a leaf and to rank 0, in shares of a core.
const TARGETS: [(u32, f64); 2] = [(SIZE - 1, 0.001), (0, 0.01)];

/// The share of a core of all threads of a leaf's broker and of rank 0's, with and without the collectors, while nothing
/// else goes on; and how long the modules' longest turns are beside the collectors' questions.
pub(super) fn cost(backend: Backend) -> Result<()> {
    let Backend::Real(flux) = &backend else { return Ok(()) };
    let flux = flux.to_string_lossy().into_owned();
    let instance =
        Instance::start(Options { size: SIZE, profile: Profile::Release, ..Options::new(backend) })?;
    // Over without having run: it is their number that matters.
    let copies = format!("--cc=1-{JOBS}");
    instance.run(0, &flux, &["submit", "--quiet", &copies, "--urgency=hold", "true"])?;
    instance.run(0, &flux, &["cancel", "--all"])?;
    instance.run(0, &flux, &["queue", "idle", "--timeout=60s"])?;
    std::thread::sleep(SETTLED);

    let mut shares = Vec::new();
    for _ in 0..PAIRS {
        for choice in ["collect=none", "collect=default"] {
            instance.load(0..SIZE, "stats-agg", &[choice])?;
            // What a load does once is not what it costs.
            std::thread::sleep(Duration::from_secs(10));
            instance.rpc(0, "stats-agg.stats-clear", json!({}))?;
            let watched = watch(&instance)?;
            for (rank, share) in &watched {
                println!("{choice}: rank {rank}'s broker takes {:.3} % of a core", 100.0 * share);
            }
            if choice == "collect=default" {
                slowest(&instance)?;
            }
            shares.push(watched);
            instance.remove((0..SIZE).rev(), "stats-agg")?;
        }
    }
    for (at, (rank, target)) in TARGETS.into_iter().enumerate() {
        let added =
            shares.chunks(2).filter_map(|pair| Some(pair.get(1)?.get(at)?.1 - pair.first()?.get(at)?.1));
        let added = added.sum::<f64>() / f64::from(PAIRS);
        println!(
            "default collectors, {JOBS} inactive jobs, {SIZE} ranks: add {:.3} % of a core to rank {rank}; target < {} %",
            100.0 * added,
            100.0 * target
        );
    }
    instance.stop()?;
    Ok(())
}

fn watch(instance: &Instance) -> Result<Vec<(u32, f64)>> {
    let all =
        || TARGETS.iter().map(|&(rank, _)| cpu_s(instance.broker_pid(rank)?)).collect::<Result<Vec<_>>>();
    let (begun, before) = (Instant::now(), all()?);
    std::thread::sleep(WATCHED);
    let (after, wall) = (all()?, begun.elapsed().as_secs_f64());
    let shares = TARGETS.iter().zip(after.iter().zip(&before));
    Ok(shares.map(|(&(rank, _), (after, before))| (rank, (after - before) / wall)).collect())
}

/// CPU seconds of all threads of a process, to the nanosecond.
fn cpu_s(pid: u32) -> Result<f64> {
    let mut ns = 0.0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        // It may have ended since.
        let stat = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        ns += stat.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0);
    }
    Ok(ns / 1e9)
}

/// The ten longest turns of all modules, and how long the collectors' sources took to answer.
fn slowest(instance: &Instance) -> Result<()> {
    let series = |pattern: &str| -> Result<Vec<Value>> {
        let answer = instance.rpc(0, "stats-agg.query", json!({ "match": [pattern] }))?;
        Ok(answer["series"].as_array().context("no series")?.clone())
    };
    let mut turns: Vec<(f64, String)> = series("modules.*.longest_work_s")?
        .iter()
        .filter_map(|one| Some((one["max"]["value"].as_f64()?, one["name"].as_str()?.to_owned())))
        .collect();
    turns.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (longest, name) in turns.iter().take(10) {
        println!("  {name}: {:.3} ms", 1e3 * longest);
    }
    for one in series("stats-agg.collect.*.reply_s")? {
        let ms = |key: &str| 1e3 * one[key].as_f64().unwrap_or(f64::NAN);
        let name = one["name"].as_str().unwrap_or_default();
        println!("  {name}: {} answers, p50 {:.3} ms, longest {:.3} ms", one["count"], ms("p50"), ms("max"));
    }
    Ok(())
}
