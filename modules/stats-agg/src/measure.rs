//! From the probe to series: `modules.NAME.*` of this rank, and what the service says of itself.

use crate::stall::{Notice, Stalls};
use stats_core::{Amount, Events, Key, Kind, Node, Refused, Samples, SeriesId, Unit};
use stats_probe::{AsOf, Mode, ModuleSample, Name, Probe, Source, WorkHistogram, monotonic_ns};
use std::collections::HashMap;
use std::time::Duration;

/// Periods between two looks at the list of modules, beside those at once when a module is new.
const NAMES_PERIODS: u32 = 15;

/// The series of one module on this rank, and what is recorded of it already. Series exist as far as their numbers do:
/// what /proc alone knows has no turns, and what is unknown is absent rather than zero.
struct Recorded {
    usage: UsageIds,
    turns: Option<TurnIds>,
    blocked: Option<SeriesId>,
    /// A state that exists while the module does not come back to its reactor.
    stalled: Option<SeriesId>,
    /// A state that exists where the numbers may be of more than one module.
    ambiguous: Option<SeriesId>,
    before: Before,
}

/// What the probe knows of threads that it has not seen turn yet.
#[derive(Clone, Copy)]
struct Hook {
    hooked: bool,
    blocked_known: bool,
}

/// The sums of a sample that are recorded already.
#[derive(Default)]
struct Before {
    wakeups: u64,
    work_ns: u64,
    sleep_ns: u64,
    blocked_ns: u64,
    cpu_ns: u64,
    runq_wait_ns: u64,
    voluntary: u64,
    involuntary: u64,
    work: WorkHistogram,
}

struct UsageIds {
    cpu: SeriesId,
    runq_wait: SeriesId,
    switches_voluntary: SeriesId,
    switches_involuntary: SeriesId,
}

