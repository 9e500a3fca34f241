//! `cargo xtask demo`: the main job, to be looked at.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, Table, presets};
use flux_testbed::{Backend, Instance, Options as InstanceOptions};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often the table is shown.
const REFRESH: Duration = Duration::from_secs(1);

#[derive(Args)]
pub(crate) struct Options {
    /// Brokers in the instance
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    size: u32,
    /// How long the table is shown
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// What the instance is made of: by default real Flux where one is found
    #[arg(long, value_enum)]
    backend: Option<Choice>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Choice {
    Real,
    Embedded,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let backend = match (options.backend, Backend::real()?) {
        (Some(Choice::Embedded), _) | (None, None) => Backend::Embedded,
        (_, Some(real)) => real,
        (Some(Choice::Real), None) => bail!("no flux found: not on PATH, and FLUX_STATS_FLUX names none"),
    };
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))?;

    println!("building, then starting {} brokers of {backend}", options.size);
    let instance =
        Instance::start(InstanceOptions { size: options.size, ..InstanceOptions::new(backend.clone()) })?;
    instance.load(0..options.size, "stats-agg", &["period=1s"])?;
    instance.load(0..options.size, "loadgen", &["rate=100", "busy=2ms"])?;
    println!("stats-agg and loadgen (100 wakeups a second of 2 ms) are loaded on every rank\n");

    let end = Instant::now() + Duration::from_secs(options.seconds);
    while Instant::now() < end && !interrupted.load(Ordering::Relaxed) {
        std::thread::sleep(REFRESH);
        let answer = instance.rpc(0, "stats-agg.query", json!({ "match": ["modules.*.*"] }))?;
        if std::io::stdout().is_terminal() {
            // Home, and clear what is below.
            print!("\x1b[H\x1b[J");
        }
        println!("{}", table(&answer));
    }
    let tree = instance.rpc(0, "stats-agg.stats-get", json!({}))?;
    println!("the merged tree of all ranks, as `flux module stats stats-agg` prints it on rank 0:");
    println!("{}", serde_json::to_string_pretty(&tree)?);
    println!("\nbackend: {backend}");
    println!("on an instance of your own: cargo xtask install, then flux stats load");
    for module in ["loadgen", "stats-agg"] {
        instance.remove(0..options.size, module)?;
    }
    instance.stop()?;
    Ok(())
}

/// Modules by work, the busiest first.
fn table(answer: &Value) -> String {
    let mut modules: BTreeMap<&str, BTreeMap<&str, &Value>> = BTreeMap::new();
    for series in answer["series"].as_array().into_iter().flatten() {
        let mut parts = series["name"].as_str().unwrap_or_default().splitn(3, '.').skip(1);
        if let (Some(module), Some(key)) = (parts.next(), parts.next()) {
            modules.entry(module).or_default().insert(key, series);
        }
    }
    let mut rows: Vec<_> = modules.into_iter().collect();
    let rate = |series: &BTreeMap<&str, &Value>, key: &str| series.get(key).and_then(|s| s["rate"].as_f64());
    rows.sort_by(|a, b| rate(&b.1, "work_s").unwrap_or(0.0).total_cmp(&rate(&a.1, "work_s").unwrap_or(0.0)));

    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["module", "wakeups/s", "work %", "sleep %", "blocked %", "cpu %", "ranks", "busiest"]);
    for (module, series) in rows {
        let ranks = series.get("longest_work_s").and_then(|s| s["count"].as_u64());
        // A thread works, sleeps or is blocked: shares are of the sum. A process has no turns, and is alone.
        let wall: f64 = ["work_s", "sleep_s", "blocked_s"].iter().filter_map(|key| rate(&series, key)).sum();
        let wall = if wall > 0.0 { wall } else { 1.0 };
        let share = |key: &str| match rate(&series, key) {
            Some(rate) => format!("{:.2}", 100.0 * rate / wall),
            None => "-".to_owned(),
        };
        let wakeups = rate(&series, "wakeups").map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"));
        let busiest = series.get("work_s").and_then(|s| s["max"]["rank"].as_u64());
        let text = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        table.add_row([
            module.to_owned(),
            wakeups,
            share("work_s"),
            share("sleep_s"),
            share("blocked_s"),
            share("cpu_s"),
            text(ranks),
            text(busiest),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let ranks = &answer["ranks"];
    let text = |key: &str| ranks[key].as_str().unwrap_or("?").to_owned();
    let missing = text("missing");
    let missing = if missing.is_empty() { "none".to_owned() } else { missing };
    format!("ranks {} · missing {missing}\n{table}\n", text("covered"))
}
