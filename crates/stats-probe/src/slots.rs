//! The slot table: what the hook writes and everybody else reads.
//!
//! One mapping, readable from outside the process, of a header and a fixed number of slots, one slot a
//! thread. All fields are little- or big-endian as the machine is; offsets in bytes; layout version 3.
//!
//! Header (4096 bytes, the rest of it zero):
//!
//! | offset | type | what |
//! |---|---|---|
//! | 0 | u64 | magic, the bytes `FLUXSLOT` |
//! | 8 | u32 | layout version: 3 |
//! | 12 | u32 | size of the header |
//! | 16 | u32 | size of a slot |
//! | 20 | u32 | number of slots |
//! | 24 | u32 | pid |
//! | 28 | u32 | 1: ticks are of the processor's counter; 0: nanoseconds of CLOCK_MONOTONIC |
//! | 32 | u64 | start time of the process (field 22 of `/proc/PID/stat`): tells a stale file |
//! | 40 | u32 | generation: odd while the hook is active, one more at every attach and detach |
//! | 44 | u32 | 1: nested waits are told apart (`blocked` is available) |
//! | 48 | u64 | nanoseconds per tick, times 2^32 |
//! | 56 | u64 | CLOCK_MONOTONIC nanoseconds of the last sample taken inside the process |
//! | 64 | u64 | threads that found no free slot |
//!
//! Slot (7488 bytes = 117 cache lines; an odd number, so that hot lines spread over the cache's sets):
//!
//! | offset | type | what |
//! |---|---|---|
//! | 0 | u64 | head: sequence << 32, generation << 8, state; the sequence is odd while the owner writes this line |
//! | 8 | u64 | since: ticks at the last change of state |
//! | 16 | u64 | work, in ticks, up to `since` |
//! | 24 | u64 | sleep, same |
//! | 32 | u64 | blocked, same |
//! | 40 | u64 | wakeups |
//! | 48 | u64 | longest work of one turn, ticks |
//! | 56 | u64 | ticks at the end of that turn |
//! | 64 | i32 | tid, 0: slot is free |
//! | 68 | u32 | 1: its thread has come by; 0: made by a sampler, nothing known yet; 2, 3: for a moment, being taken, being given back. Written together with the tid, as one word |
//! | 72 | u32 | depth of nested reactor runs (owner only) |
//! | 76 | u32 | reserved |
//! | 80 | u64 | work done earlier in this turn, if the state says split |
//! | 88 | u64 | ticks at this turn's begin, if the state says split; else it began at `since` |
//! | 96 | u64 | ticks at which this thread became known in this generation |
//! | 104 | u64 | reserved |
//! | 112 | [u8; 16] | comm at first sight, NUL-terminated |
//! | 128 | u64 | calls that blocked: nested reactor runs and blocking receives |
//! | 136 | u64 | the longest of them, ticks |
//! | 144 | u64 | ticks at its end |
//! | 152 | u64 | ticks at the begin of the one that is running, else 0 |
//! | 160 | [u8; 160] | name of its module, whole, NUL-terminated; written by the sampler, empty until it is known |
//! | 320 | [u32; 1792] | histogram of work per wakeup ([`crate::histogram`]); wraps |
//!
//! State: 1 working, 2 sleeping, 3 blocked (low two bits), plus 4 inside a nested reactor run, 8 split (this
//! turn has had a nested wait), 16 unnamed (the name is still the one inherited from the broker). All that
//! makes a turn unusual is in this one word, so that the usual turn is told by one comparison.
//!
//! **Consistency.** The owner is the only writer. Between two transitions work + sleep + blocked = `since`
//! minus the time at which the slot became known, exactly, in ticks. The sequence lock makes a reader see
//! all of the first line or none of it; the state that is going on is added by the reader (`now - since`
//! to the current state), so that the sum is the wall time at every moment and nothing is counted twice
//! when the turn ends: what the reader added was never written.

use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::*, fence};

use crate::clock;
use crate::histogram::{BUCKETS, bucket};

