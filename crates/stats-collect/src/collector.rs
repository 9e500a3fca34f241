//! The rows of the table.

use crate::access::Access;
use crate::host::{Host, Place};
use crate::readings::Readings;
use crate::sources::COLLECTORS;
use serde_json::Value;
use stats_core::{Kind, Unit};
use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

/// On which ranks a collector works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ranks {
    /// On all.
    All,
    /// On rank 0, where the instance's own services are.
    Root,
}

/// A series, or many of one form.
#[derive(Debug, Clone, Copy)]
pub struct Described {
    /// Its name. A part in capitals stands for any text: `modules.NAME.sendq`.
    pub name: &'static str,
    /// The keys of its tags.
    pub tags: &'static [&'static str],
    /// What kind of quantity it is.
    pub kind: Kind,
    /// What it is in.
    pub unit: Unit,
    /// Who may see it beside the owner.
    pub access: Access,
    /// What it says.
    pub about: &'static str,
}

impl Described {
    /// A state that anybody may see who may ask at all.
    pub(crate) const fn gauge(name: &'static str, unit: Unit, about: &'static str) -> Self {
        Described { name, tags: &[], kind: Kind::Gauge, unit, access: Access::Guest, about }
    }

    /// A flow that anybody may see who may ask at all.
    pub(crate) const fn counter(name: &'static str, unit: Unit, about: &'static str) -> Self {
        Described { name, tags: &[], kind: Kind::Counter, unit, access: Access::Guest, about }
    }

    /// A distribution that anybody may see who may ask at all.
    pub(crate) const fn timer(name: &'static str, unit: Unit, about: &'static str) -> Self {
        Described { name, tags: &[], kind: Kind::Timer, unit, access: Access::Guest, about }
    }

    pub(crate) const fn tagged(self, tags: &'static [&'static str]) -> Self {
        Described { tags, ..self }
    }

    pub(crate) const fn only(self, access: Access) -> Self {
        Described { access, ..self }
    }

    /// Whether a name is of this form.
    pub fn matches(&self, name: &str) -> bool {
        let (mut form, mut given) = (self.name.split('.'), name.split('.'));
        loop {
            match (form.next(), given.next()) {
                (None, None) => return true,
                // The rest of a nested answer.
                (Some(ANY_PATH), Some(_)) => return true,
                (Some(part), Some(text)) if part == text || is_placeholder(part) => {}
                _ => return false,
            }
        }
    }

    /// The name with its placeholders filled in, in their order.
    pub(crate) fn filled(&self, with: &[&str]) -> String {
        let mut with = with.iter();
        let parts = self.name.split('.').map(|part| match is_placeholder(part) {
            true => with.next().copied().unwrap_or(part),
            false => part,
        });
        parts.collect::<Vec<_>>().join(".")
    }
}

/// A placeholder for one or more parts of a name.
pub(crate) const ANY_PATH: &str = "PATH";

