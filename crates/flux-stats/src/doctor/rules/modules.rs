//! Modules that do not do what they are there for: their reactors, and the broker's own.

use super::{Look, Rule, Suspicion, Threshold};
use crate::doctor::evidence::{Evidence, Module};
use crate::doctor::finding::{Finding, Severity, Unit, fact};
use crate::show;

/// What is said of work, turns and calls is said of so much time, the last.
const SUSTAINED: Threshold = Threshold {
    name: "for at least",
    value: 30.0,
    unit: Unit::Seconds,
    why: "a burst of jobs, a start or one slow request is over by then",
};
const WORK: Threshold = Threshold {
    name: "work",
    value: 0.85,
    unit: Unit::Share,
    why: "of the time that it could have had a processor: with less, a module still has time for what comes",
};
const TURNS: Threshold = Threshold {
    name: "turns",
    value: 1000.0,
    unit: Unit::PerSecond,
    why: "what nobody sent a message for does not wake a thousand times a second",
};
const MESSAGES: Threshold = Threshold {
    name: "messages at most",
    value: 2.0,
    unit: Unit::PerSecond,
    why: "heartbeats and the questions of stats-agg are about one a second",
};
const IDLE: Threshold = Threshold {
    name: "or nothing sent for",
    value: 20.0,
    unit: Unit::Seconds,
    why: "of a module whose messages nobody counts, the broker knows when it last heard of it",
};
const BLOCKED_SHARE: Threshold = Threshold {
    name: "blocked",
    value: 0.5,
    unit: Unit::Share,
    why: "a synchronous call in a handler is bad style; half of the time in them is a bottleneck (flux-core #6690: 75 %)",
};
const OTHERS: Threshold = Threshold {
    name: "wakeups of all modules, of its own, at most",
    value: 0.1,
    unit: Unit::Share,
    why: "a message that the broker routes wakes the broker once or twice, and whoever it is for",
};

const STALL: Threshold = Threshold {
    name: "away for",
    value: 5.0,
    unit: Unit::Seconds,
    why: "as the setting `stall` of stats-agg says; this is its default",
};

pub(super) const STALLED: Rule = Rule {
    name: "module-stalled",
    about: "a module has not come back to its reactor, and answers nobody",
    thresholds: &[STALL],
    look: Look::Instance(stalled),
};
pub(super) const SPINNING: Rule = Rule {
    name: "module-spinning",
    about: "a module works or wakes all the time, and neither gets nor sends messages",
    thresholds: &[WORK, TURNS, MESSAGES, IDLE, SUSTAINED],
    look: Look::Module(spinning),
};
pub(super) const BUSY: Rule = Rule {
    name: "module-busy",
    about: "a module works all the time, and gets on: it is what others wait for",
    thresholds: &[WORK, SUSTAINED],
    look: Look::Module(busy),
};
pub(super) const BLOCKED: Rule = Rule {
    name: "module-blocked",
    about: "a module waits for answers inside its work (synchronous RPCs), and serves nobody meanwhile",
    thresholds: &[BLOCKED_SHARE, SUSTAINED],
    look: Look::Module(blocked),
};
pub(super) const BROKER_TURNING: Rule = Rule {
    name: "broker-turning",
    about: "the broker's own loop turns, and no module has anything of it",
    thresholds: &[TURNS, OTHERS, SUSTAINED],
    look: Look::Module(broker_turning),
};

const BROKER: &str = "broker";

fn title(module: &Module<'_>) -> String {
    let name = module.name;
    if name == BROKER { "the broker's own loop".to_owned() } else { name.to_owned() }
}

fn wait_for_it(messages: f64) -> String {
    if messages < 2.0 {
        "1 message waits for it".to_owned()
    } else {
        format!("{} messages wait for it", show::number(messages))
    }
}

/// The share of the time at work, of that in which it did not wait for a processor: on a crowded machine a module that
/// is always runnable is not to blame for what others take.
fn work_share(module: &Module<'_>) -> Option<f64> {
    let seconds = SUSTAINED.value;
    // Without a hook the CPU time is all that is known.
    let work = module.rate("work_s", seconds).or_else(|| module.rate("cpu_s", seconds))?;
    let work = work.max(module.rate("cpu_s", seconds).unwrap_or(0.0));
    let waited = module.rate("runq_wait_s", seconds).unwrap_or(0.0);
    // Of what gets next to nothing of a processor nothing can be said.
    (waited < 0.9).then(|| ((work - waited) / (1.0 - waited)).clamp(0.0, 1.0))
}