pub(crate) const MAGIC: u64 = u64::from_ne_bytes(*b"FLUXSLOT");
pub(crate) const VERSION: u32 = 3;
/// Bytes that a slot has for the name of a module, NUL included; a longer one is cut.
const MODULE_BYTES: usize = 160;
/// Slots in the table. A broker has some 25 threads; a slot of a dead thread is free after a sample.
pub(crate) const SLOTS: usize = 128;

/// Whose a slot is that has a tid: a sampler has made it for a thread that has not come by yet.
const MADE: u32 = 0;
/// Its thread writes it.
const KNOWN: u32 = 1;
/// Its thread is about to write it.
const TAKEN: u32 = 2;
/// The sampler that made it is giving it back.
const RETURNED: u32 = 3;
/// Nobody's.
const FREE: u64 = owner(0, MADE);

/// One word, so that a claim is of a thread's slot and never of what has become another's.
const fn owner(tid: i32, claim: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (tid.to_ne_bytes(), claim.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

fn tid_and_claim(owner: u64) -> (i32, u32) {
    let [a, b, c, d, e, f, g, h] = owner.to_ne_bytes();
    (i32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]))
}

/// The low bits of a state.
pub(crate) const WORKING: u32 = 1;
pub(crate) const SLEEPING: u32 = 2;
pub(crate) const BLOCKED: u32 = 3;
/// What is added to them.
pub(crate) const NESTED: u32 = 4;
pub(crate) const SPLIT: u32 = 8;
pub(crate) const UNNAMED: u32 = 16;

const BASE: u32 = 3;
const FLAGS: u32 = 0xff;
/// One step of the sequence in `head`.
const STEP: u64 = 1 << 32;
/// `head` without its sequence.
const LOW: u64 = STEP - 1;

/// A sequence that stays odd for so many reads belongs to a thread stopped in the middle of a write.
const READ_TRIES: u32 = 1000;

#[repr(C, align(4096))]
pub(crate) struct Header {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    pub(crate) header_bytes: AtomicU32,
    pub(crate) slot_bytes: AtomicU32,
    pub(crate) slot_count: AtomicU32,
    pub(crate) pid: AtomicU32,
    pub(crate) use_counter: AtomicU32,
    pub(crate) start_time: AtomicU64,
    pub(crate) generation: AtomicU32,
    pub(crate) blocked_known: AtomicU32,
    pub(crate) scale: AtomicU64,
    pub(crate) sampled_ns: AtomicU64,
    pub(crate) overflow: AtomicU64,
}

/// The line that a turn writes.
#[repr(C, align(64))]
pub(crate) struct Hot {
    head: AtomicU64,
    since: AtomicU64,
    work: AtomicU64,
    sleep: AtomicU64,
    blocked: AtomicU64,
    wakeups: AtomicU64,
    longest: AtomicU64,
    longest_at: AtomicU64,
}

#[repr(C, align(64))]
pub(crate) struct Slot {
    hot: Hot,
    /// Tid and whose it is: see [`owner`].
    owner: AtomicU64,
    pub(crate) depth: AtomicU32,
    _reserved0: AtomicU32,
    turn_work: AtomicU64,
    turn_start: AtomicU64,
    pub(crate) known_since: AtomicU64,
    _reserved1: AtomicU64,
    pub(crate) name: [AtomicU8; 16],
    pub(crate) blocked_calls: AtomicU64,
    pub(crate) longest_blocked: AtomicU64,
    pub(crate) longest_blocked_at: AtomicU64,
    pub(crate) call_start: AtomicU64,
    module: [AtomicU8; MODULE_BYTES],
    pub(crate) histogram: [AtomicU32; BUCKETS],
}

#[repr(C)]
pub(crate) struct Table {
    pub(crate) header: Header,
    pub(crate) slots: [Slot; SLOTS],
}

/// # Safety
///
/// Zero bytes are a valid T, which is not of size zero.
unsafe fn zeroed<T>() -> Box<T> {
    let layout = std::alloc::Layout::new::<T>();
    // SAFETY: the layout is not empty.
    let address = unsafe { std::alloc::alloc_zeroed(layout) }.cast::<T>();
    if address.is_null() {
        std::alloc::handle_alloc_error(layout);
    }
    // SAFETY: allocated with T's own layout and filled with a valid T.
    unsafe { Box::from_raw(address) }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let taken = self.slots.iter().filter(|s| s.tid() != 0).count();
        write!(f, "Table({taken} of {SLOTS} slots)")
    }
}

