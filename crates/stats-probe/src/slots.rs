//! The slot table: what the hook writes and everybody else reads.
//!
#![doc = include_str!("../docs/slots.md")]

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

// Every reader of another build counts on these; the fields are compared with the page by a test.
const _: () = assert!(size_of::<Header>() == 4096 && size_of::<Hot>() == 64 && size_of::<Slot>() == 117 * 64);
const _: () = assert!(offset_of!(Table, slots) == 4096 && size_of::<Table>() == 4096 + SLOTS * 117 * 64);

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
