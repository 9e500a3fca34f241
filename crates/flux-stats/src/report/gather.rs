//! Answers, one after another, into what a report shows.

use super::axis::Axis;
use super::heat::Heat;
use super::model::{Key, Model, Note, NoteKind, Track, is_charted, module_of, stall, turn};
use crate::answer::{Answer, Values};
use crate::recording::Line;
use crate::show::Unit;
use std::collections::{BTreeMap, HashMap};

/// Notes that are kept.
const NOTES_MAX: usize = 300;
/// Series that are kept.
const TRACKS_MAX: usize = 100_000;
/// So many times the usual step without an answer is a gap.
const GAP_STEPS: f64 = 3.0;

/// A turn that takes long: on which rank, since when, and for how long as far as is known.
struct Stall {
    rank: u32,
    since: f64,
    age: f64,
}

/// A report in the making.
pub(super) struct Gathering {
    model: Model,
    /// The answer before, and what flows had amounted to in it.
    last: Option<f64>,
    /// How often answers should come, if somebody said so.
    interval: Option<f64>,
    /// Since when the instance does not answer, and why.
    lost: Option<(f64, String)>,
    /// It did not, since the last answer.
    was_lost: bool,
    /// Answers that could not be read since the last one that could.
    unread: u64,
    /// By rank and module: when it was looked at, and its work then.
    looks: HashMap<(u32, String), (f64, f64)>,
    /// Missing ranks, by what they are, and since when.
    missing: BTreeMap<&'static str, (String, f64)>,
    /// Modules that do not come back to their reactors.
    stalls: BTreeMap<String, Stall>,
    /// On how many ranks each module is.
    loaded: BTreeMap<String, f64>,
}

impl Gathering {
    pub(super) fn new(axis: Axis, size: u32) -> Self {
        let model = Model {
            source: String::new(),
            last: Answer::default(),
            heard: vec![0.0; axis.count],
            answers: 0,
            tracks: BTreeMap::new(),
            heat: Heat::new(&axis, size),
            notes: Vec::new(),
            remembered: false,
            notes_left_out: 0,
            looks_left_out: 0,
            axis,
        };
        Gathering {
            model,
            last: None,
            interval: None,
            lost: None,
            was_lost: false,
            unread: 0,
            looks: HashMap::new(),
            missing: BTreeMap::new(),
            stalls: BTreeMap::new(),
            loaded: BTreeMap::new(),
        }
    }

    pub(super) fn note(&mut self, from: f64, to: f64, kind: NoteKind, text: String) {
        if self.model.notes.len() < NOTES_MAX {
            self.model.notes.push(Note { from, to, kind, text });
        } else {
            self.model.notes_left_out += 1;
        }
    }

    /// A recorder begins, which asks so often.
    pub(super) fn session(&mut self, interval: Option<f64>) {
        self.interval = interval;
    }

    /// The instance does not answer any more.
    pub(super) fn lost(&mut self, time: f64, why: String) {
        self.lost = Some((time, why));
    }

    /// It does again, or the recorder has given up.
    pub(super) fn found(&mut self, time: f64) {
        if let Some((since, why)) = self.lost.take() {
            self.note(since, time, NoteKind::Gap, why);
            self.was_lost = true;
        }
    }

    /// An answer that could not be read.
    pub(super) fn unread(&mut self) {
        self.unread += 1;
    }

