//! From hand-overs to pushes, for who has lines and no node: `flux stats send -`.

use crate::shard::{Change, Delta};
use stats_core::{Key, Metric, Pushed};

/// Makes metrics of the changes of one [`Shard`](crate::Shard).
#[derive(Debug, Default)]
pub struct Pushing {
    /// By the shard's number.
    keys: Vec<Option<Key>>,
}

impl Pushing {
    /// What changed, as metrics of a push. Changes must come in the order in which they were handed over.
    pub fn metrics(&mut self, changes: Vec<Change>) -> Vec<Metric> {
        changes.into_iter().filter_map(|change| self.metric(change)).collect()
    }

    fn metric(&mut self, change: Change) -> Option<Metric> {
        let number = change.number as usize;
        if self.keys.len() <= number {
            self.keys.resize_with(number + 1, || None);
        }
        if change.key.is_some() {
            self.keys[number] = change.key;
        }
        let value = match change.delta {
            Delta::Count(amount) => Pushed::Count(amount),
            Delta::Gauge(amount) => Pushed::Set(amount),
            Delta::Samples(samples) => Pushed::Samples(samples),
            Delta::Members(members) => Pushed::Members(members),
            Delta::Gone => {
                self.keys[number] = None;
                return None;
            }
        };
        Some(Metric { key: self.keys[number].clone()?, value, ttl: None })
    }
}
