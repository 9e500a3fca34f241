//! What a Prometheus server scrapes: its text format (0.0.4) and OpenMetrics 1.0.
//!
//! By hand, since `prometheus-client` writes OpenMetrics alone, of metrics that it has counted itself, and no `_created`
//! (prometheus.io/docs/instrumenting/exposition_formats, github.com/prometheus/OpenMetrics).

use super::number;
use crate::names::{joined, labels, prefix_words, split, without_unit, words};
use crate::snapshot::{Coverage, Point, QUANTILES, Snapshot, Timer, Unit, Value, View};
use rustc_hash::{FxHashMap, FxHashSet};
use stats_collect::described;
use stats_core::is_reserved;
use std::collections::HashSet;
use std::fmt::Write;

/// The two forms of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// `text/plain; version=0.0.4`.
    Text,
    /// `application/openmetrics-text; version=1.0.0`, which also says since when each series is counted.
    OpenMetrics,
}

impl Format {
    /// The value of `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// What an `Accept` header asks for. Where two are as welcome, OpenMetrics.
    pub fn accepted(accept: &str) -> Self {
        let quality = |wanted: &str| {
            let some = accept.split(',').filter_map(|range| {
                let mut parts = range.split(';').map(str::trim);
                let media = parts.next()?;
                let value = |key: &str, part: &str| {
                    let (found, value) = part.split_once('=')?;
                    found.trim().eq_ignore_ascii_case(key).then(|| value.trim().trim_matches('"').to_owned())
                };
                let rest: Vec<&str> = parts.collect();
                let version = rest.iter().find_map(|part| value("version", part));
                let known =
                    version.is_none_or(|version| ["1.0.0", "0.0.1", "0.0.4"].contains(&version.as_str()));
                let quality = rest.iter().find_map(|part| value("q", part)?.parse::<f64>().ok());
                (media.eq_ignore_ascii_case(wanted) && known).then_some(quality.unwrap_or(1.0))
            });
            some.fold(0.0, f64::max)
        };
        let open = quality("application/openmetrics-text");
        if open > 0.0 && open >= quality("text/plain") { Format::OpenMetrics } else { Format::Text }
    }
}

/// What is scraped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exposition {
    /// The text.
    pub text: String,
    /// Series of the snapshot that are in it.
    pub series: u64,
    /// Series that are not, since another has their name: `a.b` and `a_b` are the same to Prometheus.
    pub clashes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Type {
    Counter,
    Gauge,
    Histogram,
    Summary,
    Info,
}

impl Type {
    fn word(self, format: Format) -> &'static str {
        match (self, format) {
            (Type::Counter, _) => "counter",
            (Type::Histogram, _) => "histogram",
            (Type::Summary, _) => "summary",
            (Type::Info, Format::OpenMetrics) => "info",
            (Type::Gauge | Type::Info, _) => "gauge",
        }
    }

    /// What the names of its samples end in.
    fn endings(self) -> &'static [&'static str] {
        match self {
            Type::Counter => &["_total", "_created"],
            Type::Gauge => &[""],
            Type::Histogram => &["_bucket", "_count", "_sum", "_created"],
            Type::Summary => &["", "_count", "_sum", "_created"],
            Type::Info => &["_info"],
        }
    }
}

struct Family {
    name: String,
    kind: Type,
    unit: Unit,
    help: String,
    samples: String,
}

/// Where the samples of points of one base name go.
#[derive(Clone)]
struct Places {
    /// `None`: another family has a name of one of these.
    value: Option<usize>,
    /// Least, greatest, and number of ranks, of a state that more ranks than the root may have.
    spread: Option<[usize; 3]>,
    /// The quantiles of a timer.
    quantiles: Option<usize>,
    /// The greatest share of a rank's time, of a counter of time.
    share: Option<usize>,
}

struct Writer<'a> {
    prefix: &'a str,
    format: Format,
    families: Vec<Family>,
    /// Names of samples that are taken.
    taken: HashSet<String>,
}

