//! Recent periods of each series: what a flow gained in each, or what a state was at its end, in two and a half bytes.
//!
//! History is for sparklines, `since` and reports; totals are exact without it. An amount is kept with 12 bits after the
//! leading one: whole numbers below 8192 exactly, others within 1/8192 (0.012 %).

use crate::amount::Amount;
use std::collections::VecDeque;

/// Periods that are kept at most: ten minutes of two seconds. With shorter periods several share a slot.
pub(crate) const SLOTS_MAX: usize = 300;
/// The relative error of an amount in the history.
pub const HISTORY_ERROR: f64 = 1.0 / 8192.0;

const MANTISSA_BITS: u32 = 16;
const EXPONENT_BITS: u32 = 6;
const SIGN: u32 = 1 << 23;
const WHOLE: u32 = 1 << 22;

/// An amount in 24 bits: sign, whether it counts units or millionths, an exponent, and 16 bits after the leading one
/// (a relative error of 2^-17). Beyond 2^79 it is the extreme. Zero is zero, and equal amounts are equal codes.
pub(crate) fn code(amount: Amount) -> u32 {
    let (parts, whole) = (amount.parts(), amount.as_whole());
    let form = if parts < 0 { SIGN } else { 0 } | if whole.is_some() && parts != 0 { WHOLE } else { 0 };
    form | float(whole.unwrap_or(parts).unsigned_abs(), MANTISSA_BITS)
}

/// The amount that a code stands for.
pub(crate) fn decode(code: u32) -> Amount {
    let magnitude = unfloat(code & (WHOLE - 1), MANTISSA_BITS);
    let magnitude = if code & SIGN != 0 { -magnitude } else { magnitude };
    if code & WHOLE != 0 { Amount::whole(magnitude) } else { Amount::from_parts(magnitude) }
}

/// Exponent and mantissa of a whole number; as it is while it fits in the mantissa.
fn float(magnitude: u128, mantissa_bits: u32) -> u32 {
    let length = 128 - magnitude.leading_zeros();
    if length <= mantissa_bits {
        return magnitude as u32;
    }
    let drop = length - mantissa_bits - 1;
    // Half of what is dropped rounds to the nearest; a carry may lengthen the number.
    let rounded = if drop == 0 { magnitude } else { magnitude.saturating_add(1 << (drop - 1)) };
    let carried = 128 - rounded.leading_zeros() > length;
    let (drop, mantissa) = (drop + u32::from(carried), rounded >> (drop + u32::from(carried)));
    let exponent = drop + 1;
    if exponent >= 1 << EXPONENT_BITS {
        return (1 << (EXPONENT_BITS + mantissa_bits)) - 1;
    }
    (exponent << mantissa_bits) | (mantissa as u32 & ((1 << mantissa_bits) - 1))
}

fn unfloat(code: u32, mantissa_bits: u32) -> i128 {
    let (exponent, mantissa) = (code >> mantissa_bits, i128::from(code & ((1 << mantissa_bits) - 1)));
    if exponent == 0 { mantissa } else { ((1_i128 << mantissa_bits) | mantissa) << (exponent - 1) }
}

/// Amounts of one series, a slot for each of [`SLOTS_MAX`] periods, in 20 bits each. A slot that was not set is unknown,
/// and reads as zero.
#[derive(Debug, Clone)]
pub(crate) struct Ring(Box<[u8; SLOTS_MAX / 2 * 5]>);

impl Default for Ring {
    fn default() -> Self {
        Ring(Box::new([0; SLOTS_MAX / 2 * 5]))
    }
}

/// The 24 bits of a code with four bits of the mantissa rounded away.
fn shorten(amount: Amount) -> u32 {
    let (parts, whole) = (amount.parts(), amount.as_whole());
    let form = if parts < 0 { 1 << 19 } else { 0 } | if whole.is_some() { 1 << 18 } else { 0 };
    form | float(whole.unwrap_or(parts).unsigned_abs(), 12)
}

/// The code of a slot that was not set. No amount has it: zero is whole, and what is not whole is not zero.
const UNKNOWN: u32 = 0;

impl Ring {
    pub(crate) fn set(&mut self, slot: usize, amount: Amount) {
        self.write(slot, shorten(amount));
    }

    /// A slot is unknown from now on.
    pub(crate) fn unset(&mut self, slot: usize) {
        self.write(slot, UNKNOWN);
    }

    fn write(&mut self, slot: usize, code: u32) {
        let (at, code) = (slot / 2 * 5, code.to_le_bytes());
        let bytes = &mut self.0[at..at + 5];
        if slot.is_multiple_of(2) {
            bytes[..2].copy_from_slice(&code[..2]);
            bytes[2] = (bytes[2] & 0xf0) | code[2];
        } else {
            bytes[2] = (bytes[2] & 0x0f) | (code[0] << 4);
            bytes[3] = (code[0] >> 4) | (code[1] << 4);
            bytes[4] = (code[1] >> 4) | (code[2] << 4);
        }
    }

    fn read(&self, slot: usize) -> u32 {
        let bytes = &self.0[slot / 2 * 5..];
        let packed = bytes[..5].iter().rev().fold(0_u64, |packed, &byte| (packed << 8) | u64::from(byte));
        (packed >> (20 * (slot % 2))) as u32 & 0xf_ffff
    }

    /// `None`: it is unknown.
    pub(crate) fn known(&self, slot: usize) -> Option<Amount> {
        (self.read(slot) != UNKNOWN).then(|| self.get(slot))
    }

