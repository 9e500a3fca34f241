//! Chance, by seed and by what it is for: what is drawn for one thing does not depend on what was drawn for another,
//! so that a fault can be left out of a run and all others stay as they were.

/// What is drawn for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum For {
    Plan,
    Scheduled,
    Load,
    Letter,
    Push,
    Clear,
    Run,
}

/// A generator of its own for one thing of one run: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Dice {
    pub(crate) fn new(seed: u64, what: For, one: u64, two: u64) -> Self {
        let parts = [what as u64, one, two];
        Dice(parts.into_iter().fold(mix(seed), |state, part| {
            mix(state.wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_add(mix(part.wrapping_add(1))))
        }))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// One of 0 to `end` - 1; zero if `end` is.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// One of `first` to `last`, both included.
    pub(crate) fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last.saturating_sub(first).saturating_add(1))
    }

    /// A number from 0 to 1, 1 excluded.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_for_one_thing_says_nothing_of_another() {
        let mut counts = [0_u32; 16];
        for (seed, rank) in (0..100).flat_map(|seed| (0..160).map(move |rank| (seed, rank))) {
            counts[Dice::new(seed, For::Letter, rank, 0).below(16) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        assert_ne!(Dice::new(1, For::Push, 2, 3).next(), Dice::new(1, For::Push, 3, 2).next());
    }
}
