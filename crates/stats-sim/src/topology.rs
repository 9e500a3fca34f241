//! The tree of brokers.

use std::str::FromStr;

/// Ranks that an instance of the simulation may have.
pub const RANKS_MAX: u32 = 16_384;

/// How the brokers of an instance are connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Topology {
    /// Each has up to so many children, as Flux's `kary:N`.
    Kary(u32),
    /// All are children of rank 0.
    Flat,
    /// The parent of each rank from rank 1 on.
    Custom(Vec<u32>),
}

/// What is no topology, or cannot have so many ranks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTopology {
    /// The text is none.
    #[error(
        "{0:?} is no topology: expected kary:N with N from 1, flat, or custom:P,P,… with the parent of each rank from 1 on"
    )]
    Text(String),
    /// A parent does not come before its child.
    #[error("custom topology: the parent of rank {rank} is {parent}: it must be a lower rank")]
    Parent {
        /// The child.
        rank: u32,
        /// The parent that was given.
        parent: u32,
    },
    /// The number of ranks is not one that can be simulated, or is not what the topology has.
    #[error("{found} ranks: expected {expected}")]
    Ranks {
        /// What was asked for.
        found: u32,
        /// What is possible.
        expected: String,
    },
}

impl FromStr for Topology {
    type Err = BadTopology;

    fn from_str(text: &str) -> Result<Self, BadTopology> {
        let bad = || BadTopology::Text(text.chars().take(80).collect());
        match text.split_once(':') {
            None if text == "flat" => Ok(Topology::Flat),
            Some(("kary", fanout)) => {
                let fanout = fanout.parse().ok().filter(|&fanout| fanout > 0);
                Ok(Topology::Kary(fanout.ok_or_else(bad)?))
            }
            Some(("custom", parents)) => {
                let parents: Result<Vec<u32>, _> = parents.split(',').map(str::parse).collect();
                Ok(Topology::Custom(parents.map_err(|_| bad())?))
            }
            _ => Err(bad()),
        }
    }
}

/// A topology with a number of ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    parents: Vec<u32>,
    children: Vec<Vec<u32>>,
    levels: Vec<u32>,
    subtrees: Vec<u32>,
    max_level: u32,
}

impl Shape {
    /// The tree of `ranks` brokers; `None`: as many as a custom topology has.
    pub fn new(topology: &Topology, ranks: Option<u32>) -> Result<Self, BadTopology> {
        let custom = match topology {
            Topology::Custom(parents) => u32::try_from(parents.len() + 1).ok(),
            _ => None,
        };
        let found = ranks.or(custom).unwrap_or(RANKS_MAX);
        if !(1..=RANKS_MAX).contains(&found) {
            return Err(BadTopology::Ranks { found, expected: format!("1 to {RANKS_MAX}") });
        }
        if let Some(expected) = custom.filter(|&expected| expected != found) {
            let expected = format!("{expected}, as in the custom topology");
            return Err(BadTopology::Ranks { found, expected });
        }
        let parent = |rank: u32| match topology {
            Topology::Kary(fanout) => (rank - 1) / fanout,
            Topology::Flat => 0,
            Topology::Custom(parents) => parents[rank as usize - 1],
        };
        let parents: Vec<u32> = (0..found).map(|rank| if rank == 0 { 0 } else { parent(rank) }).collect();
        let (mut levels, mut children) = (vec![0; parents.len()], vec![Vec::new(); parents.len()]);
        for (rank, &parent) in (0..found).zip(&parents).skip(1) {
            if parent >= rank {
                return Err(BadTopology::Parent { rank, parent });
            }
            levels[rank as usize] = levels[parent as usize] + 1;
            children[parent as usize].push(rank);
        }
        let mut subtrees = vec![1; parents.len()];
        for rank in (1..parents.len()).rev() {
            subtrees[parents[rank] as usize] += subtrees[rank];
        }
        let max_level = levels.iter().copied().max().unwrap_or(0);
        Ok(Shape { parents, children, levels, subtrees, max_level })
    }

    /// The first ranks of it alone.
    pub fn first(&self, ranks: u32) -> Result<Self, BadTopology> {
        let parents = self.parents.iter().skip(1).take((ranks as usize).saturating_sub(1)).copied();
        Shape::new(&Topology::Custom(parents.collect()), None)
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u32 {
        self.parents.len() as u32
    }

    /// The distance of a rank from the root.
    pub fn level(&self, rank: u32) -> u32 {
        self.levels[rank as usize]
    }

    /// The greatest such distance.
    pub fn max_level(&self) -> u32 {
        self.max_level
    }

    /// The parent; none of rank 0.
    pub fn parent(&self, rank: u32) -> Option<u32> {
        (rank != 0).then(|| self.parents[rank as usize])
    }

    /// The children.
    pub fn children(&self, rank: u32) -> &[u32] {
        &self.children[rank as usize]
    }

    /// How many ranks a subtree has, its root included.
    pub fn subtree(&self, rank: u32) -> u32 {
        self.subtrees[rank as usize]
    }

    /// From the parent up to the root.
    pub fn above(&self, rank: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.parent(rank), |&above| self.parent(above))
    }

    /// Whether `rank` is in the subtree of `top`.
    pub fn is_within(&self, rank: u32, top: u32) -> bool {
        rank == top || self.above(rank).take_while(|&above| above >= top).any(|above| above == top)
    }

    /// The ranks of a subtree, parents before their children.
    pub(crate) fn within(&self, top: u32) -> Vec<u32> {
        let mut ranks = vec![top];
        let mut at = 0;
        while at < ranks.len() {
            ranks.extend_from_slice(self.children(ranks[at]));
            at += 1;
        }
        ranks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topology_is_what_its_text_says() {
        let shape = |text: &str, ranks| Shape::new(&text.parse().unwrap(), ranks).unwrap();
        let kary = shape("kary:2", Some(7));
        assert_eq!((kary.max_level(), kary.subtree(1), kary.within(2)), (2, 3, vec![2, 5, 6]));
        assert_eq!(kary.above(6).collect::<Vec<_>>(), [2, 0]);
        assert!(kary.is_within(6, 2) && !kary.is_within(6, 1) && kary.is_within(6, 0));
        assert_eq!(
            (shape("flat", Some(100)).max_level(), shape("kary:32", Some(16_384)).max_level()),
            (1, 3)
        );
        let custom = shape("custom:0,1,1,0", None);
        assert_eq!((custom.ranks(), custom.level(3), custom.children(1)), (5, 2, &[2, 3][..]));
    }

    #[test]
    fn what_is_no_topology_is_refused_with_what_was_expected() {
        for text in ["", "kary", "kary:0", "kary:x", "ring", "custom:", "custom:0,x"] {
            assert!(text.parse::<Topology>().unwrap_err().to_string().contains("expected kary:N"), "{text}");
        }
        let refused = |text: &str, ranks| Shape::new(&text.parse().unwrap(), ranks).unwrap_err().to_string();
        assert_eq!(
            refused("custom:0,2", None),
            "custom topology: the parent of rank 2 is 2: it must be a lower rank"
        );
        assert_eq!(refused("custom:0,0", Some(5)), "5 ranks: expected 3, as in the custom topology");
        assert_eq!(refused("flat", Some(20_000)), "20000 ranks: expected 1 to 16384");
        assert_eq!(refused("flat", Some(0)), "0 ranks: expected 1 to 16384");
    }
}
