//! Errors as Flux has them: a number and a sentence.

use flux_sys::Loaded;
use std::ffi::CStr;

/// A system error number with what went wrong in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    errnum: i32,
    text: String,
}

/// Bytes of an error's text: what Flux's log keeps of a line.
const TEXT_MAX: usize = 1000;

/// The result of most calls in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// `errnum` as in `<errno.h>`; zero, which is no error, becomes `EIO`. A newline in `text` becomes a space: Flux
    /// error strings are one line (RFC 6). One that echoes more than `TEXT_MAX` bytes is cut.
    pub fn new(errnum: i32, text: impl Into<String>) -> Self {
        let mut text = text.into().replace(['\n', '\r', '\0'], " ");
        if text.len() > TEXT_MAX {
            let end = (0..=TEXT_MAX).rev().find(|&end| text.is_char_boundary(end));
            text.truncate(end.unwrap_or(0));
            text.push('…');
        }
        Error { errnum: if errnum == 0 { libc::EIO } else { errnum }, text }
    }

    /// `EINVAL`: an argument, a payload or a configuration is wrong.
    pub fn invalid(text: impl Into<String>) -> Self {
        Error::new(libc::EINVAL, text)
    }

    /// What the last libflux call of this thread left in `errno`, after `doing`.
    pub(crate) fn last(libflux: &Loaded, doing: &str) -> Self {
        let errnum = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        Error::new(errnum, format!("{doing}: {}", strerror(libflux, errnum)))
    }

    /// The number, as in `<errno.h>`; never zero.
    pub fn errnum(&self) -> i32 {
        self.errnum
    }
}

/// Flux's name for an error number ("Service not found" for a missing service, say).
pub(crate) fn strerror(libflux: &Loaded, errnum: i32) -> String {
    // SAFETY: flux_strerror takes any number and returns a string that lives at least until the thread's next call.
    let text = unsafe { libflux.flux_strerror(errnum) };
    if text.is_null() {
        return format!("error {errnum}");
    }
    // SAFETY: not null, and NUL-terminated by its contract.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_never_zero_and_never_two_lines() {
        let error = Error::new(0, "one\ntwo");
        assert_eq!((error.errnum(), error.to_string().as_str()), (libc::EIO, "one two"));
    }

    #[test]
    fn an_error_that_echoes_much_is_cut_between_characters() {
        let text = Error::invalid("ä".repeat(5000)).to_string();
        assert!(text.len() < TEXT_MAX + 4 && text.ends_with("ä…"));
    }
}
