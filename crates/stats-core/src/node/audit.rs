//! What a node has in custody, for those who check that nothing is lost: simulations, and a person who doubts.

use crate::amount::Amount;
use crate::flows::Sealed;
use crate::marks::{BatchId, Mark};
use crate::node::Node;
use crate::node::coverage::Heard;
use crate::node::doubt::Doubt;
use crate::node::upstream::{Outgoing, What};
use crate::schedule::Now;
use crate::series::{Key, Kind, SeriesId};
use crate::store::Store;
use crate::value::States;

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
        let holding = |(batch, in_doubt): (&Outgoing, bool)| Holding {
            id: (batch.id.rank, batch.id.epoch, batch.id.seq),
            in_doubt,
            flows: self.named(&batch.flows),
        };
        let unsealed = self.unsealed_flows().map(|flows| self.named(&Sealed::of(&flows)));
        Audit { unsealed: unsealed.unwrap_or_default(), held: self.in_custody().map(holding).collect() }
    }

    /// Sealed batches, and whether each may have been merged upstream: one that is on its way may have been.
    fn in_custody(&self) -> impl Iterator<Item = (&Outgoing, bool)> {
        let upstream = &self.upstream;
        let flight = upstream.in_flight.as_ref().map(|flight| &flight.what);
        let sealed = upstream.sealed.iter().map(move |batch| (batch, flight.is_some()));
        let held = upstream.held.iter().map(move |held| {
            let on_its_way = flight == Some(&What::Held(held.batch.id));
            (&held.batch, on_its_way || held.doubt != Doubt::None)
        });
        let parked = upstream.parked.iter().map(|batch| (batch, false));
        sealed.chain(held).chain(parked)
    }

    /// What is in custody of a few groups of series, without their names: [`Node::audit`] for those who ask after every
    /// event. `each` is given every part of it: the identity of a batch and whether it is in doubt (`None`: what is in
    /// no batch yet), and how much of each group is in it.
    pub fn survey<const N: usize>(
        &self,
        groups: [&[SeriesId]; N],
        mut each: impl FnMut(Option<((u32, u64, u64), bool)>, [Amount; N]),
    ) {
        let sums = |amount: &dyn Fn(SeriesId) -> Amount| {
            groups.map(|ids| ids.iter().map(|&id| amount(id)).fold(Amount::ZERO, Amount::plus))
        };
        if !self.is_root() {
            each(None, sums(&|id| self.open.flows.amount(id).plus(self.unsealed.amount(id))));
        }
        for (batch, in_doubt) in self.in_custody() {
            let id = (batch.id.rank, batch.id.epoch, batch.id.seq);
            each(Some((id, in_doubt)), sums(&|id| batch.flows.amount(id)));
        }
    }

    /// This subtree's total of a flow: a counter's, or the number of a timer's samples.
    pub fn total(&self, id: SeriesId) -> Amount {
        let total = |store: &Store| match id.kind() {
            Kind::Counter => store.counter(id).map(|counted| counted.total),
            Kind::Timer => store.timer(id).map(|timed| Amount::whole(i128::from(timed.total.count()))),
            Kind::Gauge | Kind::Set => None,
        };
        [&self.own, &self.below].into_iter().filter_map(total).fold(Amount::ZERO, Amount::plus)
    }

    /// The states of the subtree as they are now.
    pub fn states(&self) -> Vec<(&Key, States)> {
        let named = |(id, states)| Some((self.catalog.key(id)?, states));
        self.states_now().into_iter().filter_map(named).collect()
    }

    /// The last word of each rank of the subtree, as long as it holds.
    pub fn heard(&self, now: Now) -> impl Iterator<Item = Heard> + '_ {
        self.coverage.heard(now)
    }

    /// The last word of one of them.
    pub fn heard_of(&self, rank: u32, now: Now) -> Option<Heard> {
        self.coverage.heard_of(rank, now)
    }

    /// Whether a batch has been merged here.
    pub fn has_merged(&self, (rank, epoch, seq): (u32, u64, u64)) -> bool {
        self.marks.of(BatchId { rank, epoch, seq }) == Mark::Merged
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeConfig;
    use crate::series::Unit;
    use std::time::Duration;

    fn config(epoch: u64) -> NodeConfig {
        let period = Duration::from_secs(2);
        NodeConfig { rank: 1, size: 2, level: 1, max_level: 1, epoch, period, max_series: 100 }
    }

    #[test]
    fn a_batch_of_an_earlier_load_is_in_doubt_while_it_is_on_its_way() {
        let now = Now { mono_ns: 0, wall_ns: 0 };
        let key = Key::new("a", &[], Kind::Counter, Unit::None).unwrap();
        let mut node = Node::new(config(1), now);
        let id = node.declare(key.clone()).unwrap();
        node.add(id, Amount::whole(7));
        node.begin_unload(now);
        let mut node = Node::restore(config(2), now, &node.save()).unwrap();
        let id = node.find(&key).unwrap();
        let surveyed = |node: &Node| {
            let mut parts = Vec::new();
            node.survey([&[id]], |batch, [amount]| {
                if amount != Amount::ZERO {
                    parts.push((batch, amount));
                }
            });
            parts
        };
        let batch = (1, 1, 0);
        assert_eq!(surveyed(&node), [(Some((batch, false)), Amount::whole(7))]);
        assert!(!node.audit().held[0].in_doubt);
        node.tick(now);
        assert!(node.poll_transmit(now).is_some());
        assert_eq!(surveyed(&node), [(Some((batch, true)), Amount::whole(7))]);
        assert!(node.audit().held[0].in_doubt);
        assert_eq!((node.total(id), node.has_merged(batch)), (Amount::whole(7), false));
    }
}
