//! Answers of `stats-agg.query`, read.
//!
//! What a newer module may add is ignored; durations are in seconds.

use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

/// A whole answer.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(crate) struct Answer {
    /// When rank 0 made it, in seconds since 1970, by its clock.
    pub(crate) time: f64,
    #[serde(default)]
    pub(crate) instance: Whole,
    pub(crate) ranks: Ranks,
    /// How often a rank sends what it has, in seconds.
    pub(crate) period: f64,
    /// Ranks that were asked in vain, where ranks were asked; an idset.
    #[serde(default)]
    pub(crate) unanswered: String,
    pub(crate) series: Vec<Series>,
}

impl Answer {
    /// Whether a rank is missing that is not simply switched off: its broker runs, and its numbers are not here.
    pub(crate) fn is_partial(&self) -> bool {
        let Ranks { absent, silent, .. } = &self.ranks;
        [absent, silent, &self.unanswered].into_iter().any(|ranks| !ranks.is_empty())
    }

    /// The one series of that name without tags.
    pub(crate) fn series(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.name == name && series.tags.is_empty())
    }
}

/// The instance that answered.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Whole {
    /// Its number of brokers.
    pub(crate) size: u32,
    /// Their hosts by rank, as a hostlist (RFC 29), where Flux knows them.
    pub(crate) hostlist: Option<String>,
}

/// Whom an answer covers, as idsets.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(crate) struct Ranks {
    pub(crate) covered: String,
    /// All of the next three.
    pub(crate) missing: String,
    /// The broker is down.
    #[serde(default)]
    pub(crate) offline: String,
    /// The broker has no stats-agg.
    #[serde(default)]
    pub(crate) absent: String,
    /// It had, and has sent nothing for three periods.
    #[serde(default)]
    pub(crate) silent: String,
    /// The age of the oldest contribution, in seconds.
    pub(crate) oldest: f64,
}

/// One series.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "Written")]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) tags: BTreeMap<String, String>,
    /// The rank that measured it, or at the top of the subtree; `None`: of the whole instance.
    pub(crate) rank: Option<u32>,
    /// The ranks of the subtree, an idset.
    pub(crate) ranks: Option<String>,
    /// What it counts, where its name does not end like that: `seconds`, `bytes`.
    pub(crate) unit: Option<String>,
    pub(crate) values: Values,
    /// What it gained or was lately, where that was asked for.
    pub(crate) since: Option<Since>,
}

/// What a series amounts to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Values {
    /// Since the load or the last clear; per second in the last period; the rank with the highest rate.
    Counter { total: f64, rate: f64, max: Option<(u32, f64)> },
    /// Of `count` ranks.
    Gauge { count: u64, sum: f64, min: Extreme, max: Extreme },
    /// `count` samples; the shape is absent without any.
    Timer { count: u64, rate: f64, sum: f64, shape: Option<Shape>, relative_error: f64 },
    /// Distinct members.
    Set { estimate: f64, relative_error: f64 },
    /// A type that this version does not know.
    Other(String),
}

impl Values {
    /// As answers call the type.
    pub(crate) fn kind(&self) -> &str {
        match self {
            Values::Counter { .. } => "counter",
            Values::Gauge { .. } => "gauge",
            Values::Timer { .. } => "timer",
            Values::Set { .. } => "set",
            Values::Other(kind) => kind,
        }
    }
}

/// A state of one rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub(crate) struct Extreme {
    pub(crate) value: f64,
    pub(crate) rank: u32,
    /// When it came about, in seconds since 1970, where the rank says so.
    #[serde(default)]
    pub(crate) time: Option<f64>,
}

/// The distribution of samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Shape {
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) stddev: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
}

/// Recent slots of the history: what a flow gained, or what a state was.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(crate) struct Since {
    /// How much time they are; less than was asked for where the history is shorter.
    pub(crate) seconds: f64,
    #[serde(default)]
    pub(crate) total: f64,
    #[serde(default)]
    pub(crate) rate: f64,
    /// A value for each slot, the oldest first: gained per second; of a gauge, the sum at the slot's end. `None`: unknown.
    #[serde(default)]
    pub(crate) points: Vec<Option<f64>>,
    /// Of a gauge, the greatest of a single rank at the same times.
    #[serde(default)]
    pub(crate) max: Vec<Option<f64>>,
}

