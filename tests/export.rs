//! What leaves rank 0, as it arrives.

use flux_testbed::{Backend, Instance, Options};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tests::{complaints, eventually, facts, number, query, series};

/// Far beyond what is awaited: a test fails by what it sees, not by how long it took.
const LIMIT: Duration = Duration::from_secs(40);

facts! {
    what_is_scraped_is_what_rank_0_knows,
    totals_and_their_times_survive_reloads_and_a_clear_begins_anew,
    a_changed_table_moves_exporters_and_a_bad_one_changes_nothing,
    what_is_sent_adds_up_to_the_root_s_totals_across_a_reload,
    the_last_numbers_are_in_the_file_at_the_end,
    ranks_are_told_one_by_one_where_that_is_set,
    guests_see_on_a_port_what_they_may_see_and_a_token_opens_the_rest,
}

fn instance(backend: Backend, size: u32) -> Instance {
    Instance::start(Options { size, ..Options::new(backend) }).unwrap()
}

/// What rank 0 says of its exporters.
fn exporters(instance: &Instance) -> Vec<Value> {
    query(instance, &["none"])["export"].as_array().cloned().unwrap_or_default()
}

/// Where the first one listens.
fn listening(instance: &Instance) -> String {
    let ask = || exporters(instance).first().map(|one| one["listening"].clone()).unwrap_or_default();
    eventually("an exporter that listens", LIMIT, ask, Value::is_string).as_str().unwrap().to_owned()
}

fn add(instance: &Instance, rank: u32, name: &str, amount: i64) {
    let metric = json!({ "name": name, "type": "counter", "value": amount });
    instance.rpc(rank, "stats-agg.push", json!({ "version": 1, "metrics": [metric] })).unwrap();
}

/// An answer: its head, and its body.
fn ask(at: &str, request: &str) -> (String, Vec<u8>) {
    let mut answer = Vec::new();
    match at.strip_prefix("unix:") {
        Some(path) => {
            let mut stream = UnixStream::connect(path).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            stream.read_to_end(&mut answer).unwrap();
        }
        None => {
            let mut stream = TcpStream::connect(at).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            stream.read_to_end(&mut answer).unwrap();
        }
    }
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let body = answer.split_off(end);
    (String::from_utf8(answer).unwrap(), body)
}

fn scrape_with(at: &str, headers: &str) -> (String, String) {
    let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
    let (head, body) = ask(at, &request);
    (head, String::from_utf8(body).unwrap())
}

