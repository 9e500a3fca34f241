//! What Flux and the kernel know of brokers, as series: held against what they say when asked directly.

use flux_testbed::{Backend, Error, Instance, Options};
use serde_json::{Value, json};
use std::time::Duration;
use tests::{complaints, eventually, facts, query, real, say, series};

const LIMIT: Duration = Duration::from_secs(60);

facts! {
    every_series_of_a_live_instance_is_in_the_page,
    the_broker_s_process_is_as_the_kernel_says,
    what_is_chosen_is_collected_and_what_is_not_any_more_goes,
    guests_are_told_nothing_that_is_the_owner_s,
    a_guest_s_streams_are_few_and_end_when_guests_may_not_ask_any_more,
}

fn start(backend: Backend, size: u32, arguments: &[&str]) -> Instance {
    let instance = Instance::start(Options { size, ..Options::new(backend) }).unwrap();
    let arguments: Vec<&str> = ["period=500ms"].iter().chain(arguments).copied().collect();
    instance.load(0..size, "stats-agg", &arguments).unwrap();
    instance
}

fn end(instance: Instance) {
    instance.remove(0..instance.size(), "stats-agg").unwrap();
    instance.stop().unwrap();
}

fn names_of(answer: &Value) -> Vec<String> {
    let series = answer["series"].as_array().unwrap().iter();
    series.map(|series| series["name"].as_str().unwrap().to_owned()).collect()
}

fn names(instance: &Instance, patterns: &[&str]) -> Vec<String> {
    names_of(&query(instance, patterns))
}

fn is_real(instance: &Instance) -> bool {
    !matches!(instance.backend(), Backend::Embedded)
}

/// What the page does not list nobody has explained.
fn every_series_of_a_live_instance_is_in_the_page(backend: Backend) {
    let instance = start(backend, 3, &["collect=default,stats:loadgen", "statsd=unix:"]);
    instance.load([1], "loadgen", &["rate=20", "push=1"]).unwrap();
    instance.churn(5).unwrap();
    let mut expected = vec!["overlay.ranks_online", "modules.loadgen.stats.wakeups", "loadgen.pushed"];
    if is_real(&instance) {
        // Those that are asked for last.
        expected.extend(["resources.nodes.drained", "modules.kvs.cache_bytes", "node_up_count"]);
    }
    let found = || names(&instance, &expected);
    eventually("the slowest collectors", LIMIT, found, |found| found.len() == expected.len());
    let all = names(&instance, &[]);
    let listed = |name: &&String| stats_collect::is_described(name) || name.starts_with("loadgen.");
    let unlisted: Vec<&String> = all.iter().filter(|name| !listed(name)).collect();
    assert_eq!(unlisted, Vec::<&String>::new(), "of {} series", all.len());
    assert!(all.len() > if is_real(&instance) { 400 } else { 80 }, "{}", all.len());
    for rank in 0..3 {
        assert_eq!(complaints(&instance, rank), Vec::<String>::new());
    }
    instance.remove([1], "loadgen").unwrap();
    end(instance);
}

/// Each broker's own figures by rank, and one of /proc at about the same time.
fn the_broker_s_process_is_as_the_kernel_says(backend: Backend) {
    let instance = start(backend, 3, &[]);
    instance.load([2], "loadgen", &["fds=300"]).unwrap();
    let pid = |rank| instance.broker_pid(rank).unwrap();
    let own = |rank: u32, name: &str| {
        let ask = json!({ "match": [name], "by": "rank", "ranks": rank.to_string() });
        let answer = instance.rpc(0, "stats-agg.query", ask).unwrap();
        answer["series"][0]["sum"].as_f64()
    };
    for rank in 0..3 {
        let fds = || std::fs::read_dir(format!("/proc/{}/fd", pid(rank))).unwrap().count() as f64;
        let near = |told: &Option<f64>| told.is_some_and(|told| (told - fds()).abs() <= 5.0);
        let told = eventually("open descriptors", LIMIT, || own(rank, "broker.open_fds"), near);
        assert_eq!(told.is_some_and(|fds| fds > 300.0), rank == 2, "{told:?}");
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", pid(rank))).unwrap();
        let limit = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
        let limit: f64 = limit.split_whitespace().next().unwrap().parse().unwrap();
        assert_eq!(own(rank, "broker.max_fds"), Some(limit));
        let status = || std::fs::read_to_string(format!("/proc/{}/status", pid(rank))).unwrap();
        let kib = |key: &str| -> f64 {
            let text = status();
            let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap().to_owned();
            line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
        };
        let near =
            |told: &Option<f64>| told.is_some_and(|told| (told / 1024.0 - kib("VmRSS")).abs() < 2048.0);
        eventually("resident memory", LIMIT, || own(rank, "broker.rss_bytes"), near);
        let threads = |told: &Option<f64>| *told == Some(kib("Threads"));
        eventually("threads", LIMIT, || own(rank, "broker.threads"), threads);
        assert!(own(rank, "broker.uptime_s").unwrap() > 0.0);
    }
    instance.remove([2], "loadgen").unwrap();
    end(instance);
}

