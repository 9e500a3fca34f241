//! The account of every thread of the broker and of every module process, until its name is known.

use std::collections::HashMap;

use crate::ledger::{Held, Ledger, ReaderId};
use crate::names::{Mark, Names, Owner, Sure};

/// Who has an account: a thread of the broker by its tid, a process by its pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Who {
    Thread(i32),
    Process(u32),
}

#[derive(Debug, Default)]
struct Account {
    /// None: it still has the name that it inherited.
    mark: Option<Mark>,
    /// When it was first seen under that mark (CLOCK_MONOTONIC ns).
    since_ns: u64,
    owner: Option<Owner>,
    held: Held,
}

impl Account {
    fn is_certain(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.sure == Sure::Listed)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Accounts {
    accounts: HashMap<Who, Account>,
    pub(crate) names: Names,
    pub(crate) ledger: Ledger,
}

impl Accounts {
    /// What that one earns is added here.
    pub(crate) fn held(&mut self, who: Who) -> &mut Held {
        &mut self.accounts.entry(who).or_default().held
    }

    /// A reader comes, for whom all begins now.
    pub(crate) fn enter(&mut self) -> ReaderId {
        self.ledger.enter(self.accounts.values_mut().map(|account| &mut account.held))
    }

    /// A reader goes.
    pub(crate) fn leave(&mut self, reader: ReaderId) {
        self.ledger.leave(reader, self.accounts.values_mut().map(|account| &mut account.held));
    }

    /// Somebody is seen under a mark. Who is certain does not become another.
    pub(crate) fn seen_as(&mut self, who: Who, mark: Mark, now_ns: u64) {
        let account = self.accounts.entry(who).or_default();
        if account.mark.as_ref() != Some(&mark) && !account.is_certain() {
            (account.mark, account.since_ns, account.owner) = (Some(mark), now_ns, None);
        }
    }

    pub(crate) fn is_marked(&self, who: Who) -> bool {
        self.accounts.get(&who).is_some_and(|account| account.mark.is_some())
    }

    /// The name of somebody who has one.
    pub(crate) fn name(&self, who: Who) -> Option<&str> {
        self.accounts.get(&who)?.owner.as_ref().map(|owner| &*owner.name)
    }

    /// A new list of modules would tell more.
    pub(crate) fn want_names(&self) -> bool {
        let open = |a: &Account| a.mark.is_some() && !a.is_certain() && self.names.older_than(a.since_ns);
        self.accounts.values().any(open)
    }

    /// Finds names, and credits to them what has been earned.
    pub(crate) fn settle(&mut self, now_ns: u64) {
        let mut open: Vec<Who> =
            self.accounts.iter().filter(|(_, a)| !a.is_certain()).map(|(w, _)| *w).collect();
        // Threads first, since a thread tells more of its name.
        open.sort_unstable();
        for who in open {
            let Some(mark) = self.accounts.get(&who).and_then(|a| a.mark.clone()) else { continue };
            let alike = |a: &&Account| a.mark.as_ref() == Some(&mark) && !a.is_certain();
            let alone = self.accounts.values().filter(alike).count() == 1;
            let taken = self.taken();
            let since_ns = self.accounts.get(&who).map_or(0, |a| a.since_ns);
            let owner = self.names.living(&mark, since_ns, now_ns, &taken, alone);
            if let Some(account) = self.accounts.get_mut(&who) {
                account.owner = owner;
            }
        }
        for (who, account) in &mut self.accounts {
            if let Some(owner) = &account.owner {
                self.ledger.credit(owner, &mut account.held, matches!(who, Who::Process(_)), now_ns);
            }
        }
    }

    /// Nobody waits for a list any longer: what is held is credited by what is known.
    pub(crate) fn settle_all(&mut self, now_ns: u64) {
        self.settle(now_ns);
        let taken: Vec<String> = self.taken().into_iter().map(str::to_owned).collect();
        let taken: Vec<&str> = taken.iter().map(|name| &**name).collect();
        for (who, account) in self.accounts.iter_mut().filter(|(_, account)| account.owner.is_none()) {
            let Some(mark) = &account.mark else { continue };
            let owner = self.names.ended(mark, &taken);
            self.ledger.credit(&owner, &mut account.held, matches!(who, Who::Process(_)), now_ns);
        }
    }

