//! An aggregator with every Flux handle: what is counted stays in the process, and once a period one message brings it
//! to the broker's `stats-agg`, which merges it with everybody else's.
//!
//! ```no_run
//! use flux_metrics::Metrics;
//! use std::time::Duration;
//!
//! let client = flux::Client::open(None)?;
//! let metrics = Metrics::of(&client)?;
//!
//! // By name, anywhere: a name that is not allowed is dropped, and counted.
//! metrics.count("app.requests", 1);
//! metrics.set_gauge("app.queue_depth", 17.0);
//! metrics.timing("app.fetch_s", Duration::from_millis(12));
//!
//! // Through a handle, where it must cost next to nothing.
//! let requests = metrics.counter("app.requests")?;
//! let fetches = metrics.prefixed("app")?.tagged(&[("queue", "batch")])?.timer("fetch_s")?;
//! for _ in 0..1000 {
//!     let _timing = fetches.start();
//!     requests.add(1);
//! }
//! # Ok::<(), flux::Error>(())
//! ```
//!
//! **When it is sent.** By a timer, where the handle has a reactor that runs. (The timer keeps no reactor alive, and is
//! made when the handle has a reactor: none is made for it.) Else by the first call after the period; where calls come
//! fast, not every one of them looks at the clock, but every 32nd does. Always when the handle is closed by a
//! [`flux::Client`] or a module that ends in order, and by [`Metrics::close`]. Where nothing changed nothing is sent.
//!
//! **What is lost.** A push that is not answered is sent again, with its number, so that it counts once. While the
//! broker has no `stats-agg` the aggregate is kept, and sent when it has: it is as large as the number of series,
//! whatever is counted. What cannot be delivered when the handle closes is lost, and logged.
//!
//! **Threads.** As a handle: one.
//!
//! With `FLUX_METRICS_DUMP` (`stderr` or a file, `json:` before it for JSON) the aggregate of each handle is printed when
//! it closes, also where no `stats-agg` is loaded anywhere.
#![forbid(unsafe_code)]

mod aggregator;
mod cells;
mod dump;
mod instruments;
mod metrics;
mod sending;

pub use instruments::{Counter, Gauge, Histogram, Set, Timer, Timing};
pub use metrics::Metrics;

/// Series that one aggregator keeps.
pub const SERIES_MAX: usize = 10_000;
