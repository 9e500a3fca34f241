//! A connection to a broker.

use crate::error::{Error, Result};
use flux_sys::{Loaded, flux_error_t, flux_t};
use std::ffi::{CStr, CString, c_void};
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::{self, NonNull};

/// Where a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// The nearest broker that has the service, from this one towards rank 0.
    Any,
    /// As `Any`, but not this broker.
    Upstream,
    /// That broker.
    Rank(u32),
}

impl Node {
    pub(crate) fn id(self) -> u32 {
        match self {
            Node::Any => flux_sys::FLUX_NODEID_ANY,
            Node::Upstream => flux_sys::FLUX_NODEID_UPSTREAM,
            Node::Rank(rank) => rank,
        }
    }
}

/// Severity of a log line, as in syslog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// An error; forwarded to rank 0 by default.
    Err = 3,
    /// A warning.
    Warning = 4,
    /// Worth a line in normal operation.
    Notice = 5,
    /// For who looks.
    Info = 6,
    /// For who debugs.
    Debug = 7,
}

/// A handle: the connection of one thread to its broker. Borrowed from libflux in a module; a [`Client`] owns one.
pub struct Handle {
    raw: NonNull<flux_t>,
    libflux: &'static Loaded,
    /// libflux handles belong to the thread that uses them.
    thread: PhantomData<*mut ()>,
}

impl Handle {
    /// # Safety
    /// `raw` is a live handle of this thread, and outlives what is returned.
    pub(crate) unsafe fn borrow(raw: NonNull<flux_t>, libflux: &'static Loaded) -> Self {
        Handle { raw, libflux, thread: PhantomData }
    }

    /// A handle that C opened and will close. `EINVAL`: it is null; `ELIBACC`: the process has no libflux to use it with.
    ///
    /// # Safety
    /// `raw` is null or a live `flux_t *` that no other thread uses meanwhile, and outlives what is returned.
    pub unsafe fn from_raw(raw: *mut c_void) -> Result<Self> {
        let raw = NonNull::new(raw).ok_or_else(|| Error::invalid("the handle is null"))?;
        let libflux = flux_sys::libflux().map_err(|error| Error::new(libc::ELIBACC, error.to_string()))?;
        // SAFETY: see above; the type is known to libflux alone.
        Ok(unsafe { Handle::borrow(raw.cast(), libflux) })
    }

    pub(crate) fn raw(&self) -> *mut flux_t {
        self.raw.as_ptr()
    }

    pub(crate) fn libflux(&self) -> &'static Loaded {
        self.libflux
    }

    /// The broker's rank.
    pub fn rank(&self) -> Result<u32> {
        let mut rank = 0;
        // SAFETY: a live handle and a valid place for the number.
        match unsafe { self.libflux.flux_get_rank(self.raw(), &mut rank) } {
            0 => Ok(rank),
            _ => Err(Error::last(self.libflux, "asking for the rank")),
        }
    }

    /// The number of brokers in the instance.
    pub fn size(&self) -> Result<u32> {
        let mut size = 0;
        // SAFETY: a live handle and a valid place for the number.
        match unsafe { self.libflux.flux_get_size(self.raw(), &mut size) } {
            0 => Ok(size),
            _ => Err(Error::last(self.libflux, "asking for the size")),
        }
    }

    /// A broker attribute; `None` when it is not set.
    pub fn attribute(&self, name: &str) -> Option<String> {
        let name = CString::new(name).ok()?;
        // SAFETY: a live handle and a C string.
        let value = unsafe { self.libflux.flux_attr_get(self.raw(), name.as_ptr()) };
        // SAFETY: null, or a string that lives until the attribute changes: it is copied at once.
        (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned())
    }

    /// The same handle once more, for what ends with it.
    pub(crate) fn again(&self) -> Self {
        Handle { raw: self.raw, libflux: self.libflux, thread: PhantomData }
    }

    /// The name under which the module was loaded whose handle this is; `None`: it is a program's.
    pub fn module_name(&self) -> Option<String> {
        self.aux_string(c"flux::name")
    }

    /// An auxiliary item that is a string, such as the module's name under `flux::name`.
    pub(crate) fn aux_string(&self, name: &CStr) -> Option<String> {
        // SAFETY: a live handle and a C string.
        let value = unsafe { self.libflux.flux_aux_get(self.raw(), name.as_ptr()) };
        // SAFETY: null, or by the name's contract a C string that lives as long as the handle: it is copied at once.
        (!value.is_null()).then(|| unsafe { CStr::from_ptr(value.cast()) }.to_string_lossy().into_owned())
    }

    /// Writes a line to the broker's log.
    pub fn log(&self, level: Level, text: &str) {
        let Ok(text) = CString::new(text.replace('\0', " ")) else { return };
        if let Ok(flux_log) = self.libflux.flux_log.as_ref() {
            // SAFETY: a live handle and the fixed format "%s" with the one C string that it asks for.
            unsafe { flux_log(self.raw(), level as i32, c"%s".as_ptr(), text.as_ptr()) };
        }
    }

    /// Asks for events whose topic begins with `prefix`.
    pub fn subscribe(&self, prefix: &str) -> Result<()> {
        let topic = c_string(prefix, "event topic")?;
        // SAFETY: a live handle and a C string.
        match unsafe { self.libflux.flux_event_subscribe(self.raw(), topic.as_ptr()) } {
            0 => Ok(()),
            _ => Err(Error::last(self.libflux, &format!("subscribing to {prefix}"))),
        }
    }
}

