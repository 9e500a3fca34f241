//! Series as a table for a person.

use super::fields::{Row, max_rank, tags};
use crate::answer::{Answer, Since, Values};
use crate::hosts::Hosts;
use crate::instance::By;
use crate::show::{Align, UNKNOWN, Unit, duration, number, rate, table};

/// A column: its name, its side, and what it says of a series; nothing where the series has no such thing.
struct Column {
    name: String,
    align: Align,
    cells: Vec<Option<String>>,
}

/// The series at `places` of the answer. Columns that none of them has are left out.
pub(super) fn series(answer: &Answer, hosts: &Hosts, places: &[usize], by: By, heading: bool) -> String {
    let rows: Vec<Row<'_>> =
        places.iter().map(|&place| Row { series: &answer.series[place], hosts }).collect();
    let column = |name: &str, align, of: &dyn Fn(Row<'_>) -> Option<String>| Column {
        name: name.to_owned(),
        align,
        cells: rows.iter().map(|row| of(*row)).collect(),
    };
    let (left, right) = (Align::Left, Align::Right);
    let mut columns = vec![column("NAME", left, &|row| Some(name(row)))];
    if by != By::None {
        columns.push(column("RANK", right, &|row| row.series.rank.map(|rank| rank.to_string())));
        columns.push(column("HOST", left, &|row| row.hosts.host(row.series.rank?).map(str::to_owned)));
        columns.push(column("RANKS", left, &|row| row.series.ranks.clone()));
    }
    columns.push(column("TYPE", left, &|row| Some(row.series.values.kind().to_owned())));
    columns.push(column("TOTAL", right, &total));
    columns.push(column("RATE", right, &|row| match row.series.values {
        Values::Counter { rate, .. } => Some(unit(row).rate(rate)),
        Values::Timer { rate, .. } => Some(self::rate(rate)),
        _ => None,
    }));
    if let Some(seconds) = answer.series.iter().find_map(|series| Some(series.since.as_ref()?.seconds)) {
        let last = format!("LAST {}", duration(seconds));
        columns.push(column(&last, right, &|row| gained(row, |since| since.total, Unit::value)));
        columns.push(column("AVERAGE", right, &|row| match (&row.series.values, &row.series.since) {
            (Values::Gauge { .. }, Some(since)) => Some(unit(row).value(since.average()?)),
            _ => gained(row, |since| since.rate, Unit::rate),
        }));
    }
    let quantile = |row: Row<'_>, of: fn(&crate::answer::Shape) -> f64| match &row.series.values {
        Values::Timer { shape: Some(shape), .. } => Some(unit(row).value(of(shape))),
        _ => None,
    };
    columns.push(column("P50", right, &|row| quantile(row, |shape| shape.p50)));
    columns.push(column("P99", right, &|row| quantile(row, |shape| shape.p99)));
    // What one rank measured is its own maximum.
    let single = by == By::Rank;
    columns.push(column("MAX", right, &|row| match &row.series.values {
        Values::Counter { max: Some((_, rate)), .. } if !single => Some(unit(row).rate(*rate)),
        Values::Gauge { max, .. } if !single => Some(unit(row).value(max.value)),
        Values::Timer { shape: Some(shape), .. } => Some(unit(row).value(shape.max)),
        _ => None,
    }));
    columns.push(column("ON RANK", left, &|row| {
        max_rank(row.series).filter(|_| !single).map(|rank| row.hosts.name(rank))
    }));

    columns.retain(|column| column.cells.iter().any(Option::is_some));
    let names = columns.iter().map(|column| (if heading { column.name.as_str() } else { "" }, column.align));
    let names: Vec<(&str, Align)> = names.collect();
    let mut cells: Vec<_> = columns.iter().map(|column| column.cells.iter()).collect();
    let rows = (0..rows.len()).map(|_| {
        let row = cells.iter_mut().map(|cells| cells.next().and_then(Clone::clone));
        row.map(|cell| cell.unwrap_or_else(|| UNKNOWN.to_owned())).collect()
    });
    table(&names, rows)
}

fn unit(row: Row<'_>) -> Unit {
    Unit::of(&row.series.name)
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