struct TurnIds {
    wakeups: SeriesId,
    work: SeriesId,
    sleep: SeriesId,
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
    doubted: SeriesId,
    gauges_overflow: SeriesId,
    sent_bytes: SeriesId,
    panics: SeriesId,
    untimed: SeriesId,
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
    periods: u32,
    stalls: Stalls,
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
            periods: 0,
            stalls: Stalls::default(),
        }
    }

    /// Goes on with another probe, whose sums start anew.
    pub(crate) fn replace_probe(&mut self, probe: Probe) {
        self.probe = probe;
        self.modules.clear();
    }

    /// Why the probe does not do what was asked.
    pub(crate) fn fallback(&self) -> Option<String> {
        self.probe.status().fallback
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
        let now_ns = monotonic_ns();
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
                recorded.record(node, sample, hook);
                let stalled_ns = self.stalls.look(sample, now_ns, stall_ns);
                recorded.record_stall(node, sample, stalled_ns);
            }
        }
        self.record_own(node, panics, status.overflow);
        if let Some(ids) = &self.own {
            node.set(ids.streams, Some(Amount::whole(streams as i128)));
        }
        self.stalls.finish(now_ns)
    }

    fn record_own(&mut self, node: &mut Node, panics: u64, untimed: u64) {
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
            (ids.panics, panics, std::mem::replace(&mut self.panics, panics)),
            (ids.untimed, untimed, std::mem::replace(&mut self.untimed, untimed)),
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
    fn new(node: &mut Node, sample: &ModuleSample) -> Result<Self, Refused> {
        let usage = UsageIds {
            cpu: declare(node, sample, "cpu_s", Kind::Counter, Unit::Nanoseconds)?,
            runq_wait: declare(node, sample, "runq_wait_s", Kind::Counter, Unit::Nanoseconds)?,
            switches_voluntary: declare(node, sample, "switches_voluntary", Kind::Counter, Unit::None)?,
            switches_involuntary: declare(node, sample, "switches_involuntary", Kind::Counter, Unit::None)?,
        };
        Ok(Recorded {
            usage,
            turns: None,
            blocked: None,
            stalled: None,
            ambiguous: None,
            before: Before::default(),
        })
    }

    fn record_stall(&mut self, node: &mut Node, module: &ModuleSample, stalled_ns: Option<u64>) {
        if stalled_ns.is_some() && self.stalled.is_none() {
            self.stalled = declare(node, module, "stalled", Kind::Gauge, Unit::Nanoseconds).ok();
        }
        if let Some(id) = self.stalled {
            node.set(id, stalled_ns.map(whole));
        }
    }

    fn record(&mut self, node: &mut Node, now: &ModuleSample, hook: Hook) {
        let thread = hook.hooked && !now.process;
        let timed = now.source != Source::Proc || thread;
        if timed && self.turns.is_none() {
            self.turns = turn_ids(node, now).ok();
        }
        let blocked_known = now.blocked_ns.is_some() || (thread && hook.blocked_known);
        if timed && self.blocked.is_none() && blocked_known {
            self.blocked = declare(node, now, "blocked_s", Kind::Counter, Unit::Nanoseconds).ok();
        }
        if now.ambiguous && self.ambiguous.is_none() {
            self.ambiguous = declare(node, now, "ambiguous", Kind::Gauge, Unit::None).ok();
        }
        if let Some(id) = self.ambiguous {
            node.set(id, Some(Amount::whole(1)));
        }
        let (usage, before) = (&self.usage, &self.before);
        let mut add = |id, now: u64, before: u64| node.add(id, whole(now.saturating_sub(before)));
        add(usage.cpu, now.cpu_ns, before.cpu_ns);
        add(usage.runq_wait, now.runq_wait_ns, before.runq_wait_ns);
        add(usage.switches_voluntary, now.voluntary, before.voluntary);
        add(usage.switches_involuntary, now.involuntary, before.involuntary);
        let blocked_ns = now.blocked_ns.unwrap_or(0);
        if let Some(id) = self.blocked {
            add(id, blocked_ns, before.blocked_ns);
        }
        if let Some(turns) = &self.turns {
            add(turns.wakeups, now.wakeups, before.wakeups);
            add(turns.work, now.work_ns, before.work_ns);
            add(turns.sleep, now.sleep_ns, before.sleep_ns);
            let mut samples = Samples::default();
            now.work.since(&before.work).for_each(|(work_ns, count)| samples.add(work_ns, count));
            node.observe(turns.work_per_wakeup, &samples);
            node.set(turns.longest_work, Some(whole(now.longest_work_ns)));
        }
        self.before = Before {
            wakeups: now.wakeups,
            work_ns: now.work_ns,
            sleep_ns: now.sleep_ns,
            blocked_ns,
            cpu_ns: now.cpu_ns,
            runq_wait_ns: now.runq_wait_ns,
            voluntary: now.voluntary,
            involuntary: now.involuntary,
            work: now.work.clone(),
        };
    }
}

/// A module's name as a part of a series': dots would make it several parts.
fn part(name: &str) -> String {
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let part: String = name.chars().map(|c| if valid(c) { c } else { '_' }).collect();
    if part.is_empty() { "unnamed".to_owned() } else { part }
}

fn declare(
    node: &mut Node,
    module: &ModuleSample,
    name: &str,
    kind: Kind,
    unit: Unit,
) -> Result<SeriesId, Refused> {
    node.declare(Key::new(&format!("modules.{}.{name}", part(&module.name)), &[], kind, unit)?)
}

fn turn_ids(node: &mut Node, module: &ModuleSample) -> Result<TurnIds, Refused> {
    Ok(TurnIds {
        wakeups: declare(node, module, "wakeups", Kind::Counter, Unit::None)?,
        work: declare(node, module, "work_s", Kind::Counter, Unit::Nanoseconds)?,
        sleep: declare(node, module, "sleep_s", Kind::Counter, Unit::Nanoseconds)?,
        work_per_wakeup: declare(node, module, "work_per_wakeup_s", Kind::Timer, Unit::Nanoseconds)?,
        longest_work: declare(node, module, "longest_work_s", Kind::Gauge, Unit::Nanoseconds)?,
    })
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
        panics: id("panics", Unit::None)?,
        untimed: id("untimed_waits", Unit::None)?,
        streams,
    })
}
