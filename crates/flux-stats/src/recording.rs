//! A recording: the answers of an instance, one after another, in a file.
//!
//! # The file
//!
//! Whole numbers are little-endian. A file begins with 16 bytes,
//!
//! ```text
//! offset  size
//!      0    14  89 66 6C 75 78 73 74 61 74 73 0D 0A 1A 0A  ("\x89fluxstats\r\n\x1a\n": a transfer as text breaks it)
//!     14     2  the format's version: 2
//! ```
//!
//! and goes on with frames, each written by one call, each whole or not there:
//!
//! ```text
//!      0     4  F1 52 45 43 ("\xf1REC"): where to go on reading after damage
//!      4     4  n, the length of the body, 64 MiB at most
//!      8     4  CRC-32 (IEEE) of bytes 4..8 and 12..21+n
//!     12     1  what the body is: 1 session, 2 answer, 3 answer by rank, 4 mark, 5 end
//!     13     8  when: seconds since 1970, an IEEE 754 double; of answers by the clock of rank 0, else by the recorder's
//!     21     n  the body: DEFLATE (RFC 1951) of one value in the wire format of postcard 1
//! ```
//!
//! The values are the types of `stored.rs`, in the order of their fields:
//!
//! * A *session* begins where a recorder begins: who records what. A file that is recorded onto has several.
//! * An *answer* says what changed since the answer before it. Names are told once and have numbers from then on (in the
//!   order in which they are told, from 0); so do series. A series is a row of ten numbers (`stored::numbers`), and an
//!   answer has, for each row of which something changed, the distance from the row before it in the answer, a bit for
//!   each number that changed, and for each of these a `Step`. Totals are kept to the last bit; rates, quantiles and other
//!   derived numbers to the 24 bits of a single-precision number.
//! * Answers *by rank* are of some ranks at a time, and their rows stand beside those of the instance.
//! * Where an answer is a *reset*, all names and rows before it are forgotten: it can be read without what is before it. The
//!   first of a session is one, and every hundredth.
//! * A *mark* is what happened to the recorder: the instance was lost, or found again.
//! * An *end* is where a recorder ended in order. Where it is missing before the next session, it was killed.
//!
//! # What may happen to it
//!
//! A recorder that is killed leaves a torn frame at most, at the end. Readers leave that out, and the next recorder cuts it
//! off. Where bytes were changed, the reader goes on with the next whole frame, and with the next reset what an answer says;
//! it tells what is missing. Nothing in a file can make a reader panic, or take more memory than a multiple of the file's
//! size: the CRC, the limits of lengths, and every number of a row are checked.

mod coder;
mod frame;
mod reader;
mod stored;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use coder::Line;
pub(crate) use reader::{Event, Moment, Reader};
pub(crate) use stored::{Ended, Mark, Session};
pub(crate) use writer::Writer;

use std::path::{Path, PathBuf};

/// Why a file cannot be recorded to, or read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{path} is no recording of flux stats: it begins with {begin:?}")]
    Foreign { path: PathBuf, begin: String },
    #[error("{path} was recorded by another flux-stats: format {found}; this one knows {}", frame::VERSION)]
    Version { path: PathBuf, found: u16 },
    #[error("{path}: somebody else is recording to it")]
    Busy { path: PathBuf },
    #[error("{path} was removed while it was recorded to: what was recorded is lost")]
    Gone { path: PathBuf },
    #[error(
        "{path} was changed by somebody else while it was recorded to: it has {found} bytes, and had {left}"
    )]
    Changed { path: PathBuf, found: u64, left: u64 },
    #[error("{path}: expected a file")]
    NoFile { path: PathBuf },
    #[error("writing {path}: {source}; what was recorded before is whole")]
    Full { path: PathBuf, source: std::io::Error },
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { path: path.clone(), source }
}
