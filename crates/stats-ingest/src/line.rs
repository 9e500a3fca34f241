//! One line of statsd, as etsy's statsd, brubeck and DogStatsD clients write it.
//!
//! `name:value|type[|@rate][|#tags][|c:container][|Tseconds][|e:external][|card:level]`
//!
//! Sections after the type come in any order. Several values are one line in two ways: `a:1:2:3|ms` (DogStatsD 1.1) and
//! `a:1|c:2|ms` (etsy, without tags). A line is taken whole or refused whole. What decides each case in which
//! implementations differ is the table in `tests/conformance.rs`.

use crate::number;
use stats_core::Amount;

/// A rate below this is a mistake: one line would stand for 10^9 and more.
const RATE_MIN: f64 = 1e-9;
/// So many digits, times a million, are below 2^64.
const PLAIN_DIGITS: usize = 12;

/// Why a line is no metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bad {
    /// It has no name, value and type.
    Format,
    /// The name is empty or has an empty part between dots.
    Name,
    /// A value is not a finite decimal number, or there is none.
    Value,
    /// A duration, a sample of a histogram or a cumulative count is negative.
    Negative,
    /// A number is too large.
    Range,
    /// The type is unknown.
    Type,
    /// The sample rate is not above 0 and at most 1.
    Rate,
    /// Tags are given twice or in two styles, or hold a control or other unseen character.
    Tags,
    /// A section after the type is empty or unknown.
    Section,
    /// It is not UTF-8.
    Utf8,
}

impl Bad {
    /// All of them, in the order of their numbers.
    pub const ALL: [Bad; 10] = [
        Bad::Format,
        Bad::Name,
        Bad::Value,
        Bad::Negative,
        Bad::Range,
        Bad::Type,
        Bad::Rate,
        Bad::Tags,
        Bad::Section,
        Bad::Utf8,
    ];

    /// As series and answers name it.
    pub fn name(self) -> &'static str {
        match self {
            Bad::Format => "format",
            Bad::Name => "name",
            Bad::Value => "value",
            Bad::Negative => "negative",
            Bad::Range => "range",
            Bad::Type => "type",
            Bad::Rate => "rate",
            Bad::Tags => "tags",
            Bad::Section => "section",
            Bad::Utf8 => "utf8",
        }
    }

    /// What a line should have had instead.
    pub fn expected(self) -> &'static str {
        match self {
            Bad::Format => "NAME:VALUE|TYPE",
            Bad::Name => "a name with no empty part between dots",
            Bad::Value => "a finite decimal number",
            Bad::Negative => "a number from 0",
            Bad::Range => "a number up to 1e20, of a timer or histogram up to 1.8e13",
            Bad::Type => "one of the types c, g, ms, h, d, s and C",
            Bad::Rate => "a sample rate above 0 and at most 1",
            Bad::Tags => "tags once, in one style, without control or other unseen characters",
            Bad::Section => "|@RATE, |#TAGS, |TSECONDS or |KEY:VALUE after the type",
            Bad::Utf8 => "UTF-8",
        }
    }
}

/// What a type makes of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// `c`: added, by what the rate says it stands for.
    Count,
    /// `C`, of brubeck: a total so far, of which the gain since the last one is added.
    Cumulative,
    /// `g`: replaced, or changed when it begins with a sign.
    Gauge,
    /// `ms`: durations.
    Milliseconds,
    /// `h` and `d`: samples of anything else.
    Histogram,
    /// `s`: members.
    Set,
}

impl Form {
    fn of(text: &[u8]) -> Result<Self, Bad> {
        Ok(match text {
            b"c" => Form::Count,
            b"ms" => Form::Milliseconds,
            b"g" => Form::Gauge,
            b"h" | b"d" => Form::Histogram,
            b"s" => Form::Set,
            b"C" => Form::Cumulative,
            _ => return Err(Bad::Type),
        })
    }
}

/// One value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// To be added.
    Add(Amount),
    /// A total so far.
    SoFar(Amount),
    /// A gauge's new value.
    Set(Amount),
    /// A change of a gauge.
    Change(Amount),
    /// A sample in millionths (of a millisecond for [`Form::Milliseconds`], which makes it nanoseconds), and how many
    /// it stands for.
    Sample(u64, f64),
    /// A member of a set.
    Member(&'a [u8]),
}

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Line<'a> {
    /// Nothing.
    Empty,
    /// A DogStatsD event.
    Event,
    /// A DogStatsD service check.
    ServiceCheck,
    /// Values of a metric.
    Metric(Metric<'a>),
}

