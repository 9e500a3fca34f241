//! Identities of batches: which a batch contains, and which have been merged here, so that a repeat is known as one.

use crate::idset::IdSet;
use crate::wire::{DecodeError, Reader, Writer, list};
use std::collections::{BTreeMap, VecDeque};

/// The identity of a batch: what makes a repeat harmless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BatchId {
    pub(crate) rank: u32,
    pub(crate) epoch: u64,
    pub(crate) seq: u64,
}

impl BatchId {
    pub(crate) fn encode(self, out: &mut Writer) {
        out.uint(u64::from(self.rank));
        out.fixed64(self.epoch);
        out.uint(self.seq);
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(BatchId { rank: from.u32()?, epoch: from.fixed64()?, seq: from.uint()? })
    }
}

/// Numbers of one epoch, as ascending runs (first, last) that do not touch: one run, but for batches that were held
/// back while later ones went another way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Runs(Vec<(u64, u64)>);

/// Runs that one epoch may have: each gap is a batch in doubt, of which a sender has few.
const RUNS_MAX: usize = 1000;

impl Runs {
    fn has(&self, seq: u64) -> bool {
        let after = self.0.partition_point(|&(first, _)| first <= seq);
        after > 0 && self.0[after - 1].1 >= seq
    }

    fn add(&mut self, first: u64, last: u64) {
        let start = self.0.partition_point(|&(_, end)| end.saturating_add(1) < first);
        let end = self.0.partition_point(|&(begin, _)| begin <= last.saturating_add(1));
        let joined = self.0[start..end].iter().fold((first, last), |(a, b), &(c, d)| (a.min(c), b.max(d)));
        self.0.splice(start..end, [joined]);
    }

    fn meets(&self, first: u64, last: u64) -> bool {
        let at = self.0.partition_point(|&(_, end)| end < first);
        self.0.get(at).is_some_and(|&(begin, _)| begin <= last)
    }

    /// Whether both can be held as one, and read again.
    fn fit_beside(&self, others: Option<&Runs>) -> bool {
        self.0.len() + others.map_or(0, |others| others.0.len()) <= RUNS_MAX
    }

    fn encode(&self, out: &mut Writer) {
        out.count(self.0.len());
        let mut next = 0;
        for &(first, last) in &self.0 {
            out.uint(first - next);
            out.uint(last - first);
            next = last;
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (mut runs, mut next) = (Runs::default(), 0_u64);
        for _ in 0..from.count(RUNS_MAX)? {
            let beyond = DecodeError::Malformed("number of a batch beyond 64 bits");
            let first = next.checked_add(from.uint()?).ok_or(beyond.clone())?;
            // In order, each at the end: however many there are, that takes no longer than to read them.
            if runs.0.last().is_some_and(|&(_, last)| first - last < 2) {
                return Err(DecodeError::Malformed("runs of numbers that touch"));
            }
            next = first.checked_add(from.uint()?).ok_or(beyond)?;
            runs.0.push((first, next));
        }
        Ok(runs)
    }
}

/// A set of identities, by rank and epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ids {
    of: BTreeMap<(u32, u64), Runs>,
    /// Runs in all.
    runs: usize,
}

/// Runs that one message may hold; each takes two bytes at least, so that its size bounds them too.
const IDS_MAX: usize = 1_000_000;

impl Ids {
    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// What it takes to hold and to send them: runs of numbers.
    pub(crate) fn len(&self) -> usize {
        self.runs
    }

    pub(crate) fn add(&mut self, id: BatchId) {
        self.add_run((id.rank, id.epoch), id.seq, id.seq);
    }

    fn add_run(&mut self, of: (u32, u64), first: u64, last: u64) {
        let mine = self.of.entry(of).or_default();
        let before = mine.0.len();
        mine.add(first, last);
        self.runs = self.runs + mine.0.len() - before;
    }

    pub(crate) fn add_all(&mut self, other: &Ids) {
        for (&of, runs) in &other.of {
            runs.0.iter().for_each(|&(first, last)| self.add_run(of, first, last));
        }
    }

    /// Whether `more` fit beside these: an epoch with too many runs could not be read by who it is sent to.
    pub(crate) fn has_room_for(&self, more: &Ids) -> bool {
        more.of.iter().all(|(of, runs)| runs.fit_beside(self.of.get(of)))
    }

