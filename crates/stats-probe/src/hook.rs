//! What runs in place of a wait. The rules of this file: no `Drop`, no panic, no allocation, no lock, no landing pad,
//! `errno` as the wait left it. `pthread_cancel` unwinds from the wait through these frames.

use crate::slot::{self, Slot, State};
use libc::{c_int, epoll_event, nfds_t, pollfd, sigset_t, timespec};
use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

/// What was in the GOT entries before: where the hooks go on to.
pub(crate) static EPOLL_WAIT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
pub(crate) static EPOLL_PWAIT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
pub(crate) static EPOLL_PWAIT2: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
pub(crate) static POLL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
pub(crate) static REACTOR_RUN: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// The attach in force; zero: none, the hooks only pass on.
pub(crate) static GENERATION: AtomicU32 = AtomicU32::new(0);
/// Waits of threads for which the table had no slot.
pub(crate) static UNTIMED: AtomicU64 = AtomicU64::new(0);

type EpollWait = unsafe extern "C-unwind" fn(c_int, *mut epoll_event, c_int, c_int) -> c_int;
type EpollPwait =
    unsafe extern "C-unwind" fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int;
type EpollPwait2 =
    unsafe extern "C-unwind" fn(c_int, *mut epoll_event, c_int, *const timespec, *const sigset_t) -> c_int;
type Poll = unsafe extern "C-unwind" fn(*mut pollfd, nfds_t, c_int) -> c_int;
type ReactorRun = unsafe extern "C-unwind" fn(*mut c_void, c_int) -> c_int;

thread_local! {
    /// This thread's slot; without a destructor, so that nothing is registered.
    static SLOT: Cell<Option<&'static Slot>> = const { Cell::new(None) };
    /// The attach in which the table had no slot for this thread: it is not asked again.
    static REFUSED: Cell<u32> = const { Cell::new(0) };
}

/// CLOCK_MONOTONIC, read in user space.
pub(crate) fn now_ns() -> u64 {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a clock that every Linux has, and a valid place for its time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// This thread's slot in the attach in force.
#[inline]
fn own_slot(generation: u32) -> Option<&'static Slot> {
    match SLOT.get() {
        Some(slot) if slot.generation() == generation => Some(slot),
        _ => first_slot(generation),
    }
}

/// The thread's first wait under this attach.
#[cold]
#[inline(never)]
fn first_slot(generation: u32) -> Option<&'static Slot> {
    if REFUSED.get() == generation {
        UNTIMED.fetch_add(1, Relaxed);
        return None;
    }
    // SAFETY: a system call without arguments.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
    // A thread that comes here before any sampler has seen it has been working since it began.
    let slot = slot::claim(tid, generation, State::Work, now_ns());
    if slot.is_none() {
        REFUSED.set(generation);
    }
    SLOT.set(slot);
    slot
}

/// Begins to time a wait, which is of the kind `outermost` unless a nested reactor is under way. `None`: just wait.
#[inline]
fn enter(outermost: State) -> Option<(&'static Slot, State, u32)> {
    let generation = GENERATION.load(Acquire);
    if generation == 0 {
        return None;
    }
    let slot = own_slot(generation)?;
    let kind = if slot.depth() > 0 { State::Blocked } else { outermost };
    slot.enter_wait(kind, now_ns());
    Some((slot, kind, generation))
}

