//! From the probe to series: `modules.NAME.*` of this rank, and what the service says of itself.

use stats_core::{Amount, Events, Key, Kind, Node, Refused, Samples, SeriesId, Unit};
use stats_probe::{AttachError, Blocked, ModuleSample, NamedModule, Probe, Source, Status};
use std::collections::HashMap;

/// Periods between two looks at the list of modules, beside those at once when a module is new.
const NAMES_PERIODS: u32 = 15;

/// The series of one module on this rank, and what is recorded of it already.
struct Recorded {
    ids: ModuleIds,
    before: ModuleSample,
    work: HashMap<u64, u64>,
}

struct ModuleIds {
    wakeups: SeriesId,
    work: SeriesId,
    sleep: SeriesId,
    blocked: SeriesId,
    cpu: SeriesId,
    runq_wait: SeriesId,
    switches_voluntary: SeriesId,
    switches_involuntary: SeriesId,
    work_per_wakeup: SeriesId,
    longest_work: SeriesId,
}

/// The service's own series.
struct OwnIds {
    merged: SeriesId,
    repeats: SeriesId,
    refused: SeriesId,
    overflow: SeriesId,
    before_clear: SeriesId,
    parked: SeriesId,
    sent_bytes: SeriesId,
    panics: SeriesId,
    untimed: SeriesId,
}

/// Turns samples into series.
pub(crate) struct Measure {
    probe: Probe,
    modules: HashMap<String, Recorded>,
    own: Option<OwnIds>,
    events: Events,
    panics: u64,
    untimed: u64,
    periods: u32,
}

impl Measure {
    pub(crate) fn new(probe: Probe) -> Self {
        let untimed = probe.status().untimed;
        let (modules, events) = (HashMap::new(), Events::default());
        Measure { probe, modules, own: None, events, panics: 0, untimed, periods: 0 }
    }

    /// Goes on with another probe, whose sums start anew.
    pub(crate) fn replace_probe(&mut self, probe: Probe) {
        self.probe = probe;
        self.modules.clear();
    }

    /// Why the probe does not do what was asked.
    pub(crate) fn fallback(&self) -> Option<AttachError> {
        self.probe.status().fallback
    }

    pub(crate) fn set_names(&mut self, named: Vec<NamedModule>) {
        self.probe.set_names(named);
    }

    pub(crate) fn wants_names(&self) -> bool {
        self.probe.wants_names() || self.periods.is_multiple_of(NAMES_PERIODS)
    }

    /// Records what has been done since the last time.
    pub(crate) fn record(&mut self, node: &mut Node, panics: u64) {
        self.periods = self.periods.wrapping_add(1);
        // First of all, so that a full catalog can still say that it is full.
        if self.own.is_none() {
            self.own = own_ids(node).ok();
        }
        self.probe.sample();
        let status = self.probe.status();
        for sample in self.probe.modules() {
            if !self.modules.contains_key(&sample.name) {
                // Refused for want of room: counted by the node.
                let Ok(ids) = module_ids(node, &sample.name) else { continue };
                let recorded = Recorded { ids, before: sample.beginning(), work: HashMap::new() };
                self.modules.insert(sample.name.clone(), recorded);
            }
            if let Some(recorded) = self.modules.get_mut(&sample.name) {
                recorded.record(node, sample, status.blocked);
            }
        }
        self.record_own(node, panics, &status);
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
            (ids.sent_bytes, now.sent_bytes, before.sent_bytes),
            (ids.panics, panics, std::mem::replace(&mut self.panics, panics)),
            (ids.untimed, status.untimed, std::mem::replace(&mut self.untimed, status.untimed)),
        ];
        for (id, now, before) in gained {
            node.add(id, whole(now.saturating_sub(before)));
        }
    }
}

fn whole(count: u64) -> Amount {
    Amount::whole(count.into())
}

impl Recorded {
    fn record(&mut self, node: &mut Node, now: &ModuleSample, blocked: Blocked) {
        let (ids, before) = (&self.ids, &self.before);
        let mut add = |id, now: u64, before: u64| node.add(id, whole(now.saturating_sub(before)));
        add(ids.cpu, now.cpu_ns, before.cpu_ns);
        add(ids.runq_wait, now.runq_wait_ns, before.runq_wait_ns);
        add(ids.switches_voluntary, now.switches_voluntary, before.switches_voluntary);
        add(ids.switches_involuntary, now.switches_involuntary, before.switches_involuntary);
        if now.source == Source::Attach {
            add(ids.wakeups, now.wakeups, before.wakeups);
            add(ids.work, now.work_ns, before.work_ns);
            add(ids.sleep, now.sleep_ns, before.sleep_ns);
            if blocked == Blocked::Known {
                add(ids.blocked, now.blocked_ns, before.blocked_ns);
            }
            let mut samples = Samples::default();
            for (work_ns, count) in now.work_histogram() {
                let seen = self.work.insert(work_ns, count).unwrap_or(0);
                samples.add(work_ns, count.saturating_sub(seen));
            }
            node.observe(ids.work_per_wakeup, &samples);
            node.set(ids.longest_work, Some(whole(now.longest_work_ns)));
        }
        self.before = now.clone();
    }
}

/// A module's name as a part of a series': dots would make it several parts.
fn part(name: &str) -> String {
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let part: String = name.chars().map(|c| if valid(c) { c } else { '_' }).collect();
    if part.is_empty() { "unnamed".to_owned() } else { part }
}

fn module_ids(node: &mut Node, module: &str) -> Result<ModuleIds, Refused> {
    let prefix = format!("modules.{}", part(module));
    let mut id =
        |name: &str, kind, unit| node.declare(Key::new(&format!("{prefix}.{name}"), &[], kind, unit)?);
    let (counter, ns) = (Kind::Counter, Unit::Nanoseconds);
    Ok(ModuleIds {
        wakeups: id("wakeups", counter, Unit::None)?,
        work: id("work_s", counter, ns)?,
        sleep: id("sleep_s", counter, ns)?,
        blocked: id("blocked_s", counter, ns)?,
        cpu: id("cpu_s", counter, ns)?,
        runq_wait: id("runq_wait_s", counter, ns)?,
        switches_voluntary: id("switches_voluntary", counter, Unit::None)?,
        switches_involuntary: id("switches_involuntary", counter, Unit::None)?,
        work_per_wakeup: id("work_per_wakeup_s", Kind::Timer, ns)?,
        longest_work: id("longest_work_s", Kind::Gauge, ns)?,
    })
}

fn own_ids(node: &mut Node) -> Result<OwnIds, Refused> {
    let mut id =
        |name: &str, unit| node.declare(Key::new(&format!("stats-agg.{name}"), &[], Kind::Counter, unit)?);
    Ok(OwnIds {
        merged: id("batches_merged", Unit::None)?,
        repeats: id("batches_repeated", Unit::None)?,
        refused: id("batches_refused", Unit::None)?,
        overflow: id("overflow", Unit::None)?,
        before_clear: id("flows_before_clear", Unit::None)?,
        parked: id("batches_parked", Unit::None)?,
        sent_bytes: id("sent_bytes", Unit::Bytes)?,
        panics: id("panics", Unit::None)?,
        untimed: id("untimed_waits", Unit::None)?,
    })
}
