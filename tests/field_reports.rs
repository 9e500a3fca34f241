//! What users have run into, made on a small instance, and the numbers that would have shown it, each held against
//! another source. Numbers are those of flux-core's issues.

use flux_testbed::{Backend, Error, Instance, Options};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tests::{coverage, eventually, query, real, series};

const LIMIT: Duration = Duration::from_secs(60);

fn start(size: u32) -> Option<(Instance, String)> {
    start_with(size, "collect=default")
}

fn start_with(size: u32, collect: &str) -> Option<(Instance, String)> {
    let backend = real()?;
    let Backend::Real(flux) = &backend else { return None };
    let flux = flux.to_string_lossy().into_owned();
    let instance = Instance::start(Options { size, ..Options::new(backend) }).unwrap();
    instance.load(0..size, "stats-agg", &["period=500ms", "stall=2s", collect]).unwrap();
    Some((instance, flux))
}

fn end(instance: Instance) {
    instance.remove(0..instance.size(), "stats-agg").unwrap();
    instance.stop().unwrap();
}

fn number(series: &Value, key: &str) -> f64 {
    series[key].as_f64().unwrap_or(f64::NAN)
}

fn sum(instance: &Instance, name: &str) -> f64 {
    number(&series(instance, name), "sum")
}

fn near(a: f64, b: f64, within: f64) -> bool {
    (a - b).abs() <= within
}

/// CPU seconds of a broker's thread, by its name, as the kernel counts them.
fn thread_cpu_s(pid: u32, name: &str) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let of_name = tasks.filter(|task| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
    });
    let ns = of_name.filter_map(|task| {
        let stat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        stat.split_whitespace().next()?.parse::<f64>().ok()
    });
    ns.sum::<f64>() / 1e9
}

/// 3515, 5919: a module that wakes all the time and gets nowhere.
#[test]
fn a_spinning_module_is_seen_by_its_work_and_its_rank() {
    let Some((instance, _)) = start(3) else { return };
    // Busy for nine tenths of its time, or all that it gets.
    instance.load([2], "loadgen", &["rate=300", "busy=3ms"]).unwrap();
    let work = || series(&instance, "modules.loadgen.work_s");
    let found = eventually("a busy module", LIMIT, work, |work| number(work, "rate") > 0.8);
    assert_eq!(found["max"]["rank"], 2);
    // Against the kernel, over the same while.
    let pid = instance.broker_pid(2).unwrap();
    let cpu = || number(&series(&instance, "modules.loadgen.cpu_s"), "total");
    let (begun, ours, theirs) = (Instant::now(), cpu(), thread_cpu_s(pid, "loadgen"));
    std::thread::sleep(Duration::from_secs(5));
    let (ours, theirs, wall) =
        (cpu() - ours, thread_cpu_s(pid, "loadgen") - theirs, begun.elapsed().as_secs_f64());
    // A period and its way up of what is known here is not known there yet, at either end.
    assert!(near(ours, theirs, 0.3 * wall), "{ours} s, the kernel says {theirs}, in {wall} s");
    instance.remove([2], "loadgen").unwrap();
    end(instance);
}

/// 6009: a service that is kept busy by what others ask of it, again and again.
#[test]
fn a_service_under_constant_load_is_seen_by_its_cpu_time() {
    let Some((instance, flux)) = start(2) else { return };
    let pid = instance.broker_pid(0).unwrap();
    let cpu = || number(&series(&instance, "modules.resource.cpu_s"), "total");
    eventually("a first figure", LIMIT, cpu, |cpu| cpu.is_finite());
    std::thread::sleep(Duration::from_secs(2));
    let (ours, theirs) = (cpu(), thread_cpu_s(pid, "resource"));
    let asking = Instant::now();
    while asking.elapsed() < Duration::from_secs(8) {
        instance.run(0, &flux, &["resource", "list"]).unwrap();
    }
    let theirs = thread_cpu_s(pid, "resource") - theirs;
    let told = || cpu() - ours;
    eventually("what the kernel counted", LIMIT, told, |told| *told >= 0.95 * theirs);
    assert!(theirs > 0.001 && told() <= 1.3 * theirs + 0.05, "{} s, the kernel says {theirs}", told());
    // Who was asked: libflux's own counts, of which an empty `stats-get` of the module is the other source.
    let rx = number(&series(&instance, "modules.resource.rx.request"), "total");
    let direct =
        || instance.rpc(0, "resource.stats-get", json!({})).unwrap()["rx"]["request"].as_f64().unwrap();
    let (before, counted) = (direct(), rx);
    assert!(counted <= before, "{counted} since the load, of {before}");
    for _ in 0..30 {
        direct();
    }
    let rx = || number(&series(&instance, "modules.resource.rx.request"), "total");
    eventually("thirty requests", LIMIT, rx, |now| *now >= counted + 30.0);
    end(instance);
}

