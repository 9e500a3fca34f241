//! What the history keeps of gauges: how they are at the end of a period, or of more where a slot is longer.
//!
//! The root of a large instance holds hundreds of thousands of states of its children, and looking at all of them takes
//! longer than its reactor may be held up: it does so in parts. A sender that is dropped meanwhile is one whose ranks
//! another may speak for now: then it begins anew, so that no rank counts twice.

use crate::node::Node;
use crate::schedule::Now;
use crate::trail::{Level, Levels};

/// States that are looked at in one part: half a millisecond, and twice that on a busy machine.
const PART: usize = 8_000;

/// The states of the children are being looked at.
#[derive(Debug)]
pub(super) struct Sweep {
    /// The slot that they are for.
    slot: usize,
    /// The first sender that has not been looked at.
    next: u32,
    levels: Levels,
}

impl Sweep {
    fn of(slot: usize) -> Self {
        Sweep { slot, next: 0, levels: Levels::default() }
    }
}

impl Node {
    /// The period is the last one now, and perhaps a slot of the history is complete.
    pub(super) fn roll(&mut self, span_ns: u64, now: Now) {
        // What nobody has gone on with is still due.
        self.sweep_states(usize::MAX);
        if let Some(slot) = self.own.roll(span_ns, now.wall_ns, Some(self.config.rank)) {
            let mut levels = Levels::default();
            self.gauges.iter().for_each(|(&id, &value)| levels.add(id, Level::of(value)));
            self.own.keep_states(slot, levels);
        }
        self.sweep = self.below.roll(span_ns, now.wall_ns, None).map(Sweep::of);
        self.sweep_states(PART);
    }

    /// Whether [`Node::keep_history`] is due. Who does not call it pays for all of it at the end of the next period.
    pub fn has_history_to_keep(&self) -> bool {
        self.sweep.is_some()
    }

    /// Goes on with what the history keeps of the states below, for half a millisecond or so.
    pub fn keep_history(&mut self) {
        self.sweep_states(PART);
    }

    fn sweep_states(&mut self, most: usize) {
        let Some(sweep) = &mut self.sweep else { return };
        let mut looked = 0;
        for (&rank, link) in self.links.range(sweep.next..) {
            if looked >= most {
                return;
            }
            sweep.next = rank.saturating_add(1);
            looked += 1 + link.states.len();
            if !link.suspended {
                let level = |states: &crate::value::States| Level { sum: states.sum, max: states.max.0 };
                link.states.iter().for_each(|(&id, states)| sweep.levels.add(id, level(states)));
            }
        }
        if let Some(Sweep { slot, levels, .. }) = self.sweep.take() {
            self.below.keep_states(slot, levels);
        }
    }

    /// What has been looked at may be told by others now.
    pub(super) fn sweep_anew(&mut self) {
        if let Some(sweep) = &mut self.sweep {
            *sweep = Sweep::of(sweep.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amount::Amount;
    use crate::node::NodeConfig;
    use crate::query::Query;
    use crate::series::{Key, Kind, Unit};
    use serde_json::{Value, json};
    use std::time::Duration;

    const PERIOD: Duration = Duration::from_secs(2);
    /// Three parts of two children each, of which the last is not full.
    const GAUGES: usize = PART / 2 + 1;
    const CHILDREN: u32 = 5;

    fn node(rank: u32, now: Now) -> Node {
        let level = u32::from(rank > 0);
        let (epoch, max_series) = (u64::from(rank) + 7, 20_000);
        // Children are not forgotten while this goes on.
        let period = if rank > 0 { 1000 * PERIOD } else { PERIOD };
        Node::new(NodeConfig { rank, size: 9, level, max_level: 1, epoch, period, max_series }, now)
    }

    fn send(leaf: &mut Node, root: &mut Node, now: Now) {
        while let Some(transmit) = leaf.poll_transmit(now) {
            let receipt = root.handle_merge(now, &transmit.payload).unwrap();
            leaf.handle_response(transmit.token, Ok(&receipt));
        }
    }

    fn last_point(root: &Node, now: Now) -> Value {
        let query = Query::parse(&json!({ "match": ["g.7"], "since": 100.0 })).unwrap();
        let since = root.answer(&query, now)["series"][0]["since"].clone();
        json!([since["points"].as_array().unwrap().last(), since["max"].as_array().unwrap().last()])
    }

    #[test]
    fn many_states_are_looked_at_in_parts_and_no_rank_counts_twice() {
        let mut now = Now { mono_ns: 0, wall_ns: 1_700_000_000_000_000_000 };
        let mut root = node(0, now);
        let mut leaves: Vec<Node> = (1..=CHILDREN).map(|rank| node(rank, now)).collect();
        for (leaf, value) in leaves.iter_mut().zip(1..) {
            for number in 0..GAUGES {
                let key = Key::new(&format!("g.{number}"), &[], Kind::Gauge, Unit::None).unwrap();
                let id = leaf.declare(key).unwrap();
                leaf.set(id, Some(Amount::whole(value)));
            }
            leaf.tick(Now { mono_ns: leaf.next_deadline_ns(), ..now });
            send(leaf, &mut root, now);
        }
        let mut to_the_next = |root: &mut Node| {
            now = Now { mono_ns: root.next_deadline_ns(), wall_ns: now.wall_ns + 2_000_000_000 };
            root.tick(now);
            now
        };
        // The first period is too short for a slot. The end of the next is a part, the rest is up to whoever has time.
        to_the_next(&mut root);
        let now = to_the_next(&mut root);
        assert!(root.has_history_to_keep());
        assert_eq!(last_point(&root, now), json!([null, null]), "not yet");
        let mut parts = 1;
        while root.has_history_to_keep() {
            root.keep_history();
            parts += 1;
        }
        assert!(parts >= 3, "{parts}");
        assert_eq!(last_point(&root, now), json!([15.0, 5.0]));
        // A child that goes while that is going on: it begins anew, without it.
        let now = to_the_next(&mut root);
        leaves[0].begin_unload(now);
        send(&mut leaves[0], &mut root, now);
        assert!(root.has_history_to_keep());
        let now = to_the_next(&mut root);
        let query = Query::parse(&json!({ "match": ["g.7"], "since": 100.0 })).unwrap();
        let points = root.answer(&query, now)["series"][0]["since"]["points"].clone();
        assert_eq!(
            points,
            json!([15.0, 14.0, null]),
            "what was not gone on with was due at the end of the next"
        );
    }
}
