//! One rank's node: its own series, its children's batches, its subtree's totals, and what it owes upstream.

mod audit;
mod children;
mod coverage;
mod dictionary;
mod doubt;
mod ending;
mod local;
mod pressure;
mod saved;
mod standings;
mod upstream;

use crate::amount::Amount;
use crate::flows::Flows;
use crate::idset::IdSet;
use crate::marks::{Ids, Marks};
use crate::schedule::{Now, Schedule, nanos};
use crate::series::{Catalog, SeriesId};
use crate::store::Store;
use crate::value::{Peak, States};
use crate::wire::DecodeError;
pub use audit::{Audit, Holding};
use children::Link;
use coverage::Coverage;
pub use coverage::Heard;
use ending::Ending;
pub use pressure::Busy;
use pressure::Pressure;
use standings::Standings;
use std::collections::BTreeMap;
use std::time::Duration;
use upstream::Upstream;
pub use upstream::{SendFailure, Transmit};

/// Granted periods after which a rank that sent nothing is missing, and its states are gone.
const EXPIRY_PERIODS: u64 = 3;
/// How much history is kept unless another length is set.
const HISTORY: Duration = Duration::from_secs(600);

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
    /// How many series the node keeps, its subtree's included: at most [`MAX_SERIES_MOST`](crate::MAX_SERIES_MOST).
    pub max_series: usize,
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
    /// It is from this rank or one above it, or contains what is: batches go towards rank 0 alone.
    #[error("bad batch: from rank {rank}, which is not below the receiver")]
    Above {
        /// The rank.
        rank: u32,
    },
    /// Some of what it contains has arrived by another road, some has not.
    #[error("batch {seq} of rank {rank} holds what arrived by another road as well")]
    Overlap {
        /// Whose batch it is.
        rank: u32,
        /// Which.
        seq: u64,
    },
    /// It comes after a clear that has not been: the number of one is that of an event.
    #[error("bad batch: of clear {generation}, when the newest event of the instance is {newest}")]
    Generation {
        /// The number of the clear.
        generation: u64,
        /// The number of the newest event that is known here.
        newest: u64,
    },
    /// More waits here to go upstream than can be kept account of. The sender keeps the batch, and sends it again.
    #[error("rank {rank} waits to hand over {waiting} batches of others, and takes no more until it has")]
    Full {
        /// This rank.
        rank: u32,
        /// Runs of identities that wait.
        waiting: usize,
    },
    /// More series on one link than any sender has.
    #[error("bad batch: more than {max} series from rank {rank}")]
    Dictionary {
        /// The sender.
        rank: u32,
        /// The bound.
        max: usize,
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
    /// Series, and values of series, that did not fit in the catalog.
    pub overflow: u64,
    /// Flows dropped for being from before a clear.
    pub before_clear: u64,
    /// Own batches set aside for good, because the receiver has some of what they contain. It should not happen: see
    /// the crate's documentation.
    pub parked: u64,
    /// Bytes sent upstream.
    pub sent_bytes: u64,
    /// Own batches of which it was in doubt whether they had arrived.
    pub doubted: u64,
    /// Values of series in the batches merged.
    pub merged_values: u64,
    /// Gauges of children that did not fit in the memory set aside for them.
    pub states_overflow: u64,
    /// Series of jobs that have ended, see [`Node::set_ttl`].
    pub ended: u64,
}

/// Identities that wait to go upstream: some 20 MiB. Beyond it, who sends keeps what it has until there is room.
pub(crate) const CONTAINS_MAX: usize = 250_000;

