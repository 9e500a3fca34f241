// Generated from include/libflux.h by `cargo xtask bindings`: do not edit.

pub const FLUX_NODEID_ANY: u32 = 4294967295;
pub const FLUX_NODEID_UPSTREAM: u32 = 4294967294;
pub const FLUX_ROLE_ALL: u32 = 4294967295;
#[repr(C)]
#[derive(Debug)]
pub struct flux_handle {
    _unused: [u8; 0],
}
pub type flux_t = flux_handle;
#[repr(C)]
#[derive(Debug)]
pub struct flux_reactor {
    _unused: [u8; 0],
}
pub type flux_reactor_t = flux_reactor;
#[repr(C)]
#[derive(Debug)]
pub struct flux_watcher {
    _unused: [u8; 0],
}
pub type flux_watcher_t = flux_watcher;
#[repr(C)]
#[derive(Debug)]
pub struct flux_future {
    _unused: [u8; 0],
}
pub type flux_future_t = flux_future;
#[repr(C)]
#[derive(Debug)]
pub struct flux_msg {
    _unused: [u8; 0],
}
pub type flux_msg_t = flux_msg;
#[repr(C)]
#[derive(Debug)]
pub struct flux_msg_handler {
    _unused: [u8; 0],
}
pub type flux_msg_handler_t = flux_msg_handler;
#[repr(C)]
#[derive(Debug)]
pub struct flux_msglist {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct flux_error_text {
    pub text: [::std::os::raw::c_char; 160usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of flux_error_text"][::std::mem::size_of::<flux_error_text>() - 160usize];
    ["Alignment of flux_error_text"][::std::mem::align_of::<flux_error_text>() - 1usize];
    ["Offset of field: flux_error_text::text"][::std::mem::offset_of!(flux_error_text, text) - 0usize];
};
pub type flux_error_t = flux_error_text;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct flux_match {
    pub typemask: ::std::os::raw::c_int,
    pub matchtag: u32,
    pub topic_glob: *const ::std::os::raw::c_char,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of flux_match"][::std::mem::size_of::<flux_match>() - 16usize];
    ["Alignment of flux_match"][::std::mem::align_of::<flux_match>() - 8usize];
    ["Offset of field: flux_match::typemask"][::std::mem::offset_of!(flux_match, typemask) - 0usize];
    ["Offset of field: flux_match::matchtag"][::std::mem::offset_of!(flux_match, matchtag) - 4usize];
    ["Offset of field: flux_match::topic_glob"][::std::mem::offset_of!(flux_match, topic_glob) - 8usize];
};
pub type flux_free_f = ::std::option::Option<unsafe extern "C" fn(arg: *mut ::std::os::raw::c_void)>;
pub type flux_watcher_f = ::std::option::Option<
    unsafe extern "C" fn(
        r: *mut flux_reactor_t,
        w: *mut flux_watcher_t,
        revents: ::std::os::raw::c_int,
        arg: *mut ::std::os::raw::c_void,
    ),
>;
pub type flux_continuation_f =
    ::std::option::Option<unsafe extern "C" fn(f: *mut flux_future_t, arg: *mut ::std::os::raw::c_void)>;
pub type flux_msg_handler_f = ::std::option::Option<
    unsafe extern "C" fn(
        h: *mut flux_t,
        mh: *mut flux_msg_handler_t,
        msg: *const flux_msg_t,
        arg: *mut ::std::os::raw::c_void,
    ),
>;
pub const FLUX_MSGTYPE_REQUEST: _bindgen_ty_1 = 1;
pub const FLUX_MSGTYPE_RESPONSE: _bindgen_ty_1 = 2;
pub const FLUX_MSGTYPE_EVENT: _bindgen_ty_1 = 4;
pub const FLUX_MSGTYPE_CONTROL: _bindgen_ty_1 = 8;
pub type _bindgen_ty_1 = ::std::os::raw::c_uint;
pub const FLUX_RPC_NORESPONSE: _bindgen_ty_2 = 1;
pub const FLUX_RPC_STREAMING: _bindgen_ty_2 = 2;
pub type _bindgen_ty_2 = ::std::os::raw::c_uint;
pub const FLUX_POLLIN: _bindgen_ty_3 = 1;
pub const FLUX_POLLOUT: _bindgen_ty_3 = 2;
pub const FLUX_POLLERR: _bindgen_ty_3 = 4;
pub type _bindgen_ty_3 = ::std::os::raw::c_uint;
pub const FLUX_REACTOR_NOWAIT: _bindgen_ty_4 = 1;
pub const FLUX_REACTOR_ONCE: _bindgen_ty_4 = 2;
pub type _bindgen_ty_4 = ::std::os::raw::c_uint;
pub const FLUX_ROLE_NONE: _bindgen_ty_5 = 0;
pub const FLUX_ROLE_OWNER: _bindgen_ty_5 = 1;
pub const FLUX_ROLE_USER: _bindgen_ty_5 = 2;
pub const FLUX_ROLE_LOCAL: _bindgen_ty_5 = 4;
pub type _bindgen_ty_5 = ::std::os::raw::c_uint;
pub const FLUX_MATCHTAG_NONE: _bindgen_ty_6 = 0;
pub type _bindgen_ty_6 = ::std::os::raw::c_uint;
pub struct LibFlux {
    __library: ::libloading::Library,
    pub flux_core_version_string:
        Result<unsafe extern "C" fn() -> *const ::std::os::raw::c_char, ::libloading::Error>,
    pub flux_core_version: Result<
        unsafe extern "C" fn(
            major: *mut ::std::os::raw::c_int,
            minor: *mut ::std::os::raw::c_int,
            patch: *mut ::std::os::raw::c_int,
        ) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_open_ex: Result<
        unsafe extern "C" fn(
            uri: *const ::std::os::raw::c_char,
            flags: ::std::os::raw::c_int,
            error: *mut flux_error_t,
        ) -> *mut flux_t,
        ::libloading::Error,
    >,
    pub flux_close: Result<unsafe extern "C" fn(h: *mut flux_t), ::libloading::Error>,
    pub flux_get_reactor:
        Result<unsafe extern "C" fn(h: *mut flux_t) -> *mut flux_reactor_t, ::libloading::Error>,
    pub flux_set_reactor: Result<
        unsafe extern "C" fn(h: *mut flux_t, r: *mut flux_reactor_t) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_aux_get: Result<
        unsafe extern "C" fn(
            h: *mut flux_t,
            name: *const ::std::os::raw::c_char,
        ) -> *mut ::std::os::raw::c_void,
        ::libloading::Error,
    >,
    pub flux_aux_set: Result<
        unsafe extern "C" fn(
            h: *mut flux_t,
            name: *const ::std::os::raw::c_char,
            aux: *mut ::std::os::raw::c_void,
            destroy: flux_free_f,
        ) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_opt_set: Result<
        unsafe extern "C" fn(
            h: *mut flux_t,
            option: *const ::std::os::raw::c_char,
            val: *const ::std::os::raw::c_void,
            len: usize,
        ) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_attr_get: Result<
        unsafe extern "C" fn(
            h: *mut flux_t,
            name: *const ::std::os::raw::c_char,
        ) -> *const ::std::os::raw::c_char,
        ::libloading::Error,
    >,
    pub flux_get_rank: Result<
        unsafe extern "C" fn(h: *mut flux_t, rank: *mut u32) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_get_size: Result<
        unsafe extern "C" fn(h: *mut flux_t, size: *mut u32) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_log: Result<
        unsafe extern "C" fn(
            h: *mut flux_t,
            level: ::std::os::raw::c_int,
            fmt: *const ::std::os::raw::c_char,
            ...
        ) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_strerror: Result<
        unsafe extern "C" fn(errnum: ::std::os::raw::c_int) -> *const ::std::os::raw::c_char,
        ::libloading::Error,
    >,
    pub flux_reactor_create: Result<
        unsafe extern "C" fn(flags: ::std::os::raw::c_int) -> *mut flux_reactor_t,
        ::libloading::Error,
    >,
    pub flux_reactor_destroy: Result<unsafe extern "C" fn(r: *mut flux_reactor_t), ::libloading::Error>,
    pub flux_reactor_run: Result<
        unsafe extern "C" fn(r: *mut flux_reactor_t, flags: ::std::os::raw::c_int) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_reactor_stop: Result<unsafe extern "C" fn(r: *mut flux_reactor_t), ::libloading::Error>,
    pub flux_reactor_stop_error: Result<unsafe extern "C" fn(r: *mut flux_reactor_t), ::libloading::Error>,
    pub flux_reactor_now: Result<unsafe extern "C" fn(r: *mut flux_reactor_t) -> f64, ::libloading::Error>,
    pub flux_watcher_start: Result<unsafe extern "C" fn(w: *mut flux_watcher_t), ::libloading::Error>,
    pub flux_watcher_stop: Result<unsafe extern "C" fn(w: *mut flux_watcher_t), ::libloading::Error>,
    pub flux_watcher_ref: Result<unsafe extern "C" fn(w: *mut flux_watcher_t), ::libloading::Error>,
    pub flux_watcher_unref: Result<unsafe extern "C" fn(w: *mut flux_watcher_t), ::libloading::Error>,
    pub flux_watcher_destroy: Result<unsafe extern "C" fn(w: *mut flux_watcher_t), ::libloading::Error>,
    pub flux_watcher_set_priority: Result<
        unsafe extern "C" fn(w: *mut flux_watcher_t, priority: ::std::os::raw::c_int),
        ::libloading::Error,
    >,
    pub flux_timer_watcher_create: Result<
        unsafe extern "C" fn(
            r: *mut flux_reactor_t,
            after: f64,
            repeat: f64,
            cb: flux_watcher_f,
            arg: *mut ::std::os::raw::c_void,
        ) -> *mut flux_watcher_t,
        ::libloading::Error,
    >,
    pub flux_timer_watcher_reset:
        Result<unsafe extern "C" fn(w: *mut flux_watcher_t, after: f64, repeat: f64), ::libloading::Error>,
    pub flux_fd_watcher_create: Result<
        unsafe extern "C" fn(
            r: *mut flux_reactor_t,
            fd: ::std::os::raw::c_int,
            events: ::std::os::raw::c_int,
            cb: flux_watcher_f,
            arg: *mut ::std::os::raw::c_void,
        ) -> *mut flux_watcher_t,
        ::libloading::Error,
    >,
    pub flux_prepare_watcher_create: Result<
        unsafe extern "C" fn(
            r: *mut flux_reactor_t,
            cb: flux_watcher_f,
            arg: *mut ::std::os::raw::c_void,
        ) -> *mut flux_watcher_t,
        ::libloading::Error,
    >,
    pub flux_check_watcher_create: Result<
        unsafe extern "C" fn(
            r: *mut flux_reactor_t,
            cb: flux_watcher_f,
            arg: *mut ::std::os::raw::c_void,
        ) -> *mut flux_watcher_t,
        ::libloading::Error,
    >,
    pub flux_idle_watcher_create: Result<
        unsafe extern "C" fn(
            r: *mut flux_reactor_t,
            cb: flux_watcher_f,
            arg: *mut ::std::os::raw::c_void,
        ) -> *mut flux_watcher_t,
        ::libloading::Error,
    >,
    pub flux_future_then: Result<
        unsafe extern "C" fn(
            f: *mut flux_future_t,
            timeout: f64,
            cb: flux_continuation_f,
            arg: *mut ::std::os::raw::c_void,
        ) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_future_wait_for: Result<
        unsafe extern "C" fn(f: *mut flux_future_t, timeout: f64) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_future_is_ready:
        Result<unsafe extern "C" fn(f: *mut flux_future_t) -> bool, ::libloading::Error>,
    pub flux_future_reset: Result<unsafe extern "C" fn(f: *mut flux_future_t), ::libloading::Error>,
    pub flux_future_destroy: Result<unsafe extern "C" fn(f: *mut flux_future_t), ::libloading::Error>,
    pub flux_future_get: Result<
        unsafe extern "C" fn(
            f: *mut flux_future_t,
            result: *mut *const ::std::os::raw::c_void,
        ) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_future_has_error:
        Result<unsafe extern "C" fn(f: *mut flux_future_t) -> bool, ::libloading::Error>,
    pub flux_future_error_string: Result<
        unsafe extern "C" fn(f: *mut flux_future_t) -> *const ::std::os::raw::c_char,
        ::libloading::Error,
    >,
    pub flux_rpc: Result<
        unsafe extern "C" fn(
            h: *mut flux_t,
            topic: *const ::std::os::raw::c_char,
            s: *const ::std::os::raw::c_char,
            nodeid: u32,
            flags: ::std::os::raw::c_int,
        ) -> *mut flux_future_t,
        ::libloading::Error,
    >,
    pub flux_rpc_raw: Result<
        unsafe extern "C" fn(
            h: *mut flux_t,
            topic: *const ::std::os::raw::c_char,
            data: *const ::std::os::raw::c_void,
            len: usize,
            nodeid: u32,
            flags: ::std::os::raw::c_int,
        ) -> *mut flux_future_t,
        ::libloading::Error,
    >,
    pub flux_rpc_get: Result<
        unsafe extern "C" fn(
            f: *mut flux_future_t,
            s: *mut *const ::std::os::raw::c_char,
        ) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_rpc_get_raw: Result<
        unsafe extern "C" fn(
            f: *mut flux_future_t,
            data: *mut *const ::std::os::raw::c_void,
            len: *mut usize,
        ) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_rpc_get_matchtag:
        Result<unsafe extern "C" fn(f: *mut flux_future_t) -> u32, ::libloading::Error>,
    pub flux_msg_incref:
        Result<unsafe extern "C" fn(msg: *const flux_msg_t) -> *const flux_msg_t, ::libloading::Error>,
    pub flux_msg_decref: Result<unsafe extern "C" fn(msg: *const flux_msg_t), ::libloading::Error>,
    pub flux_msg_get_topic: Result<
        unsafe extern "C" fn(
            msg: *const flux_msg_t,
            topic: *mut *const ::std::os::raw::c_char,
        ) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_msg_get_rolemask: Result<
        unsafe extern "C" fn(msg: *const flux_msg_t, rolemask: *mut u32) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_msg_get_userid: Result<
        unsafe extern "C" fn(msg: *const flux_msg_t, userid: *mut u32) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_msg_is_streaming:
        Result<unsafe extern "C" fn(msg: *const flux_msg_t) -> bool, ::libloading::Error>,
    pub flux_msg_is_noresponse:
        Result<unsafe extern "C" fn(msg: *const flux_msg_t) -> bool, ::libloading::Error>,
    pub flux_msg_route_first: Result<
        unsafe extern "C" fn(msg: *const flux_msg_t) -> *const ::std::os::raw::c_char,
        ::libloading::Error,
    >,
    pub flux_request_decode: Result<
        unsafe extern "C" fn(
            msg: *const flux_msg_t,
            topic: *mut *const ::std::os::raw::c_char,
            s: *mut *const ::std::os::raw::c_char,
        ) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_request_decode_raw: Result<
        unsafe extern "C" fn(
            msg: *const flux_msg_t,
            topic: *mut *const ::std::os::raw::c_char,
            data: *mut *const ::std::os::raw::c_void,
            len: *mut usize,
        ) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_respond: Result<
        unsafe extern "C" fn(
            h: *mut flux_t,
            request: *const flux_msg_t,
            s: *const ::std::os::raw::c_char,
        ) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_respond_raw: Result<
        unsafe extern "C" fn(
            h: *mut flux_t,
            request: *const flux_msg_t,
            data: *const ::std::os::raw::c_void,
            len: ::std::os::raw::c_int,
        ) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_respond_error: Result<
        unsafe extern "C" fn(
            h: *mut flux_t,
            request: *const flux_msg_t,
            errnum: ::std::os::raw::c_int,
            errstr: *const ::std::os::raw::c_char,
        ) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_msg_handler_create: Result<
        unsafe extern "C" fn(
            h: *mut flux_t,
            match_: flux_match,
            cb: flux_msg_handler_f,
            arg: *mut ::std::os::raw::c_void,
        ) -> *mut flux_msg_handler_t,
        ::libloading::Error,
    >,
    pub flux_msg_handler_destroy:
        Result<unsafe extern "C" fn(mh: *mut flux_msg_handler_t), ::libloading::Error>,
    pub flux_msg_handler_start:
        Result<unsafe extern "C" fn(mh: *mut flux_msg_handler_t), ::libloading::Error>,
    pub flux_msg_handler_stop: Result<unsafe extern "C" fn(mh: *mut flux_msg_handler_t), ::libloading::Error>,
    pub flux_msg_handler_allow_rolemask:
        Result<unsafe extern "C" fn(mh: *mut flux_msg_handler_t, rolemask: u32), ::libloading::Error>,
    pub flux_event_subscribe: Result<
        unsafe extern "C" fn(h: *mut flux_t, topic: *const ::std::os::raw::c_char) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_event_unsubscribe: Result<
        unsafe extern "C" fn(h: *mut flux_t, topic: *const ::std::os::raw::c_char) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_event_decode: Result<
        unsafe extern "C" fn(
            msg: *const flux_msg_t,
            topic: *mut *const ::std::os::raw::c_char,
            s: *mut *const ::std::os::raw::c_char,
        ) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_event_publish: Result<
        unsafe extern "C" fn(
            h: *mut flux_t,
            topic: *const ::std::os::raw::c_char,
            flags: ::std::os::raw::c_int,
            s: *const ::std::os::raw::c_char,
        ) -> *mut flux_future_t,
        ::libloading::Error,
    >,
    pub flux_event_publish_get_seq: Result<
        unsafe extern "C" fn(f: *mut flux_future_t, seq: *mut ::std::os::raw::c_int) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_msg_get_seq: Result<
        unsafe extern "C" fn(msg: *const flux_msg_t, seq: *mut u32) -> ::std::os::raw::c_int,
        ::libloading::Error,
    >,
    pub flux_disconnect_match: Result<
        unsafe extern "C" fn(msg1: *const flux_msg_t, msg2: *const flux_msg_t) -> bool,
        ::libloading::Error,
    >,
    pub flux_cancel_match: Result<
        unsafe extern "C" fn(msg1: *const flux_msg_t, msg2: *const flux_msg_t) -> bool,
        ::libloading::Error,
    >,
    pub flux_module_set_running:
        Result<unsafe extern "C" fn(h: *mut flux_t) -> ::std::os::raw::c_int, ::libloading::Error>,
    pub flux_service_register: Result<
        unsafe extern "C" fn(h: *mut flux_t, name: *const ::std::os::raw::c_char) -> *mut flux_future_t,
        ::libloading::Error,
    >,
    pub flux_service_unregister: Result<
        unsafe extern "C" fn(h: *mut flux_t, name: *const ::std::os::raw::c_char) -> *mut flux_future_t,
        ::libloading::Error,
    >,
}
impl LibFlux {
    pub unsafe fn new<P>(path: P) -> Result<Self, ::libloading::Error>
    where
        P: AsRef<::std::ffi::OsStr>,
    {
        let path = path.as_ref();
        let library = ::libloading::Library::new(path)?;
        Self::from_library(library)
    }
    pub unsafe fn from_library<L>(library: L) -> Result<Self, ::libloading::Error>
    where
        L: Into<::libloading::Library>,
    {
        let __library = library.into();
        let flux_core_version_string = __library.get(b"flux_core_version_string\0").map(|sym| *sym);
        let flux_core_version = __library.get(b"flux_core_version\0").map(|sym| *sym);
        let flux_open_ex = __library.get(b"flux_open_ex\0").map(|sym| *sym);
        let flux_close = __library.get(b"flux_close\0").map(|sym| *sym);
        let flux_get_reactor = __library.get(b"flux_get_reactor\0").map(|sym| *sym);
        let flux_set_reactor = __library.get(b"flux_set_reactor\0").map(|sym| *sym);
        let flux_aux_get = __library.get(b"flux_aux_get\0").map(|sym| *sym);
        let flux_aux_set = __library.get(b"flux_aux_set\0").map(|sym| *sym);
        let flux_opt_set = __library.get(b"flux_opt_set\0").map(|sym| *sym);
        let flux_attr_get = __library.get(b"flux_attr_get\0").map(|sym| *sym);
        let flux_get_rank = __library.get(b"flux_get_rank\0").map(|sym| *sym);
        let flux_get_size = __library.get(b"flux_get_size\0").map(|sym| *sym);
        let flux_log = __library.get(b"flux_log\0").map(|sym| *sym);
        let flux_strerror = __library.get(b"flux_strerror\0").map(|sym| *sym);
        let flux_reactor_create = __library.get(b"flux_reactor_create\0").map(|sym| *sym);
        let flux_reactor_destroy = __library.get(b"flux_reactor_destroy\0").map(|sym| *sym);
        let flux_reactor_run = __library.get(b"flux_reactor_run\0").map(|sym| *sym);
        let flux_reactor_stop = __library.get(b"flux_reactor_stop\0").map(|sym| *sym);
        let flux_reactor_stop_error = __library.get(b"flux_reactor_stop_error\0").map(|sym| *sym);
        let flux_reactor_now = __library.get(b"flux_reactor_now\0").map(|sym| *sym);
        let flux_watcher_start = __library.get(b"flux_watcher_start\0").map(|sym| *sym);
        let flux_watcher_stop = __library.get(b"flux_watcher_stop\0").map(|sym| *sym);
        let flux_watcher_ref = __library.get(b"flux_watcher_ref\0").map(|sym| *sym);
        let flux_watcher_unref = __library.get(b"flux_watcher_unref\0").map(|sym| *sym);
        let flux_watcher_destroy = __library.get(b"flux_watcher_destroy\0").map(|sym| *sym);
        let flux_watcher_set_priority = __library.get(b"flux_watcher_set_priority\0").map(|sym| *sym);
        let flux_timer_watcher_create = __library.get(b"flux_timer_watcher_create\0").map(|sym| *sym);
        let flux_timer_watcher_reset = __library.get(b"flux_timer_watcher_reset\0").map(|sym| *sym);
        let flux_fd_watcher_create = __library.get(b"flux_fd_watcher_create\0").map(|sym| *sym);
        let flux_prepare_watcher_create = __library.get(b"flux_prepare_watcher_create\0").map(|sym| *sym);
        let flux_check_watcher_create = __library.get(b"flux_check_watcher_create\0").map(|sym| *sym);
        let flux_idle_watcher_create = __library.get(b"flux_idle_watcher_create\0").map(|sym| *sym);
        let flux_future_then = __library.get(b"flux_future_then\0").map(|sym| *sym);
        let flux_future_wait_for = __library.get(b"flux_future_wait_for\0").map(|sym| *sym);
        let flux_future_is_ready = __library.get(b"flux_future_is_ready\0").map(|sym| *sym);
        let flux_future_reset = __library.get(b"flux_future_reset\0").map(|sym| *sym);
        let flux_future_destroy = __library.get(b"flux_future_destroy\0").map(|sym| *sym);
        let flux_future_get = __library.get(b"flux_future_get\0").map(|sym| *sym);
        let flux_future_has_error = __library.get(b"flux_future_has_error\0").map(|sym| *sym);
        let flux_future_error_string = __library.get(b"flux_future_error_string\0").map(|sym| *sym);
        let flux_rpc = __library.get(b"flux_rpc\0").map(|sym| *sym);
        let flux_rpc_raw = __library.get(b"flux_rpc_raw\0").map(|sym| *sym);
        let flux_rpc_get = __library.get(b"flux_rpc_get\0").map(|sym| *sym);
        let flux_rpc_get_raw = __library.get(b"flux_rpc_get_raw\0").map(|sym| *sym);
        let flux_rpc_get_matchtag = __library.get(b"flux_rpc_get_matchtag\0").map(|sym| *sym);
        let flux_msg_incref = __library.get(b"flux_msg_incref\0").map(|sym| *sym);
        let flux_msg_decref = __library.get(b"flux_msg_decref\0").map(|sym| *sym);
        let flux_msg_get_topic = __library.get(b"flux_msg_get_topic\0").map(|sym| *sym);
        let flux_msg_get_rolemask = __library.get(b"flux_msg_get_rolemask\0").map(|sym| *sym);
        let flux_msg_get_userid = __library.get(b"flux_msg_get_userid\0").map(|sym| *sym);
        let flux_msg_is_streaming = __library.get(b"flux_msg_is_streaming\0").map(|sym| *sym);
        let flux_msg_is_noresponse = __library.get(b"flux_msg_is_noresponse\0").map(|sym| *sym);
        let flux_msg_route_first = __library.get(b"flux_msg_route_first\0").map(|sym| *sym);
        let flux_request_decode = __library.get(b"flux_request_decode\0").map(|sym| *sym);
        let flux_request_decode_raw = __library.get(b"flux_request_decode_raw\0").map(|sym| *sym);
        let flux_respond = __library.get(b"flux_respond\0").map(|sym| *sym);
        let flux_respond_raw = __library.get(b"flux_respond_raw\0").map(|sym| *sym);
        let flux_respond_error = __library.get(b"flux_respond_error\0").map(|sym| *sym);
        let flux_msg_handler_create = __library.get(b"flux_msg_handler_create\0").map(|sym| *sym);
        let flux_msg_handler_destroy = __library.get(b"flux_msg_handler_destroy\0").map(|sym| *sym);
        let flux_msg_handler_start = __library.get(b"flux_msg_handler_start\0").map(|sym| *sym);
        let flux_msg_handler_stop = __library.get(b"flux_msg_handler_stop\0").map(|sym| *sym);
        let flux_msg_handler_allow_rolemask =
            __library.get(b"flux_msg_handler_allow_rolemask\0").map(|sym| *sym);
        let flux_event_subscribe = __library.get(b"flux_event_subscribe\0").map(|sym| *sym);
        let flux_event_unsubscribe = __library.get(b"flux_event_unsubscribe\0").map(|sym| *sym);
        let flux_event_decode = __library.get(b"flux_event_decode\0").map(|sym| *sym);
        let flux_event_publish = __library.get(b"flux_event_publish\0").map(|sym| *sym);
        let flux_event_publish_get_seq = __library.get(b"flux_event_publish_get_seq\0").map(|sym| *sym);
        let flux_msg_get_seq = __library.get(b"flux_msg_get_seq\0").map(|sym| *sym);
        let flux_disconnect_match = __library.get(b"flux_disconnect_match\0").map(|sym| *sym);
        let flux_cancel_match = __library.get(b"flux_cancel_match\0").map(|sym| *sym);
        let flux_module_set_running = __library.get(b"flux_module_set_running\0").map(|sym| *sym);
        let flux_service_register = __library.get(b"flux_service_register\0").map(|sym| *sym);
        let flux_service_unregister = __library.get(b"flux_service_unregister\0").map(|sym| *sym);
        Ok(LibFlux {
            __library,
            flux_core_version_string,
            flux_core_version,
            flux_open_ex,
            flux_close,
            flux_get_reactor,
            flux_set_reactor,
            flux_aux_get,
            flux_aux_set,
            flux_opt_set,
            flux_attr_get,
            flux_get_rank,
            flux_get_size,
            flux_log,
            flux_strerror,
            flux_reactor_create,
            flux_reactor_destroy,
            flux_reactor_run,
            flux_reactor_stop,
            flux_reactor_stop_error,
            flux_reactor_now,
            flux_watcher_start,
            flux_watcher_stop,
            flux_watcher_ref,
            flux_watcher_unref,
            flux_watcher_destroy,
            flux_watcher_set_priority,
            flux_timer_watcher_create,
            flux_timer_watcher_reset,
            flux_fd_watcher_create,
            flux_prepare_watcher_create,
            flux_check_watcher_create,
            flux_idle_watcher_create,
            flux_future_then,
            flux_future_wait_for,
            flux_future_is_ready,
            flux_future_reset,
            flux_future_destroy,
            flux_future_get,
            flux_future_has_error,
            flux_future_error_string,
            flux_rpc,
            flux_rpc_raw,
            flux_rpc_get,
            flux_rpc_get_raw,
            flux_rpc_get_matchtag,
            flux_msg_incref,
            flux_msg_decref,
            flux_msg_get_topic,
            flux_msg_get_rolemask,
            flux_msg_get_userid,
            flux_msg_is_streaming,
            flux_msg_is_noresponse,
            flux_msg_route_first,
            flux_request_decode,
            flux_request_decode_raw,
            flux_respond,
            flux_respond_raw,
            flux_respond_error,
            flux_msg_handler_create,
            flux_msg_handler_destroy,
            flux_msg_handler_start,
            flux_msg_handler_stop,
            flux_msg_handler_allow_rolemask,
            flux_event_subscribe,
            flux_event_unsubscribe,
            flux_event_decode,
            flux_event_publish,
            flux_event_publish_get_seq,
            flux_msg_get_seq,
            flux_disconnect_match,
            flux_cancel_match,
            flux_module_set_running,
            flux_service_register,
            flux_service_unregister,
        })
    }
    pub unsafe fn flux_core_version_string(&self) -> *const ::std::os::raw::c_char {
        (self.flux_core_version_string.as_ref().expect("Expected function, got error."))()
    }
    pub unsafe fn flux_core_version(
        &self,
        major: *mut ::std::os::raw::c_int,
        minor: *mut ::std::os::raw::c_int,
        patch: *mut ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int {
        (self.flux_core_version.as_ref().expect("Expected function, got error."))(major, minor, patch)
    }
    pub unsafe fn flux_open_ex(
        &self,
        uri: *const ::std::os::raw::c_char,
        flags: ::std::os::raw::c_int,
        error: *mut flux_error_t,
    ) -> *mut flux_t {
        (self.flux_open_ex.as_ref().expect("Expected function, got error."))(uri, flags, error)
    }
    pub unsafe fn flux_close(&self, h: *mut flux_t) {
        (self.flux_close.as_ref().expect("Expected function, got error."))(h)
    }
    pub unsafe fn flux_get_reactor(&self, h: *mut flux_t) -> *mut flux_reactor_t {
        (self.flux_get_reactor.as_ref().expect("Expected function, got error."))(h)
    }
    pub unsafe fn flux_set_reactor(&self, h: *mut flux_t, r: *mut flux_reactor_t) -> ::std::os::raw::c_int {
        (self.flux_set_reactor.as_ref().expect("Expected function, got error."))(h, r)
    }
    pub unsafe fn flux_aux_get(
        &self,
        h: *mut flux_t,
        name: *const ::std::os::raw::c_char,
    ) -> *mut ::std::os::raw::c_void {
        (self.flux_aux_get.as_ref().expect("Expected function, got error."))(h, name)
    }
    pub unsafe fn flux_aux_set(
        &self,
        h: *mut flux_t,
        name: *const ::std::os::raw::c_char,
        aux: *mut ::std::os::raw::c_void,
        destroy: flux_free_f,
    ) -> ::std::os::raw::c_int {
        (self.flux_aux_set.as_ref().expect("Expected function, got error."))(h, name, aux, destroy)
    }
    pub unsafe fn flux_opt_set(
        &self,
        h: *mut flux_t,
        option: *const ::std::os::raw::c_char,
        val: *const ::std::os::raw::c_void,
        len: usize,
    ) -> ::std::os::raw::c_int {
        (self.flux_opt_set.as_ref().expect("Expected function, got error."))(h, option, val, len)
    }
    pub unsafe fn flux_attr_get(
        &self,
        h: *mut flux_t,
        name: *const ::std::os::raw::c_char,
    ) -> *const ::std::os::raw::c_char {
        (self.flux_attr_get.as_ref().expect("Expected function, got error."))(h, name)
    }
    pub unsafe fn flux_get_rank(&self, h: *mut flux_t, rank: *mut u32) -> ::std::os::raw::c_int {
        (self.flux_get_rank.as_ref().expect("Expected function, got error."))(h, rank)
    }
    pub unsafe fn flux_get_size(&self, h: *mut flux_t, size: *mut u32) -> ::std::os::raw::c_int {
        (self.flux_get_size.as_ref().expect("Expected function, got error."))(h, size)
    }
    pub unsafe fn flux_strerror(&self, errnum: ::std::os::raw::c_int) -> *const ::std::os::raw::c_char {
        (self.flux_strerror.as_ref().expect("Expected function, got error."))(errnum)
    }
    pub unsafe fn flux_reactor_create(&self, flags: ::std::os::raw::c_int) -> *mut flux_reactor_t {
        (self.flux_reactor_create.as_ref().expect("Expected function, got error."))(flags)
    }
    pub unsafe fn flux_reactor_destroy(&self, r: *mut flux_reactor_t) {
        (self.flux_reactor_destroy.as_ref().expect("Expected function, got error."))(r)
    }
    pub unsafe fn flux_reactor_run(
        &self,
        r: *mut flux_reactor_t,
        flags: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int {
        (self.flux_reactor_run.as_ref().expect("Expected function, got error."))(r, flags)
    }
    pub unsafe fn flux_reactor_stop(&self, r: *mut flux_reactor_t) {
        (self.flux_reactor_stop.as_ref().expect("Expected function, got error."))(r)
    }
    pub unsafe fn flux_reactor_stop_error(&self, r: *mut flux_reactor_t) {
        (self.flux_reactor_stop_error.as_ref().expect("Expected function, got error."))(r)
    }
    pub unsafe fn flux_reactor_now(&self, r: *mut flux_reactor_t) -> f64 {
        (self.flux_reactor_now.as_ref().expect("Expected function, got error."))(r)
    }
    pub unsafe fn flux_watcher_start(&self, w: *mut flux_watcher_t) {
        (self.flux_watcher_start.as_ref().expect("Expected function, got error."))(w)
    }
    pub unsafe fn flux_watcher_stop(&self, w: *mut flux_watcher_t) {
        (self.flux_watcher_stop.as_ref().expect("Expected function, got error."))(w)
    }
    pub unsafe fn flux_watcher_ref(&self, w: *mut flux_watcher_t) {
        (self.flux_watcher_ref.as_ref().expect("Expected function, got error."))(w)
    }
    pub unsafe fn flux_watcher_unref(&self, w: *mut flux_watcher_t) {
        (self.flux_watcher_unref.as_ref().expect("Expected function, got error."))(w)
    }
    pub unsafe fn flux_watcher_destroy(&self, w: *mut flux_watcher_t) {
        (self.flux_watcher_destroy.as_ref().expect("Expected function, got error."))(w)
    }
    pub unsafe fn flux_watcher_set_priority(&self, w: *mut flux_watcher_t, priority: ::std::os::raw::c_int) {
        (self.flux_watcher_set_priority.as_ref().expect("Expected function, got error."))(w, priority)
    }
    pub unsafe fn flux_timer_watcher_create(
        &self,
        r: *mut flux_reactor_t,
        after: f64,
        repeat: f64,
        cb: flux_watcher_f,
        arg: *mut ::std::os::raw::c_void,
    ) -> *mut flux_watcher_t {
        (self.flux_timer_watcher_create.as_ref().expect("Expected function, got error."))(
            r, after, repeat, cb, arg,
        )
    }
    pub unsafe fn flux_timer_watcher_reset(&self, w: *mut flux_watcher_t, after: f64, repeat: f64) {
        (self.flux_timer_watcher_reset.as_ref().expect("Expected function, got error."))(w, after, repeat)
    }
    pub unsafe fn flux_fd_watcher_create(
        &self,
        r: *mut flux_reactor_t,
        fd: ::std::os::raw::c_int,
        events: ::std::os::raw::c_int,
        cb: flux_watcher_f,
        arg: *mut ::std::os::raw::c_void,
    ) -> *mut flux_watcher_t {
        (self.flux_fd_watcher_create.as_ref().expect("Expected function, got error."))(r, fd, events, cb, arg)
    }
    pub unsafe fn flux_prepare_watcher_create(
        &self,
        r: *mut flux_reactor_t,
        cb: flux_watcher_f,
        arg: *mut ::std::os::raw::c_void,
    ) -> *mut flux_watcher_t {
        (self.flux_prepare_watcher_create.as_ref().expect("Expected function, got error."))(r, cb, arg)
    }
    pub unsafe fn flux_check_watcher_create(
        &self,
        r: *mut flux_reactor_t,
        cb: flux_watcher_f,
        arg: *mut ::std::os::raw::c_void,
    ) -> *mut flux_watcher_t {
        (self.flux_check_watcher_create.as_ref().expect("Expected function, got error."))(r, cb, arg)
    }
    pub unsafe fn flux_idle_watcher_create(
        &self,
        r: *mut flux_reactor_t,
        cb: flux_watcher_f,
        arg: *mut ::std::os::raw::c_void,
    ) -> *mut flux_watcher_t {
        (self.flux_idle_watcher_create.as_ref().expect("Expected function, got error."))(r, cb, arg)
    }
    pub unsafe fn flux_future_then(
        &self,
        f: *mut flux_future_t,
        timeout: f64,
        cb: flux_continuation_f,
        arg: *mut ::std::os::raw::c_void,
    ) -> ::std::os::raw::c_int {
        (self.flux_future_then.as_ref().expect("Expected function, got error."))(f, timeout, cb, arg)
    }
    pub unsafe fn flux_future_wait_for(&self, f: *mut flux_future_t, timeout: f64) -> ::std::os::raw::c_int {
        (self.flux_future_wait_for.as_ref().expect("Expected function, got error."))(f, timeout)
    }
    pub unsafe fn flux_future_is_ready(&self, f: *mut flux_future_t) -> bool {
        (self.flux_future_is_ready.as_ref().expect("Expected function, got error."))(f)
    }
    pub unsafe fn flux_future_reset(&self, f: *mut flux_future_t) {
        (self.flux_future_reset.as_ref().expect("Expected function, got error."))(f)
    }
    pub unsafe fn flux_future_destroy(&self, f: *mut flux_future_t) {
        (self.flux_future_destroy.as_ref().expect("Expected function, got error."))(f)
    }
    pub unsafe fn flux_future_get(
        &self,
        f: *mut flux_future_t,
        result: *mut *const ::std::os::raw::c_void,
    ) -> ::std::os::raw::c_int {
        (self.flux_future_get.as_ref().expect("Expected function, got error."))(f, result)
    }
    pub unsafe fn flux_future_has_error(&self, f: *mut flux_future_t) -> bool {
        (self.flux_future_has_error.as_ref().expect("Expected function, got error."))(f)
    }
    pub unsafe fn flux_future_error_string(&self, f: *mut flux_future_t) -> *const ::std::os::raw::c_char {
        (self.flux_future_error_string.as_ref().expect("Expected function, got error."))(f)
    }
    pub unsafe fn flux_rpc(
        &self,
        h: *mut flux_t,
        topic: *const ::std::os::raw::c_char,
        s: *const ::std::os::raw::c_char,
        nodeid: u32,
        flags: ::std::os::raw::c_int,
    ) -> *mut flux_future_t {
        (self.flux_rpc.as_ref().expect("Expected function, got error."))(h, topic, s, nodeid, flags)
    }
    pub unsafe fn flux_rpc_raw(
        &self,
        h: *mut flux_t,
        topic: *const ::std::os::raw::c_char,
        data: *const ::std::os::raw::c_void,
        len: usize,
        nodeid: u32,
        flags: ::std::os::raw::c_int,
    ) -> *mut flux_future_t {
        (self.flux_rpc_raw.as_ref().expect("Expected function, got error."))(
            h, topic, data, len, nodeid, flags,
        )
    }
    pub unsafe fn flux_rpc_get(
        &self,
        f: *mut flux_future_t,
        s: *mut *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int {
        (self.flux_rpc_get.as_ref().expect("Expected function, got error."))(f, s)
    }
    pub unsafe fn flux_rpc_get_raw(
        &self,
        f: *mut flux_future_t,
        data: *mut *const ::std::os::raw::c_void,
        len: *mut usize,
    ) -> ::std::os::raw::c_int {
        (self.flux_rpc_get_raw.as_ref().expect("Expected function, got error."))(f, data, len)
    }
    pub unsafe fn flux_rpc_get_matchtag(&self, f: *mut flux_future_t) -> u32 {
        (self.flux_rpc_get_matchtag.as_ref().expect("Expected function, got error."))(f)
    }
    pub unsafe fn flux_msg_incref(&self, msg: *const flux_msg_t) -> *const flux_msg_t {
        (self.flux_msg_incref.as_ref().expect("Expected function, got error."))(msg)
    }
    pub unsafe fn flux_msg_decref(&self, msg: *const flux_msg_t) {
        (self.flux_msg_decref.as_ref().expect("Expected function, got error."))(msg)
    }
    pub unsafe fn flux_msg_get_topic(
        &self,
        msg: *const flux_msg_t,
        topic: *mut *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int {
        (self.flux_msg_get_topic.as_ref().expect("Expected function, got error."))(msg, topic)
    }
    pub unsafe fn flux_msg_get_rolemask(
        &self,
        msg: *const flux_msg_t,
        rolemask: *mut u32,
    ) -> ::std::os::raw::c_int {
        (self.flux_msg_get_rolemask.as_ref().expect("Expected function, got error."))(msg, rolemask)
    }
    pub unsafe fn flux_msg_get_userid(
        &self,
        msg: *const flux_msg_t,
        userid: *mut u32,
    ) -> ::std::os::raw::c_int {
        (self.flux_msg_get_userid.as_ref().expect("Expected function, got error."))(msg, userid)
    }
    pub unsafe fn flux_msg_is_streaming(&self, msg: *const flux_msg_t) -> bool {
        (self.flux_msg_is_streaming.as_ref().expect("Expected function, got error."))(msg)
    }
    pub unsafe fn flux_msg_is_noresponse(&self, msg: *const flux_msg_t) -> bool {
        (self.flux_msg_is_noresponse.as_ref().expect("Expected function, got error."))(msg)
    }
    pub unsafe fn flux_msg_route_first(&self, msg: *const flux_msg_t) -> *const ::std::os::raw::c_char {
        (self.flux_msg_route_first.as_ref().expect("Expected function, got error."))(msg)
    }
    pub unsafe fn flux_request_decode(
        &self,
        msg: *const flux_msg_t,
        topic: *mut *const ::std::os::raw::c_char,
        s: *mut *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int {
        (self.flux_request_decode.as_ref().expect("Expected function, got error."))(msg, topic, s)
    }
    pub unsafe fn flux_request_decode_raw(
        &self,
        msg: *const flux_msg_t,
        topic: *mut *const ::std::os::raw::c_char,
        data: *mut *const ::std::os::raw::c_void,
        len: *mut usize,
    ) -> ::std::os::raw::c_int {
        (self.flux_request_decode_raw.as_ref().expect("Expected function, got error."))(msg, topic, data, len)
    }
    pub unsafe fn flux_respond(
        &self,
        h: *mut flux_t,
        request: *const flux_msg_t,
        s: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int {
        (self.flux_respond.as_ref().expect("Expected function, got error."))(h, request, s)
    }
    pub unsafe fn flux_respond_raw(
        &self,
        h: *mut flux_t,
        request: *const flux_msg_t,
        data: *const ::std::os::raw::c_void,
        len: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int {
        (self.flux_respond_raw.as_ref().expect("Expected function, got error."))(h, request, data, len)
    }
    pub unsafe fn flux_respond_error(
        &self,
        h: *mut flux_t,
        request: *const flux_msg_t,
        errnum: ::std::os::raw::c_int,
        errstr: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int {
        (self.flux_respond_error.as_ref().expect("Expected function, got error."))(h, request, errnum, errstr)
    }
    pub unsafe fn flux_msg_handler_create(
        &self,
        h: *mut flux_t,
        match_: flux_match,
        cb: flux_msg_handler_f,
        arg: *mut ::std::os::raw::c_void,
    ) -> *mut flux_msg_handler_t {
        (self.flux_msg_handler_create.as_ref().expect("Expected function, got error."))(h, match_, cb, arg)
    }
    pub unsafe fn flux_msg_handler_destroy(&self, mh: *mut flux_msg_handler_t) {
        (self.flux_msg_handler_destroy.as_ref().expect("Expected function, got error."))(mh)
    }
    pub unsafe fn flux_msg_handler_start(&self, mh: *mut flux_msg_handler_t) {
        (self.flux_msg_handler_start.as_ref().expect("Expected function, got error."))(mh)
    }
    pub unsafe fn flux_msg_handler_stop(&self, mh: *mut flux_msg_handler_t) {
        (self.flux_msg_handler_stop.as_ref().expect("Expected function, got error."))(mh)
    }
    pub unsafe fn flux_msg_handler_allow_rolemask(&self, mh: *mut flux_msg_handler_t, rolemask: u32) {
        (self.flux_msg_handler_allow_rolemask.as_ref().expect("Expected function, got error."))(mh, rolemask)
    }
    pub unsafe fn flux_event_subscribe(
        &self,
        h: *mut flux_t,
        topic: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int {
        (self.flux_event_subscribe.as_ref().expect("Expected function, got error."))(h, topic)
    }
    pub unsafe fn flux_event_unsubscribe(
        &self,
        h: *mut flux_t,
        topic: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int {
        (self.flux_event_unsubscribe.as_ref().expect("Expected function, got error."))(h, topic)
    }
    pub unsafe fn flux_event_decode(
        &self,
        msg: *const flux_msg_t,
        topic: *mut *const ::std::os::raw::c_char,
        s: *mut *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int {
        (self.flux_event_decode.as_ref().expect("Expected function, got error."))(msg, topic, s)
    }
    pub unsafe fn flux_event_publish(
        &self,
        h: *mut flux_t,
        topic: *const ::std::os::raw::c_char,
        flags: ::std::os::raw::c_int,
        s: *const ::std::os::raw::c_char,
    ) -> *mut flux_future_t {
        (self.flux_event_publish.as_ref().expect("Expected function, got error."))(h, topic, flags, s)
    }
    pub unsafe fn flux_event_publish_get_seq(
        &self,
        f: *mut flux_future_t,
        seq: *mut ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int {
        (self.flux_event_publish_get_seq.as_ref().expect("Expected function, got error."))(f, seq)
    }
    pub unsafe fn flux_msg_get_seq(&self, msg: *const flux_msg_t, seq: *mut u32) -> ::std::os::raw::c_int {
        (self.flux_msg_get_seq.as_ref().expect("Expected function, got error."))(msg, seq)
    }
    pub unsafe fn flux_disconnect_match(&self, msg1: *const flux_msg_t, msg2: *const flux_msg_t) -> bool {
        (self.flux_disconnect_match.as_ref().expect("Expected function, got error."))(msg1, msg2)
    }
    pub unsafe fn flux_cancel_match(&self, msg1: *const flux_msg_t, msg2: *const flux_msg_t) -> bool {
        (self.flux_cancel_match.as_ref().expect("Expected function, got error."))(msg1, msg2)
    }
    pub unsafe fn flux_module_set_running(&self, h: *mut flux_t) -> ::std::os::raw::c_int {
        (self.flux_module_set_running.as_ref().expect("Expected function, got error."))(h)
    }
    pub unsafe fn flux_service_register(
        &self,
        h: *mut flux_t,
        name: *const ::std::os::raw::c_char,
    ) -> *mut flux_future_t {
        (self.flux_service_register.as_ref().expect("Expected function, got error."))(h, name)
    }
    pub unsafe fn flux_service_unregister(
        &self,
        h: *mut flux_t,
        name: *const ::std::os::raw::c_char,
    ) -> *mut flux_future_t {
        (self.flux_service_unregister.as_ref().expect("Expected function, got error."))(h, name)
    }
}
