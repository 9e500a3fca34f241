//! Frames: bytes that are whole or not there.

use flate2::Compression;
use flate2::read::{DeflateDecoder, DeflateEncoder};
use std::io::{self, Read};

/// How a file begins.
pub(super) const SIGNATURE: [u8; 14] = *b"\x89fluxstats\r\n\x1a\n";
pub(super) const VERSION: u16 = 2;
/// Signature and version.
pub(super) const HEADER: usize = 16;

const MAGIC: [u8; 4] = *b"\xf1REC";
/// What is before the body.
const HEAD: usize = 21;
const BODY_MAX: usize = 64 << 20;
/// What a body may become.
const INFLATED_MAX: u64 = 512 << 20;
/// Places where a frame seems to begin that are tried in a row: more is no damage, but a file that was made to be slow.
const TRIES_MAX: u32 = 1000;
/// How much is read at a time.
const CHUNK: usize = 256 << 10;

/// The first bytes of a file.
pub(super) fn header() -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..14].copy_from_slice(&SIGNATURE);
    header[14..].copy_from_slice(&VERSION.to_le_bytes());
    header
}

/// A frame that was found whole.
#[derive(Debug, PartialEq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) time: f64,
    body: Vec<u8>,
}

impl Frame {
    /// With `content` as its body.
    pub(super) fn new(kind: u8, time: f64, content: &[u8]) -> io::Result<Self> {
        let mut body = Vec::new();
        DeflateEncoder::new(content, Compression::default()).read_to_end(&mut body)?;
        if body.len() > BODY_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "an answer larger than 64 MiB"));
        }
        Ok(Frame { kind, time, body })
    }

    /// What is written.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + self.body.len());
        bytes.extend(MAGIC);
        bytes.extend((self.body.len() as u32).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.push(self.kind);
        bytes.extend(self.time.to_le_bytes());
        bytes.extend(&self.body);
        let sum = sum(&bytes);
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// What was given to [`Frame::new`].
    pub(super) fn content(&self) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        let read = DeflateDecoder::new(&self.body[..]).take(INFLATED_MAX + 1).read_to_end(&mut content)?;
        if read as u64 > INFLATED_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a body beyond the limit"));
        }
        Ok(content)
    }
}

/// The checksum of a frame's bytes.
fn sum(frame: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&frame[4..8]);
    hasher.update(&frame[12..]);
    hasher.finalize()
}

fn four(bytes: &[u8], at: usize) -> [u8; 4] {
    [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]
}

/// What is in a file beyond its header.
#[derive(Debug, PartialEq)]
pub(super) enum Piece {
    Frame(Frame),
    /// Bytes that are no frame, with a frame after them.
    Damage {
        at: u64,
        bytes: u64,
    },
    /// Bytes that are no frame, at the end.
    Torn {
        at: u64,
        bytes: u64,
    },
}

/// The pieces of a file, in order. After [`Piece::Torn`] there is nothing more.
pub(super) struct Pieces<R> {
    input: R,
    buffer: Vec<u8>,
    /// Where the buffer begins in the file.
    at: u64,
    ended: bool,
    /// A frame that was found behind damage.
    found: Option<Frame>,
}

impl<R: Read> Pieces<R> {
    /// Of an input whose header has been read.
    pub(super) fn new(input: R) -> Self {
        Pieces { input, buffer: Vec::new(), at: HEADER as u64, ended: false, found: None }
    }

    /// Where the next piece begins: all before it has been handed out.
    pub(super) fn position(&self) -> u64 {
        self.at
    }

