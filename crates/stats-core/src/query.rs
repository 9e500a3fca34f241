//! Questions to a node, and its answers as JSON.
//!
//! Durations are nanoseconds inside and seconds in every answer, and no integer above 2^53 leaves: a JSON reader may
//! hold numbers as doubles, and jansson, which Flux uses, refuses integers beyond 64 bits.

use crate::amount::Amount;
use crate::node::Node;
use crate::schedule::Now;
use crate::series::{Key, Kind, SeriesId, Unit};
use crate::sketch::RELATIVE_ERROR;
use crate::value::{Samples, States};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde_json::{Map, Value, json};

/// The version of an answer.
const VERSION: u32 = 1;
/// The largest integer that a double holds exactly along with all smaller ones.
const INTEGER_MAX: i128 = 1 << 53;
/// Patterns that one question may have, and the longest.
const PATTERNS_MAX: usize = 100;
const PATTERN_MAX: usize = 300;
/// The key of a value whose name is also the beginning of longer names.
const OWN_VALUE: &str = "value";

/// Which series are asked for.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// `None`: all.
    patterns: Option<GlobSet>,
    by_rank: bool,
}

/// A question that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct QueryError(String);

impl Query {
    /// From the payload of a request: `{"match":["modules.*.wakeups"],"by":"none"}`, both optional. In a pattern `*`
    /// is any text within one part of a dotted name, `**` any number of parts, `?` one character, `[ab]` and `{a,b}`
    /// alternatives.
    pub fn parse(payload: &Value) -> Result<Self, QueryError> {
        let bad = |text: String| Err(QueryError(text));
        let mut query = Query::default();
        for (key, value) in payload.as_object().into_iter().flatten() {
            match (key.as_str(), value) {
                ("match", Value::Array(patterns)) => query.patterns = patterns_of(patterns)?,
                ("by", Value::String(by)) if by == "none" => query.by_rank = false,
                ("by", Value::String(by)) if by == "rank" => query.by_rank = true,
                ("match", _) => return bad(format!("match: expected a list of patterns, got {value}")),
                ("by", _) => return bad(format!("by: expected \"none\" or \"rank\", got {value}")),
                _ => return bad(format!("{key}: unknown key; allowed: match, by")),
            }
        }
        Ok(query)
    }

    /// Whether each rank is asked for what it measured itself.
    pub fn by_rank(&self) -> bool {
        self.by_rank
    }

    fn matches(&self, name: &str) -> bool {
        self.patterns.as_ref().is_none_or(|patterns| patterns.is_match(name.replace('.', "/")))
    }
}

fn patterns_of(patterns: &[Value]) -> Result<Option<GlobSet>, QueryError> {
    if patterns.is_empty() {
        return Ok(None);
    }
    if patterns.len() > PATTERNS_MAX {
        return Err(QueryError(format!(
            "match: {} patterns, at most {PATTERNS_MAX} are allowed",
            patterns.len()
        )));
    }
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let text = pattern.as_str().filter(|text| text.len() <= PATTERN_MAX);
        let text = text.ok_or_else(|| {
            QueryError(format!("match: expected texts of at most {PATTERN_MAX} bytes, got {pattern}"))
        })?;
        // globset keeps `*` from crossing a separator, and its separator is the slash.
        let glob = GlobBuilder::new(&text.replace('.', "/")).literal_separator(true).build();
        set.add(glob.map_err(|error| QueryError(format!("match: {text:?}: {}", error.kind())))?);
    }
    set.build().map(Some).map_err(|error| QueryError(format!("match: {}", error.kind())))
}

