//! Which module a thread's or a process's name means.

use crate::registry::Key;

/// The kernel cuts a thread's name to so many bytes.
const COMM_BYTES: usize = 15;

/// A loaded module, as `module.list` gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The name under which it was loaded.
    pub name: String,
    /// The path of its file, if known.
    pub path: Option<String>,
}

/// The modules that are loaded now.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    modules: Vec<Name>,
}

impl Names {
    pub(crate) fn new(modules: &[Name]) -> Self {
        Self { modules: modules.to_vec() }
    }

    pub(crate) fn is_known(&self, name: &str) -> bool {
        self.modules.iter().any(|m| m.name == name)
    }

    /// The name to show, and whether it may stand for more than one module.
    pub(crate) fn resolve(&self, key: &Key) -> (String, bool) {
        match key {
            Key::Broker => ("broker".into(), false),
            Key::Comm(comm) if comm.len() < COMM_BYTES => (comm.clone(), false),
            Key::Comm(comm) => self.choose(comm, |m| comm_of(&m.name) == comm.as_bytes()),
            Key::Process(path) => {
                let stem = path.rsplit('/').next().unwrap_or(path);
                let stem = stem.split_once(".so").or(stem.split_once(".py")).map_or(stem, |(s, _)| s);
                if self.modules.iter().any(|m| m.path.as_deref() == Some(path)) {
                    self.choose(stem, |m| m.path.as_deref() == Some(path))
                } else {
                    (stem.to_owned(), false)
                }
            }
        }
    }

    /// The one module that fits; if several do, they are merged under `or`.
    fn choose(&self, or: &str, fits: impl Fn(&Name) -> bool) -> (String, bool) {
        let mut fitting = self.modules.iter().filter(|m| fits(m));
        match (fitting.next(), fitting.next()) {
            (Some(one), None) => (one.name.clone(), false),
            (None, _) => (or.to_owned(), false),
            _ => (or.to_owned(), true),
        }
    }
}

impl Key {
    /// Whether it is a module even if no list names it: it takes turns, and its name is whole.
    pub(crate) fn is_module(&self, turning: bool) -> bool {
        match self {
            Key::Broker | Key::Process(_) => true,
            Key::Comm(comm) => turning && comm.len() < COMM_BYTES,
        }
    }
}

fn comm_of(name: &str) -> &[u8] {
    let bytes = name.as_bytes();
    bytes.get(..COMM_BYTES).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[(&str, Option<&str>)]) -> Names {
        let name = |(n, p): &(&str, Option<&str>)| Name { name: (*n).into(), path: p.map(Into::into) };
        Names::new(&list.iter().map(name).collect::<Vec<_>>())
    }

    fn comm(n: &Names, comm: &str) -> (String, bool) {
        n.resolve(&Key::Comm(comm.into()))
    }

    #[test]
    fn a_cut_name_is_restored_when_one_module_fits() {
        let n = names(&[("connector-local", None), ("resource-status-x", None), ("kvs", None)]);
        assert_eq!(comm(&n, "connector-local"), ("connector-local".into(), false));
        assert_eq!(comm(&n, "resource-status"), ("resource-status-x".into(), false));
        assert_eq!(comm(&n, "kvs"), ("kvs".into(), false));
        assert_eq!(comm(&n, "kv"), ("kv".into(), false));
    }

    #[test]
    fn names_that_are_cut_to_the_same_are_merged_and_flagged() {
        let n = names(&[("resource-status", None), ("resource-status-x", None)]);
        assert_eq!(comm(&n, "resource-status"), ("resource-status".into(), true));
    }

    #[test]
    fn a_process_is_the_module_of_its_path() {
        let n =
            names(&[("sched", Some("/m/sched-simple.py")), ("a", Some("/m/x.so")), ("b", Some("/m/x.so"))]);
        let of = |p: &str| n.resolve(&Key::Process(p.into()));
        assert_eq!(of("/m/sched-simple.py"), ("sched".into(), false));
        assert_eq!(of("/other/kvs.so.0"), ("kvs".into(), false));
        assert_eq!(of("/m/x.so"), ("x".into(), true));
    }
}
