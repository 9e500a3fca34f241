//! Requests that we make.

use crate::belongings::Use;
use crate::boundary::NoCancel;
use crate::error::{Error, Result, strerror};
use crate::handle::{Handle, Node, c_string};
use flux_sys::{Loaded, flux_future_t};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::rc::{Rc, Weak};
use std::time::Duration;

/// What a request carries.
#[derive(Debug, Clone, Copy)]
pub enum Payload<'a> {
    /// Nothing.
    None,
    /// A JSON object.
    Json(&'a Value),
    /// A JSON object as text.
    Text(&'a str),
    /// Bytes that only the receiver understands.
    Raw(&'a [u8]),
}

/// A response, owned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    bytes: Vec<u8>,
}

impl Reply {
    /// The payload as it came; empty when there was none. A text payload includes its final NUL.
    pub fn raw(&self) -> &[u8] {
        &self.bytes
    }

    /// The payload as text, without its final NUL; empty when there was none.
    pub fn text(&self) -> Result<&str> {
        let bytes = self.bytes.strip_suffix(b"\0").unwrap_or(&self.bytes);
        std::str::from_utf8(bytes)
            .map_err(|error| Error::new(libc::EPROTO, format!("response is not text: {error}")))
    }

    /// The payload as JSON; `null` when there was none.
    pub fn json(&self) -> Result<Value> {
        match self.text()? {
            "" => Ok(Value::Null),
            text => serde_json::from_str(text)
                .map_err(|error| Error::new(libc::EPROTO, format!("response is not JSON: {error}"))),
        }
    }
}

/// A request under way, to be waited for; dropped, it is forgotten.
pub struct Rpc<'h> {
    future: Future,
    handle: PhantomData<&'h Handle>,
}

impl Handle {
    /// Sends a request.
    pub fn rpc(&self, topic: &str, payload: Payload<'_>, node: Node) -> Result<Rpc<'_>> {
        Ok(Rpc { future: Future::request(self, topic, payload, node, 0)?, handle: PhantomData })
    }

    /// Sends a request that nobody answers: an error at the receiver stays unknown.
    pub fn tell(&self, topic: &str, payload: Payload<'_>, node: Node) -> Result<()> {
        Future::request(self, topic, payload, node, flux_sys::FLUX_RPC_NORESPONSE).map(drop)
    }
}

impl Handle {
    /// Sends a request; `continuation` gets the response from the handle's reactor, or `ETIMEDOUT` after `timeout`.
    /// Drop what is returned before the handle: until then a request under way keeps libflux from closing it.
    pub fn request(
        &self,
        topic: &str,
        payload: Payload<'_>,
        node: Node,
        timeout: Option<Duration>,
        continuation: impl FnOnce(Result<Reply>) + 'static,
    ) -> Result<PendingRpc> {
        let alive = self.alive()?;
        let future = Future::request(self, topic, payload, node, 0)?;
        PendingRpc::await_while(future, Alive::Handle(alive), timeout, continuation)
    }
}

/// A request with any number of responses; dropped, no more of them are taken.
pub struct Stream<'h> {
    rpc: Rpc<'h>,
}

impl Handle {
    /// Sends a request that is answered by a stream of responses.
    pub fn stream(&self, topic: &str, payload: Payload<'_>, node: Node) -> Result<Stream<'_>> {
        let future = Future::request(self, topic, payload, node, flux_sys::FLUX_RPC_STREAMING)?;
        Ok(Stream { rpc: Rpc { future, handle: PhantomData } })
    }
}

impl Stream<'_> {
    /// Waits for the next response, at most `timeout`; `None` when the stream has ended in order.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Reply>> {
        let future = &self.rpc.future;
        future.wait(timeout)?;
        let reply = future.reply();
        // SAFETY: a live future.
        unsafe { future.libflux.flux_future_reset(future.raw.as_ptr()) };
        match reply {
            Err(error) if error.errnum() == libc::ENODATA => Ok(None),
            reply => reply.map(Some),
        }
    }
}

