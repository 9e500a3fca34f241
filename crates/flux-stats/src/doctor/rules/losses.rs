//! Numbers that are lost on their way in.

use super::{Look, Rule, Threshold};
use crate::doctor::evidence::Evidence;
use crate::doctor::finding::{Finding, Severity, Unit, fact};
use crate::show;

const NOT_KEPT: Threshold = Threshold {
    name: "values",
    value: 1.0,
    unit: Unit::Count,
    why: "in the time that is looked at: what finds no room once finds none until a series ends or `max-series` is raised",
};
const DROPPED: Threshold =
    Threshold { name: "datagrams", value: 10.0, unit: Unit::Count, why: "in the time that is looked at" };
const SHARE: Threshold = Threshold {
    name: "and of all, more than",
    value: 0.001,
    unit: Unit::Share,
    why: "UDP promises nothing: one in a thousand does not change a rate that anybody reads",
};

pub(super) const NO_ROOM: Rule = Rule {
    name: "series-full",
    about: "values are lost because a rank has as many series as it may have (`max-series`)",
    thresholds: &[NOT_KEPT],
    look: Look::Instance(no_room),
};

pub(super) const DROPPING: Rule = Rule {
    name: "statsd-dropping",
    about: "the kernel drops datagrams because the statsd listener does not keep up",
    thresholds: &[DROPPED, SHARE],
    look: Look::Instance(dropping),
};

/// What a counter of the instance gained in the time that is looked at.
fn gained(evidence: &Evidence, name: &str) -> Option<f64> {
    Some(evidence.series(name)?.since.as_ref()?.total)
}

/// The rank that had most of a counter in the last period, if it is still going on.
fn where_most(evidence: &Evidence, name: &str) -> Vec<u32> {
    evidence.series(name).and_then(|series| series.busiest()).map(|(rank, _)| rank).into_iter().collect()
}

fn no_room(evidence: &Evidence) -> Option<Finding> {
    let gained = |name| gained(evidence, name).unwrap_or(0.0);
    let (values, gauges) = (gained("stats-agg.overflow"), gained("stats-agg.gauges_overflow"));
    let lost = Some(values + gauges).filter(|lost| *lost >= NOT_KEPT.value)?;
    // Whose pushes found none, most of all: they may be what fills it.
    let refused = evidence.whole().series.iter().filter(|series| {
        let is = |reason: &str| series.tags.get("reason").is_some_and(|of| of == reason);
        series.name == "stats-agg.refused" && (is("full") || is("share"))
    });
    let of = refused.filter_map(|series| Some((series.tags.get("prefix")?, series.since.as_ref()?.total)));
    let most = of.filter(|(_, times)| *times >= 1.0).max_by(|a, b| a.1.total_cmp(&b.1));
    let whose =
        most.map_or(String::new(), |(prefix, _)| format!(", most of those pushed begin with {prefix:?}"));
    let mut facts = vec![fact("values lost", values, Unit::Count), fact("gauges lost", gauges, Unit::Count)];
    facts.retain(|fact| fact.value > 0.0);
    facts.extend(most.map(|(_, times)| fact("refused of the worst", times, Unit::Count)));
    Some(Finding {
        name: NO_ROOM.name,
        severity: Severity::Warning,
        sentence: format!(
            "{} values found no room among the series that are kept (max-series){whose}",
            show::number(lost)
        ),
        ranks: where_most(evidence, "stats-agg.overflow"),
        evidence: facts,
        query: "'stats-agg.{overflow,gauges_overflow,refused}' --by rank --since 5m".to_owned(),
        weight: lost,
        subject: String::new(),
    })
}

fn dropping(evidence: &Evidence) -> Option<Finding> {
    let gained = |name| gained(evidence, name);
    let dropped = gained("stats-agg.statsd.dropped").filter(|dropped| *dropped >= DROPPED.value)?;
    let arrived = gained("stats-agg.statsd.packets").unwrap_or(0.0);
    let share = dropped / (dropped + arrived);
    if share <= SHARE.value {
        return None;
    }
    let sentence = format!(
        "the statsd listener has lost {} datagrams ({}): senders are faster than it reads",
        show::number(dropped),
        show::percent(share)
    );
    Some(Finding {
        name: DROPPING.name,
        severity: Severity::Notice,
        sentence,
        ranks: where_most(evidence, "stats-agg.statsd.dropped"),
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
