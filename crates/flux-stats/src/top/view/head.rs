//! The lines above the table: how the instance is, and what the table is about.

use crate::show::{duration, number};
use crate::top::look::Look;
use crate::top::model::Model;
use crate::top::subject::Subject;
use crate::top::view::table::cut;
use crate::top::whole::{Jobs, Whole};
use ratatui::style::Style;
use ratatui::text::{Line as Words, Span};
use stats_core::IdSet;

/// Over how long messages are averaged: they are counted every ten seconds.
const MESSAGES_S: f64 = 30.0;

/// Columns between parts of a line.
const GAP: usize = 2;

/// Parts of a line, of which the last ones are left out where there is no room.
pub(crate) struct Parts {
    parts: Vec<Vec<Span<'static>>>,
}

impl Parts {
    pub(crate) fn new() -> Self {
        Parts { parts: Vec::new() }
    }

    pub(crate) fn add(&mut self, text: impl Into<String>, style: Style) {
        self.parts.push(vec![Span::styled(text.into(), style)]);
    }

    /// A number and what it is of, in this order.
    fn count(&mut self, count: Option<String>, what: &str, look: Look) {
        if let Some(count) = count {
            self.parts.push(vec![Span::raw(count), Span::styled(format!(" {what}"), look.faint())]);
        }
    }

    pub(crate) fn spans(&mut self, spans: Vec<Span<'static>>) {
        self.parts.push(spans);
    }

    /// As many of them as fit into `width`, two spaces between.
    pub(crate) fn fit(self, width: u16) -> Words<'static> {
        let mut spans: Vec<Span> = Vec::new();
        let mut left = usize::from(width);
        for part in self.parts {
            let gap = if spans.is_empty() { 0 } else { GAP };
            let needed = gap + part.iter().map(Span::width).sum::<usize>();
            if needed > left {
                // Something is better than nothing where a single one is too long.
                if spans.is_empty() {
                    spans.extend(part);
                }
                break;
            }
            left -= needed;
            if gap > 0 {
                spans.push(Span::raw(" ".repeat(GAP)));
            }
            spans.extend(part);
        }
        Words::from(spans)
    }
}

/// All lines of the head.
pub(crate) fn head(model: &Model, look: Look, width: u16) -> Vec<Words<'static>> {
    let mut head = vec![title(model, look, width)];
    if let Some(whole) = model.whole() {
        head.extend([ranks(whole, look, width), jobs(whole, look, width), load(model, whole, look, width)]);
        head.extend(stalled(model, whole, look, width));
    }
    head.push(caption(model, look, width));
    head
}

/// What it is, and on the right how new.
fn title(model: &Model, look: Look, width: u16) -> Words<'static> {
    let (state, style) = state(model, look);
    let mut parts = Parts::new();
    parts.add("flux stats top", look.title());
    if let Some(whole) = model.whole() {
        parts.count(Some(whole.size.to_string()), if whole.size == 1 { "rank" } else { "ranks" }, look);
        if let Some(up_s) = whole.up_s {
            parts.spans(vec![Span::styled("up ", look.faint()), Span::raw(duration(up_s))]);
        }
        if !whole.hostlist.is_empty() {
            let host =
                if model.hosts.is_one() { model.hosts.host(0).unwrap_or_default() } else { &whole.hostlist };
            parts.spans(vec![Span::styled("on ", look.faint()), Span::raw(host.to_owned())]);
        }
    }
    let room = width.saturating_sub(state.chars().count() as u16 + 2);
    let mut words = parts.fit(room);
    let gap = usize::from(width).saturating_sub(words.width() + state.chars().count());
    words.push_span(Span::raw(" ".repeat(gap)));
    words.push_span(Span::styled(state, style));
    words
}

fn state(model: &Model, look: Look) -> (String, Style) {
    match (model.silent_s(), &model.link.lost, model.whole()) {
        (Some(silent_s), Some(_), _) => (format!("LOST {} ago", duration(silent_s)), look.alarm()),
        (Some(silent_s), None, _) => (format!("no answer for {}", duration(silent_s)), look.alarm()),
        _ if model.held => ("HELD: Space goes on".to_owned(), look.warning()),
        (None, _, Some(whole)) => (format!("period {}", duration(whole.period)), look.faint()),
        (None, _, None) => (String::new(), Style::new()),
    }
}

fn labelled(label: &str, look: Look) -> Parts {
    let mut parts = Parts::new();
    parts.add(format!("{label:<5}"), look.label());
    parts
}

