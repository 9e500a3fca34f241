//! Questions to a node: which series, of which ranks, over which time.

use crate::glob::Glob;
use crate::idset::IdSet;
use crate::series::Key;
use crate::shown::{short, shown};
use serde_json::Value;

/// Patterns that one question may have, alternatives in braces counted one by one, and the longest.
const PATTERNS_MAX: usize = 100;
const PATTERN_MAX: usize = 300;
const KEYS: &str = "match, by, ranks, since, stream";

/// How an answer is split up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum By {
    /// Not: one number for the instance, or for the subtree of the rank that is asked.
    #[default]
    None,
    /// Each rank is asked for what it measured itself.
    Rank,
    /// Each child of the rank that is asked says what its subtree amounts to.
    Subtree,
}

/// Whether a series is kept from who asks, by its name and the keys of its tags.
pub type Hidden = fn(&str, &mut dyn Iterator<Item = &str>) -> bool;

/// Which series are asked for, and how.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Empty: all.
    patterns: Vec<Glob>,
    by: By,
    ranks: Option<IdSet>,
    since_ns: Option<u64>,
    stream: bool,
    hidden: Option<Hidden>,
}

/// A question that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct QueryError(String);

impl Query {
    /// From the payload of a request, in which every key is optional:
    /// `{"match":["modules.*.wakeups"],"by":"none|rank|subtree","ranks":"0-3","since":60.0,"stream":false}`.
    /// In a pattern `*` is any text within one part of a dotted name, `**` any number of parts, `?` one character,
    /// `[ab]` and `{a,b}` alternatives.
    pub fn parse(payload: &Value) -> Result<Self, QueryError> {
        let bad = |text: String| Err(QueryError(text));
        let mut query = Query::default();
        for (key, value) in payload.as_object().into_iter().flatten() {
            match (key.as_str(), value) {
                ("match", Value::Array(patterns)) => query.patterns = patterns_of(patterns)?,
                ("by", Value::String(by)) if by == "none" => query.by = By::None,
                ("by", Value::String(by)) if by == "rank" => query.by = By::Rank,
                ("by", Value::String(by)) if by == "subtree" => query.by = By::Subtree,
                ("ranks", Value::String(ranks)) => {
                    let ranks = ranks.parse().map_err(|error| QueryError(format!("ranks: {error}")))?;
                    query.ranks = Some(ranks);
                }
                ("since", Value::Number(seconds)) if seconds.as_f64().is_some_and(|s| s > 0.0) => {
                    // A float to integer cast saturates.
                    query.since_ns = seconds.as_f64().map(|seconds| (seconds * 1e9) as u64);
                }
                ("stream", Value::Bool(stream)) => query.stream = *stream,
                ("match", _) => {
                    return bad(format!("match: expected a list of patterns, got {}", shown(value)));
                }
                ("by", _) => {
                    return bad(format!(
                        "by: expected \"none\", \"rank\" or \"subtree\", got {}",
                        shown(value)
                    ));
                }
                ("ranks", _) => {
                    return bad(format!("ranks: expected an idset as text, got {}", shown(value)));
                }
                ("since", _) => {
                    return bad(format!("since: expected seconds above zero, got {}", shown(value)));
                }
                ("stream", _) => return bad(format!("stream: expected true or false, got {}", shown(value))),
                _ => {
                    return bad(format!("{}: unknown key; allowed: {KEYS}", short(key)));
                }
            }
        }
        if query.ranks.is_some() && query.by != By::Rank {
            return bad("ranks: only with \"by\":\"rank\"".to_owned());
        }
        Ok(query)
    }

    /// How the answer is split up.
    pub fn by(&self) -> By {
        self.by
    }

    /// Which ranks are asked, when the answer is by rank; `None`: all.
    pub fn ranks(&self) -> Option<&IdSet> {
        self.ranks.as_ref()
    }

    /// How far back the history is asked for.
    pub fn since_ns(&self) -> Option<u64> {
        self.since_ns
    }

    /// Whether an answer is wanted for each period to come.
    pub fn stream(&self) -> bool {
        self.stream
    }

