//! The tree of brokers, as rank 0 knows it, though a broker is stopped.

use crate::instance::{Error, Instance};
use flux::Payload;
use serde_json::{Value, json};
use stats_core::IdSet;
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct Tree {
    parents: BTreeMap<u32, u32>,
}

impl Tree {
    pub(super) fn of(instance: &Instance) -> Result<Self, Error> {
        let top = json!({ "rank": 0 });
        Ok(Tree::read(&instance.request("overlay.topology", Payload::Json(&top), 0)?.json()?))
    }

    /// Reads `{"rank": RANK, "children": [...]}`, where children are the same.
    fn read(top: &Value) -> Self {
        let rank = |broker: &Value| broker["rank"].as_u64().and_then(|rank| u32::try_from(rank).ok());
        let (mut tree, mut left) = (Tree::default(), vec![top]);
        while let Some(broker) = left.pop() {
            let children = broker["children"].as_array().map_or(&[][..], Vec::as_slice);
            let ranks = children.iter().filter_map(rank);
            tree.parents.extend(ranks.filter_map(|child| Some((child, rank(broker)?))));
            left.extend(children);
        }
        tree
    }

    /// Those through which what `rank` has goes to rank 0.
    pub(super) fn above(&self, rank: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(self.parents.get(&rank), |parent| self.parents.get(parent)).copied()
    }

    /// Ranks by their level, the deepest first.
    pub(super) fn leaves_first(&self, ranks: &IdSet) -> Vec<IdSet> {
        let mut levels: BTreeMap<usize, IdSet> = BTreeMap::new();
        for rank in ranks.iter() {
            levels.entry(self.above(rank).count()).or_default().insert(rank);
        }
        levels.into_values().rev().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_first_and_know_who_is_above_them() {
        let leaf = |rank| json!({ "rank": rank, "size": 1, "children": [] });
        let inner = json!({ "rank": 1, "size": 2, "children": [leaf(3)] });
        let tree = Tree::read(&json!({ "rank": 0, "size": 4, "children": [inner, leaf(2)] }));
        let levels = |ranks: &str| -> Vec<String> {
            let levels = tree.leaves_first(&ranks.parse().unwrap());
            levels.iter().map(IdSet::to_string).collect()
        };
        assert_eq!(levels("0-3"), ["3", "1-2", "0"]);
        assert_eq!(levels("0,2"), ["2", "0"]);
        let above = |rank| tree.above(rank).collect::<Vec<_>>();
        assert_eq!((above(3), above(2), above(0)), (vec![1, 0], vec![0], vec![]));
    }
}
