//! The series that a node knows: who gets room for new ones, and what becomes of the places of those that end.

use super::{CATALOG_MAX, GUEST_SERIES, Key, Kind, MAX_SERIES_MOST, Refused, SeriesId};
use indexmap::IndexSet;
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

/// A number for each of some series.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// By kind and position; [`Numbers::NONE`] where there is none.
    by_kind: [Vec<u32>; 4],
}

impl Numbers {
    const NONE: u32 = u32::MAX;

    fn of_kind(&mut self, kind: Kind) -> &mut Vec<u32> {
        &mut self.by_kind[usize::from(kind.number())]
    }

    pub(crate) fn get(&self, id: SeriesId) -> Option<u32> {
        let number = self.by_kind[usize::from(id.kind().number())].get(id.position()).copied();
        number.filter(|&number| number != Self::NONE)
    }

    pub(crate) fn set(&mut self, id: SeriesId, number: u32) {
        let of_kind = self.of_kind(id.kind());
        if id.position() >= of_kind.len() {
            of_kind.resize(id.position() + 1, Self::NONE);
        }
        of_kind[id.position()] = number;
    }

    pub(crate) fn remove(&mut self, id: SeriesId) -> Option<u32> {
        let number = self.get(id)?;
        self.of_kind(id.kind())[id.position()] = Self::NONE;
        Some(number)
    }
}

/// The series that a node knows.
///
/// What is pushed may fill all but the last part of it ([`RESERVE`]), so that there is room for the service's own series
/// whatever others do. Of that, a source (the first part of a name) may have [`SHARE`] times what is still free: the dynamic
/// thresholds of Choudhury and Hahne ("Dynamic queue length thresholds for shared-memory packet switches", 1998). A
/// source alone gets most of the room, and yet there is always some for another.
///
/// A series of a job that is over is removed, and its identifier is another's then. So nothing that may be removed
/// ([`Catalog::passing`]) is without a holder ([`Catalog::retain`]) while somebody keeps its identifier.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    keys: IndexSet<Key>,
    /// By number, as the next two are.
    ids: Vec<SeriesId>,
    holders: Vec<u32>,
    declared_s: Vec<u32>,
    /// Since when each is counted, in seconds since 1970.
    created_s: Vec<u32>,
    /// The number of each: of no meaning beyond the catalog, since a removal changes another's.
    numbers: Numbers,
    /// Positions that are free again, by kind.
    free: [Vec<u32>; 4],
    /// Those that end, if nothing is sent to them.
    passing: BTreeSet<SeriesId>,
    removals: u64,
    max: usize,
    /// The time, in seconds on the node's monotonic clock.
    now_s: u32,
    /// Likewise, in seconds since 1970.
    wall_s: u32,
    /// How many are pushed, how many of them by guests, and how many of each source.
    pushed: usize,
    guests: usize,
    sources: HashMap<Box<str>, usize>,
    /// Of each guest at most.
    guest_series: usize,
}

/// This part of a catalog's room is for the service's own series alone.
const RESERVE: usize = 8;
/// How many times the free room a source may have: alone, three quarters of what is for sources.
const SHARE: usize = 3;
/// Beyond the room so many may be what the service says of itself: where it is full, that has to be told.
const ACCOUNTS_MAX: usize = 256;
/// The most that a catalog is ever filled with by what is declared.
pub(crate) const CATALOG_MOST: usize = MAX_SERIES_MOST + ACCOUNTS_MAX;
/// This part of the room is what guests may have together.
const GUESTS_PART: usize = 4;

impl Catalog {
    pub(crate) fn new(max: usize) -> Self {
        Catalog { max: max.min(CATALOG_MAX), guest_series: GUEST_SERIES, ..Catalog::default() }
    }

    pub(crate) fn set_max(&mut self, max: usize) {
        self.max = max.min(CATALOG_MAX);
    }

    /// How many series each guest may have.
    pub(crate) fn set_guest_series(&mut self, guest_series: usize) {
        self.guest_series = guest_series;
    }