fn ranks(whole: &Whole, look: Look, width: u16) -> Words<'static> {
    let ranks = &whole.ranks;
    let count = |ranks: &str| ranks.parse::<IdSet>().map_or(0, |ranks| ranks.len());
    let mut parts = labelled("ranks", look);
    let (up, covered) = (whole.nodes_up.is_some(), count(&ranks.covered));
    parts.count(Some(format!("{covered} of {}", whole.size)), "covered", look);
    parts.spans(vec![Span::styled("oldest ", look.faint()), Span::raw(duration(ranks.oldest))]);
    let missing = [
        ("silent", &ranks.silent, true),
        ("absent", &ranks.absent, true),
        ("offline", &ranks.offline, false),
    ];
    for (why, ranks, alarm) in missing {
        if !ranks.is_empty() {
            let style = if alarm { look.alarm() } else { look.warning() };
            parts.add(format!("{why} {ranks}"), style);
        }
    }
    if ranks.missing.is_empty() {
        parts.add("none missing", look.faint());
    }
    if up {
        let (up, free) = (whole.nodes_up.unwrap_or(0.0), whole.nodes_free.unwrap_or(0.0));
        parts.count(Some(format!("{} of {}", number(free), number(up))), "nodes free", look);
    }
    parts.fit(width)
}

fn jobs(whole: &Whole, look: Look, width: u16) -> Words<'static> {
    let Jobs { depend, priority, sched, run, cleanup, inactive, failed } = &whole.jobs;
    let mut parts = labelled("jobs", look);
    let mut state = |name: &str, jobs: &Option<f64>, always: bool| {
        if let Some(jobs) = jobs.filter(|jobs| always || *jobs > 0.0) {
            parts.spans(vec![Span::styled(format!("{name} "), look.faint()), Span::raw(number(jobs))]);
        }
    };
    state("depend", depend, false);
    state("priority", priority, false);
    state("sched", sched, true);
    state("run", run, true);
    state("cleanup", cleanup, true);
    state("inactive", inactive, true);
    state("failed", failed, false);
    if sched.is_none() && run.is_none() {
        parts.add("not known", look.faint());
    }
    parts.fit(width)
}

fn load(model: &Model, whole: &Whole, look: Look, width: u16) -> Words<'static> {
    let rate = |rate: f64| number(if rate < 99.5 { (rate * 10.0).round() / 10.0 } else { rate.round() });
    let percent = |percent: f64| format!("{}%", rate(percent));
    let mut parts = labelled("load", look);
    parts.count(whole.sum(|work| work.wakeups).map(rate), "wakeups/s", look);
    parts.count(model.messages.mean(whole.time, MESSAGES_S).map(rate), "messages/s", look);
    parts.count(whole.sum(|work| work.work).map(percent), "work", look);
    parts.count(whole.sum(|work| work.cpu).map(percent), "cpu", look);
    parts.count(whole.sum(|work| work.blocked).map(percent), "blocked", look);
    parts.fit(width)
}

/// Modules that do not come back, each with its rank.
fn stalled(model: &Model, whole: &Whole, look: Look, width: u16) -> Option<Words<'static>> {
    let stalled = whole.stalled();
    if stalled.is_empty() {
        return None;
    }
    let mut parts = Parts::new();
    parts.add("STALLED", look.alarm());
    for (module, rank, seconds) in stalled {
        let place = place(model, rank);
        parts.add(format!("{module} on {place} for {}", duration(seconds)), look.alarm());
    }
    Some(parts.fit(width))
}

/// A rank, and its host if that says something.
pub(crate) fn place(model: &Model, rank: u32) -> String {
    if model.hosts.is_one() { format!("rank {rank}") } else { format!("rank {}", model.hosts.name(rank)) }
}

/// What the table is about.
fn caption(model: &Model, look: Look, width: u16) -> Words<'static> {
    let screen = model.screen();
    let on = |rank: &Option<u32>| rank.map_or(String::new(), |rank| format!(" on {}", place(model, rank)));
    let (subject, how) = match &screen.subject {
        Subject::Modules => {
            ("MODULES".to_owned(), "WORK% sums up ranks, MAX% is the busiest one; 100 is one whole thread")
        }
        Subject::Ranks(module) => (format!("{module} by rank"), "100% is one whole thread"),
        Subject::Rank(rank) => (format!("modules on {}", place(model, *rank)), "100% is one whole thread"),
        Subject::Series { pattern, rank } => (format!("{pattern}{}", on(rank)), ""),
    };
    let mut parts = Parts::new();
    let beside = usize::from(width).saturating_sub(subject.chars().count() + GAP);
    parts.add(subject, look.title());
    let detail = screen.detail.shown();
    if let Some(why) = screen.trouble.as_ref().or(model.link.lost.as_ref()) {
        // In part rather than not at all.
        parts.add(cut(why, beside, look), look.alarm());
    } else if screen.subject != Subject::Modules && detail.is_none() {
        parts.add("asking ...", look.faint());
    }
    if let Some(ranks) = detail.map(|detail| &detail.unanswered).filter(|ranks| !ranks.is_empty()) {
        parts.add(format!("no answer of {ranks}"), look.alarm());
    }
    parts.add(how, look.faint());
    parts.fit(width)
}