fn what_is_chosen_is_collected_and_what_is_not_any_more_goes(backend: Backend) {
    let instance = Instance::start(Options { size: 2, ..Options::new(backend) }).unwrap();
    let with = |collect: Value| json!({ "stats-agg": { "period": "500ms", "collect": collect } });
    instance.configure(&with(json!(["broker"]))).unwrap();
    instance.load(0..2, "stats-agg", &[]).unwrap();
    let some = ["modules.*.sendq", "broker.threads", "overlay.ranks_online", "stats-agg.collect.*.stretch"];
    let found = || names(&instance, &some);
    let chosen = ["broker.threads", "stats-agg.collect.broker.stretch"];
    eventually("what is chosen", LIMIT, found, |found| *found == chosen);
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(found(), chosen);
    let said = instance.configure(&with(json!(["broker", "brokers"]))).unwrap_err().to_string();
    assert!(said.contains("\"brokers\" is no collector: expected modules, messages"), "{said}");
    // Live; states of what is not chosen any more go, at rank 0 and below.
    instance.configure(&with(json!(["ranks"]))).unwrap();
    let chosen = ["overlay.ranks_online", "stats-agg.collect.ranks.stretch"];
    eventually("what is chosen now", LIMIT, found, |found| *found == chosen);
    assert_eq!(series(&instance, "overlay.ranks_online")["sum"], 2);
    instance.configure(&with(json!("none"))).unwrap();
    eventually("nothing", LIMIT, found, Vec::is_empty);
    end(instance);
}

/// `by` none, rank and subtree, and the tree: whatever way is taken, what is the owner's is left out.
fn guests_are_told_nothing_that_is_the_owner_s(backend: Backend) {
    let instance = start(backend, 3, &["guest-query=true", "collect=default,stats:loadgen"]);
    instance.load([2], "loadgen", &["rate=20"]).unwrap();
    let (open, owner) = ("modules.loadgen.wakeups", "modules.loadgen.stats.wakeups");
    eventually("both", LIMIT, || names(&instance, &[open, owner]), |found| found.len() == 2);
    for by in ["none", "rank", "subtree"] {
        let ask = || json!({ "match": ["modules.loadgen.**", "modules.content.*"], "by": by });
        let guest = names_of(&instance.rpc_as_guest(0, "stats-agg.query", ask()).unwrap());
        assert!(guest.iter().any(|name| name == open), "by {by}: {guest:?}");
        let leaked: Vec<&String> =
            guest.iter().filter(|name| name.contains(".stats.") || name.contains(".content.cache")).collect();
        assert_eq!(leaked, Vec::<&String>::new(), "by {by}");
        let all = names_of(&instance.rpc(0, "stats-agg.query", ask()).unwrap());
        assert!(all.iter().any(|name| name == owner), "by {by}: {all:?}");
    }
    let tree = instance.rpc_as_guest(0, "stats-agg.stats-get", json!({})).unwrap();
    assert!(tree["modules"]["loadgen"]["wakeups"].is_number(), "{tree}");
    assert!(tree["modules"]["loadgen"]["stats"].is_null(), "{tree}");
    instance.remove([2], "loadgen").unwrap();
    end(instance);
}

fn a_guest_s_streams_are_few_and_end_when_guests_may_not_ask_any_more(backend: Backend) {
    const EACH: usize = 8;
    const EPERM: i32 = 1;
    const EBUSY: i32 = 16;
    let instance = Instance::start(Options { size: 1, ..Options::new(backend) }).unwrap();
    let with = |guest_query: bool| json!({ "stats-agg": { "period": "500ms", "guest-query": guest_query } });
    instance.configure(&with(true)).unwrap();
    instance.load([0], "stats-agg", &[]).unwrap();
    let question = json!({ "match": ["none"], "stream": true });
    // More answers than will come: they wait for the end.
    let stream = || instance.stream_as_guest(0, "stats-agg.query", &question, u32::MAX);
    let errnum = |outcome: Result<Vec<Value>, Error>| match outcome {
        Err(Error::Rpc { errnum, .. }) => errnum,
        other => panic!("{other:?}"),
    };
    std::thread::scope(|scope| {
        let streams: Vec<_> = (0..EACH).map(|_| scope.spawn(stream)).collect();
        let open = || series(&instance, "stats-agg.streams")["sum"].clone();
        eventually("all of them", LIMIT, open, |open| *open == EACH);
        assert_eq!(errnum(stream()), EBUSY, "one more");
        assert_eq!(
            instance.stream(0, "stats-agg.query", &question, 2).unwrap().len(),
            2,
            "the owner has room"
        );
        instance.configure(&with(false)).unwrap();
        for stream in streams {
            assert_eq!(errnum(stream.join().unwrap()), EPERM);
        }
    });
    end(instance);
}

/// What guests learn of jobs follows the instance, at once.
#[test]
fn where_jobs_are_private_guests_learn_nothing_of_jobs() {
    let Some(backend) = real() else { return };
    let instance = start(backend, 1, &["guest-query=true"]);
    let of_guest = || {
        let ask = json!({ "match": ["jobs.run", "flux_queue_state_counts", "job_queue_state_run_count", "modules.kvs.wakeups"] });
        names_of(&instance.rpc_as_guest(0, "stats-agg.query", ask).unwrap())
    };
    eventually("jobs", LIMIT, of_guest, |found| found.len() > 9);
    match instance.configure(&json!({ "access": { "private-mode": true } })) {
        Ok(()) => assert_eq!(of_guest(), ["modules.kvs.wakeups"]),
        // Not before 0.87.
        Err(error) => say(&format!("skipped: private-mode, which this Flux does not know: {error}")),
    }
    end(instance);
}
