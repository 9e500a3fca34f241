//! What rank 0 says of its own threads.

use anyhow::{Context, Result};
use flux::{Client, Node, Payload};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);
/// The threads of a broker that a batch passes, beside stats-agg.
const WAY: [&str; 3] = ["broker", "overlay", "connector-local"];

/// Sums since the load, as of the end of rank 0's last period.
#[derive(Debug, Clone)]
pub(crate) struct Cost {
    stats_agg: String,
    /// Seconds, by module and key.
    seconds: BTreeMap<(String, String), f64>,
    /// Of all synthetic counters.
    pub(crate) synthetic: i64,
}

fn ask(client: &Client, name: &str, question: &Value) -> Result<Vec<Value>> {
    let topic = format!("{name}.query");
    let answer = client.rpc(&topic, Payload::Json(question), Node::Rank(0))?.wait(TIMEOUT);
    let answer = answer.with_context(|| topic.clone())?.json()?;
    Ok(answer["series"].as_array().cloned().unwrap_or_default())
}

impl Cost {
    pub(crate) fn of_root(client: &Client, name: &str) -> Result<Self> {
        let modules = format!("{name},{}", WAY.join(","));
        let pattern = format!("modules.{{{modules}}}.{{cpu_s,work_s,sleep_s,blocked_s}}");
        let question = json!({ "match": [pattern], "by": "rank", "ranks": "0" });
        let mut seconds = BTreeMap::new();
        for series in ask(client, name, &question)? {
            let mut parts = series["name"].as_str().unwrap_or_default().splitn(3, '.').skip(1);
            if let (Some(module), Some(key)) = (parts.next(), parts.next()) {
                let total = series["total"].as_f64().unwrap_or(0.0);
                seconds.insert((module.to_owned(), key.to_owned()), total);
            }
        }
        let mut cost = Cost { stats_agg: name.to_owned(), seconds, synthetic: 0 };
        cost.synthetic = cost.synthetic_total(client, name)?;
        Ok(cost)
    }

    /// What the root has of all synthetic counters now.
    pub(crate) fn synthetic_total(&self, client: &Client, name: &str) -> Result<i64> {
        let question = json!({ "match": [format!("{}.*.c*", super::ranks::PREFIX)] });
        Ok(ask(client, name, &question)?.iter().filter_map(|series| series["total"].as_i64()).sum())
    }

    pub(crate) fn since(&self, before: &Cost) -> Spent {
        let gained = |module: &str, key: &str| {
            let key = (module.to_owned(), key.to_owned());
            Some(self.seconds.get(&key)? - before.seconds.get(&key).copied().unwrap_or(0.0))
        };
        // All of a thread's time is work, sleep or blocked: so they say between which moments they were taken.
        let wall_s =
            ["work_s", "sleep_s", "blocked_s"].map(|key| gained("broker", key).unwrap_or(0.0)).iter().sum();
        let modules = [self.stats_agg.as_str()].into_iter().chain(WAY);
        let modules = modules.filter_map(|module| {
            let (cpu_s, work_s) = (gained(module, "cpu_s")?, gained(module, "work_s"));
            Some((module.to_owned(), cpu_s, work_s))
        });
        Spent { wall_s, modules: modules.collect() }
    }
}

/// What rank 0's threads did in some time.
#[derive(Debug)]
pub(crate) struct Spent {
    wall_s: f64,
    /// Seconds of CPU time, and of work as its reactor has it.
    modules: Vec<(String, f64, Option<f64>)>,
}

impl Spent {
    fn percent(&self, seconds: f64) -> f64 {
        if self.wall_s > 0.0 { 100.0 * seconds / self.wall_s } else { 0.0 }
    }

    /// CPU seconds of a module.
    pub(crate) fn seconds_of(&self, name: &str) -> f64 {
        self.modules.iter().filter(|module| module.0 == name).map(|module| module.1).sum()
    }

    pub(crate) fn percent_of(&self, name: &str) -> f64 {
        self.percent(self.seconds_of(name))
    }

    /// The overlay where it is a thread of its own (elsewhere the broker's loop has it), and the local connector.
    pub(crate) fn percent_of_overlay(&self) -> f64 {
        WAY[1..].iter().map(|name| self.percent_of(name)).sum()
    }
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in {:.1} s", self.wall_s)?;
        for (module, cpu_s, work_s) in &self.modules {
            write!(f, ", {module} {:.2} % of a core", self.percent(*cpu_s))?;
            if let Some(work_s) = work_s {
                write!(f, " (at work {:.2} %)", self.percent(*work_s))?;
            }
        }
        Ok(())
    }
}
