//! Which module a thread or a process is.
//!
//! The kernel cuts a thread's name to 15 characters, and a process of a module tells the module's file, not
//! its name: `module.list` has the names. A list is true of threads that were there when it was asked for,
//! so one that is younger than the last list waits for the next. Once a list has said who somebody is, that
//! holds for as long as he lives, and nobody else is taken for that module: so two modules whose names begin
//! alike are told apart if they came one after the other. Where they cannot be, they are one name, which
//! says so.

use crate::{clock, proc};

/// The kernel cuts a thread's name to so many bytes.
const COMM_BYTES: usize = 15;
/// No more modules than this are remembered beside those that are loaded.
const PAST_MAX: usize = 1_000;
/// How long somebody waits for a list before he goes by what is known.
const LIST_WAIT_NS: u64 = 30_000_000_000;

/// A loaded module, as `module.list` gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The name under which it was loaded.
    pub name: String,
    /// The path of its file, if known.
    pub path: Option<String>,
}

/// When a list of modules was asked for: to be taken before the request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AsOf(u64);

impl AsOf {
    /// This moment.
    pub fn now() -> Self {
        Self(clock::monotonic_ns())
    }
}

/// What somebody is known by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The broker's main thread.
    Broker,
    /// A thread of the broker of this (at most 15 characters long) name.
    Comm(String),
    /// The process of a module, by the module's path.
    Process(String),
}

/// How sure a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sure {
    /// A list names this one module: true for life.
    Listed,
    /// The whole name of a thread, which no list has (yet).
    Whole,
    /// It may stand for more than one module, or for one that no list has named.
    Mixed,
}

/// A name, found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) name: String,
    pub(crate) sure: Sure,
}

/// The modules that are loaded, as of the newest list.
#[derive(Debug, Default)]
pub(crate) struct Names {
    modules: Vec<Name>,
    /// Those that were loaded once and are not any more.
    past: Vec<Name>,
    as_of: Option<AsOf>,
}

impl Names {
    /// Takes a list, unless a newer one is there.
    pub(crate) fn set(&mut self, modules: &[Name], as_of: AsOf) {
        if self.as_of.is_none_or(|before| before <= as_of) {
            self.past.append(&mut self.modules);
            self.past.retain(|name| !modules.contains(name));
            self.past.truncate(PAST_MAX);
            self.modules = modules.to_vec();
            self.as_of = Some(as_of);
        }
    }

    /// The last list is from before that moment, or there is none.
    pub(crate) fn older_than(&self, ns: u64) -> bool {
        self.as_of.is_none_or(|as_of| as_of.0 < ns)
    }

    /// Who a living thread or process is that was first seen under this mark at `since_ns`. `taken`: the
    /// modules that others are. `alone`: no other of the same mark is looking for his name. None: a newer
    /// list will tell.
    pub(crate) fn living(
        &self,
        mark: &Mark,
        since_ns: u64,
        now_ns: u64,
        taken: &[&str],
        alone: bool,
    ) -> Option<Owner> {
        if let Some(owner) = self.by_whole_name(mark) {
            return Some(owner);
        }
        let fitting: Vec<&str> = self.modules.iter().filter(|m| fits(mark, m)).map(|m| &*m.name).collect();
        // A list that does not name him: he has ended meanwhile, and the next look will say so.
        if self.older_than(since_ns) || fitting.is_empty() {
            let waited = now_ns.saturating_sub(since_ns) >= LIST_WAIT_NS;
            return waited.then(|| mixed(mark));
        }
        let free: Vec<&str> = fitting.iter().filter(|name| !taken.contains(name)).copied().collect();
        Some(match (&fitting[..], &free[..]) {
            // Threads that a module starts are called like it.
            ([one], _) if matches!(mark, Mark::Comm(_)) => listed(one),
            (_, [one]) if alone || fitting.len() == 1 => listed(one),
            _ => mixed(mark),
        })
    }

    /// Who somebody was who ended without a name: what the lists until then say.
    pub(crate) fn ended(&self, mark: &Mark, taken: &[&str]) -> Owner {
        let whole = self.by_whole_name(mark);
        let known = self.modules.iter().chain(&self.past).filter(|m| fits(mark, m));
        let mut fitting = known.map(|m| &*m.name);
        whole.unwrap_or_else(|| match (fitting.next(), fitting.next()) {
            (Some(one), None) if !taken.contains(&one) => listed(one),
            _ => mixed(mark),
        })
    }

    fn by_whole_name(&self, mark: &Mark) -> Option<Owner> {
        match mark {
            Mark::Broker => Some(listed("broker")),
            Mark::Comm(comm) if comm.len() < COMM_BYTES => {
                let is_listed = self.modules.iter().any(|m| m.name == *comm);
                let sure = if is_listed { Sure::Listed } else { Sure::Whole };
                Some(Owner { name: comm.clone(), sure })
            }
            _ => None,
        }
    }
}

fn fits(mark: &Mark, module: &Name) -> bool {
    match mark {
        Mark::Broker => false,
        Mark::Comm(comm) => cut(&module.name) == comm.as_bytes(),
        Mark::Process(path) => module.path.as_deref() == Some(path),
    }
}

fn listed(name: &str) -> Owner {
    Owner { name: name.to_owned(), sure: Sure::Listed }
}

