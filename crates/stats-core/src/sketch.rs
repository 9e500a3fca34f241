//! The distribution of a timer's samples, so that any quantile is within [`RELATIVE_ERROR`] of the exact one and two
//! sketches merge by adding counts.
//!
//! Samples are whole numbers. Those below 128 have a bucket each; above, every doubling is cut into 64 equal buckets,
//! and a bucket answers with the number whose relative distance from both of its ends is the same: at most 1/129.
//! (The bound is that of DDSketch, Masson, Rim and Lee, 2019; the cut that of HdrHistogram.)
//!
//! Why our own: a bucket is found by shifts alone, on every machine the same, where a logarithm may round differently;
//! equal contents are equal bytes in whatever order they were merged, which the bytes of `sketches-ddsketch` 0.4.2 are
//! not (and it panics at infinity); and `hdrhistogram` takes four times as long to merge (see `benches/`).

use crate::wire::{DecodeError, Reader, Writer};

/// The bound on the relative error of a quantile.
pub const RELATIVE_ERROR: f64 = 1.0 / 129.0;

/// Samples below this have a bucket each.
const EXACT: u64 = 128;
/// Buckets in each doubling above.
const PER_DOUBLING: usize = 64;
/// All buckets of 64-bit samples: 128 and 57 doublings.
pub const BUCKETS: usize = 128 + 57 * PER_DOUBLING;
/// Up to so many different buckets are kept as a list.
const LIST_MAX: usize = 64;
/// More are kept as a range of counts, unless it would have fewer than one bucket in so many that is not empty: what a
/// sketch holds in memory is in proportion to what it was told.
const SPARSE: usize = 4;

/// Counts by bucket, and their sum. All of them stop at the greatest 64-bit number.
#[derive(Debug, Clone)]
pub struct Sketch {
    counts: Counts,
    total: u64,
}

/// How they are kept depends on how they came; what is kept does not.
#[derive(Debug, Clone)]
enum Counts {
    /// Ascending buckets with their counts, none of them zero.
    List(Vec<(u16, u64)>),
    /// Counts of consecutive buckets, the first and the last not zero.
    Range { first: usize, counts: Vec<u64> },
}

impl Default for Sketch {
    fn default() -> Self {
        Sketch { counts: Counts::List(Vec::new()), total: 0 }
    }
}

impl PartialEq for Sketch {
    fn eq(&self, other: &Self) -> bool {
        self.total == other.total && self.entries().eq(other.entries())
    }
}

impl Eq for Sketch {}

/// The bucket of a sample: the sample itself below 128; above, 64 buckets for each doubling. For aggregators elsewhere
/// that count by the same buckets.
#[inline]
pub fn bucket(sample: u64) -> usize {
    if sample < EXACT {
        return sample as usize;
    }
    let exponent = 63 - sample.leading_zeros() as usize;
    let cut = (sample >> (exponent - 6)) as usize & (PER_DOUBLING - 1);
    EXACT as usize + (exponent - 7) * PER_DOUBLING + cut
}

/// The number that stands for a bucket.
fn representative(bucket: usize) -> f64 {
    if bucket < EXACT as usize {
        return bucket as f64;
    }
    let (doubling, cut) =
        ((bucket - EXACT as usize) / PER_DOUBLING, (bucket - EXACT as usize) % PER_DOUBLING);
    let width = 1_u64 << (doubling + 1);
    let low = (PER_DOUBLING as u64 + cut as u64) as f64 * width as f64;
    let high = low + (width - 1) as f64;
    2.0 * low * high / (low + high)
}

impl Sketch {
    /// Counts a sample `times` times.
    pub fn add(&mut self, sample: u64, times: u64) {
        if times > 0 {
            self.add_to(bucket(sample), times);
        }
    }

    pub(crate) fn add_to(&mut self, bucket: usize, times: u64) {
        self.reach(bucket, bucket);
        self.total = self.total.saturating_add(times);
        match &mut self.counts {
            Counts::List(list) => match list.binary_search_by_key(&(bucket as u16), |&(bucket, _)| bucket) {
                Ok(found) => list[found].1 = list[found].1.saturating_add(times),
                Err(place) => {
                    list.insert(place, (bucket as u16, times));
                    self.settle();
                }
            },
            Counts::Range { first, counts } => {
                let count = &mut counts[bucket - *first];
                *count = count.saturating_add(times);
            }
        }
    }

    /// A list that has grown too long becomes a range, if that is not mostly empty.
    fn settle(&mut self) {
        let Counts::List(list) = &self.counts else { return };
        let (Some(&(first, _)), Some(&(last, _))) = (list.first(), list.last()) else { return };
        let (first, span) = (usize::from(first), usize::from(last - first) + 1);
        if list.len() > LIST_MAX && span <= SPARSE * list.len() {
            let mut counts = vec![0; span];
            list.iter().for_each(|&(bucket, count)| counts[usize::from(bucket) - first] = count);
            self.counts = Counts::Range { first, counts };
        }
    }

