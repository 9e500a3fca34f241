//! Format strings as Flux's commands take them (`flux jobs -o`): Python's, with Flux's conversions and prefixes.
//!
//! Our own reader: `strfmt` and `rt-format` read Rust's format specifications, which have no type letters, and know
//! neither conversions nor prefixes.

mod spec;

use super::fields::{FIELDS, Field, Key, Row, Value, keys, names};
use crate::show::Unit;
use spec::Spec;

/// A format string, parsed.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Format {
    parts: Vec<Part>,
    /// `sort:KEY,… ` at its beginning.
    pub(crate) sort: Vec<Key>,
}

/// A field and the text before it.
#[derive(Debug, Clone, Default, PartialEq)]
struct Part {
    text: String,
    field: Option<usize>,
    conversion: Option<Conversion>,
    spec: Spec,
    /// `?:` before it: left out if no row has anything there.
    only_if_used: bool,
    /// `+:` before it: as wide as its widest.
    expand: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Conversion {
    /// Flux Standard Duration.
    Fsd,
    /// Hours, minutes and seconds.
    Clock,
    Percent,
    /// In the unit of the series: ours.
    Unit,
    Text,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FormatError {
    #[error("no field {0:?}; there are {names} (-o help)", names = names())]
    Field(String),
    #[error("{0}: in the format, {{ and }} stand for themselves as {{{{ and }}}}")]
    Brace(&'static str),
    #[error("{{{0}}}: expected a name in the braces")]
    Empty(String),
    #[error("{0:?}: expected [[FILL]ALIGN][SIGN][0][WIDTH][,][.PRECISION][TYPE][h][+] after the colon")]
    Spec(String),
    #[error("type {0:?} is for numbers, and {1} is a text")]
    TypeOfText(char, &'static str),
    #[error(
        "conversion !{0}: expected !F (a duration), !H (hours:minutes:seconds), !P (percent), !U (with its unit) or !s"
    )]
    Conversion(String),
    #[error("{0}")]
    Sort(String),
    #[error("{0:?} has no field; there are {names} (-o help)", names = names())]
    NoField(String),
}

impl Format {
    pub(crate) fn parse(text: &str) -> Result<Self, FormatError> {
        let (sort, rest) = match text.strip_prefix("sort:") {
            None => (Vec::new(), text),
            Some(rest) => {
                let end = rest.find(|c: char| c.is_whitespace() || c == '{').unwrap_or(rest.len());
                let sort = keys(&rest[..end]).map_err(FormatError::Sort)?;
                (sort, rest[end..].strip_prefix(' ').unwrap_or(&rest[end..]))
            }
        };
        let mut parts = Vec::new();
        let mut before = String::new();
        let mut left = rest.chars().peekable();
        while let Some(next) = left.next() {
            match next {
                '{' | '}' if left.peek() == Some(&next) => {
                    left.next();
                    before.push(next);
                }
                '}' => return Err(FormatError::Brace("} without {")),
                '{' => {
                    let mut inside = String::new();
                    loop {
                        match left.next() {
                            None => return Err(FormatError::Brace("{ without }")),
                            Some('{') => return Err(FormatError::Brace("{ in {")),
                            Some('}') => break,
                            Some(other) => inside.push(other),
                        }
                    }
                    parts.push(part(std::mem::take(&mut before), &inside)?);
                }
                other => before.push(other),
            }
        }
        if parts.is_empty() {
            return Err(FormatError::NoField(text.to_owned()));
        }
        if !before.is_empty() {
            parts.push(Part { text: before, ..Part::default() });
        }
        Ok(Format { parts, sort })
    }

    /// The heading, if there is to be one, and a line for each row, each ended by a newline. Lines with nothing in them
    /// are left out.
    pub(crate) fn lines<'a>(&self, rows: impl Iterator<Item = Row<'a>> + Clone, heading: bool) -> String {
        let format = self.fitted(rows.clone(), heading);
        let mut out = String::new();
        if heading {
            format.line(&mut out, |part, field| part.spec.of_heading().text(&field.heading()));
        }
        for row in rows {
            format.line(&mut out, |part, field| part.shown(field.of(row)));
        }
        out
    }

    fn line(&self, out: &mut String, of: impl Fn(&Part, &Field) -> String) {
        let start = out.len();
        for part in &self.parts {
            out.push_str(&part.text);
            if let Some(field) = part.field {
                out.push_str(&of(part, &FIELDS[field]));
            }
        }
        if out[start..].trim().is_empty() {
            out.truncate(start);
        } else {
            out.push('\n');
        }
    }

    /// Without the fields that are not used, and those that expand as wide as what they will show.
    fn fitted<'a>(&self, rows: impl Iterator<Item = Row<'a>> + Clone, heading: bool) -> Format {
        let mut parts = Vec::new();
        for part in &self.parts {
            let mut part = part.clone();
            if let Some(field) = part.field.filter(|_| part.only_if_used || part.expand) {
                let spec = if FIELDS[field].is_text { Spec::default() } else { part.spec.without_width() };
                let bare = Part { spec, ..part.clone() };
                let shown = rows.clone().map(|row| bare.shown(FIELDS[field].of(row)));
                let widest = shown.filter(|shown| !is_empty(shown)).map(|shown| shown.chars().count()).max();
                match widest {
                    None if part.only_if_used => {
                        // Without the space before it either.
                        part.text.truncate(part.text.trim_end().len());
                        if !part.text.is_empty() {
                            parts.push(Part { text: part.text, ..Part::default() });
                        }
                        continue;
                    }
                    widest if part.expand => {
                        let heading = if heading { FIELDS[field].name.len() } else { 0 };
                        part.spec.width = widest.unwrap_or(0).max(heading).max(part.spec.width);
                        if FIELDS[field].is_text {
                            part.spec.precision = None;
                        }
                    }
                    _ => {}
                }
            }
            parts.push(part);
        }
        Format { parts, sort: self.sort.clone() }
    }
}

