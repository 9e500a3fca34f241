//! Lines that statsd clients send to any rank, as rank 0 answers them.

use flux_testbed::{Backend, Instance, Options, workspace_root};
use serde_json::{Value, json};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;
use tests::{complaints, eventually, facts, has_cancel, query, real, say, series, tree};

/// Far beyond what is awaited: a test fails by what it sees, not by how long it took.
const LIMIT: Duration = Duration::from_secs(40);

facts! {
    lines_to_any_rank_reach_rank_0_s_totals_exactly,
    lines_sent_right_before_an_unload_are_not_lost_and_nothing_is_left_behind,
    a_changed_table_moves_the_sockets_and_a_bad_one_changes_nothing,
    a_port_that_another_rank_has_is_told_and_taken_over,
    rubbish_is_counted_by_reason_and_shown_to_the_owner_alone,
    a_cancelled_module_takes_its_listener_with_it_and_loses_nothing,
}

fn instance(backend: Backend, size: u32) -> Instance {
    Instance::start(Options { size, ..Options::new(backend) }).unwrap()
}

/// What a rank says of its listener.
fn listener(instance: &Instance, rank: u32) -> Value {
    instance.rpc(rank, "stats-agg.query", json!({ "match": ["none"] })).unwrap()["statsd"].clone()
}

/// Where a rank listens.
fn listening(instance: &Instance, rank: u32) -> Vec<String> {
    let said = listener(instance, rank)["listening"].take();
    serde_json::from_value(said).unwrap_or_default()
}

/// A client of one rank's sockets.
struct Client {
    inet: UdpSocket,
    to: SocketAddr,
    unix: UnixDatagram,
    path: PathBuf,
}

impl Client {
    fn of(instance: &Instance, rank: u32) -> Client {
        let listening = listening(instance, rank);
        let path = listening.iter().find_map(|address| address.strip_prefix("unix:")).unwrap();
        let to = listening.iter().find_map(|address| address.parse().ok()).unwrap();
        let (inet, unix) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UnixDatagram::unbound().unwrap());
        Client { inet, to, unix, path: path.into() }
    }

    fn udp(&self, lines: &str) {
        self.inet.send_to(lines.as_bytes(), self.to).unwrap();
    }

    fn unix(&self, lines: &str) {
        self.unix.send_to(lines.as_bytes(), &self.path).unwrap();
    }
}

fn total(instance: &Instance, name: &str) -> f64 {
    series(instance, name)["total"].as_f64().unwrap_or(0.0)
}

fn settles_at(instance: &Instance, name: &str, wanted: f64) {
    eventually(name, LIMIT, || total(instance, name), |&found| found >= wanted);
    // And stays: a period later nothing has been counted twice.
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(total(instance, name), wanted, "{name}");
}

const BOTH: &str = "statsd=127.0.0.1:0,unix:";

