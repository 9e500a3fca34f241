//! How one field is laid out: Python's format specification, with Flux's two additions.

/// Columns that a field may be wide, and digits after its point.
const WIDTH_MAX: usize = 1000;
const PRECISION_MAX: usize = 100;
/// Of a number without a precision, as in Python.
const PRECISION: usize = 6;

/// `[[fill]align][sign][0][width][,][.precision][type][h][+]`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    pub(super) width: usize,
    grouping: Option<char>,
    pub(super) precision: Option<usize>,
    pub(super) kind: Option<char>,
    /// `h`: nothing is a hyphen.
    hyphen: bool,
    /// `+`: a text that is cut says so.
    truncation: bool,
}

impl Spec {
    /// `None`: it is none, or too wide.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_align = |c: &char| matches!(c, '<' | '>' | '^' | '=');
        let mut left = Left(text);
        let mut spec = Spec::default();
        let mut first = text.chars();
        let (fill, align) = (first.next(), first.next());
        if let (Some(fill), Some(align)) = (fill, align.filter(is_align)) {
            (spec.fill, spec.align, left) = (Some(fill), Some(align), Left(first.as_str()));
        } else {
            spec.align = left.take(|c| is_align(&c));
        }
        spec.sign = left.take(|c| matches!(c, '+' | '-' | ' '));
        if left.take(|c| c == '0').is_some() && spec.align.is_none() {
            (spec.fill, spec.align) = (Some('0'), Some('='));
        }
        spec.width = left.number(WIDTH_MAX)?.unwrap_or(0);
        spec.grouping = left.take(|c| matches!(c, ',' | '_'));
        if left.take(|c| c == '.').is_some() {
            spec.precision = Some(left.number(PRECISION_MAX)??);
        }
        spec.kind = left.take(|c| matches!(c, 'd' | 'e' | 'E' | 'f' | 'F' | 'g' | 'G' | 'n' | 's' | '%'));
        spec.hyphen = left.take(|c| c == 'h').is_some();
        spec.truncation = left.take(|c| c == '+').is_some();
        left.0.is_empty().then_some(spec)
    }

    /// The heading over it has its place and its width alone.
    pub(super) fn of_heading(self) -> Spec {
        let align = self.align.map(|align| if align == '=' { '>' } else { align });
        Spec { align, width: self.width, ..Spec::default() }
    }

    pub(super) fn without_width(self) -> Spec {
        Spec { width: 0, ..self }
    }

    pub(super) fn text(self, text: &str) -> String {
        let text = if text.is_empty() && self.hyphen { "-" } else { text };
        let cut = self.precision.and_then(|most| text.char_indices().nth(most));
        match cut {
            None => self.pad("", text, '<'),
            Some((end, _)) => {
                let mut kept = text[..end].to_owned();
                if self.truncation && kept.pop().is_some() {
                    kept.push('+');
                }
                self.pad("", &kept, '<')
            }
        }
    }

    pub(super) fn number(self, number: f64) -> String {
        let sign = match self.sign {
            _ if number.is_sign_negative() && number != 0.0 => "-",
            Some('+') => "+",
            Some(' ') => " ",
            _ => "",
        };
        let digits = self.digits(number.abs());
        let digits = self.grouping.map_or_else(|| digits.clone(), |comma| grouped(&digits, comma));
        self.pad(sign, &digits, '>')
    }

    fn digits(self, number: f64) -> String {
        let precision = self.precision.unwrap_or(PRECISION);
        if !number.is_finite() {
            return number.to_string().to_lowercase();
        }
        match self.kind {
            Some('d') => format!("{number:.0}"),
            Some('f' | 'F') => format!("{number:.precision$}"),
            Some('%') => format!("{:.precision$}%", 100.0 * number),
            Some('e') => scientific(number, precision),
            Some('E') => scientific(number, precision).to_uppercase(),
            Some('g' | 'n') => general(number, precision),
            Some('G') => general(number, precision).to_uppercase(),
            _ => match self.precision {
                Some(precision) => general(number, precision),
                None => number.to_string(),
            },
        }
    }

    fn pad(self, sign: &str, text: &str, usual: char) -> String {
        let length = sign.len() + text.chars().count();
        let missing = self.width.saturating_sub(length);
        let fill = |count: usize| self.fill.unwrap_or(' ').to_string().repeat(count);
        match self.align.unwrap_or(usual) {
            '<' => format!("{sign}{text}{}", fill(missing)),
            '^' => format!("{}{sign}{text}{}", fill(missing / 2), fill(missing - missing / 2)),
            '=' => format!("{sign}{}{text}", fill(missing)),
            _ => format!("{}{sign}{text}", fill(missing)),
        }
    }
}