impl Part {
    /// The value, converted and laid out.
    fn shown(&self, value: Value) -> String {
        match (value, self.conversion) {
            (Value::Nothing, _) => self.spec.text(""),
            (Value::Text(text), _) => self.spec.text(&text),
            (Value::Number(number, _), None) => self.spec.number(number),
            (Value::Number(number, unit), Some(conversion)) => self.spec.text(&conversion.of(number, unit)),
        }
    }
}

impl Conversion {
    fn of(self, number: f64, unit: Unit) -> String {
        match self {
            Conversion::Fsd => fsd(number),
            Conversion::Clock => clock(number),
            Conversion::Percent => percent(number),
            Conversion::Unit => unit.value(number),
            Conversion::Text => number.to_string(),
        }
    }
}

/// A duration as Flux writes them.
fn fsd(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => "0s".to_owned(),
        s if s < 10.0 => format!("{s:.3}s"),
        s if s < 60.0 => format!("{}s", spec::general(s, 4)),
        s if s < 3600.0 => format!("{}m", spec::general(s / 60.0, 4)),
        s if s < 86_400.0 => format!("{}h", spec::general(s / 3600.0, 4)),
        s => format!("{}d", spec::general(s / 86_400.0, 4)),
    }
}

/// `1:02:03`; what is not zero is a second at least.
fn clock(seconds: f64) -> String {
    let seconds = if seconds > 0.0 { seconds.round().max(1.0) as u64 } else { 0 };
    format!("{}:{:02}:{:02}", seconds / 3600, seconds % 3600 / 60, seconds % 60)
}

fn percent(part: f64) -> String {
    let percent = 100.0 * part;
    if percent > 0.0 && percent < 1.0 {
        format!("{percent:.2}%")
    } else {
        format!("{}%", spec::general(percent, 3))
    }
}

/// What counts as nothing, as in Flux.
fn is_empty(shown: &str) -> bool {
    matches!(shown.trim(), "" | "-" | "0s" | "0.0" | "0:00:00")
}

fn part(mut text: String, inside: &str) -> Result<Part, FormatError> {
    let (mut only_if_used, mut expand) = (false, false);
    for (prefix, used, wide) in [("?+:", true, true), ("?:", true, false), ("+:", false, true)] {
        if text.ends_with(prefix) {
            text.truncate(text.len() - prefix.len());
            (only_if_used, expand) = (used, wide);
            break;
        }
    }
    let (name, spec) = inside.split_once(':').unwrap_or((inside, ""));
    let (name, conversion) = match name.split_once('!') {
        Some((name, letter)) => (name, Some(conversion(letter)?)),
        None => (name, None),
    };
    if name.is_empty() {
        return Err(FormatError::Empty(inside.to_owned()));
    }
    let place = Field::find(name).ok_or_else(|| FormatError::Field(name.to_owned()))?;
    let parsed = Spec::parse(spec).ok_or_else(|| FormatError::Spec(spec.to_owned()))?;
    let is_text = FIELDS[place].is_text || conversion.is_some();
    if let Some(kind) = parsed.kind.filter(|kind| is_text && *kind != 's') {
        return Err(FormatError::TypeOfText(kind, FIELDS[place].name));
    }
    Ok(Part { text, field: Some(place), conversion, spec: parsed, only_if_used, expand })
}

