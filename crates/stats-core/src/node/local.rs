//! What this rank itself measures.

use crate::amount::Amount;
use crate::batch::Delta;
use crate::node::Node;
use crate::series::{Key, Kind, Refused, SeriesId};
use crate::value::{Peak, Samples, States};
use std::collections::BTreeMap;

/// Since the last seal.
#[derive(Debug, Default)]
pub(crate) struct Local {
    counters: BTreeMap<SeriesId, Amount>,
    timers: BTreeMap<SeriesId, Samples>,
    gauges: BTreeMap<SeriesId, Amount>,
}

impl Local {
    pub(crate) fn take_flows(&mut self, span_ns: u64, rank: u32) -> Vec<(SeriesId, Delta)> {
        let counters = std::mem::take(&mut self.counters);
        let timers = std::mem::take(&mut self.timers);
        let counted =
            counters.into_iter().filter(|(_, amount)| *amount != Amount::ZERO).map(|(id, amount)| {
                let peak = Peak { rate: amount.per_second(span_ns), rank };
                (id, Delta::Counter(amount, peak))
            });
        counted.chain(timers.into_iter().map(|(id, samples)| (id, Delta::Timer(samples)))).collect()
    }

    pub(crate) fn clear_flows(&mut self) {
        self.counters.clear();
        self.timers.clear();
    }

    pub(crate) fn states(&self, rank: u32) -> impl Iterator<Item = (SeriesId, States)> {
        self.gauges.iter().map(move |(&id, &value)| (id, States::of(value, rank)))
    }

    pub(crate) fn counters(&self) -> impl Iterator<Item = (SeriesId, Amount)> {
        self.counters.iter().map(|(&id, &amount)| (id, amount))
    }

    pub(crate) fn timers(&self) -> impl Iterator<Item = (SeriesId, &Samples)> {
        self.timers.iter().map(|(&id, samples)| (id, samples))
    }
}

impl Node {
    /// Numbers a series. What does not fit under `max_series` is refused, and counted.
    pub fn declare(&mut self, key: Key) -> Result<SeriesId, Refused> {
        self.catalog.declare(key).inspect_err(|_| self.events.overflow += 1)
    }

    fn has_kind(&self, id: SeriesId, kind: Kind) -> bool {
        self.catalog.key(id).is_some_and(|key| key.kind() == kind)
    }

    /// Adds to a counter. On a series of another kind it does nothing.
    pub fn add(&mut self, id: SeriesId, amount: Amount) {
        if self.has_kind(id, Kind::Counter) && amount != Amount::ZERO {
            let sum = self.local.counters.entry(id).or_default();
            *sum = sum.plus(amount);
            self.totals.count(id, amount);
        }
    }

    /// Adds samples to a timer. On a series of another kind it does nothing.
    pub fn observe(&mut self, id: SeriesId, samples: &Samples) {
        if self.has_kind(id, Kind::Timer) && samples.count() > 0 {
            self.local.timers.entry(id).or_default().merge(samples);
            self.totals.observe(id, samples);
        }
    }

    /// Sets a gauge, or with `None` withdraws it. On a series of another kind it does nothing.
    pub fn set(&mut self, id: SeriesId, value: Option<Amount>) {
        if self.has_kind(id, Kind::Gauge) {
            match value {
                Some(value) => self.local.gauges.insert(id, value),
                None => self.local.gauges.remove(&id),
            };
        }
    }
}
