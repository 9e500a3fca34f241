//! The functions that stand in for `epoll_wait` and its kin in libflux's GOT.
//!
//! What holds for everything in this file:
//!
//! * `flux module remove --cancel` is `pthread_cancel`: the thread is unwound *through* these frames while
//!   it sleeps in the real `epoll_wait`. They are `extern "C-unwind"`, own nothing that needs dropping,
//!   cannot panic and catch nothing; a landing pad here would abort the broker.
//! * No allocation, no lock, no system call of its own after a thread's first two turns (in which it takes a slot, and
//!   tells its name); no thread-local variable either: in a dlopened object those are allocated at first use and may
//!   need destructors. A pthread key without destructor holds the thread's slot.
//! * `errno` is what the real function left.
//! * The code stays mapped for ever (`object::pin`), since a thread may sleep in it during a detach. Such
//!   a thread notices the new generation when it wakes and writes nothing.

use std::ffi::{c_int, c_ulong, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

use crate::clock::{counter, monotonic_ns};
use crate::slots::{NESTED, Slot, Table, UNNAMED};

/// Generations are compared in the 24 bits that a slot has for them.
pub(crate) const GENERATION_MASK: u32 = 0xff_ffff;

/// `maxevents` with which, at time-out 0, `flux_pollevents` drains a handle's own epoll descriptor: that is
/// no turn of a reactor (libev asks for 64 events or more).
const POLLEVENTS: c_int = 1;

/// The names that are hooked; a `Patch::symbol` indexes this, [`REPLACEMENTS`] and [`Hook::real`].
pub(crate) const SYMBOLS: [&str; 5] =
    ["epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "flux_reactor_run"];
pub(crate) const EPOLL_WAIT: usize = 0;
pub(crate) const EPOLL_PWAIT: usize = 1;
pub(crate) const EPOLL_PWAIT2: usize = 2;
pub(crate) const POLL: usize = 3;
pub(crate) const REACTOR_RUN: usize = 4;

/// The address of the function that replaces a symbol.
pub(crate) fn replacement(symbol: usize) -> usize {
    match symbol {
        EPOLL_WAIT => epoll_wait as *const () as usize,
        EPOLL_PWAIT => epoll_pwait as *const () as usize,
        EPOLL_PWAIT2 => epoll_pwait2 as *const () as usize,
        POLL => poll as *const () as usize,
        _ => reactor_run as *const () as usize,
    }
}

/// All that the hook reads; written before the GOT is, and by attach and detach.
#[repr(C, align(64))]
pub(crate) struct Hook {
    /// Generation << 8 and WORKING while active, else INACTIVE: what a slot's low word is in a usual turn.
    pub(crate) working: AtomicU32,
    pub(crate) key: AtomicU32,
    pub(crate) use_counter: AtomicBool,
    pub(crate) scale: AtomicU64,
    pub(crate) table: AtomicPtr<Table>,
    pub(crate) real: [AtomicUsize; SYMBOLS.len()],
}

/// No slot's low word is this, or this plus one.
pub(crate) const INACTIVE: u32 = 0xfe;

pub(crate) static HOOK: Hook = Hook {
    working: AtomicU32::new(INACTIVE),
    key: AtomicU32::new(0),
    use_counter: AtomicBool::new(false),
    scale: AtomicU64::new(0),
    table: AtomicPtr::new(null_mut()),
    real: [const { AtomicUsize::new(0) }; SYMBOLS.len()],
};

/// Value of the key in a thread that found no free slot.
const UNTIMED: *const Slot = std::ptr::without_provenance(64);

#[inline(always)]
fn now() -> u64 {
    if HOOK.use_counter.load(Relaxed) { counter() } else { slow_now() }
}

#[cold]
#[inline(never)]
fn slow_now() -> u64 {
    monotonic_ns()
}

/// The calling thread's slot, null or UNTIMED.
#[inline(always)]
fn own_slot() -> *const Slot {
    // SAFETY: the key was created before the GOT was changed, and is never deleted.
    unsafe { libc::pthread_getspecific(HOOK.key.load(Relaxed)) }.cast::<Slot>()
}

/// The slot, if this is a usual turn: active, known in this generation, working, not nested, not split.
#[inline(always)]
fn usual(slot: *const Slot) -> Option<&'static Slot> {
    if slot.is_null() || slot == UNTIMED {
        return None;
    }
    // SAFETY: besides null and UNTIMED, the key only ever holds slots of the table, which is never
    // unmapped.
    let slot = unsafe { &*slot };
    (slot.low() == HOOK.working.load(Acquire)).then_some(slot)
}

/// The calling thread's slot if it is to be timed, known in this generation.
fn timed_slot() -> Option<&'static Slot> {
    let working = HOOK.working.load(Acquire);
    if working == INACTIVE {
        return None;
    }
    let slot = own_slot();
    if slot == UNTIMED {
        return None;
    }
    if slot.is_null() {
        return first_sight(working >> 8);
    }
    // SAFETY: as in `usual`.
    let slot = unsafe { &*slot };
    if slot.generation() != working >> 8 {
        slot.become_known(working >> 8, now());
    }
    Some(slot)
}