impl Rpc<'_> {
    /// Waits for the response, at most `timeout`.
    ///
    /// In a module this blocks its reactor: only before it runs.
    pub fn wait(self, timeout: Duration) -> Result<Reply> {
        self.future.wait(timeout)?;
        self.future.reply()
    }
}

/// An owned `flux_future_t`.
pub(crate) struct Future {
    raw: NonNull<flux_future_t>,
    libflux: &'static Loaded,
}

impl Future {
    pub(crate) fn request(
        handle: &Handle,
        topic: &str,
        payload: Payload<'_>,
        node: Node,
        flags: u32,
    ) -> Result<Self> {
        let topic_c = c_string(topic, "topic")?;
        let text = match payload {
            Payload::Json(value) => Some(c_string(&value.to_string(), "payload")?),
            Payload::Text(text) => Some(c_string(text, "payload")?),
            Payload::None | Payload::Raw(_) => None,
        };
        let (libflux, flags) = (handle.libflux(), flags as i32);
        let raw = match payload {
            // SAFETY: a live handle, a C string, and bytes with their length; all are copied.
            Payload::Raw(bytes) => unsafe {
                let data = bytes.as_ptr().cast::<c_void>();
                libflux.flux_rpc_raw(handle.raw(), topic_c.as_ptr(), data, bytes.len(), node.id(), flags)
            },
            // SAFETY: a live handle and C strings (or null for no payload); all are copied.
            _ => unsafe {
                let text = text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
                libflux.flux_rpc(handle.raw(), topic_c.as_ptr(), text, node.id(), flags)
            },
        };
        Self::own(handle, raw, || format!("sending {topic}"))
    }

    /// The publication of an event with a JSON object or nothing; fulfilled when rank 0 has given it its sequence.
    pub(crate) fn publication(handle: &Handle, topic: &str, payload: Option<&Value>) -> Result<Self> {
        let topic_c = c_string(topic, "event topic")?;
        let text = payload.map(|value| c_string(&value.to_string(), "event payload")).transpose()?;
        let text = text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        // SAFETY: a live handle and C strings (or null for no payload); all are copied.
        let raw = unsafe { handle.libflux().flux_event_publish(handle.raw(), topic_c.as_ptr(), 0, text) };
        Self::own(handle, raw, || format!("publishing {topic}"))
    }

    fn own(handle: &Handle, raw: *mut flux_future_t, doing: impl Fn() -> String) -> Result<Self> {
        match NonNull::new(raw) {
            Some(raw) => Ok(Future { raw, libflux: handle.libflux() }),
            None => Err(Error::last(handle.libflux(), &doing())),
        }
    }

    fn wait(&self, timeout: Duration) -> Result<()> {
        // SAFETY: a live future.
        match unsafe { self.libflux.flux_future_wait_for(self.raw.as_ptr(), timeout.as_secs_f64()) } {
            0 => Ok(()),
            _ => Err(Error::last(self.libflux, "waiting for a response")),
        }
    }

    /// What a ready future holds.
    fn reply(&self) -> Result<Reply> {
        let (mut data, mut len) = (ptr::null(), 0);
        // SAFETY: a live future and valid places for pointer and length.
        if unsafe { self.libflux.flux_rpc_get_raw(self.raw.as_ptr(), &mut data, &mut len) } == 0 {
            if data.is_null() || len == 0 {
                return Ok(Reply { bytes: Vec::new() });
            }
            // SAFETY: that many bytes, which belong to the future; they are copied while it lives.
            let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) };
            return Ok(Reply { bytes: bytes.to_vec() });
        }
        let errnum = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        // SAFETY: a live future; the string belongs to it and is copied at once.
        let text = unsafe {
            let text = self.libflux.flux_future_error_string(self.raw.as_ptr());
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        };
        Err(Error::new(errnum, text.unwrap_or_else(|| strerror(self.libflux, errnum))))
    }
}

impl Drop for Future {
    fn drop(&mut self) {
        // SAFETY: owned, and alive until here; its handle is (see PendingRpc for the one case that needs care).
        unsafe { self.libflux.flux_future_destroy(self.raw.as_ptr()) };
    }
}