    /// Makes room for buckets `low` to `high` in a range. One that would become mostly empty becomes a list.
    fn reach(&mut self, low: usize, high: usize) {
        let Counts::Range { first, counts } = &mut self.counts else { return };
        let (start, end) = (low.min(*first), (high + 1).max(*first + counts.len()));
        if end - start == counts.len() {
            return;
        }
        let (filled, more) = (counts.iter().filter(|&&count| count > 0).count(), high - low + 1);
        if end - start > SPARSE * (filled + more) {
            self.counts = Counts::List(self.entries().map(|(at, count)| (at as u16, count)).collect());
            return;
        }
        if start < *first {
            counts.splice(0..0, std::iter::repeat_n(0, *first - start));
            *first = start;
        }
        counts.resize(end - start, 0);
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Sketch) {
        if let Counts::Range { first, counts } = &other.counts {
            self.reach(*first, *first + counts.len() - 1);
        }
        match (&mut self.counts, &other.counts) {
            (Counts::Range { first, counts }, Counts::Range { first: start, counts: more }) => {
                let at = *start - *first;
                let pairs = counts[at..at + more.len()].iter_mut().zip(more);
                // No count is greater than the sum of all: when that fits, so do they, and additions that need no
                // care are done several at a time by the processor.
                match self.total.checked_add(other.total) {
                    Some(total) => {
                        self.total = total;
                        pairs.for_each(|(mine, theirs)| *mine = mine.wrapping_add(*theirs));
                    }
                    None => {
                        self.total = u64::MAX;
                        pairs.for_each(|(mine, theirs)| *mine = mine.saturating_add(*theirs));
                    }
                }
            }
            (Counts::Range { .. }, Counts::List(list)) => {
                list.iter().for_each(|&(bucket, count)| self.add_to(usize::from(bucket), count));
            }
            (Counts::List(list), _) => {
                let mut sum = Vec::with_capacity(list.len());
                let (mut mine, mut theirs) = (list.iter().copied().peekable(), other.entries().peekable());
                loop {
                    let next = match (mine.peek(), theirs.peek()) {
                        (None, None) => break,
                        (Some(&(at, _)), Some(&(to, _))) => usize::from(at).min(to),
                        (Some(&(at, _)), None) => usize::from(at),
                        (None, Some(&(to, _))) => to,
                    };
                    let ours = mine.next_if(|&(at, _)| usize::from(at) == next).map_or(0, |(_, count)| count);
                    let more = theirs.next_if(|&(at, _)| at == next).map_or(0, |(_, count)| count);
                    sum.push((next as u16, ours.saturating_add(more)));
                }
                *list = sum;
                self.total = self.total.saturating_add(other.total);
                self.settle();
            }
        }
    }

