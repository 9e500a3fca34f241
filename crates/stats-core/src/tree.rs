//! The merged tree, as `flux module stats` shows it: nested by the parts of each name, plain numbers.

use crate::amount::Amount;
use crate::answer::{Number, timer_map};
use crate::members::Members;
use crate::node::Node;
use crate::query::Query;
use crate::schedule::Now;
use crate::series::{Key, Kind, SeriesId, Unit};
use crate::value::{Samples, States};
use serde_json::{Map, Value, json};

/// The key of a value whose name is also the beginning of longer names.
const OWN_VALUE: &str = "value";

/// What is not a number: the ranks that the tree covers, as in an answer.
const RANKS: &str = "stats-agg.ranks";

/// What the series of one name amount to.
#[derive(Default)]
struct Named {
    counter: Option<(Amount, Unit)>,
    gauge: Option<(States, Unit)>,
    timer: Option<(Samples, Unit)>,
    set: Option<Members>,
}

impl Node {
    /// The merged tree: a counter is its total, a set its estimate, a gauge and a timer are objects of numbers. Series
    /// that differ in their tags only are merged; a name that is also the beginning of longer names has its own number
    /// under `value`; whom it covers is under `stats-agg.ranks`. A service that has more to do makes it in [`Steps`](crate::Steps).
    pub fn tree(&self, now: Now) -> Value {
        let mut root = Map::new();
        let selected = self.select(&Query::default());
        let mut rest = selected.as_slice();
        while !rest.is_empty() {
            rest = self.add_name(&mut root, rest);
        }
        self.add_ranks(&mut root, now);
        Value::Object(root)
    }

    /// Says whom the tree covers, where no other series can be.
    pub(crate) fn add_ranks(&self, root: &mut Map<String, Value>, now: Now) {
        insert(root, RANKS, self.ranks(now));
    }

    /// Adds the first of `series`, and those of the same name, which follow it; the rest.
    pub(crate) fn add_name<'a>(
        &self,
        root: &mut Map<String, Value>,
        series: &'a [SeriesId],
    ) -> &'a [SeriesId] {
        let name_of = |&id: &SeriesId| self.catalog.key(id).map(Key::name);
        let Some(name) = series.first().and_then(name_of) else { return series.get(1..).unwrap_or_default() };
        let same = series.iter().take_while(|id| name_of(id) == Some(name)).count();
        let (series, rest) = series.split_at(same);
        let mut named = Named::default();
        for &id in series {
            let Some(key) = self.catalog.key(id) else { continue };
            named.add(self, id, key);
        }
        if let Some((states, unit)) = named.gauge {
            insert(root, name, gauge(&states, unit));
        }
        if let Some((samples, unit)) = named.timer {
            insert(root, name, Value::Object(timer_map(&samples, unit)));
        }
        if let Some(members) = named.set {
            insert(root, name, members.estimate().into());
        }
        if let Some((total, unit)) = named.counter {
            insert(root, name, json!(Number::new(total, unit)));
        }
        rest
    }
}

impl Named {
    fn add(&mut self, node: &Node, id: SeriesId, key: &Key) {
        let unit = key.unit();
        match key.kind() {
            Kind::Counter => {
                let sum = self.counter.get_or_insert((Amount::ZERO, unit));
                let stores = [node.own.counter(id), node.below.counter(id)];
                stores.into_iter().flatten().for_each(|counted| sum.0 = sum.0.plus(counted.total));
            }
            Kind::Timer => {
                let sum = self.timer.get_or_insert_with(|| (Samples::default(), unit));
                let stores = [node.own.timer(id), node.below.timer(id)];
                stores.into_iter().flatten().for_each(|timed| sum.0.merge(&timed.total));
            }
            Kind::Set => {
                let sum = self.set.get_or_insert_default();
                let stores = [node.own.set(id), node.below.set(id)];
                stores.into_iter().flatten().for_each(|more| sum.merge(more));
            }
            Kind::Gauge => {
                if let Some(more) = node.state(id) {
                    let sum = self.gauge.map_or(more, |(present, _)| present.merged(more));
                    self.gauge = Some((sum, unit));
                }
            }
        }
    }
}

fn gauge(states: &States, unit: Unit) -> Value {
    let number = |amount| Number::new(amount, unit);
    let (sum, min, max) = (number(states.sum), number(states.min.0), number(states.max.0));
    json!({ "count": states.count, "sum": sum, "min": min, "max": max })
}

fn insert(map: &mut Map<String, Value>, name: &str, value: Value) {
    match name.split_once('.') {
        None => match (map.get_mut(name), value) {
            (Some(Value::Object(branch)), Value::Object(more)) => branch.extend(more),
            (Some(Value::Object(branch)), value) => {
                branch.insert(OWN_VALUE.into(), value);
            }
            (_, value) => {
                map.insert(name.into(), value);
            }
        },
        Some((first, rest)) => {
            let branch = map.entry(first).or_insert_with(|| Value::Object(Map::new()));
            if !branch.is_object() {
                let own = branch.take();
                *branch = json!({ OWN_VALUE: own });
            }
            if let Value::Object(branch) = branch {
                insert(branch, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_leaf_and_branch_keeps_both() {
        for names in [["a.b", "a"], ["a", "a.b"]] {
            let mut map = Map::new();
            for name in names {
                insert(&mut map, name, json!(name.len()));
            }
            assert_eq!(Value::Object(map), json!({ "a": { "value": 1, "b": 3 } }));
        }
    }
}
