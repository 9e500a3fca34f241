//! The main job on whole instances: every module's wakeups, of every rank, from rank 0.

use flux_testbed::{Backend, Error, Instance, Options};
use serde_json::{Value, json};
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tests::{complaints, coverage, eventually, facts, number, query, say, series, tree};

const PERIOD: Duration = Duration::from_millis(500);
/// Far beyond what is awaited: a test fails by what it sees, not by how long it took.
const LIMIT: Duration = Duration::from_secs(30);

fn instance(backend: Backend, size: u32) -> Instance {
    Instance::start(Options { size, ..Options::new(backend) }).unwrap()
}

facts! {
    every_module_of_every_rank_is_summed_at_rank_0,
    a_module_s_wakeups_grow_with_its_activity,
    a_known_load_is_reported_as_what_it_is,
    an_interior_rank_without_the_module_delays_nothing,
    the_order_of_loading_does_not_matter,
    a_killed_broker_is_listed_as_missing_and_the_rest_goes_on,
    reloading_under_load_loses_nothing_and_leaves_no_trace,
    a_clear_reaches_all_ranks_once,
    a_guest_is_answered_only_when_allowed,
    time_in_a_synchronous_rpc_is_blocked,
}

/// Fact 1 of the skeleton: within two periods, all modules of all ranks, no environment set, nothing restarted.
fn every_module_of_every_rank_is_summed_at_rank_0(backend: Backend) {
    let instance = instance(backend, 8);
    let before: Vec<Vec<String>> = (0..8).map(|rank| instance.modules(rank).unwrap()).collect();
    instance.load(0..8, "stats-agg", &["period=2s"]).unwrap();
    // Two periods of two seconds, and the last batch's way up.
    std::thread::sleep(Duration::from_millis(4500));
    let answer = query(&instance, &["modules.*.*"]);
    assert_eq!(coverage(&answer), ("0-7".into(), String::new()));
    assert_eq!(answer["instance"]["size"], 8);
    let tree = tree(&instance);
    let modules = &tree["modules"];
    for name in before.iter().flatten().chain(&["broker".to_owned(), "stats-agg".to_owned()]) {
        let module = &modules[name.replace('.', "_")];
        for key in ["cpu_s", "runq_wait_s", "switches_voluntary", "switches_involuntary"] {
            assert!(module[key].is_number(), "{name}.{key}: {module}");
        }
        // A module that is a process of its own has no turns that could be seen from here.
        if name != "sched-simple" || instance.backend() == &Backend::Embedded {
            for key in ["wakeups", "work_s", "sleep_s", "blocked_s"] {
                assert!(module[key].is_number(), "{name}.{key}: {module}");
            }
        }
    }
    // Summed: eight brokers' loops are eight times as much wall time as has passed.
    let broker = &modules["broker"];
    let wall = number(&broker["sleep_s"]) + number(&broker["work_s"]) + number(&broker["blocked_s"]);
    let loaded_for = number(&answer["time"]) - number(&answer["instance"]["start_time"]);
    assert!(wall > 8.0 && wall < 8.0 * loaded_for, "{wall} s on 8 ranks after {loaded_for} s");
    assert!(number(&broker["wakeups"]) > 0.0);
    let longest = series(&instance, "modules.broker.longest_work_s");
    assert_eq!(longest["count"], 8, "{longest}");
    instance.remove(0..8, "stats-agg").unwrap();
    instance.stop().unwrap();
}

/// Fact 2: one number, which grows.
fn a_module_s_wakeups_grow_with_its_activity(backend: Backend) {
    let instance = instance(backend, 2);
    instance.load(0..2, "stats-agg", &["period=500ms"]).unwrap();
    let wakeups = || match instance.backend() {
        Backend::Real(flux) => {
            let parse = ["module", "stats", "--parse", "modules.kvs.wakeups", "stats-agg"];
            instance.run(0, &flux.to_string_lossy(), &parse).unwrap().trim().parse::<f64>().unwrap()
        }
        Backend::Embedded => number(&tree(&instance)["modules"]["kvs"]["wakeups"]),
    };
    eventually(
        "kvs is there",
        LIMIT,
        || tree(&instance),
        |tree| tree["modules"]["kvs"]["wakeups"].is_number(),
    );
    let before = wakeups();
    instance.churn(50).unwrap();
    // One wakeup may serve several requests.
    eventually("kvs woke up for 50 jobs", LIMIT, wakeups, |&after| after >= before + 10.0);
    instance.remove(0..2, "stats-agg").unwrap();
    instance.stop().unwrap();
}

