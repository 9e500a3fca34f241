//! What is counted: names, tags, kinds, and the catalog of those that a node knows.

mod catalog;

use crate::wire::{DecodeError, Reader, Writer};
pub(crate) use catalog::{CATALOG_MOST, Catalog, Numbers};

/// The longest name, in bytes.
pub const NAME_MAX: usize = 200;
/// Tags that one series may have.
pub const TAGS_MAX: usize = 16;
/// The longest tag key or value, in bytes.
pub const TAG_MAX: usize = 200;
/// Prefixes of the service's own series: what others push may not begin with one.
pub const RESERVED: &[&str] = &["modules.", "broker.", ACCOUNTS, "jobs.", "resources.", "overlay.", GUESTS];
/// What the service says of itself.
const ACCOUNTS: &str = "stats-agg.";
/// What other users than the instance's owner push is here, each user's under a number.
pub const GUESTS: &str = "guests.";
/// The greatest bound on the series of a node: messages and what is saved have room for so many, and those beyond it.
pub const MAX_SERIES_MOST: usize = 1_000_000;
/// Series that such a user may have, unless another bound is set.
pub const GUEST_SERIES: usize = 100;

/// The tag that says which job a series is of.
pub const JOB_TAG: &str = "jobid";
/// Its value on the series in which those of jobs that are over are summed up.
pub const ENDED: &str = "ended";

/// What kind of quantity a series is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A flow that adds up.
    Counter,
    /// A state that is replaced.
    Gauge,
    /// A flow of samples: count, sum, extremes and a sketch of the distribution.
    Timer,
    /// A flow of distinct members, of which there is an estimated number.
    Set,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Counter, Kind::Gauge, Kind::Timer, Kind::Set];

    fn number(self) -> u8 {
        match self {
            Kind::Counter => 0,
            Kind::Gauge => 1,
            Kind::Timer => 2,
            Kind::Set => 3,
        }
    }

    /// As an answer names it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Timer => "timer",
            Kind::Set => "set",
        }
    }
}

/// What a value is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unit {
    /// A plain number.
    None,
    /// Nanoseconds inside, seconds in every answer.
    Nanoseconds,
    /// Bytes.
    Bytes,
    /// Millionths inside, plain numbers in every answer: samples are whole, and a ratio is not.
    Millionths,
}

impl Unit {
    /// What of it is one in an answer.
    pub(crate) fn in_one(self) -> f64 {
        match self {
            Unit::None | Unit::Bytes => 1.0,
            Unit::Nanoseconds => 1e9,
            Unit::Millionths => 1e6,
        }
    }

    /// A sample in this unit as it is kept: in whole parts. `None`: it is negative, or not below 2^63 parts, beyond which
    /// squares of many would not add up exactly; or it is not finite.
    #[inline]
    pub fn parts(self, sample: f64) -> Option<u64> {
        const END: f64 = 9_223_372_036_854_775_808.0;
        let parts = sample * self.in_one();
        (sample >= 0.0 && parts < END).then_some((parts + 0.5) as u64)
    }
}

/// Whether a character is not seen, and changes how others are: controls, marks of direction, and what has no width. Names,
/// tags and lines are shown on terminals and pages, where such a one would make them look like something else.
pub fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// The identity of a series: equal keys merge.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    name: String,
    tags: Vec<(String, String)>,
    kind: Kind,
    unit: Unit,
}

