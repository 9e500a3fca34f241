//! Half an hour of everything at once, at sixteen brokers: what a site leaves on must not grow.
//!
//! `FLUX_STATS_LONG=1` runs it; `FLUX_STATS_LONG_SECONDS` (1800) says for how long.

use flux_testbed::{Backend, Instance, Options};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::{Duration, Instant};
use tests::{complaints, coverage, eventually, from_environment, long, number, query, real, say, series};

const SIZE: u32 = 16;
const LIMIT: Duration = Duration::from_secs(60);
/// What is done again and again takes so long, at least.
const ROUND: Duration = Duration::from_secs(5);
/// Metrics of a program's push, and datagrams, of each rank in each round.
const METRICS: i64 = 50;
/// Jobs in each round.
const JOBS: u32 = 10;
/// One in so many rounds loads the module of a rank again.
const RELOAD: u32 = 24;
/// How many KiB more a broker may have at the end than before, beyond what malloc's arenas wobble.
const GROWTH: i64 = 4 << 10;

/// What a broker holds.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    /// KiB in memory.
    rss: i64,
    descriptors: i64,
    threads: i64,
}

impl Held {
    fn of(pid: u32) -> Held {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        Held { rss: of("VmRSS:"), descriptors: descriptors.try_into().unwrap(), threads: of("Threads:") }
    }
}

/// How many descriptors of a process lead to what.
fn open(pid: u32) -> BTreeMap<String, u32> {
    let mut kinds = BTreeMap::new();
    for fd in fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
        let target = fs::read_link(fd.path()).unwrap_or_default().to_string_lossy().into_owned();
        let kind = target.split_once(":[").map_or(target.as_str(), |(kind, _)| kind);
        *kinds.entry(kind.to_owned()).or_default() += 1;
    }
    kinds
}

/// Of each value the middle one.
fn median(held: &[Held]) -> Held {
    let middle = |of: fn(&Held) -> i64| {
        let mut all: Vec<i64> = held.iter().map(of).collect();
        all.sort_unstable();
        all[all.len() / 2]
    };
    Held { rss: middle(|h| h.rss), descriptors: middle(|h| h.descriptors), threads: middle(|h| h.threads) }
}

