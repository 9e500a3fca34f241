//! Real receivers, each where it is installed: Prometheus, carbon-cache, InfluxDB, and for OTLP the Python protobufs. All
//! of them take the same known load at once, during which the module is reloaded on an interior rank and on rank 0: what
//! each received last is the root's total, to the unit.
//!
//! `FLUX_STATS_EXPORT_SECONDS` says for how long (20).

use flux_testbed::{Backend, Instance, Options, workspace_root};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tests::{complaints, eventually, from_environment, query, real, say, series};

const LIMIT: Duration = Duration::from_secs(60);
/// What is added at a time, and how often: 70 a second.
const STEP: u32 = 7;
const BETWEEN: Duration = Duration::from_millis(100);

/// A program that ends with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file());
    if found.is_none() {
        say(&format!("skipped: {program} as a receiver, it is not installed here"));
    }
    found
}

fn start(folder: &Path, program: &Path, arguments: &[String]) -> Program {
    let log = fs::File::create(folder.join("log")).unwrap();
    let mut command = Command::new(program);
    let command = command.args(arguments).current_dir(folder).stdin(Stdio::null());
    Program(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
}

/// A port that is free at the moment.
fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn folder(of: &Path, name: &str) -> PathBuf {
    let folder = of.join(name);
    fs::create_dir(&folder).unwrap();
    folder
}

/// The body of an answer; nothing where nobody answers.
fn http(port: u16, request: &str, body: &str) -> String {
    let ask = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        let length = body.len();
        write!(stream, "{request} HTTP/1.0\r\nHost: x\r\nContent-Length: {length}\r\n")?;
        write!(stream, "Content-Type: application/x-www-form-urlencoded\r\n\r\n{body}")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        std::io::Result::Ok(text)
    };
    let text = ask().unwrap_or_default();
    text.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned())
}

