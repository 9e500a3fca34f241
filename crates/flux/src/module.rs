//! A module's life: loaded, running, unloaded, or cancelled.

use crate::boundary::{NoCancel, Panics, cancellation_point, forbid_cancel};
use crate::error::{Error, Result};
use crate::handle::{Handle, Level, Node, c_string};
use crate::message::{Event, KeptRequest, Request};
use crate::method::{Call, Method};
use crate::reactor::{Interest, Watcher, reactor_of};
use crate::rpc::{Future, Payload, PendingRpc, Reply};
use flux_sys::{Loaded, flux_match, flux_msg_handler_t, flux_msg_t, flux_reactor_t, flux_t, flux_watcher_t};
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Deref;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::rc::{Rc, Weak};
use std::time::Duration;

/// Bounds the farewell, whatever [`Module::unload`] asks for: a module that never ends hangs `flux module remove`.
const UNLOAD_MAX: Duration = Duration::from_secs(30);

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

    /// The module is about to be dropped, its farewell over. Also called when its thread is cancelled, with a handle
    /// that takes no more messages.
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
        self.panics.contain(&self.handle, what, || body(module, &scope))
    }

    fn register(self: &Rc<Self>, method: Method<T>) -> Result<Registered<T>> {
        let libflux = self.handle.libflux();
        let topic = format!("{}.{}", self.name, method.name);
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

/// What stays of a module while its reactor runs: plain pointers, so that the frame which waits owns nothing.
struct Running {
    reactor: *mut flux_reactor_t,
    run: unsafe extern "C-unwind" fn(*mut flux_reactor_t, c_int) -> c_int,
}

/// The name of the auxiliary item that owns a module: freed with the handle, first of all its items.
const AUX: &CStr = c"flux-stats::module";

/// The body of `mod_main`.
///
/// # Safety
/// `h`, `argc` and `argv` as a broker passes them to `mod_main`, on the module's own thread.
#[doc(hidden)]
pub unsafe extern "C-unwind" fn main<T: Module>(
    h: *mut flux_t,
    argc: c_int,
    argv: *mut *mut c_char,
) -> c_int {
    // This frame and the calls that wait own nothing: a forced unwind (pthread_cancel) may pass. It comes from a
    // watcher of theirs, see `may_end`; everywhere else cancellation is forbidden.
    forbid_cancel();
    // SAFETY: passed on as they came.
    let Some(running) = (unsafe { start::<T>(h, argc, argv) }) else { return -1 };
    // SAFETY: a live reactor and libflux's own function; `extern "C-unwind"`, since cancellation unwinds through it.
    let rc = unsafe { run(&running) };
    if let Some(running) = farewell::<T>(h, rc) {
        // SAFETY: as above.
        unsafe { run(&running) };
    }
    finish::<T>(h);
    // Whatever happened since RUNNING: failure now would take the broker down.
    0
}

/// # Safety
/// `running` holds a live reactor and `flux_reactor_run`.
unsafe fn run(running: &Running) -> c_int {
    // SAFETY: see above.
    unsafe { (running.run)(running.reactor, 0) }
}

/// Makes the module. `None`: refused, logged, and `errno` says why.
///
/// # Safety
/// As [`main`].
unsafe fn start<T: Module>(h: *mut flux_t, argc: c_int, argv: *mut *mut c_char) -> Option<Running> {
    let libflux = match flux_sys::libflux() {
        Ok(libflux) => libflux,
        Err(error) => {
            // Without libflux there is no log either.
            let _ = std::io::Write::write_all(
                &mut std::io::stderr(),
                format!("flux-stats: {error}\n").as_bytes(),
            );
            set_errno(libc::ELIBACC);
            return None;
        }
    };
    // SAFETY: the broker's handle, of this thread; the module is dropped before it is closed.
    let handle = unsafe { Handle::borrow(NonNull::new(h)?, libflux) };
    // SAFETY: as the broker passes them.
    let arguments = unsafe { arguments(argc, argv) };
    match build::<T>(handle, &arguments) {
        Ok(running) => Some(running),
        Err(error) => {
            // SAFETY: as above.
            let handle = unsafe { Handle::borrow(NonNull::new(h)?, libflux) };
            handle.log(Level::Err, &format!("not loaded: {error}"));
            set_errno(error.errnum());
            None
        }
    }
}

fn build<T: Module>(handle: Handle, arguments: &[String]) -> Result<Running> {
    let libflux = handle.libflux();
    let name = handle
        .aux_string(c"flux::name")
        .ok_or_else(|| Error::new(libc::ENOENT, "the handle has no flux::name: it is not a module's"))?;
    let core = Rc::new(Core {
        handle,
        name,
        panics: Panics::default(),
        state: RefCell::new(None),
        methods: RefCell::new(Vec::new()),
        ending: Cell::new(false),
        farewell: RefCell::new(None),
        cancellation: RefCell::new(None),
        alive: Rc::new(()),
    });
    // There is one from the first line of the module, for what looks for it.
    reactor_of(&core.handle)?;
    let scope = Scope::of(&core);
    let module = core
        .panics
        .contain(&core.handle, "the load of the module", || T::load(&scope, arguments))
        .unwrap_or_else(|| Err(Error::new(libc::EIO, "panic while loading, see above")))?;
    core.state.replace(Some(module));
    let running = register_all(&core).and_then(|()| {
        let reactor = reactor_of(&core.handle)?.as_ptr();
        // SAFETY: the watchers end with the module, and the module before its handle.
        let cancellation = unsafe { Watcher::cancellation(&core.handle, may_end::<T>) };
        core.cancellation.replace(Some(cancellation?));
        Ok(Running { reactor, run: reactor_run(libflux)? })
    });
    match running.and_then(|running| own(&core).map(|()| running)) {
        Ok(running) => Ok(running),
        Err(error) => {
            core.end();
            core.handle.say_last_words();
            Err(error)
        }
    }
}

fn register_all<T: Module>(core: &Rc<Core<T>>) -> Result<()> {
    for method in T::methods() {
        let registered = core.register(method)?;
        core.methods.borrow_mut().push(registered);
    }
    Ok(())
}

/// `flux_reactor_run`, typed so that a forced unwind may pass through it.
fn reactor_run(libflux: &Loaded) -> Result<unsafe extern "C-unwind" fn(*mut flux_reactor_t, c_int) -> c_int> {
    type Plain = unsafe extern "C" fn(*mut flux_reactor_t, c_int) -> c_int;
    type Unwinding = unsafe extern "C-unwind" fn(*mut flux_reactor_t, c_int) -> c_int;
    match libflux.flux_reactor_run.as_ref() {
        // SAFETY: the same C calling convention; the second type only adds that an unwind may come out.
        Ok(run) => Ok(unsafe { std::mem::transmute::<Plain, Unwinding>(*run) }),
        Err(error) => Err(Error::new(libc::ELIBACC, error.to_string())),
    }
}

/// Gives the module to its handle: whichever way the thread ends, it is dropped before the handle is gone.
fn own<T: Module>(core: &Rc<Core<T>>) -> Result<()> {
    let item = Rc::into_raw(core.clone()).cast_mut().cast::<c_void>();
    let libflux = core.handle.libflux();
    // SAFETY: a live handle, a C string, and an item with the function that frees it.
    if unsafe { libflux.flux_aux_set(core.handle.raw(), AUX.as_ptr(), item, Some(disown::<T>)) } == 0 {
        return Ok(());
    }
    let error = Error::last(libflux, "storing the module");
    // SAFETY: the reference made above, which libflux did not take.
    drop(unsafe { Rc::from_raw(item.cast::<Core<T>>().cast_const()) });
    Err(error)
}

/// Called by libflux when the item is replaced or the handle closed.
unsafe extern "C" fn disown<T: Module>(item: *mut c_void) {
    let _no_cancel = NoCancel::new();
    // SAFETY: the reference that `own` gave away.
    let core = unsafe { Rc::from_raw(item.cast::<Core<T>>().cast_const()) };
    core.end();
}

/// A watcher's callback: here the thread may be cancelled.
unsafe extern "C-unwind" fn may_end<T: Module>(
    _: *mut flux_reactor_t,
    _: *mut flux_watcher_t,
    _: c_int,
    h: *mut c_void,
) {
    // SAFETY: the module's handle, on its thread.
    unsafe { cancellation_point(cancelled::<T>, h) }
}

/// The thread is being cancelled.
unsafe extern "C" fn cancelled<T: Module>(h: *mut c_void) {
    let _no_cancel = NoCancel::new();
    finish::<T>(h.cast());
}

/// The module that `h` owns.
fn owned<T: 'static>(h: *mut flux_t) -> Option<Rc<Core<T>>> {
    let libflux = flux_sys::libflux().ok()?;
    // SAFETY: a live handle and a C string.
    let item = unsafe { libflux.flux_aux_get(h, AUX.as_ptr()) }.cast::<Core<T>>();
    if item.is_null() {
        return None;
    }
    // SAFETY: the item is the reference given away by `own` for the same T; one more is counted for us.
    Some(unsafe {
        Rc::increment_strong_count(item.cast_const());
        Rc::from_raw(item.cast_const())
    })
}

