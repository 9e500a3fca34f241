//! What a sample says of one module.

use crate::histogram::WorkHistogram;
use crate::ledger::Named;
use crate::thread::{State, Thread};
use crate::totals::{Longest, Totals};

/// Where a module's numbers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Source {
    /// From /proc: CPU time and switches are exact, work and sleep told from CPU time, nothing else known.
    #[default]
    Proc,
    /// From its turns, timed by a hook that was preloaded into its process: exact.
    Preload,
    /// From its turns, timed by the hook of this process: exact.
    Attach,
}

/// One module (or other thread of the broker). Times in nanoseconds, all numbers totals since the probe
/// started: they never fall, across reloads of the module and of the probe's hook too.
///
/// `sleep + work + blocked` is the wall time of its threads since each was first seen; the wait or work
/// that is going on is in it.
#[derive(Debug, Clone, PartialEq)]
pub struct ModuleSample {
    /// The module's name; `broker` for the broker's own reactor.
    pub name: String,
    /// A module or the broker; false for other threads, such as ZeroMQ's.
    pub reactor: bool,
    /// Numbers of more than one module may be in it (their names, cut to 15 characters, or their files are
    /// the same), or those of one that ended before any list of modules named it.
    pub ambiguous: bool,
    /// It runs in a process of its own, not as a thread of the broker.
    pub process: bool,
    /// Where the numbers come from now.
    pub source: Source,
    /// The threads that live now.
    pub tids: Vec<i32>,
    /// Turns of its reactors.
    pub wakeups: u64,
    /// Time between two waits.
    pub work_ns: u64,
    /// Time in the outermost reactor's wait; if `blocked_ns` is None, in any wait.
    pub sleep_ns: u64,
    /// Time in nested waits; None: cannot be told from sleep.
    pub blocked_ns: Option<u64>,
    /// Part of work and sleep that is an estimate: before a thread's first turn, or without a hook.
    pub estimated_ns: u64,
    /// Calls that waited: synchronous RPCs, blocking receives.
    pub blocked_calls: u64,
    /// The longest of them, and when it ended (CLOCK_MONOTONIC ns).
    pub longest_blocked_ns: u64,
    /// See `longest_blocked_ns`.
    pub longest_blocked_at_ns: u64,
    /// The longest work of one turn, and when it ended (CLOCK_MONOTONIC ns).
    pub longest_work_ns: u64,
    /// See `longest_work_ns`.
    pub longest_work_at_ns: u64,
    /// Work per wakeup.
    pub work: WorkHistogram,
    /// Time on a processor.
    pub cpu_ns: u64,
    /// Time ready to run, waiting for a processor.
    pub runq_wait_ns: u64,
    /// How often a processor was given.
    pub timeslices: u64,
    /// Switches away because it waited.
    pub voluntary: u64,
    /// Switches away because its time was up.
    pub involuntary: u64,
    /// What it does now; of several threads, what the one does that takes turns and has been busy longest.
    pub state: State,
    /// Since when (CLOCK_MONOTONIC ns).
    pub state_since_ns: u64,
    /// When the turn that is going on began: earlier than the state if the turn has waited inside.
    pub turn_since_ns: u64,
    stands_for: Option<Seen>,
}

impl ModuleSample {
    /// What a name has gained since a probe started.
    pub(crate) fn new(name: &str, named: &Named, base: Option<&Totals>, started_ns: u64) -> Self {
        let mut sample = Self {
            name: name.to_owned(),
            reactor: named.module,
            ambiguous: named.mixed_ns.is_some_and(|ns| ns >= started_ns),
            process: named.process,
            source: named.source,
            ..Self::default()
        };
        sample.add(&named.totals, base, started_ns);
        sample.blocked_ns = sample.blocked_ns.filter(|_| named.totals.blocked_known);
        sample
    }
}

impl Default for ModuleSample {
    /// Nothing, done by nobody.
    fn default() -> Self {
        Self {
            name: String::new(),
            reactor: false,
            ambiguous: false,
            process: false,
            source: Source::Proc,
            tids: Vec::new(),
            wakeups: 0,
            work_ns: 0,
            sleep_ns: 0,
            blocked_ns: Some(0),
            estimated_ns: 0,
            blocked_calls: 0,
            longest_blocked_ns: 0,
            longest_blocked_at_ns: 0,
            longest_work_ns: 0,
            longest_work_at_ns: 0,
            work: WorkHistogram::default(),
            cpu_ns: 0,
            runq_wait_ns: 0,
            timeslices: 0,
            voluntary: 0,
            involuntary: 0,
            state: State::Gone,
            state_since_ns: 0,
            turn_since_ns: 0,
            stands_for: None,
        }
    }
}