impl Writer<'_> {
    /// A family of its own; `None`: a name of its samples is another's.
    fn family(&mut self, words: &str, middle: &str, unit: Unit, kind: Type, help: &str) -> Option<usize> {
        let words = if kind == Type::Counter { words.strip_suffix("_total").unwrap_or(words) } else { words };
        let name = joined(self.prefix, words, middle, unit);
        let samples: Vec<String> = kind.endings().iter().map(|ending| format!("{name}{ending}")).collect();
        // A family may not be called like a sample of another one either.
        let names = || samples.iter().chain(std::iter::once(&name));
        if names().any(|name| self.taken.contains(name)) {
            return None;
        }
        self.taken.extend(names().cloned().collect::<Vec<_>>());
        self.families.push(Family { name, kind, unit, help: help.to_owned(), samples: String::new() });
        Some(self.families.len() - 1)
    }

    fn places(&mut self, point: &Point, base: &str) -> Places {
        let row = described(&point.name);
        let help = match row {
            Some(row) => row.described.about.to_owned(),
            None if is_reserved(&point.name) => format!("{base}, as it is told"),
            None => format!("pushed as {base}"),
        };
        // Who looks for the names of others finds them as they were.
        let prefix = self.prefix;
        if row.is_some_and(|row| row.alias) {
            self.prefix = "";
        }
        let (unit, mut words) = (point.unit, words(without_unit(base, point.unit)));
        // To Prometheus a total is a counter's.
        let counts = matches!(point.value, Value::Counter { .. });
        if let Some(rest) = words.strip_suffix("_total").filter(|_| !counts) {
            words = format!("{rest}_all");
        }
        let mut places = Places { value: None, spread: None, quantiles: None, share: None };
        match &point.value {
            Value::Counter { falls: false, .. } => {
                places.value = self.family(&words, "", unit, Type::Counter, &help);
                if places.value.is_some() && unit == Unit::Seconds && point.rank.is_none() {
                    let help = format!("the greatest share of a rank's time in the last period: {help}");
                    places.share = self.family(&words, "_max_ratio", Unit::None, Type::Gauge, &help);
                }
            }
            Value::Counter { falls: true, .. } => {
                places.value = self.family(&words, "_net", unit, Type::Gauge, &help);
            }
            Value::Set { .. } => places.value = self.family(&words, "", unit, Type::Gauge, &help),
            Value::Gauge { .. } => {
                places.value = self.family(&words, "", unit, Type::Gauge, &help);
                if places.value.is_some() && point.rank.is_none() && !row.is_some_and(|row| row.of_root) {
                    let mut one = |what: &str, middle: &str, unit: Unit| {
                        self.family(&words, middle, unit, Type::Gauge, &format!("{what}: {help}"))
                    };
                    let min = one("the least of a rank", "_min", unit);
                    let max = one("the greatest of a rank", "_max", unit);
                    let ranks = one("how many ranks say", "_ranks", Unit::None);
                    places.spread = min.zip(max).zip(ranks).map(|((min, max), ranks)| [min, max, ranks]);
                }
            }
            Value::Timer(timer) => {
                let summary = |writer: &mut Self| {
                    writer.family(&words, "_quantiles", unit, Type::Summary, &format!("quantiles: {help}"))
                };
                if timer.buckets.is_some() {
                    places.value = self.family(&words, "", unit, Type::Histogram, &help);
                    places.quantiles = places.value.and_then(|_| summary(self));
                } else {
                    places.quantiles = summary(self);
                    places.value = places.quantiles;
                }
            }
        }
        self.prefix = prefix;
        places
    }

    fn sample(&mut self, family: usize, ending: &str, labels: &[&str], value: f64) {
        let Family { name, samples, .. } = &mut self.families[family];
        samples.push_str(name);
        samples.push_str(ending);
        let mut some = labels.iter().filter(|label| !label.is_empty()).peekable();
        if some.peek().is_some() {
            let mut opening = '{';
            for label in some {
                samples.push(opening);
                samples.push_str(label);
                opening = ',';
            }
            samples.push('}');
        }
        samples.push(' ');
        if !number(samples, value) {
            samples.push_str(if value.is_nan() {
                "NaN"
            } else if value > 0.0 {
                "+Inf"
            } else {
                "-Inf"
            });
        }
        samples.push('\n');
    }

    fn created(&mut self, family: usize, labels: &str, point: &Point) {
        if self.format == Format::OpenMetrics
            && let Some(created_s) = point.created_s
        {
            self.sample(family, "_created", &[labels], f64::from(created_s));
        }
    }

    fn point(&mut self, point: &Point, places: &Places, family: usize, labels: &str) {
        match &point.value {
            Value::Counter { total, falls, peak } => {
                if let Some(share) = places.share {
                    self.sample(share, "", &[labels], peak.map_or(0.0, |(rate, _)| rate));
                }
                self.sample(family, if *falls { "" } else { "_total" }, &[labels], *total);
                if !falls {
                    self.created(family, labels, point);
                }
            }
            Value::Set { estimate } => self.sample(family, "", &[labels], *estimate),
            Value::Gauge { ranks, sum, min, max } => {
                self.sample(family, "", &[labels], *sum);
                if let Some(spread) = places.spread {
                    let values = [min.0, max.0, *ranks as f64];
                    spread.into_iter().zip(values).for_each(|(family, value)| {
                        self.sample(family, "", &[labels], value);
                    });
                }
            }
            Value::Timer(timer) => self.timer(point, timer, places, labels),
        }
    }

    fn timer(&mut self, point: &Point, timer: &Timer, places: &Places, labels: &str) {
        if let Some(buckets) = &timer.buckets
            && let Some(family) = places.value
        {
            let mut le = String::new();
            for (bound, count) in buckets {
                le.clear();
                let _ = write!(le, "le=\"{bound:?}\"");
                self.sample(family, "_bucket", &[labels, &le], *count as f64);
            }
            self.sample(family, "_bucket", &[labels, "le=\"+Inf\""], timer.count as f64);
            self.totals(family, point, timer, labels);
        }
        if let Some(family) = places.quantiles {
            for ((q, _), value) in QUANTILES.iter().zip(timer.shape.iter().flat_map(|shape| shape.quantiles))
            {
                self.sample(family, "", &[labels, &format!("quantile=\"{q:?}\"")], value);
            }
            self.totals(family, point, timer, labels);
        }
    }

    fn totals(&mut self, family: usize, point: &Point, timer: &Timer, labels: &str) {
        self.sample(family, "_sum", &[labels], timer.sum);
        self.sample(family, "_count", &[labels], timer.count as f64);
        self.created(family, labels, point);
    }

    fn about_the_instance(&mut self, snapshot: &Snapshot) {
        let (instance, coverage) = (&snapshot.instance, snapshot.coverage);
        let size = instance.size.to_string();
        let level = instance.level.map(|level| level.to_string());
        let facts = [
            ("hostlist", instance.hostlist.as_deref()),
            ("jobid", instance.jobid.as_deref()),
            ("level", level.as_deref()),
            ("size", Some(size.as_str())),
            ("version", Some(env!("CARGO_PKG_VERSION"))),
        ];
        let mut text = String::new();
        for (key, value) in facts {
            label(&mut text, key, value.unwrap_or_default());
        }
        if let Some(family) =
            self.family("instance", "", Unit::None, Type::Info, "the instance, and of flux-stats the version")
        {
            self.sample(family, "_info", &[&text], 1.0);
        }
        let help = "how many ranks the totals cover, and how many are missing because their broker is down, the module is absent, or \
                    nothing was heard";
        if let Some(family) = self.family("ranks", "", Unit::None, Type::Gauge, help) {
            let Coverage { covered, offline, absent, silent, .. } = coverage;
            for (state, count) in
                [("covered", covered), ("offline", offline), ("absent", absent), ("silent", silent)]
            {
                self.sample(family, "", &[&format!("state=\"{state}\"")], count as f64);
            }
        }
        for (words, help, value) in [
            ("oldest_contribution", "the age of the oldest contribution of a rank", coverage.oldest_s),
            ("period", "how often ranks send what they have", snapshot.period_s),
            ("snapshot_timestamp", "when these numbers were taken", snapshot.time_ns as f64 / 1e9),
        ] {
            if let Some(family) = self.family(words, "", Unit::Seconds, Type::Gauge, help) {
                self.sample(family, "", &[], value);
            }
        }
    }
}

