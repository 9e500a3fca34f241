//! What `flux stats doctor` would have said, all along a recording.

use super::clock::Clock;
use super::model::module_of;
use super::page;
use crate::answer::{Answer, Series};
use crate::doctor::{self, Evidence, Finding};
use crate::hosts::Hosts;
use crate::recording::{Line, Moment};
use std::collections::VecDeque;

/// How far back a look goes: as far as the doctor's.
const WINDOW_S: f64 = 300.0;
/// How often it looks at least.
const EVERY_S: f64 = 60.0;
/// Looks at a recording, however long it is.
const LOOKS_MAX: f64 = 300.0;
/// Looks between these, at moments at which ranks go missing or modules stall, and at which they come back.
const CHANGES_MAX: u64 = 100;
/// Answers of a look.
const ANSWERS_MAX: usize = 300;
/// So many periods without an answer, and what was before says nothing of what is after.
const GAP_PERIODS: f64 = 3.0;
/// What begins like this is what rules look at.
const NAMES: [&str; 7] =
    ["modules.", "broker.", "overlay.", "jobs.", "resources.", "stats-agg.statsd.", "stats-agg.export."];

/// What rules tell of without waiting for it to last, so that it may come and go between two looks.
#[derive(Default, PartialEq)]
struct State {
    silent: String,
    offline: String,
    torpid: f64,
    stalled: Vec<String>,
}

impl State {
    fn of(answer: &Answer) -> Self {
        let torpid = answer.series("overlay.ranks_torpid").and_then(Series::sum).unwrap_or(0.0);
        let stalled = answer.series.iter().filter_map(|series| module_of(&series.name, "stalled"));
        State {
            silent: answer.ranks.silent.clone(),
            offline: answer.ranks.offline.clone(),
            torpid,
            stalled: stalled.map(str::to_owned).collect(),
        }
    }
}

/// A finding, and when it was first and last seen.
struct Seen {
    finding: Finding,
    first: f64,
    last: f64,
}

/// Looks at answers as they go by.
pub(super) struct Looking {
    answers: VecDeque<Answer>,
    every: f64,
    /// When to look again.
    next: f64,
    state: State,
    /// How often that has changed.
    changes: u64,
    seen: Vec<Seen>,
    hosts: Hosts,
    hostlist: Option<String>,
}

impl Looking {
    /// At a recording of that many seconds.
    pub(super) fn new(seconds: f64) -> Self {
        Looking {
            answers: VecDeque::new(),
            every: EVERY_S.max(seconds / LOOKS_MAX),
            next: f64::NEG_INFINITY,
            state: State::default(),
            changes: 0,
            seen: Vec::new(),
            hosts: Hosts::default(),
            hostlist: None,
        }
    }

    /// An answer of the instance.
    pub(super) fn see(&mut self, moment: &Moment<'_>, interval: Option<f64>) {
        let head = moment.head();
        let time = head.time;
        let usual = interval.unwrap_or(head.period).max(head.period);
        if self.answers.back().is_some_and(|last| last.time >= time || time - last.time > GAP_PERIODS * usual)
        {
            self.cut();
        }
        if self.hostlist != head.instance.hostlist {
            self.hosts = Hosts::of(head.instance.hostlist.as_deref());
            self.hostlist.clone_from(&head.instance.hostlist);
        }
        let wanted = |line: &Line| NAMES.iter().any(|name| line.name.starts_with(name));
        let series = moment.lines().filter(wanted).map(Series::from).collect();
        let answer = Answer { series, ..head };
        let changed = self.changes(&answer);
        if changed {
            // What is over was at its worst in the answer before.
            self.look();
        }
        self.answers.push_back(answer);
        while self.answers.len() > ANSWERS_MAX
            || self.answers.front().is_some_and(|first| time - first.time > WINDOW_S)
        {
            self.answers.pop_front();
        }
        if changed {
            self.look();
        }
        if self.next == f64::NEG_INFINITY {
            self.next = time + self.every;
        } else if time >= self.next {
            self.look();
            self.next = time + self.every;
        }
    }

    /// Whether something changes that has to be looked at at once.
    fn changes(&mut self, answer: &Answer) -> bool {
        let state = State::of(answer);
        let changed = self.state != state;
        self.state = state;
        self.changes += u64::from(changed);
        changed && self.changes <= CHANGES_MAX
    }

    /// Changes that were not looked at, because there were so many.
    pub(super) fn left_out(&self) -> u64 {
        self.changes.saturating_sub(CHANGES_MAX)
    }

    /// What was seen so far has no more to do with what comes.
    pub(super) fn cut(&mut self) {
        self.look();
        self.answers.clear();
    }

    fn look(&mut self) {
        let answers: Vec<&Answer> = self.answers.iter().collect();
        let Some((time, evidence)) = answers.last().map(|last| last.time).zip(Evidence::recorded(&answers))
        else {
            return;
        };
        for finding in doctor::findings(&evidence) {
            let same = |seen: &&mut Seen| {
                seen.finding.name == finding.name && seen.finding.subject == finding.subject
            };
            match self.seen.iter_mut().find(same) {
                Some(seen) => {
                    seen.last = time;
                    // As it was at its worst; of what is as bad as before, it has lasted for longer.
                    if finding.weight >= seen.finding.weight {
                        seen.finding = finding;
                    }
                }
                None => self.seen.push(Seen { finding, first: time, last: time }),
            }
        }
    }

    /// All that was found, the worst first.
    pub(super) fn finish(mut self, clock: &Clock) -> Vec<page::Finding> {
        let end = self.answers.back().map(|last| last.time);
        self.look();
        self.seen
            .sort_by(|a, b| a.finding.severity.cmp(&b.finding.severity).then(a.first.total_cmp(&b.first)));
        let when = |seen: &Seen| {
            let from = clock.moment(seen.first);
            match end {
                Some(end) if seen.last >= end => format!("seen from {from} until the end"),
                _ if seen.first == seen.last => format!("seen at {from}"),
                _ => format!("seen from {from} to {}", clock.moment(seen.last)),
            }
        };
        self.seen.iter().map(|seen| shown(&seen.finding, &self.hosts, Some(when(seen)))).collect()
    }
}

/// What the doctor says of an instance now.
pub(super) fn now(evidence: &Evidence) -> Vec<page::Finding> {
    doctor::findings(evidence).iter().map(|finding| shown(finding, evidence.hosts(), None)).collect()
}

fn shown(finding: &Finding, hosts: &Hosts, when: Option<String>) -> page::Finding {
    page::Finding {
        name: finding.name,
        severity: finding.severity.name(),
        text: finding.sentence.clone(),
        place: finding.place(hosts),
        when,
        evidence: finding
            .evidence
            .iter()
            .map(|fact| format!("{} {}", fact.what, fact.unit.shown(fact.value)))
            .collect(),
        query: format!("flux stats query {}", finding.query),
    }
}
