//! reactor-probe.so preloaded into brokers: the hook from birth, in processes, too.

use flux_testbed::{Backend, Instance, Options, Stage};
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use tests::{complaints, eventually, facts, has_cancel, number, say, series, tree};

const PERIOD: Duration = Duration::from_millis(500);
const LIMIT: Duration = Duration::from_secs(30);

facts! {
    a_preloaded_hook_is_recognised_and_nothing_is_counted_twice,
    modules_in_processes_of_their_own_are_timed_as_threads_are,
    a_service_outside_of_the_broker_reads_the_preloaded_hook,
}

fn preloaded(backend: Backend, size: u32) -> Instance {
    let probe = Stage::of_this_build().unwrap().reactor_probe();
    let environment = vec![("LD_PRELOAD".into(), probe.into())];
    Instance::start(Options { size, environment, ..Options::new(backend) }).unwrap()
}

fn own_wakeups(instance: &Instance, name: &str) -> f64 {
    number(&instance.rpc(0, &format!("{name}.stats-get"), json!({})).unwrap()["wakeups"])
}

fn total(instance: &Instance, name: &str) -> f64 {
    series(instance, &format!("modules.{name}.wakeups"))["total"].as_f64().unwrap_or(0.0)
}

fn source(instance: &Instance, name: &str) -> Vec<String> {
    let source = tree(instance)["modules"][name]["source"].clone();
    source.as_object().map(|sources| sources.keys().cloned().collect()).unwrap_or_default()
}

/// Its turns for anything but its timer are few.
fn is_about(wakeups: f64, own: f64) {
    assert!(wakeups >= own && wakeups <= 1.05 * own + 40.0, "{wakeups} wakeups, of which its own are {own}");
}

fn a_preloaded_hook_is_recognised_and_nothing_is_counted_twice(backend: Backend) {
    let instance = preloaded(backend, 2);
    for round in 0..2 {
        instance.load(0..2, "stats-agg", &["period=500ms"]).unwrap();
        instance.load([0], "loadgen", &["rate=100"]).unwrap();
        let before = total(&instance, "loadgen");
        eventually("it counts", LIMIT, || own_wakeups(&instance, "loadgen"), |&wakeups| wakeups > 200.0);
        let own = own_wakeups(&instance, "loadgen");
        let seen = || total(&instance, "loadgen") - before;
        instance.remove([0], "loadgen").unwrap();
        eventually("all of it", LIMIT, seen, |&seen| seen >= own);
        // And nothing comes after it.
        std::thread::sleep(4 * PERIOD);
        is_about(seen(), own);
        // A reload goes on where it was, with the same hook.
        assert_eq!(source(&instance, "loadgen"), ["preload"], "round {round}");
        assert_eq!(source(&instance, "broker"), ["preload"], "round {round}");
        instance.remove(0..2, "stats-agg").unwrap();
    }
    assert_eq!(complaints(&instance, 0), Vec::<String>::new());
    instance.stop().unwrap();
}

/// Whether it runs modules as processes of their own, as flux-core 0.88 does; a line where it does not.
fn has_processes(instance: &Instance) -> bool {
    let has = instance.backend() != &Backend::Embedded && has_cancel(instance);
    if !has {
        say("skipped: modules as processes of their own, this broker runs them as threads only");
    }
    has
}

/// A module in a process of its own, of this file.
fn load_process(instance: &Instance, file: &Path, name: &str, arguments: &[&str]) {
    let exec = file.extension().is_some_and(|ending| ending == "so");
    let load = json!({ "path": file, "name": name, "args": arguments, "exec": exec });
    instance.rpc(0, "module.load", load).unwrap();
}

fn modules_in_processes_of_their_own_are_timed_as_threads_are(backend: Backend) {
    let instance = preloaded(backend, 1);
    if !has_processes(&instance) {
        return instance.stop().unwrap();
    }
    let stage = Stage::of_this_build().unwrap();
    instance.load([0], "stats-agg", &["period=500ms"]).unwrap();
    load_process(&instance, &stage.module("loadgen"), "loadgen-of-a-long-name", &["rate=100"]);
    load_process(&instance, &stage.python_loadgen(), "pythonic", &["rate=100"]);
    for name in ["loadgen-of-a-long-name", "pythonic"] {
        eventually("it counts", LIMIT, || own_wakeups(&instance, name), |&wakeups| wakeups > 200.0);
        let own = own_wakeups(&instance, name);
        let seen = eventually("all of it", LIMIT, || total(&instance, name), |&seen| seen >= own);
        // It goes on meanwhile.
        assert!(seen <= 1.05 * own_wakeups(&instance, name) + 40.0, "{seen}, of which its own were {own}");
        assert_eq!(source(&instance, name), ["preload"], "{name}");
        // From outside, too.
        let pid = instance.broker_pid(0).unwrap().to_string();
        let text = instance.run(0, &stage.command().to_string_lossy(), &["peek", &pid]).unwrap();
        assert!(text.lines().any(|line| line.contains("(process)") && line.contains("sleeping")), "{text}");
        instance.remove([0], name).unwrap();
    }
    // Flux's own, which is Python.
    assert_eq!(source(&instance, "sched-simple"), ["preload"]);
    instance.remove([0], "stats-agg").unwrap();
    assert_eq!(complaints(&instance, 0), Vec::<String>::new());
    instance.stop().unwrap();
}

fn a_service_outside_of_the_broker_reads_the_preloaded_hook(backend: Backend) {
    let instance = preloaded(backend, 1);
    if !has_processes(&instance) {
        return instance.stop().unwrap();
    }
    let stage = Stage::of_this_build().unwrap();
    load_process(&instance, &stage.module("stats-agg"), "stats-agg", &["period=500ms"]);
    instance.load([0], "loadgen", &["rate=100"]).unwrap();
    eventually("it counts", LIMIT, || own_wakeups(&instance, "loadgen"), |&wakeups| wakeups > 200.0);
    let own = own_wakeups(&instance, "loadgen");
    instance.remove([0], "loadgen").unwrap();
    let seen = || total(&instance, "loadgen");
    // A thread that ends may take what it did since the last look with it.
    eventually("nearly all of it", LIMIT, seen, |&seen| seen >= own - 60.0);
    std::thread::sleep(4 * PERIOD);
    assert!(seen() <= 1.05 * own + 40.0, "{} of {own}", seen());
    assert_eq!(source(&instance, "loadgen"), ["preload"]);
    let log = instance.log(0).unwrap();
    assert!(!log.iter().any(|line| line.contains("falling back")), "{log:?}");
    instance.remove([0], "stats-agg").unwrap();
    instance.stop().unwrap();
}
