//! The package `flux_metrics` for Python: its own tests, and its programs on real Flux, whose bindings it needs.

use flux_testbed::{Backend, Instance, Options, workspace_root};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tests::{complaints, eventually, push_seconds, query, real, say, series};

const LIMIT: Duration = Duration::from_secs(30);

fn package() -> PathBuf {
    workspace_root().join("python")
}

#[test]
fn its_own_tests_pass_without_an_instance() {
    let mut tests = Command::new("python3");
    tests.args(["-m", "unittest", "discover", "-s", "tests"]);
    tests.current_dir(package()).env("PYTHONPATH", package().join("src")).env("PYTHONDONTWRITEBYTECODE", "1");
    match tests.output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(_) => say("skipped: the tests of the Python package, there is no python3 here"),
    }
}

/// An instance whose `flux python` has the bindings, and that command; else one line says what is skipped.
fn instance(size: u32) -> Option<(Instance, PathBuf)> {
    let Some(Backend::Real(flux)) = real() else {
        say("skipped: the Python package on an instance, there is no flux here");
        return None;
    };
    let has_bindings = Command::new(&flux).args(["python", "-c", "import flux"]).output();
    if !has_bindings.is_ok_and(|output| output.status.success()) {
        say("skipped: the Python package on an instance, this flux has no Python bindings");
        return None;
    }
    let instance = Instance::start(Options { size, ..Options::new(Backend::Real(flux.clone())) }).unwrap();
    instance.load(0..size, "stats-agg", &["period=500ms"]).unwrap();
    Some((instance, flux))
}

/// Runs Python with the package; what it wrote to standard output.
fn python(instance: &Instance, flux: &Path, rank: u32, arguments: &[&str]) -> String {
    let script = "PYTHONPATH=$1${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1; export PYTHONPATH \
                  PYTHONDONTWRITEBYTECODE; shift; exec \"$0\" python \"$@\"";
    let (flux, source) = (flux.to_string_lossy(), package().join("src"));
    let mut all = vec!["-c", script, &flux];
    let source = source.to_string_lossy();
    all.push(&source);
    all.extend(arguments);
    instance.run(rank, "sh", &all).unwrap()
}

fn end(instance: Instance) {
    instance.remove(0..instance.size(), "stats-agg").unwrap();
    for rank in 0..instance.size() {
        assert_eq!(complaints(&instance, rank), Vec::<String>::new());
    }
    instance.stop().unwrap();
}

#[test]
fn its_programs_arrive_to_the_unit() {
    let seconds = push_seconds();
    let Some((instance, flux)) = instance(4) else { return };
    let program = package().join("examples/push.py").to_string_lossy().into_owned();
    let said: Vec<(String, Value)> = std::thread::scope(|scope| {
        let (instance, flux, program) = (&instance, &flux, &program);
        let modes = ["reactor", "plain", "once", "asyncio"];
        let runs = [1, 2, 3].iter().flat_map(|&rank| modes.map(|mode| (rank, mode)));
        let runs: Vec<_> = runs
            .map(|(rank, mode)| {
                scope.spawn(move || {
                    let tag = format!("py-{mode}-{rank}");
                    let said = python(instance, flux, rank, &[program, mode, &seconds.to_string(), &tag]);
                    (tag, serde_json::from_str(&said).unwrap())
                })
            })
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    let number = |tag: &str, name: &str, number: &str| {
        let answer = query(&instance, &[name]);
        let found = answer["series"].as_array().into_iter().flatten().find(|one| one["tags"]["by"] == tag);
        found.and_then(|one| one[number].as_i64()).unwrap_or(0)
    };
    for (tag, said) in &said {
        let wanted = said["count"].as_i64().unwrap();
        let count = || number(tag, "push.count", "total");
        eventually(tag, LIMIT, count, |&count| count >= wanted);
        assert_eq!(count(), wanted, "{tag}");
        assert_eq!(number(tag, "push.wait_s", "count"), said["samples"].as_i64().unwrap(), "{tag}");
    }
    // Each period of half a second once the first of two seconds is over, one at the end; a `once` has that alone.
    let pushes = series(&instance, "stats-agg.pushes")["total"].as_u64().unwrap();
    let (least, most) = (3 * (3 * seconds / 2 + 1), 3 * (3 * (2 * seconds + 3) + 1));
    assert!((least..=most).contains(&pushes), "{pushes} pushes, expected {least} to {most}");
    end(instance);
}

#[test]
fn a_handle_of_its_own_delivers_at_the_end_of_its_block() {
    let Some((instance, flux)) = instance(2) else { return };
    let code = "
import flux_metrics
with flux_metrics.connect() as metrics:
    for n in range(1000):
        metrics.count('py.count', n)
        metrics.histogram('py.bytes', n)
        metrics.member('py.users', f'user{n % 50}')
    metrics.gauge('py.depth', 7)
    metrics.gauge_add('py.depth', 0.5)
";
    let smallest = package().join("examples/count.py").to_string_lossy().into_owned();
    python(&instance, &flux, 1, &[&smallest]);
    let requests = || series(&instance, "app.requests")["total"].clone();
    eventually("the smallest program's", LIMIT, requests, |total| *total == 3);
    python(&instance, &flux, 1, &["-c", code]);
    let total = || series(&instance, "py.count")["total"].clone();
    eventually("the count", LIMIT, total, |total| *total == 499_500);
    let bytes = series(&instance, "py.bytes");
    assert_eq!(
        (&bytes["count"], &bytes["sum"], &bytes["max"]),
        (&json!(1000), &json!(499_500), &json!(999.0))
    );
    assert!((bytes["p50"].as_f64().unwrap() - 500.0).abs() < 8.0, "{bytes}");
    assert_eq!(series(&instance, "py.users")["estimate"], 50.0);
    let depth = || series(&instance, "py.depth")["max"].clone();
    eventually("the gauge", LIMIT, depth, |depth| *depth == json!({ "value": 7.5, "rank": 1 }));
    // An error of the connection says what to do.
    let wrong = "
import flux_metrics
try:
    flux_metrics.connect('local:///nowhere')
except flux_metrics.NoInstance as error:
    print(error)
";
    let said = python(&instance, &flux, 1, &["-c", wrong]);
    assert!(said.contains("no Flux instance at local:///nowhere"), "{said}");
    assert!(said.contains("connect(optional=True)"), "{said}");
    end(instance);
}