/// What the loadgens on `ranks` say of themselves: wakeups and seconds of work, summed.
fn own_figures(instance: &Instance, ranks: &[u32]) -> (f64, f64) {
    let own = |&rank: &u32| instance.rpc(rank, "loadgen.stats-get", json!({})).unwrap();
    ranks.iter().map(own).fold((0.0, 0.0), |(wakeups, busy), own| {
        (wakeups + number(&own["wakeups"]), busy + number(&own["busy_s"]))
    })
}

/// Fact 3: 300 wakeups a second (±2 %) and 20 % work (±1 point) on each of three ranks, the maximum's rank named.
///
/// A busy machine makes loadgen itself wake less often and work longer, and it says so: what it did is held against
/// what is reported on any machine, and the round numbers against both where the machine lets it keep them.
fn a_known_load_is_reported_as_what_it_is(backend: Backend) {
    const LOADED: [u32; 3] = [2, 4, 6];
    const WAKEUPS: f64 = 300.0;
    const WORK: f64 = 0.6;
    let instance = instance(backend, 7);
    instance.load(0..7, "stats-agg", &["period=2s"]).unwrap();
    instance.load(LOADED, "loadgen", &["rate=100", "busy=2ms"]).unwrap();
    let near = |value: f64, wanted: f64, by: f64| (value - wanted).abs() <= by;
    let kept = |wakeups: f64, work: f64| near(wakeups, WAKEUPS, 6.0) && near(work, WORK, 0.03);
    let ask = || query(&instance, &["modules.loadgen.{wakeups,work_s}"]);
    let rates = |answer: &Value| {
        let rate = |at: usize| answer["series"][at]["rate"].as_f64().unwrap_or(0.0);
        (rate(0), rate(1))
    };
    // Until a period is reported with the round numbers, or loadgen has had a fair time without keeping them.
    let (start, mut row) = (Instant::now(), 0);
    let (mut before, mut since) = (own_figures(&instance, &LOADED), Instant::now());
    let answer = loop {
        std::thread::sleep(4 * PERIOD);
        let (own, now) = (own_figures(&instance, &LOADED), Instant::now());
        let seconds = (now - since).as_secs_f64();
        let (its_wakeups, its_work) = ((own.0 - before.0) / seconds, (own.1 - before.1) / seconds);
        (before, since) = (own, now);
        let answer = ask();
        let (wakeups, work) = rates(&answer);
        if kept(wakeups, work) {
            break answer;
        }
        // What is reported is some seconds old: a long enough row of windows with the round numbers must show.
        // Well within the bound, that is, so that not the rounding decides.
        let round = near(its_wakeups, WAKEUPS, 3.0) && near(its_work, WORK, 0.015);
        row = if round { row + 1 } else { 0 };
        assert!(row < 4, "reported {wakeups}/s, {work} s/s; loadgen kept {its_wakeups}/s, {its_work} s/s");
        if start.elapsed() > LIMIT && row == 0 {
            say(&format!(
                "the machine is too busy for round numbers: loadgen itself has {its_wakeups:.1}/s, {its_work:.3} s/s"
            ));
            break answer;
        }
    };
    let (wakeups, work) = (&answer["series"][0], &answer["series"][1]);
    assert_eq!(
        (wakeups["name"].as_str(), wakeups["type"].as_str()),
        (Some("modules.loadgen.wakeups"), Some("counter"))
    );
    for series in [wakeups, work] {
        let rank = series["max"]["rank"].as_u64().unwrap();
        assert!(LOADED.iter().any(|&loaded| u64::from(loaded) == rank), "{series}");
    }
    let timer = series(&instance, "modules.loadgen.work_per_wakeup_s");
    assert!(number(&timer["count"]) > 300.0 && number(&timer["p50"]) >= 0.001, "{timer}");

    // To the end: every wakeup and every second that loadgen has counted is in the totals of rank 0.
    let own = own_figures(&instance, &LOADED);
    instance.remove(LOADED, "loadgen").unwrap();
    let totals = || {
        let answer = ask();
        let total = |at: usize| number(&answer["series"][at]["total"]);
        (total(0), total(1))
    };
    let (wakeups, work) = eventually("all that loadgen counted", LIMIT, totals, |&(wakeups, work)| {
        wakeups >= own.0 && work >= own.1
    });
    // Its turns for anything but its timer are few, as is its work beside the known one.
    assert!(wakeups <= 1.02 * own.0 + 60.0, "{wakeups} wakeups, of which its own are {}", own.0);
    assert!(work <= 1.05 * own.1 + 0.3, "{work} s of work, of which its own are {}", own.1);
    instance.remove(0..7, "stats-agg").unwrap();
    instance.stop().unwrap();
}

