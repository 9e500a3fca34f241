//! What is exported: all series at one moment, in no particular format.

use serde_json::Value as Json;
use stats_core::{Amount, IdSet, Key, Reading, Samples, States, Total, Unit as Inside, bucket};

/// What a number is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A plain number.
    None,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

impl Unit {
    /// As Prometheus and OpenMetrics name it; empty: there is none.
    pub fn word(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Seconds => "seconds",
            Unit::Bytes => "bytes",
        }
    }
}

/// Everything at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// In nanoseconds since 1970.
    pub time_ns: u64,
    /// How often ranks send, in seconds.
    pub period_s: f64,
    /// Of what.
    pub instance: Instance,
    /// Of whom.
    pub coverage: Coverage,
    /// The series.
    pub points: Vec<Point>,
}

/// What of a snapshot is written.
#[derive(Debug, Clone)]
pub struct View<'a> {
    /// Of which.
    pub snapshot: &'a Snapshot,
    /// Its series, in order.
    pub points: Vec<&'a Point>,
}

/// The instance that is told of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Instance {
    /// Brokers.
    pub size: u64,
    /// How many instances this one is inside.
    pub level: Option<u64>,
    /// The job that it is, in the instance above.
    pub jobid: Option<String>,
    /// The brokers' hosts.
    pub hostlist: Option<String>,
}

/// How many ranks were heard of.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Coverage {
    /// Those whose numbers are in this.
    pub covered: u64,
    /// Those whose broker is down.
    pub offline: u64,
    /// Those that do not have the module.
    pub absent: u64,
    /// Those that have it, and are not heard of.
    pub silent: u64,
    /// The age of the oldest contribution, in seconds.
    pub oldest_s: f64,
}

/// One series.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Its dotted name.
    pub name: String,
    /// Its tags, sorted by key.
    pub tags: Vec<(String, String)>,
    /// What its numbers are in.
    pub unit: Unit,
    /// The rank that measured it, where it is told by rank.
    pub rank: Option<u32>,
    /// Since when it is counted, in seconds since 1970, where that is known.
    pub created_s: Option<u32>,
    /// What it amounts to.
    pub value: Value,
}

/// What a series amounts to.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A total, which `falls` says may go down.
    Counter {
        /// Since it is counted.
        total: f64,
        /// It has gone down before.
        falls: bool,
        /// The most that a rank gained in the last period, a second, and which rank.
        peak: Option<(f64, u32)>,
    },
    /// The states of ranks.
    Gauge {
        /// How many ranks.
        ranks: u64,
        /// Their sum.
        sum: f64,
        /// The least, and whose it is.
        min: (f64, u32),
        /// The greatest, and whose it is.
        max: (f64, u32),
    },
    /// Samples.
    Timer(Timer),
    /// How many different members there were.
    Set {
        /// Estimated.
        estimate: f64,
    },
}

/// A distribution.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Timer {
    /// How many samples.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
    /// `None` without samples.
    pub shape: Option<Shape>,
    /// How many samples are at most so great, for each bound of a ladder, ascending; `None`: it is not known.
    pub buckets: Option<Vec<(f64, u64)>>,
}

/// The quantiles that are told.
pub const QUANTILES: [(f64, &str); 3] = [(0.5, "p50"), (0.9, "p90"), (0.99, "p99")];

/// The shape of a distribution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// The least sample.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// The standard deviation.
    pub stddev: f64,
    /// As [`QUANTILES`] has them.
    pub quantiles: [f64; 3],
}

/// Upper bounds of buckets for durations, in seconds.
const SECONDS: [f64; 17] =
    [1e-6, 5e-6, 1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 5e-3, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 600.0];