fn lines_to_any_rank_reach_rank_0_s_totals_exactly(backend: Backend) {
    const ROUNDS: u32 = 300;
    let instance = instance(backend, 3);
    instance.load(0..3, "stats-agg", &["period=300ms", BOTH]).unwrap();
    let clients: Vec<Client> = (0..3).map(|rank| Client::of(&instance, rank)).collect();
    for round in 0..ROUNDS {
        for (rank, client) in clients.iter().enumerate() {
            client.udp(&format!("app.udp:1|c|@0.5\napp.udp:3|c\napp.time:{round}|ms\napp.load:{rank}|g"));
            client
                .unix(&format!("app.unix:1|c|#route:/x\napp.unix:1|c\napp.users:{round}|s\napp.size:0.5|h"));
        }
        // Paced: a socket's queue is short.
        if round % 10 == 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let rounds = f64::from(ROUNDS);
    settles_at(&instance, "app.udp", 3.0 * 5.0 * rounds);
    let answer = query(&instance, &["app.*"]);
    let found = |name: &str, tags: Value| {
        let same = |one: &&Value| one["name"] == name && one["tags"] == tags;
        let found = answer["series"].as_array().unwrap().iter().find(same);
        found.unwrap_or_else(|| panic!("no {name} {tags} in {answer:#}")).clone()
    };
    assert_eq!(found("app.unix", json!({ "route": "/x" }))["total"], 3 * ROUNDS);
    assert_eq!(found("app.unix", json!({}))["total"], 3 * ROUNDS);
    let time = found("app.time", json!({}));
    assert_eq!(time["count"], 3 * ROUNDS);
    let seconds = 3.0 * rounds * (rounds - 1.0) / 2.0 / 1000.0;
    assert!((time["sum"].as_f64().unwrap() - seconds).abs() < 1e-6, "{time}");
    let load = found("app.load", json!({}));
    assert_eq!((&load["count"], &load["sum"], &load["max"]["rank"]), (&json!(3), &json!(3), &json!(2)));
    assert_eq!(found("app.size", json!({}))["sum"].as_f64(), Some(1.5 * rounds));
    let users = found("app.users", json!({}))["estimate"].as_f64().unwrap();
    assert!((users - rounds).abs() < 0.05 * rounds, "{users}");
    assert_eq!(total(&instance, "stats-agg.statsd.packets"), 3.0 * 2.0 * rounds);
    assert_eq!(total(&instance, "stats-agg.statsd.lines"), 3.0 * 8.0 * rounds);
    assert_eq!(total(&instance, "stats-agg.statsd.dropped"), 0.0);
    assert_eq!(series(&instance, "stats-agg.statsd.sockets")["sum"], 6);
    instance.remove(0..3, "stats-agg").unwrap();
    for rank in 0..3 {
        assert_eq!(complaints(&instance, rank), Vec::<String>::new());
    }
    instance.stop().unwrap();
}

/// Threads of a broker that are named so.
fn threads(instance: &Instance, rank: u32, name: &str) -> usize {
    let tasks = format!("/proc/{}/task", instance.broker_pid(rank).unwrap());
    let comm =
        |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    std::fs::read_dir(tasks).unwrap().flatten().map(comm).filter(|comm| comm.trim() == name).count()
}

fn lines_sent_right_before_an_unload_are_not_lost_and_nothing_is_left_behind(backend: Backend) {
    let instance = instance(backend, 2);
    let mut sent = 0.0;
    for _ in 0..4 {
        // A period that never ends by itself.
        instance.load(0..2, "stats-agg", &["period=1h", BOTH]).unwrap();
        let client = Client::of(&instance, 1);
        // A thread names itself, and the kernel forgets it, a moment later than it begins and ends.
        let listening = || (threads(&instance, 0, "statsd"), threads(&instance, 1, "statsd"));
        eventually("two threads", LIMIT, listening, |&threads| threads == (1, 1));
        for _ in 0..50 {
            client.unix("app.last:1|c");
            client.udp("app.last:1|c");
            sent += 2.0;
        }
        instance.remove([1, 0], "stats-agg").unwrap();
        eventually("no thread", LIMIT, listening, |&threads| threads == (0, 0));
        assert!(!client.path.exists());
    }
    instance.load(0..2, "stats-agg", &["period=300ms"]).unwrap();
    settles_at(&instance, "app.last", sent);
    assert_eq!(listener(&instance, 0), Value::Null);
    instance.remove(0..2, "stats-agg").unwrap();
    instance.stop().unwrap();
}

fn a_changed_table_moves_the_sockets_and_a_bad_one_changes_nothing(backend: Backend) {
    let config = json!({ "stats-agg": { "period": "300ms", "statsd": ["unix:"] } });
    let instance = Instance::start(Options { size: 1, config, ..Options::new(backend) }).unwrap();
    instance.load([0], "stats-agg", &[]).unwrap();
    let first = listening(&instance, 0);
    assert!(first[0].ends_with("/stats-agg.0.statsd"), "{first:?}");
    let path = PathBuf::from(first[0].strip_prefix("unix:").unwrap());
    let sender = UnixDatagram::unbound().unwrap();
    sender.send_to(b"app.x:1|c", &path).unwrap();

    let table = |statsd: Value| json!({ "stats-agg": { "period": "300ms", "statsd": statsd } });
    for (statsd, said) in [
        (json!(["unix:", "0.0.0.0:1"]), "statsd=0.0.0.0:1: expected HOST:PORT with a loopback address"),
        (json!(["unix:/nonexistent/folder/x"]), "statsd: unix:/nonexistent/folder/x: "),
    ] {
        let refused = instance.configure(&table(statsd)).unwrap_err();
        assert!(refused.to_string().contains(said), "{said}: {refused}");
        assert_eq!(listening(&instance, 0), first);
        sender.send_to(b"app.x:1|c", &path).unwrap();
    }
    instance.configure(&table(json!(["127.0.0.1:0", "unix:"]))).unwrap();
    assert_eq!(listening(&instance, 0).len(), 2);
    sender.send_to(b"app.x:1|c", &path).unwrap();
    settles_at(&instance, "app.x", 4.0);
    let udp: SocketAddr = listening(&instance, 0).iter().find_map(|at| at.parse().ok()).unwrap();
    instance.configure(&table(json!(["127.0.0.1:0"]))).unwrap();
    assert!(!path.exists());
    assert_eq!(listening(&instance, 0), [udp.to_string()], "the socket that stays is the same");
    instance.configure(&table(json!([]))).unwrap();
    assert_eq!(listener(&instance, 0), Value::Null);
    assert_eq!(threads(&instance, 0, "statsd"), 0);
    // At a load it is as at a reload.
    instance.remove([0], "stats-agg").unwrap();
    let refused = instance.load([0], "stats-agg", &["statsd=unix:/nonexistent/folder/x"]).unwrap_err();
    assert_eq!(refused.errnum(), Some(2), "ENOENT: {refused}");
    assert!(instance.log(0).unwrap().iter().any(|line| line.contains("/nonexistent/folder/x")));
    instance.stop().unwrap();
}

fn a_port_that_another_rank_has_is_told_and_taken_over(backend: Backend) {
    let instance = instance(backend, 2);
    instance.load([0], "stats-agg", &["period=300ms", "statsd=127.0.0.1:0"]).unwrap();
    let taken = listening(&instance, 0)[0].clone();
    let wanted = format!("statsd={taken},unix:");
    instance.load([1], "stats-agg", &["period=300ms", &wanted]).unwrap();
    assert_eq!(listener(&instance, 1)["taken"], json!([taken]));
    assert_eq!(listening(&instance, 1).len(), 1, "the other socket is open");
    let log = instance.log(1).unwrap();
    let said = format!("{taken} is taken: another rank on this machine, or another program, listens there");
    assert!(log.iter().any(|line| line.contains(&said)), "{log:?}");
    assert_eq!(complaints(&instance, 1), Vec::<String>::new());
    let ask = || series(&instance, "stats-agg.statsd.sockets_taken")["sum"].clone();
    eventually("it is a series, too", LIMIT, ask, |sum| *sum == 1);
    // The rank that had it goes; who waits for it listens there from then on.
    instance.remove([0], "stats-agg").unwrap();
    eventually("rank 1 takes over", LIMIT, || listening(&instance, 1), |now| now.contains(&taken));
    instance.load([0], "stats-agg", &["period=300ms"]).unwrap();
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"app.x:1|c", &*taken).unwrap();
    settles_at(&instance, "app.x", 1.0);
    instance.remove(0..2, "stats-agg").unwrap();
    instance.stop().unwrap();
}

