//! What is remembered of those who push, so that each push counts once, and what guests may send.

use crate::schedule::Now;
use crate::series::NAME_MAX;
use crate::wire::{DecodeError, Reader, Writer, list};
use indexmap::IndexMap;

/// Guests that are remembered, and handles of each.
pub(super) const USERS_MAX: usize = 256;
pub(super) const HANDLES_OF_GUEST_MAX: usize = 64;
/// Pushes that each guest may send in a second.
pub const GUEST_PUSHES_MAX: u32 = 200;
/// Bytes that they may have together; a larger push is never taken.
pub const GUEST_BYTES_MAX: usize = 1 << 20;
const S: u64 = 1_000_000_000;

/// Handles, each with the number of its last push, the one heard of last at the end.
#[derive(Debug)]
pub(super) struct Handles {
    last: IndexMap<String, u64>,
    /// Beyond it the one that has been quiet for longest is forgotten, and a repeat of its last push would count again.
    max: usize,
}

impl Handles {
    pub(super) fn new(max: usize) -> Self {
        Handles { last: IndexMap::new(), max }
    }

    /// Whether this push has not been taken before; it is remembered as taken.
    pub(super) fn is_new(&mut self, id: String, seq: u64) -> bool {
        if let Some(last) = self.last.shift_remove(&id) {
            self.last.insert(id, seq.max(last));
            return seq > last;
        }
        if self.last.len() >= self.max {
            self.last.shift_remove_index(0);
        }
        self.last.insert(id, seq);
        true
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.last.len()
    }

    pub(super) fn encode(&self, out: &mut Writer) {
        out.count(self.last.len());
        for (id, &seq) in &self.last {
            out.text(id);
            out.uint(seq);
        }
    }

    pub(super) fn decode(from: &mut Reader<'_>, max: usize) -> Result<Self, DecodeError> {
        let last = list(from, max, |from| Ok((from.text(NAME_MAX)?.to_owned(), from.uint()?)))?;
        Ok(Handles { last: last.into_iter().collect(), max })
    }
}

/// Guests by number, the one heard of last at the end. What one does cannot make another one's push be forgotten, but for
/// the number of users that are remembered.
#[derive(Debug, Default)]
pub(super) struct Guests(IndexMap<u32, Guest>);

#[derive(Debug)]
struct Guest {
    handles: Handles,
    /// The second that its budget is for, and what was sent in it.
    second: u64,
    pushes: u32,
    bytes: usize,
}

impl Default for Guest {
    fn default() -> Self {
        Guest { handles: Handles::new(HANDLES_OF_GUEST_MAX), second: 0, pushes: 0, bytes: 0 }
    }
}

impl Guests {
    fn guest(&mut self, user: u32) -> &mut Guest {
        let guest = self.0.shift_remove(&user).unwrap_or_default();
        if self.0.len() >= USERS_MAX {
            self.0.shift_remove_index(0);
        }
        self.0.entry(user).or_insert(guest)
    }

    pub(super) fn is_new(&mut self, user: u32, id: String, seq: u64) -> bool {
        self.guest(user).handles.is_new(id, seq)
    }

    /// Whether a push of so many bytes is within the budget, of which it then uses up a part.
    pub(super) fn admits(&mut self, user: u32, bytes: usize, now: Now) -> bool {
        let (second, guest) = (now.mono_ns / S, self.guest(user));
        if guest.second != second {
            (guest.second, guest.pushes, guest.bytes) = (second, 0, 0);
        }
        let (pushes, bytes) = (guest.pushes + 1, guest.bytes.saturating_add(bytes));
        if pushes > GUEST_PUSHES_MAX || bytes > GUEST_BYTES_MAX {
            return false;
        }
        (guest.pushes, guest.bytes) = (pushes, bytes);
        true
    }

    pub(super) fn encode(&self, out: &mut Writer) {
        out.count(self.0.len());
        for (&user, guest) in &self.0 {
            out.uint(user.into());
            guest.handles.encode(out);
        }
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let guests = list(from, USERS_MAX, |from| {
            let (user, handles) = (from.u32()?, Handles::decode(from, HANDLES_OF_GUEST_MAX)?);
            Ok((user, Guest { handles, ..Guest::default() }))
        })?;
        Ok(Guests(guests.into_iter().collect()))
    }
}
