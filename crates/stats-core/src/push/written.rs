//! Metrics as a push has them.

use super::{Metric, Pushed};
use crate::amount::Amount;
use crate::series::Unit;
use crate::value::Samples;
use serde_json::{Map, Value, json};

impl Metric {
    /// What [`Metric::parse`] reads.
    pub fn to_json(&self) -> Value {
        let mut map = Map::new();
        map.insert("name".into(), self.key.name().into());
        let tags: Map<_, _> = self.key.tags().map(|(key, value)| (key.into(), value.into())).collect();
        if !tags.is_empty() {
            map.insert("tags".into(), Value::Object(tags));
        }
        let (kind, field, value) = match &self.value {
            Pushed::Count(amount) => ("counter", "value", written(*amount)),
            Pushed::Set(amount) => ("gauge", "value", written(*amount)),
            Pushed::Add(amount) => ("gauge", "add", written(*amount)),
            Pushed::Samples(samples) if self.key.unit() == Unit::Millionths => {
                ("histogram", "sketch", sketch(samples))
            }
            Pushed::Samples(samples) => ("timer", "sketch", sketch(samples)),
            Pushed::Members(members) => ("set", "sketch", members.to_hex().into()),
        };
        map.insert("type".into(), kind.into());
        map.insert(field.into(), value);
        if let Some(ttl) = self.ttl {
            map.insert("ttl".into(), ttl.as_secs_f64().into());
        }
        Value::Object(map)
    }
}

/// Integers beyond this are written as digits: readers of JSON keep doubles.
const INTEGER_MAX: u128 = 1 << 53;

pub(super) fn digits(number: u128, negative: bool) -> Value {
    let sign = if negative { "-" } else { "" };
    match i64::try_from(number) {
        Ok(small) if number <= INTEGER_MAX => (if negative { -small } else { small }).into(),
        _ => format!("{sign}{number}").into(),
    }
}

pub(super) fn written(amount: Amount) -> Value {
    match amount.as_whole() {
        Some(whole) => digits(whole.unsigned_abs(), whole < 0),
        None => amount.to_f64().into(),
    }
}

fn sketch(samples: &Samples) -> Value {
    let (min, max) = samples.range().unwrap_or_default();
    let buckets: Vec<Value> = samples.buckets().map(|(bucket, times)| json!([bucket, times])).collect();
    json!({
        "sum": digits(samples.sum(), false),
        "squares": digits(samples.sum_of_squares(), false),
        "min": digits(min.into(), false),
        "max": digits(max.into(), false),
        "buckets": buckets,
    })
}
