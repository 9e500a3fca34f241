//! Which ranks a node has heard of, and when.
//!
//! Each rank has its newest event: it contributed, or it said goodbye. A node tells upstream the age of each, so that
//! what waited on its way is not taken for fresh, and of two roads the newer event holds. Ages lose a sixteenth of a
//! period a hop at most, so that ranks of the same age share a run.

use crate::batch::Group;
use crate::idset::IdSet;
use crate::schedule::Now;
use std::collections::BTreeMap;

const MS: u64 = 1_000_000;
/// Ages are told in steps of a period's sixteenth.
const AGE_STEPS: u64 = 16;

/// The newest that is known of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event {
    /// On this node's monotonic clock; negative: before it began.
    at_ns: i64,
    /// How long it holds.
    expiry_ns: u64,
    /// Which sender told of it.
    pub(super) via: u32,
    /// With which of that sender's messages.
    message: u64,
    closed: bool,
}

/// The last word of a rank, as a node has it: for those who check that ages are told truly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// Whose it is.
    pub rank: u32,
    /// How long ago it was said.
    pub age_ns: u64,
    /// Which sender has brought it.
    pub via: u32,
}

/// What is known of each rank of a subtree.
#[derive(Debug, Clone)]
pub(crate) struct Coverage {
    /// The ranks whose absence is told: those of the instance, at rank 0. Others do not know who is below them before they
    /// have heard of them.
    expected: IdSet,
    events: BTreeMap<u32, Event>,
    /// Messages of each sender.
    messages: BTreeMap<u32, u64>,
    /// Ranks whose brokers are up; `None` when nobody has said.
    online: Option<IdSet>,
}

/// The ranks of an instance, by what is known of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) covered: IdSet,
    /// The broker is down.
    pub(crate) offline: IdSet,
    /// The broker is up, and has not sent anything, or has unloaded the module.
    pub(crate) absent: IdSet,
    /// The broker is up, and stopped sending.
    pub(crate) silent: IdSet,
    /// The age of the oldest contribution among the covered.
    pub(crate) oldest_ns: u64,
}

/// What a report changed.
#[derive(Debug, Default)]
pub(super) struct Change {
    /// Senders that no longer speak for some rank.
    pub(super) lost: Vec<u32>,
    /// Whether another sender has newer word of a rank that the report covers.
    pub(super) stale: bool,
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

impl Event {
    fn age_ns(&self, now: Now) -> u64 {
        u64::try_from(signed(now.mono_ns).saturating_sub(self.at_ns)).unwrap_or(0)
    }
}

impl Coverage {
    pub(crate) fn new(expected: IdSet) -> Self {
        Coverage { expected, events: BTreeMap::new(), messages: BTreeMap::new(), online: None }
    }

    /// This rank itself: it is here, or is about to go.
    pub(super) fn own(&mut self, rank: u32, now: Now, expiry_ns: u64, closed: bool) {
        self.events
            .insert(rank, Event { at_ns: signed(now.mono_ns), expiry_ns, via: rank, message: 0, closed });
    }

    /// What `via` says of the ranks behind it. Ranks beyond the instance's size are the caller's to refuse.
    pub(super) fn report(&mut self, via: u32, groups: &[Group], expiry_ns: u64, now: Now) -> Change {
        let mut change = Change::default();
        let message = self.messages.entry(via).or_default();
        *message += 1;
        let message = *message;
        for group in groups {
            let age_ns = signed(group.age_ms.saturating_mul(MS));
            let at_ns = signed(now.mono_ns).saturating_sub(age_ns);
            for rank in group.ranks.iter() {
                let event = Event { at_ns, expiry_ns, via, message, closed: group.closed };
                match self.events.get_mut(&rank) {
                    Some(known) if known.via != via && known.at_ns > at_ns => change.stale = true,
                    Some(known) => {
                        if known.via != via && !known.closed {
                            change.lost.push(known.via);
                        }
                        *known = event;
                    }
                    None => {
                        self.events.insert(rank, event);
                    }
                }
            }
        }
        change
    }

    /// What to tell upstream: who contributed and who said goodbye, as far as it still holds; and of whom a sender told
    /// with its last message whose states are counted, so that whoever is told of those states knows whose they are.
    pub(super) fn groups(&self, now: Now, period_ns: u64, is_counted: impl Fn(u32) -> bool) -> Vec<Group> {
        let step_ms = (period_ns / (AGE_STEPS * MS)).max(1);
        let mut groups: BTreeMap<(u64, bool), IdSet> = BTreeMap::new();
        for (&rank, event) in &self.events {
            let age_ns = event.age_ns(now);
            let of_last = self.messages.get(&event.via) == Some(&event.message);
            if age_ns <= event.expiry_ns || (of_last && !event.closed && is_counted(event.via)) {
                let age_ms = age_ns / MS / step_ms * step_ms;
                groups.entry((age_ms, event.closed)).or_default().insert(rank);
            }
        }
        groups.into_iter().map(|((age_ms, closed), ranks)| Group { age_ms, closed, ranks }).collect()
    }

