//! Totals of flows, their last period, and the history of all series but sets.

use crate::amount::Amount;
use crate::flows::{FlowSource, Gain, Sealed};
use crate::history::{Ring, Timeline};
use crate::members::Members;
use crate::series::{Kind, SeriesId};
use crate::trail::{Level, Levels, Trails};
use crate::value::{Peak, Samples};
use std::borrow::Cow;

/// A counter's total and its last period.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counted {
    pub(crate) total: Amount,
    /// In the period that is open.
    gained: Amount,
    gained_peak: Peak,
    /// In the last period.
    pub(crate) last: Amount,
    pub(crate) peak: Peak,
    /// In the slot of the history that is being filled.
    slot: Amount,
    pub(crate) ring: Option<Ring>,
    /// See [`Store::active_s`].
    active_s: u32,
    /// It has gone down, which a counter of statsd may.
    pub(crate) falls: bool,
    /// It is one of this store's series, and not only a place among them.
    present: bool,
}

/// A timer's total and its last period.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timed {
    pub(crate) total: Samples,
    /// Number and sum of samples in the period that is open.
    gained: (u64, Amount),
    pub(crate) last: (u64, Amount),
    slot: (u64, Amount),
    pub(crate) rings: [Option<Ring>; 2],
    active_s: u32,
    present: bool,
}

/// A set's members.
#[derive(Debug, Clone, Default)]
struct Gathered {
    total: Members,
    active_s: u32,
    present: bool,
}

/// Totals by series, what they gained in the last period, and in recent ones.
#[derive(Debug, Default)]
pub(crate) struct Store {
    counters: Vec<Counted>,
    timers: Vec<Timed>,
    sets: Vec<Gathered>,
    /// Recent states. What they are now is their ranks' to say, and is kept with those.
    gauges: Trails,
    pub(crate) timeline: Timeline,
    /// How long the last period took.
    pub(crate) last_ns: u64,
    /// When the open period began.
    since_s: u32,
}

/// Room for `more` values. It grows by a sixteenth, not by doubling: such tables are most of a root's memory.
pub(crate) fn make_room<T>(values: &mut Vec<T>, more: usize) {
    if values.len() + more > values.capacity() {
        values.reserve_exact(more + values.len() / 16);
    }
}

fn at<T: Default>(values: &mut Vec<T>, id: SeriesId) -> &mut T {
    let position = id.position();
    if position >= values.len() {
        make_room(values, position + 1 - values.len());
        values.resize_with(position + 1, Default::default);
    }
    &mut values[position]
}

impl Store {
    pub(crate) fn set_history(&mut self, history_ns: u64, period_ns: u64) {
        self.timeline = Timeline::new(history_ns, period_ns);
        self.counters.iter_mut().for_each(|counted| counted.ring = None);
        self.timers.iter_mut().for_each(|timed| timed.rings = [None, None]);
        self.gauges.clear();
    }

    pub(crate) fn counter(&self, id: SeriesId) -> Option<&Counted> {
        self.counters.get(id.position()).filter(|counted| id.kind() == Kind::Counter && counted.present)
    }

    pub(crate) fn timer(&self, id: SeriesId) -> Option<&Timed> {
        self.timers.get(id.position()).filter(|timed| id.kind() == Kind::Timer && timed.present)
    }

    pub(crate) fn set(&self, id: SeriesId) -> Option<&Members> {
        let set = self.sets.get(id.position()).filter(|set| id.kind() == Kind::Set && set.present);
        set.map(|set| &set.total)
    }

    /// When the period began in which a flow last gained something, in seconds; 0: it never did.
    pub(crate) fn active_s(&self, id: SeriesId) -> u32 {
        let active = match id.kind() {
            Kind::Counter => self.counters.get(id.position()).map(|counted| counted.active_s),
            Kind::Timer => self.timers.get(id.position()).map(|timed| timed.active_s),
            Kind::Set => self.sets.get(id.position()).map(|set| set.active_s),
            Kind::Gauge => None,
        };
        active.unwrap_or(0)
    }