/// Fact 4, first half.
fn an_interior_rank_without_the_module_delays_nothing(backend: Backend) {
    let instance = instance(backend, 7);
    // Ranks 1 and 2 are the interior of a binary tree of seven; 1 is left out, and so is leaf 6.
    let ranks = [0, 2, 3, 4, 5];
    instance.load(ranks, "stats-agg", &["period=500ms"]).unwrap();
    let ask = || coverage(&query(&instance, &["none"]));
    eventually("all but 1 and 6", LIMIT, ask, |found| *found == ("0,2-5".into(), "1,6".into()));
    // Their numbers arrive, and go on arriving.
    let ask = || series(&instance, "modules.broker.longest_work_s")["count"].clone();
    eventually("gauges of five ranks", LIMIT, ask, |count| *count == 5);
    std::thread::sleep(4 * PERIOD);
    assert_eq!(ask(), 5);
    // The interior rank may come later, and go again.
    instance.load([1], "stats-agg", &["period=500ms"]).unwrap();
    let ask = || coverage(&query(&instance, &["none"]));
    eventually("all but 6", LIMIT, ask, |found| *found == ("0-5".into(), "6".into()));
    instance.remove([1], "stats-agg").unwrap();
    eventually("all but 1 and 6", LIMIT, ask, |found| *found == ("0,2-5".into(), "1,6".into()));
    instance.remove(ranks, "stats-agg").unwrap();
    instance.stop().unwrap();
}

/// Fact 4: leaves first, rank 0 last.
fn the_order_of_loading_does_not_matter(backend: Backend) {
    let instance = instance(backend, 7);
    instance.load((1..7).rev(), "stats-agg", &["period=500ms"]).unwrap();
    std::thread::sleep(3 * PERIOD);
    instance.load([0], "stats-agg", &["period=500ms"]).unwrap();
    let ask = || coverage(&query(&instance, &["none"]));
    eventually("all ranks", LIMIT, ask, |found| *found == ("0-6".into(), String::new()));
    instance.remove(0..7, "stats-agg").unwrap();
    assert_eq!(complaints(&instance, 0), Vec::<String>::new());
    instance.stop().unwrap();
}

/// Fact 4: SIGKILL.
fn a_killed_broker_is_listed_as_missing_and_the_rest_goes_on(backend: Backend) {
    let instance = instance(backend, 5);
    instance.load(0..5, "stats-agg", &["period=500ms"]).unwrap();
    let ask = || coverage(&query(&instance, &["none"]));
    eventually("all ranks", LIMIT, ask, |found| *found == ("0-4".into(), String::new()));
    instance.kill(4).unwrap();
    // Four periods, and time for the look itself.
    std::thread::sleep(4 * PERIOD);
    assert_eq!(ask(), ("0-3".into(), "4".into()));
    let wakeups = || number(&series(&instance, "modules.broker.wakeups")["total"]);
    let before = wakeups();
    eventually("the others go on", LIMIT, wakeups, |&after| after > before);
    instance.remove(0..4, "stats-agg").unwrap();
    // That a broker was killed is an error for `flux start`, rightly.
    drop(instance);
}

