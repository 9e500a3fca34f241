//! The two things that a load leaves to the next, in one file: what the node saved, and what the intake did.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

/// The number of bytes of the first stands before it, and is known last.
const LENGTH: usize = size_of::<u64>();

/// Both, each written by who has it: so much that a copy in memory would be too much.
pub(crate) fn write(
    file: &mut File,
    node: impl FnOnce(Box<dyn Write>) -> io::Result<()>,
    intake: impl FnOnce(Box<dyn Write>) -> io::Result<()>,
) -> io::Result<()> {
    let start = file.stream_position()?;
    file.write_all(&[0; LENGTH])?;
    // Another descriptor of the same open file, and so at the same place in it.
    node(Box::new(file.try_clone()?))?;
    let end = file.stream_position()?;
    intake(Box::new(file.try_clone()?))?;
    file.seek(SeekFrom::Start(start))?;
    file.write_all(&(end - start - LENGTH as u64).to_le_bytes())
}

/// The two; `None`: the bytes end before their time.
pub(crate) fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn written(node: &'static [u8], intake: &'static [u8]) -> Vec<u8> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"before").unwrap();
        write(&mut file, |mut to| to.write_all(node), |mut to| to.write_all(intake)).unwrap();
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        bytes.strip_prefix(b"before").unwrap().to_vec()
    }

    #[test]
    fn what_is_written_is_split_and_what_was_cut_is_not() {
        let bytes = written(b"node", b"intake");
        assert_eq!(split(&bytes), Some((&b"node"[..], &b"intake"[..])));
        assert_eq!(split(&written(b"", b"")), Some((&b""[..], &b""[..])));
        assert!((0..12).all(|length| split(&bytes[..length]).is_none()));
        assert_eq!(split(&[0xff; 20]), None);
    }
}
