//! What can be said of a series: the columns of `-o`, `--sort` and `--csv`.

use crate::answer::{Answer, Series, Values};
use crate::hosts::Hosts;
use crate::show::Unit;
use std::cmp::Ordering;

/// One series of an answer, and the hosts of the instance.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) series: &'a Series,
    pub(crate) hosts: &'a Hosts,
}

/// What a field says of a series.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// The series has none.
    Nothing,
    Text(String),
    /// And what it counts.
    Number(f64, Unit),
}

impl Value {
    /// Nothing before numbers, numbers before texts.
    pub(crate) fn order(&self, other: &Value) -> Ordering {
        let place = |value: &Value| match value {
            Value::Nothing => 0,
            Value::Number(..) => 1,
            Value::Text(_) => 2,
        };
        match (self, other) {
            (Value::Number(a, _), Value::Number(b, _)) => a.total_cmp(b),
            (Value::Text(a), Value::Text(b)) => a.cmp(b),
            _ => place(self).cmp(&place(other)),
        }
    }

    /// As it is, without a unit.
    pub(crate) fn plain(&self) -> String {
        match self {
            Value::Nothing => String::new(),
            Value::Text(text) => text.clone(),
            Value::Number(number, _) => number.to_string(),
        }
    }
}

/// A field: its name, whether it is a text, what it says, and of what.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) is_text: bool,
    pub(crate) what: &'static str,
    get: fn(Row<'_>) -> Value,
}

impl Field {
    pub(crate) fn of(&self, row: Row<'_>) -> Value {
        (self.get)(row)
    }

    /// Over its column, as Flux has them.
    pub(crate) fn heading(&self) -> String {
        self.name.to_uppercase()
    }

    /// The one of that name, as an index of [`FIELDS`].
    pub(crate) fn find(name: &str) -> Option<usize> {
        FIELDS.iter().position(|field| field.name == name)
    }
}

/// All names, for an error.
pub(crate) fn names() -> String {
    FIELDS.iter().map(|field| field.name).collect::<Vec<_>>().join(", ")
}

macro_rules! fields {
    ($($name:ident: $kind:ident, $what:literal, $get:expr;)*) => {
        pub(crate) const FIELDS: &[Field] = &[$(Field {
            name: stringify!($name), is_text: fields!(@ $kind), what: $what, get: $get,
        }),*];
    };
    (@ text) => { true };
    (@ number) => { false };
}

fields! {
    name: text, "the name", |row| Value::Text(row.series.name.clone());
    tags: text, "the tags, as key=value, with commas between them", |row| text_or_nothing(tags(row.series));
    type: text, "counter, gauge, timer or set", |row| Value::Text(row.series.values.kind().to_owned());
    rank: number, "the rank that measured it, by rank; the top of the subtree, by subtree", |row| {
        row.series.rank.map_or(Value::Nothing, rank)
    };
    host: text, "its host", |row| host(row, row.series.rank);
    ranks: text, "the ranks of the subtree, by subtree", |row| text_or_nothing(row.series.ranks.clone().unwrap_or_default());
    total: number, "of a counter, since the load or the last clear", |row| match row.series.values {
        Values::Counter { total, .. } => own(row, total),
        _ => Value::Nothing,
    };
    rate: number, "per second in the last period: of a counter, or the samples of a timer", |row| match row.series.values {
        Values::Counter { rate, .. } => own(row, rate),
        Values::Timer { rate, .. } => count(rate),
        _ => Value::Nothing,
    };
    count: number, "ranks of a gauge, samples of a timer", |row| match row.series.values {
        Values::Gauge { count: ranks, .. } => count(ranks as f64),
        Values::Timer { count: samples, .. } => count(samples as f64),
        _ => Value::Nothing,
    };
    sum: number, "of the ranks of a gauge, of the samples of a timer", |row| match row.series.values {
        Values::Gauge { sum, .. } | Values::Timer { sum, .. } => own(row, sum),
        _ => Value::Nothing,
    };
    estimate: number, "members of a set", |row| match row.series.values {
        Values::Set { estimate, .. } => count(estimate),
        _ => Value::Nothing,
    };
    min: number, "the least of a gauge's ranks or of a timer's samples", |row| match row.series.values {
        Values::Gauge { min, .. } => own(row, min.value),
        Values::Timer { shape: Some(shape), .. } => own(row, shape.min),
        _ => Value::Nothing,
    };
    min_rank: number, "whose that is", |row| match row.series.values {
        Values::Gauge { min, .. } => rank(min.rank),
        _ => Value::Nothing,
    };
    max: number, "the greatest of a gauge's ranks or of a timer's samples; the highest rate of a counter's ranks", |row| {
        match row.series.values {
            Values::Counter { max: Some((_, rate)), .. } => own(row, rate),
            Values::Gauge { max, .. } => own(row, max.value),
            Values::Timer { shape: Some(shape), .. } => own(row, shape.max),
            _ => Value::Nothing,
        }
    };
    max_rank: number, "whose that is", |row| max_rank(row.series).map_or(Value::Nothing, rank);
    max_host: text, "its host", |row| host(row, max_rank(row.series));
    stddev: number, "the standard deviation of a timer's samples", |row| shape(row, |shape| shape.stddev);
    p50: number, "their median", |row| shape(row, |shape| shape.p50);
    p90: number, "what nine of ten of them do not exceed", |row| shape(row, |shape| shape.p90);
    p99: number, "what 99 of 100 of them do not exceed", |row| shape(row, |shape| shape.p99);
    since_seconds: number, "with --since: how much time that is", |row| {
        since(row, |since| Value::Number(since.seconds, Unit::Seconds))
    };
    since_total: number, "what was gained in it: of a counter, or the samples of a timer", |row| {
        since(row, |since| gained(row, since.total))
    };
    since_rate: number, "the same per second", |row| since(row, |since| gained(row, since.rate));
    since_average: number, "of a gauge, the mean of the sum in it", |row| {
        since(row, |since| was(row, since.average()))
    };
    since_max: number, "of a gauge, the greatest of a single rank in it", |row| {
        since(row, |since| was(row, since.greatest()))
    };
}

