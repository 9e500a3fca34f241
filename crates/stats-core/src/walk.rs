//! All series of a node as they are, in steps of bounded length: for those who write them in other formats.

use crate::amount::Amount;
use crate::members::Members;
use crate::node::Node;
use crate::query::Query;
use crate::series::{Key, Kind, SeriesId};
use crate::value::{Peak, Samples, States};

/// What one series amounts to, in the subtree of the node that is asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Total {
    /// A counter.
    Counter {
        /// Since the series is counted.
        total: Amount,
        /// It has gone down before, as a counter of statsd may.
        falls: bool,
        /// The rank that gained the most in the last period, and how much a second.
        peak: Option<(u32, Amount)>,
    },
    /// The states of all ranks that have one.
    Gauge(States),
    /// All samples since the series is counted.
    Timer(Samples),
    /// How many different members there were since the series is counted.
    Set {
        /// The number, estimated.
        estimate: f64,
    },
}

/// One series.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading<'a> {
    /// What it is.
    pub key: &'a Key,
    /// Since when it is counted, in seconds since 1970: it was zero then. A reload of a module does not change that; a
    /// clear does.
    pub created_s: u32,
    /// What it amounts to.
    pub total: Total,
}

/// How far a walk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Walked {
    /// There is more to see.
    Partly,
    /// All was seen.
    Whole,
    /// There was a clear, or a series ended: what was seen is void, and the walk begins anew.
    Anew,
}

/// A walk through the series of a node.
#[derive(Debug, Clone)]
pub struct Walk {
    query: Query,
    looked: usize,
    generation: u64,
    removals: u64,
}

impl Walk {
    /// Through those that `query` selects by name.
    pub fn new(node: &Node, query: Query) -> Self {
        Walk { query, looked: 0, generation: node.generation(), removals: node.catalog.removals() }
    }

    /// Looks at `count` more series of the catalog, and shows those that are wanted.
    pub fn go_on(&mut self, node: &Node, count: usize, mut show: impl FnMut(Reading<'_>)) -> Walked {
        if (node.generation(), node.catalog.removals()) != (self.generation, self.removals) {
            *self = Self::new(node, std::mem::take(&mut self.query));
            return Walked::Anew;
        }
        for (id, key) in node.catalog.part(self.looked, count) {
            if self.query.selects(key)
                && let Some(total) = node.amounts_to(id)
            {
                let created_s = node.catalog.created_s(id).unwrap_or(0);
                show(Reading { key, created_s, total });
            }
        }
        self.looked = self.looked.saturating_add(count);
        if self.looked >= node.catalog.len() { Walked::Whole } else { Walked::Partly }
    }
}

impl Node {
    /// `None`: a gauge that no rank reports.
    fn amounts_to(&self, id: SeriesId) -> Option<Total> {
        Some(match id.kind() {
            Kind::Counter => {
                let (mut total, mut peak) = (Amount::ZERO, Peak::default());
                for counted in [self.own.counter(id), self.below.counter(id)].into_iter().flatten() {
                    total = total.plus(counted.total);
                    peak.merge(counted.peak);
                }
                let peak = peak.rank().map(|rank| (rank, peak.rate()));
                Total::Counter { total, falls: self.falls(id), peak }
            }
            Kind::Gauge => Total::Gauge(self.state(id)?),
            Kind::Timer => {
                let mut timed = [self.own.timer(id), self.below.timer(id)].into_iter().flatten();
                let mut samples = timed.next().map(|first| first.total.clone()).unwrap_or_default();
                timed.for_each(|more| samples.merge(&more.total));
                Total::Timer(samples)
            }
            Kind::Set => {
                let mut members = Members::default();
                let sets = [self.own.set(id), self.below.set(id)];
                sets.into_iter().flatten().for_each(|more| members.merge(more));
                Total::Set { estimate: members.estimate() }
            }
        })
    }

    /// Whether a counter has gone down before.
    pub(crate) fn falls(&self, id: SeriesId) -> bool {
        let counted = [self.own.counter(id), self.below.counter(id)];
        counted.into_iter().flatten().any(|counted| counted.falls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeConfig;
    use crate::schedule::Now;
    use crate::series::Unit;
    use std::time::Duration;

    fn config(epoch: u64) -> NodeConfig {
        let period = Duration::from_secs(2);
        NodeConfig { rank: 0, size: 1, level: 0, max_level: 0, epoch, period, max_series: 1000 }
    }

    fn at(seconds: u64) -> Now {
        Now { mono_ns: seconds * 1_000_000_000, wall_ns: (1000 + seconds) * 1_000_000_000 }
    }

    fn counter(node: &mut Node, name: &str) -> SeriesId {
        node.declare(Key::new(name, &[], Kind::Counter, Unit::None).unwrap()).unwrap()
    }

    fn seen(node: &Node, count: usize) -> Vec<(String, u32, Total)> {
        let (mut walk, mut all) = (Walk::new(node, Query::default()), Vec::new());
        loop {
            let show = |one: Reading<'_>| {
                let total = match one.total {
                    Total::Counter { total, falls, .. } => Total::Counter { total, falls, peak: None },
                    other => other,
                };
                all.push((one.key.name().to_owned(), one.created_s, total));
            };
            if walk.go_on(node, count, show) == Walked::Whole {
                return all;
            }
        }
    }

    fn total(amount: i128, falls: bool) -> Total {
        Total::Counter { total: Amount::whole(amount), falls, peak: None }
    }

    #[test]
    fn a_series_is_counted_since_it_was_declared_and_after_a_clear_since_then() {
        let mut node = Node::new(config(1), at(0));
        let first = counter(&mut node, "app.a");
        node.add(first, Amount::whole(3));
        node.tick(at(10));
        counter(&mut node, "app.b");
        let expected = [("app.a".into(), 1000, total(3, false)), ("app.b".into(), 1010, total(0, false))];
        assert_eq!(seen(&node, 1), expected);
        assert_eq!(seen(&node, usize::MAX), expected);
        node.tick(at(20));
        node.handle_clear(7);
        let cleared = [("app.a".into(), 1020, total(0, false)), ("app.b".into(), 1020, total(0, false))];
        assert_eq!(seen(&node, 16), cleared);
    }

    #[test]
    fn times_and_falls_survive_a_reload() {
        let mut node = Node::new(config(1), at(0));
        let first = counter(&mut node, "app.a");
        node.add(first, Amount::whole(3));
        node.add(first, Amount::whole(-1));
        node.tick(at(50));
        let node = Node::restore(config(2), at(60), &node.save()).unwrap();
        assert_eq!(seen(&node, 16), [("app.a".into(), 1000, total(2, true))]);
        assert_eq!(node.answer(&Query::default(), at(60))["series"][0]["falls"], true);
    }

    #[test]
    fn a_walk_begins_anew_when_there_is_a_clear_between_its_steps() {
        let mut node = Node::new(config(1), at(0));
        let _ = ["app.a", "app.b"].map(|name| counter(&mut node, name));
        let mut walk = Walk::new(&node, Query::default());
        let mut names = Vec::new();
        let mut step =
            |node: &Node, walk: &mut Walk| walk.go_on(node, 1, |one| names.push(one.key.name().to_owned()));
        assert_eq!(step(&node, &mut walk), Walked::Partly);
        node.handle_clear(1);
        assert_eq!(step(&node, &mut walk), Walked::Anew);
        assert_eq!([step(&node, &mut walk), step(&node, &mut walk)], [Walked::Partly, Walked::Whole]);
        assert_eq!(names, ["app.a", "app.a", "app.b"]);
    }
}