/// A metric's name as it was sent, with its values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric<'a> {
    /// The name, which may have tags in it.
    pub name: &'a [u8],
    /// What is between `|#` and the next `|`.
    pub tags: &'a [u8],
    values: Values<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Values<'a> {
    One(Form, Value<'a>),
    /// All that follows the name: known to be good.
    Many(&'a [u8]),
}

impl<'a> Line<'a> {
    /// Reads a line without its newline.
    pub fn parse(line: &'a [u8]) -> Result<Self, Bad> {
        if line.is_ascii() || std::str::from_utf8(line).is_ok() {
            Self::parse_text(line)
        } else {
            Err(Bad::Utf8)
        }
    }

    /// Reads what is known to be UTF-8.
    #[inline]
    pub(crate) fn parse_text(line: &'a [u8]) -> Result<Self, Bad> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.first() == Some(&b'_') {
            if line.starts_with(b"_e{") {
                return Ok(Line::Event);
            }
            if line.starts_with(b"_sc|") {
                return Ok(Line::ServiceCheck);
            }
        }
        let Some(colon) = memchr::memchr(b':', line) else {
            return if line.is_empty() { Ok(Line::Empty) } else { Err(Bad::Format) };
        };
        let (name, body) = (&line[..colon], &line[colon + 1..]);
        if name.is_empty() {
            return Err(Bad::Name);
        }
        let mut tags: &[u8] = &[];
        let (group, more) = Group::parse(body, &mut tags)?;
        let values = if more.is_empty() && group.is_single() {
            Values::One(group.form, group.value(group.values)?)
        } else {
            visit(body, &mut |_, _| {})?;
            Values::Many(body)
        };
        Ok(Line::Metric(Metric { name, tags, values }))
    }
}

impl<'a> Metric<'a> {
    /// Gives each value to `take`, in the order in which they were sent.
    #[inline]
    pub fn for_each(&self, mut take: impl FnMut(Form, Value<'a>)) {
        match self.values {
            Values::One(form, value) => take(form, value),
            // It was read before: it is good.
            Values::Many(body) => drop(visit(body, &mut take)),
        }
    }
}

/// What most lines are: a name, a whole number without a sign, and `c`, `g` or `ms`.
///
/// [`Line::parse`] reads it as the same, but through values that are large to pass on: that takes twice as long.
pub(crate) struct Plain<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) form: Form,
    /// Below 10^12: times a million, it is below 2^64.
    pub(crate) number: u64,
}

impl<'a> Plain<'a> {
    #[inline]
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        let colon = memchr::memchr(b':', line)?;
        let (name, body) = (&line[..colon], &line[colon + 1..]);
        let mut number = 0_u64;
        let mut at = 0;
        loop {
            let byte = *body.get(at)?;
            let digit = byte.wrapping_sub(b'0');
            if digit < 10 && at < PLAIN_DIGITS {
                number = number * 10 + u64::from(digit);
                at += 1;
            } else if byte == b'|' && at > 0 {
                break;
            } else {
                return None;
            }
        }
        let form = match &body[at + 1..] {
            b"c" => Form::Count,
            b"ms" => Form::Milliseconds,
            b"g" => Form::Gauge,
            _ => return None,
        };
        (!name.is_empty() && *name.first()? != b'_').then_some(Plain { name, form, number })
    }

    /// As [`Metric::for_each`] would give it.
    #[inline]
    pub(crate) fn value(&self) -> Value<'static> {
        match self.form {
            Form::Milliseconds => Value::Sample(self.number * 1_000_000, 1.0),
            Form::Gauge => Value::Set(Amount::whole(i128::from(self.number))),
            _ => Value::Add(Amount::whole(i128::from(self.number))),
        }
    }
}

/// Reads all values of what follows a name.
fn visit<'a>(body: &'a [u8], take: &mut dyn FnMut(Form, Value<'a>)) -> Result<(), Bad> {
    let mut tags: &[u8] = &[];
    let (mut rest, mut packed) = (body, false);
    loop {
        let (group, more) = Group::parse(rest, &mut tags)?;
        packed |= !more.is_empty();
        // etsy's own packing knows no tags: which values would they belong to?
        if packed && !tags.is_empty() {
            return Err(Bad::Tags);
        }
        if group.is_single() {
            take(group.form, group.value(group.values)?);
        } else {
            let mut present =
                group.values.split(|&byte| byte == b':').filter(|value| !value.is_empty()).peekable();
            present.peek().ok_or(Bad::Value)?;
            for value in present {
                take(group.form, group.value(value)?);
            }
        }
        if more.is_empty() {
            return Ok(());
        }
        rest = more;
    }
}

/// `value[:value…]|type[|section…]`
struct Group<'a> {
    values: &'a [u8],
    form: Form,
    rate: f64,
}

