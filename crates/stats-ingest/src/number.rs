//! Decimal numbers, exactly as far as an [`Amount`] is exact.

use crate::line::Bad;
use stats_core::Amount;

/// The largest magnitude of one value. Far above any 64-bit number, and so far below an [`Amount`]'s extreme that
/// 10^12 such lines are summed before a total stays there.
const UNITS_MAX: f64 = 1e20;
/// Digits that a 64-bit integer holds, whatever they are.
const DIGITS_MAX: usize = 18;
/// Millionths are kept.
const FRACTION_DIGITS: u32 = 6;

/// Reads `[+-]digits[.digits][e[+-]digits]`, at least one digit before or after the point. What is not finite, in
/// another base, or surrounded by space is no number here: one NaN would poison the sum of a whole tree.
pub(crate) fn parse(text: &[u8]) -> Result<Amount, Bad> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let mut whole = 0_i64;
    let mut at = 0;
    while let Some(digit) = digits.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|&digit| digit < 10) {
        if at == DIGITS_MAX {
            return long(text);
        }
        whole = whole * 10 + i64::from(digit);
        at += 1;
    }
    if at == digits.len() && at > 0 {
        return Ok(Amount::whole(i128::from(if negative { -whole } else { whole })));
    }
    let parts = match &digits[at..] {
        [b'.', fraction @ ..] => match fraction_parts(fraction) {
            Some(parts) if at > 0 || !fraction.is_empty() => {
                i128::from(whole) * 1_000_000 + i128::from(parts)
            }
            _ => return long(text),
        },
        _ => return long(text),
    };
    Ok(Amount::from_parts(if negative { -parts } else { parts }))
}

/// Millionths, the seventh digit rounded half up; `None` for what is not digits alone.
fn fraction_parts(digits: &[u8]) -> Option<i64> {
    let (mut parts, mut round_up) = (0, 0);
    for (place, byte) in digits.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        match place as u32 {
            place if place < FRACTION_DIGITS => parts = parts * 10 + i64::from(digit),
            FRACTION_DIGITS => round_up = i64::from(digit >= 5),
            _ => {}
        }
    }
    let missing = FRACTION_DIGITS.saturating_sub(digits.len() as u32);
    Some(parts * 10_i64.pow(missing) + round_up)
}

/// What has an exponent or many digits.
fn long(text: &[u8]) -> Result<Amount, Bad> {
    let decimal = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E');
    let text = std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| decimal(&byte)));
    let text = text.ok_or(Bad::Value)?;
    let units = bounded(text.parse().map_err(|_| Bad::Value)?)?;
    // A double holds no whole number of 64 bits exactly.
    Ok(text.parse().map_or(units, Amount::whole))
}

/// The amount nearest to a number of a magnitude that one value may have.
pub(crate) fn bounded(units: f64) -> Result<Amount, Bad> {
    if units.abs() <= UNITS_MAX { Amount::nearest(units).ok_or(Bad::Range) } else { Err(Bad::Range) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(text: &str) -> Result<i128, Bad> {
        parse(text.as_bytes()).map(Amount::parts)
    }

    #[test]
    fn decimals_are_exact_to_a_millionth() {
        for (text, expected) in [
            ("0", 0),
            ("-0.0", 0),
            ("1", 1_000_000),
            ("+5", 5_000_000),
            ("-7.25", -7_250_000),
            (".5", 500_000),
            ("1.", 1_000_000),
            ("0.1", 100_000),
            ("0.0000005", 1),
            ("0.00000049", 0),
            ("0.9999999", 1_000_000),
            ("+10e1", 100_000_000),
            ("2E-1", 200_000),
            ("999999999999999999", 999_999_999_999_999_999_000_000),
            ("9007199254740993", 9_007_199_254_740_993_000_000),
            ("100000000000000000000", 100_000_000_000_000_000_000_000_000),
        ] {
            assert_eq!(parts(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_finite_decimal_is_no_number() {
        for text in
            ["", "+", "-", ".", "+.", "e5", "1e", "0x10", "inf", "Infinity", "NaN", "nan", "1_0", " 5", "5 "]
        {
            assert_eq!(parts(text), Err(Bad::Value), "{text}");
        }
        for text in ["1,5", "--1", "1.2.3", "1e1.5", "١"] {
            assert_eq!(parts(text), Err(Bad::Value), "{text}");
        }
        for text in ["1e300", "-1e21", "1e999", &"9".repeat(400)] {
            assert_eq!(parts(text), Err(Bad::Range), "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_fast_road_and_a_double_agree(units in -1.0e9..1.0e9_f64) {
            let text = format!("{units:.6}");
            let near = Amount::nearest(text.parse().unwrap()).unwrap();
            prop_assert_eq!(parse(text.as_bytes()), Ok(near));
        }
    }
}
