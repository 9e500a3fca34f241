//! One source: when it is asked, and what became of it.

use crate::shelf::Shelf;
use std::time::Duration;

/// A source may be busy with us for this part of its time: it is asked again after so many times as long as it took.
const TIMES_AS_LONG: u32 = 1000;
/// One answer that took long may have waited behind something else: it counts for one of so many parts of that, unless the
/// one before or after it took as long.
const CHANCE: u64 = 32;
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
    /// How long the last two answers took.
    took_ns: [u64; 2],
    pub(crate) shelf: Shelf,
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Task {
    pub(crate) fn new(period: Duration, due_ns: u64) -> Self {
        Task { period, due_ns, asked_ns: None, late: false, took_ns: [0; 2], shelf: Shelf::default() }
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
        self.took_ns = [took_ns, self.took_ns[0]];
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
        let [last, before] = self.took_ns;
        let takes_ns = last.min(before).max(last.max(before) / CHANCE);
        let affordable = Duration::from_nanos(takes_ns.saturating_mul(TIMES_AS_LONG.into()));
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
        assert!(
            !task.ask(300 * SECOND),
            "it took 200 s, of which a 32nd counts, and a thousand times that is an hour"
        );
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
        assert_eq!(answer(&mut task, 320_000_000), Duration::from_secs(10), "once may be chance");
        assert_eq!(answer(&mut task, 320_000_000), Duration::from_secs(320), "twice is not");
        assert_eq!(answer(&mut task, 100_000), Duration::from_secs(10));
        assert_eq!(answer(&mut task, 100_000), Duration::from_secs(2));
    }
}
