//! Answers into what changed, and back.

use super::stored::{Change, Context, Delta, Head, Kind, NONE, Numbers, Step, kind, numbers, values};
use crate::answer::{Answer, Ranks, Series, Values, Whole};
use stats_core::IdSet;
use std::collections::{BTreeMap, HashMap};

/// Rows that a recording may have between two resets; beyond a million something else is wrong.
const ROWS_MAX: usize = 1 << 22;

/// What tells a series from others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    rank: Option<u32>,
    name: String,
    tags: BTreeMap<String, String>,
    kind: Kind,
    unit: Option<String>,
}

#[derive(Debug)]
struct Slot {
    rank: Option<u32>,
    numbers: Numbers,
    /// The answer that last had it.
    seen: u64,
}

/// Answers into what changed.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    context: Option<Context>,
    names: HashMap<String, u32>,
    keys: HashMap<Key, u32>,
    slots: Vec<Option<Slot>>,
    answers: u64,
}

impl Encoder {
    /// Of the whole instance.
    pub(super) fn answer(&mut self, answer: Answer, reset: bool) -> Delta {
        if reset {
            *self = Encoder::default();
        }
        let context = context(&answer);
        let mut delta = Delta {
            reset,
            oldest: answer.ranks.oldest as f32,
            unanswered: answer.unanswered,
            ..Delta::default()
        };
        if self.context.as_ref() != Some(&context) {
            delta.context = Some(context.clone());
            self.context = Some(context);
        }
        self.rows(answer.series, &mut delta, |rank| rank.is_none());
        delta
    }

    /// Of these ranks.
    pub(super) fn by_rank(&mut self, answer: Answer, asked: &IdSet) -> Delta {
        let mut delta = Delta { asked: asked.to_string(), unanswered: answer.unanswered, ..Delta::default() };
        self.rows(answer.series, &mut delta, |rank| rank.is_some_and(|rank| asked.contains(rank)));
        delta
    }

    /// `mine`: whether an answer without a series of that rank says that there is none any more.
    fn rows(&mut self, series: Vec<Series>, delta: &mut Delta, mine: impl Fn(Option<u32>) -> bool) {
        self.answers += 1;
        let mut changes = Vec::new();
        for Series { name, tags, rank, unit, values, .. } in series {
            if !mine(rank) {
                continue;
            }
            let after = numbers(&values);
            let row = self.row(Key { rank, name, tags, kind: kind(&values), unit }, delta);
            let Some(slot) = self.slots.get_mut(row as usize).and_then(Option::as_mut) else { continue };
            slot.seen = self.answers;
            let (mut which, mut steps) = (0, Vec::new());
            for (place, (before, &after)) in slot.numbers.iter_mut().zip(&after).enumerate() {
                let same = before.to_bits() == after.to_bits() || (before.is_nan() && after.is_nan());
                if !same {
                    which |= 1 << place;
                    steps.push(Step::between(*before, after));
                    *before = after;
                }
            }
            if which != 0 {
                changes.push((row, which, steps));
            }
        }
        changes.sort_by_key(|(row, ..)| *row);
        let mut last = 0;
        delta.changed = changes
            .into_iter()
            .map(|(row, which, steps)| Change {
                distance: row - std::mem::replace(&mut last, row),
                which,
                steps,
            })
            .collect();
        let mut last = 0;
        for (row, place) in self.slots.iter_mut().enumerate() {
            if place.as_ref().is_some_and(|slot| slot.seen < self.answers && mine(slot.rank)) {
                *place = None;
                delta.gone.push(row as u32 - std::mem::replace(&mut last, row as u32));
            }
        }
        if !delta.gone.is_empty() {
            self.keys.retain(|_, row| self.slots[*row as usize].is_some());
        }
    }

    fn row(&mut self, key: Key, delta: &mut Delta) -> u32 {
        if let Some(&row) = self.keys.get(&key) {
            return row;
        }
        let name = match self.names.get(&key.name) {
            Some(&name) => name,
            None => {
                let name = self.names.len() as u32;
                self.names.insert(key.name.clone(), name);
                delta.names.push(key.name.clone());
                name
            }
        };
        let tags = key.tags.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let (kind, unit) = (key.kind.clone(), key.unit.clone());
        delta.begun.push(Head { name, rank: key.rank, tags, kind, unit });
        let row = self.slots.len() as u32;
        self.slots.push(Some(Slot { rank: key.rank, numbers: NONE, seen: 0 }));
        self.keys.insert(key, row);
        row
    }
}