#[inline]
fn leave(entered: Option<(&'static Slot, State, u32)>) {
    if let Some((slot, kind, generation)) = entered {
        // Opened anew while this thread slept, for an attach that has its own account of that sleep.
        if slot.generation() == generation {
            // The clock is read without a system call, so errno stays; no other call is made here.
            slot.leave_wait(kind, now_ns());
        }
    }
}

/// A wait of libev, or libflux draining a handle's descriptor, which is told by its arguments and is no wait.
#[inline]
fn is_drain(maxevents: c_int, no_wait: bool) -> bool {
    maxevents == 1 && no_wait
}

/// # Safety
/// As `epoll_wait`; only called through an entry whose former content is in [`EPOLL_WAIT`].
pub(crate) unsafe extern "C-unwind" fn epoll_wait(
    epfd: c_int,
    events: *mut epoll_event,
    maxevents: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: stored before the entry led here, and of this type.
    let next: EpollWait = unsafe { std::mem::transmute(EPOLL_WAIT.load(Acquire)) };
    let entered = if is_drain(maxevents, timeout == 0) { None } else { enter(State::Sleep) };
    // SAFETY: the caller's own arguments.
    let rc = unsafe { next(epfd, events, maxevents, timeout) };
    leave(entered);
    rc
}

/// # Safety
/// As `epoll_pwait`; see [`epoll_wait`].
pub(crate) unsafe extern "C-unwind" fn epoll_pwait(
    epfd: c_int,
    events: *mut epoll_event,
    maxevents: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: stored before the entry led here, and of this type.
    let next: EpollPwait = unsafe { std::mem::transmute(EPOLL_PWAIT.load(Acquire)) };
    let entered = if is_drain(maxevents, timeout == 0) { None } else { enter(State::Sleep) };
    // SAFETY: the caller's own arguments.
    let rc = unsafe { next(epfd, events, maxevents, timeout, mask) };
    leave(entered);
    rc
}

/// # Safety
/// As `epoll_pwait2`; see [`epoll_wait`].
pub(crate) unsafe extern "C-unwind" fn epoll_pwait2(
    epfd: c_int,
    events: *mut epoll_event,
    maxevents: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: stored before the entry led here, and of this type.
    let next: EpollPwait2 = unsafe { std::mem::transmute(EPOLL_PWAIT2.load(Acquire)) };
    // SAFETY: null (no limit), or the caller's valid timeout.
    let no_wait = unsafe { timeout.as_ref() }.is_some_and(|t| t.tv_sec == 0 && t.tv_nsec == 0);
    let entered = if is_drain(maxevents, no_wait) { None } else { enter(State::Sleep) };
    // SAFETY: the caller's own arguments.
    let rc = unsafe { next(epfd, events, maxevents, timeout, mask) };
    leave(entered);
    rc
}

/// A blocking receive waits in `poll`.
///
/// # Safety
/// As `poll`; see [`epoll_wait`].
pub(crate) unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: stored before the entry led here, and of this type.
    let next: Poll = unsafe { std::mem::transmute(POLL.load(Acquire)) };
    let entered = if timeout == 0 { None } else { enter(State::Blocked) };
    // SAFETY: the caller's own arguments.
    let rc = unsafe { next(fds, count, timeout) };
    leave(entered);
    rc
}

/// libflux running a reactor inside one: a synchronous wait.
///
/// # Safety
/// As `flux_reactor_run`; see [`epoll_wait`].
pub(crate) unsafe extern "C-unwind" fn reactor_run(reactor: *mut c_void, flags: c_int) -> c_int {
    // SAFETY: stored before the entry led here, and of this type.
    let next: ReactorRun = unsafe { std::mem::transmute(REACTOR_RUN.load(Acquire)) };
    let generation = GENERATION.load(Acquire);
    let slot = if generation == 0 { None } else { own_slot(generation) };
    if let Some(slot) = slot {
        slot.set_depth(slot.depth().wrapping_add(1));
    }
    // SAFETY: the caller's own arguments.
    let rc = unsafe { next(reactor, flags) };
    if let Some(slot) = slot {
        slot.set_depth(slot.depth().saturating_sub(1));
    }
    rc
}

/// The hooks by symbol: what is put into a GOT entry, and where its former content is kept.
pub(crate) fn hooks() -> [(&'static str, *mut c_void, &'static AtomicPtr<c_void>); 5] {
    [
        ("epoll_wait", epoll_wait as *mut c_void, &EPOLL_WAIT),
        ("epoll_pwait", epoll_pwait as *mut c_void, &EPOLL_PWAIT),
        ("epoll_pwait2", epoll_pwait2 as *mut c_void, &EPOLL_PWAIT2),
        ("poll", poll as *mut c_void, &POLL),
        ("flux_reactor_run", reactor_run as *mut c_void, &REACTOR_RUN),
    ]
}