const _: () = {
    assert!(size_of::<Header>() == 4096 && size_of::<Slot>() == 117 * 64);
    assert!(offset_of!(Header, start_time) == 32 && offset_of!(Header, generation) == 40);
    assert!(offset_of!(Header, scale) == 48 && offset_of!(Header, overflow) == 64);
    assert!(size_of::<Hot>() == 64 && offset_of!(Hot, longest_at) == 56 && offset_of!(Hot, since) == 8);
    assert!(
        offset_of!(Slot, owner) == 64 && offset_of!(Slot, depth) == 72 && offset_of!(Slot, turn_work) == 80
    );
    assert!(offset_of!(Slot, known_since) == 96 && offset_of!(Slot, name) == 112);
    assert!(offset_of!(Slot, blocked_calls) == 128 && offset_of!(Slot, histogram) == 320);
    assert!(offset_of!(Table, slots) == 4096 && size_of::<Table>() >= 4096 + SLOTS * 117 * 64);
};

/// A consistent copy of a slot's first line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// Working, sleeping or blocked.
    pub(crate) state: u32,
    /// The turn that is going on has had a nested wait.
    split: bool,
    pub(crate) generation: u32,
    pub(crate) since: u64,
    pub(crate) work: u64,
    pub(crate) sleep: u64,
    pub(crate) blocked: u64,
    pub(crate) wakeups: u64,
    pub(crate) longest: u64,
    pub(crate) longest_at: u64,
    /// False when the writer stood in the middle of a write: numbers may be of two moments.
    pub(crate) consistent: bool,
}

#[inline(always)]
fn add(cell: &AtomicU64, n: u64) -> u64 {
    // A single writer: no read-modify-write instruction is needed.
    let sum = cell.load(Relaxed).wrapping_add(n);
    cell.store(sum, Relaxed);
    sum
}

impl Slot {
    /// A slot of its own, outside of any table.
    pub(crate) fn boxed() -> Box<Slot> {
        // SAFETY: all fields are atomics, for which zero bytes are a valid value.
        unsafe { zeroed() }
    }

    /// Generation << 8 and state.
    #[inline(always)]
    pub(crate) fn low(&self) -> u32 {
        self.head() as u32
    }

    /// The generation that the hot line was last written in.
    #[inline(always)]
    pub(crate) fn generation(&self) -> u32 {
        self.low() >> 8
    }

