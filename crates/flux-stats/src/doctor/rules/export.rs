//! Exporters that nobody takes anything of.

use super::{Look, Rule, Threshold};
use crate::doctor::evidence::Evidence;
use crate::doctor::finding::{Finding, Severity, Unit, fact};
use crate::show;

const FAILING: Threshold = Threshold {
    name: "failing for",
    value: 60.0,
    unit: Unit::Seconds,
    why: "a receiver that is restarted is back by then, and gets what waited",
};

pub(super) const FAILING_EXPORT: Rule = Rule {
    name: "export-failing",
    about: "an exporter does not work: its receiver is away or refuses, or its address is not to be had",
    thresholds: &[FAILING],
    look: Look::Places(failing),
};

fn failing(evidence: &Evidence) -> Vec<Finding> {
    evidence.exporters().into_iter().filter_map(|name| of_exporter(evidence, name)).collect()
}

fn of_exporter(evidence: &Evidence, name: &str) -> Option<Finding> {
    let now = |what: &str| evidence.series(&format!("stats-agg.export.{name}.{what}"))?.sum();
    let seconds = now("failing_s").filter(|seconds| *seconds >= FAILING.value)?;
    let mut facts = vec![fact("failing for", seconds, Unit::Seconds)];
    facts.extend(now("buffered_bytes").map(|bytes| fact("waiting", bytes, Unit::Bytes)));
    Some(Finding {
        name: FAILING_EXPORT.name,
        severity: Severity::Warning,
        sentence: format!(
            "the exporter {name} has not worked for {}: the log of rank 0 tells why",
            show::duration(seconds)
        ),
        ranks: vec![0],
        evidence: facts,
        query: format!("'stats-agg.export.{name}.*'"),
        weight: seconds,
        subject: name.to_owned(),
    })
}
