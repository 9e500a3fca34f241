//! A turn under the hook allocates nothing.

#[allow(dead_code)]
mod standin;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use standin::{alone, build, load};
use stats_probe::{Options, Probe};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, which counts what each thread asks for.
struct Counting;

// SAFETY: all is passed on to the system's allocator; the count needs no memory of its own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: by this function's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: by this function's contract.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn no_turn_allocates_from_the_first_on() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let Some(object) = build(dir.path(), "libturns.so", &["-Wl,-z,relro,-z,now"]) else { return };
    let lib = load(&object, libc::RTLD_NOW);
    let mut probe = Probe::start(Options::attach(lib.anchor));
    assert_eq!(probe.status().fallback, None);
    let turning = std::thread::Builder::new().name("turning".into()).spawn(move || {
        // SAFETY: the stand-in's functions on a reactor of this thread.
        unsafe {
            let reactor = (lib.create)(100_000, None, std::ptr::null_mut());
            let before = ALLOCATIONS.get();
            for _ in 0..100 {
                // A turn that waits, one that looks only, and a call that blocks.
                (lib.run)(reactor, 2);
                (lib.run)(reactor, 1);
                (lib.rpc)(100_000);
            }
            let allocated = ALLOCATIONS.get() - before;
            (lib.destroy)(reactor);
            drop(vec![0u8; 100]);
            (allocated, ALLOCATIONS.get() - before)
        }
    });
    let (allocated, with_a_vector) = turning.unwrap().join().unwrap();
    assert_eq!((allocated, with_a_vector), (0, 1));
    let sample = probe.sample().iter().find(|sample| sample.name == "turning").unwrap();
    assert_eq!((sample.wakeups, sample.blocked_calls), (200, 100), "it was under the hook");
}
