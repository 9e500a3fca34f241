//! Numbers of series on the link to the receiver.

use crate::batch::SERIES_MAX;
use crate::series::{Catalog, Numbers, SeriesId};

/// So many numbers that stand for nothing any more a dictionary may have, and as many again as it has others.
const SPENT_MAX: usize = 10_000;

/// The numbers by which the receiver knows our series: none stands for another one later.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    numbers: Numbers,
    next: u32,
    /// How many of them stand for something.
    used: usize,
    /// Those of series that have ended, of which the receiver is to be told.
    withdrawn: Vec<u32>,
}

impl Dictionary {
    pub(super) fn number(&self, id: SeriesId) -> Option<u32> {
        self.numbers.get(id)
    }

    /// How many numbers have been given.
    pub(super) fn len(&self) -> u32 {
        self.next
    }

    /// Gives numbers to all series that have none; those are what the receiver has to learn.
    pub(super) fn extend(&mut self, catalog: &Catalog) -> Vec<SeriesId> {
        if self.used == catalog.len() {
            return Vec::new();
        }
        let new = catalog.iter().map(|(id, _)| id).filter(|&id| self.numbers.get(id).is_none());
        let new: Vec<SeriesId> = new.collect();
        for &id in &new {
            self.numbers.set(id, self.next);
            self.next += 1;
        }
        self.used += new.len();
        new
    }

    /// The receiver has not learnt the last ones.
    pub(super) fn shorten(&mut self, last: &[SeriesId]) {
        for &id in last {
            self.numbers.remove(id);
        }
        self.next -= last.len() as u32;
        self.used -= last.len();
    }

    pub(super) fn withdraw(&mut self, id: SeriesId) {
        if let Some(number) = self.numbers.remove(id) {
            self.used -= 1;
            self.withdrawn.push(number);
        }
    }

    /// Whether so many numbers stand for nothing that it should begin anew.
    pub(super) fn is_spent(&self, catalog: &Catalog) -> bool {
        let next = self.next as usize + (catalog.len() - self.used);
        next > 2 * catalog.len() + SPENT_MAX || next > SERIES_MAX
    }

    /// Of what the receiver is to be told that it stands for nothing any more.
    pub(super) fn withdrawn(&self) -> Vec<u32> {
        let mut withdrawn = self.withdrawn.clone();
        withdrawn.sort_unstable();
        withdrawn
    }

    /// The receiver has been told.
    pub(super) fn learnt(&mut self) {
        self.withdrawn.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::{JOB_TAG, Key, Kind, Unit};

    #[test]
    fn a_number_stands_for_one_series_and_a_dictionary_of_spent_numbers_begins_anew() {
        let (mut catalog, mut dictionary) = (Catalog::new(10), Dictionary::default());
        let lasting = catalog.declare(Key::new("a", &[], Kind::Counter, Unit::None).unwrap()).unwrap();
        let mut jobs = 0;
        while !dictionary.is_spent(&catalog) {
            let key = Key::new("a", &[(JOB_TAG, &jobs.to_string())], Kind::Counter, Unit::None).unwrap();
            let id = catalog.declare(key).unwrap();
            let expected = if jobs == 0 { vec![lasting, id] } else { vec![id] };
            assert_eq!(dictionary.extend(&catalog), expected);
            jobs += 1;
            assert_eq!((dictionary.number(lasting), dictionary.number(id)), (Some(0), Some(jobs)));
            // One of which the receiver has not learnt gets its number again.
            dictionary.shorten(&[id]);
            assert_eq!((dictionary.number(id), dictionary.extend(&catalog)), (None, vec![id]));
            catalog.remove(id);
            dictionary.withdraw(id);
            assert_eq!((dictionary.withdrawn(), dictionary.number(id)), (vec![jobs], None));
            dictionary.learnt();
        }
        assert!((SPENT_MAX..SPENT_MAX + 10).contains(&(jobs as usize)), "{jobs}");
        let mut anew = Dictionary::default();
        anew.extend(&catalog);
        assert!(!anew.is_spent(&catalog));
    }
}
