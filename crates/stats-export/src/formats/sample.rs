//! One snapshot with every kind of series, for the tests of all formats.

use crate::snapshot::{Coverage, Instance, Point, Raw, Snapshot};
use serde_json::json;
use stats_core::{Amount, Key, Kind, Node, NodeConfig, Now, Query, Samples, Unit, Walk, Walked};
use std::time::Duration;

const S: u64 = 1_000_000_000;

/// Of a node that has one of each.
pub(crate) fn snapshot() -> Snapshot {
    let period = Duration::from_secs(2);
    let config = NodeConfig { rank: 0, size: 4, level: 0, max_level: 1, epoch: 1, period, max_series: 100 };
    let mut node = Node::new(config, Now { mono_ns: 0, wall_ns: 1_700_000_000 * S });
    let mut declare = |name: &str, tags: &[(&str, &str)], kind, unit| {
        let id = node.declare(Key::new(name, tags, kind, unit).unwrap()).unwrap();
        match kind {
            Kind::Counter => node.add(id, Amount::nearest(7.5e9).unwrap()),
            Kind::Gauge => node.set(id, Some(Amount::whole(3 << 20))),
            Kind::Timer => {
                let mut samples = Samples::default();
                [(900, 3), (40_000, 2), (2_000_000, 1)]
                    .into_iter()
                    .for_each(|(sample, times)| samples.add(sample, times));
                node.observe(id, &samples);
            }
            Kind::Set => ["ann", "bob"].iter().for_each(|member| node.insert(id, member)),
        }
    };
    declare("modules.kvs.work_s", &[], Kind::Counter, Unit::Nanoseconds);
    declare("modules.job-exec.work_s", &[], Kind::Counter, Unit::Nanoseconds);
    declare("modules.kvs.wakeups", &[], Kind::Counter, Unit::None);
    declare("modules.kvs.work_per_wakeup_s", &[], Kind::Timer, Unit::Nanoseconds);
    declare("broker.rss_anon_bytes", &[], Kind::Gauge, Unit::Bytes);
    declare("jobs.run", &[], Kind::Gauge, Unit::None);
    declare("node_up_count", &[], Kind::Gauge, Unit::None);
    declare("app.requests", &[("route", "/a \"b\"\\,="), ("le", "x")], Kind::Counter, Unit::None);
    declare("app.ratio", &[], Kind::Timer, Unit::Millionths);
    declare("app.users", &[], Kind::Set, Unit::None);
    let instance = json!({ "size": 4, "level": 1, "jobid": "ƒ7", "hostlist": "n[0-3]" });
    let mut raw = Raw::new(json!({
        "time": 1_700_000_060.5,
        "period": 2.0,
        "ranks": { "covered": "0-2", "offline": "3", "absent": "", "silent": "", "oldest": 0.5 },
        "instance": instance,
    }));
    let mut walk = Walk::new(&node, Query::default());
    while walk.go_on(&node, 3, |reading| raw.push(reading)) != Walked::Whole {}
    raw.finish()
}

#[test]
fn the_sample_is_whole() {
    let snapshot = snapshot();
    assert_eq!(snapshot.points.len(), 10);
    let coverage = Coverage { covered: 3, offline: 1, oldest_s: 0.5, ..Coverage::default() };
    assert_eq!(snapshot.coverage, coverage);
    let instance = Instance {
        size: 4,
        level: Some(1),
        jobid: Some("ƒ7".to_owned()),
        hostlist: Some("n[0-3]".to_owned()),
    };
    assert_eq!(snapshot.instance, instance);
    let Point { created_s, .. } = &snapshot.points[0];
    assert_eq!(*created_s, Some(1_700_000_000));
}
