//! What is counted: names, tags, kinds, and the catalog in which a node numbers them.

use crate::wire::{DecodeError, Reader, Writer};
use indexmap::IndexSet;
use std::collections::HashMap;

/// The longest name, in bytes.
pub const NAME_MAX: usize = 200;
/// Tags that one series may have.
pub const TAGS_MAX: usize = 16;
/// The longest tag key or value, in bytes.
pub const TAG_MAX: usize = 200;
/// Prefixes of the service's own series: what others push may not begin with one.
pub const RESERVED: &[&str] = &["modules.", "broker.", "stats-agg.", "jobs.", "resources.", "overlay."];

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
        "bad tags: expected at most {TAGS_MAX}, each key and value 1 to {TAG_MAX} bytes without control characters"
    )]
    Tags,
    /// The catalog is full.
    #[error("the limit of {0} series (max-series) is reached")]
    Full(usize),
    /// The room for what is pushed is taken, as far as this source may take it.
    #[error("the share of {0:?} in the series that may be pushed is used up (max-series)")]
    Share(String),
}

impl Key {
    /// A key, checked. Tags are sorted by key; of two with the same key the last counts.
    pub fn new(name: &str, tags: &[(&str, &str)], kind: Kind, unit: Unit) -> Result<Self, Refused> {
        if !valid_name(name) {
            return Err(Refused::Name(name.chars().take(NAME_MAX).collect()));
        }
        let valid_tag = |t: &str| !t.is_empty() && t.len() <= TAG_MAX && !t.chars().any(char::is_control);
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

    /// The kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The unit.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Whose series it is, where it was pushed: the first part of its name. `None`: the service's own, for which room
    /// is kept. (Those that name a `prefix` are as many as the prefixes that others think of: they are not.)
    fn source(&self) -> Option<&str> {
        if !is_reserved(&self.name) {
            return Some(prefix(&self.name));
        }
        self.tags.iter().any(|(key, _)| key == PREFIX_TAG).then_some(PREFIX_TAG)
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

/// The series that a node knows, numbered in the order in which it met them.
///
/// What is pushed may fill all but the last part of it ([`RESERVE`]), so that there is room for the service's own series
/// whatever others do. Of that, a source (the first part of a name) may have [`SHARE`] times what is still free: the dynamic
/// thresholds of Choudhury and Hahne ("Dynamic queue length thresholds for shared-memory packet switches", 1998). A
/// source alone gets most of the room, and yet there is always some for another.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    keys: IndexSet<Key>,
    /// By number.
    ids: Vec<SeriesId>,
    /// The number of each, by kind and position.
    numbers: [Vec<u32>; 4],
    max: usize,
    /// How many are pushed, and how many of each source.
    pushed: usize,
    sources: HashMap<Box<str>, usize>,
}

/// This part of a catalog's room is for the service's own series alone.
const RESERVE: usize = 8;
/// How many times the free room a source may have: alone, three quarters of what is for sources.
const SHARE: usize = 3;

impl Catalog {
    pub(crate) fn new(max: usize) -> Self {
        Catalog { max: max.min(CATALOG_MAX), ..Catalog::default() }
    }

    pub(crate) fn set_max(&mut self, max: usize) {
        self.max = max.min(CATALOG_MAX);
    }

    pub(crate) fn declare(&mut self, key: Key) -> Result<SeriesId, Refused> {
        if let Some(number) = self.keys.get_index_of(&key) {
            return Ok(self.ids[number]);
        }
        if let Some(source) = key.source() {
            let free = (self.max - self.max / RESERVE).saturating_sub(self.pushed);
            let has = self.sources.get(source).copied().unwrap_or(0);
            if has >= free.saturating_mul(SHARE) {
                return Err(Refused::Share(source.to_owned()));
            }
        }
        self.add(key)
    }

    /// As [`Catalog::declare`], for what an earlier catalog held.
    pub(crate) fn restore(&mut self, key: Key) -> Result<SeriesId, Refused> {
        self.find(&key).map_or_else(|| self.add(key), Ok)
    }

    fn add(&mut self, key: Key) -> Result<SeriesId, Refused> {
        let number = u32::try_from(self.ids.len()).ok().filter(|_| self.ids.len() < self.max);
        let number = number.ok_or(Refused::Full(self.max))?;
        if let Some(source) = key.source() {
            self.pushed += 1;
            match self.sources.get_mut(source) {
                Some(has) => *has += 1,
                None => drop(self.sources.insert(source.into(), 1)),
            }
        }
        let kind = key.kind;
        let of_kind = &mut self.numbers[usize::from(kind.number())];
        let id = SeriesId::new(kind, of_kind.len() as u32);
        of_kind.push(number);
        self.ids.push(id);
        self.keys.insert(key);
        Ok(id)
    }

    pub(crate) fn find(&self, key: &Key) -> Option<SeriesId> {
        self.keys.get_index_of(key).map(|number| self.ids[number])
    }

    /// Its number; an identifier of another catalog has none.
    pub(crate) fn number(&self, id: SeriesId) -> Option<u32> {
        self.numbers[usize::from(id.kind().number())].get(id.position()).copied()
    }

    pub(crate) fn has(&self, id: SeriesId, kind: Kind) -> bool {
        id.kind() == kind && self.number(id).is_some()
    }

    pub(crate) fn key(&self, id: SeriesId) -> Option<&Key> {
        self.keys.get_index(self.number(id)? as usize)
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// `count` of them from number `from` on, or as many as there are.
    pub(crate) fn part(&self, from: usize, count: usize) -> impl Iterator<Item = (SeriesId, &Key)> {
        let end = from.saturating_add(count).min(self.ids.len());
        let keys = self.keys.get_range(from.min(end)..end);
        self.ids[from.min(end)..end].iter().copied().zip(keys.into_iter().flatten())
    }

    /// By number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SeriesId, &Key)> {
        self.ids.iter().copied().zip(&self.keys)
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
        assert_eq!(with(&vec![("k", "v"); TAGS_MAX + 1]), Err(Refused::Tags));
    }

    #[test]
    fn a_full_catalog_refuses_new_series_and_keeps_old_ones() {
        let mut catalog = Catalog::new(1);
        let key = |name| Key::new(name, &[], Kind::Counter, Unit::None).unwrap();
        let id = catalog.declare(key("modules.a")).unwrap();
        assert_eq!(catalog.declare(key("modules.b")), Err(Refused::Full(1)));
        assert_eq!(catalog.declare(key("modules.a")), Ok(id));
    }

    #[test]
    fn a_runaway_source_leaves_room_for_the_service_and_for_others() {
        let mut catalog = Catalog::new(344);
        let key = |name: &str| Key::new(name, &[], Kind::Counter, Unit::None).unwrap();
        let mut runaway = |source: &str| {
            (0..1000).filter(|n| catalog.declare(key(&format!("{source}.n{n}"))).is_ok()).count()
        };
        assert_eq!(runaway("a"), 226);
        assert_eq!(runaway("a"), 226, "what it has it keeps");
        assert_eq!([runaway("b"), runaway("c")], [57, 14]);
        // Many sources of one series each are many sources.
        let singles = (0..1000).filter(|n| catalog.declare(key(&format!("s{n}"))).is_ok()).count();
        assert!((1..=4).contains(&singles), "{singles}");
        assert_eq!(catalog.declare(key("a.more")), Err(Refused::Share("a".to_owned())));
        let own = (0..1000).filter(|n| catalog.declare(key(&format!("modules.n{n}"))).is_ok()).count();
        assert_eq!(own + catalog.pushed, 344);
        assert!(own >= 344 / RESERVE);
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
