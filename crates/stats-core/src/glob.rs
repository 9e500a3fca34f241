//! Patterns over dotted names: `*` is any text within one part of a name, `**` any number of parts, `?` one character,
//! `[a-z]` and `[!a-z]` one of several, `{kvs,job-*}` alternatives.
//!
//! Our own rather than `globset`, whose separator is the slash and which matches through a regular expression: 20,000
//! names cost it five times the target. Matching takes time in proportion to name × pattern at most.

/// Alternatives that the braces of one pattern may amount to.
const ALTERNATIVES_MAX: usize = 64;
/// Parts of a name or of a pattern.
const PARTS_MAX: usize = 128;

/// A pattern, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Glob(Vec<Vec<Part>>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// Any number of parts.
    Parts,
    Literal(String),
    Tokens(Vec<Token>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Byte(u8),
    One,
    Any,
    /// Ranges of bytes, and whether it is none of them that is wanted.
    Class(Vec<(u8, u8)>, bool),
}

impl Glob {
    pub(crate) fn parse(pattern: &str) -> Result<Self, &'static str> {
        let mut alternatives = Vec::new();
        expand(pattern, &mut alternatives)?;
        let parsed = alternatives.iter().map(|one| one.split('.').map(part).collect::<Result<Vec<_>, _>>());
        let mut parsed = parsed.collect::<Result<Vec<_>, _>>()?;
        if parsed.iter().any(|parts| parts.len() > PARTS_MAX) {
            return Err("too many parts");
        }
        parsed.iter_mut().for_each(|parts| parts.dedup_by(|a, b| *a == Part::Parts && *b == Part::Parts));
        Ok(Glob(parsed))
    }

    /// How many patterns without braces it amounts to.
    pub(crate) fn alternatives(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
        self.0.iter().any(|parts| matches_parts(parts, name))
    }
}

/// Writes out the alternatives in braces.
fn expand(pattern: &str, out: &mut Vec<String>) -> Result<(), &'static str> {
    let Some(open) = pattern.find('{') else {
        if pattern.contains('}') {
            return Err("} without {");
        }
        if out.len() == ALTERNATIVES_MAX {
            return Err("too many alternatives");
        }
        out.push(pattern.to_owned());
        return Ok(());
    };
    let (mut depth, mut start, mut choices, mut close) = (0, open + 1, Vec::new(), None);
    for (at, byte) in pattern.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b',' if depth == 1 => {
                choices.push(&pattern[start..at]);
                start = at + 1;
            }
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    choices.push(&pattern[start..at]);
                    close = Some(at);
                    break;
                }
            }
            _ => {}
        }
    }
    let close = close.ok_or("{ without }")?;
    for choice in choices {
        expand(&format!("{}{choice}{}", &pattern[..open], &pattern[close + 1..]), out)?;
    }
    Ok(())
}

fn part(text: &str) -> Result<Part, &'static str> {
    if text == "**" {
        return Ok(Part::Parts);
    }
    if !text.contains(['*', '?', '[']) {
        return Ok(Part::Literal(text.to_owned()));
    }
    let (mut tokens, bytes, mut at) = (Vec::new(), text.as_bytes(), 0);
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'*' if tokens.last() == Some(&Token::Any) => {}
            b'*' => tokens.push(Token::Any),
            b'?' => tokens.push(Token::One),
            b'[' => {
                let length = bytes[at..].iter().position(|&byte| byte == b']').ok_or("[ without ]")?;
                tokens.push(class(&bytes[at..at + length])?);
                at += length + 1;
            }
            byte => tokens.push(Token::Byte(byte)),
        }
    }
    Ok(Part::Tokens(tokens))
}

fn class(mut inner: &[u8]) -> Result<Token, &'static str> {
    let negated = matches!(inner.first(), Some(b'!' | b'^'));
    inner = &inner[usize::from(negated)..];
    let mut ranges = Vec::new();
    while let Some(&first) = inner.first() {
        let last = if let [_, b'-', last, ..] = inner { Some(*last) } else { None };
        ranges.push((first, last.unwrap_or(first)));
        inner = &inner[if last.is_some() { 3 } else { 1 }..];
    }
    if ranges.is_empty() { Err("[] with nothing in it") } else { Ok(Token::Class(ranges, negated)) }
}

