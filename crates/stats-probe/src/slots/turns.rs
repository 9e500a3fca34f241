//! What the thread of a slot writes into it, from turn to turn.

use std::sync::atomic::{AtomicU64, Ordering::*, fence};

use super::owner::{KNOWN, owner};
use super::{BASE, BLOCKED, FLAGS, LOW, NESTED, SLEEPING, SPLIT, STEP, Slot, UNNAMED, WORKING};
use crate::clock;
use crate::histogram::bucket;

#[inline(always)]
fn add(cell: &AtomicU64, n: u64) -> u64 {
    // A single writer: no read-modify-write instruction is needed.
    let sum = cell.load(Relaxed).wrapping_add(n);
    cell.store(sum, Relaxed);
    sum
}

impl Slot {
    /// Ends the state that was (`head` is as it stands), at `now`, adds how long it lasted to `sum`, and returns that.
    /// A counter read on another processor may be a few ticks behind: time does not run backwards, it stands still.
    #[inline(always)]
    pub(super) fn begin(&self, head: u64, now: u64, sum: &AtomicU64) -> u64 {
        self.hot.head.store(head | STEP, Relaxed);
        fence(Release);
        let since = self.hot.since.load(Relaxed);
        let lasted = now.wrapping_sub(since);
        let lasted = if (lasted as i64) < 0 { 0 } else { lasted };
        self.hot.since.store(since.wrapping_add(lasted), Relaxed);
        add(sum, lasted);
        lasted
    }

    /// Ends what `begin` began with the same `head`; the state is another one now.
    #[inline(always)]
    pub(super) fn end(&self, head: u64, low: u32) {
        let sequence = ((head | STEP) & !LOW).wrapping_add(STEP);
        self.hot.head.store(sequence | u64::from(low), Release);
    }

    #[inline(always)]
    pub(super) fn head(&self) -> u64 {
        self.hot.head.load(Relaxed)
    }

    /// Counts a turn whose work is complete. Between `begin` and `end`.
    #[inline(always)]
    fn longest(&self, turn: u64, now: u64) {
        if turn > self.hot.longest.load(Relaxed) {
            self.hot.longest.store(turn, Relaxed);
            self.hot.longest_at.store(now, Relaxed);
        }
    }

