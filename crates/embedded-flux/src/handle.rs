//! A connection to a broker, with the handlers and futures that hang on it. All of it belongs to one thread.

use crate::message::{self, EVENT, Message, NODEID_ANY, NODEID_UPSTREAM, REQUEST, RESPONSE, ROLE_OWNER};
use crate::reactor::{Kind, POLLIN, Reactor, Watcher};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::ffi::{CString, c_char, c_int, c_void};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

pub(crate) type Free = unsafe extern "C" fn(*mut c_void);
pub(crate) type HandlerCallback =
    unsafe extern "C" fn(*mut Handle, *mut Handler, *const Message, *mut c_void);
pub(crate) type Continuation = unsafe extern "C" fn(*mut Future, *mut c_void);

unsafe extern "C-unwind" {
    /// Our own export, called through the GOT as libflux calls it: a hook there sees synchronous waits.
    #[link_name = "flux_reactor_run"]
    fn nested_run(reactor: *mut c_void, flags: c_int) -> c_int;
}

struct Aux {
    name: Option<CString>,
    item: *mut c_void,
    free: Option<Free>,
}

pub struct Handler {
    handle: *mut Handle,
    typemask: c_int,
    topic: String,
    callback: HandlerCallback,
    argument: *mut c_void,
    roles: Cell<u32>,
    active: Cell<bool>,
}

pub struct Handle {
    stream: UnixStream,
    input: RefCell<Vec<u8>>,
    reactor: Cell<*mut Reactor>,
    watcher: Cell<*mut Watcher>,
    /// Fires when messages wait that came during a synchronous wait.
    catch_up: Cell<*mut Watcher>,
    deferred: RefCell<VecDeque<Rc<Message>>>,
    handlers: RefCell<Vec<Rc<Handler>>>,
    futures: RefCell<HashMap<u32, *mut Future>>,
    tags: Cell<u32>,
    waits: Cell<u32>,
    aux: RefCell<VecDeque<Aux>>,
    attributes: RefCell<HashMap<String, Option<CString>>>,
    pub(crate) userid: Cell<u32>,
    pub(crate) rolemask: Cell<u32>,
    /// Messages sent and received, by kind: requests, responses, events, control.
    pub(crate) counters: Cell<[[u32; 4]; 2]>,
}

pub struct Future {
    handle: *mut Handle,
    matchtag: u32,
    results: VecDeque<Rc<Message>>,
    error: Option<(i32, CString)>,
    then: Option<(Continuation, *mut c_void)>,
    timer: *mut Watcher,
    /// The reactor of the synchronous wait that is under way.
    waiting: *mut Reactor,
}

pub(crate) fn set_errno(errnum: c_int) -> c_int {
    unsafe { *libc::__errno_location() = errnum };
    -1
}

impl Handle {
    pub(crate) fn new(stream: UnixStream) -> *mut Handle {
        Box::into_raw(Box::new(Handle {
            stream,
            input: RefCell::default(),
            reactor: Cell::new(std::ptr::null_mut()),
            watcher: Cell::new(std::ptr::null_mut()),
            catch_up: Cell::new(std::ptr::null_mut()),
            deferred: RefCell::default(),
            handlers: RefCell::default(),
            futures: RefCell::default(),
            tags: Cell::new(0),
            waits: Cell::new(0),
            aux: RefCell::default(),
            attributes: RefCell::default(),
            userid: Cell::new(unsafe { libc::getuid() }),
            rolemask: Cell::new(ROLE_OWNER),
            counters: Cell::default(),
        }))
    }

    fn raw(&self) -> *mut Handle {
        std::ptr::from_ref(self).cast_mut()
    }

    /// The reactor, created with the first call.
    pub(crate) fn reactor(&self) -> *mut Reactor {
        if self.reactor.get().is_null() {
            self.set_reactor(Reactor::create_by_name());
        }
        self.reactor.get()
    }

