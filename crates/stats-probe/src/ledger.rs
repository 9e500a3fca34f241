//! Totals per name, which outlive whoever earned them, and accounts of those who have no name yet.

use std::collections::{BTreeMap, HashMap};

use crate::names::{Owner, Sure};
use crate::sample::Source;
use crate::totals::Totals;

/// What one name amounts to.
#[derive(Debug, Default)]
pub(crate) struct Named {
    pub(crate) totals: Totals,
    /// A module or the broker: a list says so, it is a process that runs a module, or it takes turns.
    pub(crate) module: bool,
    /// It has been a process of its own.
    pub(crate) process: bool,
    /// Where its numbers come from, as of the last credit, and when that was.
    pub(crate) source: Source,
    credited_ns: u64,
    /// When, last, something was added that may be another module's (CLOCK_MONOTONIC ns).
    pub(crate) mixed_ns: Option<u64>,
}

/// A probe that reads totals, all of which begin when it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ReaderId(u64);

/// What has been earned and belongs to no name yet.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) totals: Totals,
    /// Of that, what was earned before a reader came, for each reader that came since.
    before: Vec<(ReaderId, Totals)>,
}

/// All names.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    named: BTreeMap<String, Named>,
    /// What each name amounted to when a reader came.
    bases: HashMap<ReaderId, BTreeMap<String, Totals>>,
    readers: u64,
}

impl Ledger {
    pub(crate) fn has_readers(&self) -> bool {
        !self.bases.is_empty()
    }

    /// A reader comes: what has been earned until now is not for him.
    pub(crate) fn enter<'a>(&mut self, held: impl Iterator<Item = &'a mut Held>) -> ReaderId {
        self.readers += 1;
        let reader = ReaderId(self.readers);
        let base = self.named.iter().map(|(name, named)| (name.clone(), named.totals.clone()));
        self.bases.insert(reader, base.collect());
        held.for_each(|held| held.before.push((reader, held.totals.clone())));
        reader
    }

    /// A reader goes.
    pub(crate) fn leave<'a>(&mut self, reader: ReaderId, held: impl Iterator<Item = &'a mut Held>) {
        self.bases.remove(&reader);
        held.for_each(|held| held.before.retain(|(of, _)| *of != reader));
    }

    /// Moves what has been held to its name.
    pub(crate) fn credit(&mut self, owner: &Owner, held: &mut Held, process: bool, now_ns: u64) {
        let Held { totals, before } = std::mem::take(held);
        let named = self.named.entry(owner.name.clone()).or_default();
        named.module |= owner.sure == Sure::Listed || process || totals.wakeups > 0;
        named.process |= process;
        if owner.sure == Sure::Mixed {
            named.mixed_ns = Some(now_ns);
        }
        // What is credited at one moment is of all who have that name: the best of their sources counts.
        named.source =
            if named.credited_ns == now_ns { named.source.max(totals.source) } else { totals.source };
        named.credited_ns = now_ns;
        named.totals.merge(&totals);
        for (reader, part) in before {
            if let Some(base) = self.bases.get_mut(&reader) {
                base.entry(owner.name.clone()).or_default().merge(&part);
            }
        }
    }

    /// All names, each with what it amounted to when the reader came.
    pub(crate) fn read(&self, reader: ReaderId) -> impl Iterator<Item = (&str, &Named, Option<&Totals>)> {
        let base = self.bases.get(&reader);
        self.named.iter().map(move |(name, named)| (&**name, named, base.and_then(|b| b.get(name))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(wakeups: u64) -> Held {
        Held { totals: Totals { wakeups, ..Totals::default() }, before: Vec::new() }
    }

    fn seen(ledger: &Ledger, reader: ReaderId) -> Vec<(&str, u64)> {
        let gained =
            |named: &Named, base: Option<&Totals>| named.totals.wakeups - base.map_or(0, |b| b.wakeups);
        ledger.read(reader).map(|(name, named, base)| (name, gained(named, base))).collect()
    }

    #[test]
    fn a_reader_sees_what_was_earned_since_he_came_even_if_it_finds_its_name_later() {
        let mut ledger = Ledger::default();
        let owner = Owner { name: "a".into(), sure: Sure::Listed };
        let mut account = held(10);
        let first = ledger.enter(std::iter::once(&mut account));
        account.totals.wakeups += 5;
        let second = ledger.enter(std::iter::once(&mut account));
        let gone = ledger.enter(std::iter::once(&mut account));
        ledger.leave(gone, std::iter::once(&mut account));
        assert_eq!(account.before.len(), 2, "nothing is kept for who has gone");
        account.totals.wakeups += 2;
        ledger.credit(&owner, &mut account, false, 0);
        assert_eq!((seen(&ledger, first), seen(&ledger, second)), (vec![("a", 7)], vec![("a", 2)]));
        // Nothing is held any more: the next goes on from there.
        account.totals.wakeups += 1;
        ledger.leave(first, std::iter::once(&mut account));
        let third = ledger.enter(std::iter::once(&mut account));
        ledger.credit(&owner, &mut account, false, 0);
        assert_eq!((seen(&ledger, second), seen(&ledger, third)), (vec![("a", 3)], vec![("a", 0)]));
    }
}