/// 6116, 6114, 3505, 7533: a module that does not read its messages, and is slow to answer.
#[test]
fn a_queue_that_grows_is_seen_with_the_module_that_does_not_read() {
    let Some((instance, flux)) = start_with(3, "collect=default,stats:loadgen") else { return };
    instance.load([1], "loadgen", &["spin=16s"]).unwrap();
    let waiting = 6;
    std::thread::scope(|scope| {
        for _ in 0..waiting {
            scope.spawn(|| instance.run(1, &flux, &["ping", "--count=1", "loadgen"]).unwrap());
        }
        let queue = || series(&instance, "modules.loadgen.sendq");
        let full = |queue: &Value| number(&queue["max"], "value") >= f64::from(waiting);
        let found = eventually("a queue", LIMIT, queue, full);
        assert_eq!(found["max"]["rank"], 1);
        let list = instance.rpc(1, "module.list", json!({})).unwrap();
        let direct =
            list["mods"].as_array().unwrap().iter().find(|module| module["name"] == "loadgen").unwrap();
        assert!(
            near(number(&found["max"], "value"), number(direct, "sendqueue"), 2.0),
            "{found} and {direct}"
        );
        let stalled = || series(&instance, "modules.loadgen.stalled");
        let found =
            eventually("the module that answers nothing", LIMIT, stalled, |stalled| !stalled.is_null());
        assert_eq!(found["max"]["rank"], 1);
    });
    let queue = || sum(&instance, "modules.loadgen.sendq");
    eventually("an empty queue", LIMIT, queue, |queue| *queue == 0.0);
    // It was asked once, and took as long to answer as it says it was away, but for what had passed before the question.
    let replies = || series(&instance, "stats-agg.collect.stats.reply_s");
    let found = eventually("its answer", LIMIT, replies, |replies| number(replies, "max") > 10.0);
    let own = instance.rpc(1, "loadgen.stats-get", json!({})).unwrap();
    assert!(number(&found, "max") <= number(&own, "spun_s") + 1.0, "{found} and {own}");
    assert_eq!(number(&series(&instance, "stats-agg.collect.stats.late"), "total"), 1.0);
    // Of one long answer a 32nd counts, a thousand times, and its period is ten seconds.
    let stretch = sum(&instance, "stats-agg.collect.stats.stretch");
    assert!(near(stretch, 1000.0 / 32.0 * number(&found, "max") / 10.0, 1.0), "{stretch} after {found}");
    instance.remove([1], "loadgen").unwrap();
    end(instance);
}

/// 6690: time in a synchronous RPC, which CPU time does not show.
#[test]
fn a_blocking_rpc_is_seen_though_it_costs_no_cpu_time() {
    let Some((instance, _)) = start(2) else { return };
    instance.load_as([1], "loadgen", "holder", &[]).unwrap();
    instance.load([1], "loadgen", &["rate=10", "block=70ms"]).unwrap();
    let own = || instance.rpc(1, "loadgen.stats-get", json!({})).unwrap()["blocked_s"].as_f64().unwrap();
    let told = || number(&series(&instance, "modules.loadgen.blocked_s"), "total");
    eventually("a second of it", LIMIT, told, |blocked| *blocked > 1.0);
    let wanted = own();
    eventually("all of it", LIMIT, told, |blocked| *blocked >= 0.98 * wanted);
    let cpu = number(&series(&instance, "modules.loadgen.cpu_s"), "total");
    assert!(cpu < 0.3 * wanted, "{cpu} s of CPU time while {wanted} s went by in calls");
    instance.remove([1], "loadgen").unwrap();
    instance.remove([1], "holder").unwrap();
    end(instance);
}

