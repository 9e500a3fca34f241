//! What is pushed: the text format of `docs/push.md`, read.

use crate::amount::Amount;
use crate::members::Members;
use crate::series::{Key, Kind, Refused, Unit, is_reserved, prefix};
use crate::value::Samples;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The version of the format.
pub const PUSH_VERSION: u64 = 1;
/// Metrics that one push may have.
pub const PUSH_METRICS_MAX: usize = 10_000;
/// Samples, or members, that one metric of a push may name.
const VALUES_MAX: usize = 10_000;
/// The longest `id`.
const ID_MAX: usize = 64;
/// The longest member of a set, in bytes.
const MEMBER_MAX: usize = 200;
/// Beyond this, 10^27, no value is taken: a thousand of the largest still add up exactly.
const VALUE_MAX: f64 = 1e27;
/// The longest time that a gauge may ask to be kept.
const TTL_MAX_S: f64 = 366.0 * 86_400.0;

/// A push as such: whose it is, and what is in it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Push {
    /// The handle and the number of its push.
    pub(crate) identity: Option<(String, u64)>,
    /// Values that the handle dropped.
    pub(crate) dropped: u64,
    pub(crate) metrics: Vec<Value>,
}

/// One metric with what it gained or is.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Which.
    pub key: Key,
    /// What.
    pub value: Pushed,
    /// How long a gauge is kept.
    pub ttl: Option<Duration>,
}

/// What a metric gained, or is.
#[derive(Debug, Clone, PartialEq)]
pub enum Pushed {
    /// A counter gained this.
    Count(Amount),
    /// A gauge is this now.
    Set(Amount),
    /// A gauge has changed by this.
    Add(Amount),
    /// A timer or a histogram has these samples more.
    Samples(Samples),
    /// A set has these members.
    Members(Members),
}

/// Why a metric, or a whole push, is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    /// The kind of reason, a word.
    pub reason: &'static str,
    /// In words.
    pub text: String,
}

impl Refusal {
    fn new(reason: &'static str, text: impl Into<String>) -> Self {
        Refusal { reason, text: text.into() }
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let reason = match refused {
            Refused::Name(_) => "name",
            Refused::Tags => "tags",
            Refused::Full(_) => "full",
            Refused::Share(_) => "share",
        };
        Refusal::new(reason, refused.to_string())
    }
}

fn bad(text: impl Into<String>) -> Refusal {
    Refusal::new("value", text)
}

/// The keys of an object, of which each is to be taken.
struct Fields<'a> {
    map: &'a mut Map<String, Value>,
}

impl Fields<'_> {
    fn take(&mut self, key: &str) -> Option<Value> {
        self.map.remove(key).filter(|value| !value.is_null())
    }

    fn number(&mut self, key: &str, or: u64) -> Result<u64, Refusal> {
        let Some(value) = self.take(key) else { return Ok(or) };
        let number = whole(&value).and_then(|number| u64::try_from(number).ok());
        number.ok_or_else(|| bad(format!("{key}: expected a whole number from 0, got {}", shown(&value))))
    }

    /// What was not taken is unknown.
    fn end(self, allowed: &str) -> Result<(), Refusal> {
        match self.map.keys().next() {
            Some(key) => Err(bad(format!("{}: unknown key; allowed: {allowed}", short(key)))),
            None => Ok(()),
        }
    }
}

/// So much of a value as an error may show.
fn shown(value: &Value) -> String {
    short(&value.to_string())
}

fn short(text: &str) -> String {
    const SHOWN: usize = 40;
    let cut: String = text.chars().take(SHOWN).collect();
    if cut.len() < text.len() { cut + "…" } else { cut }
}

/// A whole number, written as one or as its digits.
fn whole(value: &Value) -> Option<i128> {
    match value {
        Value::Number(number) => number.as_i128(),
        Value::String(digits) => digits.parse().ok(),
        _ => None,
    }
}

