//! Numbers that are lost on their way in.

use super::{Look, Rule, Threshold};
use crate::doctor::evidence::Evidence;
use crate::doctor::finding::{Finding, Severity, Unit, fact};
use crate::show;

const DROPPED: Threshold =
    Threshold { name: "datagrams", value: 10.0, unit: Unit::Count, why: "in the time that is looked at" };
const SHARE: Threshold = Threshold {
    name: "and of all, more than",
    value: 0.001,
    unit: Unit::Share,
    why: "UDP promises nothing: one in a thousand does not change a rate that anybody reads",
};

pub(super) const DROPPING: Rule = Rule {
    name: "statsd-dropping",
    about: "the kernel drops datagrams because the statsd listener does not keep up",
    thresholds: &[DROPPED, SHARE],
    look: Look::Instance(dropping),
};

fn dropping(evidence: &Evidence) -> Option<Finding> {
    let gained = |name: &str| Some(evidence.series(name)?.since.as_ref()?.total);
    let dropped = gained("stats-agg.statsd.dropped").filter(|dropped| *dropped >= DROPPED.value)?;
    let arrived = gained("stats-agg.statsd.packets").unwrap_or(0.0);
    let share = dropped / (dropped + arrived);
    if share <= SHARE.value {
        return None;
    }
    // The rank of the last period, if it is still going on.
    let rank =
        evidence.series("stats-agg.statsd.dropped").and_then(|series| series.busiest()).map(|(rank, _)| rank);
    let sentence = format!(
        "the statsd listener has lost {} datagrams ({}): senders are faster than it reads",
        show::number(dropped),
        show::percent(share)
    );
    Some(Finding {
        name: DROPPING.name,
        severity: Severity::Notice,
        sentence,
        ranks: rank.into_iter().collect(),
        evidence: vec![
            fact("dropped", dropped, Unit::Count),
            fact("arrived", arrived, Unit::Count),
            fact("dropped share", share, Unit::Share),
        ],
        query: "'stats-agg.statsd.{packets,dropped}' --by rank --since 5m".to_owned(),
        weight: dropped,
        subject: String::new(),
    })
}
