//! `FLUX_METRICS_DUMP`: what a handle counted, printed when it closes.

use crate::gathered::Gathered;
use serde_json::{Map, Value, json};
use stats_core::{Key, Samples, Unit};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write};

/// The variable: `stderr` or the path of a file, which is appended to; with `json:` before it as one line of JSON.
const VARIABLE: &str = "FLUX_METRICS_DUMP";

/// Where to, and what there is so far.
pub(crate) struct Dump {
    target: String,
    json: bool,
    totals: BTreeMap<Key, Gathered>,
}

impl Dump {
    /// `None`: nobody asks for it.
    pub(crate) fn from_environment() -> Option<Self> {
        Dump::new(&std::env::var(VARIABLE).ok().filter(|target| !target.is_empty())?)
    }

    fn new(target: &str) -> Option<Self> {
        let (json, target) = target.strip_prefix("json:").map_or((false, target), |target| (true, target));
        Some(Dump { target: target.to_owned(), json, totals: BTreeMap::new() })
    }

    pub(crate) fn add(&mut self, key: &Key, gathered: &Gathered) {
        match self.totals.get_mut(key) {
            Some(total) => total.follow(gathered),
            None => drop(self.totals.insert(key.clone(), gathered.clone())),
        }
    }

    /// Writes it, at once, so that several processes may have one file. What cannot be written is said on standard
    /// error, where somebody waits for it.
    pub(crate) fn write(&self, id: &str) {
        if self.totals.is_empty() {
            return;
        }
        let text = if self.json { self.as_json(id) } else { self.as_text() };
        let written = match self.target.as_str() {
            "stderr" => io::stderr().write_all(text.as_bytes()),
            path => OpenOptions::new()
                .append(true)
                .create(true)
                .open(path)
                .and_then(|mut file| file.write_all(text.as_bytes())),
        };
        if let Err(error) = written {
            let _ = writeln!(io::stderr(), "{VARIABLE}={}: {error}", self.target);
        }
    }

    fn as_text(&self) -> String {
        let mut text = String::new();
        for (key, total) in &self.totals {
            let tags: Vec<String> = key.tags().iter().map(|(key, value)| format!("{key}={value}")).collect();
            let tags = if tags.is_empty() { String::new() } else { format!("{{{}}}", tags.join(",")) };
            let numbers = numbers(key, total);
            let numbers: Vec<String> =
                numbers.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let _ = writeln!(text, "{}{tags} {} {}", key.name(), kind(key), numbers.join(" "));
        }
        text
    }

    fn as_json(&self, id: &str) -> String {
        let series = self.totals.iter().map(|(key, total)| {
            let tags: Map<String, Value> =
                key.tags().iter().map(|(key, value)| (key.clone(), value.clone().into())).collect();
            let mut series = json!({ "name": key.name(), "tags": tags, "type": kind(key) });
            numbers(key, total).into_iter().for_each(|(name, value)| series[name] = value);
            series
        });
        json!({ "version": 1, "id": id, "series": series.collect::<Vec<_>>() }).to_string() + "\n"
    }
}

fn kind(key: &Key) -> &'static str {
    match key.kind() {
        stats_core::Kind::Timer if key.unit() == Unit::None => "histogram",
        kind => kind.name(),
    }
}

fn numbers(key: &Key, total: &Gathered) -> Vec<(&'static str, Value)> {
    match total {
        Gathered::Count(total) => match i64::try_from(*total) {
            Ok(total) => vec![("total", total.into())],
            Err(_) => vec![("total", json!(*total as f64))],
        },
        Gathered::Set(value) => vec![("value", json!(value))],
        Gathered::Add(by) => vec![("change", json!(by))],
        Gathered::Samples(samples) => shape(samples, if key.unit() == Unit::None { 1.0 } else { 1e-9 }),
        Gathered::Members(members) => vec![("members", json!(members.estimate().round()))],
    }
}

/// Durations in seconds.
fn shape(samples: &Samples, scale: f64) -> Vec<(&'static str, Value)> {
    let (min, max) = samples.range().unwrap_or_default();
    let quantile = |q| samples.quantile(q).unwrap_or_default() * scale;
    vec![
        ("count", samples.count().into()),
        ("sum", json!(samples.sum() as f64 * scale)),
        ("min", json!(min as f64 * scale)),
        ("max", json!(max as f64 * scale)),
        ("p50", json!(quantile(0.5))),
        ("p99", json!(quantile(0.99))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats_core::{Kind, Members};

    fn filled(target: &str) -> Dump {
        let mut dump = Dump::new(target).unwrap();
        let mut add = |name: &str, tags: &[(&str, &str)], kind, unit, gathered| {
            dump.add(&Key::new(name, tags, kind, unit).unwrap(), &gathered);
        };
        add("b.count", &[("k", "v")], Kind::Counter, Unit::None, Gathered::Count(2));
        add("b.count", &[("k", "v")], Kind::Counter, Unit::None, Gathered::Count(3));
        add("a.depth", &[], Kind::Gauge, Unit::None, Gathered::Set(1.5));
        let mut samples = Samples::default();
        samples.add(250_000_000, 4);
        add("c.wait_s", &[], Kind::Timer, Unit::Nanoseconds, Gathered::Samples(samples.clone()));
        add("c.bytes", &[], Kind::Timer, Unit::None, Gathered::Samples(samples));
        let mut members = Members::default();
        members.insert("x");
        add("d.users", &[], Kind::Set, Unit::None, Gathered::Members(members));
        dump
    }

    #[test]
    fn a_dump_is_a_line_for_each_series() {
        assert_eq!(
            filled("stderr").as_text(),
            "a.depth gauge value=1.5\n\
             b.count{k=v} counter total=5\n\
             c.bytes histogram count=4 sum=1000000000.0 min=250000000.0 max=250000000.0 p50=250000000.0 p99=250000000.0\n\
             c.wait_s timer count=4 sum=1.0 min=0.25 max=0.25 p50=0.25 p99=0.25\n\
             d.users set members=1.0\n"
        );
    }

    #[test]
    fn dumps_of_several_handles_are_lines_of_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dump");
        let dump = filled(&format!("json:{}", path.display()));
        dump.write("id1");
        dump.write("id2");
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((lines[0]["id"].as_str(), lines[1]["id"].as_str()), (Some("id1"), Some("id2")));
        assert_eq!(
            lines[0]["series"][1],
            json!({ "name": "b.count", "tags": { "k": "v" }, "type": "counter", "total": 5 })
        );
    }
}
