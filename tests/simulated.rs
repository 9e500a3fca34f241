//! Ranks that an instance does not have, played by `stats-sim --flux`: a real root takes them, when it was told to.

use flux_testbed::{Backend, Instance, Options, Stage};
use serde_json::json;

tests::facts!(
    flows_of_synthetic_ranks_arrive_to_the_unit,
    ranks_beyond_the_size_are_refused_unless_a_test_asks_for_them
);

fn instance(backend: Backend, arguments: &[&str]) -> Instance {
    let instance = Instance::start(Options { size: 2, ..Options::new(backend) }).unwrap();
    instance.load([0], "stats-agg", arguments).unwrap();
    instance.load([1], "stats-agg", &["period=500ms"]).unwrap();
    instance
}

fn play(instance: &Instance) -> flux_testbed::Result<String> {
    let program = Stage::of_this_build()?.simulator();
    let arguments = ["--flux", "40", "--period", "500ms", "--series", "20", "--seconds", "2"];
    instance.run(1, &program.to_string_lossy(), &arguments)
}

fn flows_of_synthetic_ranks_arrive_to_the_unit(backend: Backend) {
    let instance = instance(backend, &["period=500ms", "test-ranks=42"]);
    let said = play(&instance).unwrap();
    assert!(said.contains("40 synthetic ranks (2-41) of 20 series") && said.contains(": equal"), "{said}");
    assert!(said.contains("stats-agg thread ") && said.contains("a value"), "{said}");
    // They have said goodbye, and what they measured stays.
    let answer = instance.rpc(0, "stats-agg.query", json!({ "match": ["sim.module0.*"] })).unwrap();
    assert_eq!(answer["ranks"]["covered"], "0-1");
    let named = |name: &str| answer["series"].as_array().unwrap().iter().find(|s| s["name"] == name).cloned();
    assert!(named("sim.module0.c0").unwrap()["total"].as_i64().unwrap() > 40);
    assert_eq!(named("sim.module0.g"), None, "a state outlives its rank");
    instance.remove(0..2, "stats-agg").unwrap();
    instance.stop().unwrap();
}

fn ranks_beyond_the_size_are_refused_unless_a_test_asks_for_them(backend: Backend) {
    let instance = instance(backend, &["period=500ms"]);
    let said = play(&instance).unwrap_err().to_string();
    assert!(said.contains("refused") && said.contains("test-ranks=N"), "{said}");
    let answer = instance.rpc(0, "stats-agg.query", json!({ "match": ["sim.**"] })).unwrap();
    assert_eq!(answer["series"].as_array().unwrap().len(), 0);
    instance.remove(0..2, "stats-agg").unwrap();
    instance.stop().unwrap();
}