    /// These have ended since the last look, and these have come and gone.
    pub(crate) fn close(&mut self, ended: Vec<Who>, unseen: Vec<(Mark, Held)>, now_ns: u64) {
        let mut nameless: Vec<_> = unseen.into_iter().map(|(mark, held)| (mark, held, false)).collect();
        for who in ended {
            let Some(mut account) = self.accounts.remove(&who) else { continue };
            let process = matches!(who, Who::Process(_));
            match (account.owner, account.mark) {
                (Some(owner), _) => self.ledger.credit(&owner, &mut account.held, process, now_ns),
                (None, Some(mark)) => nameless.push((mark, account.held, process)),
                // It never was anything but what started it.
                (None, None) => {}
            }
        }
        // Only now is nobody taken for alive who is not.
        for (mark, mut held, process) in nameless {
            let owner = self.names.ended(&mark, &self.taken());
            self.ledger.credit(&owner, &mut held, process, now_ns);
        }
    }

    /// The modules that somebody is for certain.
    fn taken(&self) -> Vec<&str> {
        let certain = self.accounts.values().filter(|account| account.is_certain());
        certain.filter_map(|account| account.owner.as_ref()).map(|owner| &*owner.name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{AsOf, Name};

    const LONG: &str = "resource-status-x";
    const OTHER: &str = "resource-status-y";
    const CUT: &str = "resource-status";

    struct World {
        accounts: Accounts,
        reader: ReaderId,
    }

    impl World {
        fn new() -> Self {
            let mut accounts = Accounts::default();
            let reader = accounts.enter();
            Self { accounts, reader }
        }

        fn list(&mut self, names: &[&str]) {
            let modules: Vec<Name> =
                names.iter().map(|n| Name { name: (*n).into(), path: Some(format!("/m/{n}.so")) }).collect();
            self.accounts.names.set(&modules, AsOf::now());
        }

        /// One look at these threads, each of which has had `wakeups` more.
        fn look(&mut self, threads: &[(i32, &str, u64)]) {
            let now_ns = crate::clock::monotonic_ns();
            for (tid, comm, wakeups) in threads {
                self.accounts.held(Who::Thread(*tid)).totals.wakeups += wakeups;
                self.accounts.seen_as(Who::Thread(*tid), Mark::Comm((*comm).into()), now_ns);
            }
            self.accounts.settle(now_ns);
        }

        fn end(&mut self, tid: i32, wakeups: u64) {
            self.accounts.held(Who::Thread(tid)).totals.wakeups += wakeups;
            self.accounts.close(vec![Who::Thread(tid)], Vec::new(), crate::clock::monotonic_ns());
        }

        fn seen(&self) -> Vec<(String, u64, bool)> {
            let read = self.accounts.ledger.read(self.reader);
            read.map(|(name, named, _)| (name.into(), named.totals.wakeups, named.mixed_ns.is_some()))
                .collect()
        }
    }

    fn rows(rows: &[(&str, u64, bool)]) -> Vec<(String, u64, bool)> {
        rows.iter().map(|(name, wakeups, mixed)| ((*name).into(), *wakeups, *mixed)).collect()
    }

    #[test]
    fn a_long_name_is_credited_once_and_only_when_it_is_known() {
        let mut w = World::new();
        w.list(&[]);
        w.look(&[(1, CUT, 5)]);
        assert!(w.accounts.want_names());
        assert_eq!(w.seen(), rows(&[]));
        w.list(&[LONG]);
        w.look(&[(1, CUT, 2)]);
        assert!(!w.accounts.want_names());
        assert_eq!(w.seen(), rows(&[(LONG, 7, false)]));
        // It is unloaded; its thread is still there, and then is not.
        w.list(&[]);
        w.look(&[(1, CUT, 1)]);
        w.end(1, 1);
        assert_eq!(w.seen(), rows(&[(LONG, 9, false)]));
        // And is loaded again.
        w.look(&[(2, CUT, 3)]);
        w.list(&[LONG]);
        w.look(&[(2, CUT, 3)]);
        assert_eq!(w.seen(), rows(&[(LONG, 15, false)]));
    }

    #[test]
    fn two_that_came_one_after_the_other_are_told_apart_for_life() {
        let mut w = World::new();
        w.look(&[(1, CUT, 1)]);
        w.list(&[LONG]);
        w.look(&[(1, CUT, 1)]);
        w.look(&[(1, CUT, 1), (2, CUT, 10)]);
        w.list(&[LONG, OTHER]);
        w.look(&[(1, CUT, 1), (2, CUT, 10)]);
        assert_eq!(w.seen(), rows(&[(LONG, 4, false), (OTHER, 20, false)]));
        // The first goes: the second does not become it, and the first's successor is the first.
        w.end(1, 1);
        w.list(&[OTHER]);
        w.look(&[(2, CUT, 10)]);
        w.look(&[(2, CUT, 10), (3, CUT, 1)]);
        w.list(&[OTHER, LONG]);
        w.look(&[(2, CUT, 10), (3, CUT, 1)]);
        assert_eq!(w.seen(), rows(&[(LONG, 7, false), (OTHER, 50, false)]));
    }

    #[test]
    fn two_that_were_there_before_are_one_and_flagged_until_one_is_left() {
        let mut w = World::new();
        w.look(&[(1, CUT, 1), (2, CUT, 10)]);
        w.list(&[LONG, OTHER]);
        w.look(&[(1, CUT, 1), (2, CUT, 10)]);
        assert_eq!(w.seen(), rows(&[(CUT, 22, true)]));
        w.end(1, 0);
        w.list(&[OTHER]);
        w.look(&[(2, CUT, 10)]);
        assert_eq!(w.seen(), rows(&[(CUT, 22, true), (OTHER, 10, false)]));
    }

    #[test]
    fn a_life_between_two_looks_is_the_module_s_whose_last_life_has_just_ended() {
        let mut w = World::new();
        w.look(&[(1, CUT, 1)]);
        w.list(&[LONG]);
        w.look(&[(1, CUT, 1)]);
        let mut held = Held::default();
        held.totals.wakeups = 7;
        let unseen = vec![(Mark::Comm(CUT.into()), held)];
        w.accounts.close(vec![Who::Thread(1)], unseen, crate::clock::monotonic_ns());
        assert_eq!(w.seen(), rows(&[(LONG, 9, false)]));
    }

    #[test]
    fn a_thread_is_held_back_until_it_has_a_name_of_its_own() {
        let mut w = World::new();
        w.accounts.held(Who::Thread(1)).totals.wakeups += 4;
        w.accounts.settle(0);
        assert_eq!(w.seen(), rows(&[]));
        w.look(&[(1, "kvs", 1)]);
        assert_eq!(w.seen(), rows(&[("kvs", 5, false)]));
    }

    #[test]
    fn a_process_and_a_thread_of_the_same_file_are_two_modules() {
        let mut w = World::new();
        let list = [("loadgen", "/m/loadgen.so"), ("second", "/m/loadgen.so")];
        let name = |(n, p): &(&str, &str)| Name { name: (*n).into(), path: Some((*p).into()) };
        let now_ns = crate::clock::monotonic_ns();
        w.accounts.held(Who::Process(7)).totals.wakeups += 3;
        w.accounts.seen_as(Who::Process(7), Mark::Process("/m/loadgen.so".into()), now_ns);
        w.accounts.names.set(&list.iter().map(name).collect::<Vec<_>>(), AsOf::now());
        w.look(&[(1, "loadgen", 1)]);
        assert_eq!(w.seen(), rows(&[("loadgen", 1, false), ("second", 3, false)]));
    }
}
