//! The C functions of `include/libflux.h`. What each does is in Flux's manual pages; where the double does less, the
//! function says so.

use crate::handle::{Continuation, Free, Future, Handle, Handler, HandlerCallback, set_errno};
use crate::message::{Message, NODEID_ANY, with_nul};
use crate::reactor::{Callback, Kind, Reactor, Watcher, now, run};
use serde_json::json;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

#[repr(C)]
pub struct Match {
    typemask: c_int,
    matchtag: u32,
    topic: *const c_char,
}

unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        String::new()
    } else {
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

unsafe fn payload_text(text: *const c_char) -> Option<Vec<u8>> {
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes_with_nul().to_vec())
}

unsafe fn payload_raw(data: *const c_void, len: usize) -> Option<Vec<u8>> {
    (!data.is_null()).then(|| unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) }.to_vec())
}

#[unsafe(no_mangle)]
pub extern "C" fn flux_core_version_string() -> *const c_char {
    c"0.88.0-embedded".as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_core_version(major: *mut c_int, minor: *mut c_int, patch: *mut c_int) -> c_int {
    unsafe {
        for (place, number) in [(major, 0), (minor, 88), (patch, 0)] {
            if !place.is_null() {
                *place = number;
            }
        }
    }
    88 << 8
}

/// Connects to `local://PATH`, or without a URI to the one in `FLUX_URI`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_open_ex(uri: *const c_char, _flags: c_int, error: *mut c_char) -> *mut Handle {
    let named =
        if uri.is_null() { std::env::var("FLUX_URI").unwrap_or_default() } else { unsafe { text(uri) } };
    let connected = match named.strip_prefix("local://") {
        Some(path) => UnixStream::connect(path),
        None => Err(std::io::Error::from_raw_os_error(libc::EINVAL)),
    };
    match connected {
        Ok(stream) => Handle::new(stream),
        Err(why) => {
            let said = CString::new(format!("{named}: {why}")).unwrap_or_default();
            if !error.is_null() {
                unsafe { libc::strncpy(error, said.as_ptr(), 159) };
            }
            set_errno(why.raw_os_error().unwrap_or(libc::EIO));
            std::ptr::null_mut()
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_close(h: *mut Handle) {
    if !h.is_null() {
        unsafe { Handle::close(h) };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_get_reactor(h: *mut Handle) -> *mut Reactor {
    unsafe { (*h).reactor() }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_set_reactor(h: *mut Handle, r: *mut Reactor) -> c_int {
    unsafe {
        if (*h).has_reactor() {
            return set_errno(libc::EEXIST);
        }
        (*h).set_reactor(r);
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_aux_get(h: *mut Handle, name: *const c_char) -> *mut c_void {
    let name = unsafe { CStr::from_ptr(name) };
    let mut found = unsafe { (*h).aux_get(&name.to_owned()) };
    // Where libflux keeps a handle's reactor.
    if found.is_null() && name == c"flux::reactor" && unsafe { (*h).has_reactor() } {
        found = unsafe { (*h).reactor() }.cast();
    }
    if found.is_null() {
        set_errno(libc::ENOENT);
    }
    found
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_aux_set(
    h: *mut Handle,
    name: *const c_char,
    item: *mut c_void,
    free: Option<Free>,
) -> c_int {
    unsafe {
        let name = (!name.is_null()).then(|| CStr::from_ptr(name).to_owned());
        (*h).aux_set(name, item, free);
    }
    0
}

/// Knows the testing credentials alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_opt_set(
    h: *mut Handle,
    name: *const c_char,
    value: *const c_void,
    len: usize,
) -> c_int {
    if len != 4 {
        return set_errno(libc::EINVAL);
    }
    unsafe {
        let value = value.cast::<u32>().read_unaligned();
        match text(name).as_str() {
            "flux::testing_userid" => (*h).userid.set(value),
            "flux::testing_rolemask" => (*h).rolemask.set(value),
            _ => return set_errno(libc::EINVAL),
        }
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_attr_get(h: *mut Handle, name: *const c_char) -> *const c_char {
    unsafe { (*h).attribute(&text(name)) }.unwrap_or_else(|| {
        set_errno(libc::ENOENT);
        std::ptr::null()
    })
}

unsafe fn number<T: std::str::FromStr>(h: *mut Handle, name: &str, place: *mut T) -> c_int {
    unsafe {
        let value = (*h).attribute(name).and_then(|value| CStr::from_ptr(value).to_str().ok()?.parse().ok());
        match value {
            Some(value) => {
                *place = value;
                0
            }
            None => set_errno(libc::ENOENT),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_get_rank(h: *mut Handle, rank: *mut u32) -> c_int {
    unsafe { number(h, "rank", rank) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_get_size(h: *mut Handle, size: *mut u32) -> c_int {
    unsafe { number(h, "size", size) }
}

/// Variadic in C. Every caller of ours passes the format "%s" and one string, and on the architectures that are
/// supported a pointer is passed to a variadic function as to any other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_log(
    h: *mut Handle,
    level: c_int,
    format: *const c_char,
    line: *const c_char,
) -> c_int {
    unsafe {
        if h.is_null() || text(format) != "%s" {
            return set_errno(libc::EINVAL);
        }
        let name = (*h).aux_get(&c"flux::name".to_owned()).cast::<c_char>();
        let payload = json!({ "name": text(name), "level": level, "text": text(line) }).to_string();
        Future::destroy((*h).rpc("log.append", Some(with_nul(&payload)), NODEID_ANY, 1));
    }
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn flux_strerror(errnum: c_int) -> *const c_char {
    unsafe { libc::strerror(errnum) }
}

#[unsafe(no_mangle)]
pub extern "C" fn flux_reactor_create(_flags: c_int) -> *mut Reactor {
    Reactor::create()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_reactor_destroy(r: *mut Reactor) {
    unsafe { Reactor::release(r) };
}

#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C-unwind" fn flux_reactor_run(r: *mut Reactor, flags: c_int) -> c_int {
    unsafe { run(r, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_reactor_stop(r: *mut Reactor) {
    unsafe { (*r).stop(0) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_reactor_stop_error(r: *mut Reactor) {
    unsafe { (*r).stop(-1) };
}

#[unsafe(no_mangle)]
pub extern "C" fn flux_reactor_now(_r: *mut Reactor) -> f64 {
    now()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_watcher_start(w: *mut Watcher) {
    unsafe { (*w).start() };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_watcher_stop(w: *mut Watcher) {
    unsafe { (*w).stop() };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_watcher_ref(w: *mut Watcher) {
    unsafe { (*w).set_referenced(true) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_watcher_unref(w: *mut Watcher) {
    unsafe { (*w).set_referenced(false) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_watcher_destroy(w: *mut Watcher) {
    if !w.is_null() {
        unsafe { Watcher::destroy(w) };
    }
}

/// Does nothing: watchers fire in the order of their creation.
#[unsafe(no_mangle)]
pub extern "C" fn flux_watcher_set_priority(_w: *mut Watcher, _priority: c_int) {}

fn watch(r: *mut Reactor, kind: Kind, cb: Option<Callback>, arg: *mut c_void) -> *mut Watcher {
    match cb {
        Some(cb) if !r.is_null() => Reactor::watch(r, kind, cb, arg),
        _ => {
            set_errno(libc::EINVAL);
            std::ptr::null_mut()
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn flux_timer_watcher_create(
    r: *mut Reactor,
    after: f64,
    repeat: f64,
    cb: Option<Callback>,
    arg: *mut c_void,
) -> *mut Watcher {
    watch(r, Kind::Timer { due: now() + after, repeat }, cb, arg)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_timer_watcher_reset(w: *mut Watcher, after: f64, repeat: f64) {
    unsafe { (*w).set_timer(after, repeat) };
}

#[unsafe(no_mangle)]
pub extern "C" fn flux_fd_watcher_create(
    r: *mut Reactor,
    fd: c_int,
    events: c_int,
    cb: Option<Callback>,
    arg: *mut c_void,
) -> *mut Watcher {
    watch(r, Kind::Fd { fd, events }, cb, arg)
}

#[unsafe(no_mangle)]
pub extern "C" fn flux_prepare_watcher_create(
    r: *mut Reactor,
    cb: Option<Callback>,
    arg: *mut c_void,
) -> *mut Watcher {
    watch(r, Kind::Prepare, cb, arg)
}

#[unsafe(no_mangle)]
pub extern "C" fn flux_check_watcher_create(
    r: *mut Reactor,
    cb: Option<Callback>,
    arg: *mut c_void,
) -> *mut Watcher {
    watch(r, Kind::Check, cb, arg)
}

#[unsafe(no_mangle)]
pub extern "C" fn flux_idle_watcher_create(
    r: *mut Reactor,
    cb: Option<Callback>,
    arg: *mut c_void,
) -> *mut Watcher {
    watch(r, Kind::Idle, cb, arg)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_future_then(
    f: *mut Future,
    timeout: f64,
    cb: Option<Continuation>,
    arg: *mut c_void,
) -> c_int {
    match cb {
        Some(cb) => unsafe {
            Future::then(f, timeout, cb, arg);
            0
        },
        None => set_errno(libc::EINVAL),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_future_wait_for(f: *mut Future, timeout: f64) -> c_int {
    unsafe { Future::wait(f, timeout) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_future_is_ready(f: *mut Future) -> bool {
    unsafe { (*f).is_ready() }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_future_reset(f: *mut Future) {
    unsafe { (*f).reset() };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_future_destroy(f: *mut Future) {
    if !f.is_null() {
        unsafe { Future::destroy(f) };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_future_get(f: *mut Future, result: *mut *const c_void) -> c_int {
    match unsafe { Future::result(f) } {
        Ok(message) => {
            if !result.is_null() {
                unsafe { *result = Rc::as_ptr(message).cast() };
            }
            0
        }
        Err(()) => -1,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_future_has_error(f: *mut Future) -> bool {
    unsafe { (*f).error_text().is_some() }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_future_error_string(f: *mut Future) -> *const c_char {
    unsafe { (*f).error_text() }.unwrap_or(std::ptr::null())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_rpc(
    h: *mut Handle,
    topic: *const c_char,
    s: *const c_char,
    nodeid: u32,
    flags: c_int,
) -> *mut Future {
    unsafe { (*h).rpc(&text(topic), payload_text(s), nodeid, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_rpc_raw(
    h: *mut Handle,
    topic: *const c_char,
    data: *const c_void,
    len: usize,
    nodeid: u32,
    flags: c_int,
) -> *mut Future {
    unsafe { (*h).rpc(&text(topic), payload_raw(data, len), nodeid, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_rpc_get(f: *mut Future, s: *mut *const c_char) -> c_int {
    match unsafe { Future::result(f) } {
        Ok(message) => unsafe { decode_text(message, s) },
        Err(()) => -1,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_rpc_get_raw(
    f: *mut Future,
    data: *mut *const c_void,
    len: *mut usize,
) -> c_int {
    match unsafe { Future::result(f) } {
        Ok(message) => unsafe { decode_raw(message, data, len) },
        Err(()) => -1,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_rpc_get_matchtag(f: *mut Future) -> u32 {
    unsafe { (*f).matchtag() }
}

unsafe fn decode_text(message: &Message, s: *mut *const c_char) -> c_int {
    let pointer = match &message.payload {
        None => std::ptr::null(),
        Some(bytes) if bytes.ends_with(b"\0") => bytes.as_ptr().cast(),
        Some(_) => return set_errno(libc::EPROTO),
    };
    if !s.is_null() {
        unsafe { *s = pointer };
    }
    0
}

unsafe fn decode_raw(message: &Message, data: *mut *const c_void, len: *mut usize) -> c_int {
    let bytes = message.payload.as_deref();
    unsafe {
        *data = bytes.map_or(std::ptr::null(), |bytes| bytes.as_ptr().cast());
        *len = bytes.map_or(0, <[u8]>::len);
    }
    0
}

unsafe fn decode_topic(message: *const Message, topic: *mut *const c_char) {
    if !topic.is_null() {
        unsafe { *topic = (*message).topic_c().as_ptr() };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_msg_incref(msg: *const Message) -> *const Message {
    unsafe { Rc::increment_strong_count(msg) };
    msg
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_msg_decref(msg: *const Message) {
    if !msg.is_null() {
        unsafe { Rc::decrement_strong_count(msg) };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_msg_get_topic(msg: *const Message, topic: *mut *const c_char) -> c_int {
    unsafe { decode_topic(msg, topic) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_msg_get_rolemask(msg: *const Message, rolemask: *mut u32) -> c_int {
    unsafe { *rolemask = (*msg).rolemask };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_msg_get_userid(msg: *const Message, userid: *mut u32) -> c_int {
    unsafe { *userid = (*msg).userid };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_msg_get_seq(msg: *const Message, seq: *mut u32) -> c_int {
    unsafe { *seq = (*msg).seq };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_msg_is_streaming(msg: *const Message) -> bool {
    unsafe { (*msg).streaming }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_msg_is_noresponse(msg: *const Message) -> bool {
    unsafe { (*msg).noresponse }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_msg_route_first(msg: *const Message) -> *const c_char {
    unsafe { (*msg).first_c().as_ptr() }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_request_decode(
    msg: *const Message,
    topic: *mut *const c_char,
    s: *mut *const c_char,
) -> c_int {
    unsafe {
        decode_topic(msg, topic);
        decode_text(&*msg, s)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_request_decode_raw(
    msg: *const Message,
    topic: *mut *const c_char,
    data: *mut *const c_void,
    len: *mut usize,
) -> c_int {
    unsafe {
        decode_topic(msg, topic);
        decode_raw(&*msg, data, len)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_event_decode(
    msg: *const Message,
    topic: *mut *const c_char,
    s: *mut *const c_char,
) -> c_int {
    unsafe { flux_request_decode(msg, topic, s) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_respond(h: *mut Handle, request: *const Message, s: *const c_char) -> c_int {
    unsafe { (*h).respond(&*request, 0, payload_text(s)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_respond_raw(
    h: *mut Handle,
    request: *const Message,
    data: *const c_void,
    len: c_int,
) -> c_int {
    unsafe { (*h).respond(&*request, 0, payload_raw(data, usize::try_from(len).unwrap_or(0))) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_respond_error(
    h: *mut Handle,
    request: *const Message,
    errnum: c_int,
    said: *const c_char,
) -> c_int {
    unsafe {
        // Flux supplies the error number's own text where there is none.
        let said = if said.is_null() { flux_strerror(errnum) } else { said };
        (*h).respond(&*request, errnum, payload_text(said))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_msg_handler_create(
    h: *mut Handle,
    wanted: Match,
    cb: Option<HandlerCallback>,
    arg: *mut c_void,
) -> *mut Handler {
    match cb {
        Some(cb) => unsafe { (*h).add_handler(wanted.typemask, &text(wanted.topic), cb, arg, 0) },
        None => {
            set_errno(libc::EINVAL);
            std::ptr::null_mut()
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_msg_handler_destroy(mh: *mut Handler) {
    if !mh.is_null() {
        unsafe { Handler::destroy(mh) };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_msg_handler_start(mh: *mut Handler) {
    unsafe { (*mh).set_active(true) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_msg_handler_stop(mh: *mut Handler) {
    unsafe { (*mh).set_active(false) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_msg_handler_allow_rolemask(mh: *mut Handler, rolemask: u32) {
    unsafe { (*mh).allow(rolemask) };
}

unsafe fn subscription(h: *mut Handle, method: &str, topic: *const c_char) -> c_int {
    unsafe {
        let payload = json!({ "topic": text(topic) }).to_string();
        let future = (*h).rpc(method, Some(with_nul(&payload)), NODEID_ANY, 0);
        if future.is_null() {
            return -1;
        }
        let rc = if Future::result(future).is_ok() { 0 } else { -1 };
        Future::destroy(future);
        rc
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_event_subscribe(h: *mut Handle, topic: *const c_char) -> c_int {
    unsafe { subscription(h, "event.subscribe", topic) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_event_unsubscribe(h: *mut Handle, topic: *const c_char) -> c_int {
    unsafe { subscription(h, "event.unsubscribe", topic) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_event_publish(
    h: *mut Handle,
    topic: *const c_char,
    _flags: c_int,
    s: *const c_char,
) -> *mut Future {
    unsafe {
        let payload = json!({ "topic": text(topic), "payload": (!s.is_null()).then(|| text(s)) }).to_string();
        (*h).rpc("event.publish", Some(with_nul(&payload)), 0, 0)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_event_publish_get_seq(f: *mut Future, seq: *mut c_int) -> c_int {
    match unsafe { Future::result(f) } {
        Ok(message) => {
            unsafe {
                *seq = message.json()["seq"].as_i64().and_then(|seq| c_int::try_from(seq).ok()).unwrap_or(0)
            };
            0
        }
        Err(()) => -1,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_disconnect_match(msg1: *const Message, msg2: *const Message) -> bool {
    let (request, gone) = unsafe { (&*msg1, &*msg2) };
    request.route.first() == gone.route.first() && request.userid == gone.userid
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_cancel_match(msg1: *const Message, msg2: *const Message) -> bool {
    let (request, cancel) = unsafe { (&*msg1, &*msg2) };
    let same = unsafe { flux_disconnect_match(msg1, msg2) };
    same && cancel.json()["matchtag"].as_u64() == Some(u64::from(request.matchtag))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_module_set_running(h: *mut Handle) -> c_int {
    unsafe { crate::module::report(h, crate::module::RUNNING, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_service_register(h: *mut Handle, name: *const c_char) -> *mut Future {
    unsafe {
        (*h).rpc("service.add", Some(with_nul(&json!({ "service": text(name) }).to_string())), NODEID_ANY, 0)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flux_service_unregister(h: *mut Handle, name: *const c_char) -> *mut Future {
    unsafe {
        (*h).rpc(
            "service.remove",
            Some(with_nul(&json!({ "service": text(name) }).to_string())),
            NODEID_ANY,
            0,
        )
    }
}
