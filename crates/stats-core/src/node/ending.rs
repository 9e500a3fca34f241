//! Series of jobs that are over end: their places go to others, what they amounted to stays in a sum.
//!
//! A rank withdraws an ended series from its receiver before it forgets it, and a receiver keeps a series as long as a
//! sender may name it: so series end leaves first, and nothing that is on its way can meet another series in the place of
//! the one that it was meant for.

use crate::node::Node;
use crate::schedule::{Now, nanos};
use crate::series::SeriesId;
use std::collections::HashSet;
use std::time::Duration;

const S: u64 = 1_000_000_000;
/// At the end of a period one of so many parts of the series that may end is looked at, or so many series if those are
/// more: ending them takes a few milliseconds at most.
const PARTS: usize = 8;
const LOOKED_MIN: usize = 2000;

/// When series end.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// How long they may be idle; zero: for ever.
    ttl_ns: u64,
    /// The last one that was looked at.
    looked: Option<SeriesId>,
}

/// Seconds are precise enough, and take half of the memory.
fn seconds(ns: u64) -> u32 {
    u32::try_from(ns / S).unwrap_or(u32::MAX)
}

impl Node {
    /// How long nothing may be sent to a series with the tag `jobid` until it ends: its total then goes to the series of
    /// that name with `jobid` `ended`, which is one for all jobs, and a gauge goes. If something is sent to it later, it
    /// begins at zero. Zero, as it is at first: they do not end.
    pub fn set_ttl(&mut self, ttl: Duration) {
        self.ending.ttl_ns = nanos(ttl);
    }

    /// Series begin a period.
    pub(super) fn tell_time(&mut self, now: Now) {
        let now_s = seconds(now.mono_ns);
        self.catalog.set_now(now_s, seconds(now.wall_ns));
        self.own.set_since(now_s);
        self.below.set_since(now_s);
    }

    /// Ends what has been idle for its time to live. A message that is on its way names series by number: while there is
    /// one, none ends.
    pub(super) fn end_idle(&mut self, now: Now, span_ns: u64) {
        let Ending { ttl_ns, looked } = self.ending;
        if ttl_ns == 0 || self.upstream.in_flight.is_some() {
            return;
        }
        // What was sent in a period was sent at its end, perhaps.
        let Some(last) = now.mono_ns.checked_sub(ttl_ns.saturating_add(span_ns)) else { return };
        let last_s = seconds(last);
        let is_idle = |&id: &SeriesId| {
            let declared_s = self.catalog.declared_s(id);
            declared_s.is_some_and(|declared_s| declared_s < last_s)
                && self.own.active_s(id).max(self.below.active_s(id)) < last_s
                && !self.gauges.contains_key(&id)
                && !self.upstream.told(id)
                && !self.unsealed.has(id)
                && !self.open.flows.has(id)
        };
        let count = (self.catalog.passing_len() / PARTS).max(LOOKED_MIN);
        let some: Vec<SeriesId> = self.catalog.passing(looked).take(count).collect();
        let idle: Vec<SeriesId> = some.iter().copied().filter(is_idle).collect();
        self.ending.looked = some.last().copied().filter(|_| some.len() == count);
        if idle.is_empty() {
            return;
        }
        let custody: HashSet<SeriesId> =
            self.upstream.custody().flat_map(|batch| batch.flows.ids()).collect();
        idle.into_iter().filter(|id| !custody.contains(id)).for_each(|id| self.end_series(id));
    }

    fn end_series(&mut self, id: SeriesId) {
        let Some(key) = self.catalog.remove(id) else { return };
        let sum = key.sum_of_ended().and_then(|key| self.catalog.succeed(key));
        self.own.fold(id, sum);
        self.below.fold(id, sum);
        self.upstream.withdraw(id);
        self.events.ended += 1;
    }

    /// Somebody keeps the identifier of a series, which therefore does not end.
    pub fn retain(&mut self, id: SeriesId) {
        self.catalog.retain(id);
    }

