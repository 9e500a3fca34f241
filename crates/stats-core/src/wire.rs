//! Numbers and strings as bytes: LEB128 varints, zigzag for signed ones, lengths before strings.
//!
//! A reader never panics and never allocates more than the bytes it was given can account for.

use std::io::{self, Write};

/// Why bytes are no batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// They end in the middle of something.
    #[error("truncated")]
    Truncated,
    /// They are of another version.
    #[error("version {found} of the format, this side speaks {spoken}")]
    Version {
        /// The version of the bytes.
        found: u64,
        /// The version of this code.
        spoken: u64,
    },
    /// They contradict the format.
    #[error("malformed: {0}")]
    Malformed(&'static str),
}

/// Appends to a byte string, or to a file by way of one.
#[derive(Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    to: Option<Box<dyn Write>>,
    /// The first error, after which nothing is written any more.
    error: Option<io::Error>,
}

/// What is gathered before it goes to the file.
const BLOCK: usize = 64 << 10;

impl Writer {
    pub(crate) fn new() -> Self {
        Writer::default()
    }

    /// One of which [`Writer::finish`] writes the rest.
    pub(crate) fn to(file: Box<dyn Write>) -> Self {
        Writer { to: Some(file), ..Writer::default() }
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
        if self.bytes.len() >= BLOCK && self.to.is_some() {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if let Some(file) = self.to.as_mut().filter(|_| self.error.is_none()) {
            self.error = file.write_all(&self.bytes).err();
        }
        self.bytes.clear();
    }

    /// All that was written is in the file.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.flush();
        self.error.map_or(Ok(()), Err)
    }

    pub(crate) fn uint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push((value as u8) | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    pub(crate) fn count(&mut self, value: usize) {
        self.wide(value as u128);
    }

    pub(crate) fn wide(&mut self, mut value: u128) {
        while value >= 0x80 {
            self.bytes.push((value as u8) | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    pub(crate) fn signed(&mut self, value: i128) {
        self.wide(((value << 1) ^ (value >> 127)) as u128);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.count(text.len());
        self.bytes.extend_from_slice(text.as_bytes());
    }

    pub(crate) fn fixed64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads what a [`Writer`] wrote.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub(crate) fn byte(&mut self) -> Result<u8, DecodeError> {
        let (&first, rest) = self.rest.split_first().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(first)
    }

    pub(crate) fn wide(&mut self) -> Result<u128, DecodeError> {
        // Most numbers fit in 63 bits: 64-bit arithmetic reads them twice as fast.
        let mut narrow = 0_u64;
        for (position, &byte) in self.rest.iter().take(9).enumerate() {
            narrow |= u64::from(byte & 0x7f) << (7 * position);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[position + 1..];
                return Ok(u128::from(narrow));
            }
        }
        self.wider()
    }

    fn wider(&mut self) -> Result<u128, DecodeError> {
        let mut value = 0_u128;
        for shift in (0..128).step_by(7) {
            let byte = self.byte()?;
            let bits = u128::from(byte & 0x7f);
            if shift == 126 && bits > 3 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Malformed("number beyond 128 bits"))
    }

    pub(crate) fn uint(&mut self) -> Result<u64, DecodeError> {
        u64::try_from(self.wide()?).map_err(|_| DecodeError::Malformed("number beyond 64 bits"))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.wide()?).map_err(|_| DecodeError::Malformed("number beyond 32 bits"))
    }

    pub(crate) fn signed(&mut self) -> Result<i128, DecodeError> {
        let value = self.wide()?;
        Ok(((value >> 1) as i128) ^ -((value & 1) as i128))
    }

    /// A number of items that follow, of which each takes a byte at least.
    pub(crate) fn count(&mut self, max: usize) -> Result<usize, DecodeError> {
        let count = usize::try_from(self.wide()?).unwrap_or(usize::MAX);
        if count > max {
            return Err(DecodeError::Malformed("count beyond its bound"));
        }
        if count > self.rest.len() {
            return Err(DecodeError::Truncated);
        }
        Ok(count)
    }

    pub(crate) fn block(&mut self, max: usize) -> Result<&'a [u8], DecodeError> {
        let length = self.count(max)?;
        let (block, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(block)
    }

    pub(crate) fn text(&mut self, max: usize) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.block(max)?).map_err(|_| DecodeError::Malformed("text is not UTF-8"))
    }

    pub(crate) fn fixed64(&mut self) -> Result<u64, DecodeError> {
        let (bytes, rest) = self.rest.split_first_chunk::<8>().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    pub(crate) fn end(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Malformed("bytes after the end")) }
    }
}

/// Items, as many as are announced, at most `max`, of which each takes a byte at least.
pub(crate) fn list<'a, T>(
    from: &mut Reader<'a>,
    max: usize,
    mut item: impl FnMut(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = from.count(max)?;
    // Grown as items come: a count alone reserves nothing.
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(item(from)?);
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_and_texts_come_back(unsigned in any::<u128>(), signed in any::<i128>(), text in ".{0,20}") {
            let mut out = Writer::new();
            out.wide(unsigned);
            out.signed(signed);
            out.text(&text);
            out.fixed64(unsigned as u64);
            let bytes = out.into_bytes();
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.wide().unwrap(), unsigned);
            prop_assert_eq!(reader.signed().unwrap(), signed);
            prop_assert_eq!(reader.text(100).unwrap(), text);
            prop_assert_eq!(reader.fixed64().unwrap(), unsigned as u64);
            reader.end().unwrap();
        }
    }

    #[test]
    fn a_count_cannot_promise_more_than_there_are_bytes() {
        let mut out = Writer::new();
        out.count(1 << 40);
        let bytes = out.into_bytes();
        assert_eq!(Reader::new(&bytes).count(1 << 50), Err(DecodeError::Truncated));
        assert_eq!(Reader::new(&bytes).count(1 << 20), Err(DecodeError::Malformed("count beyond its bound")));
        assert!(Reader::new(&[0xff; 40]).wide().is_err());
    }
}