    pub(crate) fn ranks(&self) -> impl Iterator<Item = u32> + '_ {
        self.of.keys().map(|&(rank, _)| rank)
    }

    /// Splits off who has just the one batch that `latest` expects next.
    pub(crate) fn without_next(&self, latest: &Latest) -> (IdSet, Ids) {
        let (mut next, mut rest) = (IdSet::new(), Ids::default());
        for (&(rank, epoch), runs) in &self.of {
            match latest.0.get(&rank) {
                Some(&(known, seq)) if known == epoch && runs.0 == [(seq, seq)] => {
                    next.insert(rank);
                }
                _ => runs.0.iter().for_each(|&(first, last)| rest.add_run((rank, epoch), first, last)),
            }
        }
        (next, rest)
    }

    /// Puts them back in. False: one of them is of a rank that `latest` does not know.
    pub(crate) fn add_next(&mut self, next: &IdSet, latest: &Latest) -> bool {
        next.iter().all(|rank| {
            let known = latest.0.get(&rank);
            if let Some(&(epoch, seq)) = known {
                self.add(BatchId { rank, epoch, seq });
            }
            known.is_some()
        })
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.count(self.of.len());
        for ((rank, epoch), runs) in &self.of {
            out.uint(u64::from(*rank));
            out.fixed64(*epoch);
            runs.encode(out);
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut ids = Ids::default();
        for _ in 0..from.count(IDS_MAX)? {
            let (of, runs) = ((from.u32()?, from.fixed64()?), Runs::decode(from)?);
            ids.runs += runs.0.len();
            if runs.0.is_empty() || ids.runs > IDS_MAX {
                return Err(DecodeError::Malformed("identities beyond their bound, or none of an epoch"));
            }
            // An epoch that came twice could have more runs than anybody may send on.
            if ids.of.last_key_value().is_some_and(|(last, _)| *last >= of) {
                return Err(DecodeError::Malformed("identities out of order"));
            }
            ids.of.insert(of, runs);
        }
        Ok(ids)
    }
}

/// What both ends of a link know of the ranks behind it: the current epoch of each, and the number that its next
/// batch will have. In a steady state a batch names the batches in it by their ranks alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Latest(BTreeMap<u32, (u64, u64)>);

impl Latest {
    pub(crate) fn follow(&mut self, ids: &Ids) {
        for (&(rank, epoch), runs) in &ids.of {
            if let Some(&(_, last)) = runs.0.last() {
                self.0.insert(rank, (epoch, last.saturating_add(1)));
            }
        }
    }
}

/// Epochs of one rank of which all batches are remembered. A rank begins one with each load of the module.
const EPOCHS_MAX: usize = 16;
/// Older epochs of which it is remembered that they were.
const FORGOTTEN_MAX: usize = 240;
/// Bound on what is restored.
const RANKS_MAX: usize = 10_000_000;

/// One epoch of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Epoch {
    id: u64,
    merged: Runs,
    /// It was forgotten, and came back: of batches that are not in `merged` nobody knows.
    partial: bool,
}

/// The marks of one rank.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Seen {
    /// The most recently begun epoch last.
    epochs: Vec<Epoch>,
    /// Epochs that were seen before those.
    forgotten: VecDeque<u64>,
    /// Whether there were more than that.
    forgot_more: bool,
}

impl Seen {
    fn epoch(&self, id: u64) -> Option<&Epoch> {
        self.epochs.iter().find(|epoch| epoch.id == id)
    }

    fn add(&mut self, id: u64, runs: &Runs) {
        if self.epoch(id).is_none() {
            // An epoch begins with the number zero.
            let begun = runs.0.first().is_some_and(|&(first, _)| first == 0);
            let back = self.forgotten.iter().position(|&forgotten| forgotten == id);
            back.map(|place| self.forgotten.remove(place));
            let partial = back.is_some() || (self.forgot_more && !begun);
            if self.epochs.len() == EPOCHS_MAX {
                self.forgotten.push_back(self.epochs.remove(0).id);
            }
            if self.forgotten.len() > FORGOTTEN_MAX {
                self.forgotten.pop_front();
                self.forgot_more = true;
            }
            self.epochs.push(Epoch { id, merged: Runs::default(), partial });
        }
        if let Some(epoch) = self.epochs.iter_mut().find(|epoch| epoch.id == id) {
            runs.0.iter().for_each(|&(first, last)| epoch.merged.add(first, last));
        }
    }
}

/// What has been merged here, of all ranks below. Bounded: of each rank the last [`EPOCHS_MAX`] epochs are
/// remembered whole. What is forgotten cannot be counted twice: only a batch in doubt is ever offered twice, and one
/// of an epoch that is not remembered whole is refused ([`Mark::Forgotten`]).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Marks(BTreeMap<u32, Seen>);

/// What is known of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    New,
    Merged,
    /// It may have been merged so long ago that nobody knows.
    Forgotten,
}

