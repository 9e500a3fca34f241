//! Messages that reach us.

use crate::error::{Error, Result};
use crate::handle::{Handle, Level, c_string};
use crate::method::Answer;
use crate::reserve::afford_json;
use flux_sys::flux_msg_t;
use serde_json::Value;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{self, NonNull};
use std::rc::Weak;

/// A message while its callback runs.
#[derive(Clone, Copy)]
struct Message<'a> {
    raw: &'a flux_msg_t,
    handle: &'a Handle,
}

impl Message<'_> {
    fn topic(&self) -> String {
        let mut topic = ptr::null();
        // SAFETY: a live message and a valid place for the pointer.
        let rc = unsafe { self.handle.libflux().flux_msg_get_topic(self.raw, &mut topic) };
        if rc < 0 || topic.is_null() {
            return String::new();
        }
        // SAFETY: a C string that belongs to the message; copied at once.
        unsafe { CStr::from_ptr(topic) }.to_string_lossy().into_owned()
    }

    /// `text` from a decoder that leaves null for no payload, as a JSON object; no payload is an empty one.
    fn object(&self, rc: i32, text: *const c_char, max: usize) -> Result<Value> {
        if rc < 0 {
            return Err(Error::last(self.handle.libflux(), "decoding a message"));
        }
        if text.is_null() {
            return object("");
        }
        // SAFETY: a C string that belongs to the message, which outlives this call.
        let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
        if bytes.len() > max {
            return Err(Error::invalid(format!("{} bytes: expected {max} at most", bytes.len())));
        }
        afford_json(bytes.len())?;
        object(std::str::from_utf8(bytes).map_err(|_| Error::new(libc::EPROTO, "payload is not UTF-8"))?)
    }

    fn cred(&self) -> (u32, u32) {
        let (libflux, mut userid, mut rolemask) = (self.handle.libflux(), u32::MAX, 0);
        // SAFETY: a live message and valid places; on failure they keep "nobody, no role".
        unsafe {
            libflux.flux_msg_get_userid(self.raw, &mut userid);
            libflux.flux_msg_get_rolemask(self.raw, &mut rolemask);
        }
        (userid, rolemask)
    }
}

/// A JSON object from text; no text is an empty object.
fn object(text: &str) -> Result<Value> {
    if text.is_empty() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(Error::new(libc::EPROTO, "payload must be a JSON object")),
        Err(error) => Err(Error::new(libc::EPROTO, format!("payload is not JSON: {error}"))),
    }
}

/// A request being handled.
pub struct Request<'a> {
    message: Message<'a>,
}

impl<'a> Request<'a> {
    pub(crate) fn new(raw: &'a flux_msg_t, handle: &'a Handle) -> Self {
        Request { message: Message { raw, handle } }
    }

    /// The topic, `SERVICE.METHOD`.
    pub fn topic(&self) -> String {
        self.message.topic()
    }

    /// The payload as a JSON object, empty when there is none; `EPROTO` when it is neither, `ENOMEM` when there is not the
    /// memory to read it.
    pub fn json(&self) -> Result<Value> {
        self.json_within(usize::MAX)
    }

    /// The same of `max` bytes at most, `EINVAL` when it has more: read, a payload may take a hundred times its size.
    pub fn json_within(&self, max: usize) -> Result<Value> {
        let (mut topic, mut text) = (ptr::null(), ptr::null());
        // SAFETY: a live message and valid places for the pointers.
        let rc = unsafe {
            self.message.handle.libflux().flux_request_decode(self.message.raw, &mut topic, &mut text)
        };
        self.message.object(rc, text, max)
    }

    /// The payload as bytes; empty when there is none.
    pub fn raw(&self) -> Result<&'a [u8]> {
        let (mut topic, mut data, mut len) = (ptr::null(), ptr::null(), 0);
        let libflux = self.message.handle.libflux();
        // SAFETY: a live message and valid places for pointers and length.
        let rc =
            unsafe { libflux.flux_request_decode_raw(self.message.raw, &mut topic, &mut data, &mut len) };
        if rc < 0 {
            return Err(Error::last(libflux, "decoding a request"));
        }
        if data.is_null() || len == 0 {
            return Ok(&[]);
        }
        // SAFETY: that many bytes, which belong to the message and live as long as it.
        Ok(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) })
    }

    /// The sender's user id.
    pub fn userid(&self) -> u32 {
        self.message.cred().0
    }

    /// Whether the instance owner sent it.
    pub fn from_owner(&self) -> bool {
        self.message.cred().1 & flux_sys::FLUX_ROLE_OWNER != 0
    }

    /// Whether the sender awaits a stream of responses.
    pub fn is_streaming(&self) -> bool {
        // SAFETY: a live message.
        unsafe { self.message.handle.libflux().flux_msg_is_streaming(self.message.raw) }
    }

    /// Keeps the request beyond its handler, to answer it later.
    pub(crate) fn keep(&self, alive: Weak<()>) -> KeptRequest {
        let libflux = self.message.handle.libflux();
        // SAFETY: a live message; the reference is given back when the KeptRequest is dropped.
        let raw = unsafe { libflux.flux_msg_incref(self.message.raw) };
        let raw = NonNull::new(raw.cast_mut()).unwrap_or(NonNull::from(self.message.raw));
        // SAFETY: the handle outlives the module, without which a KeptRequest answers nothing.
        let handle = unsafe { Handle::borrow(NonNull::new_unchecked(self.message.handle.raw()), libflux) };
        KeptRequest { raw, handle, alive, answered: false }
    }

    /// Answers now. What cannot be sent is logged: there is nobody to tell.
    pub(crate) fn respond(&self, answer: Result<Answer>) {
        respond(self.message.handle, self.message.raw, answer);
    }
}