/// What the kernel says, where we may read it.
fn kernel() -> Option<Vec<String>> {
    let output = Command::new("dmesg").args(["--level", "emerg,alert,crit,err,warn"]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then(|| text.lines().map(str::to_owned).collect())
}

fn arguments() -> [&'static str; 4] {
    ["period=1s", "history=120s", "statsd=unix:", "export=prometheus,listen=unix:"]
}

struct World {
    instance: Instance,
    /// What was pushed and what was sent to the sockets, in units.
    pushed: f64,
    sent: f64,
    jobs: u32,
}

impl World {
    fn push(&mut self, rank: u32, round: u32) {
        let metric = |n: i64| json!({ "name": format!("app.units.{n}"), "type": "counter", "value": 1 });
        let metrics: Vec<_> = (0..METRICS).map(metric).collect();
        let push =
            json!({ "version": 1, "id": format!("long-{rank}"), "seq": round + 1, "metrics": metrics });
        let send = || self.instance.rpc(rank, "stats-agg.push", push.clone());
        eventually("a push is taken", LIMIT, send, Result::is_ok).unwrap();
        self.pushed += METRICS as f64;
        let socket = UnixDatagram::unbound().unwrap();
        let path = self.instance.rundir().join(format!("stats-agg.{rank}.statsd"));
        for _ in 0..METRICS {
            let sent = || socket.send_to(b"app.datagrams:1|c\napp.took:3|ms", &path);
            eventually("a datagram is taken", LIMIT, sent, Result::is_ok).unwrap();
            self.sent += 1.0;
        }
    }

    fn reload(&self, rank: u32) {
        self.instance.remove([rank], "stats-agg").unwrap();
        let load = || self.instance.load([rank], "stats-agg", &arguments());
        eventually("the module is loaded again", LIMIT, load, Result::is_ok).unwrap();
    }

    fn round(&mut self, round: u32, with_jobs: bool) {
        (0..SIZE).for_each(|rank| self.push(rank, round));
        if with_jobs {
            self.instance.churn(JOBS).unwrap();
            self.jobs += JOBS;
            self.instance.forget_jobs().unwrap();
        }
        let stats = self.instance.program("flux-stats");
        for words in [&["query", "app.*"][..], &["top", "--once"], &["export", "--format", "openmetrics"]] {
            // 3: of a rank whose module is being loaded again nothing is known for a moment.
            let status = self.instance.command(0, &stats).args(words).output().unwrap().status;
            assert!(matches!(status.code(), Some(0 | 3)), "{words:?}: {status}");
        }
        self.instance
            .stream(0, "stats-agg.query", &json!({ "match": ["app.**"], "stream": true }), 1)
            .unwrap();
        if round % RELOAD == RELOAD - 1 {
            self.reload((round / RELOAD * 5) % SIZE);
        }
    }
}

#[test]
fn half_an_hour_of_load_leaves_memory_descriptors_and_logs_as_they_were() {
    if !long("half_an_hour_of_load_leaves_memory_descriptors_and_logs_as_they_were") {
        return;
    }
    let time = Duration::from_secs(from_environment("FLUX_STATS_LONG_SECONDS", 1800));
    let backend = real().unwrap_or(Backend::Embedded);
    let kernel_before = kernel();
    let instance = Instance::start(Options { size: SIZE, ..Options::new(backend) }).unwrap();
    instance.load(0..SIZE, "stats-agg", &arguments()).unwrap();
    instance.load(0..SIZE, "loadgen", &["rate=50", "push=3"]).unwrap();
    let covered = |instance: &Instance| coverage(&query(instance, &["none"]));
    let everyone = ("0-15".to_owned(), String::new());
    eventually("all are covered", LIMIT, || covered(&instance), |covered| *covered == everyone);
    let pids: Vec<u32> = (0..SIZE).map(|rank| instance.broker_pid(rank).unwrap()).collect();
    let mut world = World { instance, pushed: 0.0, sent: 0.0, jobs: 0 };
    // The first load after another takes 4 MiB more of malloc, and those after it none.
    (0..SIZE).for_each(|rank| world.reload(rank));
    let mut held: BTreeMap<u32, Vec<Held>> = BTreeMap::new();
    let (begun, mut round) = (Instant::now(), 0);
    while begun.elapsed() < time {
        let round_begun = Instant::now();
        // Brokers grow with the jobs that they ran, without the module as well (some 12 KiB a job where they ran, of 0.88):
        // so what is compared is the time after them.
        world.round(round, begun.elapsed() < time / 2);
        round += 1;
        for (rank, &pid) in (0..).zip(&pids) {
            held.entry(rank).or_default().push(Held::of(pid));
        }
        std::thread::sleep(ROUND.saturating_sub(round_begun.elapsed()));
    }

    let totals = || {
        let answer = query(&world.instance, &["app.units.*"]);
        let units: f64 = answer["series"].as_array().unwrap().iter().map(|one| number(&one["total"])).sum();
        (units, series(&world.instance, "app.datagrams")["total"].as_f64().unwrap_or(0.0))
    };
    let wanted = (world.pushed, world.sent);
    eventually("the books balance", LIMIT, totals, |totals| *totals == wanted);
    eventually("all are covered", LIMIT, || covered(&world.instance), |covered| *covered == everyone);

    say(&format!(
        "{} brokers of {}, {:.0} minutes, {round} rounds: {} units pushed, {} datagrams, {} jobs",
        SIZE,
        if *world.instance.backend() == Backend::Embedded { "the embedded kind" } else { "real Flux" },
        begun.elapsed().as_secs_f64() / 60.0,
        world.pushed,
        world.sent,
        world.jobs
    ));
    say(
        "| rank | MiB, 2nd quarter (jobs) | 3rd quarter | 4th quarter | descriptors, 3rd and 4th | threads |\n\
         |---|---|---|---|---|---|",
    );
    let mut grown = Vec::new();
    for (rank, held) in &held {
        // The first quarter is for histories to fill and for arenas to settle.
        let quarter = held.len() / 4;
        let [first, middle, last] =
            [&held[quarter..2 * quarter], &held[2 * quarter..3 * quarter], &held[3 * quarter..]].map(median);
        let mib = |of: Held| of.rss as f64 / 1024.0;
        say(&format!(
            "| {rank} | {:.1} | {:.1} | {:.1} | {}, {} | {}, {} |",
            mib(first),
            mib(middle),
            mib(last),
            middle.descriptors,
            last.descriptors,
            middle.threads,
            last.threads
        ));
        let flat = last.rss - middle.rss <= GROWTH
            && last.descriptors <= middle.descriptors
            && last.threads <= middle.threads;
        if !flat {
            grown.push((rank, middle, last, open(pids[*rank as usize])));
        }
    }
    assert!(grown.is_empty(), "{grown:?}");
    for rank in (0..SIZE).rev() {
        world.instance.remove([rank], "loadgen").unwrap();
        world.instance.remove([rank], "stats-agg").unwrap();
        assert_eq!(complaints(&world.instance, rank), Vec::<String>::new(), "rank {rank}");
    }
    match (kernel_before, kernel()) {
        (Some(before), Some(after)) => {
            let new: Vec<&String> = after.iter().filter(|line| !before.contains(line)).collect();
            assert!(new.is_empty(), "{new:?}");
        }
        _ => say("skipped: what the kernel says, for dmesg may not be read here"),
    }
    world.instance.stop().unwrap();
}
