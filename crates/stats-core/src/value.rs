//! The values of series and the laws by which they merge. Flows add: merging is associative and commutative and has
//! an identity, to the byte, since everything inside is an integer. States are replaced; what a subtree's states are
//! merged to follows the same laws.

use crate::amount::Amount;
use crate::history::{code, decode};
use crate::sketch::{BUCKETS, Sketch, bucket};
use crate::wire::{DecodeError, Reader, Writer};

/// Samples: how many, their sum and sum of squares, the extremes, and the distribution. Samples are whole numbers of
/// the series' unit (nanoseconds, say).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Samples {
    count: u64,
    sum: u128,
    sum_of_squares: u128,
    /// Meaningless while there are none.
    min: u64,
    max: u64,
    sketch: Sketch,
}

impl Samples {
    /// Counts `sample` `times` times.
    pub fn add(&mut self, sample: u64, times: u64) {
        if times == 0 {
            return;
        }
        self.extremes(self.count == 0, sample, sample);
        let (sample_wide, times_wide) = (u128::from(sample), u128::from(times));
        self.count = self.count.saturating_add(times);
        self.sum = self.sum.saturating_add(sample_wide.saturating_mul(times_wide));
        let square = sample_wide.saturating_mul(sample_wide);
        self.sum_of_squares = self.sum_of_squares.saturating_add(square.saturating_mul(times_wide));
        self.sketch.add(sample, times);
    }

    /// What was counted elsewhere, by the same buckets (of which each is named once). `None`: it contradicts itself.
    pub fn from_buckets(
        buckets: &[(usize, u64)],
        sums: (u128, u128),
        (min, max): (u64, u64),
    ) -> Option<Self> {
        let mut sketch = Sketch::default();
        let mut count = 0_u64;
        for &(at, times) in buckets {
            count = count.checked_add(times).filter(|_| at < BUCKETS && times > 0)?;
            sketch.add_to(at, times);
        }
        let ends = [buckets.iter().map(|&(at, _)| at).min()?, buckets.iter().map(|&(at, _)| at).max()?];
        let (sum, sum_of_squares) = sums;
        let (many, low, high) = (u128::from(count), u128::from(min), u128::from(max));
        let within = |sum: u128, low: u128, high: u128| {
            many.saturating_mul(low) <= sum && sum <= many.saturating_mul(high)
        };
        let sound = ends == [bucket(min), bucket(max)]
            && sketch.entries().count() == buckets.len()
            && within(sum, low, high)
            && within(sum_of_squares, low * low, high * high);
        sound.then_some(Samples { count, sum, sum_of_squares, min, max, sketch })
    }

    /// The counts by [`bucket`], ascending.
    pub fn buckets(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.sketch.entries()
    }

    /// The sum of their squares.
    pub fn sum_of_squares(&self) -> u128 {
        self.sum_of_squares
    }

    fn extremes(&mut self, first: bool, min: u64, max: u64) {
        self.min = if first { min } else { self.min.min(min) };
        self.max = if first { max } else { self.max.max(max) };
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Samples) {
        if other.count == 0 {
            return;
        }
        self.extremes(self.count == 0, other.min, other.max);
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        self.sum_of_squares = self.sum_of_squares.saturating_add(other.sum_of_squares);
        self.sketch.merge(&other.sketch);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The least and the greatest; `None` when there are none.
    pub fn range(&self) -> Option<(u64, u64)> {
        (self.count > 0).then_some((self.min, self.max))
    }

    /// See [`Sketch::quantile`], held between the extremes, which are exact.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        Some(self.sketch.quantile(q)?.clamp(self.min as f64, self.max as f64))
    }

    /// Their standard deviation; `None` when there are none.
    pub fn deviation(&self) -> Option<f64> {
        let (count, sum) = (self.count as f64, self.sum as f64);
        let mean = sum / count;
        (self.count > 0).then(|| (self.sum_of_squares as f64 / count - mean * mean).max(0.0).sqrt())
    }

