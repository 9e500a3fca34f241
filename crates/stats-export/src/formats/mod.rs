//! Formats: pure functions from a snapshot to bytes.

pub mod graphite;
pub mod influx;
pub mod jsonl;
pub mod otlp;
pub mod prometheus;
pub mod statsd;

#[cfg(test)]
pub(crate) mod sample;

use crate::snapshot::{Point, QUANTILES, Value};
use stats_collect::described;
use std::fmt::Write;

/// What a series amounts to, as numbers that have a name each; that of the main one is empty. For formats without
/// distributions.
pub(crate) fn numbers(point: &Point, mut take: impl FnMut(&'static str, f64)) {
    match &point.value {
        Value::Counter { total, .. } => take("", *total),
        Value::Set { estimate } => take("", *estimate),
        Value::Gauge { ranks, sum, min, max } => {
            take("", *sum);
            if point.rank.is_none() && !described(&point.name).is_some_and(|row| row.of_root) {
                take("min", min.0);
                take("max", max.0);
                take("ranks", *ranks as f64);
            }
        }
        Value::Timer(timer) => {
            take("count", timer.count as f64);
            take("sum", timer.sum);
            if let Some(shape) = timer.shape {
                take("min", shape.min);
                take("max", shape.max);
                QUANTILES.iter().zip(shape.quantiles).for_each(|((_, name), value)| take(name, value));
            }
        }
    }
}

/// The dotted name with `prefix` before it, unless it begins so.
pub(crate) fn prefixed(out: &mut String, prefix: &str, name: &str) {
    let begins_so = name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('.'));
    if !prefix.is_empty() && !begins_so {
        out.push_str(prefix);
        out.push('.');
    }
    out.push_str(name);
}

/// The tags of a series, and its rank among them.
pub(crate) fn tags(point: &Point) -> impl Iterator<Item = (&str, std::borrow::Cow<'_, str>)> {
    let rank = point.rank.map(|rank| ("rank", rank.to_string().into()));
    // A tag of that name would be another rank's.
    let tags = point.tags.iter().filter(move |(key, _)| point.rank.is_none() || key != "rank");
    rank.into_iter().chain(tags.map(|(key, value)| (key.as_str(), value.as_str().into())))
}

/// A number as most formats take it: whole ones without a fraction. Not finite: nothing is written, and false.
pub(crate) fn number(out: &mut String, value: f64) -> bool {
    if !value.is_finite() {
        return false;
    }
    // Below 2^53 every whole double is the integer that it shows.
    let _ = if value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0 {
        write!(out, "{}", value as i64)
    } else {
        write!(out, "{value}")
    };
    true
}
