//! What a source has told last, in the node.

use crate::readings::{Reading, Total, Value};
use stats_core::{Amount, Key, Node, SeriesId};
use std::collections::HashMap;

/// The series of one source, and the counts that are recorded already.
#[derive(Default)]
pub(crate) struct Shelf {
    series: HashMap<Key, Kept>,
}

struct Kept {
    id: SeriesId,
    /// The source's count when it was last told.
    total: Option<Total>,
    told: bool,
}

impl Shelf {
    /// Records what a source tells; states that it does not tell any more are withdrawn. `anew`: its counts began at zero
    /// after it was last seen to be away. Else the first that is told is what counting begins with.
    pub(crate) fn put(&mut self, node: &mut Node, readings: Vec<Reading>, anew: bool) {
        self.series.values_mut().for_each(|kept| kept.told = false);
        for Reading { key, value } in readings {
            let kept = match self.series.get_mut(&key) {
                Some(kept) => kept,
                // Refused for want of room: counted by the node.
                None => match node.declare(key.clone()) {
                    Ok(id) => self.series.entry(key).or_insert(Kept { id, total: None, told: false }),
                    Err(_) => continue,
                },
            };
            kept.told = true;
            match value {
                Value::State(amount) => node.set(kept.id, Some(amount)),
                Value::Total(total) => {
                    let zero = match total {
                        Total::Int(_) => Total::Int(0),
                        Total::Wide(_) => Total::Wide(0),
                    };
                    let before = kept.total.replace(total).or(anew.then_some(zero));
                    let gained = before.map_or(0, |before| total.gained(before));
                    node.add(kept.id, Amount::whole(gained.into()));
                }
            }
        }
        for kept in self.series.values().filter(|kept| !kept.told) {
            node.set(kept.id, None);
        }
    }

    /// Nothing is known any more: states are withdrawn, and counts go on where they were.
    pub(crate) fn withdraw(&mut self, node: &mut Node) {
        self.series.values().for_each(|kept| node.set(kept.id, None));
    }

    /// The source has ended: what comes under its name later counts from zero.
    pub(crate) fn forget(&mut self, node: &mut Node) {
        self.withdraw(node);
        self.series.clear();
    }
}
