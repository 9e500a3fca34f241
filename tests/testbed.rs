//! The instances themselves: what the other suites take for granted of either backend.

use flux_testbed::{Backend, Instance, Options, Topology};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use tests::{eventually, facts};

const LIMIT: Duration = Duration::from_secs(30);

facts! {
    brokers_stand_in_the_tree_that_was_asked_for,
    every_rank_is_reached_by_itself_and_through_rank_0,
    an_error_answer_has_its_number_and_text,
    a_guest_has_no_rights_of_an_owner,
    brokers_have_the_environment_that_was_given,
    a_stopped_instance_leaves_nothing,
    a_dropped_instance_leaves_nothing_though_a_broker_was_killed,
}

fn attribute(instance: &Instance, rank: u32, name: &str) -> String {
    let answer = instance.rpc(rank, "attr.get", json!({ "name": name })).unwrap();
    answer["value"].as_str().unwrap().to_owned()
}

fn brokers_stand_in_the_tree_that_was_asked_for(backend: Backend) {
    for (topology, level, max_level) in
        [(Topology::Kary(2), "2", "2"), (Topology::Flat, "1", "1"), (Topology::Default, "1", "1")]
    {
        let options = Options { size: 4, topology, ..Options::new(backend.clone()) };
        let instance = Instance::start(options).unwrap();
        assert_eq!(attribute(&instance, 3, "tbon.level"), level, "{topology:?}");
        assert_eq!(attribute(&instance, 3, "tbon.maxlevel"), max_level, "{topology:?}");
        assert_eq!(attribute(&instance, 0, "size"), "4");
        instance.stop().unwrap();
    }
}

fn every_rank_is_reached_by_itself_and_through_rank_0(backend: Backend) {
    let instance = Instance::start(Options { size: 4, ..Options::new(backend) }).unwrap();
    for rank in 0..4 {
        assert_eq!(attribute(&instance, rank, "rank"), rank.to_string());
        if let Backend::Real(flux) = instance.backend() {
            let said = instance.run(rank, &flux.to_string_lossy(), &["getattr", "rank"]).unwrap();
            assert_eq!(said.trim(), rank.to_string());
        }
        instance.load([rank], "loadgen", &[]).unwrap();
        assert_eq!(instance.rpc_via(0, rank, "loadgen.stats-get", json!({})).unwrap()["wakeups"], 0);
        instance.remove([rank], "loadgen").unwrap();
        let refused = instance.rpc_via(0, rank, "loadgen.stats-get", json!({})).unwrap_err();
        assert_eq!(refused.errnum(), Some(38), "ENOSYS: {refused}");
    }
    instance.stop().unwrap();
}

fn an_error_answer_has_its_number_and_text(backend: Backend) {
    let instance = Instance::start(Options { size: 1, ..Options::new(backend) }).unwrap();
    let refused = |topic: &str, payload: Value| instance.rpc(0, topic, payload).unwrap_err();
    let error = refused("nobody.knows", json!({}));
    assert_eq!(error.errnum(), Some(38), "ENOSYS: {error}");
    assert!(error.to_string().contains("nobody.knows"), "{error}");
    let error = refused("module.remove", json!({ "name": "nobody", "cancel": false }));
    assert_eq!(error.errnum(), Some(2), "ENOENT: {error}");
    let error = refused("attr.get", json!({ "name": "nothing" }));
    assert_eq!(error.errnum(), Some(2), "ENOENT: {error}");
    let file = Path::new("/nonexistent.so");
    assert!(instance.load_file([0], file, "nobody", &[]).is_err());
    instance.stop().unwrap();
}

fn a_guest_has_no_rights_of_an_owner(backend: Backend) {
    let instance = Instance::start(Options { size: 1, ..Options::new(backend) }).unwrap();
    let own = attribute(&instance, 0, "rank");
    let answer = instance.rpc_as_guest(0, "attr.get", json!({ "name": "rank" })).unwrap();
    assert_eq!(answer["value"], own);
    let payload = json!({ "name": "heartbeat", "cancel": false });
    let refused = instance.rpc_as_guest(0, "module.remove", payload).unwrap_err();
    assert_eq!(refused.errnum(), Some(1), "EPERM: {refused}");
    assert!(instance.modules(0).unwrap().contains(&"heartbeat".to_owned()));
    instance.stop().unwrap();
}

fn brokers_have_the_environment_that_was_given(backend: Backend) {
    let environment = vec![("FLUX_TESTBED_SAID".into(), "so".into())];
    let instance = Instance::start(Options { size: 2, environment, ..Options::new(backend) }).unwrap();
    for rank in 0..2 {
        let file = format!("/proc/{}/environ", instance.broker_pid(rank).unwrap());
        let text = String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned();
        assert!(text.split('\0').any(|variable| variable == "FLUX_TESTBED_SAID=so"), "rank {rank}");
    }
    instance.stop().unwrap();
}

/// The brokers' processes, and their rundir.
fn traces(instance: &Instance) -> Vec<String> {
    let pids = (0..instance.size()).map(|rank| format!("/proc/{}", instance.broker_pid(rank).unwrap()));
    pids.chain([attribute(instance, 0, "rundir")]).collect()
}

fn all_go(traces: &[String]) {
    let left = || traces.iter().filter(|trace| Path::new(trace).exists()).collect::<Vec<_>>();
    eventually("nothing is left", LIMIT, left, Vec::is_empty);
}

fn a_stopped_instance_leaves_nothing(backend: Backend) {
    let instance = Instance::start(Options { size: 4, ..Options::new(backend) }).unwrap();
    let traces = traces(&instance);
    assert!(traces.iter().all(|trace| Path::new(trace).exists()), "{traces:?}");
    instance.stop().unwrap();
    all_go(&traces);
}

fn a_dropped_instance_leaves_nothing_though_a_broker_was_killed(backend: Backend) {
    let instance = Instance::start(Options { size: 4, ..Options::new(backend) }).unwrap();
    let traces = traces(&instance);
    instance.kill(1).unwrap();
    drop(instance);
    all_go(&traces);
}
