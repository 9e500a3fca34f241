//! Answers, as they leave.
//!
//! Durations are nanoseconds inside and seconds in every answer, and no integer above 2^53 leaves: a JSON reader may
//! hold numbers as doubles, and jansson, which Flux uses, refuses integers beyond 64 bits.

use crate::amount::Amount;
use crate::members::Members;
use crate::node::Node;
use crate::query::Query;
use crate::schedule::Now;
use crate::series::{Key, Kind, SeriesId, Unit};
use crate::sketch::RELATIVE_ERROR;
use crate::value::{Peak, Samples, States};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The version of an answer.
const VERSION: u32 = 1;
/// The largest integer that a double holds exactly along with all smaller ones.
const INTEGER_MAX: i128 = 1 << 53;

/// A number as it is shown: whole where it is whole and a double can hold it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// At most 2^53 in magnitude.
    Whole(i64),
    /// Any other.
    Real(f64),
}

impl Number {
    pub(crate) fn new(amount: Amount, unit: Unit) -> Self {
        match amount.as_whole() {
            Some(whole) if unit != Unit::Nanoseconds && whole.abs() <= INTEGER_MAX => {
                Number::Whole(whole as i64)
            }
            _ => Number::Real(real(amount, unit)),
        }
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match *self {
            Number::Whole(whole) => to.serialize_i64(whole),
            Number::Real(real) => to.serialize_f64(real),
        }
    }
}

/// In the unit of answers.
pub(crate) fn real(amount: Amount, unit: Unit) -> f64 {
    if unit == Unit::Nanoseconds { amount.to_f64() / 1e9 } else { amount.to_f64() }
}

/// What one series amounts to.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// A total, its rate in the last period, and the rank with the highest rate.
    Counter {
        /// Since the load, or the last clear.
        total: Number,
        /// Per second, in the last period.
        rate: f64,
        /// The rank whose rate was the highest, and that rate.
        max: Option<(u32, f64)>,
    },
    /// A state of several ranks.
    Gauge {
        /// How many.
        count: u64,
        /// Their sum.
        sum: Number,
        /// The least, and whose it is.
        min: (Number, u32),
        /// The greatest, and whose it is.
        max: (Number, u32),
    },
    /// Samples.
    Timer {
        /// How many.
        count: u64,
        /// Samples a second, in the last period.
        rate: f64,
        /// Their sum.
        sum: Number,
        /// Least, greatest, standard deviation, and the quantiles 0.5, 0.9 and 0.99; `None` without samples.
        shape: Option<[f64; 6]>,
    },
    /// Distinct members.
    Set {
        /// How many.
        estimate: f64,
        /// The standard error of that, relative.
        error: f64,
    },
}

/// What a series gained in recent slots of the history.
#[derive(Debug, Clone, PartialEq)]
pub struct Recent {
    /// How much time the slots are, in seconds.
    pub seconds: f64,
    /// What was gained in it.
    pub total: f64,
    /// Per second in each slot, the oldest first.
    pub points: Vec<f64>,
}

/// One series of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Series<'a> {
    /// Its name, tags, kind and unit.
    pub key: &'a Key,
    /// What it amounts to.
    pub values: Values,
    /// What it gained recently, where that was asked for.
    pub since: Option<Recent>,
}

impl Serialize for Series<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("name", self.key.name())?;
        map.serialize_entry("tags", &Tags(self.key.tags()))?;
        map.serialize_entry("type", self.key.kind().name())?;
        match &self.values {
            Values::Counter { total, rate, max } => {
                map.serialize_entry("total", total)?;
                map.serialize_entry("rate", rate)?;
                if let Some((rank, rate)) = max {
                    map.serialize_entry("max", &json!({ "rank": rank, "rate": rate }))?;
                }
            }
            Values::Gauge { count, sum, min, max } => {
                map.serialize_entry("count", count)?;
                map.serialize_entry("sum", sum)?;
                for (name, (value, rank)) in [("min", min), ("max", max)] {
                    map.serialize_entry(name, &json!({ "value": value, "rank": rank }))?;
                }
            }
            Values::Timer { count, rate, sum, shape } => {
                map.serialize_entry("count", count)?;
                map.serialize_entry("rate", rate)?;
                map.serialize_entry("sum", sum)?;
                for (name, value) in SHAPE.iter().zip(shape.iter().flatten()) {
                    map.serialize_entry(name, value)?;
                }
                map.serialize_entry("relative_error", &RELATIVE_ERROR)?;
            }
            Values::Set { estimate, error } => {
                map.serialize_entry("estimate", estimate)?;
                map.serialize_entry("relative_error", error)?;
            }
        }
        if let Some(since) = &self.since {
            let (seconds, total, points) = (since.seconds, since.total, &since.points);
            let rate = if seconds > 0.0 { total / seconds } else { 0.0 };
            let since = json!({ "seconds": seconds, "total": total, "rate": rate, "points": points });
            map.serialize_entry("since", &since)?;
        }
        map.end()
    }
}

