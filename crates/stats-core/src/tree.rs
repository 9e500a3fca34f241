//! The merged tree, as `flux module stats` shows it: nested by the parts of each name, plain numbers.

use crate::amount::Amount;
use crate::answer::{Number, timer_map};
use crate::members::Members;
use crate::node::Node;
use crate::series::{Kind, Unit};
use crate::value::{Samples, States};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The key of a value whose name is also the beginning of longer names.
const OWN_VALUE: &str = "value";

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
    /// under `value`.
    pub fn tree(&self) -> Value {
        let mut names: BTreeMap<&str, Named> = BTreeMap::new();
        let states = self.states_now();
        for (id, key) in self.catalog.iter() {
            let (named, unit) = (names.entry(key.name()).or_default(), key.unit());
            match key.kind() {
                Kind::Counter => {
                    let sum = named.counter.get_or_insert((Amount::ZERO, unit));
                    let stores = [self.own.counter(id), self.below.counter(id)];
                    stores.into_iter().flatten().for_each(|counted| sum.0 = sum.0.plus(counted.total));
                }
                Kind::Timer => {
                    let sum = named.timer.get_or_insert_with(|| (Samples::default(), unit));
                    let stores = [self.own.timer(id), self.below.timer(id)];
                    stores.into_iter().flatten().for_each(|timed| sum.0.merge(&timed.total));
                }
                Kind::Set => {
                    let sum = named.set.get_or_insert_default();
                    [self.own.set(id), self.below.set(id)]
                        .into_iter()
                        .flatten()
                        .for_each(|more| sum.merge(more));
                }
                Kind::Gauge => {
                    if let Some(&more) = states.get(&id) {
                        let sum = named.gauge.map_or(more, |(present, _)| present.merged(more));
                        named.gauge = Some((sum, unit));
                    }
                }
            }
        }
        let mut root = Map::new();
        for (name, named) in names {
            if let Some((states, unit)) = named.gauge {
                insert(&mut root, name, gauge(&states, unit));
            }
            if let Some((samples, unit)) = named.timer {
                insert(&mut root, name, Value::Object(timer_map(&samples, unit)));
            }
            if let Some(members) = named.set {
                insert(&mut root, name, members.estimate().into());
            }
            if let Some((total, unit)) = named.counter {
                insert(&mut root, name, json!(Number::new(total, unit)));
            }
        }
        Value::Object(root)
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