/// The rank at the maximum.
pub(crate) fn max_rank(series: &Series) -> Option<u32> {
    match series.values {
        Values::Counter { max, .. } => max.map(|(rank, _)| rank),
        Values::Gauge { max, .. } => Some(max.rank),
        _ => None,
    }
}

pub(crate) fn tags(series: &Series) -> String {
    let tags: Vec<String> = series.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    tags.join(",")
}

fn text_or_nothing(text: String) -> Value {
    if text.is_empty() { Value::Nothing } else { Value::Text(text) }
}

/// In the unit of the series.
fn own(row: Row<'_>, value: f64) -> Value {
    Value::Number(value, Unit::of_series(row.series))
}

/// How many.
fn count(value: f64) -> Value {
    Value::Number(value, Unit::Plain)
}

fn rank(rank: u32) -> Value {
    count(f64::from(rank))
}

fn host(row: Row<'_>, rank: Option<u32>) -> Value {
    let host = rank.and_then(|rank| row.hosts.host(rank));
    host.map_or(Value::Nothing, |host| Value::Text(host.to_owned()))
}

fn shape(row: Row<'_>, of: fn(&crate::answer::Shape) -> f64) -> Value {
    match &row.series.values {
        Values::Timer { shape: Some(shape), .. } => own(row, of(shape)),
        _ => Value::Nothing,
    }
}

fn since(row: Row<'_>, of: impl Fn(&crate::answer::Since) -> Value) -> Value {
    row.series.since.as_ref().map_or(Value::Nothing, of)
}

/// Of a state.
fn was(row: Row<'_>, value: Option<f64>) -> Value {
    match row.series.values {
        Values::Gauge { .. } => value.map_or(Value::Nothing, |value| own(row, value)),
        _ => Value::Nothing,
    }
}

/// Of a timer, samples were gained; of a state nothing is.
fn gained(row: Row<'_>, value: f64) -> Value {
    match row.series.values {
        Values::Gauge { .. } => Value::Nothing,
        Values::Timer { .. } => count(value),
        _ => own(row, value),
    }
}

/// A field to sort by, and whether from the greatest to the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) field: usize,
    pub(crate) descending: bool,
}

/// `KEY,-KEY`, as Flux's commands take them.
pub(crate) fn keys(text: &str) -> Result<Vec<Key>, String> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    let keys = words.map(|word| {
        let name = word.strip_prefix('-').unwrap_or(word);
        let field = Field::find(name)
            .ok_or_else(|| format!("no field {name:?} to sort by; there are {}", names()))?;
        Ok(Key { field, descending: name.len() < word.len() })
    });
    keys.collect()
}

/// The places of an answer's series in the order of `keys`; equal ones stay as they are.
pub(crate) fn sorted(answer: &Answer, hosts: &Hosts, keys: &[Key]) -> Vec<usize> {
    let of = |series| -> Vec<Value> {
        keys.iter().map(|key| FIELDS[key.field].of(Row { series, hosts })).collect()
    };
    let mut places: Vec<(usize, Vec<Value>)> = answer.series.iter().map(of).enumerate().collect();
    places.sort_by(|(_, a), (_, b)| {
        let orders = keys
            .iter()
            .zip(a.iter().zip(b))
            .map(|(key, (a, b))| if key.descending { b.order(a) } else { a.order(b) });
        orders.fold(Ordering::Equal, Ordering::then)
    });
    places.into_iter().map(|(place, _)| place).collect()
}
