//! Charts: which lines each of them has.

use super::model::{Model, Track, module_of};
use crate::show;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// How often jobs are counted (the collector `jobs`).
const JOBS_COUNTED_S: f64 = 5.0;
/// Lines of a chart of modules. The table has all of them.
const LINES_MAX: usize = 6;

/// What the numbers of a chart are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    /// Parts of one.
    Share,
    Seconds,
    Bytes,
    PerSecond,
    Count,
}

impl Scale {
    /// A number in words.
    pub(super) fn text(self, number: f64) -> String {
        if number.is_nan() {
            return show::UNKNOWN.to_owned();
        }
        match self {
            Scale::Share => show::percent(number),
            Scale::Seconds => show::duration(number),
            Scale::Bytes => show::bytes(number),
            Scale::PerSecond => show::rate(number),
            Scale::Count => show::number(number),
        }
    }

    /// As the page's script knows it.
    fn name(self) -> &'static str {
        match self {
            Scale::Share => "share",
            Scale::Seconds => "seconds",
            Scale::Bytes => "bytes",
            Scale::PerSecond => "rate",
            Scale::Count => "count",
        }
    }
}

pub(super) struct Chart {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// What is seen in it, in a sentence.
    pub(super) text: &'static str,
    pub(super) scale: Scale,
    pub(super) lines: Vec<Line>,
}

pub(super) struct Line {
    pub(super) label: String,
    /// A number for each slot; not a number where nothing is known.
    pub(super) data: Vec<f64>,
}

impl Line {
    /// Least, mean, greatest and last of what is known.
    pub(super) fn figures(&self) -> Option<[f64; 4]> {
        let known = || self.data.iter().copied().filter(|number| !number.is_nan());
        let last = known().next_back()?;
        let (count, sum) = known().fold((0.0, 0.0), |(count, sum), number| (count + 1.0, sum + number));
        Some([
            known().fold(f64::INFINITY, f64::min),
            sum / count,
            known().fold(f64::NEG_INFINITY, f64::max),
            last,
        ])
    }
}

impl Chart {
    fn new(id: &'static str, title: &'static str, text: &'static str, scale: Scale) -> Self {
        Chart { id, title, text, scale, lines: Vec::new() }
    }

    /// A line, if anything is known of it.
    fn line(&mut self, label: &str, data: Vec<f64>) {
        if data.iter().any(|number| !number.is_nan()) {
            self.lines.push(Line { label: label.to_owned(), data });
        }
    }

    /// The modules with the most of `what`.
    fn modules(mut self, model: &Model, what: &str, slots: impl Fn(&Track) -> Vec<f64>) -> Self {
        let mut lines: Vec<Line> = Vec::new();
        for ((name, tags), track) in &model.tracks {
            if let (Some(module), true, false) =
                (module_of(name, what), tags.is_empty(), track.slots.is_empty())
            {
                lines.push(Line { label: module.to_owned(), data: slots(track) });
            }
        }
        let weight = |line: &Line| {
            line.figures()
                .map_or(0.0, |[_, mean, most, _]| if what == "longest_work_s" { most } else { mean })
        };
        lines.retain(|line| weight(line) > 0.0);
        lines.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
        lines.truncate(LINES_MAX);
        self.lines = lines;
        self
    }
}

/// All of them, in order; those without a line are left out.
pub(super) fn all(model: &Model) -> BTreeMap<&'static str, Vec<Chart>> {
    let shares = |track: &Track| model.rates(track);
    let modules = vec![
        Chart::new("work", "Work", "Time at work, in parts of a core, summed over the ranks", Scale::Share)
            .modules(model, "work_s", shares),
        Chart::new(
            "blocked",
            "Blocked",
            "Time waiting inside of work, such as in a synchronous RPC, summed over the ranks",
            Scale::Share,
        )
        .modules(model, "blocked_s", shares),
        Chart::new("wakeups", "Wakeups", "Turns of the modules' reactors, summed over the ranks", Scale::PerSecond)
            .modules(model, "wakeups", shares),
        Chart::new(
            "longest",
            "Longest turn",
            "The longest work of a single turn on any rank, since the module was loaded or totals were cleared",
            Scale::Seconds,
        )
        .modules(model, "longest_work_s", |track| track.most.clone()),
    ];
    let sections = [("modules", modules), ("jobs", jobs(model)), ("memory", memory(model))];
    let with_lines =
        |charts: Vec<Chart>| charts.into_iter().filter(|chart| !chart.lines.is_empty()).collect();
    sections.into_iter().map(|(section, charts)| (section, with_lines(charts))).collect()
}

