//! What is wrong, as rules tell it.

use crate::hosts::Hosts;
use crate::show;
use stats_core::IdSet;

/// How bad it is, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// Something does not work, or is about to stop working.
    Critical,
    /// Something is slow, or will not work for ever.
    Warning,
    /// Something is lost that nobody may miss.
    Notice,
}

impl Severity {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Severity::Critical => "critical",
            Severity::Warning => "warning",
            Severity::Notice => "notice",
        }
    }
}

/// What a number is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A part of one.
    Share,
    Seconds,
    Bytes,
    BytesPerSecond,
    PerSecond,
    /// How many.
    Count,
}

impl Unit {
    /// As programs are told.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Unit::Share => "share",
            Unit::Seconds => "seconds",
            Unit::Bytes => "bytes",
            Unit::BytesPerSecond => "bytes/second",
            Unit::PerSecond => "1/second",
            Unit::Count => "count",
        }
    }

    /// That many, for a person.
    pub(crate) fn shown(self, value: f64) -> String {
        match self {
            Unit::Share if value > 0.0 && value < 0.01 => format!("{:.1}%", 100.0 * value),
            Unit::Share => format!("{:.0}%", 100.0 * value),
            Unit::Seconds => show::duration(value),
            Unit::Bytes => show::bytes(value),
            Unit::BytesPerSecond => format!("{}/s", show::bytes(value)),
            // What was measured over seconds has no digits to spare.
            Unit::PerSecond => {
                show::rate(if value < 10.0 { (value * 10.0).round() / 10.0 } else { value.round() })
            }
            Unit::Count => show::number(value),
        }
    }
}

/// A number that a finding rests on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fact {
    pub(crate) what: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: Unit,
}

/// A number that a finding rests on.
pub(crate) fn fact(what: &'static str, value: f64, unit: Unit) -> Fact {
    Fact { what, value, unit }
}

/// Weights that differ by no more than this part of them are as bad.
const ABOUT: f64 = 0.02;

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Finding {
    /// Its rule's.
    pub(crate) name: &'static str,
    pub(crate) severity: Severity,
    /// What is wrong, in words.
    pub(crate) sentence: String,
    /// On which ranks, the worst first; none: the instance.
    pub(crate) ranks: Vec<u32>,
    pub(crate) evidence: Vec<Fact>,
    /// The arguments of `flux stats query` that show it.
    pub(crate) query: String,
    /// Which of several of the same rule and subject is the worst.
    pub(crate) weight: f64,
    /// What it is about; the same of another rank is the same finding.
    pub(crate) subject: String,
}

impl Finding {
    /// All its ranks, as an idset.
    pub(crate) fn idset(&self) -> IdSet {
        self.ranks.iter().copied().collect()
    }

    /// `rank 2 (n2)`, and how many others.
    pub(crate) fn place(&self, hosts: &Hosts) -> Option<String> {
        let (first, others) = self.ranks.split_first()?;
        let first = hosts.name(*first);
        Some(match others.len() {
            0 => format!("rank {first}"),
            1 => format!("rank {first} and 1 other"),
            more => format!("rank {first} and {more} others"),
        })
    }

    /// Another that this one explains becomes evidence of it.
    pub(crate) fn take_evidence(&mut self, other: Finding) {
        let new = |fact: &Fact| self.evidence.iter().all(|known| known.what != fact.what);
        let more: Vec<Fact> = other.evidence.into_iter().filter(new).collect();
        self.evidence.extend(more);
    }

    /// The worst stands for all that are of one rule and one subject.
    pub(crate) fn absorb(&mut self, other: Finding) {
        // Of two that are about as bad the lower rank is named: measured again, the other may be the worse by a hair.
        let about = |a: f64, b: f64| (a - b).abs() <= ABOUT * a.abs().max(b.abs());
        let worse = match about(other.weight, self.weight) {
            true => other.ranks.first() < self.ranks.first(),
            false => other.weight > self.weight,
        };
        let ranks = std::mem::take(&mut self.ranks);
        let (first, then) = if worse { (other.ranks.clone(), ranks) } else { (ranks, other.ranks.clone()) };
        if worse {
            *self = other;
        }
        self.ranks = first;
        then.into_iter().for_each(|rank| {
            if !self.ranks.contains(&rank) {
                self.ranks.push(rank);
            }
        });
    }
}
