//! What ranks send each other: three kinds of message, and the receipt that answers each.
//!
//! * A *regular* batch is what one rank's subtree gained in a period. It builds on the batch before it on the same
//!   link (dictionary, states, identities), which it names, so that the receiver can tell when it does not have that.
//! * A *detached* batch stands for itself: one that was sealed in an earlier load, or one in doubt.
//! * A *question* asks whether a batch in doubt has arrived.
//!
//! `docs/batch.md` has all of it byte by byte.

mod flows;

use crate::idset::IdSet;
use crate::marks::{BatchId, Ids};
use crate::series::{CATALOG_MOST, Key};
use crate::value::States;
use crate::wire::{DecodeError, Reader, Writer, list};
pub(crate) use flows::{Numbered, WireFlows, WriteFlows};

/// The version of all formats here. A receiver refuses any other, the sender keeps what it has in custody.
pub(crate) const VERSION: u8 = 4;

const KIND: u8 = 3;
const REGULAR: u8 = 0;
const DETACHED: u8 = 1;
const QUESTION: u8 = 2;
const CLOSING: u8 = 4;
const SEALED: u8 = 8;
const LONE: u8 = 16;
const BOUND: u8 = 32;
const DOUBT: u8 = 64;
const WITHDRAWN: u8 = 128;

/// Bounds on what one batch may hold; each item takes a byte at least, so its size bounds it too. A full catalog has room
/// for what the service says of itself beyond its bound, and for the sum of what ends.
pub(crate) const SERIES_MAX: usize = 1 << 20;
const _: () = assert!(CATALOG_MOST < SERIES_MAX);
const GROUPS_MAX: usize = 10_000;

/// What a series' merged states became; `None`: there are none any more.
pub(crate) type StateChange = Option<States>;

/// Ranks that were last heard of equally long ago.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) age_ms: u64,
    /// What was heard is that they unloaded.
    pub(crate) closed: bool,
    pub(crate) ranks: IdSet,
}

/// See the module's description. Series are numbered by the sender.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Regular<F = WireFlows> {
    pub(crate) rank: u32,
    pub(crate) epoch: u64,
    /// The number of this message on its link.
    pub(crate) link_seq: u64,
    /// The number of the message that it builds on; zero: on none, everything is here.
    pub(crate) after: u64,
    /// The sender unloads: its states are withdrawn.
    pub(crate) closing: bool,
    /// The clear that its flows come after: the sequence number of an event, which Flux counts in 32 bits.
    pub(crate) generation: u64,
    /// Its number among the batches of its rank and epoch, which makes its identity; without flows there is none, and
    /// a repeat does no harm.
    pub(crate) seq: Option<u64>,
    /// How long the sender's own flows took.
    pub(crate) span_ns: u64,
    pub(crate) coverage: Vec<Group>,
    /// How long the coverage holds.
    pub(crate) expiry_ms: u64,
    /// Of the batches that are merged into it: ranks of which the expected next one is.
    pub(crate) next: IdSet,
    /// And all others.
    pub(crate) contains: Ids,
    /// The number of the first key in `dictionary`.
    pub(crate) first: u32,
    pub(crate) dictionary: Vec<Key>,
    pub(crate) flows: F,
    /// Ascending numbers.
    pub(crate) states: Vec<(u32, StateChange)>,
    /// Ascending numbers that stand for nothing from now on: of series that have ended.
    pub(crate) withdrawn: Vec<u32>,
}

/// See the module's description. Series are numbered by its own dictionary.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Detached<F = WireFlows> {
    pub(crate) id: BatchId,
    /// Some receiver may have merged it.
    pub(crate) doubt: bool,
    /// The rank that may have, if it is known: no other may merge it.
    pub(crate) bound: Option<u32>,
    pub(crate) generation: u64,
    pub(crate) contains: Ids,
    pub(crate) dictionary: Vec<Key>,
    pub(crate) flows: F,
}

/// See the module's description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) id: BatchId,
    /// As in [`Detached`].
    pub(crate) bound: Option<u32>,
}

/// What one rank sends another.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Message {
    Regular(Box<Regular>),
    Detached(Box<Detached>),
    Question(Question),
}

impl<F> Regular<F> {
    pub(crate) fn id(&self) -> Option<BatchId> {
        Some(BatchId { rank: self.rank, epoch: self.epoch, seq: self.seq? })
    }

