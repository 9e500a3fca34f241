//! Answers, as they leave.
//!
//! Durations are nanoseconds inside and seconds in every answer, and no integer above 2^53 leaves: a JSON reader may
//! hold numbers as doubles, and jansson, which Flux uses, refuses integers beyond 64 bits.

use crate::amount::Amount;
use crate::members::Members;
use crate::node::Node;
use crate::query::{Hidden, Query};
use crate::recent::Recent;
use crate::schedule::Now;
use crate::series::{Key, Kind, SeriesId, Unit};
use crate::sketch::RELATIVE_ERROR;
use crate::value::{Peak, Samples};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};

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
    /// `amount` in the unit of answers.
    pub fn new(amount: Amount, unit: Unit) -> Self {
        match amount.as_whole() {
            Some(parts) if unit != Unit::Nanoseconds && is_whole(parts, unit) => {
                Number::Whole((parts / unit.in_one() as i128) as i64)
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

/// Whether it is an integer, in the unit of answers, that may be shown as one.
fn is_whole(parts: i128, unit: Unit) -> bool {
    let one = unit.in_one() as i128;
    parts % one == 0 && (parts / one).abs() <= INTEGER_MAX
}

/// In the unit of answers.
pub(crate) fn real(amount: Amount, unit: Unit) -> f64 {
    amount.to_f64() / unit.in_one()
}

/// What one series amounts to.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// A total, its rate in the last period, and the rank with the highest rate.
    Counter {
        /// Since the load, or the last clear.
        total: Number,
        /// It has gone down before.
        falls: bool,
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
        /// When the greatest came about, if its rank says so: seconds since 1970.
        max_time: Option<u64>,
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

/// One series of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Series<'a> {
    /// Its name, tags, kind and unit.
    pub key: &'a Key,
    /// The rank that measured it, where one alone is asked for.
    pub rank: Option<u32>,
    /// What it amounts to.
    pub values: Values,
    /// What it gained or was recently, where that was asked for.
    pub since: Option<Recent>,
}

impl Serialize for Series<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("name", self.key.name())?;
        map.serialize_entry("tags", &Tags(self.key))?;
        map.serialize_entry("type", self.key.kind().name())?;
        if let Some(unit) = self.key.unit_unsaid() {
            map.serialize_entry("unit", unit)?;
        }
        if let Some(rank) = self.rank {
            map.serialize_entry("rank", &rank)?;
        }
        match &self.values {
            Values::Counter { total, falls, rate, max } => {
                map.serialize_entry("total", total)?;
                if *falls {
                    map.serialize_entry("falls", falls)?;
                }
                map.serialize_entry("rate", rate)?;
                if let Some((rank, rate)) = max {
                    map.serialize_entry("max", &json!({ "rank": rank, "rate": rate }))?;
                }
            }
            Values::Gauge { count, sum, min, max, max_time } => {
                map.serialize_entry("count", count)?;
                map.serialize_entry("sum", sum)?;
                for (name, (value, rank), time) in [("min", min, None), ("max", max, *max_time)] {
                    let mut state = json!({ "value": value, "rank": rank });
                    if let Some(time) = time {
                        state["time"] = time.into();
                    }
                    map.serialize_entry(name, &state)?;
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
            map.serialize_entry("since", since)?;
        }
        map.end()
    }
}

/// The names of a timer's shape.
const SHAPE: [&str; 6] = ["min", "max", "stddev", "p50", "p90", "p99"];

struct Tags<'a>(&'a Key);

impl Serialize for Tags<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.tags())
    }
}

/// Whose numbers are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// Those of the whole subtree, which is the instance at rank 0.
    Subtree,
    /// Those that this rank measured.
    Own,
}

impl Node {
    /// The whole answer at once, but for what only the caller knows (`instance`). A service that has more to do answers
    /// in [`Steps`](crate::Steps).
    pub fn answer(&self, query: &Query, now: Now) -> Value {
        let series: Vec<_> = self
            .select(query)
            .into_iter()
            .filter_map(|id| self.series(id, query.since_ns(), now, Whose::Subtree))
            .collect();
        let mut answer = self.frame(now);
        answer["series"] = serde_json::to_value(series).unwrap_or_default();
        answer
    }