    /// The number of samples follows from the sketch.
    pub(crate) fn encode(&self, out: &mut Writer) {
        self.sketch.encode(out);
        if self.count > 0 {
            out.wide(self.sum);
            out.wide(self.sum_of_squares);
            out.uint(self.min);
            out.uint(self.max - self.min);
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let sketch = Sketch::decode(from)?;
        let count = sketch.count();
        if count == 0 {
            return Ok(Samples::default());
        }
        let (sum, sum_of_squares, min) = (from.wide()?, from.wide()?, from.uint()?);
        let max = min.checked_add(from.uint()?).ok_or(DecodeError::Malformed("extreme beyond 64 bits"))?;
        Ok(Samples { count, sum, sum_of_squares, min, max, sketch })
    }
}

/// The highest rate of a flow among ranks in one period, and whose it is. A state beside the flow: what is merged is
/// the greater, never a sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Peak {
    /// Per second, as [`crate::history::code`] keeps it; zero: there is none.
    rate: u32,
    rank: u32,
}

impl Peak {
    /// One rank's. A flow that went down has no peak.
    pub(crate) fn of(gained: Amount, span_ns: u64, rank: u32) -> Self {
        if gained <= Amount::ZERO || span_ns == 0 {
            return Peak::default();
        }
        // A double is far more precise than what is kept, and on every machine the same.
        let parts = (gained.parts() as f64 * (1e9 / span_ns as f64)) as u64;
        // Rounding may make it whole, which has a shorter code: what is kept is the code of what it stands for.
        let rate = code(decode(code(Amount::from_parts(i128::from(parts)))));
        if rate == 0 { Peak::default() } else { Peak { rate, rank } }
    }

    pub(crate) fn rate(self) -> Amount {
        decode(self.rate)
    }

    pub(crate) fn rank(self) -> Option<u32> {
        (self.rate != 0).then_some(self.rank)
    }

    /// Of two with the same rate the lower rank stays.
    pub(crate) fn merge(&mut self, other: Peak) {
        if other.rate == 0 {
            return;
        }
        let order =
            if self.rate == other.rate { self.rank.cmp(&other.rank) } else { other.rate().cmp(&self.rate()) };
        if self.rate == 0 || order.is_gt() {
            *self = other;
        }
    }

    /// Three bytes, and the rank as its distance from the one before.
    pub(crate) fn encode(self, before: &mut u32, out: &mut Writer) {
        self.rate.to_le_bytes()[..3].iter().for_each(|&byte| out.byte(byte));
        if self.rate != 0 {
            out.signed(i128::from(self.rank) - i128::from(*before));
            *before = self.rank;
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>, before: &mut u32) -> Result<Self, DecodeError> {
        let rate = (0..3).try_fold(0, |rate, byte| Ok(rate | (u32::from(from.byte()?) << (8 * byte))))?;
        if rate == 0 {
            return Ok(Peak::default());
        }
        if decode(rate) <= Amount::ZERO || code(decode(rate)) != rate {
            return Err(DecodeError::Malformed("peak that is none"));
        }
        let rank = i128::from(*before).checked_add(from.signed()?).and_then(|rank| u32::try_from(rank).ok());
        *before = rank.ok_or(DecodeError::Malformed("peak of no rank"))?;
        Ok(Peak { rate, rank: *before })
    }
}

/// The states of one series on several ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct States {
    /// How many ranks.
    pub count: u64,
    /// Their sum.
    pub sum: Amount,
    /// The least, and its rank.
    pub min: (Amount, u32),
    /// The greatest, and its rank; of two equal ones the lower.
    pub max: (Amount, u32),
    /// When the greatest came about, where its rank says so: seconds since 1970. 0: unknown.
    pub max_time_s: u64,
}

impl States {
    /// One rank's state.
    pub fn of(value: Amount, rank: u32) -> Self {
        States { count: 1, sum: value, min: (value, rank), max: (value, rank), max_time_s: 0 }
    }

    /// With the time at which it came about.
    pub(crate) fn since(self, time_s: u64) -> Self {
        States { max_time_s: time_s, ..self }
    }

    /// These and `other`'s.
    pub fn merged(self, other: States) -> Self {
        let order = |s: &States| (s.max.0, std::cmp::Reverse(s.max.1), s.max_time_s);
        let greater = if order(&other) > order(&self) { other } else { self };
        States {
            count: self.count.saturating_add(other.count),
            sum: self.sum.plus(other.sum),
            min: self.min.min(other.min),
            max: greater.max,
            max_time_s: greater.max_time_s,
        }
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.uint(self.count);
        self.max.0.encode(out);
        out.uint(u64::from(self.max.1));
        out.uint(self.max_time_s);
        if self.count > 1 {
            self.sum.encode(out);
            self.min.0.encode(out);
            out.uint(u64::from(self.min.1));
        }
    }