/// 6461, 7809: what the content cache holds, on all ranks, and the database behind it.
#[test]
fn a_growing_content_cache_is_seen_on_every_rank() {
    let Some((instance, flux)) = start(2) else { return };
    let told = || sum(&instance, "modules.content.cache_bytes");
    let before = eventually("a first figure", LIMIT, told, |bytes| bytes.is_finite());
    let store = "for i in 1 2 3 4 5 6 7 8; do head -c 1000000 /dev/urandom | \"$0\" content store >/dev/null || exit 1; done";
    instance.run(0, "sh", &["-c", store, &flux]).unwrap();
    eventually("eight megabytes more", LIMIT, told, |bytes| *bytes >= before + 8e6);
    // Against the module itself, once both have told of the same.
    let both = || {
        let direct = instance.rpc(0, "content.stats-get", json!({})).unwrap();
        let ask = json!({ "match": ["modules.content.cache_bytes"], "by": "rank", "ranks": "0" });
        let answer = instance.rpc(0, "stats-agg.query", ask).unwrap();
        (answer["series"][0]["sum"].as_f64(), direct["size"].as_f64())
    };
    eventually("the same", LIMIT, both, |(told, direct)| told == direct);
    let database = || sum(&instance, "modules.content-sqlite.db_bytes");
    eventually("a database of eight megabytes", LIMIT, database, |bytes| *bytes > 8e6);
    end(instance);
}

/// 7809, 5909, 5214: jobs by state; and memory beside them.
#[test]
fn jobs_by_state_are_as_flux_jobs_counts_them_beyond_a_thousand() {
    let Some((instance, flux)) = start(2) else { return };
    instance.run(0, &flux, &["submit", "--quiet", "--cc=1-1100", "--urgency=hold", "true"]).unwrap();
    instance.run(0, &flux, &["submit", "--quiet", "sleep", "60"]).unwrap();
    instance.churn(5).unwrap();
    let count = |filter: &str| {
        let arguments = ["jobs", "--no-header", "--count=0", &format!("--filter={filter}"), "-o", "{id}"];
        instance.run(0, &flux, &arguments).unwrap().lines().count() as f64
    };
    let told =
        || ["sched", "run", "inactive", "depend"].map(|state| sum(&instance, &format!("jobs.{state}")));
    let wanted = [1100.0, 1.0, 5.0, 0.0];
    eventually("all of them", LIMIT, told, |told| *told == wanted);
    assert_eq!(["sched", "run", "inactive", "depend"].map(count), wanted);
    assert_eq!(sum(&instance, "job_queue_state_sched_count"), 1100.0, "under the name of flux-metrics-api");
    let active = || sum(&instance, "modules.job-manager.active_jobs");
    eventually("as job-manager has it", LIMIT, active, |active| *active == 1101.0);
    // Resources, as `flux resource` counts them.
    let list = |states: &str, what: &str| -> f64 {
        let arguments = ["resource", "list", "--no-header", "-s", states, "-o", what];
        instance.run(0, &flux, &arguments).unwrap().trim().parse().unwrap()
    };
    let wanted =
        ["{nnodes}", "{ncores}"].map(|what| ["up", "free", "allocated"].map(|state| list(state, what)));
    let told = || {
        ["nodes", "cores"]
            .map(|of| ["up", "free", "allocated"].map(|is| sum(&instance, &format!("resources.{of}.{is}"))))
    };
    eventually("resources", LIMIT, told, |told| *told == wanted);
    assert_eq!(sum(&instance, "node_cores_free_count"), wanted[1][1]);
    instance.run(0, &flux, &["cancel", "--all", "--states=active"]).unwrap();
    let inactive = || sum(&instance, "jobs.inactive");
    eventually("all over", LIMIT, inactive, |inactive| *inactive == 1106.0);
    assert_eq!(sum(&instance, "jobs.run"), 0.0, "zeros are told, and with the same answer");
    instance.run(0, &flux, &["resource", "drain", "1"]).unwrap();
    let drained = || sum(&instance, "resources.nodes.drained");
    eventually("a drained node", LIMIT, drained, |drained| *drained == 1.0);
    end(instance);
}

