//! The distribution of a timer's samples: counts in buckets whose bounds grow by a constant factor, so that every
//! quantile is within [`RELATIVE_ERROR`] of the exact one and two sketches merge by adding counts (the idea of
//! DDSketch, Masson, Rim and Lee, 2019).
//!
//! Our own: its bytes do not depend on the order of merging, and a merge is one addition per bucket. The crate
//! `sketches-ddsketch` answers the same, with bytes that do depend on it and a panic at infinity.

use crate::wire::{DecodeError, Reader, Writer};

/// The bound on the relative error of a quantile.
pub const RELATIVE_ERROR: f64 = 0.01;
/// The factor from one bucket's bound to the next: (1 + e) / (1 - e).
const GAMMA: f64 = (1.0 + RELATIVE_ERROR) / (1.0 - RELATIVE_ERROR);
/// The buckets of 1 and of the largest u64: samples are whole numbers of at least one, zero has a count of its own.
const BUCKETS_MAX: usize = 2_240;

/// Counts by bucket, without empty buckets at either end: equal contents are equal bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sketch {
    zeros: u64,
    /// The bucket of `counts[0]`.
    first: usize,
    counts: Vec<u64>,
}

/// The bucket of a sample of at least one: bucket i holds (GAMMA^(i-1), GAMMA^i].
fn bucket(sample: u64) -> usize {
    let index = ((sample as f64).ln() / GAMMA.ln()).ceil();
    (index as usize).min(BUCKETS_MAX - 1)
}

/// The number that stands for a bucket: within RELATIVE_ERROR of all that it holds.
fn representative(bucket: usize) -> f64 {
    2.0 * GAMMA.powi(bucket as i32) / (GAMMA + 1.0)
}

impl Sketch {
    /// Counts a sample `times` times.
    pub fn add(&mut self, sample: u64, times: u64) {
        if times == 0 {
            return;
        }
        if sample == 0 {
            self.zeros = self.zeros.saturating_add(times);
        } else {
            self.reach(bucket(sample), bucket(sample));
            let slot = bucket(sample) - self.first;
            self.counts[slot] = self.counts[slot].saturating_add(times);
        }
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Sketch) {
        self.zeros = self.zeros.saturating_add(other.zeros);
        if other.counts.is_empty() {
            return;
        }
        self.reach(other.first, other.first + other.counts.len() - 1);
        let start = other.first - self.first;
        for (mine, theirs) in self.counts[start..].iter_mut().zip(&other.counts) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    /// Makes room for buckets `low` to `high`.
    fn reach(&mut self, low: usize, high: usize) {
        if self.counts.is_empty() {
            self.first = low;
        }
        if low < self.first {
            self.counts.splice(0..0, std::iter::repeat_n(0, self.first - low));
            self.first = low;
        }
        let needed = high + 1 - self.first;
        if self.counts.len() < needed {
            self.counts.resize(needed, 0);
        }
    }

    /// How many samples it holds.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(self.zeros, |sum, &n| sum.saturating_add(n))
    }

    /// The sample below which the share `q` (0 to 1) of all samples lies; `None` when there are none.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let count = self.count();
        if count == 0 || !(0.0..=1.0).contains(&q) {
            return None;
        }
        let wanted = (q * (count - 1) as f64) as u64;
        let mut seen = self.zeros;
        if wanted < seen {
            return Some(0.0);
        }
        for (offset, &n) in self.counts.iter().enumerate() {
            seen = seen.saturating_add(n);
            if wanted < seen {
                return Some(representative(self.first + offset));
            }
        }
        None
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.uint(self.zeros);
        out.count(self.counts.len());
        if !self.counts.is_empty() {
            out.count(self.first);
        }
        for &count in &self.counts {
            out.uint(count);
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let zeros = from.uint()?;
        let buckets = from.count(BUCKETS_MAX)?;
        if buckets == 0 {
            return Ok(Sketch { zeros, first: 0, counts: Vec::new() });
        }
        let first = from.u32()? as usize;
        if first + buckets > BUCKETS_MAX {
            return Err(DecodeError::Malformed("bucket beyond the last"));
        }
        let counts = (0..buckets).map(|_| from.uint()).collect::<Result<Vec<_>, _>>()?;
        if counts.first() == Some(&0) || counts.last() == Some(&0) {
            return Err(DecodeError::Malformed("empty bucket at the end of a sketch"));
        }
        Ok(Sketch { zeros, first, counts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_largest_sample_has_a_bucket_of_its_own() {
        assert!(((u64::MAX as f64).ln() / GAMMA.ln()).ceil() < BUCKETS_MAX as f64);
    }

    proptest! {
        #[test]
        fn a_quantile_of_merged_sketches_is_within_the_bound(
            left in proptest::collection::vec(0_u64..10_000_000_000, 1..200),
            right in proptest::collection::vec(0_u64..10_000_000_000, 0..200),
            q in 0.0..=1.0_f64,
        ) {
            let sketch = |samples: &[u64]| {
                let mut sketch = Sketch::default();
                samples.iter().for_each(|&s| sketch.add(s, 1));
                sketch
            };
            let mut merged = sketch(&left);
            merged.merge(&sketch(&right));
            let mut all: Vec<u64> = left.into_iter().chain(right).collect();
            all.sort_unstable();
            let exact = all[(q * (all.len() - 1) as f64) as usize] as f64;
            let found = merged.quantile(q).unwrap();
            prop_assert!((found - exact).abs() <= exact * RELATIVE_ERROR * 1.000_001, "{} {}", found, exact);
            prop_assert_eq!(merged.count(), all.len() as u64);
        }
    }
}
