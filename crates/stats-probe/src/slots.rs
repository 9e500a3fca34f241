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

use crate::histogram::BUCKETS;

mod owner;
mod turns;

pub(crate) const MAGIC: u64 = u64::from_ne_bytes(*b"FLUXSLOT");
pub(crate) const VERSION: u32 = 3;
/// Bytes that a slot has for the name of a module, NUL included; a longer one is cut.
const MODULE_BYTES: usize = 160;
/// Slots in the table. A broker has some 25 threads; a slot of a dead thread is free after a sample.
pub(crate) const SLOTS: usize = 128;

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
    /// Tid and claim, in one word.
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

#[cfg(test)]
mod tests;