/// `text` for C; `what` names it in the error.
pub(crate) fn c_string(text: &str, what: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::invalid(format!("{what} {text:?} contains a NUL")))
}

/// A connection that a program opened, closed when it is dropped.
pub struct Client {
    handle: Handle,
}

impl Client {
    /// Connects to `uri`, or without one to the enclosing instance (`FLUX_URI`).
    pub fn open(uri: Option<&str>) -> Result<Self> {
        let libflux = flux_sys::libflux().map_err(|error| Error::new(libc::ELIBACC, error.to_string()))?;
        let uri = uri.map(|uri| c_string(uri, "URI")).transpose()?;
        let mut error = flux_error_t { text: [0; 160] };
        // SAFETY: null or a C string, and a valid place for the error.
        let raw = unsafe {
            libflux.flux_open_ex(uri.as_ref().map_or(ptr::null(), |uri| uri.as_ptr()), 0, &mut error)
        };
        match NonNull::new(raw) {
            // SAFETY: just opened by this thread, and closed only when the client is dropped.
            Some(raw) => Ok(Client { handle: unsafe { Handle::borrow(raw, libflux) } }),
            None => {
                let last = Error::last(libflux, "connecting to Flux");
                // SAFETY: libflux terminates the text it writes; the buffer was zero before.
                let text = unsafe { CStr::from_ptr(error.text.as_ptr()) }.to_string_lossy();
                if text.is_empty() {
                    Err(last)
                } else {
                    Err(Error::new(last.errnum(), format!("connecting to Flux: {text}")))
                }
            }
        }
    }

    /// Sends every message as `userid` with the roles of `rolemask`: for tests, honoured by a broker only for the
    /// instance owner.
    pub fn pretend(&self, userid: u32, rolemask: u32) -> Result<()> {
        self.set_option(c"flux::testing_userid", &userid)?;
        self.set_option(c"flux::testing_rolemask", &rolemask)
    }

    fn set_option(&self, name: &CStr, value: &u32) -> Result<()> {
        let value: *const u32 = value;
        // SAFETY: a live handle, a C string, and a value of the size that is given with it.
        let rc = unsafe {
            self.libflux.flux_opt_set(self.raw(), name.as_ptr(), value.cast::<c_void>(), size_of::<u32>())
        };
        if rc == 0 { Ok(()) } else { Err(Error::last(self.libflux, &format!("setting {name:?}"))) }
    }
}

impl Deref for Client {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.say_last_words();
        // Dropped from inside a call that uses it through a `WeakHandle`: it stays open.
        if self.is_in_use() {
            return;
        }
        // SAFETY: opened by this client, and nothing that borrows from it can outlive it.
        unsafe { self.libflux.flux_close(self.raw()) };
    }
}