/// The names of a timer's shape.
const SHAPE: [&str; 6] = ["min", "max", "stddev", "p50", "p90", "p99"];

struct Tags<'a>(&'a [(String, String)]);

impl Serialize for Tags<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// Whose numbers are wanted.
#[derive(Clone, Copy, PartialEq)]
enum Of {
    /// Those of the whole subtree.
    All,
    /// Those that this rank measured.
    Own,
}

impl Node {
    /// The whole answer, but for what only the caller knows (`instance`): of this node's subtree, which is the
    /// instance at rank 0.
    pub fn answer(&self, query: &Query, now: Now) -> Value {
        self.framed(&self.series(&self.select(query), query, now), now)
    }

    /// What this rank alone measured: its part of an answer by rank. [`combine`] makes one of several.
    pub fn own_answer(&self, query: &Query, now: Now) -> Value {
        let own: Vec<_> =
            self.select(query).into_iter().filter_map(|id| self.one(id, query, now, Of::Own)).collect();
        self.framed(&own, now)
    }

    fn framed(&self, series: &[Series<'_>], now: Now) -> Value {
        let mut answer = self.frame(now);
        answer["series"] = serde_json::to_value(series).unwrap_or_default();
        answer
    }

    /// An answer without its series: for callers that send those in chunks.
    pub fn frame(&self, now: Now) -> Value {
        let status = self.coverage.status(now);
        let mut missing = status.offline.clone();
        missing.add(&status.absent);
        missing.add(&status.silent);
        json!({
            "version": VERSION,
            "time": now.wall_ns as f64 / 1e9,
            "ranks": {
                "covered": status.covered.to_string(),
                "missing": missing.to_string(),
                "offline": status.offline.to_string(),
                "absent": status.absent.to_string(),
                "silent": status.silent.to_string(),
                "oldest": status.oldest_ns as f64 / 1e9,
            },
            "period": self.granted_period_ns() as f64 / 1e9,
        })
    }

    /// The series that are asked for, in the order of names and tags.
    pub fn select(&self, query: &Query) -> Vec<SeriesId> {
        let mut named: Vec<_> = self.catalog.iter().filter(|(_, key)| query.matches(key.name())).collect();
        named.sort_unstable_by_key(|(_, key)| *key);
        named.into_iter().map(|(id, _)| id).collect()
    }

    /// Some of the series that were selected, of the whole subtree. A gauge that no rank reports is left out; a flow
    /// that never gained anything is zero.
    pub fn series(&self, selected: &[SeriesId], query: &Query, now: Now) -> Vec<Series<'_>> {
        let gauges = selected.iter().any(|id| id.kind() == Kind::Gauge);
        let states = if gauges { self.states_now() } else { BTreeMap::new() };
        let one = |&id: &SeriesId| match id.kind() {
            Kind::Gauge => self.gauge(id, *states.get(&id)?),
            _ => self.one(id, query, now, Of::All),
        };
        selected.iter().filter_map(one).collect()
    }

    fn gauge(&self, id: SeriesId, states: States) -> Option<Series<'_>> {
        let key = self.catalog.key(id)?;
        let number = |(value, rank): (Amount, u32)| (Number::new(value, key.unit()), rank);
        let States { count, sum, min, max } = states;
        let sum = Number::new(sum, key.unit());
        let values = Values::Gauge { count, sum, min: number(min), max: number(max) };
        Some(Series { key, values, since: None })
    }

    fn one(&self, id: SeriesId, query: &Query, now: Now, of: Of) -> Option<Series<'_>> {
        let key = self.catalog.key(id)?;
        let unit = key.unit();
        let seconds = self.own.last_ns as f64 / 1e9;
        let rate = |gained: f64| if seconds > 0.0 { gained / seconds } else { 0.0 };
        let below = (of == Of::All).then_some(&self.below);
        let values = match key.kind() {
            Kind::Gauge => {
                return self.gauge(id, States::of(*self.gauges.get(&id)?, self.config().rank));
            }
            Kind::Counter => {
                let (mine, theirs) = (self.own.counter(id), below.and_then(|below| below.counter(id)));
                let (mut total, mut last, mut peak) = (Amount::ZERO, Amount::ZERO, Peak::default());
                for counted in mine.into_iter().chain(theirs) {
                    total = total.plus(counted.total);
                    last = last.plus(counted.last);
                    peak.merge(counted.peak);
                }
                if of == Of::Own && mine.is_none() {
                    return None;
                }
                let max = peak.rank().map(|rank| (rank, real(peak.rate(), unit)));
                Values::Counter { total: Number::new(total, unit), rate: rate(real(last, unit)), max }
            }
            Kind::Timer => {
                let (mine, theirs) = (self.own.timer(id), below.and_then(|below| below.timer(id)));
                let (mut samples, mut last) = (Samples::default(), 0);
                for timed in mine.into_iter().chain(theirs) {
                    samples.merge(&timed.total);
                    last += timed.last.0;
                }
                if of == Of::Own && mine.is_none() {
                    return None;
                }
                timer(&samples, unit, rate(last as f64))
            }
            Kind::Set => {
                let (mine, theirs) = (self.own.set(id), below.and_then(|below| below.set(id)));
                let mut members = Members::default();
                mine.into_iter().chain(theirs).for_each(|more| members.merge(more));
                if of == Of::Own && mine.is_none() {
                    return None;
                }
                Values::Set { estimate: members.estimate(), error: members.error() }
            }
        };
        let since = query.since_ns().and_then(|since_ns| self.recent(id, unit, since_ns, now, of));
        Some(Series { key, values, since })
    }

    /// `None` for a set, of which no history is kept.
    fn recent(&self, id: SeriesId, unit: Unit, since_ns: u64, now: Now, of: Of) -> Option<Recent> {
        if id.kind() == Kind::Set {
            return None;
        }
        let below = (of == Of::All).then_some(&self.below);
        let stores = || [Some(&self.own), below].into_iter().flatten();
        let rings = |store: &crate::store::Store, slot| {
            let counter = store.counter(id).and_then(|counted| counted.ring.as_ref());
            let ring = counter.or_else(|| store.timer(id).and_then(|timed| timed.rings[0].as_ref()));
            ring.map_or(Amount::ZERO, |ring| ring.get(slot))
        };
        // Points of a timer count samples, which have no unit.
        let unit = if id.kind() == Kind::Timer { Unit::None } else { unit };
        let (mut total, mut seconds, mut points) = (Amount::ZERO, 0.0, Vec::new());
        for (slot, _, length_ns) in self.own.timeline.recent(now.wall_ns, since_ns) {
            let gained = stores().fold(Amount::ZERO, |sum, store| sum.plus(rings(store, slot)));
            let length = length_ns as f64 / 1e9;
            total = total.plus(gained);
            seconds += length;
            points.push(if length > 0.0 { real(gained, unit) / length } else { 0.0 });
        }
        Some(Recent { seconds, total: real(total, unit), points })
    }
}

