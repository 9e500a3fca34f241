//! Lines of a table: what they are, what their columns say, in which order they come.

use super::work::Work;
use crate::answer::{Series, Values};
use crate::show::{UNKNOWN, Unit, duration, number};
use clap::ValueEnum;
use std::cmp::Ordering;

/// What a line is about; it stays selected wherever it goes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Module(String),
    Rank(u32),
    /// Its name and tags.
    Series(String),
}

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    pub(crate) key: Key,
    /// What it is called.
    pub(crate) name: String,
    /// Where the busiest of it is, and on which host.
    pub(crate) busiest: Option<u32>,
    pub(crate) host: String,
    pub(crate) what: What,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum What {
    Work(Work),
    Series(Box<Series>),
}

/// What a column says, and what lines are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Column {
    Name,
    Wakeups,
    Work,
    Max,
    Busiest,
    Blocked,
    Cpu,
    P99,
    Longest,
    Sendq,
    Recvq,
    #[value(skip)]
    Host,
    #[value(skip)]
    Past,
    #[value(skip)]
    Kind,
    #[value(skip)]
    Value,
    #[value(skip)]
    Rate,
}

impl Column {
    /// Of modules in the instance.
    pub(crate) const MODULES: [Column; 13] = [
        Column::Name,
        Column::Wakeups,
        Column::Work,
        Column::Max,
        Column::Busiest,
        Column::Host,
        Column::Blocked,
        Column::Cpu,
        Column::P99,
        Column::Longest,
        Column::Sendq,
        Column::Recvq,
        Column::Past,
    ];
    /// Of modules on one rank, and of ranks.
    pub(crate) const ON_RANKS: [Column; 11] = [
        Column::Name,
        Column::Host,
        Column::Wakeups,
        Column::Work,
        Column::Blocked,
        Column::Cpu,
        Column::P99,
        Column::Longest,
        Column::Sendq,
        Column::Recvq,
        Column::Past,
    ];
    /// Of series.
    pub(crate) const SERIES: [Column; 7] =
        [Column::Name, Column::Kind, Column::Value, Column::Rate, Column::Max, Column::Busiest, Column::Host];

    /// Whether the lesser comes first where nobody says otherwise.
    fn is_ascending(self) -> bool {
        matches!(self, Column::Name | Column::Busiest | Column::Host | Column::Kind)
    }

    /// Whether lines can be sorted by it.
    pub(crate) fn sorts(self) -> bool {
        self != Column::Past
    }
}

impl Line {
    /// The number of a column, in the unit that the column says.
    fn amount(&self, column: Column) -> Option<f64> {
        if column == Column::Busiest {
            return self.busiest.map(f64::from);
        }
        match &self.what {
            What::Work(work) => match column {
                Column::Wakeups => work.wakeups,
                Column::Work => work.work,
                Column::Max => work.max,
                Column::Blocked => work.blocked,
                Column::Cpu => work.cpu,
                Column::P99 => work.p99_s,
                Column::Longest => work.longest_s,
                Column::Sendq => work.sendq,
                Column::Recvq => work.recvq,
                _ => None,
            },
            What::Series(series) => of_series(&series.values, column),
        }
    }

    /// What a column says of it.
    pub(crate) fn text(&self, column: Column) -> String {
        match (column, &self.what) {
            (Column::Name, _) => return self.name.clone(),
            (Column::Host, _) => return self.host.clone(),
            (Column::Kind, What::Series(series)) => return series.values.kind().to_owned(),
            _ => {}
        }
        let Some(amount) = self.amount(column) else { return UNKNOWN.to_owned() };
        match (column, &self.what) {
            (Column::P99 | Column::Longest, _) => duration(amount),
            (Column::Value, What::Series(series)) => match &series.values {
                Values::Set { .. } => number(amount),
                // How many samples: their unit is that of the quantiles.
                Values::Timer { .. } => number(amount),
                _ => Unit::of_series(series).value(amount),
            },
            (Column::Rate | Column::Max, What::Series(series)) => match &series.values {
                Values::Gauge { .. } => Unit::of_series(series).value(amount),
                Values::Timer { .. } if column == Column::Max => Unit::of_series(series).value(amount),
                Values::Timer { .. } => Unit::Plain.rate(amount),
                _ => Unit::of_series(series).rate(amount),
            },
            (Column::Busiest | Column::Sendq | Column::Recvq, _) => number(amount),
            _ => three(amount),
        }
    }

    /// For how long a module has not come back, if it has not.
    pub(crate) fn stalled(&self) -> Option<(u32, f64)> {
        match &self.what {
            What::Work(work) => work.stalled,
            What::Series(_) => None,
        }
    }

    fn is_like(&self, filter: &str) -> bool {
        let is_in = |text: &str| text.to_lowercase().contains(filter);
        filter.is_empty() || is_in(&self.name) || is_in(&self.host)
    }

    fn compare(&self, other: &Line, column: Column) -> Ordering {
        match column {
            // Ranks are numbers.
            Column::Name | Column::Past => self.key.cmp(&other.key),
            Column::Host => self.host.cmp(&other.host),
            Column::Kind => self.text(column).cmp(&other.text(column)),
            _ => {
                // What is not known comes last, whichever way.
                let amount = |line: &Line| line.weight(column).unwrap_or(f64::NEG_INFINITY);
                amount(self).total_cmp(&amount(other))
            }
        }
    }