/// And for other numbers.
const NUMBERS: [f64; 13] = [1e-3, 0.01, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

/// A snapshot as a node gives it, series by series: little work is done before [`Raw::finish`].
#[derive(Debug)]
pub struct Raw {
    frame: Json,
    series: Vec<(Key, u32, Total)>,
}

impl Raw {
    /// One without series yet. `frame` is that of an answer ([`stats_core::Node::frame`]), with `instance`.
    pub fn new(frame: Json) -> Self {
        Raw { frame, series: Vec::new() }
    }

    /// One with room for so many series.
    pub fn with_capacity(frame: Json, series: usize) -> Self {
        Raw { frame, series: Vec::with_capacity(series) }
    }

    /// Takes one more series.
    pub fn push(&mut self, reading: Reading<'_>) {
        self.series.push((reading.key.clone(), reading.created_s, reading.total));
    }

    /// Begins anew.
    pub fn clear(&mut self) {
        self.series.clear();
    }

    /// How many series it has.
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// The snapshot, sorted by name and tags.
    pub fn finish(mut self) -> Snapshot {
        self.series.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let points = self.series.into_iter().map(|(key, created_s, total)| point(&key, created_s, total));
        let points = points.collect();
        Snapshot { points, ..Snapshot::of_frame(&self.frame) }
    }
}

fn point(key: &Key, created_s: u32, total: Total) -> Point {
    let parts = match key.unit() {
        Inside::None | Inside::Bytes => 1.0,
        Inside::Nanoseconds => 1e9,
        Inside::Millionths => 1e6,
    };
    let shown = |amount: Amount| amount.to_f64() / parts;
    let (value, flows) = match total {
        Total::Counter { total, falls, peak } => {
            let peak = peak.map(|(rank, rate)| (shown(rate), rank));
            (Value::Counter { total: shown(total), falls, peak }, true)
        }
        Total::Gauge(States { count, sum, min, max, .. }) => {
            let (sum, min, max) = (shown(sum), (shown(min.0), min.1), (shown(max.0), max.1));
            (Value::Gauge { ranks: count, sum, min, max }, false)
        }
        Total::Timer(samples) => (Value::Timer(timer(&samples, key.unit(), parts)), true),
        Total::Set { estimate } => (Value::Set { estimate }, false),
    };
    let unit = match key.unit() {
        Inside::Nanoseconds => Unit::Seconds,
        Inside::Bytes => Unit::Bytes,
        Inside::None | Inside::Millionths => Unit::None,
    };
    let created_s = Some(created_s).filter(|_| flows);
    let name = key.name().to_owned();
    let tags = key.tags().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    Point { name, tags, unit, rank: None, created_s, value }
}

fn timer(samples: &Samples, unit: Inside, parts: f64) -> Timer {
    let ladder: &[f64] = if unit == Inside::Nanoseconds { &SECONDS } else { &NUMBERS };
    let mut counted = samples.buckets().peekable();
    let mut below = 0_u64;
    let buckets = ladder.iter().map(|&bound| {
        // A bucket of the sketch that the bound is in counts as below it: it is at most a 64th too wide.
        let last = bucket((bound * parts).round() as u64);
        while let Some((_, count)) = counted.next_if(|&(at, _)| at <= last && bound * parts >= 1.0) {
            below = below.saturating_add(count);
        }
        (bound, below)
    });
    let buckets = Some(buckets.collect());
    let shape = samples.range().map(|(min, max)| Shape {
        min: min as f64 / parts,
        max: max as f64 / parts,
        stddev: samples.deviation().unwrap_or(0.0) / parts,
        quantiles: QUANTILES.map(|(q, _)| samples.quantile(q).unwrap_or(0.0) / parts),
    });
    Timer { count: samples.count(), sum: samples.sum() as f64 / parts, shape, buckets }
}

/// An answer that cannot be exported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAnswer {
    /// It is of another version, or none at all.
    #[error("expected an answer of stats-agg.query, version 1, found version {0}")]
    Version(String),
    /// A series of it is malformed.
    #[error("series {0} of the answer is malformed: {1}")]
    Series(usize, String),
}

impl Snapshot {
    /// All of it.
    pub fn view(&self) -> View<'_> {
        View { snapshot: self, points: self.points.iter().collect() }
    }

    /// From the answer to a `stats-agg.query`, by rank or not. It does not say since when series are counted, nor how
    /// samples are distributed beyond their quantiles.
    pub fn from_answer(answer: &Json) -> Result<Self, BadAnswer> {
        if answer["version"] != 1 {
            return Err(BadAnswer::Version(answer["version"].to_string()));
        }
        let mut snapshot = Snapshot::of_frame(answer);
        for (place, series) in answer["series"].as_array().into_iter().flatten().enumerate() {
            let text = || series.to_string().chars().take(200).collect();
            let point = answered(series).ok_or_else(|| BadAnswer::Series(place, text()))?;
            snapshot.points.push(point);
        }
        snapshot.points.sort_by(|one, other| {
            (&one.name, &one.tags, one.rank).cmp(&(&other.name, &other.tags, other.rank))
        });
        Ok(snapshot)
    }

    fn of_frame(frame: &Json) -> Self {
        let (instance, ranks) = (&frame["instance"], &frame["ranks"]);
        let text = |key: &str| match &instance[key] {
            Json::String(text) if !text.is_empty() => Some(text.clone()),
            Json::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let many = |key: &str| {
            let ranks: Option<IdSet> = ranks[key].as_str().and_then(|ranks| ranks.parse().ok());
            ranks.map_or(0, |ranks| ranks.iter().count() as u64)
        };
        Snapshot {
            // A float to integer cast saturates.
            time_ns: (frame["time"].as_f64().unwrap_or(0.0) * 1e9) as u64,
            period_s: frame["period"].as_f64().unwrap_or(0.0),
            instance: Instance {
                size: instance["size"].as_u64().unwrap_or(0),
                level: instance["level"].as_u64(),
                jobid: text("jobid"),
                hostlist: text("hostlist"),
            },
            coverage: Coverage {
                covered: many("covered"),
                offline: many("offline"),
                absent: many("absent"),
                silent: many("silent"),
                oldest_s: ranks["oldest"].as_f64().unwrap_or(0.0),
            },
            points: Vec::new(),
        }
    }
}