pub(crate) fn timer(samples: &Samples, unit: Unit, rate: f64) -> Values {
    let scale = if unit == Unit::Nanoseconds { 1e-9 } else { 1.0 };
    let sum = Amount::whole(i128::try_from(samples.sum()).unwrap_or(i128::MAX));
    let shape = samples.range().map(|(min, max)| {
        let quantile = |q| samples.quantile(q).unwrap_or(0.0);
        let deviation = samples.deviation().unwrap_or(0.0);
        [min as f64, max as f64, deviation, quantile(0.5), quantile(0.9), quantile(0.99)]
            .map(|value| value * scale)
    });
    Values::Timer { count: samples.count(), rate, sum: Number::new(sum, unit), shape }
}

/// One answer of several, as an answer by rank: each part's series say of which `rank` (or, of a subtree, of which
/// `ranks`) they are. `frame` is the asker's own, and `missing` those who did not answer.
pub fn combine(
    frame: Value,
    parts: Vec<(u32, Value)>,
    missing: &crate::idset::IdSet,
    subtrees: bool,
) -> Value {
    let mut all = Vec::new();
    for (rank, mut part) in parts {
        let covered = part["ranks"]["covered"].take();
        let Value::Array(series) = part["series"].take() else { continue };
        for mut one in series {
            if let Value::Object(one) = &mut one {
                one.insert("rank".into(), rank.into());
                if subtrees {
                    one.insert("ranks".into(), covered.clone());
                }
            }
            all.push(one);
        }
    }
    let mut answer = frame;
    answer["unanswered"] = missing.to_string().into();
    answer["series"] = Value::Array(all);
    answer
}

/// Names of answers that a tree has, too.
pub(crate) fn timer_map(samples: &Samples, unit: Unit) -> Map<String, Value> {
    let mut map = Map::new();
    if let Values::Timer { count, sum, shape, .. } = timer(samples, unit, 0.0) {
        map.insert("count".into(), count.into());
        map.insert("sum".into(), json!(sum));
        for (name, value) in SHAPE.iter().zip(shape.iter().flatten()) {
            map.insert((*name).into(), (*value).into());
        }
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_integer_beyond_a_double_s_leaves() {
        let number = |amount, unit| serde_json::to_value(Number::new(amount, unit)).unwrap();
        assert!(number(Amount::whole(1 << 60), Unit::None).is_f64());
        assert_eq!(number(Amount::whole(1 << 53), Unit::Bytes), json!(1_i64 << 53));
        assert_eq!(number(Amount::whole(1_500_000_000), Unit::Nanoseconds), json!(1.5));
    }

    #[test]
    fn parts_by_rank_become_one_answer() {
        let part =
            |total: u32| json!({ "ranks": { "covered": "1" }, "series": [{ "name": "a", "total": total }] });
        let missing = "3".parse().unwrap();
        let answer = combine(json!({ "version": 1 }), vec![(1, part(5)), (2, part(6))], &missing, false);
        let series = json!([{ "name": "a", "total": 5, "rank": 1 }, { "name": "a", "total": 6, "rank": 2 }]);
        assert_eq!(answer, json!({ "version": 1, "unanswered": "3", "series": series }));
    }
}
