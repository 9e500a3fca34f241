//! Times one reactor by its own prepare and check watchers: for module authors, without any hook.
//!
//! This crate does not know Flux: the caller creates the two watchers and calls [`Instrument::prepare`] and
//! [`Instrument::check`] from their callbacks. Give the check watcher the highest priority (2), so that it
//! runs before other watchers' work; prepare watchers that run after ours count as sleep. Dearer than the
//! hook, by two calls of watchers a turn, and blind for nested waits: they are work here.

use std::sync::atomic::Ordering::*;

use crate::clock::{self, Clock, Scale};
use crate::histogram::WorkHistogram;
use crate::slots::Slot;

/// How long the counter is calibrated.
const CALIBRATION: std::time::Duration = std::time::Duration::from_millis(2);

/// What one reactor has done since the instrument was made. Times in ns.
#[derive(Debug, Clone, PartialEq)]
pub struct ReactorSample {
    /// Turns.
    pub wakeups: u64,
    /// Time between a check and the next prepare, until now.
    pub work_ns: u64,
    /// Time between a prepare and the next check, until now.
    pub sleep_ns: u64,
    /// The longest work of one turn.
    pub longest_work_ns: u64,
    /// Work per turn.
    pub work: WorkHistogram,
}

/// The account of one reactor, kept by its own thread.
pub struct Instrument {
    slot: Box<Slot>,
    scale: Scale,
}

impl Instrument {
    /// Starts the account: the reactor is working now.
    pub fn new() -> Self {
        let scale = Scale::calibrate(clock::use_counter(Clock::Auto), CALIBRATION);
        let slot = Slot::boxed();
        slot.become_known(1, scale.now());
        Self { slot, scale }
    }

    /// The reactor is about to wait. To be called from a prepare watcher.
    #[inline]
    pub fn prepare(&mut self) {
        self.slot.any_work_to_sleep(self.scale.now(), self.scale.per_tick());
    }

    /// The reactor has waited. To be called from a check watcher.
    #[inline]
    pub fn check(&mut self) {
        if self.slot.is_sleeping() {
            self.slot.sleep_to_work(self.scale.now());
        }
    }

    /// The account until now. Work and sleep add up to the time since [`Instrument::new`].
    pub fn sample(&mut self) -> ReactorSample {
        let snapshot = self.slot.read();
        let now = self.scale.now();
        let ns = |ticks: u64| clock::to_ns(ticks as i64, self.scale.per_tick()).max(0) as u64;
        let [work, sleep, _] = snapshot.at(now);
        let mut histogram = WorkHistogram::default();
        for (index, count) in self.slot.histogram.iter().enumerate() {
            histogram.add(index, u64::from(count.load(Relaxed)));
        }
        ReactorSample {
            wakeups: snapshot.wakeups,
            work_ns: ns(work),
            sleep_ns: ns(sleep),
            longest_work_ns: ns(snapshot.longest),
            work: histogram,
        }
    }
}

impl Default for Instrument {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Instrument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instrument").field("turns", &self.slot.read().wakeups).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn turns_are_counted_and_work_and_sleep_add_up_to_the_time_passed() {
        let start = Instant::now();
        let mut instrument = Instrument::new();
        let (made, pause) = (start.elapsed(), Duration::from_millis(3));
        instrument.check();
        for _ in 0..10 {
            std::thread::sleep(pause);
            instrument.prepare();
            std::thread::sleep(pause);
            instrument.check();
        }
        let least = start.elapsed() - made;
        let sample = instrument.sample();
        let most = start.elapsed();
        assert_eq!((sample.wakeups, sample.work.count()), (10, 10));
        assert!(sample.longest_work_ns >= 3_000_000 && sample.sleep_ns >= 30_000_000, "{sample:?}");
        let sum = Duration::from_nanos(sample.work_ns + sample.sleep_ns);
        assert!(least.mul_f64(0.999) <= sum && sum <= most.mul_f64(1.001), "{least:?} {sum:?} {most:?}");
    }
}
