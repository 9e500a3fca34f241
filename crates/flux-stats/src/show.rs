//! How numbers look to a person, and tables of them: every subcommand shows them alike.

use crate::answer::{Answer, Ranks, Series};
use comfy_table::{CellAlignment, Table, presets};
use stats_core::IdSet;

/// What is shown where nothing is known.
pub(crate) const UNKNOWN: &str = "-";

/// Three digits and a unit; from a minute on, minutes and seconds, and so on.
pub(crate) fn duration(seconds: f64) -> String {
    if !seconds.is_finite() {
        return UNKNOWN.to_owned();
    }
    let sign = if seconds < 0.0 { "-" } else { "" };
    let seconds = seconds.abs();
    let whole = seconds as u64;
    let text = match seconds {
        0.0 => "0s".to_owned(),
        s if s < 1e-3 => three(s * 1e6, "us"),
        s if s < 1.0 => three(s * 1e3, "ms"),
        s if s < 60.0 => three(s, "s"),
        _ if whole < 3_600 => format!("{}m{:02}s", whole / 60, whole % 60),
        _ if whole < 86_400 => format!("{}h{:02}m", whole / 3_600, whole % 3_600 / 60),
        _ => format!("{}d{:02}h", whole / 86_400, whole % 86_400 / 3_600),
    };
    format!("{sign}{text}")
}

/// Bytes in powers of 1024.
pub(crate) fn bytes(bytes: f64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    scaled(bytes, 1024.0, &UNITS)
}

/// A number without a unit: a whole one below 100,000 as it is, others with three digits, in powers of 1000.
pub(crate) fn number(number: f64) -> String {
    const UNITS: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    if number.fract() == 0.0 && number.abs() < 100_000.0 {
        return format!("{number:.0}");
    }
    if number.abs() < 1.0 {
        let digits = 2.0 - number.abs().log10().floor();
        return if digits <= 6.0 { format!("{number:.*}", digits as usize) } else { format!("{number:.2e}") };
    }
    scaled(number, 1000.0, &UNITS)
}

/// Something in a second, without a unit of its own.
pub(crate) fn rate(per_second: f64) -> String {
    format!("{}/s", self::number(per_second))
}

/// A part of one, in percent.
pub(crate) fn percent(part: f64) -> String {
    if part.is_finite() { format!("{:.2}%", 100.0 * part) } else { UNKNOWN.to_owned() }
}

/// Three digits, and the unit in which that is enough.
fn scaled(number: f64, step: f64, units: &[&str]) -> String {
    if !number.is_finite() {
        return UNKNOWN.to_owned();
    }
    let sign = if number < 0.0 { "-" } else { "" };
    let (mut number, mut unit) = (number.abs(), 0);
    // What would be rounded to four digits has the next unit.
    while number >= step.min(999.5) && unit + 1 < units.len() {
        number /= step;
        unit += 1;
    }
    // Of what cannot be divided there are no halves.
    if number.fract() == 0.0 && unit == 0 {
        return format!("{sign}{number:.0}{}", units[0]);
    }
    format!("{sign}{}", three(number, units[unit]))
}

fn three(number: f64, unit: &str) -> String {
    let digits = if number >= 99.95 {
        0
    } else if number >= 9.995 {
        1
    } else {
        2
    };
    format!("{number:.digits$}{unit}")
}

/// What a series counts, as its answer or the end of its name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Seconds,
    Bytes,
    Plain,
}

impl Unit {
    /// `_s` are seconds, `_bytes` bytes; also of a series that is one word.
    pub(crate) fn of(name: &str) -> Unit {
        let last = name.rsplit('.').next().unwrap_or(name);
        match last.rsplit('_').next() {
            Some("s") if last.len() > 1 => Unit::Seconds,
            Some("bytes") => Unit::Bytes,
            _ => Unit::Plain,
        }
    }

    /// What an answer says of a series goes before the end of its name.
    pub(crate) fn told(unit: Option<&str>, name: &str) -> Unit {
        match unit {
            Some("seconds") => Unit::Seconds,
            Some("bytes") => Unit::Bytes,
            _ => Unit::of(name),
        }
    }

    pub(crate) fn of_series(series: &Series) -> Unit {
        Unit::told(series.unit.as_deref(), &series.name)
    }

    /// That many of it.
    pub(crate) fn value(self, value: f64) -> String {
        match self {
            Unit::Seconds => duration(value),
            Unit::Bytes => bytes(value),
            Unit::Plain => number(value),
        }
    }

    /// That many of it in a second: of seconds, the share of the time.
    pub(crate) fn rate(self, per_second: f64) -> String {
        match self {
            Unit::Seconds => percent(per_second),
            Unit::Bytes => format!("{}/s", bytes(per_second)),
            Unit::Plain => rate(per_second),
        }
    }
}