impl Since {
    /// The mean of the points that are known.
    pub(crate) fn average(&self) -> Option<f64> {
        let known: Vec<f64> = self.points.iter().flatten().copied().collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    }

    /// Of a gauge, the greatest of a single rank.
    pub(crate) fn greatest(&self) -> Option<f64> {
        self.max.iter().flatten().copied().max_by(f64::total_cmp)
    }
}

/// A series as it is written: the fields of all types side by side. (A tagged enum would be read twice.)
#[derive(Deserialize)]
struct Written {
    name: String,
    #[serde(default)]
    tags: BTreeMap<String, String>,
    #[serde(rename = "type")]
    kind: String,
    rank: Option<u32>,
    ranks: Option<String>,
    unit: Option<String>,
    total: Option<Number>,
    rate: Option<Number>,
    count: Option<Number>,
    sum: Option<Number>,
    min: Option<Edge>,
    max: Option<Edge>,
    stddev: Option<Number>,
    p50: Option<Number>,
    p90: Option<Number>,
    p99: Option<Number>,
    estimate: Option<Number>,
    relative_error: Option<Number>,
    since: Option<Since>,
}

/// A number; or what a type that this version does not know has under the same name.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Number {
    Real(f64),
    Other(IgnoredAny),
}

impl Number {
    fn real(self) -> Option<f64> {
        match self {
            Number::Real(real) => Some(real),
            Number::Other(_) => None,
        }
    }
}

/// `min` and `max`: a number, a rank's state, or a rank's rate; or what this version does not know.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Edge {
    Plain(f64),
    State(Extreme),
    Rate { rank: u32, rate: f64 },
    Other(IgnoredAny),
}

impl Edge {
    fn plain(self) -> f64 {
        match self {
            Edge::Plain(value) => value,
            Edge::State(state) => state.value,
            Edge::Rate { rate, .. } => rate,
            Edge::Other(_) => 0.0,
        }
    }

    fn state(self) -> Extreme {
        match self {
            Edge::State(state) => state,
            Edge::Rate { rank, rate } => Extreme { value: rate, rank, time: None },
            Edge::Plain(value) => Extreme { value, ..Extreme::default() },
            Edge::Other(_) => Extreme::default(),
        }
    }
}