fn amount(key: &str, value: &Value) -> Result<Amount, Refusal> {
    let found = match whole(value) {
        Some(whole) => (whole.unsigned_abs() as f64 <= VALUE_MAX).then(|| Amount::whole(whole)),
        None => value.as_f64().filter(|real| real.abs() <= VALUE_MAX).and_then(Amount::nearest),
    };
    found.ok_or_else(|| bad(format!("{key}: expected a number up to 1e27, got {}", shown(value))))
}

impl Push {
    pub(crate) fn parse(mut payload: Value) -> Result<Self, Refusal> {
        let Value::Object(map) = &mut payload else { return Err(bad("expected a JSON object")) };
        let mut fields = Fields { map };
        match fields.number("version", 0)? {
            PUSH_VERSION => {}
            found => {
                return Err(bad(format!("version: expected {PUSH_VERSION}, got {found}")));
            }
        }
        let identity = match (fields.take("id"), fields.number("seq", 0)?) {
            (None, 0) => None,
            (Some(Value::String(id)), seq) if seq > 0 && is_id(&id) => Some((id, seq)),
            _ => {
                let form = "1 to 64 printable ASCII characters with a number from 1, or neither";
                return Err(bad(format!("id, seq: expected {form}")));
            }
        };
        let dropped = fields.number("dropped", 0)?;
        let metrics = match fields.take("metrics") {
            Some(Value::Array(metrics)) if metrics.len() <= PUSH_METRICS_MAX => metrics,
            _ => return Err(bad(format!("metrics: expected a list of at most {PUSH_METRICS_MAX}"))),
        };
        fields.end("version, id, seq, dropped, metrics")?;
        Ok(Push { identity, dropped, metrics })
    }
}