    /// Buckets that are not empty, ascending.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let (list, first, counts): (&[_], _, &[_]) = match &self.counts {
            Counts::List(list) => (list, 0, &[]),
            Counts::Range { first, counts } => (&[], *first, counts),
        };
        let listed = list.iter().map(|&(bucket, count)| (usize::from(bucket), count));
        let ranged = counts.iter().enumerate().map(move |(offset, &count)| (first + offset, count));
        listed.chain(ranged.filter(|&(_, count)| count > 0))
    }

    /// How many samples it holds.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The least sample that the share `q` (0 to 1) of all samples does not exceed: the nearest rank; `None` when there
    /// are none.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let count = self.count();
        if count == 0 || !(0.0..=1.0).contains(&q) {
            return None;
        }
        // Less what the product may be too great by: 0.07 of 100 are 7, and not the next above.
        let wanted = ((q * count as f64 - 1e-6).ceil() as u64).clamp(1, count);
        let mut seen = 0_u64;
        for (bucket, count) in self.entries() {
            seen = seen.saturating_add(count);
            if wanted <= seen {
                return Some(representative(bucket));
            }
        }
        None
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.count(self.entries().count());
        let mut next = 0;
        for (bucket, count) in self.entries() {
            out.count(bucket - next);
            out.uint(count - 1);
            next = bucket + 1;
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let entries = from.count(BUCKETS)?;
        let (mut list, mut total, mut next) = (Vec::new(), 0_u64, 0_usize);
        for _ in 0..entries {
            let bucket = next.saturating_add(from.u32()? as usize);
            if bucket >= BUCKETS {
                return Err(DecodeError::Malformed("bucket beyond the last"));
            }
            let count = from.uint()?.checked_add(1).ok_or(DecodeError::Malformed("count beyond 64 bits"))?;
            list.push((bucket as u16, count));
            (total, next) = (total.saturating_add(count), bucket + 1);
        }
        let mut sketch = Sketch { counts: Counts::List(list), total };
        sketch.settle();
        Ok(sketch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sketch(samples: &[u64]) -> Sketch {
        let mut sketch = Sketch::default();
        samples.iter().for_each(|&sample| sketch.add(sample, 1));
        sketch
    }

    fn sample() -> impl Strategy<Value = u64> {
        (0_u32..64, any::<u64>()).prop_map(|(shift, sample)| sample >> shift)
    }

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        let ends = (7..64).flat_map(|bits| (0..64).map(move |cut| (64 + cut) << (bits - 6)));
        let buckets: Vec<_> = ends.map(|low: u64| (bucket(low - 1), bucket(low))).collect();
        assert!(buckets.iter().all(|(below, at)| below + 1 == *at));
    }

    fn held(sketch: &Sketch) -> usize {
        match &sketch.counts {
            Counts::List(list) => list.len() * size_of::<(u16, u64)>(),
            Counts::Range { counts, .. } => counts.len() * size_of::<u64>(),
        }
    }

    #[test]
    fn one_sample_far_from_the_others_does_not_take_the_room_of_all_between() {
        let near = sketch(&(0..70).collect::<Vec<_>>());
        for far in [u64::MAX, 1 << 40] {
            let (mut added, mut merged) = (near.clone(), near.clone());
            added.add(far, 1);
            merged.merge(&sketch(&[far]));
            let mut out = Writer::new();
            added.encode(&mut out);
            let read = Sketch::decode(&mut Reader::new(&out.into_bytes())).unwrap();
            for sketch in [&added, &merged, &read] {
                assert!(held(sketch) <= 71 * 32, "{}", held(sketch));
                assert_eq!(sketch, &added);
            }
        }
    }

    #[test]
    fn of_few_samples_no_more_exceed_a_quantile_than_it_says() {
        let found = |samples: &[u64], q| sketch(samples).quantile(q).unwrap();
        let near = |found: f64, sample: f64| (found - sample).abs() <= sample * RELATIVE_ERROR * 1.000_001;
        assert!(near(found(&[12, 120], 0.99), 120.0) && near(found(&[12, 120], 0.5), 12.0));
        let mut samples = vec![1; 9];
        samples.push(1000);
        assert!(near(found(&samples, 0.9), 1.0) && near(found(&samples, 0.99), 1000.0));
        let hundred: Vec<u64> = (1..=100).collect();
        assert!(near(found(&hundred, 0.07), 7.0) && near(found(&hundred, 0.0), 1.0));
    }

    proptest! {
        #[test]
        fn a_quantile_of_merged_sketches_is_within_the_bound(
            left in proptest::collection::vec(sample(), 1..200),
            right in proptest::collection::vec(sample(), 0..200),
            q in 0.0..=1.0_f64,
        ) {
            let mut merged = sketch(&left);
            merged.merge(&sketch(&right));
            let mut all: Vec<u64> = left.into_iter().chain(right).collect();
            all.sort_unstable();
            let is_enough = |&&one: &&u64| {
                all.iter().filter(|&&other| other <= one).count() as f64 >= q * all.len() as f64 - 1e-6
            };
            let exact = *all.iter().find(is_enough).unwrap() as f64;
            let found = merged.quantile(q).unwrap();
            prop_assert!((found - exact).abs() <= exact * RELATIVE_ERROR * 1.000_001, "{} {}", found, exact);
            prop_assert_eq!(merged.count(), all.len() as u64);
        }

        #[test]
        fn sketches_are_equal_when_what_they_hold_is(
            a in proptest::collection::vec(sample(), 0..100),
            b in proptest::collection::vec(sample(), 0..100),
        ) {
            let (mut ab, mut ba) = (sketch(&a), sketch(&b));
            ab.merge(&sketch(&b));
            ba.merge(&sketch(&a));
            prop_assert_eq!(&ab, &ba);
            prop_assert_eq!(&ab, &sketch(&[a, b].concat()));
            let mut out = Writer::new();
            ab.encode(&mut out);
            prop_assert_eq!(&Sketch::decode(&mut Reader::new(&out.into_bytes())).unwrap(), &ab);
        }

        #[test]
        fn counts_stop_at_the_greatest_number_in_whatever_order(
            a in proptest::collection::vec((0_u64..200, any::<u64>()), 0..100),
            b in proptest::collection::vec((0_u64..200, any::<u64>()), 0..100),
        ) {
            let of = |samples: &[(u64, u64)]| {
                let mut sketch = Sketch::default();
                samples.iter().for_each(|&(sample, times)| sketch.add(sample, times));
                sketch
            };
            let (mut ab, mut ba) = (of(&a), of(&b));
            ab.merge(&of(&b));
            ba.merge(&of(&a));
            prop_assert_eq!(&ab, &ba);
            prop_assert_eq!(&ab, &of(&[a.clone(), b.clone()].concat()));
            let exact = a.iter().chain(&b).map(|&(_, times)| u128::from(times)).sum::<u128>();
            prop_assert_eq!(u128::from(ab.count()), exact.min(u128::from(u64::MAX)));
        }
    }
}
