//! What one series has gained since the last push: plain cells, of one thread.

use stats_core::{Amount, Members, Pushed, Samples, bucket};
use std::cell::{Cell, RefCell};
use std::time::Instant;

/// A counter's gain.
#[derive(Debug, Default)]
pub(crate) struct CounterCell {
    gained: Cell<i64>,
    /// What did not fit.
    carried: Cell<i128>,
}

impl CounterCell {
    #[inline]
    pub(crate) fn add(&self, n: i64) {
        match self.gained.get().checked_add(n) {
            Some(sum) => self.gained.set(sum),
            None => self.carry(n),
        }
    }

    #[cold]
    fn carry(&self, n: i64) {
        self.carried.set(self.carried.get() + i128::from(self.gained.replace(n)));
    }

    fn take(&self) -> Option<Pushed> {
        let gained = self.carried.take() + i128::from(self.gained.take());
        (gained != 0).then_some(Pushed::Count(Amount::whole(gained)))
    }
}

/// What a gauge was set to or changed by.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum Change {
    #[default]
    None,
    Set(f64),
    Add(f64),
}

/// A gauge's change.
#[derive(Debug, Default)]
pub(crate) struct GaugeCell {
    change: Cell<Change>,
    /// When it was last pushed, and whether it was ever set (rather than changed only), with its value.
    pushed: Cell<Option<Instant>>,
    last_set: Cell<Option<f64>>,
}

impl GaugeCell {
    pub(crate) fn set(&self, value: f64) {
        self.change.set(Change::Set(value));
    }

    pub(crate) fn add(&self, by: f64) {
        self.change.set(match self.change.get() {
            Change::None => Change::Add(by),
            Change::Set(value) => Change::Set(value + by),
            Change::Add(before) => Change::Add(before + by),
        });
    }

    /// `stale`: what was pushed before this is about to expire, and is pushed once more.
    fn take(&self, now: Instant, stale: Option<Instant>) -> Option<Pushed> {
        let due = stale.zip(self.pushed.get()).is_some_and(|(stale, pushed)| pushed <= stale);
        // Sums of finite numbers may not be: those are nothing.
        let pushed = match self.change.take() {
            // A gauge that is set to what it is has not changed.
            Change::Set(value) if self.last_set.get() != Some(value) => {
                self.last_set.set(Some(value));
                Pushed::Set(Amount::nearest(value)?)
            }
            Change::Add(by) if by != 0.0 => {
                self.last_set.set(self.last_set.get().map(|before| before + by));
                Pushed::Add(Amount::nearest(by)?)
            }
            // Nobody but this handle may have set it since: what it set is set again, else its time alone begins anew.
            _ if due => match self.last_set.get() {
                Some(value) => Pushed::Set(Amount::nearest(value)?),
                None => Pushed::Add(Amount::ZERO),
            },
            _ => return None,
        };
        self.pushed.set(Some(now));
        Some(pushed)
    }
}

/// Samples kept as they come before they are counted.
const RING: usize = 64;

/// A timer's or a histogram's samples: nanoseconds, or millionths.
#[derive(Debug)]
pub(crate) struct SamplesCell {
    ring: Box<[Cell<u64>; RING]>,
    held: Cell<usize>,
    counted: RefCell<Counted>,
}

impl Default for SamplesCell {
    fn default() -> Self {
        SamplesCell {
            ring: Box::new([const { Cell::new(0) }; RING]),
            held: Cell::new(0),
            counted: RefCell::default(),
        }
    }
}

impl SamplesCell {
    /// Samples are counted many at once: what each costs then is a few instructions in a row.
    #[inline]
    pub(crate) fn record(&self, sample: u64) {
        let held = self.held.get();
        self.ring[held % RING].set(sample);
        self.held.set(held + 1);
        if held + 1 == RING {
            self.count();
        }
    }

    #[inline(never)]
    fn count(&self) {
        let held = self.held.take();
        self.counted.borrow_mut().add(&self.ring[..held.min(RING)]);
    }

    fn take(&self) -> Option<Pushed> {
        self.count();
        self.counted.take().into_samples().map(Pushed::Samples)
    }
}

/// Samples by bucket, and their sums.
#[derive(Debug, Default)]
struct Counted {
    /// The bucket of the first count.
    first: usize,
    counts: Vec<u64>,
    sum: u128,
    squares: u128,
    /// Meaningless while there are none.
    ends: (u64, u64),
}

/// Squares of so many samples below this add up in 128 bits.
const SQUARES_ADD_UP_BELOW: u64 = 1 << (64 - RING.ilog2() / 2 - 1);

impl Counted {
    fn add(&mut self, ring: &[Cell<u64>]) {
        let Some(first) = ring.first() else { return };
        let (mut min, mut max) = if self.counts.is_empty() { (first.get(), first.get()) } else { self.ends };
        // Sums of these alone: they are not checked one by one.
        let (mut sum, mut squares) = (0_u128, 0_u128);
        for cell in ring {
            let sample = cell.get();
            (min, max) = (min.min(sample), max.max(sample));
            sum += u128::from(sample);
            squares = squares.wrapping_add(u128::from(sample) * u128::from(sample));
            let at = bucket(sample);
            match self.counts.get_mut(at.wrapping_sub(self.first)) {
                Some(count) => *count += 1,
                None => self.reach(at),
            }
        }
        if max >= SQUARES_ADD_UP_BELOW {
            let square = |cell: &Cell<u64>| u128::from(cell.get()) * u128::from(cell.get());
            squares = ring.iter().map(square).fold(0, u128::saturating_add);
        }
        self.ends = (min, max);
        self.sum = self.sum.saturating_add(sum);
        self.squares = self.squares.saturating_add(squares);
    }

