//! What a node has in custody, for those who check that nothing is lost: simulations, and a person who doubts.

use crate::amount::Amount;
use crate::flows::Sealed;
use crate::marks::{BatchId, Mark};
use crate::node::Node;
use crate::node::doubt::Doubt;
use crate::series::Key;

/// A sealed batch in a node's custody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// Its identity: rank, epoch and number.
    pub id: (u32, u64, u64),
    /// It may have been merged upstream as well.
    pub in_doubt: bool,
    /// What it carries: counters, and the numbers of samples of timers.
    pub flows: Vec<(Key, Amount)>,
}

/// All flows in a node's custody.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audit {
    /// What is in no batch yet.
    pub unsealed: Vec<(Key, Amount)>,
    /// Batches that nobody has acknowledged.
    pub held: Vec<Holding>,
}

impl Node {
    /// What this node has in custody. At the root that is nothing: what has arrived is in its totals.
    pub fn audit(&self) -> Audit {
        let upstream = &self.upstream;
        let sealed = upstream.sealed.iter().map(|batch| (batch, upstream.in_flight.is_some()));
        let held = upstream.held.iter().map(|held| (&held.batch, held.doubt != Doubt::None));
        let parked = upstream.parked.iter().map(|batch| (batch, false));
        let holding = |(batch, in_doubt): (&super::upstream::Outgoing, bool)| Holding {
            id: (batch.id.rank, batch.id.epoch, batch.id.seq),
            in_doubt,
            flows: self.named(&batch.flows),
        };
        Audit {
            unsealed: self.named(&self.unsealed_flows()),
            held: sealed.chain(held).chain(parked).map(holding).collect(),
        }
    }

    /// Whether a batch has been merged here.
    pub fn has_merged(&self, (rank, epoch, seq): (u32, u64, u64)) -> bool {
        self.marks.of(BatchId { rank, epoch, seq }) == Mark::Merged
    }

    /// What this node has in custody, by series: an upper bound where a batch is in doubt.
    pub fn custody(&self) -> impl Iterator<Item = (Key, Amount)> {
        let audit = self.audit();
        audit.unsealed.into_iter().chain(audit.held.into_iter().flat_map(|holding| holding.flows))
    }

    fn named(&self, flows: &Sealed) -> Vec<(Key, Amount)> {
        let counters = flows.counters.iter().map(|&(id, gain)| (id, gain.amount));
        let timers =
            flows.timers.iter().map(|(id, samples)| (*id, Amount::whole(i128::from(samples.count()))));
        let named =
            counters.chain(timers).filter_map(|(id, amount)| Some((self.catalog.key(id)?.clone(), amount)));
        named.collect()
    }
}