/// All samples, by name and labels.
fn scrape(at: &str) -> BTreeMap<String, f64> {
    let (head, text) = scrape_with(at, "Accept: application/openmetrics-text;version=1.0.0\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(text.ends_with("# EOF\n"));
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    samples.map(sample).collect()
}

fn what_is_scraped_is_what_rank_0_knows(backend: Backend) {
    let instance = instance(backend, 3);
    let argument = "export=prometheus,listen=127.0.0.1:0";
    instance.load(0..3, "stats-agg", &["period=300ms", argument]).unwrap();
    (0..3).for_each(|rank| add(&instance, rank, "app.requests", 100));
    let at = listening(&instance);
    let requests = || scrape(&at).get("flux_app_requests_total").copied();
    eventually("all requests", LIMIT, requests, |found| *found == Some(300.0));
    let samples = scrape(&at);
    assert_eq!(samples["flux_ranks{state=\"covered\"}"], 3.0);
    assert_eq!(samples["flux_ranks{state=\"silent\"}"], 0.0);
    let wakeups = samples["flux_module_wakeups_total{module=\"stats-agg\"}"];
    assert!(wakeups > 0.0 && wakeups <= number(&series(&instance, "modules.stats-agg.wakeups")["total"]));
    assert!(samples["flux_module_work_seconds_total{module=\"broker\"}"] > 0.0);
    let counted = samples["flux_module_work_per_wakeup_seconds_count{module=\"stats-agg\"}"];
    assert_eq!(
        counted,
        samples["flux_module_work_per_wakeup_seconds_bucket{module=\"stats-agg\",le=\"+Inf\"}"]
    );
    assert!(samples.keys().any(|name| name.starts_with("flux_instance_info{")), "{samples:?}");
    // Other ranks export nothing.
    for rank in 1..3 {
        let answer = instance.rpc(rank, "stats-agg.query", json!({ "match": ["none"] })).unwrap();
        assert_eq!(answer["export"], Value::Null);
    }
    let (head, text) = scrape_with(&at, "");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
    assert!(text.contains("# TYPE flux_app_requests_total counter\n"));
    let request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccept-Encoding: gzip\r\n\r\n";
    let (head, body) = ask(&at, request);
    assert!(head.contains("Content-Encoding: gzip\r\n") && body.len() < text.len() / 3, "{head}");
    let sent = || series(&instance, "stats-agg.export.prometheus.sent")["total"].as_f64().unwrap_or(0.0);
    eventually("what was scraped is counted", LIMIT, sent, |sent| *sent > 100.0);
    instance.remove(0..3, "stats-agg").unwrap();
    assert!(TcpStream::connect(&at).is_err(), "nobody listens any more");
    assert_eq!(complaints(&instance, 0), Vec::<String>::new());
    instance.stop().unwrap();
}

fn totals_and_their_times_survive_reloads_and_a_clear_begins_anew(backend: Backend) {
    let instance = instance(backend, 3);
    let arguments = ["period=300ms", "export=prometheus,listen=unix:"];
    instance.load(0..3, "stats-agg", &arguments).unwrap();
    add(&instance, 2, "app.x", 40);
    let sample = |name: &str| scrape(&listening(&instance)).get(name).copied();
    eventually("40", LIMIT, || sample("flux_app_x_total"), |found| *found == Some(40.0));
    let created = sample("flux_app_x_created").unwrap();
    // Another second.
    std::thread::sleep(Duration::from_millis(1500));
    for rank in [1, 0] {
        instance.remove([rank], "stats-agg").unwrap();
        instance.load([rank], "stats-agg", &arguments).unwrap();
        // At once: no number is missing for a moment, none is lower.
        if rank == 0 {
            assert_eq!(sample("flux_app_x_total"), Some(40.0));
        }
    }
    add(&instance, 1, "app.x", 2);
    eventually("42", LIMIT, || sample("flux_app_x_total"), |found| *found == Some(42.0));
    assert_eq!(sample("flux_app_x_created"), Some(created));
    instance.rpc(0, "stats-agg.stats-clear", json!({})).unwrap();
    add(&instance, 1, "app.x", 5);
    eventually("5", LIMIT, || sample("flux_app_x_total"), |found| *found == Some(5.0));
    assert!(sample("flux_app_x_created").unwrap() > created);
    instance.remove(0..3, "stats-agg").unwrap();
    instance.stop().unwrap();
}

fn a_changed_table_moves_exporters_and_a_bad_one_changes_nothing(backend: Backend) {
    let config = json!({ "stats-agg": { "export": [{ "type": "prometheus", "listen": "127.0.0.1:0" }] } });
    let instance = Instance::start(Options { size: 1, config, ..Options::new(backend) }).unwrap();
    instance.load([0], "stats-agg", &["period=300ms"]).unwrap();
    let first = listening(&instance);
    scrape(&first);
    let table = |tables: Value| json!({ "stats-agg": { "export": tables } });
    for (bad, said) in [
        (json!([{ "type": "prometheus", "listen": "0.0.0.0:9464" }]), "expected a loopback address"),
        (json!([{ "type": "zabbix" }]), "expected one of prometheus, "),
        (json!([{ "type": "prometheus", "listen": "unix:", "match": ["a["] }]), "[ without ]"),
        (json!({ "type": "prometheus" }), "[[stats-agg.export]]"),
        (
            json!([{ "type": "json", "target": "/x" }, { "type": "json", "target": "/x" }]),
            "no other exporter has",
        ),
    ] {
        let error = instance.configure(&table(bad)).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
        assert_eq!(listening(&instance), first);
    }
    // One that stays goes on where it is, and another comes.
    instance
        .configure(&table(json!([
            { "type": "prometheus", "listen": "127.0.0.1:0" },
            { "type": "prometheus", "name": "jobs", "listen": "unix:", "match": ["jobs.*"], "prefix": "hpc" },
        ])))
        .unwrap();
    let two = || exporters(&instance).iter().filter(|one| one["listening"].is_string()).count();
    eventually("two exporters", LIMIT, two, |count| *count == 2);
    let all = exporters(&instance);
    let at = |name: &str| {
        all.iter().find(|one| one["name"] == name).unwrap()["listening"].as_str().unwrap().to_owned()
    };
    assert_eq!(at("prometheus"), first);
    scrape(&first);
    assert!(scrape(&at("jobs")).keys().all(|name| name.starts_with("hpc_")));
    // What went wrong with one is not told of another that takes its name.
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let to = |target: &str| table(json!([{ "type": "json", "target": target, "period": 1 }]));
    let error = || exporters(&instance)[0]["last_error"].as_str().map(str::to_owned);
    instance.configure(&to(&file("none/numbers"))).unwrap();
    eventually("no such folder", LIMIT, error, |error| {
        error.as_deref().unwrap_or("").contains("none/numbers")
    });
    instance.configure(&to(&file("numbers"))).unwrap();
    eventually("another target", LIMIT, error, Option::is_none);
    instance.configure(&json!({})).unwrap();
    eventually("nobody listens", LIMIT, || TcpStream::connect(&first).is_err(), |gone| *gone);
    assert_eq!(exporters(&instance), Vec::<Value>::new());
    instance.remove([0], "stats-agg").unwrap();
    instance.stop().unwrap();
}

/// Lines that arrive over TCP.
fn lines() -> (u16, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, (sender, receiver)) = (listener.local_addr().unwrap().port(), channel());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream.unwrap()).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (port, receiver)
}