    /// Whether only the sender's own rank contributed: then the peak of each flow is its own rate, and not sent.
    fn is_lone(&self) -> bool {
        self.contains.is_empty() && self.next.is_empty()
    }

    pub(crate) fn encode(&self) -> Vec<u8>
    where
        F: WriteFlows,
    {
        let mut out = Writer::new();
        let lone = self.is_lone();
        out.byte(VERSION);
        let withdrawn = !self.withdrawn.is_empty();
        let sealed = self.seq.is_some();
        let flags = flag(self.closing, CLOSING) | flag(sealed, SEALED) | flag(lone, LONE);
        out.byte(REGULAR | flags | flag(withdrawn, WITHDRAWN));
        out.uint(u64::from(self.rank));
        out.fixed64(self.epoch);
        out.uint(self.link_seq);
        out.uint(self.link_seq - self.after);
        out.uint(self.generation);
        out.count(self.coverage.len());
        for group in &self.coverage {
            out.uint((group.age_ms << 1) | u64::from(group.closed));
            group.ranks.encode(&mut out);
        }
        out.uint(self.expiry_ms);
        out.uint(u64::from(self.first));
        out.count(self.dictionary.len());
        self.dictionary.iter().for_each(|key| key.encode(&mut out));
        if let Some(seq) = self.seq {
            out.uint(seq);
            out.uint(self.span_ns);
            if !lone {
                self.next.encode(&mut out);
                self.contains.encode(&mut out);
            }
            self.flows.write(!lone, &mut out);
        }
        let mut next = 0;
        out.count(self.states.len());
        for (number, change) in &self.states {
            out.uint(u64::from(number - next));
            next = *number;
            match change {
                Some(states) => states.encode(&mut out),
                None => out.uint(0),
            }
        }
        if withdrawn {
            let mut next = 0;
            out.count(self.withdrawn.len());
            for &number in &self.withdrawn {
                out.uint(u64::from(number - next));
                next = number;
            }
        }
        out.into_bytes()
    }
}

impl Regular {
    fn decode(flags: u8, size: u32, from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (rank, epoch, link_seq) = (from.u32()?, from.fixed64()?, from.uint()?);
        let after =
            link_seq.checked_sub(from.uint()?).ok_or(DecodeError::Malformed("link before its start"))?;
        let generation = u64::from(from.u32()?);
        let mut covered = 0_u64;
        let coverage = list(from, GROUPS_MAX, |from| {
            let age = from.uint()?;
            let group = Group { age_ms: age >> 1, closed: age & 1 != 0, ranks: IdSet::decode(from)? };
            covered += group.ranks.len();
            if covered > size.into() {
                return Err(DecodeError::Malformed("more ranks covered than there are"));
            }
            Ok(group)
        })?;
        let expiry_ms = from.uint()?;
        let first = from.u32()?;
        let dictionary = list(from, SERIES_MAX, Key::decode)?;
        let (mut seq, mut span_ns) = (None, 0);
        let (mut next, mut contains, mut flows) = (IdSet::new(), Ids::default(), WireFlows::default());
        if flags & SEALED != 0 {
            seq = Some(from.uint()?);
            span_ns = from.uint()?;
            let lone = flags & LONE != 0;
            if !lone {
                next = IdSet::decode(from)?;
                contains = Ids::decode(from)?;
            }
            flows = WireFlows::decode(!lone, from)?;
            if lone {
                flows.own_peaks(span_ns, rank);
            }
        }
        let mut number = 0_u32;
        let states = list(from, SERIES_MAX, |from| {
            let beyond = DecodeError::Malformed("series beyond 32 bits");
            number = number.checked_add(from.u32()?).ok_or(beyond)?;
            Ok((number, States::decode_change(from)?))
        })?;
        let mut withdrawn = Vec::new();
        if flags & WITHDRAWN != 0 {
            let mut number = 0_u32;
            withdrawn = list(from, SERIES_MAX, |from| {
                number =
                    number.checked_add(from.u32()?).ok_or(DecodeError::Malformed("series beyond 32 bits"))?;
                Ok(number)
            })?;
            if withdrawn.is_empty() {
                return Err(DecodeError::Malformed("nothing is withdrawn"));
            }
        }
        let closing = flags & CLOSING != 0;
        Ok(Regular {
            rank,
            epoch,
            link_seq,
            after,
            closing,
            generation,
            seq,
            span_ns,
            coverage,
            expiry_ms,
            next,
            contains,
            first,
            dictionary,
            flows,
            states,
            withdrawn,
        })
    }
}