impl ModuleSample {
    /// Wall time of its threads since each was first seen.
    pub fn wall_ns(&self) -> u64 {
        self.work_ns + self.sleep_ns + self.blocked_ns.unwrap_or(0)
    }

    /// Adds a name's totals less those of when the probe started.
    fn add(&mut self, now: &Totals, base: Option<&Totals>, started_ns: u64) {
        let nothing = Totals::default();
        let base = base.unwrap_or(&nothing);
        self.work_ns += now.work.get() - base.work.get();
        self.sleep_ns += now.sleep.get() - base.sleep.get();
        let blocked = now.blocked.get() - base.blocked.get();
        self.blocked_ns = self.blocked_ns.map(|b| b + blocked);
        self.estimated_ns += now.estimated.get() - base.estimated.get();
        self.wakeups += now.wakeups - base.wakeups;
        self.blocked_calls += now.blocked_calls - base.blocked_calls;
        self.cpu_ns += now.cpu_ns - base.cpu_ns;
        self.runq_wait_ns += now.runq_wait_ns - base.runq_wait_ns;
        self.timeslices += now.timeslices - base.timeslices;
        self.voluntary += now.voluntary - base.voluntary;
        self.involuntary += now.involuntary - base.involuntary;
        let mut work = now.histogram.clone();
        work.subtract(&base.histogram);
        // The longest ever may be from before this probe.
        let (longest, at) = (now.longest_work, now.longest_work.at_ns);
        let longest = if at >= started_ns {
            longest
        } else {
            Longest { ns: work.quantile(1.0).unwrap_or(0), at_ns: 0 }
        };
        if longest.ns > self.longest_work_ns {
            (self.longest_work_ns, self.longest_work_at_ns) = (longest.ns, longest.at_ns);
        }
        let longest = now.longest_blocked;
        if longest.at_ns >= started_ns && longest.ns > self.longest_blocked_ns {
            (self.longest_blocked_ns, self.longest_blocked_at_ns) = (longest.ns, longest.at_ns);
        }
        self.work.merge(&work);
    }

    pub(crate) fn add_thread(&mut self, tid: i32, thread: &Thread, to_ns: impl Fn(u64) -> u64) {
        self.tids.push(tid);
        let (state, turn_since_ns) = (thread.state, to_ns(thread.turn_since));
        let seen = Seen { state, turn_since_ns, since: (thread.first_seen_ns, tid) };
        if self.stands_for.is_none_or(|other| seen.goes_before(&other)) {
            self.stands_for = Some(seen);
            self.state = state;
            self.state_since_ns = to_ns(thread.since);
            self.turn_since_ns = turn_since_ns;
        }
    }
}

/// One of a module's threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    state: State,
    turn_since_ns: u64,
    /// When it was met, and its tid.
    since: (u64, i32),
}

impl Seen {
    /// Whether it says more of what the module does: a thread that takes turns before one that does not (a module's
    /// helper may compute for hours while the module is well), of those the one that has been busy longest; where none
    /// takes turns the first, which has started the others.
    fn goes_before(&self, other: &Seen) -> bool {
        let turns = |seen: &Seen| !matches!(seen.state, State::UnknownIdle | State::UnknownRunning);
        match (turns(self), turns(other)) {
            (true, true) => (self.state, other.turn_since_ns) > (other.state, self.turn_since_ns),
            (false, false) => self.since < other.since,
            (mine, _) => mine,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_does_what_its_reactor_s_thread_does_not_what_a_helper_does() {
        let seen = |state, turn_since_ns, tid| Seen { state, turn_since_ns, since: (0, tid) };
        let helper = seen(State::UnknownRunning, 5, 11);
        for reactor in [State::Sleeping, State::Blocked, State::Working] {
            let reactor = seen(reactor, 100, 12);
            assert!(reactor.goes_before(&helper) && !helper.goes_before(&reactor), "{reactor:?}");
        }
        // Two reactors: the one that has been at it for longer.
        let (long, short) = (seen(State::Working, 10, 14), seen(State::Working, 20, 13));
        assert!(long.goes_before(&short) && !short.goes_before(&long));
        assert!(short.goes_before(&seen(State::Blocked, 1, 1)));
        // Without a hook: the first of its threads.
        let first = seen(State::UnknownIdle, 50, 10);
        assert!(first.goes_before(&helper) && !helper.goes_before(&first));
    }
}
