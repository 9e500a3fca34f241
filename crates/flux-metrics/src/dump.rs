//! `FLUX_METRICS_DUMP`: what a handle counted, printed when it closes.

use serde_json::{Map, Value, json};
use stats_core::{Key, Number, Pushed, Samples, Unit};
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
    totals: BTreeMap<Key, Pushed>,
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

    pub(crate) fn add(&mut self, key: &Key, later: &Pushed) {
        match self.totals.get_mut(key) {
            Some(total) => follow(total, later),
            None => drop(self.totals.insert(key.clone(), later.clone())),
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
            let tags: Vec<String> = key.tags().map(|(key, value)| format!("{key}={value}")).collect();
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
                key.tags().map(|(key, value)| (key.into(), value.into())).collect();
            let mut series = json!({ "name": key.name(), "tags": tags, "type": kind(key) });
            numbers(key, total).into_iter().for_each(|(name, value)| series[name] = value);
            series
        });
        json!({ "version": 1, "id": id, "series": series.collect::<Vec<_>>() }).to_string() + "\n"
    }
}

/// What is later than `total`, added to it.
fn follow(total: &mut Pushed, later: &Pushed) {
    match (&mut *total, later) {
        (Pushed::Count(sum), Pushed::Count(more)) => *sum = sum.plus(*more),
        (Pushed::Set(value) | Pushed::Add(value), Pushed::Add(by)) => *value = value.plus(*by),
        (Pushed::Samples(samples), Pushed::Samples(more)) => samples.merge(more),
        (Pushed::Members(members), Pushed::Members(more)) => members.merge(more),
        (present, later) => *present = later.clone(),
    }
}

fn kind(key: &Key) -> &'static str {
    match key.kind() {
        stats_core::Kind::Timer if key.unit() == Unit::Millionths => "histogram",
        kind => kind.name(),
    }
}

fn numbers(key: &Key, total: &Pushed) -> Vec<(&'static str, Value)> {
    match total {
        Pushed::Count(total) => vec![("total", json!(Number::new(*total, key.unit())))],
        Pushed::Set(value) => vec![("value", json!(value.to_f64()))],
        Pushed::Add(by) => vec![("change", json!(by.to_f64()))],
        Pushed::Samples(samples) => shape(samples, if key.unit() == Unit::Millionths { 1e6 } else { 1e9 }),
        Pushed::Members(members) => vec![("members", json!(members.estimate().round()))],
    }
}

/// In units of answers, of which each is `one`.
fn shape(samples: &Samples, one: f64) -> Vec<(&'static str, Value)> {
    let (min, max) = samples.range().unwrap_or_default();
    let quantile = |q| samples.quantile(q).unwrap_or_default() / one;
    vec![
        ("count", samples.count().into()),
        ("sum", json!(samples.sum() as f64 / one)),
        ("min", json!(min as f64 / one)),
        ("max", json!(max as f64 / one)),
        ("p50", json!(quantile(0.5))),
        ("p99", json!(quantile(0.99))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats_core::{Amount, Kind, Members};

    #[test]
    fn what_follows_adds_up() {
        let whole = Amount::whole;
        let mut gauge = Pushed::Add(whole(1));
        follow(&mut gauge, &Pushed::Set(whole(5)));
        follow(&mut gauge, &Pushed::Add(whole(2)));
        assert_eq!(gauge, Pushed::Set(whole(7)));
        let mut counter = Pushed::Count(whole(1));
        follow(&mut counter, &Pushed::Count(whole(2)));
        assert_eq!(counter, Pushed::Count(whole(3)));
    }

    fn filled(target: &str) -> Dump {
        let mut dump = Dump::new(target).unwrap();
        let mut add = |name: &str, tags: &[(&str, &str)], kind, unit, gathered| {
            dump.add(&Key::new(name, tags, kind, unit).unwrap(), &gathered);
        };
        add("b.count", &[("k", "v")], Kind::Counter, Unit::None, Pushed::Count(Amount::whole(2)));
        add("b.count", &[("k", "v")], Kind::Counter, Unit::None, Pushed::Count(Amount::whole(3)));
        add("a.depth", &[], Kind::Gauge, Unit::None, Pushed::Set(Amount::from_parts(1_500_000)));
        let mut samples = Samples::default();
        samples.add(250_000_000, 4);
        add("c.wait_s", &[], Kind::Timer, Unit::Nanoseconds, Pushed::Samples(samples.clone()));
        add("c.bytes", &[], Kind::Timer, Unit::Millionths, Pushed::Samples(samples));
        let mut members = Members::default();
        members.insert("x");
        add("d.users", &[], Kind::Set, Unit::None, Pushed::Members(members));
        dump
    }

    #[test]
    fn a_dump_is_a_line_for_each_series() {
        assert_eq!(
            filled("stderr").as_text(),
            "a.depth gauge value=1.5\n\
             b.count{k=v} counter total=5\n\
             c.bytes histogram count=4 sum=1000.0 min=250.0 max=250.0 p50=250.0 p99=250.0\n\
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
