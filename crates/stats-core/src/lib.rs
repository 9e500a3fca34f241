//! The heart of flux-stats: series, batches, custody, coverage and query, as a state machine.
//!
//! A [`Node`] is one rank's part of the tree. It knows nothing of Flux, sockets, threads or clocks: time comes in as
//! [`Now`], what others sent comes in as bytes, and what is to be sent comes out as [`Transmit`]. The module
//! `stats-agg` gives it a handle, `stats-sim` gives it a simulated network.
//!
//! Its laws: flows (counters, timers) are conserved: at all times, what was recorded on all ranks equals what is in
//! the root's totals plus what is in some node's custody, a batch being in the sender's custody until the receiver
//! has acknowledged it, and its identity making a repeat harmless. States (gauges) are replaced, and expire when
//! their rank is silent. Every answer says which ranks it covers.
//!
//! ```
//! use stats_core::{Amount, Key, Kind, Node, NodeConfig, Now, Query, Unit};
//! use std::time::Duration;
//!
//! let config = |rank, level| NodeConfig {
//!     rank, level, size: 2, max_level: 1, epoch: 7 + u64::from(rank), period: Duration::from_secs(2), max_series: 100,
//! };
//! let now = Now { mono_ns: 0, wall_ns: 0 };
//! let (mut root, mut leaf) = (Node::new(config(0, 0), now), Node::new(config(1, 1), now));
//!
//! let wakeups = Key::new("modules.kvs.wakeups", &[], Kind::Counter, Unit::None).unwrap();
//! let id = leaf.declare(wakeups).unwrap();
//! leaf.add(id, Amount::whole(42));
//!
//! let later = Now { mono_ns: leaf.next_deadline_ns(), wall_ns: leaf.next_deadline_ns() };
//! leaf.tick(later);
//! let transmit = leaf.poll_transmit(later).unwrap();
//! let receipt = root.handle_merge(later, &transmit.payload).unwrap();
//! leaf.handle_response(transmit.token, Ok(&receipt));
//!
//! let answer = root.answer(&Query::default(), later);
//! assert_eq!(answer["series"][0]["total"], 42);
//! assert_eq!(answer["ranks"]["covered"], "0-1");
//! ```
#![doc = include_str!("../docs/custody.md")]
#![doc = include_str!("../docs/push.md")]
#![forbid(unsafe_code)]

mod amount;
mod answer;
mod batch;
mod flows;
mod glob;
mod history;
mod idset;
mod intake;
mod marks;
mod members;
mod node;
#[cfg(test)]
mod page;
mod push;
mod query;
mod recent;
mod schedule;
mod series;
mod shown;
mod sketch;
mod steps;
mod store;
mod trail;
mod tree;
mod value;
mod walk;
mod wire;

pub use amount::Amount;
pub use answer::{Number, Series, Values, Whose, series_text};
pub use history::HISTORY_ERROR;
pub use idset::{IdSet, ParseIdSetError};
pub use intake::{GUEST_BYTES_MAX, GUEST_PUSHES_MAX, Intake, Pusher};
pub use members::{EXACT_BELOW, Members, STANDARD_ERROR};
pub use node::{Audit, Busy, Events, Heard, Holding, MergeRefused, Node, NodeConfig, SendFailure, Transmit};
pub use push::{Metric, PUSH_METRICS_MAX, PUSH_VERSION, Pushed, Refusal, refusal_text};
pub use query::{By, Hidden, Query, QueryError};
pub use recent::{Course, Recent};
pub use schedule::Now;
pub use series::{
    ENDED, GUEST_SERIES, GUESTS, JOB_TAG, Key, Kind, MAX_SERIES_MOST, NAME_MAX, RESERVED, Refused, SeriesId,
    TAG_MAX, TAGS_MAX, Unit, is_reserved, is_unseen,
};
pub use sketch::{BUCKETS, RELATIVE_ERROR, Sketch, bucket};
pub use steps::{Steps, framed};
pub use value::{Samples, States};
pub use walk::{Reading, Total, Walk, Walked};
pub use wire::DecodeError;
