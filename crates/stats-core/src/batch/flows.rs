//! The flows of a batch as bytes.
//!
//! Numbers of series come as runs, so that series which change in every period take no byte of their own; then come
//! all amounts, then all peaks. Counters that are whole and those that have a fraction are apart.

use super::SERIES_MAX;
use crate::amount::Amount;
use crate::flows::{FlowSource, Gain, Sealed};
use crate::members::Members;
use crate::series::{Kind, SeriesId};
use crate::value::{Peak, Samples};
use crate::wire::{DecodeError, Reader, Writer};

/// Flows that are to be written, by the sender's numbers, ascending: with each its place in where they are.
pub(crate) struct Numbered<'a, S> {
    source: &'a S,
    counters: Vec<(u32, u32)>,
    timers: Vec<(u32, u32)>,
    sets: Vec<(u32, u32)>,
}

/// What a batch can be written with.
pub(crate) trait WriteFlows {
    fn write(&self, peaks: bool, out: &mut Writer);
}

impl<'a, S: FlowSource> Numbered<'a, S> {
    /// With each series numbered by `number`; what has none is left out.
    pub(crate) fn new(source: &'a S, number: impl Fn(SeriesId) -> Option<u32>) -> Self {
        let numbered = |kind| {
            let mut all: Vec<_> =
                source.places(kind).filter_map(|(id, place)| Some((number(id)?, place))).collect();
            all.sort_unstable();
            all
        };
        let (counters, timers, sets) = (numbered(Kind::Counter), numbered(Kind::Timer), numbered(Kind::Set));
        Numbered { source, counters, timers, sets }
    }
}

impl<S: FlowSource> WriteFlows for Numbered<'_, S> {
    fn write(&self, peaks: bool, out: &mut Writer) {
        let whole = |gain: &Gain| gain.amount.as_whole();
        let parts = |gain: &Gain| if whole(gain).is_none() { Some(gain.amount.parts()) } else { None };
        let gains = || self.counters.iter().map(|&(number, place)| (number, self.source.gain(place)));
        encode_counters(gains, whole, peaks, out);
        encode_counters(gains, parts, peaks, out);
        encode_runs(self.timers.iter().map(|&(number, _)| number), out);
        self.timers.iter().for_each(|&(_, place)| self.source.samples(place).encode(out));
        encode_runs(self.sets.iter().map(|&(number, _)| number), out);
        self.sets.iter().for_each(|&(_, place)| self.source.members(place).encode(out));
    }
}

/// Gains by the sender's numbers, ascending.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct WireFlows {
    pub(crate) counters: Vec<(u32, Gain)>,
    pub(crate) timers: Vec<(u32, Samples)>,
    pub(crate) sets: Vec<(u32, Members)>,
}

impl WireFlows {
    /// With the receiver's identifiers, and how many values had none or one of another kind.
    pub(crate) fn translated(self, id: impl Fn(u32) -> Option<SeriesId>) -> (Sealed, u64) {
        fn all<T>(
            from: Vec<(u32, T)>,
            kind: Kind,
            id: impl Fn(u32) -> Option<SeriesId>,
        ) -> (Vec<(SeriesId, T)>, u64) {
            let count = from.len();
            let known = from
                .into_iter()
                .filter_map(|(number, value)| Some((id(number).filter(|id| id.kind() == kind)?, value)));
            let known: Vec<_> = known.collect();
            let lost = (count - known.len()) as u64;
            (known, lost)
        }
        let (counters, lost_counters) = all(self.counters, Kind::Counter, &id);
        let (timers, lost_timers) = all(self.timers, Kind::Timer, &id);
        let (sets, lost_sets) = all(self.sets, Kind::Set, &id);
        (Sealed { counters, timers, sets }, lost_counters + lost_timers + lost_sets)
    }

    /// How many values there are.
    pub(crate) fn len(&self) -> usize {
        self.counters.len() + self.timers.len() + self.sets.len()
    }

    /// Where one rank alone contributed, its rates are the peaks.
    pub(crate) fn own_peaks(&mut self, span_ns: u64, rank: u32) {
        for (_, gain) in &mut self.counters {
            gain.peak = Peak::of(gain.amount, span_ns, rank);
        }
    }

    pub(crate) fn decode(peaks: bool, from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut counters = decode_counters(peaks, Amount::whole, from)?;
        let fractions = decode_counters(peaks, Amount::from_parts, from)?;
        if !fractions.is_empty() {
            counters.extend(fractions);
            counters.sort_unstable_by_key(|&(number, _)| number);
            if counters.windows(2).any(|pair| pair[0].0 == pair[1].0) {
                return Err(DecodeError::Malformed("a series twice"));
            }
        }
        let timers = decode_runs(from)?.into_iter().map(|number| Ok((number, Samples::decode(from)?)));
        let timers = timers.collect::<Result<_, DecodeError>>()?;
        let sets = decode_runs(from)?.into_iter().map(|number| Ok((number, Members::decode(from)?)));
        let sets = sets.collect::<Result<_, DecodeError>>()?;
        Ok(WireFlows { counters, timers, sets })
    }
}

/// Runs of consecutive numbers: how far each is from the one before, and its length.
fn encode_runs(numbers: impl Iterator<Item = u32>, out: &mut Writer) {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((first, length)) if *first + *length == number => *length += 1,
            _ => runs.push((number, 1)),
        }
    }
    out.count(runs.iter().map(|&(_, length)| length as usize).sum());
    let mut next = 0;
    for (first, length) in runs {
        out.uint(u64::from(first - next));
        out.uint(u64::from(length));
        next = first + length;
    }
}

/// What follows holds a byte at least for each number.
fn decode_runs(from: &mut Reader<'_>) -> Result<Vec<u32>, DecodeError> {
    let count = from.count(SERIES_MAX)?;
    let (mut numbers, mut next) = (Vec::with_capacity(count), 0_u32);
    while numbers.len() < count {
        let beyond = DecodeError::Malformed("series beyond 32 bits");
        let first = next.checked_add(from.u32()?).ok_or(beyond.clone())?;
        let length = from.u32()?;
        if length == 0 || length as usize > count - numbers.len() {
            return Err(DecodeError::Malformed("run of a wrong length"));
        }
        next = first.checked_add(length).ok_or(beyond)?;
        numbers.extend(first..next);
    }
    Ok(numbers)
}

/// Counters for which `value` is something.
fn encode_counters<I: Iterator<Item = (u32, Gain)>>(
    counters: impl Fn() -> I,
    value: impl Fn(&Gain) -> Option<i128>,
    peaks: bool,
    out: &mut Writer,
) {
    let some = || counters().filter_map(|(number, gain)| Some((number, value(&gain)?, gain.peak)));
    encode_runs(some().map(|(number, ..)| number), out);
    some().for_each(|(_, value, _)| out.signed(value));
    if peaks {
        let mut before = 0;
        some().for_each(|(.., peak)| peak.encode(&mut before, out));
    }
}

fn decode_counters(
    peaks: bool,
    amount: impl Fn(i128) -> Amount,
    from: &mut Reader<'_>,
) -> Result<Vec<(u32, Gain)>, DecodeError> {
    let numbers = decode_runs(from)?;
    let mut counters = Vec::with_capacity(numbers.len());
    for number in numbers {
        counters.push((number, Gain { amount: amount(from.signed()?), peak: Peak::default() }));
    }
    if peaks {
        let mut before = 0;
        for (_, gain) in &mut counters {
            gain.peak = Peak::decode(from, &mut before)?;
        }
    }
    Ok(counters)
}
