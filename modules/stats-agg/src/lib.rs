//! `stats-agg`: the broker module. On every rank it measures the broker's modules, merges what ranks below send, and
//! sends the sum upstream once a period; rank 0 answers for the whole instance.
//!
//! As little logic as possible lives here: numbers are decided in `stats-core`, measured in `stats-probe`, and this
//! crate wires both to a handle. The path of a number: `measure` → [`stats_core::Node`] → `upstream` →
//! `NAME.merge` on an ancestor → … → `methods` on rank 0.
#![forbid(unsafe_code)]

mod agg;
mod allowance;
mod ancestors;
mod collect;
mod config;
mod cost;
mod custody;
mod exports;
mod left;
mod measure;
mod methods;
mod own_reactor;
mod questions;
mod recorded;
mod stall;
mod statsd;
mod upstream;

flux::module!(agg::StatsAgg);
