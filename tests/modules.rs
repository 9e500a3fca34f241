//! What every module of ours must be in a broker's address space: refused with a reason, cancelled, panicking,
//! replaced, and no more than a guest.

use flux_testbed::{Backend, Instance, Options, Stage};
use object::{Object, ObjectSymbol};
use serde_json::json;
use std::time::Duration;
use tests::{complaints, eventually, facts, has_cancel, say, tree};

const LIMIT: Duration = Duration::from_secs(30);

facts! {
    a_bad_argument_refuses_the_load_and_says_why,
    a_refused_load_leaves_what_an_earlier_one_left,
    a_load_waits_for_no_other_broker,
    a_panic_in_a_callback_is_logged_once_and_the_broker_lives,
    a_cancelled_module_ends_and_the_broker_lives,
    the_example_module_works,
    two_loads_under_different_names_share_the_hook,
    a_replaced_file_is_what_the_next_load_runs,
}

fn instance(backend: Backend) -> Instance {
    Instance::start(Options { size: 1, ..Options::new(backend) }).unwrap()
}

/// Fact 6 of the skeleton.
fn a_bad_argument_refuses_the_load_and_says_why(backend: Backend) {
    let instance = instance(backend);
    for (argument, said) in [
        ("period=abc", "period=abc: expected a duration: a number with the unit ms, s, m, h or d"),
        ("period=-1", "period=-1: expected a duration"),
        ("probe=magic", "probe=magic: expected attach, preload, proc or off"),
        ("nonsense=1", "nonsense=1: unknown key; allowed: period, probe"),
    ] {
        let refused = instance.load([0], "stats-agg", &[argument]).unwrap_err();
        assert_eq!(refused.errnum(), Some(22), "EINVAL: {refused}");
        let log = instance.log(0).unwrap();
        assert!(
            log.iter().any(|line| line.contains("stats-agg.err") && line.contains(said)),
            "{said}: {log:?}"
        );
    }
    assert!(!instance.modules(0).unwrap().contains(&"stats-agg".to_owned()));
    instance.load([0], "stats-agg", &["period=1s", "probe=proc"]).unwrap();
    instance.remove([0], "stats-agg").unwrap();
    instance.stop().unwrap();
}

fn a_refused_load_leaves_what_an_earlier_one_left(backend: Backend) {
    let instance = instance(backend);
    instance.load([0], "stats-agg", &["period=300ms"]).unwrap();
    let metric = json!({ "name": "left", "type": "counter", "value": 42 });
    instance.rpc(0, "stats-agg.push", json!({ "version": 1, "metrics": [metric] })).unwrap();
    instance.remove([0], "stats-agg").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    for path in ["/nonexistent/socket", file.to_str().unwrap()] {
        let refused = instance.load([0], "stats-agg", &[&format!("statsd=unix:{path}")]);
        assert!(refused.is_err(), "{path}");
    }
    instance.load([0], "stats-agg", &["period=300ms"]).unwrap();
    assert_eq!(tests::series(&instance, "left")["total"], 42);
    instance.remove([0], "stats-agg").unwrap();
    instance.stop().unwrap();
}

fn a_load_waits_for_no_other_broker(backend: Backend) {
    let instance = Instance::start(Options { size: 4, ..Options::new(backend) }).unwrap();
    // Rank 3 is below it. Stopped, it does not tell its pid any more.
    let pid = instance.broker_pid(1).unwrap().to_string();
    let signal = |name: &str| instance.run(0, "sh", &["-c", "kill -s \"$0\" \"$1\"", name, &pid]).unwrap();
    signal("STOP");
    instance.load([3], "stats-agg", &["period=300ms"]).unwrap();
    let metric = json!({ "name": "below", "type": "counter", "value": 42 });
    instance.rpc(3, "stats-agg.push", json!({ "version": 1, "metrics": [metric] })).unwrap();
    instance.remove([3], "stats-agg").unwrap();
    instance.load([3], "stats-agg", &["period=300ms"]).unwrap();
    let answer = instance.rpc(3, "stats-agg.query", json!({ "match": ["below"] })).unwrap();
    assert_eq!(answer["series"][0]["total"], 42);
    assert!(answer["instance"]["start_time"].is_null(), "{answer}");
    signal("CONT");
    let start = || {
        instance.rpc(3, "stats-agg.query", json!({ "match": ["below"] })).unwrap()["instance"]["start_time"]
            .as_f64()
    };
    eventually("when the instance started", LIMIT, start, Option::is_some);
    instance.remove([3], "stats-agg").unwrap();
    instance.stop().unwrap();
}

