//! One run: the ranks, the events that are to come, and virtual time.

use crate::deaths::PassedOn;
use crate::dice::{Dice, For};
use crate::faults::{FaultId, Kind, Planned, Rates, plan};
use crate::ledger::{Id, Ledger};
use crate::plant::Plant;
use crate::queue::{Event, Queue};
use crate::rank::Rank;
use crate::report::Report;
use crate::topology::Shape;
use stats_core::{IdSet, Now};
use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const MS: u64 = 1_000_000;
/// Where wall clocks begin, before chance shifts them within a period.
const WALL_NS: u64 = 1_700_000_000_000_000_000;
/// Modules are loaded within this at the start, as by rc1.
const LOADING_NS: u64 = 300 * MS;

/// What is simulated. A run is determined by this and a seed.
#[derive(Debug, Clone)]
pub struct Config {
    /// The tree.
    pub shape: Arc<Shape>,
    /// What goes wrong.
    pub faults: Rates,
    /// For how many periods it does.
    pub periods: u32,
    /// How often a rank sends a batch.
    pub period: Duration,
    /// Counters that each rank has beside those that are followed.
    pub series: u32,
    /// A bug to be found.
    pub plant: Option<Plant>,
}

impl Config {
    /// The usual of everything: all faults for six periods of two seconds.
    pub fn new(shape: Shape) -> Self {
        Config {
            shape: Arc::new(shape),
            faults: Rates::all(),
            periods: 6,
            period: Duration::from_secs(2),
            series: 2,
            plant: None,
        }
    }

    pub(crate) fn period_ns(&self) -> u64 {
        u64::try_from(self.period.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// An invariant that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// When, in virtual nanoseconds.
    pub at_ns: u64,
    /// On which rank it was seen.
    pub rank: u32,
    /// What is wrong.
    pub what: String,
}

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Faults,
    /// Nothing goes wrong any more, nothing is pushed: all that is in custody arrives.
    Draining,
    /// Waiting for the clocks to agree, then every rank pushes once.
    Settling,
    /// That is on its way since then.
    Marked(u64),
    Done,
}

pub(crate) struct World<'a> {
    pub(crate) config: &'a Config,
    pub(crate) seed: u64,
    queue: Queue,
    pub(crate) now_ns: u64,
    wall_ns: u64,
    pub(crate) ranks: Vec<Rank>,
    pub(crate) online: IdSet,
    pub(crate) plan: Vec<Planned>,
    /// The faults that may happen; `None`: all.
    only: Option<&'a BTreeSet<FaultId>>,
    pub(crate) phase: Phase,
    pub(crate) ends_ns: u64,
    pub(crate) deadline_ns: u64,
    pub(crate) clears: u64,
    pub(crate) slow_until_ns: u64,
    pub(crate) slow_share: f64,
    pub(crate) passed_on: Vec<PassedOn>,
    /// Batches in doubt that were lost with a module that was killed, as one below it cannot know that has their marks.
    pub(crate) lost_above: HashSet<Id>,
    pub(crate) longest_period_ns: u64,
    /// The longest that a message has taken.
    pub(crate) longest_way_ns: u64,
    pub(crate) ledger: Ledger,
    pub(crate) root_fell: bool,
    pub(crate) members: BTreeSet<(u64, u64)>,
    pub(crate) report: Report,
    trace: Option<Vec<Told>>,
}

/// An event, as it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// When, in virtual nanoseconds.
    pub at_ns: u64,
    /// On which rank.
    pub rank: u32,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:9.4} s  rank {}: {}", self.at_ns as f64 / 1e9, self.rank, self.what)
    }
}

/// What a run came to.
#[derive(Debug, Clone)]
pub struct Run {
    /// What happened, in numbers.
    pub report: Report,
    /// The first invariant that did not hold.
    pub violation: Option<Violation>,
    /// The faults that happened, in order.
    pub faults: Vec<FaultId>,
    /// What happened, if it was asked for.
    pub trace: Vec<Told>,
}

/// Runs an instance from load to convergence. With `only`, no other faults happen; with `trace`, every event is told.
pub fn run(config: &Config, seed: u64, only: Option<&BTreeSet<FaultId>>, trace: bool) -> Run {
    let mut world = World::new(config, seed, only, trace);
    let violation = world.run().err();
    world.report.finish(&world.ledger, world.now_ns);
    let faults = std::mem::take(&mut world.report.faults_in_order);
    Run { faults, violation, trace: world.trace.unwrap_or_default(), report: world.report }
}

