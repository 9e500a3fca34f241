//! Loads, unloads, deaths and the planned faults.

use crate::dice::For;
use crate::faults::Kind;
use crate::network::TIMEOUT_NS;
use crate::queue::Event;
use crate::workload::{declare, gauge_of};
use crate::world::{MS, Phase, Violation, World};
use stats_core::{Busy, Node, NodeConfig};

/// How long an unload waits for its last batch to be acknowledged.
const UNLOAD_NS: u64 = TIMEOUT_NS;
/// The share of a core that a slow root has its thread at, at the least: it may take 0.05.
const BUSY_SHARE: f64 = 0.06;
/// How long a root is slow.
const SLOW_NS: u64 = 2_500 * MS;
/// Series that a node of the simulation may keep.
const SERIES_MAX: usize = 4_096;

impl World<'_> {
    pub(crate) fn load(&mut self, rank: u32) -> Result<(), Violation> {
        let now_ns = self.now_ns;
        let state = self.rank(rank);
        if !state.is_up || state.module.is_some() || now_ns < state.absent_until_ns {
            return Ok(());
        }
        state.load += 1;
        let load = state.load;
        let shape = &self.config.shape;
        let config = NodeConfig {
            rank,
            size: shape.ranks(),
            level: shape.level(rank),
            max_level: shape.max_level(),
            epoch: self.dice(For::Load, rank, load).next(),
            period: self.config.period,
            max_series: SERIES_MAX,
        };
        self.rank(rank).origin_ns = self.now_ns;
        let (now, saved) = (self.time_of(rank), std::mem::take(&mut self.rank(rank).saved));
        let mut node = if saved.is_empty() {
            Node::new(config, now)
        } else {
            let restored = Node::restore(config, now, &saved);
            restored.map_err(|error| self.violation(rank, format!("what was saved is refused: {error}")))?
        };
        node.set_ttl(self.config.period);
        let measured = declare(&mut node, rank).ok_or_else(|| self.violation(rank, "a series is refused"))?;
        node.set(measured.gauge, Some(gauge_of(rank).1));
        let deadline_ns = self.now_ns + node.next_deadline_ns();
        let state = self.rank(rank);
        (state.module, state.measured, state.left) = (Some(node), Some(measured), None);
        (state.shows_state, state.is_unloading, state.is_deaf) = (true, false, false);
        self.tell(rank, || format!("loads{}", if saved.is_empty() { "" } else { " and restores" }));
        self.account(rank);
        self.schedule(deadline_ns, Event::Tick { rank, load });
        Ok(())
    }

    /// The end of a period, as the module has it: measure, seal, send.
    pub(crate) fn tick(&mut self, rank: u32) -> Result<(), Violation> {
        self.push(rank)?;
        let (now, period_ns) = (self.time_of(rank), self.config.period_ns());
        let slow = rank == 0 && self.now_ns < self.slow_until_ns;
        let children_ns = if slow { (period_ns as f64 * self.slow_share) as u64 } else { 0 };
        let online = (rank == 0).then(|| self.online.clone());
        let state = self.rank(rank);
        let (load, origin_ns, is_unloading) = (state.load, state.origin_ns, state.is_unloading);
        let Some(node) = &mut state.module else { return Ok(()) };
        node.note_busy(Busy { children_ns, own_ns: 0, span_ns: period_ns }, now);
        online.into_iter().for_each(|online| node.set_online(online));
        node.tick(now);
        let deadline_ns = origin_ns + node.next_deadline_ns();
        let period_ns = node.granted_period_ns().max(node.period_ns());
        self.longest_period_ns = self.longest_period_ns.max(period_ns);
        self.account(rank);
        if !is_unloading {
            self.schedule(deadline_ns, Event::Tick { rank, load });
        }
        self.check_node(rank)?;
        self.transmit(rank);
        self.push_between(rank);
        if rank == 0 { self.root_ticked() } else { Ok(()) }
    }

    pub(crate) fn begin_unload(&mut self, rank: u32) -> Result<(), Violation> {
        let (now, load) = (self.time_of(rank), self.rank(rank).load);
        if self.rank(rank).is_unloading || self.rank(rank).module.is_none() {
            return Ok(());
        }
        self.push(rank)?;
        self.tell(rank, || "unloads".to_owned());
        let state = self.rank(rank);
        state.is_unloading = true;
        state.module.iter_mut().for_each(|node| node.begin_unload(now));
        self.account(rank);
        self.transmit(rank);
        self.schedule(self.now_ns + UNLOAD_NS, Event::Unloaded { rank, load });
        self.end_unload_if_drained(rank)
    }

    pub(crate) fn end_unload_if_drained(&mut self, rank: u32) -> Result<(), Violation> {
        let state = self.rank(rank);
        let drained = state.flight.is_none() && state.module.as_ref().is_some_and(Node::is_drained);
        if state.is_unloading && drained { self.end_unload(rank) } else { Ok(()) }
    }

    /// The module is gone; what it had lies in the rundir.
    pub(crate) fn end_unload(&mut self, rank: u32) -> Result<(), Violation> {
        let now_ns = self.now_ns;
        let state = self.rank(rank);
        let Some(node) = state.module.take() else { return Ok(()) };
        state.saved = node.save();
        state.left = Some(node);
        (state.flight, state.is_unloading, state.is_deaf, state.last_alive_ns) = (None, false, false, now_ns);
        state.is_foreign = std::mem::take(&mut state.becomes_foreign);
        let reload_ns = now_ns + std::mem::take(&mut state.reload_in_ns).max(MS);
        let bytes = state.saved.len();
        self.tell(rank, || format!("has unloaded, and left {bytes} bytes"));
        self.plant_lost_on_unload(rank);
        self.account(rank);
        self.schedule(reload_ns, Event::Load(rank));
        Ok(())
    }

    /// A broker comes up, then those below it.
    pub(crate) fn restart(&mut self, rank: u32) -> Result<(), Violation> {
        let shape = self.config.shape.clone();
        let has_parent = shape.parent(rank).is_none_or(|parent| self.ranks[parent as usize].is_up);
        let state = self.rank(rank);
        if state.is_up || state.is_gone || !has_parent {
            return Ok(());
        }
        state.is_up = true;
        self.online.insert(rank);
        self.tell(rank, || "its broker is up again".to_owned());
        let mut dice = self.dice(For::Load, rank, self.ranks[rank as usize].load.wrapping_add(1 << 16));
        self.schedule(self.now_ns + dice.between(MS, 500 * MS), Event::Load(rank));
        for &child in shape.children(rank) {
            self.schedule(self.now_ns + dice.between(MS, 300 * MS), Event::Restart(child));
        }
        Ok(())
    }

    pub(crate) fn clear(&mut self, rank: u32, generation: u64) -> Result<(), Violation> {
        let state = self.rank(rank);
        if let Some(node) = &mut state.module {
            node.handle_clear(generation);
            self.tell(rank, || format!("clear {generation}"));
            self.account(rank);
        }
        Ok(())
    }

    /// A planned fault's time has come.
    pub(crate) fn fault(&mut self, number: u32) -> Result<(), Violation> {
        let planned = self.plan[number as usize].clone();
        let (rank, mut dice, period_ns) = (planned.rank, planned.dice.clone(), self.config.period_ns());
        let later_ns = dice.between(50 * MS, 2 * period_ns);
        let is_loaded = self.rank(rank).module.is_some() && !self.rank(rank).is_unloading;
        let happens = match planned.kind {
            Kind::Unload | Kind::Version => is_loaded && !self.is_needed(rank),
            Kind::Road | Kind::Crash => is_loaded,
            Kind::Death => self.rank(rank).is_up,
            Kind::Absent => self.rank(rank).module.is_none(),
            _ => true,
        };
        if !happens {
            return Ok(());
        }
        // These happen later, or not.
        if !matches!(planned.kind, Kind::Road | Kind::Crash) {
            self.befalls(planned.kind, planned.id());
        }
        self.tell(rank, || format!("fault: {}", planned.kind));
        match planned.kind {
            Kind::Unload => {
                self.rank(rank).reload_in_ns = later_ns;
                self.begin_unload(rank)?;
            }
            Kind::Death => self.die(rank, dice.chance(0.25), later_ns),
            Kind::Absent => {
                let at_ns = dice.between(period_ns / 2, self.ends_ns);
                self.rank(rank).absent_until_ns = at_ns;
                self.schedule(at_ns, Event::Load(rank));
            }
            Kind::Road => {
                let children = self.config.shape.children(rank);
                let child = children[dice.below(children.len() as u64) as usize];
                self.rank(child).doomed = Some((rank, number));
            }
            Kind::SlowRoot => {
                self.slow_until_ns = self.now_ns + SLOW_NS;
                self.slow_share = BUSY_SHARE + dice.unit() * (1.0 - BUSY_SHARE);
            }
            Kind::Clock => {
                let most_ns = 10 * period_ns;
                let step_ns = i64::try_from(dice.below(2 * most_ns)).unwrap_or(0);
                self.rank(rank).wall_step_ns = step_ns - i64::try_from(most_ns).unwrap_or(0);
            }
            Kind::Clear => self.begin_clear(),
            Kind::Version => {
                let state = self.rank(rank);
                (state.becomes_foreign, state.reload_in_ns) = (true, later_ns / 4);
                self.begin_unload(rank)?;
            }
            Kind::Instance => self.unload_all(number, later_ns),
            Kind::Crash => self.begin_crash(number)?,
            Kind::Delay | Kind::Fail | Kind::Lost | Kind::Late => {}
        }
        Ok(())
    }

    /// The event reaches rank after rank; who has no module learns it from batches and receipts.
    fn begin_clear(&mut self) {
        self.clears += 1;
        let generation = self.clears;
        self.report.clears += 1;
        for rank in 0..self.config.shape.ranks() {
            let mut dice = self.dice(For::Clear, rank, generation as u32);
            let slow = dice.chance(0.1);
            let way_ns = if slow { dice.between(MS, 1_500 * MS) } else { dice.between(MS / 10, 5 * MS) };
            self.schedule(self.now_ns + way_ns, Event::Clear { rank, generation });
        }
    }

    /// The module unloads everywhere, in no particular order, and is loaded again.
    fn unload_all(&mut self, number: u32, reload_in_ns: u64) {
        for rank in 0..self.config.shape.ranks() {
            if self.is_needed(rank) {
                continue;
            }
            let mut dice = self.dice(For::Load, rank, number.wrapping_add(2 << 20));
            let state = self.rank(rank);
            if state.module.is_some() && !state.is_unloading {
                (state.is_deaf, state.reload_in_ns) = (true, reload_in_ns + dice.below(LOADING_SPREAD_NS));
                self.schedule(self.now_ns + dice.below(LOADING_SPREAD_NS), Event::Unload(rank));
            }
        }
    }

    /// The response to a child was lost: now its receiver unloads, with or without its last batch arriving.
    pub(crate) fn road_taken(&mut self, rank: u32, number: u32) -> Result<(), Violation> {
        let mut dice = self.plan[number as usize].dice.clone();
        let (arrives, reload_in_ns) = (dice.chance(0.5), dice.between(50 * MS, 4 * self.config.period_ns()));
        if self.phase != Phase::Faults || self.is_needed(rank) {
            return Ok(());
        }
        self.befalls(Kind::Road, self.plan[number as usize].id());
        let state = self.rank(rank);
        state.reload_in_ns = reload_in_ns;
        state.loses_next = (!arrives).then_some(number);
        self.begin_unload(rank)
    }
}

/// Within this the module unloads on all ranks.
const LOADING_SPREAD_NS: u64 = 200 * MS;
