//! Memory for the end: what a module needs to end in order when the process gets no more.
//!
//! Rust aborts a process whose allocation fails, and a module's process is the broker. So a module holds some address
//! space back. The first allocation that fails gives it up and is tried again; the module then ends, its last words said
//! and its state kept, and gives back what it had. (Memory that a control group denies is never seen here: the kernel
//! kills the process.)

use crate::error::{Error, Result};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// Enough for the largest table to double once more, and to write down what the module knows. It is address space, not
/// memory, until it is given up.
const USED: usize = 64 << 20;
/// What glibc asks for to begin another heap for a thread: twice 64 MiB, so as to find one that is aligned. Where it
/// does not get that, each small block takes a page of its own, and the rest is gone at once.
const HEAP: usize = 128 << 20;
const BYTES: usize = USED + HEAP;

/// Whether the process would get so many bytes more, beside what a module holds back for its end; `ENOMEM`: it would not.
/// Ask before something large is begun: an allocation that fails ends the module, or the process.
///
/// What the reserve has room for needs no question, and is not asked about.
pub fn afford(bytes: usize) -> Result<()> {
    if bytes < USED / 2 || is_to_be_had(bytes.saturating_add(HEAP)) {
        return Ok(());
    }
    Err(Error::new(libc::ENOMEM, format!("the process does not have the memory: {} MiB", bytes >> 20)))
}

/// What a byte of JSON may become in memory: a member of an array takes two, and an object of one member, which takes
/// eight, a node of a tree of some 650.
const JSON_GROWTH: usize = 100;

/// Whether a text of that many bytes can be read as JSON.
pub(crate) fn afford_json(bytes: usize) -> Result<()> {
    afford(bytes.saturating_mul(JSON_GROWTH))
        .map_err(|error| Error::new(error.errnum(), format!("a message of {bytes} bytes: {error}")))
}

/// Whether the process would get so much, without a touch on what is held back.
fn is_to_be_had(bytes: usize) -> bool {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, of nothing.
    let mapping = unsafe { libc::mmap(ptr::null_mut(), bytes, access, kind, -1, 0) };
    if mapping == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: just mapped, with this length, and seen by nobody.
    unsafe { libc::munmap(mapping, bytes) };
    true
}

/// The allocator of a module: the system's, with a reserve. [`module!`](crate::module!) installs it.
#[derive(Debug)]
pub struct Reserve {
    held: AtomicPtr<libc::c_void>,
    spent: AtomicBool,
    /// Loads of the module in this process, under several names.
    users: AtomicU32,
}

impl Reserve {
    /// One that holds nothing yet.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Reserve {
            held: AtomicPtr::new(ptr::null_mut()),
            spent: AtomicBool::new(false),
            users: AtomicU32::new(0),
        }
    }

    /// Begins to hold some back; `ENOMEM`: there is none to be had, and a module has no business there.
    pub(crate) fn fill(&self) -> Result<()> {
        self.users.fetch_add(1, Ordering::Relaxed);
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, of nothing.
        let mapping = unsafe { libc::mmap(ptr::null_mut(), BYTES, libc::PROT_NONE, kind, -1, 0) };
        if mapping == libc::MAP_FAILED {
            let text = format!(
                "the process does not have the memory that a module holds back for its end: {} MiB of address space",
                BYTES >> 20
            );
            return Err(Error::new(libc::ENOMEM, text));
        }
        // Where memory is promised to nobody twice, what may be written to counts. That it may is no more than that.
        // SAFETY: within the mapping, which nobody has seen yet.
        unsafe { libc::mprotect(mapping, USED, libc::PROT_READ | libc::PROT_WRITE) };
        unmap(self.held.swap(mapping, Ordering::AcqRel));
        self.spent.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Holds nothing back any more, once everybody who had it filled has released it.
    pub(crate) fn release(&self) {
        if self.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.give_up();
        }
    }

    fn give_up(&self) {
        unmap(self.held.swap(ptr::null_mut(), Ordering::AcqRel));
    }

    /// Whether an allocation has failed since it was filled.
    pub(crate) fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Relaxed)
    }

    /// An allocation has failed: tries it again with what was held back.
    fn again(&self, allocate: impl Fn() -> *mut u8) -> *mut u8 {
        self.spent.store(true, Ordering::Relaxed);
        self.give_up();
        allocate()
    }
}

/// Gives back what `fill` mapped, or nothing.
fn unmap(mapping: *mut libc::c_void) {
    if !mapping.is_null() {
        // SAFETY: mapped by `fill` with this length, and swapped out, so that nobody else gives it back.
        unsafe { libc::munmap(mapping, BYTES) };
    }
}

// SAFETY: every block comes from the system's allocator and goes back to it, with its own layout.
unsafe impl GlobalAlloc for Reserve {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on as it came.
        let allocate = || unsafe { System.alloc(layout) };
        let block = allocate();
        if block.is_null() { self.again(allocate) } else { block }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on as it came.
        let allocate = || unsafe { System.alloc_zeroed(layout) };
        let block = allocate();
        if block.is_null() { self.again(allocate) } else { block }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: passed on as it came; a failed call leaves the block as it was.
        let allocate = || unsafe { System.realloc(block, layout, size) };
        let moved = allocate();
        if moved.is_null() { self.again(allocate) } else { moved }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: passed on as it came.
        unsafe { System.dealloc(block, layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_failed_allocation_is_tried_again_with_the_reserve_and_tells() {
        let reserve = Reserve::new();
        reserve.fill().unwrap();
        assert!(!reserve.is_spent() && !reserve.held.load(Ordering::Relaxed).is_null());
        let (tries, mut block) = (Cell::new(0), 0_u8);
        let block: *mut u8 = &mut block;
        let got = reserve.again(|| {
            tries.set(tries.get() + 1);
            assert!(reserve.held.load(Ordering::Relaxed).is_null(), "given up before it is tried again");
            block
        });
        assert_eq!((got, tries.get(), reserve.is_spent()), (block, 1, true));
        // And a second time there is nothing left to give, which does no harm.
        assert!(reserve.again(ptr::null_mut).is_null());
    }

    #[test]
    fn it_is_held_for_as_long_as_one_load_needs_it() {
        let (reserve, held) =
            (Reserve::new(), |reserve: &Reserve| !reserve.held.load(Ordering::Relaxed).is_null());
        reserve.fill().unwrap();
        reserve.fill().unwrap();
        reserve.release();
        assert!(held(&reserve));
        reserve.release();
        assert!(!held(&reserve));
    }

    #[test]
    fn what_is_large_is_not_begun_where_there_is_not_the_memory_for_it() {
        assert!([0, USED, USED + 1].iter().all(|&bytes| afford(bytes).is_ok()));
        let refused = afford_json(usize::MAX / 2).unwrap_err();
        assert_eq!(refused.errnum(), libc::ENOMEM);
        let wanted = format!("a message of {} bytes: the process does not have the memory: ", usize::MAX / 2);
        assert!(refused.to_string().starts_with(&wanted), "{refused}");
    }

    #[test]
    fn what_cannot_be_had_is_null_and_not_the_end() {
        let reserve = Reserve::new();
        let layout = Layout::from_size_align(isize::MAX as usize - 4096, 8).unwrap();
        // SAFETY: a layout that is not zero; the null is not used.
        assert!(unsafe { reserve.alloc(layout) }.is_null());
        assert!(reserve.is_spent());
    }
}