impl<'a> World<'a> {
    fn new(config: &'a Config, seed: u64, only: Option<&'a BTreeSet<FaultId>>, trace: bool) -> Self {
        let (shape, period_ns) = (&config.shape, config.period_ns());
        let ends_ns = period_ns * (u64::from(config.periods) + 1);
        let ranks = shape.ranks();
        let mut world = World {
            config,
            seed,
            queue: Queue::default(),
            now_ns: 0,
            wall_ns: WALL_NS + Dice::new(seed, For::Run, 0, 0).below(period_ns),
            ranks: (0..ranks).map(|_| Rank::new()).collect(),
            online: IdSet::range(0, ranks - 1),
            plan: plan(seed, &config.faults, shape, period_ns, config.periods),
            only,
            phase: Phase::Faults,
            ends_ns,
            deadline_ns: u64::MAX,
            clears: 0,
            slow_until_ns: 0,
            slow_share: 0.0,
            passed_on: Vec::new(),
            lost_above: HashSet::new(),
            longest_period_ns: period_ns,
            longest_way_ns: 0,
            ledger: Ledger::new(ranks),
            root_fell: false,
            members: BTreeSet::new(),
            report: Report::new(seed, shape),
            trace: trace.then(Vec::new),
        };
        (0..ranks).for_each(|rank| {
            world.schedule(Dice::new(seed, For::Load, rank.into(), 0).below(LOADING_NS), Event::Load(rank));
        });
        for number in 0..world.plan.len() as u32 {
            let at_ns = world.plan[number as usize].at_ns;
            if world.allows(world.plan[number as usize].id()) {
                world.schedule(at_ns, Event::Fault(number));
            }
        }
        world.schedule(ends_ns, Event::FaultsEnd);
        world
    }

    pub(crate) fn schedule(&mut self, at_ns: u64, event: Event) {
        self.queue.push(at_ns.max(self.now_ns), event);
    }

    pub(crate) fn allows(&self, fault: FaultId) -> bool {
        self.only.is_none_or(|only| only.contains(&fault))
    }

    /// A fault happens.
    pub(crate) fn befalls(&mut self, kind: Kind, fault: FaultId) {
        self.report.fault(kind, fault);
    }

    pub(crate) fn tell(&mut self, rank: u32, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(Told { at_ns: self.now_ns, rank, what: what() });
        }
    }

    pub(crate) fn violation(&self, rank: u32, what: impl Into<String>) -> Violation {
        Violation { at_ns: self.now_ns, rank, what: what.into() }
    }

    pub(crate) fn rank(&mut self, rank: u32) -> &mut Rank {
        &mut self.ranks[rank as usize]
    }

    pub(crate) fn dice(&self, what: For, one: u32, two: u32) -> Dice {
        Dice::new(self.seed, what, one.into(), two.into())
    }

    /// The time as the module of a rank sees it.
    pub(crate) fn time_of(&self, rank: u32) -> Now {
        let rank = &self.ranks[rank as usize];
        let wall_ns = (self.wall_ns + self.now_ns).saturating_add_signed(rank.wall_step_ns);
        Now { mono_ns: self.now_ns - rank.origin_ns, wall_ns }
    }

    fn run(&mut self) -> Result<(), Violation> {
        while self.phase != Phase::Done {
            let Some((at_ns, event)) = self.queue.pop() else {
                return Err(self.violation(0, "nothing happens any more"));
            };
            self.now_ns = at_ns;
            self.report.event(at_ns, &event);
            self.handle(event)?;
            if std::mem::take(&mut self.root_fell) {
                return Err(self.violation(0, "the root's totals fell without a clear"));
            }
            self.ledger.check().map_err(|what| self.violation(0, what))?;
            if self.now_ns > self.deadline_ns {
                return Err(self.overdue());
            }
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Result<(), Violation> {
        let loaded = |world: &Self, rank: u32, load: u32| {
            let rank = &world.ranks[rank as usize];
            rank.load == load && rank.module.is_some()
        };
        match event {
            Event::Fault(number) => self.fault(number),
            Event::Load(rank) => self.load(rank),
            Event::Unload(rank) if self.is_needed(rank) => {
                self.rank(rank).is_deaf = false;
                Ok(())
            }
            Event::Unload(rank) => self.begin_unload(rank),
            Event::Unloaded { rank, load } if loaded(self, rank, load) => self.end_unload(rank),
            Event::Restart(rank) => self.restart(rank),
            Event::Crash(number) => self.crash(number),
            Event::Tick { rank, load } if loaded(self, rank, load) => self.tick(rank),
            Event::Push { rank, load } if loaded(self, rank, load) => self.push(rank),
            Event::Clear { rank, generation } => self.clear(rank, generation),
            Event::Arrive(letter) => self.arrive(*letter),
            Event::Outcome { rank, load, token, attempt, outcome } if loaded(self, rank, load) => {
                self.outcome(rank, token, attempt, outcome)
            }
            Event::FaultsEnd => self.end_faults(),
            Event::Marker => self.mark(),
            // Of a load that is over.
            Event::Unloaded { .. } | Event::Tick { .. } | Event::Push { .. } | Event::Outcome { .. } => {
                Ok(())
            }
        }
    }

    fn end_faults(&mut self) -> Result<(), Violation> {
        self.phase = Phase::Draining;
        for rank in 0..self.config.shape.ranks() {
            // Somebody has set the clocks right.
            let state = self.rank(rank);
            (state.wall_step_ns, state.becomes_foreign) = (0, false);
            // And upgraded what was behind.
            if state.module.is_none() {
                state.is_foreign = false;
            } else if state.is_foreign {
                state.reload_in_ns = 100 * MS;
                self.begin_unload(rank)?;
            }
        }
        self.deadline_ns = self.now_ns + self.patience_ns();
        self.check_fully()
    }
}
