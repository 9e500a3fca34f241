//! The invariants, beside the ledger's: after every event where it is cheap, of a whole instance at every period of
//! the root.

use crate::faults::Kind;
use crate::ledger::Units;
use crate::queue::Event;
use crate::workload::{GAUGE, RANKS_A_GAUGE, SET};
use crate::world::{MS, Phase, Violation, World};
use serde_json::Value;
use stats_core::{IdSet, Query, SeriesId};

/// Granted periods after which a rank that sent nothing is missing: as stats-core has it.
const EXPIRY_PERIODS: u64 = 3;
/// Ages are told in steps of a period's sixteenth: likewise.
pub(crate) const AGE_STEPS: u64 = 16;
/// Periods within which everything has arrived once nothing goes wrong any more.
const PATIENCE_PERIODS: u64 = 40;
/// How long a level has for its batches, at most.
const SLOT_NS: u64 = 100 * MS;
/// A subtree of no more ranks has its states checked after every message.
const SMALL_SUBTREE: u32 = 130;
/// Batches that one node may hold.
const HELD_MAX: usize = 2_000;

impl World<'_> {
    /// What a rank has, of what counts nowhere else: at the root its totals, elsewhere what is in its custody and was
    /// merged by nobody above.
    pub(crate) fn effective(&self, rank: u32) -> Units {
        let (mut sum, state) = (Units::default(), &self.ranks[rank as usize]);
        let (Some(node), Some(measured)) = (state.body(), &state.measured) else { return sum };
        let followed = measured.followed(node);
        if rank == 0 {
            let total = |ids: &[SeriesId]| ids.iter().map(|&id| node.total(id).parts()).sum();
            return Units(followed.groups().map(total));
        }
        node.survey(followed.groups(), |batch, amounts| {
            let units = Units(amounts.map(|amount| amount.parts()));
            if !units.is_zero() && batch.is_none_or(|(id, _)| !self.is_merged_above(rank, id)) {
                sum += units;
            }
        });
        sum
    }

    pub(crate) fn is_merged_above(&self, rank: u32, id: (u32, u64, u64)) -> bool {
        let mut above = self.config.shape.above(rank);
        above.any(|above| self.ranks[above as usize].body().is_some_and(|node| node.has_merged(id)))
    }

    /// The batches that die with a rank.
    pub(crate) fn carried_alone(&self, rank: u32) -> Vec<((u32, u64, u64), Units)> {
        let mut batches = self.carried(rank);
        batches.retain(|&(id, units)| !units.is_zero() && !self.is_merged_above(rank, id));
        batches
    }

    /// Enters into the ledger what a rank has now.
    pub(crate) fn account(&mut self, rank: u32) {
        let units = self.effective(rank);
        let generation = self.ranks[rank as usize].body().map_or(0, stats_core::Node::generation);
        let (known, had) = self.ledger.has(rank);
        if rank == 0 && (generation, units) != (known, had) {
            self.report.last_arrival_ns = self.now_ns;
            self.root_fell |= generation == known && !had.fits_in(units);
        }
        self.ledger.set(rank, generation, units);
    }

    /// After every period of a node: its bounds, and its states.
    pub(crate) fn check_node(&self, rank: u32) -> Result<(), Violation> {
        let Some(node) = &self.ranks[rank as usize].module else { return Ok(()) };
        let events = node.events();
        if events.parked + events.overflow + events.states_overflow > 0 {
            return Err(self.violation(rank, format!("what should not happen happened: {events:?}")));
        }
        let mut held = 0;
        let Some(measured) = &self.ranks[rank as usize].measured else { return Ok(()) };
        let mut sure = None;
        node.survey(measured.followed(node).groups(), |batch, amounts| {
            held += usize::from(batch.is_some());
            let empty = amounts.iter().all(|amount| amount.parts() == 0);
            sure = sure
                .or(batch.filter(|&(id, in_doubt)| !empty && !in_doubt && self.is_merged_above(rank, id)));
        });
        if let Some((id, _)) = sure {
            return Err(self.violation(
                rank,
                format!("batch {id:?} has arrived, and its sender is sure that it has not"),
            ));
        }
        if held > HELD_MAX {
            return Err(self.violation(rank, format!("{held} batches are held")));
        }
        self.states_of(rank)?;
        Ok(())
    }

    /// After every message, where that is cheap: elsewhere at the end of the node's period.
    pub(crate) fn check_merged(&self, rank: u32) -> Result<(), Violation> {
        if self.config.shape.subtree(rank) <= SMALL_SUBTREE { self.states_of(rank).map(drop) } else { Ok(()) }
    }

    /// The ranks whose states a node counts: each once, each in its subtree, none that has long been gone.
    fn states_of(&self, at: u32) -> Result<IdSet, Violation> {
        let mut counted = Vec::new();
        let Some(node) = &self.ranks[at as usize].module else { return Ok(IdSet::new()) };
        for (key, states) in node.states() {
            let Some(gauge) = key.name().strip_prefix(GAUGE).and_then(|number| number.parse::<u32>().ok())
            else {
                continue;
            };
            let bits = u64::try_from(states.sum.parts() / 1_000_000).unwrap_or(0);
            let exact = states.sum.parts() == i128::from(bits) * 1_000_000;
            if !exact || u64::from(bits.count_ones()) != states.count {
                let what = format!(
                    "{}: {} states add up to {bits:b}: one is counted twice",
                    key.name(),
                    states.count
                );
                return Err(self.violation(at, what));
            }
            let rank = |bit: u32| gauge * RANKS_A_GAUGE + bit;
            let (low, high) = (bits.trailing_zeros(), 63 - bits.leading_zeros());
            let ends = [(states.min, low), (states.max, high)];
            if ends
                .iter()
                .any(|&((value, of), bit)| value.parts() != (1_i128 << bit) * 1_000_000 || of != rank(bit))
            {
                return Err(self.violation(at, format!("{}: extremes are of others: {states:?}", key.name())));
            }
            counted.extend((0..RANKS_A_GAUGE).filter(|bit| bits >> bit & 1 != 0).map(rank));
        }
        for &rank in &counted {
            if !self.config.shape.is_within(rank, at) {
                return Err(self.violation(at, format!("the state of rank {rank} is not of its subtree")));
            }
            self.check_shown(at, rank)?;
        }
        Ok(counted.into_iter().collect())
    }

    /// A rank is covered as long as its last word is not too old. Its age is told at every hop, in steps, and without the
    /// time that the message takes.
    fn check_covered(&self, at: u32, rank: u32) -> Result<(), Violation> {
        let step_ns = self.longest_period_ns / AGE_STEPS + MS;
        let allowed_ns =
            EXPIRY_PERIODS * self.longest_period_ns + self.hops(rank, at) * (step_ns + self.longest_way_ns);
        self.check_alive(at, rank, allowed_ns, "is said to be covered")
    }

    /// States go with the silence of who told them last, and that may have been told by one who is silent since: so
    /// they may last an expiry, a period and a message for each hop.
    fn check_shown(&self, at: u32, rank: u32) -> Result<(), Violation> {
        let hop_ns = (EXPIRY_PERIODS + 2) * self.longest_period_ns + self.longest_way_ns;
        self.check_alive(at, rank, self.hops(rank, at).max(1) * hop_ns, "has its state counted")
    }

    fn hops(&self, rank: u32, at: u32) -> u64 {
        u64::from(self.config.shape.level(rank) - self.config.shape.level(at))
    }

    fn check_alive(&self, at: u32, rank: u32, allowed_ns: u64, what: &str) -> Result<(), Violation> {
        let state = &self.ranks[rank as usize];
        if state.module.is_none() && state.last_alive_ns + allowed_ns < self.now_ns {
            let since = (self.now_ns - state.last_alive_ns) as f64 / 1e9;
            return Err(
                self.violation(at, format!("rank {rank} has no module since {since:.1} s, and {what}"))
            );
        }
        Ok(())
    }

    /// How long what is measured may take to reach the root: a period, and a slot for each level.
    pub(crate) fn freshness_ns(&self) -> u64 {
        let (levels, period_ns) = (u64::from(self.config.shape.max_level()) + 1, self.config.period_ns());
        period_ns + (period_ns / (2 * levels)).min(SLOT_NS) * levels + SLOT_NS
    }

    /// What was measured within this may be lost when `ranks` die. A module's first batch goes when it is loaded, the
    /// next one on the common clock, up to one and a half periods later: until then batches do not go leaves first.
    pub(crate) fn window_ns(&self, ranks: &[u32]) -> u64 {
        let late_ns = 3 * self.config.period_ns() / 2;
        let young_ns = 2 * late_ns;
        let is_young = |&rank: &u32| self.ranks[rank as usize].origin_ns + young_ns > self.now_ns;
        self.freshness_ns() + if ranks.iter().any(is_young) { late_ns } else { 0 }
    }

    pub(crate) fn patience_ns(&self) -> u64 {
        PATIENCE_PERIODS * self.longest_period_ns
    }

    pub(crate) fn overdue(&self) -> Violation {
        let has = (1..self.config.shape.ranks()).find(|&rank| !self.ledger.has(rank).1.is_zero());
        let why = match has {
            Some(rank) => format!("rank {rank} still has {}", self.ledger.has(rank).1),
            None => self.unsettled().err().unwrap_or_else(|| "the root does not tick".to_owned()),
        };
        self.violation(has.unwrap_or(0), format!("it does not converge: {why}"))
    }

    /// The incremental accounts against those made anew.
    pub(crate) fn check_fully(&self) -> Result<(), Violation> {
        for rank in 0..self.config.shape.ranks() {
            let (entered, found) = (self.ledger.has(rank).1, self.effective(rank));
            if entered != found {
                return Err(self.violation(rank, format!("has {found}, where events amount to {entered}")));
            }
        }
        Ok(())
    }

    /// After every period of the root: coverage, totals that do not fall, and whether the run is over.
    pub(crate) fn root_ticked(&mut self) -> Result<(), Violation> {
        let now = self.time_of(0);
        let Some(root) = &self.ranks[0].module else { return Ok(()) };
        for rank in root.covered(now).iter() {
            self.check_covered(0, rank)?;
        }
        self.check_fully()?;
        match self.phase {
            Phase::Draining if self.ledger.is_drained() && self.unsettled().is_ok() => {
                self.report.converged_ns = self.now_ns - self.ends_ns;
                self.phase = Phase::Settling;
                let period_ns = self.config.period_ns();
                let wait_ns = 2 * period_ns + self.dice(crate::dice::For::Run, 1, 0).below(period_ns);
                self.schedule(self.now_ns + wait_ns, Event::Marker);
                self.deadline_ns = self.now_ns + wait_ns + self.patience_ns();
            }
            Phase::Marked(since_ns) if self.ledger.is_drained() => {
                self.fresh(since_ns)?;
                if self.unsettled().is_ok() {
                    self.end()?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// All that was pushed at once has arrived.
    fn fresh(&mut self, since_ns: u64) -> Result<(), Violation> {
        if self.report.fresh_ns == 0 {
            self.report.fresh_ns = self.report.last_arrival_ns.saturating_sub(since_ns).max(1);
            let (fresh, allowed) = (self.report.fresh_ns as f64 / 1e9, self.freshness_ns() as f64 / 1e9);
            if fresh > allowed {
                let what =
                    format!("what was measured took {fresh:.3} s to the root, more than {allowed:.3} s");
                return Err(self.violation(0, what));
            }
        }
        Ok(())
    }

    /// Whether every rank is heard of, nothing is held, and periods are the configured ones again.
    fn unsettled(&self) -> Result<(), String> {
        let loaded: IdSet = (0..self.config.shape.ranks())
            .filter(|&rank| self.ranks[rank as usize].module.is_some())
            .collect();
        for rank in 0..self.config.shape.ranks() {
            let state = &self.ranks[rank as usize];
            let Some(node) = &state.module else {
                if state.is_up {
                    return Err(format!("rank {rank} has no module"));
                }
                continue;
            };
            // A period that was longer ends when it was to end.
            if state.origin_ns + node.next_deadline_ns() > self.now_ns + 3 * self.config.period_ns() / 2 {
                return Err(format!("rank {rank} is in a long period"));
            }
            let periods = [node.period_ns(), node.granted_period_ns()];
            if state.is_unloading || periods != [self.config.period_ns(); 2] {
                return Err(format!("rank {rank}: unloading, or has and grants periods of {periods:?} ns"));
            }
            let mut held = 0;
            if let Some(measured) = &state.measured {
                node.survey(measured.followed(node).groups(), |batch, _| {
                    held += usize::from(batch.is_some_and(|(_, doubt)| doubt))
                });
            }
            if held > 0 && self.ranks[rank as usize].flight.is_none() {
                return Err(format!("rank {rank} holds {held} batches in doubt"));
            }
        }
        let now = self.time_of(0);
        let covered = self.ranks[0].module.as_ref().map(|root| root.covered(now)).unwrap_or_default();
        if covered != loaded {
            return Err(format!("covered are {covered}, loaded {loaded}"));
        }
        let shown: IdSet = loaded.iter().filter(|&rank| self.ranks[rank as usize].shows_state).collect();
        let counted = self.states_of(0).map_err(|violation| violation.what)?;
        if counted != shown {
            return Err(format!("states are of {counted}, set on {shown}"));
        }
        Ok(())
    }

    /// The last look: what the root answers is all true.
    fn end(&mut self) -> Result<(), Violation> {
        self.phase = Phase::Done;
        let now = self.time_of(0);
        let Some(root) = &self.ranks[0].module else { return Ok(()) };
        let answer = root.answer(&Query::default(), now);
        let text = |key: &str| answer["ranks"][key].as_str().unwrap_or("?").to_owned();
        let all = IdSet::range(0, self.config.shape.ranks() - 1);
        let offline = all.minus(&self.online).to_string();
        if (text("offline"), text("absent"), text("silent")) != (offline, String::new(), String::new()) {
            return Err(self.violation(0, format!("missing ranks: {}", answer["ranks"])));
        }
        let estimate = answer["series"].as_array().into_iter().flatten().find(|series| series["name"] == SET);
        let estimate = estimate.and_then(|series| series["estimate"].as_f64()).unwrap_or(0.0);
        let newest = self.ledger.newest_clear();
        let members = self.members.range((newest, 0)..).count() as f64;
        let may_lose = self.report.deaths > 0 || self.report.faults.contains_key(&Kind::Crash);
        if estimate > members || (estimate < members && !may_lose) {
            return Err(self.violation(0, format!("{members} members were put into a set of {estimate}")));
        }
        if self.config.faults.is_death_alone() && !self.report.is_loss_allowed(&self.ledger) {
            return Err(self.violation(0, "a death lost more than its ranks had measured in the last period"));
        }
        if answer["series"] == Value::Null {
            return Err(self.violation(0, "the root has no series"));
        }
        Ok(())
    }
}