impl Node {
    /// The whole answer, but for what only the caller knows (`instance`).
    pub fn answer(&self, query: &Query, now: Now) -> Value {
        let status = self.coverage.status(now, self.expiry_ns());
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
            "period": self.period_ns() as f64 / 1e9,
            "series": self.series(query),
        })
    }

    fn series(&self, query: &Query) -> Vec<Value> {
        let states = self.states_now();
        let mut named: Vec<_> = self.catalog.iter().filter(|(_, key)| query.matches(key.name())).collect();
        named.sort_by_key(|(_, key)| *key);
        named
            .into_iter()
            .filter_map(|(id, key)| {
                let mut series = self.values(id, key, states.get(&id))?;
                series.insert("name".into(), key.name().into());
                let tags = key.tags().iter().map(|(k, v)| (k.clone(), v.as_str().into()));
                series.insert("tags".into(), Value::Object(tags.collect()));
                Some(Value::Object(series))
            })
            .collect()
    }

    /// `None` for a gauge that no rank reports. A flow that never gained anything is zero, not absent.
    fn values(&self, id: SeriesId, key: &Key, states: Option<&States>) -> Option<Map<String, Value>> {
        let unit = key.unit();
        let value = match key.kind() {
            Kind::Counter => {
                let counted = self.totals.counters.get(&id).copied().unwrap_or_default();
                let mut value = json!({
                    "type": "counter",
                    "total": number(counted.total, unit),
                    "rate": real(counted.rate, unit),
                });
                if counted.peak.rate != Amount::ZERO {
                    value["max"] =
                        json!({ "rank": counted.peak.rank, "rate": real(counted.peak.rate, unit) });
                }
                value
            }
            Kind::Gauge => states_value(states?, unit),
            Kind::Timer => {
                let timed = self.totals.timers.get(&id).cloned().unwrap_or_default();
                let mut value = samples_value(&timed.total, unit);
                value["type"] = "timer".into();
                value["rate"] = real(timed.rate, Unit::None);
                value["relative_error"] = RELATIVE_ERROR.into();
                value
            }
        };
        match value {
            Value::Object(map) => Some(map),
            _ => None,
        }
    }

    /// The merged tree, nested by the parts of each name: a counter is its total, a gauge and a timer are objects of
    /// numbers. Series that differ in their tags only are merged; a name that is also the beginning of longer names
    /// has its own number under `value`.
    pub fn tree(&self) -> Value {
        let mut root = Map::new();
        let mut counters: std::collections::BTreeMap<&str, (Amount, Unit)> = Default::default();
        let mut timers: std::collections::BTreeMap<&str, (Samples, Unit)> = Default::default();
        let mut gauges: std::collections::BTreeMap<&str, (States, Unit)> = Default::default();
        let states = self.states_now();
        for (id, key) in self.catalog.iter() {
            let (name, unit) = (key.name(), key.unit());
            match key.kind() {
                Kind::Counter => {
                    let total = self.totals.counters.get(&id).map_or(Amount::ZERO, |counted| counted.total);
                    let sum = counters.entry(name).or_insert((Amount::ZERO, unit));
                    sum.0 = sum.0.plus(total);
                }
                Kind::Timer => {
                    let sum = timers.entry(name).or_insert_with(|| (Samples::default(), unit));
                    if let Some(timed) = self.totals.timers.get(&id) {
                        sum.0.merge(&timed.total);
                    }
                }
                Kind::Gauge => {
                    if let Some(&more) = states.get(&id) {
                        let merge = |(states, _): &mut (States, Unit)| *states = states.merged(more);
                        gauges.entry(name).and_modify(merge).or_insert((more, unit));
                    }
                }
            }
        }
        for (name, (states, unit)) in gauges {
            let mut value = states_value(&states, unit);
            for extreme in ["min", "max"] {
                value[extreme] = value[extreme]["value"].take();
            }
            insert(&mut root, name, strip(value));
        }
        for (name, (samples, unit)) in timers {
            insert(&mut root, name, strip(samples_value(&samples, unit)));
        }
        for (name, (total, unit)) in counters {
            insert(&mut root, name, number(total, unit));
        }
        Value::Object(root)
    }
}

/// Without `type`, which is text.
fn strip(mut value: Value) -> Value {
    if let Value::Object(map) = &mut value {
        map.remove("type");
    }
    value
}