/// Finds or makes the slot of a thread that has none yet.
#[cold]
#[inline(never)]
fn first_sight(generation: u32) -> Option<&'static Slot> {
    // SAFETY: errno's address is valid for the calling thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let saved = unsafe { *errno };
    // SAFETY: set before the GOT was changed; the table is never unmapped.
    let table = unsafe { &*HOOK.table.load(Acquire) };
    // SAFETY: gettid has no preconditions and is no cancellation point. (glibc has a function for it since 2.30 only.)
    let tid = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
    let slot = table.slot_for_owner(tid);
    let value = slot.map_or(UNTIMED, |s| s as *const Slot);
    // SAFETY: the key exists.
    let set = unsafe { libc::pthread_setspecific(HOOK.key.load(Relaxed), value.cast()) };
    let slot = slot.filter(|_| set == 0);
    match slot {
        Some(slot) => {
            name_slot(slot);
            slot.become_known(generation, now());
        }
        None => {
            table.header.overflow.fetch_add(1, Relaxed);
        }
    }
    // SAFETY: as above.
    unsafe { *errno = saved };
    slot
}

/// Copies the thread's comm name into its slot.
fn name_slot(slot: &Slot) {
    let mut comm = [0u8; 16];
    // SAFETY: PR_GET_NAME writes up to 16 bytes, NUL included.
    unsafe { libc::prctl(libc::PR_GET_NAME, comm.as_mut_ptr()) };
    slot.set_comm(&comm);
}

/// A reactor's wait begins in an unusual turn. Returns the slot, or null if the thread is not timed.
#[cold]
#[inline(never)]
fn unusual_wait() -> *const Slot {
    let Some(slot) = timed_slot() else { return null() };
    if slot.low() & NESTED != 0 {
        slot.work_to_blocked(now());
        return slot;
    }
    if slot.low() & UNNAMED != 0 {
        // A module receives its welcome message (a blocking receive) before it has a name; in its reactor
        // it has one. PR_GET_NAME does not fail, so it leaves errno alone.
        name_slot(slot);
    }
    slot.any_work_to_sleep(now(), HOOK.scale.load(Relaxed));
    slot
}

/// A reactor's wait begins.
#[inline(always)]
fn wait_begins() -> *const Slot {
    match usual(own_slot()) {
        Some(slot) => {
            slot.work_to_sleep(now(), HOOK.scale.load(Relaxed));
            slot
        }
        None => unusual_wait(),
    }
}

/// A wait is over. If the hook has been detached (and perhaps attached again) meanwhile, the slot's
/// generation is not the hook's: what the thread was doing is not known any more, and nothing is written.
#[inline(always)]
fn wait_ends(slot: *const Slot) {
    if slot.is_null() {
        return;
    }
    // SAFETY: what `wait_begins` returned: null or a slot of the table.
    let slot = unsafe { &*slot };
    // SLEEPING is WORKING + 1.
    if slot.low() == HOOK.working.load(Acquire).wrapping_add(1) {
        slot.sleep_to_work(now());
    } else {
        nested_wait_ends(slot);
    }
}

#[cold]
#[inline(never)]
fn nested_wait_ends(slot: &Slot) {
    if slot.generation() == HOOK.working.load(Acquire) >> 8 {
        let now = now();
        slot.blocked_to_work(now);
        if slot.low() & NESTED == 0 {
            slot.call_ends(now);
        }
    }
}

/// A blocking receive begins.
#[cold]
#[inline(never)]
fn receive_begins() -> *const Slot {
    let Some(slot) = timed_slot() else { return null() };
    let now = now();
    slot.work_to_blocked(now);
    if slot.low() & NESTED == 0 {
        slot.call_begins(now);
    }
    slot
}

