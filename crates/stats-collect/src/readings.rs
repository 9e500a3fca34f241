//! What one answer amounts to, before it is the node's.

use crate::aliases::ALIASES;
use crate::collector::Described;
use stats_core::{Amount, Key, Kind, NAME_MAX, TAG_MAX, Unit};

/// The greatest number that is taken: above all that 64 bits hold.
const NUMBER_MAX: f64 = 1e20;

/// One number.
pub(crate) struct Reading {
    pub(crate) key: Key,
    pub(crate) value: Value,
}

/// What is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    /// What it is now.
    State(Amount),
    /// How often since its source began to count.
    Total(Total),
}

/// A count of which the source says how it may fall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Total {
    /// A C `int` that wraps, and that its owner may clear.
    Int(i32),
    /// One that begins anew at zero.
    Wide(u64),
}

impl Total {
    /// Where such a count begins.
    pub(crate) fn zero(self) -> Total {
        match self {
            Total::Int(_) => Total::Int(0),
            Total::Wide(_) => Total::Wide(0),
        }
    }

    /// What was gained since `before`. A fall is a new beginning, unless an `int` has passed its end.
    pub(crate) fn gained(self, before: Total) -> u64 {
        match (self, before) {
            (Total::Wide(now), Total::Wide(before)) => now.checked_sub(before).unwrap_or(now),
            (Total::Int(now), Total::Int(before)) => {
                let wrapped = before > i32::MAX / 2 && now < 0;
                if now >= before || wrapped {
                    u64::from(now.wrapping_sub(before).cast_unsigned())
                } else {
                    u64::try_from(now).unwrap_or(0)
                }
            }
            _ => 0,
        }
    }
}

/// What is read goes here, each number under a row of the collector's table.
pub(crate) struct Readings {
    series: &'static [Described],
    aliases: bool,
    list: Vec<Reading>,
}

impl Readings {
    pub(crate) fn new(series: &'static [Described], aliases: bool) -> Self {
        Readings { series, aliases, list: Vec::new() }
    }

    pub(crate) fn into_list(self) -> Vec<Reading> {
        self.list
    }

    /// A state, in the unit of its row; `with` fills the placeholders of its name.
    pub(crate) fn set(&mut self, form: &'static str, with: &[&str], value: f64) {
        self.set_tagged(form, with, &[], value);
    }

    /// A state that has tags.
    pub(crate) fn set_tagged(
        &mut self,
        form: &'static str,
        with: &[&str],
        tags: &[(&str, &str)],
        value: f64,
    ) {
        self.put(form, with, tags, |unit| {
            let in_one = if unit == Unit::Nanoseconds { 1e9 } else { 1.0 };
            // What is beyond is no quantity of a broker's, and would be shown as another.
            let value = Some(value).filter(|value| value.abs() <= NUMBER_MAX)?;
            Amount::nearest(value * in_one).map(Value::State)
        });
    }

    /// A state, if it is known.
    pub(crate) fn set_known(&mut self, form: &'static str, with: &[&str], value: Option<f64>) {
        if let Some(value) = value {
            self.set(form, with, value);
        }
    }

    /// A count since its source began to count.
    pub(crate) fn total(&mut self, form: &'static str, with: &[&str], total: Total) {
        self.put(form, with, &[], |_| Some(Value::Total(total)));
    }

    fn put(
        &mut self,
        form: &'static str,
        with: &[&str],
        tags: &[(&str, &str)],
        value: impl FnOnce(Unit) -> Option<Value>,
    ) {
        let row = self.series.iter().find(|row| row.name == form);
        debug_assert!(row.is_some(), "{form} is in no table");
        let Some(row) = row else { return };
        debug_assert!(tags.iter().all(|(key, _)| row.tags.contains(key)), "{form}: a tag is in no table");
        let with: Vec<String> = with.iter().map(|part| named(part)).collect();
        let with: Vec<&str> = with.iter().map(String::as_str).collect();
        let name = row.filled(&with);
        let tags: Vec<(&str, &str)> = tags.iter().map(|&(key, value)| (key, cut(value))).collect();
        let Some(value) = value(row.unit) else { return };
        if self.aliases && tags.is_empty() && row.kind == Kind::Gauge {
            for alias in ALIASES.iter().filter(|alias| alias.of == name) {
                self.push(alias.as_.name, alias.tags, alias.as_.kind, alias.as_.unit, value);
            }
        }
        self.push(&name, &tags, row.kind, row.unit, value);
    }

    fn push(&mut self, name: &str, tags: &[(&str, &str)], kind: Kind, unit: Unit, value: Value) {
        // A name that is too long is not one of ours.
        if let Ok(key) = Key::new(name, tags, kind, unit) {
            self.list.push(Reading { key, value });
        }
    }
}

/// A part of a name from a text of others: what a name may not have becomes `_`.
fn named(text: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') { c } else { '_' };
    let text: String = text.chars().take(NAME_MAX / 2).map(allowed).collect();
    let parts: Vec<&str> = text.split('.').filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { "_".to_owned() } else { parts.join(".") }
}

/// A tag's value: as long as it may be, and not empty.
fn cut(text: &str) -> &str {
    let end = (0..=text.len().min(TAG_MAX)).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    let text = text.get(..end).unwrap_or_default();
    if text.is_empty() { "_" } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_int_that_falls_was_cleared_unless_it_has_passed_its_end() {
        let gained = |before, now| Total::Int(now).gained(Total::Int(before));
        assert_eq!(gained(5, 9), 4);
        assert_eq!(gained(1000, 7), 7, "cleared, and seven since");
        assert_eq!(gained(i32::MAX - 1, i32::MIN + 3), 5, "past its end");
        assert_eq!(gained(-10, -4), 6, "beyond its end");
        assert_eq!(gained(-4, 3), 7, "beyond its end, up to zero and further");
        assert_eq!(gained(-10, 2), 12);
        assert_eq!(gained(5, -3), 0, "nonsense gains nothing");
        assert_eq!(Total::Wide(3).gained(Total::Wide(10)), 3);
        assert_eq!(Total::Wide(13).gained(Total::Wide(10)), 3);
    }

    #[test]
    fn names_of_others_become_parts_of_ours() {
        assert_eq!(named("obj size total (MiB)"), "obj_size_total__MiB_");
        assert_eq!(named("#transactions"), "_transactions");
        assert_eq!(named(".."), "_");
        assert_eq!(named("sched-simple"), "sched-simple");
        assert_eq!(cut(""), "_");
        assert_eq!(cut(&"é".repeat(TAG_MAX)).len(), TAG_MAX);
    }
}