fn resident_bytes(instance: &Instance, rank: u32) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", instance.broker_pid(rank).unwrap())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
}

/// What a broker has open of /proc: flux-core itself keeps nothing of it open.
fn open_of_proc(instance: &Instance, rank: u32) -> Vec<PathBuf> {
    let fds =
        std::fs::read_dir(format!("/proc/{}/fd", instance.broker_pid(rank).unwrap())).unwrap().flatten();
    fds.filter_map(|fd| std::fs::read_link(fd.path()).ok()).filter(|to| to.starts_with("/proc")).collect()
}

/// Fact 5: fifty times under jobs, and as often in peace.
fn reloading_under_load_loses_nothing_and_leaves_no_trace(backend: Backend) {
    const ROUNDS: usize = 50;
    /// What the allocator may keep of so many reloads.
    const QUIET_GROWTH_MAX: u64 = 1 << 20;
    let instance = instance(backend, 3);
    let total = Cell::new(0.0);
    let reload = |round: usize| {
        instance.load(0..3, "stats-agg", &["period=100ms"]).unwrap();
        std::thread::sleep(Duration::from_millis(150));
        let now = number(&tree(&instance)["modules"]["broker"]["wakeups"]);
        assert!(now >= total.get(), "round {round}: {now} after {}", total.get());
        total.set(now);
        if round.is_multiple_of(2) {
            instance.remove((0..3).rev(), "stats-agg").unwrap();
        } else {
            instance.remove(0..3, "stats-agg").unwrap();
        }
    };
    let grown_since = |before: u64| resident_bytes(&instance, 1).saturating_sub(before);

    // Jobs make a broker grow without us, too: for how much a round of them, it is asked first.
    const OWN_ROUNDS: u32 = 30;
    let churn = |rounds: u32| (0..rounds).for_each(|_| instance.churn(5).unwrap());
    churn(5);
    let before = resident_bytes(&instance, 1);
    churn(OWN_ROUNDS);
    let of_a_churn = grown_since(before) as f64 / f64::from(OWN_ROUNDS);

    let (done, churns) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let jobs = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                churn(1);
                churns.fetch_add(1, Ordering::Relaxed);
            }
        });
        (0..10).for_each(reload);
        let (before, churns_before) = (resident_bytes(&instance, 1), churns.load(Ordering::Relaxed));
        (10..ROUNDS).for_each(reload);
        done.store(true, Ordering::Relaxed);
        jobs.join().unwrap();
        let (grown, churns) = (grown_since(before), churns.load(Ordering::Relaxed) - churns_before);
        let own = of_a_churn * f64::from(churns);
        assert!(
            grown as f64 <= 1.5 * own + f64::from(4 << 20),
            "rank 1 grew by {grown} bytes, in {churns} rounds of jobs which alone make {own:.0}"
        );
    });
    let before = resident_bytes(&instance, 1);
    (ROUNDS..2 * ROUNDS).for_each(reload);
    let grown = grown_since(before);
    assert!(grown <= QUIET_GROWTH_MAX, "rank 1 grew by {grown} bytes, without jobs");
    assert!(total.get() > 0.0);
    for rank in 0..3 {
        assert_eq!(open_of_proc(&instance, rank), Vec::<PathBuf>::new());
        assert_eq!(complaints(&instance, rank), Vec::<String>::new());
    }
    instance.stop().unwrap();
}

