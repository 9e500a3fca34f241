//! What is pushed: the text format of `docs/push.md`.

mod written;

#[cfg(test)]
mod documented;
#[cfg(test)]
mod tests;

use crate::amount::Amount;
use crate::members::Members;
use crate::series::{Key, Kind, Refused, Unit, is_reserved, prefix};
use crate::shown::{short, shown};
use crate::value::Samples;
use serde_json::{Map, Value};
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

/// Which metric was refused and why: many reasons begin with its name, in quotes, others have it put before them.
pub fn refusal_text(name: &str, reason: &str) -> String {
    if reason.starts_with(&format!("{name:?}")) { reason.to_owned() } else { format!("{name}: {reason}") }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let reason = match refused {
            Refused::Name(_) => "name",
            Refused::Tags => "tags",
            Refused::Full(_) | Refused::Pushed(..) => "full",
            Refused::Share(_) => "share",
            Refused::Guest(..) => "quota",
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
    pub fn parse(metric: Value) -> Result<Self, Refusal> {
        Metric::parse_for(metric, None)
    }

    /// Likewise, of a guest, whose names all begin with `namespace`.
    pub(crate) fn parse_for(mut metric: Value, namespace: Option<&str>) -> Result<Self, Refusal> {
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
        let name = namespace.map(|namespace| format!("{namespace}{name}")).unwrap_or(name);
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
            Some("timer") => {
                let unit = Unit::Nanoseconds;
                (key(Kind::Timer, unit)?, samples(&mut fields, unit)?)
            }
            Some("histogram") => {
                let unit = Unit::Millionths;
                (key(Kind::Timer, unit)?, samples(&mut fields, unit)?)
            }
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
                let bad = || {
                    bad(format!("ttl: expected seconds above 0, at most {TTL_MAX_S}, got {}", shown(&ttl)))
                };
                Some(Duration::from_secs_f64(seconds.ok_or_else(bad)?))
            }
            Some(_) => return Err(bad("ttl: only a gauge has one")),
            None => None,
        };
        fields.end("name, tags, type, ttl, and what docs/push.md has for the type")?;
        Ok(Metric { key, value, ttl })
    }
}

fn gauge(fields: &mut Fields<'_>) -> Result<Pushed, Refusal> {
    match (fields.take("value"), fields.take("add")) {
        (Some(value), None) => amount("value", &value).map(Pushed::Set),
        (None, Some(add)) => amount("add", &add).map(Pushed::Add),
        _ => Err(bad("a gauge is expected to have either value or add")),
    }
}

fn samples(fields: &mut Fields<'_>, unit: Unit) -> Result<Pushed, Refusal> {
    match (fields.take("samples"), fields.take("sketch")) {
        (Some(Value::Array(list)), None) if list.len() <= VALUES_MAX => {
            let mut samples = Samples::default();
            for entry in &list {
                let (sample, times) = sample(entry, unit).ok_or_else(|| {
                    let form = "a number from 0 up to 9e9 (timer) or 9e12 (histogram), or [number, times]";
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

fn sample(entry: &Value, unit: Unit) -> Option<(u64, u64)> {
    let (sample, times) = match entry {
        Value::Array(pair) => match pair.as_slice() {
            [sample, times] => (sample, times.as_u64()?),
            _ => return None,
        },
        sample => (sample, 1),
    };
    Some((unit.parts(sample.as_f64()?)?, times))
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
