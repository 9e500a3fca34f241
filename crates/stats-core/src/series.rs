//! What is counted: names, tags, kinds, and the catalog of those that a node knows.

mod catalog;
mod key;

pub(crate) use catalog::{CATALOG_MOST, Catalog, Numbers};
pub use key::Key;
pub(crate) use key::prefix;

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
    /// All the room for what is pushed is taken.
    #[error("all {0} series that may be pushed are there (a part of max-series={1})")]
    Pushed(usize, usize),
    /// The room for what is pushed is taken, as far as this source may take it.
    #[error("the share of {0:?} in the series that may be pushed is used up (max-series)")]
    Share(String),
    /// A guest, or all guests together, have as many series as they may have.
    #[error("{0} may have {1} series (guest-series), and guests together {2} (a part of max-series)")]
    Guest(String, usize, usize),
}

/// The tag that says whose series were refused.
pub(crate) const PREFIX_TAG: &str = "prefix";

/// Whether a name is the service's own.
pub fn is_reserved(name: &str) -> bool {
    RESERVED.iter().any(|prefix| name.starts_with(prefix))
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
