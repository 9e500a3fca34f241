//! Time, in slots of equal length.

/// Slots that a chart has at most: a screen has no more columns for them.
pub(super) const SLOTS_MAX: usize = 300;

/// A span of time and its slots.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Axis {
    /// Seconds since 1970.
    pub(super) start: f64,
    /// Of a slot, in seconds.
    pub(super) width: f64,
    pub(super) count: usize,
}

impl Axis {
    /// From `start` to `end`, in slots of `least` seconds or more.
    pub(super) fn new(start: f64, end: f64, least: f64) -> Self {
        let length = (end - start).max(least).max(1e-3);
        let width = least.max(length / SLOTS_MAX as f64);
        Axis { start, width, count: ((length / width).ceil() as usize).clamp(1, SLOTS_MAX) }
    }

    pub(super) fn end(&self) -> f64 {
        self.start + self.width * self.count as f64
    }

    /// The slot of a moment; what is outside is in the first or the last one.
    pub(super) fn slot(&self, time: f64) -> usize {
        (((time - self.start) / self.width).max(0.0) as usize).min(self.count - 1)
    }

    /// The slots that a span of time touches, and how many seconds of each it has.
    pub(super) fn parts(self, from: f64, to: f64) -> impl Iterator<Item = (usize, f64)> {
        let (from, to) = (from.max(self.start), to.min(self.end()));
        let slots = if to > from { self.slot(from)..self.slot(to) + 1 } else { 0..0 };
        slots.filter_map(move |slot| {
            let begin = self.start + self.width * slot as f64;
            let seconds = to.min(begin + self.width) - from.max(begin);
            (seconds > 0.0).then_some((slot, seconds))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_second_is_lost_or_counted_twice(
            length in 1.0..1e6, least in 0.1..100.0, from in 0.0..1.0, to in 0.0..1.0
        ) {
            let axis = Axis::new(1.7e9, 1.7e9 + length, least);
            prop_assert!(axis.count <= SLOTS_MAX && axis.width >= least && axis.end() >= 1.7e9 + length - 1e-3);
            let (from, to) = (1.7e9 + length * from, 1.7e9 + length * to);
            let parts: Vec<_> = axis.parts(from, to).collect();
            let sum: f64 = parts.iter().map(|(_, seconds)| seconds).sum();
            prop_assert!((sum - (to - from).max(0.0)).abs() < 1e-3);
            prop_assert!(parts.windows(2).all(|pair| pair[1].0 == pair[0].0 + 1));
        }
    }
}
