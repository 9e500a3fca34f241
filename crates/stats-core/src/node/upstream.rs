//! The sending side: one message in flight, and what is in this node's custody until a receipt comes.

use crate::batch::{Group, Numbered, Receipt, Regular, StateChange, Status};
use crate::flows::{Flows, Sealed};
use crate::marks::{BatchId, Ids, Latest};
use crate::node::Node;
use crate::node::dictionary::Dictionary;
use crate::node::doubt::{Doubt, Held};
use crate::node::pressure::SLOWEST;
use crate::schedule::{Now, nanos};
use crate::series::{Key, SeriesId};
use crate::value::States;
use std::collections::{BTreeMap, VecDeque};

const MS: u64 = 1_000_000;
/// Batches set aside one by one.
const PARKED_MAX: usize = 1000;

/// A message to be sent upstream as one request; the outcome goes to [`Node::handle_response`] with the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// Names the transmission.
    pub token: u64,
    /// The payload of the request.
    pub payload: Vec<u8>,
    /// Send it to this rank first, and only if that has no module to the ancestors above it. `None`: to the nearest
    /// ancestor that has the module.
    pub to: Option<u32>,
}

/// Why a batch is not known to have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendFailure {
    /// Nobody upstream has the service, the way is broken, or the receiver refused: it was not merged.
    Refused,
    /// The receiver has some of what it contains, by another road: sent as it is, it would be refused for ever.
    Overlap,
    /// No answer came: it may have been merged. Only this receiver can say so, or merge it: see [`Node::sent_to`].
    Unknown,
}

/// A sealed batch. Dictionary and states are added when it is encoded, according to what the receiver lacks.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outgoing {
    pub(super) id: BatchId,
    pub(super) generation: u64,
    pub(super) span_ns: u64,
    pub(super) contains: Ids,
    pub(super) flows: Sealed,
}

#[derive(Debug, PartialEq)]
pub(super) enum What {
    /// The regular message; whether it builds on nothing, and what the receiver holds once it has taken it.
    Regular { full: bool, announced: Vec<SeriesId>, states: BTreeMap<SeriesId, States> },
    /// A batch that is held.
    Held(BatchId),
    /// Whether a batch that is held has arrived.
    Question(BatchId),
}

#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) token: u64,
    /// Who it was sent to, if the caller said.
    pub(super) to: Option<u32>,
    pub(super) what: What,
}

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Upstream {
    seq: u64,
    /// A message is to go out this period.
    due: bool,
    /// What it carries; `None`: nothing was gained.
    pub(super) sealed: Option<Outgoing>,
    /// Batches that do not go with the regular messages.
    pub(super) held: VecDeque<Held>,
    /// See [`SendFailure::Overlap`].
    pub(super) parked: Vec<Outgoing>,
    pub(super) in_flight: Option<InFlight>,
    tokens: u64,
    /// False from a failure to the next tick.
    pub(super) ready: bool,
    /// The last message that was taken; zero: the next one builds on nothing.
    after: u64,
    dictionary: Dictionary,
    /// What the receiver holds of our states.
    told: BTreeMap<SeriesId, States>,
    /// The last batch of each rank that it has had from us.
    latest: Latest,
    /// Who answered last.
    pub(super) receiver: Option<u32>,
    /// How often it can afford a batch; zero: as often as we like.
    pub(super) granted_ns: u64,
}

impl Upstream {
    pub(super) fn new() -> Self {
        Upstream { ready: true, ..Upstream::default() }
    }

    pub(super) fn period_ended(&mut self) {
        self.held.iter_mut().for_each(Held::period_ended);
    }

    /// All batches that have not been acknowledged.
    pub(super) fn custody(&self) -> impl Iterator<Item = &Outgoing> {
        self.sealed.iter().chain(self.held.iter().map(|held| &held.batch)).chain(&self.parked)
    }

    /// Whether the receiver holds states of ours of that series.
    pub(super) fn told(&self, id: SeriesId) -> bool {
        self.told.contains_key(&id)
    }

    /// A series has ended.
    pub(super) fn withdraw(&mut self, id: SeriesId) {
        self.dictionary.withdraw(id);
    }

