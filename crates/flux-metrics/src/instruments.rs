//! What a hot path holds: one series each, found once.

use crate::aggregator::Aggregator;
use crate::cells::{CounterCell, GaugeCell, SamplesCell, SetCell};
use stats_core::Unit;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Counts.
#[derive(Clone)]
pub struct Counter {
    pub(crate) cell: Rc<CounterCell>,
    pub(crate) aggregator: Rc<Aggregator>,
}

impl Counter {
    /// Adds `n`, which may be negative.
    #[inline]
    pub fn add(&self, n: i64) {
        self.cell.add(n);
        self.aggregator.tick();
    }
}

/// Has a value.
#[derive(Clone)]
pub struct Gauge {
    pub(crate) cell: Rc<GaugeCell>,
    pub(crate) aggregator: Rc<Aggregator>,
}

impl Gauge {
    /// Sets it. What is not finite is dropped, and counted as such.
    #[inline]
    pub fn set(&self, value: f64) {
        if value.is_finite() {
            self.cell.set(value)
        } else {
            self.aggregator.drop_value()
        }
        self.aggregator.tick();
    }

    /// Changes it, whoever set it on this rank. What is not finite is dropped, and counted as such.
    #[inline]
    pub fn add(&self, by: f64) {
        if by.is_finite() {
            self.cell.add(by)
        } else {
            self.aggregator.drop_value()
        }
        self.aggregator.tick();
    }
}

/// Takes durations: their number, sum, extremes and distribution.
#[derive(Clone)]
pub struct Timer {
    pub(crate) cell: Rc<SamplesCell>,
    pub(crate) aggregator: Rc<Aggregator>,
}

impl Timer {
    /// Records one.
    #[inline]
    pub fn record(&self, duration: Duration) {
        // 584 years fit.
        self.record_ns(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Records one, in nanoseconds.
    #[inline]
    pub fn record_ns(&self, duration_ns: u64) {
        self.cell.record(duration_ns);
        self.aggregator.tick();
    }

    /// Records one, in seconds. What is negative or not finite is dropped, and counted as such.
    #[inline]
    pub fn record_s(&self, seconds: f64) {
        match Duration::try_from_secs_f64(seconds) {
            Ok(duration) => self.record(duration),
            Err(_) => self.aggregator.drop_value(),
        }
    }

    /// Times what follows, until what is returned is dropped.
    pub fn start(&self) -> Timing<'_> {
        Timing { timer: self, start: Instant::now() }
    }

    /// Times `body`.
    pub fn time<R>(&self, body: impl FnOnce() -> R) -> R {
        let _timing = self.start();
        body()
    }
}

/// A duration being measured; recorded when it is dropped.
#[must_use = "dropped at once, it times nothing"]
pub struct Timing<'a> {
    timer: &'a Timer,
    start: Instant,
}

impl Timing<'_> {
    /// Forgets it: nothing is recorded.
    pub fn cancel(self) {
        std::mem::forget(self);
    }
}

impl Drop for Timing<'_> {
    fn drop(&mut self) {
        self.timer.record(self.start.elapsed());
    }
}

/// Takes numbers that are no durations, such as bytes: their number, sum, extremes and distribution.
#[derive(Clone)]
pub struct Histogram {
    pub(crate) cell: Rc<SamplesCell>,
    pub(crate) aggregator: Rc<Aggregator>,
}

impl Histogram {
    /// Whether it can be recorded.
    pub fn takes(sample: f64) -> bool {
        Unit::Millionths.parts(sample).is_some()
    }

    /// Records one, kept to a millionth. What is negative, not finite, or above 9 × 10^12 is dropped, and counted as
    /// such.
    #[inline]
    pub fn record(&self, sample: f64) {
        match Unit::Millionths.parts(sample) {
            Some(millionths) => self.cell.record(millionths),
            None => self.aggregator.drop_value(),
        }
        self.aggregator.tick();
    }
}

/// Counts distinct members.
#[derive(Clone)]
pub struct Set {
    pub(crate) cell: Rc<SetCell>,
    pub(crate) aggregator: Rc<Aggregator>,
}

impl Set {
    /// Puts a member in.
    #[inline]
    pub fn insert(&self, member: &str) {
        self.cell.insert(member);
        self.aggregator.tick();
    }
}