    /// Keeps some series from who asks, whatever the question.
    pub fn hide(&mut self, hidden: Option<Hidden>) {
        self.hidden = hidden;
    }

    /// What is kept from who asks.
    pub fn hidden(&self) -> Option<Hidden> {
        self.hidden
    }

    /// Whether a series of this name is asked for.
    pub fn matches(&self, name: &str) -> bool {
        self.patterns.is_empty() || self.patterns.iter().any(|glob| glob.matches(name))
    }

    /// Whether a series is asked for, and not kept from who asks.
    pub(crate) fn selects(&self, key: &Key) -> bool {
        let mut tags = key.tags().map(|(tag, _)| tag);
        self.matches(key.name()) && !self.hidden.is_some_and(|hidden| hidden(key.name(), &mut tags))
    }
}

fn patterns_of(patterns: &[Value]) -> Result<Vec<Glob>, QueryError> {
    let bounded = |count: usize| {
        let text = format!(
            "match: {count} patterns, alternatives in braces counted, at most {PATTERNS_MAX} are allowed"
        );
        if count > PATTERNS_MAX { Err(QueryError(text)) } else { Ok(()) }
    };
    bounded(patterns.len())?;
    let glob = |pattern: &Value| {
        let text = pattern.as_str().filter(|text| text.len() <= PATTERN_MAX).ok_or_else(|| {
            QueryError(format!(
                "match: expected texts of at most {PATTERN_MAX} bytes, got {}",
                shown(pattern)
            ))
        })?;
        if text.is_empty() {
            return Err(QueryError(
                "match: \"\": expected a pattern of series, like modules.kvs.*".to_owned(),
            ));
        }
        Glob::parse(text).map_err(|error| QueryError(format!("match: {text:?}: {error}")))
    };
    let globs = patterns.iter().map(glob).collect::<Result<Vec<_>, _>>()?;
    bounded(globs.iter().map(Glob::alternatives).sum())?;
    Ok(globs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_question_is_read_whole() {
        let query = Query::parse(
            &json!({ "match": ["a.*"], "by": "rank", "ranks": "0-3", "since": 1.5, "stream": true }),
        )
        .unwrap();
        assert!(query.matches("a.b") && !query.matches("a") && query.stream());
        assert_eq!((query.by(), query.since_ns()), (By::Rank, Some(1_500_000_000)));
        assert_eq!(query.ranks().unwrap().to_string(), "0-3");
        assert!(Query::default().matches("anything"));
    }

    #[test]
    fn a_wrong_question_is_told_what_is_allowed() {
        for (payload, said) in [
            (json!({ "mach": [] }), "mach: unknown key; allowed: match, by, ranks, since, stream"),
            (json!({ "match": "a" }), "match: expected a list of patterns, got \"a\""),
            (json!({ "match": ["a[" ] }), "match: \"a[\": [ without ]"),
            (json!({ "match": [""] }), "match: \"\": expected a pattern of series, like modules.kvs.*"),
            (json!({ "match": [1] }), "match: expected texts of at most 300 bytes, got 1"),
            (json!({ "by": "node" }), "by: expected \"none\", \"rank\" or \"subtree\", got \"node\""),
            (json!({ "ranks": "x" }), "ranks: \"x\" is no idset"),
            (json!({ "ranks": "1" }), "ranks: only with \"by\":\"rank\""),
            (json!({ "since": -1 }), "since: expected seconds above zero, got -1"),
            (json!({ "stream": 1 }), "stream: expected true or false, got 1"),
            (
                json!({ "match": ["{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}", "{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}"] }),
                "match: 128 patterns, ",
            ),
            (
                json!({ "match": [["x".repeat(1 << 20)]] }),
                "match: expected texts of at most 300 bytes, got [\"xxx",
            ),
            (json!({ ("y".repeat(1 << 20)): 1 }), "yyyy"),
        ] {
            let error = Query::parse(&payload).unwrap_err().to_string();
            assert!(error.starts_with(said) && error.len() < 300, "{error}");
        }
    }
}
