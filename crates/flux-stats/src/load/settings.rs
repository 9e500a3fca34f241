//! What ranks that were loaded earlier are set to, beside those that are loaded now.

use super::{Instance, MODULE, log};
use crate::show::named;
use stats_core::IdSet;
use std::collections::BTreeMap;

/// Ranks whose logs are read: each is a request and its whole log.
const LOOKED_AT_MAX: usize = 16;

/// Whether settings of ranks are those of others, as far as logs tell.
#[derive(PartialEq)]
pub(super) enum Compared {
    Same,
    /// In what they differ, in one line.
    Differ(String),
    /// There are none to compare, or a log keeps them no more.
    Unknown,
}

/// Compares ranks that were loaded earlier with those that are loaded now.
pub(super) fn compared(instance: &Instance, now: &IdSet, earlier: &IdSet) -> Compared {
    let of = |rank| log::settings(instance, rank, MODULE);
    let Some(ours) = now.iter().next().filter(|_| !earlier.is_empty()).and_then(of) else {
        return Compared::Unknown;
    };
    let mut others: BTreeMap<String, IdSet> = BTreeMap::new();
    let mut told_of = 0;
    for rank in earlier.iter().take(LOOKED_AT_MAX) {
        if let Some(theirs) = of(rank) {
            others.entry(theirs).or_default().insert(rank);
            told_of += 1;
        }
    }
    match told(now, &ours, &others) {
        Some(difference) => Compared::Differ(difference),
        None if told_of == earlier.len() => Compared::Same,
        None => Compared::Unknown,
    }
}

fn told(now: &IdSet, ours: &str, others: &BTreeMap<String, IdSet>) -> Option<String> {
    let differing = others.iter().filter(|(theirs, _)| *theirs != ours);
    let differing: Vec<String> = differing
        .map(|(theirs, ranks)| {
            let (theirs, ours) = (without(theirs, ours), without(ours, theirs));
            format!("{} {theirs}, and {} {ours}", have(ranks), have(now))
        })
        .collect();
    (!differing.is_empty()).then(|| format!("settings differ: {}", differing.join("; ")))
}

fn have(ranks: &IdSet) -> String {
    format!("{} {}", named(ranks), if ranks.len() == 1 { "has" } else { "have" })
}

/// The settings that others do not have alike.
fn without(settings: &str, others: &str) -> String {
    let others: Vec<&str> = others.split(' ').collect();
    let own: Vec<&str> = settings.split(' ').filter(|word| !others.contains(word)).collect();
    if own.is_empty() { "none of that".to_owned() } else { own.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_differ_are_named_and_others_are_not() {
        let now: IdSet = "0,3".parse().unwrap();
        let others =
            |settings: &str, ranks: &str| BTreeMap::from([(settings.to_owned(), ranks.parse().unwrap())]);
        let told = |theirs: &str| told(&now, "period=2s stall=5s", &others(theirs, "1-2"));
        assert_eq!(told("period=2s stall=5s"), None);
        assert_eq!(
            told("period=500ms stall=5s statsd=unix:").as_deref(),
            Some("settings differ: ranks 1-2 have period=500ms statsd=unix:, and ranks 0,3 have period=2s")
        );
        assert_eq!(
            told("period=2s stall=5s statsd=unix:").as_deref(),
            Some("settings differ: ranks 1-2 have statsd=unix:, and ranks 0,3 have none of that")
        );
    }
}