    /// An answer of the instance.
    pub(super) fn answer<'r>(&mut self, head: &Answer, lines: impl Iterator<Item = Line<'r>>) {
        let time = head.time;
        let before = self.last.replace(time);
        // Since when what is gained counts; `None`: it is not known when it was gained.
        let from = before.filter(|before| *before < time && !self.gap(*before, time, head.period));
        let slot = self.model.axis.slot(time);
        self.model.answers += 1;
        let lines: Vec<Line> = lines.collect();
        let reset = before.is_some() && self.is_reset(&lines);
        if reset {
            let text = "totals began anew: they were cleared, or the instance is another";
            self.note(time, time, NoteKind::Reset, text.to_owned());
            self.looks.clear();
        }
        let from = from.filter(|_| !reset);
        if let Some(from) = from {
            for (slot, seconds) in self.model.axis.parts(from, time) {
                self.model.heard[slot] += seconds;
            }
        }
        self.watch_missing(head);
        for track in self.model.tracks.values_mut() {
            track.alive = false;
        }
        for line in &lines {
            self.line(line, from, time, slot, before.is_some() && !reset);
        }
        self.watch_modules(&lines, time);
        self.watch_stalls(&lines, time);
        self.model.last = head.clone();
    }

    fn gap(&mut self, before: f64, time: f64, period: f64) -> bool {
        let usual = self.interval.unwrap_or(period).max(period);
        let unread = std::mem::take(&mut self.unread);
        // A recorder that goes on at once where another ended leaves none.
        let long = time - before > GAP_STEPS * usual;
        if std::mem::take(&mut self.was_lost) {
            return true;
        }
        if long || unread > 0 {
            let why = match unread {
                0 => "no answers".to_owned(),
                unread => format!("{unread} answers cannot be read"),
            };
            self.note(before, time, NoteKind::Gap, why);
        }
        long || unread > 0
    }

    /// Whether most of what only grows is less than it was.
    fn is_reset(&self, lines: &[Line]) -> bool {
        let (mut fell, mut all) = (0, 0);
        for line in lines {
            let (Some(_), Values::Counter { total, .. }) = (module_of(line.name, "wakeups"), &line.values)
            else {
                continue;
            };
            if let Some(Values::Counter { total: before, .. }) =
                self.model.track(line.name).map(|track| &track.values)
            {
                all += 1;
                fell += usize::from(total < before);
            }
        }
        fell * 2 > all
    }

    /// `follows`: totals of the answer before are comparable, so that a series that was not in it began at zero.
    fn line(&mut self, line: &Line, from: Option<f64>, time: f64, slot: usize, follows: bool) {
        let key: Key = (line.name.to_owned(), line.tags.clone());
        if self.model.tracks.len() >= TRACKS_MAX && !self.model.tracks.contains_key(&key) {
            return;
        }
        let slots = if is_charted(line.name, line.tags) { self.model.axis.count } else { 0 };
        let axis = self.model.axis;
        let new = !self.model.tracks.contains_key(&key);
        let fresh = || Track::new(line.values.clone(), Unit::told(line.unit, line.name), slots);
        let track = self.model.tracks.entry(key).or_insert_with(fresh);
        if track.values.kind() != line.values.kind() {
            *track = fresh();
        }
        let amount = |values: &Values| match values {
            Values::Counter { total, .. } => (*total, 0.0),
            Values::Timer { count, sum, .. } => (*sum, *count as f64),
            _ => (0.0, 0.0),
        };
        let ((now, samples), (mut then, mut samples_then)) = (amount(&line.values), amount(&track.values));
        if new {
            (then, samples_then) = if follows { (0.0, 0.0) } else { (now, samples) };
        }
        if let Some(from) = from {
            track.gained += now - then;
            track.samples += samples - samples_then;
            if !track.slots.is_empty() {
                for (slot, seconds) in axis.parts(from, time) {
                    track.slots[slot] += (now - then) * seconds / (time - from);
                }
            }
        }
        if let (Values::Gauge { count, sum, max, .. }, false) = (&line.values, track.slots.is_empty()) {
            // It holds since the answer before.
            let since = from.map(|from| axis.slot(from) + 1).filter(|since| *since <= slot).unwrap_or(slot);
            track.slots[since..=slot].fill(*sum);
            track.each[since..=slot].fill(sum / *count as f64);
            track.most[since..=slot].iter_mut().for_each(|most| *most = most.max(max.value));
        }
        track.values = line.values.clone();
        track.alive = true;
    }

    /// Ranks that go missing, and come back.
    fn watch_missing(&mut self, head: &Answer) {
        let ranks = &head.ranks;
        for (what, now) in
            [("offline", &ranks.offline), ("without stats-agg", &ranks.absent), ("silent", &ranks.silent)]
        {
            let before = self.missing.get(what).map(|(ranks, _)| ranks.clone()).unwrap_or_default();
            if before != *now {
                self.end_missing(what, head.time);
                if !now.is_empty() {
                    self.missing.insert(what, (now.clone(), head.time));
                }
            }
        }
    }

    fn end_missing(&mut self, what: &'static str, time: f64) {
        if let Some((ranks, since)) = self.missing.remove(what) {
            self.note(since, time, NoteKind::Missing, format!("{}: ranks {ranks}", what));
        }
    }

    /// Modules that came, or went from all ranks.
    fn watch_modules(&mut self, lines: &[Line], time: f64) {
        let mut loaded = BTreeMap::new();
        for line in lines.iter().filter(|line| line.tags.is_empty()) {
            if let (Some(module), Values::Gauge { sum, .. }) = (module_of(line.name, "loaded"), &line.values)
            {
                loaded.insert(module.to_owned(), *sum);
            }
        }
        if !self.loaded.is_empty() && !loaded.is_empty() {
            let went: Vec<String> =
                self.loaded.keys().filter(|name| !loaded.contains_key(*name)).cloned().collect();
            let came: Vec<String> =
                loaded.keys().filter(|name| !self.loaded.contains_key(*name)).cloned().collect();
            for (modules, what) in [(went, "no longer loaded"), (came, "loaded")] {
                if !modules.is_empty() {
                    self.note(time, time, NoteKind::Module, format!("{what}: {}", modules.join(", ")));
                }
            }
        }
        if !loaded.is_empty() {
            self.loaded = loaded;
        }
    }

    /// Modules that stall, and come back. Of a module on several ranks it is the rank that has been away for longest.
    fn watch_stalls(&mut self, lines: &[Line], time: f64) {
        let mut over = std::mem::take(&mut self.stalls);
        for line in lines.iter().filter(|line| line.tags.is_empty()) {
            let (Some(module), Values::Gauge { max, .. }) = (module_of(line.name, "stalled"), &line.values)
            else {
                continue;
            };
            self.model.see_turn(module, self.model.axis.slot(time), max.value);
            let known = over.remove(module);
            // An age that is less than it was is that of another turn.
            let (same, other) = match known {
                Some(known) if known.rank == max.rank && known.age <= max.value => (Some(known.since), None),
                known => (None, known),
            };
            other.into_iter().for_each(|stall| self.end_stall(module, &stall));
            let since = same.unwrap_or(time - max.value);
            self.stalls.insert(module.to_owned(), Stall { rank: max.rank, since, age: max.value });
        }
        over.iter().for_each(|(module, stall)| self.end_stall(module, stall));
    }

    fn end_stall(&mut self, module: &str, stalled: &Stall) {
        let Stall { rank, since, age } = *stalled;
        // How long it went on after the last answer that told of it nobody knows.
        let text = format!("{} at least", stall(module, rank, age));
        self.note(since, since + age, NoteKind::Stall, text);
    }

    /// An answer of some ranks.
    pub(super) fn by_rank<'r>(&mut self, time: f64, lines: impl Iterator<Item = Line<'r>>) {
        let mut sums: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        for Line { name, rank, values, .. } in lines {
            let Some(rank) = rank else { continue };
            if let Some((module, longest)) = turn(name, &values)
                && let Some(pair) = self.model.heat.pair(rank, module)
            {
                pair.longest = pair.longest.max(longest);
            }
            let (Some(module), Values::Counter { total, .. }) = (module_of(name, "work_s"), &values) else {
                continue;
            };
            let Some((from, before)) = self.looks.insert((rank, module.to_owned()), (time, *total)) else {
                continue;
            };
            if from >= time || *total < before {
                continue;
            }
            let (work, seconds) = (total - before, time - from);
            self.model.heat.see(rank, Some(module), from, time, work / seconds);
            if let Some(pair) = self.model.heat.pair(rank, module) {
                pair.work += work;
                pair.seconds += seconds;
            }
            let (sum, since) = sums.entry(rank).or_insert((0.0, from));
            *sum += work / seconds;
            *since = since.max(from);
        }
        for (rank, (share, from)) in sums {
            self.model.heat.see(rank, None, from, time, share);
        }
    }

    pub(super) fn finish(mut self, source: String) -> Model {
        let end = self.last.unwrap_or(self.model.axis.end());
        self.found(end);
        for (module, stall) in std::mem::take(&mut self.stalls) {
            self.end_stall(&module, &stall);
        }
        for what in ["offline", "without stats-agg", "silent"] {
            self.end_missing(what, end);
        }
        self.model.notes.sort_by(|a, b| a.from.total_cmp(&b.from));
        self.model.source = source;
        self.model
    }
}