    pub(super) fn next(&mut self) -> io::Result<Option<Piece>> {
        if let Some(frame) = self.found.take() {
            return Ok(Some(Piece::Frame(frame)));
        }
        if !self.fill(1)? {
            return Ok(None);
        }
        if let Some(frame) = self.frame_at(0)? {
            return Ok(Some(Piece::Frame(frame)));
        }
        let at = self.at;
        let (mut dropped, mut place) = (0, 0);
        for _ in 0..TRIES_MAX {
            let Some(next) = self.candidate(place + 1, &mut dropped)? else { break };
            place = next;
            if let Some(frame) = self.frame_at(place)? {
                self.at += dropped;
                self.found = Some(frame);
                return Ok(Some(Piece::Damage { at, bytes: dropped + place as u64 }));
            }
        }
        // The rest, however long it is.
        let mut bytes = dropped + self.buffer.len() as u64;
        bytes += io::copy(&mut self.input, &mut io::sink())?;
        self.buffer.clear();
        self.ended = true;
        Ok(Some(Piece::Torn { at, bytes }))
    }

    /// Makes sure of so many bytes in the buffer, if the file has them.
    fn fill(&mut self, count: usize) -> io::Result<bool> {
        while self.buffer.len() < count && !self.ended {
            let more = (count - self.buffer.len()).max(CHUNK) as u64;
            self.ended = (&mut self.input).take(more).read_to_end(&mut self.buffer)? == 0;
        }
        Ok(self.buffer.len() >= count)
    }

    /// The frame at that place of the buffer, which it is taken out of, and all before it.
    fn frame_at(&mut self, place: usize) -> io::Result<Option<Frame>> {
        if !self.fill(place + HEAD)? || self.buffer[place..place + 4] != MAGIC {
            return Ok(None);
        }
        let length = u32::from_le_bytes(four(&self.buffer, place + 4)) as usize;
        let end = place + HEAD + length;
        if length > BODY_MAX || !self.fill(end)? {
            return Ok(None);
        }
        let bytes = &self.buffer[place..end];
        if sum(bytes).to_le_bytes() != four(bytes, 8) {
            return Ok(None);
        }
        let time = bytes[13..HEAD].try_into().map_or(f64::NAN, f64::from_le_bytes);
        let frame = Frame { kind: bytes[12], time, body: bytes[HEAD..].to_vec() };
        self.buffer.drain(..end);
        self.at += end as u64;
        Ok(Some(frame))
    }

    /// The next place at or after `from` where a frame may begin. What has been searched in vain is dropped, and counted:
    /// damage may be as long as a disk.
    fn candidate(&mut self, mut from: usize, dropped: &mut u64) -> io::Result<Option<usize>> {
        loop {
            let rest = self.buffer.get(from..).unwrap_or_default();
            if let Some(found) = memchr::memmem::find(rest, &MAGIC) {
                return Ok(Some(from + found));
            }
            let searched =
                from.max((self.buffer.len() + 1).saturating_sub(MAGIC.len())).min(self.buffer.len());
            self.buffer.drain(..searched);
            *dropped += searched as u64;
            from = 0;
            if !self.fill(self.buffer.len() + 1)? {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_not_kept_however_long_it_is() {
        const HOLE: u64 = 64 << 20;
        let frame = Frame::new(1, 7.0, b"what was heard").unwrap().bytes();
        let input = (&frame[..]).chain(io::repeat(0).take(HOLE)).chain(&frame[..]).chain(&frame[..5]);
        let mut pieces = Pieces::new(input);
        let first = pieces.next().unwrap();
        assert!(matches!(first, Some(Piece::Frame(_))));
        let (begins, ends) = (HEADER + frame.len(), HEADER as u64 + frame.len() as u64 + HOLE);
        let damage = pieces.next().unwrap();
        assert!(
            matches!(damage, Some(Piece::Damage { at, bytes: HOLE }) if at == begins as u64),
            "{:?}",
            pieces.position()
        );
        assert!(pieces.buffer.capacity() < 4 * CHUNK, "{}", pieces.buffer.capacity());
        assert!(matches!(pieces.next().unwrap(), Some(Piece::Frame(frame)) if frame.time == 7.0));
        let torn = pieces.next().unwrap();
        assert!(matches!(torn, Some(Piece::Torn { at, bytes: 5 }) if at == ends + frame.len() as u64));
        assert!(pieces.next().unwrap().is_none());
    }
}
