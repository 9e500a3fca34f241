//! Batches from below.

use crate::batch::{Detached, Message, Receipt, Regular, SERIES_MAX, Status};
use crate::flows::Sealed;
use crate::idset::IdSet;
use crate::marks::{BatchId, Ids, Latest, Mark};
use crate::node::standings::Standings;
use crate::node::{CONTAINS_MAX, MergeRefused, Node};
use crate::schedule::Now;
use crate::series::{Key, Kind, SeriesId};
use crate::store::make_room;
use crate::value::States;
use std::collections::BTreeMap;

const MS: u64 = 1_000_000;
/// Gauges that children's states may hold together: some 64 MiB.
const STATES_MAX: usize = 400_000;

/// What is known of one sender.
#[derive(Debug, Default)]
pub(super) struct Link {
    epoch: u64,
    /// The last message that was taken: what the next one builds on.
    seq: u64,
    /// Our identifier for each of the sender's numbers; `None` for what did not fit.
    ids: Vec<Option<SeriesId>>,
    /// Its last batch of each rank behind it.
    latest: Latest,
    /// The merged states of the sender's subtree.
    pub(super) states: BTreeMap<SeriesId, States>,
    /// Its states are not counted: another sender has newer word of one of its ranks.
    pub(super) suspended: bool,
    heard_ns: u64,
    expiry_ns: u64,
}

impl Link {
    /// The sender's states of a gauge are others now, or none.
    fn put_states(
        &mut self,
        id: SeriesId,
        after: Option<States>,
        held: &mut usize,
        standings: &mut Standings,
    ) {
        let before = match after {
            Some(states) => self.states.insert(id, states),
            None => self.states.remove(&id),
        };
        *held = *held + usize::from(after.is_some()) - usize::from(before.is_some());
        if !self.suspended {
            standings.change(id, before.as_ref(), after.as_ref());
        }
    }
}

impl Node {
    /// A message from below: the response to its request, or why it was refused. Nothing of what is refused is kept.
    pub fn handle_merge(&mut self, now: Now, payload: &[u8]) -> Result<Vec<u8>, MergeRefused> {
        let outcome =
            Message::decode(payload, self.config.size).map_err(MergeRefused::from).and_then(|message| {
                match message {
                    Message::Regular(batch) => self.merge(now, *batch),
                    Message::Detached(batch) => self.merge_detached(*batch),
                    Message::Question(question) => {
                        self.check_ranks([question.id.rank])?;
                        Ok(self.question(question))
                    }
                }
            });
        match outcome {
            Ok(status) => Ok(self.receipt(status)),
            Err(refused) => {
                self.events.refused += 1;
                Err(refused)
            }
        }
    }

    /// What taking up a message of that many bytes may need in memory: 32 times as much where it is distributions (a bucket
    /// takes two bytes, then four counts at most, as they are read and again as they are kept), and a hundred times where it
    /// is small numbers, of which there are at most as many as there are series.
    pub fn memory_of_merge(bytes: usize) -> usize {
        const SMALL_NUMBERS: usize = 256 << 20;
        bytes.saturating_mul(32).saturating_add(bytes.saturating_mul(100).min(SMALL_NUMBERS))
    }

    /// Counts a message that was refused before it was read.
    pub fn count_refused(&mut self) {
        self.events.refused += 1;
    }

    fn receipt(&self, status: Status) -> Vec<u8> {
        let (rank, epoch) = (self.config.rank, self.config.epoch);
        let period_ns = self.pressure.afforded_ns();
        Receipt { status, rank, epoch, generation: self.generation, period_ns }.encode()
    }

    fn check_ranks(&self, ranks: impl IntoIterator<Item = u32>) -> Result<(), MergeRefused> {
        let size = self.config.size;
        let above = |rank| rank == self.config.rank || self.ancestors.contains(rank);
        match ranks.into_iter().find(|&rank| rank >= size || above(rank)) {
            Some(rank) if rank >= size => Err(MergeRefused::Rank { rank, size }),
            Some(rank) => Err(MergeRefused::Above { rank }),
            None => Ok(()),
        }
    }

