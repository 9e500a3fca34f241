//! What the history keeps of gauges: how they are at the end of a period, or of more where a slot is longer.
//!
//! The root of a large instance holds hundreds of thousands of states of its children. Looking at all of them at the end
//! of each slot takes longer than its reactor may be held up, and more of a core than all else that the root does: so
//! what they amount to is kept with every change. A sum follows from what was and what is. So does a maximum, but where the
//! greatest becomes less: for those gauges alone the children are looked at, in parts.

use crate::amount::Amount;
use crate::node::Node;
use crate::node::children::Link;
use crate::schedule::Now;
use crate::series::{Kind, SeriesId};
use crate::store::make_room;
use crate::trail::{Level, Levels};
use crate::value::States;
use std::collections::BTreeMap;

/// States that are looked at in one part: half a millisecond, and twice that on a busy machine.
const PART: usize = 8_000;
/// To find one state among a sender's takes as long as to pass by so many of them.
const FINDING: usize = 6;

/// Whether the maximum of a gauge is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Maximum {
    #[default]
    Exact,
    /// No more than is said: the greatest has become less.
    Bound,
    /// Likewise, and the children are being looked at.
    Sought,
    /// Likewise, and one that has been looked at may have become less.
    SoughtInVain,
}

/// A sum from which what was added can be taken away again, though it went beyond what an amount can be.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    parts: i128,
    /// How often it went round.
    rounds: i32,
}

impl Sum {
    fn add(&mut self, more: Amount) {
        let (parts, is_round) = self.parts.overflowing_add(more.parts());
        let way = if more.parts() > 0 { 1 } else { -1 };
        *self = Sum { parts, rounds: self.rounds + if is_round { way } else { 0 } };
    }

    fn take(&mut self, less: Amount) {
        let (parts, is_round) = self.parts.overflowing_sub(less.parts());
        let way = if less.parts() > 0 { -1 } else { 1 };
        *self = Sum { parts, rounds: self.rounds + if is_round { way } else { 0 } };
    }

    fn amount(self) -> Amount {
        Amount::from_parts(match self.rounds {
            0 => self.parts,
            1.. => i128::MAX,
            _ => i128::MIN,
        })
    }
}

/// What the states of one gauge amount to.
#[derive(Debug, Clone, Default)]
struct Standing {
    senders: u32,
    sum: Sum,
    max: Amount,
    maximum: Maximum,
    /// The greatest that has been seen since it is sought.
    found: Option<Amount>,
}

impl Standing {
    /// One sender's states were, and are.
    fn change(&mut self, before: Option<&States>, after: Option<&States>) {
        if let Some(before) = before {
            self.senders -= 1;
            self.sum.take(before.sum);
        }
        let is_first = self.senders == 0;
        if let Some(after) = after {
            self.senders += 1;
            self.sum.add(after.sum);
        }
        let (before, after) = (before.map(|states| states.max.0), after.map(|states| states.max.0));
        if self.maximum != Maximum::Exact {
            self.found = self.found.max(after);
        }
        if is_first || after.is_some_and(|after| after >= self.max) {
            self.max = after.unwrap_or_default();
            self.maximum = Maximum::Exact;
            return;
        }
        match self.maximum {
            Maximum::Exact if before == Some(self.max) => self.maximum = Maximum::Bound,
            Maximum::Sought if before > after => self.maximum = Maximum::SoughtInVain,
            _ => {}
        }
    }

    /// Its maximum is sought no longer: what was found of it.
    fn settle(&mut self) -> Option<Amount> {
        let found = self.found.take();
        match (self.maximum, found) {
            (Maximum::Sought, Some(max)) => (self.max, self.maximum) = (max, Maximum::Exact),
            (Maximum::Sought | Maximum::SoughtInVain, _) => self.maximum = Maximum::Bound,
            _ => {}
        }
        found
    }
}

/// What the states of the children amount to: at the root, which alone keeps a history of them.
#[derive(Debug)]
pub(super) struct Standings {
    is_kept: bool,
    /// Of each gauge, by its position.
    gauges: Vec<Standing>,
    sweep: Option<Sweep>,
}

/// Maxima are being sought.
#[derive(Debug)]
struct Sweep {
    /// The slot that is complete when they are found.
    slot: usize,
    /// What there was at its end, but for them.
    levels: Levels,
    of: Vec<SeriesId>,
    /// The first sender that has not been looked at.
    next: u32,
}