/// Whether it neither gets nor sends messages, and for how long it has sent none, where that is known.
fn is_cut_off(module: &Module<'_>) -> Option<f64> {
    let idle = module.gauge("idle_s");
    if module.gauge("sendq").is_some_and(|waiting| waiting > 0.0) {
        return None;
    }
    let seconds = SUSTAINED.value;
    match (module.messages("rx", seconds), module.messages("tx", seconds)) {
        (Some(rx), tx) => (rx.max(tx.unwrap_or(0.0)) <= MESSAGES.value).then(|| idle.unwrap_or(0.0)),
        _ => idle.filter(|idle| *idle >= IDLE.value),
    }
}

fn finding(rule: &Rule, module: &Module<'_>, weight: f64, sentence: String, series: &str) -> Finding {
    Finding {
        name: rule.name,
        severity: Severity::Warning,
        sentence,
        ranks: vec![module.rank],
        evidence: Vec::new(),
        query: format!("'modules.{}.{series}' --rank {} --since 5m", module.name, module.rank),
        weight,
        subject: module.name.to_owned(),
    }
}

fn spinning(module: &Module<'_>, _: &Evidence) -> Option<Finding> {
    if module.name == BROKER {
        return None;
    }
    let (work, turns) = (work_share(module)?, module.rate("wakeups", SUSTAINED.value).unwrap_or(0.0));
    if work < WORK.value && turns < TURNS.value {
        return None;
    }
    let idle = is_cut_off(module)?;
    let sentence = format!(
        "{} spins: it works {} of the time and wakes {}, but neither gets nor sends messages",
        title(module),
        Unit::Share.shown(work),
        Unit::PerSecond.shown(turns),
    );
    let evidence = vec![
        fact("work", work, Unit::Share),
        fact("wakeups", turns, Unit::PerSecond),
        fact("nothing sent for", idle, Unit::Seconds),
    ];
    let finding = finding(&SPINNING, module, work.max(turns / 1e6), sentence, "{work_s,wakeups,idle_s,rx.*}");
    Some(Finding { evidence, ..finding })
}

fn busy(module: &Module<'_>, evidence: &Evidence) -> Option<Finding> {
    let work = work_share(module).filter(|work| *work >= WORK.value)?;
    if spinning(module, evidence).is_some() || broker_turning(module, evidence).is_some() {
        return None;
    }
    let waiting = module.gauge("sendq").unwrap_or(0.0);
    let behind = if waiting >= 1.0 { format!("; {}", wait_for_it(waiting)) } else { String::new() };
    let sentence = format!("{} works {} of the time{behind}", title(module), Unit::Share.shown(work));
    let mut evidence = vec![fact("work", work, Unit::Share)];
    evidence
        .extend(module.rate("wakeups", SUSTAINED.value).map(|turns| fact("wakeups", turns, Unit::PerSecond)));
    evidence.extend(module.rate("cpu_s", SUSTAINED.value).map(|cpu| fact("CPU", cpu, Unit::Share)));
    evidence.extend(module.gauge("sendq").map(|waiting| fact("messages waiting", waiting, Unit::Count)));
    Some(Finding { evidence, ..finding(&BUSY, module, work, sentence, "{work_s,wakeups,cpu_s,sendq}") })
}

fn blocked(module: &Module<'_>, _: &Evidence) -> Option<Finding> {
    let blocked = module.rate("blocked_s", SUSTAINED.value).filter(|share| *share >= BLOCKED_SHARE.value)?;
    let calls = module.rate("blocked_calls", SUSTAINED.value).unwrap_or(0.0);
    let sentence = format!(
        "{} is blocked {} of the time, in {} synchronous calls, and serves nobody meanwhile",
        title(module),
        Unit::Share.shown(blocked),
        Unit::PerSecond.shown(calls),
    );
    let mut evidence = vec![fact("blocked", blocked, Unit::Share), fact("calls", calls, Unit::PerSecond)];
    // A call that is under way has no length yet; where none has ended it is as old as the turn.
    let under_way = module.stalled().filter(|_| calls == 0.0);
    let longest = module.gauge("longest_blocked_s").into_iter().chain(under_way).reduce(f64::max);
    evidence.extend(longest.map(|longest| fact("longest call", longest, Unit::Seconds)));
    let finding = finding(&BLOCKED, module, blocked, sentence, "{blocked_s,blocked_calls,longest_blocked_s}");
    Some(Finding { evidence, ..finding })
}

