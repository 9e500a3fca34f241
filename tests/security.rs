//! SECURITY.md's table, row by row: what has no suite of its own is here, and that each row's test exists.

use flux_testbed::{Backend, Instance, Options, workspace_root};
use serde_json::json;
use stats_core::{Node, NodeConfig, Now};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::time::Duration;
use tests::{complaints, eventually, facts, series};

const LIMIT: Duration = Duration::from_secs(40);
const PERIOD: Duration = Duration::from_millis(300);

facts! {
    a_guest_s_event_clears_nothing,
    nobody_ends_the_stream_of_another,
    a_guest_s_question_is_small_and_what_it_is_sent_is_bounded,
    what_lies_in_the_rundir_is_the_owner_s_alone,
    links_planted_in_the_rundir_are_not_followed,
    rubbish_from_a_rank_is_refused_counted_and_spoils_nothing,
    no_rank_can_keep_a_clear_from_being_made,
}

fn instance(backend: Backend, size: u32, arguments: &[&str]) -> Instance {
    let instance = Instance::start(Options { size, ..Options::new(backend) }).unwrap();
    instance.load(0..size, "stats-agg", &[&["period=300ms"], arguments].concat()).unwrap();
    instance
}

fn end(instance: Instance) {
    instance.remove(0..instance.size(), "stats-agg").unwrap();
    instance.stop().unwrap();
}

fn push(instance: &Instance, value: i64) {
    let metric = json!({ "name": "kept", "type": "counter", "value": value });
    instance.rpc(0, "stats-agg.push", json!({ "version": 1, "metrics": [metric] })).unwrap();
}

fn kept(instance: &Instance) -> Option<i64> {
    series(instance, "kept")["total"].as_i64()
}

fn a_guest_s_event_clears_nothing(backend: Backend) {
    let instance = instance(backend, 2, &["guest-query=true"]);
    push(&instance, 7);
    eventually("what was pushed", LIMIT, || kept(&instance), |kept| *kept == Some(7));
    let clear = json!({ "topic": "stats-agg.stats-clear", "flags": 0 });
    // Whoever may publish it (Flux lets guests publish events), it is not heard.
    let _ = instance.rpc_as_guest(0, "event.publish", clear.clone());
    std::thread::sleep(3 * PERIOD);
    assert_eq!(kept(&instance), Some(7));
    // The same of the owner is, which shows that the event is the right one.
    instance.rpc(0, "event.publish", clear).unwrap();
    eventually("the owner's clear", LIMIT, || kept(&instance), |kept| *kept != Some(7));
    end(instance);
}

fn nobody_ends_the_stream_of_another(backend: Backend) {
    let instance = instance(backend, 1, &["guest-query=true"]);
    let question = json!({ "match": ["stats-agg.*"], "stream": true });
    std::thread::scope(|scope| {
        let answers = scope.spawn(|| instance.stream(0, "stats-agg.query", &question, 10).unwrap());
        let open = || series(&instance, "stats-agg.streams")["sum"].as_i64();
        eventually("the stream is open", LIMIT, open, |open| *open == Some(1));
        for matchtag in 0..64 {
            instance.tell_as_guest(0, "stats-agg.cancel", &json!({ "matchtag": matchtag })).unwrap();
        }
        instance.tell_as_guest(0, "stats-agg.disconnect", &json!({})).unwrap();
        assert_eq!(answers.join().unwrap().len(), 10);
    });
    end(instance);
}

fn a_guest_s_question_is_small_and_what_it_is_sent_is_bounded(backend: Backend) {
    let instance = instance(backend, 1, &["guest-query=true"]);
    let ask = |patterns: &serde_json::Value| {
        instance.rpc_as_guest(0, "stats-agg.query", json!({ "match": patterns }))
    };
    let refused = ask(&json!(vec![1; 1 << 20])).unwrap_err();
    assert_eq!(refused.errnum(), Some(22), "{refused}");
    assert!(refused.to_string().contains("bytes: expected 1048576 at most"), "{refused}");

    let filler = "x".repeat(180);
    let metric = |n: u32| json!({ "name": format!("large.{filler}{n}"), "type": "counter", "value": 1 });
    for first in (0..8000).step_by(1000) {
        let metrics: Vec<_> = (first..first + 1000).map(metric).collect();
        instance.rpc(0, "stats-agg.push", json!({ "version": 1, "metrics": metrics })).unwrap();
    }
    let large = json!(["large.*"]);
    let refused = (0..40).find_map(|_| ask(&large).err()).unwrap();
    assert_eq!(refused.errnum(), Some(11), "{refused}");
    assert!(refused.to_string().contains("a guest may be sent 16777216 bytes at once"), "{refused}");
    // The owner is not held up, and the guest not for long.
    let whole = instance.rpc(0, "stats-agg.query", json!({ "match": large })).unwrap();
    assert_eq!(whole["series"].as_array().unwrap().len(), 8000);
    eventually("the guest may ask again", LIMIT, || ask(&json!(["kept"])), Result::is_ok).unwrap();
    end(instance);
}