/// Bodies that arrive over HTTP, each answered with 204.
fn bodies() -> (u16, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, (sender, receiver)) = (listener.local_addr().unwrap().port(), channel());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (sender, stream) = (sender.clone(), stream.unwrap());
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut writer = stream;
                loop {
                    let mut length = 0;
                    let mut line = String::new();
                    while reader.read_line(&mut line).unwrap_or(0) > 2 {
                        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                            length = value.trim().parse().unwrap();
                        }
                        line.clear();
                    }
                    let mut body = vec![0; length];
                    if line.is_empty() || reader.read_exact(&mut body).is_err() || sender.send(body).is_err()
                    {
                        return;
                    }
                    writer.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
                }
            });
        }
    });
    (port, receiver)
}

fn what_is_sent_adds_up_to_the_root_s_totals_across_a_reload(backend: Backend) {
    let instance = instance(backend, 2);
    let (graphite, influx, otlp) = (lines(), bodies(), bodies());
    let statsd = UdpSocket::bind("127.0.0.1:0").unwrap();
    statsd.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let exports = [
        format!("export=graphite,target=127.0.0.1:{},period=1s,match=app.*", graphite.0),
        format!("export=influx,target=http://127.0.0.1:{}/write?db=flux,period=1s,match=app.*", influx.0),
        format!("export=otlp-json,target=http://127.0.0.1:{},period=1s,match=app.*", otlp.0),
        format!("export=statsd,target={},period=1s,match=app.*", statsd.local_addr().unwrap()),
    ];
    let mut arguments = vec!["period=300ms"];
    arguments.extend(exports.iter().map(String::as_str));
    instance.load(0..2, "stats-agg", &arguments).unwrap();
    let mut sent = 0;
    for round in 0..30 {
        add(&instance, round % 2, "app.x", 7);
        sent += 7;
        std::thread::sleep(Duration::from_millis(100));
        if round == 12 {
            instance.remove([0], "stats-agg").unwrap();
            instance.load([0], "stats-agg", &arguments).unwrap();
        }
    }
    let total = || series(&instance, "app.x")["total"].as_f64().unwrap_or(0.0);
    eventually("all of it", LIMIT, total, |found| *found == f64::from(sent));
    // The last numbers go out with the module.
    instance.remove(0..2, "stats-agg").unwrap();
    let mut gained = 0.0;
    let mut bytes = [0; 2000];
    while let Ok(length) = statsd.recv(&mut bytes) {
        for line in std::str::from_utf8(&bytes[..length]).unwrap().lines() {
            if let Some(value) = line.strip_prefix("flux.app.x:").and_then(|rest| rest.strip_suffix("|c")) {
                gained += value.parse::<f64>().unwrap();
            }
        }
    }
    assert_eq!(gained, f64::from(sent), "statsd: every gain once");
    let values: Vec<f64> = graphite
        .1
        .try_iter()
        .filter_map(|line| line.strip_prefix("flux.app.x ")?.split(' ').next()?.parse().ok())
        .collect();
    assert!(values.windows(2).all(|two| two[0] <= two[1]), "never less: {values:?}");
    assert_eq!(values.last(), Some(&f64::from(sent)), "graphite");
    let influx: Vec<String> = influx.1.try_iter().map(|body| String::from_utf8(body).unwrap()).collect();
    let last = influx.last().unwrap().lines().find(|line| line.starts_with("flux.app.x ")).unwrap();
    assert!(last.starts_with(&format!("flux.app.x total={sent} ")), "{last}");
    let otlp: Vec<Value> = otlp.1.try_iter().map(|body| serde_json::from_slice(&body).unwrap()).collect();
    let metric = &otlp.last().unwrap()["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0];
    assert_eq!((&metric["name"], &metric["sum"]["isMonotonic"]), (&json!("flux.app.x"), &json!(true)));
    assert_eq!(metric["sum"]["dataPoints"][0]["asDouble"].as_f64(), Some(f64::from(sent)));
    let starts = |body: &Value| {
        let metric = body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0].clone();
        metric["sum"]["dataPoints"][0]["startTimeUnixNano"].as_str().map(str::to_owned)
    };
    let mut starts: Vec<String> = otlp.iter().filter_map(starts).collect();
    starts.dedup();
    assert_eq!(starts.len(), 1, "a reload does not begin anew: {starts:?}");
    assert_eq!(complaints(&instance, 0), Vec::<String>::new());
    instance.stop().unwrap();
}

