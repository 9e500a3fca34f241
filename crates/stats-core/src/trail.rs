//! Recent states of each gauge: at the end of each slot of the history, their sum over ranks and the greatest of them.

use crate::amount::Amount;
use crate::history::Ring;
use crate::series::SeriesId;

/// The states of one gauge at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) sum: Amount,
    pub(crate) max: Amount,
}

impl Level {
    /// One rank's.
    pub(crate) fn of(value: Amount) -> Self {
        Level { sum: value, max: value }
    }

    /// These and others'.
    pub(crate) fn merged(self, other: Level) -> Self {
        Level { sum: self.sum.plus(other.sum), max: self.max.max(other.max) }
    }
}

/// Those of one gauge at many times. What is one rank's has one ring: maxima are kept where they are not the sums.
#[derive(Debug, Clone, Default)]
struct Trail {
    sums: Option<Ring>,
    maxima: Option<Ring>,
    /// For how many slots it has been unknown.
    absent: usize,
}

impl Trail {
    fn put(&mut self, slot: usize, level: Option<Level>, slots: usize) {
        let Some(Level { sum, max }) = level else {
            self.absent = self.absent.saturating_add(1);
            if self.absent >= slots {
                *self = Trail::default();
            }
            [&mut self.sums, &mut self.maxima].into_iter().flatten().for_each(|ring| ring.unset(slot));
            return;
        };
        self.absent = 0;
        self.sums.get_or_insert_default().set(slot, sum);
        if max != sum || self.maxima.is_some() {
            self.maxima.get_or_insert_default().set(slot, max);
        }
    }

    fn get(&self, slot: usize) -> Option<Level> {
        let sum = self.sums.as_ref()?.known(slot)?;
        let max = self.maxima.as_ref().and_then(|maxima| maxima.known(slot)).unwrap_or(sum);
        Some(Level { sum, max })
    }
}

/// The states of all gauges at one time, by their position.
#[derive(Debug, Default)]
pub(crate) struct Levels(Vec<Option<Level>>);

impl Levels {
    pub(crate) fn set(&mut self, position: usize, level: Level) {
        if position >= self.0.len() {
            self.0.resize(position + 1, None);
        }
        self.0[position] = Some(level);
    }

    #[cfg(test)]
    pub(crate) fn get(&self, position: usize) -> Option<Level> {
        self.0.get(position).copied().flatten()
    }

    /// The greatest is known better now.
    pub(crate) fn set_max(&mut self, position: usize, max: Amount) {
        if let Some(Some(level)) = self.0.get_mut(position) {
            level.max = max;
        }
    }
}

/// Those of all gauges at many times, by their position.
#[derive(Debug, Default)]
pub(crate) struct Trails(Vec<Trail>);

impl Trails {
    /// A slot has ended; gauges that have no level are unknown in it.
    pub(crate) fn put(&mut self, slot: usize, slots: usize, Levels(mut levels): Levels) {
        if levels.len() > self.0.len() {
            self.0.reserve_exact(levels.len() - self.0.len());
            self.0.resize_with(levels.len(), Trail::default);
        }
        levels.resize(self.0.len(), None);
        self.0.iter_mut().zip(levels).for_each(|(trail, level)| trail.put(slot, level, slots));
    }

    pub(crate) fn get(&self, id: SeriesId, slot: usize) -> Option<Level> {
        self.0.get(id.position())?.get(slot)
    }

    /// Its place is another's.
    pub(crate) fn forget(&mut self, id: SeriesId) {
        self.0.get_mut(id.position()).map(std::mem::take);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Kind;
    use proptest::prelude::*;

    /// Slots, of which a few are enough here.
    const SLOTS: usize = 5;

    fn level(sum: i32, max: i32) -> Level {
        Level { sum: Amount::whole(sum.into()), max: Amount::whole(max.into()) }
    }

    fn put(trails: &mut Trails, slot: usize, states: &[(SeriesId, i32)]) {
        let mut levels = Levels::default();
        for &(id, value) in states {
            let present = levels.get(id.position());
            let more = level(value, value);
            levels.set(id.position(), present.map_or(more, |present| present.merged(more)));
        }
        trails.put(slot, SLOTS, levels);
    }

    proptest! {
        /// Against a list of all that there was: of each gauge the last slots are as they were put, unknown ones included.
        #[test]
        fn the_last_slots_of_each_gauge_are_as_they_were(
            slots in prop::collection::vec(prop::collection::vec((0_u32..4, -1000_i32..1000), 0..8), 0..40),
        ) {
            let mut trails = Trails::default();
            let id = |position| SeriesId::new(Kind::Gauge, position);
            for (number, states) in slots.iter().enumerate() {
                let states: Vec<_> = states.iter().map(|&(position, value)| (id(position), value)).collect();
                put(&mut trails, number % SLOTS, &states);
                for position in 0..4 {
                    for (past, states) in slots.iter().enumerate().take(number + 1).skip((number + 1).saturating_sub(SLOTS)) {
                        let of_it = states.iter().filter(|state| state.0 == position).map(|state| state.1);
                        let wanted = of_it.clone().max().map(|max| level(of_it.sum(), max));
                        prop_assert_eq!(trails.get(id(position), past % SLOTS), wanted);
                    }
                }
            }
        }
    }

    #[test]
    fn what_nobody_has_told_for_the_whole_history_takes_no_room_and_one_rank_s_takes_half() {
        let mut trails = Trails::default();
        let [one, two] = [0, 1].map(|position| SeriesId::new(Kind::Gauge, position));
        put(&mut trails, 0, &[(one, 3), (two, 3), (two, 4)]);
        assert!(trails.0[0].maxima.is_none() && trails.0[1].maxima.is_some());
        (1..SLOTS).for_each(|slot| put(&mut trails, slot, &[]));
        assert_eq!(trails.get(two, 0), Some(level(7, 4)));
        put(&mut trails, 0, &[]);
        assert!(trails.0.iter().all(|trail| trail.sums.is_none() && trail.maxima.is_none()));
        put(&mut trails, 1, &[(one, 3)]);
        trails.forget(one);
        assert_eq!(trails.get(one, 1), None);
    }
}
