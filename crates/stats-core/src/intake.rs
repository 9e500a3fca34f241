//! Taking what handles push: each push once, names and room checked, refusals counted with whose they are.

use crate::amount::Amount;
use crate::node::Node;
use crate::push::{Metric, Push, Pushed, Refusal, name_of};
use crate::schedule::{Now, nanos};
use crate::series::{Key, Kind, NAME_MAX, PREFIX_TAG, SeriesId, TAGS_MAX, Unit};
use crate::wire::{DecodeError, Reader, Writer, list};
use indexmap::IndexMap;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Handles whose last push is remembered. Beyond it the one that has been quiet for longest is forgotten, and a repeat
/// of its last push would count again.
const HANDLES_MAX: usize = 4096;
/// Prefixes of refused names that are told apart; the rest is `other`.
const PREFIXES_MAX: usize = 32;
/// Refusals that an answer names.
const TOLD_MAX: usize = 8;
/// The version of what [`Intake::save`] writes.
const VERSION: u8 = 1;
const GAUGES_MAX: usize = 1_000_000;

/// What a node remembers of those who push to it.
#[derive(Debug)]
pub struct Intake {
    /// The number of the last push of each handle, the one heard of last at the end.
    handles: IndexMap<String, u64>,
    /// When each pushed gauge is gone unless it is pushed again, in monotonic nanoseconds.
    gauges: BTreeMap<SeriesId, u64>,
    ttl: Duration,
    max_tags: usize,
    own: Option<Own>,
    refused: HashMap<(String, &'static str), SeriesId>,
}

/// The series in which pushes themselves are counted.
#[derive(Debug, Clone, Copy)]
struct Own {
    pushes: SeriesId,
    repeated: SeriesId,
    dropped: SeriesId,
}

impl Intake {
    /// One that has heard of nobody. A gauge that is not pushed again is gone after `ttl`.
    pub fn new(ttl: Duration) -> Self {
        let (handles, gauges, refused) = (IndexMap::new(), BTreeMap::new(), HashMap::new());
        Intake { handles, gauges, ttl, max_tags: TAGS_MAX, own: None, refused }
    }

    /// Takes another time to live and another bound on tags, for what is pushed from now on.
    pub fn set_limits(&mut self, ttl: Duration, max_tags: usize) {
        (self.ttl, self.max_tags) = (ttl, max_tags);
    }

    /// A push, as `docs/push.md` has it: the answer, or why all of it is refused.
    pub fn take(&mut self, node: &mut Node, now: Now, payload: Value) -> Result<Value, Refusal> {
        let push = Push::parse(payload).inspect_err(|refusal| self.refuse(node, "_", refusal.reason))?;
        let own = self.own(node);
        count(node, own.map(|own| own.dropped), push.dropped);
        if let Some((id, seq)) = push.identity
            && !self.is_new(id, seq)
        {
            count(node, own.map(|own| own.repeated), 1);
            return Ok(self.receipt(node, 0, true, Vec::new()));
        }
        count(node, own.map(|own| own.pushes), 1);
        let (all, mut accepted, mut told) = (push.metrics.len(), 0, Vec::new());
        for metric in push.metrics {
            let (name, prefix) = name_of(&metric);
            match Metric::parse(metric).and_then(|metric| self.record(node, now, metric)) {
                Ok(()) => accepted += 1,
                Err(refusal) => {
                    self.refuse(node, &prefix, refusal.reason);
                    if told.len() < TOLD_MAX {
                        told.push((name, refusal));
                    }
                }
            }
        }
        match told.first() {
            Some((name, refusal)) if accepted == 0 => {
                let others = if all > 1 { format!(" (and {} more)", all - 1) } else { String::new() };
                let text = format!("{name}: {}{others}", refusal.text);
                Err(Refusal { reason: refusal.reason, text })
            }
            _ => Ok(self.receipt(node, accepted, false, told)),
        }
    }

    /// Records one metric.
    pub fn record(&mut self, node: &mut Node, now: Now, metric: Metric) -> Result<(), Refusal> {
        let tags = metric.key.tags().len();
        if tags > self.max_tags {
            let text = format!("{tags} tags: at most {} are allowed (max-tags)", self.max_tags);
            return Err(Refusal { reason: "tags", text });
        }
        let id = node.declare(metric.key)?;
        let gauge = match metric.value {
            Pushed::Count(amount) => {
                node.add(id, amount);
                None
            }
            Pushed::Samples(samples) => {
                node.observe(id, &samples);
                None
            }
            Pushed::Members(members) => {
                node.insert_all(id, &members);
                None
            }
            Pushed::Set(value) => Some(value),
            Pushed::Add(change) => Some(node.gauge(id).unwrap_or(Amount::ZERO).plus(change)),
        };
        if gauge.is_some() {
            node.set(id, gauge);
            let ttl = metric.ttl.unwrap_or(self.ttl);
            self.gauges.insert(id, now.mono_ns.saturating_add(nanos(ttl)));
        }
        Ok(())
    }

