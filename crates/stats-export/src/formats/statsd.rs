//! statsd: what was gained since the last time, for a statsd that a site has already.
//!
//! Servers add up what they are sent, so that each gain must be sent once: what was sent is remembered by series. The
//! first snapshot only says where to begin, since totals survive a reload of the module, as what was sent before does at
//! the server. Distributions are sent as their count and sum, and their quantiles as gauges.

use super::{number, prefixed, tags};
use crate::snapshot::{Point, QUANTILES, Value, View};
use std::collections::HashMap;

/// What a datagram holds: an Ethernet frame, as most clients have it.
const DATAGRAM_MAX: usize = 1432;

/// Name, tags, and which number of the series.
type Which = (String, Vec<(String, String)>, &'static str);
/// A total, and since when it is counted.
type Sent = (f64, Option<u32>);

/// What was sent so far.
#[derive(Debug, Default)]
pub struct Forward {
    sent: HashMap<Which, Sent>,
    begun: bool,
}

/// Datagrams.
#[derive(Debug, Default)]
struct Datagrams {
    done: Vec<Vec<u8>>,
    open: String,
}

impl Datagrams {
    /// Lines that belong together.
    fn add(&mut self, lines: &str) {
        if !self.open.is_empty() && self.open.len() + 1 + lines.len() > DATAGRAM_MAX {
            self.done.push(std::mem::take(&mut self.open).into_bytes());
        }
        if !self.open.is_empty() {
            self.open.push('\n');
        }
        self.open.push_str(lines);
    }

    fn finish(mut self) -> Vec<Vec<u8>> {
        if !self.open.is_empty() {
            self.done.push(self.open.into_bytes());
        }
        self.done
    }
}

impl Forward {
    /// What is to be sent, one datagram each.
    pub fn datagrams(&mut self, view: &View<'_>, prefix: &str) -> Vec<Vec<u8>> {
        let mut out = Datagrams::default();
        let mut present = HashMap::with_capacity(self.sent.len());
        for point in &view.points {
            let mut name = String::new();
            prefixed(&mut name, prefix, &point.name);
            let mut tagged = String::new();
            write_tags(point, &mut tagged);
            let mut flow = |out: &mut Datagrams, which: &'static str, total: f64, falls: bool| {
                let key = (point.name.clone(), point.tags.clone(), which);
                let before = self.sent.get(&key).copied();
                present.insert(key, (total, point.created_s));
                let gained = match before {
                    // It was there all the time, and we were not.
                    None if !self.begun => 0.0,
                    Some((before, created)) if created == point.created_s && (falls || before <= total) => {
                        total - before
                    }
                    // It began at zero since then.
                    _ => total,
                };
                if gained != 0.0 {
                    line(out, &name, which, gained, "c", &tagged);
                }
            };
            match &point.value {
                Value::Counter { total, falls } => flow(&mut out, "", *total, *falls),
                Value::Timer(timer) => {
                    flow(&mut out, "count", timer.count as f64, false);
                    flow(&mut out, "sum", timer.sum, false);
                    if let Some(shape) = &timer.shape {
                        gauge(&mut out, &name, "min", shape.min, &tagged);
                        gauge(&mut out, &name, "max", shape.max, &tagged);
                        for ((_, quantile), value) in QUANTILES.iter().zip(shape.quantiles) {
                            gauge(&mut out, &name, quantile, value, &tagged);
                        }
                    }
                }
                Value::Gauge { .. } | Value::Set { .. } => {
                    super::numbers(point, |which, value| gauge(&mut out, &name, which, value, &tagged));
                }
            }
        }
        (self.sent, self.begun) = (present, true);
        out.finish()
    }
}

fn line(out: &mut Datagrams, name: &str, which: &str, value: f64, kind: &str, tagged: &str) {
    let mut text = String::with_capacity(name.len() + 40);
    if write_line(&mut text, name, which, value, kind, tagged) {
        out.add(&text);
    }
}

/// With a sign a gauge is a change: below zero it goes by way of zero, in the same datagram.
fn gauge(out: &mut Datagrams, name: &str, which: &str, value: f64, tagged: &str) {
    let mut text = String::new();
    if value < 0.0 {
        write_line(&mut text, name, which, 0.0, "g", tagged);
        text.push('\n');
    }
    if write_line(&mut text, name, which, value, "g", tagged) {
        out.add(&text);
    }
}

