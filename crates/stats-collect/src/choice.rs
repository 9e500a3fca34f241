//! Which collectors work: `collect=`.

use crate::sources::{COLLECTORS, STATS};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Another name for some series, as if it were a collector.
pub(crate) const ALIASES: &str = "aliases";

/// What is chosen. As text: words separated by commas, the later going before the earlier: a collector's name, `aliases`,
/// `stats:MODULE` (all numbers of that module's `stats-get`), each with `-` in front for not that; `default`, `all`, `none`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    collectors: BTreeSet<&'static str>,
    /// Modules of which all is wanted.
    stats: BTreeSet<String>,
}

/// A word that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no collector: expected {names}, {ALIASES}, stats:MODULE (each of these with - in front for not that), default, all or none",
    names = names())]
pub struct BadChoice(String);

fn names() -> String {
    let names: Vec<&str> = COLLECTORS.iter().map(|c| c.name).filter(|name| *name != STATS).collect();
    names.join(", ")
}

/// Modules of which all may be wanted.
const STATS_MAX: usize = 32;
/// The longest name of one.
const MODULE_MAX: usize = 64;

impl Choice {
    /// None.
    pub fn none() -> Self {
        Choice { collectors: BTreeSet::new(), stats: BTreeSet::new() }
    }

    /// Whether a collector is to work.
    pub(crate) fn has(&self, name: &str) -> bool {
        if name == STATS { !self.stats.is_empty() } else { self.collectors.contains(name) }
    }

    /// Whether all that a module tells is wanted.
    pub(crate) fn wants_stats_of(&self, module: &str) -> bool {
        self.stats.contains(module)
    }

    fn every(wanted: impl Fn(&crate::Collector) -> bool) -> BTreeSet<&'static str> {
        let names = COLLECTORS.iter().filter(|c| c.name != STATS && wanted(c)).map(|c| c.name);
        names.chain([ALIASES]).collect()
    }
}

impl Default for Choice {
    fn default() -> Self {
        Choice { collectors: Choice::every(|collector| collector.default), stats: BTreeSet::new() }
    }
}

impl FromStr for Choice {
    type Err = BadChoice;

    fn from_str(text: &str) -> Result<Self, BadChoice> {
        let mut choice = Choice::none();
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        for (number, word) in words.enumerate() {
            let (not, name) = word.strip_prefix('-').map_or((false, word), |name| (true, name));
            // What is only taken away is taken from the default.
            if not && number == 0 {
                choice = Choice::default();
            }
            let bad = || BadChoice(word.chars().take(MODULE_MAX).collect());
            if let Some(module) = name.strip_prefix("stats:") {
                let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
                if module.is_empty() || module.len() > MODULE_MAX || !module.chars().all(valid) {
                    return Err(bad());
                }
                if not {
                    choice.stats.remove(module);
                } else if choice.stats.len() < STATS_MAX {
                    choice.stats.insert(module.to_owned());
                } else {
                    return Err(bad());
                }
                continue;
            }
            match (name, not) {
                ("default", false) => choice.collectors.extend(Choice::default().collectors),
                ("all", false) => choice.collectors.extend(Choice::every(|_| true)),
                ("none", false) => choice = Choice::none(),
                _ => {
                    let known =
                        COLLECTORS.iter().map(|c| c.name).filter(|name| *name != STATS).chain([ALIASES]);
                    let name = known.into_iter().find(|known| *known == name).ok_or_else(bad)?;
                    if not {
                        choice.collectors.remove(name);
                    } else {
                        choice.collectors.insert(name);
                    }
                }
            }
        }
        Ok(choice)
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Choice::default() {
            return f.write_str("default");
        }
        let stats = self.stats.iter().map(|module| format!("stats:{module}"));
        let words: Vec<String> = self.collectors.iter().map(|&name| name.to_owned()).chain(stats).collect();
        f.write_str(if words.is_empty() { "none" } else { "" })?;
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_words_go_before_earlier_ones() {
        let choice = |text: &str| text.parse::<Choice>().unwrap();
        assert_eq!(choice("default"), Choice::default());
        assert_eq!((choice("none"), choice("")), (Choice::none(), Choice::none()));
        assert!(choice("modules").has("modules") && !choice("modules").has("jobs"));
        assert!(!choice("-jobs").has("jobs") && choice("-jobs").has("modules"));
        assert!(choice("all,-jobs").has("content") && !choice("all,-jobs").has("jobs"));
        assert_eq!(choice("all,none,jobs"), choice("jobs"));
        let with = choice("default,stats:kvs,stats:job-exec,-stats:kvs");
        assert!(with.has(STATS) && with.wants_stats_of("job-exec") && !with.wants_stats_of("kvs"));
        for text in ["default", "none", "jobs,modules", "jobs,stats:kvs"] {
            assert_eq!(choice(text).to_string(), text);
        }
    }

    #[test]
    fn a_wrong_word_is_told_what_is_allowed() {
        for word in ["job", "stats", "stats:", "-all", "stats:a b", "Modules"] {
            let error = word.parse::<Choice>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{word:?} is no collector: expected modules, ")), "{error}");
            assert!(error.contains("stats:MODULE"), "{error}");
        }
    }
}
