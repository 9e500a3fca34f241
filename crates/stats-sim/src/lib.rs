//! Whole instances of ranks that run [`stats_core::Node`], on a simulated network in virtual time.
//!
//! A run is determined by its configuration and its seed, to the byte. Faults of every kind happen while ranks measure
//! and send; after every event the flows of the whole instance must add up to the unit, states must be counted once,
//! coverage be true, bounds hold. Then faults end, and everything has to arrive. What a fault is and how often it
//! happens: [`Kind`]; what must hold: `ledger.rs` and `check.rs`; how a run that fails is made small: [`shrink`].
//!
//! ```
//! use stats_sim::{Config, Shape, Topology, run};
//!
//! let config = Config::new(Shape::new(&Topology::Kary(2), Some(31)).unwrap());
//! let (first, again) = (run(&config, 7, None, false), run(&config, 7, None, false));
//! assert_eq!(first.violation, None);
//! assert_eq!(first.report.digest, again.report.digest);
//! ```
#![forbid(unsafe_code)]

mod ages;
mod check;
mod deaths;
mod dice;
mod faults;
mod ledger;
mod life;
mod network;
mod plant;
mod queue;
mod rank;
mod report;
mod shrink;
mod topology;
mod workload;
mod world;

pub use faults::{BadFaultId, BadRates, FaultId, Kind, ROUND_PERIODS, Rates};
pub use plant::{BadPlant, Plant};
pub use report::Report;
pub use shrink::{Shrunk, shrink};
pub use topology::{BadTopology, RANKS_MAX, Shape, Topology};
pub use world::{Config, Run, Told, Violation, run};
