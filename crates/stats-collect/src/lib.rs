//! What Flux and the kernel know of a broker, as series of the node that runs there.
//!
//! A [`Collector`] is a row of a table: what it asks or reads, how often, on which ranks, what that costs, and every
//! series that it makes. It is no more than that: a function from an answer to readings, each of which names the row of
//! its series, so that nothing can be told that the generated page (`docs/series.md`, by [`page`]) does not list.
//!
//! [`Collectors`] runs them without I/O of messages: it says which questions are due, and takes the answers. No source
//! is asked again before it has answered, and none more often than so that it is busy with us for a thousandth of its
//! time. What is read from /proc and of file systems is read here.
//!
//! ```
//! use serde_json::json;
//! use stats_collect::{Choice, Collectors, Place};
//! use stats_core::{Node, NodeConfig, Now, Query};
//! use std::time::Duration;
//!
//! let config = NodeConfig {
//!     rank: 0, size: 1, level: 0, max_level: 0, epoch: 1, period: Duration::from_secs(2), max_series: 1000,
//! };
//! let now = Now { mono_ns: 0, wall_ns: 0 };
//! let mut node = Node::new(config, now);
//! let mut collectors = Collectors::new(Place::unknown(0), "modules".parse::<Choice>().unwrap());
//! let questions = collectors.due(&mut node, 0);
//! assert_eq!(questions[0].topic, "module.list");
//! let answer = json!({ "mods": [{ "name": "kvs", "status": 1, "idle": 0, "sendqueue": 7, "recvqueue": 0 }] });
//! collectors.answered(&mut node, questions[0].id, 50_000, Ok(&answer));
//! let query = Query::parse(&json!({ "match": ["modules.kvs.sendq"] })).unwrap();
//! assert_eq!(node.answer(&query, now)["series"][0]["sum"], 7);
//! ```
#![forbid(unsafe_code)]

mod access;
mod aliases;
mod choice;
mod collector;
mod collectors;
mod host;
mod page;
mod readings;
mod shelf;
mod sources;
mod task;

pub use access::{Access, access};
pub use choice::{BadChoice, Choice};
pub use collector::{Collector, Described, Ranks, Row, described, is_described};
pub use collectors::{Collectors, Failure, Question};
pub use host::Place;
pub use page::page;
pub use sources::COLLECTORS;
