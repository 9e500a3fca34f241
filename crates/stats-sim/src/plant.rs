//! Deliberate bugs around the nodes, to see that the simulation finds them.

use crate::ledger::{Id, Units};
use crate::workload::gauge_of;
use crate::world::World;
use std::fmt;
use std::str::FromStr;

/// A deliberate bug. Each does to numbers what a missing check in the nodes would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// A repeat is known as one, and merged all the same.
    DoubleMerge,
    /// What is still in custody when the module has unloaded is not kept.
    LostOnUnload,
    /// A rank that sends by another road than before is counted by its former receiver as well.
    StateTwice,
}

/// As it is parsed.
impl fmt::Display for Plant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Plant::DoubleMerge => "double-merge",
            Plant::LostOnUnload => "lost-on-unload",
            Plant::StateTwice => "state-twice",
        })
    }
}

/// Text that names no bug.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no bug that can be planted: expected double-merge, lost-on-unload or state-twice")]
pub struct BadPlant(String);

impl FromStr for Plant {
    type Err = BadPlant;

    fn from_str(text: &str) -> Result<Self, BadPlant> {
        match text {
            "double-merge" => Ok(Plant::DoubleMerge),
            "lost-on-unload" => Ok(Plant::LostOnUnload),
            "state-twice" => Ok(Plant::StateTwice),
            _ => Err(BadPlant(text.to_owned())),
        }
    }
}

impl World<'_> {
    /// A receiver has known `carried` to be a repeat.
    pub(crate) fn plant_double_merge(&mut self, receiver: u32, carried: &[(Id, Units)]) {
        if self.config.plant != Some(Plant::DoubleMerge) {
            return;
        }
        let state = self.rank(receiver);
        if let (Some(node), Some(measured)) = (&mut state.module, &state.measured) {
            for (_, units) in carried {
                node.add(measured.followed[0], stats_core::Amount::from_parts(units.0[0]));
            }
        }
    }

    /// A rank has unloaded.
    pub(crate) fn plant_lost_on_unload(&mut self, rank: u32) {
        if self.config.plant == Some(Plant::LostOnUnload) && rank != 0 && !self.effective(rank).is_zero() {
            let state = self.rank(rank);
            state.saved.clear();
            state.left = None;
        }
    }

    /// A rank's batch was taken by another receiver than its last one.
    pub(crate) fn plant_state_twice(&mut self, rank: u32, former: u32) {
        let (name, value) = gauge_of(rank);
        if self.config.plant != Some(Plant::StateTwice) {
            return;
        }
        let key = stats_core::Key::new(&name, &[], stats_core::Kind::Gauge, stats_core::Unit::None);
        if let (Some(node), Ok(key)) = (&mut self.rank(former).module, key)
            && let Ok(id) = node.declare(key)
        {
            node.set(id, Some(value));
        }
    }
}
