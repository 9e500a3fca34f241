//! What handles push: all of it at rank 0, once, whatever happens on the way.

use flux_testbed::{Backend, Error, Instance, Options, Stage};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tests::{Chance, complaints, eventually, facts, from_environment, push_seconds, query, say, series};

const LIMIT: Duration = Duration::from_secs(30);

facts! {
    three_kinds_of_programs_on_three_ranks_arrive_to_the_unit,
    modules_reloaded_at_random_lose_nothing_of_what_was_pushed,
    a_push_is_checked_counted_once_and_the_owner_s_alone,
    a_gauge_survives_a_reload_and_goes_after_its_time,
    what_is_counted_before_the_module_is_there_is_kept,
    a_dump_needs_no_module,
    a_shell_sends_what_it_counts,
    a_guest_pushes_when_allowed_under_names_of_its_own,
}

fn instance(backend: Backend, size: u32) -> Instance {
    Instance::start(Options { size, ..Options::new(backend) }).unwrap()
}

/// Asks for what is expected, until it is there; then it must stay.
fn settles(what: &str, mut ask: impl FnMut() -> i64, wanted: i64) {
    eventually(what, LIMIT, &mut ask, |&found| found >= wanted);
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(ask(), wanted, "{what}");
}

fn total(instance: &Instance, name: &str) -> i64 {
    series(instance, name)["total"].as_i64().unwrap_or(0)
}

/// The totals of a counter by the value of its tag `by`.
fn by_tag(instance: &Instance, name: &str, tag: &str) -> i64 {
    let answer = query(instance, &[name]);
    let tagged = answer["series"].as_array().into_iter().flatten().find(|one| one["tags"]["by"] == tag);
    tagged.map_or(0, |one| one.get("total").or(one.get("count")).and_then(Value::as_i64).unwrap_or(0))
}

