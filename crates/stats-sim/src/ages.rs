//! Ages are told truly: what a message says of when each rank was last heard of is what its sender knew when it wrote
//! the message, but for the step in which ages are told and the time that the message took.

use crate::check::AGE_STEPS;
use crate::world::{MS, Violation, World};
use stats_core::Heard;
use std::rc::Rc;

/// What a sender knew of its subtree when it wrote a message.
#[derive(Debug)]
pub(crate) struct Written {
    at_ns: u64,
    /// Ranks, and when each was last heard of.
    last_words: Vec<(u32, u64)>,
}

/// The last word of a rank, as its receiver has it: who brought it, and when it was said.
pub(crate) type Known = Option<(u32, u64)>;

impl World<'_> {
    /// A message is written now.
    pub(crate) fn written(&self, rank: u32) -> Rc<Written> {
        let (now, node) = (self.time_of(rank), &self.ranks[rank as usize].module);
        let heard = node.iter().flat_map(|node| node.heard(now));
        let last_words = heard.map(|heard| (heard.rank, self.said_ns(&heard))).collect();
        Rc::new(Written { at_ns: self.now_ns, last_words })
    }

    /// What the receiver knows of the ranks that a message may speak of.
    pub(crate) fn known(&self, receiver: u32, written: &Written) -> Vec<Known> {
        let (now, node) = (self.time_of(receiver), &self.ranks[receiver as usize].module);
        let known = |&(rank, _): &(u32, u64)| {
            let heard = node.as_ref()?.heard_of(rank, now)?;
            Some((heard.via, self.said_ns(&heard)))
        };
        written.last_words.iter().map(known).collect()
    }

    fn said_ns(&self, heard: &Heard) -> u64 {
        self.now_ns.saturating_sub(heard.age_ns)
    }

    /// The receiver has taken a message, or not: what it has learned from it is true.
    pub(crate) fn check_ages(
        &self,
        sender: u32,
        receiver: u32,
        written: &Written,
        before: &[Known],
    ) -> Result<(), Violation> {
        let step_ns = self.longest_period_ns / AGE_STEPS + MS;
        let way_ns = self.now_ns - written.at_ns;
        let after = self.known(receiver, written);
        for ((&(rank, said_ns), before), after) in written.last_words.iter().zip(before).zip(after) {
            let learned = after.filter(|&(via, _)| via == sender && after != *before);
            let Some((_, learned_ns)) = learned else { continue };
            if !(said_ns..=said_ns + step_ns + way_ns).contains(&learned_ns) {
                let [said, learned] = [said_ns, learned_ns].map(|ns| ns as f64 / 1e9);
                let what = format!(
                    "rank {rank} was heard of at {said:.3} s; its sender, rank {sender}, tells of {learned:.3} s"
                );
                return Err(self.violation(receiver, what));
            }
        }
        Ok(())
    }
}
