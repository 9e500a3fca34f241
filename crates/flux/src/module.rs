//! What a module is to its author: the trait, and the scope through which it reaches its broker.

mod life;

use crate::boundary::{NoCancel, Panics};
use crate::error::{Error, Result};
use crate::handle::{Handle, Level, Node, c_string};
use crate::message::{Event, KeptRequest, Request};
use crate::method::{Call, Method};
use crate::reactor::{Interest, Watcher, reactor_of};
use crate::reserve::{Reserve, afford_json};
use crate::rpc::{Future, Payload, PendingRpc, Reply};
use flux_sys::{flux_match, flux_msg_handler_t, flux_msg_t, flux_t};
pub use life::main;
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::ops::Deref;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// A broker module. [`module!`](crate::module!) makes it loadable.
pub trait Module: Sized + 'static {
    /// Makes the module from its arguments, one word each as given to `flux module load`. An error refuses the load
    /// and is written to the broker's log, since `flux module load` itself shows little more than the number.
    fn load(scope: &Scope<Self>, arguments: &[String]) -> Result<Self>;

    /// The requests and events that the module takes.
    fn methods() -> Vec<Method<Self>>;

    /// The module has been asked to end. With `Some(time)` its reactor runs on for at most that time, so that
    /// responses still arrive and requests are still answered; [`Scope::finish`] ends it earlier.
    fn unload(&mut self, scope: &Scope<Self>) -> Option<Duration> {
        let _ = scope;
        None
    }

    /// The module is about to be dropped: its farewell is over, or its thread is cancelled and there is none.
    fn ended(&mut self, scope: &Scope<Self>) {
        let _ = scope;
    }
}

/// What is shared between a module and its callbacks.
struct Core<T: 'static> {
    handle: Handle,
    name: String,
    panics: Panics,
    /// `None` before `load` has returned, and from the moment that the module is being dropped.
    state: RefCell<Option<T>>,
    methods: RefCell<Vec<Registered<T>>>,
    /// Asked to end: the farewell has begun.
    ending: Cell<bool>,
    /// Bounds the farewell.
    farewell: RefCell<Option<Watcher>>,
    /// Where the thread may be cancelled.
    cancellation: RefCell<Option<[Watcher; 2]>>,
    reserve: &'static Reserve,
    /// The reserve is spent, and the end under way.
    exhausted: Cell<bool>,
    alive: Rc<()>,
}

/// A method known to libflux. Boxed, since libflux keeps its address.
struct Registered<T: 'static> {
    raw: *mut flux_msg_handler_t,
    _entry: Box<Entry<T>>,
}

struct Entry<T: 'static> {
    core: Weak<Core<T>>,
    topic: String,
    call: Call<T>,
}

/// What a module's callbacks get beside the module itself: its handle, its name, and the making of timers,
/// watchers and requests whose callbacks get the module in turn. Cheap to clone.
pub struct Scope<T: 'static> {
    core: Weak<Core<T>>,
    handle: Handle,
}

impl<T> Deref for Scope<T> {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl<T: 'static> Scope<T> {
    fn of(core: &Rc<Core<T>>) -> Self {
        Scope { core: Rc::downgrade(core), handle: core.borrow_handle() }
    }

    fn core(&self) -> Result<Rc<Core<T>>> {
        self.core.upgrade().ok_or_else(|| Error::new(libc::ESHUTDOWN, "the module has ended"))
    }

    /// The name under which the module was loaded: the first part of its topics.
    pub fn name(&self) -> String {
        self.core().map_or_else(|_| String::new(), |core| core.name.clone())
    }

    /// How many panics of this module were caught.
    pub fn panics(&self) -> u64 {
        self.core().map_or(0, |core| core.panics.caught())
    }

    /// Calls `callback` `after` that time, and every `repeat` from then on unless it is zero.
    pub fn timer(
        &self,
        after: Duration,
        repeat: Duration,
        callback: impl FnMut(&mut T, &Scope<T>) + 'static,
    ) -> Result<Watcher> {
        let body = self.with_module("a timer", callback);
        Watcher::timer(&self.handle, after, repeat, body)
    }

    /// Calls `callback` whenever `fd` is ready for `interest`. The descriptor stays the caller's.
    pub fn watch_fd(
        &self,
        fd: RawFd,
        interest: Interest,
        callback: impl FnMut(&mut T, &Scope<T>) + 'static,
    ) -> Result<Watcher> {
        let body = self.with_module("a descriptor", callback);
        Watcher::fd(&self.handle, fd, interest, body)
    }

