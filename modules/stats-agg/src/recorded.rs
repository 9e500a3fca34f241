//! One module of this rank: its series, and what is recorded of it already.

use stats_core::{Amount, Key, Kind, Node, Refused, Samples, SeriesId, Unit};
use stats_probe::{ModuleSample, Source, WorkHistogram};

/// Series exist as far as their numbers do: what /proc alone knows has no turns, and what is unknown is absent rather
/// than zero.
pub(crate) struct Recorded {
    usage: UsageIds,
    turns: Option<TurnIds>,
    blocked: Option<BlockedIds>,
    /// Where the numbers come from: one state for each source, of which one is set.
    source: Option<(Source, SeriesId)>,
    /// A state that exists while the module does not come back to its reactor.
    stalled: Option<SeriesId>,
    /// A state that exists where the numbers may be of more than one module.
    ambiguous: Option<SeriesId>,
    /// The clear that the totals come after, and when it was noticed (CLOCK_MONOTONIC ns; zero: there was none).
    generation: u64,
    cleared_ns: u64,
    /// The longest work of a wakeup since then, as the distribution has it.
    longest_ns: u64,
    before: Before,
}

/// What the probe knows of threads that it has not seen turn yet.
#[derive(Clone, Copy)]
pub(crate) struct Hook {
    pub(crate) hooked: bool,
    pub(crate) blocked_known: bool,
}

/// One moment on two clocks.
#[derive(Clone, Copy)]
pub(crate) struct Clocks {
    /// CLOCK_MONOTONIC, which the probe goes by.
    pub(crate) now_ns: u64,
    /// Since 1970.
    pub(crate) wall_ns: u64,
}

impl Clocks {
    /// A moment of the probe's, in seconds since 1970.
    fn wall_s(self, at_ns: u64) -> u64 {
        self.wall_ns.saturating_sub(self.now_ns.saturating_sub(at_ns)) / 1_000_000_000
    }
}

/// The sums of a sample that are recorded already.
#[derive(Default)]
struct Before {
    wakeups: u64,
    work_ns: u64,
    sleep_ns: u64,
    blocked_ns: u64,
    blocked_calls: u64,
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

struct BlockedIds {
    time: SeriesId,
    calls: SeriesId,
    longest: SeriesId,
}

pub(crate) fn whole(count: u64) -> Amount {
    Amount::whole(count.into())
}

impl Recorded {
    pub(crate) fn new(node: &mut Node, sample: &ModuleSample) -> Result<Self, Refused> {
        let (counter, unit) = (Kind::Counter, Unit::Nanoseconds);
        let usage = UsageIds {
            cpu: declare(node, sample, "cpu_s", counter, unit)?,
            runq_wait: declare(node, sample, "runq_wait_s", counter, unit)?,
            switches_voluntary: declare(node, sample, "switches_voluntary", counter, Unit::None)?,
            switches_involuntary: declare(node, sample, "switches_involuntary", counter, Unit::None)?,
        };
        Ok(Recorded {
            usage,
            turns: None,
            blocked: None,
            source: None,
            stalled: None,
            ambiguous: None,
            generation: node.generation(),
            cleared_ns: 0,
            longest_ns: 0,
            before: Before::default(),
        })
    }

    /// The state of a module that does not come back to its reactor: for how long, and since when.
    pub(crate) fn record_stall(
        &mut self,
        node: &mut Node,
        module: &ModuleSample,
        stalled_ns: Option<u64>,
        clocks: Clocks,
    ) {
        if stalled_ns.is_some() && self.stalled.is_none() {
            self.stalled = declare(node, module, "stalled", Kind::Gauge, Unit::Nanoseconds).ok();
        }
        match (self.stalled, stalled_ns) {
            (Some(id), Some(age_ns)) => {
                node.set_since(id, whole(age_ns), clocks.wall_s(module.turn_since_ns));
            }
            (Some(id), None) => node.set(id, None),
            (None, _) => {}
        }
    }

