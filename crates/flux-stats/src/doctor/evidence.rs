//! What is known of an instance, as rules want it: from answers alone, so that recorded ones can be looked at as well.

use crate::answer::{Answer, Series, Values};
use crate::hosts::Hosts;
use std::collections::{BTreeMap, BTreeSet};

/// Series that rules look at.
pub(crate) const PATTERNS: [&str; 11] = [
    "modules.*.{work_s,wakeups,blocked_s,blocked_calls,longest_blocked_s,cpu_s,runq_wait_s,stalled,loaded}",
    "modules.*.{idle_s,sendq,recvq,rss_bytes,rx.*,tx.*}",
    "modules.job-manager.{active_jobs,inactive_jobs,alloc_queued,alloc_pending}",
    "broker.{rss_anon_bytes,open_fds,max_fds}",
    "broker.{rundir,statedir}_{free,size}_bytes",
    "overlay.{ranks_offline,ranks_torpid,heartbeat_age_s,sendq,recvq,events}",
    "jobs.{run,total,purged}",
    "resources.nodes.{total,free,down}",
    "stats-agg.{overflow,gauges_overflow,refused}",
    "stats-agg.statsd.{packets,dropped}",
    "stats-agg.export.*.{failing_s,buffered_bytes}",
];

/// Answers, and where to find what in them.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    whole: Answer,
    /// What ranks measured themselves, of some series and some ranks.
    by_rank: Answer,
    hosts: Hosts,
    /// Places of series without tags.
    named: BTreeMap<String, usize>,
    of_ranks: BTreeMap<(u32, String), usize>,
}

/// What a series was lately.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Lately {
    /// How long that is.
    pub(crate) seconds: f64,
    pub(crate) mean: f64,
    pub(crate) least: f64,
    pub(crate) last: f64,
}

/// The last `seconds` of a course in slots; `None`: not all of it is known.
fn lately(points: &[Option<f64>], total_s: f64, seconds: f64) -> Option<Lately> {
    let slot_s = total_s / points.len() as f64;
    // Half a slot less is near enough.
    let wanted = ((seconds / slot_s).round().max(1.0)) as usize;
    let points = points.get(points.len().checked_sub(wanted)?..)?;
    let known: Option<Vec<f64>> = points.iter().copied().collect();
    let known = known?;
    let mean = known.iter().sum::<f64>() / known.len() as f64;
    let least = known.iter().copied().fold(f64::INFINITY, f64::min);
    Some(Lately { seconds: wanted as f64 * slot_s, mean, least, last: *known.last()? })
}

/// The course of a gauge, as far as it is known without a gap until now.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Course {
    pub(crate) points: Vec<f64>,
    pub(crate) seconds: f64,
}

impl Course {
    fn of(points: &[Option<f64>], total_s: f64) -> Option<Course> {
        let known: Vec<f64> = points.iter().rev().map_while(|point| *point).collect();
        let seconds = total_s / points.len() as f64 * known.len() as f64;
        (!known.is_empty()).then(|| Course { points: known.into_iter().rev().collect(), seconds })
    }

    /// For how long it has been what it is now; `None`: always, as far as is known.
    pub(crate) fn unchanged(&self) -> Option<f64> {
        let last = *self.points.last()?;
        let before = self.points.iter().rposition(|point| *point != last)?;
        Some(self.seconds / self.points.len() as f64 * (self.points.len() - 1 - before) as f64)
    }

    /// The last `seconds` of it, if it is as long.
    pub(crate) fn last(&self, seconds: f64) -> Option<Course> {
        let slot_s = self.seconds / self.points.len() as f64;
        let wanted = (seconds / slot_s).round().max(1.0) as usize;
        let points = self.points.get(self.points.len().checked_sub(wanted)?..)?.to_vec();
        Some(Course { seconds: slot_s * wanted as f64, points })
    }

    /// The least in each of `parts` of it; `None`: it has fewer points.
    pub(crate) fn least(&self, parts: usize) -> Option<Vec<f64>> {
        let each = self.points.len() / parts;
        let from = self.points.len() - each * parts;
        let part = |points: &[f64]| points.iter().copied().fold(f64::INFINITY, f64::min);
        (each > 0).then(|| self.points[from..].chunks(each).map(part).collect())
    }

    /// By how much it has grown, if the least of every part of it is greater than that of the part before.
    pub(crate) fn steady_growth(&self, parts: usize) -> Option<f64> {
        let least = self.least(parts)?;
        let rises = least.windows(2).all(|pair| pair[1] > pair[0]);
        rises.then(|| self.points[self.points.len() - 1] - self.points[0])
    }
}

