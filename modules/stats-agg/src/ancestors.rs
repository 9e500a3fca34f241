//! The brokers between this one and rank 0, nearest first: where a batch may go.
//!
//! Flux has an address for this, `FLUX_NODEID_UPSTREAM`: the nearest ancestor that has the service. It is not used for
//! batches, since on flux-core 0.88 a request to it that passes an ancestor *without* the service is sent back down by
//! that ancestor's overlay (`src/modules/overlay/overlay.c`: the request's node is the sender's rank, and looks like a
//! child), and then goes to and fro between the two for ever. Asked by rank, each ancestor answers for itself.
//!
//! In a `kary` tree the ancestors follow from the rank. In any other the parent says its rank, and who is above it is
//! asked of rank 0 only when the parent turns out to lack the module.

use crate::agg::StatsAgg;
use flux::{Node as To, Payload, Scope};
use serde_json::{Value, json};

/// Trees are not deeper; a chain that goes on is not one.
const DEPTH_MAX: usize = 64;

/// The ancestors that are known.
#[derive(Debug, Default)]
pub(crate) struct Ancestors {
    ranks: Vec<u32>,
    /// The ancestor that a batch goes to next, as an index.
    next: usize,
    /// Whether `ranks` goes all the way.
    complete: bool,
}

impl Ancestors {
    /// What follows from the place in the tree and its shape (the attribute `tbon.topo`).
    pub(crate) fn new(rank: u32, level: u32, topology: Option<&str>) -> Self {
        let fanout = topology.and_then(|topology| topology.strip_prefix("kary:")?.parse::<u32>().ok());
        let ranks = match (level, fanout) {
            (0, _) => Some(Vec::new()),
            // kary:0 is a flat tree, like everything of one level.
            (1, _) | (_, Some(0)) => Some(vec![0]),
            (_, Some(fanout)) => {
                let parent = |&child: &u32| child.checked_sub(1).map(|before| before / fanout);
                Some(std::iter::successors(parent(&rank), parent).take(DEPTH_MAX).collect())
            }
            (_, None) => None,
        };
        Ancestors { complete: ranks.is_some(), ranks: ranks.unwrap_or_default(), next: 0 }
    }

    /// The ancestor to try, nearest first.
    pub(crate) fn current(&self) -> Option<u32> {
        self.ranks.get(self.next).copied()
    }

    /// The current one has no such service: on to the next. False: there is none.
    pub(crate) fn advance(&mut self) -> bool {
        let further = self.next + 1 < self.ranks.len();
        self.next = if further { self.next + 1 } else { 0 };
        further
    }

    /// Begins with `first`; without one, with the parent: the module may have been loaded there.
    pub(crate) fn restart(&mut self, first: Option<u32>) {
        let known = first.and_then(|first| self.ranks.iter().position(|&rank| rank == first));
        self.next = known.unwrap_or(0);
    }
}

/// The ancestors of `rank` in a tree as `overlay.topology` describes it, nearest first.
fn above(tree: &Value, rank: u32, depth: usize) -> Option<Vec<u32>> {
    let here = u32::try_from(tree["rank"].as_u64()?).ok()?;
    if here == rank {
        return Some(Vec::new());
    }
    if depth == DEPTH_MAX {
        return None;
    }
    let mut ranks = tree["children"].as_array()?.iter().find_map(|child| above(child, rank, depth + 1))?;
    ranks.push(here);
    Some(ranks)
}

impl StatsAgg {
    /// Tells the node who is above it.
    pub(crate) fn tell_ancestors(&mut self) {
        self.node.set_ancestors(self.ancestors.ranks.iter().copied().collect());
    }

    /// Learns the parent's rank, where it does not follow from the tree's shape. It is asked of a service that every
    /// broker has, so that the parent itself answers.
    pub(crate) fn explore_parent(&mut self, scope: &Scope<Self>) {
        if self.ancestors.complete || !self.ancestors.ranks.is_empty() {
            return;
        }
        let attribute = json!({ "name": "rank" });
        self.ask(scope, "attr.get", Payload::Json(&attribute), To::Upstream, |agg, _, answer| {
            agg.ancestors.ranks.extend(answer["value"].as_str().and_then(|rank| rank.parse::<u32>().ok()));
            agg.tell_ancestors();
        });
    }

    /// Learns who is above the parent.
    pub(crate) fn explore_ancestors(&mut self, scope: &Scope<Self>) {
        let (Ok(rank), false) = (scope.rank(), self.ancestors.complete) else { return };
        let whole = json!({ "rank": 0 });
        self.ask(scope, "overlay.topology", Payload::Json(&whole), To::Rank(0), move |agg, _, answer| {
            if let Some(ranks) = above(&answer, rank, 0) {
                agg.ancestors = Ancestors { ranks, next: 0, complete: true };
                agg.tell_ancestors();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_kary_tree_ancestors_follow_from_the_rank() {
        let ranks = |rank, level, topology| Ancestors::new(rank, level, topology).ranks;
        assert_eq!(ranks(11, 3, Some("kary:2")), [5, 2, 0]);
        assert_eq!(ranks(40, 2, Some("kary:32")), [1, 0]);
        assert_eq!(ranks(7, 1, Some("custom")), [0]);
        assert_eq!(ranks(7, 1, Some("kary:0")), [0]);
        assert!(ranks(0, 0, Some("kary:2")).is_empty() && ranks(7, 2, Some("custom")).is_empty());
        assert!(!Ancestors::new(7, 2, None).complete && Ancestors::new(7, 2, Some("kary:1")).complete);
    }

    #[test]
    fn ancestors_are_tried_from_the_nearest_and_again_from_there() {
        let mut ancestors = Ancestors::new(11, 3, Some("kary:2"));
        let mut tried = vec![ancestors.current()];
        while ancestors.advance() {
            tried.push(ancestors.current());
        }
        assert_eq!(tried, [Some(5), Some(2), Some(0)]);
        assert_eq!(ancestors.current(), Some(5));
        ancestors.restart(Some(2));
        assert_eq!(ancestors.current(), Some(2));
        ancestors.restart(Some(9));
        assert_eq!(ancestors.current(), Some(5));
    }

    #[test]
    fn in_any_other_tree_they_are_read_from_the_topology() {
        let leaf = |rank: u32| json!({"rank": rank, "size": 1, "children": []});
        let tree = json!({"rank": 0, "children": [leaf(3), {"rank": 1, "children": [{"rank": 4, "children": [leaf(2)]}]}]});
        assert_eq!(above(&tree, 2, 0), Some(vec![4, 1, 0]));
        assert_eq!(above(&tree, 0, 0), Some(vec![]));
        assert_eq!(above(&tree, 9, 0), None);
        assert_eq!(above(&json!({"rank": "x"}), 9, 0), None);
    }
}