fn write_line(text: &mut String, name: &str, which: &str, value: f64, kind: &str, tagged: &str) -> bool {
    text.push_str(name);
    if !which.is_empty() {
        text.push('.');
        text.push_str(which);
    }
    text.push(':');
    let good = number(text, value);
    text.push('|');
    text.push_str(kind);
    text.push_str(tagged);
    good
}

/// As DogStatsD has them.
fn write_tags(point: &Point, out: &mut String) {
    let clean = |text: &str| -> String {
        text.chars()
            .map(|c| if matches!(c, ',' | '|' | ':' | '#') || c.is_control() { '_' } else { c })
            .collect()
    };
    for (key, value) in tags(point) {
        out.push_str(if out.is_empty() { "|#" } else { "," });
        out.push_str(&clean(key));
        out.push(':');
        out.push_str(&clean(&value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::sample;
    use crate::snapshot::{Snapshot, Unit};

    fn counter(total: f64, created_s: u32, falls: bool) -> Snapshot {
        let value = Value::Counter { total, falls };
        let (name, tags, created_s) = ("app.x".to_owned(), Vec::new(), Some(created_s));
        let point = Point { name, tags, unit: Unit::None, rank: None, created_s, value };
        Snapshot { points: vec![point], ..Snapshot::default() }
    }

    fn sent(forward: &mut Forward, snapshot: &Snapshot) -> String {
        let datagrams = forward.datagrams(&snapshot.view(), "flux");
        datagrams.into_iter().map(|bytes| String::from_utf8(bytes).unwrap()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn each_gain_is_sent_once() {
        let mut forward = Forward::default();
        assert_eq!(sent(&mut forward, &counter(10.0, 1, false)), "", "where to begin");
        assert_eq!(sent(&mut forward, &counter(12.0, 1, false)), "flux.app.x:2|c");
        assert_eq!(sent(&mut forward, &counter(12.0, 1, false)), "");
        // A clear, after which it has more than before.
        assert_eq!(sent(&mut forward, &counter(20.0, 2, false)), "flux.app.x:20|c");
        // A clear within the same second.
        assert_eq!(sent(&mut forward, &counter(5.0, 2, false)), "flux.app.x:5|c");
        // Gone, and new.
        assert_eq!(sent(&mut forward, &Snapshot::default()), "");
        assert_eq!(sent(&mut forward, &counter(3.0, 3, false)), "flux.app.x:3|c");
        assert_eq!(sent(&mut forward, &counter(1.0, 3, true)), "flux.app.x:-2|c", "statsd counters may fall");
    }

    #[test]
    fn what_appears_after_the_beginning_counts_from_zero() {
        let mut forward = Forward::default();
        assert_eq!(sent(&mut forward, &Snapshot::default()), "");
        assert_eq!(sent(&mut forward, &counter(3.0, 3, false)), "flux.app.x:3|c");
    }

    #[test]
    fn lines_are_as_documented_and_datagrams_are_short() {
        let (snapshot, mut forward) = (sample::snapshot(), Forward::default());
        forward.begun = true;
        insta::assert_snapshot!(sent(&mut forward, &snapshot));
        let many: Vec<&Point> = snapshot.points.iter().cycle().take(500).collect();
        let datagrams = Forward::default().datagrams(&View { snapshot: &snapshot, points: many }, "flux");
        assert!(datagrams.len() > 1 && datagrams.iter().all(|bytes| bytes.len() <= DATAGRAM_MAX));
    }

    #[test]
    fn a_gauge_below_zero_is_no_change() {
        let value = Value::Gauge { ranks: 1, sum: -2.0, min: (-2.0, 0), max: (-2.0, 0) };
        let mut snapshot = counter(0.0, 0, false);
        snapshot.points[0].value = value;
        snapshot.points[0].rank = Some(3);
        let lines = sent(&mut Forward::default(), &snapshot);
        assert_eq!(lines, "flux.app.x:0|g|#rank:3\nflux.app.x:-2|g|#rank:3");
    }
}
