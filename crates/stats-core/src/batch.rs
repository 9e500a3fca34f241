//! What one rank sends upstream in one period, and what it is answered: as values and as bytes.

use crate::amount::Amount;
use crate::idset::IdSet;
use crate::series::Key;
use crate::value::{Peak, Samples, States};
use crate::wire::{DecodeError, Reader, Writer};

/// The version of both formats. A receiver refuses any other, the sender keeps what it has in custody.
pub(crate) const VERSION: u8 = 1;

const FULL: u8 = 1;
const CLOSING: u8 = 2;
const LONE: u8 = 4;
const NEED_FULL: u8 = 1;

/// Bounds on what one batch may hold; each item takes a byte at least, so its size bounds it too.
const SERIES_MAX: usize = 1_000_000;
const MARKS_MAX: usize = 1_000_000;

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

/// What a flow gained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Delta {
    Counter(Amount, Peak),
    Timer(Samples),
}

impl Delta {
    pub(crate) fn merge(&mut self, other: Delta) {
        match (self, other) {
            (Delta::Counter(sum, peak), Delta::Counter(more, other)) => {
                *sum = sum.plus(more);
                peak.merge(other);
            }
            (Delta::Timer(samples), Delta::Timer(more)) => samples.merge(&more),
            // A series has one kind: the catalog and the decoder see to it.
            _ => {}
        }
    }
}

/// What a series' merged states became; `None`: there are none any more.
pub(crate) type StateChange = Option<States>;

/// A batch. Series are numbered by the sender: its dictionary comes along, as far as the receiver lacks it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Batch {
    pub(crate) id: BatchId,
    /// Everything is here: the whole dictionary, all states. Else what changed since the last.
    pub(crate) full: bool,
    /// The sender unloads: its states are withdrawn.
    pub(crate) closing: bool,
    /// The clear that its flows come after.
    pub(crate) generation: u64,
    /// How long the sender's own flows took.
    pub(crate) span_ns: u64,
    /// Ranks heard of since the last.
    pub(crate) covered: IdSet,
    /// Ranks that unloaded since the last.
    pub(crate) closed: IdSet,
    /// The batches that are merged into it.
    pub(crate) contains: Vec<BatchId>,
    /// The number of the first key in `dictionary`.
    pub(crate) dictionary_first: u32,
    pub(crate) dictionary: Vec<Key>,
    /// Ascending numbers.
    pub(crate) flows: Vec<(u32, Delta)>,
    pub(crate) states: Vec<(u32, StateChange)>,
}

impl Batch {
    /// Whether only the sender's own rank contributed: then the peak of each flow is its own rate, and not sent.
    fn is_lone(&self) -> bool {
        let own = IdSet::range(self.id.rank, self.id.rank);
        self.contains.is_empty() && self.covered.minus(&own).is_empty()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        let lone = self.is_lone();
        out.byte(VERSION);
        out.byte(flag(self.full, FULL) | flag(self.closing, CLOSING) | flag(lone, LONE));
        self.id.encode(&mut out);
        out.uint(self.generation);
        out.uint(self.span_ns);
        self.covered.encode(&mut out);
        self.closed.encode(&mut out);
        out.count(self.contains.len());
        self.contains.iter().for_each(|id| id.encode(&mut out));
        out.uint(u64::from(self.dictionary_first));
        out.count(self.dictionary.len());
        self.dictionary.iter().for_each(|key| key.encode(&mut out));
        out.count(self.flows.len());
        let mut next = 0;
        for (number, delta) in &self.flows {
            out.uint(u64::from(number - next));
            next = *number;
            match delta {
                Delta::Counter(amount, peak) => {
                    out.byte(0);
                    encode_amount(*amount, &mut out);
                    if !lone {
                        out.signed(peak.rate.parts());
                        out.uint(u64::from(peak.rank));
                    }
                }
                Delta::Timer(samples) => {
                    out.byte(1);
                    samples.encode(&mut out);
                }
            }
        }
        out.count(self.states.len());
        for (number, change) in &self.states {
            out.uint(u64::from(*number));
            out.byte(u8::from(change.is_some()));
            if let Some(states) = change {
                states.encode(&mut out);
            }
        }
        out.into_bytes()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(bytes);
        version(&mut from)?;
        let flags = from.byte()?;
        if flags & !(FULL | CLOSING | LONE) != 0 {
            return Err(DecodeError::Malformed("unknown flag"));
        }
        let id = BatchId::decode(&mut from)?;
        let (generation, span_ns) = (from.uint()?, from.uint()?);
        let (covered, closed) = (IdSet::decode(&mut from)?, IdSet::decode(&mut from)?);
        let contains = list(&mut from, MARKS_MAX, BatchId::decode)?;
        let dictionary_first = from.u32()?;
        let dictionary = list(&mut from, SERIES_MAX, Key::decode)?;
        let mut next = 0_u32;
        let flows = list(&mut from, SERIES_MAX, |from| {
            next = next.checked_add(from.u32()?).ok_or(DecodeError::Malformed("series beyond 32 bits"))?;
            let delta = match from.byte()? {
                0 => {
                    let amount = decode_amount(from)?;
                    let peak = if flags & LONE != 0 {
                        Peak { rate: amount.per_second(span_ns), rank: id.rank }
                    } else {
                        Peak { rate: Amount::from_parts(from.signed()?), rank: from.u32()? }
                    };
                    Delta::Counter(amount, peak)
                }
                1 => Delta::Timer(Samples::decode(from)?),
                _ => return Err(DecodeError::Malformed("unknown kind of flow")),
            };
            Ok((next, delta))
        })?;
        let states = list(&mut from, SERIES_MAX, |from| {
            let number = from.u32()?;
            Ok((number, if from.byte()? == 0 { None } else { Some(States::decode(from)?) }))
        })?;
        from.end()?;
        let (full, closing) = (flags & FULL != 0, flags & CLOSING != 0);
        Ok(Batch {
            id,
            full,
            closing,
            generation,
            span_ns,
            covered,
            closed,
            contains,
            dictionary_first,
            dictionary,
            flows,
            states,
        })
    }
}

