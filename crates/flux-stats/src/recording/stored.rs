//! What is in a frame's body. The order of fields and of variants is the format.

use crate::answer::{Extreme, Shape, Values};
use serde::{Deserialize, Serialize};

pub(super) const SESSION: u8 = 1;
pub(super) const ANSWER: u8 = 2;
pub(super) const BY_RANK: u8 = 3;
pub(super) const MARK: u8 = 4;
pub(super) const END: u8 = 5;

/// Who records what.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Session {
    /// The version of the recorder.
    pub(crate) recorder: String,
    /// The machine it runs on.
    pub(crate) machine: String,
    /// The instance, as it was named.
    pub(crate) uri: Option<String>,
    /// Of the instance; none: all series.
    pub(crate) patterns: Vec<String>,
    /// Of the ranks; none: nothing.
    pub(crate) by_rank: Vec<String>,
    /// Seconds between answers; none: an answer for each period.
    pub(crate) interval_s: Option<f64>,
}

/// What happened to a recorder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Mark {
    /// The instance does not answer any more, and why.
    Lost(String),
    /// It does again.
    Found,
}

/// Why a recorder ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Ended {
    /// It was told to, by a signal.
    Told,
    /// Its time was up (`--for`).
    Over,
    /// The instance was gone for too long.
    Gone,
}

/// An answer, as what changed.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Delta {
    /// All names and rows are forgotten before it.
    pub(super) reset: bool,
    /// Whom it covers, where that changed.
    pub(super) context: Option<Context>,
    pub(super) oldest: f32,
    /// Of an answer by rank, the ranks that were asked, and those that did not answer; idsets.
    pub(super) asked: String,
    pub(super) unanswered: String,
    /// Names that have not been told yet.
    pub(super) names: Vec<String>,
    /// Rows that begin.
    pub(super) begun: Vec<Head>,
    /// Rows that end, as distances.
    pub(super) gone: Vec<u32>,
    /// Rows that changed, in order.
    pub(super) changed: Vec<Change>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Context {
    pub(super) size: u32,
    pub(super) hostlist: Option<String>,
    pub(super) period: f64,
    pub(super) covered: String,
    pub(super) missing: String,
    pub(super) offline: String,
    pub(super) absent: String,
    pub(super) silent: String,
}

/// What a row is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Head {
    /// The number of its name.
    pub(super) name: u32,
    pub(super) rank: Option<u32>,
    pub(super) tags: Vec<(String, String)>,
    pub(super) kind: Kind,
    /// What it counts, where its name does not end like that.
    pub(super) unit: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Timer,
    Set,
    /// One that this version cannot read; its rows have no numbers.
    Other(String),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Change {
    /// How far it is from the row before it (from row 0, of the first).
    pub(super) distance: u32,
    /// A bit for each number that changed; the lowest is the first.
    pub(super) which: u16,
    /// For each of these.
    pub(super) steps: Vec<Step>,
}

/// The numbers of a row; those that a type does not have, or that are absent, are not numbers (NaN).
pub(super) type Numbers = [f64; 10];

/// The numbers of a row that has none yet.
pub(super) const NONE: Numbers = [f64::NAN; 10];

/// From one number to the next.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) enum Step {
    /// It is not known any more.
    Absent,
    /// The next one is whole, and so much more; the one before counts as 0 where it is absent.
    Whole(i64),
    /// The same in nanoseconds, or what else is counted in units of 1e-9.
    Nano(i64),
    Single(f32),
    Double(f64),
}

impl Step {
    /// The shortest step that leads to the last bit of `after`.
    pub(super) fn between(before: f64, after: f64) -> Step {
        if after.is_nan() {
            return Step::Absent;
        }
        let before = if before.is_nan() { 0.0 } else { before };
        let steps = [
            scaled(before, 1.0).zip(scaled(after, 1.0)).map(|(from, to)| Step::Whole(to - from)),
            Some(Step::Single(after as f32)),
            scaled(before, 1e9).zip(scaled(after, 1e9)).map(|(from, to)| Step::Nano(to - from)),
        ];
        let fits = |step: &Step| step.from(before).to_bits() == after.to_bits();
        steps.into_iter().flatten().find(fits).unwrap_or(Step::Double(after))
    }