/// The reactor has ended; whether it runs on for a farewell.
fn farewell<T: Module>(h: *mut flux_t, rc: c_int) -> Option<Running> {
    let core = owned::<T>(h)?;
    if rc < 0 {
        core.handle.log(Level::Err, &Error::last(core.handle.libflux(), "the reactor failed").to_string());
        return None;
    }
    core.ending.set(true);
    let limit = core.enter("the unload of the module", |module, scope| module.unload(scope)).flatten()?;
    let scope = Scope::of(&core);
    let stop = scope.clone();
    let timer =
        Watcher::timer(&core.handle, limit.min(UNLOAD_MAX), Duration::ZERO, move |_| stop.stop_reactor());
    core.farewell.replace(Some(timer.ok()?));
    Some(Running {
        reactor: reactor_of(&core.handle).ok()?.as_ptr(),
        run: reactor_run(core.handle.libflux()).ok()?,
    })
}

/// Drops the module while its handle still works.
fn finish<T: Module>(h: *mut flux_t) {
    if let Some(core) = owned::<T>(h) {
        core.end();
        core.handle.say_last_words();
        // SAFETY: a live handle; setting nothing removes the item, which `disown` frees.
        unsafe { core.handle.libflux().flux_aux_set(h, AUX.as_ptr(), ptr::null_mut(), None) };
    }
}

/// # Safety
/// `argv` holds `argc` C strings.
unsafe fn arguments(argc: c_int, argv: *mut *mut c_char) -> Vec<String> {
    let count = usize::try_from(argc).unwrap_or(0);
    if argv.is_null() {
        return Vec::new();
    }
    // SAFETY: see above.
    (0..count).map(|i| unsafe { CStr::from_ptr(*argv.add(i)) }.to_string_lossy().into_owned()).collect()
}

fn set_errno(errnum: i32) {
    // SAFETY: errno is always there.
    unsafe { *libc::__errno_location() = errnum };
}

/// Makes a type that is a [`Module`] loadable: defines `mod_main`, the one symbol that a broker looks for.
///
/// Use it once in a `cdylib`, and link that with `-Wl,-z,nodelete`: Rust's thread-local storage must not outlive the
/// code that frees it.
#[macro_export]
macro_rules! module {
    ($module:ty) => {
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
            unsafe { $crate::module_main::<$module>(h.cast(), argc, argv) }
        }
    };
}
