//! include/flux-metrics.h and libflux-metrics: programs and modules in C and C++, compiled and run.

use flux_testbed::{Backend, Instance, Options, Stage, workspace_root};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tests::{complaints, eventually, facts, has_cancel, push_seconds, query, say, series};

const LIMIT: Duration = Duration::from_secs(30);

facts! {
    the_smallest_programs_in_c_and_in_rust_arrive,
    programs_in_c_and_in_cpp_arrive_to_the_unit,
    every_argument_that_makes_no_sense_has_a_defined_result,
    a_module_in_c_counts_as_a_thread_and_as_a_process,
    a_module_in_c_that_is_cancelled_leaves_the_broker_well,
}

/// A language and how strictly it is read.
#[derive(Clone, Copy)]
struct Language {
    compiler: (&'static str, &'static str),
    flags: &'static [&'static str],
}

const STRICT: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g"];
const C: Language = Language { compiler: ("CC", "cc"), flags: &["-xc", "-std=c11", "-D_GNU_SOURCE"] };
const CPP: Language = Language { compiler: ("CXX", "c++"), flags: &["-xc++", "-std=c++17"] };

/// Compiles `tests/c/NAME.c` for the libflux of `instance`.
fn compile(instance: &Instance, language: Language, name: &str, to: &Path, more: &[&str]) {
    let (variable, default) = language.compiler;
    let compiler = std::env::var(variable).unwrap_or_else(|_| default.into());
    let root = workspace_root();
    let libraries = Stage::of_this_build().unwrap().libraries().display().to_string();
    let mut command = Command::new(&compiler);
    command.args(STRICT).args(language.flags).arg("-I").arg(root.join("include"));
    command.arg(root.join("tests/c").join(format!("{name}.c"))).args(["-x", "none", "-o"]).arg(to);
    command.args(more).arg(format!("-L{libraries}")).arg(format!("-Wl,-rpath,{libraries}"));
    command.args(["-lflux-metrics", "-lm", "-Wl,--allow-shlib-undefined"]);
    if more.is_empty() {
        let libflux = instance.libflux();
        match libflux.parent().filter(|_| libflux.is_absolute()) {
            Some(folder) => command.arg(&libflux).arg(format!("-Wl,-rpath,{}", folder.display())),
            None => command.arg("-l:libflux-core.so.2"),
        };
    }
    let output = command.output().unwrap_or_else(|error| panic!("running {compiler}: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A program in a folder of its own.
fn program(instance: &Instance, language: Language, name: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    compile(instance, language, name, &path, &[]);
    (folder, path.to_string_lossy().into_owned())
}

fn instance(backend: Backend, size: u32) -> Instance {
    let instance = Instance::start(Options { size, ..Options::new(backend) }).unwrap();
    instance.load(0..size, "stats-agg", &["period=500ms"]).unwrap();
    instance
}

fn end(instance: Instance) {
    instance.remove(0..instance.size(), "stats-agg").unwrap();
    for rank in 0..instance.size() {
        assert_eq!(complaints(&instance, rank), Vec::<String>::new());
    }
    instance.stop().unwrap();
}

fn total(instance: &Instance, name: &str) -> i64 {
    series(instance, name)["total"].as_i64().unwrap_or(0)
}

fn the_smallest_programs_in_c_and_in_rust_arrive(backend: Backend) {
    let instance = instance(backend, 2);
    let c = program(&instance, C, "count");
    let rust = instance.program("count").to_string_lossy().into_owned();
    for (program, requests) in [(&c.1, 3), (&rust, 6)] {
        instance.run(1, program, &[]).unwrap();
        eventually(program, LIMIT, || total(&instance, "app.requests"), |&total| total >= requests);
        assert_eq!(total(&instance, "app.requests"), requests);
    }
    assert_eq!(series(&instance, "app.fetch_s")["count"], 2);
    end(instance);
}

/// The number of a series with that tag.
fn tagged(instance: &Instance, name: &str, tag: &str, number: &str) -> i64 {
    let answer = query(instance, &[name]);
    let found = answer["series"].as_array().into_iter().flatten().find(|one| one["tags"]["by"] == tag);
    found.and_then(|one| one[number].as_i64()).unwrap_or(0)
}

fn programs_in_c_and_in_cpp_arrive_to_the_unit(backend: Backend) {
    let instance = instance(backend, 4);
    let (c, cpp) = (program(&instance, C, "push"), program(&instance, CPP, "push"));
    let said: Vec<(String, Value)> = std::thread::scope(|scope| {
        let instance = &instance;
        let runs = [1, 2, 3].iter().flat_map(|&rank| {
            ["reactor", "plain", "once"].map(|mode| (rank, mode)).into_iter().zip([&c.1, &cpp.1, &c.1])
        });
        let runs: Vec<_> = runs
            .map(|((rank, mode), program)| {
                scope.spawn(move || {
                    let tag = format!("c-{mode}-{rank}");
                    let said =
                        instance.run(rank, program, &[mode, &push_seconds().to_string(), &tag]).unwrap();
                    (tag, serde_json::from_str(&said).unwrap())
                })
            })
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    for (tag, said) in &said {
        let wanted = said["count"].as_i64().unwrap();
        let count = || tagged(&instance, "push.count", tag, "total");
        eventually(tag, LIMIT, count, |&count| count >= wanted);
        assert_eq!(count(), wanted, "{tag}");
        let samples = tagged(&instance, "push.wait_s", tag, "count");
        assert_eq!(samples, said["samples"].as_i64().unwrap(), "{tag}");
    }
    // The reactors of three of them, for as long as they ran: turns as they counted, and nearly all of the time asleep.
    let (work, sleep) = (series(&instance, "reactor.work_s"), series(&instance, "reactor.sleep_s"));
    assert_eq!(work["tags"]["name"], "push");
    let beats: i64 = said
        .iter()
        .filter(|(tag, _)| tag.starts_with("c-reactor"))
        .map(|(_, said)| said["samples"].as_i64().unwrap())
        .sum();
    assert!(work["count"].as_i64().unwrap() >= beats, "{work}, {beats} beats");
    let spent = work["sum"].as_f64().unwrap() + sleep["sum"].as_f64().unwrap();
    let lived = 3.0 * push_seconds() as f64;
    assert!((lived * 0.95..lived * 1.3).contains(&spent), "{spent} s of {lived}");
    end(instance);
}

fn every_argument_that_makes_no_sense_has_a_defined_result(backend: Backend) {
    let instance = instance(backend, 1);
    for language in [C, CPP] {
        let (_folder, program) = program(&instance, language, "limits");
        instance.run(0, &program, &[]).unwrap();
    }
    // Both of them.
    let count = || total(&instance, "c.again");
    eventually("the last of it", LIMIT, count, |&count| count == 8);
    assert_eq!(total(&instance, "c.extreme"), 14);
    assert_eq!(series(&instance, "c.gauge")["sum"], 3.5);
    let time = series(&instance, "c.time_s");
    assert_eq!((&time["count"], &time["sum"], &time["max"]), (&json!(4), &json!(2.0), &json!(0.75)));
    let bytes = series(&instance, "c.bytes");
    assert_eq!((&bytes["count"], &bytes["sum"], &bytes["min"]), (&json!(4), &json!(8192), &json!(0.0)));
    let tags = query(&instance, &["c.tags"])["series"].clone();
    assert_eq!(tags.as_array().unwrap().len(), 2, "a gauge and a counter: {tags}");
    let counter = tags.as_array().unwrap().iter().find(|one| one["type"] == "counter").unwrap();
    assert_eq!((&counter["total"], &counter["tags"]), (&json!(6), &json!({ "a": "1", "b": "2" })));
    assert_eq!(series(&instance, "c.members")["estimate"], 2.0);
    assert_eq!(total(&instance, "own.count"), 6);
    assert_eq!(total(&instance, "c.handles"), 20, "those that were closed");
    // By each: NaN and infinity for the gauge, NaN and -1 for the timer, -1 for the histogram.
    assert_eq!(total(&instance, "stats-agg.dropped_by_handles"), 10);
    end(instance);
}

/// As `cargo xtask install` puts it: what pkg-config says is enough to compile, link and run.
#[test]
fn what_is_installed_is_found_by_pkg_config() {
    if Command::new("pkg-config").arg("--version").output().is_err() {
        return say("skipped: the installed library, there is no pkg-config here");
    }
    let prefix = tempfile::tempdir().unwrap();
    let libraries = prefix.path().join("lib");
    Stage::of_this_build().unwrap().install_metrics(&libraries, &libraries).unwrap();
    let program = prefix.path().join("program");
    let script = "set -e; export PKG_CONFIG_PATH=$1/lib/pkgconfig
        echo '#include <flux-metrics.h>
        int main (void) { return flux_metric_count (0, \"a\", 1) == -1 ? 0 : 1; }' >$2.c
        ${CC:-cc} -Wall -Werror $2.c -o $2 $(pkg-config --cflags --libs flux-metrics)
        LD_LIBRARY_PATH=$1/lib $2; pkg-config --modversion flux-metrics";
    let output =
        Command::new("sh").args(["-c", script, "sh"]).args([prefix.path(), &program]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), env!("CARGO_PKG_VERSION"));
}

fn module(instance: &Instance, folder: &tempfile::TempDir) -> PathBuf {
    let path = folder.path().join("cmodule.so");
    compile(instance, C, "module", &path, &["-shared", "-fPIC"]);
    path
}

fn a_module_in_c_counts_as_a_thread_and_as_a_process(backend: Backend) {
    let instance = instance(backend, 3);
    let folder = tempfile::tempdir().unwrap();
    let module = module(&instance, &folder);
    instance.load_file([1], &module, "cmodule", &["rate=200"]).unwrap();
    match instance.backend() {
        Backend::Real(flux) if has_cancel(&instance) => {
            let path = module.to_string_lossy();
            let load = ["module", "load", "--exec", "--name=cmodule", &path, "rate=200"];
            instance.run(2, &flux.to_string_lossy(), &load).unwrap();
        }
        _ => {
            say("skipped: a module in C as a process, this backend has no module load --exec");
            instance.load_file([2], &module, "cmodule", &["rate=200"]).unwrap();
        }
    }
    let count = || total(&instance, "cmodule.count");
    eventually("both count", LIMIT, count, |&count| count > 2000);
    let beats = series(&instance, "cmodule.beats");
    assert_eq!(beats["count"], 2, "each rank has its own gauge: {beats}");
    // One delivers when it is asked to, the other when it is removed.
    let stopped = instance.rpc(2, "cmodule.stop", json!({})).unwrap();
    let number = |said: &Value, key: &str| said[key].as_i64().unwrap();
    let before = instance.rpc(1, "cmodule.said", json!({})).unwrap();
    instance.remove([1, 2], "cmodule").unwrap();
    let least = number(&before, "count") + number(&stopped, "count");
    let found = eventually("all of it", LIMIT, count, |&count| count >= least);
    // The one that was removed went on for a moment after it had said how much.
    assert!(found <= least + 200, "{found}, {least}");
    std::thread::sleep(Duration::from_millis(1500));
    let samples = series(&instance, "cmodule.beat_s")["count"].as_i64().unwrap();
    let per_beat = |samples: i64| (0..samples).fold((0_i64, 0_i64), |(one, _), _| (one + 1 + one % 5, 0)).0;
    // What beats counted is known from their number: the first of the two by its own word.
    let other = samples - number(&stopped, "beats");
    assert_eq!(count(), number(&stopped, "count") + per_beat(other), "{samples} beats");
    end(instance);
}

fn a_module_in_c_that_is_cancelled_leaves_the_broker_well(backend: Backend) {
    let instance = instance(backend, 1);
    if !has_cancel(&instance) {
        say("skipped: a module in C that is cancelled, this Flux has no module remove --cancel");
        return end(instance);
    }
    let folder = tempfile::tempdir().unwrap();
    let module = module(&instance, &folder);
    for round in 1..4 {
        instance.load_file([0], &module, "cmodule", &["rate=1000"]).unwrap();
        let before = total(&instance, "cmodule.count");
        let count = || total(&instance, "cmodule.count");
        eventually("it counts", LIMIT, count, |&count| count > before);
        instance.cancel(0, "cmodule").unwrap();
        let gone = || instance.modules(0).unwrap();
        eventually("it is gone", LIMIT, gone, |modules| !modules.contains(&"cmodule".to_owned()));
        assert!(instance.rpc(0, "stats-agg.query", json!({})).is_ok(), "round {round}");
    }
    end(instance);
}
