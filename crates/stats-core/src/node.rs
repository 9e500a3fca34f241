//! One rank's node: its own series, its children's batches, its subtree's totals, and what it owes upstream.

mod children;
mod coverage;
mod custody;
mod local;
mod totals;

use crate::batch::{Batch, BatchId, Delta, Receipt, StateChange};
use crate::idset::IdSet;
use crate::marks::Marks;
use crate::schedule::{Now, Schedule};
use crate::series::{Catalog, SeriesId};
use crate::value::States;
use crate::wire::DecodeError;
use children::Link;
use coverage::Coverage;
use local::Local;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use totals::Totals;

/// Periods after which a rank that sent nothing is missing, and its states are gone.
const EXPIRY_PERIODS: u64 = 3;
/// A receiver cannot slow its children beyond this.
const PERIOD_MAX: Duration = Duration::from_secs(3600);

/// What a node is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConfig {
    /// This broker's rank; rank 0 is the root.
    pub rank: u32,
    /// The number of brokers: a batch that speaks of others is refused.
    pub size: u32,
    /// The distance from the root.
    pub level: u32,
    /// The greatest such distance in the instance.
    pub max_level: u32,
    /// Random, anew for each load of the module.
    pub epoch: u64,
    /// How often a batch goes upstream.
    pub period: Duration,
    /// How many series the node keeps, its subtree's included.
    pub max_series: usize,
}

/// A batch to be sent upstream as one request; the outcome goes to [`Node::handle_response`] with the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// Names the transmission.
    pub token: u64,
    /// The payload of the request.
    pub payload: Vec<u8>,
}

/// Why a batch is not known to have arrived. Its identity stays, so that sending it again can do no harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendFailure {
    /// Nobody upstream has the service, the way is broken, or the receiver refused: it was not merged.
    Refused,
    /// The receiver has some of what it contains, by another road: sent as it is, it would be refused for ever.
    Overlap,
    /// No answer came: it may have been merged.
    Unknown,
}

/// Why a batch was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeRefused {
    /// Its bytes are no batch, or one of another version.
    #[error("bad batch: {0}")]
    Decode(#[from] DecodeError),
    /// It speaks of ranks that the instance does not have.
    #[error("bad batch: rank {rank} of an instance of {size}")]
    Rank {
        /// The rank.
        rank: u32,
        /// The size.
        size: u32,
    },
    /// Some of what it contains has arrived by another road, some has not.
    #[error("batch {seq} of rank {rank} holds what arrived by another road as well")]
    Overlap {
        /// Whose batch it is.
        rank: u32,
        /// Which.
        seq: u64,
    },
}

/// How often things happened that should be rare; counted since the load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Events {
    /// Batches merged.
    pub merged: u64,
    /// Batches that were repeats.
    pub repeats: u64,
    /// Batches refused.
    pub refused: u64,
    /// Series that did not fit in the catalog.
    pub overflow: u64,
    /// Flows dropped for being from before a clear.
    pub before_clear: u64,
    /// Own batches set aside for good.
    pub parked: u64,
    /// Bytes sent upstream.
    pub sent_bytes: u64,
}

/// See the crate's description.
#[derive(Debug)]
pub struct Node {
    config: NodeConfig,
    schedule: Schedule,
    pub(crate) catalog: Catalog,
    /// What this rank measured since the last seal.
    local: Local,
    /// What the whole subtree, this rank included, gained since the first load.
    pub(crate) totals: Totals,
    /// Children by rank: whoever sends batches to this node.
    links: BTreeMap<u32, Link>,
    marks: Marks,
    pub(crate) coverage: Coverage,
    open: Open,
    upstream: Upstream,
    generation: u64,
    last_seal_ns: u64,
    seal_at_ns: u64,
    unloading: bool,
    events: Events,
}