impl Marks {
    pub(crate) fn of(&self, id: BatchId) -> Mark {
        let Some(seen) = self.0.get(&id.rank) else { return Mark::New };
        match seen.epoch(id.epoch) {
            Some(epoch) if epoch.merged.has(id.seq) => Mark::Merged,
            Some(epoch) if epoch.partial => Mark::Forgotten,
            None if seen.forgot_more || seen.forgotten.contains(&id.epoch) => Mark::Forgotten,
            _ => Mark::New,
        }
    }

    fn merged(&self, rank: u32, epoch: u64) -> Option<&Runs> {
        Some(&self.0.get(&rank)?.epoch(epoch)?.merged)
    }

    /// Whether one of `ids` has been merged here.
    pub(crate) fn meets(&self, ids: &Ids) -> bool {
        ids.of.iter().any(|(&(rank, epoch), runs)| {
            let merged = self.merged(rank, epoch);
            merged.is_some_and(|mine| runs.0.iter().any(|&(first, last)| mine.meets(first, last)))
        })
    }

    /// Whether there is room for `ids`: a rank that leaves too many gaps has lost count.
    pub(crate) fn has_room_for(&self, ids: &Ids) -> bool {
        ids.of.iter().all(|(&(rank, epoch), runs)| runs.fit_beside(self.merged(rank, epoch)))
    }