    pub(crate) fn set_reactor(&self, reactor: *mut Reactor) {
        self.reactor.set(reactor);
        let kind = Kind::Fd { fd: self.stream.as_raw_fd(), events: POLLIN };
        let watcher = Reactor::watch(reactor, kind, readable, self.raw().cast());
        let catch_up = Reactor::watch(reactor, Kind::Idle, catch_up, self.raw().cast());
        unsafe { (*watcher).start() };
        self.watcher.set(watcher);
        self.catch_up.set(catch_up);
    }

    pub(crate) fn has_reactor(&self) -> bool {
        !self.reactor.get().is_null()
    }

    fn count(&self, received: bool, kind: u8) {
        let mut counters = self.counters.get();
        let index = (kind.trailing_zeros() as usize).min(3);
        let sum = &mut counters[usize::from(received)][index];
        *sum = sum.wrapping_add(1);
        self.counters.set(counters);
    }

    pub(crate) fn send(&self, message: &Message) -> c_int {
        self.count(false, message.kind);
        match (&self.stream).write_all(&message.encode()) {
            Ok(()) => 0,
            Err(_) => set_errno(libc::EHOSTUNREACH),
        }
    }

    /// Reads what is there, waiting for something if there is nothing.
    fn receive(&self) {
        let mut buffer = [0; 65_536];
        let count = match (&self.stream).read(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => return,
            Err(_) => 0,
        };
        if count == 0 {
            return self.lost();
        }
        self.input.borrow_mut().extend_from_slice(&buffer[..count]);
        loop {
            let message = message::take(&mut self.input.borrow_mut());
            match message {
                Ok(Some(message)) => self.take(Rc::new(message.for_c())),
                Ok(None) => return,
                Err(()) => return self.lost(),
            }
        }
    }

    /// The broker is gone.
    fn lost(&self) {
        let futures: Vec<*mut Future> = self.futures.borrow_mut().drain().map(|(_, future)| future).collect();
        futures
            .into_iter()
            .for_each(|future| unsafe { Future::fail(future, libc::EHOSTUNREACH, "broker is gone") });
        if self.has_reactor() {
            unsafe {
                (*self.watcher.get()).stop();
                (*self.reactor.get()).stop(-1);
            }
        }
    }

    fn take(&self, message: Rc<Message>) {
        self.count(true, message.kind);
        if message.kind == RESPONSE {
            let future = self.futures.borrow().get(&message.matchtag).copied();
            if let Some(future) = future {
                unsafe { Future::fulfill(future, message) };
            }
        } else if self.waits.get() > 0 {
            self.deferred.borrow_mut().push_back(message);
        } else {
            self.handle(&message);
        }
    }

    fn handle(&self, message: &Rc<Message>) {
        let matching = |handler: &&Rc<Handler>| {
            handler.active.get()
                && handler.typemask & c_int::from(message.kind) != 0
                && handler.topic == message.topic
        };
        // The newest goes first: a module's own before the defaults. An event reaches all.
        let found: Vec<Rc<Handler>> = self.handlers.borrow().iter().rev().filter(matching).cloned().collect();
        let wanted = if message.kind == EVENT { found.len() } else { 1 };
        for handler in found.iter().take(wanted) {
            if handler.roles.get() & message.rolemask == 0 {
                if message.kind == REQUEST {
                    self.respond(
                        message,
                        libc::EPERM,
                        Some(b"Request requires owner credentials\0".to_vec()),
                    );
                }
                continue;
            }
            let raw = Rc::as_ptr(handler).cast_mut();
            unsafe { (handler.callback)(self.raw(), raw, Rc::as_ptr(message), handler.argument) };
        }
        if found.is_empty() && message.kind == REQUEST {
            let text = format!("Unknown service method {}\0", message.topic);
            self.respond(message, libc::ENOSYS, Some(text.into_bytes()));
        }
    }

