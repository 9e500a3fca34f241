//! The loop: libev's, as far as anybody can tell from outside.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::rc::Rc;

/// Room for events in one wait: what tells a turn from the draining of a descriptor.
const EVENTS: usize = 64;
pub(crate) const NOWAIT: c_int = 1;
pub(crate) const ONCE: c_int = 2;
pub(crate) const POLLIN: c_int = 1;
pub(crate) const POLLOUT: c_int = 2;
pub(crate) const POLLERR: c_int = 4;

pub(crate) type Callback = unsafe extern "C" fn(*mut Reactor, *mut Watcher, c_int, *mut c_void);

unsafe extern "C-unwind" {
    // Through the GOT, where the probe's hook is; and a cancellation point, whose unwind may pass.
    fn epoll_wait(epfd: c_int, events: *mut libc::epoll_event, maxevents: c_int, timeout: c_int) -> c_int;
    /// Our own export, called through the GOT.
    #[link_name = "flux_reactor_create"]
    fn create_by_name(flags: c_int) -> *mut c_void;
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Timer { due: f64, repeat: f64 },
    Fd { fd: c_int, events: c_int },
    Prepare,
    Check,
    Idle,
}

pub struct Watcher {
    reactor: *mut Reactor,
    kind: Cell<Kind>,
    callback: Callback,
    argument: *mut c_void,
    active: Cell<bool>,
    referenced: Cell<bool>,
}

pub struct Reactor {
    epfd: c_int,
    watchers: RefCell<Vec<Rc<Watcher>>>,
    /// How to end, once stopped.
    stopped: Cell<Option<c_int>>,
    users: Cell<usize>,
}

pub(crate) fn now() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

impl Reactor {
    /// As libflux creates its own: by the exported function, which a preloaded one may stand in for.
    pub(crate) fn create_by_name() -> *mut Reactor {
        unsafe { create_by_name(0).cast() }
    }

    pub(crate) fn create() -> *mut Reactor {
        let epfd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        let (watchers, stopped, users) = (RefCell::default(), Cell::new(None), Cell::new(1));
        Box::into_raw(Box::new(Reactor { epfd, watchers, stopped, users }))
    }

    /// Gives one reference back.
    pub(crate) unsafe fn release(reactor: *mut Reactor) {
        let left = unsafe { (*reactor).users.get() } - 1;
        unsafe { (*reactor).users.set(left) };
        if left == 0 {
            unsafe {
                libc::close((*reactor).epfd);
                drop(Box::from_raw(reactor));
            }
        }
    }

    pub(crate) fn stop(&self, rc: c_int) {
        self.stopped.set(Some(rc));
    }

    pub(crate) fn watch(
        reactor: *mut Reactor,
        kind: Kind,
        callback: Callback,
        argument: *mut c_void,
    ) -> *mut Watcher {
        let (active, referenced) = (Cell::new(false), Cell::new(true));
        let watcher = Watcher { reactor, kind: Cell::new(kind), callback, argument, active, referenced };
        let watcher = Rc::new(watcher);
        let raw = Rc::as_ptr(&watcher).cast_mut();
        unsafe {
            (*reactor).users.set((*reactor).users.get() + 1);
            (*reactor).watchers.borrow_mut().push(watcher);
        }
        raw
    }

    fn active(&self, wanted: impl Fn(&Kind) -> bool) -> Vec<Rc<Watcher>> {
        let watchers = self.watchers.borrow();
        watchers.iter().filter(|w| w.active.get() && wanted(&w.kind.get())).cloned().collect()
    }

    fn fire(&self, watchers: &[Rc<Watcher>], revents: c_int) {
        for watcher in watchers.iter().filter(|watcher| watcher.active.get()) {
            unsafe {
                (watcher.callback)(watcher.reactor, Rc::as_ptr(watcher).cast_mut(), revents, watcher.argument)
            };
        }
    }

    /// How long to wait, in milliseconds; `None`: nothing keeps the loop.
    fn timeout(&self, flags: c_int) -> Option<c_int> {
        let watchers = self.watchers.borrow();
        let active = || watchers.iter().filter(|watcher| watcher.active.get());
        if !active().any(|watcher| watcher.referenced.get()) {
            return None;
        }
        if flags & NOWAIT != 0 || active().any(|watcher| watcher.kind.get() == Kind::Idle) {
            return Some(0);
        }
        let due = |watcher: &Rc<Watcher>| match watcher.kind.get() {
            Kind::Timer { due, .. } => Some(due),
            _ => None,
        };
        let next = active().filter_map(due).fold(f64::INFINITY, f64::min);
        let wait = (next - now()).max(0.0) * 1000.0;
        Some(if wait.is_finite() { wait.ceil().min(1e9) as c_int } else { -1 })
    }