    fn merge(&mut self, now: Now, mut batch: Regular) -> Result<Status, MergeRefused> {
        let covered = batch.coverage.iter().filter_map(|group| group.ranks.last());
        let named = batch.contains.ranks().chain(batch.next.iter()).chain([batch.rank]);
        self.check_ranks(covered.filter(|&rank| rank != self.config.rank).chain(named))?;
        self.check_generation(batch.generation)?;
        if batch.id().is_some_and(|id| self.marks.of(id) == Mark::Merged) {
            self.events.repeats += 1;
            return Ok(Status::Taken);
        }
        let new = Link { epoch: batch.epoch, ..Link::default() };
        let link = if batch.after == 0 { Some(&new) } else { self.links.get(&batch.rank) };
        let connected = link.is_some_and(|link| {
            let same = link.epoch == batch.epoch && link.seq == batch.after;
            let same = same && link.ids.len() == batch.first as usize;
            same && batch.contains.add_next(&batch.next, &link.latest)
        });
        if !connected {
            return Ok(Status::NeedFull);
        }
        let id = batch.id();
        let series = batch.first as usize + batch.dictionary.len();
        if series > SERIES_MAX {
            return Err(MergeRefused::Dictionary { rank: batch.rank, max: SERIES_MAX });
        }
        if let Some(id) = id {
            batch.contains.add(id);
            self.check_identities(&batch.contains, id)?;
        }
        if batch.after == 0 {
            self.drop_link(batch.rank);
            self.links.insert(batch.rank, new);
        }
        self.extend_dictionary(batch.rank, std::mem::take(&mut batch.dictionary));
        self.adopt(batch.generation);
        let flows = std::mem::take(&mut batch.flows);
        self.events.merged_values += flows.len() as u64;
        let ids = self.links.get(&batch.rank).map_or(&[][..], |link| &link.ids);
        let (flows, lost) = flows.translated(|number| *ids.get(number as usize)?);
        self.events.overflow += lost;
        self.take_flows(flows, batch.generation);
        if let Some(link) = self.links.get_mut(&batch.rank) {
            link.latest.follow(&batch.contains);
            link.seq = batch.link_seq;
        }
        if id.is_some() {
            self.marks.add_all(&batch.contains);
            if !self.is_root() {
                self.open.contains.add_all(&batch.contains);
            }
            self.events.merged += 1;
        }
        self.take_coverage(&batch, now);
        self.take_states(&batch);
        self.take_withdrawals(&batch);
        Ok(Status::Taken)
    }

    /// What a batch contains, itself and all: it has arrived here before, would be too much to remember, or finds no room
    /// to be sent on.
    fn check_identities(&self, all: &Ids, id: BatchId) -> Result<(), MergeRefused> {
        if self.marks.meets(all) || !self.marks.has_room_for(all) {
            return Err(MergeRefused::Overlap { rank: id.rank, seq: id.seq });
        }
        let waiting = self.open.contains.len();
        let fits = waiting + all.len() < CONTAINS_MAX && self.open.contains.has_room_for(all);
        if !self.is_root() && !fits {
            return Err(MergeRefused::Full { rank: self.config.rank, waiting });
        }
        Ok(())
    }

    fn extend_dictionary(&mut self, sender: u32, keys: Vec<Key>) {
        if let Some(link) = self.links.get_mut(&sender) {
            make_room(&mut link.ids, keys.len());
        }
        for key in keys {
            let id = self.declare_below(key);
            if let Some(link) = self.links.get_mut(&sender) {
                link.ids.push(id);
                id.into_iter().for_each(|id| self.catalog.retain(id));
            }
        }
    }

    /// The sender will not name these series again.
    fn take_withdrawals(&mut self, batch: &Regular) {
        let Some(link) = self.links.get_mut(&batch.rank) else { return };
        for &number in &batch.withdrawn {
            if let Some(id) = link.ids.get_mut(number as usize).and_then(Option::take) {
                link.put_states(id, None, &mut self.states_held, &mut self.standings);
                self.catalog.release(id);
            }
        }
    }

    /// What is known of a sender is known no longer.
    fn drop_link(&mut self, sender: u32) {
        if let Some(link) = self.links.remove(&sender) {
            self.states_held -= link.states.len();
            if !link.suspended {
                self.standings.change_all(&link.states, false);
            }
            link.ids.into_iter().flatten().for_each(|id| self.catalog.release(id));
        }
    }

