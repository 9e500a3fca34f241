//! Batches that do not go with the regular messages: those of an earlier load, and those in doubt, of which it is
//! unknown whether they have arrived. See `docs/custody.md` for why this counts nothing twice.

use crate::batch::{Detached, Numbered, Question, Receipt, Status};
use crate::flows::Sealed;
use crate::marks::{BatchId, Ids, Mark};
use crate::node::upstream::{Outgoing, What};
use crate::node::{Node, SendFailure};
use std::collections::BTreeMap;

/// Periods between two attempts to hand over a batch in doubt.
const RETRY_PERIODS: u32 = 4;
/// Batches of others in doubt that a node relays at a time. Beyond, they stay with who has them.
const RELAYED_MAX: usize = 1000;

/// Whether a batch may have been merged already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    /// It was not.
    None,
    /// Somewhere it may have been. Any receiver may take it, and keeps it apart.
    Somewhere,
    /// By this rank, if at all.
    At(u32),
}

impl Doubt {
    pub(super) fn at(rank: Option<u32>) -> Self {
        rank.map_or(Doubt::Somewhere, Doubt::At)
    }

    fn bound(self) -> Option<u32> {
        match self {
            Doubt::At(rank) => Some(rank),
            Doubt::None | Doubt::Somewhere => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Held {
    pub(super) batch: Outgoing,
    pub(super) doubt: Doubt,
    /// Periods until the next attempt.
    wait: u32,
    /// The receiver does not have it and wants it.
    wanted: bool,
}

impl Held {
    pub(super) fn new(batch: Outgoing, doubt: Doubt) -> Self {
        Held { batch, doubt, wait: 0, wanted: false }
    }

    pub(super) fn period_ended(&mut self) {
        self.wait = self.wait.saturating_sub(1);
    }

    pub(super) fn is_due(&self) -> bool {
        self.wait == 0
    }

    pub(super) fn hurry(&mut self) {
        self.wait = 0;
    }
}

impl Node {
    pub(super) fn hold(&mut self, batch: Outgoing, doubt: Doubt) {
        self.events.doubted += u64::from(doubt != Doubt::None);
        let mut held = Held::new(batch, doubt);
        // The outcome is as unknown a moment later; the next period is soon enough.
        held.wait = u32::from(!self.unloading);
        self.upstream.held.push_back(held);
    }

    pub(super) fn has_room_for_relay(&self) -> bool {
        self.upstream.held.len() < RELAYED_MAX
    }

    /// Another's batch in doubt: it counts here, and goes on upstream apart, so that whoever has it already can tell.
    pub(super) fn relay(&mut self, id: BatchId, generation: u64, contains: Ids, mut flows: Sealed) {
        if generation < self.generation {
            self.events.before_clear += flows.len() as u64;
            flows.clear();
        }
        self.below.add(&flows);
        let batch =
            Outgoing { id, generation: self.generation, span_ns: 0, contains, flows: flows.normalized() };
        self.upstream.held.push_back(Held::new(batch, Doubt::Somewhere));
    }

    /// The next attempt with a batch that is held, if one is due.
    pub(super) fn held_transmit(&mut self) -> Option<(What, Vec<u8>, Option<u32>)> {
        let held = self.upstream.held.iter().find(|held| held.is_due())?;
        let (id, bound) = (held.batch.id, held.doubt.bound());
        if held.doubt != Doubt::None && !held.wanted {
            return Some((What::Question(id), Question { id, bound }.encode(), bound));
        }
        // Its dictionary is of the series in it alone, numbered in their order.
        let flows = &held.batch.flows;
        let numbers: BTreeMap<_, _> = flows.ids().zip(0_u32..).collect();
        let dictionary = flows.ids().filter_map(|id| self.catalog.key(id).cloned()).collect();
        let detached = Detached {
            id,
            doubt: held.doubt != Doubt::None,
            bound,
            generation: held.batch.generation,
            contains: held.batch.contains.clone(),
            dictionary,
            flows: Numbered::new(flows, |id| numbers.get(&id).copied()),
        };
        Some((What::Held(id), detached.encode(), bound))
    }

    /// The outcome of an attempt.
    pub(super) fn held_answered(
        &mut self,
        id: BatchId,
        to: Option<u32>,
        receipt: Result<Receipt, SendFailure>,
        question: bool,
    ) {
        let Some(place) = self.upstream.held.iter().position(|held| held.is_due() && held.batch.id == id)
        else {
            return;
        };
        let held = &mut self.upstream.held[place];
        held.wanted = false;
        match receipt.map(|receipt| receipt.status) {
            Ok(Status::Taken) => {
                self.upstream.held.remove(place);
            }
            Ok(Status::NeedFull) if question => held.wanted = true,
            Err(SendFailure::Overlap) => {
                if let Some(held) = self.upstream.held.remove(place) {
                    self.park(held.batch);
                }
            }
            // From now on this receiver may have it.
            Err(SendFailure::Unknown) if !question => {
                held.wait = RETRY_PERIODS;
                if let Doubt::None | Doubt::Somewhere = held.doubt {
                    held.doubt = Doubt::at(to.or(self.upstream.receiver));
                    self.events.doubted += 1;
                }
            }
            _ => held.wait = RETRY_PERIODS,
        }
    }

    /// Whether a batch in doubt has arrived: here, or at someone who has sent it on to here.
    pub(super) fn question(&mut self, question: Question) -> Status {
        let here = question.bound.is_none_or(|rank| rank == self.config.rank);
        match self.marks.of(question.id) {
            Mark::Merged => {
                self.events.repeats += 1;
                Status::Taken
            }
            Mark::New if here && self.has_room_for_relay() => Status::NeedFull,
            Mark::New | Mark::Forgotten => Status::NotTaken,
        }
    }
}