    /// What a series amounts to is part of `to` from now on, which is of the same kind, and its place is another's.
    pub(crate) fn fold(&mut self, id: SeriesId, to: Option<SeriesId>) {
        fn taken<T: Default>(values: &mut [T], id: SeriesId) -> T {
            values.get_mut(id.position()).map(std::mem::take).unwrap_or_default()
        }
        match id.kind() {
            Kind::Counter => {
                let counted = taken(&mut self.counters, id);
                if let Some(to) = to.filter(|_| counted.present) {
                    self.resume(to, counted.total);
                    self.set_falls(to, counted.falls);
                }
            }
            Kind::Timer => {
                let timed = taken(&mut self.timers, id);
                to.filter(|_| timed.present).into_iter().for_each(|to| self.resume_timer(to, &timed.total));
            }
            Kind::Set => {
                let set = taken(&mut self.sets, id);
                to.filter(|_| set.present).into_iter().for_each(|to| self.insert_total(to, &set.total));
            }
            Kind::Gauge => self.gauges.forget(id),
        }
    }

    /// Has a series, of which nothing need have been gained. Gauges need no place.
    pub(crate) fn declare(&mut self, id: SeriesId) {
        match id.kind() {
            Kind::Counter => at(&mut self.counters, id).present = true,
            Kind::Timer => at(&mut self.timers, id).present = true,
            Kind::Set => at(&mut self.sets, id).present = true,
            Kind::Gauge => {}
        }
    }

    /// Goes on from a total of an earlier load.
    pub(crate) fn resume(&mut self, id: SeriesId, amount: Amount) {
        let counted = at(&mut self.counters, id);
        counted.present = true;
        counted.total = counted.total.plus(amount);
    }

    /// Whether it has gone down is remembered once it has.
    pub(crate) fn set_falls(&mut self, id: SeriesId, falls: bool) {
        at(&mut self.counters, id).falls |= falls;
    }

    pub(crate) fn resume_falls(&mut self, id: SeriesId, falls: bool) {
        if falls && id.kind() == Kind::Counter {
            self.set_falls(id, true);
        }
    }

    pub(crate) fn resume_timer(&mut self, id: SeriesId, samples: &Samples) {
        let timed = at(&mut self.timers, id);
        timed.present = true;
        timed.total.merge(samples);
    }

    fn insert_total(&mut self, id: SeriesId, members: &Members) {
        let set = at(&mut self.sets, id);
        set.present = true;
        set.total.merge(members);
    }

    pub(crate) fn count(&mut self, id: SeriesId, gain: Gain) {
        let counted = at(&mut self.counters, id);
        counted.present = true;
        counted.total = counted.total.plus(gain.amount);
        counted.falls |= gain.amount < Amount::ZERO;
        counted.gained = counted.gained.plus(gain.amount);
        counted.gained_peak.merge(gain.peak);
        counted.active_s = self.since_s;
    }

    pub(crate) fn observe(&mut self, id: SeriesId, samples: &Samples) {
        let timed = at(&mut self.timers, id);
        timed.present = true;
        timed.total.merge(samples);
        let sum = Amount::whole(i128::try_from(samples.sum()).unwrap_or(i128::MAX));
        timed.gained = (timed.gained.0.saturating_add(samples.count()), timed.gained.1.plus(sum));
        timed.active_s = self.since_s;
    }

    pub(crate) fn insert(&mut self, id: SeriesId, members: &Members) {
        self.insert_total(id, members);
        at(&mut self.sets, id).active_s = self.since_s;
    }

    /// Whether the member was new.
    pub(crate) fn insert_member(&mut self, id: SeriesId, member: &str) -> bool {
        let set = at(&mut self.sets, id);
        (set.active_s, set.present) = (self.since_s, true);
        set.total.insert(member)
    }

    pub(crate) fn add(&mut self, sealed: &Sealed) {
        sealed.counters.iter().for_each(|&(id, gain)| self.count(id, gain));
        sealed.timers.iter().for_each(|(id, samples)| self.observe(*id, samples));
        sealed.sets.iter().for_each(|(id, members)| self.insert(*id, members));
    }

    /// Says when the open period began, in seconds on the node's monotonic clock.
    pub(crate) fn set_since(&mut self, since_s: u32) {
        self.since_s = since_s;
    }