/// Labels that are the formats' own.
const OWN_LABELS: [&str; 2] = ["le", "quantile"];

/// A snapshot as a Prometheus server reads it.
pub fn expose(view: &View<'_>, prefix: &str, format: Format) -> Exposition {
    let prefix = &prefix_words(prefix);
    let mut writer = Writer { prefix, format, families: Vec::new(), taken: HashSet::new() };
    writer.about_the_instance(view.snapshot);
    // Names and labels are of who may push anyway: nobody from outside chooses them to make these slow.
    let (mut places, mut there) = (FxHashMap::default(), FxHashSet::default());
    let mut text = String::new();
    let (mut series, mut clashes) = (0, 0);
    // The service's own go first: nobody takes their names.
    let (own, others): (Vec<&Point>, Vec<&Point>) =
        view.points.iter().copied().partition(|point| is_reserved(&point.name));
    for point in own.into_iter().chain(others) {
        let base = split(&point.name).base;
        let falls = matches!(point.value, Value::Counter { falls: true, .. });
        let own = is_reserved(&point.name);
        let kind = (std::mem::discriminant(&point.value), falls, point.unit, point.rank.is_some(), own);
        let known = places.entry((base, kind));
        let places = known.or_insert_with_key(|(base, _)| writer.places(point, base));
        text.clear();
        for (key, value) in labels(point, &OWN_LABELS) {
            label(&mut text, &key, &value);
        }
        match places.value {
            Some(family) if there.insert((family, text.clone())) => {
                let places = places.clone();
                writer.point(point, &places, family, &text);
                series += 1;
            }
            _ => clashes += 1,
        }
    }
    let mut families = writer.families;
    families.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let bytes: usize = families.iter().map(|family| family.samples.len() + 200).sum();
    let mut text = String::with_capacity(bytes);
    for Family { name, kind, unit, help, samples } in families {
        if samples.is_empty() {
            continue;
        }
        let ending = match (format, kind) {
            (Format::Text, Type::Counter) => "_total",
            (Format::Text, Type::Info) => "_info",
            _ => "",
        };
        let _ = write!(text, "# HELP {name}{ending} ");
        escape(&mut text, &help, format == Format::OpenMetrics);
        let _ = writeln!(text, "\n# TYPE {name}{ending} {}", kind.word(format));
        if format == Format::OpenMetrics && unit != Unit::None {
            let _ = writeln!(text, "# UNIT {name} {}", unit.word());
        }
        text.push_str(&samples);
    }
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    Exposition { text, series, clashes }
}

