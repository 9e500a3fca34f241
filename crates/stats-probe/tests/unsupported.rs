//! Where nothing can be hooked, /proc is read, and one sentence says why.

#[allow(dead_code)]
mod standin;

use std::ffi::c_void;
use std::path::Path;

use standin::{Standin, alone, build, compile, load};
use stats_probe::{Mode, Options, Probe};

/// What an attach to the object that holds this address says.
fn reason(anchor: *const c_void) -> Option<String> {
    let mut probe = Probe::start(Options::attach(anchor));
    let status = probe.status();
    assert_eq!(status.mode, if status.fallback.is_some() { Mode::Proc } else { Mode::Attach });
    // /proc goes on telling of this very thread.
    assert!(probe.sample().iter().any(|sample| sample.cpu_ns > 0 || sample.tids.len() == 1));
    status.fallback
}

fn full_relro(directory: &Path, name: &str) -> Option<Standin> {
    build(directory, name, &["-Wl,-z,relro,-z,now"]).map(|object| load(&object, libc::RTLD_NOW))
}

#[test]
fn a_library_that_does_not_wait_itself_is_not_hooked() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let object = dir.path().join("libdeaf.so");
    let Some(object) = compile("no_epoll.c", &object, &["-shared", "-fPIC"]) else { return };
    let path = std::ffi::CString::new(object.to_str().unwrap()).unwrap();
    // SAFETY: loads a library without constructors; an open handle and a NUL-terminated name.
    let anchor =
        unsafe { libc::dlsym(libc::dlopen(path.as_ptr(), libc::RTLD_NOW), c"flux_reactor_run".as_ptr()) };
    assert!(!anchor.is_null());
    let why = reason(anchor).unwrap();
    assert!(why.contains("does not import epoll_wait"), "{why}");
    // And nothing of it stands in the way of one that does.
    let Some(lib) = full_relro(dir.path(), "libafter.so") else { return };
    assert_eq!(reason(lib.anchor), None);
}

#[test]
fn without_an_address_in_any_object_there_is_nothing_to_hook() {
    let _alone = alone();
    let why = reason(std::ptr::null()).unwrap();
    assert!(why.contains("flux_reactor_run was not found"), "{why}");
    let why = reason(std::ptr::without_provenance(64)).unwrap();
    assert!(why.contains("no loaded object holds the address"), "{why}");
}

#[test]
fn one_libflux_of_a_process_is_hooked_at_a_time() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let Some(first) = full_relro(dir.path(), "libfirst.so") else { return };
    let Some(second) = full_relro(dir.path(), "libsecond.so") else { return };
    let probe = Probe::start(Options::attach(first.anchor));
    let why = reason(second.anchor).unwrap();
    assert!(why.contains("another libflux is hooked"), "{why}");
    drop(probe);
    assert_eq!(reason(second.anchor), None);
}

/// Makes the kernel refuse `mprotect` to the calling thread, as a strict seccomp policy would; whether it does.
fn forbid_mprotect() -> bool {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        // The first word of what a filter is given is the number of the system call.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_mprotect as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the filter is of the calling thread alone and outlives the calls, which copy it.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    }
}

#[test]
fn where_the_kernel_forbids_it_nothing_is_hooked_nor_half_hooked() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let Some(lib) = full_relro(dir.path(), "libforbidden.so") else { return };
    let why = std::thread::scope(|scope| {
        let thread = scope.spawn(move || forbid_mprotect().then(|| reason({ lib }.anchor).unwrap()));
        thread.join().unwrap()
    });
    let Some(why) = why else {
        eprintln!("SKIPPED: this kernel takes no seccomp filter");
        return;
    };
    assert!(why.contains("mprotect of the GOT"), "{why}");
    // SAFETY: the stand-in's functions on a reactor of this thread.
    unsafe {
        let reactor = (lib.create)(1_000_000, None, std::ptr::null_mut());
        assert_eq!((lib.run)(reactor, 2), 0);
        (lib.destroy)(reactor);
    }
    // A thread that may, can.
    assert_eq!(reason(lib.anchor), None);
}