fn respond(handle: &Handle, raw: *const flux_msg_t, answer: Result<Answer>) {
    let libflux = handle.libflux();
    // SAFETY: a live message.
    if unsafe { libflux.flux_msg_is_noresponse(raw) } {
        return;
    }
    let rc = match answer.and_then(Answer::into_payload) {
        // SAFETY: a live handle and message, and a C string that is copied.
        Ok(Some(Encoded::Text(text))) => unsafe { libflux.flux_respond(handle.raw(), raw, text.as_ptr()) },
        Ok(Some(Encoded::Raw(bytes))) => match i32::try_from(bytes.len()) {
            // SAFETY: a live handle and message, and bytes with their length, which are copied.
            Ok(len) => unsafe {
                libflux.flux_respond_raw(handle.raw(), raw, bytes.as_ptr().cast::<c_void>(), len)
            },
            Err(_) => respond_error(handle, raw, &Error::new(libc::EMSGSIZE, "response exceeds 2 GiB")),
        },
        // SAFETY: a live handle and message; null is no payload.
        Ok(Some(Encoded::Empty)) => unsafe { libflux.flux_respond(handle.raw(), raw, ptr::null()) },
        Ok(None) => 0,
        Err(error) => respond_error(handle, raw, &error),
    };
    if rc < 0 {
        handle.log(Level::Debug, &Error::last(libflux, "responding").to_string());
    }
}

fn respond_error(handle: &Handle, raw: *const flux_msg_t, error: &Error) -> i32 {
    let text = c_string(&error.to_string(), "error text").unwrap_or_default();
    // SAFETY: a live handle and message, and a C string that is copied.
    unsafe { handle.libflux().flux_respond_error(handle.raw(), raw, error.errnum(), text.as_ptr()) }
}

/// An answer ready for libflux.
pub(crate) enum Encoded {
    Empty,
    Text(std::ffi::CString),
    Raw(Vec<u8>),
}

/// A request kept to be answered later. Dropped without an answer, it is answered with an error.
pub struct KeptRequest {
    raw: NonNull<flux_msg_t>,
    handle: Handle,
    alive: Weak<()>,
    answered: bool,
}

impl KeptRequest {
    /// Answers it.
    pub fn respond(mut self, answer: Result<Answer>) {
        self.answer(answer);
    }

    /// Answers a streaming request, which stays open.
    pub fn send(&self, answer: Answer) {
        if self.alive.upgrade().is_some() {
            respond(&self.handle, self.raw.as_ptr(), Ok(answer));
        }
    }

    /// Whether `NAME.disconnect` comes from the client that sent this request.
    pub fn is_ended_by(&self, disconnect: &Request<'_>) -> bool {
        // SAFETY: two live messages.
        unsafe { self.handle.libflux().flux_disconnect_match(self.raw.as_ptr(), disconnect.message.raw) }
    }

    /// Whether `NAME.cancel` is about this request.
    pub fn is_cancelled_by(&self, cancel: &Request<'_>) -> bool {
        // SAFETY: two live messages.
        unsafe { self.handle.libflux().flux_cancel_match(self.raw.as_ptr(), cancel.message.raw) }
    }

    fn answer(&mut self, answer: Result<Answer>) {
        if !self.answered && self.alive.upgrade().is_some() {
            respond(&self.handle, self.raw.as_ptr(), answer);
        }
        self.answered = true;
    }
}

impl Drop for KeptRequest {
    fn drop(&mut self) {
        self.answer(Err(Error::new(libc::ECANCELED, "the service ended before it could answer")));
        // SAFETY: the reference taken by `keep`; a message does not depend on its handle.
        unsafe { self.handle.libflux().flux_msg_decref(self.raw.as_ptr()) };
    }
}

/// An event being handled.
pub struct Event<'a> {
    message: Message<'a>,
}

impl<'a> Event<'a> {
    pub(crate) fn new(raw: &'a flux_msg_t, handle: &'a Handle) -> Self {
        Event { message: Message { raw, handle } }
    }

    /// The topic.
    pub fn topic(&self) -> String {
        self.message.topic()
    }

    /// Its place in the instance's one order of events.
    pub fn sequence(&self) -> Result<u32> {
        let (libflux, mut seq) = (self.message.handle.libflux(), 0);
        // SAFETY: a live message and a valid place for the number.
        match unsafe { libflux.flux_msg_get_seq(self.message.raw, &mut seq) } {
            0 => Ok(seq),
            _ => Err(Error::last(libflux, "asking for an event's sequence")),
        }
    }

    /// The payload as a JSON object, empty when there is none.
    pub fn json(&self) -> Result<Value> {
        let (mut topic, mut text) = (ptr::null(), ptr::null());
        // SAFETY: a live message and valid places for the pointers.
        let rc = unsafe {
            self.message.handle.libflux().flux_event_decode(self.message.raw, &mut topic, &mut text)
        };
        self.message.object(rc, text, usize::MAX)
    }
}