/// Fact 7.
fn a_panic_in_a_callback_is_logged_once_and_the_broker_lives(backend: Backend) {
    let instance = instance(backend);
    for place in ["timer", "response", "unload"] {
        instance.load([0], "panics", &[place]).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        instance.remove([0], "panics").unwrap();
    }
    assert!(instance.load([0], "panics", &["load"]).is_err());
    instance.load([0], "panics", &[]).unwrap();
    for _ in 0..3 {
        let refused = instance.rpc(0, "panics.now", json!({})).unwrap_err();
        assert_eq!(refused.errnum(), Some(5), "EIO: {refused}");
    }
    assert_eq!(instance.rpc(0, "panics.caught", json!({})).unwrap()["panics"], 3);
    instance.remove([0], "panics").unwrap();
    let log = instance.log(0).unwrap();
    for said in ["as requested", "at a timer", "at a response", "at unload", "at drop", "at load"] {
        let times = log.iter().filter(|line| line.contains("panic in") && line.contains(said)).count();
        assert_eq!(times, 1, "{said}: {log:?}");
    }
    instance.load([0], "loadgen", &[]).unwrap();
    assert!(instance.rpc(0, "loadgen.panic", json!({})).is_err());
    instance.remove([0], "loadgen").unwrap();
    instance.stop().unwrap();
}

/// Fact 7, and correction 2 of the design: other modules are cancelled inside the hook.
fn a_cancelled_module_ends_and_the_broker_lives(backend: Backend) {
    let instance = Instance::start(Options { size: 2, ..Options::new(backend) }).unwrap();
    if !has_cancel(&instance) {
        say("skipped: cancellation, this flux has no `module remove --cancel`");
        return instance.stop().unwrap();
    }
    let gone = |name: &'static str| {
        let ask = || instance.modules(0).unwrap();
        eventually("the module is gone", LIMIT, ask, move |modules| !modules.contains(&name.to_owned()));
    };
    instance.load([0], "stats-agg", &["period=100ms"]).unwrap();
    let wakeups = || tree(&instance)["modules"]["broker"]["wakeups"].as_f64().unwrap_or(0.0);
    let before = eventually("it counts", LIMIT, wakeups, |&total| total > 0.0);
    instance.cancel(0, "heartbeat").unwrap();
    gone("heartbeat");
    instance.load([0], "loadgen", &["rate=100"]).unwrap();
    instance.cancel(0, "loadgen").unwrap();
    gone("loadgen");
    instance.cancel(0, "stats-agg").unwrap();
    gone("stats-agg");
    // What it had counted it left behind, cancelled or not.
    instance.load([0], "stats-agg", &["period=100ms"]).unwrap();
    assert!(wakeups() >= before);
    // Also while requests of its own are under way, as a leaf's are when its thread wakes.
    let leaf = |instance: &Instance| {
        let tree = instance.rpc(1, "stats-agg.stats-get", json!({})).unwrap();
        tree["modules"]["broker"]["wakeups"].as_f64().unwrap_or(0.0)
    };
    instance.load([1], "stats-agg", &["period=100ms"]).unwrap();
    let mut before = eventually("the leaf counts", LIMIT, || leaf(&instance), |&total| total > 0.0);
    for _ in 0..10 {
        instance.cancel(1, "stats-agg").unwrap();
        let ask = || instance.modules(1).unwrap();
        eventually("gone", LIMIT, ask, |modules| !modules.contains(&"stats-agg".to_owned()));
        instance.load([1], "stats-agg", &["period=100ms"]).unwrap();
        let now = leaf(&instance);
        assert!(now >= before, "{now} after {before}");
        before = now;
    }
    instance.remove([1], "stats-agg").unwrap();
    instance.remove([0], "stats-agg").unwrap();
    instance.stop().unwrap();
}

fn the_example_module_works(backend: Backend) {
    let instance = instance(backend);
    instance.load([0], "hello", &["greeting=Hi"]).unwrap();
    let greet = || instance.rpc(0, "hello.greet", json!({})).unwrap();
    assert!(greet()["text"].as_str().unwrap().starts_with("Hi, user "));
    eventually("its timer asks and is answered", LIMIT, greet, |answer| answer["polls"].as_u64() > Some(1));
    let guest = instance.rpc_as_guest(0, "hello.greet", json!({})).unwrap();
    assert!(guest["text"].as_str().unwrap().starts_with("Hi, user 65534"), "{guest}");
    instance.remove([0], "hello").unwrap();
    assert_eq!(complaints(&instance, 0), Vec::<String>::new());
    instance.stop().unwrap();
}

