//! What a report shows, whatever it was made from.

use super::axis::Axis;
use super::heat::Heat;
use crate::answer::{Answer, Values};
use crate::show::{self, Unit};
use std::collections::BTreeMap;

/// Everything that the page is made from.
pub(super) struct Model {
    /// In words: a file, or an instance.
    pub(super) source: String,
    /// The last answer, without its series.
    pub(super) last: Answer,
    pub(super) axis: Axis,
    /// Seconds of each slot in which the instance was heard.
    pub(super) heard: Vec<f64>,
    pub(super) answers: u64,
    pub(super) tracks: BTreeMap<Key, Track>,
    pub(super) heat: Heat,
    pub(super) notes: Vec<Note>,
    /// Made from what an instance remembers, which is not all that happened.
    pub(super) remembered: bool,
    /// Notes beyond the limit.
    pub(super) notes_left_out: u64,
    /// Moments at which ranks went missing, modules stalled, or came back, that nobody looked at for what is wrong.
    pub(super) looks_left_out: u64,
}

/// A series of the instance: name and tags.
pub(super) type Key = (String, BTreeMap<String, String>);

/// A series over time.
#[derive(Debug, Clone)]
pub(super) struct Track {
    /// As it was told last.
    pub(super) values: Values,
    pub(super) unit: Unit,
    /// What a flow gained while it was heard.
    pub(super) gained: f64,
    /// Samples of a timer, likewise.
    pub(super) samples: f64,
    /// Whether the last answer has it.
    pub(super) alive: bool,
    /// Of series that are charted: of a flow what it gained in each slot; of a state the sum over the ranks at its end.
    pub(super) slots: Vec<f64>,
    /// Of a state, the greatest of a single rank in the slot.
    pub(super) most: Vec<f64>,
    /// Of a state, its mean over the ranks that have it: they may be fewer than are covered.
    pub(super) each: Vec<f64>,
}

impl Track {
    pub(super) fn new(values: Values, unit: Unit, slots: usize) -> Self {
        let flow = matches!(values, Values::Counter { .. } | Values::Timer { .. });
        let states = vec![f64::NAN; if flow { 0 } else { slots }];
        Track {
            values,
            unit,
            gained: 0.0,
            samples: 0.0,
            alive: true,
            slots: vec![if flow { 0.0 } else { f64::NAN }; slots],
            most: states.clone(),
            each: states,
        }
    }
}

/// Something that happened, at a moment or for a while.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Note {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) kind: NoteKind,
    pub(super) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoteKind {
    /// Nothing is known of that time.
    Gap,
    /// Totals began anew.
    Reset,
    /// Some ranks were not heard of.
    Missing,
    /// A module came or went.
    Module,
    /// A module did not come back to its reactor.
    Stall,
    /// The recorder began or ended, or bytes of the file are lost.
    Recorder,
}

impl NoteKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            NoteKind::Gap => "gap",
            NoteKind::Reset => "reset",
            NoteKind::Missing => "missing",
            NoteKind::Module => "module",
            NoteKind::Stall => "stall",
            NoteKind::Recorder => "recorder",
        }
    }
}

impl Model {
    pub(super) fn track(&self, name: &str) -> Option<&Track> {
        self.tracks.get(&(name.to_owned(), BTreeMap::new()))
    }

    /// The longest turn of a module is charted as one that is under way, too.
    pub(super) fn see_turn(&mut self, module: &str, slot: usize, age: f64) {
        let key = (format!("modules.{module}.longest_work_s"), BTreeMap::new());
        if let Some(most) = self.tracks.get_mut(&key).and_then(|track| track.most.get_mut(slot)) {
            *most = most.max(age);
        }
    }

    /// Seconds in which the instance was heard.
    pub(super) fn seconds(&self) -> f64 {
        self.heard.iter().sum()
    }

    /// What a flow gained per second in each slot; not a number where nobody listened.
    pub(super) fn rates(&self, track: &Track) -> Vec<f64> {
        let rate = |(gained, heard): (&f64, &f64)| if *heard > 0.0 { gained / heard } else { f64::NAN };
        track.slots.iter().zip(&self.heard).map(rate).collect()
    }

    /// What it gained per second while it was heard.
    pub(super) fn mean(&self, track: &Track) -> f64 {
        let seconds = self.seconds();
        if seconds > 0.0 { track.gained / seconds } else { 0.0 }
    }
}

/// What a stall is said to have been.
pub(super) fn stall(module: &str, rank: u32, age: f64) -> String {
    format!("{module} on rank {rank} did not come back to its reactor for {}", show::duration(age))
}

/// The longest turn of a module on a rank: the longest that has ended, or the one that is under way.
pub(super) fn turn<'n>(name: &'n str, values: &Values) -> Option<(&'n str, f64)> {
    let module = module_of(name, "longest_work_s").or(module_of(name, "stalled"))?;
    match values {
        Values::Gauge { max, .. } => Some((module, max.value)),
        _ => None,
    }
}

/// Whether a series is charted, and so kept slot by slot.
pub(super) fn is_charted(name: &str, tags: &BTreeMap<String, String>) -> bool {
    const MODULES: [&str; 6] = ["wakeups", "work_s", "blocked_s", "cpu_s", "longest_work_s", "rss_bytes"];
    let of_module = |name: &str| name.rsplit_once('.').is_some_and(|(_, what)| MODULES.contains(&what));
    tags.is_empty()
        && (name.strip_prefix("modules.").is_some_and(of_module)
            || (name.starts_with("jobs.") && !name.starts_with("jobs.by_queue."))
            || (name.starts_with("resources.nodes.") || name.starts_with("resources.cores."))
            || name.starts_with("broker."))
}

/// `NAME` of `modules.NAME.WHAT`, where `what` is that.
pub(super) fn module_of<'n>(name: &'n str, what: &str) -> Option<&'n str> {
    name.strip_prefix("modules.")?.strip_suffix(what)?.strip_suffix('.')
}