    /// What it is sorted by. Whose work is not known (a process without a hook) is not idle therefore.
    fn weight(&self, column: Column) -> Option<f64> {
        let cpu = match column {
            Column::Work | Column::Max => self.amount(Column::Cpu),
            _ => None,
        };
        self.amount(column).or(cpu)
    }
}

/// Three digits, so that numbers of a column are easily compared; none of nothing.
fn three(amount: f64) -> String {
    match amount {
        0.0 => "0".to_owned(),
        _ if amount < 9.995 => format!("{amount:.2}"),
        _ if amount < 99.95 => format!("{amount:.1}"),
        _ => number(amount.round()),
    }
}

fn of_series(values: &Values, column: Column) -> Option<f64> {
    match (values, column) {
        (Values::Counter { total, .. }, Column::Value) => Some(*total),
        (Values::Counter { rate, .. }, Column::Rate) => Some(*rate),
        (Values::Counter { max, .. }, Column::Max) => max.map(|(_, rate)| rate),
        (Values::Gauge { sum, .. }, Column::Value) => Some(*sum),
        (Values::Gauge { max, .. }, Column::Max) => Some(max.value),
        (Values::Timer { count, .. }, Column::Value) => Some(*count as f64),
        (Values::Timer { rate, .. }, Column::Rate) => Some(*rate),
        (Values::Timer { shape, .. }, Column::Max) => shape.map(|shape| shape.max),
        (Values::Set { estimate, .. }, Column::Value) => Some(*estimate),
        _ => None,
    }
}

/// The order of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) column: Column,
    /// Against the column's own direction.
    pub(crate) reversed: bool,
}

/// The lines that `filter` lets through, in order. Where the column says the same, by what the lines are about.
pub(crate) fn arranged(mut lines: Vec<Line>, filter: &str, order: Order) -> Vec<Line> {
    let filter = filter.to_lowercase();
    lines.retain(|line| line.is_like(&filter));
    let unknown = |line: &Line| {
        line.weight(order.column).is_none()
            && !matches!(order.column, Column::Name | Column::Host | Column::Kind | Column::Past)
    };
    lines.sort_by(|a, b| {
        let compared = a.compare(b, order.column);
        let directed =
            if order.column.is_ascending() != order.reversed { compared } else { compared.reverse() };
        unknown(a).cmp(&unknown(b)).then(directed).then_with(|| a.key.cmp(&b.key))
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_column_have_as_many_digits() {
        for (amount, text) in [
            (0.0, "0"),
            (0.001, "0.00"),
            (9.25, "9.25"),
            (25.0, "25.0"),
            (99.96, "100"),
            (1234.5, "1235"),
            (1.1e6, "1.10M"),
        ] {
            assert_eq!(three(amount), text);
        }
    }

    #[test]
    fn a_process_without_a_hook_is_sorted_by_its_cpu_time() {
        let what = What::Work(Work { cpu: Some(1.5), ..Work::default() });
        let process = Line { what, ..line("process", None) };
        let order = Order { column: Column::Work, reversed: false };
        let sorted = arranged(vec![line("a", Some(1.0)), process, line("b", Some(2.0))], "", order);
        assert_eq!(sorted.iter().map(|line| line.name.as_str()).collect::<Vec<_>>(), ["b", "process", "a"]);
        assert_eq!(sorted[1].text(Column::Work), UNKNOWN);
    }

    #[test]
    fn samples_of_a_pushed_timer_are_in_the_unit_that_its_answer_tells() {
        let answer = r#"{"name": "a.fetch", "tags": {}, "type": "timer", "unit": "seconds", "count": 3, "rate": 1.5, "sum": 0.3,
            "min": 0.09, "max": 0.12, "mean": 0.1, "stddev": 0.01, "p50": 0.1, "p90": 0.11, "p99": 0.12,
            "relative_error": 0.0078}"#;
        let series = serde_json::from_str(answer).unwrap();
        let pushed = Line { what: What::Series(Box::new(series)), ..line("a.fetch", None) };
        assert_eq!(pushed.text(Column::Max), "120ms");
        assert_eq!(pushed.text(Column::Rate), "1.50/s");
        assert_eq!(pushed.text(Column::Value), "3");
    }

    fn line(name: &str, work: Option<f64>) -> Line {
        let what = What::Work(Work { work, ..Work::default() });
        Line { key: Key::Module(name.into()), name: name.into(), busiest: None, host: String::new(), what }
    }

    fn names(filter: &str, column: Column, reversed: bool) -> Vec<String> {
        let lines =
            vec![line("b", Some(1.0)), line("none", None), line("a", Some(1.0)), line("C", Some(2.0))];
        arranged(lines, filter, Order { column, reversed }).into_iter().map(|line| line.name).collect()
    }

    #[test]
    fn the_most_comes_first_and_what_is_not_known_last() {
        assert_eq!(names("", Column::Work, false), ["C", "a", "b", "none"]);
        assert_eq!(names("", Column::Work, true), ["a", "b", "C", "none"]);
        assert_eq!(names("", Column::Name, false), ["C", "a", "b", "none"]);
        assert_eq!(names("c", Column::Work, false), ["C"], "whatever the case");
    }

    #[test]
    fn ranks_are_sorted_as_numbers() {
        let rank = |rank: u32| Line { key: Key::Rank(rank), ..line(&rank.to_string(), None) };
        let order = Order { column: Column::Name, reversed: false };
        let sorted = arranged(vec![rank(10), rank(9)], "", order);
        assert_eq!(sorted[0].name, "9");
    }
}