impl Standings {
    pub(super) fn new(is_kept: bool) -> Self {
        Standings { is_kept, gauges: Vec::new(), sweep: None }
    }

    /// A sender's states of a gauge were, and are.
    pub(super) fn change(&mut self, id: SeriesId, before: Option<&States>, after: Option<&States>) {
        let position = id.position();
        if !self.is_kept || (before.is_none() && after.is_none()) {
            return;
        }
        if position >= self.gauges.len() {
            let more = position + 1 - self.gauges.len();
            make_room(&mut self.gauges, more);
            self.gauges.resize_with(position + 1, Standing::default);
        }
        self.gauges[position].change(before, after);
    }

    /// All of a sender's states count from now on, or no longer.
    pub(super) fn change_all(&mut self, states: &BTreeMap<SeriesId, States>, counts: bool) {
        for (&id, states) in states {
            let (before, after) = if counts { (None, Some(states)) } else { (Some(states), None) };
            self.change(id, before, after);
        }
    }

    /// A slot has ended: what there is in it is told when its maxima are known.
    fn begin(&mut self, slot: usize) {
        let (mut levels, mut of) = (Levels::default(), Vec::new());
        for (position, gauge) in (0_u32..).zip(&mut self.gauges).filter(|(_, gauge)| gauge.senders > 0) {
            let id = SeriesId::new(Kind::Gauge, position);
            levels.set(id.position(), Level { sum: gauge.sum.amount(), max: gauge.max });
            if gauge.maximum == Maximum::Bound {
                (gauge.maximum, gauge.found) = (Maximum::Sought, None);
                of.push(id);
            }
        }
        self.sweep = Some(Sweep { slot, levels, of, next: 0 });
    }

    /// Nobody wants to know any more what there was in the slot.
    pub(super) fn leave_off(&mut self) {
        for id in self.sweep.take().into_iter().flat_map(|sweep| sweep.of) {
            self.gauges[id.position()].found = None;
            self.gauges[id.position()].settle();
        }
    }

    /// Looks at the children until `most` states have been looked at. What the slot amounts to, once all have.
    fn go_on(&mut self, links: &BTreeMap<u32, Link>, most: usize) -> Option<(usize, Levels)> {
        let sweep = self.sweep.as_mut()?;
        let mut looked = 0;
        let senders = if sweep.of.is_empty() { None } else { Some(links.range(sweep.next..)) };
        for (&rank, link) in senders.into_iter().flatten() {
            if looked >= most {
                return None;
            }
            sweep.next = rank.saturating_add(1);
            looked += 1;
            if link.suspended {
                continue;
            }
            let mut see = |id: SeriesId, states: &States| {
                let gauge = &mut self.gauges[id.position()];
                gauge.found = gauge.found.max(Some(states.max.0));
            };
            if sweep.of.len() * FINDING < link.states.len() {
                looked += sweep.of.len() * FINDING;
                sweep.of.iter().for_each(|id| link.states.get(id).into_iter().for_each(|one| see(*id, one)));
            } else {
                looked += link.states.len();
                link.states.iter().for_each(|(&id, states)| see(id, states));
            }
        }
        let Sweep { slot, mut levels, of, .. } = self.sweep.take()?;
        for id in of {
            let found = self.gauges[id.position()].settle();
            found.into_iter().for_each(|max| levels.set_max(id.position(), max));
        }
        Some((slot, levels))
    }
}

impl Node {
    /// The period is the last one now, and perhaps a slot of the history is complete.
    pub(super) fn roll(&mut self, span_ns: u64, now: Now) {
        // What nobody has gone on with is still due.
        self.seek_maxima(usize::MAX);
        if let Some(slot) = self.own.roll(span_ns, now.wall_ns, Some(self.config.rank)) {
            let mut levels = Levels::default();
            self.gauges.iter().for_each(|(&id, &value)| levels.set(id.position(), Level::of(value)));
            self.own.keep_states(slot, levels);
        }
        if let Some(slot) = self.below.roll(span_ns, now.wall_ns, None) {
            self.standings.begin(slot);
            self.seek_maxima(PART);
        }
    }

    /// Whether [`Node::keep_history`] is due. Who does not call it pays for all of it at the end of the next period.
    pub fn has_history_to_keep(&self) -> bool {
        self.standings.sweep.is_some()
    }

    /// Goes on with what the history keeps of the states below, for half a millisecond or so.
    pub fn keep_history(&mut self) {
        self.seek_maxima(PART);
    }

