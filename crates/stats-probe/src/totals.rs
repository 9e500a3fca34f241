//! What has been measured of one name, as totals that never fall.

use crate::histogram::WorkHistogram;
use crate::proc::ThreadStat;
use crate::sample::Source;
use crate::slots::Table;
use std::sync::atomic::Ordering::Relaxed;

/// A sum of differences that are now and then a few nanoseconds below zero (two processors' counters, a
/// state that a reader extended a little too far): it is shown as the largest value so far, and the next
/// differences make up for it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rising {
    sum: i64,
    shown: u64,
}

impl Rising {
    pub(crate) fn add(&mut self, difference: i64) {
        self.sum = self.sum.saturating_add(difference);
        self.shown = self.shown.max(self.sum.max(0) as u64);
    }

    pub(crate) fn get(self) -> u64 {
        self.shown
    }

    fn merge(&mut self, other: Rising) {
        self.add(other.sum);
    }
}

/// The largest of something, and when: CLOCK_MONOTONIC ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Longest {
    pub(crate) ns: u64,
    pub(crate) at_ns: u64,
}

impl Longest {
    pub(crate) fn see(&mut self, other: Longest) {
        if other.ns > self.ns {
            *self = other;
        }
    }
}

/// Totals of one name. All of it only ever grows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Totals {
    pub(crate) work: Rising,
    pub(crate) sleep: Rising,
    pub(crate) blocked: Rising,
    /// Part of the three above that was told from CPU time, not from turns.
    pub(crate) estimated: Rising,
    pub(crate) wakeups: u64,
    pub(crate) blocked_calls: u64,
    pub(crate) longest_work: Longest,
    pub(crate) longest_blocked: Longest,
    pub(crate) histogram: WorkHistogram,
    pub(crate) cpu_ns: u64,
    pub(crate) runq_wait_ns: u64,
    pub(crate) timeslices: u64,
    pub(crate) voluntary: u64,
    pub(crate) involuntary: u64,
    /// Where the best of its numbers come from.
    pub(crate) source: Source,
    /// Nested waits were told from sleep.
    pub(crate) blocked_known: bool,
}

impl Totals {
    pub(crate) fn merge(&mut self, other: &Totals) {
        self.work.merge(other.work);
        self.sleep.merge(other.sleep);
        self.blocked.merge(other.blocked);
        self.estimated.merge(other.estimated);
        self.wakeups += other.wakeups;
        self.blocked_calls += other.blocked_calls;
        self.longest_work.see(other.longest_work);
        self.longest_blocked.see(other.longest_blocked);
        self.histogram.merge(&other.histogram);
        self.cpu_ns += other.cpu_ns;
        self.runq_wait_ns += other.runq_wait_ns;
        self.timeslices += other.timeslices;
        self.voluntary += other.voluntary;
        self.involuntary += other.involuntary;
        self.source = self.source.max(other.source);
        self.blocked_known |= other.blocked_known;
    }

    /// Some of the numbers are told by turns in a table.
    pub(crate) fn turns_from(&mut self, source: Source, table: &Table) {
        self.source = self.source.max(source);
        self.blocked_known |= table.header.blocked_known.load(Relaxed) == 1;
    }

    /// Adds what the kernel counted from `before` to `now`.
    pub(crate) fn add_stat(&mut self, before: &ThreadStat, now: &ThreadStat) {
        self.cpu_ns += now.cpu_ns.saturating_sub(before.cpu_ns);
        self.runq_wait_ns += now.runq_wait_ns.saturating_sub(before.runq_wait_ns);
        self.timeslices += now.timeslices.saturating_sub(before.timeslices);
        self.voluntary += now.voluntary.saturating_sub(before.voluntary);
        self.involuntary += now.involuntary.saturating_sub(before.involuntary);
    }
}
