//! InfluxDB's line protocol (docs.influxdata.com, "Line protocol"). By hand: a line is three escapes, and the crate
//! `influxdb-line-protocol` brings a parser and `arrow`'s kin along.

use super::{number, numbers, prefixed, tags};
use crate::snapshot::{Shape, Value, View};
use std::fmt::Write;

/// One line for each series: its numbers are fields, all of them floating point, since a field never changes its type.
pub fn lines(view: &View<'_>, prefix: &str) -> String {
    let mut text = String::new();
    for point in &view.points {
        let (before, mut fields) = (text.len(), 0);
        let mut name = String::new();
        prefixed(&mut name, prefix, &point.name);
        escape(&mut text, &name, ", ");
        for (key, value) in tags(point) {
            text.push(',');
            escape(&mut text, key, ",= ");
            text.push('=');
            escape(&mut text, &value, ",= ");
        }
        let main = match &point.value {
            Value::Counter { .. } => "total",
            Value::Gauge { .. } => "sum",
            Value::Timer(_) | Value::Set { .. } => "estimate",
        };
        let mut field = |text: &mut String, name: &str, value: f64| {
            let at = text.len();
            text.push(if fields == 0 { ' ' } else { ',' });
            text.push_str(name);
            text.push('=');
            if number(text, value) {
                fields += 1;
            } else {
                text.truncate(at);
            }
        };
        numbers(point, |name, value| field(&mut text, if name.is_empty() { main } else { name }, value));
        if let Value::Timer(timer) = &point.value
            && let Some(Shape { stddev, .. }) = timer.shape
        {
            field(&mut text, "stddev", stddev);
        }
        if fields == 0 {
            text.truncate(before);
        } else {
            let _ = writeln!(text, " {}", view.snapshot.time_ns);
        }
    }
    text
}

/// A backslash would escape what follows, an escape of ours included, and cannot be escaped itself.
fn escape(text: &mut String, value: &str, special: &str) {
    for char in value.chars() {
        if special.contains(char) {
            text.push('\\');
        }
        text.push(if char.is_control() || char == '\\' { '_' } else { char });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::sample;
    use crate::snapshot::{Point, Snapshot, Unit};

    #[test]
    fn lines_are_as_documented() {
        insta::assert_snapshot!(lines(&sample::snapshot().view(), "flux"));
    }

    #[test]
    fn what_is_not_finite_is_left_out() {
        let gauge = |sum: f64| Point {
            name: "a".into(),
            tags: vec![("k".into(), "v\\".into())],
            unit: Unit::None,
            rank: Some(1),
            created_s: None,
            value: Value::Gauge { ranks: 1, sum, min: (sum, 0), max: (sum, 0) },
        };
        let snapshot =
            Snapshot { points: vec![gauge(f64::NAN), gauge(1.5)], time_ns: 9, ..Snapshot::default() };
        assert_eq!(lines(&snapshot.view(), ""), "a,rank=1,k=v_ sum=1.5 9\n");
    }
}