    fn seek_maxima(&mut self, most: usize) {
        if let Some((slot, levels)) = self.standings.go_on(&self.links, most) {
            self.below.keep_states(slot, levels);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeConfig;
    use crate::query::Query;
    use crate::series::{Key, Unit};
    use proptest::prelude::*;
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
    fn maxima_that_fell_are_sought_in_parts_and_no_rank_counts_twice() {
        let mut now = Now { mono_ns: 0, wall_ns: 1_700_000_000_000_000_000 };
        let mut root = node(0, now);
        let mut leaves: Vec<Node> = (1..=CHILDREN).map(|rank| node(rank, now)).collect();
        let tell = |leaf: &mut Node, root: &mut Node, value: i128, now: Now| {
            for number in 0..GAUGES {
                let key = Key::new(&format!("g.{number}"), &[], Kind::Gauge, Unit::None).unwrap();
                let id = leaf.declare(key).unwrap();
                leaf.set(id, Some(Amount::whole(value)));
            }
            leaf.tick(Now { mono_ns: leaf.next_deadline_ns(), ..now });
            send(leaf, root, now);
        };
        leaves.iter_mut().zip(1..).for_each(|(leaf, value)| tell(leaf, &mut root, value, now));
        let mut to_the_next = |root: &mut Node| {
            now = Now { mono_ns: root.next_deadline_ns(), wall_ns: now.wall_ns + 2_000_000_000 };
            root.tick(now);
            now
        };
        // The first period is too short for a slot. What only grew is known at the end of the next.
        to_the_next(&mut root);
        let now = to_the_next(&mut root);
        assert!(!root.has_history_to_keep());
        assert_eq!(last_point(&root, now), json!([15.0, 5.0]));
        // The greatest becomes less: all are looked at, a part at a time.
        tell(&mut leaves[4], &mut root, 0, now);
        let now = to_the_next(&mut root);
        assert!(root.has_history_to_keep());
        let mut parts = 1;
        while root.has_history_to_keep() {
            root.keep_history();
            parts += 1;
        }
        assert!(parts >= 3, "{parts}");
        assert_eq!(last_point(&root, now), json!([10.0, 4.0]));
        // A child that goes while that is going on was there at the end of the slot.
        tell(&mut leaves[3], &mut root, 0, now);
        let now = to_the_next(&mut root);
        assert!(root.has_history_to_keep());
        leaves[0].begin_unload(now);
        send(&mut leaves[0], &mut root, now);
        to_the_next(&mut root);
        let now = to_the_next(&mut root);
        let query = Query::parse(&json!({ "match": ["g.7"], "since": 100.0 })).unwrap();
        let since = root.answer(&query, now)["series"][0]["since"].clone();
        let sums = [15.0, 10.0, 6.0, 5.0];
        let maxima = [5.0, 4.0, 3.0, 3.0];
        assert_eq!(since["points"].as_array().unwrap()[..4], json!(sums).as_array().unwrap()[..]);
        assert_eq!(since["max"].as_array().unwrap()[..4], json!(maxima).as_array().unwrap()[..]);
    }

    #[test]
    fn below_the_root_nothing_is_kept() {
        let now = Now { mono_ns: 0, wall_ns: 1_700_000_000_000_000_000 };
        let (mut middle, mut leaf) = (node(1, now), node(2, now));
        let id = leaf.declare(Key::new("g", &[], Kind::Gauge, Unit::None).unwrap()).unwrap();
        leaf.set(id, Some(Amount::whole(1)));
        leaf.tick(Now { mono_ns: leaf.next_deadline_ns(), ..now });
        send(&mut leaf, &mut middle, now);
        assert_eq!((middle.states().len(), middle.standings.gauges.len()), (1, 0));
    }

    /// What may happen to the states of a few senders.
    #[derive(Debug, Clone)]
    enum Op {
        Set(u32, u32, i64),
        Unset(u32, u32),
        Suspend(u32, bool),
        Drop(u32),
        /// A slot ends, and so many states are looked at.
        Begin(usize),
        GoOn(usize),
        LeaveOff,
    }

    fn op() -> impl Strategy<Value = Op> {
        let (sender, gauge) = (0_u32..4, 0_u32..3);
        prop_oneof![
            8 => (sender.clone(), gauge.clone(), -3_i64..4).prop_map(|(sender, gauge, value)| Op::Set(sender, gauge, value)),
            2 => (sender.clone(), gauge).prop_map(|(sender, gauge)| Op::Unset(sender, gauge)),
            1 => (sender.clone(), any::<bool>()).prop_map(|(sender, is)| Op::Suspend(sender, is)),
            1 => sender.prop_map(Op::Drop),
            2 => (0_usize..9).prop_map(Op::Begin),
            3 => (0_usize..9).prop_map(Op::GoOn),
            1 => Just(Op::LeaveOff),
        ]
    }

    fn level_of(links: &BTreeMap<u32, Link>, id: SeriesId) -> Option<Level> {
        let counted = links.values().filter(|link| !link.suspended);
        let states: Vec<&States> = counted.filter_map(|link| link.states.get(&id)).collect();
        let max = states.iter().map(|states| states.max.0).max()?;
        // In two halves, as a whole may be more than fits.
        let half =
            |which: fn(i128) -> i128| states.iter().map(|states| which(states.sum.parts())).sum::<i128>();
        let (high, low) = (half(|parts| parts >> 64), half(|parts| parts & i128::from(u64::MAX)));
        let high = high + (low >> 64);
        let whole = i64::try_from(high).map(|high| i128::from(high) << 64 | low & i128::from(u64::MAX));
        let extreme = if high > 0 { i128::MAX } else { i128::MIN };
        Some(Level { sum: Amount::from_parts(whole.unwrap_or(extreme)), max })
    }

    proptest! {
        /// Against the states themselves: sums at all times, maxima never less, and exact once they have been sought
        /// with nothing in between.
        #[test]
        fn what_is_kept_is_what_there_is(ops in prop::collection::vec(op(), 0..120)) {
            let (mut standings, mut links) = (Standings::new(true), BTreeMap::<u32, Link>::new());
            let id = |gauge| SeriesId::new(Kind::Gauge, gauge);
            for op in ops {
                match op {
                    Op::Set(sender, gauge, value) => {
                        // Beyond what an amount can be, sometimes.
                        let value = if value == 3 { i128::MAX } else { i128::from(value) };
                        let states = States::of(Amount::from_parts(value), sender);
                        let link = links.entry(sender).or_default();
                        let before = link.states.insert(id(gauge), states);
                        if !link.suspended {
                            standings.change(id(gauge), before.as_ref(), Some(&states));
                        }
                    }
                    Op::Unset(sender, gauge) => {
                        let link = links.entry(sender).or_default();
                        if let Some(before) = link.states.remove(&id(gauge)).filter(|_| !link.suspended) {
                            standings.change(id(gauge), Some(&before), None);
                        }
                    }
                    Op::Suspend(sender, is) => {
                        let link = links.entry(sender).or_default();
                        if link.suspended != is {
                            link.suspended = is;
                            standings.change_all(&link.states, !is);
                        }
                    }
                    Op::Drop(sender) => {
                        if let Some(link) = links.remove(&sender).filter(|link| !link.suspended) {
                            standings.change_all(&link.states, false);
                        }
                    }
                    Op::Begin(most) => {
                        standings.go_on(&links, usize::MAX);
                        standings.begin(0);
                        standings.go_on(&links, most);
                    }
                    Op::GoOn(most) => drop(standings.go_on(&links, most)),
                    Op::LeaveOff => standings.leave_off(),
                }
                for gauge in 0..3 {
                    let (kept, wanted) = (standings.gauges.get(gauge as usize), level_of(&links, id(gauge)));
                    let Some(kept) = kept else { prop_assert!(wanted.is_none()); continue };
                    let is = (kept.senders > 0).then(|| Level { sum: kept.sum.amount(), max: kept.max });
                    prop_assert_eq!(is.map(|is| is.sum), wanted.map(|wanted| wanted.sum));
                    prop_assert!(is.map(|is| is.max) >= wanted.map(|wanted| wanted.max));
                    if kept.maximum == Maximum::Exact {
                        prop_assert_eq!(is, wanted);
                    }
                }
            }
            standings.go_on(&links, usize::MAX);
            standings.begin(5);
            let (slot, levels) = standings.go_on(&links, usize::MAX).unwrap();
            prop_assert!(slot == 5 && standings.gauges.iter().all(|gauge| gauge.maximum == Maximum::Exact));
            for gauge in 0..3 {
                prop_assert_eq!(levels.get(gauge), level_of(&links, id(gauge as u32)));
            }
        }
    }
}