fn rubbish_is_counted_by_reason_and_shown_to_the_owner_alone(backend: Backend) {
    let instance = instance(backend, 1);
    instance.load([0], "stats-agg", &["period=300ms", "guest-query=true", BOTH]).unwrap();
    let client = Client::of(&instance, 0);
    client.udp("app.good:1|c\nno line\nx:abc|c\nx:1|c|@7\nmodules.kvs.wakeups:1000|c\nevil\u{1b}[2J");
    client.udp("_e{1,1}:a|b\n_sc|a|0");
    settles_at(&instance, "app.good", 1.0);
    let lines = query(&instance, &["stats-agg.statsd.{bad_lines,refused}"]);
    let shown: Vec<String> = lines["series"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| format!("{} {} {}", one["name"].as_str().unwrap(), one["tags"], one["total"]))
        .collect();
    for expected in [
        r#"stats-agg.statsd.bad_lines {"reason":"format"} 2"#,
        r#"stats-agg.statsd.bad_lines {"reason":"value"} 1"#,
        r#"stats-agg.statsd.bad_lines {"reason":"rate"} 1"#,
        r#"stats-agg.statsd.refused {"prefix":"modules","reason":"reserved"} 1"#,
    ] {
        assert!(shown.iter().any(|line| line == expected), "{expected}: {shown:#?}");
    }
    assert_eq!(total(&instance, "stats-agg.statsd.events_ignored"), 1.0);
    assert_eq!(total(&instance, "stats-agg.statsd.service_checks_ignored"), 1.0);
    let bad = listener(&instance, 0)["last_bad_line"].clone();
    assert_eq!(bad, json!({ "reason": "format", "expected": "NAME:VALUE|TYPE", "line": "evil\u{fffd}[2J" }));
    let guest = instance.rpc_as_guest(0, "stats-agg.query", json!({ "match": ["app.good"] })).unwrap();
    assert_eq!((&guest["series"][0]["total"], &guest["statsd"]), (&json!(1), &Value::Null));
    instance.remove([0], "stats-agg").unwrap();
    instance.stop().unwrap();
}

