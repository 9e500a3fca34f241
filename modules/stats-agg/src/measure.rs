//! From the probe to series: `modules.NAME.*` of this rank, and what the service says of itself.

use crate::cost::Loop;
use crate::recorded::{Clocks, Hook, Recorded, whole};
use crate::stall::{Notice, Stalls};
use stats_core::{Amount, Events, Key, Kind, Node, Refused, SeriesId, Unit};
use stats_probe::{AsOf, Mode, ModuleSample, Name, Probe, Status, monotonic_ns};
use std::collections::HashMap;
use std::time::Duration;

/// Periods between two looks at the list of modules, beside those at once when a module is new.
const NAMES_PERIODS: u32 = 15;

/// The service's own series.
struct OwnIds {
    merged: SeriesId,
    repeats: SeriesId,
    refused: SeriesId,
    overflow: SeriesId,
    before_clear: SeriesId,
    parked: SeriesId,
    doubted: SeriesId,
    gauges_overflow: SeriesId,
    sent_bytes: SeriesId,
    ended: SeriesId,
    panics: SeriesId,
    untimed: SeriesId,
    clock_steps: SeriesId,
    streams: SeriesId,
}

/// Turns samples into series.
pub(crate) struct Measure {
    probe: Probe,
    modules: HashMap<String, Recorded>,
    own: Option<OwnIds>,
    events: Events,
    panics: u64,
    untimed: u64,
    clock_steps: u64,
    periods: u32,
    stalls: Stalls,
    /// Modules that are processes of their own, and their pids.
    processes: Vec<(String, i32)>,
    /// The broker's own loop; `None`: its turns are not counted.
    broker: Option<Loop>,
}

impl Measure {
    pub(crate) fn new(probe: Probe) -> Self {
        let (modules, events) = (HashMap::new(), Events::default());
        Measure {
            probe,
            modules,
            own: None,
            events,
            panics: 0,
            untimed: 0,
            clock_steps: 0,
            periods: 0,
            stalls: Stalls::default(),
            processes: Vec::new(),
            broker: None,
        }
    }

    /// Goes on with another probe, whose sums start anew.
    pub(crate) fn replace_probe(&mut self, probe: Probe) {
        self.probe = probe;
        (self.untimed, self.clock_steps) = (0, 0);
        self.modules.clear();
    }

    /// Why the probe does not do what was asked.
    pub(crate) fn fallback(&self) -> Option<String> {
        self.probe.status().fallback
    }

    /// Reactors are timed, and what is blocked cannot be told from sleep.
    pub(crate) fn blocked_unavailable(&self) -> bool {
        let status = self.probe.status();
        matches!(status.mode, Mode::Attach | Mode::Preload) && !status.blocked_available
    }

    /// Why the slots of the probe cannot be read from outside, if so.
    pub(crate) fn slots_private(&self) -> Option<String> {
        self.probe.status().slots_private
    }

    pub(crate) fn set_names(&mut self, named: &[Name], as_of: AsOf) {
        self.probe.set_names(named, as_of);
    }

    /// Whether the list of modules may be old: somebody has come whom it does not name, or some time has passed.
    pub(crate) fn wants_names(&self) -> bool {
        self.probe.wants_names() || self.periods.is_multiple_of(NAMES_PERIODS)
    }

    /// Modules that are processes of their own, and the pid of each, as of the last record.
    pub(crate) fn processes(&self) -> impl Iterator<Item = (&str, i32)> {
        self.processes.iter().map(|(name, pid)| (name.as_str(), *pid))
    }

    /// The broker's own loop, as of the last record; `None`: its turns are not counted.
    pub(crate) fn broker(&self) -> Option<Loop> {
        self.broker
    }

    /// No list of modules will come any more: what is recorded next is all.
    pub(crate) fn settle_names(&mut self) {
        self.probe.settle_names();
    }

