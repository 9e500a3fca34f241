//! What grows: queues of messages, and memory.

use super::{Look, Rule, Suspicion, Threshold};
use crate::doctor::evidence::{Course, Evidence};
use crate::doctor::finding::{Finding, Severity, Unit, fact};
use crate::show;

const QUEUE_LENGTH: Threshold = Threshold {
    name: "messages",
    value: 100.0,
    unit: Unit::Count,
    why: "a burst that is worked off in a moment is as long",
};
const QUEUE_SECONDS: Threshold = Threshold {
    name: "grows for",
    value: 30.0,
    unit: Unit::Seconds,
    why: "with every third of it the shortest queue is longer than in the third before",
};
const MEMORY_GROWTH: Threshold = Threshold {
    name: "grows by",
    value: 64.0 * 1024.0 * 1024.0,
    unit: Unit::Bytes,
    why: "caches and a start are smaller",
};
const MEMORY_SECONDS: Threshold = Threshold {
    name: "within at least",
    value: 60.0,
    unit: Unit::Seconds,
    why: "with every quarter of it the least is more than in the quarter before",
};
const MEMORY_A_JOB: Threshold = Threshold {
    name: "beyond, for each job",
    value: 64.0 * 1024.0,
    unit: Unit::Bytes,
    why: "flux-core keeps 10 to 40 KiB of each job that is over, by design (`inactive-num-limit` bounds them)",
};

pub(super) const QUEUE: Rule = Rule {
    name: "queue-growing",
    about: "messages wait for a module, or of one, and they become more: whoever reads them does not keep up",
    thresholds: &[QUEUE_LENGTH, QUEUE_SECONDS],
    look: Look::Instance(queue),
};
pub(super) const MEMORY: Rule = Rule {
    name: "memory-growing",
    about: "a process grows steadily, by more than the jobs that Flux keeps account of explain",
    thresholds: &[MEMORY_GROWTH, MEMORY_SECONDS, MEMORY_A_JOB],
    look: Look::Instance(memory),
};

/// Parts of its time in which a queue must have grown, and memory.
const QUEUE_PARTS: usize = 3;
const MEMORY_PARTS: usize = 4;

/// The longest of all that grow.
fn queue(evidence: &Evidence) -> Option<Finding> {
    let modules = evidence.modules();
    let of_modules =
        modules.iter().flat_map(|name| ["sendq", "recvq"].map(|of| format!("modules.{name}.{of}")));
    let all = of_modules.chain(["overlay.sendq", "overlay.recvq"].map(str::to_owned));
    let growing = all.filter_map(|name| {
        let course = evidence.maxima(&name)?.last(QUEUE_SECONDS.value)?;
        let grown = course.steady_growth(QUEUE_PARTS)?;
        let last = *course.points.last()?;
        (last >= QUEUE_LENGTH.value).then_some((name, last, grown / course.seconds))
    });
    let (name, length, rate) = growing.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let (rank, _) = evidence.series(&name)?.busiest()?;
    let (of, what) = name.rsplit_once('.')?;
    let of = of.strip_prefix("modules.").unwrap_or(of);
    let whose = match what {
        "sendq" => format!("wait for {of}, which does not read them as fast as they come"),
        _ => format!("of {of} wait for the broker, which does not read them as fast as they come"),
    };
    let sentence = format!("{} messages {whose}: {} more", show::number(length), Unit::PerSecond.shown(rate));
    Some(Finding {
        name: QUEUE.name,
        severity: Severity::Warning,
        sentence,
        ranks: vec![rank],
        evidence: vec![
            fact("messages waiting", length, Unit::Count),
            fact("growth rate", rate, Unit::PerSecond),
        ],
        query: format!("'{name}' --by rank --since 5m"),
        weight: length,
        subject: name,
    })
}

/// Jobs that came to be known in so many last seconds: of each something is kept.
fn jobs(evidence: &Evidence, seconds: f64) -> f64 {
    let gained = |name: &str| {
        let course = evidence.sums(name).map(|course| course.last(seconds).unwrap_or(course));
        course.map_or(0.0, |course| course.points[course.points.len() - 1] - course.points[0])
    };
    (gained("jobs.total") + gained("jobs.purged")).max(0.0)
}

