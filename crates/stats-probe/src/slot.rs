//! One slot per thread, written by that thread alone and read by whoever samples.
//!
//! A slot keeps sums and the moment since which the thread has been in its present state; a reader adds the time from
//! that moment to now, so that sleep + blocked + work is the wall time since the slot was opened, whatever the thread
//! is doing. A version number, odd while the writer is at it, tells a reader to read again.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, fence};

/// Slots of the work histogram: slot i counts wakeups whose work took less than 2^i ns and at least half of that.
pub const HISTOGRAM_SLOTS: usize = 48;
/// Threads that can be timed at once; what is beyond goes untimed, and is counted.
const SLOTS: usize = 1024;
/// A reader gives up a slot whose writer never pauses; the next sample reads it.
const READ_TRIES: usize = 1000;

/// What a thread is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Waiting in its outermost reactor.
    Sleep = 0,
    /// Working.
    Work = 1,
    /// Waiting inside its work: a synchronous RPC, a blocking receive.
    Blocked = 2,
}

impl State {
    fn from(number: u32) -> Self {
        match number {
            0 => State::Sleep,
            1 => State::Work,
            _ => State::Blocked,
        }
    }
}

/// A thread's sums. Two cache lines hold what a turn writes; the histogram is beside them.
#[repr(C, align(128))]
pub(crate) struct Slot {
    version: AtomicU64,
    since_ns: AtomicU64,
    wakeups: AtomicU64,
    /// By [`State`].
    spent_ns: [AtomicU64; 3],
    /// The work of the turn that is under way, up to `since_ns`.
    turn_ns: AtomicU64,
    longest_ns: AtomicU64,
    state: AtomicU32,
    /// Nested reactors under way on this thread.
    depth: AtomicU32,
    /// Zero: free.
    tid: AtomicI32,
    /// The attach that the sums belong to.
    generation: AtomicU32,
    blocks: AtomicU64,
    longest_block_ns: AtomicU64,
    /// Samplers that have read the last of a dead thread.
    read_out: AtomicU32,
    histogram: [AtomicU64; HISTOGRAM_SLOTS],
}

/// What a slot held at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) wakeups: u64,
    pub(crate) spent_ns: [u64; 3],
    pub(crate) longest_ns: u64,
    pub(crate) blocks: u64,
    pub(crate) longest_block_ns: u64,
    pub(crate) histogram: [u64; HISTOGRAM_SLOTS],
    pub(crate) state: State,
    pub(crate) since_ns: u64,
}

/// Adds to what only this thread writes.
fn add(sum: &AtomicU64, more: u64) {
    sum.store(sum.load(Relaxed).wrapping_add(more), Relaxed);
}