fn insert(map: &mut Map<String, Value>, name: &str, value: Value) {
    match name.split_once('.') {
        None => match (map.get_mut(name), value) {
            (Some(Value::Object(branch)), Value::Object(more)) => branch.extend(more),
            (Some(Value::Object(branch)), value) => {
                branch.insert(OWN_VALUE.into(), value);
            }
            (_, value) => {
                map.insert(name.into(), value);
            }
        },
        Some((first, rest)) => {
            let branch = map.entry(first).or_insert_with(|| Value::Object(Map::new()));
            if !branch.is_object() {
                let own = branch.take();
                *branch = json!({ OWN_VALUE: own });
            }
            if let Value::Object(branch) = branch {
                insert(branch, rest, value);
            }
        }
    }
}

fn states_value(states: &States, unit: Unit) -> Value {
    let extreme = |(value, rank): (Amount, u32)| json!({ "value": number(value, unit), "rank": rank });
    json!({
        "type": "gauge",
        "count": states.count,
        "sum": number(states.sum, unit),
        "min": extreme(states.min),
        "max": extreme(states.max),
    })
}

fn samples_value(samples: &Samples, unit: Unit) -> Value {
    let whole = |sample: u64| number(Amount::whole(sample.into()), unit);
    let sum = Amount::whole(i128::try_from(samples.sum()).unwrap_or(i128::MAX));
    let mut value = json!({ "count": samples.count(), "sum": number(sum, unit) });
    if let Some((min, max)) = samples.range() {
        value["min"] = whole(min);
        value["max"] = whole(max);
        for (name, q) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
            let quantile = samples.quantile(q).unwrap_or(0.0);
            value[name] = if unit == Unit::Nanoseconds { quantile / 1e9 } else { quantile }.into();
        }
    }
    value
}

/// An amount as it is shown: whole where it is whole and a double can hold it.
fn number(amount: Amount, unit: Unit) -> Value {
    match amount.as_whole() {
        Some(whole) if unit != Unit::Nanoseconds && whole.abs() <= INTEGER_MAX => Value::from(whole as i64),
        _ => real(amount, unit),
    }
}

fn real(amount: Amount, unit: Unit) -> Value {
    let value = amount.to_f64();
    Value::from(if unit == Unit::Nanoseconds { value / 1e9 } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stays_within_one_part_of_a_name() {
        let query = |pattern: &str| Query::parse(&json!({ "match": [pattern] })).unwrap();
        assert!(query("modules.*.wakeups").matches("modules.kvs.wakeups"));
        assert!(!query("modules.*.wakeups").matches("modules.kvs.tx.wakeups"));
        assert!(query("modules.**").matches("modules.kvs.tx.request"));
        assert!(query("modules.{kvs,job-*}.work_s").matches("modules.job-exec.work_s"));
        assert!(!query("modules.kvs").matches("modules.kvs.work_s"));
        assert!(Query::default().matches("anything"));
    }

    #[test]
    fn a_wrong_question_is_told_what_is_allowed() {
        for (payload, said) in [
            (json!({ "mach": [] }), "mach: unknown key; allowed: match, by"),
            (json!({ "match": "a" }), "match: expected a list of patterns, got \"a\""),
            (json!({ "match": ["a[" ] }), "match: \"a[\": "),
            (json!({ "match": [1] }), "match: expected texts of at most 300 bytes, got 1"),
            (json!({ "by": "node" }), "by: expected \"none\" or \"rank\", got \"node\""),
        ] {
            let error = Query::parse(&payload).unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }

    #[test]
    fn a_name_that_is_leaf_and_branch_keeps_both() {
        for names in [["a.b", "a"], ["a", "a.b"]] {
            let mut map = Map::new();
            for name in names {
                insert(&mut map, name, json!(name.len()));
            }
            assert_eq!(Value::Object(map), json!({ "a": { "value": 1, "b": 3 } }));
        }
    }

    #[test]
    fn no_integer_beyond_a_double_s_leaves() {
        assert!(number(Amount::whole(1 << 60), Unit::None).is_f64());
        assert_eq!(number(Amount::whole(1 << 53), Unit::Bytes), json!(1_i64 << 53));
        assert_eq!(number(Amount::whole(1_500_000_000), Unit::Nanoseconds), json!(1.5));
    }
}
