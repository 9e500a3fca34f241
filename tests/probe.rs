//! The probe in depth, on whole instances: whose numbers are whose, and what each module does now.

use flux_testbed::{Backend, Instance, Options, Stage};
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tests::{complaints, eventually, facts, has_cancel, number, query, say, series, tree};

/// Far beyond what is awaited: a test fails by what it sees, not by how long it took.
const LIMIT: Duration = Duration::from_secs(30);

facts! {
    a_name_that_the_kernel_cuts_is_counted_once_and_whole,
    two_modules_whose_names_are_cut_to_the_same_are_told_apart_or_flagged,
    brokers_are_read_from_outside_though_they_are_stopped_or_a_module_hangs,
    a_module_that_spins_is_stalled_at_rank_0_with_its_rank_and_age,
    a_module_that_hung_before_anybody_looked_is_stalled_too,
    an_answer_says_where_its_numbers_come_from,
    the_longest_names_its_rank_and_when_it_was,
    outside_of_the_broker_proc_is_read_and_one_line_says_why,
    the_service_s_own_account_is_what_the_hook_tells_of_it,
    under_jobs_the_blocked_column_names_who_waits_in_calls,
}

fn instance(backend: Backend, size: u32) -> Instance {
    Instance::start(Options { size, ..Options::new(backend) }).unwrap()
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
    eventually("all of it is there", LIMIT, || total(&instance, NAME), |&total| total >= own);
    // And nothing comes after it.
    std::thread::sleep(Duration::from_secs(2));
    is_about(total(&instance, NAME), own);
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
        eventually(name, LIMIT, || total(&instance, name), |&total| total >= own);
        std::thread::sleep(Duration::from_secs(2));
        is_about(total(&instance, name), own);
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

/// What `flux stats peek --json` prints of the brokers of an instance.
fn peek(instance: &Instance) -> Value {
    let command = Stage::of_this_build().unwrap().command();
    let rundir = instance.rundir().to_string_lossy();
    let text = instance.run(0, &command.to_string_lossy(), &["peek", "--json", &rundir]).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn peeked<'a>(peek: &'a Value, rank: usize, module: &str) -> &'a Value {
    let threads = peek["brokers"][rank]["threads"].as_array().unwrap();
    let found = threads.iter().find(|thread| thread["module"] == module);
    found.unwrap_or_else(|| panic!("{module} is not on rank {rank}: {peek:#}"))
}

fn brokers_are_read_from_outside_though_they_are_stopped_or_a_module_hangs(backend: Backend) {
    const SPINNING: &str = "loadgen-that-spins-for-long";
    let instance = instance(backend, 3);
    let pid = instance.broker_pid(2).unwrap();
    let signal = |name: &str| {
        instance.run(0, "sh", &["-c", "kill -s \"$0\" \"$1\"", name, &pid.to_string()]).unwrap();
    };
    instance.load(0..3, "stats-agg", &["period=500ms", "stall=1m"]).unwrap();
    instance.load_as([1], "loadgen", SPINNING, &["spin=6s"]).unwrap();
    let table = instance.rundir().join("stats-agg.1.slots");
    let mode = std::fs::metadata(&table).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o600, "of the owner alone: {mode:o}");
    std::thread::sleep(Duration::from_secs(2));
    signal("STOP");
    let seen =
        eventually("it is stopped", LIMIT, || peek(&instance), |seen| seen["brokers"][2]["stopped"] == true);
    assert_eq!(seen["brokers"].as_array().unwrap().len(), 3);
    assert_eq!(seen["brokers"][2]["pid"], pid);
    let spinning = peeked(&seen, 1, SPINNING);
    assert_eq!(spinning["state"], "working", "{spinning}");
    let turn_s = number(&spinning["turn_s"]);
    assert!(turn_s > 1.5 && turn_s < 6.5, "{spinning}");
    // Its first turn has no end yet, and it is first of its broker.
    assert_eq!(seen["brokers"][1]["threads"][0], *spinning);
    for rank in 0..3 {
        let broker = peeked(&seen, rank, "broker");
        assert!(number(&broker["turns"]["wakeups"]) > 0.0, "{broker}");
        assert!(peeked(&seen, rank, "stats-agg")["turns"]["work_p99_s"].is_number());
    }
    // Stopped, its time goes on where it was.
    std::thread::sleep(Duration::from_millis(500));
    let later = peek(&instance);
    let slept = |seen: &Value| number(&peeked(seen, 2, "broker")["turns"]["sleep_s"]);
    let worked = |seen: &Value| number(&peeked(seen, 2, "broker")["turns"]["work_s"]);
    assert!(slept(&later) + worked(&later) > slept(&seen) + worked(&seen) + 0.5);
    if let Backend::Real(flux) = instance.backend() {
        // As a user would, with the command where flux finds it.
        let folder = Stage::of_this_build().unwrap().command().parent().unwrap().to_owned();
        let path = format!("FLUX_EXEC_PATH={}", folder.display());
        let text = instance.run(0, "env", &[&path, &flux.to_string_lossy(), "stats", "peek"]).unwrap();
        assert!(text.contains(&format!("rank 2: pid {pid}, STOPPED")), "{text}");
        let row = text.lines().find(|line| line.contains(SPINNING)).unwrap();
        assert!(row.contains("working"), "{text}");
    }
    signal("CONT");
    instance.remove([1], SPINNING).unwrap();
    instance.remove(0..3, "stats-agg").unwrap();
    assert!(!table.is_symlink(), "the table is withdrawn");
    assert_eq!(complaints(&instance, 1), Vec::<String>::new());
    instance.stop().unwrap();
}

