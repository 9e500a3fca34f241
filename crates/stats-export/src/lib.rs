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

/// Readers of what others send, for `tests/fuzz.rs` alone.
#[doc(hidden)]
pub mod fuzzing {
    /// A scraper's request.
    pub fn request(bytes: &[u8]) {
        if let crate::scrape::request::Read::Whole(length, _) = crate::scrape::request::read(bytes) {
            assert!(length <= bytes.len());
        }
    }

    /// A server's answer, in two parts.
    pub fn reply(bytes: &[u8]) {
        let (one, other) = bytes.split_at(bytes.len() / 2);
        let mut reply = crate::push::reply::Reply::default();
        if reply.take(one) == Ok(None) {
            let _ = reply.take(other);
        }
        let _ = reply.ended();
    }
}

pub use counts::Counts;
pub use exporter::{Exporter, Plan, Wanted};
pub use setting::{BadSetting, EXPORTERS_MAX, Place, Setting, Type, settle};
pub use sink::is_of_others;
pub use snapshot::{
    BadAnswer, Coverage, Instance, Point, QUANTILES, Raw, Shape, Snapshot, Timer, Unit, Value, View,
};
