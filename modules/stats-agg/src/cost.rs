//! What a rank's children cost it: of the time of this module's thread, and of the broker's own.

use stats_core::Busy;
use stats_probe::{ModuleSample, thread_cpu_ns};

/// Turns of the broker's loop for each batch: it passes the request on to this module, and the response back.
const TURNS_OF_BATCH: f64 = 2.0;

/// A broker's loop, as sampled: sums since the attach.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Loop {
    turns: u64,
    cpu_ns: u64,
}

impl Loop {
    /// `None`: this is a module, or its turns are not counted.
    pub(crate) fn of(sample: &ModuleSample) -> Option<Self> {
        let counted = sample.name == "broker" && sample.wakeups > 0;
        counted.then_some(Loop { turns: sample.wakeups, cpu_ns: sample.cpu_ns })
    }
}

/// Measures the cost, from one period to the next.
pub(crate) struct Cost {
    /// At the end of the last period: this thread's CPU time, when that was, the broker's loop, and batches merged.
    thread_ns: u64,
    at_ns: u64,
    broker: Option<Loop>,
    merged: u64,
    /// What of this thread's time went into what children have no part in since then.
    own_ns: u64,
}

/// Where work that children have no part in began.
pub(crate) struct Own {
    thread_ns: u64,
    own_ns: u64,
}

impl Cost {
    pub(crate) fn new() -> Self {
        Cost { thread_ns: thread_cpu_ns(), at_ns: 0, broker: None, merged: 0, own_ns: 0 }
    }

    /// What children have no part in begins.
    pub(crate) fn begin_own(&self) -> Own {
        Own { thread_ns: thread_cpu_ns(), own_ns: self.own_ns }
    }

    /// It ends. What began and ended within is part of it.
    pub(crate) fn end_own(&mut self, begun: &Own) {
        self.own_ns = begun.own_ns.saturating_add(thread_cpu_ns().saturating_sub(begun.thread_ns));
    }

    /// What the thread that is the busier with children was busy with since the last period: this one, or the broker's.
    pub(crate) fn of_period(&mut self, now_ns: u64, broker: Option<Loop>, merged: u64) -> Busy {
        let (thread_ns, span_ns, own_ns) = (thread_cpu_ns(), now_ns.saturating_sub(self.at_ns), self.own_ns);
        let all_ns = thread_ns.saturating_sub(self.thread_ns);
        let here = Busy { children_ns: all_ns.saturating_sub(own_ns), own_ns, span_ns };
        let children_ns = match (self.broker, broker) {
            (Some(before), Some(now)) => broker_ns(before, now, merged.saturating_sub(self.merged)),
            _ => 0,
        };
        *self = Cost { thread_ns, at_ns: now_ns, broker, merged, own_ns: 0 };
        if children_ns > all_ns { Busy { children_ns, own_ns: 0, span_ns } } else { here }
    }
}

/// What `batches` took of the broker's loop, as far as its mean turn says; never more than it was busy for.
fn broker_ns(before: Loop, now: Loop, batches: u64) -> u64 {
    let turns = now.turns.saturating_sub(before.turns);
    let cpu_ns = now.cpu_ns.saturating_sub(before.cpu_ns);
    if turns == 0 {
        return 0;
    }
    let estimate = cpu_ns as f64 / turns as f64 * TURNS_OF_BATCH * batches as f64;
    (estimate as u64).min(cpu_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_cost_the_broker_two_mean_turns_each_and_never_more_than_it_worked() {
        let at = |turns, cpu_ns| Loop { turns, cpu_ns };
        assert_eq!(broker_ns(at(100, 1_000), at(1100, 51_000), 10), 1_000);
        assert_eq!(broker_ns(at(100, 1_000), at(1100, 51_000), 900), 50_000);
        // No turn, or counted anew.
        assert_eq!(broker_ns(at(100, 1_000), at(100, 2_000), 10), 0);
        assert_eq!(broker_ns(at(100, 1_000), at(5, 10), 10), 0);
    }

    #[test]
    fn the_busier_thread_counts_and_only_from_the_second_time_on() {
        let broker = |turns, cpu_ns| Some(Loop { turns, cpu_ns });
        let mut cost = Cost::new();
        let first = cost.of_period(10, broker(1_000, 1 << 50), 1_000).children_ns;
        assert!(first < 1 << 40, "the broker's time before is nobody's: {first}");
        let second = cost.of_period(25, broker(2_000, (1 << 50) + (1 << 45)), 1_000_000);
        assert_eq!((second.children_ns, second.own_ns, second.span_ns), (1 << 45, 0, 15));
    }

    #[test]
    fn what_is_done_within_what_children_have_no_part_in_counts_once() {
        let work = || {
            let begun = thread_cpu_ns();
            while thread_cpu_ns() - begun < 2_000_000 {}
        };
        let mut cost = Cost::new();
        work();
        let (begun, outer) = (thread_cpu_ns(), cost.begin_own());
        let inner = cost.begin_own();
        work();
        cost.end_own(&inner);
        cost.end_own(&outer);
        let own_ns = thread_cpu_ns() - begun;
        let busy = cost.of_period(1_000, None, 0);
        assert!(busy.own_ns >= 2_000_000 && busy.own_ns <= own_ns, "{busy:?} of {own_ns}");
        assert!(busy.children_ns >= 2_000_000, "{busy:?}");
    }
}
