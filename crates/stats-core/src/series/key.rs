//! The identity of a series.

use super::{ACCOUNTS, ENDED, GUESTS, JOB_TAG, Kind, NAME_MAX, PREFIX_TAG, Refused, TAG_MAX, TAGS_MAX, Unit};
use super::{is_reserved, is_unseen};
use crate::wire::{DecodeError, Reader, Writer};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The identity of a series: equal keys merge.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The name, and of each tag, in their order, the key and the value: each after a zero, which is in none of them and
    /// sorts before all that is. One block, however many tags: what a rank sends costs its receiver little more than its
    /// bytes; and whoever needs the key for a while has the same block.
    text: Arc<str>,
    kind: Kind,
    unit: Unit,
    /// How much of the text is the name.
    name_len: u8,
}

const _: () = assert!(NAME_MAX <= u8::MAX as usize);
const SEPARATOR: char = '\0';

impl Key {
    /// A key, checked. Tags are sorted by key; of two with the same key the last counts.
    pub fn new(name: &str, tags: &[(&str, &str)], kind: Kind, unit: Unit) -> Result<Self, Refused> {
        if !valid_name(name) {
            return Err(Refused::Name(name.chars().take(NAME_MAX).collect()));
        }
        let valid_tag = |t: &str| !t.is_empty() && t.len() <= TAG_MAX && !t.chars().any(is_unseen);
        if tags.len() > TAGS_MAX || !tags.iter().all(|(k, v)| valid_tag(k) && valid_tag(v)) {
            return Err(Refused::Tags);
        }
        if tags.is_sorted_by(|before, after| before.0 < after.0) {
            return Ok(Key::of(name, tags.iter().copied(), kind, unit));
        }
        let sorted: BTreeMap<_, _> = tags.iter().copied().collect();
        let sorted = sorted.iter().map(|(&key, &value)| (key, value));
        Ok(Key::of(name, sorted, kind, unit))
    }