/// What children sent since the last seal, on its way upstream.
#[derive(Debug, Default)]
struct Open {
    flows: BTreeMap<SeriesId, Delta>,
    contains: Vec<BatchId>,
    covered: IdSet,
    closed: IdSet,
    /// How long the own flows in it took.
    span_ns: u64,
}

/// The sending side. Batches in here are in this node's custody.
#[derive(Debug, Default)]
struct Upstream {
    seq: u64,
    /// The oldest first; the first is what is in flight, if something is.
    outbox: VecDeque<Outgoing>,
    /// See [`SendFailure::Overlap`].
    parked: Vec<Outgoing>,
    in_flight: Option<u64>,
    tokens: u64,
    /// False from a failure to the next tick.
    ready: bool,
    /// Keys of the catalog that the receiver knows.
    announced: usize,
    /// Send everything: the receiver is new, or has said so.
    full: bool,
    /// Whether the batch in flight was sent in full.
    in_flight_full: bool,
    /// Keys announced, and states told, by the batch in flight.
    in_flight_announced: usize,
    in_flight_states: BTreeMap<SeriesId, States>,
    /// What the receiver holds of our states.
    told: BTreeMap<SeriesId, States>,
    period_ns: u64,
}

/// A sealed batch. Dictionary and states are added when it is encoded, according to what the receiver lacks.
#[derive(Debug, Clone, PartialEq)]
struct Outgoing {
    id: BatchId,
    generation: u64,
    span_ns: u64,
    closing: bool,
    covered: IdSet,
    closed: IdSet,
    contains: Vec<BatchId>,
    flows: BTreeMap<SeriesId, Delta>,
}

impl Node {
    /// A node that has seen nothing yet.
    pub fn new(config: NodeConfig, now: Now) -> Self {
        let schedule = Schedule { rank: config.rank, level: config.level, max_level: config.max_level };
        let period_ns = nanos(config.period);
        let coverage = Coverage::new(config.rank, config.size, now);
        Node {
            schedule,
            catalog: Catalog::new(config.max_series),
            local: Local::default(),
            totals: Totals::default(),
            links: BTreeMap::new(),
            marks: Marks::default(),
            coverage,
            open: Open::default(),
            upstream: Upstream { full: true, ready: true, period_ns, ..Upstream::default() },
            generation: 0,
            last_seal_ns: now.mono_ns,
            seal_at_ns: schedule.first_ns(now, period_ns),
            unloading: false,
            events: Events::default(),
            config,
        }
    }

    /// What the node was made of, with later changes.
    pub fn config(&self) -> &NodeConfig {
        &self.config
    }

    /// Takes a new period and bound on series.
    pub fn reconfigure(&mut self, period: Duration, max_series: usize, now: Now) {
        self.config.period = period;
        self.config.max_series = max_series;
        self.catalog.set_max(max_series);
        self.upstream.period_ns = nanos(period);
        self.seal_at_ns = self.schedule.first_ns(now, self.period_ns());
    }

    /// Whether this node answers for the whole instance.
    pub fn is_root(&self) -> bool {
        self.config.rank == 0
    }

    /// What happened.
    pub fn events(&self) -> Events {
        self.events
    }

    /// The clear that the totals come after.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The period in force: the configured one, or what the receiver upstream can afford if that is longer.
    pub fn period_ns(&self) -> u64 {
        self.upstream.period_ns.max(nanos(self.config.period)).max(1)
    }

    /// When [`Node::tick`] has something to do, in monotonic nanoseconds. What is measured is best recorded right
    /// before.
    pub fn next_deadline_ns(&self) -> u64 {
        self.seal_at_ns
    }

    /// Lets time pass: at the end of a period, seals what is open and expires who is silent.
    pub fn tick(&mut self, now: Now) {
        self.upstream.ready = true;
        if now.mono_ns >= self.seal_at_ns {
            self.seal(now);
            self.seal_at_ns = self.schedule.next_ns(now, self.period_ns());
        }
    }

