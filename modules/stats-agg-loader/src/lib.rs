//! `stats-agg.so`: opens the implementation of stats-agg that is installed beside it, and runs it.
//!
//! The implementation is linked `-z nodelete` (Rust's thread-local storage, and threads that sleep inside the probe's
//! hook, must never return into unmapped code), so the dynamic linker would go on using it after its file is
//! replaced: loading again would run the *old* code. This loader can be unloaded: it registers no thread-local
//! destructor and starts nothing. With each load it follows the symbolic link `stats-agg-impl.so` to a file whose
//! name holds a digest of its content, so that another build is another library, and an upgrade takes effect with
//! the next `flux module load`. What the old one still had in custody it left in the rundir.

use flux_sys::flux_t;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The link beside this file that names the implementation.
const LINK: &str = "stats-agg-impl.so";

type ModMain = unsafe extern "C-unwind" fn(*mut flux_t, c_int, *mut *mut c_char) -> c_int;

/// The broker calls this on a thread of its own.
///
/// # Safety
/// Called by a broker, with what a broker passes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mod_main(h: *mut flux_t, argc: c_int, argv: *mut *mut c_char) -> c_int {
    // This frame stays while the module runs, and owns nothing: a forced unwind (pthread_cancel) may pass.
    let Some(main) = implementation_or_log(h) else { return -1 };
    // SAFETY: the implementation's `mod_main`, with what the broker passed.
    unsafe { main(h, argc, argv) }
}

/// The implementation's `mod_main`; `None` is logged, and `errno` set.
fn implementation_or_log(h: *mut flux_t) -> Option<ModMain> {
    match implementation() {
        Ok(main) => Some(main),
        Err(why) => {
            if let (Ok(libflux), Ok(text)) = (flux_sys::libflux(), CString::new(why))
                && let Ok(flux_log) = libflux.flux_log.as_ref()
            {
                // SAFETY: a live handle, the level LOG_ERR, and the fixed format "%s" with its one C string.
                unsafe { flux_log(h, libc::LOG_ERR, c"%s".as_ptr(), text.as_ptr()) };
            }
            // SAFETY: errno is always there.
            unsafe { *libc::__errno_location() = libc::ENOENT };
            None
        }
    }
}

fn implementation() -> Result<ModMain, String> {
    let link = own_path()?.with_file_name(LINK);
    let advice = "install both files together (cargo xtask install)";
    let path =
        link.canonicalize().map_err(|error| format!("not loaded: {}: {error}; {advice}", link.display()))?;
    check_whole(&path).map_err(|why| format!("not loaded: {}: {why}; {advice}", path.display()))?;
    let c_path =
        CString::new(path.as_os_str().as_bytes()).map_err(|_| "not loaded: path with a NUL".to_owned())?;
    // SAFETY: the implementation's initialisers are those of a Rust cdylib: none with preconditions. It is never
    // closed: it is linked nodelete.
    let library = unsafe { libc::dlopen(c_path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(format!("not loaded: {}", dlerror()));
    }
    // SAFETY: a library just opened and a C string.
    let main = unsafe { libc::dlsym(library, c"mod_main".as_ptr()) };
    if main.is_null() {
        return Err(format!("not loaded: {}: it defines no mod_main", path.display()));
    }
    // SAFETY: `flux::module!` defines mod_main with this type.
    Ok(unsafe { std::mem::transmute::<*mut libc::c_void, ModMain>(main) })
}

/// A file that is cut short opens well and kills the broker (SIGBUS) once a page beyond its end is touched. The table
/// of sections is what linkers write last (System V gABI, "ELF header").
fn check_whole(path: &Path) -> Result<(), String> {
    let mut header = [0; 64];
    let mut file = File::open(path).map_err(|error| error.to_string())?;
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    file.read_exact(&mut header).map_err(|_| format!("{length} bytes are no library"))?;
    let bytes =
        |at: usize, size: usize| header[at..at + size].iter().rev().fold(0, |n, &b| n << 8 | u64::from(b));
    let (offset, size, number) = (bytes(40, 8), bytes(58, 2), bytes(60, 2));
    let end = offset.saturating_add(size * number);
    if !header.starts_with(b"\x7fELF") || number == 0 || end > length {
        return Err(format!("{length} bytes of {end}: cut short, or no library"));
    }
    Ok(())
}

/// The file that this code was loaded from.
fn own_path() -> Result<PathBuf, String> {
    // SAFETY: all-zero is a valid Dl_info.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // Not `mod_main`: where Flux is told to open modules without RTLD_DEEPBIND, that is the first module's.
    static HERE: u8 = 0;
    // SAFETY: the address of what is ours alone, and a valid place for the answer.
    let found = unsafe { libc::dladdr((&raw const HERE).cast(), &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return Err("not loaded: cannot tell where stats-agg.so was loaded from".to_owned());
    }
    // SAFETY: a C string that lives as long as the library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Ok(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

fn dlerror() -> String {
    // SAFETY: null, or a C string that lives until the thread's next dl call; copied at once.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            "unknown error".to_owned()
        } else {
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_cut_short_is_not_opened() {
        let whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cut.so");
        for (length, said) in [
            (0, "no library"),
            (40, "no library"),
            (whole.len() / 2, "cut short"),
            (whole.len() - 1, "cut short"),
        ] {
            std::fs::write(&file, &whole[..length]).unwrap();
            let why = check_whole(&file).unwrap_err();
            assert!(why.contains(said), "{length}: {why}");
        }
        std::fs::write(&file, &whole).unwrap();
        assert_eq!(check_whole(&file), Ok(()));
    }
}
