//! Messages of each module, as libflux counts them for modules that have no statistics of their own.

use crate::choice::Choice;
use crate::collector::{Answered, Collector, Described, Ranks, Work};
use crate::readings::{Readings, Total};
use crate::sources::int;
use serde_json::Value;
use stats_core::Unit;
use std::time::Duration;

/// Modules of Flux that answer `stats-get` with numbers of their own, some at a price (content-sqlite counts all its blobs, kvs
/// walks its cache, job-exec lists jobs, content on 0.70 takes its broker down with it). Others are asked once, to see.
const OWN_ANSWER: &[&str] = &[
    "connector-local",
    "content",
    "content-files",
    "content-s3",
    "content-sqlite",
    "groups",
    "heartbeat",
    "job-exec",
    "job-info",
    "job-ingest",
    "job-list",
    "job-manager",
    "kvs",
    "kvs-watch",
    "overlay",
    "sched-fluxion-feasibility",
    "sched-fluxion-qmanager",
    "sched-fluxion-resource",
    "sdexec",
    "sdexec-mapper",
    "sdmon",
    "stats-agg",
];

const DIRECTIONS: [(&str, [(&str, &str); 4]); 2] = [
    (
        "tx",
        [
            ("request", "modules.NAME.tx.request"),
            ("response", "modules.NAME.tx.response"),
            ("event", "modules.NAME.tx.event"),
            ("control", "modules.NAME.tx.control"),
        ],
    ),
    (
        "rx",
        [
            ("request", "modules.NAME.rx.request"),
            ("response", "modules.NAME.rx.response"),
            ("event", "modules.NAME.rx.event"),
            ("control", "modules.NAME.rx.control"),
        ],
    ),
];

pub(crate) const MESSAGES: Collector = Collector {
    name: "messages",
    about: "Messages by type, of modules that have no `stats-get` of their own; of others they are not known, and absent",
    ranks: Ranks::All,
    default: true,
    period: Duration::from_secs(10),
    source: "`NAME.stats-get` of the modules that answer it as libflux does",
    cost: "one request, some 20 µs, to each such module (config, cron, resource, rexec, …), which counts it as received",
    series: &[
        Described::counter("modules.NAME.tx.request", Unit::None, "requests sent by the module"),
        Described::counter("modules.NAME.tx.response", Unit::None, "responses sent by the module"),
        Described::counter("modules.NAME.tx.event", Unit::None, "events sent by the module"),
        Described::counter("modules.NAME.tx.control", Unit::None, "control messages sent by the module"),
        Described::counter(
            "modules.NAME.rx.request",
            Unit::None,
            "requests received by the module, ours included",
        ),
        Described::counter("modules.NAME.rx.response", Unit::None, "responses received by the module"),
        Described::counter("modules.NAME.rx.event", Unit::None, "events received by the module"),
        Described::counter("modules.NAME.rx.control", Unit::None, "control messages received by the module"),
    ],
    work: Work::AskModules { about, read },
};

fn about(_: &Choice, module: &str) -> bool {
    !OWN_ANSWER.contains(&module)
}

fn read(module: &str, answer: &Value, readings: &mut Readings) -> Answered {
    let is_count =
        |(direction, _): &(&str, [(&str, &str); 4])| int(answer, &[direction, "request"]).is_some();
    if !DIRECTIONS.iter().all(is_count) {
        return Answered::OtherForm;
    }
    for (direction, types) in DIRECTIONS {
        for (kind, form) in types {
            if let Some(count) = int(answer, &[direction, kind]) {
                readings.total(form, &[module], Total::Int(count));
            }
        }
    }
    Answered::Read
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::fixture;
    use serde_json::json;

    #[test]
    fn a_default_answer_is_counts_and_another_is_none() {
        let of = |answer: &Value| {
            let mut readings = Readings::new(MESSAGES.series, false);
            let answered = read("cron", answer, &mut readings);
            (answered, fixture::shown(readings))
        };
        let counts = json!({ "request": 1, "response": 2, "event": 3, "control": 4 });
        let (answered, read) = of(&json!({ "tx": counts, "rx": counts }));
        assert_eq!((answered, read.as_object().unwrap().len()), (Answered::Read, 8));
        assert_eq!(read["modules.cron.rx.event"], "Int(3)");
        for other in
            [json!({}), json!({ "count": 1 }), json!({ "tx": { "request": 1 } }), json!({ "tx": counts })]
        {
            assert_eq!(of(&other), (Answered::OtherForm, json!({})), "{other}");
        }
    }
}