/// A response's callback, called once.
type Continuation = Box<dyn FnOnce(Result<Reply>)>;

struct Pending {
    /// Taken by the callback or by the drop of [`PendingRpc`], whichever comes first.
    future: RefCell<Option<Future>>,
    continuation: Cell<Option<Continuation>>,
    /// Who asked. When it is gone, so may be the handle.
    alive: Alive,
}

/// Whose end is the end of a request: a module's, or a handle's.
enum Alive {
    Module(Weak<()>),
    Handle(Weak<Use>),
}

impl Alive {
    fn is_gone(&self) -> bool {
        match self {
            Alive::Module(module) => module.strong_count() == 0,
            Alive::Handle(handle) => handle.strong_count() == 0,
        }
    }
}

/// A request whose response will be handed to a callback; dropped before, the callback is never called.
#[must_use = "dropped, the request is forgotten and its callback never called"]
pub struct PendingRpc {
    pending: Rc<Pending>,
}

impl PendingRpc {
    /// Hands the outcome of `future` to `continuation`, or `ETIMEDOUT` after `timeout`.
    pub(crate) fn await_with(
        future: Future,
        alive: &Rc<()>,
        timeout: Option<Duration>,
        continuation: impl FnOnce(Result<Reply>) + 'static,
    ) -> Result<Self> {
        Self::await_while(future, Alive::Module(Rc::downgrade(alive)), timeout, continuation)
    }

    fn await_while(
        future: Future,
        alive: Alive,
        timeout: Option<Duration>,
        continuation: impl FnOnce(Result<Reply>) + 'static,
    ) -> Result<Self> {
        let (raw, libflux) = (future.raw, future.libflux);
        let pending = Rc::new(Pending {
            future: RefCell::new(Some(future)),
            continuation: Cell::new(Some(Box::new(continuation))),
            alive,
        });
        let seconds = timeout.map_or(-1.0, |timeout| timeout.as_secs_f64());
        let arg = Rc::as_ptr(&pending).cast_mut().cast();
        // SAFETY: a live future, the trampoline and the argument that it expects.
        match unsafe { libflux.flux_future_then(raw.as_ptr(), seconds, Some(ready), arg) } {
            0 => Ok(PendingRpc { pending }),
            _ => Err(Error::last(libflux, "awaiting a response")),
        }
    }
}

impl PendingRpc {
    /// Waits for the response instead, at most `timeout`; its callback is not called.
    pub fn wait(self, timeout: Duration) -> Result<Reply> {
        if self.pending.alive.is_gone() {
            return Err(Error::new(libc::ESHUTDOWN, "the handle is closed"));
        }
        // Out of the cell, so that the callback finds nothing to do.
        let future = self.pending.future.borrow_mut().take();
        let future = future.ok_or_else(|| Error::new(libc::EALREADY, "the response has been handed over"))?;
        future.wait(timeout)?;
        future.reply()
    }
}

impl Drop for PendingRpc {
    fn drop(&mut self) {
        let future = self.pending.future.borrow_mut().take();
        if self.pending.alive.is_gone() {
            // Kept beyond its module, hence perhaps beyond the handle: leaked rather than freed twice.
            std::mem::forget(future);
        }
    }
}

/// Where C enters.
unsafe extern "C" fn ready(_: *mut flux_future_t, arg: *mut c_void) {
    let _no_cancel = NoCancel::new();
    // SAFETY: the argument is alive: the future was not destroyed, and it is destroyed with its PendingRpc. The
    // reference counted here keeps it until we return, even when the continuation drops the PendingRpc.
    let pending = unsafe {
        Rc::increment_strong_count(arg.cast::<Pending>());
        Rc::from_raw(arg.cast::<Pending>().cast_const())
    };
    let Some(continuation) = pending.continuation.take() else { return };
    let Some(future) = pending.future.borrow_mut().take() else { return };
    // What panics in a module is contained, counted and logged by the module; this is for everyone else.
    let _ = catch_unwind(AssertUnwindSafe(|| continuation(future.reply())));
}