/// The real function of a symbol.
macro_rules! real {
    ($symbol:expr, fn($($arg:ty),*) -> $ret:ty) => {{
        let address = HOOK.real[$symbol].load(Relaxed) as *const ();
        // SAFETY: set, before the GOT entry that leads here was, to a function of this C signature.
        unsafe { std::mem::transmute::<*const (), unsafe extern "C-unwind" fn($($arg),*) -> $ret>(address) }
    }};
}

/// A wait of libev, or `flux_pollevents`: `$real` is called with the arguments as they are. A wait with
/// time-out 0 does not wait: in a usual turn it ends a turn without a sleep, for one reading of the clock.
macro_rules! wait {
    ($max:expr, $immediate:expr, $real:expr) => {{
        if $immediate {
            if $max == POLLEVENTS {
                // SAFETY: the caller's arguments are passed on as they are.
                return unsafe { $real };
            }
            if let Some(slot) = usual(own_slot()) {
                slot.work_to_work(now(), HOOK.scale.load(Relaxed));
                // SAFETY: as above.
                return unsafe { $real };
            }
        }
        let slot = wait_begins();
        // SAFETY: as above.
        let rc = unsafe { $real };
        wait_ends(slot);
        rc
    }};
}

unsafe extern "C-unwind" fn epoll_wait(
    epfd: c_int,
    events: *mut c_void,
    max: c_int,
    timeout: c_int,
) -> c_int {
    let real = real!(EPOLL_WAIT, fn(c_int, *mut c_void, c_int, c_int) -> c_int);
    wait!(max, timeout == 0, real(epfd, events, max, timeout))
}

unsafe extern "C-unwind" fn epoll_pwait(
    epfd: c_int,
    events: *mut c_void,
    max: c_int,
    timeout: c_int,
    mask: *const c_void,
) -> c_int {
    let real = real!(EPOLL_PWAIT, fn(c_int, *mut c_void, c_int, c_int, *const c_void) -> c_int);
    wait!(max, timeout == 0, real(epfd, events, max, timeout, mask))
}

unsafe extern "C-unwind" fn epoll_pwait2(
    epfd: c_int,
    events: *mut c_void,
    max: c_int,
    timeout: *const libc::timespec,
    mask: *const c_void,
) -> c_int {
    let real =
        real!(EPOLL_PWAIT2, fn(c_int, *mut c_void, c_int, *const libc::timespec, *const c_void) -> c_int);
    // SAFETY: a timeout that is not NULL is a valid timespec by the function's contract.
    let immediate = !timeout.is_null() && unsafe { (*timeout).tv_sec == 0 && (*timeout).tv_nsec == 0 };
    wait!(max, immediate, real(epfd, events, max, timeout, mask))
}

/// libflux polls only to receive: with time-out 0 to look, else until a message is there.
unsafe extern "C-unwind" fn poll(fds: *mut c_void, count: c_ulong, timeout: c_int) -> c_int {
    let real = real!(POLL, fn(*mut c_void, c_ulong, c_int) -> c_int);
    if timeout == 0 {
        // SAFETY: the caller's arguments are passed on as they are.
        return unsafe { real(fds, count, timeout) };
    }
    let slot = receive_begins();
    // SAFETY: as above.
    let rc = unsafe { real(fds, count, timeout) };
    wait_ends(slot);
    rc
}

/// libflux calls `flux_reactor_run` through its own GOT only to wait inside a call (a synchronous RPC runs
/// a reactor of its own); the broker and the modules have GOTs of their own. So whatever comes by here is
/// nested, the outermost run never does.
unsafe extern "C-unwind" fn reactor_run(reactor: *mut c_void, flags: c_int) -> c_int {
    let real = real!(REACTOR_RUN, fn(*mut c_void, c_int) -> c_int);
    let Some(slot) = timed_slot() else {
        // SAFETY: the caller's arguments are passed on as they are.
        return unsafe { real(reactor, flags) };
    };
    let depth = slot.depth.load(Relaxed);
    slot.depth.store(depth.wrapping_add(1), Relaxed);
    if depth == 0 {
        slot.set_flag(NESTED, true);
        slot.call_begins(now());
    }
    // SAFETY: as above.
    let rc = unsafe { real(reactor, flags) };
    // Down again whatever the generation: up and down stay paired in this frame.
    slot.depth.store(depth, Relaxed);
    if depth == 0 {
        slot.set_flag(NESTED, false);
        if slot.generation() == HOOK.working.load(Acquire) >> 8 {
            slot.call_ends(now());
        }
    }
    rc
}