    /// Sets a batch aside for good. Of very many, the sum of the rest is kept with the last.
    fn park(&mut self, batch: Outgoing) {
        let full = self.parked.len() >= PARKED_MAX;
        match self.parked.last_mut().filter(|_| full) {
            Some(last) => {
                let mut sum = Flows::default();
                sum.add(&last.flows);
                sum.add(&batch.flows);
                last.flows = sum.take();
            }
            None => self.parked.push(batch),
        }
    }

    pub(super) fn clear(&mut self, generation: u64) {
        let held = self.held.iter_mut().map(|held| &mut held.batch);
        for batch in held.chain(&mut self.sealed).chain(&mut self.parked) {
            batch.flows.clear();
            batch.generation = generation;
        }
    }
}

impl Node {
    /// Seals what is open, if the last batch is out of the way: else it stays open, and batches become fewer and
    /// larger while the way is blocked.
    pub(super) fn close_open(&mut self) {
        if self.is_root() {
            return;
        }
        self.upstream.due = true;
        if self.upstream.sealed.is_some() || !self.has_open() {
            return;
        }
        let id = BatchId { rank: self.config.rank, epoch: self.config.epoch, seq: self.upstream.seq };
        self.upstream.seq += 1;
        self.upstream.sealed = Some(Outgoing {
            id,
            generation: self.generation,
            span_ns: std::mem::take(&mut self.open.span_ns),
            contains: std::mem::take(&mut self.open.contains),
            flows: self.open.flows.take(),
        });
    }

    pub(super) fn park(&mut self, batch: Outgoing) {
        self.events.parked += 1;
        self.upstream.park(batch);
    }

    fn has_open(&self) -> bool {
        !self.open.flows.is_empty() || !self.open.contains.is_empty()
    }

    /// A message to send, if it is time. `now` is what the ages in it are as of.
    pub fn poll_transmit(&mut self, now: Now) -> Option<Transmit> {
        if self.is_root() || self.upstream.in_flight.is_some() {
            return None;
        }
        let (what, payload, to) = match self.held_transmit() {
            Some(held) => held,
            None if self.upstream.ready && self.upstream.due => self.regular(now),
            None => return None,
        };
        self.upstream.tokens += 1;
        let token = self.upstream.tokens;
        self.upstream.in_flight = Some(InFlight { token, to: None, what });
        self.events.sent_bytes += payload.len() as u64;
        Some(Transmit { token, payload, to })
    }

    fn regular(&mut self, now: Now) -> (What, Vec<u8>, Option<u32>) {
        let full = self.upstream.after == 0 || self.upstream.dictionary.is_spent(&self.catalog);
        if full {
            self.upstream.after = 0;
            self.upstream.dictionary = Dictionary::default();
        }
        let first = self.upstream.dictionary.len();
        let announced = self.upstream.dictionary.extend(&self.catalog);
        let states = if self.unloading { BTreeMap::new() } else { self.states_now() };
        let (told, nobody) = ((!full).then_some(&self.upstream.told), Latest::default());
        let latest = if full { &nobody } else { &self.upstream.latest };
        let sealed = self.upstream.sealed.as_ref();
        let (next, contains) = sealed.map(|batch| batch.contains.without_next(latest)).unwrap_or_default();
        let nothing = Sealed::default();
        let number = |id| self.upstream.dictionary.number(id);
        let coverage: Vec<Group> =
            self.coverage.groups(now, self.period_ns(), |via| self.links.contains_key(&via));
        let payload = Regular {
            rank: self.config.rank,
            epoch: self.config.epoch,
            link_seq: self.upstream.tokens + 1,
            after: self.upstream.after,
            closing: self.unloading,
            generation: sealed.map_or(self.generation, |batch| batch.generation),
            seq: sealed.map(|batch| batch.id.seq),
            span_ns: sealed.map_or(0, |batch| batch.span_ns),
            coverage,
            expiry_ms: self.expiry_ns(now).max(self.coverage.longest_expiry_ns()) / MS,
            next,
            contains,
            first,
            dictionary: announced
                .iter()
                .filter_map(|&id| self.catalog.key(id).cloned())
                .collect::<Vec<Key>>(),
            flows: Numbered::new(sealed.map_or(&nothing, |batch| &batch.flows), number),
            states: self.changes(told, &states),
            withdrawn: self.upstream.dictionary.withdrawn(),
        }
        .encode();
        (What::Regular { full, announced, states }, payload, None)
    }