/// All there is to call it by.
fn mixed(mark: &Mark) -> Owner {
    let name = match mark {
        Mark::Broker => "broker",
        Mark::Comm(comm) => comm,
        Mark::Process(path) => proc::stem(path),
    };
    Owner { name: name.to_owned(), sure: Sure::Mixed }
}

fn cut(name: &str) -> &[u8] {
    let bytes = name.as_bytes();
    bytes.get(..COMM_BYTES).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED_AT: u64 = 1_000;

    fn names(list: &[(&str, Option<&str>)]) -> Names {
        let name = |(n, p): &(&str, Option<&str>)| Name { name: (*n).into(), path: p.map(Into::into) };
        let mut names = Names::default();
        names.set(&list.iter().map(name).collect::<Vec<_>>(), AsOf(LISTED_AT));
        names
    }

    fn comm(comm: &str) -> Mark {
        Mark::Comm(comm.into())
    }

    fn living(names: &Names, mark: &Mark, taken: &[&str], alone: bool) -> Option<Owner> {
        names.living(mark, LISTED_AT, LISTED_AT, taken, alone)
    }

    fn owner(name: &str, sure: Sure) -> Owner {
        Owner { name: name.into(), sure }
    }

    #[test]
    fn a_cut_name_is_restored_when_one_module_fits() {
        let n = names(&[("connector-local", None), ("resource-status-x", None), ("kvs", None)]);
        for (comm_name, name, sure) in [
            ("connector-local", "connector-local", Sure::Listed),
            ("resource-status", "resource-status-x", Sure::Listed),
            ("kvs", "kvs", Sure::Listed),
            ("kv", "kv", Sure::Whole),
        ] {
            assert_eq!(living(&n, &comm(comm_name), &[], true), Some(owner(name, sure)));
        }
        let mark = comm("not-listed-at-a");
        assert_eq!(living(&n, &mark, &[], true), None);
        let later = LISTED_AT + LIST_WAIT_NS;
        assert_eq!(n.living(&mark, LISTED_AT, later, &[], true), Some(owner("not-listed-at-a", Sure::Mixed)));
    }

    #[test]
    fn who_is_younger_than_the_list_waits_for_the_next_but_not_for_ever() {
        let n = names(&[("resource-status", None)]);
        let mark = comm("resource-status");
        let born = LISTED_AT + 1;
        assert_eq!(n.living(&mark, born, born + LIST_WAIT_NS - 1, &[], true), None);
        let owner = n.living(&mark, born, born + LIST_WAIT_NS, &[], true);
        assert_eq!(owner.map(|o| o.sure), Some(Sure::Mixed));
        // A whole name is its own proof.
        assert!(n.living(&comm("kvs"), born, born, &[], true).is_some());
    }

    #[test]
    fn names_that_are_cut_to_the_same_are_told_apart_by_who_is_known_else_merged() {
        let n = names(&[("resource-status", None), ("resource-status-x", None)]);
        let mark = comm("resource-status");
        assert_eq!(living(&n, &mark, &[], false), Some(owner("resource-status", Sure::Mixed)));
        let known = ["resource-status"];
        assert_eq!(living(&n, &mark, &known, true), Some(owner("resource-status-x", Sure::Listed)));
        // Two threads, one of them a helper of somebody's.
        assert_eq!(living(&n, &mark, &known, false), Some(owner("resource-status", Sure::Mixed)));
    }

    #[test]
    fn who_ended_without_a_name_is_not_taken_for_one_who_lived_beside_him() {
        let n = names(&[("resource-status-x", None)]);
        let mark = comm("resource-status");
        assert_eq!(n.ended(&mark, &[]), owner("resource-status-x", Sure::Listed));
        assert_eq!(n.ended(&mark, &["resource-status-x"]), owner("resource-status", Sure::Mixed));
        assert_eq!(n.ended(&comm("kv"), &[]), owner("kv", Sure::Whole));
        // Unloaded before he was seen to have ended.
        let mut n = n;
        n.set(&[], AsOf(LISTED_AT + 1));
        assert_eq!(n.ended(&mark, &[]), owner("resource-status-x", Sure::Listed));
        n.set(&[Name { name: "resource-status-y".into(), path: None }], AsOf(LISTED_AT + 2));
        assert_eq!(n.ended(&mark, &[]), owner("resource-status", Sure::Mixed));
    }

    #[test]
    fn a_process_is_the_module_of_its_path() {
        let n =
            names(&[("sched", Some("/m/sched-simple.py")), ("a", Some("/m/x.so")), ("b", Some("/m/x.so"))]);
        let of = |path: &str, taken: &[&str]| living(&n, &Mark::Process(path.into()), taken, true);
        assert_eq!(of("/m/sched-simple.py", &[]), Some(owner("sched", Sure::Listed)));
        assert_eq!(n.ended(&Mark::Process("/other/kvs.so.0".into()), &[]), owner("kvs", Sure::Mixed));
        assert_eq!(of("/m/x.so", &[]), Some(owner("x", Sure::Mixed)));
        // One of them is a thread of the broker, by its name.
        assert_eq!(of("/m/x.so", &["a"]), Some(owner("b", Sure::Listed)));
    }

    #[test]
    fn an_older_list_does_not_replace_a_newer() {
        let mut n = names(&[("resource-status-x", None)]);
        n.set(&[], AsOf(LISTED_AT - 1));
        assert!(living(&n, &comm("resource-status"), &[], true).is_some());
        n.set(&[], AsOf(LISTED_AT + 1));
        assert!(living(&n, &comm("resource-status"), &[], true).is_none());
    }
}
