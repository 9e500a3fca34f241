//! From a run that fails to the shortest that still fails: with fewer faults, then with fewer ranks.

use crate::faults::FaultId;
use crate::topology::Shape;
use crate::world::{Config, Run, Told, Violation, run};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Events that all attempts together may take: some half a minute.
const EVENTS_MAX: u64 = 20_000_000;

/// The shortest run found that fails.
#[derive(Debug, Clone)]
pub struct Shrunk {
    /// Which invariant does not hold in it.
    pub violation: Violation,
    /// The ranks that it has: the first of the tree.
    pub ranks: u32,
    /// Its faults.
    pub faults: BTreeSet<FaultId>,
    /// What happens in it on the ranks concerned: those that faults befall, that of the violation, and all above them.
    pub trace: Vec<Told>,
    /// What happens elsewhere, in number.
    pub untold: usize,
    /// How many runs were tried.
    pub runs: u32,
}

struct Search {
    config: Config,
    seed: u64,
    runs: u32,
    events: u64,
}

impl Search {
    fn is_exhausted(&self) -> bool {
        self.events > EVENTS_MAX
    }

    /// A run with these faults alone, if it fails: the faults that happened in it.
    fn fails(&mut self, config: &Config, faults: &BTreeSet<FaultId>) -> Option<BTreeSet<FaultId>> {
        let tried = run(config, self.seed, Some(faults), false);
        self.runs += 1;
        self.events += tried.report.events;
        tried.violation.map(|_| tried.faults.into_iter().collect())
    }

    /// Leaves out ever smaller parts of the faults, as long as what is left fails.
    fn with_fewer_faults(&mut self, mut faults: BTreeSet<FaultId>) -> BTreeSet<FaultId> {
        let mut part = faults.len().div_ceil(2);
        while part > 0 {
            let mut at = 0;
            while at < faults.len() && !self.is_exhausted() {
                let without = faults.iter().enumerate().filter(|(place, _)| !(at..at + part).contains(place));
                let without: BTreeSet<_> = without.map(|(_, &fault)| fault).collect();
                match self.fails(&self.config.clone(), &without) {
                    Some(fewer) => faults = fewer,
                    None => at += part,
                }
            }
            part /= 2;
        }
        faults
    }

    /// The least number of ranks, of those tried, with which it fails.
    fn with_fewer_ranks(&mut self, faults: &mut BTreeSet<FaultId>) {
        let ranks = self.config.shape.ranks();
        let sizes = (1..14).flat_map(|power| [1_u32 << power, 3 << (power - 1)]);
        let sizes = sizes.take_while(|&size| size < ranks);
        for size in sizes {
            let Ok(shape) = self.config.shape.first(size) else { continue };
            let config = Config { shape: Arc::new(shape), ..self.config.clone() };
            if self.is_exhausted() {
                return;
            }
            if let Some(happened) = self.fails(&config, faults) {
                (self.config, *faults) = (config, happened);
                return;
            }
        }
    }
}

/// The shortest run that fails, of those tried; `None` if `failed` did not.
pub fn shrink(config: &Config, seed: u64, failed: &Run) -> Option<Shrunk> {
    failed.violation.as_ref()?;
    let mut search = Search { config: config.clone(), seed, runs: 0, events: 0 };
    let faults: BTreeSet<FaultId> = failed.faults.iter().copied().collect();
    let mut faults = search.with_fewer_faults(faults);
    search.with_fewer_ranks(&mut faults);
    let last = run(&search.config, seed, Some(&faults), true);
    let violation = last.violation?;
    let concerned = concerned(&search.config.shape, &faults, violation.rank);
    let happened = last.trace.len();
    let trace: Vec<Told> = last.trace.into_iter().filter(|told| concerned.contains(&told.rank)).collect();
    let ranks = search.config.shape.ranks();
    Some(Shrunk { violation, ranks, faults, untold: happened - trace.len(), trace, runs: search.runs })
}

fn concerned(shape: &Shape, faults: &BTreeSet<FaultId>, rank: u32) -> BTreeSet<u32> {
    let ranks = faults.iter().map(|fault| fault.rank()).chain([rank]);
    ranks.filter(|&rank| rank < shape.ranks()).flat_map(|rank| shape.above(rank).chain([rank])).collect()
}
