//! Settings from the instance's configuration: the table `[stats-agg]`, under the arguments, applied live.

use flux_testbed::{Backend, Instance, Options};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tests::{complaints, coverage, eventually, facts, number, query, series};

/// Far beyond what is awaited: a test fails by what it sees, not by how long it took.
const LIMIT: Duration = Duration::from_secs(30);

facts! {
    the_table_holds_where_no_argument_does,
    a_changed_table_applies_on_every_rank_without_a_reload_of_the_module,
    a_bad_table_is_refused_by_its_key_and_changes_nothing,
    every_key_applies_at_once_and_goes_back_to_its_default,
}

fn instance(backend: Backend, size: u32, table: Value) -> Instance {
    let config = json!({ "stats-agg": table });
    Instance::start(Options { size, config, ..Options::new(backend) }).unwrap()
}

/// In seconds.
fn period(instance: &Instance, rank: u32) -> f64 {
    instance.rpc(rank, "stats-agg.query", json!({})).unwrap()["period"].as_f64().unwrap()
}

fn the_table_holds_where_no_argument_does(backend: Backend) {
    let instance = instance(backend, 1, json!({ "period": "500ms", "guest-query": true }));
    let guest = || instance.rpc_as_guest(0, "stats-agg.query", json!({}));
    instance.load([0], "stats-agg", &[]).unwrap();
    assert_eq!(period(&instance, 0), 0.5);
    assert!(guest().is_ok());
    instance.remove([0], "stats-agg").unwrap();
    instance.load([0], "stats-agg", &["period=300ms"]).unwrap();
    assert_eq!(period(&instance, 0), 0.3);
    assert!(guest().is_ok());
    // The argument goes on winning when the table changes.
    instance.configure(&json!({ "stats-agg": { "period": "1s" } })).unwrap();
    assert_eq!(period(&instance, 0), 0.3);
    assert_eq!(guest().unwrap_err().errnum(), Some(1), "EPERM");
    instance.remove([0], "stats-agg").unwrap();
    instance.stop().unwrap();
}

fn a_changed_table_applies_on_every_rank_without_a_reload_of_the_module(backend: Backend) {
    let instance = instance(backend, 3, json!({ "period": "30s" }));
    instance.load(0..3, "stats-agg", &[]).unwrap();
    instance.configure(&json!({ "stats-agg": { "period": "300ms" } })).unwrap();
    for rank in 0..3 {
        // A rank other than 0 may learn of it a little later.
        eventually("the new period", LIMIT, || period(&instance, rank), |&period| period == 0.3);
    }
    let ask = || coverage(&query(&instance, &["none"]));
    eventually("a batch of every rank", LIMIT, ask, |found| *found == ("0-2".into(), String::new()));
    instance.configure(&json!({})).unwrap();
    eventually("the default", LIMIT, || period(&instance, 2), |&period| period == 2.0);
    instance.remove(0..3, "stats-agg").unwrap();
    for rank in 0..3 {
        assert_eq!(complaints(&instance, rank), Vec::<String>::new());
    }
    instance.stop().unwrap();
}

fn a_bad_table_is_refused_by_its_key_and_changes_nothing(backend: Backend) {
    let instance = instance(backend, 1, json!({ "period": "500ms" }));
    instance.load([0], "stats-agg", &[]).unwrap();
    for (table, said) in [
        (json!({ "period": "abc" }), "period=abc: expected a duration"),
        (json!({ "period": ["2s"] }), "period: expected a string, a number or a boolean"),
        (json!({ "guest-query": true, "nonsense": 1 }), "nonsense=1: unknown key; allowed: period"),
        (json!("2s"), "[stats-agg] must be a table"),
    ] {
        let refused = instance.configure(&json!({ "stats-agg": table })).unwrap_err();
        assert!(refused.to_string().contains(said), "{said}: {refused}");
        assert_eq!(refused.errnum(), Some(22), "EINVAL: {refused}");
        assert_eq!(period(&instance, 0), 0.5);
        assert_eq!(
            instance.rpc_as_guest(0, "stats-agg.query", json!({})).unwrap_err().errnum(),
            Some(1),
            "EPERM"
        );
    }
    instance.remove([0], "stats-agg").unwrap();
    // What stands in the instance's configuration refuses a load, too.
    let refused = match instance.configure(&json!({ "stats-agg": { "probe": "magic" } })) {
        Ok(()) => instance.load([0], "stats-agg", &[]).unwrap_err(),
        Err(error) => panic!("no module was there to refuse it: {error}"),
    };
    assert_eq!(refused.errnum(), Some(22), "EINVAL: {refused}");
    let log = instance.log(0).unwrap();
    let said = "probe=magic: expected attach, preload, proc or off";
    assert!(log.iter().any(|line| line.contains("stats-agg.err") && line.contains(said)), "{log:?}");
    instance.stop().unwrap();
}

/// A key's value, and how an instance shows that it holds.
struct Live {
    key: &'static str,
    value: Value,
    /// What must be set beside it for that to be seen.
    beside: Value,
    holds: fn(&Instance) -> bool,
}

