//! What is counted: names, tags, kinds, and the catalog in which a node numbers them.

use crate::wire::{DecodeError, Reader, Writer};
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

    pub(crate) fn encode(&self, out: &mut Writer) {
        let kind = match self.kind {
            Kind::Counter => 0,
            Kind::Gauge => 1,
            Kind::Timer => 2,
        };
        let unit = match self.unit {
            Unit::None => 0,
            Unit::Nanoseconds => 1,
            Unit::Bytes => 2,
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
        let kind = match form & 0x0f {
            0 => Kind::Counter,
            1 => Kind::Gauge,
            2 => Kind::Timer,
            _ => return Err(DecodeError::Malformed("unknown kind of series")),
        };
        let unit = match form >> 4 {
            0 => Unit::None,
            1 => Unit::Nanoseconds,
            2 => Unit::Bytes,
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

fn valid_name(name: &str) -> bool {
    let valid = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    name.len() <= NAME_MAX && name.bytes().all(valid) && name.split('.').all(|part| !part.is_empty())
}

/// The number of a series in one node's catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesId(pub(crate) u32);

impl SeriesId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The series that a node knows, numbered in the order in which it met them.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    keys: Vec<Key>,
    ids: HashMap<Key, SeriesId>,
    max: usize,
}

impl Catalog {
    pub(crate) fn new(max: usize) -> Self {
        Catalog { max, ..Catalog::default() }
    }

    pub(crate) fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    pub(crate) fn declare(&mut self, key: Key) -> Result<SeriesId, Refused> {
        if let Some(&id) = self.ids.get(&key) {
            return Ok(id);
        }
        let number = u32::try_from(self.keys.len()).ok().filter(|_| self.keys.len() < self.max);
        let id = SeriesId(number.ok_or(Refused::Full(self.max))?);
        self.keys.push(key.clone());
        self.ids.insert(key, id);
        Ok(id)
    }

    pub(crate) fn key(&self, id: SeriesId) -> Option<&Key> {
        self.keys.get(id.index())
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SeriesId, &Key)> {
        self.keys.iter().enumerate().map(|(number, key)| (SeriesId(number as u32), key))
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
        let id = catalog.declare(key("a")).unwrap();
        assert_eq!(catalog.declare(key("b")), Err(Refused::Full(1)));
        assert_eq!(catalog.declare(key("a")), Ok(id));
    }
}