    /// Records what has been gained since the last time.
    pub(crate) fn record(&mut self, node: &mut Node, now: &ModuleSample, hook: Hook, clocks: Clocks) {
        self.record_source(node, now);
        if self.generation != node.generation() {
            (self.generation, self.cleared_ns, self.longest_ns) = (node.generation(), clocks.now_ns, 0);
        }
        let thread = hook.hooked && !now.process;
        let timed = now.source != Source::Proc || thread;
        if timed && self.turns.is_none() {
            self.turns = turn_ids(node, now).ok();
        }
        let blocked_known = now.blocked_ns.is_some() || (thread && hook.blocked_known);
        if timed && self.blocked.is_none() && blocked_known {
            self.blocked = blocked_ids(node, now).ok();
        }
        let (usage, before) = (&self.usage, &self.before);
        let mut add = |id, now: u64, before: u64| node.add(id, whole(now.saturating_sub(before)));
        add(usage.cpu, now.cpu_ns, before.cpu_ns);
        add(usage.runq_wait, now.runq_wait_ns, before.runq_wait_ns);
        add(usage.switches_voluntary, now.voluntary, before.voluntary);
        add(usage.switches_involuntary, now.involuntary, before.involuntary);
        let blocked_ns = now.blocked_ns.unwrap_or(0);
        if let Some(blocked) = &self.blocked {
            add(blocked.time, blocked_ns, before.blocked_ns);
            add(blocked.calls, now.blocked_calls, before.blocked_calls);
            let (took_ns, at_ns) = (now.longest_blocked_ns, now.longest_blocked_at_ns);
            longest(node, blocked.longest, took_ns, at_ns, (self.cleared_ns, 0), clocks);
        }
        if let Some(turns) = &self.turns {
            let mut add = |id, now: u64, before: u64| node.add(id, whole(now.saturating_sub(before)));
            add(turns.wakeups, now.wakeups, before.wakeups);
            add(turns.work, now.work_ns, before.work_ns);
            add(turns.sleep, now.sleep_ns, before.sleep_ns);
            let mut samples = Samples::default();
            now.work.since(&before.work).for_each(|(work_ns, count)| samples.add(work_ns, count));
            node.observe(turns.work_per_wakeup, &samples);
            self.longest_ns = self.longest_ns.max(samples.range().map_or(0, |(_, max)| max));
            let (took_ns, at_ns) = (now.longest_work_ns, now.longest_work_at_ns);
            longest(node, turns.longest_work, took_ns, at_ns, (self.cleared_ns, self.longest_ns), clocks);
        }
        self.before = Before {
            wakeups: now.wakeups,
            work_ns: now.work_ns,
            sleep_ns: now.sleep_ns,
            blocked_ns,
            blocked_calls: now.blocked_calls,
            cpu_ns: now.cpu_ns,
            runq_wait_ns: now.runq_wait_ns,
            voluntary: now.voluntary,
            involuntary: now.involuntary,
            work: now.work.clone(),
        };
    }

    fn record_source(&mut self, node: &mut Node, now: &ModuleSample) {
        if self.source.is_none_or(|(source, _)| source != now.source) {
            if let Some((_, id)) = self.source.take() {
                node.set(id, None);
            }
            let name = match now.source {
                Source::Attach => "source.attach",
                Source::Preload => "source.preload",
                Source::Proc => "source.proc",
            };
            let id = declare(node, now, name, Kind::Gauge, Unit::None).ok();
            self.source = id.map(|id| (now.source, id));
        }
        if let Some((_, id)) = self.source {
            node.set(id, Some(whole(1)));
        }
        if now.ambiguous && self.ambiguous.is_none() {
            self.ambiguous = declare(node, now, "ambiguous", Kind::Gauge, Unit::None).ok();
        }
        if let Some(id) = self.ambiguous {
            node.set(id, now.ambiguous.then(|| whole(1)));
        }
    }
}

/// What took longest, and when. The probe does not know of clears: of what came after one the caller knows about how
/// long the longest took, if anything.
fn longest(
    node: &mut Node,
    id: SeriesId,
    took_ns: u64,
    at_ns: u64,
    (cleared_ns, since_ns): (u64, u64),
    clocks: Clocks,
) {
    if at_ns < cleared_ns {
        node.set(id, (since_ns > 0).then(|| whole(since_ns)));
    } else if at_ns == 0 {
        node.set(id, Some(whole(took_ns)));
    } else {
        node.set_since(id, whole(took_ns), clocks.wall_s(at_ns));
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

fn blocked_ids(node: &mut Node, module: &ModuleSample) -> Result<BlockedIds, Refused> {
    Ok(BlockedIds {
        time: declare(node, module, "blocked_s", Kind::Counter, Unit::Nanoseconds)?,
        calls: declare(node, module, "blocked_calls", Kind::Counter, Unit::None)?,
        longest: declare(node, module, "longest_blocked_s", Kind::Gauge, Unit::Nanoseconds)?,
    })
}

#[cfg(test)]
mod tests {
    use stats_probe::histogram::{BUCKETS, lower_bound_ns, middle_ns};

    /// Else the quantiles of a module's work would be off by more than an answer says (`relative_error`).
    #[test]
    fn a_bucket_of_the_hook_is_one_of_the_sketch() {
        let whole = (0..BUCKETS - 1).filter(|index| lower_bound_ns(*index) >= 256);
        let split: Vec<u64> = whole
            .map(|index| (lower_bound_ns(index), middle_ns(index), lower_bound_ns(index + 1) - 1))
            .filter(|(low, middle, high)| {
                [*middle, *high].iter().any(|ns| stats_core::bucket(*ns) != stats_core::bucket(*low))
            })
            .map(|(low, ..)| low)
            .collect();
        assert_eq!(split, Vec::<u64>::new());
    }
}