fn the_last_numbers_are_in_the_file_at_the_end(backend: Backend) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("{jobid}.jsonl");
    let argument = format!("export=json,target={},period=at-exit", path.display());
    let instance = instance(backend, 2);
    instance.load(0..2, "stats-agg", &["period=300ms", &argument]).unwrap();
    add(&instance, 1, "app.x", 9);
    let total = || series(&instance, "app.x")["total"].clone();
    eventually("9", LIMIT, total, |total| *total == 9);
    add(&instance, 0, "app.x", 1);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    instance.remove([1, 0], "stats-agg").unwrap();
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().collect();
    assert_eq!(files.len(), 1);
    let text = std::fs::read_to_string(files[0].path()).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let found = lines.iter().find(|line| line["name"] == "app.x").unwrap();
    assert_eq!((&found["total"], &found["type"]), (&json!(10), &json!("counter")));
    assert!(lines.iter().any(|line| line["name"] == "modules.broker.wakeups"));
    instance.stop().unwrap();
}

fn ranks_are_told_one_by_one_where_that_is_set(backend: Backend) {
    let instance = instance(backend, 3);
    let argument = "export=prometheus,listen=unix:,by=rank,period=1s,match=app.*";
    instance.load(0..3, "stats-agg", &["period=300ms", argument]).unwrap();
    (0..3).for_each(|rank| add(&instance, rank, "app.x", i64::from(rank) + 1));
    let at = listening(&instance);
    let ask = || {
        let request = "GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n";
        let (head, body) = ask(&at, request);
        if !head.starts_with("HTTP/1.1 200") {
            return Vec::new();
        }
        let text = String::from_utf8(body).unwrap();
        text.lines()
            .filter(|line| line.starts_with("flux_app_x_total"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let expected = [1, 2, 3].map(|n| format!("flux_app_x_total{{rank=\"{}\"}} {n}", n - 1));
    eventually("all ranks", LIMIT, ask, |found| *found == expected);
    instance.remove(0..3, "stats-agg").unwrap();
    instance.stop().unwrap();
}

fn guests_see_on_a_port_what_they_may_see_and_a_token_opens_the_rest(backend: Backend) {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "s3cret\n").unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let instance = instance(backend, 1);
    let open = "export=prometheus,listen=127.0.0.1:0,name=a-open";
    let closed =
        format!("export=prometheus,listen=127.0.0.1:0,name=closed,credentials-file={}", token.display());
    instance
        .load([0], "stats-agg", &["period=300ms", "collect=default,stats:stats-agg", open, &closed])
        .unwrap();
    let both = || exporters(&instance).iter().filter(|one| one["listening"].is_string()).count();
    eventually("two exporters", LIMIT, both, |count| *count == 2);
    let all = exporters(&instance);
    let at = |place: usize| all[place]["listening"].as_str().unwrap();
    let (head, _) = scrape_with(at(1), "");
    assert!(head.starts_with("HTTP/1.1 401 Unauthorized\r\n"), "{head}");
    let (head, _) = scrape_with(at(1), "Authorization: Bearer wrong\r\n");
    assert!(head.starts_with("HTTP/1.1 401 Unauthorized\r\n"), "{head}");
    // What a module tells of itself is the owner's.
    let owners = |text: &str| text.contains("flux_module_stats_");
    let with_token = || scrape_with(at(1), "Authorization: Bearer s3cret\r\n").1;
    eventually("the owner's numbers", LIMIT, with_token, |text| owners(text));
    let (_, text) = scrape_with(at(0), "");
    assert!(!owners(&text) && text.contains("flux_module_wakeups_total{module=\"broker\"}"));
    let refused = || number(&series(&instance, "stats-agg.export.closed.refused")["total"]);
    eventually("two refusals", LIMIT, refused, |count| *count == 2.0);
    instance.remove([0], "stats-agg").unwrap();
    instance.stop().unwrap();
}
