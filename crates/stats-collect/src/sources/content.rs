//! The content cache of each broker, and the database behind it.

use crate::access::Access;
use crate::collector::{Ask, Collector, Described, Ranks, Work};
use crate::host::{Host, Place};
use crate::readings::Readings;
use crate::sources::number;
use serde_json::Value;
use stats_core::Unit;
use std::time::Duration;

/// From this version on `content.stats-get` can be asked on every rank: before it, on ranks other than 0, it takes the broker
/// down (flux-core #7143).
const SAFE_SINCE: (u32, u32) = (0, 80);

/// Its source answers the owner alone, or is in a folder of the owner's.
const fn owner(name: &'static str, unit: Unit, about: &'static str) -> Described {
    Described::gauge(name, unit, about).only(Access::Owner)
}

pub(crate) const CONTENT: Collector = Collector {
    name: "content",
    about: "The content cache. Before flux-core 0.80 of rank 0 alone: elsewhere that question takes the broker down",
    ranks: Ranks::All,
    default: true,
    period: Duration::from_secs(5),
    source: "`content.stats-get`",
    cost: "one request, some 20 µs: the module keeps these counts",
    series: &[
        owner("modules.content.cache_entries", Unit::None, "blobs in the cache"),
        owner("modules.content.cache_valid", Unit::None, "of them, those whose content is here"),
        owner("modules.content.cache_dirty", Unit::None, "of them, those that are not stored yet"),
        owner("modules.content.cache_bytes", Unit::Bytes, "the size of what is in the cache"),
        owner("modules.content.flushing", Unit::None, "stores that are under way"),
    ],
    work: Work::Ask(&[Ask {
        here: |place| place.rank == 0 || place.version >= SAFE_SINCE,
        ..Ask::new("content.stats-get", read)
    }]),
};

fn read(answer: &Value, _: &Place, readings: &mut Readings) {
    readings.set_known("modules.content.cache_entries", &[], number(answer, &["count"]));
    readings.set_known("modules.content.cache_valid", &[], number(answer, &["valid"]));
    readings.set_known("modules.content.cache_dirty", &[], number(answer, &["dirty"]));
    readings.set_known("modules.content.cache_bytes", &[], number(answer, &["size"]));
    readings.set_known("modules.content.flushing", &[], number(answer, &["flush-batch-count"]));
}

pub(crate) const DATABASE: Collector = Collector {
    name: "database",
    about: "The file of content-sqlite; absent where it is on a file system that might hang. (Its own `stats-get` counts all \
            blobs: `stats:content-sqlite` asks for that.)",
    ranks: Ranks::Root,
    default: true,
    period: Duration::from_secs(5),
    source: "`stat` of `content.sqlite` and its journal in `statedir` (or `rundir`)",
    cost: "two system calls; the module is not asked",
    series: &[
        owner("modules.content-sqlite.db_bytes", Unit::Bytes, "the size of the database"),
        owner("modules.content-sqlite.journal_bytes", Unit::Bytes, "the size of its write-ahead log"),
    ],
    work: Work::Look(look),
};

fn look(host: &mut Host, readings: &mut Readings) {
    let Some(folder) = host.place.statedir.clone().or_else(|| host.place.rundir.clone()) else { return };
    let mut size = |file: &str| host.file_bytes(&folder.join(file)).map(|bytes| bytes as f64);
    let (database, journal) = (size("content.sqlite"), size("content.sqlite-wal"));
    readings.set_known("modules.content-sqlite.db_bytes", &[], database);
    readings.set_known("modules.content-sqlite.journal_bytes", &[], journal);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::fixture;
    use serde_json::json;

    #[test]
    fn the_cache_is_told_and_an_old_broker_is_not_asked_where_that_would_end_it() {
        let answer =
            json!({ "count": 5, "valid": 4, "dirty": 1, "size": 1000, "flush-batch-count": 2, "mmap": {} });
        assert_eq!(
            fixture::read(&CONTENT, "content.stats-get", "", &answer),
            json!({
                "modules.content.cache_bytes": 1000.0, "modules.content.cache_dirty": 1.0,
                "modules.content.cache_entries": 5.0, "modules.content.cache_valid": 4.0, "modules.content.flushing": 2.0,
            })
        );
        let Work::Ask([ask]) = &CONTENT.work else { panic!("one question") };
        let asked = |rank, version| (ask.here)(&Place { version, ..Place::unknown(rank) });
        assert!(asked(0, (0, 70)) && asked(3, (0, 80)) && asked(3, (1, 0)));
        assert!(!asked(3, (0, 79)) && !asked(1, (0, 0)), "nor where the version is not known");
    }
}