    /// Which ranks an answer covers, which it does not and why, and how old the oldest contribution is, in seconds.
    pub(crate) fn ranks(&self, now: Now) -> Value {
        let status = self.coverage.status(now);
        let mut missing = status.offline.clone();
        missing.add(&status.absent);
        missing.add(&status.silent);
        json!({
            "covered": status.covered.to_string(),
            "missing": missing.to_string(),
            "offline": status.offline.to_string(),
            "absent": status.absent.to_string(),
            "silent": status.silent.to_string(),
            "oldest": status.oldest_ns as f64 / 1e9,
        })
    }

    /// An answer without its series: for callers that send those in chunks.
    pub fn frame(&self, now: Now) -> Value {
        json!({
            "version": VERSION,
            "time": now.wall_ns as f64 / 1e9,
            "ranks": self.ranks(now),
            "period": self.granted_period_ns() as f64 / 1e9,
        })
    }

    /// The series that are asked for, in the order of names and tags.
    pub fn select(&self, query: &Query) -> Vec<SeriesId> {
        let mut selected = self.look_for(query, 0, usize::MAX).0;
        self.sort(&mut selected);
        selected
    }

    /// Those of them among `count` series of the catalog from number `from` on; and whether that was the last.
    pub(crate) fn look_for(&self, query: &Query, from: usize, count: usize) -> (Vec<SeriesId>, bool) {
        let some = self.catalog.part(from, count);
        let found = some.filter(|(_, key)| query.selects(key)).map(|(id, _)| id).collect();
        (found, from.saturating_add(count) >= self.catalog.len())
    }

    pub(crate) fn sort(&self, selected: &mut [SeriesId]) {
        selected.sort_by_cached_key(|&id| self.catalog.key(id));
    }

    /// One series. `None`: a gauge that no rank reports, or what this rank alone does not measure.
    pub(crate) fn series(
        &self,
        id: SeriesId,
        since_ns: Option<u64>,
        now: Now,
        whose: Whose,
    ) -> Option<Series<'_>> {
        let key = self.catalog.key(id)?;
        let unit = key.unit();
        let own = whose == Whose::Own;
        let seconds = self.own.last_ns as f64 / 1e9;
        let rate = |gained: f64| if seconds > 0.0 { gained / seconds } else { 0.0 };
        let below = (!own).then_some(&self.below);
        let values = match key.kind() {
            Kind::Gauge => {
                let states = if own { self.own_state(id) } else { self.state(id) }?;
                let number = |(value, rank): (Amount, u32)| (Number::new(value, unit), rank);
                let (sum, min, max) = (Number::new(states.sum, unit), number(states.min), number(states.max));
                let max_time = Some(states.max_time_s).filter(|time| *time != 0);
                Values::Gauge { count: states.count, sum, min, max, max_time }
            }
            Kind::Counter => {
                let (mine, theirs) = (self.own.counter(id), below.and_then(|below| below.counter(id)));
                let (mut total, mut last, mut peak) = (Amount::ZERO, Amount::ZERO, Peak::default());
                let mut falls = false;
                for counted in mine.into_iter().chain(theirs) {
                    falls |= counted.falls;
                    total = total.plus(counted.total);
                    last = last.plus(counted.last);
                    peak.merge(counted.peak);
                }
                if own && mine.is_none() {
                    return None;
                }
                let max = peak.rank().map(|rank| (rank, real(peak.rate(), unit)));
                Values::Counter { total: Number::new(total, unit), falls, rate: rate(real(last, unit)), max }
            }
            Kind::Timer => {
                let (mine, theirs) = (self.own.timer(id), below.and_then(|below| below.timer(id)));
                let (mut samples, mut last) = (Samples::default(), 0);
                for timed in mine.into_iter().chain(theirs) {
                    samples.merge(&timed.total);
                    last += timed.last.0;
                }
                if own && mine.is_none() {
                    return None;
                }
                timer(&samples, unit, rate(last as f64))
            }
            Kind::Set => {
                let (mine, theirs) = (self.own.set(id), below.and_then(|below| below.set(id)));
                let mut members = Members::default();
                mine.into_iter().chain(theirs).for_each(|more| members.merge(more));
                if own && mine.is_none() {
                    return None;
                }
                Values::Set { estimate: members.estimate(), error: members.error() }
            }
        };
        let since = since_ns.and_then(|since_ns| self.recent(id, unit, since_ns, now, whose));
        Some(Series { key, rank: own.then_some(self.config().rank), values, since })
    }
}

