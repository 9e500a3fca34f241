//! Brokers' logs: a module that refuses its settings says why there, and only a number to who loads it; and one that is
//! loaded says there which it has.

use super::Payload;
use crate::instance::Instance;
use flux::Node;
use serde_json::json;
use std::time::Duration;

/// How long a broker may take for the next line.
const TIMEOUT: Duration = Duration::from_secs(5);
/// What a module of ours logs before the reason (`crates/flux`).
const REFUSAL: &str = "not loaded: ";
/// What it logs before its settings, when it is loaded and when they change (`modules/stats-agg/src/agg.rs`).
const SETTINGS: &[&str] = &["loaded: ", "now "];

/// Why `module` has last refused to be loaded on that rank.
pub(super) fn last_refusal(instance: &Instance, rank: u32, module: &str) -> Option<String> {
    last(instance, rank, module, &[REFUSAL])
}

/// The settings that `module` has on that rank, as it wrote them down; `None`: the broker keeps that line no more.
pub(super) fn settings(instance: &Instance, rank: u32, module: &str) -> Option<String> {
    last(instance, rank, module, SETTINGS)
}

/// What follows one of these beginnings in the last line of `module` that has one.
fn last(instance: &Instance, rank: u32, module: &str, beginnings: &[&str]) -> Option<String> {
    let request = json!({ "follow": false, "nobacklog": false });
    let mut lines = instance.client().stream("log.dmesg", Payload::Json(&request), Node::Rank(rank)).ok()?;
    let mut last = None;
    while let Ok(Some(line)) = lines.next(TIMEOUT) {
        let Some(line) = line.text().ok().and_then(Line::parse) else { continue };
        let rest = beginnings.iter().find_map(|beginning| line.text.strip_prefix(beginning));
        if let Some(rest) = rest.filter(|_| line.name == module) {
            last = Some(rest.to_owned());
        }
    }
    last
}

/// A line as brokers keep them: `<PRIORITY>1 TIME RANK NAME PROCESS MESSAGE-ID DATA TEXT` (RFC 5424).
struct Line<'a> {
    name: &'a str,
    text: &'a str,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.strip_prefix('<')?.splitn(8, ' ');
        let (name, text) = (words.nth(3)?, words.nth(3)?);
        Some(Line { name, text: text.trim() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_syslog_is_read() {
        let line = "<11>1 2026-12-02T03:50:00.123456Z 2 stats-agg - - - period=x: expected a duration\n";
        let Line { name, text } = Line::parse(line).unwrap();
        assert_eq!((name, text), ("stats-agg", "period=x: expected a duration"));
        for other in ["", "text", "<3>1 a b c", "3>1 a b c d e f text"] {
            assert!(Line::parse(other).is_none(), "{other}");
        }
    }
}