    pub(crate) fn get(&self, slot: usize) -> Amount {
        let code = self.read(slot);
        let magnitude = unfloat(code & 0x3_ffff, 12);
        let magnitude = if code & (1 << 19) != 0 { -magnitude } else { magnitude };
        if code & (1 << 18) != 0 { Amount::whole(magnitude) } else { Amount::from_parts(magnitude) }
    }
}

/// When the slots were, the same for all series of a store.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    /// How much time a slot should take; `None`: no history is kept.
    slot_ns: Option<u64>,
    slots: usize,
    /// The slot that is filled next.
    next: usize,
    /// End (wall clock) and length of each filled slot, the oldest first.
    filled: VecDeque<(u64, u64)>,
    /// Time in the slot that is being filled.
    pending_ns: u64,
}

impl Timeline {
    /// Keeps `history_ns`, in slots of a period or more.
    pub(crate) fn new(history_ns: u64, period_ns: u64) -> Self {
        let slot_ns = period_ns.max(history_ns / SLOTS_MAX as u64).max(1);
        let slots = (history_ns / slot_ns).min(SLOTS_MAX as u64) as usize;
        let slot_ns = (slots > 0).then_some(slot_ns);
        Timeline { slot_ns, slots, ..Timeline::default() }
    }

    /// Forgets all slots.
    pub(crate) fn clear(&mut self) {
        self.filled.clear();
        (self.next, self.pending_ns) = (0, 0);
    }

    /// A period of `span_ns` has ended: the slot that is complete with it, if one is.
    pub(crate) fn advance(&mut self, span_ns: u64, wall_ns: u64) -> Option<usize> {
        self.pending_ns = self.pending_ns.saturating_add(span_ns);
        // A period is a little short as often as a little long.
        if self.slot_ns.is_none_or(|slot_ns| self.pending_ns < slot_ns - slot_ns / 4) {
            return None;
        }
        let slot = self.next;
        self.next = (slot + 1) % self.slots;
        if self.filled.len() == self.slots {
            self.filled.pop_front();
        }
        self.filled.push_back((wall_ns, std::mem::take(&mut self.pending_ns)));
        Some(slot)
    }

    /// How many slots there are at most.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    pub(crate) fn put(&self, ring: &mut Option<Ring>, slot: usize, gained: Amount) {
        // A series that never gained anything takes no room.
        if gained != Amount::ZERO || ring.is_some() {
            ring.get_or_insert_default().set(slot, gained);
        }
    }

    /// The slots that ended within the last `since_ns`, the oldest first: slot, end (wall clock), length.
    pub(crate) fn recent(&self, now_wall_ns: u64, since_ns: u64) -> Vec<(usize, u64, u64)> {
        let first = (self.next + self.slots - self.filled.len()).checked_rem(self.slots).unwrap_or(0);
        let slots = self.filled.iter().enumerate();
        slots
            .map(|(position, &(end, length))| ((first + position) % self.slots, end, length))
            .filter(|&(_, end, _)| end.saturating_add(since_ns) >= now_wall_ns)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PARTS: i128 = 1_000_000;

    proptest! {
        #[test]
        fn a_code_is_near_its_amount_and_its_own_code(parts in any::<i128>(), shift in 0_u32..127, unit in 0_usize..2) {
            let parts = (parts >> shift) / [1, PARTS][unit] * [1, PARTS][unit];
            prop_assume!(parts.unsigned_abs() < 1 << 74);
            let amount = Amount::from_parts(parts);
            let near = decode(code(amount));
            prop_assert_eq!(code(near), code(decode(code(near))));
            prop_assert!((near.parts() - parts).abs() <= parts.abs() >> 16, "{} {}", near.parts(), parts);
            let mut ring = Ring::default();
            ring.set(7, amount);
            ring.set(6, Amount::whole(-8191));
            ring.set(8, Amount::from_parts(5));
            prop_assert!((ring.get(7).parts() - parts).abs() <= parts.abs() >> 12, "{} {}", ring.get(7).parts(), parts);
            prop_assert_eq!(ring.get(6), Amount::whole(-8191));
            prop_assert_eq!(ring.get(8), Amount::from_parts(5));
            prop_assert_eq!(ring.known(7), Some(ring.get(7)), "what is set is known");
            ring.unset(7);
            prop_assert_eq!((ring.known(7), ring.known(9), ring.get(7)), (None, None, Amount::ZERO));
            prop_assert_eq!((ring.get(6), ring.get(8)), (Amount::whole(-8191), Amount::from_parts(5)));
        }
    }

    #[test]
    fn the_timeline_keeps_what_is_recent_and_no_more() {
        let s = 1_000_000_000;
        let mut timeline = Timeline::new(600 * s, 2 * s);
        for period in 1..=1000 {
            assert!(timeline.advance(2 * s, period * 2 * s).is_some());
        }
        let recent = timeline.recent(2000 * s, 10 * s);
        assert_eq!(
            recent.iter().map(|&(_, end, _)| end / s).collect::<Vec<_>>(),
            [1990, 1992, 1994, 1996, 1998, 2000]
        );
        assert_eq!(timeline.recent(2000 * s, u64::MAX).len(), SLOTS_MAX);
        let mut short = Timeline::new(600 * s, s / 2);
        let filled = (0..40).filter_map(|period| short.advance(s / 2, period * s / 2)).count();
        assert_eq!(filled, 10 * 4 / 3);
        assert!(Timeline::new(0, s).advance(s, s).is_none());
    }
}