    /// The end of a period.
    fn seal(&mut self, now: Now) {
        let span_ns = now.mono_ns.saturating_sub(self.last_seal_ns);
        self.last_seal_ns = now.mono_ns;
        self.expire(now);
        self.coverage.heard(&IdSet::range(self.config.rank, self.config.rank), now);
        let own = self.local.take_flows(span_ns, self.config.rank);
        for (id, delta) in &own {
            self.totals.peak(*id, delta);
        }
        self.totals.roll(span_ns);
        if self.is_root() {
            self.open = Open::default();
            return;
        }
        for (id, delta) in own {
            merge_into(&mut self.open.flows, id, delta);
        }
        self.open.covered.insert(self.config.rank);
        self.open.span_ns += span_ns;
        // With a batch still in custody what is open stays open: fewer, larger batches when the way is free again.
        if self.upstream.outbox.is_empty() {
            self.close_batch(false);
        }
    }

    fn close_batch(&mut self, closing: bool) {
        let open = std::mem::take(&mut self.open);
        let id = BatchId { rank: self.config.rank, epoch: self.config.epoch, seq: self.upstream.seq };
        self.upstream.seq += 1;
        self.upstream.outbox.push_back(Outgoing {
            id,
            generation: self.generation,
            span_ns: open.span_ns,
            closing,
            covered: open.covered,
            closed: open.closed,
            contains: open.contains,
            flows: open.flows,
        });
    }

    /// The states of the subtree as they are now.
    pub(crate) fn states_now(&self) -> BTreeMap<SeriesId, States> {
        let mut states: BTreeMap<SeriesId, States> = BTreeMap::new();
        let own = self.local.states(self.config.rank);
        let below =
            self.links.values().flat_map(|link| link.states.iter().map(|(&id, &states)| (id, states)));
        for (id, more) in own.chain(below) {
            states.entry(id).and_modify(|present| *present = present.merged(more)).or_insert(more);
        }
        states
    }