fn three_kinds_of_programs_on_three_ranks_arrive_to_the_unit(backend: Backend) {
    let seconds = push_seconds();
    let instance = instance(backend, 4);
    instance.load(0..4, "stats-agg", &["period=500ms"]).unwrap();
    let ranks = [1, 2, 3];
    let said: Vec<(String, Value)> = std::thread::scope(|scope| {
        let instance = &instance;
        let modes = ["reactor", "plain", "once"];
        let runs = ranks.iter().flat_map(|&rank| modes.map(|mode| (rank, mode)));
        let runs: Vec<_> = runs
            .map(|(rank, mode)| {
                scope.spawn(move || {
                    let tag = format!("{mode}-{rank}");
                    let said = instance.run_own(rank, "push", &[mode, &seconds.to_string(), &tag]).unwrap();
                    (tag, serde_json::from_str(&said).unwrap())
                })
            })
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    for (tag, said) in &said {
        settles(tag, || by_tag(&instance, "push.count", tag), said["count"].as_i64().unwrap());
        assert_eq!(by_tag(&instance, "push.wait_s", tag), said["samples"].as_i64().unwrap(), "{tag}");
    }
    // A message for each period, of which the first is two seconds, one at the end, and none more: not by the call.
    let pushes = total(&instance, "stats-agg.pushes") as u64;
    let (least, most) = (3 * (2 * seconds / 2 + 1), 3 * (2 * (2 * seconds + 3) + 1));
    assert!((least..=most).contains(&pushes), "{pushes} pushes, expected {least} to {most}");
    instance.remove(0..4, "stats-agg").unwrap();
    instance.stop().unwrap();
}

/// `FLUX_STATS_RELOAD_SECONDS` (10) says for how long, `FLUX_STATS_RELOAD_SEED` in which order.
fn modules_reloaded_at_random_lose_nothing_of_what_was_pushed(backend: Backend) {
    const SIZE: u32 = 8;
    const LOADGEN: [&str; 2] = ["rate=200", "push=3"];
    const PERIOD: [&str; 1] = ["period=300ms"];
    let time = Duration::from_secs(from_environment("FLUX_STATS_RELOAD_SECONDS", 10));
    let seed = from_environment("FLUX_STATS_RELOAD_SEED", u64::from(std::process::id()));
    say(&format!("FLUX_STATS_RELOAD_SECONDS={} FLUX_STATS_RELOAD_SEED={seed}", time.as_secs()));
    let mut chance = Chance::new(seed);
    let instance = instance(backend, SIZE);
    instance.load(0..SIZE, "stats-agg", &PERIOD).unwrap();
    instance.load(0..SIZE, "loadgen", &LOADGEN).unwrap();
    let (mut pushed, mut beats, mut reloads) = (0_i64, 0_i64, [0_u32; 2]);
    let mut absent = BTreeSet::new();
    // What a loadgen says that has delivered everything; not before its rank has the module.
    let mut stop = |rank: u32| {
        let said = eventually(
            "loadgen has delivered what it pushed",
            LIMIT,
            || instance.rpc(rank, "loadgen.stop", json!({})),
            Result::is_ok,
        );
        let said = said.unwrap();
        pushed += said["pushed"].as_i64().unwrap();
        beats += said["wakeups"].as_i64().unwrap();
        instance.remove([rank], "loadgen").unwrap();
    };
    let (start, mut seen) = (Instant::now(), 0);
    while start.elapsed() < time {
        let rank = chance.below(SIZE);
        match chance.below(8) {
            // Gone for a while, or back.
            0 | 1 if absent.remove(&rank) => instance.load([rank], "stats-agg", &PERIOD).unwrap(),
            0 | 1 => {
                instance.remove([rank], "stats-agg").unwrap();
                absent.insert(rank);
            }
            2 if !absent.contains(&rank) => {
                stop(rank);
                instance.load([rank], "loadgen", &LOADGEN).unwrap();
                reloads[1] += 1;
            }
            _ if !absent.contains(&rank) => {
                instance.remove([rank], "stats-agg").unwrap();
                instance.load([rank], "stats-agg", &PERIOD).unwrap();
                reloads[0] += 1;
            }
            _ => {}
        }
        std::thread::sleep(Duration::from_millis(u64::from(chance.below(120))));
        if !absent.contains(&0) {
            let now = total(&instance, "loadgen.pushed");
            assert!(now >= seen, "the total fell from {seen} to {now}");
            seen = now;
        }
    }
    instance.load(absent.iter().copied(), "stats-agg", &PERIOD).unwrap();
    (0..SIZE).for_each(&mut stop);
    settles("all that was pushed", || total(&instance, "loadgen.pushed"), pushed);
    assert_eq!(series(&instance, "loadgen.beat_s")["count"].as_i64(), Some(beats));
    say(&format!(
        "{pushed} in {beats} beats; stats-agg reloaded {} times, loadgen {}",
        reloads[0], reloads[1]
    ));
    for rank in 0..SIZE {
        assert_eq!(complaints(&instance, rank), Vec::<String>::new());
    }
    instance.remove((0..SIZE).rev(), "stats-agg").unwrap();
    instance.stop().unwrap();
}

fn a_push_is_checked_counted_once_and_the_owner_s_alone(backend: Backend) {
    let instance = instance(backend, 2);
    instance.load(0..2, "stats-agg", &["period=300ms"]).unwrap();
    let counter = |name: &str, value: i64| json!({ "name": name, "type": "counter", "value": value });
    let push = |seq: u64, metrics: Value| {
        instance.rpc(1, "stats-agg.push", json!({ "version": 1, "id": "me", "seq": seq, "metrics": metrics }))
    };
    let first = json!([counter("app.a", 5), counter("modules.kvs.wakeups", 1)]);
    let answer = push(1, first.clone()).unwrap();
    assert_eq!(
        (&answer["accepted"], &answer["rank"], &answer["period"]),
        (&json!(1), &json!(1), &json!(0.3))
    );
    assert!(answer["refused"][0]["reason"].as_str().unwrap().contains("the service's own"), "{answer}");
    // Its answer was lost; the module is reloaded.
    instance.remove([1], "stats-agg").unwrap();
    instance.load([1], "stats-agg", &["period=300ms"]).unwrap();
    assert_eq!(push(1, first).unwrap()["repeat"], true);
    push(2, json!([counter("app.a", 10)])).unwrap();
    settles("the counter", || total(&instance, "app.a"), 15);
    let refused = query(&instance, &["stats-agg.refused"])["series"][0].clone();
    assert_eq!(refused["tags"], json!({ "prefix": "modules", "reason": "reserved" }));
    assert_eq!(refused["total"], 1);
    // Nothing of these is taken.
    for (payload, errnum, said) in [
        (json!({}), 22, "version: expected 1"),
        (json!({ "version": 1, "metrics": [counter("stats-agg.x", 1)] }), 22, "the service's own"),
        (
            json!({ "version": 1, "metrics": [{ "name": "a", "type": "gauge", "value": "NaN" }] }),
            22,
            "expected a number",
        ),
    ] {
        match instance.rpc(1, "stats-agg.push", payload) {
            Err(Error::Rpc { errnum: found, text, .. }) => {
                assert!(found == errnum && text.contains(said), "{found} {text}");
            }
            other => panic!("{other:?}"),
        }
    }
    let guest = instance.rpc_as_guest(1, "stats-agg.push", json!({ "version": 1, "metrics": [] }));
    assert_eq!(guest.unwrap_err().errnum(), Some(1));
    instance.remove(0..2, "stats-agg").unwrap();
    instance.stop().unwrap();
}

fn a_gauge_survives_a_reload_and_goes_after_its_time(backend: Backend) {
    let instance = instance(backend, 2);
    let load = || instance.load([1], "stats-agg", &["period=200ms", "ttl=4s"]).unwrap();
    instance.load([0], "stats-agg", &["period=200ms"]).unwrap();
    load();
    let push = json!({ "version": 1, "metrics": [{ "name": "app.depth", "type": "gauge", "value": 7 }] });
    instance.rpc(1, "stats-agg.push", push).unwrap();
    let depth = || series(&instance, "app.depth")["max"].clone();
    let seven = json!({ "value": 7, "rank": 1 });
    eventually("the gauge", LIMIT, depth, |found| *found == seven);
    instance.remove([1], "stats-agg").unwrap();
    eventually("it goes with its rank", LIMIT, depth, Value::is_null);
    load();
    eventually("and comes back with it", LIMIT, depth, |found| *found == seven);
    eventually("its time passes", LIMIT, depth, Value::is_null);
    instance.remove(0..2, "stats-agg").unwrap();
    instance.stop().unwrap();
}

fn what_is_counted_before_the_module_is_there_is_kept(backend: Backend) {
    let instance = instance(backend, 2);
    let said = std::thread::scope(|scope| {
        let run = scope.spawn(|| instance.run_own(1, "push", &["plain", "12", "early"]).unwrap());
        std::thread::sleep(Duration::from_secs(4));
        instance.load(0..2, "stats-agg", &["period=300ms"]).unwrap();
        run.join().unwrap()
    });
    let said: Value = serde_json::from_str(&said).unwrap();
    settles("all of it", || by_tag(&instance, "push.count", "early"), said["count"].as_i64().unwrap());
    instance.remove(0..2, "stats-agg").unwrap();
    instance.stop().unwrap();
}

fn a_dump_needs_no_module(backend: Backend) {
    let instance = instance(backend, 1);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump");
    let script = "FLUX_METRICS_DUMP=\"json:$1\" \"$0\" once 0 x";
    let program = instance.program("push").to_string_lossy().into_owned();
    instance.run(0, "sh", &["-c", script, &program, &path.to_string_lossy()]).unwrap();
    let dump: Value = serde_json::from_str(std::fs::read_to_string(&path).unwrap().trim()).unwrap();
    let wanted = json!({ "name": "push.count", "tags": { "by": "x" }, "type": "counter", "total": 1 });
    assert_eq!(dump["series"][0], wanted);
    assert_eq!(dump["series"][1]["count"], 1);
    // Nothing is written by whom nobody asked.
    let silent = instance.run(0, "sh", &["-c", "\"$0\" once 0 x 2>&1", &program]).unwrap();
    assert_eq!(silent, "{\"count\":1,\"samples\":1}\n");
    instance.stop().unwrap();
}

fn a_shell_sends_what_it_counts(backend: Backend) {
    let instance = instance(backend, 4);
    instance.load(0..4, "stats-agg", &["period=500ms"]).unwrap();
    let command = Stage::of_this_build().unwrap().command().to_string_lossy().into_owned();
    // Each value by a command of its own, then lines by one.
    let script = "i=0; end=$(($(date +%s) + $1)); while [ $(date +%s) -lt $end ]; do i=$((i+1)); \
        \"$0\" send push.count $i --tag by=$2; \"$0\" send push.wait_s 5 -t ms --tag by=$2; sleep 0.1; done; \
        n=0; while [ $n -lt 1000 ]; do n=$((n+1)); echo \"push.lines:2|c|#by:$2\"; done | \"$0\" send -; \
        \"$0\" send push.depth -7.5 -t g; \"$0\" send push.depth 2 -t g --add; \"$0\" send push.users $2 -t s; echo $i";
    let counted: Vec<(String, i64)> = std::thread::scope(|scope| {
        let (instance, command) = (&instance, &command);
        let runs = [1, 2, 3].map(|rank| {
            scope.spawn(move || {
                let (tag, seconds) = (format!("sh-{rank}"), push_seconds().to_string());
                let said = instance.run(rank, "sh", &["-c", script, command, &seconds, &tag]).unwrap();
                (tag, said.trim().parse().unwrap())
            })
        });
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    for (tag, times) in &counted {
        settles(tag, || by_tag(&instance, "push.count", tag), times * (times + 1) / 2);
        assert_eq!(by_tag(&instance, "push.wait_s", tag), *times, "{tag}");
        assert_eq!(by_tag(&instance, "push.lines", tag), 2000, "{tag}");
    }
    let depth = series(&instance, "push.depth");
    assert_eq!((&depth["count"], &depth["sum"]), (&json!(3), &json!(-16.5)), "each rank has its own");
    assert_eq!(series(&instance, "push.users")["estimate"], 3.0);
    // What is refused says why, and by whom.
    let refused = |arguments: &[&str]| instance.run(1, &command, arguments).unwrap_err().to_string();
    assert!(refused(&["send", "modules.kvs.mine", "1"]).contains("flux-stats: "), "a message of its own");
    assert!(refused(&["send", "modules.kvs.mine", "1"]).contains("are the service's own"));
    assert!(refused(&["send", "a", "1", "-t", "g", "--ttl=-1"]).contains("ttl=-1: expected a duration"));
    instance.remove([1], "stats-agg").unwrap();
    assert!(
        refused(&["send", "a", "1"]).contains("stats-agg is not loaded on rank 1: run `flux stats load`")
    );
    instance.remove([0, 2, 3], "stats-agg").unwrap();
    instance.stop().unwrap();
}

fn a_guest_pushes_when_allowed_under_names_of_its_own(backend: Backend) {
    const GUEST: &str = "guests.65534";
    let instance = instance(backend, 2);
    let command = Stage::of_this_build().unwrap().command().to_string_lossy().into_owned();
    // As a job of another user: with that user's rights, and nothing else set. The double knows no such setting: there
    // a guest's client says what the command would.
    let send = |name: &str, value: i64, tag: Option<&str>| {
        if let Backend::Real(_) = instance.backend() {
            let tag = tag.map(|tag| format!("--tag {tag}")).unwrap_or_default();
            let guest = "FLUX_HANDLE_USERID=65534 FLUX_HANDLE_ROLEMASK=2";
            let script = format!("{guest} \"$0\" send {name} {value} {tag} 2>&1 || true");
            return instance.run(1, "sh", &["-c", &script, &command]).unwrap();
        }
        let tags: Value = tag.and_then(|tag| tag.split_once('=')).into_iter().collect();
        let metric = json!({ "name": name, "type": "counter", "value": value, "tags": tags });
        let push = json!({ "version": 1, "metrics": [metric] });
        instance
            .rpc_as_guest(1, "stats-agg.push", push)
            .err()
            .map_or(String::new(), |error| error.to_string())
    };
    instance.load(0..2, "stats-agg", &["period=300ms"]).unwrap();
    assert!(send("app.runs", 1, None).contains("guest-push=true"), "the default");
    instance.remove(0..2, "stats-agg").unwrap();
    instance.load(0..2, "stats-agg", &["period=300ms", "guest-push=true", "guest-series=3"]).unwrap();
    assert_eq!(send("app.runs", 5, None), "");
    assert_eq!(send("app.runs", 2, Some("jobid=f1")), "");
    instance.run(1, &command, &["send", "app.runs", "100"]).unwrap();
    let runs = || {
        let found = query(&instance, &[&format!("{GUEST}.app.runs")])["series"].clone();
        found.as_array().unwrap().iter().map(|one| one["total"].as_i64().unwrap()).sum()
    };
    settles("what the guest pushed", runs, 7);
    assert_eq!(total(&instance, "app.runs"), 100, "the owner's is another one");
    // Another's names, the service's, more than its quota.
    assert!(send("guests.0.app.runs", 1, None).contains("the service's own"));
    assert!(send("modules.kvs.wakeups", 1, None).contains("the service's own"));
    assert_eq!(send("app.more", 1, None), "");
    assert!(send("app.evenmore", 1, None).contains("guests.65534 may have 3 series (guest-series)"));
    let refused = || series(&instance, "stats-agg.refused")["tags"]["prefix"].clone();
    eventually("refusals are counted as guests'", LIMIT, refused, |prefix| prefix == "guests");
    // More than its budget: to be sent again, unless it is always too much.
    let push = || instance.rpc_as_guest(1, "stats-agg.push", json!({ "version": 1, "metrics": [] }));
    let said: Vec<Option<i32>> = (0..2000).filter_map(|_| push().err()).map(|error| error.errnum()).collect();
    let big = json!({ "version": 1, "metrics": [], "id": "x".repeat(1 << 20), "seq": 1 });
    let too_much = instance.rpc_as_guest(1, "stats-agg.push", big).unwrap_err();
    assert!(too_much.to_string().contains("a guest's push may have 1048576"), "{too_much}");
    assert!(said.iter().all(|errnum| *errnum == Some(11)), "{said:?}");
    // What the owner has besides stays the owner's.
    assert_eq!(instance.rpc_as_guest(1, "stats-agg.merge", json!({})).unwrap_err().errnum(), Some(1));
    assert_eq!(instance.rpc_as_guest(0, "stats-agg.query", json!({})).unwrap_err().errnum(), Some(1));
    // And when the guest is gone, so are its series, after their time: here a short one, that begins with the load.
    instance.remove(0..2, "stats-agg").unwrap();
    instance.load(0..2, "stats-agg", &["period=300ms", "guest-push=true", "ttl=1s"]).unwrap();
    let left = || query(&instance, &["guests.**"])["series"].clone();
    eventually("they have ended", LIMIT, left, |left| *left == json!([]));
    assert_eq!(total(&instance, "app.runs"), 100);
    instance.remove(0..2, "stats-agg").unwrap();
    for rank in 0..2 {
        assert_eq!(complaints(&instance, rank), Vec::<String>::new());
    }
    instance.stop().unwrap();
}