    /// Records what has been done since the last time; what there is to be said of modules that stall.
    pub(crate) fn record(
        &mut self,
        node: &mut Node,
        panics: u64,
        streams: usize,
        stall: Duration,
        wall_ns: u64,
    ) -> Vec<Notice> {
        self.periods = self.periods.wrapping_add(1);
        // First of all, so that a full catalog can still say that it is full.
        if self.own.is_none() {
            self.own = own_ids(node).ok();
        }
        // A thread that has not had a turn since the attach has had none: zero, and not unknown as without a hook.
        let status = self.probe.status();
        let hooked = matches!(status.mode, Mode::Attach | Mode::Preload);
        let hook = Hook { hooked, blocked_known: status.blocked_available };
        let stall_ns = u64::try_from(stall.as_nanos()).unwrap_or(u64::MAX);
        let samples = self.probe.sample();
        let process = |sample: &ModuleSample| Some((sample.name.clone(), *sample.tids.first()?));
        self.processes = samples.iter().filter(|sample| sample.process).filter_map(process).collect();
        self.broker = samples.iter().find_map(Loop::of);
        let now_ns = monotonic_ns();
        let clocks = Clocks { now_ns, wall_ns };
        for sample in samples {
            if !sample.reactor {
                // ZeroMQ's threads, say; or a module that no list has named yet, whose sums are recorded whole as soon as
                // one does.
                continue;
            }
            if !self.modules.contains_key(&sample.name) {
                // Refused for want of room: counted by the node.
                let Ok(recorded) = Recorded::new(node, sample) else { continue };
                self.modules.insert(sample.name.clone(), recorded);
            }
            if let Some(recorded) = self.modules.get_mut(&sample.name) {
                recorded.record(node, sample, hook, clocks);
                let stalled_ns = self.stalls.look(sample, now_ns, stall_ns);
                recorded.record_stall(node, sample, stalled_ns, clocks);
            }
        }
        self.record_own(node, panics, &status);
        if let Some(ids) = &self.own {
            node.set(ids.streams, Some(Amount::whole(streams as i128)));
        }
        self.stalls.finish(now_ns)
    }

    fn record_own(&mut self, node: &mut Node, panics: u64, status: &Status) {
        let Some(ids) = &self.own else { return };
        let (now, before) = (node.events(), std::mem::replace(&mut self.events, node.events()));
        let gained = [
            (ids.merged, now.merged, before.merged),
            (ids.repeats, now.repeats, before.repeats),
            (ids.refused, now.refused, before.refused),
            (ids.overflow, now.overflow, before.overflow),
            (ids.before_clear, now.before_clear, before.before_clear),
            (ids.parked, now.parked, before.parked),
            (ids.doubted, now.doubted, before.doubted),
            (ids.gauges_overflow, now.states_overflow, before.states_overflow),
            (ids.sent_bytes, now.sent_bytes, before.sent_bytes),
            (ids.ended, now.ended, before.ended),
            (ids.panics, panics, std::mem::replace(&mut self.panics, panics)),
            (ids.untimed, status.overflow, std::mem::replace(&mut self.untimed, status.overflow)),
            (
                ids.clock_steps,
                status.clock_steps,
                std::mem::replace(&mut self.clock_steps, status.clock_steps),
            ),
        ];
        for (id, now, before) in gained {
            node.add(id, whole(now.saturating_sub(before)));
        }
    }
}

fn own_ids(node: &mut Node) -> Result<OwnIds, Refused> {
    let streams = node.declare(Key::new("stats-agg.streams", &[], Kind::Gauge, Unit::None)?)?;
    let mut id =
        |name: &str, unit| node.declare(Key::new(&format!("stats-agg.{name}"), &[], Kind::Counter, unit)?);
    Ok(OwnIds {
        merged: id("batches_merged", Unit::None)?,
        repeats: id("batches_repeated", Unit::None)?,
        refused: id("batches_refused", Unit::None)?,
        overflow: id("overflow", Unit::None)?,
        before_clear: id("flows_before_clear", Unit::None)?,
        parked: id("batches_parked", Unit::None)?,
        doubted: id("batches_doubted", Unit::None)?,
        gauges_overflow: id("gauges_overflow", Unit::None)?,
        sent_bytes: id("sent_bytes", Unit::Bytes)?,
        ended: id("series_ended", Unit::None)?,
        panics: id("panics", Unit::None)?,
        untimed: id("untimed_threads", Unit::None)?,
        clock_steps: id("clock_steps", Unit::None)?,
        streams,
    })
}
