//! The thread of a module: as a broker of Flux sets one up, and as it ends one.

use crate::handle::{Future, Handle};
use crate::message::{CONTROL, EVENT, Message, NODEID_ANY, REQUEST, with_nul};
use crate::reactor::{Kind, Reactor, Watcher};
use serde_json::json;
use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::net::UnixStream;

pub(crate) type ModMain = unsafe extern "C-unwind" fn(*mut Handle, c_int, *mut *mut c_char) -> c_int;

/// What a module reports to its broker.
pub(crate) const RUNNING: u32 = 1;
pub(crate) const FINALIZING: u32 = 2;
pub(crate) const EXITED: u32 = 3;

const ROLE_ALL: u32 = u32::MAX;
const ROLE_OWNER: u32 = 1;

/// What a thread is started with.
pub(crate) struct Start {
    pub(crate) name: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) main: ModMain,
    pub(crate) stream: UnixStream,
}

/// What it holds while it runs; freed by its end, however it ends.
struct Thread {
    handle: *mut Handle,
    main: ModMain,
    arguments: Vec<CString>,
    argv: Vec<*mut c_char>,
    result: c_int,
    errnum: c_int,
}

/// Starts the thread; it is to be joined.
pub(crate) fn spawn(start: Start) -> Option<libc::pthread_t> {
    type Plain = extern "C" fn(*mut c_void) -> *mut c_void;
    type Unwinding = extern "C-unwind" fn(*mut c_void) -> *mut c_void;
    let argument = Box::into_raw(Box::new(start)).cast();
    unsafe {
        let mut thread = std::mem::zeroed();
        let body = std::mem::transmute::<Unwinding, Plain>(body);
        let rc = libc::pthread_create(&mut thread, std::ptr::null(), body, argument);
        (rc == 0).then_some(thread)
    }
}

/// The frame under `mod_main`: it owns nothing, since cancellation unwinds through it.
extern "C-unwind" fn body(start: *mut c_void) -> *mut c_void {
    let thread = begin(start.cast());
    unsafe {
        let argc = (*thread).arguments.len() as c_int;
        (*thread).result = ((*thread).main)((*thread).handle, argc, (*thread).argv.as_mut_ptr());
        (*thread).errnum = *libc::__errno_location();
    }
    std::ptr::null_mut()
}

/// The key whose destructor ends a module, after its return as after its cancellation.
fn key() -> libc::pthread_key_t {
    static KEY: std::sync::OnceLock<libc::pthread_key_t> = std::sync::OnceLock::new();
    *KEY.get_or_init(|| unsafe {
        let mut key = 0;
        libc::pthread_key_create(&mut key, Some(end));
        key
    })
}

fn begin(start: *mut Start) -> *mut Thread {
    let Start { name, arguments, main, stream } = *unsafe { Box::from_raw(start) };
    let handle = Handle::new(stream);
    let arguments: Vec<CString> = arguments.into_iter().filter_map(|word| CString::new(word).ok()).collect();
    let mut argv: Vec<*mut c_char> = arguments.iter().map(|word| word.as_ptr().cast_mut()).collect();
    argv.push(std::ptr::null_mut());
    let thread = Box::into_raw(Box::new(Thread { handle, main, arguments, argv, result: 0, errnum: 0 }));
    unsafe {
        libc::pthread_setspecific(key(), thread.cast());
        let mut comm: Vec<u8> = name.bytes().take(15).collect();
        comm.push(0);
        libc::pthread_setname_np(libc::pthread_self(), comm.as_ptr().cast());
        let mut signals = std::mem::zeroed();
        libc::sigfillset(&mut signals);
        libc::pthread_sigmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut());
        let string = |text: &str| CString::new(text).unwrap_or_default().into_raw().cast::<c_void>();
        (*handle).aux_set(Some(c"flux::name".to_owned()), string(&name), Some(free_string));
        (*handle).aux_set(Some(c"flux::uuid".to_owned()), string(&format!("{name}-uuid")), Some(free_string));
        defaults(handle, &name);
        let reactor = (*handle).reactor();
        (*Reactor::watch(reactor, Kind::Prepare, entered, handle.cast())).start();
    }
    thread
}

unsafe extern "C" fn free_string(text: *mut c_void) {
    drop(unsafe { CString::from_raw(text.cast()) });
}

/// The reactor is entered: the module runs.
unsafe extern "C" fn entered(_: *mut Reactor, watcher: *mut Watcher, _: c_int, handle: *mut c_void) {
    unsafe {
        report(handle.cast(), RUNNING, 0);
        Watcher::destroy(watcher);
    }
}

/// Tells the broker.
pub(crate) unsafe fn report(handle: *mut Handle, status: u32, errnum: c_int) -> c_int {
    let payload = json!({ "status": status, "errnum": errnum }).to_string();
    unsafe { (*handle).send(&Message::text(CONTROL, "module.status", &payload)) }
}