    pub(crate) fn add_all(&mut self, ids: &Ids) {
        for (&(rank, epoch), runs) in &ids.of {
            self.0.entry(rank).or_default().add(epoch, runs);
        }
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.count(self.0.len());
        for (rank, seen) in &self.0 {
            out.uint(u64::from(*rank));
            out.byte(u8::from(seen.forgot_more));
            out.count(seen.forgotten.len());
            seen.forgotten.iter().for_each(|&epoch| out.fixed64(epoch));
            out.count(seen.epochs.len());
            for epoch in &seen.epochs {
                out.fixed64(epoch.id);
                out.byte(u8::from(epoch.partial));
                epoch.merged.encode(out);
            }
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let ranks = list(from, RANKS_MAX, |from| {
            let (rank, forgot_more) = (from.u32()?, from.byte()? != 0);
            let forgotten = list(from, FORGOTTEN_MAX, Reader::fixed64)?.into();
            let epochs = list(from, EPOCHS_MAX, |from| {
                Ok(Epoch { id: from.fixed64()?, partial: from.byte()? != 0, merged: Runs::decode(from)? })
            })?;
            Ok((rank, Seen { epochs, forgotten, forgot_more }))
        })?;
        Ok(Marks(ranks.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(epoch: u64, seq: u64) -> BatchId {
        BatchId { rank: 2, epoch, seq }
    }

    fn ids(epoch: u64, seqs: &[u64]) -> Ids {
        let mut ids = Ids::default();
        seqs.iter().for_each(|&seq| ids.add(id(epoch, seq)));
        ids
    }

    proptest! {
        #[test]
        fn a_repeat_is_known_in_whatever_order_batches_came(seqs in proptest::collection::vec(0_u64..60, 0..60)) {
            let (mut marks, mut known) = (Marks::default(), std::collections::BTreeSet::new());
            for seq in seqs {
                prop_assert_eq!(marks.of(id(1, seq)) == Mark::Merged, known.contains(&seq));
                prop_assert_eq!(marks.meets(&ids(1, &[seq, 99])), known.contains(&seq));
                marks.add_all(&ids(1, &[seq]));
                known.insert(seq);
            }
            prop_assert!((0..60).all(|seq| (marks.of(id(1, seq)) == Mark::Merged) == known.contains(&seq)));
            let mut out = Writer::new();
            marks.encode(&mut out);
            prop_assert_eq!(Marks::decode(&mut Reader::new(&out.into_bytes())).unwrap(), marks);
        }
    }

    #[test]
    fn in_a_steady_state_a_batch_is_named_by_its_rank() {
        let mut latest = Latest::default();
        latest.follow(&ids(7, &[0, 1]));
        let contained = ids(7, &[2]);
        let (next, rest) = contained.without_next(&latest);
        assert_eq!((next.to_string().as_str(), rest.is_empty()), ("2", true));
        let mut back = rest;
        assert!(back.add_next(&next, &latest));
        assert_eq!(back, contained);
        assert_eq!(ids(8, &[2]).without_next(&latest).1, ids(8, &[2]));
        assert!(!Ids::default().add_next(&IdSet::range(5, 5), &latest));
    }

    /// Rank, epoch, runs.
    type Entry<'e> = (u32, u64, &'e [(u64, u64)]);

    fn read(entries: &[Entry<'_>]) -> Result<Ids, DecodeError> {
        let mut out = Writer::new();
        out.count(entries.len());
        for &(rank, epoch, runs) in entries {
            out.uint(u64::from(rank));
            out.fixed64(epoch);
            Runs(runs.to_vec()).encode(&mut out);
        }
        Ids::decode(&mut Reader::new(&out.into_bytes()))
    }

    #[test]
    fn identities_are_read_as_they_are_written_and_in_no_other_way() {
        let whole = read(&[(1, 9, &[(0, 3), (5, 5)]), (2, 0, &[(7, 7)])]).unwrap();
        assert_eq!((whole.len(), whole.of.len()), (3, 2));
        let mut out = Writer::new();
        whole.encode(&mut out);
        assert_eq!(Ids::decode(&mut Reader::new(&out.into_bytes())).unwrap(), whole);
        let refused = |entries: &[Entry<'_>]| read(entries).unwrap_err().to_string();
        // Of one epoch there could be more runs than a message may hold, and joining them would take time.
        for twice in [(1, 9), (1, 8), (0, 99)] {
            let text = refused(&[(1, 9, &[(5, 5)]), (twice.0, twice.1, &[(0, 0)])]);
            assert!(text.contains("out of order"), "{text}");
        }
        assert!(refused(&[(1, 9, &[(0, 3), (4, 4)])]).contains("touch"));
        assert!(refused(&[(1, 9, &[(0, 3), (3, 3)])]).contains("touch"));
        assert!(refused(&[(1, 9, &[])]).contains("none of an epoch"));
        let gaps: Vec<(u64, u64)> = (0..=RUNS_MAX as u64).map(|run| (2 * run, 2 * run)).collect();
        assert!(read(&[(1, 9, &gaps[1..])]).is_ok());
        assert!(refused(&[(1, 9, &gaps)]).contains("beyond its bound"));
    }

    #[test]
    fn what_has_room_can_be_read_again() {
        let gaps =
            |from: u64, runs: usize| ids(1, &(0..runs as u64).map(|run| from + 2 * run).collect::<Vec<_>>());
        let (mut marks, mut all) = (Marks::default(), gaps(0, RUNS_MAX - 1));
        marks.add_all(&all);
        let full = gaps(100_000, 2);
        assert!(!marks.has_room_for(&full) && !all.has_room_for(&full));
        let last = gaps(100_000, 1);
        assert!(marks.has_room_for(&last) && all.has_room_for(&last));
        marks.add_all(&last);
        all.add_all(&last);
        let mut out = Writer::new();
        marks.encode(&mut out);
        all.encode(&mut out);
        let bytes = out.into_bytes();
        let mut from = Reader::new(&bytes);
        assert_eq!((Marks::decode(&mut from).unwrap(), Ids::decode(&mut from).unwrap()), (marks, all));
        // Of an epoch that nobody has heard of, too.
        assert!(!Marks::default().has_room_for(&gaps(0, RUNS_MAX + 1)));
        assert!(!Ids::default().has_room_for(&gaps(0, RUNS_MAX + 1)));
    }

    #[test]
    fn of_each_rank_a_bounded_number_of_epochs_is_remembered_and_the_rest_is_refused() {
        let mut marks = Marks::default();
        (0..1000).for_each(|epoch| marks.add_all(&ids(epoch, &[0])));
        let seen = &marks.0[&2];
        assert_eq!((seen.epochs.len(), seen.forgotten.len()), (EPOCHS_MAX, FORGOTTEN_MAX));
        assert_eq!((marks.of(id(999, 0)), marks.of(id(999, 4))), (Mark::Merged, Mark::New));
        assert_eq!((marks.of(id(900, 0)), marks.of(id(0, 0))), (Mark::Forgotten, Mark::Forgotten));
    }

    #[test]
    fn an_epoch_that_was_forgotten_and_comes_back_is_not_taken_for_a_new_one() {
        let mut marks = Marks::default();
        marks.add_all(&ids(0, &[5]));
        (1..=EPOCHS_MAX as u64).for_each(|epoch| marks.add_all(&ids(epoch, &[0])));
        assert_eq!((marks.of(id(0, 5)), marks.of(id(77, 5))), (Mark::Forgotten, Mark::New));
        marks.add_all(&ids(0, &[6]));
        assert_eq!((marks.of(id(0, 6)), marks.of(id(0, 5))), (Mark::Merged, Mark::Forgotten));
        let mut out = Writer::new();
        marks.encode(&mut out);
        assert_eq!(Marks::decode(&mut Reader::new(&out.into_bytes())).unwrap(), marks);
    }
}
