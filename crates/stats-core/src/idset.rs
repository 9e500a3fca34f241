//! Sets of ranks, written as Flux does (RFC 22): `0-3,7`.

use crate::wire::{DecodeError, Reader, Writer};
use range_set_blaze::RangeSetBlaze;
use std::fmt;
use std::str::FromStr;

/// Ranges that a decoded or parsed set may have: bounds what a peer's message can make us hold.
const RANGES_MAX: usize = 65_536;

/// A set of ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdSet(RangeSetBlaze<u32>);

/// Text that is no idset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no idset: expected ranks and ranges of them, ascending or not, as in 0-3,7")]
pub struct ParseIdSetError(String);

impl IdSet {
    /// The empty set.
    pub fn new() -> Self {
        IdSet::default()
    }

    /// `first` to `last`, both included.
    pub fn range(first: u32, last: u32) -> Self {
        if first > last { IdSet::new() } else { IdSet(RangeSetBlaze::from_iter([first..=last])) }
    }

    /// Adds a rank; whether it is new.
    pub fn insert(&mut self, rank: u32) -> bool {
        self.0.insert(rank)
    }

    /// Takes a rank out.
    pub fn remove(&mut self, rank: u32) {
        self.0.remove(rank);
    }

    /// Whether `rank` is in it.
    pub fn contains(&self, rank: u32) -> bool {
        self.0.contains(rank)
    }

    /// How many ranks it holds.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The highest rank.
    pub fn last(&self) -> Option<u32> {
        self.0.last()
    }

    /// The ranks, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter()
    }

    /// Adds all of `other`.
    pub fn add(&mut self, other: &IdSet) {
        self.0 |= &other.0;
    }

    /// What is in this set and not in `other`.
    pub fn minus(&self, other: &IdSet) -> IdSet {
        IdSet(&self.0 - &other.0)
    }

    /// What is in both.
    pub fn both(&self, other: &IdSet) -> IdSet {
        IdSet(&self.0 & &other.0)
    }

    /// How many runs of consecutive ranks it has.
    pub fn runs(&self) -> usize {
        self.0.ranges_len()
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.count(self.0.ranges_len());
        let mut next = 0;
        for range in self.0.ranges() {
            out.uint(u64::from(range.start() - next));
            out.uint(u64::from(range.end() - range.start()));
            next = *range.end();
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let ranges = from.count(RANGES_MAX)?;
        let (mut set, mut next) = (RangeSetBlaze::new(), 0_u32);
        for _ in 0..ranges {
            let start = next.checked_add(from.u32()?).ok_or(DecodeError::Malformed("rank beyond 32 bits"))?;
            let end = start.checked_add(from.u32()?).ok_or(DecodeError::Malformed("rank beyond 32 bits"))?;
            set.ranges_insert(start..=end);
            next = end;
        }
        Ok(IdSet(set))
    }
}

impl FromIterator<u32> for IdSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ranks: I) -> Self {
        IdSet(ranks.into_iter().collect())
    }
}

impl fmt::Display for IdSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, range) in self.0.ranges().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            let (start, end) = range.into_inner();
            if start == end { write!(f, "{comma}{start}")? } else { write!(f, "{comma}{start}-{end}")? }
        }
        Ok(())
    }
}

impl FromStr for IdSet {
    type Err = ParseIdSetError;

    fn from_str(text: &str) -> Result<Self, ParseIdSetError> {
        let bad = || ParseIdSetError(text.chars().take(80).collect());
        // RFC 22 allows brackets around a set.
        let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        let mut set = RangeSetBlaze::new();
        if inner.is_empty() {
            return Ok(IdSet(set));
        }
        let number = |t: &str| t.parse::<u32>().ok().filter(|_| t.bytes().all(|b| b.is_ascii_digit()));
        for (position, part) in inner.split(',').enumerate() {
            let (start, end) = part.split_once('-').unwrap_or((part, part));
            match (number(start), number(end)) {
                (Some(start), Some(end)) if start <= end && position < RANGES_MAX => {
                    set.ranges_insert(start..=end);
                }
                _ => return Err(bad()),
            }
        }
        Ok(IdSet(set))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_idset_is_written_as_rfc_22_says() {
        assert_eq!([0, 1, 2, 3, 7].into_iter().collect::<IdSet>().to_string(), "0-3,7");
        assert_eq!(IdSet::new().to_string(), "");
        assert_eq!("[4,1-2]".parse::<IdSet>().unwrap().to_string(), "1-2,4");
        assert_eq!("0-4294967295".parse::<IdSet>().unwrap().len(), 1 << 32);
    }

    #[test]
    fn what_is_no_idset_is_named() {
        for text in ["a", "1-", "-1", "3-1", "1,,2", "+1", "4294967296", "1 2"] {
            assert!(text.parse::<IdSet>().unwrap_err().to_string().contains(&format!("{text:?}")));
        }
    }

    proptest! {
        #[test]
        fn text_and_bytes_come_back_as_they_went(ranks in proptest::collection::vec(any::<u32>(), 0..50)) {
            let set: IdSet = ranks.into_iter().collect();
            prop_assert_eq!(&set.to_string().parse::<IdSet>().unwrap(), &set);
            let mut out = Writer::new();
            set.encode(&mut out);
            prop_assert_eq!(IdSet::decode(&mut Reader::new(&out.into_bytes())).unwrap(), set);
        }
    }
}