    /// What follows a wait.
    fn after(&self, events: &[libc::epoll_event]) {
        self.fire(&self.active(|kind| *kind == Kind::Check), 0);
        for event in events {
            let (fd, bits) = (event.u64 as c_int, event.events);
            let flag = |bit: c_int, flag: c_int| if bits & bit as u32 != 0 { flag } else { 0 };
            let revents = flag(libc::EPOLLIN | libc::EPOLLHUP, POLLIN)
                | flag(libc::EPOLLOUT, POLLOUT)
                | flag(libc::EPOLLERR, POLLERR);
            let of_fd = |kind: &Kind| matches!(kind, Kind::Fd { fd: of, events } if *of == fd && events & revents != 0);
            self.fire(&self.active(of_fd), revents);
        }
        let time = now();
        for watcher in self.active(|kind| matches!(kind, Kind::Timer { due, .. } if *due <= time)) {
            if let Kind::Timer { due, repeat } = watcher.kind.get() {
                // As libev: the next time follows from the last, unless that has passed as well.
                if repeat > 0.0 {
                    watcher.kind.set(Kind::Timer { due: (due + repeat).max(time), repeat });
                } else {
                    watcher.active.set(false);
                }
                unsafe {
                    (watcher.callback)(watcher.reactor, Rc::as_ptr(&watcher).cast_mut(), 0, watcher.argument)
                };
            }
        }
        self.fire(&self.active(|kind| *kind == Kind::Idle), 0);
    }

    /// The descriptors that the loop waits for have changed.
    fn update(&self, fd: c_int) {
        let wanted = self.active(|kind| matches!(kind, Kind::Fd { fd: of, .. } if *of == fd)).iter().fold(
            0,
            |all, w| {
                all | match w.kind.get() {
                    Kind::Fd { events, .. } => events,
                    _ => 0,
                }
            },
        );
        let flag = |bit: c_int, flag: c_int| if wanted & bit != 0 { flag as u32 } else { 0 };
        let bits = flag(POLLIN, libc::EPOLLIN) | flag(POLLOUT, libc::EPOLLOUT);
        let mut event = libc::epoll_event { events: bits, u64: fd as u64 };
        unsafe {
            if wanted == 0 {
                libc::epoll_ctl(self.epfd, libc::EPOLL_CTL_DEL, fd, &mut event);
            } else if libc::epoll_ctl(self.epfd, libc::EPOLL_CTL_MOD, fd, &mut event) < 0 {
                libc::epoll_ctl(self.epfd, libc::EPOLL_CTL_ADD, fd, &mut event);
            }
        }
    }
}

/// Runs the loop. At the wait this frame owns nothing: cancellation unwinds through it.
pub(crate) unsafe extern "C-unwind" fn run(reactor: *mut Reactor, flags: c_int) -> c_int {
    let zero = libc::epoll_event { events: 0, u64: 0 };
    let mut events = [zero; EVENTS];
    unsafe {
        (*reactor).stopped.set(None);
        loop {
            prepare(reactor);
            if let Some(rc) = (*reactor).stopped.get() {
                return rc;
            }
            let Some(timeout) = (*reactor).timeout(flags) else { return 0 };
            let count = epoll_wait((*reactor).epfd, events.as_mut_ptr(), EVENTS as c_int, timeout);
            let count = usize::try_from(count).unwrap_or(0);
            (*reactor).after(&events[..count]);
            if let Some(rc) = (*reactor).stopped.get() {
                return rc;
            }
            if flags & (NOWAIT | ONCE) != 0 {
                return 0;
            }
        }
    }
}

unsafe fn prepare(reactor: *mut Reactor) {
    unsafe { (*reactor).fire(&(*reactor).active(|kind| *kind == Kind::Prepare), 0) };
}

impl Watcher {
    pub(crate) fn start(&self) {
        self.active.set(true);
        self.changed();
    }

    pub(crate) fn stop(&self) {
        self.active.set(false);
        self.changed();
    }

    fn changed(&self) {
        if let Kind::Fd { fd, .. } = self.kind.get() {
            unsafe { (*self.reactor).update(fd) };
        }
    }

    pub(crate) fn set_timer(&self, after: f64, repeat: f64) {
        if matches!(self.kind.get(), Kind::Timer { .. }) {
            self.kind.set(Kind::Timer { due: now() + after, repeat });
        }
    }

    pub(crate) fn set_events(&self, wanted: c_int) {
        if let Kind::Fd { fd, events } = self.kind.get()
            && events != wanted
        {
            self.kind.set(Kind::Fd { fd, events: wanted });
            self.changed();
        }
    }

    pub(crate) fn set_referenced(&self, referenced: bool) {
        self.referenced.set(referenced);
    }

    pub(crate) unsafe fn destroy(watcher: *mut Watcher) {
        unsafe {
            (*watcher).stop();
            let reactor = (*watcher).reactor;
            (*reactor).watchers.borrow_mut().retain(|present| !std::ptr::eq(Rc::as_ptr(present), watcher));
            Reactor::release(reactor);
        }
    }
}