    fn with_module(
        &self,
        what: &'static str,
        mut callback: impl FnMut(&mut T, &Scope<T>) + 'static,
    ) -> impl FnMut(c_int) + 'static {
        let core = self.core.clone();
        move |_revents| {
            if let Some(core) = core.upgrade() {
                core.enter(what, |module, scope| callback(module, scope));
            }
        }
    }

    /// Sends a request; `continuation` gets the response, or `ETIMEDOUT` after `timeout`.
    pub fn request(
        &self,
        topic: &str,
        payload: Payload<'_>,
        node: Node,
        timeout: Option<Duration>,
        continuation: impl FnOnce(&mut T, &Scope<T>, Result<Reply>) + 'static,
    ) -> Result<PendingRpc> {
        let future = Future::request(&self.handle, topic, payload, node, 0)?;
        self.await_with(future, format!("the response to {topic}"), timeout, continuation)
    }

    /// Publishes an event, with a JSON object or nothing; `continuation` learns whether it went out.
    pub fn publish(
        &self,
        topic: &str,
        payload: Option<&serde_json::Value>,
        timeout: Option<Duration>,
        continuation: impl FnOnce(&mut T, &Scope<T>, Result<Reply>) + 'static,
    ) -> Result<PendingRpc> {
        let future = Future::publication(&self.handle, topic, payload)?;
        self.await_with(future, format!("the publication of {topic}"), timeout, continuation)
    }

    fn await_with(
        &self,
        future: Future,
        what: String,
        timeout: Option<Duration>,
        continuation: impl FnOnce(&mut T, &Scope<T>, Result<Reply>) + 'static,
    ) -> Result<PendingRpc> {
        let (core, weak) = (self.core()?, self.core.clone());
        PendingRpc::await_with(future, &core.alive, timeout, move |reply| {
            if let Some(core) = weak.upgrade() {
                let reply = reply.and_then(|reply| afford_json(reply.raw().len()).map(|()| reply));
                core.enter(&what, |module, scope| continuation(module, scope, reply));
            }
        })
    }

    /// Keeps a request beyond its handler, which then returns [`Answer::Later`](crate::Answer::Later).
    pub fn keep(&self, request: &Request<'_>) -> Result<KeptRequest> {
        Ok(request.keep(Rc::downgrade(&self.core()?.alive)))
    }

    /// Whether the module has been asked to end.
    pub fn ending(&self) -> bool {
        self.core().is_ok_and(|core| core.ending.get())
    }

    /// Whether an allocation has failed, for which the module ends: nothing large should be begun any more.
    pub fn exhausted(&self) -> bool {
        self.core().is_ok_and(|core| core.reserve.is_spent())
    }

    /// Ends the farewell that [`Module::unload`] asked for: everything is said.
    pub fn finish(&self) {
        if self.ending() {
            self.stop_reactor();
        }
    }

    fn stop_reactor(&self) {
        if let Ok(reactor) = reactor_of(&self.handle) {
            // SAFETY: the live reactor of a live handle.
            unsafe { self.handle.libflux().flux_reactor_stop(reactor.as_ptr()) };
        }
    }
}

impl<T> Clone for Scope<T> {
    fn clone(&self) -> Self {
        // SAFETY: the same handle, of the same thread; a scope is only used while its module lives, see `core`.
        let handle =
            unsafe { Handle::borrow(NonNull::new_unchecked(self.handle.raw()), self.handle.libflux()) };
        Scope { core: self.core.clone(), handle }
    }
}