/// How what a program, or a guest's, counts is answered.
fn pushed(instance: &Instance, guest: bool, name: &str, tags: Value) -> Result<(), String> {
    let metric = json!({ "name": name, "type": "counter", "value": 1, "tags": tags });
    let push = json!({ "version": 1, "metrics": [metric] });
    let answer = match guest {
        true => instance.rpc_as_guest(0, "stats-agg.push", push),
        false => instance.rpc(0, "stats-agg.push", push),
    };
    answer.map(drop).map_err(|error| error.to_string())
}

fn refused(instance: &Instance, guest: bool, tags: Value, why: &str) -> bool {
    // A name that is new each time.
    static TRIES: AtomicU32 = AtomicU32::new(0);
    let name = format!("test.n{}", TRIES.fetch_add(1, Ordering::Relaxed));
    pushed(instance, guest, &name, tags).is_err_and(|error| error.contains(why))
}

fn lives() -> Vec<Live> {
    let live = |key, value, beside, holds| Live { key, value, beside, holds };
    let none = || json!({});
    let guests_push = || json!({ "guest-push": true });
    vec![
        live("period", json!("300ms"), none(), |of| period(of, 0) == 0.3),
        live("guest-query", json!(true), none(), |of| {
            of.rpc_as_guest(0, "stats-agg.query", json!({})).is_ok()
        }),
        live("guest-push", json!(true), none(), |of| pushed(of, true, "app.runs", json!({})).is_ok()),
        live("guest-series", json!(1), guests_push(), |of| refused(of, true, json!({}), "guest-series")),
        live("max-tags", json!(1), none(), |of| refused(of, false, json!({ "a": "1", "b": "2" }), "tags")),
        live("max-series", json!(100), none(), |of| refused(of, false, json!({}), "max-series")),
        live("ttl", json!("1s"), none(), |of| {
            pushed(of, false, "test.brief", json!({ "jobid": "f1" })).unwrap();
            std::thread::sleep(Duration::from_secs(2));
            // What it counted is told of ended jobs together.
            query(of, &["test.brief"])["series"]
                .as_array()
                .unwrap()
                .iter()
                .all(|one| one["tags"]["jobid"] != "f1")
        }),
        live("history", json!("0s"), none(), |of| {
            let ask = json!({ "match": ["modules.broker.work_s"], "since": 60 });
            let since = of.rpc(0, "stats-agg.query", ask).unwrap()["series"][0]["since"].clone();
            number(&since["seconds"]) == 0.0
        }),
        live("collect", json!(["none"]), none(), |of| series(of, "broker.uptime_s").is_null()),
        live("probe", json!("off"), none(), |of| {
            let wakeups = || number(&series(of, "modules.loadgen.wakeups")["total"]);
            let before = wakeups();
            std::thread::sleep(Duration::from_millis(700));
            wakeups() == before
        }),
        live("stall", json!("100ms"), none(), |of| !series(of, "modules.loadgen.stalled").is_null()),
        live("statsd", json!(["unix:"]), none(), |of| of.rundir().join("stats-agg.0.statsd").exists()),
        live("export", json!([{ "type": "prometheus", "listen": "unix:" }]), none(), |of| {
            of.rundir().join("stats-agg.0.metrics").exists()
        }),
    ]
}

fn every_key_applies_at_once_and_goes_back_to_its_default(backend: Backend) {
    let instance = instance(backend, 1, json!({ "period": "200ms" }));
    instance.load([0], "stats-agg", &[]).unwrap();
    instance.load([0], "loadgen", &["rate=2", "busy=300ms"]).unwrap();
    instance.configure(&json!({ "stats-agg": { "nonsense": 1 } })).unwrap_err();
    // Flux's own answer is cut.
    let log = instance.log(0).unwrap().join("\n");
    let (_, allowed) = log.split_once("allowed: ").unwrap();
    let (allowed, _) = allowed.split_once(": nothing was changed").unwrap();
    let allowed: BTreeSet<&str> = allowed.split(", ").collect();
    let lives = lives();
    assert_eq!(lives.iter().map(|live| live.key).collect::<BTreeSet<_>>(), allowed, "keys that are tested");
    for Live { key, value, mut beside, holds } in lives {
        let plain = || json!({ "stats-agg": { "period": "200ms" } });
        if beside.get("period").is_none() {
            beside["period"] = "200ms".into();
        }
        beside[key] = value;
        instance.configure(&json!({ "stats-agg": beside })).unwrap();
        eventually(&format!("{key} holds"), LIMIT, || holds(&instance), |&holds| holds);
        instance.configure(&plain()).unwrap();
        eventually(&format!("{key} is its default"), LIMIT, || holds(&instance), |&holds| !holds);
    }
    instance.remove([0], "loadgen").unwrap();
    instance.remove([0], "stats-agg").unwrap();
    // With a stall of 100 ms any module of a busy machine may be told.
    // Flux 0.70 says of what is refused that it is.
    let expected = ["config-reload: ", "config reload failed", " has been working", " has been blocked"];
    let others = |line: &String| !expected.iter().any(|expected| line.contains(expected));
    assert_eq!(complaints(&instance, 0).into_iter().filter(others).collect::<Vec<_>>(), Vec::<String>::new());
    instance.stop().unwrap();
}