    /// Flows become part of this subtree's totals, and of what is to go upstream; from before a clear, of nothing.
    fn take_flows(&mut self, flows: Sealed, generation: u64) {
        if generation < self.generation {
            self.events.before_clear += flows.len() as u64;
            return;
        }
        self.below.add(&flows);
        if !self.is_root() {
            self.open.flows.take_in(flows);
        }
    }

    fn take_coverage(&mut self, batch: &Regular, now: Now) {
        let expiry_ns = batch.expiry_ms.saturating_mul(MS).max(self.expiry_ns(now));
        let change = self.coverage.report(batch.rank, &batch.coverage, expiry_ns, now);
        // The newest word of a rank owns its states: what an earlier sender said is not counted beside it. That
        // sender's next message comes in full, and is right again.
        for lost in change.lost {
            if lost != batch.rank {
                self.drop_link(lost);
            }
        }
        if let Some(link) = self.links.get_mut(&batch.rank) {
            if link.suspended != change.stale {
                link.suspended = change.stale;
                self.standings.change_all(&link.states, !change.stale);
            }
            (link.heard_ns, link.expiry_ns) = (now.mono_ns, expiry_ns);
        }
    }

    fn take_states(&mut self, batch: &Regular) {
        if batch.closing {
            return self.drop_link(batch.rank);
        }
        let Some(link) = self.links.get_mut(&batch.rank) else { return };
        for (number, change) in &batch.states {
            let known = link.ids.get(*number as usize).copied().flatten();
            let Some(id) = known.filter(|id| id.kind() == Kind::Gauge) else {
                self.events.overflow += 1;
                continue;
            };
            if change.is_some() && self.states_held >= STATES_MAX && !link.states.contains_key(&id) {
                self.events.states_overflow += 1;
                continue;
            }
            link.put_states(id, *change, &mut self.states_held, &mut self.standings);
        }
    }

    /// A batch that stands for itself.
    fn merge_detached(&mut self, batch: Detached) -> Result<Status, MergeRefused> {
        self.check_ranks(batch.contains.ranks().chain([batch.id.rank]))?;
        self.check_generation(batch.generation)?;
        match self.marks.of(batch.id) {
            Mark::Merged => {
                self.events.repeats += 1;
                return Ok(Status::Taken);
            }
            Mark::Forgotten if batch.doubt => return Ok(Status::NotTaken),
            _ => {}
        }
        let elsewhere = batch.bound.is_some_and(|rank| rank != self.config.rank);
        if batch.doubt && (elsewhere || !self.has_room_for_relay()) {
            return Ok(Status::NotTaken);
        }
        let mut all = batch.contains.clone();
        all.add(batch.id);
        self.check_identities(&all, batch.id)?;
        let ids: Vec<_> = batch.dictionary.into_iter().map(|key| self.declare_below(key)).collect();
        self.adopt(batch.generation);
        self.events.merged_values += batch.flows.len() as u64;
        let (flows, lost) = batch.flows.translated(|number| *ids.get(number as usize)?);
        self.events.overflow += lost;
        self.marks.add_all(&all);
        if batch.doubt && !self.is_root() {
            self.relay(batch.id, batch.generation, batch.contains, flows);
        } else {
            self.take_flows(flows, batch.generation);
            if !self.is_root() {
                self.open.contains.add_all(&all);
            }
        }
        self.events.merged += 1;
        Ok(Status::Taken)
    }

    fn declare_below(&mut self, key: Key) -> Option<SeriesId> {
        let id = self.catalog.declare(key).ok();
        self.events.overflow += u64::from(id.is_none());
        id
    }

    /// Forgets the states of who is silent.
    pub(super) fn expire(&mut self, now: Now) {
        let expired =
            self.links.iter().filter(|(_, link)| now.mono_ns.saturating_sub(link.heard_ns) > link.expiry_ns);
        let expired: Vec<u32> = expired.map(|(&rank, _)| rank).collect();
        expired.into_iter().for_each(|rank| self.drop_link(rank));
    }

    /// Says which brokers are up.
    pub fn set_online(&mut self, online: IdSet) {
        self.coverage.set_online(online);
    }
}