    pub(crate) fn respond(&self, request: &Message, errnum: i32, payload: Option<Vec<u8>>) -> c_int {
        if request.noresponse { 0 } else { self.send(&request.response(errnum, payload)) }
    }

    /// Answers with ENOSYS what nobody will handle any more.
    pub(crate) fn drain(&self) {
        self.handlers.borrow_mut().clear();
        let deferred = std::mem::take(&mut *self.deferred.borrow_mut());
        deferred.iter().for_each(|message| self.handle(message));
        let _ = self.stream.set_nonblocking(true);
        loop {
            let before = self.input.borrow().len();
            let mut buffer = [0; 65_536];
            let Ok(count) = (&self.stream).read(&mut buffer) else { break };
            if count == 0 {
                break;
            }
            self.input.borrow_mut().extend_from_slice(&buffer[..count]);
            while let Ok(Some(message)) = message::take(&mut self.input.borrow_mut()) {
                self.handle(&Rc::new(message.for_c()));
            }
            if self.input.borrow().len() == before {
                break;
            }
        }
        let _ = self.stream.set_nonblocking(false);
    }

    pub(crate) fn add_handler(
        &self,
        typemask: c_int,
        topic: &str,
        callback: HandlerCallback,
        argument: *mut c_void,
        roles: u32,
    ) -> *mut Handler {
        let (roles, active) = (Cell::new(roles | ROLE_OWNER), Cell::new(false));
        let topic = topic.to_owned();
        let handler =
            Rc::new(Handler { handle: self.raw(), typemask, topic, callback, argument, roles, active });
        let raw = Rc::as_ptr(&handler).cast_mut();
        self.handlers.borrow_mut().push(handler);
        self.reactor();
        raw
    }

    /// Sends a request; `flags` as FLUX_RPC_NORESPONSE (1) and FLUX_RPC_STREAMING (2).
    pub(crate) fn rpc(
        &self,
        topic: &str,
        payload: Option<Vec<u8>>,
        nodeid: u32,
        flags: c_int,
    ) -> *mut Future {
        let mut request = Message::new(REQUEST, topic, payload);
        (request.userid, request.rolemask) = (self.userid.get(), self.rolemask.get());
        request.noresponse = flags & 1 != 0;
        request.streaming = flags & 2 != 0;
        request.upstream = nodeid == NODEID_UPSTREAM;
        request.nodeid = nodeid;
        self.tags.set(self.tags.get().wrapping_add(1).max(1));
        request.matchtag = if request.noresponse { 0 } else { self.tags.get() };
        let future = Box::into_raw(Box::new(Future {
            handle: self.raw(),
            matchtag: request.matchtag,
            results: VecDeque::new(),
            error: None,
            then: None,
            timer: std::ptr::null_mut(),
            waiting: std::ptr::null_mut(),
        }));
        if request.noresponse {
            unsafe { (*future).results.push_back(Rc::new(Message::default())) };
        } else {
            self.futures.borrow_mut().insert(request.matchtag, future);
        }
        if self.send(&request) < 0 {
            unsafe { Future::destroy(future) };
            return std::ptr::null_mut();
        }
        future
    }

    /// A broker attribute, asked for once.
    pub(crate) fn attribute(&self, name: &str) -> Option<*const c_char> {
        if !self.attributes.borrow().contains_key(name) {
            let payload = serde_json::json!({ "name": name }).to_string();
            let future = self.rpc("attr.get", Some(message::with_nul(&payload)), NODEID_ANY, 0);
            let value = (!future.is_null()).then(|| unsafe {
                Future::wait(future, -1.0);
                let value = (*future)
                    .results
                    .front()
                    .filter(|response| response.errnum == 0)
                    .and_then(|response| CString::new(response.json()["value"].as_str()?).ok());
                Future::destroy(future);
                value
            });
            self.attributes.borrow_mut().insert(name.to_owned(), value.flatten());
        }
        self.attributes.borrow().get(name)?.as_ref().map(|value| value.as_ptr())
    }

