//! What a module does, put together from its series.

use crate::answer::{Series, Values};
use std::collections::BTreeMap;

/// A module, in the instance or on one rank. What is not known is `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Work {
    /// Turns of its reactor, per second.
    pub(crate) wakeups: Option<f64>,
    /// Percent of the time at work, the sum over ranks: 100 is one thread, always.
    pub(crate) work: Option<f64>,
    /// The same of the rank where it is highest.
    pub(crate) max: Option<f64>,
    /// That rank; where work is not known, the one with the most CPU time.
    pub(crate) busiest: Option<u32>,
    /// Percent of the time waiting inside its work, the sum over ranks.
    pub(crate) blocked: Option<f64>,
    /// Percent of a processor, the sum over ranks.
    pub(crate) cpu: Option<f64>,
    /// The work of a turn that 99 of 100 do not exceed, since the totals began.
    pub(crate) p99_s: Option<f64>,
    /// The longest one, or the one that is under way, if that is longer already.
    pub(crate) longest_s: Option<f64>,
    /// Messages that it has not read, on the rank with the most.
    pub(crate) sendq: Option<f64>,
    /// Messages of it that the broker has not read, likewise.
    pub(crate) recvq: Option<f64>,
    /// The rank where it has not come back to its reactor for longest, and for how many seconds.
    pub(crate) stalled: Option<(u32, f64)>,
}

/// What bounds the sums: on how many ranks a module is, and the most that one of them did, in percent.
#[derive(Debug, Default)]
struct Bounds {
    ranks: Option<f64>,
    work: Option<f64>,
    cpu: Option<f64>,
    blocked: Option<f64>,
}

impl Bounds {
    fn take(&mut self, metric: &str, values: &Values) {
        let most = match values {
            Values::Counter { max, .. } => max.map(|(_, rate)| rate * 100.0),
            _ => None,
        };
        match (metric, values) {
            ("loaded", Values::Gauge { sum, .. }) => self.ranks = Some(*sum),
            ("work_s", _) => self.work = most,
            ("cpu_s", _) => self.cpu = most,
            ("blocked_s", _) => self.blocked = most,
            _ => {}
        }
    }

    /// What ranks did in several periods may arrive in one. Each has measured its own rate, so that all together did no
    /// more than as many as the busiest one.
    fn apply(&self, work: &mut Work) {
        let Some(ranks) = self.ranks else { return };
        let sums =
            [(&mut work.work, self.work), (&mut work.cpu, self.cpu), (&mut work.blocked, self.blocked)];
        for (sum, most) in sums {
            *sum = sum.map(|sum| most.map_or(sum, |most| sum.min(most * ranks)));
        }
    }
}

impl Work {
    fn take(&mut self, metric: &str, values: &Values) {
        let percent = |rate: f64| Some(rate * 100.0);
        match (metric, values) {
            ("wakeups", Values::Counter { rate, .. }) => self.wakeups = Some(*rate),
            ("work_s", Values::Counter { rate, max, .. }) => {
                self.work = percent(*rate);
                self.max = percent(max.map_or(0.0, |(_, rate)| rate));
                self.busiest = max.map(|(rank, _)| rank);
            }
            ("blocked_s", Values::Counter { rate, .. }) => self.blocked = percent(*rate),
            ("cpu_s", Values::Counter { rate, max, .. }) => {
                self.cpu = percent(*rate);
                // Series come in any order: where work is known it decides.
                if self.work.is_none() {
                    self.busiest = max.map(|(rank, _)| rank);
                }
            }
            ("work_per_wakeup_s", Values::Timer { shape, .. }) => self.p99_s = shape.map(|shape| shape.p99),
            ("longest_work_s", Values::Gauge { max, .. }) => self.longest_at_least(max.value),
            ("sendq", Values::Gauge { max, .. }) => self.sendq = Some(max.value),
            ("recvq", Values::Gauge { max, .. }) => self.recvq = Some(max.value),
            ("stalled", Values::Gauge { max, .. }) => {
                self.stalled = Some((max.rank, max.value));
                self.longest_at_least(max.value);
            }
            _ => {}
        }
    }

    fn longest_at_least(&mut self, seconds: f64) {
        self.longest_s = Some(self.longest_s.unwrap_or(0.0).max(seconds));
    }
}

