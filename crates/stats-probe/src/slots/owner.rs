//! Whose a slot is: threads take slots, and a sampler makes them and gives them back, at the same time and without a
//! lock.

use std::sync::atomic::Ordering::*;

use super::{Slot, Table};

/// Whose a slot is that has a tid: a sampler has made it for a thread that has not come by yet.
const MADE: u32 = 0;
/// Its thread writes it.
pub(super) const KNOWN: u32 = 1;
/// Its thread is about to write it.
const TAKEN: u32 = 2;
/// The sampler that made it is giving it back.
const RETURNED: u32 = 3;
/// Nobody's.
const FREE: u64 = owner(0, MADE);

/// One word, so that a claim is of a thread's slot and never of what has become another's.
pub(super) const fn owner(tid: i32, claim: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (tid.to_ne_bytes(), claim.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

fn tid_and_claim(owner: u64) -> (i32, u32) {
    let [a, b, c, d, e, f, g, h] = owner.to_ne_bytes();
    (i32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]))
}

impl Slot {
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