fn a_clear_reaches_all_ranks_once(backend: Backend) {
    let instance = instance(backend, 5);
    instance.load(0..5, "stats-agg", &["period=500ms"]).unwrap();
    instance.load([3, 4], "loadgen", &["rate=50"]).unwrap();
    let wakeups = || number(&tree(&instance)["modules"]["loadgen"]["wakeups"].as_f64().unwrap_or(0.0).into());
    eventually("loadgen counts", LIMIT, wakeups, |&total| total > 150.0);
    instance.remove([3, 4], "loadgen").unwrap();
    std::thread::sleep(3 * PERIOD);
    let before = wakeups();
    // As a request to any rank.
    instance.rpc(2, "stats-agg.stats-clear", json!({})).unwrap();
    eventually("zero", LIMIT, wakeups, |&total| total == 0.0);
    std::thread::sleep(3 * PERIOD);
    assert_eq!(wakeups(), 0.0, "of {before} something came back");
    let longest = || tree(&instance)["modules"]["loadgen"]["longest_work_s"].clone();
    eventually("the longest work is forgotten, too", LIMIT, longest, |longest| longest.is_null());
    let merged = || number(&series(&instance, "stats-agg.batches_merged")["total"]);
    eventually("counting goes on", LIMIT, merged, |&merged| merged > 0.0);
    instance.remove(0..5, "stats-agg").unwrap();
    instance.stop().unwrap();
}

fn a_guest_is_answered_only_when_allowed(backend: Backend) {
    let instance = instance(backend, 1);
    instance.load([0], "stats-agg", &[]).unwrap();
    let denied = |topic: &str| match instance.rpc_as_guest(0, topic, json!({})) {
        Err(Error::Rpc { errnum, .. }) => assert_eq!(errnum, 1, "{topic}: EPERM"),
        other => panic!("{topic}: {other:?}"),
    };
    for topic in ["query", "stats-get", "merge", "stats-clear", "config-reload"] {
        denied(&format!("stats-agg.{topic}"));
    }
    instance.remove([0], "stats-agg").unwrap();
    instance.load([0], "stats-agg", &["guest-query=true"]).unwrap();
    let answer = instance.rpc_as_guest(0, "stats-agg.query", json!({})).unwrap();
    assert_eq!(answer["version"], 1);
    for topic in ["merge", "stats-clear", "config-reload"] {
        denied(&format!("stats-agg.{topic}"));
    }
    // The owner's own mistakes are named.
    let refused = |payload: Value| instance.rpc(0, "stats-agg.query", payload).unwrap_err().to_string();
    assert!(refused(json!({ "mach": [] })).contains("mach: unknown key; allowed: match, by"));
    assert!(instance.rpc(0, "stats-agg.merge", json!({})).unwrap_err().to_string().contains("bad batch"));
    instance.remove([0], "stats-agg").unwrap();
    instance.stop().unwrap();
}

fn time_in_a_synchronous_rpc_is_blocked(backend: Backend) {
    let instance = instance(backend, 1);
    instance.load([0], "stats-agg", &["period=500ms"]).unwrap();
    instance.load_as([0], "loadgen", "holder", &[]).unwrap();
    instance.load([0], "loadgen", &["rate=20", "block=20ms"]).unwrap();
    let own = || instance.rpc(0, "loadgen.stats-get", json!({})).unwrap();
    eventually("loadgen blocks", LIMIT, own, |own| own["blocked_s"].as_f64() > Some(1.0));
    instance.rpc(0, "module.remove", json!({ "name": "holder", "cancel": false })).unwrap();
    let said = own();
    instance.remove([0], "loadgen").unwrap();
    assert_eq!(said["errors"].as_u64().map(|errors| errors < 30), Some(true), "{said}");
    std::thread::sleep(3 * PERIOD);
    let module = tree(&instance)["modules"]["loadgen"].clone();
    // What loadgen measured itself lies around the probe's: it includes the sending of the request.
    let (ours, its) = (number(&module["blocked_s"]), number(&said["blocked_s"]));
    assert!(ours > 0.9 * its && ours < its * 1.1 + 0.1, "probe {ours} s, loadgen {its} s");
    assert!(number(&module["sleep_s"]) > 0.0);
    instance.remove([0], "stats-agg").unwrap();
    instance.stop().unwrap();
}