/// Module and metric of a name like `modules.kvs.work_s`.
pub(crate) fn of_module(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("modules.")?.split_once('.')
}

/// Modules by what `key` makes of a module and its rank.
pub(crate) fn works<K: Ord>(
    series: &[Series],
    key: impl Fn(&str, Option<u32>) -> Option<K>,
) -> BTreeMap<K, Work> {
    let mut works: BTreeMap<K, (Work, Bounds)> = BTreeMap::new();
    for one in series.iter().filter(|one| one.tags.is_empty()) {
        if let Some((module, metric)) = of_module(&one.name).filter(|(_, metric)| METRICS.contains(metric))
            && let Some(key) = key(module, one.rank)
        {
            let (work, bounds) = works.entry(key).or_default();
            work.take(metric, &one.values);
            bounds.take(metric, &one.values);
        }
    }
    let bounded = |(key, (mut work, bounds)): (K, (Work, Bounds))| {
        bounds.apply(&mut work);
        (key, work)
    };
    works.into_iter().map(bounded).collect()
}

/// The series that a line is made of.
pub(crate) const METRICS: [&str; 10] = [
    "wakeups",
    "work_s",
    "blocked_s",
    "cpu_s",
    "work_per_wakeup_s",
    "longest_work_s",
    "sendq",
    "recvq",
    "stalled",
    "loaded",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::sample;

    #[test]
    fn a_module_is_put_together_from_its_series() {
        let answer = sample::answer();
        let works = works(&answer.series, |module, _| Some(module.to_owned()));
        let kvs = &works["kvs"];
        assert_eq!((kvs.work, kvs.max, kvs.busiest), (Some(25.0), Some(20.0), Some(0)));
        assert_eq!((kvs.wakeups, kvs.sendq, kvs.recvq), (Some(310.5), Some(12.0), Some(0.0)));
        assert_eq!((kvs.p99_s, kvs.longest_s, kvs.stalled), (Some(0.002), Some(0.25), None));
        // Without a hook, CPU time names the rank, and nothing is said of work.
        let python = &works["sched-simple"];
        assert_eq!((python.work, python.max, python.busiest), (None, None, Some(0)));
        assert_eq!(works["content"].stalled, Some((3, 12.5)));
    }

    #[test]
    fn a_turn_that_is_under_way_is_the_longest_as_soon_as_it_is() {
        let mut answer = sample::answer();
        answer.series.retain(|series| series.name != "modules.content.longest_work_s");
        let longest = |answer: &crate::answer::Answer| {
            works(&answer.series, |module, _| Some(module.to_owned()))["content"].longest_s
        };
        assert_eq!(longest(&answer), Some(12.5));
        let all = sample::answer();
        assert_eq!(longest(&all), Some(17.0), "one that has ended was longer");
    }

    #[test]
    fn what_arrives_of_several_periods_at_once_was_not_done_in_one() {
        let mut answer = sample::answer();
        let loaded = |ranks: f64| crate::answer::Series {
            name: "modules.kvs.loaded".to_owned(),
            ..answer
                .series
                .iter()
                .find(|one| one.name == "broker.uptime_s")
                .cloned()
                .map(|mut one| {
                    if let Values::Gauge { sum, .. } = &mut one.values {
                        *sum = ranks;
                    }
                    one
                })
                .unwrap()
        };
        let (one, four) = (loaded(1.0), loaded(4.0));
        answer.series.push(one);
        let kvs = |answer: &crate::answer::Answer| {
            let kvs = works(&answer.series, |module, _| Some(module.to_owned())).remove("kvs").unwrap();
            (kvs.work, kvs.max)
        };
        assert_eq!(kvs(&answer), (Some(20.0), Some(20.0)), "25 % of a rank that measured 20 %");
        answer.series.pop();
        answer.series.push(four);
        assert_eq!(kvs(&answer), (Some(25.0), Some(20.0)));
    }

    #[test]
    fn the_order_of_series_does_not_matter() {
        let mut answer = sample::answer();
        let before = works(&answer.series, |module, _| Some(module.to_owned()));
        answer.series.reverse();
        assert_eq!(works(&answer.series, |module, _| Some(module.to_owned())), before);
    }
}
