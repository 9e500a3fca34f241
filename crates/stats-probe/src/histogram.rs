//! The distribution of work per wakeup.
//!
//! Log-linear: every octave is cut into 64 equal buckets, so the middle of a bucket is within 0.8 % of
//! every value in it. (Plain powers of two would put a p99 off by up to 50 %.) One wakeup touches one
//! 32-bit word. These are the buckets of the sketches that the counts go into upstream (`stats-core`), so that nothing
//! is lost by cutting twice.

/// Buckets per octave.
const PER_OCTAVE: u32 = 64;
/// The unit of the linear start, as a power of two: values below 256 ns are counted in steps of 4 ns.
const UNIT_SHIFT: u32 = 2;
/// How many buckets there are. The last one takes everything from 34 s up.
pub const BUCKETS: usize = 1792;

/// The bucket that takes a value.
#[inline(always)]
pub(crate) fn bucket(ns: u64) -> usize {
    let units = ns >> UNIT_SHIFT;
    let octave = (63 - PER_OCTAVE.ilog2()).saturating_sub((units | 1).leading_zeros());
    let index = (octave * PER_OCTAVE) as usize + (units >> octave) as usize;
    if index < BUCKETS { index } else { BUCKETS - 1 }
}

/// The smallest value, in nanoseconds, that `index` takes.
pub fn lower_bound_ns(index: usize) -> u64 {
    let index = index.min(BUCKETS) as u64;
    let per_octave = u64::from(PER_OCTAVE);
    let octave = (index / per_octave).saturating_sub(1);
    (index - octave * per_octave) << octave << UNIT_SHIFT
}

/// The middle of a bucket in nanoseconds.
pub fn middle_ns(index: usize) -> u64 {
    let low = lower_bound_ns(index);
    low + (lower_bound_ns(index + 1).saturating_sub(low)) / 2
}

/// How often work per wakeup fell into each bucket. Cumulative, like every other number of a sample.
#[derive(Clone, PartialEq, Eq)]
pub struct WorkHistogram {
    counts: Box<[u64; BUCKETS]>,
}

impl Default for WorkHistogram {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]) }
    }
}

impl std::fmt::Debug for WorkHistogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.buckets()).finish()
    }
}

impl WorkHistogram {
    /// All counts by bucket; see [`lower_bound_ns`] and [`middle_ns`] for what a bucket stands for.
    pub fn counts(&self) -> &[u64; BUCKETS] {
        &self.counts
    }

    /// How many turns have been counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The buckets that are not empty, as (middle in ns, count).
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().enumerate().filter(|(_, n)| **n > 0).map(|(i, n)| (middle_ns(i), *n))
    }

    /// What was counted since `earlier`, as (middle in ns, count).
    pub fn since<'a>(&'a self, earlier: &'a WorkHistogram) -> impl Iterator<Item = (u64, u64)> + 'a {
        let pairs = self.counts.iter().zip(earlier.counts.iter()).enumerate();
        pairs.map(|(i, (now, then))| (middle_ns(i), now.saturating_sub(*then))).filter(|(_, n)| *n > 0)
    }

    /// The quantile `q` (0 to 1) in nanoseconds, within 0.8 % for values of 256 ns and more; None when
    /// nothing has been counted.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let total = self.count();
        if total == 0 {
            return None;
        }
        let rank = ((q.clamp(0.0, 1.0) * total as f64).ceil() as u64).clamp(1, total);
        let mut seen = 0;
        for (i, n) in self.counts.iter().enumerate() {
            seen += n;
            if seen >= rank {
                return Some(middle_ns(i));
            }
        }
        None
    }

    pub(crate) fn add(&mut self, index: usize, count: u64) {
        if let Some(n) = self.counts.get_mut(index) {
            *n += count;
        }
    }

    pub(crate) fn merge(&mut self, other: &WorkHistogram) {
        for (n, m) in self.counts.iter_mut().zip(other.counts.iter()) {
            *n += m;
        }
    }

    pub(crate) fn subtract(&mut self, base: &WorkHistogram) {
        for (n, m) in self.counts.iter_mut().zip(base.counts.iter()) {
            *n = n.saturating_sub(*m);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_value_lies_in_its_bucket_and_within_the_stated_error(ns in 0u64..30_000_000_000) {
            let i = bucket(ns);
            prop_assert!(lower_bound_ns(i) <= ns && ns < lower_bound_ns(i + 1));
            if ns >= 256 {
                let error = middle_ns(i).abs_diff(ns) as f64 / ns as f64;
                prop_assert!(error <= 0.0079, "{} {}", ns, error);
            }
        }
    }

    #[test]
    fn buckets_ascend_without_gap_and_the_last_takes_the_rest() {
        for i in 0..BUCKETS {
            assert!(lower_bound_ns(i) < lower_bound_ns(i + 1));
            assert_eq!(bucket(lower_bound_ns(i)), i);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert!(lower_bound_ns(BUCKETS - 1) > 33_000_000_000);
    }

    #[test]
    fn quantiles_are_those_of_the_values() {
        let mut h = WorkHistogram::default();
        assert_eq!(h.quantile(0.5), None);
        for ms in 1..=1000u64 {
            h.add(bucket(ms * 1_000_000), 1);
        }
        for (q, ms) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0), (0.0, 1.0)] {
            let got = h.quantile(q).unwrap() as f64 / 1e6;
            assert!((got - ms).abs() / ms < 0.0079, "{q}: {got}");
        }
    }
}