/// The end of the thread.
unsafe extern "C" fn end(thread: *mut c_void) {
    unsafe {
        let thread = Box::from_raw(thread.cast::<Thread>());
        let handle = thread.handle;
        // Once this is answered the broker passes nothing on any more: what is left can be refused.
        let payload = json!({ "status": FINALIZING }).to_string();
        let future = (*handle).rpc("module.finalize", Some(with_nul(&payload)), NODEID_ANY, 0);
        if !future.is_null() {
            Future::wait(future, 10.0);
            Future::destroy(future);
        }
        (*handle).drain();
        let failed = if thread.errnum == 0 { libc::ECONNRESET } else { thread.errnum };
        report(handle, EXITED, if thread.result < 0 { failed } else { 0 });
        Handle::close(handle);
    }
}

/// The methods that every module has.
unsafe fn defaults(handle: *mut Handle, name: &str) {
    let table: [(u8, &str, crate::handle::HandlerCallback, u32); 7] = [
        (REQUEST, "shutdown", shutdown, ROLE_OWNER),
        (REQUEST, "ping", ping, ROLE_ALL),
        (REQUEST, "stats-get", stats_get, ROLE_ALL),
        (REQUEST, "stats-clear", stats_clear, ROLE_OWNER),
        (EVENT, "stats-clear", stats_clear, ROLE_OWNER),
        (REQUEST, "config-reload", accept, ROLE_OWNER),
        (REQUEST, "debug", accept, ROLE_OWNER),
    ];
    for (kind, method, callback, roles) in table {
        let topic = format!("{name}.{method}");
        let handler =
            unsafe { (*handle).add_handler(kind.into(), &topic, callback, std::ptr::null_mut(), roles) };
        unsafe { (*handler).set_active(true) };
    }
    let topic = json!({ "topic": format!("{name}.stats-clear") }).to_string();
    let future = unsafe { (*handle).rpc("event.subscribe", Some(with_nul(&topic)), NODEID_ANY, 0) };
    if !future.is_null() {
        unsafe {
            Future::wait(future, 10.0);
            Future::destroy(future);
        }
    }
}

type Argument = *mut c_void;
type Own = *mut crate::handle::Handler;

unsafe extern "C" fn shutdown(handle: *mut Handle, _: Own, _: *const Message, _: Argument) {
    unsafe { (*(*handle).reactor()).stop(0) };
}

/// Answers with what it was asked, and a route.
unsafe extern "C" fn ping(handle: *mut Handle, _: Own, request: *const Message, _: Argument) {
    unsafe {
        let mut answer = (*request).json();
        if let Some(map) = answer.as_object_mut() {
            map.insert("route".into(), (*request).route.join("!").into());
        }
        (*handle).respond(&*request, 0, Some(with_nul(&answer.to_string())));
    }
}

unsafe extern "C" fn stats_get(handle: *mut Handle, _: Own, request: *const Message, _: Argument) {
    let counts =
        |row: [u32; 4]| json!({"request": row[0], "response": row[1], "event": row[2], "control": row[3]});
    unsafe {
        let [sent, received] = (*handle).counters.get();
        let answer = json!({ "tx": counts(sent), "rx": counts(received) });
        (*handle).respond(&*request, 0, Some(with_nul(&answer.to_string())));
    }
}

unsafe extern "C" fn stats_clear(handle: *mut Handle, _: Own, message: *const Message, _: Argument) {
    unsafe {
        (*handle).counters.set(Default::default());
        if (*message).kind == REQUEST {
            (*handle).respond(&*message, 0, None);
        }
    }
}

unsafe extern "C" fn accept(handle: *mut Handle, _: Own, request: *const Message, _: Argument) {
    unsafe { (*handle).respond(&*request, 0, None) };
}

/// The built-in modules: so that an instance is never empty.
pub(crate) const BUILT_IN: &[(&str, ModMain)] = &[("heartbeat", heartbeat), ("kvs", kvs)];

/// Publishes `heartbeat.pulse` every two seconds, as Flux's does, from rank 0.
unsafe extern "C-unwind" fn heartbeat(handle: *mut Handle, _: c_int, _: *mut *mut c_char) -> c_int {
    unsafe extern "C" fn pulse(_: *mut Reactor, _: *mut Watcher, _: c_int, handle: *mut c_void) {
        let payload = json!({ "topic": "heartbeat.pulse" }).to_string();
        unsafe {
            Future::destroy((*handle.cast::<Handle>()).rpc("event.publish", Some(with_nul(&payload)), 0, 1))
        };
    }
    unsafe {
        let rank = (*handle).attribute("rank").map(|rank| std::ffi::CStr::from_ptr(rank).to_bytes() == b"0");
        let kind = Kind::Timer { due: crate::reactor::now() + 2.0, repeat: 2.0 };
        let timer = Reactor::watch((*handle).reactor(), kind, pulse, handle.cast());
        if rank == Some(true) {
            (*timer).start();
        }
        let rc = crate::reactor::run((*handle).reactor(), 0);
        Watcher::destroy(timer);
        rc
    }
}

/// A stand-in: answers the default methods, so that it can be made busy with pings. It stores nothing.
unsafe extern "C-unwind" fn kvs(handle: *mut Handle, _: c_int, _: *mut *mut c_char) -> c_int {
    unsafe { crate::reactor::run((*handle).reactor(), 0) }
}
