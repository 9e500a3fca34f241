//! Brokers that die and modules that are killed: what they alone had is lost.

use crate::faults::{Kind, Planned};
use crate::ledger::{Id, Units};
use crate::network::TIMEOUT_NS;
use crate::queue::Event;
use crate::world::{MS, Phase, Violation, World};

/// A batch that is in doubt below a module that was killed, which had merged it and passed it on.
#[derive(Debug)]
pub(crate) struct PassedOn {
    id: Id,
    /// Where it went.
    to: Vec<u32>,
}

/// What counts with its sender again once the module that had merged it is gone.
struct Again {
    rank: u32,
    /// The clear that the sender knows.
    generation: u64,
    units: Units,
    /// Of it: what had gone on from there to a module that was killed before, and was lost with that.
    lost: Units,
}

impl World<'_> {
    /// A broker dies with its subtree.
    pub(crate) fn die(&mut self, top: u32, is_gone: bool, restart_in_ns: u64) {
        let ranks = self.config.shape.within(top);
        let batches: Vec<_> = ranks.iter().map(|&rank| self.carried_alone(rank)).collect();
        let (mut lost, mut recent) = (Units::default(), Units::default());
        let since_ns = self.now_ns.saturating_sub(self.window_ns(&ranks));
        for (&rank, batches) in ranks.iter().zip(batches) {
            self.report.deaths += u64::from(self.rank(rank).is_up);
            self.online.remove(rank);
            lost += self.ledger.die(rank, batches);
            self.leave_nothing(rank);
            let state = self.rank(rank);
            (state.is_up, state.is_foreign) = (false, false);
            for (at_ns, units) in std::mem::take(&mut state.recent) {
                if at_ns >= since_ns {
                    recent += units;
                }
            }
        }
        self.report.lost_allowed += recent;
        self.rank(top).is_gone |= is_gone;
        self.tell(top, || format!("its broker dies with {} below; lost are {lost}", ranks.len() - 1));
        if !is_gone {
            self.schedule(self.now_ns + restart_in_ns, Event::Restart(top));
        }
    }

    /// The module ends without a word.
    fn leave_nothing(&mut self, rank: u32) {
        let now_ns = self.now_ns;
        let state = self.rank(rank);
        if state.module.is_some() {
            state.last_alive_ns = now_ns;
        }
        (state.module, state.left, state.measured) = (None, None, None);
        (state.flight, state.is_unloading) = (None, false);
        (state.doomed, state.loses_next, state.dies_sending) = (None, None, None);
        state.last_receiver = None;
        state.saved.clear();
    }

    /// A planned crash: at once, or when the rank has sent its next message, which then takes long.
    pub(crate) fn begin_crash(&mut self, number: u32) -> Result<(), Violation> {
        let Planned { rank, mut dice, .. } = self.plan[number as usize].clone();
        if dice.chance(0.5) {
            self.rank(rank).dies_sending = Some(number);
            Ok(())
        } else {
            self.crash(number)
        }
    }

    /// The module on one rank is killed. What was merged there and is in doubt below counts with its senders again.
    ///
    /// Nothing happens where what is lost would depend on what comes first: where a message that is still on its way has
    /// such a batch in it as well, and where a rank that has to know such a batch is about to be unloaded itself.
    pub(crate) fn crash(&mut self, number: u32) -> Result<(), Violation> {
        let Planned { rank, mut dice, .. } = self.plan[number as usize].clone();
        let loaded = self.rank(rank).module.is_some() && !self.rank(rank).is_unloading;
        let mut needed = self.config.shape.above(rank).chain([rank]);
        if self.phase != Phase::Faults || !loaded || needed.any(|rank| self.is_needed(rank)) {
            return Ok(());
        }
        let passed_on = self.passed_on(rank);
        let again = self.counted_again(rank);
        let is_steady = |&to: &u32| {
            let state = &self.ranks[to as usize];
            state.module.is_some() && !state.is_unloading && !state.is_foreign
        };
        let underway = self.ranks[rank as usize].underway > 0;
        if underway && !again.is_empty() || !passed_on.iter().flat_map(|batch| &batch.to).all(is_steady) {
            return Ok(());
        }
        let is_answered = |again: &Again| {
            self.ranks[again.rank as usize].flight.as_ref().is_some_and(|flight| flight.is_answered)
        };
        if again.iter().any(is_answered) {
            // Its sender is about to hear that it has custody no more.
            self.schedule(self.now_ns + MS, Event::Crash(number));
            return Ok(());
        }
        // Passed on, it would be known above, and count there alone, or it was lost there.
        let (generation, had) = self.ledger.has(rank);
        let mut in_doubt = Units::default();
        for again in again.iter().filter(|again| again.generation == generation) {
            in_doubt += again.units;
            in_doubt -= again.lost;
        }
        if !in_doubt.fits_in(had) {
            let senders: Vec<u32> = again.iter().map(|again| again.rank).collect();
            let what = format!(
                "{in_doubt} are in doubt below on {senders:?}, were merged here, and are neither known above nor in the \
                 {had} that are here"
            );
            return Err(self.violation(rank, what));
        }
        self.befalls(Kind::Crash, self.plan[number as usize].id());
        self.passed_on.extend(passed_on);
        let remembered = self.remembered_below(rank);
        let batches = if underway { self.carried_alone(rank) } else { Vec::new() };
        let lost = self.ledger.die(rank, batches);
        self.leave_nothing(rank);
        self.lost_above.extend(remembered);
        for Again { rank, generation, units, .. } in again {
            self.ledger.regain(generation, units);
            for (id, _) in self.carried_alone(rank) {
                self.lost_above.remove(&id);
            }
            self.account(rank);
        }
        self.tell(rank, || format!("is killed; lost are {lost}, less what is in doubt below"));
        let period_ns = self.config.period_ns();
        let reload_ns =
            if underway { TIMEOUT_NS + dice.below(2 * period_ns) } else { dice.between(50 * MS, period_ns) };
        self.schedule(self.now_ns + reload_ns, Event::Load(rank));
        Ok(())
    }

    /// What those below have more of once a module is gone.
    fn counted_again(&mut self, rank: u32) -> Vec<Again> {
        let module = self.rank(rank).module.take();
        let more = |below: u32| {
            let (mut units, (generation, had)) = (self.effective(below), self.ledger.has(below));
            units -= had;
            if units.is_zero() {
                return None;
            }
            let mut lost = Units::default();
            let alone = self.carried_alone(below).into_iter().filter(|(id, _)| self.lost_above.contains(id));
            alone.for_each(|(_, units)| lost += units);
            Some(Again { rank: below, generation, units, lost })
        };
        let again = self.config.shape.within(rank).into_iter().skip(1).filter_map(more).collect();
        self.rank(rank).module = module;
        again
    }

    /// What is in doubt below a rank, was merged there and by nobody above, and is known to a rank in between: once the
    /// module is gone, that rank alone knows, and counts it nowhere.
    fn remembered_below(&self, rank: u32) -> Vec<Id> {
        let has = |at: u32, id| self.ranks[at as usize].body().is_some_and(|node| node.has_merged(id));
        let is_last = |&id: &Id| has(rank, id) && !self.is_merged_above(rank, id);
        let below = self.config.shape.within(rank).into_iter().skip(1);
        let in_between = |below: u32, id| {
            self.config.shape.above(below).take_while(|&above| above != rank).any(|above| has(above, id))
        };
        below
            .flat_map(|below| {
                let ids = self.carried(below).into_iter().map(|(id, _)| id).filter(is_last);
                ids.filter(move |&id| in_between(below, id)).collect::<Vec<_>>()
            })
            .collect()
    }

    /// What is in doubt below a rank and has gone through it, but not to the root.
    fn passed_on(&self, by: u32) -> Vec<PassedOn> {
        let below = self.config.shape.within(by).into_iter().skip(1);
        let carried = below.flat_map(|below| self.carried(below));
        let passed_on = carried.filter_map(|(id, _)| {
            let has = |&rank: &u32| self.ranks[rank as usize].body().is_some_and(|node| node.has_merged(id));
            let to: Vec<u32> = self.config.shape.above(by).filter(has).collect();
            (!to.is_empty() && !to.contains(&0)).then_some(PassedOn { id, to })
        });
        passed_on.collect()
    }

    /// Whether a rank alone can tell a batch as a repeat whose first receiver was killed: the root does not have it yet.
    /// Where such a rank is unloaded, a batch may come by another road although it is in the rank's custody. The batch
    /// that it is in is then refused and set aside, see `docs/custody.md`.
    pub(crate) fn is_needed(&self, rank: u32) -> bool {
        let root_has = |id| self.ranks[0].body().is_some_and(|root| root.has_merged(id));
        let is_carried = |id| {
            let mut below = self.config.shape.within(rank).into_iter().skip(1);
            below.any(|below| self.carried(below).iter().any(|&(carried, _)| carried == id))
        };
        let mut passed_on = self.passed_on.iter().filter(|passed_on| passed_on.to.contains(&rank));
        passed_on.any(|&PassedOn { id, .. }| !root_has(id) && is_carried(id))
    }
}
