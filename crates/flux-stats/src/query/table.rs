//! Series as a table for a person.

use super::fields::{Row, max_rank, tags};
use crate::answer::{Answer, Shape, Since, Values};
use crate::hosts::Hosts;
use crate::instance::{By, Question};
use crate::show::{Align, UNKNOWN, Unit, duration, number, rate, table};

/// A column: its name, its side, and what it says of a series; nothing where the series has no such thing.
struct Column {
    name: String,
    align: Align,
    cells: Vec<Option<String>>,
}

/// Which kinds of series are in an answer: columns are chosen by that and by the question alone, so that they are the same
/// in each of many answers.
struct Kinds {
    counters: bool,
    gauges: bool,
    timers: bool,
}

impl Kinds {
    fn of(answer: &Answer) -> Self {
        let any = |is: fn(&Values) -> bool| answer.series.iter().any(|series| is(&series.values));
        Kinds {
            counters: any(|values| matches!(values, Values::Counter { .. })),
            gauges: any(|values| matches!(values, Values::Gauge { .. })),
            timers: any(|values| matches!(values, Values::Timer { .. })),
        }
    }
}

/// The series at `places` of the answer to a question; nothing without any.
pub(super) fn series(
    answer: &Answer,
    hosts: &Hosts,
    places: &[usize],
    question: &Question,
    heading: bool,
) -> String {
    let rows: Vec<Row<'_>> =
        places.iter().map(|&place| Row { series: &answer.series[place], hosts }).collect();
    if rows.is_empty() {
        return String::new();
    }
    let columns = columns(answer, &rows, question);
    let names = columns.iter().map(|column| (if heading { column.name.as_str() } else { "" }, column.align));
    let names: Vec<(&str, Align)> = names.collect();
    let mut cells: Vec<_> = columns.iter().map(|column| column.cells.iter()).collect();
    let rows = (0..rows.len()).map(|_| {
        let row = cells.iter_mut().map(|cells| cells.next().and_then(Clone::clone));
        row.map(|cell| cell.unwrap_or_else(|| UNKNOWN.to_owned())).collect()
    });
    table(&names, rows)
}