impl Evidence {
    /// From an answer for the whole instance (with `since`), and perhaps one by rank.
    pub(crate) fn new(whole: Answer, by_rank: Option<Answer>) -> Self {
        let hosts = Hosts::of(whole.instance.hostlist.as_deref());
        let plain = |(_, series): &(usize, &Series)| series.tags.is_empty();
        let named = whole.series.iter().enumerate().filter(plain);
        let named = named.map(|(place, series)| (series.name.clone(), place)).collect();
        let by_rank = by_rank.unwrap_or_default();
        let of_ranks = by_rank.series.iter().enumerate().filter(plain);
        let of_ranks =
            of_ranks.filter_map(|(place, series)| Some(((series.rank?, series.name.clone()), place)));
        let of_ranks = of_ranks.collect();
        Evidence { whole, by_rank, hosts, named, of_ranks }
    }

    /// The same, with what ranks measured themselves.
    pub(crate) fn with(self, by_rank: Answer) -> Self {
        Evidence::new(self.whole, Some(by_rank))
    }

    pub(crate) fn whole(&self) -> &Answer {
        &self.whole
    }

    pub(crate) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Ranks that were asked in vain, an idset.
    pub(crate) fn unanswered(&self) -> &str {
        &self.by_rank.unanswered
    }

    /// How many series were looked at.
    pub(crate) fn len(&self) -> usize {
        self.whole.series.len() + self.by_rank.series.len()
    }

    /// How far back what is known of the whole instance reaches, in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        let since = self.whole.series.iter().filter_map(|series| series.since.as_ref());
        since.map(|since| since.seconds).fold(0.0, f64::max)
    }

    /// Of the whole instance.
    pub(crate) fn series(&self, name: &str) -> Option<&Series> {
        self.named.get(name).map(|&place| &self.whole.series[place])
    }

    /// As a rank measured it.
    pub(crate) fn of_rank(&self, rank: u32, name: &str) -> Option<&Series> {
        self.of_ranks.get(&(rank, name.to_owned())).map(|&place| &self.by_rank.series[place])
    }

    /// Ranks that were asked for that series.
    pub(crate) fn ranks_asked(&self, name: &str) -> Vec<u32> {
        self.of_ranks.keys().filter(|(_, of)| of == name).map(|(rank, _)| *rank).collect()
    }

    /// Modules of whom anything is known.
    pub(crate) fn modules(&self) -> BTreeSet<&str> {
        let names = self.named.keys().filter_map(|name| name.strip_prefix("modules."));
        names.filter_map(|rest| rest.split('.').next()).collect()
    }

    /// Exporters that say how they do.
    pub(crate) fn exporters<'e>(&'e self) -> Vec<&'e str> {
        let name_of = |name: &'e String| name.strip_prefix("stats-agg.export.")?.strip_suffix(".failing_s");
        self.named.keys().filter_map(name_of).collect()
    }

    /// A module on each rank of which more than sums is known: those that were asked, or its only one. Else what can be
    /// said of the one that was the busiest in the last period.
    pub(crate) fn on_ranks<'e>(&'e self, module: &'e str) -> Vec<Module<'e>> {
        let asked: BTreeSet<u32> = ["work_s", "cpu_s", "wakeups"]
            .iter()
            .flat_map(|of| self.ranks_asked(&format!("modules.{module}.{of}")))
            .collect();
        let whose = |rank, whose| Module { evidence: self, name: module, rank, whose };
        if !asked.is_empty() {
            return asked.into_iter().map(|rank| whose(rank, Whose::Own)).collect();
        }
        if let Some(rank) = self.only_rank(module) {
            return vec![whose(rank, Whose::Only)];
        }
        let busiest = ["work_s", "cpu_s", "blocked_s", "wakeups"].iter().find_map(|of| {
            self.series(&format!("modules.{module}.{of}")).and_then(|series| series.busiest())
        });
        busiest.map(|(rank, _)| whose(rank, Whose::Busiest)).into_iter().collect()
    }

    /// The rank that a module is on, if it is but one.
    pub(crate) fn only_rank(&self, module: &str) -> Option<u32> {
        match self.series(&format!("modules.{module}.loaded")).map(|series| &series.values) {
            Some(Values::Gauge { count: 1, max, .. }) => Some(max.rank),
            _ if self.whole.instance.size == 1 => Some(0),
            _ => None,
        }
    }

    /// What a gauge of the whole instance was until now: the sum over ranks.
    pub(crate) fn sums(&self, name: &str) -> Option<Course> {
        let since = self.series(name)?.since.as_ref()?;
        Course::of(&since.points, since.seconds)
    }

    /// The greatest of a single rank.
    pub(crate) fn maxima(&self, name: &str) -> Option<Course> {
        let since = self.series(name)?.since.as_ref()?;
        Course::of(&since.max, since.seconds)
    }
}