fn is_id(id: &str) -> bool {
    (1..=ID_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The name of a metric and the first part of it, as far as it has one, for who refuses it.
pub(crate) fn name_of(metric: &Value) -> (String, String) {
    const PREFIX_MAX: usize = 32;
    let name = metric["name"].as_str().unwrap_or_default();
    let valid = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let prefix: String = prefix(name).chars().take(PREFIX_MAX).map(valid).collect();
    (short(name), if prefix.is_empty() { "_".to_owned() } else { prefix })
}

impl Metric {
    /// A metric of a push. Names that are the service's own are refused.
    pub fn parse(mut metric: Value) -> Result<Self, Refusal> {
        let Value::Object(map) = &mut metric else { return Err(bad("a metric is expected to be an object")) };
        let mut fields = Fields { map };
        let Some(Value::String(name)) = fields.take("name") else {
            return Err(Refusal::new("name", "name: expected a text"));
        };
        if is_reserved(&name) {
            let text =
                format!("{:?}: names that begin with {}. are the service's own", short(&name), prefix(&name));
            return Err(Refusal::new("reserved", text));
        }
        let tags = match fields.take("tags") {
            None => Map::new(),
            Some(Value::Object(tags)) => tags,
            Some(_) => return Err(Refused::Tags.into()),
        };
        let tags: Option<Vec<(&str, &str)>> =
            tags.iter().map(|(key, value)| Some((key.as_str(), value.as_str()?))).collect();
        let tags = tags.ok_or(Refused::Tags)?;
        let key = |kind, unit| Key::new(&name, &tags, kind, unit);
        let kind = fields.take("type");
        let (key, value) = match kind.as_ref().and_then(Value::as_str) {
            Some("counter") => {
                let value = fields.take("value").unwrap_or(Value::Null);
                (key(Kind::Counter, Unit::None)?, Pushed::Count(amount("value", &value)?))
            }
            Some("gauge") => (key(Kind::Gauge, Unit::None)?, gauge(&mut fields)?),
            Some("timer") => (key(Kind::Timer, Unit::Nanoseconds)?, samples(&mut fields, 1e9)?),
            Some("histogram") => (key(Kind::Timer, Unit::None)?, samples(&mut fields, 1.0)?),
            Some("set") => (key(Kind::Set, Unit::None)?, members(&mut fields)?),
            _ => {
                let got = shown(&kind.unwrap_or(Value::Null));
                let form = "\"counter\", \"gauge\", \"timer\", \"histogram\" or \"set\"";
                return Err(Refusal::new("type", format!("type: expected {form}, got {got}")));
            }
        };
        let ttl = match fields.take("ttl") {
            Some(ttl) if key.kind() == Kind::Gauge => {
                let seconds = ttl.as_f64().filter(|seconds| *seconds > 0.0 && *seconds <= TTL_MAX_S);
                let bad = || bad(format!("ttl: expected seconds above 0, got {}", shown(&ttl)));
                Some(Duration::from_secs_f64(seconds.ok_or_else(bad)?))
            }
            Some(_) => return Err(bad("ttl: only a gauge has one")),
            None => None,
        };
        fields.end("name, tags, type, ttl, and what docs/push.md has for the type")?;
        Ok(Metric { key, value, ttl })
    }
}

/// Writing.
impl Metric {
    /// What [`Metric::parse`] reads.
    pub fn to_json(&self) -> Value {
        let mut map = Map::new();
        map.insert("name".into(), self.key.name().into());
        if !self.key.tags().is_empty() {
            let tags = self.key.tags().iter().map(|(key, value)| (key.clone(), value.clone().into()));
            map.insert("tags".into(), Value::Object(tags.collect()));
        }
        let (kind, field, value) = match &self.value {
            Pushed::Count(amount) => ("counter", "value", written(*amount)),
            Pushed::Set(amount) => ("gauge", "value", written(*amount)),
            Pushed::Add(amount) => ("gauge", "add", written(*amount)),
            Pushed::Samples(samples) if self.key.unit() == Unit::None => {
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

fn digits(number: u128, negative: bool) -> Value {
    let sign = if negative { "-" } else { "" };
    match i64::try_from(number) {
        Ok(small) if number <= INTEGER_MAX => (if negative { -small } else { small }).into(),
        _ => format!("{sign}{number}").into(),
    }
}

fn written(amount: Amount) -> Value {
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

fn gauge(fields: &mut Fields<'_>) -> Result<Pushed, Refusal> {
    match (fields.take("value"), fields.take("add")) {
        (Some(value), None) => amount("value", &value).map(Pushed::Set),
        (None, Some(add)) => amount("add", &add).map(Pushed::Add),
        _ => Err(bad("a gauge is expected to have either value or add")),
    }
}

/// Samples in units of which `scale` make one of the format's.
fn samples(fields: &mut Fields<'_>, scale: f64) -> Result<Pushed, Refusal> {
    match (fields.take("samples"), fields.take("sketch")) {
        (Some(Value::Array(list)), None) if list.len() <= VALUES_MAX => {
            let mut samples = Samples::default();
            for entry in &list {
                let (sample, times) = sample(entry, scale).ok_or_else(|| {
                    let form = "a number from 0 up to 2^63 inside, or [number, times]";
                    bad(format!("samples: expected {form}, got {}", shown(entry)))
                })?;
                samples.add(sample, times);
            }
            Ok(Pushed::Samples(samples))
        }
        (Some(_), None) => Err(bad(format!("samples: expected a list of at most {VALUES_MAX}"))),
        (None, Some(Value::Object(mut sketch))) => counted(&mut Fields { map: &mut sketch }),
        _ => Err(bad("expected either samples (a list) or sketch (an object)")),
    }
}

fn sample(entry: &Value, scale: f64) -> Option<(u64, u64)> {
    /// 2^63: beyond, squares of many would not add up exactly.
    const SAMPLE_MAX: f64 = 9_223_372_036_854_775_808.0;
    let (sample, times) = match entry {
        Value::Array(pair) => match pair.as_slice() {
            [sample, times] => (sample, times.as_u64()?),
            _ => return None,
        },
        sample => (sample, 1),
    };
    let real = sample.as_f64()? * scale;
    // A whole number is taken as it is: a double may have fewer digits.
    let exact = sample.as_u64().filter(|_| scale == 1.0);
    (0.0..SAMPLE_MAX).contains(&real).then_some((exact.unwrap_or(real.round() as u64), times))
}

fn counted(fields: &mut Fields<'_>) -> Result<Pushed, Refusal> {
    let mut sum = |key| {
        let sum = fields.take(key).and_then(|sum| match &sum {
            Value::String(digits) => digits.parse::<u128>().ok(),
            sum => sum.as_u64().map(u128::from),
        });
        sum.ok_or_else(|| bad(format!("sketch: {key}: expected a whole number from 0")))
    };
    let sums = (sum("sum")?, sum("squares")?);
    let ends = (fields.number("min", 0)?, fields.number("max", 0)?);
    let pair = |pair: &Value| match pair.as_array()?.as_slice() {
        [bucket, times] => Some((usize::try_from(bucket.as_u64()?).ok()?, times.as_u64()?)),
        _ => None,
    };
    let buckets = fields.take("buckets");
    let buckets = buckets.as_ref().and_then(Value::as_array).filter(|buckets| buckets.len() <= VALUES_MAX);
    let buckets: Option<Vec<(usize, u64)>> = buckets.and_then(|buckets| buckets.iter().map(pair).collect());
    let buckets = buckets.ok_or_else(|| bad("sketch: buckets: expected a list of [bucket, times]"))?;
    Samples::from_buckets(&buckets, sums, ends)
        .map(Pushed::Samples)
        .ok_or_else(|| bad("sketch: buckets, sums and extremes contradict each other"))
}

fn members(fields: &mut Fields<'_>) -> Result<Pushed, Refusal> {
    match (fields.take("members"), fields.take("sketch")) {
        (Some(Value::Array(list)), None) if list.len() <= VALUES_MAX => {
            let mut members = Members::default();
            for member in &list {
                let text = member.as_str().filter(|text| (1..=MEMBER_MAX).contains(&text.len()));
                let form =
                    || format!("members: expected texts of 1 to {MEMBER_MAX} bytes, got {}", shown(member));
                members.insert(text.ok_or_else(|| bad(form()))?);
            }
            Ok(Pushed::Members(members))
        }
        (Some(_), None) => Err(bad(format!("members: expected a list of at most {VALUES_MAX}"))),
        (None, Some(Value::String(sketch))) => {
            let members = Members::from_hex(&sketch).map_err(|error| bad(format!("sketch: {error}")))?;
            Ok(Pushed::Members(members))
        }
        _ => Err(bad("expected either members (a list) or sketch (a text)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(metric: Value) -> Pushed {
        Metric::parse(metric).unwrap().value
    }

    #[test]
    fn every_type_of_the_document_is_understood() {
        let document = include_str!("../docs/push.md");
        let example = document.split("```json").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let push = Push::parse(serde_json::from_str(example).unwrap()).unwrap();
        assert_eq!(push.identity, Some(("5f0c2f6a9d1e4b37".to_owned(), 12)));
        let metrics: Vec<Metric> = push.metrics.into_iter().map(|m| Metric::parse(m).unwrap()).collect();
        assert_eq!(metrics[0].key.tags(), [("queue".to_owned(), "batch".to_owned())]);
        assert_eq!(metrics[0].value, Pushed::Count(Amount::whole(42)));
        assert_eq!(metrics[1].value, Pushed::Set(Amount::nearest(7.5).unwrap()));
        assert_eq!(metrics[2].value, Pushed::Add(Amount::whole(-1)));
        let Pushed::Samples(fetch) = &metrics[3].value else { panic!() };
        assert_eq!((fetch.count(), fetch.sum()), (4, 1_512_500_000));
        let Pushed::Samples(reply) = &metrics[4].value else { panic!() };
        assert_eq!((reply.count(), reply.sum(), metrics[4].key.unit()), (2, 8192, Unit::None));
        let Pushed::Members(users) = &metrics[5].value else { panic!() };
        assert_eq!(users.estimate(), 2.0);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            count in any::<i64>(), far in -1000_i128..1000, value in -1e20..1e20_f64,
            samples in proptest::collection::vec((0_u32..64, any::<u64>()), 1..100),
            members in proptest::collection::vec("[a-z]{1,5}", 1..200),
        ) {
            let again = |kind, unit, value: &Pushed| {
                let key = Key::new("a.b", &[("k", "v")], kind, unit).unwrap();
                let metric = Metric { key, value: value.clone(), ttl: None };
                let text = metric.to_json().to_string();
                let read = Metric::parse(serde_json::from_str(&text).unwrap()).unwrap();
                assert_eq!(read.key, metric.key);
                read.value
            };
            let counter = Pushed::Count(Amount::whole(i128::from(count) * (far + 1)));
            prop_assert_eq!(&again(Kind::Counter, Unit::None, &counter), &counter);
            // A reader of JSON may be off by the last bit of a double.
            let amount = Amount::nearest(value).unwrap();
            let near = |found: Amount| (found.to_f64() - value).abs() <= value.abs() * 1e-15 + 1e-6;
            let set = again(Kind::Gauge, Unit::None, &Pushed::Set(amount));
            prop_assert!(matches!(set, Pushed::Set(found) if near(found)), "{:?}", set);
            let add = again(Kind::Gauge, Unit::None, &Pushed::Add(amount));
            prop_assert!(matches!(add, Pushed::Add(found) if near(found)), "{:?}", add);
            let mut all = Samples::default();
            samples.iter().for_each(|(shift, sample)| all.add(sample >> shift, 1));
            let all = Pushed::Samples(all);
            for unit in [Unit::Nanoseconds, Unit::None] {
                prop_assert_eq!(&again(Kind::Timer, unit, &all), &all);
            }
            let mut set = Members::default();
            members.iter().for_each(|member| { set.insert(member); });
            let set = Pushed::Members(set);
            prop_assert_eq!(&again(Kind::Set, Unit::None, &set), &set);
        }
    }

    #[test]
    fn no_integer_beyond_a_double_s_is_written() {
        assert_eq!(digits(1 << 53, true), json!(-(1_i64 << 53)));
        assert_eq!(digits((1 << 53) + 1, false), json!("9007199254740993"));
        assert_eq!(digits(u128::from(u64::MAX) + 1, true), json!("-18446744073709551616"));
        assert_eq!(written(Amount::from_parts(-1_500_000)), json!(-1.5));
    }

    #[test]
    fn whole_numbers_are_exact_however_large() {
        let counter = |value: Value| value_of(json!({ "name": "a", "type": "counter", "value": value }));
        fn value_of(metric: Value) -> Pushed {
            Metric::parse(metric).unwrap().value
        }
        assert_eq!(counter(json!(u64::MAX)), Pushed::Count(Amount::whole(u64::MAX.into())));
        assert_eq!(
            counter(json!("-123456789012345678901")),
            Pushed::Count(Amount::whole(-123_456_789_012_345_678_901))
        );
        assert_eq!(counter(json!(0.25)), Pushed::Count(Amount::from_parts(250_000)));
    }

    #[test]
    fn a_sketch_is_what_its_samples_are() {
        let mut samples = Samples::default();
        [5_u64, 200, 70_000].iter().for_each(|&sample| samples.add(sample, 2));
        let buckets: Vec<_> = samples.buckets().map(|(bucket, times)| json!([bucket, times])).collect();
        let sketch = json!({ "sum": samples.sum().to_string(), "squares": samples.sum_of_squares() as u64,
            "min": 5, "max": 70_000, "buckets": buckets });
        let pushed = value(json!({ "name": "a", "type": "histogram", "sketch": sketch }));
        assert_eq!(pushed, Pushed::Samples(samples));
        let listed = json!({ "name": "a", "type": "histogram", "samples": [[5, 2], [200, 2], [70_000, 2]] });
        assert_eq!(value(listed), pushed);
        let mut members = Members::default();
        members.insert("x");
        let sketch = json!({ "name": "a", "type": "set", "sketch": members.to_hex() });
        assert_eq!(value(sketch), value(json!({ "name": "a", "type": "set", "members": ["x", "x"] })));
    }

    #[test]
    fn a_wrong_metric_is_refused_with_what_is_expected() {
        let with = |key: &str, value: Value| {
            let mut metric = json!({ "name": "a.b", "type": "counter", "value": 1 });
            metric[key] = value;
            metric
        };
        for (metric, reason, said) in [
            (json!(5), "value", "a metric is expected to be an object"),
            (json!({ "type": "counter" }), "name", "name: expected a text"),
            (with("name", json!("a..b")), "name", "bad name \"a..b\""),
            (with("name", json!("x".repeat(201))), "name", "bad name"),
            (
                with("name", json!("modules.kvs.wakeups")),
                "reserved",
                "that begin with modules. are the service's own",
            ),
            (with("type", json!("countr")), "type", "type: expected \"counter\", \"gauge\", \"timer\""),
            (with("type", Value::Null), "type", "got null"),
            (with("value", json!("NaN")), "value", "value: expected a number up to 1e27, got \"NaN\""),
            (with("value", json!(1e300)), "value", "value: expected a number"),
            (with("value", json!("9".repeat(38))), "value", "value: expected a number"),
            (with("value", Value::Null), "value", "value: expected a number up to 1e27, got null"),
            (with("tags", json!({ "a": 1 })), "tags", "bad tags"),
            (with("tags", json!({ "": "x" })), "tags", "bad tags"),
            (with("ttl", json!(5)), "value", "ttl: only a gauge has one"),
            (with("valeu", json!(5)), "value", "valeu: unknown key; allowed: name"),
            (json!({ "name": "a", "type": "gauge" }), "value", "either value or add"),
            (json!({ "name": "a", "type": "gauge", "value": 1, "ttl": 0 }), "value", "ttl: expected seconds"),
            (
                json!({ "name": "a", "type": "timer", "samples": [-1] }),
                "value",
                "samples: expected a number from 0",
            ),
            (json!({ "name": "a", "type": "timer", "samples": [1e10] }), "value", "samples: expected"),
            (json!({ "name": "a", "type": "timer", "samples": [[1, 2, 3]] }), "value", "samples: expected"),
            (json!({ "name": "a", "type": "timer", "samples": 5 }), "value", "samples: expected a list"),
            (
                json!({ "name": "a", "type": "timer", "sketch": { "sum": -1 } }),
                "value",
                "sketch: sum: expected",
            ),
            (json!({ "name": "a", "type": "set", "members": [1] }), "value", "members: expected texts"),
            (json!({ "name": "a", "type": "set", "sketch": "0z" }), "value", "sketch: malformed"),
            (json!({ "name": "a", "type": "set", "sketch": "0" }), "value", "sketch: malformed"),
        ] {
            let refusal = Metric::parse(metric.clone()).unwrap_err();
            assert_eq!(refusal.reason, reason, "{metric}");
            assert!(refusal.text.contains(said), "{metric}: {refusal}");
        }
    }

    #[test]
    fn a_wrong_push_is_refused_whole() {
        let good = json!({ "version": 1, "id": "a", "seq": 1, "metrics": [] });
        assert!(Push::parse(good.clone()).is_ok());
        for (key, value, said) in [
            ("version", json!(2), "version: expected 1, got 2"),
            ("version", Value::Null, "version: expected 1, got 0"),
            ("id", Value::Null, "id, seq: expected"),
            ("id", json!("a b"), "id, seq: expected"),
            ("id", json!("a".repeat(65)), "id, seq: expected"),
            ("seq", json!(0), "id, seq: expected"),
            ("seq", json!(-1), "seq: expected a whole number from 0, got -1"),
            ("metrics", json!({}), "metrics: expected a list"),
            ("metric", json!([]), "metric: unknown key; allowed: version, id"),
        ] {
            let mut push = good.clone();
            push[key] = value;
            let refusal = Push::parse(push).unwrap_err();
            assert!(refusal.text.contains(said), "{key}: {refusal}");
        }
    }
}