    /// As often as [`Node::retain`]: the identifier is kept no longer.
    pub fn release(&mut self, id: SeriesId) {
        self.catalog.release(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amount::Amount;
    use crate::node::NodeConfig;
    use crate::query::Query;
    use crate::series::{ENDED, JOB_TAG, Key, Kind, Unit};
    use crate::steps::Steps;
    use crate::value::Samples;
    use crate::{Intake, Pusher, Whose};
    use serde_json::{Value, json};

    const TTL: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Now {
        Now { mono_ns: seconds * S, wall_ns: seconds * S }
    }

    fn node() -> Node {
        let period = Duration::from_secs(2);
        let config =
            NodeConfig { rank: 0, size: 1, level: 0, max_level: 0, epoch: 1, period, max_series: 100 };
        let mut node = Node::new(config, at(0));
        node.set_ttl(TTL);
        node
    }

    /// Periods from one second to another.
    fn pass(node: &mut Node, from: u64, to: u64) {
        (from..=to).for_each(|second| node.tick(at(second)));
    }

    fn of_job(name: &str, job: &str, kind: Kind) -> Key {
        Key::new(name, &[(JOB_TAG, job), ("host", "h7")], kind, Unit::None).unwrap()
    }

    fn found(node: &Node, name: &str) -> Value {
        node.answer(&Query::parse(&json!({ "match": [name] })).unwrap(), at(0))["series"].clone()
    }

    #[test]
    fn an_idle_series_of_a_job_ends_and_its_total_stays_in_the_sum() {
        let mut node = node();
        for job in ["1", "2"] {
            let id = node.declare(of_job("app.x", job, Kind::Counter)).unwrap();
            node.add(id, Amount::whole(5));
            let id = node.declare(of_job("app.t", job, Kind::Timer)).unwrap();
            let mut samples = Samples::default();
            samples.add(7, 3);
            node.observe(id, &samples);
            let id = node.declare(of_job("app.s", job, Kind::Set)).unwrap();
            node.insert(id, job);
        }
        let lasting = node.declare(Key::new("app.y", &[], Kind::Counter, Unit::None).unwrap()).unwrap();
        node.add(lasting, Amount::whole(1));
        pass(&mut node, 1, 9);
        assert_eq!(found(&node, "app.x").as_array().unwrap().len(), 2);
        let second = node.find(&of_job("app.x", "2", Kind::Counter)).unwrap();
        node.add(second, Amount::whole(1));
        pass(&mut node, 10, 19);
        let x = found(&node, "app.x");
        assert_eq!((&x[0]["tags"][JOB_TAG], &x[0]["total"]), (&json!("2"), &json!(6)));
        assert_eq!((&x[1]["tags"], &x[1]["total"]), (&json!({ JOB_TAG: ENDED }), &json!(5)));
        pass(&mut node, 20, 40);
        let x = found(&node, "app.x");
        assert_eq!(
            (x.as_array().unwrap().len(), &x[0]["total"], &x[0]["rate"]),
            (1, &json!(11), &json!(0.0))
        );
        assert_eq!(
            (&found(&node, "app.t")[0]["count"], &found(&node, "app.s")[0]["estimate"]),
            (&json!(6), &json!(2.0))
        );
        assert_eq!((&found(&node, "app.y")[0]["total"], node.events().ended), (&json!(1), 6));
        // What comes again begins at zero; the tree, which has one number for a name, never falls.
        let again = node.declare(of_job("app.x", "1", Kind::Counter)).unwrap();
        node.add(again, Amount::whole(100));
        assert_eq!(found(&node, "app.x")[0]["total"], 100);
        assert_eq!(node.tree(at(40))["app"]["x"], 111);
    }

    #[test]
    fn a_rank_has_a_sum_of_its_own_only_of_what_it_had_itself() {
        let mut node = node();
        let own = node.declare(of_job("app.own", "1", Kind::Counter)).unwrap();
        node.add(own, Amount::whole(3));
        // As a rank below names it.
        node.catalog.declare(of_job("app.other", "1", Kind::Counter)).unwrap();
        pass(&mut node, 1, 20);
        let sum =
            |name: &str| node.find(&Key::new(name, &[(JOB_TAG, ENDED)], Kind::Counter, Unit::None).unwrap());
        let of_rank =
            |id| node.series(id, None, at(20), Whose::Own).map(|series| series.key.name().to_owned());
        assert_eq!(sum("app.own").and_then(of_rank), Some("app.own".to_owned()));
        assert_eq!((sum("app.other").is_some(), sum("app.other").and_then(of_rank)), (true, None));
    }

    #[test]
    fn a_gauge_of_a_job_ends_when_nobody_has_it_and_nothing_ends_that_is_held() {
        let mut node = node();
        let held = node.declare(of_job("app.held", "1", Kind::Counter)).unwrap();
        node.retain(held);
        let mut intake = Intake::new(Duration::from_secs(30));
        let gauge = json!({ "name": "app.g", "type": "gauge", "value": 3, "tags": { JOB_TAG: "1" } });
        intake.take(&mut node, at(0), Pusher::Owner, json!({ "version": 1, "metrics": [gauge] })).unwrap();
        pass(&mut node, 1, 25);
        assert_eq!(found(&node, "app.g")[0]["sum"], 3);
        intake.expire(&mut node, at(30));
        pass(&mut node, 30, 35);
        let key = Key::new("app.g", &[(JOB_TAG, "1")], Kind::Gauge, Unit::None).unwrap();
        assert_eq!((node.find(&key), node.events().ended), (None, 1));
        assert_eq!(node.find(&of_job("app.held", "1", Kind::Counter)), Some(held));
        node.release(held);
        pass(&mut node, 36, 40);
        assert_eq!(node.find(&of_job("app.held", "1", Kind::Counter)), None);
    }

    #[test]
    fn many_series_end_in_parts_of_bounded_length() {
        let period = Duration::from_secs(2);
        let max_series = 4 * LOOKED_MIN;
        let config = NodeConfig { rank: 0, size: 1, level: 0, max_level: 0, epoch: 1, period, max_series };
        let mut node = Node::new(config, at(0));
        node.set_ttl(TTL);
        for job in 0..2 * LOOKED_MIN {
            node.declare(
                Key::new("app.x", &[(JOB_TAG, &job.to_string())], Kind::Counter, Unit::None).unwrap(),
            )
            .unwrap();
        }
        let mut before = 0;
        for second in 1..40 {
            node.tick(at(second));
            let ended = node.events().ended;
            assert!(ended - before <= LOOKED_MIN as u64);
            before = ended;
        }
        assert_eq!((before, node.catalog.len()), (2 * LOOKED_MIN as u64, 1));
    }

    #[test]
    fn an_answer_in_the_making_begins_anew_when_a_series_ends() {
        let mut node = node();
        node.declare(of_job("app.a", "1", Kind::Counter)).unwrap();
        for name in ["app.b", "app.c", "app.d"] {
            node.declare(Key::new(name, &[], Kind::Counter, Unit::None).unwrap()).unwrap();
        }
        let mut steps = Steps::list(&node, Query::default(), Whose::Subtree);
        assert!(!steps.go_on(&node, at(0), 2));
        // The last one takes the place of the first, which has been looked at.
        pass(&mut node, 1, 20);
        while !steps.go_on(&node, at(20), 2) {}
        let series: Value = serde_json::from_str(&format!("[{}]", steps.into_text())).unwrap();
        let names: Vec<&str> =
            series.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["app.a", "app.b", "app.c", "app.d"]);
    }
}
