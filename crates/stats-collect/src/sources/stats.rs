//! All numbers that a chosen module tells of itself.

use crate::access::Access;
use crate::choice::Choice;
use crate::collector::{Answered, Collector, Described, Ranks, Work};
use crate::readings::Readings;
use serde_json::Value;
use stats_core::Unit;
use std::time::Duration;

pub(crate) const NAME: &str = "stats";

/// Numbers of one answer; what comes after them is left out.
const NUMBERS_MAX: usize = 500;
/// Objects within objects.
const DEPTH_MAX: usize = 8;

pub(crate) const STATS: Collector = Collector {
    name: NAME,
    about: "All numbers that a module tells of itself, but those in lists, of modules that are chosen by `stats:MODULE` (which may be \
            loaded later)",
    ranks: Ranks::All,
    default: false,
    period: Duration::from_secs(10),
    source: "`NAME.stats-get` of each module that is chosen",
    cost: "whatever the module does to answer, at most a thousandth of its time: content-sqlite counts its blobs, kvs walks its \
           cache, job-exec and connector-local list jobs and clients",
    series: &[Described::gauge(
        "modules.NAME.stats.PATH",
        Unit::None,
        "the number at that path of the answer, in its own unit; what a name may not have is `_`",
    )
    .only(Access::Owner)],
    work: Work::AskModules { about: Choice::wants_stats_of, read },
};

fn read(module: &str, answer: &Value, readings: &mut Readings) -> Answered {
    flatten(module, "", answer, DEPTH_MAX, &mut NUMBERS_MAX.clone(), readings);
    Answered::Read
}

fn flatten(module: &str, path: &str, value: &Value, depth: usize, left: &mut usize, readings: &mut Readings) {
    match value {
        Value::Object(map) if depth > 0 => {
            for (key, value) in map {
                // A dot in a key is no further level.
                let key = key.replace('.', "_");
                let path = if path.is_empty() { key } else { format!("{path}.{key}") };
                flatten(module, &path, value, depth - 1, left, readings);
            }
        }
        Value::Number(number) if !path.is_empty() && *left > 0 => {
            *left -= 1;
            readings.set_known("modules.NAME.stats.PATH", &[module, path], number.as_f64());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::fixture;
    use serde_json::json;

    #[test]
    fn numbers_come_by_their_path_and_nothing_else_does() {
        let answer = json!({
            "count": 3, "name": "x", "list": [1, 2], "flag": true,
            "cache": { "obj size total (MiB)": 1.5, "#dirty": 2, "a.b": 1, "deeper": { "n": 7 } },
        });
        let mut readings = Readings::new(STATS.series, false);
        assert_eq!(read("kvs", &answer, &mut readings), Answered::Read);
        assert_eq!(
            fixture::shown(readings),
            json!({
                "modules.kvs.stats.cache._dirty": 2.0,
                "modules.kvs.stats.cache.a_b": 1.0,
                "modules.kvs.stats.cache.deeper.n": 7.0,
                "modules.kvs.stats.cache.obj_size_total__MiB_": 1.5,
                "modules.kvs.stats.count": 3.0,
            })
        );
    }

    #[test]
    fn an_endless_answer_is_cut() {
        let mut deep = json!(1);
        for _ in 0..50 {
            deep = json!({ "a": deep });
        }
        let wide: serde_json::Map<String, Value> = (0..5000).map(|n| (format!("k{n}"), json!(n))).collect();
        let mut readings = Readings::new(STATS.series, false);
        read("m", &json!({ "deep": deep, "wide": wide }), &mut readings);
        assert_eq!(readings.into_list().len(), NUMBERS_MAX);
    }
}