    pub(crate) fn aux_get(&self, name: &CString) -> *mut c_void {
        let aux = self.aux.borrow();
        let found = aux.iter().find(|aux| aux.name.as_ref() == Some(name));
        found.map_or(std::ptr::null_mut(), |aux| aux.item)
    }

    /// A named item goes before all others, and replaces one of the same name; a null item removes it.
    pub(crate) fn aux_set(&self, name: Option<CString>, item: *mut c_void, free: Option<Free>) {
        let position = self.aux.borrow().iter().position(|aux| name.is_some() && aux.name == name);
        let replaced = position.and_then(|position| self.aux.borrow_mut().remove(position));
        if !item.is_null() {
            let named = name.is_some();
            let aux = Aux { name, item, free };
            if named { self.aux.borrow_mut().push_front(aux) } else { self.aux.borrow_mut().push_back(aux) }
        }
        release(replaced);
    }

    pub(crate) unsafe fn close(handle: *mut Handle) {
        unsafe {
            loop {
                let next = (*handle).aux.borrow_mut().pop_front();
                if next.is_none() {
                    break;
                }
                release(next);
            }
            if (*handle).has_reactor() {
                Watcher::destroy((*handle).watcher.get());
                Watcher::destroy((*handle).catch_up.get());
                Reactor::release((*handle).reactor.get());
            }
            drop(Box::from_raw(handle));
        }
    }
}

fn release(aux: Option<Aux>) {
    if let Some(Aux { item, free: Some(free), .. }) = aux {
        unsafe { free(item) };
    }
}

unsafe extern "C" fn readable(_: *mut Reactor, _: *mut Watcher, _: c_int, handle: *mut c_void) {
    unsafe { (*handle.cast::<Handle>()).receive() };
}

unsafe extern "C" fn catch_up(_: *mut Reactor, watcher: *mut Watcher, _: c_int, handle: *mut c_void) {
    unsafe {
        let handle = &*handle.cast::<Handle>();
        let next = handle.deferred.borrow_mut().pop_front();
        match next {
            Some(message) => handle.handle(&message),
            None => (*watcher).stop(),
        }
    }
}

impl Handler {
    pub(crate) fn set_active(&self, active: bool) {
        self.active.set(active);
    }

    pub(crate) fn allow(&self, roles: u32) {
        self.roles.set(self.roles.get() | roles);
    }

    pub(crate) unsafe fn destroy(handler: *mut Handler) {
        unsafe {
            let handle = (*handler).handle;
            (*handle).handlers.borrow_mut().retain(|present| !std::ptr::eq(Rc::as_ptr(present), handler));
        }
    }
}

impl Future {
    pub(crate) fn matchtag(&self) -> u32 {
        self.matchtag
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.error.is_some() || !self.results.is_empty()
    }

    unsafe fn fulfill(future: *mut Future, message: Rc<Message>) {
        unsafe {
            (*future).results.push_back(message);
            Future::ready(future);
        }
    }

    unsafe fn fail(future: *mut Future, errnum: i32, text: &str) {
        unsafe {
            (*future).error = Some((errnum, CString::new(text).unwrap_or_default()));
            Future::ready(future);
        }
    }

    unsafe fn ready(future: *mut Future) {
        unsafe {
            if !(*future).waiting.is_null() {
                (*(*future).waiting).stop(0);
            } else if let Some((continuation, argument)) = (*future).then {
                // May destroy the future: nothing of it is touched afterwards.
                continuation(future, argument);
            }
        }
    }

    pub(crate) unsafe fn then(
        future: *mut Future,
        timeout: f64,
        continuation: Continuation,
        argument: *mut c_void,
    ) {
        unsafe {
            (*future).then = Some((continuation, argument));
            let after = if (*future).is_ready() { 0.0 } else { timeout };
            if after >= 0.0 {
                let reactor = (*(*future).handle).reactor();
                let kind = Kind::Timer { due: crate::reactor::now() + after, repeat: 0.0 };
                (*future).timer = Reactor::watch(reactor, kind, then_timer, future.cast());
                (*(*future).timer).start();
            } else {
                (*(*future).handle).reactor();
            }
        }
    }