    pub(super) fn from(self, before: f64) -> f64 {
        let moved = |scale: f64, by: i64| {
            scaled(before, scale).map_or(f64::NAN, |from| from.saturating_add(by) as f64 / scale)
        };
        match self {
            Step::Absent => f64::NAN,
            Step::Whole(by) => moved(1.0, by),
            Step::Nano(by) => moved(1e9, by),
            Step::Single(after) => f64::from(after),
            Step::Double(after) => after,
        }
    }
}

/// How many of that unit a number is, where that can be told.
fn scaled(number: f64, scale: f64) -> Option<i64> {
    let number = if number.is_nan() { 0.0 } else { (number * scale).round() };
    (number.abs() < (1_u64 << 62) as f64).then_some(number as i64)
}

/// What is derived from other numbers is kept to 24 bits.
fn derived(number: f64) -> f64 {
    f64::from(number as f32)
}

/// A series' values as a row.
pub(super) fn numbers(values: &Values) -> Numbers {
    let mut row = NONE;
    let mut set = |numbers: &[f64]| row[..numbers.len()].copy_from_slice(numbers);
    let or_none = |number: Option<f64>| number.unwrap_or(f64::NAN);
    match values {
        Values::Counter { total, rate, max } => {
            let (rank, highest) =
                max.map_or((f64::NAN, f64::NAN), |(rank, rate)| (rank.into(), derived(rate)));
            set(&[*total, derived(*rate), rank, highest]);
        }
        Values::Gauge { count, sum, min, max } => {
            let (min_time, max_time) = (or_none(min.time), or_none(max.time));
            let (least, most) = (f64::from(min.rank), f64::from(max.rank));
            set(&[*count as f64, *sum, min.value, least, min_time, max.value, most, max_time]);
        }
        Values::Timer { count, rate, sum, shape, relative_error } => {
            set(&[*count as f64, derived(*rate), *sum, derived(*relative_error)]);
            if let Some(Shape { min, max, stddev, p50, p90, p99 }) = *shape {
                row[4..].copy_from_slice(&[min, max, stddev, p50, p90, p99].map(derived));
            }
        }
        Values::Set { estimate, relative_error } => set(&[derived(*estimate), derived(*relative_error)]),
        Values::Other(_) => {}
    }
    row
}

/// A row as a series' values.
pub(super) fn values(kind: &Kind, row: &Numbers) -> Values {
    let known = |place: usize| (!row[place].is_nan()).then_some(row[place]);
    let number = |place: usize| known(place).unwrap_or_default();
    let extreme = |place: usize| Extreme {
        value: number(place),
        rank: number(place + 1) as u32,
        time: known(place + 2),
    };
    match kind {
        Kind::Counter => {
            let max = known(2).map(|rank| (rank as u32, number(3)));
            Values::Counter { total: number(0), rate: number(1), max }
        }
        Kind::Gauge => {
            Values::Gauge { count: number(0) as u64, sum: number(1), min: extreme(2), max: extreme(5) }
        }
        Kind::Timer => {
            let shape = known(4).map(|min| Shape {
                min,
                max: number(5),
                stddev: number(6),
                p50: number(7),
                p90: number(8),
                p99: number(9),
            });
            let (count, rate) = (number(0) as u64, number(1));
            Values::Timer { count, rate, sum: number(2), shape, relative_error: number(3) }
        }
        Kind::Set => Values::Set { estimate: number(0), relative_error: number(1) },
        Kind::Other(kind) => Values::Other(kind.clone()),
    }
}

pub(super) fn kind(values: &Values) -> Kind {
    match values {
        Values::Counter { .. } => Kind::Counter,
        Values::Gauge { .. } => Kind::Gauge,
        Values::Timer { .. } => Kind::Timer,
        Values::Set { .. } => Kind::Set,
        Values::Other(kind) => Kind::Other(kind.clone()),
    }
}