impl Slot {
    pub(crate) fn tid(&self) -> i32 {
        self.tid.load(Acquire)
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Acquire)
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth.load(Relaxed)
    }

    pub(crate) fn set_depth(&self, depth: u32) {
        self.depth.store(depth, Relaxed);
    }

    fn begin_write(&self) -> u64 {
        let version = self.version.load(Relaxed).wrapping_add(1);
        self.version.store(version, Relaxed);
        // What follows must not be seen before the odd number.
        fence(Release);
        version
    }

    fn end_write(&self, odd: u64) {
        self.version.store(odd.wrapping_add(1), Release);
    }

    /// The thread goes into a wait of the kind `waiting` at `now_ns`.
    #[inline]
    pub(crate) fn enter_wait(&self, waiting: State, now_ns: u64) {
        let odd = self.begin_write();
        let worked = now_ns.saturating_sub(self.since_ns.load(Relaxed));
        let before = State::from(self.state.load(Relaxed));
        add(&self.spent_ns[before as usize], worked);
        if before == State::Work {
            let turn = self.turn_ns.load(Relaxed).wrapping_add(worked);
            if waiting == State::Sleep {
                self.turn_ns.store(0, Relaxed);
                // The very first stretch of work is no turn: nobody saw it begin.
                if self.wakeups.load(Relaxed) > 0 {
                    add(&self.histogram[log2_slot(turn)], 1);
                    if turn > self.longest_ns.load(Relaxed) {
                        self.longest_ns.store(turn, Relaxed);
                    }
                }
            } else {
                self.turn_ns.store(turn, Relaxed);
            }
        }
        self.since_ns.store(now_ns, Relaxed);
        self.state.store(waiting as u32, Relaxed);
        self.end_write(odd);
    }

    /// The thread comes out of that wait.
    #[inline]
    pub(crate) fn leave_wait(&self, waiting: State, now_ns: u64) {
        let odd = self.begin_write();
        let waited = now_ns.saturating_sub(self.since_ns.load(Relaxed));
        add(&self.spent_ns[waiting as usize], waited);
        if waiting == State::Sleep {
            add(&self.wakeups, 1);
        } else {
            add(&self.blocks, 1);
            if waited > self.longest_block_ns.load(Relaxed) {
                self.longest_block_ns.store(waited, Relaxed);
            }
        }
        self.since_ns.store(now_ns, Relaxed);
        self.state.store(State::Work as u32, Relaxed);
        self.end_write(odd);
    }

    /// The sums as of `now_ns`, the present state's time included. `None`: the writer never paused.
    pub(crate) fn read(&self, now_ns: u64) -> Option<View> {
        for _ in 0..READ_TRIES {
            let before = self.version.load(Acquire);
            if before & 1 == 1 {
                std::hint::spin_loop();
                continue;
            }
            let load = |sum: &AtomicU64| sum.load(Relaxed);
            let mut view = View {
                wakeups: load(&self.wakeups),
                spent_ns: std::array::from_fn(|i| load(&self.spent_ns[i])),
                longest_ns: load(&self.longest_ns),
                blocks: load(&self.blocks),
                longest_block_ns: load(&self.longest_block_ns),
                histogram: std::array::from_fn(|i| load(&self.histogram[i])),
                state: State::from(self.state.load(Relaxed)),
                since_ns: load(&self.since_ns),
            };
            fence(Acquire);
            if self.version.load(Relaxed) == before {
                view.spent_ns[view.state as usize] += now_ns.saturating_sub(view.since_ns);
                return Some(view);
            }
        }
        None
    }

    /// Opens the slot anew for its thread: while nobody else writes it.
    fn open(&self, generation: u32, state: State, now_ns: u64) {
        let odd = self.begin_write();
        let zero = |sum: &AtomicU64| sum.store(0, Relaxed);
        self.spent_ns.iter().chain(&self.histogram).for_each(zero);
        [&self.wakeups, &self.turn_ns, &self.longest_ns, &self.blocks, &self.longest_block_ns]
            .into_iter()
            .for_each(zero);
        self.depth.store(0, Relaxed);
        self.read_out.store(0, Relaxed);
        self.since_ns.store(now_ns, Relaxed);
        self.state.store(state as u32, Relaxed);
        self.generation.store(generation, Release);
        self.end_write(odd);
    }

    /// One more sampler has read the last of a dead thread; with the last of them the slot is free again.
    pub(crate) fn read_out(&self, samplers: u32) {
        if self.read_out.fetch_add(1, AcqRel) + 1 >= samplers {
            self.generation.store(0, Release);
            self.tid.store(0, Release);
        }
    }
}

/// The slot of the histogram for a time: the number of its significant bits.
fn log2_slot(ns: u64) -> usize {
    ((u64::BITS - ns.leading_zeros()) as usize).min(HISTOGRAM_SLOTS - 1)
}

/// A time that stands for a slot of the histogram: the middle of what it holds.
pub(crate) fn slot_ns(slot: usize) -> u64 {
    if slot == 0 { 0 } else { 3_u64 << (slot - 1) >> 1 }
}

/// All slots of the process. Mapped once and never unmapped: a thread may come out of a wait long after a detach.
pub(crate) fn table() -> Option<&'static [Slot]> {
    static TABLE: OnceLock<Option<&'static [Slot]>> = OnceLock::new();
    *TABLE.get_or_init(|| {
        let bytes = SLOTS * size_of::<Slot>();
        // SAFETY: a fresh anonymous mapping of that many zero bytes.
        let address = unsafe {
            let (protection, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0)
        };
        if address == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: page-aligned, of the right size, never unmapped; all-zero is a valid Slot, and all its fields are
        // atomics, so that it may be shared.
        Some(unsafe { std::slice::from_raw_parts(address.cast::<Slot>(), SLOTS) })
    })
}