/// Twenty seconds on rank 5 of eight, with all defaults.
fn a_module_that_spins_is_stalled_at_rank_0_with_its_rank_and_age(backend: Backend) {
    const STALL: Duration = Duration::from_secs(5);
    const PERIOD: Duration = Duration::from_secs(2);
    let instance = instance(backend, 8);
    instance.load(0..8, "stats-agg", &[]).unwrap();
    let parent = instance.broker_pid(2).unwrap();
    let signal = |name: &str| {
        instance.run(0, "sh", &["-c", "kill -s \"$0\" \"$1\"", name, &parent.to_string()]).unwrap();
    };
    let stalled = || series(&instance, "modules.loadgen.stalled");
    instance.load([5], "loadgen", &["spin=20s"]).unwrap();
    let spins = Instant::now();
    assert_eq!(stalled(), Value::Null);
    let seen = eventually("it is stalled", LIMIT, stalled, |seen| !seen.is_null());
    let after = spins.elapsed();
    assert!(after < STALL + 2 * PERIOD + Duration::from_secs(1), "seen after {after:?}");
    assert_eq!((&seen["count"], &seen["max"]["rank"]), (&json!(1), &json!(5)), "{seen}");
    let age = number(&seen["max"]["value"]);
    assert!(age >= STALL.as_secs_f64() && age <= after.as_secs_f64() + 0.5, "{seen} after {after:?}");
    // Its age goes on.
    eventually("it is older", LIMIT, || number(&stalled()["max"]["value"]), |&later| later >= age + 1.5);

    // Its broker's parent is silent: nothing comes to rank 0 any more, and the node itself still tells.
    signal("STOP");
    let there = peek(&instance);
    assert!(there["brokers"][2]["stopped"] == true && peeked(&there, 5, "loadgen")["state"] == "working");
    assert!(number(&peeked(&there, 5, "loadgen")["turn_s"]) > age);
    signal("CONT");

    eventually("it goes when it is over", LIMIT, stalled, Value::is_null);
    assert!(spins.elapsed() >= Duration::from_secs(20));
    let log = instance.log(5).unwrap();
    let lines: Vec<_> = log.iter().filter(|line| line.contains("module loadgen ")).collect();
    assert!(lines.len() == 2 && lines[0].contains("stats-agg.warning[5]"), "{lines:?}");
    assert!(lines[0].contains("has been working for") && lines[1].contains("is back"), "{lines:?}");
    // The whole of it is in the books.
    assert!(number(&series(&instance, "modules.loadgen.work_s")["total"]) >= 20.0);
    assert!(number(&series(&instance, "modules.loadgen.longest_work_s")["max"]["value"]) >= 20.0);
    instance.remove([5], "loadgen").unwrap();
    instance.remove(0..8, "stats-agg").unwrap();
    instance.stop().unwrap();
}

/// It has not come by the hook, or there is none: the kernel says that it has run without a pause.
fn a_module_that_hung_before_anybody_looked_is_stalled_too(backend: Backend) {
    let instance = instance(backend, 1);
    for probe in ["probe=attach", "probe=proc"] {
        instance.load([0], "loadgen", &["spin=8s"]).unwrap();
        instance.load_as([0], "loadgen", "well", &["rate=20"]).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        let start = Instant::now();
        instance.load([0], "stats-agg", &["period=500ms", "stall=1s", probe]).unwrap();
        let stalled = || series(&instance, "modules.loadgen.stalled")["max"]["value"].clone();
        let age = eventually("it is stalled", LIMIT, stalled, Value::is_number);
        // Since it was first looked at, not since it began.
        assert!((1.0..=start.elapsed().as_secs_f64() + 0.1).contains(&number(&age)), "{age}");
        assert!(series(&instance, "modules.well.stalled").is_null());
        eventually("it goes when it is over", LIMIT, stalled, Value::is_null);
        ["loadgen", "well", "stats-agg"].iter().for_each(|name| instance.remove([0], name).unwrap());
    }
    instance.stop().unwrap();
}