/// The usual matching of stars, over parts: at a mismatch the last `**` takes one part more.
fn matches_parts(parts: &[Part], name: &str) -> bool {
    let (mut at, mut rest) = (0, Some(name));
    let mut again: Option<(usize, Option<&str>)> = None;
    loop {
        let matched = match (parts.get(at), rest) {
            (None, None) => return true,
            (Some(Part::Parts), _) => {
                again = Some((at, rest));
                at += 1;
                continue;
            }
            (Some(part), Some(text)) => {
                let (first, more) =
                    text.split_once('.').map_or((text, None), |(first, more)| (first, Some(more)));
                rest = more;
                matches_part(part, first)
            }
            _ => false,
        };
        if matched {
            at += 1;
            continue;
        }
        match again {
            Some((star, Some(text))) => {
                rest = text.split_once('.').map(|(_, more)| more);
                again = Some((star, rest));
                at = star + 1;
            }
            _ => return false,
        }
    }
}

fn matches_part(part: &Part, text: &str) -> bool {
    let tokens = match part {
        Part::Literal(literal) => return literal == text,
        Part::Parts => return true,
        Part::Tokens(tokens) => tokens,
    };
    if let [Token::Any] = tokens[..] {
        return true;
    }
    let (bytes, mut at, mut token) = (text.as_bytes(), 0, 0);
    let mut again: Option<(usize, usize)> = None;
    loop {
        let matched = match (tokens.get(token), bytes.get(at)) {
            (None, None) => return true,
            (Some(Token::Any), _) => {
                again = Some((token, at));
                token += 1;
                continue;
            }
            (Some(Token::Byte(wanted)), Some(byte)) => wanted == byte,
            (Some(Token::One), Some(_)) => true,
            (Some(Token::Class(ranges, negated)), Some(byte)) => {
                ranges.iter().any(|(first, last)| (first..=last).contains(&byte)) != *negated
            }
            _ => false,
        };
        if matched {
            (at, token) = (at + 1, token + 1);
            continue;
        }
        match again {
            Some((star, taken)) if taken < bytes.len() => {
                again = Some((star, taken + 1));
                (at, token) = (taken + 1, star + 1);
            }
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Glob::parse(pattern).unwrap().matches(name)
    }

    #[test]
    fn a_star_stays_within_one_part_of_a_name_and_two_do_not() {
        for (pattern, yes, no) in [
            ("modules.*.wakeups", "modules.kvs.wakeups", "modules.kvs.tx.wakeups"),
            ("modules.**", "modules.kvs.tx.request", "broker.rss_bytes"),
            ("**.wakeups", "modules.kvs.wakeups", "modules.kvs.wakeups.more"),
            ("a.**.b.**.c", "a.x.b.b.y.c", "a.x.c.b"),
            ("a.**.b", "a.b", "a.bb"),
            ("modules.{kvs,job-*}.work_s", "modules.job-exec.work_s", "modules.job.work_s"),
            ("{a,b{1,2}.c}", "b2.c", "b.c"),
            ("*-*-exec", "a-b-c-exec", "a-exec"),
            ("a?c[0-9x][!0-9]", "abc5z", "abc55"),
            ("**", "a.b", ""),
            ("modules.kvs", "modules.kvs", "modules.kvs.work_s"),
        ] {
            assert!(matches(pattern, yes), "{pattern} {yes}");
            assert!(!matches(pattern, no) || no.is_empty(), "{pattern} {no}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for bad in ["a[", "a[]", "{a", "a}", "{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}"] {
            assert!(Glob::parse(bad).is_err(), "{bad}");
        }
        assert!(Glob::parse(&".".repeat(PARTS_MAX)).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_a_pattern_or_refused(pattern in "[a-b*?\\[\\]{},.!-]{0,20}", name in "[a-b.]{0,20}") {
            if let Ok(glob) = Glob::parse(&pattern) {
                glob.matches(&name);
            }
        }

        #[test]
        fn a_name_matches_itself_and_what_is_wilder(name in "[a-c]{1,3}(\\.[a-c]{1,3}){0,4}", at in 0_usize..5) {
            prop_assert!(matches(&name, &name));
            let mut parts: Vec<&str> = name.split('.').collect();
            let place = at % parts.len();
            parts[place] = "*";
            prop_assert!(matches(&parts.join("."), &name));
            parts[place] = "**";
            prop_assert!(matches(&parts.join("."), &name));
        }
    }
}