    pub(crate) fn declare(&mut self, key: Key) -> Result<SeriesId, Refused> {
        if let Some(number) = self.keys.get_index_of(&key) {
            self.declared_s[number] = self.now_s;
            return Ok(self.ids[number]);
        }
        if let Some(source) = key.source() {
            let free = (self.max - self.max / RESERVE).saturating_sub(self.pushed);
            let has = self.sources.get(source).copied().unwrap_or(0);
            let all_guests = self.max / GUESTS_PART;
            if key.is_of_guest() && (has >= self.guest_series || self.guests >= all_guests) {
                return Err(Refused::Guest(source.to_owned(), self.guest_series, all_guests));
            }
            if free == 0 {
                return Err(Refused::Pushed(self.max - self.max / RESERVE, self.max));
            }
            if has >= free.saturating_mul(SHARE) {
                return Err(Refused::Share(source.to_owned()));
            }
        }
        self.add(key)
    }

    /// As [`Catalog::declare`], for what an earlier catalog held.
    pub(crate) fn restore(&mut self, key: Key) -> Result<SeriesId, Refused> {
        self.find(&key).map_or_else(|| self.add(key), Ok)
    }

    /// As [`Catalog::declare`], beyond all bounds: for what takes the place of a series that was removed.
    pub(crate) fn succeed(&mut self, key: Key) -> Option<SeriesId> {
        let max = std::mem::replace(&mut self.max, CATALOG_MAX);
        let id = self.restore(key).ok();
        self.max = max;
        id
    }

    fn add(&mut self, key: Key) -> Result<SeriesId, Refused> {
        let max = if key.is_account() { (self.max + ACCOUNTS_MAX).min(CATALOG_MAX) } else { self.max };
        let number = u32::try_from(self.ids.len()).ok().filter(|_| self.ids.len() < max);
        let number = number.ok_or(Refused::Full(self.max))?;
        if let Some(source) = key.source() {
            self.pushed += 1;
            self.guests += usize::from(key.is_of_guest());
            match self.sources.get_mut(source) {
                Some(has) => *has += 1,
                None => drop(self.sources.insert(source.into(), 1)),
            }
        }
        let kind = key.kind();
        let free = self.free[usize::from(kind.number())].pop();
        let id = SeriesId::new(kind, free.unwrap_or(self.numbers.of_kind(kind).len() as u32));
        self.numbers.set(id, number);
        self.ids.push(id);
        self.holders.push(0);
        self.declared_s.push(self.now_s);
        self.created_s.push(self.wall_s);
        if key.is_passing() {
            self.passing.insert(id);
        }
        self.keys.insert(key);
        Ok(id)
    }

    /// Removes a series that nobody holds: from now on its identifier may be another's.
    pub(crate) fn remove(&mut self, id: SeriesId) -> Option<Key> {
        let number = self.number(id)? as usize;
        debug_assert_eq!(self.holders[number], 0, "somebody keeps the identifier");
        let key = self.keys.swap_remove_index(number)?;
        self.ids.swap_remove(number);
        self.holders.swap_remove(number);
        self.declared_s.swap_remove(number);
        self.created_s.swap_remove(number);
        self.numbers.remove(id);
        // The last one has taken its place.
        if let Some(&moved) = self.ids.get(number) {
            self.numbers.set(moved, number as u32);
        }
        self.free[usize::from(id.kind().number())].push(id.position() as u32);
        self.passing.remove(&id);
        self.removals += 1;
        if let Some(source) = key.source() {
            self.pushed -= 1;
            self.guests -= usize::from(key.is_of_guest());
            if let Some(has) = self.sources.get_mut(source) {
                *has -= 1;
                if *has == 0 {
                    self.sources.remove(source);
                }
            }
        }
        Some(key)
    }

    /// Somebody keeps the identifier of a series.
    pub(crate) fn retain(&mut self, id: SeriesId) {
        if let Some(number) = self.number(id) {
            self.holders[number as usize] += 1;
        }
    }