    /// Ends the state that was (`head` is as it stands), at `now`, adds how long it lasted to `sum`, and returns that. A counter
    /// read on another processor may be a few ticks behind: time does not run backwards, it stands still.
    #[inline(always)]
    fn begin(&self, head: u64, now: u64, sum: &AtomicU64) -> u64 {
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
    fn end(&self, head: u64, low: u32) {
        let sequence = ((head | STEP) & !LOW).wrapping_add(STEP);
        self.hot.head.store(sequence | u64::from(low), Release);
    }

    #[inline(always)]
    fn head(&self) -> u64 {
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

    /// The thread that it belongs to; 0: nobody.
    pub(crate) fn tid(&self) -> i32 {
        tid_and_claim(self.owner.load(Acquire)).0
    }

    /// Its thread has come by.
    pub(crate) fn is_known(&self) -> bool {
        tid_and_claim(self.owner.load(Acquire)).1 == KNOWN
    }

    fn change_owner(&self, from: (i32, u32), to: (i32, u32)) -> bool {
        let (from, to) = (owner(from.0, from.1), owner(to.0, to.1));
        self.owner.compare_exchange(from, to, AcqRel, Relaxed).is_ok()
    }

    /// For a sampler: gives a slot back that was made for a thread, unless that has come by.
    pub(crate) fn give_back(&self) -> bool {
        let tid = self.tid();
        let made = tid != 0 && self.change_owner((tid, MADE), (tid, RETURNED));
        if made {
            self.free();
        }
        made
    }

    /// Gives the slot of a dead thread back. Nobody writes to it any more.
    pub(crate) fn free(&self) {
        self.end(self.head(), 0);
        self.depth.store(0, Relaxed);
        self.set_module("");
        self.owner.store(FREE, Release);
    }

    /// All of the first line, of one moment.
    pub(crate) fn read(&self) -> Snapshot {
        let hot = &self.hot;
        for attempt in 1..=READ_TRIES {
            let before = hot.head.load(Acquire);
            let snapshot = Snapshot {
                state: before as u32 & BASE,
                split: before as u32 & SPLIT != 0,
                generation: before as u32 >> 8,
                since: hot.since.load(Relaxed),
                work: hot.work.load(Relaxed),
                sleep: hot.sleep.load(Relaxed),
                blocked: hot.blocked.load(Relaxed),
                wakeups: hot.wakeups.load(Relaxed),
                longest: hot.longest.load(Relaxed),
                longest_at: hot.longest_at.load(Relaxed),
                consistent: true,
            };
            fence(Acquire);
            let after = hot.head.load(Relaxed);
            if before == after && before & STEP == 0 {
                return snapshot;
            }
            if attempt == READ_TRIES {
                return Snapshot { consistent: false, ..snapshot };
            }
            std::hint::spin_loop();
        }
        Snapshot::default()
    }

    /// Ticks at which the turn that is going on began.
    pub(crate) fn turn_start(&self, snapshot: &Snapshot) -> u64 {
        if snapshot.split { self.turn_start.load(Relaxed) } else { snapshot.since }
    }

    pub(crate) fn comm(&self) -> String {
        text(&self.name)
    }

    /// The name of its module; empty if unknown.
    pub(crate) fn module(&self) -> String {
        text(&self.module)
    }

    /// For the sampler. The end is written first, so that a reader finds one.
    pub(crate) fn set_module(&self, name: &str) {
        let bytes = name.as_bytes();
        let bytes = bytes.get(..MODULE_BYTES - 1).unwrap_or(bytes);
        if let Some(end) = self.module.get(bytes.len()) {
            end.store(0, Relaxed);
        }
        self.module.iter().zip(bytes).for_each(|(cell, byte)| cell.store(*byte, Relaxed));
    }

    pub(crate) fn set_comm(&self, comm: &[u8; 16]) {
        for (cell, byte) in self.name.iter().zip(comm) {
            cell.store(*byte, Relaxed);
        }
    }
}

fn text(bytes: &[AtomicU8]) -> String {
    let bytes: Vec<u8> = bytes.iter().map(|b| b.load(Relaxed)).take_while(|b| *b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Snapshot {
    /// Work, sleep and blocked at `now`, the state that is going on included. Their sum is the time since
    /// the slot became known, to the tick; a `now` before `since` makes the last state shorter.
    pub(crate) fn at(&self, now: u64) -> [u64; 3] {
        let going_on = now.wrapping_sub(self.since);
        let (mut work, mut sleep, mut blocked) = (self.work, self.sleep, self.blocked);
        match self.state {
            SLEEPING => sleep = sleep.wrapping_add(going_on),
            BLOCKED => blocked = blocked.wrapping_add(going_on),
            _ => work = work.wrapping_add(going_on),
        }
        [work, sleep, blocked]
    }
}

impl Table {
    /// For a thread that comes by for the first time: the slot that a sampler has made for it, or a free
    /// one. A slot of its tid that is known already is that of a dead thread whose tid was given again.
    pub(crate) fn slot_for_owner(&self, tid: i32) -> Option<&Slot> {
        let made = |s: &&Slot| match tid_and_claim(s.owner.load(Acquire)) {
            (of, MADE) if of == tid => s.change_owner((tid, MADE), (tid, TAKEN)),
            // By this very thread, which then could not note it.
            (of, TAKEN) => of == tid,
            _ => false,
        };
        let free = |s: &&Slot| s.change_owner((0, MADE), (tid, TAKEN));
        self.slots.iter().find(made).or_else(|| self.slots.iter().find(free))
    }

    /// For a sampler: makes a slot for a thread that has not come by yet.
    pub(crate) fn make_slot(&self, tid: i32) -> Option<usize> {
        self.slots.iter().position(|s| s.change_owner((0, MADE), (tid, MADE)))
    }
}

#[cfg(test)]
mod tests;