impl<F: WriteFlows> Detached<F> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.byte(VERSION);
        out.byte(DETACHED | flag(self.doubt, DOUBT) | flag(self.bound.is_some(), BOUND));
        self.id.encode(&mut out);
        self.bound.iter().for_each(|&rank| out.uint(u64::from(rank)));
        out.uint(self.generation);
        self.contains.encode(&mut out);
        out.count(self.dictionary.len());
        self.dictionary.iter().for_each(|key| key.encode(&mut out));
        self.flows.write(true, &mut out);
        out.into_bytes()
    }
}

impl Detached {
    fn decode(flags: u8, from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let id = BatchId::decode(from)?;
        let bound = if flags & BOUND != 0 { Some(from.u32()?) } else { None };
        let generation = u64::from(from.u32()?);
        let contains = Ids::decode(from)?;
        let dictionary = list(from, SERIES_MAX, Key::decode)?;
        let flows = WireFlows::decode(true, from)?;
        Ok(Detached { id, doubt: flags & DOUBT != 0, bound, generation, contains, dictionary, flows })
    }
}

impl Question {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut out = Writer::new();
        out.byte(VERSION);
        out.byte(QUESTION | flag(self.bound.is_some(), BOUND));
        self.id.encode(&mut out);
        self.bound.iter().for_each(|&rank| out.uint(u64::from(rank)));
        out.into_bytes()
    }
}

impl Message {
    /// `size`: how many ranks there are, and a message may cover.
    pub(crate) fn decode(bytes: &[u8], size: u32) -> Result<Self, DecodeError> {
        let mut from = Reader::new(bytes);
        version(&mut from)?;
        let flags = from.byte()?;
        let (kind, flags) = (flags & KIND, flags & !KIND);
        let message = match kind {
            REGULAR if flags & !(CLOSING | SEALED | LONE | WITHDRAWN) == 0 => {
                Message::Regular(Box::new(Regular::decode(flags, size, &mut from)?))
            }
            DETACHED if flags & !(BOUND | DOUBT) == 0 => {
                Message::Detached(Box::new(Detached::decode(flags, &mut from)?))
            }
            QUESTION if flags & !BOUND == 0 => {
                let id = BatchId::decode(&mut from)?;
                let bound = if flags & BOUND != 0 { Some(from.u32()?) } else { None };
                Message::Question(Question { id, bound })
            }
            _ => return Err(DecodeError::Malformed("unknown flag")),
        };
        from.end()?;
        Ok(message)
    }
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

/// What became of a message that was not refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// It is in the receiver's custody, now or already.
    Taken,
    /// Nothing was merged: the receiver needs all that it builds on. Send in full. To a question: it has not arrived, send it.
    NeedFull,
    /// Nothing was merged: it may be elsewhere, and is not known here.
    NotTaken,
}

/// What a receiver answers to a message that it did not refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Receipt {
    pub(crate) status: Status,
    /// Who has received it.
    pub(crate) rank: u32,
    pub(crate) epoch: u64,
    /// The newest clear that the receiver knows of.
    pub(crate) generation: u64,
    /// How often the receiver can afford a batch; zero: as often as the sender likes.
    pub(crate) period_ns: u64,
}

impl Receipt {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut out = Writer::new();
        out.byte(VERSION);
        out.byte(match self.status {
            Status::Taken => 0,
            Status::NeedFull => 1,
            Status::NotTaken => 2,
        });
        out.uint(u64::from(self.rank));
        out.fixed64(self.epoch);
        out.uint(self.generation);
        out.uint(self.period_ns);
        out.into_bytes()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(bytes);
        version(&mut from)?;
        let status = match from.byte()? {
            0 => Status::Taken,
            1 => Status::NeedFull,
            2 => Status::NotTaken,
            _ => return Err(DecodeError::Malformed("unknown status")),
        };
        let (rank, epoch, generation) = (from.u32()?, from.fixed64()?, u64::from(from.u32()?));
        let period_ns = from.uint()?;
        from.end()?;
        Ok(Receipt { status, rank, epoch, generation, period_ns })
    }
}

#[cfg(test)]
mod documented;
#[cfg(test)]
mod tests;
