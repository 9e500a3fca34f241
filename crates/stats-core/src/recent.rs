//! The history, as it leaves.

use crate::amount::Amount;
use crate::answer::{Whose, real};
use crate::history::HISTORY_ERROR;
use crate::node::Node;
use crate::schedule::Now;
use crate::series::{Kind, SeriesId, Unit};
use crate::trail::Level;
use serde::ser::{Serialize, SerializeMap, Serializer};

/// Recent slots of the history, the oldest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Recent {
    /// How much time they are, in seconds.
    pub seconds: f64,
    /// What there was in them.
    pub course: Course,
}

/// The course that a series took.
#[derive(Debug, Clone, PartialEq)]
pub enum Course {
    /// A flow gained something.
    Gained {
        /// In all slots.
        total: f64,
        /// Per second in each.
        points: Vec<f64>,
    },
    /// A state was something at the end of each slot; `None`: nobody told of it.
    Was {
        /// The sum over the ranks.
        points: Vec<Option<f64>>,
        /// The greatest of a single rank.
        max: Vec<Option<f64>>,
    },
}

impl Serialize for Recent {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("seconds", &self.seconds)?;
        if let Course::Gained { total, .. } = self.course {
            let rate = if self.seconds > 0.0 { total / self.seconds } else { 0.0 };
            map.serialize_entry("total", &total)?;
            map.serialize_entry("rate", &rate)?;
        }
        map.serialize_entry("relative_error", &HISTORY_ERROR)?;
        match &self.course {
            Course::Gained { points, .. } => map.serialize_entry("points", points)?,
            Course::Was { points, max } => {
                map.serialize_entry("points", points)?;
                map.serialize_entry("max", max)?;
            }
        }
        map.end()
    }
}

impl Node {
    /// `None` for a set, of which no history is kept, and for a gauge of ranks below one that is not the root.
    pub(crate) fn recent(
        &self,
        id: SeriesId,
        unit: Unit,
        since_ns: u64,
        now: Now,
        whose: Whose,
    ) -> Option<Recent> {
        let below = (whose == Whose::Subtree).then_some(&self.below);
        let stores = || [Some(&self.own), below].into_iter().flatten();
        let slots = self.own.timeline.recent(now.wall_ns, since_ns);
        let seconds = slots.iter().map(|&(_, _, length_ns)| length_ns as f64 / 1e9).sum();
        let course = match id.kind() {
            Kind::Set => return None,
            Kind::Gauge if below.is_some() && !self.is_root() => return None,
            Kind::Gauge => {
                let level = |&(slot, ..): &(usize, u64, u64)| {
                    stores().filter_map(|store| store.level(id, slot)).reduce(Level::merged)
                };
                let levels: Vec<Option<Level>> = slots.iter().map(level).collect();
                let points = levels.iter().map(|level| level.map(|level| real(level.sum, unit)));
                let max = levels.iter().map(|level| level.map(|level| real(level.max, unit)));
                Course::Was { points: points.collect(), max: max.collect() }
            }
            Kind::Counter | Kind::Timer => {
                // Points of a timer count samples, which have no unit.
                let unit = if id.kind() == Kind::Timer { Unit::None } else { unit };
                let (mut total, mut points) = (Amount::ZERO, Vec::with_capacity(slots.len()));
                for &(slot, _, length_ns) in &slots {
                    let gained = stores().fold(Amount::ZERO, |sum, store| sum.plus(store.gained(id, slot)));
                    let length = length_ns as f64 / 1e9;
                    total = total.plus(gained);
                    points.push(if length > 0.0 { real(gained, unit) / length } else { 0.0 });
                }
                Course::Gained { total: real(total, unit), points }
            }
        };
        Some(Recent { seconds, course })
    }
}
