//! What a subtree gained in all, and in the last period.

use crate::amount::Amount;
use crate::batch::Delta;
use crate::series::SeriesId;
use crate::value::{Peak, Samples};
use std::collections::BTreeMap;

/// A counter's total and its last period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) total: Amount,
    /// In the period that is open.
    gained: Amount,
    gained_peak: Peak,
    /// Per second, in the last period.
    pub(crate) rate: Amount,
    pub(crate) peak: Peak,
}

/// A timer's total and its last period.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Timed {
    pub(crate) total: Samples,
    gained: u64,
    /// Samples a second, in the last period.
    pub(crate) rate: Amount,
}

#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) counters: BTreeMap<SeriesId, Counted>,
    pub(crate) timers: BTreeMap<SeriesId, Timed>,
}

impl Totals {
    /// Goes on from totals of an earlier load.
    pub(crate) fn resume_counter(&mut self, id: SeriesId, total: Amount) {
        self.counters.insert(id, Counted { total, ..Counted::default() });
    }

    /// Goes on from totals of an earlier load.
    pub(crate) fn resume_timer(&mut self, id: SeriesId, total: Samples) {
        self.timers.insert(id, Timed { total, ..Timed::default() });
    }

    pub(crate) fn count(&mut self, id: SeriesId, amount: Amount) {
        let counted = self.counters.entry(id).or_default();
        counted.total = counted.total.plus(amount);
        counted.gained = counted.gained.plus(amount);
    }

    pub(crate) fn observe(&mut self, id: SeriesId, samples: &Samples) {
        let timed = self.timers.entry(id).or_default();
        timed.total.merge(samples);
        timed.gained = timed.gained.saturating_add(samples.count());
    }

    pub(crate) fn merge(&mut self, id: SeriesId, delta: &Delta) {
        match delta {
            Delta::Counter(amount, _) => self.count(id, *amount),
            Delta::Timer(samples) => self.observe(id, samples),
        }
        self.peak(id, delta);
    }

    /// The rate of one rank, or the highest of several.
    pub(crate) fn peak(&mut self, id: SeriesId, delta: &Delta) {
        if let Delta::Counter(_, peak) = delta {
            self.counters.entry(id).or_default().gained_peak.merge(*peak);
        }
    }

    /// The open period took `span_ns` and is the last one now.
    pub(crate) fn roll(&mut self, span_ns: u64) {
        for counted in self.counters.values_mut() {
            counted.rate = std::mem::take(&mut counted.gained).per_second(span_ns);
            counted.peak = std::mem::take(&mut counted.gained_peak);
        }
        for timed in self.timers.values_mut() {
            timed.rate = Amount::whole(i128::from(std::mem::take(&mut timed.gained))).per_second(span_ns);
        }
    }

    /// Zero, for every series: a cleared series is still there.
    pub(crate) fn clear(&mut self) {
        self.counters.values_mut().for_each(|counted| *counted = Counted::default());
        self.timers.values_mut().for_each(|timed| *timed = Timed::default());
    }
}