fn a_cancelled_module_takes_its_listener_with_it_and_loses_nothing(backend: Backend) {
    let instance = instance(backend, 1);
    if !has_cancel(&instance) {
        say("skipped: cancellation, this flux has no `module remove --cancel`");
        return instance.stop().unwrap();
    }
    instance.load([0], "stats-agg", &["period=1h", BOTH]).unwrap();
    let client = Client::of(&instance, 0);
    for _ in 0..100 {
        client.unix("app.x:1|c");
    }
    instance.cancel(0, "stats-agg").unwrap();
    let gone = |modules: &Vec<String>| !modules.contains(&"stats-agg".to_owned());
    eventually("the module is gone", LIMIT, || instance.modules(0).unwrap(), gone);
    assert_eq!(threads(&instance, 0, "statsd"), 0);
    assert!(!client.path.exists());
    instance.load([0], "stats-agg", &["period=300ms", BOTH]).unwrap();
    settles_at(&instance, "app.x", 100.0);
    instance.remove([0], "stats-agg").unwrap();
    instance.stop().unwrap();
}

/// A port that is free now, and most likely in a moment.
fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// flux-core's own clients, of which the content cache is one: `FLUX_FRIPP_STATSD` and nothing else.
#[test]
fn the_content_cache_s_gauges_appear_at_rank_0_when_flux_is_told_where_to_send_them() {
    let Some(backend) = real() else { return };
    let address = format!("127.0.0.1:{}", free_port());
    let environment = vec![("FLUX_FRIPP_STATSD".into(), (&address).into())];
    let instance = Instance::start(Options { size: 3, environment, ..Options::new(backend) }).unwrap();
    let statsd = format!("statsd={address}");
    instance.load(0..3, "stats-agg", &["period=500ms", &statsd]).unwrap();
    instance.churn(20).unwrap();
    // What the caches themselves say, all ranks together. The broker of 0.70 dies of the question on ranks other than 0.
    let all = has_cancel(&instance);
    if !all {
        say("in part: of this flux's content caches only that of rank 0 can be asked");
    }
    let own = |rank| instance.rpc(rank, "content.stats-get", json!({})).unwrap();
    let caches = |key: &str| -> f64 {
        (0..if all { 3 } else { 1 }).map(|rank| own(rank)[key].as_f64().unwrap()).sum()
    };
    for key in ["count", "valid", "dirty", "size"] {
        let name = format!("flux.content-cache.{key}");
        let ask = || (series(&instance, &name)["sum"].as_f64().unwrap_or(-1.0), caches(key));
        eventually(&name, LIMIT, ask, |(shown, own)| if all { shown == own } else { shown >= own });
    }
    // The brokers of one machine share the address: one rank has it, and sums what all of them send.
    let sockets = || {
        let found = query(&instance, &["stats-agg.statsd.{sockets,sockets_taken}"])["series"].clone();
        (found[0]["sum"].clone(), found[1]["sum"].clone())
    };
    eventually("one rank has it", LIMIT, sockets, |found| *found == (json!(1), json!(2)));
    instance.remove(0..3, "stats-agg").unwrap();
    instance.stop().unwrap();
}

