//! Settings from the instance's configuration: the table `[stats-agg]`, under the arguments, applied live.

use flux_testbed::{Backend, Instance, Options};
use serde_json::{Value, json};
use std::time::Duration;
use tests::{complaints, coverage, eventually, facts, query};

/// Far beyond what is awaited: a test fails by what it sees, not by how long it took.
const LIMIT: Duration = Duration::from_secs(30);

facts! {
    the_table_holds_where_no_argument_does,
    a_changed_table_applies_on_every_rank_without_a_reload_of_the_module,
    a_bad_table_is_refused_by_its_key_and_changes_nothing,
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
