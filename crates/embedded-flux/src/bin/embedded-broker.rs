//! `embedded-broker --rank R --size N --topo kary:K --rundir DIR`: one broker of an embedded instance. All of it is in
//! the double's library, beside this program or where `FLUX_STATS_LIBFLUX` says.

use std::ffi::{CString, c_char, c_int};
use std::process::ExitCode;

type Main = unsafe extern "C" fn(c_int, *const *const c_char) -> c_int;

fn main() -> ExitCode {
    let named = std::env::var_os("FLUX_STATS_LIBFLUX").map(std::path::PathBuf::from);
    let beside = || Some(std::env::current_exe().ok()?.with_file_name("libflux-core.so.2"));
    let Some(path) = named.or_else(beside) else { return ExitCode::from(2) };
    // Into the global scope, where modules look for libflux, and never closed.
    let flags = libloading::os::unix::RTLD_NOW | libloading::os::unix::RTLD_GLOBAL;
    // SAFETY: the double's library has no initialisers.
    let library = match unsafe { libloading::os::unix::Library::open(Some(&path), flags) } {
        Ok(library) => library,
        Err(error) => {
            eprintln!("embedded-broker: {}: {error}", path.display());
            return ExitCode::from(2);
        }
    };
    let arguments: Vec<CString> =
        std::env::args().skip(1).filter_map(|word| CString::new(word).ok()).collect();
    let pointers: Vec<*const c_char> = arguments.iter().map(|word| word.as_ptr()).collect();
    // SAFETY: the function has this type, and gets as many C strings as it is told.
    let status = unsafe {
        match library.get::<Main>(b"embedded_broker_main\0") {
            Ok(main) => main(pointers.len() as c_int, pointers.as_ptr()),
            Err(error) => {
                eprintln!("embedded-broker: {}: {error}", path.display());
                2
            }
        }
    };
    std::mem::forget(library);
    ExitCode::from(u8::try_from(status).unwrap_or(1))
}