impl<T: 'static> Core<T> {
    fn borrow_handle(&self) -> Handle {
        // SAFETY: the same handle, of the same thread.
        unsafe { Handle::borrow(NonNull::new_unchecked(self.handle.raw()), self.handle.libflux()) }
    }

    /// Gives `body` the module. `None` when it panicked, or when there is no module: not yet, no more, or busy (a
    /// callback that runs a reactor of its own gets no second callback of the same module).
    fn enter<R>(self: &Rc<Self>, what: &str, body: impl FnOnce(&mut T, &Scope<T>) -> R) -> Option<R> {
        let scope = Scope::of(self);
        let mut state = self.state.try_borrow_mut().ok()?;
        let module = state.as_mut()?;
        let result = self.panics.contain(&self.handle, what, || body(module, &scope));
        if self.reserve.is_spent() && !self.ending.get() && !self.exhausted.replace(true) {
            self.handle
                .log(Level::Err, &format!("{what}: the process gets no more memory: this module ends"));
            scope.stop_reactor();
        }
        result
    }

    fn register(self: &Rc<Self>, method: Method<T>) -> Result<Registered<T>> {
        let libflux = self.handle.libflux();
        let topic = match method.foreign {
            true => method.name.to_owned(),
            false => format!("{}.{}", self.name, method.name),
        };
        let typemask = match method.call {
            Call::Request(_) => flux_sys::FLUX_MSGTYPE_REQUEST,
            Call::Event(_) => {
                self.handle.subscribe(&topic)?;
                flux_sys::FLUX_MSGTYPE_EVENT
            }
        };
        let topic_c = c_string(&topic, "topic")?;
        let matching = flux_match {
            typemask: typemask as c_int,
            matchtag: flux_sys::FLUX_MATCHTAG_NONE,
            topic_glob: topic_c.as_ptr(),
        };
        let entry = Box::new(Entry { core: Rc::downgrade(self), topic, call: method.call });
        let arg: *const Entry<T> = &*entry;
        // SAFETY: a live handle, a match whose topic is copied, the trampoline and the argument that it expects.
        let raw = unsafe {
            libflux.flux_msg_handler_create(
                self.handle.raw(),
                matching,
                Some(dispatch::<T>),
                arg.cast_mut().cast(),
            )
        };
        if raw.is_null() {
            return Err(Error::last(libflux, &format!("registering {}", entry.topic)));
        }
        // SAFETY: just created.
        unsafe {
            libflux.flux_msg_handler_allow_rolemask(raw, method.role.mask());
            libflux.flux_msg_handler_start(raw);
        }
        Ok(Registered { raw, _entry: entry })
    }
}

impl<T: Module> Core<T> {
    /// Ends the module and everything that could still call it.
    fn end(self: &Rc<Self>) {
        for method in self.methods.take() {
            // SAFETY: created by `register`, destroyed once; its handle is alive.
            unsafe { self.handle.libflux().flux_msg_handler_destroy(method.raw) };
        }
        drop((self.farewell.take(), self.cancellation.take()));
        self.enter("the end of the module", |module, scope| module.ended(scope));
        // Out of the cell first: what it drops (requests that were kept, watchers) must find the cell free.
        let module = self.state.try_borrow_mut().ok().and_then(|mut state| state.take());
        self.panics.contain(&self.handle, "the drop of the module", move || drop(module));
    }
}

/// Where C enters with a message.
unsafe extern "C" fn dispatch<T: 'static>(
    _: *mut flux_t,
    _: *mut flux_msg_handler_t,
    message: *const flux_msg_t,
    arg: *mut c_void,
) {
    let _no_cancel = NoCancel::new();
    // SAFETY: the argument is the entry of a registered method, which is destroyed before its entry.
    let entry = unsafe { &*arg.cast::<Entry<T>>() };
    // SAFETY: libflux passes the message that matched, alive until we return.
    let (Some(core), Some(message)) = (entry.core.upgrade(), unsafe { message.as_ref() }) else { return };
    match entry.call {
        Call::Request(call) => {
            let request = Request::new(message, &core.handle);
            let answer = core.enter(&entry.topic, |module, scope| call(module, scope, &request));
            request.respond(answer.unwrap_or_else(|| {
                Err(Error::new(libc::EIO, format!("{}: internal error, see the broker's log", entry.topic)))
            }));
        }
        Call::Event(call) => {
            let event = Event::new(message, &core.handle);
            if let Some(Err(error)) = core.enter(&entry.topic, |module, scope| call(module, scope, &event)) {
                core.handle.log(Level::Err, &format!("{}: {error}", entry.topic));
            }
        }
    }
}

/// Makes a type that is a [`Module`] loadable: defines `mod_main`, the one symbol that a broker looks for.
///
/// It makes [`Reserve`] the allocator of the library. Use it once in a `cdylib`, and link that with `-Wl,-z,nodelete`: Rust's thread-local storage must not outlive the
/// code that frees it.
#[macro_export]
macro_rules! module {
    ($module:ty) => {
        #[global_allocator]
        static RESERVE: $crate::Reserve = $crate::Reserve::new();

        /// The broker calls this on a thread of its own.
        ///
        /// # Safety
        /// Called by a broker, with what a broker passes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn mod_main(
            h: *mut ::std::ffi::c_void,
            argc: ::std::ffi::c_int,
            argv: *mut *mut ::std::ffi::c_char,
        ) -> ::std::ffi::c_int {
            // SAFETY: as the broker passes them; a handle is a pointer to a type that only libflux knows.
            unsafe { $crate::module_main::<$module>(h.cast(), argc, argv, &RESERVE) }
        }
    };
}