pub(crate) fn named(ranks: &IdSet) -> String {
    let s = if ranks.len() == 1 { "" } else { "s" };
    format!("rank{s} {ranks}")
}

/// Whom an answer covers, and how old it is, on one line.
pub(crate) fn coverage(answer: &Answer) -> String {
    let Ranks { covered, offline, absent, silent, oldest, .. } = &answer.ranks;
    let ranks = |set: &str| if set.is_empty() { "none".to_owned() } else { set.to_owned() };
    let partial = if answer.is_partial() { "PARTIAL: " } else { "" };
    let mut text = format!("{partial}ranks {}", ranks(covered));
    if answer.instance.size > 0 {
        text += &format!(" of {}", answer.instance.size);
    }
    let missing = [
        (silent, "silent"),
        (absent, "without stats-agg"),
        (offline, "offline"),
        (&answer.unanswered, "did not answer"),
    ];
    for (set, what) in missing.into_iter().filter(|(set, _)| !set.is_empty()) {
        text += &format!("; {set} {what}");
    }
    format!("{text}; oldest {} ago, period {}", duration(*oldest), duration(answer.period))
}

/// On which side a column is even.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Aligned columns without lines, each row ended by a newline. No columns' names, no line for them.
pub(crate) fn table(columns: &[(&str, Align)], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if columns.iter().any(|(name, _)| !name.is_empty()) {
        table.set_header(columns.iter().map(|(name, _)| *name));
    }
    for row in rows {
        table.add_row(row);
    }
    for (column, (_, align)) in table.column_iter_mut().zip(columns) {
        column.set_padding((0, 2));
        if *align == Align::Right {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let text = table.trim_fmt();
    if text.is_empty() { text } else { text + "\n" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_the_unit_that_fits() {
        for (seconds, text) in [
            (0.0, "0s"),
            (12.34e-6, "12.3us"),
            (0.000_999_6, "1000us"),
            (0.25, "250ms"),
            (-0.25, "-250ms"),
            (5.0, "5.00s"),
            (59.99, "60.0s"),
            (61.0, "1m01s"),
            (7_260.0, "2h01m"),
            (90_000.0, "1d01h"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }

    #[test]
    fn numbers_and_bytes_have_three_digits_or_are_exact() {
        for (value, text) in [
            (0.0, "0"),
            (1200.0, "1200"),
            (99_999.0, "99999"),
            (-7.0, "-7"),
            (0.123_4, "0.123"),
            (-0.001_234, "-0.00123"),
            (0.000_001_234, "1.23e-6"),
            (12.34, "12.3"),
            (999.6, "1.00k"),
            (100_000.0, "100k"),
            (1_234_567.0, "1.23M"),
            (-1_234_567.0, "-1.23M"),
            (5e21, "5000000P"),
            (f64::INFINITY, "-"),
        ] {
            assert_eq!(number(value), text);
        }
        for (value, text) in [
            (0.0, "0B"),
            (17.0, "17B"),
            (17.5, "17.5B"),
            (1000.0, "0.98KiB"),
            (1024.0, "1.00KiB"),
            (1_073_741_824.0, "1.00GiB"),
            (-2048.0, "-2.00KiB"),
        ] {
            assert_eq!(bytes(value), text);
        }
    }

    #[test]
    fn the_end_of_a_name_is_the_unit() {
        for (name, unit) in [
            ("modules.kvs.work_s", Unit::Seconds),
            ("app.s", Unit::Plain),
            ("app.requests", Unit::Plain),
            ("broker.rss_bytes", Unit::Bytes),
            ("app.bytes", Unit::Bytes),
            ("app_s.count", Unit::Plain),
        ] {
            assert_eq!(Unit::of(name), unit, "{name}");
        }
        assert_eq!(Unit::Seconds.value(0.5), "500ms");
        assert_eq!(Unit::Seconds.rate(0.5), "50.00%");
        assert_eq!(Unit::Bytes.rate(2048.0), "2.00KiB/s");
        assert_eq!(Unit::Plain.rate(40.0), "40/s");
    }

    #[test]
    fn a_table_is_aligned_and_without_names_has_no_line_for_them() {
        let columns = [("NAME", Align::Left), ("N", Align::Right)];
        let rows = || [vec!["a".to_owned(), "1".to_owned()], vec!["longer".to_owned(), "200".to_owned()]];
        insta::assert_snapshot!(table(&columns, rows()), @r"
        NAME      N
        a         1
        longer  200
        ");
        let unnamed = columns.map(|(_, align)| ("", align));
        assert_eq!(table(&unnamed, rows()), "a         1\nlonger  200\n");
        assert_eq!(table(&unnamed, []), "");
    }
}