    fn of<'a>(
        name: &str,
        tags: impl Iterator<Item = (&'a str, &'a str)> + Clone,
        kind: Kind,
        unit: Unit,
    ) -> Self {
        let of_tags: usize = tags.clone().map(|(key, value)| key.len() + value.len() + 2).sum();
        let mut text = String::with_capacity(name.len() + of_tags);
        text.push_str(name);
        for part in tags.flat_map(|(key, value)| [key, value]) {
            text.push(SEPARATOR);
            text.push_str(part);
        }
        Key { text: text.into(), kind, unit, name_len: name.len() as u8 }
    }

    /// The dotted name.
    pub fn name(&self) -> &str {
        &self.text[..self.name_len.into()]
    }

    /// The tags, key and value, sorted by key.
    pub fn tags(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        let mut parts = self.text[self.name_len.into()..].split(SEPARATOR).skip(1);
        std::iter::from_fn(move || parts.next().zip(parts.next()))
    }

    /// The kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The unit.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// The unit, where the end of the name does not say it.
    pub(crate) fn unit_unsaid(&self) -> Option<&'static str> {
        match self.unit {
            Unit::Nanoseconds if !self.name().ends_with("_s") => Some("seconds"),
            Unit::Bytes if !self.name().ends_with("_bytes") => Some("bytes"),
            _ => None,
        }
    }

    pub(super) fn is_of_guest(&self) -> bool {
        self.text.starts_with(GUESTS)
    }

    /// Whether the service says it of itself: what it refused, above all.
    pub(super) fn is_account(&self) -> bool {
        self.text.starts_with(ACCOUNTS)
    }

    /// Whose series it is, where it was pushed: the first part of its name, of guests the first two. `None`: the service's
    /// own, for which room is kept. (Those that name a `prefix` are as many as the prefixes that others think of: they are
    /// not.)
    pub(super) fn source(&self) -> Option<&str> {
        let name = self.name();
        if let Some(rest) = name.strip_prefix(GUESTS) {
            return Some(&name[..GUESTS.len() + prefix(rest).len()]);
        }
        if !is_reserved(name) {
            return Some(prefix(name));
        }
        if self.follows_others() {
            return Some(FOLLOWING);
        }
        self.tags().any(|(key, _)| key == PREFIX_TAG).then_some(PREFIX_TAG)
    }

    /// Whether its name is made of what a module tells of itself (`modules.NAME.stats.PATH`), which may be ever new.
    fn follows_others(&self) -> bool {
        let name = self.name();
        self.kind == Kind::Gauge && name.starts_with("modules.") && name.split('.').nth(2) == Some(FOLLOWING)
    }

    /// Whether it ends when nothing was sent to it for its time to live: one of a job, which may be over, of a guest, or
    /// one that is called what a module calls it. The sums of jobs stay, and what else is the service's own is the
    /// service's business.
    pub(crate) fn is_passing(&self) -> bool {
        let is_sum = || self.tags().eq([(JOB_TAG, ENDED)]);
        let of_job = || self.tags().any(|(key, _)| key == JOB_TAG) && !is_sum();
        self.is_of_guest() || self.follows_others() || (!is_reserved(self.name()) && of_job())
    }

    /// The series that goes on with what this one, which ends, amounts to: of jobs one for each name, however many tags
    /// they had. There is none of gauges; and none of guests, whose names may be ever new ones.
    pub(crate) fn sum_of_ended(&self) -> Option<Key> {
        let sum = || Key::of(self.name(), [(JOB_TAG, ENDED)].into_iter(), self.kind, self.unit);
        (self.kind != Kind::Gauge && !self.is_of_guest()).then(sum)
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        let kind = self.kind.number();
        let unit = match self.unit {
            Unit::None => 0,
            Unit::Nanoseconds => 1,
            Unit::Bytes => 2,
            Unit::Millionths => 3,
        };
        out.byte(kind | (unit << 4));
        out.text(self.name());
        out.count(self.tags().count());
        for (key, value) in self.tags() {
            out.text(key);
            out.text(value);
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let form = from.byte()?;
        let kind = Kind::ALL.get(usize::from(form & 0x0f)).copied();
        let kind = kind.ok_or(DecodeError::Malformed("unknown kind of series"))?;
        let unit = match form >> 4 {
            0 => Unit::None,
            1 => Unit::Nanoseconds,
            2 => Unit::Bytes,
            3 => Unit::Millionths,
            _ => return Err(DecodeError::Malformed("unknown unit")),
        };
        let name = from.text(NAME_MAX)?;
        let mut tags = Vec::new();
        for _ in 0..from.count(TAGS_MAX)? {
            tags.push((from.text(TAG_MAX)?, from.text(TAG_MAX)?));
        }
        Key::new(name, &tags, kind, unit).map_err(|_| DecodeError::Malformed("bad name or tags"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tags: BTreeMap<&str, &str> = self.tags().collect();
        out.debug_struct("Key")
            .field("name", &self.name())
            .field("tags", &tags)
            .field("kind", &self.kind)
            .field("unit", &self.unit)
            .finish()
    }
}

/// The part of a name after which a module's own words follow.
const FOLLOWING: &str = "stats";

/// The first part of a dotted name.
pub(crate) fn prefix(name: &str) -> &str {
    name.split('.').next().unwrap_or_default()
}

fn valid_name(name: &str) -> bool {
    let valid = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    name.len() <= NAME_MAX && name.bytes().all(valid) && name.split('.').all(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_dotted_words() {
        let key = |name: &str| Key::new(name, &[], Kind::Counter, Unit::None);
        assert!(key("modules.job-exec.work_s").is_ok());
        for bad in ["", ".", "a..b", ".a", "a.", "a b", "a/b", "ä", &"x".repeat(NAME_MAX + 1)] {
            assert!(matches!(key(bad), Err(Refused::Name(_))), "{bad}");
        }
    }

    #[test]
    fn tags_are_sorted_and_bounded() {
        let with = |tags: &[(&str, &str)]| Key::new("a", tags, Kind::Counter, Unit::None);
        assert_eq!(with(&[("b", "1"), ("a", "2")]), with(&[("a", "2"), ("b", "1")]));
        assert_eq!(with(&[("b", "0"), ("a", "2"), ("b", "1")]), with(&[("a", "2"), ("b", "1")]));
        assert_eq!(with(&[("a", "")]), Err(Refused::Tags));
        for unseen in ['\0', '\n', '\u{1b}', '\u{9b}', '\u{202e}', '\u{2066}', '\u{200f}', '\u{feff}'] {
            assert_eq!(with(&[("a", &format!("x{unseen}y"))]), Err(Refused::Tags), "{unseen:?}");
        }
        assert!(with(&[("a", "größe 東京 🙂")]).is_ok());
        assert_eq!(with(&vec![("k", "v"); TAGS_MAX + 1]), Err(Refused::Tags));
    }

    #[test]
    fn a_key_tells_what_it_was_made_of_and_sorts_by_name_then_tags() {
        let long = "x".repeat(NAME_MAX);
        let parts: [(&str, &[(&str, &str)]); 6] = [
            ("a", &[]),
            ("a", &[("k", "v")]),
            ("a", &[("k", "v"), ("l", "w")]),
            ("a", &[("k", "vv")]),
            ("a.b", &[]),
            (&long, &[("a", "größe")]),
        ];
        let keys: Vec<Key> = parts
            .iter()
            .map(|(name, tags)| {
                let key = Key::new(name, tags, Kind::Timer, Unit::Nanoseconds).unwrap();
                assert_eq!((key.name(), key.tags().collect::<Vec<_>>()), (*name, tags.to_vec()));
                assert_eq!((key.kind(), key.unit()), (Kind::Timer, Unit::Nanoseconds));
                key
            })
            .collect();
        assert!(keys.is_sorted(), "{keys:?}");
        assert_eq!(
            format!("{:?}", keys[1]),
            r#"Key { name: "a", tags: {"k": "v"}, kind: Timer, unit: Nanoseconds }"#
        );
    }

    #[test]
    fn what_names_prefixes_of_others_is_no_series_of_the_service_s_own() {
        let refused = |tags: &[(&str, &str)]| {
            Key::new("stats-agg.refused", tags, Kind::Counter, Unit::None).unwrap().source().is_some()
        };
        assert!(!refused(&[]));
        assert!(refused(&[(PREFIX_TAG, "a")]));
    }
}