fn broker_turning(module: &Module<'_>, _: &Evidence) -> Option<Finding> {
    let turns = module.rate("wakeups", SUSTAINED.value).filter(|_| module.name == BROKER)?;
    let others = module.wakeups_of_others(SUSTAINED.value)?;
    if turns < TURNS.value || others > OTHERS.value * turns {
        return None;
    }
    let sentence = format!(
        "the broker's own loop turns {}, and all modules together wake {}: it turns for nothing",
        Unit::PerSecond.shown(turns),
        Unit::PerSecond.shown(others),
    );
    let evidence = vec![
        fact("turns", turns, Unit::PerSecond),
        fact("wakeups of modules", others, Unit::PerSecond),
        fact("work", work_share(module).unwrap_or(0.0), Unit::Share),
    ];
    let finding = finding(&BROKER_TURNING, module, turns, sentence, "{wakeups,work_s}");
    let query = format!("'modules.*.wakeups' --rank {} --since 5m --sort -rate", module.rank);
    Some(Finding { evidence, query, ..finding })
}

/// The one that stalls longest; others are told beside it.
fn stalled(evidence: &Evidence) -> Option<Finding> {
    let stalled = |module: &str| {
        let series = evidence.series(&format!("modules.{module}.stalled"))?;
        Some((module.to_owned(), series.busiest()?))
    };
    let modules = evidence.modules();
    let mut all: Vec<(String, (u32, f64))> = modules.iter().filter_map(|module| stalled(module)).collect();
    all.sort_by(|(_, (_, a)), (_, (_, b))| b.total_cmp(a));
    let (module, (rank, seconds)) = all.first()?.clone();
    let waiting = evidence.series(&format!("modules.{module}.sendq")).and_then(|series| series.busiest());
    let waiting = waiting.filter(|(of, waiting)| *of == rank && *waiting >= 1.0).map(|(_, waiting)| waiting);
    let name = if module == BROKER { "the broker's own loop" } else { &module };
    let mut sentence = format!("{name} has not come back to its reactor for {}", show::duration(seconds));
    if let Some(waiting) = waiting {
        sentence += &format!(": it answers nobody, and {}", wait_for_it(waiting));
    } else {
        sentence += ": it answers nobody";
    }
    if all.len() > 1 {
        let names: Vec<&str> = all[1..].iter().map(|(name, _)| name.as_str()).collect();
        sentence += &format!("; nor does {}", names.join(", "));
    }
    let mut ranks: Vec<u32> = vec![rank];
    all.iter().for_each(|(_, (rank, _))| {
        if !ranks.contains(rank) {
            ranks.push(*rank);
        }
    });
    let mut facts = vec![fact("stalled", seconds, Unit::Seconds)];
    facts.extend(waiting.map(|waiting| fact("messages waiting", waiting, Unit::Count)));
    Some(Finding {
        name: STALLED.name,
        severity: Severity::Critical,
        sentence,
        ranks,
        evidence: facts,
        query: format!("'modules.{module}.{{stalled,sendq,work_s,blocked_s}}' --by rank"),
        weight: seconds,
        subject: module,
    })
}

/// Modules on several ranks of which one may be at fault.
pub(super) fn suspect(evidence: &Evidence, suspicion: &mut Suspicion) {
    /// From afar, half of what is wrong is suspicious.
    const HALF: f64 = 0.5;
    /// More than this many modules at once are not one module's fault.
    const MODULES_MAX: usize = 5;
    let mut suspects: Vec<(f64, &str, u32)> = Vec::new();
    for name in evidence.modules() {
        // What the root itself measures needs no second look. What others do arrives there when it can: in a slot of its
        // history may be what a rank did in several, and more than there is time for.
        let only = evidence.only_rank(name).filter(|_| name != BROKER);
        if only == Some(0) {
            continue;
        }
        let limits = [
            ("work_s", WORK.value),
            ("cpu_s", WORK.value),
            ("blocked_s", BLOCKED_SHARE.value),
            ("wakeups", TURNS.value),
        ];
        let worst = limits.iter().filter_map(|(of, limit)| {
            let series = evidence.series(&format!("modules.{name}.{of}"))?;
            // The sum of many ranks says nothing of one, but one has no more than all have, and the busiest had.
            let sum = series.lately(SUSTAINED.value)?.mean;
            match only {
                Some(rank) => Some((sum / limit, rank)),
                None => series.busiest().map(|(rank, busiest)| (sum.min(busiest) / limit, rank)),
            }
        });
        if let Some((share, rank)) =
            worst.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(share, _)| *share >= HALF)
        {
            suspects.push((share, name, rank));
        }
    }
    suspects.sort_by(|(a, ..), (b, ..)| b.total_cmp(a));
    for (_, name, rank) in suspects.into_iter().take(MODULES_MAX) {
        let series = "{work_s,wakeups,blocked_s,blocked_calls,longest_blocked_s,cpu_s,runq_wait_s,idle_s,sendq,rx.*,tx.*}";
        suspicion.patterns.insert(format!("modules.{name}.{series}"));
        if name == BROKER {
            suspicion.patterns.insert("modules.*.wakeups".to_owned());
        }
        suspicion.ranks.insert(rank);
    }
}
