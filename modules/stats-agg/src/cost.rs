//! What a rank's children cost it: of the time of this module's thread, and of the broker's own.

use stats_probe::{ModuleSample, thread_cpu_ns};

/// Turns of the broker's loop for each batch: it passes the request on to this module, and the response back.
const TURNS_OF_BATCH: f64 = 2.0;

/// What this thread does on its own account leaves children less of what it may cost, but never takes away more than this
/// share of a core: they can do nothing about it.
const OWN_SHARE: f64 = 0.02;

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
    /// What of this thread's time went into measuring and collecting since then, which children have no part in.
    own_ns: u64,
}

impl Cost {
    pub(crate) fn new() -> Self {
        Cost { thread_ns: thread_cpu_ns(), at_ns: 0, broker: None, merged: 0, own_ns: 0 }
    }

    /// Some of this thread's time went into what children have no part in.
    pub(crate) fn spare(&mut self, own_ns: u64) {
        self.own_ns = self.own_ns.saturating_add(own_ns);
    }

    /// For how long children kept the busier of the two threads busy since the last period, with what this one did on its
    /// own account; and how long ago that was. `merged`: batches of theirs so far.
    pub(crate) fn with_children(&mut self, now_ns: u64, broker: Option<Loop>, merged: u64) -> (u64, u64) {
        let thread_ns = thread_cpu_ns();
        let span_ns = now_ns.saturating_sub(self.at_ns);
        let of_children = thread_ns.saturating_sub(self.thread_ns).saturating_sub(self.own_ns);
        let of_thread = of_children.saturating_add(self.own_ns.min((OWN_SHARE * span_ns as f64) as u64));
        let of_broker = match (self.broker, broker) {
            (Some(before), Some(now)) => broker_ns(before, now, merged.saturating_sub(self.merged)),
            _ => 0,
        };
        *self = Cost { thread_ns, at_ns: now_ns, broker, merged, own_ns: 0 };
        (of_thread.max(of_broker), span_ns)
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
        let (first, _) = cost.with_children(10, broker(1_000, 1 << 50), 1_000);
        assert!(first < 1 << 40, "the broker's time before is nobody's: {first}");
        let (second, span_ns) = cost.with_children(25, broker(2_000, (1 << 50) + (1 << 45)), 1_000_000);
        assert_eq!((second, span_ns), (1 << 45, 15));
        // What is done on one's own account counts, up to a share of the time.
        cost.spare(u64::MAX);
        assert_eq!(cost.with_children(1_025, None, 2_000_000), (20, 1_000));
    }
}
