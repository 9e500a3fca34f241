//! One source: when it is asked, and what became of it.

use crate::shelf::Shelf;
use std::time::Duration;

/// A source may be busy with us for this part of its time: it is asked again after so many times as long as it took.
const TIMES_AS_LONG: u32 = 1000;
/// No source is left alone for longer than this for having been slow.
const PERIOD_MAX: Duration = Duration::from_secs(3600);
/// What a source has told is forgotten if it says nothing for so long; it is still not asked again.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// When, in nanoseconds of the caller's monotonic clock.
pub(crate) struct Task {
    /// How often, were there no cost.
    period: Duration,
    /// When it is to be asked next.
    due_ns: u64,
    /// When it was asked, if it has not answered.
    asked_ns: Option<u64>,
    /// The answer is overdue, and has been counted as such.
    late: bool,
    /// How long the last answer took, and the slowest lately.
    slowest_ns: u64,
    pub(crate) shelf: Shelf,
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Task {
    pub(crate) fn new(period: Duration, due_ns: u64) -> Self {
        Task { period, due_ns, asked_ns: None, late: false, slowest_ns: 0, shelf: Shelf::default() }
    }

    /// Whether it is to be asked now; then it counts as asked.
    pub(crate) fn ask(&mut self, now_ns: u64) -> bool {
        let due = self.asked_ns.is_none() && now_ns >= self.due_ns;
        if due {
            self.asked_ns = Some(now_ns);
        }
        due
    }

    /// Whether its answer has just become overdue.
    pub(crate) fn has_become_late(&mut self, now_ns: u64) -> bool {
        let overdue = self.asked_ns.is_some_and(|asked| now_ns.saturating_sub(asked) > ns(DEADLINE));
        overdue && !std::mem::replace(&mut self.late, overdue)
    }

    /// It has answered: how long that took.
    pub(crate) fn answered(&mut self, now_ns: u64) -> u64 {
        let took_ns = now_ns.saturating_sub(self.asked_ns.take().unwrap_or(now_ns));
        self.late = false;
        // One slow answer is remembered for a while, and a slow source for as long as it is slow.
        self.slowest_ns = took_ns.max(self.slowest_ns / 2);
        self.due_ns = now_ns.saturating_add(ns(self.period_now()));
        took_ns
    }

    /// The question is void: its source is gone.
    pub(crate) fn abandon(&mut self, now_ns: u64) {
        self.asked_ns = None;
        self.late = false;
        self.due_ns = now_ns.saturating_add(ns(self.period));
    }

    /// How many times its period it is left alone.
    pub(crate) fn stretch(&self) -> f64 {
        self.period_now().as_secs_f64() / self.period.as_secs_f64()
    }

    /// How often it is asked, what it costs considered.
    fn period_now(&self) -> Duration {
        let affordable = Duration::from_nanos(self.slowest_ns.saturating_mul(TIMES_AS_LONG.into()));
        self.period.max(affordable.min(PERIOD_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_source_is_not_asked_again_before_it_has_answered() {
        let mut task = Task::new(Duration::from_secs(2), 0);
        assert!(task.ask(0) && !task.ask(100 * SECOND));
        assert!(!task.has_become_late(9 * SECOND));
        assert!(task.has_become_late(11 * SECOND) && !task.has_become_late(12 * SECOND), "once");
        assert_eq!(task.answered(200 * SECOND), 200 * SECOND);
        assert!(!task.ask(300 * SECOND), "it took 200 s: an hour is the longest it is left alone");
        assert!(task.ask(200 * SECOND + 3600 * SECOND));
    }

    #[test]
    fn a_slow_source_is_asked_less_often_and_a_quick_one_again_as_often_as_before() {
        let mut task = Task::new(Duration::from_secs(2), 0);
        let mut now = 0;
        let mut answer = |task: &mut Task, took: u64| {
            while !task.ask(now) {
                now += SECOND / 10;
            }
            now += took;
            task.answered(now);
            task.period_now()
        };
        assert_eq!(answer(&mut task, 100_000), Duration::from_secs(2), "100 us: 0.1 s would do");
        assert_eq!(answer(&mut task, 50_000_000), Duration::from_secs(50));
        assert_eq!(answer(&mut task, 100_000), Duration::from_secs(25), "it may have been chance");
        for _ in 0..4 {
            answer(&mut task, 100_000);
        }
        assert_eq!(task.period_now(), Duration::from_secs(2));
    }
}
