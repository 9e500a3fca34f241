//! Ranks that are missing, and those that hear late.

use super::{Look, Rule, Threshold};
use crate::doctor::evidence::Evidence;
use crate::doctor::finding::{Fact, Finding, Severity, Unit, fact};
use crate::show;
use stats_core::IdSet;

const HEARTBEAT: Threshold = Threshold {
    name: "heartbeat older than",
    value: 30.0,
    unit: Unit::Seconds,
    why: "fifteen of them by default, while another rank has a new one",
};

pub(super) const MISSING: Rule = Rule {
    name: "ranks-missing",
    about: "a rank is silent (its broker is up, and sends nothing for three periods), torpid, hears late, or went offline in \
            the time that is looked at: what was offline before is switched off, and no fault",
    thresholds: &[HEARTBEAT],
    look: Look::Instance(missing),
};

fn set(ranks: &str) -> IdSet {
    ranks.parse().unwrap_or_default()
}

/// How many ranks went offline in the time that is looked at.
fn lost(evidence: &Evidence) -> f64 {
    let Some(course) = evidence.sums("overlay.ranks_offline") else { return 0.0 };
    let least = course.points.iter().copied().fold(f64::INFINITY, f64::min);
    (course.points[course.points.len() - 1] - least).max(0.0)
}

/// For how long no rank has come or gone of those that send, and the time until a rank counts as silent: so long the last
/// one that fell silent has sent nothing.
fn silent_for(evidence: &Evidence) -> Option<f64> {
    /// As stats-agg has it.
    const PERIODS: f64 = 3.0;
    let unchanged = evidence.sums("modules.stats-agg.loaded")?.unchanged()?;
    Some(unchanged + PERIODS * evidence.whole().period)
}

fn since(seconds: Option<f64>) -> String {
    seconds.map_or(String::new(), |seconds| format!(" for {}", show::duration(seconds)))
}

/// `rank 3 (n3) is`, `ranks 3-5 are`.
fn named(evidence: &Evidence, ranks: &IdSet) -> String {
    match (ranks.len(), ranks.iter().next()) {
        (1, Some(rank)) => format!("rank {} is", evidence.hosts().name(rank)),
        _ => format!("ranks {ranks} are"),
    }
}

fn missing(evidence: &Evidence) -> Option<Finding> {
    let (mut said, mut facts, mut ranks) = (Vec::new(), Vec::<Fact>::new(), Vec::<u32>::new());
    let mut severity = Severity::Warning;
    let silent = set(&evidence.whole().ranks.silent);
    if !silent.is_empty() {
        let seconds = silent_for(evidence);
        let sends = seconds.map_or("sends nothing".to_owned(), |seconds| {
            format!("has sent nothing for {}", show::duration(seconds))
        });
        let name = named(evidence, &silent);
        said.push(format!(
            "{name} silent: the broker is up, and {sends} (`flux stats peek` on its node shows what it does)"
        ));
        facts.push(fact("silent", silent.len() as f64, Unit::Count));
        facts.extend(seconds.map(|seconds| fact("silent for", seconds, Unit::Seconds)));
        ranks.extend(silent.iter());
        severity = Severity::Critical;
    }
    let (offline, lost) = (set(&evidence.whole().ranks.offline), lost(evidence));
    if lost >= 1.0 {
        let seconds = evidence.sums("overlay.ranks_offline").and_then(|course| course.unchanged());
        // Which of those that are offline were there is known where all are.
        if offline.len() as f64 <= lost && !offline.is_empty() {
            said.push(format!("{} lost: offline{}", named(evidence, &offline), since(seconds)));
            ranks.extend(offline.iter());
        } else {
            let ranks = if lost < 2.0 { "rank" } else { "ranks" };
            // It may not be known yet which.
            let of = if offline.is_empty() { String::new() } else { format!(", of {offline}") };
            said.push(format!("{} {ranks} went offline{of}", show::number(lost)));
        }
        facts.push(fact("went offline", lost, Unit::Count));
        facts.extend(seconds.map(|seconds| fact("offline for", seconds, Unit::Seconds)));
        severity = Severity::Critical;
    }
    let torpid = evidence.series("overlay.ranks_torpid").and_then(|series| series.sum()).unwrap_or(0.0);
    if torpid >= 1.0 {
        said.push(format!("{} torpid: online, and not heard of for a while", show::number(torpid)));
        facts.push(fact("torpid", torpid, Unit::Count));
    }
    if let Some((rank, age)) = late(evidence) {
        let rank_name = evidence.hosts().name(rank);
        said.push(format!("rank {rank_name} hears late: its last heartbeat is {} old", show::duration(age)));
        facts.push(fact("heartbeat", age, Unit::Seconds));
        ranks.push(rank);
    }
    let mut sentence = said.join("; ");
    if said.is_empty() {
        return None;
    }
    if !facts.is_empty() && torpid >= 1.0 && said.len() == 1 {
        sentence = format!("ranks are not well: {sentence}");
    }
    let query = "'overlay.{ranks_offline,ranks_torpid,children_lost,heartbeat_age_s}' --since 5m".to_owned();
    let weight = silent.len() as f64 + lost;
    Some(Finding {
        name: MISSING.name,
        severity,
        sentence,
        ranks,
        evidence: facts,
        query,
        weight,
        subject: String::new(),
    })
}

/// The rank with the oldest heartbeat, if others have a new one: else the heartbeat itself is slow, or set so.
fn late(evidence: &Evidence) -> Option<(u32, f64)> {
    use crate::answer::Values;
    match &evidence.series("overlay.heartbeat_age_s")?.values {
        Values::Gauge { min, max, .. }
            if max.value >= HEARTBEAT.value && min.value < HEARTBEAT.value / 3.0 =>
        {
            Some((max.rank, max.value))
        }
        _ => None,
    }
}
