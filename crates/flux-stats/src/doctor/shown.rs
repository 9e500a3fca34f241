//! What a person or a program is told.

use super::Finding;
use super::evidence::Evidence;
use super::rules::{RULES, Rule};
use crate::outcome::Failure;
use crate::show::{self, Align};
use serde::Serialize;

/// The version of what `--json` prints.
const VERSION: u32 = 1;

/// Whom and what was looked at: `ranks 0-3 of 4, the last 5m00s, 431 series`.
fn looked_at(evidence: &Evidence) -> String {
    let ranks = &evidence.whole().ranks;
    let covered = if ranks.covered.is_empty() { "none" } else { &ranks.covered };
    let size = match evidence.whole().instance.size {
        0 => String::new(),
        size => format!(" of {size}"),
    };
    let seconds = show::duration(evidence.seconds());
    format!("ranks {covered}{size}, the last {seconds}, {} series", evidence.len())
}

/// Ranks of which nothing is known though they run.
fn unknown(evidence: &Evidence) -> Option<String> {
    let ranks = &evidence.whole().ranks;
    let of = [
        (ranks.absent.as_str(), "have no stats-agg (`flux stats load`)"),
        (ranks.silent.as_str(), "are silent"),
        (evidence.unanswered(), "did not answer"),
    ];
    let said: Vec<String> =
        of.iter().filter(|(set, _)| !set.is_empty()).map(|(set, what)| format!("{set} {what}")).collect();
    (!said.is_empty()).then(|| format!("Nothing is known of some ranks: {}.", said.join("; ")))
}

/// Findings for a person.
pub(super) fn text(evidence: &Evidence, findings: &[Finding]) -> String {
    let mut text = match findings {
        [] => format!("Nothing is wrong: looked at {}.\n", looked_at(evidence)),
        [_] => format!("1 finding: looked at {}.\n", looked_at(evidence)),
        more => format!("{} findings: looked at {}.\n", more.len(), looked_at(evidence)),
    };
    if evidence.seconds() < super::SINCE_MIN.as_secs_f64() {
        text += "Less than a minute is known: what grows or lasts cannot be told yet.\n";
    }
    text += &unknown(evidence).map(|line| line + "\n").unwrap_or_default();
    for (number, finding) in findings.iter().enumerate() {
        let place = finding.place(evidence.hosts()).map(|place| format!(" on {place}")).unwrap_or_default();
        let facts: Vec<String> = finding
            .evidence
            .iter()
            .map(|fact| format!("{} {}", fact.what, fact.unit.shown(fact.value)))
            .collect();
        text += &format!(
            "\n{}. {} {}{place}\n",
            number + 1,
            finding.severity.name().to_uppercase(),
            finding.name
        );
        text += &format!("   {}.\n", sentence(&finding.sentence));
        text += &format!("   Evidence: {}.\n", facts.join(", "));
        if finding.ranks.len() > 1 {
            text += &format!("   Ranks: {}.\n", finding.idset());
        }
        text += &format!("   flux stats query {}\n", finding.query);
    }
    text
}

/// With a capital, unless it begins with a module's name.
fn sentence(text: &str) -> String {
    let is_word = ["the ", "rank ", "ranks "].iter().any(|word| text.starts_with(word));
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if is_word => first.to_uppercase().chain(letters).collect(),
        _ => text.to_owned(),
    }
}

#[derive(Serialize)]
struct Told<'a> {
    version: u32,
    time: f64,
    looked_at: LookedAt<'a>,
    healthy: bool,
    findings: Vec<ToldFinding<'a>>,
}

#[derive(Serialize)]
struct LookedAt<'a> {
    ranks: &'a str,
    size: u32,
    offline: &'a str,
    absent: &'a str,
    silent: &'a str,
    unanswered: &'a str,
    seconds: f64,
    series: usize,
}

#[derive(Serialize)]
struct ToldFinding<'a> {
    name: &'a str,
    severity: &'a str,
    sentence: String,
    ranks: String,
    worst_rank: Option<u32>,
    hosts: Vec<&'a str>,
    evidence: Vec<ToldFact<'a>>,
    query: String,
}

