//! The key-value store.

use crate::collector::{Ask, Collector, Described, Ranks, Work};
use crate::host::Place;
use crate::readings::{Readings, Total};
use crate::sources::{int, number};
use serde_json::Value;
use stats_core::Unit;
use std::time::Duration;

pub(crate) const KVS: Collector = Collector {
    name: "kvs",
    about: "The version of the primary namespace, transactions, and the cache",
    ranks: Ranks::Root,
    default: true,
    period: Duration::from_secs(5),
    source: "`kvs.getroot`; `kvs.stats-get`",
    cost: "`getroot`: one request, some 20 µs. `stats-get` walks the cache: once a minute, and less often where that takes more than \
           60 ms",
    series: &[
        Described::counter(
            "modules.kvs.versions",
            Unit::None,
            "versions of the primary namespace: commits, of one or more transactions",
        ),
        Described::gauge("modules.kvs.version", Unit::None, "the version of the primary namespace now"),
        Described::counter(
            "modules.kvs.transactions",
            Unit::None,
            "transactions that were committed (not on flux-core 0.70)",
        ),
        Described::gauge(
            "modules.kvs.transactions_pending",
            Unit::None,
            "transactions of the primary namespace under way",
        ),
        Described::gauge("modules.kvs.requests_pending", Unit::None, "requests under way"),
        Described::gauge("modules.kvs.cache_bytes", Unit::Bytes, "the size of what the cache holds"),
        Described::gauge(
            "modules.kvs.cache_dirty",
            Unit::None,
            "entries of the cache that are not stored yet",
        ),
        Described::gauge(
            "modules.kvs.cache_incomplete",
            Unit::None,
            "entries of the cache that are being loaded",
        ),
        Described::counter("modules.kvs.faults", Unit::None, "entries that had to be loaded"),
    ],
    work: Work::Ask(&[
        Ask { payload: r#"{"namespace":"primary"}"#, ..Ask::new("kvs.getroot", read_root) },
        Ask { period: Some(Duration::from_secs(60)), ..Ask::new("kvs.stats-get", read_stats) },
    ]),
};

const MIB: f64 = 1_048_576.0;

fn read_root(answer: &Value, _: &Place, readings: &mut Readings) {
    readings.set_known("modules.kvs.version", &[], number(answer, &["rootseq"]));
    if let Some(version) = int(answer, &["rootseq"]) {
        readings.total("modules.kvs.versions", &[], Total::Int(version));
    }
}

fn read_stats(answer: &Value, _: &Place, readings: &mut Readings) {
    let cache = |key: &str| number(answer, &["cache", key]);
    let primary = |key: &str| number(answer, &["namespace", "primary", key]);
    readings.set_known("modules.kvs.transactions_pending", &[], primary("#transactions"));
    readings.set_known("modules.kvs.requests_pending", &[], number(answer, &["pending_requests"]));
    // Flux rounds nothing: the size is a whole number of bytes.
    let bytes = cache("obj size total (MiB)").map(|mib| (mib * MIB).round());
    readings.set_known("modules.kvs.cache_bytes", &[], bytes);
    readings.set_known("modules.kvs.cache_dirty", &[], cache("#obj dirty"));
    readings.set_known("modules.kvs.cache_incomplete", &[], cache("#obj incomplete"));
    if let Some(count) = int(answer, &["transaction-opcount", "commit", "count"]) {
        readings.total("modules.kvs.transactions", &[], Total::Int(count));
    }
    if let Some(count) = int(answer, &["cache", "#faults"]) {
        readings.total("modules.kvs.faults", &[], Total::Int(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::fixture;
    use serde_json::json;

    #[test]
    fn the_store_is_told_in_bytes_and_counts() {
        let answer = json!({
            "cache": {
                "obj size total (MiB)": 1.5, "obj size (KiB)": { "count": 3 }, "#obj dirty": 1, "#obj incomplete": 2, "#faults": 9,
            },
            "namespace": { "primary": { "#versionwaiters": 0, "#transactions": 4, "store revision": 77 } },
            "transaction-opcount": { "commit": { "count": 50, "min": 1 } }, "pending_requests": 6,
        });
        assert_eq!(
            fixture::read(&KVS, "kvs.stats-get", "", &answer),
            json!({
                "modules.kvs.cache_bytes": 1_572_864.0, "modules.kvs.cache_dirty": 1.0, "modules.kvs.cache_incomplete": 2.0,
                "modules.kvs.faults": "Int(9)", "modules.kvs.requests_pending": 6.0, "modules.kvs.transactions": "Int(50)",
                "modules.kvs.transactions_pending": 4.0,
            })
        );
        assert_eq!(
            fixture::read(
                &KVS,
                "kvs.getroot",
                "",
                &json!({ "owner": 0, "rootseq": 77, "rootref": "sha1-x", "flags": 0 })
            ),
            json!({ "modules.kvs.version": 77.0, "modules.kvs.versions": "Int(77)" })
        );
    }
}