impl From<Written> for Series {
    fn from(written: Written) -> Self {
        let Written { min, max, .. } = written;
        let known = |number: Option<Number>| number.and_then(Number::real);
        let or_zero = |number| known(number).unwrap_or_default();
        let state = |edge: Option<Edge>| edge.map_or_else(Extreme::default, Edge::state);
        // A float to integer cast saturates.
        let count = or_zero(written.count) as u64;
        let values = match written.kind.as_str() {
            "counter" => Values::Counter {
                total: or_zero(written.total),
                rate: or_zero(written.rate),
                max: max.map(Edge::state).map(|state| (state.rank, state.value)),
            },
            "gauge" => Values::Gauge { count, sum: or_zero(written.sum), min: state(min), max: state(max) },
            "timer" => {
                let quantiles =
                    (known(written.stddev), known(written.p50), known(written.p90), known(written.p99));
                let shape = match (min, max, quantiles) {
                    (Some(min), Some(max), (Some(stddev), Some(p50), Some(p90), Some(p99))) => {
                        Some(Shape { min: min.plain(), max: max.plain(), stddev, p50, p90, p99 })
                    }
                    _ => None,
                };
                let (rate, sum) = (or_zero(written.rate), or_zero(written.sum));
                Values::Timer { count, rate, sum, shape, relative_error: or_zero(written.relative_error) }
            }
            "set" => Values::Set {
                estimate: or_zero(written.estimate),
                relative_error: or_zero(written.relative_error),
            },
            _ => Values::Other(written.kind),
        };
        let Written { name, tags, rank, ranks, unit, since, .. } = written;
        Series { name, tags, rank, ranks, unit, values, since }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer() -> Answer {
        serde_json::from_value(json!({
            "version": 1, "time": 1_700_000_000.7, "instance": { "size": 8, "hostlist": "n[0-7]" }, "period": 2.0,
            "ranks": {
                "covered": "0-5", "missing": "6-7", "offline": "7", "absent": "", "silent": "6", "oldest": 0.5
            },
            "series": [
                { "name": "modules.kvs.wakeups", "tags": {}, "type": "counter", "rank": 3, "total": 1200, "rate": 100.0,
                  "max": { "rank": 2, "rate": 40.0 },
                  "since": { "seconds": 60.0, "total": 6000, "rate": 100.0, "points": [99.5, 100.5] } },
                { "name": "modules.kvs.longest_work_s", "tags": { "a": "b" }, "type": "gauge", "count": 7, "sum": 0.2,
                  "min": { "value": 0.01, "rank": 4 }, "max": { "value": 0.1, "rank": 2, "time": 1_700_000_000 },
                  "since": { "seconds": 4.0, "points": [null, 0.2], "max": [null, 0.1] } },
                { "name": "t", "tags": {}, "type": "timer", "count": 2, "rate": 1.0, "sum": 0.05, "min": 1e-6, "max": 0.1,
                  "stddev": 1e-5, "p50": 4e-5, "p90": 5e-5, "p99": 9e-5, "relative_error": 0.0078 },
                { "name": "none", "tags": {}, "type": "timer", "count": 0, "rate": 0.0, "sum": 0 },
                { "name": "s", "tags": {}, "type": "set", "estimate": 3.0, "relative_error": 0.0 },
                { "name": "later", "tags": {}, "type": "topk", "total": [1] }
            ]
        }))
        .unwrap()
    }

    #[test]
    fn every_type_is_read_and_an_unknown_one_does_not_spoil_the_rest() {
        let answer = answer();
        let values: Vec<_> = answer.series.iter().map(|series| &series.values).collect();
        assert_eq!(values[0], &Values::Counter { total: 1200.0, rate: 100.0, max: Some((2, 40.0)) });
        let max = Extreme { value: 0.1, rank: 2, time: Some(1.7e9) };
        let min = Extreme { value: 0.01, rank: 4, time: None };
        assert_eq!(values[1], &Values::Gauge { count: 7, sum: 0.2, min, max });
        let shape = Shape { min: 1e-6, max: 0.1, stddev: 1e-5, p50: 4e-5, p90: 5e-5, p99: 9e-5 };
        let timer = |count, rate, sum, shape, relative_error| Values::Timer {
            count,
            rate,
            sum,
            shape,
            relative_error,
        };
        assert_eq!(values[2], &timer(2, 1.0, 0.05, Some(shape), 0.0078));
        assert_eq!(values[3], &timer(0, 0.0, 0.0, None, 0.0));
        assert_eq!(values[4], &Values::Set { estimate: 3.0, relative_error: 0.0 });
        assert_eq!(values[5], &Values::Other("topk".into()));
        let since = answer.series("modules.kvs.wakeups").unwrap().since.as_ref().unwrap();
        assert_eq!(since.points, [Some(99.5), Some(100.5)]);
        let since = answer.series[1].since.as_ref().unwrap();
        assert_eq!((&since.points[..], &since.max[..]), (&[None, Some(0.2)][..], &[None, Some(0.1)][..]));
        assert_eq!(answer.series("modules.kvs.longest_work_s"), None, "it has tags");
    }

    #[test]
    fn ranks_that_are_switched_off_do_not_make_an_answer_partial() {
        let mut answer = answer();
        assert!(answer.is_partial());
        answer.ranks.silent.clear();
        assert!(!answer.is_partial());
        answer.unanswered = "3".into();
        assert!(answer.is_partial());
    }
}