fn context(answer: &Answer) -> Context {
    let Answer { instance, ranks, .. } = answer;
    Context {
        size: instance.size,
        hostlist: instance.hostlist.clone(),
        period: answer.period,
        covered: ranks.covered.clone(),
        missing: ranks.missing.clone(),
        offline: ranks.offline.clone(),
        absent: ranks.absent.clone(),
        silent: ranks.silent.clone(),
    }
}

/// A row that is known.
struct Row {
    head: Head,
    tags: BTreeMap<String, String>,
    numbers: Numbers,
}

/// A series of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line<'r> {
    pub(crate) name: &'r str,
    pub(crate) tags: &'r BTreeMap<String, String>,
    pub(crate) rank: Option<u32>,
    /// What it counts, where its name does not end like that.
    pub(crate) unit: Option<&'r str>,
    pub(crate) values: Values,
}

/// What changed, into answers.
#[derive(Default)]
pub(super) struct Decoder {
    context: Context,
    oldest: f64,
    names: Vec<String>,
    rows: Vec<Option<Row>>,
    /// Whether a reset has been seen, and nothing been missed since.
    whole: bool,
}

/// A value that does not fit what was before it.
#[derive(Debug, PartialEq)]
pub(super) struct Misfit;

impl Decoder {
    /// Something was missed: what follows cannot be read, until a reset.
    pub(super) fn lose(&mut self) {
        self.whole = false;
    }

    /// Whether it could be applied; `false`: a reset is awaited.
    pub(super) fn apply(&mut self, delta: &Delta) -> Result<bool, Misfit> {
        if delta.reset {
            *self = Decoder { whole: true, ..Decoder::default() };
        }
        if self.whole && self.change(delta).is_none() {
            self.whole = false;
            return Err(Misfit);
        }
        Ok(self.whole)
    }

    fn change(&mut self, delta: &Delta) -> Option<()> {
        if let Some(context) = &delta.context {
            self.context = context.clone();
        }
        if delta.asked.is_empty() {
            self.oldest = delta.oldest.into();
        }
        self.names.extend_from_slice(&delta.names);
        for head in &delta.begun {
            if head.name as usize >= self.names.len() || self.rows.len() >= ROWS_MAX {
                return None;
            }
            let tags = head.tags.iter().cloned().collect();
            self.rows.push(Some(Row { head: head.clone(), tags, numbers: NONE }));
        }
        let mut at = 0_u32;
        for Change { distance, which, steps } in &delta.changed {
            at = at.checked_add(*distance)?;
            let row = self.rows.get_mut(at as usize)?.as_mut()?;
            if which.count_ones() as usize != steps.len() || *which >= 1 << row.numbers.len() {
                return None;
            }
            let places = (0..row.numbers.len()).filter(|place| which & 1 << place != 0);
            for (place, step) in places.zip(steps) {
                row.numbers[place] = step.from(row.numbers[place]);
            }
        }
        let mut at = 0_u32;
        for distance in &delta.gone {
            at = at.checked_add(*distance)?;
            self.rows.get_mut(at as usize)?.take()?;
        }
        Some(())
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// The answer but for its series, at that time.
    pub(super) fn head(&self, time: f64, unanswered: &str) -> Answer {
        let Context { size, hostlist, period, covered, missing, offline, absent, silent } =
            self.context.clone();
        Answer {
            time,
            instance: Whole { size, hostlist },
            ranks: Ranks { covered, missing, offline, absent, silent, oldest: self.oldest },
            period,
            unanswered: unanswered.to_owned(),
            series: Vec::new(),
        }
    }

    /// Its series: of the instance, or of these ranks.
    pub(super) fn lines<'r>(&'r self, asked: Option<&'r IdSet>) -> impl Iterator<Item = Line<'r>> {
        let wanted = move |rank: Option<u32>| match asked {
            None => rank.is_none(),
            Some(asked) => rank.is_some_and(|rank| asked.contains(rank)),
        };
        self.rows.iter().flatten().filter(move |row| wanted(row.head.rank)).map(|row| Line {
            name: self.names.get(row.head.name as usize).map_or("", String::as_str),
            tags: &row.tags,
            rank: row.head.rank,
            unit: row.head.unit.as_deref(),
            values: values(&row.head.kind, &row.numbers),
        })
    }
}