fn jobs(model: &Model) -> Vec<Chart> {
    let state = |chart: &mut Chart, label: &str, name: &str| {
        if let Some(track) = model.track(name) {
            chart.line(label, track.slots.clone());
        }
    };
    let mut states = Chart::new("jobs", "Jobs by state", "Jobs that are not over", Scale::Count);
    for (label, name) in [
        ("running", "jobs.run"),
        ("waiting for resources", "jobs.sched"),
        ("waiting for others", "jobs.depend"),
        ("waiting for priority", "jobs.priority"),
        ("cleaning up", "jobs.cleanup"),
    ] {
        state(&mut states, label, name);
    }
    let mut throughput = Chart::new(
        "throughput",
        "Jobs that ended",
        "Jobs that became inactive, for whatever reason",
        Scale::PerSecond,
    );
    let ended = ["jobs.inactive", "jobs.purged"].map(|name| model.track(name).map(|track| &track.slots));
    if let [Some(inactive), purged] = ended {
        let sum = |slot: usize| {
            inactive[slot]
                + purged.map_or(0.0, |purged| if purged[slot].is_nan() { 0.0 } else { purged[slot] })
        };
        let sums: Vec<f64> = (0..inactive.len()).map(sum).collect();
        throughput.line("ended", growth(&sums, model.axis.width, JOBS_COUNTED_S));
    }
    let mut nodes = Chart::new("nodes", "Nodes", "Nodes that jobs may have", Scale::Count);
    for (label, name) in [
        ("allocated", "resources.nodes.allocated"),
        ("free", "resources.nodes.free"),
        ("down", "resources.nodes.down"),
        ("drained", "resources.nodes.drained"),
    ] {
        state(&mut nodes, label, name);
    }
    vec![states, throughput, nodes]
}

fn memory(model: &Model) -> Vec<Chart> {
    let mut memory = Chart::new(
        "memory",
        "Resident memory",
        "Of the largest broker, and of modules that are processes of their own, on the rank that has most",
        Scale::Bytes,
    );
    let most = |name: &str| model.track(name).map(|track| track.most.clone());
    for (label, name) in [("broker", "broker.rss_bytes"), ("broker, without files", "broker.rss_anon_bytes")]
    {
        if let Some(data) = most(name) {
            memory.line(label, data);
        }
    }
    let processes =
        Chart::new("", "", "", Scale::Bytes).modules(model, "rss_bytes", |track| track.most.clone());
    memory.lines.extend(processes.lines);
    let mut descriptors = Chart::new(
        "descriptors",
        "Open descriptors",
        "Of the broker that has most of them open",
        Scale::Count,
    );
    if let Some(data) = most("broker.open_fds") {
        descriptors.line("open", data);
    }
    let mut disk = Chart::new(
        "disk",
        "Room on disk",
        "What is free for rundir and statedir, mean of the ranks that have it: those of one host share it",
        Scale::Bytes,
    );
    for (label, name) in [("rundir", "broker.rundir_free_bytes"), ("statedir", "broker.statedir_free_bytes")]
    {
        if let Some(track) = model.track(name) {
            disk.line(label, track.each.clone());
        }
    }
    vec![memory, descriptors, disk]
}

/// How fast something grew in each slot that is counted every so many seconds: what a count has more than the one before was
/// gained in the time between them. What became less says nothing.
fn growth(sums: &[f64], width: f64, counted_s: f64) -> Vec<f64> {
    let mut growth = vec![f64::NAN; sums.len()];
    let between = (counted_s / width).ceil().max(1.0) as usize;
    // The slot in which the last change was seen.
    let mut changed = 0;
    for slot in 1..sums.len() {
        let gained = sums[slot] - sums[slot - 1];
        if gained.is_nan() {
            changed = slot;
        } else if gained == 0.0 {
            growth[slot] = 0.0;
        } else {
            let first = (changed + 1).max((slot + 1).saturating_sub(between));
            if gained > 0.0 {
                growth[first..=slot].fill(gained / (width * (slot + 1 - first) as f64));
            }
            changed = slot;
        }
    }
    growth
}

/// The colour of each module, the same in all charts of modules: a number from 0.
pub(super) fn colours(charts: &BTreeMap<&'static str, Vec<Chart>>) -> BTreeMap<String, usize> {
    let mut colours = BTreeMap::new();
    for line in charts.get("modules").into_iter().flatten().flat_map(|chart| &chart.lines) {
        let next = colours.len();
        colours.entry(line.label.clone()).or_insert(next);
    }
    colours
}

/// A chart for the page's script.
pub(super) fn data(chart: &Chart, colours: &BTreeMap<String, usize>) -> Value {
    let lines: Vec<Value> = chart
        .lines
        .iter()
        .enumerate()
        .map(|(place, line)| {
            let colour = colours.get(&line.label).copied().unwrap_or(place);
            json!({ "label": line.label, "colour": colour, "data": line.data.iter().map(|number| short(*number)).collect::<Vec<_>>() })
        })
        .collect();
    json!({ "id": chart.id, "title": chart.title, "scale": chart.scale.name(), "lines": lines })
}

/// Four digits are more than a chart shows.
pub(super) fn short(number: f64) -> Value {
    if !number.is_finite() {
        return Value::Null;
    }
    let short = format!("{number:.3e}").parse().unwrap_or(number);
    if short == f64::trunc(short) && short.abs() < 1e15 { json!(short as i64) } else { json!(short) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_now_and_then_grew_meanwhile() {
        let sums = [f64::NAN, 10.0, 10.0, 10.0, 16.0, 16.0, 19.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0];
        let growth = growth(&sums, 1.0, 3.0);
        assert!(growth[0].is_nan() && growth[1].is_nan() && growth[7].is_nan());
        assert_eq!(growth[2..7], [2.0, 2.0, 2.0, 1.5, 1.5]);
        assert_eq!(growth[8..], [0.0, 0.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn numbers_are_written_short_and_unknown_ones_as_null() {
        let numbers = [0.0, 12_345.678, 0.000_123_456, f64::NAN, f64::INFINITY, 3e300].map(short);
        assert_eq!(serde_json::to_string(&numbers).unwrap(), "[0,12350,0.0001235,null,null,3e+300]");
    }
}
