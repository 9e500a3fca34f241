//! What a shard keeps of names and of series.

use crate::line::{Form, Value};
use hashbrown::DefaultHashBuilder;
use stats_core::{Amount, Key, Kind, Members, Samples};
use std::hash::{BuildHasher, Hasher};

/// A name and tags as they are sent, for one type.
pub(super) struct Spelling {
    /// The name, then the tags.
    pub(super) text: Box<[u8]>,
    pub(super) name_bytes: u32,
    pub(super) series: u32,
    pub(super) form: Form,
    pub(super) dropped_tags: u8,
    pub(super) of_rank: bool,
    /// When it was last sent, in seconds.
    pub(super) sent_s: u32,
    /// The last cumulative total; of a rank's gauge its part in the sum of all ranks'.
    pub(super) last: Option<Amount>,
}

/// What most lines touch fits in one line of the cache.
pub(super) struct Series {
    pub(super) key: Box<Key>,
    pub(super) source: u32,
    pub(super) job: bool,
    pub(super) spellings: u32,
    /// Its key has been handed over.
    pub(super) known: bool,
    pub(super) changed: bool,
    pub(super) held: Held,
}

pub(super) enum Held {
    Counter(Amount),
    Gauge(Amount),
    /// With the part of a sample that sampling left over: at a rate of 0.3, three samples stand for ten.
    Timer(Box<(Samples, f64)>),
    Set(Box<Members>),
}

/// The room that a series takes.
pub(super) fn cost(kind: Kind) -> usize {
    match kind {
        Kind::Counter | Kind::Gauge => 1,
        Kind::Timer => 2,
        Kind::Set => 8,
    }
}

/// Of a spelling, known or not.
#[inline]
pub(super) fn hash(hasher: &DefaultHashBuilder, form: Form, name: &[u8], tags: &[u8]) -> u64 {
    let mut state = hasher.build_hasher();
    state.write(name);
    if !tags.is_empty() {
        state.write(tags);
    }
    state.write_u8(form as u8);
    state.finish()
}

impl Spelling {
    #[inline]
    pub(super) fn is(&self, form: Form, name: &[u8], tags: &[u8]) -> bool {
        let (own_name, own_tags) = self.parts();
        self.form == form && same(own_name, name) && same(own_tags, tags)
    }

    #[inline]
    pub(super) fn parts(&self) -> (&[u8], &[u8]) {
        self.text.split_at(self.name_bytes as usize)
    }
}

/// Equality, eight bytes at a time. What `==` calls takes longer to choose a way to compare than to compare what is as
/// short as a name: half of a line's time went there.
#[inline]
fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    match (a.last_chunk::<8>(), b.last_chunk::<8>()) {
        (Some(a_end), Some(b_end)) => {
            a_end == b_end && a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0).all(|(a, b)| a == b)
        }
        _ => a.iter().zip(b).all(|(a, b)| a == b),
    }
}

impl Held {
    pub(super) fn new(kind: Kind) -> Self {
        match kind {
            Kind::Counter => Held::Counter(Amount::ZERO),
            Kind::Gauge => Held::Gauge(Amount::ZERO),
            Kind::Timer => Held::Timer(Box::default()),
            Kind::Set => Held::Set(Box::default()),
        }
    }

    /// Adds a value that was sent as `spelling`.
    #[inline]
    pub(super) fn take(&mut self, spelling: &mut Spelling, value: Value<'_>) {
        match (self, value) {
            (Held::Counter(gain), Value::Add(amount)) => *gain = gain.plus(amount),
            (Held::Counter(gain), Value::SoFar(total)) => {
                *gain = gain.plus(gained(&mut spelling.last, total))
            }
            (Held::Gauge(value), Value::Set(new)) if spelling.of_rank => replace_part(value, spelling, new),
            (Held::Gauge(value), Value::Change(by)) if spelling.of_rank => {
                let new = spelling.last.unwrap_or_default().plus(by);
                replace_part(value, spelling, new);
            }
            (Held::Gauge(value), Value::Set(new)) => *value = new,
            (Held::Gauge(value), Value::Change(by)) => *value = value.plus(by),
            (Held::Timer(timer), Value::Sample(sample, stands_for)) => {
                let (samples, left_over) = &mut **timer;
                let times = stands_for + *left_over;
                // Below 10^9 and one.
                samples.add(sample, times as u64);
                *left_over = times.fract();
            }
            (Held::Set(members), Value::Member(member)) => {
                if let Ok(member) = std::str::from_utf8(member) {
                    members.insert(member);
                }
            }
            // A form has one kind, and makes values of that kind.
            _ => debug_assert!(false, "a value of another kind"),
        }
    }
}

/// The gain of a cumulative count, as brubeck has it: the first total only says where to count from, and one that is
/// lower began anew at zero.
fn gained(last: &mut Option<Amount>, total: Amount) -> Amount {
    match last.replace(total) {
        None => Amount::ZERO,
        Some(before) if total < before => total,
        Some(before) => minus(total, before),
    }
}

/// Several ranks may send one gauge here: what is kept is the sum of theirs.
fn replace_part(sum: &mut Amount, spelling: &mut Spelling, new: Amount) {
    let before = spelling.last.replace(new).unwrap_or_default();
    *sum = sum.plus(minus(new, before));
}

pub(super) fn minus(from: Amount, amount: Amount) -> Amount {
    from.plus(Amount::from_parts(amount.parts().saturating_neg()))
}