/// By how much something grew, beyond what jobs explain; how long that took; and of how many jobs.
fn unexplained(evidence: &Evidence, course: &Course) -> Option<(f64, f64, f64)> {
    if course.seconds < 0.95 * MEMORY_SECONDS.value {
        return None;
    }
    let grown = course.steady_growth(MEMORY_PARTS)?;
    let jobs = jobs(evidence, course.seconds);
    (grown - jobs * MEMORY_A_JOB.value >= MEMORY_GROWTH.value).then_some((grown, course.seconds, jobs))
}

const BROKER_MEMORY: &str = "broker.rss_anon_bytes";

/// The process that grows fastest.
fn memory(evidence: &Evidence) -> Option<Finding> {
    let asked = evidence.ranks_asked(BROKER_MEMORY);
    let of_ranks = asked.iter().filter_map(|&rank| {
        let course = evidence.of_rank(rank, BROKER_MEMORY)?.course()?;
        Some(("the broker".to_owned(), BROKER_MEMORY.to_owned(), rank, course))
    });
    let whole = asked.is_empty().then(|| {
        let rank = evidence.series(BROKER_MEMORY)?.busiest()?.0;
        Some(("the broker".to_owned(), BROKER_MEMORY.to_owned(), rank, evidence.maxima(BROKER_MEMORY)?))
    });
    let modules = evidence.modules();
    let processes = modules.iter().filter_map(|module| {
        let name = format!("modules.{module}.rss_bytes");
        let rank = evidence.series(&name)?.busiest()?.0;
        let course = evidence.maxima(&name)?;
        Some((format!("the process of {module}"), name, rank, course))
    });
    let all = of_ranks.chain(whole.flatten()).chain(processes);
    // The whole of what is known, or its end: growth may have begun lately.
    let growing = all.filter_map(|(whose, name, rank, course)| {
        let recent = || course.last(MEMORY_SECONDS.value).and_then(|course| unexplained(evidence, &course));
        let grown = unexplained(evidence, &course).or_else(recent)?;
        Some((whose, name, rank, grown))
    });
    let (whose, name, rank, (grown, seconds, jobs)) = growing.max_by(|a, b| a.3.0.total_cmp(&b.3.0))?;
    let mut sentence =
        format!("{whose} has grown by {} in {}, steadily", show::bytes(grown), show::duration(seconds));
    let mut facts = vec![
        fact("growth", grown, Unit::Bytes),
        fact("within", seconds, Unit::Seconds),
        fact("growth rate", grown / seconds, Unit::BytesPerSecond),
        fact("jobs", jobs, Unit::Count),
    ];
    if jobs >= 1.0 {
        sentence += &format!(": {} for each of {} jobs", show::bytes(grown / jobs), show::number(jobs));
        facts.push(fact("growth a job", grown / jobs, Unit::Bytes));
    } else {
        sentence += ", and not by jobs";
    }
    Some(Finding {
        name: MEMORY.name,
        severity: Severity::Warning,
        sentence,
        ranks: vec![rank],
        evidence: facts,
        query: format!("{name} jobs.total --by rank --since 5m"),
        weight: grown,
        subject: name,
    })
}

pub(super) fn suspect(evidence: &Evidence, suspicion: &mut Suspicion) {
    // The sum of all ranks grows as the one that does, unless others shrink.
    let grows = |course: Course| {
        let grown = |course: &Course| course.points[course.points.len() - 1] - course.points[0];
        let recent = course.last(MEMORY_SECONDS.value).map_or(0.0, |recent| grown(&recent));
        grown(&course).max(recent) >= 0.5 * MEMORY_GROWTH.value
    };
    if evidence.whole().instance.size > 1 && evidence.sums(BROKER_MEMORY).is_some_and(grows) {
        suspicion.patterns.insert(BROKER_MEMORY.to_owned());
        suspicion
            .ranks
            .extend(evidence.series(BROKER_MEMORY).and_then(|series| series.busiest()).map(|(rank, _)| rank));
    }
}
