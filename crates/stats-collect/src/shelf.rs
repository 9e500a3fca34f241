//! What a source has told last, in the node.

use crate::readings::{Reading, Total, Value};
use stats_core::{Amount, Key, Node};
use std::collections::{HashMap, HashSet};

/// What one source tells. Series are looked up each time: those that are called what a module calls them may end, and
/// their identifiers be others' then.
#[derive(Default)]
pub(crate) struct Shelf {
    /// States that it has told last.
    states: HashSet<Key>,
    /// Counts that are recorded already.
    totals: HashMap<Key, Total>,
}

impl Shelf {
    /// Records what a source tells; states that it does not tell any more are withdrawn. `anew`: its counts began at zero
    /// after it was last seen to be away. Else the first that is told is what counting begins with.
    pub(crate) fn put(&mut self, node: &mut Node, readings: Vec<Reading>, anew: bool) {
        let mut before = std::mem::take(&mut self.states);
        for Reading { key, value } in readings {
            // Refused for want of room: counted by the node.
            let Ok(id) = node.declare(key.clone()) else { continue };
            match value {
                Value::State(amount) => {
                    node.set(id, Some(amount));
                    before.remove(&key);
                    self.states.insert(key);
                }
                Value::Total(total) => {
                    let before = self.totals.insert(key, total).or(anew.then_some(total.zero()));
                    let gained = before.map_or(0, |before| total.gained(before));
                    node.add(id, Amount::whole(gained.into()));
                }
            }
        }
        withdraw(node, before);
    }

    /// Nothing is known any more: states are withdrawn, and counts go on where they were.
    pub(crate) fn withdraw(&mut self, node: &mut Node) {
        withdraw(node, std::mem::take(&mut self.states));
    }

    /// The source has ended: what comes under its name later counts from zero.
    pub(crate) fn forget(&mut self, node: &mut Node) {
        self.withdraw(node);
        self.totals.clear();
    }
}

fn withdraw(node: &mut Node, states: HashSet<Key>) {
    for key in states {
        if let Some(id) = node.find(&key) {
            node.set(id, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats_core::{Kind, NodeConfig, Now, Query, Unit};
    use std::time::Duration;

    fn node() -> Node {
        let period = Duration::from_secs(2);
        let config =
            NodeConfig { rank: 0, size: 1, level: 0, max_level: 0, epoch: 1, period, max_series: 400 };
        let mut node = Node::new(config, at(0));
        node.set_ttl(Duration::from_secs(10));
        node
    }

    fn at(seconds: u64) -> Now {
        Now { mono_ns: seconds * 1_000_000_000, wall_ns: 0 }
    }

    fn state(name: &str, value: i128) -> Reading {
        let key = Key::new(name, &[], Kind::Gauge, Unit::None).unwrap();
        Reading { key, value: Value::State(Amount::whole(value)) }
    }

    #[test]
    fn names_that_a_module_makes_up_take_no_room_for_good() {
        let (mut node, mut shelf) = (node(), Shelf::default());
        let names = |node: &Node| node.select(&Query::default()).len();
        for second in 0..600 {
            let told = (0..4).map(|n| state(&format!("modules.m.stats.job{second}.n{n}"), 1)).collect();
            shelf.put(&mut node, told, false);
            node.tick(at(2 * second));
        }
        assert!(names(&node) < 100, "{} of 2,400 are left", names(&node));
        assert_eq!(node.events().overflow, 0);
        // And who makes up too many at a time leaves room for others.
        let told = (0..1000).map(|n| state(&format!("modules.m.stats.n{n}"), 1)).collect();
        shelf.put(&mut node, told, false);
        let other = Key::new("app.steps", &[], Kind::Counter, Unit::None).unwrap();
        assert!(node.events().overflow > 0 && node.declare(other).is_ok());
        shelf.forget(&mut node);
        assert_eq!(
            node.answer(&Query::default(), at(1200))["series"].as_array().unwrap().len(),
            1,
            "app.steps"
        );
    }
}