/// Why a series is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The name is malformed.
    #[error("bad name {0:?}: expected 1 to {NAME_MAX} of A-Z a-z 0-9 _ - . with no empty part between dots")]
    Name(String),
    /// A tag is malformed, or there are too many.
    #[error(
        "bad tags: expected at most {TAGS_MAX}, each key and value 1 to {TAG_MAX} bytes without control or other unseen characters"
    )]
    Tags,
    /// The catalog is full.
    #[error("the limit of {0} series (max-series) is reached")]
    Full(usize),
    /// The room for what is pushed is taken, as far as this source may take it.
    #[error("the share of {0:?} in the series that may be pushed is used up (max-series)")]
    Share(String),
    /// A guest, or all guests together, have as many series as they may have.
    #[error("{0} may have {1} series (guest-series), and guests together {2} (a part of max-series)")]
    Guest(String, usize, usize),
}

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
        let sorted: std::collections::BTreeMap<_, _> = tags.iter().copied().collect();
        let tags = sorted.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        Ok(Key { name: name.to_owned(), tags, kind, unit })
    }

    /// The dotted name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The tags, sorted by key.
    pub fn tags(&self) -> &[(String, String)] {
        &self.tags
    }

    /// Its name and tags, for who needs nothing else of it any more.
    pub fn into_name_and_tags(self) -> (String, Vec<(String, String)>) {
        (self.name, self.tags)
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
            Unit::Nanoseconds if !self.name.ends_with("_s") => Some("seconds"),
            Unit::Bytes if !self.name.ends_with("_bytes") => Some("bytes"),
            _ => None,
        }
    }

    fn is_of_guest(&self) -> bool {
        self.name.starts_with(GUESTS)
    }

    /// Whether the service says it of itself: what it refused, above all.
    fn is_account(&self) -> bool {
        self.name.starts_with(ACCOUNTS)
    }

    /// Whose series it is, where it was pushed: the first part of its name, of guests the first two. `None`: the service's own, for which room
    /// is kept. (Those that name a `prefix` are as many as the prefixes that others think of: they are not.)
    fn source(&self) -> Option<&str> {
        if let Some(rest) = self.name.strip_prefix(GUESTS) {
            return Some(&self.name[..GUESTS.len() + prefix(rest).len()]);
        }
        if !is_reserved(&self.name) {
            return Some(prefix(&self.name));
        }
        if self.follows_others() {
            return Some(FOLLOWING);
        }
        self.tags.iter().any(|(key, _)| key == PREFIX_TAG).then_some(PREFIX_TAG)
    }

    /// Whether its name is made of what a module tells of itself (`modules.NAME.stats.PATH`), which may be ever new.
    fn follows_others(&self) -> bool {
        self.kind == Kind::Gauge
            && self.name.starts_with("modules.")
            && self.name.split('.').nth(2) == Some(FOLLOWING)
    }

    /// Whether it ends when nothing was sent to it for its time to live: one of a job, which may be over, of a guest, or
    /// one that is called what a module calls it. The sums of jobs stay, and what else is the service's own is the
    /// service's business.
    pub(crate) fn is_passing(&self) -> bool {
        let is_sum = || self.tags.len() == 1 && self.tags.iter().any(|(_, value)| value == ENDED);
        let of_job = || self.tags.iter().any(|(key, _)| key == JOB_TAG) && !is_sum();
        self.is_of_guest() || self.follows_others() || (!is_reserved(&self.name) && of_job())
    }

    /// The series that goes on with what this one, which ends, amounts to: of jobs one for each name, however many tags
    /// they had. There is none of gauges; and none of guests, whose names may be ever new ones.
    pub(crate) fn sum_of_ended(&self) -> Option<Key> {
        let tags = vec![(JOB_TAG.to_owned(), ENDED.to_owned())];
        (self.kind != Kind::Gauge && !self.is_of_guest()).then(|| Key { tags, ..self.clone() })
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
        out.text(&self.name);
        out.count(self.tags.len());
        for (key, value) in &self.tags {
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

/// The part of a name after which a module's own words follow.
const FOLLOWING: &str = "stats";

/// The tag that says whose series were refused.
pub(crate) const PREFIX_TAG: &str = "prefix";

/// Whether a name is the service's own.
pub fn is_reserved(name: &str) -> bool {
    RESERVED.iter().any(|prefix| name.starts_with(prefix))
}

/// The first part of a dotted name.
pub(crate) fn prefix(name: &str) -> &str {
    name.split('.').next().unwrap_or_default()
}

fn valid_name(name: &str) -> bool {
    let valid = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    name.len() <= NAME_MAX && name.bytes().all(valid) && name.split('.').all(|part| !part.is_empty())
}

/// A series in one node's catalog: its kind, and which of that kind it is, so that a value is found without a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesId(u32);

/// Bits that hold the position among the series of one kind.
const POSITION_BITS: u32 = 30;
/// More series than this no catalog holds.
const CATALOG_MAX: usize = 1 << POSITION_BITS;

impl SeriesId {
    pub(crate) fn new(kind: Kind, position: u32) -> Self {
        SeriesId((u32::from(kind.number()) << POSITION_BITS) | position)
    }

    pub(crate) fn kind(self) -> Kind {
        Kind::ALL[(self.0 >> POSITION_BITS) as usize]
    }

    /// Where it is among the series of its kind.
    pub(crate) fn position(self) -> usize {
        (self.0 & ((1 << POSITION_BITS) - 1)) as usize
    }
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
        assert_eq!(with(&[("a", "")]), Err(Refused::Tags));
        for unseen in ['\n', '\u{1b}', '\u{9b}', '\u{202e}', '\u{2066}', '\u{200f}', '\u{feff}'] {
            assert_eq!(with(&[("a", &format!("x{unseen}y"))]), Err(Refused::Tags), "{unseen:?}");
        }
        assert!(with(&[("a", "größe 東京 🙂")]).is_ok());
        assert_eq!(with(&vec![("k", "v"); TAGS_MAX + 1]), Err(Refused::Tags));
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