fn escaped(text: &str) -> String {
    text.bytes()
        .map(|b| if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

struct Prometheus {
    _program: Program,
    port: u16,
    scraped: u16,
}

impl Prometheus {
    fn start(of: &Path) -> Option<Self> {
        let program = found("prometheus")?;
        let (folder, port, scraped) = (folder(of, "prometheus"), port(), port());
        let config = format!(
            "global:\n  scrape_interval: 1s\nrule_files: [{rules}]\nscrape_configs:\n- job_name: flux\n  static_configs:\n  \
             - targets: ['127.0.0.1:{scraped}']\n",
            rules = workspace_root().join("docs/monitoring/alerts.yml").display(),
        );
        fs::write(folder.join("prometheus.yml"), config).unwrap();
        let arguments = [
            "--config.file=prometheus.yml".to_owned(),
            "--storage.tsdb.path=data".to_owned(),
            format!("--web.listen-address=127.0.0.1:{port}"),
            "--log.level=warn".to_owned(),
        ];
        Some(Prometheus { _program: start(&folder, &program, &arguments), port, scraped })
    }

    fn ask(&self, query: &str) -> Value {
        let answer = parsed(&http(self.port, &format!("GET /api/v1/query?query={}", escaped(query)), ""));
        answer["data"]["result"].clone()
    }

    fn value(&self, query: &str) -> Option<f64> {
        self.ask(query)[0]["value"][1].as_str()?.parse().ok()
    }

    fn check(&self, sent: u32) {
        let last = || self.value("flux_app_load_total");
        eventually("Prometheus has it all", LIMIT, last, |last| *last == Some(f64::from(sent)));
        let series = self.ask("flux_app_load_total[1h]");
        assert_eq!(series.as_array().map(Vec::len), Some(1), "{series}");
        let samples: Vec<f64> = series[0]["values"]
            .as_array()
            .unwrap()
            .iter()
            .map(|sample| sample[1].as_str().unwrap().parse().unwrap())
            .collect();
        assert!(samples.windows(2).all(|two| two[0] <= two[1]), "it never falls: {samples:?}");
        assert_eq!(self.value("resets(flux_app_load_total[1h])"), Some(0.0));
        // No spike: no two seconds gained what no four can have.
        let most = self.value("max_over_time(rate(flux_app_load_total[4s])[1h:1s])").unwrap();
        say(&format!(
            "Prometheus: {} samples, the highest rate of any 4 s was {most:.0}/s of 70",
            samples.len()
        ));
    }

    /// PromQL's rate while the load goes on, where it is the known one.
    fn known_rate(&self) -> Option<f64> {
        let known = f64::from(STEP) / BETWEEN.as_secs_f64();
        self.value("rate(flux_app_load_total[5s])").filter(|rate| (rate - known).abs() < 0.1 * known)
    }
}

fn promtool(at: u16) {
    let Some(promtool) = found("promtool") else { return };
    let text = http(at, "GET /metrics", "");
    assert!(text.contains("flux_app_load_total"), "{text}");
    let mut child = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
    say(&format!("promtool check metrics: clean, {} lines", text.lines().count()));
}

struct Carbon {
    _program: Program,
    folder: PathBuf,
    line: u16,
    pickle: u16,
}

impl Carbon {
    fn start(of: &Path) -> Option<Self> {
        let program = found("carbon-cache")?;
        let (folder, line, pickle, ask) = (folder(of, "carbon"), port(), port(), port());
        let at = folder.display();
        let config = format!(
            "[cache]\nSTORAGE_DIR = {at}\nLOCAL_DATA_DIR = {at}/whisper/\nCONF_DIR = {at}\nLOG_DIR = {at}\nPID_DIR = {at}\n\
             LINE_RECEIVER_INTERFACE = 127.0.0.1\nLINE_RECEIVER_PORT = {line}\nPICKLE_RECEIVER_INTERFACE = 127.0.0.1\n\
             PICKLE_RECEIVER_PORT = {pickle}\nCACHE_QUERY_INTERFACE = 127.0.0.1\nCACHE_QUERY_PORT = {ask}\n\
             ENABLE_UDP_LISTENER = False\nMAX_CREATES_PER_MINUTE = inf\nMAX_UPDATES_PER_SECOND = inf\nENABLE_TAGS = False\n\
             ENABLE_LOGROTATION = False\n"
        );
        fs::write(folder.join("carbon.conf"), config).unwrap();
        fs::write(folder.join("storage-schemas.conf"), "[all]\npattern = .*\nretentions = 1s:1h\n").unwrap();
        let arguments = [format!("--config={at}/carbon.conf"), "--nodaemon".to_owned(), "start".to_owned()];
        Some(Carbon { _program: start(&folder, &program, &arguments), folder, line, pickle })
    }

    fn check(&self, prefix: &str, sent: u32) {
        let file = self.folder.join(format!("whisper/{prefix}/app/load.wsp"));
        // Debian's: whisper is a package of its.
        let script = "import sys, whisper\n(_, values) = whisper.fetch(sys.argv[1], 0)\n\
                      print(*[value for value in values if value is not None])";
        let read = || {
            let output = Command::new("/usr/bin/python3").args(["-c", script]).arg(&file).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            text.split_whitespace().map(|word| word.parse().unwrap()).collect::<Vec<f64>>()
        };
        let whole = |values: &Vec<f64>| values.last() == Some(&f64::from(sent));
        let values = eventually("whisper holds the last total", LIMIT, read, whole);
        assert!(values.windows(2).all(|two| two[0] <= two[1]), "it never falls: {values:?}");
        say(&format!(
            "carbon-cache ({prefix}): {} values in the whisper file, the last is {sent}",
            values.len()
        ));
    }
}

struct Influx {
    _program: Program,
    port: u16,
}

impl Influx {
    fn start(of: &Path) -> Option<Self> {
        let program = found("influxd")?;
        let (folder, port, rpc) = (folder(of, "influx"), port(), port());
        let at = folder.display();
        let config = format!(
            "reporting-disabled = true\nbind-address = \"127.0.0.1:{rpc}\"\n[meta]\ndir = \"{at}/meta\"\n[data]\ndir = \"{at}/data\"\n\
             wal-dir = \"{at}/wal\"\n[http]\nbind-address = \"127.0.0.1:{port}\"\nlog-enabled = false\n[monitor]\n\
             store-enabled = false\n"
        );
        fs::write(folder.join("influxdb.conf"), config).unwrap();
        let arguments = ["-config".to_owned(), "influxdb.conf".to_owned()];
        let influx = Influx { _program: start(&folder, &program, &arguments), port };
        let create = || http(port, "POST /query", "q=CREATE%20DATABASE%20flux");
        eventually("InfluxDB is up", LIMIT, create, |answer| answer.contains("statement_id"));
        Some(influx)
    }

    fn check(&self, sent: u32) {
        let ask = "SELECT LAST(\"total\"), COUNT(\"total\") FROM \"flux.app.load\"";
        let found = || parsed(&http(self.port, &format!("GET /query?db=flux&q={}", escaped(ask)), ""));
        let last = |answer: &Value| answer["results"][0]["series"][0]["values"][0][1].as_f64();
        let answer =
            eventually("InfluxDB has it all", LIMIT, found, |answer| last(answer) == Some(sent.into()));
        let count = &answer["results"][0]["series"][0]["values"][0][2];
        let fall = "SELECT MIN(d) FROM (SELECT DIFFERENCE(\"total\") AS d FROM \"flux.app.load\")";
        let answer = parsed(&http(self.port, &format!("GET /query?db=flux&q={}", escaped(fall)), ""));
        let least = answer["results"][0]["series"][0]["values"][0][1].as_f64();
        assert!(least >= Some(0.0), "it never falls: {answer}");
        say(&format!("InfluxDB: {count} points, the last total is {sent}"));
    }
}

/// Bodies of OTLP requests, decoded by OpenTelemetry's own protobufs.
struct Otlp {
    python: PathBuf,
    port: u16,
    bodies: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Otlp {
    fn start() -> Option<Self> {
        let own = workspace_root().join("target/receivers/bin/python");
        let python = if own.is_file() { own } else { "python3".into() };
        let imports = "import opentelemetry.proto.collector.metrics.v1.metrics_service_pb2";
        let there =
            Command::new(&python).args(["-c", imports]).output().is_ok_and(|output| output.status.success());
        if !there {
            say("skipped: OTLP as Python's protobufs read it, opentelemetry-proto is not installed here");
            return None;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, bodies) = (listener.local_addr().unwrap().port(), Arc::<Mutex<Vec<Vec<u8>>>>::default());
        let kept = bodies.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = kept.clone();
                std::thread::spawn(move || take_bodies(&stream, &kept));
            }
        });
        Some(Otlp { python, port, bodies })
    }

    fn check(&self, of: &Path, sent: u32) {
        let script = "import sys\n\
            from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest as R\n\
            for path in sys.argv[1:]:\n    r = R.FromString(open(path, 'rb').read())\n    \
            for m in r.resource_metrics[0].scope_metrics[0].metrics:\n        if m.name == 'flux.app.load':\n            \
            p = m.sum.data_points[0]\n            assert m.sum.is_monotonic and m.sum.aggregation_temporality == 2\n            \
            print(p.as_double, p.start_time_unix_nano, p.time_unix_nano)\n";
        let folder = folder(of, "otlp");
        let bodies = std::mem::take(&mut *self.bodies.lock().unwrap());
        let files: Vec<PathBuf> = (0..bodies.len()).map(|n| folder.join(n.to_string())).collect();
        files.iter().zip(&bodies).for_each(|(file, body)| fs::write(file, body).unwrap());
        let output = Command::new(&self.python).args(["-c", script]).args(&files).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let points: Vec<Vec<f64>> =
            text.lines().map(|line| line.split(' ').map(|word| word.parse().unwrap()).collect()).collect();
        assert!(points.windows(2).all(|two| two[0][0] <= two[1][0] && two[0][2] < two[1][2]), "{text}");
        assert!(points.windows(2).all(|two| two[0][1] == two[1][1]), "one beginning: {text}");
        assert_eq!(points.last().unwrap()[0], f64::from(sent));
        say(&format!("OTLP: {} requests decoded by Python, the last total is {sent}", points.len()));
    }
}

