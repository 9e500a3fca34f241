//! What flows gained: collected by series, and sealed.

use crate::amount::Amount;
use crate::members::Members;
use crate::series::{Kind, SeriesId};
use crate::value::{Peak, Samples};
use std::borrow::Cow;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// Where flows are, to be written from there: of very many a copy may be more than there is memory for.
pub(crate) trait FlowSource {
    /// The series that gained something, each with the place of its value.
    fn places(&self, kind: Kind) -> impl Iterator<Item = (SeriesId, u32)>;
    /// What the counter at a place gained.
    fn gain(&self, place: u32) -> Gain;
    /// The samples of the timer at a place.
    fn samples(&self, place: u32) -> Cow<'_, Samples>;
    /// The members of the set at a place.
    fn members(&self, place: u32) -> Cow<'_, Members>;
}

/// What a counter gained.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Gain {
    pub(crate) amount: Amount,
    pub(crate) peak: Peak,
}

impl Gain {
    fn merge(&mut self, other: Gain) {
        self.amount = self.amount.plus(other.amount);
        self.peak.merge(other.peak);
    }
}

/// Gains by series, any number of times each: where the batches of children are merged.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    /// By position among the counters; those that gained something are in `touched`.
    counters: Vec<(Gain, bool)>,
    touched: Vec<u32>,
    timers: BTreeMap<SeriesId, Samples>,
    sets: BTreeMap<SeriesId, Members>,
}

/// Gains by series, once each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) counters: Vec<(SeriesId, Gain)>,
    pub(crate) timers: Vec<(SeriesId, Samples)>,
    pub(crate) sets: Vec<(SeriesId, Members)>,
}

impl Sealed {
    /// A copy of what is there.
    pub(crate) fn of(source: &impl FlowSource) -> Self {
        let counters = source.places(Kind::Counter).map(|(id, place)| (id, source.gain(place)));
        let timers = source.places(Kind::Timer).map(|(id, place)| (id, source.samples(place).into_owned()));
        let sets = source.places(Kind::Set).map(|(id, place)| (id, source.members(place).into_owned()));
        Sealed { counters: counters.collect(), timers: timers.collect(), sets: sets.collect() }
    }

    pub(crate) fn clear(&mut self) {
        *self = Sealed::default();
    }

    pub(crate) fn len(&self) -> usize {
        self.counters.len() + self.timers.len() + self.sets.len()
    }

    /// With each series once, in the order of identifiers, whatever it was made of.
    pub(crate) fn normalized(self) -> Sealed {
        let mut flows = Flows::default();
        flows.take_in(self);
        flows.take()
    }

    /// How much of a counter, or how many samples of a timer.
    pub(crate) fn amount(&self, id: SeriesId) -> Amount {
        let counters =
            self.counters.iter().filter(|(present, _)| *present == id).map(|(_, gain)| gain.amount);
        let timers = self.timers.iter().filter(|(present, _)| *present == id);
        let samples = timers.map(|(_, samples)| Amount::whole(i128::from(samples.count())));
        counters.chain(samples).fold(Amount::ZERO, Amount::plus)
    }

    /// The series in it.
    pub(crate) fn ids(&self) -> impl Iterator<Item = SeriesId> + '_ {
        let counters = self.counters.iter().map(|&(id, _)| id);
        counters.chain(self.timers.iter().map(|&(id, _)| id)).chain(self.sets.iter().map(|&(id, _)| id))
    }
}

impl Flows {
    pub(crate) fn is_empty(&self) -> bool {
        self.touched.is_empty() && self.timers.is_empty() && self.sets.is_empty()
    }

    /// Whether there is something of a series.
    pub(crate) fn has(&self, id: SeriesId) -> bool {
        match id.kind() {
            Kind::Counter => self.counters.get(id.position()).is_some_and(|&(_, touched)| touched),
            Kind::Timer => self.timers.contains_key(&id),
            Kind::Set => self.sets.contains_key(&id),
            Kind::Gauge => false,
        }
    }

    pub(crate) fn count(&mut self, id: SeriesId, gain: Gain) {
        debug_assert_eq!(id.kind(), Kind::Counter);
        let position = id.position();
        if position >= self.counters.len() {
            self.counters.resize_with(position + 1, Default::default);
        }
        let (sum, touched) = &mut self.counters[position];
        sum.merge(gain);
        if !*touched {
            *touched = true;
            self.touched.push(id.position() as u32);
        }
    }

    pub(crate) fn observe(&mut self, id: SeriesId, samples: &Samples) {
        self.timers.entry(id).or_default().merge(samples);
    }

    pub(crate) fn insert(&mut self, id: SeriesId, members: &Members) {
        self.sets.entry(id).or_default().merge(members);
    }

    pub(crate) fn add(&mut self, sealed: &Sealed) {
        sealed.counters.iter().for_each(|&(id, gain)| self.count(id, gain));
        sealed.timers.iter().for_each(|(id, samples)| self.observe(*id, samples));
        sealed.sets.iter().for_each(|(id, members)| self.insert(*id, members));
    }