fn label(text: &mut String, key: &str, value: &str) {
    if !text.is_empty() {
        text.push(',');
    }
    text.push_str(key);
    text.push_str("=\"");
    escape(text, value, true);
    text.push('"');
}

fn escape(text: &mut String, value: &str, quotes: bool) {
    let special = |byte: u8| matches!(byte, b'\\' | b'\n') || (quotes && byte == b'"');
    if !value.bytes().any(special) {
        return text.push_str(value);
    }
    for char in value.chars() {
        match char {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if quotes => text.push_str("\\\""),
            char => text.push(char),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::sample;

    #[test]
    fn what_a_server_scrapes_is_as_documented() {
        let snapshot = sample::snapshot();
        insta::assert_snapshot!("text", expose(&snapshot.view(), "flux", Format::Text).text);
        insta::assert_snapshot!("openmetrics", expose(&snapshot.view(), "flux", Format::OpenMetrics).text);
    }

    #[test]
    fn any_prefix_that_may_be_set_makes_names_that_prometheus_takes() {
        let snapshot = sample::snapshot();
        let text = expose(&snapshot.view(), "9a-b.c", Format::Text).text;
        assert!(text.contains("\n_9a_b_c_module_wakeups_total{") && !text.contains("9a-b"), "{text}");
    }

    #[test]
    fn names_that_are_one_to_prometheus_are_told_once_and_counted() {
        let counter = |name: &str| Point {
            name: name.into(),
            tags: Vec::new(),
            unit: Unit::None,
            rank: None,
            created_s: None,
            value: Value::Counter { total: 1.0, falls: false, peak: None },
        };
        let gauge = |name: &str| Point {
            value: Value::Gauge { ranks: 1, sum: 2.0, min: (2.0, 0), max: (2.0, 0) },
            ..counter(name)
        };
        let points = vec![
            counter("a.b"),
            counter("a_b"),
            // Names of the service's own, which nobody takes.
            counter("module.wakeups"),
            counter("modules.kvs.wakeups"),
            // Of another type.
            gauge("a.b_total"),
            gauge("a.b"),
        ];
        let exposition = expose(&Snapshot { points, ..Snapshot::default() }.view(), "flux", Format::Text);
        let ours =
            exposition.text.lines().filter(|line| line.starts_with("flux_a") || line.starts_with("flux_mod"));
        assert_eq!(
            ours.collect::<Vec<_>>(),
            [
                "flux_a_b_total 1",
                "flux_a_b_all 2",
                "flux_a_b_all_max 2",
                "flux_a_b_all_min 2",
                "flux_a_b_all_ranks 1",
                "flux_module_wakeups_total{module=\"kvs\"} 1"
            ]
        );
        assert_eq!((exposition.series, exposition.clashes), (3, 3));
    }

    #[test]
    fn a_counter_that_fell_is_a_gauge_of_another_name_so_that_no_rate_is_taken_of_it() {
        let value = Value::Counter { total: -3.0, falls: true, peak: None };
        let points = vec![Point {
            name: "app.credit".into(),
            tags: Vec::new(),
            unit: Unit::None,
            rank: None,
            created_s: Some(5),
            value,
        }];
        let text =
            expose(&Snapshot { points, ..Snapshot::default() }.view(), "flux", Format::OpenMetrics).text;
        assert!(text.contains("# TYPE flux_app_credit_net gauge\nflux_app_credit_net -3\n"), "{text}");
        assert!(!text.contains("app_credit_total") && !text.contains("_created"), "{text}");
    }

    #[test]
    fn the_format_is_what_is_accepted() {
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, format) in [
            (prometheus, Format::OpenMetrics),
            ("", Format::Text),
            ("*/*", Format::Text),
            ("text/plain", Format::Text),
            ("application/openmetrics-text; version=1.0.0; q=0.3, text/plain;q=0.6", Format::Text),
            ("Application/OpenMetrics-Text", Format::OpenMetrics),
            ("application/openmetrics-text;version=7", Format::Text),
            ("application/openmetrics-text;q=0", Format::Text),
            (";;;,=,q=", Format::Text),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept}");
        }
    }
}