    /// Waits in a reactor of its own; messages that are not for the future wait until it ends.
    pub(crate) unsafe fn wait(future: *mut Future, timeout: f64) -> c_int {
        unsafe {
            if (*future).is_ready() {
                return 0;
            }
            if timeout == 0.0 {
                return set_errno(libc::ETIMEDOUT);
            }
            let handle = &*(*future).handle;
            let reactor = Reactor::create_by_name();
            let kind = Kind::Fd { fd: handle.stream.as_raw_fd(), events: POLLIN };
            let readable = Reactor::watch(reactor, kind, readable, handle.raw().cast());
            (*readable).start();
            let kind = Kind::Timer { due: crate::reactor::now() + timeout, repeat: 0.0 };
            let timer = Reactor::watch(reactor, kind, wait_timer, reactor.cast());
            if timeout > 0.0 {
                (*timer).start();
            }
            (*future).waiting = reactor;
            handle.waits.set(handle.waits.get() + 1);
            nested_run(reactor.cast(), 0);
            handle.waits.set(handle.waits.get() - 1);
            (*future).waiting = std::ptr::null_mut();
            Watcher::destroy(timer);
            Watcher::destroy(readable);
            Reactor::release(reactor);
            if !handle.deferred.borrow().is_empty() && handle.has_reactor() {
                (*handle.catch_up.get()).start();
            }
            if (*future).is_ready() { 0 } else { set_errno(libc::ETIMEDOUT) }
        }
    }

    /// The result, waited for if need be; `Err` has set errno.
    pub(crate) unsafe fn result<'a>(future: *mut Future) -> Result<&'a Rc<Message>, ()> {
        unsafe {
            Future::wait(future, -1.0);
            if let Some((errnum, _)) = &(*future).error {
                set_errno(*errnum);
                return Err(());
            }
            let results: &'a VecDeque<Rc<Message>> = &(*future).results;
            match results.front() {
                Some(message) if message.errnum == 0 => Ok(message),
                Some(message) => {
                    set_errno(message.errnum);
                    Err(())
                }
                None => {
                    set_errno(libc::EDEADLK);
                    Err(())
                }
            }
        }
    }

    /// The text of an error, if there is one.
    pub(crate) fn error_text(&self) -> Option<*const c_char> {
        if let Some((_, text)) = &self.error {
            return Some(text.as_ptr());
        }
        let failed = self.results.front().filter(|response| response.errnum != 0)?;
        failed.payload.as_ref().filter(|text| text.ends_with(b"\0")).map(|text| text.as_ptr().cast())
    }

    /// Back to waiting for the next result of a stream.
    pub(crate) fn reset(&mut self) {
        self.results.pop_front();
    }

    pub(crate) unsafe fn destroy(future: *mut Future) {
        unsafe {
            (*(*future).handle).futures.borrow_mut().remove(&(*future).matchtag);
            if !(*future).timer.is_null() {
                Watcher::destroy((*future).timer);
            }
            drop(Box::from_raw(future));
        }
    }
}

unsafe extern "C" fn then_timer(_: *mut Reactor, _: *mut Watcher, _: c_int, future: *mut c_void) {
    let future = future.cast::<Future>();
    unsafe {
        if !(*future).is_ready() {
            (*future).error = Some((libc::ETIMEDOUT, c"Connection timed out".to_owned()));
        }
        Future::ready(future);
    }
}

unsafe extern "C" fn wait_timer(_: *mut Reactor, _: *mut Watcher, _: c_int, reactor: *mut c_void) {
    unsafe { (*reactor.cast::<Reactor>()).stop(0) };
}
