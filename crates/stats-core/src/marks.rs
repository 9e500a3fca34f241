//! Which batches have been merged here, so that a repeat is known as one.

use crate::batch::{BatchId, list};
use crate::wire::{DecodeError, Reader, Writer};
use std::collections::BTreeMap;

/// Epochs remembered of one rank. A rank begins one with each load of the module; a batch of an epoch so old that it
/// is forgotten would have been held back through as many reloads.
const EPOCHS_MAX: usize = 16;
/// Numbers remembered one by one above the lowest that is missing: a sender has one batch in flight, so that its
/// numbers arrive in order but for a few that it had to hold back.
const LOOSE_MAX: usize = 64;
/// Bound on what is restored.
const RANKS_MAX: usize = 10_000_000;

/// The numbers of one epoch: all below `next`, and some above.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    epoch: u64,
    next: u64,
    loose: Vec<u64>,
}

impl Seen {
    fn has(&self, seq: u64) -> bool {
        seq < self.next || self.loose.contains(&seq)
    }

    fn add(&mut self, seq: u64) {
        if self.has(seq) {
            return;
        }
        self.loose.push(seq);
        self.loose.sort_unstable();
        // The lowest gap is given up when too many numbers wait above it: it never came by this road.
        if self.loose.len() > LOOSE_MAX {
            self.next = self.loose[0];
        }
        while self.loose.first() == Some(&self.next) {
            self.loose.remove(0);
            self.next += 1;
        }
    }
}

/// The marks of all ranks below.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// By rank, the most recently begun epoch last.
    ranks: BTreeMap<u32, Vec<Seen>>,
}

impl Marks {
    pub(crate) fn has(&self, id: BatchId) -> bool {
        let seen =
            self.ranks.get(&id.rank).and_then(|epochs| epochs.iter().find(|seen| seen.epoch == id.epoch));
        seen.is_some_and(|seen| seen.has(id.seq))
    }

    pub(crate) fn add(&mut self, id: BatchId) {
        let epochs = self.ranks.entry(id.rank).or_default();
        if !epochs.iter().any(|seen| seen.epoch == id.epoch) {
            if epochs.len() == EPOCHS_MAX {
                epochs.remove(0);
            }
            epochs.push(Seen { epoch: id.epoch, next: 0, loose: Vec::new() });
        }
        if let Some(seen) = epochs.iter_mut().find(|seen| seen.epoch == id.epoch) {
            seen.add(id.seq);
        }
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.count(self.ranks.len());
        for (rank, epochs) in &self.ranks {
            out.uint(u64::from(*rank));
            out.count(epochs.len());
            for seen in epochs {
                out.fixed64(seen.epoch);
                out.uint(seen.next);
                out.count(seen.loose.len());
                seen.loose.iter().for_each(|&seq| out.uint(seq));
            }
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let ranks = list(from, RANKS_MAX, |from| {
            let rank = from.u32()?;
            let epochs = list(from, EPOCHS_MAX, |from| {
                let (epoch, next) = (from.fixed64()?, from.uint()?);
                Ok(Seen { epoch, next, loose: list(from, LOOSE_MAX, Reader::uint)? })
            })?;
            Ok((rank, epochs))
        })?;
        Ok(Marks { ranks: ranks.into_iter().collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(epoch: u64, seq: u64) -> BatchId {
        BatchId { rank: 2, epoch, seq }
    }

    #[test]
    fn a_repeat_is_known_in_whatever_order_batches_came() {
        let mut marks = Marks::default();
        for seq in [0, 1, 4, 2, 9] {
            assert!(!marks.has(id(1, seq)));
            marks.add(id(1, seq));
            assert!(marks.has(id(1, seq)));
        }
        assert!(!marks.has(id(1, 3)) && !marks.has(id(2, 0)));
        let mut out = Writer::new();
        marks.encode(&mut out);
        assert_eq!(Marks::decode(&mut Reader::new(&out.into_bytes())).unwrap(), marks);
    }

    #[test]
    fn marks_are_bounded_for_each_rank() {
        let mut marks = Marks::default();
        for epoch in 0..1000 {
            for seq in (0..1000).step_by(2) {
                marks.add(id(epoch, seq));
            }
        }
        let epochs = &marks.ranks[&2];
        assert_eq!(epochs.len(), EPOCHS_MAX);
        assert!(epochs.iter().all(|seen| seen.loose.len() <= LOOSE_MAX));
        assert!(marks.has(id(999, 998)) && !marks.has(id(0, 0)));
    }
}
