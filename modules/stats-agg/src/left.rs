//! The two things that a load leaves to the next, in one piece of bytes: what the node saved, and what the intake did.

/// Both, the length of the first before it.
pub(crate) fn joined(node: &[u8], intake: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of::<u64>() + node.len() + intake.len());
    bytes.extend((node.len() as u64).to_le_bytes());
    bytes.extend(node);
    bytes.extend(intake);
    bytes
}

/// The two; `None`: the bytes end before their time.
pub(crate) fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_joined_is_split_and_what_was_cut_is_not() {
        let bytes = joined(b"node", b"intake");
        assert_eq!(split(&bytes), Some((&b"node"[..], &b"intake"[..])));
        assert_eq!(split(&joined(b"", b"")), Some((&b""[..], &b""[..])));
        assert!((0..12).all(|length| split(&bytes[..length]).is_none()));
        assert_eq!(split(&[0xff; 20]), None);
    }
}