    /// A batch to send, if it is time.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        if self.is_root() || !self.upstream.ready || self.upstream.in_flight.is_some() {
            return None;
        }
        let batch = self.upstream.outbox.front()?.clone();
        let full = self.upstream.full || batch.id.epoch != self.config.epoch;
        let states = if batch.closing || batch.id.epoch != self.config.epoch {
            BTreeMap::new()
        } else {
            self.states_now()
        };
        let first = if full { 0 } else { self.upstream.announced };
        let dictionary = self.catalog.iter().skip(first).map(|(_, key)| key.clone()).collect();
        let payload = Batch {
            id: batch.id,
            full,
            closing: batch.closing,
            generation: batch.generation,
            span_ns: batch.span_ns,
            covered: batch.covered,
            closed: batch.closed,
            contains: batch.contains,
            dictionary_first: first as u32,
            dictionary,
            flows: batch.flows.into_iter().map(|(id, delta)| (id.0, delta)).collect(),
            states: changes(if full { None } else { Some(&self.upstream.told) }, &states),
        }
        .encode();
        self.upstream.tokens += 1;
        let token = self.upstream.tokens;
        self.upstream.in_flight = Some(token);
        self.upstream.in_flight_full = full;
        self.upstream.in_flight_announced = self.catalog.len();
        self.upstream.in_flight_states = states;
        self.events.sent_bytes += payload.len() as u64;
        Some(Transmit { token, payload })
    }

    /// The outcome of a transmission. An answer for another token than the one in flight is ignored.
    pub fn handle_response(&mut self, token: u64, outcome: Result<&[u8], SendFailure>) {
        if self.upstream.in_flight != Some(token) {
            return;
        }
        self.upstream.in_flight = None;
        let receipt = outcome.and_then(|bytes| Receipt::decode(bytes).map_err(|_| SendFailure::Refused));
        match receipt {
            Ok(receipt) if receipt.need_full => {
                // Asked for again although everything was there: wait for the next period.
                self.upstream.ready = !self.upstream.in_flight_full;
                self.upstream.full = true;
                self.adopt(receipt.generation);
            }
            Ok(receipt) => {
                let sent = self.upstream.outbox.pop_front();
                self.upstream.full = sent.is_some_and(|batch| batch.id.epoch != self.config.epoch);
                self.upstream.announced = self.upstream.in_flight_announced;
                self.upstream.told = std::mem::take(&mut self.upstream.in_flight_states);
                self.upstream.period_ns = receipt.period_ns.min(nanos(PERIOD_MAX));
                self.adopt(receipt.generation);
                self.close_what_came_meanwhile();
            }
            Err(SendFailure::Overlap) => {
                self.upstream.parked.extend(self.upstream.outbox.pop_front());
                self.events.parked += 1;
                self.upstream.full = true;
            }
            Err(SendFailure::Refused | SendFailure::Unknown) => {
                self.upstream.ready = false;
                self.upstream.full = true;
            }
        }
    }

    /// While unloading, what arrived during the flush is flushed as well.
    fn close_what_came_meanwhile(&mut self) {
        if self.unloading && self.upstream.outbox.is_empty() && self.has_open() {
            self.close_batch(true);
        }
    }

    fn has_open(&self) -> bool {
        !self.open.flows.is_empty() || !self.open.contains.is_empty()
    }

    /// The module unloads: what is left goes upstream at once. Record the last measurements before.
    pub fn begin_unload(&mut self, now: Now) {
        if self.unloading {
            return;
        }
        self.unloading = true;
        self.upstream.ready = true;
        let span_ns = now.mono_ns.saturating_sub(self.last_seal_ns);
        for (id, delta) in self.local.take_flows(span_ns, self.config.rank) {
            self.totals.peak(id, &delta);
            merge_into(&mut self.open.flows, id, delta);
        }
        if !self.is_root() {
            self.open.closed.insert(self.config.rank);
            self.open.span_ns += span_ns;
            self.close_batch(true);
        }
    }

    /// Whether nothing is left to be sent, or nobody takes it: the rest is for [`Node::save`].
    pub fn is_drained(&self) -> bool {
        let upstream = &self.upstream;
        upstream.in_flight.is_none() && (upstream.outbox.is_empty() || !upstream.ready)
    }

    /// A clear: totals restart from zero, once for each generation. Older batches' flows will be dropped.
    pub fn handle_clear(&mut self, generation: u64) {
        self.adopt(generation);
    }

    fn adopt(&mut self, generation: u64) {
        if generation <= self.generation {
            return;
        }
        self.generation = generation;
        self.totals.clear();
        self.local.clear_flows();
        self.open.flows.clear();
        for batch in self.upstream.outbox.iter_mut().chain(&mut self.upstream.parked) {
            batch.flows.clear();
            batch.generation = generation;
        }
    }
}

/// What the receiver must be told of `states` when it has `told`; `None`: everything.
fn changes(
    told: Option<&BTreeMap<SeriesId, States>>,
    states: &BTreeMap<SeriesId, States>,
) -> Vec<(u32, StateChange)> {
    let gone = told.into_iter().flat_map(BTreeMap::keys).filter(|id| !states.contains_key(id));
    let changed = states.iter().filter(|&(id, now)| told.and_then(|told| told.get(id)) != Some(now));
    gone.map(|id| (id.0, None)).chain(changed.map(|(id, &now)| (id.0, Some(now)))).collect()
}

fn merge_into(flows: &mut BTreeMap<SeriesId, Delta>, id: SeriesId, delta: Delta) {
    match flows.entry(id) {
        std::collections::btree_map::Entry::Vacant(slot) => {
            slot.insert(delta);
        }
        std::collections::btree_map::Entry::Occupied(mut slot) => slot.get_mut().merge(delta),
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