    /// What the receiver must be told of `states` when it has `told`; `None`: everything.
    fn changes(
        &self,
        told: Option<&BTreeMap<SeriesId, States>>,
        states: &BTreeMap<SeriesId, States>,
    ) -> Vec<(u32, StateChange)> {
        let gone = told.into_iter().flat_map(BTreeMap::keys).filter(|id| !states.contains_key(id));
        let changed = states.iter().filter(|&(id, now)| told.and_then(|told| told.get(id)) != Some(now));
        let all = gone.map(|&id| (id, None)).chain(changed.map(|(&id, &now)| (id, Some(now))));
        let mut numbered: Vec<_> =
            all.filter_map(|(id, change)| Some((self.upstream.dictionary.number(id)?, change))).collect();
        numbered.sort_unstable_by_key(|&(number, _)| number);
        numbered
    }

    /// Says to which rank a transmission went. If the outcome stays unknown, the batch is bound to that rank: only it
    /// may merge the batch, and whoever knows may say that it has arrived. Call it for each rank that is tried.
    pub fn sent_to(&mut self, token: u64, rank: u32) {
        if let Some(flight) = self.upstream.in_flight.as_mut().filter(|flight| flight.token == token) {
            flight.to = Some(rank);
        }
    }

    /// The outcome of a transmission. An answer for another token than the one in flight is ignored.
    pub fn handle_response(&mut self, token: u64, outcome: Result<&[u8], SendFailure>) {
        let Some(flight) = self.upstream.in_flight.take_if(|flight| flight.token == token) else { return };
        // A receiver whose receipt cannot be read has taken the batch, or not.
        let receipt = outcome.and_then(|bytes| Receipt::decode(bytes).map_err(|_| SendFailure::Unknown));
        if let Ok(receipt) = receipt {
            self.upstream.receiver = Some(receipt.rank);
            self.adopt(receipt.generation);
        }
        match flight.what {
            What::Regular { full, announced, states } => match receipt {
                Ok(receipt) => self.regular_answered(receipt, token, full, &announced, states),
                Err(failure) => {
                    self.upstream.dictionary.shorten(&announced);
                    self.regular_failed(failure, flight.to);
                }
            },
            What::Held(id) => self.held_answered(id, flight.to, receipt, false),
            What::Question(id) => self.held_answered(id, flight.to, receipt, true),
        }
    }

    fn regular_answered(
        &mut self,
        receipt: Receipt,
        token: u64,
        full: bool,
        announced: &[SeriesId],
        states: BTreeMap<SeriesId, States>,
    ) {
        let upstream = &mut self.upstream;
        if receipt.status != Status::Taken {
            // Asked for everything although everything was there: wait for the next period.
            upstream.ready = !full;
            upstream.after = 0;
            upstream.dictionary.shorten(announced);
            return;
        }
        if full {
            upstream.latest = Latest::default();
        }
        if let Some(batch) = upstream.sealed.take() {
            upstream.latest.follow(&batch.contains);
        }
        upstream.after = token;
        upstream.dictionary.learnt();
        upstream.told = states;
        upstream.due = false;
        upstream.granted_ns = receipt.period_ns.min(nanos(SLOWEST));
        // While unloading, what arrived during the flush is flushed as well.
        if self.unloading && self.has_open() {
            self.close_open();
        }
    }

    fn regular_failed(&mut self, failure: SendFailure, to: Option<u32>) {
        self.upstream.ready = false;
        let Some(batch) = self.upstream.sealed.take() else { return };
        match failure {
            SendFailure::Refused => self.upstream.sealed = Some(batch),
            SendFailure::Overlap => self.park(batch),
            SendFailure::Unknown => {
                let bound = to.or(self.upstream.receiver);
                self.hold(batch, Doubt::at(bound));
            }
        }
    }

    /// The module unloads: what is left goes upstream at once. Record the last measurements before.
    pub fn begin_unload(&mut self, now: Now) {
        if self.unloading {
            return;
        }
        self.unloading = true;
        self.upstream.ready = true;
        self.seal(now);
        self.upstream.held.iter_mut().for_each(Held::hurry);
    }

    /// Whether nothing is left to be sent, or nobody takes it: the rest is for [`Node::save`].
    pub fn is_drained(&self) -> bool {
        let upstream = &self.upstream;
        let waiting = upstream.ready && upstream.due || upstream.held.iter().any(Held::is_due);
        self.is_root() || upstream.in_flight.is_none() && !waiting
    }
}