/// On how many ranks a module's numbers come from each source.
fn sources(instance: &Instance, module: &str) -> Value {
    tree(instance)["modules"][module]["source"].as_object().map_or(Value::Null, |sources| {
        sources.iter().map(|(source, ranks)| (source.clone(), ranks["sum"].clone())).collect()
    })
}

fn an_answer_says_where_its_numbers_come_from(backend: Backend) {
    let instance = instance(backend, 2);
    instance.load(0..2, "stats-agg", &["period=500ms"]).unwrap();
    instance.load(0..2, "loadgen", &["rate=20"]).unwrap();
    let of_loadgen = || sources(&instance, "loadgen");
    eventually("hooked on both", LIMIT, of_loadgen, |sources| *sources == json!({ "attach": 2 }));
    if matches!(instance.backend(), Backend::Real(_)) && has_cancel(&instance) {
        // A process, since 0.88.
        assert_eq!(sources(&instance, "sched-simple"), json!({ "proc": 1 }));
    }
    instance.remove([1], "stats-agg").unwrap();
    instance.load([1], "stats-agg", &["period=500ms", "probe=proc"]).unwrap();
    let both = json!({ "attach": 1, "proc": 1 });
    eventually("hooked on one", LIMIT, of_loadgen, |sources| *sources == both);
    // The kernel counts no turns.
    let wakeups = || series(&instance, "modules.loadgen.longest_work_s")["count"].clone();
    eventually("and timed on one", LIMIT, wakeups, |count| *count == 1);
    instance.remove(0..2, "loadgen").unwrap();
    instance.remove(0..2, "stats-agg").unwrap();
    instance.stop().unwrap();
}

fn the_longest_names_its_rank_and_when_it_was(backend: Backend) {
    let instance = instance(backend, 3);
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    instance.load(0..3, "stats-agg", &["period=500ms"]).unwrap();
    instance.load_as(0..3, "loadgen", "holder", &[]).unwrap();
    instance.load([0], "loadgen", &["rate=20", "busy=1ms", "block=1ms"]).unwrap();
    let spins = clock();
    instance.load([2], "loadgen", &["spin=2s"]).unwrap();
    let longest = |of: &str| series(&instance, &format!("modules.loadgen.{of}"))["max"].clone();
    let is = |max: &Value, rank: u32, least: f64| max["rank"] == rank && number(&max["value"]) >= least;
    let seen =
        eventually("rank 2 is the longest", LIMIT, || longest("longest_work_s"), |max| is(max, 2, 2.0));
    // It ended two seconds after it began, or a little later.
    let ended = number(&seen["time"]) - spins;
    assert!((1.0..4.5).contains(&ended), "{seen}: {ended} s after the load");

    let before = number(&series(&instance, "modules.loadgen.blocked_calls")["total"]);
    instance.load([1], "loadgen", &["rate=2", "block=300ms"]).unwrap();
    let seen = || longest("longest_blocked_s");
    let seen = eventually("rank 1 is the longest", LIMIT, seen, |max| is(max, 1, 0.3));
    assert!(number(&seen["value"]) < 1.0, "{seen}");
    assert!((number(&seen["time"]) - clock()).abs() < 5.0, "{seen}");
    let after = number(&series(&instance, "modules.loadgen.blocked_calls")["total"]);
    assert!(after >= before + 1.0 && before > 0.0, "{after} after {before}");
    instance.remove(0..3, "loadgen").unwrap();
    instance.remove(0..3, "holder").unwrap();
    instance.remove(0..3, "stats-agg").unwrap();
    instance.stop().unwrap();
}

/// Loaded with `--exec`, in a process of its own, there is no libflux of the broker's to hook.
fn outside_of_the_broker_proc_is_read_and_one_line_says_why(backend: Backend) {
    let instance = instance(backend, 1);
    if instance.backend() == &Backend::Embedded || !has_cancel(&instance) {
        say("skipped: stats-agg as a process of its own, this broker runs modules as threads only");
        return instance.stop().unwrap();
    }
    let file = Stage::of_this_build().unwrap().module("stats-agg");
    let load = json!({ "path": file, "name": "stats-agg", "args": ["period=500ms"], "exec": true });
    instance.rpc(0, "module.load", load).unwrap();
    let kvs = || tree(&instance)["modules"]["kvs"].clone();
    let seen = eventually("kvs is there", LIMIT, kvs, |kvs| kvs["cpu_s"].is_number());
    assert_eq!(sources(&instance, "kvs"), json!({ "proc": 1 }));
    assert!(seen["wakeups"].is_null(), "{seen}");
    let log = instance.log(0).unwrap();
    let lines: Vec<_> = log.iter().filter(|line| line.contains("falling back to probe=proc")).collect();
    assert!(lines.len() == 1 && lines[0].contains("stats-agg.info[0]"), "{log:?}");
    assert!(lines[0].contains("this process is not the broker"), "{lines:?}");
    assert_eq!(complaints(&instance, 0), Vec::<String>::new());
    instance.remove([0], "stats-agg").unwrap();
    instance.stop().unwrap();
}