    /// What is known of each rank and still holds.
    pub(super) fn heard(&self, now: Now) -> impl Iterator<Item = Heard> + '_ {
        self.events.keys().filter_map(move |&rank| self.heard_of(rank, now))
    }

    /// What is known of one rank, if it still holds.
    pub(super) fn heard_of(&self, rank: u32, now: Now) -> Option<Heard> {
        let event = self.events.get(&rank)?;
        let age_ns = event.age_ns(now);
        (age_ns <= event.expiry_ns).then_some(Heard { rank, age_ns, via: event.via })
    }

    /// The longest that anything here holds.
    pub(super) fn longest_expiry_ns(&self) -> u64 {
        self.events.values().map(|event| event.expiry_ns).max().unwrap_or(0)
    }

    pub(crate) fn set_online(&mut self, online: IdSet) {
        self.online = Some(online);
    }

    pub(crate) fn status(&self, now: Now) -> Status {
        let mut status = Status::default();
        for (&rank, event) in &self.events {
            let age_ns = event.age_ns(now);
            if !event.closed && age_ns <= event.expiry_ns {
                status.covered.insert(rank);
                status.oldest_ns = status.oldest_ns.max(age_ns);
            }
        }
        let mut all: IdSet = self.events.keys().copied().collect();
        all.add(&self.expected);
        let missing = all.minus(&status.covered);
        let up = self.online.as_ref().map_or_else(|| missing.clone(), |online| missing.both(online));
        status.offline = missing.minus(&up);
        let open = self.events.iter().filter(|(_, event)| !event.closed).map(|(&rank, _)| rank);
        status.silent = up.both(&open.collect());
        status.absent = up.minus(&status.silent);
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn now(s: u64) -> Now {
        Now { mono_ns: s * S, wall_ns: s * S }
    }

    fn group(age_ms: u64, closed: bool, ranks: &str) -> Group {
        Group { age_ms, closed, ranks: ranks.parse().unwrap() }
    }

    #[test]
    fn of_two_roads_the_newer_word_holds() {
        let mut coverage = Coverage::new(IdSet::range(0, 7));
        coverage.report(1, &[group(500, false, "1-3")], 6 * S, now(10));
        let change = coverage.report(3, &[group(0, false, "3")], 6 * S, now(11));
        assert_eq!((change.lost, change.stale), (vec![1], false));
        let change = coverage.report(1, &[group(0, false, "1-2"), group(2500, false, "3")], 6 * S, now(12));
        assert_eq!((change.lost, change.stale), (vec![], true));
        coverage.report(1, &[group(1500, true, "3")], 6 * S, now(12));
        assert_eq!(coverage.status(now(12)).covered.to_string(), "1-3");
    }

    #[test]
    fn who_tells_states_tells_whose_they_are_however_old_the_word_is() {
        let mut coverage = Coverage::new(IdSet::range(0, 7));
        coverage.report(1, &[group(5000, false, "3")], 6 * S, now(10));
        assert_eq!(coverage.groups(now(12), 2 * S, |_| false), []);
        assert_eq!(coverage.groups(now(12), 2 * S, |via| via == 1), [group(7000, false, "3")]);
        // The sender itself does not tell it any more.
        let mut later = coverage.clone();
        later.report(1, &[group(0, false, "1")], 6 * S, now(12));
        assert_eq!(later.groups(now(12), 2 * S, |via| via == 1), [group(0, false, "1")]);
        // Above, the older road loses the rank, and its states, though the rank is not covered by this.
        let mut above = Coverage::new(IdSet::range(0, 7));
        above.report(3, &[group(0, false, "3")], 60 * S, now(0));
        let change = above.report(2, &[group(7000, false, "3")], 6 * S, now(12));
        assert_eq!((change.lost, above.status(now(12)).covered.to_string()), (vec![3], String::new()));
    }

    #[test]
    fn a_rank_is_covered_until_it_expires_or_says_goodbye() {
        let mut coverage = Coverage::new(IdSet::range(0, 5));
        coverage.own(0, now(10), 6 * S, false);
        coverage.report(1, &[group(2000, false, "1,4")], 6 * S, now(10));
        coverage.report(2, &[group(0, true, "2")], 6 * S, now(10));
        let status = coverage.status(now(14));
        assert_eq!((status.covered.to_string().as_str(), status.oldest_ns), ("0-1,4", 6 * S));
        coverage.set_online("0-2".parse().unwrap());
        let status = coverage.status(now(15));
        let said =
            [&status.covered, &status.offline, &status.absent, &status.silent].map(ToString::to_string);
        assert_eq!(said, ["0", "3-5", "2", "1"]);
        // Of those of whom nobody has heard only rank 0 knows.
        coverage.expected = IdSet::new();
        let status = coverage.status(now(15));
        assert_eq!([status.offline, status.absent].map(|ranks| ranks.to_string()), ["4", "2"]);
        let told = coverage.groups(now(11), 2 * S, |_| false);
        assert_eq!(told, [group(1000, false, "0"), group(1000, true, "2"), group(3000, false, "1,4")]);
    }
}