impl Series {
    /// Of a counter, the rank with the highest rate in the last period; of a gauge, with the greatest value.
    pub(crate) fn busiest(&self) -> Option<(u32, f64)> {
        match &self.values {
            Values::Counter { max, .. } => *max,
            Values::Gauge { max, .. } => Some((max.rank, max.value)),
            _ => None,
        }
    }

    /// What a gauge is now: the sum over ranks.
    pub(crate) fn sum(&self) -> Option<f64> {
        match &self.values {
            Values::Gauge { sum, .. } => Some(*sum),
            _ => None,
        }
    }

    /// The last `seconds` of what it gained or was.
    pub(crate) fn lately(&self, seconds: f64) -> Option<Lately> {
        let since = self.since.as_ref().filter(|since| !since.points.is_empty())?;
        lately(&since.points, since.seconds, seconds)
    }

    /// What a gauge was until now.
    pub(crate) fn course(&self) -> Option<Course> {
        let since = self.since.as_ref()?;
        Course::of(&since.points, since.seconds)
    }
}

/// Whose numbers a module's are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// A rank's own.
    Own,
    /// The instance's, which are the rank's: the module is nowhere else.
    Only,
    /// The instance's: of the rank no more is known than that it was the busiest in the last period, and how busy.
    Busiest,
}

/// A module on a rank.
#[derive(Clone, Copy)]
pub(crate) struct Module<'e> {
    evidence: &'e Evidence,
    pub(crate) name: &'e str,
    pub(crate) rank: u32,
    whose: Whose,
}

impl Module<'_> {
    pub(crate) fn series(&self, of: &str) -> Option<&Series> {
        let name = format!("modules.{}.{of}", self.name);
        match self.whose {
            Whose::Own => self.evidence.of_rank(self.rank, &name),
            Whose::Only | Whose::Busiest => self.evidence.series(&name),
        }
    }

    /// The rate of a counter over the last `seconds`. Where only the instance's is known, no more than this rank had in
    /// the last period.
    pub(crate) fn rate(&self, of: &str, seconds: f64) -> Option<f64> {
        let series = self.series(of)?;
        let rate = series.lately(seconds)?.mean;
        match self.whose {
            Whose::Busiest => Some(rate.min(series.busiest()?.1)),
            Whose::Own | Whose::Only => Some(rate),
        }
    }

    /// A gauge, where it is known of this rank alone.
    pub(crate) fn gauge(&self, of: &str) -> Option<f64> {
        (self.whose != Whose::Busiest).then(|| self.series(of)?.sum()).flatten()
    }

    /// For how long it has not come back to its reactor, if it has not, and no other rank has been away for longer.
    pub(crate) fn stalled(&self) -> Option<f64> {
        let series = self.evidence.series(&format!("modules.{}.stalled", self.name))?;
        series.busiest().filter(|(rank, _)| *rank == self.rank).map(|(_, age)| age)
    }

    /// Messages a second of a direction (`rx`, `tx`), all types; `None`: nobody counts them.
    pub(crate) fn messages(&self, direction: &str, seconds: f64) -> Option<f64> {
        let types = ["request", "response", "event", "control"];
        let rates = types.iter().filter_map(|of| self.rate(&format!("{direction}.{of}"), seconds));
        rates.reduce(|sum, rate| sum + rate)
    }

    /// Wakeups a second of all others on this rank; `None`: not known.
    pub(crate) fn wakeups_of_others(&self, seconds: f64) -> Option<f64> {
        let evidence = self.evidence;
        let of = |name: &str| match self.whose {
            Whose::Own => evidence.of_rank(self.rank, name),
            Whose::Only | Whose::Busiest if evidence.whole.instance.size == 1 => evidence.series(name),
            _ => None,
        };
        let others = evidence.modules().into_iter().filter(|name| *name != self.name);
        let rates =
            others.filter_map(|name| Some(of(&format!("modules.{name}.wakeups"))?.lately(seconds)?.mean));
        rates.reduce(|sum, rate| sum + rate)
    }
}