#[derive(Serialize)]
struct ToldFact<'a> {
    name: &'a str,
    value: f64,
    unit: &'a str,
}

/// Findings for a program.
pub(super) fn json(evidence: &Evidence, findings: &[Finding]) -> Result<String, Failure> {
    let whole = evidence.whole();
    let told = |finding: &'_ Finding| -> ToldFinding<'_> {
        let facts = finding.evidence.iter();
        ToldFinding {
            name: finding.name,
            severity: finding.severity.name(),
            sentence: sentence(&finding.sentence) + ".",
            ranks: finding.idset().to_string(),
            worst_rank: finding.ranks.first().copied(),
            hosts: Vec::new(),
            evidence: facts
                .map(|fact| ToldFact { name: fact.what, value: fact.value, unit: fact.unit.name() })
                .collect(),
            query: format!("flux stats query {}", finding.query),
        }
    };
    let with_hosts = findings.iter().map(|finding| {
        let hosts = finding.idset().iter().filter_map(|rank| evidence.hosts().host(rank)).collect();
        ToldFinding { hosts, ..told(finding) }
    });
    let told = Told {
        version: VERSION,
        time: whole.time,
        looked_at: LookedAt {
            ranks: &whole.ranks.covered,
            size: whole.instance.size,
            offline: &whole.ranks.offline,
            absent: &whole.ranks.absent,
            silent: &whole.ranks.silent,
            unanswered: evidence.unanswered(),
            seconds: evidence.seconds(),
            series: evidence.len(),
        },
        healthy: findings.is_empty(),
        findings: with_hosts.collect(),
    };
    Ok(serde_json::to_string_pretty(&told)? + "\n")
}

/// The thresholds of a rule: `work 85%`.
fn thresholds(rule: &Rule) -> Vec<String> {
    rule.thresholds.iter().map(|of| format!("{} {}", of.name, of.unit.shown(of.value))).collect()
}

/// The rules for a person.
pub(super) fn rules() -> String {
    let columns = [("RULE", Align::Left), ("THRESHOLDS", Align::Left)];
    show::table(&columns, RULES.iter().map(|rule| vec![rule.name.to_owned(), thresholds(rule).join(", ")]))
}

/// The rules as a page.
pub(super) fn page() -> String {
    let mut page = "# What `flux stats doctor` looks for\n\nMade from the table in `crates/flux-stats/src/doctor/rules.rs` by \
                    `flux stats doctor --list=markdown`.\n\nFindings that are equally bad are told in this order. What is not \
                    known is no evidence: a rule whose numbers are missing, or not known for as long as it wants, says \
                    nothing.\n\nIt exits with 4 where there are findings, whatever else; 3 where there is none and the numbers \
                    of some running ranks are missing, so that it cannot be sure; 0 where nothing is wrong; 1 on failure, 2 on \
                    bad arguments.\n\n`--json` prints an object: `version` (1), `time` (seconds since 1970, of rank 0), \
                    `looked_at` (`ranks`, and the idsets of those that are `offline`, `absent`, `silent` or `unanswered`; \
                    `size`, `seconds` and the number of `series`), `healthy`, and `findings`, the worst first: each with \
                    `name`, `severity` (`critical`, `warning`, `notice`), `sentence`, `ranks` (an idset, empty for the \
                    instance), `worst_rank` (or null), their `hosts`, `evidence` (a list of `name`, `value` and `unit`: \
                    `share`, `seconds`, `bytes`, `bytes/second`, `1/second`, `count`) and `query`, the command that shows \
                    it. Names of findings, units and keys stay; keys may be added.\n"
        .to_owned();
    for rule in &RULES {
        page += &format!("\n## {}\n\n{}.\n", rule.name, capital(rule.about));
        if !rule.thresholds.is_empty() {
            page += "\n| threshold | value | why |\n|---|---|---|\n";
        }
        for of in rule.thresholds {
            page += &format!("| {} | {} | {} |\n", of.name, of.unit.shown(of.value), of.why);
        }
    }
    page
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}