    /// Counts a refusal of something whose name begins with `prefix`.
    pub fn refuse(&mut self, node: &mut Node, prefix: &str, reason: &'static str) {
        let known = self.refused.keys().any(|(known, _)| known == prefix);
        let prefixes =
            || self.refused.keys().map(|(prefix, _)| prefix).collect::<std::collections::BTreeSet<_>>();
        let prefix = if known || prefixes().len() < PREFIXES_MAX { prefix } else { "other" };
        let id = match self.refused.get(&(prefix.to_owned(), reason)) {
            Some(&id) => Some(id),
            None => {
                let tags = [(PREFIX_TAG, prefix), ("reason", reason)];
                let key = Key::new("stats-agg.refused", &tags, Kind::Counter, Unit::None);
                let id = key.and_then(|key| node.declare(key)).ok();
                self.refused.extend(id.map(|id| ((prefix.to_owned(), reason), id)));
                id
            }
        };
        count(node, id, 1);
    }

    /// Whether this push has not been taken before; it is remembered as taken.
    fn is_new(&mut self, id: String, seq: u64) -> bool {
        if let Some(last) = self.handles.shift_remove(&id) {
            self.handles.insert(id, seq.max(last));
            return seq > last;
        }
        if self.handles.len() >= HANDLES_MAX {
            self.handles.shift_remove_index(0);
        }
        self.handles.insert(id, seq);
        true
    }

    fn receipt(&self, node: &Node, accepted: usize, repeat: bool, told: Vec<(String, Refusal)>) -> Value {
        let refused: Vec<Value> =
            told.into_iter().map(|(name, refusal)| json!({ "name": name, "reason": refusal.text })).collect();
        json!({
            "version": 1,
            "rank": node.config().rank,
            "accepted": accepted,
            "repeat": repeat,
            "refused": refused,
            "period": node.config().period.as_secs_f64(),
            "ttl": self.ttl.as_secs_f64(),
        })
    }

    fn own(&mut self, node: &mut Node) -> Option<Own> {
        if self.own.is_none() {
            let mut id = |name: &str| {
                let key = Key::new(&format!("stats-agg.{name}"), &[], Kind::Counter, Unit::None);
                key.and_then(|key| node.declare(key)).ok()
            };
            let ids = (id("pushes"), id("pushes_repeated"), id("dropped_by_handles"));
            if let (Some(pushes), Some(repeated), Some(dropped)) = ids {
                self.own = Some(Own { pushes, repeated, dropped });
            }
        }
        self.own
    }

    /// Lets time pass: gauges that nobody has pushed again are gone.
    pub fn expire(&mut self, node: &mut Node, now: Now) {
        let gone: Vec<SeriesId> =
            self.gauges.iter().filter(|(_, due)| **due <= now.mono_ns).map(|(&id, _)| id).collect();
        for id in gone {
            self.gauges.remove(&id);
            node.set(id, None);
        }
    }

    /// What must survive: the numbers of pushes, and pushed gauges with the time that they have left.
    pub fn save(&self, node: &Node, now: Now) -> Vec<u8> {
        let mut out = Writer::new();
        out.byte(VERSION);
        out.count(self.handles.len());
        for (id, &seq) in &self.handles {
            out.text(id);
            out.uint(seq);
        }
        let gauges: Vec<_> = self
            .gauges
            .iter()
            .filter_map(|(&id, &due)| Some((node.catalog.key(id)?, node.gauge(id)?, due)))
            .collect();
        out.count(gauges.len());
        for (key, value, due) in gauges {
            key.encode(&mut out);
            value.encode(&mut out);
            out.uint(due.saturating_sub(now.mono_ns));
        }
        out.into_bytes()
    }

