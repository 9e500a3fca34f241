//! The probe in depth, on whole instances: whose numbers are whose, and what each module does now.

use flux_testbed::{Backend, Instance, Options};
use serde_json::{Value, json};
use std::time::Duration;
use tests::{eventually, facts, query, series, tree};

/// Far beyond what is awaited: a test fails by what it sees, not by how long it took.
const LIMIT: Duration = Duration::from_secs(30);

facts! {
    a_name_that_the_kernel_cuts_is_counted_once_and_whole,
    two_modules_whose_names_are_cut_to_the_same_are_told_apart_or_flagged,
}

fn instance(backend: Backend, size: u32) -> Instance {
    Instance::start(Options { size, ..Options::new(backend) }).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// The wakeups that a loadgen has counted itself.
fn own_wakeups(instance: &Instance, rank: u32, name: &str) -> f64 {
    number(&instance.rpc(rank, &format!("{name}.stats-get"), json!({})).unwrap()["wakeups"])
}

fn total(instance: &Instance, name: &str) -> f64 {
    series(instance, &format!("modules.{name}.wakeups"))["total"].as_f64().unwrap_or(0.0)
}

/// All names of modules that an answer has.
fn names(instance: &Instance) -> Vec<String> {
    tree(instance)["modules"].as_object().unwrap().keys().cloned().collect()
}

/// Its turns for anything but its timer are few: a request or two, loading and unloading.
fn is_about(wakeups: f64, own: f64) {
    assert!(wakeups >= own && wakeups <= 1.05 * own + 40.0, "{wakeups} wakeups, of which its own are {own}");
}

fn a_name_that_the_kernel_cuts_is_counted_once_and_whole(backend: Backend) {
    const NAME: &str = "loadgen-of-a-long-name";
    let instance = instance(backend, 2);
    instance.load(0..2, "stats-agg", &["period=500ms"]).unwrap();
    let mut own = 0.0;
    // The second load is the same module again.
    for _ in 0..2 {
        instance.load_as(0..2, "loadgen", NAME, &["rate=100"]).unwrap();
        eventually("it counts", LIMIT, || own_wakeups(&instance, 1, NAME), |&wakeups| wakeups > 150.0);
        own += own_wakeups(&instance, 0, NAME) + own_wakeups(&instance, 1, NAME);
        instance.remove(0..2, NAME).unwrap();
    }
    // A life between two looks is a module's, too.
    instance.load_as([0], "loadgen", NAME, &["rate=1000"]).unwrap();
    instance.remove([0], NAME).unwrap();
    let wakeups = eventually("all of it is there", LIMIT, || total(&instance, NAME), |&total| total >= own);
    is_about(wakeups, own);
    let alike: Vec<_> = names(&instance).into_iter().filter(|name| name.starts_with("loadgen")).collect();
    assert_eq!(alike, [NAME]);
    instance.remove(0..2, "stats-agg").unwrap();
    instance.stop().unwrap();
}

fn two_modules_whose_names_are_cut_to_the_same_are_told_apart_or_flagged(backend: Backend) {
    const FAST: &str = "loadgen-of-a-long-name-1";
    const SLOW: &str = "loadgen-of-a-long-name-2";
    const CUT: &str = "loadgen-of-a-lo";
    let instance = instance(backend, 1);
    instance.load([0], "stats-agg", &["period=500ms"]).unwrap();
    instance.load_as([0], "loadgen", FAST, &["rate=200"]).unwrap();
    eventually("the first is known", LIMIT, || total(&instance, FAST), |&total| total > 0.0);
    instance.load_as([0], "loadgen", SLOW, &["rate=20"]).unwrap();
    eventually("it counts", LIMIT, || own_wakeups(&instance, 0, SLOW), |&wakeups| wakeups > 50.0);
    let own = [FAST, SLOW].map(|name| own_wakeups(&instance, 0, name));
    instance.remove([0], FAST).unwrap();
    instance.remove([0], SLOW).unwrap();
    for (name, own) in [FAST, SLOW].into_iter().zip(own) {
        is_about(eventually(name, LIMIT, || total(&instance, name), |&total| total >= own), own);
    }
    assert_eq!(query(&instance, &["modules.*.ambiguous"])["series"], json!([]));
    assert!(!names(&instance).contains(&CUT.to_owned()));
    std::thread::sleep(Duration::from_secs(1));
    let apart = [FAST, SLOW].map(|name| total(&instance, name));
    instance.remove([0], "stats-agg").unwrap();

    // Both there before anybody looked.
    instance.load_as([0], "loadgen", FAST, &["rate=200"]).unwrap();
    instance.load_as([0], "loadgen", SLOW, &["rate=20"]).unwrap();
    let before = [FAST, SLOW].map(|name| own_wakeups(&instance, 0, name)).iter().sum::<f64>();
    instance.load([0], "stats-agg", &["period=500ms"]).unwrap();
    eventually("both are counted as one", LIMIT, || total(&instance, CUT), |&total| total > 100.0);
    let flag = series(&instance, &format!("modules.{CUT}.ambiguous"));
    assert_eq!((&flag["type"], &flag["max"]["value"]), (&json!("gauge"), &json!(1)), "{flag}");
    let own = [FAST, SLOW].map(|name| own_wakeups(&instance, 0, name)).iter().sum::<f64>() - before;
    instance.remove([0], FAST).unwrap();
    instance.remove([0], SLOW).unwrap();
    let merged =
        eventually("all of it is there", LIMIT, || total(&instance, CUT), |&total| total >= own - 40.0);
    assert!(merged <= 1.05 * own + 40.0, "{merged} of {own}");
    // And none of it a second time.
    assert_eq!([FAST, SLOW].map(|name| total(&instance, name)), apart);
    instance.remove([0], "stats-agg").unwrap();
    instance.stop().unwrap();
}
