//! What ranks measure: a little of everything, each amount decided by seed, rank and number.

use crate::dice::For;
use crate::ledger::{FOLLOWED, Units};
use crate::world::{MS, Phase, Violation, World};
use stats_core::{Amount, ENDED, JOB_TAG, Key, Kind, Node, Samples, SeriesId, Unit};
use std::sync::LazyLock;

/// States are told apart by rank: so many ranks share a gauge, each with a bit of its own.
pub(crate) const RANKS_A_GAUGE: u32 = 64;
/// The gauges' names begin like this, and end with a number.
pub(crate) const GAUGE: &str = "sim.state.";
pub(crate) const SET: &str = "sim.members";
/// Below the number from which a set is no longer exact.
const MEMBERS: u64 = 90;
/// Counters that not all ranks have: their names are spread over so many.
const PARTS: u32 = 7;

/// A job lasts a period, and after so many others its number comes again: its series have ended by then, where nothing
/// is wrong, for their time to live is a period, too.
const JOBS: u64 = 5;

/// The counters of jobs, and their sum.
static OF_JOBS: LazyLock<Vec<Key>> = LazyLock::new(|| {
    let jobs = (0..JOBS).map(|job| job.to_string()).chain([ENDED.to_owned()]);
    jobs.filter_map(|job| Key::new("sim.job", &[(JOB_TAG, &job)], Kind::Counter, Unit::None).ok()).collect()
});

/// The series that one load of the module declares.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) followed: [SeriesId; FOLLOWED - 1],
    pub(crate) gauge: SeriesId,
    members: SeriesId,
}

/// What is followed of a node.
pub(crate) struct Followed {
    lasting: [SeriesId; FOLLOWED - 1],
    of_jobs: Vec<SeriesId>,
}

impl Measured {
    pub(crate) fn followed(&self, node: &Node) -> Followed {
        let of_jobs = OF_JOBS.iter().filter_map(|key| node.find(key)).collect();
        Followed { lasting: self.followed, of_jobs }
    }
}

impl Followed {
    pub(crate) fn groups(&self) -> [&[SeriesId]; FOLLOWED] {
        let [flow, fraction, samples] = &self.lasting;
        [
            std::slice::from_ref(flow),
            std::slice::from_ref(fraction),
            std::slice::from_ref(samples),
            &self.of_jobs,
        ]
    }
}

/// The gauge of a rank, and what the rank sets it to.
pub(crate) fn gauge_of(rank: u32) -> (String, Amount) {
    (format!("{GAUGE}{}", rank / RANKS_A_GAUGE), Amount::whole(1 << (rank % RANKS_A_GAUGE)))
}

fn declared(node: &mut Node, name: &str, kind: Kind) -> Option<SeriesId> {
    let key = Key::new(name, &[], kind, Unit::None).ok()?;
    node.declare(key).ok()
}

/// Declares them, in an order of the rank's own, so that numbers on the wire differ.
pub(crate) fn declare(node: &mut Node, rank: u32) -> Option<Measured> {
    let followed =
        [("sim.flow", Kind::Counter), ("sim.fraction", Kind::Counter), ("sim.samples", Kind::Timer)];
    let mut ids = [None; FOLLOWED - 1];
    for turn in 0..ids.len() {
        let which = (turn + rank as usize) % ids.len();
        ids[which] = declared(node, followed[which].0, followed[which].1);
    }
    let [Some(flow), Some(fraction), Some(samples)] = ids else { return None };
    let gauge = declared(node, &gauge_of(rank).0, Kind::Gauge)?;
    let members = declared(node, SET, Kind::Set)?;
    Some(Measured { followed: [flow, fraction, samples], gauge, members })
}

impl World<'_> {
    /// Something is measured on a rank that has the module.
    pub(crate) fn push(&mut self, rank: u32) -> Result<(), Violation> {
        if self.phase == Phase::Faults { self.measure(rank) } else { Ok(()) }
    }

    fn measure(&mut self, rank: u32) -> Result<(), Violation> {
        let number = self.rank(rank).pushes;
        let mut dice = self.dice(For::Push, rank, number);
        let (now_ns, series, period_ns) = (self.now_ns, self.config.series, self.config.period_ns());
        let bounded = self.config.faults.is_death_alone();
        let state = &mut self.ranks[rank as usize];
        state.pushes += 1;
        let (Some(node), Some(measured)) = (&mut state.module, &state.measured) else { return Ok(()) };
        let whole = i128::from(dice.between(1, 1000));
        let fraction = if dice.chance(0.25) { i128::from(dice.between(1, 1_999_999)) } else { 0 };
        let times = if dice.chance(0.125) { dice.between(1, 4) } else { 0 };
        node.add(measured.followed[0], Amount::whole(whole));
        node.add(measured.followed[1], Amount::from_parts(fraction));
        let mut samples = Samples::default();
        samples.add(dice.below(1 << 40), times);
        node.observe(measured.followed[2], &samples);
        for part in 0..series {
            let name = format!("sim.part.{}", part * PARTS + rank % PARTS);
            if let Some(id) = dice.chance(0.5).then(|| declared(node, &name, Kind::Counter)).flatten() {
                node.add(id, Amount::whole(1));
            }
        }
        let of_job = i128::from(dice.below(100));
        let job = OF_JOBS.get((now_ns / period_ns % JOBS) as usize);
        if let Some(id) = job.and_then(|key| node.declare(key.clone()).ok()) {
            node.add(id, Amount::whole(of_job));
        }
        let generation = node.generation();
        if dice.chance(0.05) {
            let member = dice.below(MEMBERS);
            node.insert(measured.members, &member.to_string());
            self.members.insert((generation, member));
        }
        if dice.chance(0.05) {
            state.shows_state = !state.shows_state;
            node.set(measured.gauge, state.shows_state.then(|| gauge_of(rank).1));
        }
        let units = Units([whole * 1_000_000, fraction, i128::from(times) * 1_000_000, of_job * 1_000_000]);
        if bounded {
            state.recent.push((now_ns, units));
        }
        self.ledger.push(generation, units);
        self.account(rank);
        Ok(())
    }

    /// Now and then something is measured between two batches.
    pub(crate) fn push_between(&mut self, rank: u32) {
        let number = self.rank(rank).pushes;
        let mut dice = self.dice(For::Load, rank, number.wrapping_add(1 << 20));
        let period_ns = self.config.period_ns();
        if self.phase == Phase::Faults && dice.chance(0.1) {
            let load = self.rank(rank).load;
            let at_ns = self.now_ns + dice.between(MS, period_ns);
            self.schedule(at_ns, crate::queue::Event::Push { rank, load });
        }
    }

    /// Every rank measures something, and the time that takes to arrive is what counts.
    pub(crate) fn mark(&mut self) -> Result<(), Violation> {
        self.phase = Phase::Marked(self.now_ns);
        self.tell(0, || "all ranks push once more".to_owned());
        for rank in 0..self.config.shape.ranks() {
            if self.ranks[rank as usize].module.is_some() {
                self.measure(rank)?;
            }
        }
        Ok(())
    }
}