fn conversion(letter: &str) -> Result<Conversion, FormatError> {
    match letter {
        "F" => Ok(Conversion::Fsd),
        "H" => Ok(Conversion::Clock),
        "P" => Ok(Conversion::Percent),
        "U" => Ok(Conversion::Unit),
        "s" => Ok(Conversion::Text),
        _ => Err(FormatError::Conversion(letter.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{Answer, Series};
    use crate::hosts::Hosts;
    use serde_json::json;

    fn series() -> Vec<Series> {
        let answer: Answer = serde_json::from_value(json!({
            "time": 0.0, "ranks": { "covered": "0-1", "missing": "", "oldest": 0.0 }, "period": 2.0,
            "series": [
                { "name": "modules.kvs.work_s", "type": "counter", "total": 1234.5678, "rate": 0.0312,
                  "max": { "rank": 1, "rate": 0.02 } },
                { "name": "broker.rss_bytes", "type": "gauge", "count": 2, "sum": 3_145_728, "min": { "value": 1, "rank": 0 },
                  "max": { "value": 2_097_152, "rank": 1 } },
                { "name": "s", "tags": { "k": "v" }, "type": "set", "estimate": 3.0, "relative_error": 0.0 }
            ]
        }))
        .unwrap();
        answer.series
    }

    fn lines(format: &str, heading: bool) -> String {
        let (series, hosts) = (series(), Hosts::of(Some("n[0-1]")));
        let rows = series.iter().map(|series| Row { series, hosts: &hosts });
        Format::parse(format).unwrap().lines(rows, heading)
    }

    #[test]
    fn fields_are_laid_out_as_python_does() {
        insta::assert_snapshot!(lines("{name:<20} {rate:>10.2f} {total:>12,.1f} {max_rank:>3} {max_host}", true), @r"
        NAME                       RATE        TOTAL MAX_RANK MAX_HOST
        modules.kvs.work_s         0.03      1,234.6   1 n1
        broker.rss_bytes                               1 n1
        s
        ");
        assert_eq!(
            lines("{name:.8+}|{rate:h}|{rate!P}|{total!F}|{max!U}", false).lines().next().unwrap(),
            "modules+|0.0312|3.12%|20.58m|20.0ms"
        );
        assert_eq!(lines("{{{type:^11}}}", false), "{  counter  }\n{   gauge   }\n{    set    }\n");
    }

    #[test]
    fn prefixes_leave_out_and_widen() {
        assert_eq!(lines("?:{ranks:>9} {type} ?:{tags}", false), " counter \n gauge \n set k=v\n");
        assert_eq!(
            lines("+:{name:<4.4} {type}", false),
            "modules.kvs.work_s counter\nbroker.rss_bytes   gauge\ns                  set\n"
        );
        // Not even a line of it.
        assert_eq!(lines("?+:{ranks}", true), "");
    }

    #[test]
    fn keys_to_sort_by_may_begin_it() {
        let format = Format::parse("sort:-rate,name {name}").unwrap();
        let (rate, name) = (Field::find("rate").unwrap(), Field::find("name").unwrap());
        assert_eq!(
            format.sort,
            [Key { field: rate, descending: true }, Key { field: name, descending: false }]
        );
        assert_eq!(format.parts[0].text, "");
    }

    #[test]
    fn what_is_no_format_is_refused_with_what_is_allowed() {
        for (format, said) in [
            ("{nam}", "no field \"nam\"; there are name, tags, type, "),
            ("{name", "{ without }: in the format, { and } stand for themselves as {{ and }}"),
            ("name}", "} without {"),
            ("{na{me}}", "{ in {"),
            ("{}", "{}: expected a name in the braces"),
            ("{rate:abc}", "\"abc\": expected [[FILL]ALIGN]"),
            ("{rate:>99999}", "\">99999\": expected"),
            ("{rate:.}", "\".\": expected"),
            ("{rate:x}", "\"x\": expected"),
            ("{name:.2f}", "type 'f' is for numbers, and name is a text"),
            ("{rate!Z}", "conversion !Z: expected !F (a duration)"),
            ("sort:x {name}", "no field \"x\" to sort by; there are name, "),
            ("", "\"\" has no field; there are"),
            ("table", "\"table\" has no field; there are"),
        ] {
            let error = Format::parse(format).unwrap_err().to_string();
            assert!(error.starts_with(said), "{format}: {error}");
        }
    }

    #[test]
    fn durations_and_percentages_are_as_flux_writes_them() {
        let written = [0.0, 0.5, 12.0, 90.0, 5400.0, 90_000.0].map(fsd);
        assert_eq!(written, ["0s", "0.500s", "12s", "1.5m", "1.5h", "1.042d"]);
        assert_eq!([0.0, 0.2, 3723.0].map(clock), ["0:00:00", "0:00:01", "1:02:03"]);
        assert_eq!([0.0, 0.0012, 0.5, 1.0].map(percent), ["0%", "0.12%", "50%", "100%"]);
    }
}