    /// And does not any more.
    pub(crate) fn release(&mut self, id: SeriesId) {
        if let Some(number) = self.number(id) {
            let holders = &mut self.holders[number as usize];
            debug_assert!(*holders > 0, "released more often than retained");
            *holders = holders.saturating_sub(1);
        }
    }

    /// Series that end when nothing is sent to them, in an order of their own, from the one after `after` on.
    pub(crate) fn passing(&self, after: Option<SeriesId>) -> impl Iterator<Item = SeriesId> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.passing.range((from, Bound::Unbounded)).copied()
    }

    /// How many there are of them.
    pub(crate) fn passing_len(&self) -> usize {
        self.passing.len()
    }

    /// When a series that nobody holds was last declared.
    pub(crate) fn declared_s(&self, id: SeriesId) -> Option<u32> {
        let number = self.number(id)? as usize;
        (self.holders[number] == 0).then_some(self.declared_s[number])
    }

    /// How many were ever removed: who goes through the catalog begins anew when it has changed.
    pub(crate) fn removals(&self) -> u64 {
        self.removals
    }

    pub(crate) fn set_now(&mut self, now_s: u32, wall_s: u32) {
        (self.now_s, self.wall_s) = (now_s, wall_s);
    }

    /// Since when a series is counted, in seconds since 1970.
    pub(crate) fn created_s(&self, id: SeriesId) -> Option<u32> {
        self.created_s.get(self.number(id)? as usize).copied()
    }

    /// A series was counted by an earlier catalog already.
    pub(crate) fn set_created(&mut self, id: SeriesId, created_s: u32) {
        if let Some(number) = self.number(id) {
            self.created_s[number as usize] = created_s;
        }
    }

    /// All are counted anew from now on.
    pub(crate) fn begin_anew(&mut self) {
        self.created_s.fill(self.wall_s);
    }

    pub(crate) fn find(&self, key: &Key) -> Option<SeriesId> {
        self.keys.get_index_of(key).map(|number| self.ids[number])
    }

    /// Its number; an identifier of another catalog has none.
    pub(crate) fn number(&self, id: SeriesId) -> Option<u32> {
        self.numbers.get(id)
    }

    pub(crate) fn has(&self, id: SeriesId, kind: Kind) -> bool {
        id.kind() == kind && self.number(id).is_some()
    }

    pub(crate) fn key(&self, id: SeriesId) -> Option<&Key> {
        self.keys.get_index(self.number(id)? as usize)
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// `count` of them from number `from` on, or as many as there are.
    pub(crate) fn part(&self, from: usize, count: usize) -> impl Iterator<Item = (SeriesId, &Key)> {
        let end = from.saturating_add(count).min(self.ids.len());
        let keys = self.keys.get_range(from.min(end)..end);
        self.ids[from.min(end)..end].iter().copied().zip(keys.into_iter().flatten())
    }

    /// By number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SeriesId, &Key)> {
        self.ids.iter().copied().zip(&self.keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::{JOB_TAG, Unit};

    #[test]
    fn a_full_catalog_refuses_new_series_and_keeps_old_ones() {
        let mut catalog = Catalog::new(1);
        let key = |name: &str| Key::new(name, &[], Kind::Counter, Unit::None).unwrap();
        let id = catalog.declare(key("modules.a")).unwrap();
        assert_eq!(catalog.declare(key("modules.b")), Err(Refused::Full(1)));
        assert_eq!(catalog.declare(key("modules.a")), Ok(id));
        // What the service says of itself has room beyond, and that is all.
        let accounts = (0..1000).filter(|n| catalog.declare(key(&format!("stats-agg.n{n}"))).is_ok());
        assert_eq!((accounts.count(), catalog.len()), (ACCOUNTS_MAX, 1 + ACCOUNTS_MAX));
    }

    #[test]
    fn a_runaway_source_leaves_room_for_the_service_and_for_others() {
        let mut catalog = Catalog::new(344);
        let key = |name: &str| Key::new(name, &[], Kind::Counter, Unit::None).unwrap();
        let runaway = |catalog: &mut Catalog, source: &str| {
            (0..1000).filter(|n| catalog.declare(key(&format!("{source}.n{n}"))).is_ok()).count()
        };
        assert_eq!(runaway(&mut catalog, "a"), 226);
        assert_eq!(runaway(&mut catalog, "a"), 226, "what it has it keeps");
        assert_eq!(catalog.declare(key("a.more")), Err(Refused::Share("a".to_owned())));
        assert_eq!([runaway(&mut catalog, "b"), runaway(&mut catalog, "c")], [57, 14]);
        // Many sources of one series each are many sources.
        let singles = (0..1000).filter(|n| catalog.declare(key(&format!("s{n}"))).is_ok()).count();
        assert_eq!((singles, catalog.declare(key("new"))), (4, Err(Refused::Pushed(301, 344))));
        let own = (0..1000).filter(|n| catalog.declare(key(&format!("modules.n{n}"))).is_ok()).count();
        assert_eq!(own + catalog.pushed, 344);
        assert!(own >= 344 / RESERVE);
    }

    #[test]
    fn guests_have_a_quota_each_and_a_part_of_the_room_together() {
        let mut catalog = Catalog::new(1000);
        catalog.set_guest_series(100);
        let mut of_guest = |user: u32| {
            let key =
                |n| Key::new(&format!("guests.{user}.app.n{n}"), &[], Kind::Counter, Unit::None).unwrap();
            (0..200).filter(|&n| catalog.declare(key(n)).is_ok()).count()
        };
        assert_eq!([of_guest(1), of_guest(2), of_guest(3), of_guest(4)], [100, 100, 50, 0]);
        let key = Key::new("guests.1.app.x", &[], Kind::Counter, Unit::None).unwrap();
        assert_eq!(
            catalog.declare(key).unwrap_err().to_string(),
            "guests.1 may have 100 series (guest-series), and guests together 250 (a part of max-series)"
        );
        assert!(catalog.declare(Key::new("app.x", &[], Kind::Counter, Unit::None).unwrap()).is_ok());
    }

    #[test]
    fn what_is_removed_gives_its_place_to_another() {
        let mut catalog = Catalog::new(3);
        let of_job = |job: &str| Key::new("app.x", &[(JOB_TAG, job)], Kind::Counter, Unit::None).unwrap();
        let other = |name: &str| Key::new(name, &[], Kind::Counter, Unit::None).unwrap();
        let first = catalog.declare(of_job("1")).unwrap();
        let stays = catalog.declare(other("modules.a")).unwrap();
        let second = catalog.declare(of_job("2")).unwrap();
        assert_eq!(catalog.declare(of_job("3")), Err(Refused::Full(3)));
        catalog.retain(second);
        assert_eq!(catalog.passing(None).collect::<Vec<_>>(), [first, second]);
        assert_eq!([first, second, stays].map(|id| catalog.declared_s(id)), [Some(0), None, Some(0)]);
        assert_eq!(catalog.remove(first), Some(of_job("1")));
        assert_eq!((catalog.key(first), catalog.find(&of_job("1")), catalog.len()), (None, None, 2));
        assert_eq!(catalog.key(stays), Some(&other("modules.a")));
        assert_eq!(catalog.key(second), Some(&of_job("2")));
        // Its place, its identifier, and its room are the next one's.
        assert_eq!(catalog.declare(of_job("3")), Ok(first));
        assert_eq!(catalog.part(0, 9).map(|(id, _)| id).collect::<Vec<_>>(), [second, stays, first]);
        catalog.release(second);
        assert_eq!(catalog.passing(Some(first)).collect::<Vec<_>>(), [second]);
        assert_eq!(catalog.declared_s(second), Some(0));
    }
}