/// Watchers of its own against the hook: the same turns, and the same time but for what lies between the two.
fn the_service_s_own_account_is_what_the_hook_tells_of_it(backend: Backend) {
    let instance = instance(backend, 1);
    instance.load([0], "stats-agg", &["period=200ms"]).unwrap();
    // Of one answer, so of one moment: wakeups, sleep and work, as itself and as the hook has them.
    let look = || {
        let of = "{wakeups,sleep_s,work_s}";
        let answer =
            query(&instance, &[&format!("stats-agg.reactor.{of}"), &format!("modules.stats-agg.{of}")]);
        let total = |name: &str, of: &str| {
            let name = format!("{name}.{of}");
            let all = answer["series"].as_array().unwrap();
            all.iter().find(|series| series["name"] == name).map_or(0.0, |series| number(&series["total"]))
        };
        ["stats-agg.reactor", "modules.stats-agg"]
            .map(|who| ["wakeups", "sleep_s", "work_s"].map(|of| total(who, of)))
    };
    let before = eventually("it turns", LIMIT, look, |[own, hook]| own[0] > 10.0 && hook[0] > 10.0);
    let after = eventually("and turns", LIMIT, look, |[own, _]| own[0] > before[0][0] + 100.0);
    let gained = |who: usize, of: usize| after[who][of] - before[who][of];
    let turns = gained(1, 0);
    assert!((gained(0, 0) - turns).abs() <= 1.0, "{before:?} {after:?}");
    // Between the watchers and the wait libev does its own work.
    for of in [1, 2] {
        let (own, hook) = (gained(0, of), gained(1, of));
        let aside = 50e-6 * turns;
        assert!(
            (own - hook).abs() <= 0.02 * hook + aside,
            "{own} by itself, {hook} by the hook, {turns} turns"
        );
    }
    instance.remove([0], "stats-agg").unwrap();
    instance.stop().unwrap();
}

/// flux-core #6690: in 0.70 kvs-watch and job-exec make synchronous RPCs for every job, in the newest neither does.
fn under_jobs_the_blocked_column_names_who_waits_in_calls(backend: Backend) {
    const JOBS: u32 = 100;
    let instance = instance(backend, 1);
    if instance.backend() == &Backend::Embedded {
        say("skipped: modules under jobs, the double has none");
        return instance.stop().unwrap();
    }
    instance.load([0], "stats-agg", &["period=500ms"]).unwrap();
    let calls = |name: &str| {
        series(&instance, &format!("modules.{name}.blocked_calls"))["total"].as_f64().unwrap_or(0.0)
    };
    eventually(
        "job-exec is there",
        LIMIT,
        || series(&instance, "modules.job-exec.blocked_s"),
        |seen| !seen.is_null(),
    );
    let before = ["kvs-watch", "job-exec"].map(calls);
    instance.churn(JOBS).unwrap();
    // Two periods.
    std::thread::sleep(Duration::from_secs(2));
    let after = ["kvs-watch", "job-exec"].map(calls);
    let gained = [after[0] - before[0], after[1] - before[1]];
    let version = instance.rpc(0, "attr.get", json!({ "name": "version" })).unwrap();
    let version = version["value"].as_str().unwrap().to_owned();
    let answer = query(&instance, &["modules.*.blocked_s"]);
    let mut column: Vec<(f64, &str)> = answer["series"]
        .as_array()
        .unwrap()
        .iter()
        .map(|series| (number(&series["total"]), series["name"].as_str().unwrap()))
        .collect();
    column.sort_by(|a, b| b.0.total_cmp(&a.0));
    say(&format!(
        "flux-core {version}, {JOBS} jobs: kvs-watch and job-exec blocked {gained:?} times; most: {:?}",
        &column[..3]
    ));
    if version.starts_with("0.70.") {
        assert!(gained.iter().all(|&calls| calls >= 0.9 * f64::from(JOBS)), "{gained:?}");
        let first: Vec<_> = column.iter().take(3).map(|(_, name)| *name).collect();
        assert!(first.contains(&"modules.kvs-watch.blocked_s"), "{column:?}");
    } else {
        assert!(gained[0] <= 3.0 && gained[1] <= 3.0, "{gained:?}");
    }
    instance.remove([0], "stats-agg").unwrap();
    instance.stop().unwrap();
}