/// What the service has in the rundir: name and mode of what a link leads to.
fn in_rundir(instance: &Instance) -> Vec<(String, u32)> {
    let entries = fs::read_dir(instance.rundir()).unwrap().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("stats-agg."));
    let mut found: Vec<_> = ours
        .filter_map(|entry| {
            let mode = fs::metadata(entry.path()).ok()?.mode() & 0o777;
            Some((entry.file_name().to_string_lossy().into_owned(), mode))
        })
        .collect();
    found.sort();
    found
}

fn what_lies_in_the_rundir_is_the_owner_s_alone(backend: Backend) {
    let instance = instance(backend, 1, &["statsd=unix:"]);
    let wanted = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 0o600)).collect::<Vec<_>>();
    assert_eq!(in_rundir(&instance), wanted(&["stats-agg.0.slots", "stats-agg.0.statsd"]));
    instance.remove([0], "stats-agg").unwrap();
    assert_eq!(in_rundir(&instance), wanted(&["stats-agg.0.custody"]));
    instance.stop().unwrap();
}

fn links_planted_in_the_rundir_are_not_followed(backend: Backend) {
    let instance = Instance::start(Options { size: 1, ..Options::new(backend) }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let victim = folder.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let plant = |names: &[&str]| {
        for name in names {
            let path = instance.rundir().join(format!("stats-agg.0.{name}"));
            let _ = fs::remove_file(&path);
            symlink(&victim, path).unwrap();
        }
    };
    plant(&["slots", "custody", "custody.new"]);
    // What may be in the way of a socket is never removed, since it may be another's: that load is refused.
    instance.load([0], "stats-agg", &["period=300ms"]).unwrap();
    plant(&["custody", "custody.new"]);
    instance.remove([0], "stats-agg").unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert_eq!(in_rundir(&instance), [("stats-agg.0.custody".to_owned(), 0o600)]);
    plant(&["statsd"]);
    let refused = instance.load([0], "stats-agg", &["statsd=unix:"]).is_err();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert!(fs::symlink_metadata(instance.rundir().join("stats-agg.0.statsd")).unwrap().is_symlink());
    if !refused {
        instance.remove([0], "stats-agg").unwrap();
    }
    instance.stop().unwrap();
}

fn rubbish_from_a_rank_is_refused_counted_and_spoils_nothing(backend: Backend) {
    let instance = instance(backend, 2, &[]);
    push(&instance, 7);
    for payload in [json!({}), json!({ "version": 99 }), json!({ "x": "y".repeat(1 << 20) })] {
        let refused = instance.rpc_via(1, 0, "stats-agg.merge", payload).unwrap_err().to_string();
        assert!(refused.contains("bad batch"), "{refused}");
    }
    let count = || series(&instance, "stats-agg.batches_refused")["total"].as_i64();
    eventually("refusals are counted", LIMIT, count, |count| *count == Some(3));
    eventually("the rest is whole", LIMIT, || kept(&instance), |kept| *kept == Some(7));
    assert_eq!(complaints(&instance, 0), Vec::<String>::new(), "nothing to fill a log with");
    end(instance);
}

/// A batch of rank 1 that says it comes after a clear which has not been: later ones would be old beside it.
fn no_rank_can_keep_a_clear_from_being_made(backend: Backend) {
    let instance = instance(backend, 2, &[]);
    push(&instance, 7);
    // From an event on, rank 0 knows where the instance is.
    let clear = || instance.rpc(0, "stats-agg.stats-clear", json!({})).unwrap();
    clear();
    eventually("a first clear", LIMIT, || kept(&instance), |kept| *kept != Some(7));
    let start = Now { mono_ns: 0, wall_ns: 0 };
    let config =
        NodeConfig { rank: 1, size: 2, level: 1, max_level: 1, epoch: 7, period: PERIOD, max_series: 100 };
    let mut liar = Node::new(config, start);
    liar.handle_clear(4_000_000_000);
    let now = Now { mono_ns: liar.next_deadline_ns(), wall_ns: 0 };
    liar.tick(now);
    let lie = liar.poll_transmit(now).unwrap().payload;
    let refused = instance.rpc_raw(0, "stats-agg.merge", &lie).unwrap_err().to_string();
    assert!(refused.contains("bad batch: of clear 4000000000, when the newest event"), "{refused}");
    push(&instance, 7);
    eventually("what was pushed", LIMIT, || kept(&instance), |kept| *kept == Some(7));
    clear();
    eventually("another clear", LIMIT, || kept(&instance), |kept| *kept != Some(7));
    end(instance);
}

/// Names in backquotes in the last column of the table: `FILE::TEST`, where FILE is without `.rs`.
#[test]
fn every_row_of_the_table_has_a_test() {
    let page = fs::read_to_string(workspace_root().join("SECURITY.md")).unwrap();
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() >= 15, "{} rows", rows.len());
    for row in rows {
        let proof = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let tests: Vec<_> = proof.split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "no test: {row}");
        for test in tests {
            let (file, name) =
                test.rsplit_once("::").unwrap_or_else(|| panic!("{test}: expected FILE::TEST"));
            assert!(
                has_test(&workspace_root().join(format!("{file}.rs")), name),
                "no {name} in {file}.rs: {row}"
            );
        }
    }
}

fn has_test(file: &Path, name: &str) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.contains(&format!("fn {name}(")))
}