/// See the crate's description.
#[derive(Debug)]
pub struct Node {
    config: NodeConfig,
    schedule: Schedule,
    pub(crate) catalog: Catalog,
    /// What this rank itself measured.
    pub(crate) own: Store,
    /// Its gauges.
    pub(crate) gauges: BTreeMap<SeriesId, Amount>,
    /// When they came about, where that is known: seconds since 1970.
    pub(crate) gauge_times: BTreeMap<SeriesId, u64>,
    /// What it gained since the last seal.
    unsealed: Flows,
    /// What came from below.
    pub(crate) below: Store,
    /// Whoever sends batches to this node, by rank.
    links: BTreeMap<u32, Link>,
    /// Ranks between this one and rank 0, as far as they are known, and rank 0.
    ancestors: IdSet,
    /// Gauges that the links hold.
    states_held: usize,
    marks: Marks,
    pub(crate) coverage: Coverage,
    open: Open,
    upstream: Upstream,
    ending: Ending,
    generation: u64,
    /// The newest event of the instance, if one is known.
    newest_event: Option<u64>,
    last_seal_ns: u64,
    seal_at_ns: u64,
    unloading: bool,
    events: Events,
    history: Duration,
    standings: Standings,
    pressure: Pressure,
}

/// What is to go upstream with the next batch.
#[derive(Debug, Default)]
struct Open {
    flows: Flows,
    /// The batches that are merged into it.
    contains: Ids,
    /// How long the own flows in it took.
    span_ns: u64,
}

impl Node {
    /// A node that has seen nothing yet.
    pub fn new(config: NodeConfig, now: Now) -> Self {
        let schedule = Schedule { rank: config.rank, level: config.level, max_level: config.max_level };
        let period_ns = nanos(config.period);
        let last = config.size.checked_sub(1).filter(|_| config.rank == 0);
        let expected = last.map_or_else(IdSet::new, |last| IdSet::range(0, last));
        let mut node = Node {
            schedule,
            catalog: Catalog::new(config.max_series),
            own: Store::default(),
            gauges: BTreeMap::new(),
            gauge_times: BTreeMap::new(),
            unsealed: Flows::default(),
            below: Store::default(),
            links: BTreeMap::new(),
            ancestors: IdSet::range(0, 0),
            states_held: 0,
            marks: Marks::default(),
            coverage: Coverage::new(expected),
            open: Open::default(),
            upstream: Upstream::new(),
            ending: Ending::default(),
            generation: 0,
            newest_event: None,
            last_seal_ns: now.mono_ns,
            seal_at_ns: schedule.first_ns(now, period_ns),
            unloading: false,
            events: Events::default(),
            history: HISTORY,
            standings: Standings::new(config.rank == 0),
            pressure: Pressure::default(),
            config,
        };
        node.tell_time(now);
        node.coverage.own(node.config.rank, now, node.expiry_ns(now), false);
        node.set_history(HISTORY);
        node
    }

    /// What the node was made of, with later changes.
    pub fn config(&self) -> &NodeConfig {
        &self.config
    }

    /// Says which ranks are between this one and rank 0, as far as they are known: they have no business below.
    pub fn set_ancestors(&mut self, ancestors: IdSet) {
        self.ancestors = ancestors;
        self.ancestors.insert(0);
    }

    /// Takes a new period and bound on series.
    pub fn reconfigure(&mut self, period: Duration, max_series: usize, now: Now) {
        self.pressure.hold_expiry(nanos(self.config.period), now);
        if period != self.config.period {
            self.config.period = period;
            self.upstream.granted_ns = 0;
            self.seal_at_ns = self.schedule.first_ns(now, self.period_ns());
            self.set_history(self.history);
        }
        self.config.max_series = max_series;
        self.catalog.set_max(max_series);
    }

    /// How much history to keep: what is kept begins anew. The root keeps that of all series, others that of their
    /// own.
    pub fn set_history(&mut self, history: Duration) {
        self.history = history;
        self.standings.leave_off();
        let (history_ns, period_ns) = (nanos(history), self.period_ns());
        self.own.set_history(history_ns, period_ns);
        self.below.set_history(if self.is_root() { history_ns } else { 0 }, period_ns);
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
        self.upstream.granted_ns.max(nanos(self.config.period)).max(1)
    }

    /// How often children are taken to send: their own period is not known here, and is as a rule this node's.
    pub fn granted_period_ns(&self) -> u64 {
        self.pressure.granted_ns(nanos(self.config.period))
    }

