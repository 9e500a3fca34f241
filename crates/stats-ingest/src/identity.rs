//! From names as they are sent to series: cleaned names, tags of every style, and what is refused.

use crate::line::{Bad, Form};
use stats_core::{JOB_TAG, Key, Kind, NAME_MAX, RESERVED, TAG_MAX, Unit};

/// Why a line that is well formed does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The name is one of the service's own.
    Reserved,
    /// The name is too long.
    Name,
    /// It has too many tags, or one is too long.
    Tags,
    /// Its source has as many series as there is room left.
    Series,
    /// The rank's catalog is full.
    Catalog,
}

impl Refusal {
    /// As series name it.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Reserved => "reserved",
            Refusal::Name => "name",
            Refusal::Tags => "tags",
            Refusal::Series => "series",
            Refusal::Catalog => "catalog",
        }
    }

    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Refusal::Reserved => "names that begin like this are the service's own",
            Refusal::Name => "the name is longer than 200 bytes",
            Refusal::Tags => "there are too many tags, or one is longer than 200 bytes",
            Refusal::Series => "its source has as many series as there is room for",
            Refusal::Catalog => "this rank has as many series as it keeps (max-series)",
        }
    }
}

/// Why a line is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rejected {
    Bad(Bad),
    Refused(Refusal),
}

impl From<Bad> for Rejected {
    fn from(bad: Bad) -> Self {
        Rejected::Bad(bad)
    }
}

/// What a metric's name and tags amount to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) tags: Vec<(String, String)>,
    /// Tags without a value, and empty ones.
    pub(crate) dropped_tags: u8,
    /// The name had a rank in it, which is gone.
    pub(crate) of_rank: bool,
}

impl Identity {
    /// Of a name, and what is after `|#`.
    pub(crate) fn of(name: &[u8], tags: &[u8], tags_max: usize) -> Result<Self, Rejected> {
        let name = std::str::from_utf8(name).map_err(|_| Bad::Utf8)?;
        let dog = std::str::from_utf8(tags).map_err(|_| Bad::Utf8)?;
        let (name, inner) = split_tags(name)?;
        let mut tags = Tags::default();
        match inner {
            Some(_) if !dog.is_empty() => return Err(Bad::Tags.into()),
            Some((list, separator)) => tags.read(list, separator, '='),
            None if !dog.is_empty() => tags.read(dog, ',', ':'),
            None => {}
        }
        let (name, of_rank) = without_rank(clean(&name));
        if name.split('.').any(str::is_empty) {
            return Err(Bad::Name.into());
        }
        if RESERVED.iter().any(|reserved| name.starts_with(reserved) || *reserved == format!("{name}.")) {
            return Err(Rejected::Refused(Refusal::Reserved));
        }
        if name.len() > NAME_MAX {
            return Err(Rejected::Refused(Refusal::Name));
        }
        let long = |(key, value): &(String, String)| key.len() > TAG_MAX || value.len() > TAG_MAX;
        if tags.kept.len() > tags_max || tags.kept.iter().any(long) {
            return Err(Rejected::Refused(Refusal::Tags));
        }
        if tags.kept.iter().any(|(key, value)| key.chars().chain(value.chars()).any(stats_core::is_unseen)) {
            return Err(Bad::Tags.into());
        }
        let dropped_tags = u8::try_from(tags.dropped).unwrap_or(u8::MAX);
        Ok(Identity { name, tags: tags.kept, dropped_tags, of_rank })
    }

    /// The series of that kind.
    pub(crate) fn key(&self, kind: Kind, unit: Unit) -> Result<Key, Rejected> {
        let tags: Vec<_> = self.tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        // Everything that it checks has been checked or cleaned.
        Key::new(&self.name, &tags, kind, unit).map_err(|_| Rejected::Bad(Bad::Name))
    }

    pub(crate) fn job(&self) -> Option<&str> {
        self.tags.iter().rev().find(|(key, _)| key == JOB_TAG).map(|(_, job)| job.as_str())
    }

    /// Whose share of the room it takes: a job's, or that of all names which begin alike.
    pub(crate) fn source(&self) -> String {
        match self.job() {
            Some(job) => format!("{JOB_TAG}:{job}"),
            None => prefix(&self.name).to_owned(),
        }
    }
}

