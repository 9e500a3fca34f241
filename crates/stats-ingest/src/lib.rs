//! A statsd listener: lines of etsy's statsd, brubeck and DogStatsD clients, aggregated on a thread of their own and
//! handed to a [`stats_core::Node`] once a period.
//!
//! It is not a statsd server: it has no timer, sends nothing and knows nothing of ranks or trees. A [`Listener`] owns
//! sockets and a thread; a [`Shard`] is what the thread adds lines up in; a [`Recorder`] puts what it hands over into a
//! node, with what is worth knowing about the listener itself (`stats-agg.statsd.*`), and [`Pushing`] into pushes.
//!
//! ```
//! use stats_core::{Node, NodeConfig, Now, Query};
//! use stats_ingest::{Limits, Recorder, Shard};
//! use std::time::Duration;
//!
//! let now = Now { mono_ns: 0, wall_ns: 0 };
//! let (epoch, period) = (7, Duration::from_secs(2));
//! let config = NodeConfig { rank: 0, size: 1, level: 0, max_level: 0, epoch, period, max_series: 1000 };
//! let (mut node, mut recorder) = (Node::new(config, now), Recorder::default());
//!
//! let mut shard = Shard::new(Limits { series: 500, tags: 16, ttl: Duration::from_secs(600) });
//! shard.receive(b"app.requests:3|c|@0.1\napp.latency:12.5|ms|#route:/x");
//! recorder.record(&mut node, shard.hand_over());
//!
//! let query = Query::parse(&serde_json::json!({ "match": ["app.requests"] })).unwrap();
//! assert_eq!(node.answer(&query, now)["series"][0]["total"], 30);
//! ```
#![forbid(unsafe_code)]

mod counts;
mod identity;
mod line;
mod listener;
mod number;
mod private_socket;
mod pushing;
mod receive;
mod recorder;
mod shard;
mod socket;

/// The parts of a listener, for its benchmark.
#[doc(hidden)]
pub mod parts {
    pub use crate::receive::{BATCH, Buffers, Receiver};
    pub use crate::socket::Socket;
}

pub use counts::{BadLine, Counts, Refused};
pub use identity::Refusal;
pub use line::{Bad, Form, Line, Metric, Value};
pub use listener::Listener;
pub use private_socket::{PrivateSocket, SocketFile, is_socket_path};
pub use pushing::Pushing;
pub use recorder::Recorder;
pub use shard::{Change, Delta, HandOver, Limits, Shard};
pub use socket::{Address, OpenError, ParseAddressError};
