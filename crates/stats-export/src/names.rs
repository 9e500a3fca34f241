//! Names by the conventions of Prometheus and OpenTelemetry: what stands for an instance of something inside a name of
//! ours (`modules.kvs.wakeups`) is a label (`flux_module_wakeups_total{module="kvs"}`).

use crate::snapshot::{Point, Unit};
use std::borrow::Cow;

/// Beginnings of names after which a part follows that is one of many: the beginning, what is left of it, and the label.
const MANY: [(&str, &str, &str); 4] = [
    ("modules.", "module.", "module"),
    ("stats-agg.collect.", "stats-agg.collect.", "collector"),
    ("stats-agg.export.", "stats-agg.export.", "sink"),
    ("guests.", "guests.", "uid"),
];

/// A name without what is a label of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Split<'a> {
    /// Dotted: `module.wakeups`.
    pub(crate) base: Cow<'a, str>,
    /// `("module", "kvs")`.
    pub(crate) label: Option<(&'static str, &'a str)>,
}

/// Splits a dotted name.
pub(crate) fn split(name: &str) -> Split<'_> {
    for (beginning, left, label) in MANY {
        let rest = name.strip_prefix(beginning).and_then(|rest| rest.split_once('.'));
        if let Some((one, rest)) = rest {
            return Split { base: format!("{left}{rest}").into(), label: Some((label, one)) };
        }
    }
    Split { base: name.into(), label: None }
}

/// `base` without what says its unit.
pub(crate) fn without_unit(base: &str, unit: Unit) -> &str {
    let ending = match unit {
        Unit::None => None,
        Unit::Seconds => base.strip_suffix("_s").or_else(|| base.strip_suffix("_seconds")),
        Unit::Bytes => base.strip_suffix("_bytes").or_else(|| base.strip_suffix(".bytes")),
    };
    ending.filter(|base| !base.is_empty() && !base.ends_with('.')).unwrap_or(base)
}

/// A name as Prometheus takes it, `prefix` and unit apart: `module_wakeups`.
pub(crate) fn words(base: &str) -> String {
    let word = |char: char| if char.is_ascii_alphanumeric() { char } else { '_' };
    base.chars().map(word).collect()
}

/// A prefix as Prometheus takes it.
pub(crate) fn prefix_words(prefix: &str) -> String {
    let digit = prefix.starts_with(|first: char| first.is_ascii_digit());
    (if digit { "_" } else { "" }).to_owned() + &words(prefix)
}

/// With `prefix` before it, unless it begins so, and with `middle` and the unit behind it.
pub(crate) fn joined(prefix: &str, words: &str, middle: &str, unit: Unit) -> String {
    let mut name = String::with_capacity(prefix.len() + words.len() + middle.len() + 10);
    let begins_so = words.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('_'));
    if !prefix.is_empty() && !begins_so {
        name.push_str(prefix);
        name.push('_');
    }
    if name.is_empty() && words.starts_with(|first: char| first.is_ascii_digit()) {
        name.push('_');
    }
    name.push_str(words);
    name.push_str(middle);
    if unit != Unit::None {
        name.push('_');
        name.push_str(unit.word());
    }
    name
}

/// The labels of a point, by keys that Prometheus takes, none of them twice and none of `taken`, which a format uses
/// itself: the label of its name, its rank, its tags.
pub(crate) fn labels<'a>(point: &'a Point, taken: &[&str]) -> Vec<(Cow<'a, str>, Cow<'a, str>)> {
    let mut labels: Vec<(Cow<'a, str>, Cow<'a, str>)> = Vec::with_capacity(point.tags.len() + 2);
    if let Some((key, value)) = split(&point.name).label {
        labels.push((key.into(), value.into()));
    }
    if let Some(rank) = point.rank {
        labels.push(("rank".into(), rank.to_string().into()));
    }
    for (key, value) in &point.tags {
        let mut key = label_key(key);
        while taken.contains(&key.as_ref()) || labels.iter().any(|(present, _)| *present == key) {
            key = format!("exported_{key}").into();
        }
        labels.push((key, value.as_str().into()));
    }
    labels
}

fn label_key(key: &str) -> Cow<'_, str> {
    let plain = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let begins_well = !key.starts_with(|first: char| first.is_ascii_digit()) && !key.starts_with("__");
    if begins_well && key.chars().all(plain) {
        return key.into();
    }
    let mut made = words(key);
    if !begins_well {
        made.insert_str(0, "tag_");
    }
    made.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Value;

    #[test]
    fn what_is_one_of_many_is_a_label() {
        let of = |name: &'static str| {
            let split = split(name);
            (split.base.into_owned(), split.label)
        };
        assert_eq!(of("modules.kvs.wakeups"), ("module.wakeups".into(), Some(("module", "kvs"))));
        assert_eq!(of("modules.kvs.stats.a.b"), ("module.stats.a.b".into(), Some(("module", "kvs"))));
        let collector = ("stats-agg.collect.reply_s".into(), Some(("collector", "jobs")));
        assert_eq!(of("stats-agg.collect.jobs.reply_s"), collector);
        assert_eq!(of("guests.1001.app.x"), ("guests.app.x".into(), Some(("uid", "1001"))));
        assert_eq!(of("broker.rss_anon_bytes"), ("broker.rss_anon_bytes".into(), None));
        assert_eq!(of("modules.kvs"), ("modules.kvs".into(), None));
    }

    #[test]
    fn units_are_written_out_and_come_last() {
        let name = |base, middle, unit| joined("flux", &words(without_unit(base, unit)), middle, unit);
        assert_eq!(
            name("module.longest_work_s", "_max", Unit::Seconds),
            "flux_module_longest_work_max_seconds"
        );
        assert_eq!(name("module.stalled", "", Unit::Seconds), "flux_module_stalled_seconds");
        assert_eq!(name("module.content.cache_bytes", "", Unit::Bytes), "flux_module_content_cache_bytes");
        assert_eq!(name("flux.content-cache.count", "", Unit::None), "flux_content_cache_count");
        assert_eq!(joined("", "9lives", "", Unit::None), "_9lives");
    }

    #[test]
    fn no_label_is_there_twice_or_takes_the_place_of_one_of_the_format() {
        let tags = [("le", "a"), ("module", "b"), ("a-b", "c"), ("a.b", "d"), ("1x", "e"), ("__x", "f")];
        let tags = tags.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
        let value = Value::Counter { total: 0.0, falls: false, peak: None };
        let name = "modules.kvs.x".to_owned();
        let point = Point { name, tags, unit: Unit::None, rank: Some(3), created_s: None, value };
        let keys: Vec<String> =
            labels(&point, &["le"]).into_iter().map(|(key, _)| key.into_owned()).collect();
        assert_eq!(
            keys,
            ["module", "rank", "exported_le", "exported_module", "a_b", "exported_a_b", "tag_1x", "tag___x"]
        );
    }
}
