//! The stand-in library, compiled by the machine's C compiler in the variants that differ for a hook.

use std::ffi::{CString, c_int, c_long, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How libflux may have been linked.
pub(crate) const VARIANTS: [(&str, &[&str]); 5] = [
    ("lazy", &["-Wl,-z,lazy"]),
    ("full RELRO", &["-Wl,-z,relro,-z,now"]),
    ("partial RELRO", &["-Wl,-z,relro,-z,lazy"]),
    ("no PLT", &["-fno-plt", "-Wl,-z,relro,-z,now"]),
    ("bound to itself", &["-Wl,-Bsymbolic-functions", "-Wl,-z,relro,-z,now"]),
];

/// The functions other than `epoll_wait` by which a reactor may wait, and how the stand-in is made to.
pub(crate) const OTHER_WAITS: [(&str, &str); 2] =
    [("epoll_pwait", "-DUSE_EPOLL_PWAIT"), ("epoll_pwait2", "-DUSE_EPOLL_PWAIT2")];

/// Compiles the stand-in; None, with a line that says so, where there is no C compiler.
pub(crate) fn build(directory: &Path, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let mut flags = flags.to_vec();
    flags.extend(["-shared", "-fPIC"]);
    compile("standin.c", &directory.join(name), &flags)
}

/// Compiles a source of this folder.
pub(crate) fn compile(source: &str, object: &Path, flags: &[&str]) -> Option<PathBuf> {
    // Also right for tests of modules/, which are as deep in the tree.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/stats-probe/tests/standin");
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut command = Command::new(cc);
    command.args(["-O2", "-pthread", "-o"]).arg(object).arg(folder.join(source)).args(flags);
    let built = command.status();
    match built {
        Ok(status) => {
            assert!(status.success(), "{source} does not compile with {flags:?}");
            Some(object.to_owned())
        }
        Err(e) => {
            eprintln!("SKIPPED: no C compiler for the stand-in library ({e})");
            None
        }
    }
}

pub(crate) type Turn = extern "C" fn(*mut c_void);

/// The functions of a loaded stand-in.
#[derive(Clone, Copy)]
pub(crate) struct Standin {
    pub(crate) anchor: *const c_void,
    pub(crate) create: unsafe extern "C" fn(c_long, Option<Turn>, *mut c_void) -> *mut c_void,
    pub(crate) destroy: unsafe extern "C" fn(*mut c_void),
    pub(crate) run: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    pub(crate) stop: unsafe extern "C" fn(*mut c_void),
    pub(crate) rpc: unsafe extern "C" fn(c_long) -> c_int,
    pub(crate) recv: unsafe extern "C" fn(c_int) -> c_int,
    pub(crate) pollevents: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub(crate) errno: unsafe extern "C" fn(c_int) -> c_int,
    pub(crate) cancel: unsafe extern "C" fn(c_int) -> c_int,
}

// SAFETY: addresses of code that is never unloaded.
unsafe impl Send for Standin {}
// SAFETY: as above.
unsafe impl Sync for Standin {}

pub(crate) fn load(object: &Path, flags: c_int) -> Standin {
    let path = CString::new(object.to_str().unwrap()).unwrap();
    // SAFETY: loads the stand-in, which has no constructors.
    let handle = unsafe { libc::dlopen(path.as_ptr(), flags) };
    assert!(!handle.is_null(), "{object:?} does not load");
    let symbol = |name: &str| {
        let name = CString::new(name).unwrap();
        // SAFETY: an open handle and a NUL-terminated name.
        let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
        assert!(!address.is_null(), "{name:?}");
        address
    };
    macro_rules! function {
        ($name:expr, $type:ty) => {
            // SAFETY: standin.c defines the function with this signature.
            unsafe { std::mem::transmute::<*mut c_void, $type>(symbol($name)) }
        };
    }
    Standin {
        anchor: symbol("flux_reactor_run"),
        create: function!(
            "standin_create",
            unsafe extern "C" fn(c_long, Option<Turn>, *mut c_void) -> *mut c_void
        ),
        destroy: function!("standin_destroy", unsafe extern "C" fn(*mut c_void)),
        run: function!("flux_reactor_run", unsafe extern "C" fn(*mut c_void, c_int) -> c_int),
        stop: function!("flux_reactor_stop", unsafe extern "C" fn(*mut c_void)),
        rpc: function!("standin_rpc", unsafe extern "C" fn(c_long) -> c_int),
        recv: function!("standin_recv", unsafe extern "C" fn(c_int) -> c_int),
        pollevents: function!("standin_pollevents", unsafe extern "C" fn(*mut c_void) -> c_int),
        errno: function!("standin_errno", unsafe extern "C" fn(c_int) -> c_int),
        cancel: function!("standin_cancel", unsafe extern "C" fn(c_int) -> c_int),
    }
}

/// There is one hook a process: tests that attach take turns.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
