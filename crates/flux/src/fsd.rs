//! Durations as Flux writes them (RFC 23, Flux Standard Duration): a number and a unit.

use crate::error::{Error, Result};
use std::time::Duration;

/// The longest duration accepted: a century, far below what overflows anywhere.
const MAX_S: f64 = 100.0 * 365.25 * 86400.0;

/// Parses `2s`, `1.5m`, `250ms`, `2h`, `7d`, or seconds without a unit. `what` names it in the error. Zero is a
/// duration; negative, infinite and other numbers are not.
pub fn parse_duration(what: &str, text: &str) -> Result<Duration> {
    let bad = || {
        let form = "a number with the unit ms, s, m, h or d (no unit: seconds), as in 2s or 500ms";
        Error::invalid(format!("{what}={text}: expected a duration: {form}"))
    };
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err(bad()),
    };
    // Digits and one point, so that a sign, an exponent, inf and nan are no numbers here.
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(bad());
    }
    let seconds = number.parse::<f64>().map_err(|_| bad())? * scale;
    if seconds > MAX_S { Err(bad()) } else { Ok(Duration::from_secs_f64(seconds)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_of_rfc_23_is_understood() {
        let parsed = |text| parse_duration("period", text).unwrap().as_millis();
        assert_eq!([parsed("2s"), parsed("2"), parsed("250ms"), parsed("1.5m")], [2000, 2000, 250, 90_000]);
        assert_eq!([parsed("2h"), parsed("1d"), parsed("0"), parsed(".5s")], [7_200_000, 86_400_000, 0, 500]);
    }

    #[test]
    fn what_is_no_duration_is_refused_with_key_value_and_form() {
        for text in
            ["abc", "-1", "", "s", "1x", "1e3", "inf", "nan", "1 s", "+1", "1s2", "1..2", "9999999d", "٣s"]
        {
            let error = parse_duration("period", text).unwrap_err();
            assert_eq!(error.errnum(), libc::EINVAL);
            assert!(error.to_string().starts_with(&format!("period={text}: expected a duration")), "{error}");
        }
    }
}
