//! What leaves rank 0, towards the monitoring that a site already has.
//!
//! A [`Snapshot`] is everything at one moment, in no particular format: made from a node in steps that a reactor can
//! afford ([`Raw`], fed by [`stats_core::Walk`]), or from the answer to a `stats-agg.query`. [`formats`] are pure
//! functions from it to bytes. The [`Exporter`] is one thread that serves them to who scrapes, and sends them to who
//! listens, as [`Setting`]s say; it waits for nobody, and nobody waits for it.
//!
//! ```
//! use serde_json::json;
//! use stats_export::Snapshot;
//! use stats_export::formats::prometheus::{Format, expose};
//!
//! let answer = json!({ "version": 1, "series": [
//!     { "name": "modules.kvs.wakeups", "tags": {}, "type": "counter", "total": 12, "rate": 0.5 },
//! ] });
//! let snapshot = Snapshot::from_answer(&answer)?;
//! let text = expose(&snapshot.view(), "flux", Format::Text).text;
//! assert!(text.contains("flux_module_wakeups_total{module=\"kvs\"} 12\n"));
//! # Ok::<(), stats_export::BadAnswer>(())
//! ```
#![forbid(unsafe_code)]

mod address;
mod counts;
mod datagram;
mod exporter;
mod file;
pub mod formats;
mod names;
mod push;
mod resolve;
mod scrape;
mod setting;
mod sink;
mod snapshot;

pub use counts::Counts;
pub use exporter::{Exporter, Plan, Wanted};
pub use setting::{BadSetting, EXPORTERS_MAX, Place, Setting, Type, settle};
pub use snapshot::{
    BadAnswer, Coverage, Instance, Point, QUANTILES, Raw, Shape, Snapshot, Timer, Unit, Value, View,
};
