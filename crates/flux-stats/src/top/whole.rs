//! The overview: the instance in some lines, and every module.

use super::past::Past;
use super::work::{Work, of_module, works};
use crate::answer::{Answer, Ranks, Series, Values};
use std::collections::BTreeMap;

/// How the instance is, at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Whole {
    /// Seconds since 1970, by the clock of rank 0.
    pub(crate) time: f64,
    pub(crate) period: f64,
    pub(crate) size: u32,
    pub(crate) hostlist: String,
    pub(crate) ranks: Ranks,
    pub(crate) partial: bool,
    /// How long rank 0 has been there, in seconds.
    pub(crate) up_s: Option<f64>,
    pub(crate) jobs: Jobs,
    pub(crate) nodes_up: Option<f64>,
    pub(crate) nodes_free: Option<f64>,
    pub(crate) modules: BTreeMap<String, Work>,
    /// Messages that modules have received, per second in the last period, where Flux counts them.
    pub(crate) messages: Option<f64>,
}

/// How many jobs are in each state; `None`: not known.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Jobs {
    pub(crate) depend: Option<f64>,
    pub(crate) priority: Option<f64>,
    pub(crate) sched: Option<f64>,
    pub(crate) run: Option<f64>,
    pub(crate) cleanup: Option<f64>,
    pub(crate) inactive: Option<f64>,
    pub(crate) failed: Option<f64>,
}

impl Whole {
    pub(crate) fn new(answer: &Answer) -> Self {
        let gauge = |name: &str| match answer.series(name).map(|series| &series.values) {
            Some(Values::Gauge { sum, .. }) => Some(*sum),
            _ => None,
        };
        let greatest = |name: &str| match answer.series(name).map(|series| &series.values) {
            Some(Values::Gauge { max, .. }) => Some(max.value),
            _ => None,
        };
        let jobs = Jobs {
            depend: gauge("jobs.depend"),
            priority: gauge("jobs.priority"),
            sched: gauge("jobs.sched"),
            run: gauge("jobs.run"),
            cleanup: gauge("jobs.cleanup"),
            inactive: gauge("jobs.inactive"),
            failed: gauge("jobs.failed"),
        };
        let messages = answer.series.iter().filter(|series| is_received(series)).filter_map(rate);
        Whole {
            time: answer.time,
            period: answer.period,
            size: answer.instance.size,
            hostlist: answer.instance.hostlist.clone().unwrap_or_default(),
            ranks: answer.ranks.clone(),
            partial: answer.is_partial(),
            up_s: greatest("broker.uptime_s"),
            jobs,
            nodes_up: gauge("resources.nodes.up"),
            nodes_free: gauge("resources.nodes.free"),
            modules: works(&answer.series, |module, _| Some(module.to_owned())),
            messages: messages.reduce(|sum, rate| sum + rate),
        }
    }

    /// The sum over all modules of what is known of them.
    pub(crate) fn sum(&self, of: impl Fn(&Work) -> Option<f64>) -> Option<f64> {
        self.modules.values().filter_map(of).reduce(|sum, one| sum + one)
    }

    /// Modules that do not come back to their reactors, the longest first: name, rank, seconds.
    pub(crate) fn stalled(&self) -> Vec<(&str, u32, f64)> {
        let modules = self.modules.iter();
        let mut stalled: Vec<(&str, u32, f64)> = modules
            .filter_map(|(name, work)| work.stalled.map(|(rank, seconds)| (name.as_str(), rank, seconds)))
            .collect();
        stalled.sort_by(|a, b| b.2.total_cmp(&a.2));
        stalled
    }
}

/// Of all modules together, what the instance remembers of messages.
pub(crate) fn messages_past(answer: &Answer) -> Past {
    let mut sum = Past::default();
    for series in answer.series.iter().filter(|series| is_received(series)) {
        series.since.iter().for_each(|since| sum.add(&Past::new(since, answer.time)));
    }
    sum
}

fn is_received(series: &Series) -> bool {
    of_module(&series.name).is_some_and(|(_, metric)| metric.starts_with("rx."))
}

fn rate(series: &Series) -> Option<f64> {
    match series.values {
        Values::Counter { rate, .. } => Some(rate),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::sample;

    #[test]
    fn the_instance_is_put_together_from_its_series() {
        let whole = Whole::new(&sample::answer());
        assert_eq!((whole.size, whole.up_s, whole.partial), (8, Some(3_723.0), true));
        assert_eq!((whole.jobs.run, whole.jobs.sched), (Some(12.0), Some(3.0)));
        assert_eq!((whole.nodes_up, whole.nodes_free, whole.messages), (Some(7.0), Some(3.0), Some(320.0)));
        assert_eq!(whole.stalled(), [("content", 3, 12.5)]);
        assert_eq!(whole.sum(|work| work.cpu).map(f64::round), Some(92.0));
    }
}
