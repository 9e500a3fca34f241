//! When a node seals its batch: on the wall clock that all ranks share, leaves first, so that what a leaf measured
//! passes every level within the same period.

use std::time::Duration;

/// How long a level has for its batches to arrive, at most.
const SLOT_MAX: Duration = Duration::from_millis(100);

/// What the first batch waits, for something to be measured.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// Over how long the first batches of a flat instance are spread.
const FIRST_SPREAD: Duration = Duration::from_millis(500);

/// What time it is: given to the node with every call, since it has no clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Now {
    /// A clock that never steps, from any origin.
    pub mono_ns: u64,
    /// Nanoseconds since 1970.
    pub wall_ns: u64,
}

/// Where a node's seal lies within the period.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    pub(crate) rank: u32,
    pub(crate) level: u32,
    pub(crate) max_level: u32,
}

/// Whole nanoseconds, as many as 64 bits hold.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Schedule {
    fn slot_ns(self, period_ns: u64) -> u64 {
        let levels = u64::from(self.max_level) + 1;
        (period_ns / (2 * levels)).min(SLOT_MAX.as_nanos() as u64)
    }

    /// The end of this node's slot at the earliest: the deepest level first.
    fn level_ns(self, period_ns: u64) -> u64 {
        u64::from(self.max_level.saturating_sub(self.level)) * self.slot_ns(period_ns)
    }

    /// A part of `width_ns` that is this rank's own: siblings do not send all at once.
    fn spread_ns(self, width_ns: u64) -> u64 {
        // Fibonacci hashing: neighbours in rank lie far apart.
        let hash = u64::from(self.rank).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((u128::from(hash) * u128::from(width_ns)) >> 64) as u64
    }

    /// Whether everyone reports to the root, and nobody waits for anyone: a system instance may have 11,000 of them.
    fn is_flat(self) -> bool {
        self.max_level == 1 && self.level == 1
    }

    /// The offset of this node's seal from the start of the period: the deepest level first, siblings spread over half
    /// of their level's slot, or in a flat instance over nine tenths of the period.
    pub(crate) fn offset_ns(self, period_ns: u64) -> u64 {
        let width = if self.is_flat() { period_ns / 10 * 9 } else { self.slot_ns(period_ns) / 2 };
        self.level_ns(period_ns) + self.spread_ns(width)
    }

    /// The monotonic time of the next seal, at least half a period from now.
    pub(crate) fn next_ns(self, now: Now, period_ns: u64) -> u64 {
        let period_ns = period_ns.max(1);
        let into = (now.wall_ns % period_ns + period_ns - self.offset_ns(period_ns) % period_ns) % period_ns;
        let wait = period_ns - into;
        now.mono_ns.saturating_add(if wait < period_ns / 2 { wait + period_ns } else { wait })
    }

    /// The monotonic time of the first seal: soon, so that a loaded module is seen, and leaves first.
    pub(crate) fn first_ns(self, now: Now, period_ns: u64) -> u64 {
        let width =
            if self.is_flat() { FIRST_SPREAD.as_nanos() as u64 } else { SLOT_MAX.as_nanos() as u64 / 2 };
        let soon = self.level_ns(period_ns) + self.spread_ns(width.min(period_ns / 2));
        now.mono_ns.saturating_add(FIRST_WAIT.as_nanos() as u64 + soon)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn deeper_levels_seal_earlier_in_the_same_period() {
        for period in [S / 10, S, 10 * S] {
            let offset = |level, rank| Schedule { rank, level, max_level: 3 }.offset_ns(period);
            for rank in [0, 1, 77, 16_383] {
                assert!(offset(3, rank) < offset(2, rank) && offset(2, rank) < offset(1, rank));
                assert!(offset(1, rank) < offset(0, rank) && offset(0, rank) < period);
            }
            // A parent seals after all of its children.
            assert!(
                (0..1000).map(|rank| offset(3, rank)).max() < (0..1000).map(|rank| offset(2, rank)).min()
            );
        }
    }

    #[test]
    fn a_flat_instance_spreads_its_batches_over_the_period() {
        let tenths =
            (1..=11_000).map(|rank| Schedule { rank, level: 1, max_level: 1 }.offset_ns(2 * S) / (S / 5));
        let mut counts = [0; 10];
        tenths.for_each(|tenth| counts[tenth as usize] += 1);
        assert!(counts[1..9].iter().all(|&count| (1100..1400).contains(&count)), "{counts:?}");
    }

    #[test]
    fn the_next_seal_is_on_the_common_clock_and_never_twice_in_half_a_period() {
        let schedule = Schedule { rank: 5, level: 1, max_level: 2 };
        for wall in (0..4 * S).step_by(12_345_678) {
            let now = Now { mono_ns: 7 * S, wall_ns: wall };
            let wait = schedule.next_ns(now, 2 * S) - now.mono_ns;
            assert!((S..=3 * S).contains(&wait), "{wait}");
            assert_eq!((wall + wait) % (2 * S), schedule.offset_ns(2 * S));
            assert!(schedule.first_ns(now, 2 * S) - now.mono_ns <= S);
        }
    }
}
