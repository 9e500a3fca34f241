//! Jobs that could run, and do not.

use super::{Look, Rule, Threshold};
use crate::doctor::evidence::{Course, Evidence};
use crate::doctor::finding::{Finding, Severity, Unit, fact};
use crate::show;

const SECONDS: Threshold = Threshold {
    name: "for at least",
    value: 60.0,
    unit: Unit::Seconds,
    why: "a scheduler that is loaded anew is back by then",
};

pub(super) const HELD_BACK: Rule = Rule {
    name: "jobs-held-back",
    about: "jobs that may run wait, and no scheduler takes them; or it has them, and no job runs though all nodes are up and \
            free. Jobs that are held, wait for others, or are in a queue that is stopped may not run, and are not meant; \
            where a node is down or drained, a job may wait for it",
    thresholds: &[SECONDS],
    look: Look::Instance(held_back),
};

fn held_back(evidence: &Evidence) -> Option<Finding> {
    let course = |name: &str| evidence.sums(name)?.last(SECONDS.value);
    let always = |course: &Course, is: fn(f64) -> bool| course.points.iter().copied().all(is);
    let queued = course("modules.job-manager.alloc_queued")?;
    let pending = course("modules.job-manager.alloc_pending")?;
    let last = |course: &Course| course.points.last().copied().unwrap_or(0.0);
    let (waiting, asked) = (last(&queued) + last(&pending), last(&pending));
    let free = course("resources.nodes.free")
        .map_or(0.0, |free| free.points.iter().copied().fold(f64::INFINITY, f64::min));
    let total = course("resources.nodes.total").map_or(0.0, |total| last(&total));
    let idle = course("jobs.run").is_some_and(|run| always(&run, |run| run == 0.0));
    let sentence = if always(&queued, |queued| queued > 0.0) && always(&pending, |pending| pending == 0.0) {
        format!("{} jobs may run, and no scheduler takes them: perhaps none is loaded", show::number(waiting))
    } else if always(&pending, |pending| pending > 0.0) && idle && total > 0.0 && free >= total {
        format!(
            "{} jobs may run, and the scheduler places none, though all {} nodes are up and free",
            show::number(waiting),
            show::number(total)
        )
    } else {
        return None;
    };
    Some(Finding {
        name: HELD_BACK.name,
        severity: Severity::Warning,
        sentence,
        ranks: Vec::new(),
        evidence: vec![
            fact("jobs waiting", waiting, Unit::Count),
            fact("of them with the scheduler", asked, Unit::Count),
            fact("nodes free", free, Unit::Count),
            fact("nodes", total, Unit::Count),
        ],
        query: "'modules.job-manager.alloc_*' 'resources.nodes.*' 'jobs.*' --since 5m".to_owned(),
        weight: waiting,
        subject: String::new(),
    })
}
