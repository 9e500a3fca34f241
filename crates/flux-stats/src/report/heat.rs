//! Work by rank, module and time.

use super::axis::Axis;
use std::collections::BTreeMap;

/// Rows of the map. Of larger instances several ranks share one, of which the busiest is shown.
const ROWS_MAX: usize = 256;
/// Columns of the map.
const COLUMNS_MAX: usize = 120;
/// Modules that are told apart.
const MODULES_MAX: usize = 64;
/// Ranks and modules of which something is remembered, whatever a file says.
const PAIRS_MAX: usize = 1 << 20;

/// The map.
pub(super) struct Heat {
    pub(super) axis: Axis,
    /// Ranks in a row.
    pub(super) ranks_per_row: u32,
    pub(super) rows: usize,
    /// The sum of all modules, then each module: of each row and column, the greatest share of a second that a rank worked
    /// between two looks at it. Not a number where nothing is known.
    pub(super) all: Vec<f32>,
    pub(super) modules: BTreeMap<String, Vec<f32>>,
    pub(super) pairs: BTreeMap<(u32, String), Pair>,
}

/// A module of a rank.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Pair {
    /// Seconds at work while it was looked at, and how long that was.
    pub(super) work: f64,
    pub(super) seconds: f64,
    /// The longest work of one turn since the module was loaded or the totals were cleared.
    pub(super) longest: f64,
}

impl Pair {
    /// The part of the time that it worked.
    pub(super) fn share(&self) -> f64 {
        if self.seconds > 0.0 { self.work / self.seconds } else { 0.0 }
    }
}

impl Heat {
    pub(super) fn new(time: &Axis, size: u32) -> Self {
        let ranks_per_row = size.div_ceil(ROWS_MAX as u32).max(1);
        let rows = size.div_ceil(ranks_per_row) as usize;
        let axis = Axis { width: time.width, count: time.count, ..*time };
        let together = axis.count.div_ceil(COLUMNS_MAX);
        let axis = Axis { width: axis.width * together as f64, count: axis.count.div_ceil(together), ..axis };
        let all = vec![f32::NAN; rows * axis.count];
        Heat { axis, ranks_per_row, rows, all, modules: BTreeMap::new(), pairs: BTreeMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.iter().all(|share| share.is_nan())
    }

    /// What is known of a module of a rank; `None`: there are too many.
    pub(super) fn pair(&mut self, rank: u32, module: &str) -> Option<&mut Pair> {
        let key = (rank, module.to_owned());
        if self.pairs.len() >= PAIRS_MAX && !self.pairs.contains_key(&key) {
            return None;
        }
        Some(self.pairs.entry(key).or_default())
    }

    /// That share of the time a rank worked, in a module or in all of them.
    pub(super) fn see(&mut self, rank: u32, module: Option<&str>, from: f64, to: f64, share: f64) {
        let row = (rank / self.ranks_per_row) as usize;
        if row >= self.rows {
            return;
        }
        let cells = match module {
            None => &mut self.all,
            Some(module) => {
                if !self.modules.contains_key(module) {
                    if self.modules.len() >= MODULES_MAX {
                        return;
                    }
                    self.modules.insert(module.to_owned(), vec![f32::NAN; self.rows * self.axis.count]);
                }
                let Some(cells) = self.modules.get_mut(module) else { return };
                cells
            }
        };
        for (column, _) in self.axis.parts(from, to) {
            let cell = &mut cells[row * self.axis.count + column];
            *cell = cell.max(share as f32);
        }
    }

    /// The modules with the highest cells, the highest first.
    pub(super) fn hottest(&self, count: usize) -> Vec<&str> {
        let highest = |cells: &[f32]| cells.iter().fold(0.0_f32, |most, share| most.max(*share));
        let mut modules: Vec<_> =
            self.modules.iter().map(|(name, cells)| (highest(cells), name.as_str())).collect();
        modules.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
        modules.into_iter().take(count).map(|(_, name)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_rows_and_the_busiest_is_seen() {
        let mut heat = Heat::new(&Axis::new(0.0, 600.0, 2.0), 1024);
        assert_eq!((heat.ranks_per_row, heat.rows, heat.axis.count), (4, 256, 100));
        assert!(heat.is_empty());
        heat.see(4, None, 0.0, 6.0, 0.25);
        heat.see(7, None, 0.0, 6.0, 0.5);
        heat.see(9999, None, 0.0, 6.0, 1.0);
        heat.see(1, Some("kvs"), 0.0, 6.0, 1.0);
        assert_eq!(heat.all[100], 0.5);
        assert!(heat.all[101].is_nan() && heat.all[0].is_nan());
        assert_eq!(heat.hottest(3), ["kvs"]);
    }
}