    /// The open period took `span_ns` and is the last one now; a rank's own rates are its peaks. If a slot of the history
    /// is complete with it, [`Store::keep_states`] is due.
    pub(crate) fn roll(&mut self, span_ns: u64, wall_ns: u64, own_rank: Option<u32>) -> Option<usize> {
        self.last_ns = span_ns;
        let slot = self.timeline.advance(span_ns, wall_ns);
        for counted in &mut self.counters {
            counted.last = std::mem::take(&mut counted.gained);
            counted.peak = std::mem::take(&mut counted.gained_peak);
            if let Some(rank) = own_rank {
                counted.peak = Peak::of(counted.last, span_ns, rank);
            }
            counted.slot = counted.slot.plus(counted.last);
            if let Some(slot) = slot {
                self.timeline.put(&mut counted.ring, slot, std::mem::take(&mut counted.slot));
            }
        }
        for timed in &mut self.timers {
            timed.last = std::mem::take(&mut timed.gained);
            timed.slot = (timed.slot.0.saturating_add(timed.last.0), timed.slot.1.plus(timed.last.1));
            if let Some(slot) = slot {
                let (count, sum) = std::mem::take(&mut timed.slot);
                self.timeline.put(&mut timed.rings[0], slot, Amount::whole(i128::from(count)));
                self.timeline.put(&mut timed.rings[1], slot, sum);
            }
        }
        slot
    }

    /// What the gauges are at the end of a slot; those that are not among them are unknown then.
    pub(crate) fn keep_states(&mut self, slot: usize, levels: Levels) {
        self.gauges.put(slot, self.timeline.slots(), levels);
    }

    /// What a counter gained in a slot, or how many samples a timer.
    pub(crate) fn gained(&self, id: SeriesId, slot: usize) -> Amount {
        let counter = self.counter(id).and_then(|counted| counted.ring.as_ref());
        let ring = counter.or_else(|| self.timer(id).and_then(|timed| timed.rings[0].as_ref()));
        ring.map_or(Amount::ZERO, |ring| ring.get(slot))
    }

    /// What a gauge was at the end of a slot.
    pub(crate) fn level(&self, id: SeriesId, slot: usize) -> Option<Level> {
        self.gauges.get(id, slot).filter(|_| id.kind() == Kind::Gauge)
    }

    /// Zero, for every series, with no history: a cleared series is still there.
    pub(crate) fn clear(&mut self) {
        self.counters.iter_mut().for_each(|one| {
            *one = Counted {
                active_s: one.active_s,
                falls: one.falls,
                present: one.present,
                ..Counted::default()
            }
        });
        self.timers.iter_mut().for_each(|one| {
            *one = Timed { active_s: one.active_s, present: one.present, ..Timed::default() }
        });
        self.sets.iter_mut().for_each(|one| one.total = Members::default());
        self.gauges.clear();
        self.timeline.clear();
    }
}

/// Totals that are not zero.
impl FlowSource for Store {
    fn places(&self, kind: Kind) -> impl Iterator<Item = (SeriesId, u32)> {
        let count = match kind {
            Kind::Counter => self.counters.len(),
            Kind::Timer => self.timers.len(),
            Kind::Set => self.sets.len(),
            Kind::Gauge => 0,
        };
        let is_some = move |place: &usize| match kind {
            Kind::Counter => self.counters[*place].total != Amount::ZERO,
            Kind::Timer => self.timers[*place].total.count() > 0,
            Kind::Set => !self.sets[*place].total.is_empty(),
            Kind::Gauge => false,
        };
        let place = move |place: usize| (SeriesId::new(kind, place as u32), place as u32);
        (0..count).filter(is_some).map(place)
    }

    fn gain(&self, place: u32) -> Gain {
        Gain { amount: self.counters[place as usize].total, peak: Peak::default() }
    }

    fn samples(&self, place: u32) -> Cow<'_, Samples> {
        Cow::Borrowed(&self.timers[place as usize].total)
    }

    fn members(&self, place: u32) -> Cow<'_, Members> {
        Cow::Borrowed(&self.sets[place as usize].total)
    }
}
