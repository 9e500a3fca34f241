//! Batches from below.

use crate::batch::{Batch, Delta, Receipt};
use crate::idset::IdSet;
use crate::node::{EXPIRY_PERIODS, MergeRefused, Node, merge_into};
use crate::schedule::Now;
use crate::series::{Kind, SeriesId};
use crate::value::States;
use std::collections::BTreeMap;

/// What is known of one sender.
#[derive(Debug, Default)]
pub(super) struct Link {
    epoch: u64,
    /// Our number for each of the sender's; `None` for what did not fit.
    ids: Vec<Option<SeriesId>>,
    /// The merged states of the sender's subtree.
    pub(super) states: BTreeMap<SeriesId, States>,
    /// The ranks whose states these are.
    covered: IdSet,
    heard_ns: u64,
}

impl Node {
    /// A batch from below: the response to its request, or why it was refused. Nothing of a refused batch is kept.
    pub fn handle_merge(&mut self, now: Now, payload: &[u8]) -> Result<Vec<u8>, MergeRefused> {
        let outcome =
            Batch::decode(payload).map_err(MergeRefused::from).and_then(|batch| self.merge(now, batch));
        match outcome {
            Ok(need_full) => Ok(self.receipt(need_full)),
            Err(refused) => {
                self.events.refused += 1;
                Err(refused)
            }
        }
    }

    fn receipt(&self, need_full: bool) -> Vec<u8> {
        let (rank, epoch) = (self.config.rank, self.config.epoch);
        let period_ns = self.period_ns();
        Receipt { need_full, rank, epoch, generation: self.generation, period_ns }.encode()
    }

    /// `Ok(true)`: nothing was merged, the dictionary is needed in full.
    fn merge(&mut self, now: Now, batch: Batch) -> Result<bool, MergeRefused> {
        self.check_ranks(&batch)?;
        // A repeat, by whatever road: known here, or in what has arrived here merged into another's.
        if self.marks.has(batch.id) {
            self.events.repeats += 1;
            self.coverage.heard(&batch.covered, now);
            return Ok(false);
        }
        if batch.contains.iter().any(|&id| self.marks.has(id)) {
            return Err(MergeRefused::Overlap { rank: batch.id.rank, seq: batch.id.seq });
        }
        if !self.connect(&batch) {
            return Ok(true);
        }
        self.adopt(batch.generation);
        let stale = batch.generation < self.generation;
        self.take_flows(&batch, stale);
        self.take_states(&batch, now);
        for &id in batch.contains.iter().chain([&batch.id]) {
            self.marks.add(id);
            if !self.is_root() {
                self.open.contains.push(id);
            }
        }
        self.coverage.heard(&batch.covered, now);
        self.coverage.close(&batch.closed);
        if !self.is_root() {
            self.open.covered.add(&batch.covered);
            self.open.closed = self.open.closed.minus(&batch.covered);
            self.open.closed.add(&batch.closed);
            self.open.covered = self.open.covered.minus(&batch.closed);
        }
        self.events.merged += 1;
        Ok(false)
    }

    fn check_ranks(&self, batch: &Batch) -> Result<(), MergeRefused> {
        let size = self.config.size;
        let named = [batch.id.rank].into_iter().chain(batch.contains.iter().map(|id| id.rank));
        let last = |set: &IdSet| set.last();
        let highest = named.chain(last(&batch.covered)).chain(last(&batch.closed)).max().unwrap_or(0);
        if highest >= size { Err(MergeRefused::Rank { rank: highest, size }) } else { Ok(()) }
    }

    /// Brings the link's dictionary up to the batch's. False: the batch builds on one that is not here.
    fn connect(&mut self, batch: &Batch) -> bool {
        let link = self.links.entry(batch.id.rank).or_default();
        if batch.full {
            *link = Link { epoch: batch.id.epoch, ..Link::default() };
        }
        if link.epoch != batch.id.epoch || link.ids.len() != batch.dictionary_first as usize {
            return false;
        }
        for key in &batch.dictionary {
            let id = self.catalog.declare(key.clone()).ok();
            self.events.overflow += u64::from(id.is_none());
            link.ids.push(id);
        }
        true
    }

    /// Our number for one of the sender's, if the kind is right.
    fn translate(&self, rank: u32, number: u32, kind: Kind) -> Option<SeriesId> {
        let id = (*self.links.get(&rank)?.ids.get(number as usize)?)?;
        (self.catalog.key(id)?.kind() == kind).then_some(id)
    }

    fn take_flows(&mut self, batch: &Batch, stale: bool) {
        for (number, delta) in &batch.flows {
            let kind = match delta {
                Delta::Counter(..) => Kind::Counter,
                Delta::Timer(_) => Kind::Timer,
            };
            if stale {
                self.events.before_clear += 1;
                continue;
            }
            if let Some(id) = self.translate(batch.id.rank, *number, kind) {
                self.totals.merge(id, delta);
                if !self.is_root() {
                    merge_into(&mut self.open.flows, id, delta.clone());
                }
            }
        }
    }

    fn take_states(&mut self, batch: &Batch, now: Now) {
        let translated: Vec<_> = batch
            .states
            .iter()
            .filter_map(|(number, states)| {
                Some((self.translate(batch.id.rank, *number, Kind::Gauge)?, *states))
            })
            .collect();
        // The newest coverage owns a rank: what another sender said of it before is not counted beside this.
        for (&rank, link) in &mut self.links {
            if rank != batch.id.rank && !link.covered.both(&batch.covered).is_empty() {
                // Without its dictionary, the next batch of that sender comes in full, and is right again.
                *link = Link::default();
            }
        }
        let Some(link) = self.links.get_mut(&batch.id.rank) else { return };
        if batch.closing {
            *link = Link::default();
            return;
        }
        for (id, states) in translated {
            match states {
                Some(states) => link.states.insert(id, states),
                None => link.states.remove(&id),
            };
        }
        link.covered.clone_from(&batch.covered);
        link.heard_ns = now.mono_ns;
    }

    /// Forgets the states of who is silent.
    pub(super) fn expire(&mut self, now: Now) {
        let expiry_ns = self.expiry_ns();
        for link in self.links.values_mut() {
            if now.mono_ns.saturating_sub(link.heard_ns) > expiry_ns && !link.ids.is_empty() {
                *link = Link::default();
            }
        }
    }

    /// How long a rank may be silent: counted in periods as they are granted.
    pub(crate) fn expiry_ns(&self) -> u64 {
        self.period_ns().saturating_mul(EXPIRY_PERIODS)
    }

    /// Says which brokers are up.
    pub fn set_online(&mut self, online: IdSet) {
        self.coverage.set_online(online);
    }
}