    /// As [`Flows::add`], without a copy of what is new.
    pub(crate) fn take_in(&mut self, sealed: Sealed) {
        sealed.counters.into_iter().for_each(|(id, gain)| self.count(id, gain));
        take_all(&mut self.timers, sealed.timers, Samples::merge);
        take_all(&mut self.sets, sealed.sets, Members::merge);
    }

    /// See [`Sealed::amount`].
    pub(crate) fn amount(&self, id: SeriesId) -> Amount {
        match id.kind() {
            Kind::Counter => self.counters.get(id.position()).map_or(Amount::ZERO, |(gain, _)| gain.amount),
            _ => self.timers.get(&id).map_or(Amount::ZERO, |samples| Amount::whole(samples.count().into())),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.take();
    }

    /// All of it, in the order of identifiers.
    pub(crate) fn take(&mut self) -> Sealed {
        self.touched.sort_unstable();
        let counters = self.touched.drain(..).map(|position| {
            let (gain, touched) = &mut self.counters[position as usize];
            *touched = false;
            (SeriesId::new(Kind::Counter, position), std::mem::take(gain))
        });
        let moved = |&(_, gain): &(SeriesId, Gain)| gain != Gain::default();
        Sealed {
            counters: counters.filter(moved).collect(),
            timers: std::mem::take(&mut self.timers).into_iter().collect(),
            sets: std::mem::take(&mut self.sets).into_iter().collect(),
        }
    }
}

impl FlowSource for Sealed {
    fn places(&self, kind: Kind) -> impl Iterator<Item = (SeriesId, u32)> {
        let id = move |place: usize| match kind {
            Kind::Counter => self.counters.get(place).map(|&(id, _)| id),
            Kind::Timer => self.timers.get(place).map(|&(id, _)| id),
            Kind::Set => self.sets.get(place).map(|&(id, _)| id),
            Kind::Gauge => None,
        };
        (0..).map_while(move |place| Some((id(place as usize)?, place)))
    }

    fn gain(&self, place: u32) -> Gain {
        self.counters[place as usize].1
    }

    fn samples(&self, place: u32) -> Cow<'_, Samples> {
        Cow::Borrowed(&self.timers[place as usize].1)
    }

    fn members(&self, place: u32) -> Cow<'_, Members> {
        Cow::Borrowed(&self.sets[place as usize].1)
    }
}

fn take_all<T>(sums: &mut BTreeMap<SeriesId, T>, more: Vec<(SeriesId, T)>, merge: impl Fn(&mut T, &T)) {
    for (id, value) in more {
        match sums.entry(id) {
            Entry::Vacant(free) => drop(free.insert(value)),
            Entry::Occupied(mut sum) => merge(sum.get_mut(), &value),
        }
    }
}

/// The sum of two, by position.
pub(crate) struct Sum<'a>(pub(crate) &'a Flows, pub(crate) &'a Flows);

impl Sum<'_> {
    fn of<'a, T: Clone>(
        one: Option<&'a T>,
        other: Option<&'a T>,
        merge: impl FnOnce(&mut T, &T),
    ) -> Option<Cow<'a, T>> {
        match (one, other) {
            (Some(one), Some(other)) => {
                let mut sum = one.clone();
                merge(&mut sum, other);
                Some(Cow::Owned(sum))
            }
            (one, other) => one.or(other).map(Cow::Borrowed),
        }
    }
}

impl FlowSource for Sum<'_> {
    fn places(&self, kind: Kind) -> impl Iterator<Item = (SeriesId, u32)> {
        let ids = |flows: &Flows| -> Vec<SeriesId> {
            match kind {
                Kind::Counter => {
                    flows.touched.iter().map(|&position| SeriesId::new(kind, position)).collect()
                }
                Kind::Timer => flows.timers.keys().copied().collect(),
                Kind::Set => flows.sets.keys().copied().collect(),
                Kind::Gauge => Vec::new(),
            }
        };
        let mut all: BTreeSet<SeriesId> = ids(self.0).into_iter().collect();
        all.extend(ids(self.1));
        let all = all.into_iter().map(|id| (id, id.position() as u32));
        all.filter(move |&(_, place)| kind != Kind::Counter || self.gain(place) != Gain::default())
    }

    fn gain(&self, place: u32) -> Gain {
        let gain = |flows: &Flows| {
            let counter = flows.counters.get(place as usize).filter(|(_, touched)| *touched);
            counter.map(|&(gain, _)| gain).unwrap_or_default()
        };
        let mut sum = gain(self.0);
        sum.merge(gain(self.1));
        sum
    }

    fn samples(&self, place: u32) -> Cow<'_, Samples> {
        let id = SeriesId::new(Kind::Timer, place);
        Sum::of(self.0.timers.get(&id), self.1.timers.get(&id), Samples::merge).unwrap_or_default()
    }

    fn members(&self, place: u32) -> Cow<'_, Members> {
        let id = SeriesId::new(Kind::Set, place);
        Sum::of(self.0.sets.get(&id), self.1.sets.get(&id), Members::merge).unwrap_or_default()
    }
}