pub(crate) fn timer(samples: &Samples, unit: Unit, rate: f64) -> Values {
    let sum = Amount::whole(i128::try_from(samples.sum()).unwrap_or(i128::MAX));
    let shape = samples.range().map(|(min, max)| {
        let quantile = |q| samples.quantile(q).unwrap_or(0.0);
        let deviation = samples.deviation().unwrap_or(0.0);
        [min as f64, max as f64, deviation, quantile(0.5), quantile(0.9), quantile(0.99)]
            .map(|value| value / unit.in_one())
    });
    Values::Timer { count: samples.count(), rate, sum: Number::new(sum, unit), shape }
}

/// The series of another rank's answer, as text: the inside of a JSON list. Of an answer about the subtree of
/// `subtree_of`, each says so (`rank`, and the `ranks` that are covered). Those that are `hidden` are left out.
pub fn series_text(mut answer: Value, subtree_of: Option<u32>, hidden: Option<Hidden>) -> String {
    let Value::Array(series) = answer["series"].take() else { return String::new() };
    let mut text = String::new();
    let is_hidden = |one: &Value| {
        let mut tags = one["tags"].as_object().into_iter().flat_map(|tags| tags.keys().map(String::as_str));
        hidden.is_some_and(|hidden| hidden(one["name"].as_str().unwrap_or_default(), &mut tags))
    };
    for mut one in series {
        if is_hidden(&one) {
            continue;
        }
        if let (Value::Object(one), Some(rank)) = (&mut one, subtree_of) {
            one.insert("rank".into(), rank.into());
            one.insert("ranks".into(), answer["ranks"]["covered"].clone());
        }
        join(&mut text, &one.to_string());
    }
    text
}

/// Adds to the inside of a JSON list.
pub(crate) fn join(list: &mut String, more: &str) {
    if !list.is_empty() && !more.is_empty() {
        list.push(',');
    }
    list.push_str(more);
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
        assert_eq!(number(Amount::whole(2_000_000_000), Unit::Nanoseconds), json!(2.0));
        assert_eq!(number(Amount::whole(7_000_000), Unit::Millionths), json!(7));
        assert_eq!(number(Amount::whole(7_500_000), Unit::Millionths), json!(7.5));
    }

    #[test]
    fn the_series_of_a_subtree_say_whose_they_are() {
        let part = json!({ "ranks": { "covered": "1,3-4" }, "series": [{ "name": "a" }, { "name": "b" }] });
        let list = |text: String| serde_json::from_str::<Value>(&format!("[{text}]")).unwrap();
        assert_eq!(list(series_text(part.clone(), None, None)), json!([{ "name": "a" }, { "name": "b" }]));
        let of = |name: &str| json!({ "name": name, "rank": 1, "ranks": "1,3-4" });
        assert_eq!(list(series_text(part.clone(), Some(1), None)), json!([of("a"), of("b")]));
        assert_eq!(series_text(json!({ "series": 5 }), Some(1), None), "");
        let hidden: Hidden = |name, tags| name == "a" || Iterator::any(&mut { tags }, |tag| tag == "jobid");
        assert_eq!(list(series_text(part, None, Some(hidden))), json!([{ "name": "b" }]));
        let tagged = json!({ "series": [{ "name": "c", "tags": { "jobid": "f1" } }] });
        assert_eq!(series_text(tagged, None, Some(hidden)), "");
    }
}
