//! What a run came to, in numbers.

use crate::faults::{FaultId, Kind};
use crate::ledger::{Ledger, Units};
use crate::queue::Event;
use crate::topology::Shape;
use std::collections::BTreeMap;
use std::fmt;

/// What happened in one run. All but `merge_ns` is the same whenever the run is repeated.
#[derive(Debug, Clone)]
pub struct Report {
    /// Which run.
    pub seed: u64,
    /// Ranks of the instance.
    pub ranks: u32,
    /// Events handled.
    pub events: u64,
    /// Faults that happened, by kind.
    pub faults: BTreeMap<Kind, u64>,
    /// Messages sent.
    pub messages: u64,
    /// Bytes sent by the ranks of each level.
    pub bytes: Vec<u64>,
    /// Batches and questions that were known as repeats.
    pub repeats: u64,
    /// Values of series merged.
    pub merged_values: u64,
    /// Time on this machine's clock that merging took.
    pub merge_ns: u64,
    /// Brokers that died.
    pub deaths: u64,
    /// Clears.
    pub clears: u64,
    /// Virtual time from the last fault until everything had arrived and everyone was heard of.
    pub converged_ns: u64,
    /// Virtual time in which what all ranks measured at one moment was at the root.
    pub fresh_ns: u64,
    /// Virtual time of the whole run.
    pub took_ns: u64,
    /// Units of the whole counter that were pushed, and that were lost with dead brokers and killed modules.
    pub pushed: i128,
    /// See `pushed`.
    pub lost: i128,
    /// What ties the run down to the byte: equal runs have equal digests.
    pub digest: u64,
    pub(crate) lost_allowed: Units,
    pub(crate) last_arrival_ns: u64,
    pub(crate) faults_in_order: Vec<FaultId>,
}

impl Report {
    pub(crate) fn new(seed: u64, shape: &Shape) -> Self {
        Report {
            seed,
            ranks: shape.ranks(),
            events: 0,
            faults: BTreeMap::new(),
            messages: 0,
            bytes: vec![0; shape.max_level() as usize + 1],
            repeats: 0,
            merged_values: 0,
            merge_ns: 0,
            deaths: 0,
            clears: 0,
            converged_ns: 0,
            fresh_ns: 0,
            took_ns: 0,
            pushed: 0,
            lost: 0,
            digest: FNV_OFFSET,
            lost_allowed: Units::default(),
            last_arrival_ns: 0,
            faults_in_order: Vec::new(),
        }
    }

    pub(crate) fn fault(&mut self, kind: Kind, fault: FaultId) {
        *self.faults.entry(kind).or_default() += 1;
        self.faults_in_order.push(fault);
    }

    pub(crate) fn event(&mut self, at_ns: u64, event: &Event) {
        self.events += 1;
        self.digest(&at_ns.to_le_bytes());
        if let Event::Arrive(letter) = event {
            self.digest(&letter.from.to_le_bytes());
            self.digest(&letter.to.to_le_bytes());
            self.digest(&letter.payload);
        }
    }

    /// FNV-1a.
    fn digest(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
        }
    }

    pub(crate) fn finish(&mut self, ledger: &Ledger, now_ns: u64) {
        let (pushed, lost) = ledger.summary();
        (self.pushed, self.lost) = (pushed.0[0] / 1_000_000, lost.0[0] / 1_000_000);
        self.took_ns = now_ns;
    }

    pub(crate) fn is_loss_allowed(&self, ledger: &Ledger) -> bool {
        let (_, lost) = ledger.summary();
        lost.0.iter().zip(self.lost_allowed.0).all(|(&lost, allowed)| lost <= allowed)
    }

    /// Nanoseconds that merging one value of a series took; without any merged, none.
    pub fn merge_ns_per_series(&self) -> Option<f64> {
        (self.merged_values > 0).then(|| self.merge_ns as f64 / self.merged_values as f64)
    }
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |ns: u64| ns as f64 / 1e9;
        write!(f, "seed {}: {} events in {:.1} s; faults:", self.seed, self.events, seconds(self.took_ns))?;
        if self.faults.is_empty() {
            write!(f, " none")?;
        }
        for (kind, count) in &self.faults {
            write!(f, " {kind} {count}")?;
        }
        write!(f, "; bytes by level:")?;
        self.bytes
            .iter()
            .enumerate()
            .skip(1)
            .try_for_each(|(level, bytes)| write!(f, " {level}: {bytes}"))?;
        if let Some(ns) = self.merge_ns_per_series() {
            write!(f, "; merge {ns:.0} ns/series")?;
        }
        write!(
            f,
            "; repeats {}; lost with {} brokers and {} modules: {} of {}",
            self.repeats,
            self.deaths,
            self.faults.get(&Kind::Crash).unwrap_or(&0),
            self.lost,
            self.pushed
        )?;
        write!(f, "; converged in {:.3} s", seconds(self.converged_ns))?;
        write!(f, ", fresh in {:.3} s; digest {:016x}", seconds(self.fresh_ns), self.digest)
    }
}