    /// Back-pressure: what the thread of this rank that is the busier with children was busy with since the last time. If
    /// they cost too much, they are granted a longer period with their next receipts.
    pub fn note_busy(&mut self, mut busy: Busy, now: Now) {
        if self.links.is_empty() {
            // What passes for theirs is of whoever else asks and pushes.
            busy.children_ns = 0;
        }
        self.pressure.note(busy, nanos(self.config.period), now);
    }

    /// How long a rank may be silent: counted in periods as they are granted.
    pub(crate) fn expiry_ns(&self, now: Now) -> u64 {
        self.pressure.expiry_ns(nanos(self.config.period), now)
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
        self.coverage.own(self.config.rank, now, self.expiry_ns(now), self.unloading);
        self.roll(span_ns, now);
        self.end_idle(now, span_ns);
        self.tell_time(now);
        self.open_own(span_ns);
        self.upstream.period_ended();
        self.close_open();
    }

    /// Own gains become part of what is to go upstream. At the root they have arrived.
    fn open_own(&mut self, span_ns: u64) {
        let mut own = self.unsealed.take();
        if self.is_root() {
            return;
        }
        let rank = self.config.rank;
        own.counters.iter_mut().for_each(|(_, gain)| gain.peak = Peak::of(gain.amount, span_ns, rank));
        self.open.flows.add(&own);
        self.open.span_ns = self.open.span_ns.saturating_add(span_ns);
    }

    /// The states of the subtree as they are now.
    pub(crate) fn states_now(&self) -> BTreeMap<SeriesId, States> {
        let mut states: BTreeMap<SeriesId, States> = BTreeMap::new();
        let own = self.gauges.keys().filter_map(|&id| Some((id, self.own_state(id)?)));
        let below = self.links.values().filter(|link| !link.suspended);
        let below = below.flat_map(|link| link.states.iter().map(|(&id, &states)| (id, states)));
        for (id, more) in own.chain(below) {
            states.entry(id).and_modify(|present| *present = present.merged(more)).or_insert(more);
        }
        states
    }

    /// One gauge of the subtree, as [`Node::states_now`] has all.
    pub(crate) fn state(&self, id: SeriesId) -> Option<States> {
        let below = self.links.values().filter(|link| !link.suspended);
        let below = below.filter_map(|link| link.states.get(&id).copied());
        self.own_state(id).into_iter().chain(below).reduce(States::merged)
    }

    pub(crate) fn own_state(&self, id: SeriesId) -> Option<States> {
        let time_s = self.gauge_times.get(&id).copied().unwrap_or(0);
        self.gauges.get(&id).map(|&value| States::of(value, self.config.rank).since(time_s))
    }

    /// The ranks that send batches to this one: each speaks for a part of the subtree.
    pub fn senders(&self) -> IdSet {
        self.links.keys().copied().collect()
    }

    /// The ranks of the subtree that are heard of.
    pub fn covered(&self, now: Now) -> IdSet {
        self.coverage.status(now).covered
    }

    /// A clear: totals restart from zero, once for each generation. Older batches' flows will be dropped.
    pub fn handle_clear(&mut self, generation: u64) {
        self.adopt(generation);
    }

    /// Says that the instance's event of that number has been: batches of later clears are refused from now on. Whoever sent
    /// them would have all that is cleared from then on counted as old.
    pub fn note_event(&mut self, number: u64) {
        self.newest_event = self.newest_event.max(Some(number));
    }

    fn check_generation(&self, generation: u64) -> Result<(), MergeRefused> {
        match self.newest_event {
            Some(newest) if generation > newest.max(self.generation) => {
                Err(MergeRefused::Generation { generation, newest })
            }
            _ => Ok(()),
        }
    }

    fn adopt(&mut self, generation: u64) {
        if generation > self.generation {
            self.generation = generation;
            self.catalog.begin_anew();
            self.own.clear();
            self.below.clear();
            self.standings.leave_off();
            self.unsealed.clear();
            self.open.flows.clear();
            self.upstream.clear(generation);
        }
    }
}

#[cfg(test)]
mod tests;