/// A handle's histogram and a client's `h` are one.
#[test]
fn a_histogram_is_one_series_whichever_way_it_comes() {
    let instance = instance(Backend::Embedded, 1);
    instance.load([0], "stats-agg", &["period=300ms", BOTH]).unwrap();
    Client::of(&instance, 0).unix("app.size:0.5|h\napp.size:4|d");
    let pushed = json!([{ "name": "app.size", "type": "histogram", "samples": [0.25, [8, 2]] }]);
    instance.rpc(0, "stats-agg.push", json!({ "version": 1, "metrics": pushed })).unwrap();
    let ask = || query(&instance, &["app.size"])["series"].clone();
    let found = eventually("all five", LIMIT, ask, |found| found[0]["count"] == 5);
    assert_eq!(found.as_array().unwrap().len(), 1, "{found}");
    assert_eq!(
        (&found[0]["sum"], &found[0]["min"], &found[0]["max"]),
        (&json!(20.75), &json!(0.25), &json!(8.0))
    );
    instance.remove([0], "stats-agg").unwrap();
    instance.stop().unwrap();
}

/// The script for jobs of docs/module-author.md, as a job.
#[test]
fn a_job_finds_its_rank_s_socket_and_its_series_expire_after_it() {
    let Some(Backend::Real(flux)) = real() else { return };
    let page = std::fs::read_to_string(workspace_root().join("docs/module-author.md")).unwrap();
    let section = page.split_once("### From a job\n").expect("the page has that section").1;
    let script = section.split_once("```sh\n").unwrap().1.split_once("```").unwrap().0;
    let backend = Backend::Real(flux.clone());
    let instance = Instance::start(Options { size: 2, ..Options::new(backend) }).unwrap();
    instance.load(0..2, "stats-agg", &["period=300ms", "ttl=6s", "statsd=unix:"]).unwrap();
    let path = format!("export PATH={}:$PATH\n{script}", flux.parent().unwrap().display());
    let run = ["run", "-N2", "-n2", "sh", "-ec", &path];
    let said = instance.run(0, &flux.to_string_lossy(), &run).unwrap();
    let ask = || query(&instance, &["app.**"])["series"].clone();
    let found = eventually("both tasks' lines", LIMIT, ask, |found| found[1]["total"] == 2);
    let job = found[0]["tags"]["jobid"].as_str().unwrap();
    assert!(job.starts_with('ƒ') || job.starts_with('f'), "{found:#}: {said}");
    assert_eq!((&found[0]["name"], &found[0]["count"]), (&json!("app.progress"), &json!(2)), "{found:#}");
    // The job is over: its gauge goes.
    let names = || -> Vec<Value> {
        let found = query(&instance, &["app.**"])["series"].clone();
        found.as_array().unwrap().iter().map(|one| one["name"].clone()).collect()
    };
    eventually("the gauge has expired", LIMIT, names, |names| !names.contains(&json!("app.progress")));
    // And its counter, of which the sum of all jobs that are over stays.
    let steps = || query(&instance, &["app.steps"])["series"].clone();
    let ended = |found: &Value| {
        found.as_array().is_some_and(|all| all.len() == 1) && found[0]["tags"] == json!({ "jobid": "ended" })
    };
    let found = eventually("the counter has ended", LIMIT, steps, ended);
    assert_eq!(found[0]["total"], 2);
    assert_eq!(tree(&instance)["app"]["steps"], 2);
    let gone = || series(&instance, "stats-agg.series_ended")["total"].as_u64().unwrap_or(0);
    eventually("both, on both ranks", LIMIT, gone, |&gone| gone >= 4);
    instance.remove(0..2, "stats-agg").unwrap();
    instance.stop().unwrap();
}
