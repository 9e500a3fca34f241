//! The pages in `docs/` as tests read them, so that what a page says of the code is held against the code.

use crate::wire::{DecodeError, Reader, Writer};
use std::collections::BTreeSet;

/// The cells of the table that follows `title`, row by row, without its head.
pub(crate) fn rows<'p>(page: &'p str, title: &str) -> Vec<Vec<&'p str>> {
    let (_, rest) = page.split_once(title).unwrap_or_else(|| panic!("no {title:?} on the page"));
    let table = rest.lines().skip_while(|line| !line.starts_with('|')).skip(2);
    let rows = table.take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The bytes of a table: what the first cell of each row has in hexadecimal. A row without (`…`) stands for more of them.
pub(crate) fn bytes(page: &str, title: &str) -> Vec<u8> {
    rows(page, title).iter().flat_map(|row| hexadecimal(row[0])).collect()
}

pub(crate) fn hexadecimal(cell: &str) -> Vec<u8> {
    let code = cell.strip_prefix('`').and_then(|cell| cell.strip_suffix('`')).unwrap_or_default();
    code.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

/// A whole number as pages write it: 10,000.
pub(crate) fn number(cell: &str) -> u128 {
    cell.replace(',', "").parse().unwrap_or_else(|_| panic!("no whole number: {cell:?}"))
}

/// All that has not been read, for what reads bytes.
pub(crate) fn rest(from: &mut Reader<'_>) -> Vec<u8> {
    std::iter::from_fn(|| from.byte().ok()).collect()
}

/// Something with a count in it: its name on the page, the bytes before the count, and what reads both.
pub(crate) type Counted = (&'static str, Vec<u8>, fn(&mut Reader<'_>) -> Result<(), DecodeError>);

/// Holds a table of bounds against what reads: a count of so many is taken (and the items are missing), one more is refused.
pub(crate) fn holds_bounds(rows: &[Vec<&str>], counted: &[Counted]) {
    let named: BTreeSet<&str> = counted.iter().map(|&(name, ..)| name).collect();
    assert_eq!(rows.iter().map(|row| row[0]).collect::<BTreeSet<_>>(), named);
    for (name, before, read) in counted {
        let row = rows.iter().find(|row| row[0] == *name).unwrap();
        let after = |count: u128| {
            let mut out = Writer::new();
            out.wide(count);
            let bytes = [before.as_slice(), &out.into_bytes()].concat();
            read(&mut Reader::new(&bytes)).unwrap_err()
        };
        let most = number(row[1]);
        assert_eq!(after(most), DecodeError::Truncated, "{name}");
        assert_eq!(after(most + 1), DecodeError::Malformed("count beyond its bound"), "{name}");
    }
}
