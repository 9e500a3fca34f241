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
    /// What it does now; of several threads, what the one that has been working longest does.
    pub state: State,
    /// Since when (CLOCK_MONOTONIC ns).
    pub state_since_ns: u64,
    /// When the turn that is going on began: earlier than the state if the turn has waited inside.
    pub turn_since_ns: u64,
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
        let turn_since_ns = to_ns(thread.turn_since);
        let busier =
            thread.state > self.state || thread.state == self.state && turn_since_ns < self.turn_since_ns;
        if busier {
            self.state = thread.state;
            self.state_since_ns = to_ns(thread.since);
            self.turn_since_ns = turn_since_ns;
        }
    }
}