fn take_bodies(stream: &TcpStream, kept: &Mutex<Vec<Vec<u8>>>) {
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    loop {
        let (mut length, mut line) = (0, String::new());
        while reader.read_line(&mut line).unwrap_or(0) > 2 {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            line.clear();
        }
        let mut body = vec![0; length];
        if line.is_empty() || reader.read_exact(&mut body).is_err() {
            return;
        }
        kept.lock().unwrap().push(body);
        let _ = writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    }
}

fn add(instance: &Instance, rank: u32) {
    let metric = json!({ "name": "app.load", "type": "counter", "value": STEP });
    instance.rpc(rank, "stats-agg.push", json!({ "version": 1, "metrics": [metric] })).unwrap();
}

#[test]
fn what_real_receivers_have_is_the_root_s_total_to_the_unit() {
    let scratch = tempfile::tempdir().unwrap();
    let of = scratch.path();
    let (prometheus, carbon, influx, otlp) =
        (Prometheus::start(of), Carbon::start(of), Influx::start(of), Otlp::start());
    let mut exports = Vec::new();
    let scraped = prometheus.as_ref().map_or_else(port, |prometheus| prometheus.scraped);
    exports.push(format!("export=prometheus,listen=127.0.0.1:{scraped}"));
    if let Some(Carbon { line, pickle, .. }) = &carbon {
        exports.push(format!("export=graphite,target=127.0.0.1:{line},period=1s"));
        exports.push(format!("export=graphite-pickle,target=127.0.0.1:{pickle},period=1s,prefix=pickled"));
    }
    if let Some(Influx { port, .. }) = &influx {
        exports.push(format!("export=influx,target=http://127.0.0.1:{port}/write?db=flux,period=1s"));
    }
    if let Some(Otlp { port, .. }) = &otlp {
        exports.push(format!("export=otlp,target=http://127.0.0.1:{port},period=1s"));
    }
    let backend = real().unwrap_or(Backend::Embedded);
    // Ranks 3 and 4 are below rank 1.
    let instance = Instance::start(Options { size: 5, ..Options::new(backend) }).unwrap();
    let mut arguments = vec!["period=500ms"];
    arguments.extend(exports.iter().map(String::as_str));
    instance.load(0..5, "stats-agg", &arguments).unwrap();

    let seconds = from_environment("FLUX_STATS_EXPORT_SECONDS", 20);
    let (begun, mut sent, mut next) = (Instant::now(), 0_u32, Instant::now());
    let mut reloads = vec![(0, seconds * 2 / 3), (1, seconds / 2)];
    let mut rate = None;
    while begun.elapsed() < Duration::from_secs(seconds) {
        add(&instance, if sent % 2 == 0 { 4 } else { 2 });
        sent += STEP;
        // Once a second, before anything is reloaded: on a busy machine not each second is the same.
        if rate.is_none() && (sent / STEP).is_multiple_of(10) {
            rate = prometheus.as_ref().and_then(Prometheus::known_rate);
        }
        if let Some((rank, at)) = reloads.last()
            && begun.elapsed() >= Duration::from_secs(*at)
        {
            instance.remove([*rank], "stats-agg").unwrap();
            instance.load([*rank], "stats-agg", &arguments).unwrap();
            reloads.pop();
        }
        next += BETWEEN;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    if prometheus.is_some() {
        say(&format!("Prometheus: rate() while 70/s were added: {:.1}/s", rate.expect("the known rate")));
    }
    let total = || series(&instance, "app.load")["total"].as_f64();
    eventually("the root has it all", LIMIT, total, |total| *total == Some(sent.into()));
    prometheus.iter().for_each(|prometheus| prometheus.check(sent));
    promtool(scraped);
    carbon.iter().for_each(|carbon| ["flux", "pickled"].iter().for_each(|prefix| carbon.check(prefix, sent)));
    influx.iter().for_each(|influx| influx.check(sent));
    for one in query(&instance, &["none"])["export"].as_array().unwrap() {
        assert_eq!(one["failing_s"], Value::Null, "{one}");
    }
    let dropped = query(&instance, &["stats-agg.export.*.dropped"]);
    assert!(dropped["series"].as_array().unwrap().iter().all(|one| one["total"] == 0), "{dropped:#}");
    instance.remove([4, 3, 2, 1, 0], "stats-agg").unwrap();
    // The last request went out with the module.
    otlp.iter().for_each(|otlp| otlp.check(of, sent));
    assert_eq!(complaints(&instance, 0), Vec::<String>::new());
    instance.stop().unwrap();
}