/// The slot of a thread in this generation: its old one opened anew, or a free one. `None`: the table is full.
pub(crate) fn claim(tid: i32, generation: u32, state: State, now_ns: u64) -> Option<&'static Slot> {
    let slots = table()?;
    if let Some(slot) = slots.iter().find(|slot| slot.tid() == tid) {
        if slot.generation() != generation {
            slot.open(generation, state, now_ns);
        }
        return Some(slot);
    }
    let free = slots.iter().find(|slot| slot.tid.compare_exchange(0, tid, AcqRel, Relaxed).is_ok())?;
    free.open(generation, state, now_ns);
    Some(free)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(state: State, now_ns: u64) -> Box<Slot> {
        // SAFETY: all-zero is a valid Slot.
        let slot: Box<Slot> = unsafe { Box::new(std::mem::zeroed()) };
        slot.open(1, state, now_ns);
        slot
    }

    #[test]
    fn sleep_blocked_and_work_add_up_to_wall_time_at_every_moment() {
        let slot = fresh(State::Sleep, 100);
        let wall = |now: u64| slot.read(now).unwrap().spent_ns.iter().sum::<u64>();
        assert_eq!(wall(150), 50);
        slot.leave_wait(State::Sleep, 200);
        assert_eq!(wall(210), 110);
        slot.enter_wait(State::Blocked, 230);
        assert_eq!(wall(240), 140);
        slot.leave_wait(State::Blocked, 300);
        slot.enter_wait(State::Sleep, 320);
        assert_eq!(wall(1000), 900);
        let view = slot.read(1000).unwrap();
        assert_eq!((view.wakeups, view.spent_ns), (1, [100 + 680, 50, 70]));
        assert_eq!((view.longest_ns, view.blocks, view.longest_block_ns), (50, 1, 70));
        assert_eq!(view.histogram[log2_slot(50)], 1);
    }

    #[test]
    fn a_turn_s_work_is_what_lies_around_its_blocked_waits() {
        let slot = fresh(State::Work, 0);
        slot.enter_wait(State::Sleep, 1_000_000);
        assert_eq!(slot.read(1_000_000).unwrap().longest_ns, 0, "the first stretch is no turn");
        slot.leave_wait(State::Sleep, 2_000_000);
        for step in 0..3 {
            slot.enter_wait(State::Blocked, 2_000_100 + step * 1000);
            slot.leave_wait(State::Blocked, 2_000_900 + step * 1000);
        }
        slot.enter_wait(State::Sleep, 2_003_000);
        assert_eq!(slot.read(2_003_000).unwrap().longest_ns, 100 + 200 + 200 + 100);
    }

    #[test]
    fn a_slot_s_time_stands_for_all_that_it_counts() {
        for ns in [0_u64, 1, 2, 3, 100, 1 << 20, (1 << 20) - 1] {
            let middle = slot_ns(log2_slot(ns));
            assert!(middle >= ns / 2 && middle <= ns * 2, "{ns} {middle}");
        }
    }

    #[test]
    fn a_thread_has_one_slot_until_it_is_read_out() {
        let (one, two) =
            (claim(1_000_001, 1, State::Work, 5).unwrap(), claim(1_000_002, 1, State::Work, 5).unwrap());
        assert!(!ptr::eq(one, two) && ptr::eq(one, claim(1_000_001, 1, State::Work, 9).unwrap()));
        assert_eq!(one.read(5).unwrap().since_ns, 5);
        assert_eq!(claim(1_000_001, 2, State::Sleep, 9).unwrap().read(9).unwrap().since_ns, 9);
        one.read_out(2);
        assert_eq!(one.tid(), 1_000_001);
        one.read_out(2);
        two.read_out(1);
        assert_eq!((one.tid(), two.tid()), (0, 0));
    }
}