/// What has not been read yet.
struct Left<'a>(&'a str);

impl Left<'_> {
    fn take(&mut self, allowed: impl Fn(char) -> bool) -> Option<char> {
        let first = self.0.chars().next().filter(|first| allowed(*first))?;
        self.0 = &self.0[first.len_utf8()..];
        Some(first)
    }

    /// The outer `None`: it is more than `max`; the inner: there is none.
    fn number(&mut self, max: usize) -> Option<Option<usize>> {
        let end = self.0.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.0.len());
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        if digits.is_empty() {
            return Some(None);
        }
        digits.parse().ok().filter(|number| *number <= max).map(Some)
    }
}

/// `1.5e+03`, where Rust writes `1.5e3`.
fn scientific(number: f64, precision: usize) -> String {
    let written = format!("{number:.precision$e}");
    let (digits, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
    format!("{digits}e{sign}{exponent:0>2}")
}

/// C's `%g`: so many significant digits, without zeros at the end.
pub(super) fn general(number: f64, precision: usize) -> String {
    let precision = precision.max(1);
    let scientific = scientific(number, precision - 1);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let place: i64 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if place < -4 || place >= precision as i64 {
        return format!("{}e{exponent}", trimmed(digits));
    }
    let decimals = usize::try_from(precision as i64 - 1 - place).unwrap_or(0);
    trimmed(&format!("{number:.decimals$}"))
}

/// With a comma before each third digit from the point.
fn grouped(digits: &str, comma: char) -> String {
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let (whole, rest) = digits.split_at(end);
    let mut out = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(comma);
        }
        out.push(digit);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each line as Python 3 prints it.
    #[test]
    fn numbers_are_written_as_python_writes_them() {
        for (spec, number, written) in [
            ("", 1200.0, "1200"),
            ("", 0.1, "0.1"),
            (".2f", 1.005, "1.00"),
            (">10.2f", -3.17159, "     -3.17"),
            ("*^10.1f", 2.5, "***2.5****"),
            ("+d", 41.6, "+42"),
            ("08.2f", -3.17159, "-0003.17"),
            (",.0f", 1234567.0, "1,234,567"),
            ("_d", 123.0, "123"),
            (".3g", 1234.5, "1.23e+03"),
            ("g", 0.0001, "0.0001"),
            ("g", 0.00001, "1e-05"),
            ("g", 100000.0, "100000"),
            ("g", 1000000.0, "1e+06"),
            (".2e", 1234.5, "1.23e+03"),
            (".1E", 0.000012, "1.2E-05"),
            (".1%", 0.1234, "12.3%"),
            ("=+8.1f", 1.5, "+    1.5"),
            ("<6", 1.5, "1.5   "),
            (" .1f", 1.0, " 1.0"),
        ] {
            assert_eq!(Spec::parse(spec).unwrap().number(number), written, "{spec} of {number}");
        }
    }

    #[test]
    fn texts_are_laid_out_and_cut() {
        for (spec, text, written) in [
            ("", "abc", "abc"),
            (">5", "abc", "  abc"),
            ("^6", "abc", " abc  "),
            ("é<5", "ab", "abééé"),
            (".2", "äbc", "äb"),
            (".2+", "äbc", "ä+"),
            ("5.2s", "abc", "ab   "),
            (">4h", "", "   -"),
            ("3", "", "   "),
        ] {
            assert_eq!(Spec::parse(spec).unwrap().text(text), written, "{spec} of {text}");
        }
    }
}
