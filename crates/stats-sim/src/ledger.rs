//! Who has what: flows are conserved, to the unit, after every event.
//!
//! What was recorded after a clear is, at all times, in the root's totals, in some node's custody, or was lost with a
//! broker that died. A copy of a batch counts as long as nobody above its holder has merged it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::{AddAssign, SubAssign};

/// What is followed to the unit: a counter of whole numbers, one of fractions, a timer's samples, and all series of jobs
/// together.
pub(crate) const FOLLOWED: usize = 4;

/// The identity of a batch.
pub(crate) type Id = (u32, u64, u64);

/// An amount of each series that is followed, in millionths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Units(pub(crate) [i128; FOLLOWED]);

impl fmt::Display for Units {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [flow, fraction, samples, jobs] = self.0.map(|parts| parts as f64 / 1e6);
        write!(f, "{flow} + {fraction:.6} + {samples} samples + {jobs} of jobs")
    }
}

impl AddAssign for Units {
    fn add_assign(&mut self, other: Units) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
    }
}

impl SubAssign for Units {
    fn sub_assign(&mut self, other: Units) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, less)| *sum -= less);
    }
}

impl Units {
    pub(crate) fn is_zero(self) -> bool {
        self == Units::default()
    }

    pub(crate) fn fits_in(self, other: Units) -> bool {
        self.0.iter().zip(other.0).all(|(&part, whole)| part <= whole)
    }
}

/// What was recorded between two clears.
#[derive(Debug, Clone, Copy, Default)]
struct Generation {
    pushed: Units,
    /// At the root.
    arrived: Units,
    /// In custody elsewhere.
    custody: Units,
    lost: Units,
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Generation { pushed, arrived, custody, lost } = self;
        write!(f, "pushed {pushed}; at the root {arrived}, in custody {custody}, lost {lost}")
    }
}

impl Generation {
    fn part(&mut self, rank: u32) -> &mut Units {
        if rank == 0 { &mut self.arrived } else { &mut self.custody }
    }

    fn accounted(&self) -> Units {
        let mut sum = self.arrived;
        sum += self.custody;
        sum += self.lost;
        sum
    }
}

#[derive(Debug)]
pub(crate) struct Ledger {
    generations: BTreeMap<u64, Generation>,
    /// Of each rank: the clear that it knows, and what it has.
    has: Vec<(u64, Units)>,
    /// Batches that brokers and modules took with them, unless a message with one is still on its way.
    orphans: HashMap<Id, (u64, Units)>,
}

impl Ledger {
    pub(crate) fn new(ranks: u32) -> Self {
        let generations = BTreeMap::from([(0, Generation::default())]);
        Ledger { generations, has: vec![(0, Units::default()); ranks as usize], orphans: HashMap::new() }
    }

    fn generation(&mut self, generation: u64) -> &mut Generation {
        self.generations.entry(generation).or_default()
    }

    pub(crate) fn push(&mut self, generation: u64, units: Units) {
        self.generation(generation).pushed += units;
    }

    /// What a rank has from now on.
    pub(crate) fn set(&mut self, rank: u32, generation: u64, units: Units) {
        let (before, had) = std::mem::replace(&mut self.has[rank as usize], (generation, units));
        *self.generation(before).part(rank) -= had;
        *self.generation(generation).part(rank) += units;
    }

    pub(crate) fn has(&self, rank: u32) -> (u64, Units) {
        self.has[rank as usize]
    }

    /// A broker has died, or the module on it: what it had is lost.
    pub(crate) fn die(&mut self, rank: u32, batches: impl IntoIterator<Item = (Id, Units)>) -> Units {
        let (generation, units) = self.has[rank as usize];
        self.set(rank, generation, Units::default());
        self.generation(generation).lost += units;
        self.orphans.extend(batches.into_iter().map(|(id, units)| (id, (generation, units))));
        units
    }

    /// What was counted as lost is found to be in somebody's custody.
    pub(crate) fn regain(&mut self, generation: u64, units: Units) {
        self.generation(generation).lost -= units;
    }

    pub(crate) fn is_awaiting_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// A batch of a dead broker was on its way, and has arrived.
    pub(crate) fn found(&mut self, id: Id) -> Option<Units> {
        let (generation, units) = self.orphans.remove(&id)?;
        self.regain(generation, units);
        Some(units)
    }

    fn newest(&self) -> (u64, Generation) {
        self.generations.last_key_value().map_or((0, Generation::default()), |(&id, &newest)| (id, newest))
    }

    /// The newest clear that anyone knows.
    pub(crate) fn newest_clear(&self) -> u64 {
        self.newest().0
    }

    /// Whether all that was recorded since the newest clear is at the root, or lost.
    pub(crate) fn is_drained(&self) -> bool {
        let (_, newest) = self.newest();
        newest.custody.is_zero()
    }

    /// What was recorded in all, and what was lost.
    pub(crate) fn summary(&self) -> (Units, Units) {
        let mut sums = (Units::default(), Units::default());
        for generation in self.generations.values() {
            sums.0 += generation.pushed;
            sums.1 += generation.lost;
        }
        sums
    }

    /// Σ pushed = Σ at the root + Σ in custody + Σ lost since the newest clear; of what was before no more than that.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (id, newest) = self.newest();
        if newest.accounted() != newest.pushed {
            return Err(format!("flows are not conserved since clear {id}: {newest}"));
        }
        for (id, older) in self.generations.iter().rev().skip(1) {
            if !older.accounted().fits_in(older.pushed) {
                return Err(format!("more than was recorded is left from before a clear, of {id}: {older}"));
            }
        }
        Ok(())
    }
}