    #[inline(always)]
    fn count_work(&self, turn: u64, scale: u64) {
        let ns = ((u128::from(turn) * u128::from(scale)) >> clock::SCALE_SHIFT) as u64;
        // SAFETY: `bucket` is below BUCKETS for every argument; checked indexing would bring a panicking
        // path into the hook.
        let cell = unsafe { self.histogram.get_unchecked(bucket(ns)) };
        cell.store(cell.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// From plain work into the outermost wait: a turn's work is complete.
    #[inline(always)]
    pub(crate) fn work_to_sleep(&self, now: u64, scale: u64) {
        let head = self.head();
        let lasted = self.begin(head, now, &self.hot.work);
        self.longest(lasted, now);
        self.end(head, head as u32 & !FLAGS | SLEEPING);
        self.count_work(lasted, scale);
    }

    /// From the plain outermost wait to work: a wakeup.
    #[inline(always)]
    pub(crate) fn sleep_to_work(&self, now: u64) {
        let head = self.head();
        self.begin(head, now, &self.hot.sleep);
        add(&self.hot.wakeups, 1);
        self.end(head, head as u32 & !FLAGS | WORKING);
    }

    /// In the outermost wait.
    pub(crate) fn is_sleeping(&self) -> bool {
        self.low() & BASE == SLEEPING
    }

    /// From plain work through a wait that does not wait (time-out 0) to plain work: a turn is complete,
    /// and a wakeup. The thread does not sleep, so looking for events is counted as work of the next turn.
    #[inline(always)]
    pub(crate) fn work_to_work(&self, now: u64, scale: u64) {
        let head = self.head();
        let lasted = self.begin(head, now, &self.hot.work);
        self.longest(lasted, now);
        add(&self.hot.wakeups, 1);
        self.end(head, head as u32);
        self.count_work(lasted, scale);
    }

    /// From work, however unusual the turn, into the outermost wait.
    pub(crate) fn any_work_to_sleep(&self, now: u64, scale: u64) {
        self.leave_wait(now);
        let head = self.head();
        let lasted = self.begin(head, now, &self.hot.work);
        let earlier = if head as u32 & SPLIT != 0 { self.turn_work.load(Relaxed) } else { 0 };
        let turn = lasted.wrapping_add(earlier);
        self.longest(turn, now);
        self.end(head, head as u32 & !FLAGS | SLEEPING);
        self.count_work(turn, scale);
    }

    /// From work into a nested wait.
    pub(crate) fn work_to_blocked(&self, now: u64) {
        self.leave_wait(now);
        let head = self.head();
        let low = head as u32;
        let since = self.hot.since.load(Relaxed);
        let lasted = self.begin(head, now, &self.hot.work);
        if low & SPLIT == 0 {
            self.turn_start.store(since, Relaxed);
            self.turn_work.store(0, Relaxed);
        }
        add(&self.turn_work, lasted);
        self.end(head, head as u32 & !BASE | BLOCKED | SPLIT);
    }

    /// A nested wait is over.
    pub(crate) fn blocked_to_work(&self, now: u64) {
        let head = self.head();
        self.begin(head, now, &self.hot.blocked);
        self.end(head, head as u32 & !BASE | WORKING);
    }

    /// A wait may have been left without returning: the thread is being cancelled, and its cleanup waits
    /// again. The time until now was that wait's.
    fn leave_wait(&self, now: u64) {
        match self.low() & BASE {
            SLEEPING => self.sleep_to_work(now),
            BLOCKED => self.blocked_to_work(now),
            _ => {}
        }
    }

    /// Sets or clears a flag of the state.
    pub(crate) fn set_flag(&self, flag: u32, on: bool) {
        let head = self.head();
        let flag = u64::from(flag);
        self.hot.head.store(if on { head | flag } else { head & !flag }, Relaxed);
    }

    /// A call begins that will wait: the first nested reactor run, or a blocking receive.
    #[inline(always)]
    pub(crate) fn call_begins(&self, now: u64) {
        self.call_start.store(now, Relaxed);
    }

    /// That call has returned.
    #[inline(always)]
    pub(crate) fn call_ends(&self, now: u64) {
        let took = now.wrapping_sub(self.call_start.load(Relaxed));
        self.call_start.store(0, Relaxed);
        add(&self.blocked_calls, 1);
        if (took as i64) > 0 && took > self.longest_blocked.load(Relaxed) {
            self.longest_blocked.store(took, Relaxed);
            self.longest_blocked_at.store(now, Relaxed);
        }
    }

    /// The thread is seen for the first time in `generation`: it works, and nothing from before counts.
    pub(crate) fn become_known(&self, generation: u32, now: u64) {
        let hot = &self.hot;
        let head = self.head();
        self.begin(head, now, &hot.work);
        for cell in [&hot.work, &hot.sleep, &hot.blocked, &hot.wakeups, &hot.longest, &hot.longest_at] {
            cell.store(0, Relaxed);
        }
        hot.since.store(now, Relaxed);
        self.known_since.store(now, Relaxed);
        let nested = if self.depth.load(Relaxed) > 0 { NESTED } else { 0 };
        self.end(head, generation << 8 | WORKING | UNNAMED | nested);
        for cell in [&self.blocked_calls, &self.longest_blocked, &self.longest_blocked_at, &self.call_start] {
            cell.store(0, Relaxed);
        }
        for cell in &self.histogram {
            cell.store(0, Relaxed);
        }
        self.owner.store(owner(self.tid(), KNOWN), Release);
    }
}
