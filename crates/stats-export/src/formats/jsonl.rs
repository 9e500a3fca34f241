//! JSON lines: an object for each series, with the names of an answer.

use super::tags;
use crate::snapshot::{QUANTILES, Value, View};
use serde_json::{Map, Value as Json, json};

/// One line for each series.
pub fn lines(view: &View<'_>) -> String {
    let mut text = String::new();
    let snapshot = view.snapshot;
    for point in &view.points {
        let mut line = Map::new();
        line.insert("time".into(), json!(snapshot.time_ns as f64 / 1e9));
        if let Some(jobid) = &snapshot.instance.jobid {
            line.insert("instance".into(), json!(jobid));
        }
        line.insert("name".into(), json!(point.name));
        let tags: Map<String, Json> =
            tags(point).map(|(key, value)| (key.to_owned(), json!(value))).collect();
        line.insert("tags".into(), Json::Object(tags));
        let kind = match &point.value {
            Value::Counter { .. } => "counter",
            Value::Gauge { .. } => "gauge",
            Value::Timer(_) => "timer",
            Value::Set { .. } => "set",
        };
        line.insert("type".into(), json!(kind));
        if let Some(created_s) = point.created_s {
            line.insert("created".into(), json!(created_s));
        }
        let mut put = |key: &str, value: f64| line.insert(key.into(), whole(value));
        match &point.value {
            Value::Counter { total, .. } => drop(put("total", *total)),
            Value::Set { estimate } => drop(put("estimate", *estimate)),
            Value::Gauge { ranks, sum, min, max } => {
                put("count", *ranks as f64);
                put("sum", *sum);
                for (key, (value, rank)) in [("min", min), ("max", max)] {
                    line.insert(key.into(), json!({ "value": whole(*value), "rank": rank }));
                }
            }
            Value::Timer(timer) => {
                put("count", timer.count as f64);
                put("sum", timer.sum);
                if let Some(shape) = timer.shape {
                    put("min", shape.min);
                    put("max", shape.max);
                    put("stddev", shape.stddev);
                    QUANTILES.iter().zip(shape.quantiles).for_each(|((_, key), value)| drop(put(key, value)));
                }
            }
        }
        text.push_str(&Json::Object(line).to_string());
        text.push('\n');
    }
    text
}

/// Whole where it is whole and a double can hold it.
fn whole(value: f64) -> Json {
    if value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0 {
        json!(value as i64)
    } else {
        json!(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::sample;

    #[test]
    fn lines_are_as_documented() {
        insta::assert_snapshot!(lines(&sample::snapshot().view()));
    }
}
