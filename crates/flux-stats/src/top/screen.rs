//! One screen: what it is about, and how it is looked at.

use super::lines::{Column, Key, Line, Order, What, arranged};
use super::past::Past;
use super::subject::Subject;
use super::work::{Work, works};
use crate::answer::{Answer, Series, Values};
use crate::hosts::Hosts;
use std::collections::BTreeMap;

/// Lines whose past is gathered here.
const PASTS_MAX: usize = 1_000;

/// A screen and what is known for it.
#[derive(Debug, Clone)]
pub(crate) struct Screen {
    pub(crate) subject: Subject,
    pub(crate) order: Order,
    pub(crate) filter: String,
    pub(crate) selected: Option<Key>,
    /// Of the instance's answers about it, the one that is shown, and a newer one while the picture is held.
    pub(crate) detail: Held<Detail>,
    pub(crate) pasts: BTreeMap<Key, Past>,
    /// The series whose history was asked for, and that.
    pub(crate) charted: Option<(Key, Past)>,
    /// Why there is no newer answer.
    pub(crate) trouble: Option<String>,
}

/// What was answered about a screen's subject.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Detail {
    pub(crate) time: f64,
    works: BTreeMap<Key, Work>,
    series: Vec<Series>,
    /// Ranks that were asked in vain.
    pub(crate) unanswered: String,
}

/// Something that is shown, and may be held while newer ones come.
#[derive(Debug, Clone)]
pub(crate) struct Held<T> {
    shown: Option<T>,
    newer: Option<T>,
}

impl<T> Default for Held<T> {
    fn default() -> Self {
        Held { shown: None, newer: None }
    }
}

impl<T> Held<T> {
    pub(crate) fn shown(&self) -> Option<&T> {
        self.shown.as_ref()
    }

    /// One came; the first is shown in any case.
    pub(crate) fn take(&mut self, new: T, hold: bool) {
        if hold && self.shown.is_some() {
            self.newer = Some(new);
        } else {
            (self.shown, self.newer) = (Some(new), None);
        }
    }

    pub(crate) fn release(&mut self) {
        if let Some(newer) = self.newer.take() {
            self.shown = Some(newer);
        }
    }
}

impl Detail {
    fn new(subject: &Subject, answer: Answer) -> Self {
        let works = match subject {
            Subject::Modules | Subject::Series { .. } => BTreeMap::new(),
            Subject::Ranks(_) => works(&answer.series, |_, rank| rank.map(Key::Rank)),
            Subject::Rank(_) => works(&answer.series, |module, _| Some(Key::Module(module.to_owned()))),
        };
        let series = if matches!(subject, Subject::Series { .. }) { answer.series } else { Vec::new() };
        Detail { time: answer.time, works, series, unanswered: answer.unanswered }
    }
}

impl Screen {
    pub(crate) fn new(subject: Subject) -> Self {
        let column = if matches!(subject, Subject::Series { .. }) { Column::Name } else { Column::Work };
        Screen {
            subject,
            order: Order { column, reversed: false },
            filter: String::new(),
            selected: None,
            detail: Held::default(),
            pasts: BTreeMap::new(),
            charted: None,
            trouble: None,
        }
    }

