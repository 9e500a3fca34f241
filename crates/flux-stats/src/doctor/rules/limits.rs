//! What runs out: descriptors and disk.

use super::{Look, Rule, Suspicion, Threshold};
use crate::answer::Values;
use crate::doctor::evidence::Evidence;
use crate::doctor::finding::{Finding, Severity, Unit, fact};
use crate::show;

const DESCRIPTORS_USED: Threshold = Threshold {
    name: "in use",
    value: 0.8,
    unit: Unit::Share,
    why: "of the soft limit: beyond it connections are refused, and loops that accept them spin",
};
const DESCRIPTORS_END: Threshold = Threshold {
    name: "critical",
    value: 0.95,
    unit: Unit::Share,
    why: "the next job shells may not get one",
};
const DISK_FREE: Threshold = Threshold {
    name: "free, less than",
    value: 0.05,
    unit: Unit::Share,
    why: "of a file system that rundir or statedir is on, as root reserves",
};
const DISK_FREE_BYTES: Threshold = Threshold {
    name: "and less than",
    value: 10.0 * 1024.0 * 1024.0 * 1024.0,
    unit: Unit::Bytes,
    why: "a twentieth of a large disk is enough for years",
};
const DISK_END: Threshold = Threshold {
    name: "critical, less than",
    value: 0.01,
    unit: Unit::Share,
    why: "a content store that cannot write stops the instance (flux-core #5983)",
};

pub(super) const DESCRIPTORS: Rule = Rule {
    name: "descriptors-low",
    about: "a broker has few file descriptors left",
    thresholds: &[DESCRIPTORS_USED, DESCRIPTORS_END],
    look: Look::Instance(descriptors),
};
pub(super) const DISK: Rule = Rule {
    name: "disk-low",
    about: "a file system that a broker writes to is nearly full",
    thresholds: &[DISK_FREE, DISK_FREE_BYTES, DISK_END],
    look: Look::Instance(disk),
};

/// Pairs of two gauges of the same rank: of the ranks that were asked, else of the whole instance where all ranks have
/// the same of the second, or the first one's rank is the only one.
fn pairs(evidence: &Evidence, first: &str, second: &str) -> Vec<(u32, f64, f64)> {
    let asked = evidence.ranks_asked(first);
    if !asked.is_empty() {
        let of_rank = |rank: u32, name: &str| evidence.of_rank(rank, name)?.sum();
        return asked
            .iter()
            .filter_map(|&rank| Some((rank, of_rank(rank, first)?, of_rank(rank, second)?)))
            .collect();
    }
    let gauge = |name: &str| match evidence.series(name).map(|series| &series.values) {
        Some(Values::Gauge { min, max, .. }) => Some((*min, *max)),
        _ => None,
    };
    let (Some((least, greatest)), Some((second_least, second_greatest))) = (gauge(first), gauge(second))
    else {
        return Vec::new();
    };
    if second_least.value != second_greatest.value {
        return Vec::new();
    }
    [least, greatest].map(|of| (of.rank, of.value, second_greatest.value)).to_vec()
}

fn descriptors(evidence: &Evidence) -> Option<Finding> {
    let used = pairs(evidence, "broker.open_fds", "broker.max_fds").into_iter();
    let used = used.map(|(rank, open, max)| (rank, open, max, open / max));
    let mut low: Vec<_> = used.filter(|(.., share)| *share >= DESCRIPTORS_USED.value).collect();
    low.sort_by(|a, b| b.3.total_cmp(&a.3));
    let &(_, open, max, share) = low.first()?;
    let sentence = format!(
        "the broker has {} of {} file descriptors open ({})",
        show::number(open),
        show::number(max),
        Unit::Share.shown(share)
    );
    Some(Finding {
        name: DESCRIPTORS.name,
        severity: if share >= DESCRIPTORS_END.value { Severity::Critical } else { Severity::Warning },
        sentence,
        ranks: ranks(low.iter().map(|(rank, ..)| *rank)),
        evidence: vec![
            fact("open", open, Unit::Count),
            fact("limit", max, Unit::Count),
            fact("in use", share, Unit::Share),
        ],
        query: "'broker.{open,max}_fds' --by rank --since 5m".to_owned(),
        weight: share,
        subject: String::new(),
    })
}

fn ranks(ranks: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut all = Vec::new();
    ranks.for_each(|rank| {
        if !all.contains(&rank) {
            all.push(rank);
        }
    });
    all
}

fn disk(evidence: &Evidence) -> Option<Finding> {
    let of = |of: &'static str| {
        let pairs = pairs(evidence, &format!("broker.{of}_free_bytes"), &format!("broker.{of}_size_bytes"));
        pairs.into_iter().map(move |(rank, free, size)| (rank, of, free, size, free / size))
    };
    let full = ["rundir", "statedir"].into_iter().flat_map(of);
    let mut full: Vec<_> = full
        .filter(|(_, _, free, _, share)| *share < DISK_FREE.value && *free < DISK_FREE_BYTES.value)
        .collect();
    full.sort_by(|a, b| a.4.total_cmp(&b.4));
    let &(_, of, free, size, share) = full.first()?;
    let sentence = format!(
        "the file system of {of} has {} free of {} ({})",
        show::bytes(free),
        show::bytes(size),
        show::percent(share)
    );
    Some(Finding {
        name: DISK.name,
        severity: if share < DISK_END.value { Severity::Critical } else { Severity::Warning },
        sentence,
        ranks: ranks(full.iter().map(|(rank, ..)| *rank)),
        evidence: vec![
            fact("free", free, Unit::Bytes),
            fact("size", size, Unit::Bytes),
            fact("free share", share, Unit::Share),
        ],
        query: format!("'broker.{of}_{{free,size}}_bytes' --by rank --since 5m"),
        weight: 1.0 - share,
        subject: String::new(),
    })
}

/// The worst that the extremes of the instance allow.
pub(super) fn suspect(evidence: &Evidence, suspicion: &mut Suspicion) {
    let extremes = |name: &str| match evidence.series(name).map(|series| &series.values) {
        Some(Values::Gauge { min, max, .. }) => Some((*min, *max)),
        _ => None,
    };
    if let (Some((_, open)), Some((max, _))) = (extremes("broker.open_fds"), extremes("broker.max_fds"))
        && open.value >= DESCRIPTORS_USED.value * max.value
    {
        suspicion.patterns.insert("broker.{open,max}_fds".to_owned());
        suspicion.ranks.extend([open.rank, max.rank]);
    }
    for of in ["rundir", "statedir"] {
        let (free, size) = (format!("broker.{of}_free_bytes"), format!("broker.{of}_size_bytes"));
        if let (Some((free, _)), Some((_, size))) = (extremes(&free), extremes(&size))
            && free.value < DISK_FREE.value * size.value
            && free.value < DISK_FREE_BYTES.value
        {
            suspicion.patterns.insert(format!("broker.{of}_{{free,size}}_bytes"));
            suspicion.ranks.insert(free.rank);
        }
    }
}
