//! The rules: a table. Each is a function of the evidence, and of nothing else.

mod export;
mod growth;
mod jobs;
mod limits;
mod losses;
mod modules;
mod ranks;

use super::evidence::{Evidence, Module};
use super::finding::{Finding, Unit};
use std::collections::BTreeSet;

/// A number beyond which something is wrong.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Threshold {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: Unit,
    /// Why this number.
    pub(crate) why: &'static str,
}

/// What a rule looks at.
#[derive(Clone, Copy)]
pub(crate) enum Look {
    /// The instance as a whole.
    Instance(fn(&Evidence) -> Option<Finding>),
    /// The instance, in which it may be wrong at several places.
    Places(fn(&Evidence) -> Vec<Finding>),
    /// Each module on each rank of which enough is known. Findings about the same module are one.
    Module(fn(&Module<'_>, &Evidence) -> Option<Finding>),
}

/// One kind of finding.
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    /// What it says.
    pub(crate) about: &'static str,
    pub(crate) thresholds: &'static [Threshold],
    pub(crate) look: Look,
}

/// All there are. Of findings that are equally bad those of the first rule come first: causes before what follows from
/// them.
pub(crate) const RULES: [Rule; 14] = [
    ranks::MISSING,
    modules::STALLED,
    limits::DESCRIPTORS,
    limits::DISK,
    modules::BLOCKED,
    modules::SPINNING,
    modules::BROKER_TURNING,
    growth::QUEUE,
    modules::BUSY,
    growth::MEMORY,
    jobs::HELD_BACK,
    export::FAILING_EXPORT,
    losses::NO_ROOM,
    losses::DROPPING,
];

/// What is wrong, the worst first.
pub(crate) fn findings(evidence: &Evidence) -> Vec<Finding> {
    let mut found: Vec<(usize, Finding)> = Vec::new();
    for (place, rule) in RULES.iter().enumerate() {
        for finding in rule.look(evidence) {
            let same = found.iter_mut().find(|(of, one)| *of == place && one.subject == finding.subject);
            match same {
                Some((_, one)) => one.absorb(finding),
                None => found.push((place, finding)),
            }
        }
    }
    found.sort_by(|(a_rule, a), (b_rule, b)| {
        a.severity.cmp(&b.severity).then(a_rule.cmp(b_rule)).then(b.weight.total_cmp(&a.weight))
    });
    let mut told: Vec<Finding> = Vec::new();
    for (_, finding) in found {
        match told.iter_mut().find(|graver| explains(graver, &finding)) {
            Some(graver) => graver.take_evidence(finding),
            None => told.push(finding),
        }
    }
    told
}

/// What a module may be found to be, the gravest first: one cause, where it is the same module on the same ranks.
const OF_A_MODULE: [&str; 4] =
    [modules::STALLED.name, modules::BLOCKED.name, modules::SPINNING.name, modules::BUSY.name];

fn explains(graver: &Finding, finding: &Finding) -> bool {
    let place = |finding: &Finding| OF_A_MODULE.iter().position(|name| *name == finding.name);
    let is_graver = place(graver).zip(place(finding)).is_some_and(|(graver, lesser)| graver < lesser);
    is_graver
        && graver.subject == finding.subject
        && finding.ranks.iter().all(|rank| graver.ranks.contains(rank))
}

impl Rule {
    fn look(&self, evidence: &Evidence) -> Vec<Finding> {
        match self.look {
            Look::Instance(look) => look(evidence).into_iter().collect(),
            Look::Places(look) => look(evidence),
            Look::Module(look) => {
                let modules = evidence.modules();
                let all = modules.iter().flat_map(|name| evidence.on_ranks(name));
                all.filter_map(|module| look(&module, evidence)).collect()
            }
        }
    }
}

/// What a second look is needed at: series as the ranks that measured them have them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Suspicion {
    pub(crate) patterns: BTreeSet<String>,
    /// The ranks that it is about, as far as the whole instance's numbers tell.
    pub(crate) ranks: BTreeSet<u32>,
}

/// What to ask by rank, if anything looks wrong from afar.
pub(crate) fn suspicion(evidence: &Evidence) -> Suspicion {
    let mut suspicion = Suspicion::default();
    modules::suspect(evidence, &mut suspicion);
    limits::suspect(evidence, &mut suspicion);
    growth::suspect(evidence, &mut suspicion);
    suspicion
}