/// Up to the first of `ends`, and from there on.
#[inline]
fn until<'a>(text: &'a [u8], ends: &[u8]) -> (&'a [u8], &'a [u8]) {
    text.split_at(text.iter().position(|byte| ends.contains(byte)).unwrap_or(text.len()))
}

impl<'a> Group<'a> {
    /// The first group of `text`, and those after it.
    #[inline]
    fn parse(text: &'a [u8], tags: &mut &'a [u8]) -> Result<(Self, &'a [u8]), Bad> {
        let (values, rest) = until(text, b"|");
        let (form, mut rest) = until(rest.get(1..).ok_or(Bad::Format)?, b"|:");
        let mut group = Group { values, form: Form::of(form)?, rate: 1.0 };
        while let [first, after @ ..] = rest {
            if *first == b':' {
                return if after.is_empty() { Err(Bad::Format) } else { Ok((group, after)) };
            }
            rest = group.section(after, tags)?;
        }
        Ok((group, rest))
    }

    /// One section, without its `|`; what follows it.
    fn section(&mut self, text: &'a [u8], tags: &mut &'a [u8]) -> Result<&'a [u8], Bad> {
        if let [b'@', rate @ ..] = text {
            let (rate, rest) = until(rate, b"|:");
            self.rate = parse_rate(rate)?;
            return Ok(rest);
        }
        let (section, rest) = until(text, b"|");
        match section {
            [b'#', list @ ..] if tags.is_empty() => *tags = list,
            [b'#', ..] => return Err(Bad::Tags),
            // When it was measured: we count by when it arrives, as agents do unless told otherwise.
            [b'T', ..] => {}
            // Container, external data, cardinality, and what the protocol adds next: all have this form.
            _ if keyed(section) => {}
            _ => return Err(Bad::Section),
        }
        Ok(rest)
    }

    #[inline]
    fn is_single(&self) -> bool {
        self.form == Form::Set || !self.values.contains(&b':')
    }

    #[inline]
    fn value(&self, text: &'a [u8]) -> Result<Value<'a>, Bad> {
        if self.form == Form::Set {
            return if text.is_empty() { Err(Bad::Value) } else { Ok(Value::Member(text)) };
        }
        let amount = number::parse(text)?;
        Ok(match self.form {
            Form::Count => Value::Add(self.unsampled(amount)?),
            Form::Cumulative => Value::SoFar(self.unsampled(not_negative(amount)?)?),
            Form::Gauge if matches!(text.first(), Some(b'+' | b'-')) => Value::Change(amount),
            Form::Gauge => Value::Set(amount),
            _ => {
                let sample = u64::try_from(not_negative(amount)?.parts()).map_err(|_| Bad::Range)?;
                Value::Sample(sample, 1.0 / self.rate)
            }
        })
    }

    /// What a sampled count stands for.
    #[inline]
    fn unsampled(&self, amount: Amount) -> Result<Amount, Bad> {
        if self.rate == 1.0 { Ok(amount) } else { number::bounded(amount.to_f64() / self.rate) }
    }
}

fn not_negative(amount: Amount) -> Result<Amount, Bad> {
    if amount < Amount::ZERO { Err(Bad::Negative) } else { Ok(amount) }
}

fn keyed(section: &[u8]) -> bool {
    let letters = section.iter().take_while(|byte| byte.is_ascii_lowercase()).count();
    letters > 0 && section.get(letters) == Some(&b':')
}

fn parse_rate(text: &[u8]) -> Result<f64, Bad> {
    let decimal = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E');
    let text = std::str::from_utf8(text).ok().filter(|text| text.bytes().all(decimal));
    let rate: Option<f64> = text.and_then(|text| text.parse().ok());
    rate.filter(|rate| (RATE_MIN..=1.0).contains(rate)).ok_or(Bad::Rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_way_reads_as_the_general_one() {
        let mut short = 0;
        for number in [
            "",
            "0",
            "007",
            "123456789012",
            "1234567890123",
            "99999999999999999999",
            "-1",
            "+1",
            "1.5",
            "1:2",
        ] {
            for form in ["c", "C", "g", "ms", "h", "s", "", "c|", "c|@1", "m", "cc", "ms:1|c"] {
                for name in ["x", "", "_e{1,1}", "_sc|", "a b"] {
                    let line = format!("{name}:{number}|{form}");
                    let Some(plain) = Plain::parse(line.as_bytes()) else { continue };
                    short += 1;
                    let Ok(Line::Metric(metric)) = Line::parse(line.as_bytes()) else { panic!("{line}") };
                    assert_eq!((metric.name, metric.tags), (plain.name, &b""[..]));
                    metric.for_each(|form, value| {
                        assert_eq!((form, value), (plain.form, plain.value()), "{line}")
                    });
                }
            }
        }
        assert_eq!(short, 2 * 3 * 3);
    }
}