    /// The columns that it may have.
    pub(crate) fn columns(&self) -> &'static [Column] {
        match self.subject {
            Subject::Modules => &Column::MODULES,
            Subject::Ranks(_) | Subject::Rank(_) => &Column::ON_RANKS,
            Subject::Series { .. } => &Column::SERIES,
        }
    }

    /// Sorts by that column, if it has it; a second time turns the order round.
    pub(crate) fn sort_by(&mut self, column: Column) {
        if self.order.column == column {
            self.order.reversed = !self.order.reversed;
        } else if self.columns().contains(&column) {
            self.order = Order { column, reversed: false };
        }
    }

    /// Sorts by the next column to the right, or to the left.
    pub(crate) fn sort_beside(&mut self, right: bool) {
        let columns: Vec<Column> = self.columns().iter().copied().filter(|column| column.sorts()).collect();
        let place = columns.iter().position(|column| *column == self.order.column).unwrap_or(0);
        let count = columns.len();
        let place = if right { place + 1 } else { place + count - 1 } % count;
        self.order = Order { column: columns[place], reversed: false };
    }

    /// What the instance remembers of its lines.
    pub(crate) fn take_past(&mut self, answer: &Answer) {
        self.pasts = pasts(&self.subject, answer);
    }

    /// A new answer, and the history of what is drawn.
    pub(crate) fn take(&mut self, answer: Answer, chart: Option<Answer>, hold: bool) {
        let chart = chart
            .into_iter()
            .flat_map(|chart| chart.series.into_iter().map(move |series| (chart.time, series)));
        for (time, series) in chart {
            if let Some(since) = &series.since {
                let key = key_of(&series);
                if self.selected.as_ref().is_none_or(|selected| *selected == key) {
                    self.charted = Some((key, Past::new(since, time)));
                }
            }
        }
        let detail = Detail::new(&self.subject, answer);
        let works =
            detail.works.iter().filter_map(|(key, work)| Some((key.clone(), work.work.or(work.cpu)?)));
        let gauges = detail.series.iter().filter_map(|series| Some((key_of(series), gauge(series)?)));
        for (key, value) in works.chain(gauges) {
            push(&mut self.pasts, key, detail.time, value);
        }
        self.detail.take(detail, hold);
        self.trouble = None;
    }

    /// What is drawn: the past of the selected series, else of the first.
    pub(crate) fn chart(&self, series: &Key) -> Option<&Past> {
        let charted = self.charted.as_ref().filter(|(key, _)| key == series).map(|(_, past)| past);
        charted.or_else(|| self.pasts.get(series))
    }

    /// Its lines in order. Those of the overview are made of `modules`.
    pub(crate) fn lines(&self, modules: &BTreeMap<String, Work>, hosts: &Hosts) -> Vec<Line> {
        let host = |rank: Option<u32>| rank.and_then(|rank| hosts.host(rank)).unwrap_or_default().to_owned();
        let line = |key: Key, work: &Work| {
            let (name, busiest) = match &key {
                Key::Module(name) | Key::Series(name) => (name.clone(), work.busiest),
                Key::Rank(rank) => (rank.to_string(), Some(*rank)),
            };
            Line { key, name, busiest, host: host(busiest), what: What::Work(work.clone()) }
        };
        let lines = match (&self.subject, self.detail.shown()) {
            (Subject::Modules, _) => {
                modules.iter().map(|(name, work)| line(Key::Module(name.clone()), work)).collect()
            }
            (_, None) => Vec::new(),
            (Subject::Series { pattern, .. }, Some(detail)) => {
                let beginning = beginning(pattern);
                let of = |series: &Series| {
                    let busiest = series.rank.or_else(|| busiest(&series.values));
                    let key = key_of(series);
                    let Key::Series(name) = &key else { return None };
                    // The caption has what all names begin with.
                    let name = name.strip_prefix(beginning).unwrap_or(name).to_owned();
                    let what = What::Series(Box::new(series.clone()));
                    Some(Line { key, name, busiest, host: host(busiest), what })
                };
                detail.series.iter().filter_map(of).collect()
            }
            (_, Some(detail)) => detail.works.iter().map(|(key, work)| line(key.clone(), work)).collect(),
        };
        arranged(lines, &self.filter, self.order)
    }
}

/// Pasts by line, of an answer with `since`.
pub(crate) fn pasts(subject: &Subject, answer: &Answer) -> BTreeMap<Key, Past> {
    let of = |series: &Series| {
        let (module, metric) = super::work::of_module(&series.name)?;
        let key = match subject {
            Subject::Ranks(_) => Key::Rank(series.rank?),
            _ => Key::Module(module.to_owned()),
        };
        let since = series.since.as_ref().filter(|_| metric == "work_s")?;
        let percent = since.points.iter().map(|rate| rate.map(|rate| rate * 100.0)).collect();
        let since = crate::answer::Since { points: percent, ..since.clone() };
        Some((key, Past::new(&since, answer.time)))
    };
    answer.series.iter().filter_map(of).take(PASTS_MAX).collect()
}

/// Adds a rate to a line's past, if there is room for another.
pub(crate) fn push(pasts: &mut BTreeMap<Key, Past>, key: Key, time: f64, rate: f64) {
    if pasts.len() < PASTS_MAX || pasts.contains_key(&key) {
        pasts.entry(key).or_default().push(time, rate);
    }
}

/// The parts of a pattern before the first that is not plain.
fn beginning(pattern: &str) -> &str {
    let plain = pattern.find(['*', '?', '[', '{']).unwrap_or(pattern.len());
    let end = pattern[..plain].rfind('.').map_or(0, |dot| dot + 1);
    &pattern[..end]
}

/// Name and tags: what tells a series from another.
fn key_of(series: &Series) -> Key {
    let tags: Vec<String> = series.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let tags = if tags.is_empty() { String::new() } else { format!("{{{}}}", tags.join(",")) };
    Key::Series(format!("{}{tags}", series.name))
}

fn gauge(series: &Series) -> Option<f64> {
    match series.values {
        Values::Gauge { sum, .. } => Some(sum),
        Values::Set { estimate, .. } => Some(estimate),
        _ => None,
    }
}

fn busiest(values: &Values) -> Option<u32> {
    match values {
        Values::Counter { max, .. } => max.map(|(rank, _)| rank),
        Values::Gauge { max, .. } => Some(max.rank),
        _ => None,
    }
}