    /// `None`: there are none any more.
    pub(crate) fn decode_change(from: &mut Reader<'_>) -> Result<Option<Self>, DecodeError> {
        let count = from.uint()?;
        if count == 0 {
            return Ok(None);
        }
        let max = (Amount::decode(from)?, from.u32()?);
        let max_time_s = from.uint()?;
        if count == 1 {
            return Ok(Some(States::of(max.0, max.1).since(max_time_s)));
        }
        let (sum, min) = (Amount::decode(from)?, (Amount::decode(from)?, from.u32()?));
        Ok(Some(States { count, sum, min, max, max_time_s }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn samples() -> impl Strategy<Value = Samples> {
        proptest::collection::vec((any::<u32>(), 1_u64..5), 0..20).prop_map(|pairs| {
            let mut samples = Samples::default();
            pairs.into_iter().for_each(|(sample, times)| samples.add(u64::from(sample), times));
            samples
        })
    }

    fn states() -> impl Strategy<Value = States> {
        (-2_i128..3, 0_u32..3, 0_u64..3)
            .prop_map(|(value, rank, time_s)| States::of(Amount::whole(value), rank).since(time_s))
    }

    fn bytes(samples: &Samples) -> Vec<u8> {
        let mut out = Writer::new();
        samples.encode(&mut out);
        out.into_bytes()
    }

    #[test]
    fn samples_counted_elsewhere_must_agree_with_themselves() {
        let whole = |buckets: &[(usize, u64)], sums, ends| Samples::from_buckets(buckets, sums, ends);
        let mut samples = Samples::default();
        [3, 3, 1000].iter().for_each(|&sample| samples.add(sample, 1));
        let at = [(3, 2), (bucket(1000), 1)];
        assert_eq!(whole(&at, (1006, 1_000_018), (3, 1000)), Some(samples));
        for bad in [
            whole(&[], (0, 0), (0, 0)),
            whole(&at, (1006, 1_000_018), (3, 2000)),
            whole(&at, (1006, 1_000_018), (4, 1000)),
            whole(&at, (5, 1_000_018), (3, 1000)),
            whole(&at, (1006, u128::MAX), (3, 1000)),
            whole(&[(3, 2), (3, 1), (bucket(1000), 1)], (1009, 1_000_027), (3, 1000)),
            whole(&[(3, 0), (bucket(1000), 1)], (1000, 1_000_000), (3, 1000)),
            whole(&[(BUCKETS, 1)], (u128::from(u64::MAX), u128::MAX), (u64::MAX, u64::MAX)),
            whole(&[(3, u64::MAX), (4, 1)], (0, 0), (3, 4)),
        ] {
            assert_eq!(bad, None);
        }
    }

    proptest! {
        #[test]
        fn samples_merge_in_any_order_to_the_same_bytes(a in samples(), b in samples(), c in samples()) {
            let sum = |parts: &[&Samples]| {
                let mut sum = Samples::default();
                parts.iter().for_each(|part| sum.merge(part));
                sum
            };
            let left = sum(&[&sum(&[&a, &b]), &c]);
            let right = sum(&[&a, &sum(&[&c, &b])]);
            prop_assert_eq!(bytes(&left), bytes(&right));
            prop_assert_eq!(sum(&[&a, &Samples::default()]), a.clone());
            if let Some(ends) = left.range() {
                let buckets: Vec<_> = left.buckets().collect();
                let sums = (left.sum(), left.sum_of_squares());
                prop_assert_eq!(Samples::from_buckets(&buckets, sums, ends), Some(left.clone()));
            }
            prop_assert_eq!(Samples::decode(&mut Reader::new(&bytes(&left))).unwrap(), left);
        }

        #[test]
        fn states_merge_in_any_order(a in states(), b in states(), c in states()) {
            prop_assert_eq!(a.merged(b).merged(c), c.merged(a).merged(b));
            let merged = a.merged(b);
            let mut out = Writer::new();
            merged.encode(&mut out);
            prop_assert_eq!(States::decode_change(&mut Reader::new(&out.into_bytes())).unwrap(), Some(merged));
        }
    }
}
