//! Back-pressure: how often a node can afford to hear from its children.
//!
//! A receipt grants a period. Children learn of another one with their next receipt, one old period later at most, and
//! all of a level send at nearly the same time: so only a whole granted period, once everybody keeps to it, shows what
//! it costs. Judged sooner, the silence after a change would pass for idleness, and the period would swing.

use crate::node::EXPIRY_PERIODS;
use crate::schedule::{Now, nanos};
use std::time::Duration;

/// Above this share of a core a node asks its children to send less often, to be below it: of five parts in a hundred one
/// half is left for what is not foreseen.
const BUSY_SHARE: f64 = 0.045;
/// What a node does on its own account leaves children less of that share, but never takes away more than this one: they
/// can do nothing about it.
const OWN_SHARE: f64 = 0.02;
/// Below this part of what is left they may send more often again. What is aimed at is between the two, so that the period
/// then stays as it is.
const CALM: f64 = 0.5;
const AIM: f64 = 0.75;
/// The period is at most doubled at a time: when thousands of ranks join at once, each with all of its names, that is
/// over before the second time.
const SLOWER: f64 = 2.0;
/// After so many periods of the children it is known well enough how busy they keep a node, even if all send at once.
const EXACT_PERIODS: u64 = 4;
/// Children are not slowed beyond this, whatever a receiver says.
pub(super) const SLOWEST: Duration = Duration::from_secs(60);

/// What a thread that serves children was busy with.
#[derive(Debug, Clone, Copy, Default)]
pub struct Busy {
    /// With what they send.
    pub children_ns: u64,
    /// With what they have no part in. It leaves them less of what they may cost, up to 2 % of the time.
    pub own_ns: u64,
    /// Within this time.
    pub span_ns: u64,
}

impl Busy {
    fn and(self, more: Busy) -> Busy {
        Busy {
            children_ns: self.children_ns.saturating_add(more.children_ns),
            own_ns: self.own_ns.saturating_add(more.own_ns),
            span_ns: self.span_ns.saturating_add(more.span_ns),
        }
    }

    /// For how long children may keep the node busy, within a granted period at the least.
    fn left_ns(self, granted_ns: u64) -> f64 {
        let span_ns = self.span_ns.max(granted_ns) as f64;
        BUSY_SHARE * span_ns - (self.own_ns as f64).min(OWN_SHARE * span_ns)
    }
}

/// What a node grants its children, and why.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    /// Zero: as often as they are configured to.
    afforded_ns: u64,
    /// How busy the node was since everybody knows of that.
    busy: Busy,
    /// Until everybody does.
    unheard_ns: u64,
    /// Until when children may still keep to a longer period that they were granted before, and which.
    before: (u64, u64),
}

impl Pressure {
    /// What a receipt says.
    pub(super) fn afforded_ns(&self) -> u64 {
        self.afforded_ns
    }

    /// How often children are taken to send that are configured to send every `configured_ns`.
    pub(super) fn granted_ns(&self, configured_ns: u64) -> u64 {
        configured_ns.max(self.afforded_ns).max(1)
    }

    /// How long a child may be silent: counted in periods as they are granted.
    pub(super) fn expiry_ns(&self, configured_ns: u64, now: Now) -> u64 {
        let before = if now.mono_ns < self.before.0 { self.before.1 } else { 0 };
        self.granted_ns(configured_ns).max(before).saturating_mul(EXPIRY_PERIODS)
    }

    /// The period will be another one: children go on in the one that they know until their next batch.
    pub(super) fn hold_expiry(&mut self, configured_ns: u64, now: Now) {
        let granted_ns = self.granted_ns(configured_ns);
        let until = now.mono_ns.saturating_add(granted_ns.saturating_mul(EXPIRY_PERIODS));
        if now.mono_ns >= self.before.0 || granted_ns > self.before.1 {
            self.before = (until, granted_ns);
        }
    }

    /// What the node was busy with since the last time.
    pub(super) fn note(&mut self, busy: Busy, configured_ns: u64, now: Now) {
        let heard = self.unheard_ns == 0;
        self.unheard_ns = self.unheard_ns.saturating_sub(busy.span_ns);
        if !heard {
            return;
        }
        self.busy = self.busy.and(busy);
        let granted_ns = self.granted_ns(configured_ns);
        // What children kept it busy for, as part of what they may; until one period has passed, at the least.
        let load = self.busy.children_ns as f64 / self.busy.left_ns(granted_ns);
        let periods = self.busy.span_ns / granted_ns;
        let (least, most) = match periods as f64 {
            // All may have sent already.
            0.0 => (load, f64::INFINITY),
            // Where all send at once, these periods may have seen them once more than there are periods, or just as often
            // in almost one period more.
            n if periods < EXACT_PERIODS => (load * n / (n + 1.0), load * (n + 1.0) / n),
            _ => (load, load),
        };
        if least > 1.0 {
            let longer_ns = granted_ns as f64 * (least / AIM).min(SLOWER);
            self.change((longer_ns as u64).min(nanos(SLOWEST)), granted_ns);
        } else if most < CALM && self.afforded_ns > 0 {
            self.hold_expiry(configured_ns, now);
            let shorter_ns = (granted_ns as f64 * most / AIM) as u64;
            self.change(if shorter_ns > configured_ns { shorter_ns } else { 0 }, granted_ns);
        } else if periods >= EXACT_PERIODS {
            self.busy = Busy::default();
        }
    }

