//! Exact numbers: integers inside, floating point only at the rim.

use crate::wire::{DecodeError, Reader, Writer};

/// Parts of a unit that an [`Amount`] can tell apart: sampled statsd counters have fractions.
const PARTS: i128 = 1_000_000;

/// The largest amount that has a fraction on the wire, where it shares its bits with a mark.
const EXTREME: i128 = i128::MAX >> 1;

/// A quantity in millionths of its unit: exact for integers, fractions to 1e-6. Ten years of nanoseconds on 11,000
/// ranks are 3.5e27 of these, of 1.7e38 that fit; beyond, it stays at the extreme rather than wrap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(i128);

impl Amount {
    /// Nothing.
    pub const ZERO: Amount = Amount(0);

    /// A whole number of units.
    pub fn whole(units: i128) -> Self {
        // Most numbers fit in 64 bits, here and below: that arithmetic is several times as fast.
        match i64::try_from(units) {
            Ok(units) => Amount(i128::from(units) * PARTS),
            Err(_) => Amount(units.saturating_mul(PARTS)),
        }
    }

    /// The nearest amount to a finite number; `None` for what is not finite.
    pub fn nearest(units: f64) -> Option<Self> {
        // A float to integer cast saturates.
        units.is_finite().then(|| Amount((units * PARTS as f64).round() as i128))
    }

    /// In units, as near as a double can.
    pub fn to_f64(self) -> f64 {
        // Whole and fraction apart: the product with 1e6 may exceed what a double holds exactly, the whole rarely does.
        (self.0 / PARTS) as f64 + (self.0 % PARTS) as f64 / PARTS as f64
    }

    /// In millionths.
    pub fn parts(self) -> i128 {
        self.0
    }

    /// From millionths.
    pub fn from_parts(parts: i128) -> Self {
        Amount(parts)
    }

    /// The whole number of units that it is, if it is one.
    pub(crate) fn as_whole(self) -> Option<i128> {
        match i64::try_from(self.0) {
            Ok(parts) => (parts % PARTS as i64 == 0).then_some(i128::from(parts / PARTS as i64)),
            Err(_) => (self.0 % PARTS == 0).then_some(self.0 / PARTS),
        }
    }

    /// The sum, or the extreme.
    pub fn plus(self, other: Amount) -> Self {
        Amount(self.0.saturating_add(other.0))
    }

    /// As bytes: whole amounts are common, so that a bit tells them apart and spares them the factor of a million.
    pub(crate) fn encode(self, out: &mut Writer) {
        match self.as_whole() {
            Some(whole) => out.signed(whole << 1),
            None => out.signed((self.0.clamp(-EXTREME, EXTREME) << 1) | 1),
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let coded = from.signed()?;
        Ok(if coded & 1 == 0 { Amount::whole(coded >> 1) } else { Amount(coded >> 1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_years_of_nanoseconds_on_every_rank_fit() {
        let rank = Amount::whole(10 * 366 * 86_400 * 1_000_000_000);
        let all = (0..11_000).fold(Amount::ZERO, |sum, _| sum.plus(rank));
        assert_eq!(all.as_whole(), Some(11_000 * 10 * 366 * 86_400 * 1_000_000_000));
    }

    #[test]
    fn fractions_are_kept_to_a_millionth_and_only_finite_numbers_enter() {
        assert_eq!(Amount::nearest(0.1).unwrap().parts(), 100_000);
        assert_eq!(Amount::nearest(-2.5).unwrap().to_f64(), -2.5);
        assert_eq!(Amount::nearest(f64::NAN), None);
        assert_eq!(Amount::nearest(f64::INFINITY), None);
    }
}