/// 3505, 7803: descriptors that run out.
#[test]
fn descriptors_that_run_out_are_seen_with_their_limit() {
    let Some((instance, _)) = start(2) else { return };
    let ratio = || {
        let (open, max) = (series(&instance, "broker.open_fds"), series(&instance, "broker.max_fds"));
        (open["max"].clone(), number(&open["max"], "value") / number(&max["min"], "value"))
    };
    eventually("a first figure", LIMIT, ratio, |(_, ratio)| ratio.is_finite());
    let pid = instance.broker_pid(1).unwrap();
    let fds = || std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    // The limit itself is brought near, so that the machine's own does not matter.
    let limit = fds() + 500;
    instance.run(0, "prlimit", &[&format!("--pid={pid}"), &format!("--nofile={limit}:")]).unwrap();
    instance.load([1], "loadgen", &["fds=450"]).unwrap();
    let (open, _) = eventually("nine tenths of them", LIMIT, ratio, |(_, ratio)| *ratio > 0.85);
    assert_eq!(open["rank"], 1);
    assert!(near(number(&open, "value"), fds() as f64, 10.0), "{open}, and {} in /proc", fds());
    match instance.load_as([1], "loadgen", "more", &["fds=1000"]) {
        Err(Error::Rpc { .. }) => {}
        other => panic!("{other:?}"),
    }
    assert!(sum(&instance, "broker.threads") > 2.0, "and all goes on");
    instance.remove([1], "loadgen").unwrap();
    end(instance);
}

/// 4086, 4088, 6939: brokers that are lost, and one that says nothing any more.
#[test]
fn a_lost_broker_and_a_silent_one_are_told_apart() {
    let Some((instance, flux)) = start(5) else { return };
    let all = || (sum(&instance, "overlay.ranks_online"), sum(&instance, "overlay.children_lost"));
    eventually("all there", LIMIT, all, |all| *all == (5.0, 0.0));
    let stopped = instance.broker_pid(3).unwrap().to_string();
    let signal = |name: &str| {
        instance.run(0, "sh", &["-c", "kill -s \"$0\" \"$1\"", name, &stopped]).unwrap();
    };
    signal("STOP");
    instance.kill(4).unwrap();
    let missing = || query(&instance, &["none"])["ranks"].clone();
    let told = |ranks: &Value| ranks["silent"] == "3" && ranks["offline"] == "4";
    eventually("one silent, one lost", LIMIT, missing, told);
    eventually("a child less", LIMIT, all, |all| *all == (4.0, 1.0));
    assert_eq!(sum(&instance, "overlay.ranks_offline"), 1.0);
    let status = instance.run(0, &flux, &["overlay", "status", "--timeout=0"]).unwrap_or_default();
    assert!(status.contains("lost") || status.contains("degraded") || status.contains("partial"), "{status}");
    signal("CONT");
    let back = || coverage(&query(&instance, &["none"]));
    eventually("it is back", LIMIT, back, |back| *back == ("0-3".into(), "4".into()));
    instance.remove(0..4, "stats-agg").unwrap();
    // That a broker was killed is an error for `flux start`, rightly.
    drop(instance);
}

/// 6114, 7809: memory that grows, beside what it grows with.
#[test]
fn memory_that_grows_is_seen_as_the_kernel_sees_it() {
    let Some((instance, _)) = start(2) else { return };
    instance.churn(60).unwrap();
    let both = || {
        let ask = json!({ "match": ["broker.rss_bytes"], "by": "rank", "ranks": "0" });
        let told = number(&instance.rpc(0, "stats-agg.query", ask).unwrap()["series"][0], "sum");
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", instance.broker_pid(0).unwrap())).unwrap();
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap().to_owned();
        (told, kib.trim().trim_end_matches(" kB").trim().parse::<f64>().unwrap() * 1024.0)
    };
    eventually("the same", LIMIT, both, |(told, kernel)| near(*told, *kernel, 0.02 * kernel));
    let inactive = || sum(&instance, "jobs.inactive");
    eventually("beside the jobs that are remembered", LIMIT, inactive, |inactive| *inactive == 60.0);
    end(instance);
}