/// Whole amounts are common: a bit tells them apart, and spares them the factor of a million.
fn encode_amount(amount: Amount, out: &mut Writer) {
    match amount.as_whole() {
        Some(whole) => out.signed(whole << 1),
        None => out.signed((amount.parts() << 1) | 1),
    }
}

fn decode_amount(from: &mut Reader<'_>) -> Result<Amount, DecodeError> {
    let coded = from.signed()?;
    Ok(if coded & 1 == 0 { Amount::whole(coded >> 1) } else { Amount::from_parts(coded >> 1) })
}

fn flag(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

fn version(from: &mut Reader<'_>) -> Result<(), DecodeError> {
    match from.byte()? {
        VERSION => Ok(()),
        found => Err(DecodeError::Version { found: found.into(), spoken: VERSION.into() }),
    }
}

pub(crate) fn list<'a, T>(
    from: &mut Reader<'a>,
    max: usize,
    mut item: impl FnMut(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = from.count(max)?;
    // Grown as items come: a count alone reserves nothing.
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(item(from)?);
    }
    Ok(items)
}

/// What a receiver answers to a batch that it did not refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Receipt {
    /// Nothing was merged: the receiver lacks the dictionary. Send in full.
    pub(crate) need_full: bool,
    /// Who has received it.
    pub(crate) rank: u32,
    pub(crate) epoch: u64,
    /// The newest clear that the receiver knows of.
    pub(crate) generation: u64,
    /// How often the receiver can afford a batch.
    pub(crate) period_ns: u64,
}

impl Receipt {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut out = Writer::new();
        out.byte(VERSION);
        out.byte(flag(self.need_full, NEED_FULL));
        out.uint(u64::from(self.rank));
        out.fixed64(self.epoch);
        out.uint(self.generation);
        out.uint(self.period_ns);
        out.into_bytes()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(bytes);
        version(&mut from)?;
        let need_full = from.byte()? & NEED_FULL != 0;
        let (rank, epoch, generation, period_ns) = (from.u32()?, from.fixed64()?, from.uint()?, from.uint()?);
        from.end()?;
        Ok(Receipt { need_full, rank, epoch, generation, period_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::{Kind, Unit};
    use proptest::prelude::*;

    fn sample_batch(lone: bool) -> Batch {
        let mut samples = Samples::default();
        samples.add(5, 3);
        samples.add(0, 1);
        let id = BatchId { rank: 3, epoch: 77, seq: 9 };
        let amount = Amount::nearest(2.5).unwrap();
        let peak = if lone {
            Peak { rate: amount.per_second(1_000_000_000), rank: 3 }
        } else {
            Peak { rate: Amount::whole(8), rank: 5 }
        };
        Batch {
            id,
            full: true,
            closing: false,
            generation: 4,
            span_ns: 1_000_000_000,
            covered: if lone { IdSet::range(3, 3) } else { IdSet::range(3, 6) },
            closed: IdSet::range(9, 9),
            contains: if lone { vec![] } else { vec![BatchId { rank: 5, epoch: 1, seq: 2 }] },
            dictionary_first: 0,
            dictionary: vec![
                Key::new("a.b", &[("k", "v")], Kind::Counter, Unit::Nanoseconds).unwrap(),
                Key::new("a.c", &[], Kind::Timer, Unit::None).unwrap(),
            ],
            flows: vec![(0, Delta::Counter(amount, peak)), (1, Delta::Timer(samples))],
            states: vec![(4, Some(States::of(Amount::whole(7), 3))), (6, None)],
        }
    }

    #[test]
    fn a_batch_comes_back_as_it_went() {
        for batch in [sample_batch(true), sample_batch(false)] {
            assert_eq!(Batch::decode(&batch.encode()).unwrap(), batch);
        }
        let receipt = Receipt { need_full: true, rank: 1, epoch: 2, generation: 3, period_ns: 4 };
        assert_eq!(Receipt::decode(&receipt.encode()).unwrap(), receipt);
    }

    #[test]
    fn another_version_is_refused_by_name() {
        let mut bytes = sample_batch(true).encode();
        bytes[0] = 9;
        let error = Batch::decode(&bytes).unwrap_err();
        assert_eq!(error.to_string(), "version 9 of the format, this side speaks 1");
    }

    #[test]
    fn a_truncated_batch_is_refused_wherever_it_ends() {
        let bytes = sample_batch(false).encode();
        for end in 0..bytes.len() {
            assert!(Batch::decode(&bytes[..end]).is_err(), "{end}");
        }
    }

    proptest! {
        #[test]
        fn mutated_and_random_bytes_never_panic(
            at in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            random in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut bytes = sample_batch(false).encode();
            for (index, byte) in at {
                let index = index.index(bytes.len());
                bytes[index] = byte;
            }
            let _ = Batch::decode(&bytes);
            let _ = Batch::decode(&random);
            let _ = Receipt::decode(&random);
        }
    }
}