fn two_loads_under_different_names_share_the_hook(backend: Backend) {
    let instance = instance(backend);
    instance.load([0], "stats-agg", &["period=100ms"]).unwrap();
    instance.load_as([0], "stats-agg", "second", &["period=100ms"]).unwrap();
    let wakeups = |name: &str| {
        let tree = instance.rpc(0, &format!("{name}.stats-get"), json!({})).unwrap();
        tree["modules"]["broker"]["wakeups"].as_f64().unwrap_or(0.0)
    };
    eventually(
        "both count",
        LIMIT,
        || (wakeups("stats-agg"), wakeups("second")),
        |&(a, b)| a > 0.0 && b > 0.0,
    );
    instance.remove([0], "stats-agg").unwrap();
    let before = wakeups("second");
    eventually("the other goes on", LIMIT, || wakeups("second"), |&total| total > before);
    instance.remove([0], "second").unwrap();
    instance.stop().unwrap();
}

/// Fact 7: nothing but `mod_main`.
#[test]
fn our_modules_export_mod_main_alone() {
    let stage = Stage::of_this_build().unwrap();
    for module in ["stats-agg", "stats-agg-impl", "loadgen", "hello", "panics"] {
        let bytes = std::fs::read(stage.module(module)).unwrap();
        let file = object::File::parse(bytes.as_slice()).unwrap();
        let defined = file.dynamic_symbols().filter(|symbol| symbol.is_definition() && symbol.is_global());
        let names: Vec<&str> = defined.filter_map(|symbol| symbol.name().ok()).collect();
        assert_eq!(names, ["mod_main"], "{module}");
    }
}

/// The loader can be unloaded, and the implementation's name says what is in it: so an upgrade takes effect with the
/// next load, and the totals go on.
fn a_replaced_file_is_what_the_next_load_runs(backend: Backend) {
    let (instance, stage) = (instance(backend), Stage::of_this_build().unwrap());
    let folder = tempfile::tempdir().unwrap();
    stage.install_stats_agg(folder.path()).unwrap();
    let loader = folder.path().join("stats-agg.so");
    let link = folder.path().join("stats-agg-impl.so");
    let old = std::fs::canonicalize(&link).unwrap();
    let mapped = |file: &std::path::Path| {
        let maps =
            std::fs::read_to_string(format!("/proc/{}/maps", instance.broker_pid(0).unwrap())).unwrap();
        maps.contains(&*file.to_string_lossy())
    };
    let wakeups = || tree(&instance)["modules"]["broker"]["wakeups"].as_f64().unwrap_or(0.0);
    instance.load_file([0], &loader, "stats-agg", &["period=100ms"]).unwrap();
    let before = eventually("it counts", LIMIT, wakeups, |&total| total > 0.0);
    assert!(mapped(&old));
    instance.remove([0], "stats-agg").unwrap();
    // The removal is answered a moment before the broker closes the file.
    eventually("the loader is unmapped", LIMIT, || mapped(&loader), |&mapped| !mapped);

    // Another build: the same code, with one byte more at its end.
    let new = folder.path().join("stats-agg-impl-new.so");
    let mut bytes = std::fs::read(&old).unwrap();
    bytes.push(0);
    std::fs::write(&new, bytes).unwrap();
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&new, &link).unwrap();
    instance.load_file([0], &loader, "stats-agg", &["period=100ms"]).unwrap();
    assert!(mapped(&new));
    let after = wakeups();
    assert!(after >= before, "{after} after {before}");
    eventually("the new one counts on", LIMIT, wakeups, |&total| total > after);
    instance.remove([0], "stats-agg").unwrap();
    assert_eq!(complaints(&instance, 0), Vec::<String>::new());
    instance.stop().unwrap();
}

#[test]
fn an_upgrade_in_place_is_whole_at_every_moment() {
    let stage = Stage::of_this_build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let files = stage.install_stats_agg(folder.path()).unwrap();
    let link = folder.path().join("stats-agg-impl.so");
    let first = std::fs::canonicalize(&link).unwrap();
    assert_eq!(files, [first.clone(), link.clone(), folder.path().join("stats-agg.so")]);
    assert_eq!(stage.install_stats_agg(folder.path()).unwrap(), files);
    assert_eq!(std::fs::canonicalize(&link).unwrap(), first);
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
}