fn is_placeholder(part: &str) -> bool {
    part.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// What a collector does.
pub(crate) enum Work {
    /// Asks services.
    Ask(&'static [Ask]),
    /// Asks each module of this broker that it is about, for what every module answers unless it has an answer of its own.
    AskModules {
        /// Whether it is about a module of that name.
        about: fn(&crate::choice::Choice, &str) -> bool,
        read: fn(&str, &Value, &mut Readings) -> Answered,
    },
    /// Looks for itself.
    Look(fn(&mut Host, &mut Readings)),
}

/// What became of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answered {
    Read,
    /// Not of the form that is asked for: the module has an answer of its own. It is not asked again.
    OtherForm,
}

/// One question.
pub(crate) struct Ask {
    pub(crate) topic: &'static str,
    /// A JSON object as text; empty: none.
    pub(crate) payload: &'static str,
    pub(crate) read: fn(&Value, &Place, &mut Readings),
    /// Whether this broker can be asked.
    pub(crate) here: fn(&Place) -> bool,
    /// The collector's period, if it has none of its own.
    pub(crate) period: Option<Duration>,
}

impl Ask {
    pub(crate) const fn new(topic: &'static str, read: fn(&Value, &Place, &mut Readings)) -> Self {
        Ask { topic, payload: "", read, here: |_| true, period: None }
    }
}

/// A source of series.
pub struct Collector {
    /// As `collect` names it.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// Where it works.
    pub ranks: Ranks,
    /// Whether it works unless something else is chosen.
    pub default: bool,
    /// How often; less often where the source takes long to answer.
    pub period: Duration,
    /// What is asked or read.
    pub source: &'static str,
    /// What that costs, and whom.
    pub cost: &'static str,
    /// Every series that it makes.
    pub series: &'static [Described],
    pub(crate) work: Work,
}

/// A row, and whether rank 0 alone has what it describes: what that amounts to in the instance is what rank 0 says.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The row.
    pub described: &'static Described,
    /// Whether other ranks have none of it.
    pub of_root: bool,
    /// Whether it is a name under which others have exported what another series says.
    pub alias: bool,
}

/// The row of a series of that name, if the tables have one.
pub fn described(name: &str) -> Option<Row> {
    rows_of(name).next()
}

/// The rows that a name fits.
pub(crate) fn rows_of(name: &str) -> impl Iterator<Item = Row> {
    /// By the last part of their names; those that end in any text are under the empty one.
    static ROWS: LazyLock<HashMap<&'static str, Vec<Row>>> = LazyLock::new(|| {
        let mut rows: HashMap<&'static str, Vec<Row>> = HashMap::new();
        for described in crate::page::all_series() {
            let is_here = |rows: &[Described]| rows.iter().any(|one| one.name == described.name);
            let alias = is_here(crate::aliases::described());
            let root = COLLECTORS.iter().filter(|collector| collector.ranks == Ranks::Root);
            let of_root = alias || root.into_iter().any(|collector| is_here(collector.series));
            let last = described.name.rsplit('.').next().filter(|last| !is_placeholder(last));
            rows.entry(last.unwrap_or_default()).or_default().push(Row { described, of_root, alias });
        }
        rows
    });
    let last = name.rsplit('.').next().unwrap_or_default();
    let rows = [last, ""].into_iter().filter_map(|last| ROWS.get(last)).flatten();
    rows.copied().filter(move |row| row.described.matches(name))
}

/// Whether there is a series of that name in the tables: of a collector, of the service itself, or another name for one.
pub fn is_described(name: &str) -> bool {
    crate::page::all_series().any(|described| described.matches(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_has_its_row_and_it_is_found() {
        for row in crate::page::all_series() {
            let name = row.filled(&["x", "y", "z"]);
            assert!(described(&name).is_some_and(|found| found.described.matches(&name)), "{name}");
        }
        let of = |name| described(name).map(|row| (row.of_root, row.alias));
        assert_eq!(of("modules.kvs.wakeups"), Some((false, false)));
        assert_eq!(of("modules.kvs.stats.cache.dirty"), Some((false, false)));
        assert_eq!((of("jobs.run"), of("node_up_count")), (Some((true, false)), Some((true, true))));
        assert_eq!(of("app.requests"), None);
    }

    #[test]
    fn a_placeholder_is_one_part_and_a_path_is_more() {
        let described = Described::gauge("modules.NAME.sendq", Unit::None, "");
        assert!(described.matches("modules.kvs.sendq"));
        for other in ["modules.kvs.recvq", "modules.sendq", "modules.kvs.sendq.x", "modules.a.b.sendq"] {
            assert!(!described.matches(other), "{other}");
        }
        assert_eq!(described.filled(&["kvs"]), "modules.kvs.sendq");
        let nested = Described::gauge("modules.NAME.stats.PATH", Unit::None, "");
        assert!(nested.matches("modules.kvs.stats.cache.dirty") && !nested.matches("modules.kvs.stats"));
    }
}