    /// Goes on where another left off; `node` gets the gauges.
    pub fn restore(ttl: Duration, node: &mut Node, now: Now, saved: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(saved);
        match from.byte()? {
            VERSION => {}
            found => return Err(DecodeError::Version { found: found.into(), spoken: VERSION.into() }),
        }
        let handles =
            list(&mut from, HANDLES_MAX, |from| Ok((from.text(NAME_MAX)?.to_owned(), from.uint()?)))?;
        let gauges = list(&mut from, GAUGES_MAX, |from| {
            Ok((Key::decode(from)?, Amount::decode(from)?, from.uint()?))
        })?;
        from.end()?;
        let mut intake = Intake { handles: handles.into_iter().collect(), ..Intake::new(ttl) };
        for (key, value, left_ns) in gauges {
            // Refused for want of room: counted by the node.
            if let Ok(id) = node.declare(key) {
                node.set(id, Some(value));
                intake.gauges.insert(id, now.mono_ns.saturating_add(left_ns));
            }
        }
        Ok(intake)
    }
}

fn count(node: &mut Node, id: Option<SeriesId>, times: u64) {
    if let Some(id) = id {
        node.add(id, Amount::whole(times.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeConfig;
    use crate::query::Query;

    const TTL: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Now {
        Now { mono_ns: seconds * 1_000_000_000, wall_ns: seconds * 1_000_000_000 }
    }

    fn node(max_series: usize) -> Node {
        let period = Duration::from_secs(2);
        let config = NodeConfig { rank: 0, size: 1, level: 0, max_level: 0, epoch: 1, period, max_series };
        Node::new(config, at(0))
    }

    fn push(id: &str, seq: u64, metrics: Value) -> Value {
        json!({ "version": 1, "id": id, "seq": seq, "metrics": metrics })
    }

    fn counter(name: &str, value: i64) -> Value {
        json!({ "name": name, "type": "counter", "value": value })
    }

    fn find(node: &Node, name: &str) -> Value {
        let query = Query::parse(&json!({ "match": [name] })).unwrap();
        node.answer(&query, at(0))["series"].clone()
    }

    fn total(node: &Node, name: &str) -> i64 {
        find(node, name)[0]["total"].as_i64().unwrap()
    }

    #[test]
    fn a_repeat_counts_once_also_after_a_reload() {
        let (mut node, mut intake) = (node(100), Intake::new(TTL));
        let one = || push("h1", 7, json!([counter("a", 3)]));
        assert_eq!(intake.take(&mut node, at(0), one()).unwrap()["accepted"], 1);
        assert_eq!(intake.take(&mut node, at(0), one()).unwrap()["repeat"], true);
        let saved = intake.save(&node, at(0));
        let mut intake = Intake::restore(TTL, &mut node, at(0), &saved).unwrap();
        assert_eq!(intake.take(&mut node, at(0), one()).unwrap()["repeat"], true);
        // Another handle's, and the next one, are others.
        intake.take(&mut node, at(0), push("h2", 7, json!([counter("a", 10)]))).unwrap();
        intake.take(&mut node, at(0), push("h1", 9, json!([counter("a", 100)]))).unwrap();
        assert_eq!(
            intake.take(&mut node, at(0), push("h1", 8, json!([counter("a", 1)]))).unwrap()["repeat"],
            true
        );
        assert_eq!(total(&node, "a"), 113);
        assert_eq!((total(&node, "stats-agg.pushes"), total(&node, "stats-agg.pushes_repeated")), (3, 3));
    }

    #[test]
    fn the_memory_of_handles_is_bounded_and_forgets_who_is_quiet() {
        let (mut node, mut intake) = (node(100), Intake::new(TTL));
        for handle in 0..HANDLES_MAX as u64 + 10 {
            intake.take(&mut node, at(0), push(&format!("h{handle}"), 1, json!([]))).unwrap();
            intake.take(&mut node, at(0), push("talker", handle + 1, json!([]))).unwrap();
        }
        assert_eq!(intake.handles.len(), HANDLES_MAX);
        let again = |intake: &mut Intake, node: &mut Node, id: &str| {
            intake.take(node, at(0), push(id, 1, json!([]))).unwrap()["repeat"] == json!(true)
        };
        assert!(again(&mut intake, &mut node, "talker"));
        assert!(!again(&mut intake, &mut node, "h0"));
    }

    #[test]
    fn what_is_refused_is_counted_with_its_prefix_and_the_rest_counts() {
        let (mut node, mut intake) = (node(100), Intake::new(TTL));
        let mixed =
            json!([counter("modules.kvs.wakeups", 1), counter("app.good", 5), counter("app..bad", 1)]);
        let receipt = intake.take(&mut node, at(0), push("h", 1, mixed)).unwrap();
        assert_eq!(receipt["accepted"], 1);
        assert_eq!(receipt["refused"][0]["name"], "modules.kvs.wakeups");
        assert_eq!(total(&node, "app.good"), 5);
        let refused = find(&node, "stats-agg.refused");
        let tagged: Vec<(&str, &str, i64)> = refused
            .as_array()
            .unwrap()
            .iter()
            .map(|one| {
                let tag = |key: &str| one["tags"][key].as_str().unwrap();
                (tag("prefix"), tag("reason"), one["total"].as_i64().unwrap())
            })
            .collect();
        assert_eq!(tagged, [("app", "name", 1), ("modules", "reserved", 1)]);
        // Nothing but what is refused is an error.
        let all = push("h", 2, json!([counter("broker.x", 1), counter("jobs.x", 1)]));
        let error = intake.take(&mut node, at(0), all).unwrap_err();
        assert_eq!(
            error.text,
            "broker.x: \"broker.x\": names that begin with broker. are the service's own (and 1 more)"
        );
        assert!(intake.take(&mut node, at(0), json!({ "version": 9 })).is_err());
    }

    #[test]
    fn tags_are_as_many_as_the_setting_allows() {
        let (mut node, mut intake) = (node(100), Intake::new(TTL));
        intake.set_limits(TTL, 1);
        let tagged = |tags: Value| json!([{ "name": "a", "type": "counter", "value": 1, "tags": tags }]);
        assert!(intake.take(&mut node, at(0), push("h", 1, tagged(json!({ "a": "1" })))).is_ok());
        let error =
            intake.take(&mut node, at(0), push("h", 2, tagged(json!({ "a": "1", "b": "2" })))).unwrap_err();
        assert_eq!(
            (error.reason, error.text.as_str()),
            ("tags", "a: 2 tags: at most 1 are allowed (max-tags)")
        );
    }

    #[test]
    fn prefixes_of_refusals_are_bounded() {
        let (mut node, mut intake) = (node(1000), Intake::new(TTL));
        let many: Vec<Value> = (0..100).map(|n| counter(&format!("p{n}..x"), 1)).collect();
        intake.take(&mut node, at(0), push("h", 1, many.into())).unwrap_err();
        let refused = find(&node, "stats-agg.refused");
        assert_eq!(refused.as_array().unwrap().len(), PREFIXES_MAX + 1);
        let sum: i64 = refused.as_array().unwrap().iter().map(|one| one["total"].as_i64().unwrap()).sum();
        assert_eq!(sum, 100);
    }

    #[test]
    fn a_runaway_handle_does_not_push_out_the_service_s_series() {
        let (mut node, mut intake) = (node(100), Intake::new(TTL));
        let many: Vec<Value> = (0..500).map(|n| counter(&format!("job.f{n}"), 1)).collect();
        let receipt = intake.take(&mut node, at(0), push("h", 1, many.into())).unwrap();
        assert!(receipt["accepted"].as_u64().unwrap() < 75, "{receipt}");
        assert!(receipt["refused"][0]["reason"].as_str().unwrap().contains("the share of \"job\""));
        let own = |n| Key::new(&format!("modules.m{n}.wakeups"), &[], Kind::Counter, Unit::None).unwrap();
        assert!((0..20).all(|n| node.declare(own(n)).is_ok()));
    }

    #[test]
    fn a_gauge_is_set_changed_kept_over_a_reload_and_gone_after_its_time() {
        let (mut one, mut intake) = (node(100), Intake::new(TTL));
        let gauge = |key: &str, value: f64| json!([{ "name": "g", "type": "gauge", key: value }]);
        let value = |node: &Node| find(node, "g")[0]["sum"].as_f64();
        intake.take(&mut one, at(0), push("h", 1, gauge("add", 2.5))).unwrap();
        intake.take(&mut one, at(1), push("h", 2, gauge("add", -1.0))).unwrap();
        assert_eq!(value(&one), Some(1.5));
        intake.take(&mut one, at(2), push("h", 3, gauge("value", 7.0))).unwrap();
        let saved = intake.save(&one, at(10));
        let mut two = node(100);
        let mut intake = Intake::restore(TTL, &mut two, at(0), &saved).unwrap();
        assert_eq!(value(&two), Some(7.0));
        intake.take(&mut two, at(1), push("h", 4, gauge("add", 1.0))).unwrap();
        intake.expire(&mut two, at(60));
        assert_eq!(value(&two), Some(8.0));
        intake.expire(&mut two, at(61));
        assert_eq!(value(&two), None);
        let brief = json!([{ "name": "g", "type": "gauge", "value": 1, "ttl": 2 }]);
        intake.take(&mut two, at(70), push("h", 5, brief)).unwrap();
        intake.expire(&mut two, at(72));
        assert_eq!(value(&two), None);
    }

    #[test]
    fn what_was_saved_by_another_version_or_is_damaged_is_refused() {
        let mut node = node(100);
        for bytes in [&[][..], &[9], &[VERSION, 5], &[VERSION, 0, 0, 0]] {
            assert!(Intake::restore(TTL, &mut node, at(0), bytes).is_err());
        }
    }
}