fn answered(series: &Json) -> Option<Point> {
    let name = series["name"].as_str()?;
    let number = |key: &str| series[key].as_f64();
    let value = match series["type"].as_str()? {
        "counter" => {
            let max = &series["max"];
            let rank = max["rank"].as_u64().and_then(|rank| u32::try_from(rank).ok());
            let peak = max["rate"].as_f64().zip(rank);
            Value::Counter { total: number("total")?, falls: series["falls"] == true, peak }
        }
        "gauge" => {
            let end = |key: &str| {
                let (value, rank) = (series[key]["value"].as_f64()?, series[key]["rank"].as_u64()?);
                Some((value, u32::try_from(rank).ok()?))
            };
            Value::Gauge {
                ranks: series["count"].as_u64()?,
                sum: number("sum")?,
                min: end("min")?,
                max: end("max")?,
            }
        }
        "timer" => {
            let shape = (|| {
                let quantile = |(_, name): (f64, &str)| number(name);
                let [median, p90, p99] = QUANTILES.map(quantile);
                Some(Shape {
                    min: number("min")?,
                    max: number("max")?,
                    stddev: number("stddev")?,
                    quantiles: [median?, p90?, p99?],
                })
            })();
            Value::Timer(Timer {
                count: series["count"].as_u64()?,
                sum: number("sum")?,
                shape,
                buckets: None,
            })
        }
        "set" => Value::Set { estimate: number("estimate")? },
        _ => return None,
    };
    let unit = match series["unit"].as_str() {
        Some("seconds") => Unit::Seconds,
        Some("bytes") => Unit::Bytes,
        _ if name.ends_with("_s") => Unit::Seconds,
        _ if name.ends_with("_bytes") => Unit::Bytes,
        _ => Unit::None,
    };
    let tags = series["tags"].as_object();
    let mut tags: Vec<(String, String)> = tags
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect();
    tags.sort();
    let rank = series["rank"].as_u64().and_then(|rank| u32::try_from(rank).ok());
    Some(Point { name: name.to_owned(), tags, unit, rank, created_s: None, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn samples_are_counted_below_the_bounds_of_the_ladder() {
        let mut samples = Samples::default();
        [(900, 2), (4_000, 1), (2_000_000_000, 3)].into_iter().for_each(|(ns, times)| samples.add(ns, times));
        let timer = timer(&samples, Inside::Nanoseconds, 1e9);
        let below = |bound: f64| {
            timer.buckets.as_ref().unwrap().iter().find(|(at, _)| *at == bound).map(|(_, count)| *count)
        };
        assert_eq!([1e-6, 5e-6, 1.0, 5.0].map(below), [Some(2), Some(3), Some(3), Some(6)]);
        assert_eq!((timer.count, timer.sum), (6, 6.000_005_8));
        // Samples below the first bound are in it, whatever the unit.
        let mut ratios = Samples::default();
        ratios.add(0, 4);
        let ratios = super::timer(&ratios, Inside::Millionths, 1e6);
        assert_eq!(ratios.buckets.unwrap()[0], (1e-3, 4));
    }

    #[test]
    fn an_answer_of_another_version_or_form_is_refused() {
        let refused = |answer: Json| Snapshot::from_answer(&answer).unwrap_err().to_string();
        assert_eq!(
            refused(json!([])),
            "expected an answer of stats-agg.query, version 1, found version null"
        );
        let malformed = refused(json!({ "version": 1, "series": [{ "name": "a", "type": "counter" }] }));
        assert!(malformed.starts_with("series 0 of the answer is malformed: {\"name\":\"a\""), "{malformed}");
    }
}
