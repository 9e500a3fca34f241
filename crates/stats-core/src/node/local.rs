//! What this rank itself measures.

use crate::amount::Amount;
use crate::flows::Gain;
use crate::members::Members;
use crate::node::Node;
use crate::series::{Key, Kind, Refused, SeriesId};
use crate::value::{Peak, Samples};

impl Node {
    /// Makes room for a series, or finds it. What does not fit under `max_series` is refused, and counted; what is beyond a
    /// guest's own quota is refused.
    pub fn declare(&mut self, key: Key) -> Result<SeriesId, Refused> {
        let no_room = |refused: &Refused| matches!(refused, Refused::Full(_) | Refused::Share(_));
        let id =
            self.catalog.declare(key).inspect_err(|why| self.events.overflow += u64::from(no_room(why)))?;
        self.own.declare(id);
        Ok(id)
    }

    /// How many series each guest may have in the whole subtree, see [`GUESTS`](crate::GUESTS).
    pub fn set_guest_series(&mut self, guest_series: usize) {
        self.catalog.set_guest_series(guest_series);
    }

    /// The identifier of a series that has been declared, here or by a rank below.
    pub fn find(&self, key: &Key) -> Option<SeriesId> {
        self.catalog.find(key)
    }

    /// Adds to a counter. On a series of another kind it does nothing.
    pub fn add(&mut self, id: SeriesId, amount: Amount) {
        if self.catalog.has(id, Kind::Counter) && amount != Amount::ZERO {
            let gain = Gain { amount, peak: Peak::default() };
            self.own.count(id, gain);
            self.unsealed.count(id, gain);
        }
    }

    /// Adds samples to a timer. On a series of another kind it does nothing.
    pub fn observe(&mut self, id: SeriesId, samples: &Samples) {
        if self.catalog.has(id, Kind::Timer) && samples.count() > 0 {
            self.own.observe(id, samples);
            self.unsealed.observe(id, samples);
        }
    }

    /// Sets a gauge, or with `None` withdraws it. On a series of another kind it does nothing.
    pub fn set(&mut self, id: SeriesId, value: Option<Amount>) {
        if self.catalog.has(id, Kind::Gauge) {
            self.gauge_times.remove(&id);
            match value {
                Some(value) => self.gauges.insert(id, value),
                None => self.gauges.remove(&id),
            };
        }
    }

    /// Sets a gauge that has come to its value at a known time: seconds since 1970.
    pub fn set_since(&mut self, id: SeriesId, value: Amount, time_s: u64) {
        self.set(id, Some(value));
        if self.gauges.contains_key(&id) {
            self.gauge_times.insert(id, time_s);
        }
    }

    /// Puts members into a set. On a series of another kind it does nothing.
    pub fn insert_all(&mut self, id: SeriesId, members: &Members) {
        if self.catalog.has(id, Kind::Set) && !members.is_empty() {
            self.own.insert(id, members);
            self.unsealed.insert(id, members);
        }
    }

    /// This rank's own value of a gauge.
    pub fn gauge(&self, id: SeriesId) -> Option<Amount> {
        self.gauges.get(&id).copied()
    }

    /// Puts a member into a set. On a series of another kind it does nothing.
    pub fn insert(&mut self, id: SeriesId, member: &str) {
        if self.catalog.has(id, Kind::Set) && self.own.insert_member(id, member) {
            let mut members = Members::default();
            members.insert(member);
            self.unsealed.insert(id, &members);
        }
    }
}