    /// Makes room for a bucket, and counts one in it.
    #[cold]
    fn reach(&mut self, bucket: usize) {
        if self.counts.is_empty() {
            self.first = bucket;
        }
        if bucket < self.first {
            self.counts.splice(0..0, std::iter::repeat_n(0, self.first - bucket));
            self.first = bucket;
        }
        let at = bucket - self.first;
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
    }

    fn into_samples(self) -> Option<Samples> {
        let buckets = self.counts.iter().enumerate().filter(|(_, times)| **times > 0);
        let buckets: Vec<_> = buckets.map(|(offset, &times)| (self.first + offset, times)).collect();
        Samples::from_buckets(&buckets, (self.sum, self.squares), self.ends)
    }
}

/// The members that a set was given.
#[derive(Debug, Default)]
pub(crate) struct SetCell(RefCell<Members>);

impl SetCell {
    pub(crate) fn insert(&self, member: &str) {
        self.0.borrow_mut().insert(member);
    }

    fn take(&self) -> Option<Pushed> {
        let members = self.0.take();
        (!members.is_empty()).then_some(Pushed::Members(members))
    }
}

/// Any of them.
#[derive(Debug, Clone)]
pub(crate) enum Slot {
    Counter(std::rc::Rc<CounterCell>),
    Gauge(std::rc::Rc<GaugeCell>),
    Samples(std::rc::Rc<SamplesCell>),
    Set(std::rc::Rc<SetCell>),
}

impl Slot {
    /// What it gained; `None`: nothing. See [`GaugeCell::take`] for `stale`.
    pub(crate) fn take(&self, now: Instant, stale: Option<Instant>) -> Option<Pushed> {
        match self {
            Slot::Counter(cell) => cell.take(),
            Slot::Gauge(cell) => cell.take(now, stale),
            Slot::Samples(cell) => cell.take(),
            Slot::Set(cell) => cell.take(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn amount(value: f64) -> Amount {
        Amount::nearest(value).unwrap()
    }

    #[test]
    fn a_counter_is_exact_beyond_64_bits() {
        let cell = CounterCell::default();
        (0..5).for_each(|_| cell.add(i64::MAX));
        cell.add(-7);
        assert_eq!(cell.take(), Some(Pushed::Count(Amount::whole(5 * i128::from(i64::MAX) - 7))));
        assert_eq!(cell.take(), None);
        (0..3).for_each(|_| cell.add(i64::MIN));
        assert_eq!(cell.take(), Some(Pushed::Count(Amount::whole(3 * i128::from(i64::MIN)))));
    }

    #[test]
    fn a_gauge_says_what_it_is_or_what_it_has_changed_by() {
        let (cell, now) = (GaugeCell::default(), Instant::now());
        let take = || cell.take(now, None);
        assert_eq!(take(), None);
        cell.add(2.0);
        cell.add(-0.5);
        assert_eq!(take(), Some(Pushed::Add(amount(1.5))));
        cell.set(7.0);
        cell.add(1.0);
        assert_eq!(take(), Some(Pushed::Set(amount(8.0))));
        cell.set(8.0);
        assert_eq!(take(), None, "it has not changed");
        cell.add(1.0);
        cell.add(-1.0);
        assert_eq!(take(), None);
    }

    #[test]
    fn a_gauge_about_to_expire_is_said_again() {
        let (cell, start) = (GaugeCell::default(), Instant::now());
        let later = start + Duration::from_secs(60);
        assert_eq!(cell.take(later, Some(later)), None, "it was never pushed");
        cell.set(3.0);
        assert_eq!(cell.take(start, None), Some(Pushed::Set(amount(3.0))));
        assert_eq!(cell.take(later, Some(start)), Some(Pushed::Set(amount(3.0))));
        assert_eq!(cell.take(later, Some(start)), None);
        let changed = GaugeCell::default();
        changed.add(1.0);
        assert_eq!(changed.take(start, None), Some(Pushed::Add(amount(1.0))));
        assert_eq!(changed.take(later, Some(start)), Some(Pushed::Add(amount(0.0))));
    }

    proptest! {
        #[test]
        fn every_sample_is_kept(samples in proptest::collection::vec((0_u32..64, any::<u64>()), 0..400)) {
            let (cell, mut wanted) = (SamplesCell::default(), Samples::default());
            for (shift, sample) in samples {
                cell.record(sample >> shift);
                wanted.add(sample >> shift, 1);
            }
            let found = cell.take();
            prop_assert_eq!(found, (wanted.count() > 0).then_some(Pushed::Samples(wanted)));
            prop_assert_eq!(cell.take(), None);
        }
    }
}