    fn change(&mut self, afforded_ns: u64, before_ns: u64) {
        *self = Pressure { afforded_ns, unheard_ns: before_ns, before: self.before, ..Pressure::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Virtual time goes in steps of ten milliseconds.
    const STEP_NS: u64 = 10_000_000;
    const STEPS_A_SECOND: u64 = 100;
    const PERIOD_NS: u64 = 200 * STEP_NS;
    const CHILDREN: u64 = 100;

    /// Children of one receiver, in virtual time: each sends on its own phase of the common clock, in the period of its
    /// last receipt.
    struct Level {
        pressure: Pressure,
        /// When each sends next, and where in a period, in thousandths.
        children: Vec<(u64, u64)>,
        /// What the receiver does in each period on its own account.
        own_ns: u64,
        now: u64,
        /// What is granted at the end of each period of the receiver, and how busy that was.
        seen: Vec<(u64, f64)>,
    }

    impl Level {
        /// `width`: over how many thousandths of a period they are spread.
        fn new(width: u64) -> Self {
            let children = (0..CHILDREN).map(|child| (1 + child, child * width / CHILDREN)).collect();
            Level { pressure: Pressure::default(), children, own_ns: 0, now: 0, seen: Vec::new() }
        }

        /// For so long a batch of each child in two seconds takes such a share of a core.
        fn run(&mut self, seconds: u64, share: f64) {
            let cost_ns = (share * PERIOD_NS as f64) as u64 / CHILDREN;
            let (mut busy_ns, until) = (0, self.now + seconds * STEPS_A_SECOND);
            while self.now < until {
                self.now += 1;
                for (next, phase) in &mut self.children {
                    if *next == self.now {
                        busy_ns += cost_ns;
                        let period = self.pressure.granted_ns(PERIOD_NS) / STEP_NS;
                        let place = (period * *phase / 1000 + period - self.now % period) % period;
                        *next += if place < period / 2 { place + period } else { place };
                    }
                }
                if self.now.is_multiple_of(PERIOD_NS / STEP_NS) {
                    let now = Now { mono_ns: self.now * STEP_NS, wall_ns: 0 };
                    let busy =
                        Busy { children_ns: busy_ns.min(PERIOD_NS), own_ns: self.own_ns, span_ns: PERIOD_NS };
                    self.pressure.note(busy, PERIOD_NS, now);
                    self.seen.push((self.pressure.granted_ns(PERIOD_NS), busy_ns as f64 / PERIOD_NS as f64));
                    busy_ns = 0;
                }
            }
        }

        fn granted_s(&self, last: usize) -> Vec<f64> {
            self.seen.iter().rev().take(last).map(|&(granted_ns, _)| granted_ns as f64 / 1e9).collect()
        }
    }

    /// Spread over the period, as in a flat instance, and all within a slot of it, as in a tree.
    const WIDTHS: [u64; 2] = [900, 25];

    #[test]
    fn after_a_mass_join_children_soon_send_as_often_as_before() {
        for width in WIDTHS {
            let mut level = Level::new(width);
            level.run(8, 0.5);
            level.run(40, 0.01);
            let longest = level.granted_s(usize::MAX).into_iter().fold(0.0, f64::max);
            assert!(longest > 2.0 && longest <= 8.0, "{longest}");
            assert_eq!(level.granted_s(5), [2.0; 5], "{:?}", level.seen);
        }
    }

    #[test]
    fn the_period_settles_where_the_share_is_kept_and_does_not_swing() {
        for (width, share) in
            WIDTHS.into_iter().flat_map(|width| [0.06, 0.1, 0.3, 0.7].map(|share| (width, share)))
        {
            let mut level = Level::new(width);
            level.run(900, share);
            let (needed_s, granted) = (2.0 * share / BUSY_SHARE, level.granted_s(250));
            assert!(granted.iter().all(|&period_s| period_s == granted[0]), "{share}: {:?}", level.seen);
            assert!((needed_s..=needed_s * 2.0).contains(&granted[0]), "{share}: {}", granted[0]);
            let mean = level.seen.iter().rev().take(250).map(|&(_, busy)| busy).sum::<f64>() / 250.0;
            assert!(mean <= BUSY_SHARE, "{share}: {mean}");
            // What was needed is not needed any more.
            level.run(200, 0.001);
            assert_eq!(level.granted_s(1), [2.0]);
        }
    }

    #[test]
    fn what_a_node_does_for_itself_slows_nobody_alone_and_leaves_children_less() {
        for (share, calm) in [(0.001, true), (0.02, true), (0.03, false)] {
            let mut level = Level { own_ns: u64::MAX, ..Level::new(900) };
            level.run(200, share);
            assert_eq!(level.granted_s(100).iter().all(|&period_s| period_s == 2.0), calm, "{share}");
            // However busy it goes on to be.
            level.run(200, 0.001);
            assert_eq!(level.granted_s(1), [2.0], "{share}");
        }
    }

    #[test]
    fn nobody_is_slowed_beyond_a_minute() {
        let mut level = Level::new(900);
        level.run(600, 5.0);
        assert!(level.granted_s(100).iter().all(|&period_s| period_s == 60.0));
    }
}
