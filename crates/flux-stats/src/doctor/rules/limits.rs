//! What runs out: descriptors and disk.

use super::{Look, Rule, Suspicion, Threshold};
use crate::answer::Values;
use crate::doctor::evidence::Evidence;
use crate::doctor::finding::{Finding, Severity, Unit, fact};
use crate::show;
use std::collections::BTreeMap;

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
    look: Look::Places(disk),
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
    low.sort_by(|a, b| b.3.total_cmp(&a.3).then(a.0.cmp(&b.0)));
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

/// A file system: on which host (or rank, where hosts are not known), and how large. Two directories of a host that are on
/// file systems of the same size are on the same.
type FileSystem = (Option<String>, u32, u64);

/// Who writes to a file system that is nearly full.
struct Full {
    directories: Vec<&'static str>,
    ranks: Vec<u32>,
    free: f64,
    size: f64,
}

/// Each file system that is nearly full, once for all the brokers of its host.
fn disk(evidence: &Evidence) -> Vec<Finding> {
    let mut full: BTreeMap<FileSystem, Full> = BTreeMap::new();
    for of in ["rundir", "statedir"] {
        for (rank, free, size) in
            pairs(evidence, &format!("broker.{of}_free_bytes"), &format!("broker.{of}_size_bytes"))
        {
            if free / size >= DISK_FREE.value || free >= DISK_FREE_BYTES.value {
                continue;
            }
            let host = evidence.hosts().host(rank).map(str::to_owned);
            let of_rank = if host.is_some() { 0 } else { rank };
            let none = || Full { directories: Vec::new(), ranks: Vec::new(), free, size };
            let one = full.entry((host, of_rank, size.to_bits())).or_insert_with(none);
            // Brokers look at different moments.
            one.free = one.free.min(free);
            one.ranks.push(rank);
            if !one.directories.contains(&of) {
                one.directories.push(of);
            }
        }
    }
    full.into_iter().map(|(place, full)| full.finding(place)).collect()
}

impl Full {
    fn finding(mut self, (host, rank, _): FileSystem) -> Finding {
        self.ranks.sort_unstable();
        self.ranks.dedup();
        let (free, size, share) = (self.free, self.size, self.free / self.size);
        let sentence = format!(
            "the file system of {} has {} free of {} ({})",
            self.directories.join(" and "),
            show::bytes(free),
            show::bytes(size),
            show::percent(share)
        );
        let directories = match &self.directories[..] {
            [one] => (*one).to_owned(),
            several => format!("{{{}}}", several.join(",")),
        };
        Finding {
            name: DISK.name,
            severity: if share < DISK_END.value { Severity::Critical } else { Severity::Warning },
            sentence,
            ranks: self.ranks,
            evidence: vec![
                fact("free", free, Unit::Bytes),
                fact("size", size, Unit::Bytes),
                fact("free share", share, Unit::Share),
            ],
            query: format!("'broker.{directories}_{{free,size}}_bytes' --by rank --since 5m"),
            weight: 1.0 - share,
            subject: format!("{} {}", host.unwrap_or_else(|| rank.to_string()), show::bytes(size)),
        }
    }
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