/// The first part of a name.
pub(crate) fn prefix(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// What a form is kept as.
pub(crate) fn kind_of(form: Form) -> (Kind, Unit) {
    match form {
        Form::Count | Form::Cumulative => (Kind::Counter, Unit::None),
        Form::Gauge => (Kind::Gauge, Unit::None),
        Form::Milliseconds => (Kind::Timer, Unit::Nanoseconds),
        Form::Histogram => (Kind::Timer, Unit::Millionths),
        Form::Set => (Kind::Set, Unit::None),
    }
}

#[derive(Default)]
struct Tags {
    kept: Vec<(String, String)>,
    dropped: usize,
}

impl Tags {
    /// Of two with the same key the last counts.
    fn read(&mut self, list: &str, separator: char, equals: char) {
        for tag in list.split(separator) {
            match tag.split_once(equals) {
                Some((key, value)) if !key.is_empty() && !value.is_empty() => {
                    self.kept.retain(|(present, _)| present != key);
                    self.kept.push((key.to_owned(), value.to_owned()));
                }
                _ => self.dropped += 1,
            }
        }
    }
}

/// A name, and the tags in it with what separates them: Influx `name,k=v`, Graphite `name;k=v`, Librato `name#k=v,k=v`,
/// SignalFX `name[k=v,k=v]rest`.
#[expect(clippy::type_complexity, reason = "a name is owned in one case of four")]
fn split_tags(name: &str) -> Result<(std::borrow::Cow<'_, str>, Option<(&str, char)>), Bad> {
    let Some(at) = name.find([',', ';', '#', '[']) else { return Ok((name.into(), None)) };
    let (before, list) = (&name[..at], &name[at + 1..]);
    match name.as_bytes()[at] {
        b';' => Ok((before.into(), Some((list, ';')))),
        b'[' => {
            let (list, after) = list.split_once(']').ok_or(Bad::Tags)?;
            Ok((format!("{before}{after}").into(), Some((list, ','))))
        }
        _ => Ok((before.into(), Some((list, ',')))),
    }
}

/// As etsy's statsd cleans names, but for what it removes: that becomes `_`, so that fewer names become one.
pub(crate) fn clean(name: &str) -> String {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    name.chars()
        .map(|c| {
            if valid(c) {
                c
            } else if c == '/' {
                '-'
            } else {
                '_'
            }
        })
        .collect()
}

/// flux-core's `flux_stats_*` names begin with `flux.RANK.` unless told otherwise: without the rank those of all ranks
/// merge. Whether there was one.
fn without_rank(name: String) -> (String, bool) {
    let rest = name.strip_prefix("flux.").and_then(|rest| rest.split_once('.'));
    match rest {
        Some((rank, rest)) if !rank.is_empty() && rank.bytes().all(|byte| byte.is_ascii_digit()) => {
            (format!("flux.{rest}"), true)
        }
        _ => (name, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::Line;

    fn identity(line: &str) -> Result<Identity, Rejected> {
        match Line::parse(line.as_bytes()) {
            Ok(Line::Metric(metric)) => Identity::of(metric.name, metric.tags, 4),
            other => panic!("{line}: {other:?}"),
        }
    }

    fn shown(line: &str) -> String {
        let identity = identity(line).unwrap();
        let tags = identity.tags.iter().map(|(key, value)| format!(" {key}={value}"));
        format!("{}{} -{}", identity.name, tags.collect::<String>(), identity.dropped_tags)
    }

    #[test]
    fn tags_of_every_style_are_the_same_tags() {
        for line in ["n:1|c|#a:1,b:2", "n,a=1,b=2:1|c", "n;a=1;b=2:1|c", "n#a=1,b=2:1|c", "n[a=1,b=2]:1|c"] {
            assert_eq!(shown(line), "n a=1 b=2 -0", "{line}");
        }
        assert_eq!(shown("n.[a=1]x:1|c"), "n.x a=1 -0");
    }

    #[test]
    fn the_last_of_two_tags_counts_and_what_has_no_value_is_dropped() {
        assert_eq!(shown("n:1|c|#a:1,a:2"), "n a=2 -0");
        assert_eq!(shown("n:1|c|#novalue,a:b:c,,x:"), "n a=b:c -3");
    }

    #[test]
    fn a_rank_in_a_name_of_flux_s_own_is_taken_out() {
        assert_eq!(shown("flux.12.content-cache.count:1|g"), "flux.content-cache.count -0");
        assert!(identity("flux.12.x:1|g").unwrap().of_rank);
        for line in ["flux.job.state.run:1|g", "flux.12:1|g", "flux.x1.y:1|g", "other.12.y:1|g"] {
            assert!(!identity(line).unwrap().of_rank, "{line}");
        }
    }

    #[test]
    fn the_service_s_own_names_and_what_is_too_long_are_refused() {
        let refused = |line: &str| identity(line).unwrap_err();
        for line in
            ["modules.kvs.wakeups:1|c", "broker.x:1|c", "modules:1|c", "jobs.x,a=1:1|c", "overlay.[a=1]x:1|c"]
        {
            assert_eq!(refused(line), Rejected::Refused(Refusal::Reserved), "{line}");
        }
        assert!(identity("modulesx.y:1|c").is_ok());
        let long = "x".repeat(NAME_MAX + 1);
        assert_eq!(refused(&format!("{long}:1|c")), Rejected::Refused(Refusal::Name));
        assert_eq!(refused(&format!("n:1|c|#{long}:1")), Rejected::Refused(Refusal::Tags));
        assert_eq!(refused("n:1|c|#a:1,b:1,c:1,d:1,e:1"), Rejected::Refused(Refusal::Tags));
        assert_eq!(refused("n:1|c|#a:\u{1}"), Rejected::Bad(Bad::Tags));
        assert_eq!(refused("n,a=1:1|c|#b:2"), Rejected::Bad(Bad::Tags));
        assert_eq!(refused("n[a=1:1|c"), Rejected::Bad(Bad::Tags));
    }
}