fn columns(answer: &Answer, rows: &[Row<'_>], question: &Question) -> Vec<Column> {
    let column = |name: &str, align, of: &dyn Fn(Row<'_>) -> Option<String>| Column {
        name: name.to_owned(),
        align,
        cells: rows.iter().map(|row| of(*row)).collect(),
    };
    let (left, right) = (Align::Left, Align::Right);
    let Kinds { counters, gauges, timers } = Kinds::of(answer);
    // What one rank measured is its own maximum.
    let single = question.by == By::Rank;
    let mut columns = vec![column("NAME", left, &|row| Some(name(row)))];
    if question.by != By::None {
        columns.push(column("RANK", right, &|row| row.series.rank.map(|rank| rank.to_string())));
        columns.push(column("HOST", left, &|row| row.hosts.host(row.series.rank?).map(str::to_owned)));
    }
    if question.by == By::Subtree {
        columns.push(column("RANKS", left, &|row| row.series.ranks.clone()));
    }
    columns.push(column("TYPE", left, &|row| Some(row.series.values.kind().to_owned())));
    columns.push(column("TOTAL", right, &total));
    if counters || timers {
        columns.push(column("RATE", right, &|row| match row.series.values {
            Values::Counter { rate, .. } => Some(unit(row).rate(rate)),
            Values::Timer { rate, .. } => Some(self::rate(rate)),
            _ => None,
        }));
    }
    if let Some(asked) = question.since {
        let known = answer.series.iter().find_map(|series| Some(series.since.as_ref()?.seconds));
        let last = format!("LAST {}", duration(known.unwrap_or(asked)));
        if counters || timers {
            columns.push(column(&last, right, &|row| gained(row, |since| since.total, Unit::value)));
        }
        if counters || timers || gauges {
            columns.push(column("AVERAGE", right, &average));
        }
    }
    if timers {
        columns.push(column("P50", right, &|row| quantile(row, |shape| shape.p50)));
        columns.push(column("P99", right, &|row| quantile(row, |shape| shape.p99)));
    }
    if timers || (!single && (counters || gauges)) {
        columns.push(column("MAX", right, &|row| match &row.series.values {
            Values::Counter { max: Some((_, rate)), .. } if !single => Some(unit(row).rate(*rate)),
            Values::Gauge { max, .. } if !single => Some(unit(row).value(max.value)),
            Values::Timer { .. } => quantile(row, |shape| shape.max),
            _ => None,
        }));
    }
    if !single && (counters || gauges) {
        columns.push(column("ON RANK", left, &|row| max_rank(row.series).map(|rank| row.hosts.name(rank))));
    }
    columns
}

fn unit(row: Row<'_>) -> Unit {
    Unit::of_series(row.series)
}

/// Of a timer's samples, where there are any.
fn quantile(row: Row<'_>, of: fn(&Shape) -> f64) -> Option<String> {
    match &row.series.values {
        Values::Timer { shape: Some(shape), .. } => Some(unit(row).value(of(shape))),
        _ => None,
    }
}

/// What was gained in a second; of a gauge, what it was on average.
fn average(row: Row<'_>) -> Option<String> {
    match (&row.series.values, &row.series.since) {
        (Values::Gauge { .. }, Some(since)) => Some(unit(row).value(since.average()?)),
        _ => gained(row, |since| since.rate, Unit::rate),
    }
}

/// With its tags.
fn name(row: Row<'_>) -> String {
    match tags(row.series) {
        tags if tags.is_empty() => row.series.name.clone(),
        tags => format!("{}{{{tags}}}", row.series.name),
    }
}

/// What it amounts to: of a gauge the sum of the ranks, of a timer how many samples.
fn total(row: Row<'_>) -> Option<String> {
    match &row.series.values {
        Values::Counter { total, .. } => Some(unit(row).value(*total)),
        Values::Gauge { sum, .. } => Some(unit(row).value(*sum)),
        Values::Timer { count, .. } => Some(number(*count as f64)),
        Values::Set { estimate, relative_error } => {
            let about = if *relative_error > 0.0 { "~" } else { "" };
            Some(format!("{about}{}", number(estimate.round())))
        }
        Values::Other(_) => None,
    }
}

/// Of a timer, samples were gained; of a state nothing is.
fn gained(row: Row<'_>, of: fn(&Since) -> f64, shown: fn(Unit, f64) -> String) -> Option<String> {
    let since = row.series.since.as_ref()?;
    match row.series.values {
        Values::Gauge { .. } => None,
        Values::Timer { .. } => Some(shown(Unit::Plain, of(since))),
        _ => Some(shown(unit(row), of(since))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn shown(question: &Question, series: &Value) -> String {
        let ranks = json!({ "covered": "0", "missing": "", "oldest": 0.0 });
        let answer = json!({ "time": 1.0, "period": 2.0, "ranks": ranks, "series": series });
        let answer: Answer = serde_json::from_value(answer).unwrap();
        let places: Vec<usize> = (0..answer.series.len()).collect();
        self::series(&answer, &Hosts::of(Some("n0")), &places, question, true)
    }

    #[test]
    fn columns_are_those_of_the_kinds_whatever_their_values() {
        let heading = |question: &Question, series: Value| {
            let shown = shown(question, &series);
            shown.lines().next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let counter =
            |max: Value| json!([{ "name": "a", "type": "counter", "total": 1, "rate": 0.0, "max": max }]);
        let whole = Question::default();
        // One that rests has no greatest rank.
        for max in [Value::Null, json!({ "rank": 0, "rate": 1.0 })] {
            assert_eq!(heading(&whole, counter(max.clone())), "NAME TYPE TOTAL RATE MAX ON RANK");
            let since = whole.clone().since(60.0);
            assert_eq!(
                heading(&since, counter(max.clone())),
                "NAME TYPE TOTAL RATE LAST 1m00s AVERAGE MAX ON RANK"
            );
            assert_eq!(heading(&whole.clone().by(By::Rank), counter(max)), "NAME RANK HOST TYPE TOTAL RATE");
        }
        let timer = json!([{ "name": "t", "type": "timer", "count": 0, "rate": 0.0, "sum": 0 }]);
        assert_eq!(heading(&whole, timer), "NAME TYPE TOTAL RATE P50 P99 MAX");
        let set = json!([{ "name": "s", "type": "set", "estimate": 1.0 }]);
        assert_eq!(heading(&whole, set), "NAME TYPE TOTAL");
        assert_eq!(shown(&whole, &json!([])), "");
    }

    #[test]
    fn the_unit_of_an_answer_is_shown() {
        let timer = json!([{ "name": "app.fetch", "type": "timer", "unit": "seconds", "count": 2, "rate": 1.0, "sum": 0.05,
            "min": 0.01, "max": 0.04, "stddev": 0.01, "p50": 0.01, "p90": 0.04, "p99": 0.04 }]);
        insta::assert_snapshot!(shown(&Question::default(), &timer), @r"
        NAME       TYPE   TOTAL  RATE     P50     P99     MAX
        app.fetch  timer      2   1/s  10.0ms  40.0ms  40.0ms
        ");
        let gauge = json!([{ "name": "app.held", "type": "gauge", "unit": "bytes", "count": 1, "sum": 2048,
            "min": { "value": 2048, "rank": 0 }, "max": { "value": 2048, "rank": 0 } }]);
        assert!(shown(&Question::default(), &gauge).contains("2.00KiB"));
    }
}
