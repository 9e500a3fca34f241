//! Rules on answers that are made up: what each says, and that none says anything of an instance that is well.

use super::rules::{RULES, Suspicion};
use super::{Evidence, Finding, findings, is_partial, shown, suspicion};
use crate::answer::Answer;
use serde_json::{Value, json};

/// Ranks of the instance, slots of its history and how long each is, in seconds.
const SIZE: u32 = 4;
const SLOTS: usize = 60;
const SLOT_S: f64 = 2.0;

/// An answer in the making.
struct Told(Value);

impl Told {
    fn new() -> Self {
        Told(json!({
            "version": 1, "time": 1_700_000_000.0, "period": 2.0, "instance": { "size": SIZE, "hostlist": "n[0-3]" },
            "ranks": { "covered": "0-3", "missing": "", "offline": "", "absent": "", "silent": "", "oldest": 0.5 },
            "series": [],
        }))
    }

    fn series(mut self, series: Value) -> Self {
        self.0["series"].as_array_mut().unwrap().push(series);
        self
    }

    /// A counter's rate in each slot; the highest of a rank.
    fn counter_of(self, name: &str, rank: u32, points: &[f64]) -> Self {
        let (total, seconds) = (points.iter().sum::<f64>() * SLOT_S, points.len() as f64 * SLOT_S);
        let last = points[points.len() - 1];
        self.series(json!({
            "name": name, "tags": {}, "type": "counter", "total": total, "rate": last, "max": { "rank": rank, "rate": last },
            "since": { "seconds": seconds, "total": total, "rate": total / seconds, "points": points },
        }))
    }

    fn counter(self, name: &str, rank: u32, rate: f64) -> Self {
        self.counter_of(name, rank, &[rate; SLOTS])
    }

    /// A gauge's value at the end of each slot, of one rank.
    fn gauge_of(self, name: &str, rank: u32, points: &[Option<f64>]) -> Self {
        let (last, seconds) = (points[points.len() - 1].unwrap(), points.len() as f64 * SLOT_S);
        let state = json!({ "value": last, "rank": rank });
        self.series(json!({
            "name": name, "tags": {}, "type": "gauge", "count": 1, "sum": last, "min": state, "max": state,
            "since": { "seconds": seconds, "points": points, "max": points },
        }))
    }

    fn gauge(self, name: &str, rank: u32, value: f64) -> Self {
        self.gauge_of(name, rank, &[Some(value); SLOTS])
    }

    /// A gauge that grows by so much in each slot.
    fn growing(self, name: &str, rank: u32, from: f64, step: f64) -> Self {
        let points: Vec<_> = (0..SLOTS).map(|slot| Some(from + step * slot as f64)).collect();
        self.gauge_of(name, rank, &points)
    }

    /// As a rank has it.
    fn by_rank(mut self, rank: u32) -> Self {
        self.0["series"].as_array_mut().unwrap().iter_mut().for_each(|series| series["rank"] = rank.into());
        self
    }

    fn ranks(mut self, key: &str, ranks: &str) -> Self {
        self.0["ranks"][key] = ranks.into();
        self
    }

    fn answer(self) -> Answer {
        serde_json::from_value(self.0).unwrap()
    }

    fn evidence(self) -> Evidence {
        Evidence::new(self.answer(), None)
    }

    fn found(self) -> Vec<Finding> {
        findings(&self.evidence())
    }

    /// A module on one rank, which works so much of the time.
    fn module(self, name: &str, rank: u32, work: f64) -> Self {
        let of = |of: &str| format!("modules.{name}.{of}");
        let told = self.counter(&of("work_s"), rank, work).counter(&of("wakeups"), rank, 300.0);
        let told = told.counter(&of("cpu_s"), rank, work).gauge(&of("loaded"), rank, 1.0);
        told.counter(&of("runq_wait_s"), rank, 0.0).counter(&of("blocked_s"), rank, 0.0)
    }

    /// What an instance tells whose nodes are free, and on which nothing runs.
    fn nodes(self, total: f64, free: f64, queued: f64, pending: f64, run: f64) -> Self {
        self.gauge("resources.nodes.total", 0, total)
            .gauge("resources.nodes.free", 0, free)
            .gauge("modules.job-manager.alloc_queued", 0, queued)
            .gauge("modules.job-manager.alloc_pending", 0, pending)
            .gauge("jobs.run", 0, run)
    }
}

fn names(found: &[Finding]) -> Vec<&'static str> {
    found.iter().map(|finding| finding.name).collect()
}

fn told() -> Told {
    Told::new()
}

/// Something of every rule, near its threshold, and nothing beyond it.
fn busy_and_well() -> Told {
    let told = told().module("kvs", 0, 0.8).module("job-manager", 0, 0.5).gauge("modules.kvs.idle_s", 0, 0.0);
    let told = told.counter("modules.kvs.blocked_s", 0, 0.4).counter("modules.broker.wakeups", 0, 20_000.0);
    let bursts: Vec<_> = (0..SLOTS).map(|slot| Some(3000.0 * ((slot % 10) as f64))).collect();
    let told = told.gauge_of("modules.job-ingest.sendq", 0, &bursts);
    // 100 jobs a second, each of which leaves 40 KiB.
    let told =
        told.growing("broker.rss_anon_bytes", 0, 1e9, 200.0 * 40_960.0).growing("jobs.total", 0, 0.0, 200.0);
    let told = told.gauge("broker.open_fds", 0, 700.0).gauge("broker.max_fds", 0, 1024.0);
    let told = told.gauge("broker.rundir_free_bytes", 0, 2e10).gauge("broker.rundir_size_bytes", 0, 1e12);
    let told = told.gauge("overlay.ranks_offline", 0, 500.0).gauge("overlay.ranks_torpid", 0, 0.0);
    let told =
        told.counter("stats-agg.statsd.packets", 0, 5000.0).counter("stats-agg.statsd.dropped", 0, 1.0);
    told.nodes(8.0, 0.0, 5000.0, 8.0, 64.0).ranks("offline", "4-503")
}

#[test]
fn an_instance_that_is_busy_and_well_has_no_findings_and_neither_has_one_that_has_just_begun() {
    assert_eq!(busy_and_well().found(), []);
    assert_eq!(told().found(), []);
    // Everything at once, but for a few seconds.
    let short = [1.0, 1.0, 1.0, 1.0];
    let told = told().counter_of("modules.kvs.work_s", 0, &short).counter_of("modules.kvs.cpu_s", 0, &short);
    let told = told.counter_of("modules.kvs.blocked_s", 0, &short).gauge("modules.kvs.loaded", 0, 1.0);
    let points: Vec<_> = (0..4).map(|slot| Some(1e9 * f64::from(slot))).collect();
    let told = told.gauge_of("broker.rss_anon_bytes", 0, &points).gauge_of("modules.kvs.sendq", 0, &points);
    let told = told.gauge_of("modules.job-manager.alloc_queued", 0, &[Some(5.0); 4]);
    assert_eq!(told.gauge_of("modules.job-manager.alloc_pending", 0, &[Some(0.0); 4]).found(), []);
}

#[test]
fn a_module_that_works_all_the_time_spins_or_is_busy_by_what_it_says_to_others() {
    let spinning = || told().module("loadgen", 2, 0.93);
    assert_eq!(spinning().found()[0].name, "module-busy", "nobody knows whether it gets on");
    let found = spinning().gauge("modules.loadgen.idle_s", 2, 45.0).found();
    assert_eq!((names(&found), &found[0].ranks[..]), (vec!["module-spinning"], &[2][..]));
    assert_eq!(names(&spinning().gauge("modules.loadgen.idle_s", 2, 3.0).found()), ["module-busy"]);
    let waited_for =
        spinning().gauge("modules.loadgen.idle_s", 2, 45.0).gauge("modules.loadgen.sendq", 2, 4.0);
    assert_eq!(names(&waited_for.found()), ["module-busy"], "messages wait for it");
    let counted = |rx: f64| {
        spinning().counter("modules.loadgen.rx.request", 2, rx).counter("modules.loadgen.tx.response", 2, rx)
    };
    assert_eq!(names(&counted(0.6).found()), ["module-spinning"]);
    assert_eq!(names(&counted(50.0).found()), ["module-busy"]);
    // Turns alone are enough, if nobody has sent anything.
    let turning = |idle| {
        told().module("loadgen", 1, 0.01).counter("modules.loadgen.wakeups", 1, 5000.0).gauge(
            "modules.loadgen.idle_s",
            1,
            idle,
        )
    };
    assert_eq!(
        (names(&turning(60.0).found()), names(&turning(1.0).found())),
        (vec!["module-spinning"], vec![])
    );
}

#[test]
fn waiting_for_a_processor_is_no_work_and_what_gets_none_is_not_judged() {
    let module = |work: f64, waited: f64| {
        let told = told().counter("modules.m.work_s", 0, work).gauge("modules.m.loaded", 0, 1.0);
        told.counter("modules.m.cpu_s", 0, work - waited).counter("modules.m.runq_wait_s", 0, waited)
    };
    assert_eq!(names(&module(0.9, 0.6).found()), Vec::<&str>::new(), "0.3 s of 0.4 s");
    assert_eq!(names(&module(0.95, 0.5).found()), ["module-busy"], "0.45 s of 0.5 s");
    assert_eq!(names(&module(0.99, 0.92).found()), Vec::<&str>::new());
    // A process without a hook.
    let process = told().counter("modules.m.cpu_s", 0, 0.97).gauge("modules.m.loaded", 0, 1.0);
    assert_eq!(names(&process.found()), ["module-busy"]);
}

#[test]
fn of_a_module_on_many_ranks_the_ranks_are_asked_and_the_guilty_ones_named() {
    let all = |name: &str| {
        let told = told().counter(&format!("modules.{name}.work_s"), 2, 1.1).counter(
            &format!("modules.{name}.wakeups"),
            2,
            400.0,
        );
        told.series(json!({
            "name": format!("modules.{name}.loaded"), "tags": {}, "type": "gauge", "count": 4, "sum": 4,
            "min": { "value": 1, "rank": 0 }, "max": { "value": 1, "rank": 0 },
        }))
    };
    let Suspicion { patterns, ranks } = suspicion(&all("kvs").evidence());
    assert!(
        patterns.len() == 1 && patterns.first().unwrap().starts_with("modules.kvs.{work_s,"),
        "{patterns:?}"
    );
    assert_eq!(ranks.into_iter().collect::<Vec<_>>(), [2]);
    assert_eq!(suspicion(&told().evidence()), Suspicion::default());
    let of = |rank: u32, work: f64| {
        let told =
            told().counter("modules.kvs.work_s", rank, work).counter("modules.kvs.wakeups", rank, 100.0);
        told.gauge("modules.kvs.idle_s", rank, 60.0).by_rank(rank)
    };
    let asked = |shares: &[f64]| {
        let mut answers = shares.iter().zip(0..).map(|(&work, rank)| of(rank, work).answer());
        let mut first = answers.next().unwrap();
        answers.for_each(|answer| first.series.extend(answer.series));
        findings(&all("kvs").evidence().with(first))
    };
    assert_eq!(asked(&[0.3, 0.3, 0.3, 0.2]), [], "each a little");
    let found = asked(&[0.9, 0.01, 0.99, 0.1]);
    assert_eq!(
        (names(&found), &found[0].ranks[..]),
        (vec!["module-spinning"], &[2, 0][..]),
        "the worst first"
    );
    assert!(found[0].sentence.contains("works 99%"), "{}", found[0].sentence);
}

#[test]
fn a_module_that_stalls_or_is_blocked_is_said_to_be() {
    let blocked = told().counter("modules.loadgen.blocked_s", 1, 0.7).gauge("modules.loadgen.loaded", 1, 1.0);
    let found = blocked.counter("modules.loadgen.blocked_calls", 1, 10.0).found();
    assert_eq!((names(&found), &found[0].ranks[..]), (vec!["module-blocked"], &[1][..]));
    let stalled = told().gauge("modules.loadgen.stalled", 1, 12.0).gauge("modules.loadgen.sendq", 1, 6.0);
    let found = stalled.module("other", 0, 0.99).found();
    assert_eq!(names(&found), ["module-stalled", "module-busy"], "what answers nobody is worse");
    assert!(found[0].sentence.contains("6 messages wait"), "{}", found[0].sentence);
}

#[test]
fn a_broker_s_loop_that_turns_for_nothing_is_no_broker_that_is_busy() {
    let broker = |others: f64| {
        let whole =
            told().counter("modules.broker.wakeups", 3, 40_000.0).counter("modules.kvs.wakeups", 3, others);
        let own =
            told().counter("modules.broker.wakeups", 3, 40_000.0).counter("modules.kvs.wakeups", 3, others);
        let own = own.counter("modules.broker.work_s", 3, 0.9).counter("modules.kvs.work_s", 3, 0.1);
        (whole.evidence(), own.by_rank(3).answer())
    };
    let (whole, own) = broker(100.0);
    assert!(suspicion(&whole).patterns.contains("modules.*.wakeups"));
    let found = findings(&whole.with(own));
    assert_eq!((names(&found), &found[0].ranks[..]), (vec!["broker-turning"], &[3][..]));
    let (whole, own) = broker(30_000.0);
    assert_eq!(names(&findings(&whole.with(own))), ["module-busy"]);
}

#[test]
fn a_queue_grows_when_it_is_never_as_short_as_it_was() {
    let growing = told().growing("modules.kvs.sendq", 2, 0.0, 20.0).found();
    assert_eq!((names(&growing), &growing[0].ranks[..]), (vec!["queue-growing"], &[2][..]));
    assert!(growing[0].sentence.starts_with("1180 messages wait for kvs"), "{}", growing[0].sentence);
    let broker = told().growing("modules.kvs.recvq", 2, 0.0, 20.0).found();
    assert!(broker[0].sentence.contains("of kvs wait for the broker"), "{}", broker[0].sentence);
    assert_eq!(told().gauge("modules.kvs.sendq", 2, 5000.0).found(), [], "long, and no longer than it was");
    assert_eq!(told().growing("modules.kvs.sendq", 2, 0.0, 0.5).found(), [], "short");
    let bursts: Vec<_> =
        (0..SLOTS).map(|slot| Some(if slot % 6 == 5 { 10.0 * slot as f64 } else { slot as f64 })).collect();
    assert_eq!(
        told().gauge_of("modules.kvs.recvq", 0, &bursts).found(),
        [],
        "longer bursts, all of which are worked off"
    );
    assert_eq!(told().growing("modules.kvs.sendq", 2, 50_000.0, -20.0).found(), [], "being worked off");
}

#[test]
fn memory_grows_when_jobs_do_not_explain_it() {
    const MIB: f64 = 1048576.0;
    let leak = |step: f64| told().growing("broker.rss_anon_bytes", 1, 1e9, step);
    let found = leak(3.0 * MIB).found();
    assert_eq!((names(&found), &found[0].ranks[..]), (vec!["memory-growing"], &[1][..]));
    assert!(found[0].sentence.contains("not by jobs"), "{}", found[0].sentence);
    assert_eq!(leak(0.5 * MIB).found(), [], "a little");
    // Jobs that are remembered, and those that are remembered no longer.
    assert_eq!(leak(3.0 * MIB).growing("jobs.total", 0, 0.0, 100.0).found(), []);
    assert_eq!(leak(3.0 * MIB).gauge("jobs.total", 0, 0.0).growing("jobs.purged", 0, 0.0, 100.0).found(), []);
    let found = leak(30.0 * MIB).growing("jobs.total", 0, 0.0, 100.0).found();
    assert!(found[0].sentence.contains("for each of 5900 jobs"), "{}", found[0].sentence);
    // A start: it grows, and stays.
    let start: Vec<_> = (0..SLOTS).map(|slot| Some(if slot < 10 { 1e8 } else { 1e9 })).collect();
    assert_eq!(told().gauge_of("broker.rss_anon_bytes", 1, &start).found(), []);
    let process = told().growing("modules.sched-simple.rss_bytes", 0, 1e8, 3.0 * MIB).found();
    assert!(process[0].sentence.starts_with("the process of sched-simple"), "{}", process[0].sentence);
    // Growth that began a minute ago.
    let late: Vec<_> =
        (0..SLOTS).map(|slot| Some(1e9 + 3.0 * MIB * (slot.saturating_sub(28) as f64))).collect();
    assert_eq!(names(&told().gauge_of("broker.rss_anon_bytes", 1, &late).found()), ["memory-growing"]);
}

#[test]
fn descriptors_and_disk_are_judged_by_the_rank_s_own_limit() {
    let fds = |open: f64, max: f64| told().gauge("broker.open_fds", 1, open).gauge("broker.max_fds", 1, max);
    let found = fds(850.0, 1000.0).found();
    assert_eq!((names(&found), found[0].severity.name()), (vec!["descriptors-low"], "warning"));
    assert_eq!(fds(990.0, 1000.0).found()[0].severity.name(), "critical");
    assert_eq!(fds(500.0, 1000.0).found(), []);
    // Limits that differ: only a rank itself can say.
    let whole = fds(850.0, 1000.0).series(json!({
        "name": "broker.max_fds", "tags": {}, "type": "gauge", "count": 2, "sum": 66_000,
        "min": { "value": 1000, "rank": 2 }, "max": { "value": 65_000, "rank": 1 },
    }));
    let evidence = whole.evidence();
    assert_eq!(findings(&evidence), []);
    assert!(suspicion(&evidence).patterns.contains("broker.{open,max}_fds"));
    let own = fds(850.0, 65_000.0).by_rank(1).answer();
    assert_eq!(findings(&evidence.with(own)), []);
    let disk = |free: f64, size: f64| {
        told().gauge("broker.statedir_free_bytes", 0, free).gauge("broker.statedir_size_bytes", 0, size)
    };
    assert_eq!(disk(4e9, 1e11).found()[0].severity.name(), "warning");
    assert_eq!(disk(1e8, 1e11).found()[0].severity.name(), "critical");
    assert_eq!(disk(4e11, 1e13).found(), [], "a twentieth of ten terabytes is a lot");
}

#[test]
fn ranks_that_are_switched_off_are_no_fault_and_those_that_were_there_are() {
    assert_eq!(told().gauge("overlay.ranks_offline", 0, 500.0).ranks("offline", "4-503").found(), []);
    let mut points = vec![Some(0.0); SLOTS];
    points[SLOTS - 5..].fill(Some(1.0));
    let found = told().gauge_of("overlay.ranks_offline", 0, &points).ranks("offline", "3").found();
    assert_eq!(
        (names(&found), found[0].severity.name(), &found[0].ranks[..]),
        (vec!["ranks-missing"], "critical", &[3][..])
    );
    assert_eq!(found[0].sentence, "rank 3 (n3) is lost: offline for 10.0s");
    let found = told().gauge_of("overlay.ranks_offline", 0, &points).ranks("offline", "3-9").found();
    assert!(found[0].sentence.contains("1 rank went offline, of 3-9"), "{}", found[0].sentence);
    // Nodes that are switched on.
    points.reverse();
    assert_eq!(told().gauge_of("overlay.ranks_offline", 0, &points).found(), []);
    let found = told().ranks("silent", "1-2").found();
    assert!(found[0].sentence.starts_with("ranks 1-2 are silent"), "{}", found[0].sentence);
    assert!(found[0].sentence.contains("up, and sends nothing ("), "{}", found[0].sentence);
    let covered: Vec<_> = (0..SLOTS).map(|slot| Some(if slot < SLOTS - 8 { 4.0 } else { 3.0 })).collect();
    let found = told().gauge_of("modules.stats-agg.loaded", 0, &covered).ranks("silent", "1").found();
    // Sixteen seconds, and the three periods before.
    assert!(found[0].sentence.contains("has sent nothing for 22.0s ("), "{}", found[0].sentence);
    assert_eq!(found[0].evidence[1], super::finding::fact("silent for", 22.0, super::finding::Unit::Seconds));
    assert_eq!(names(&told().gauge("overlay.ranks_torpid", 0, 2.0).found()), ["ranks-missing"]);
    let late = |least: f64| {
        told().series(json!({
            "name": "overlay.heartbeat_age_s", "tags": {}, "type": "gauge", "count": 4, "sum": 100,
            "min": { "value": least, "rank": 0 }, "max": { "value": 45, "rank": 3 },
        }))
    };
    assert_eq!((names(&late(1.0).found()), late(40.0).found()), (vec!["ranks-missing"], vec![]));
}

#[test]
fn jobs_are_held_back_only_where_nothing_else_explains_it() {
    let found =
        |total, free, queued, pending, run| names(&told().nodes(total, free, queued, pending, run).found());
    assert_eq!(found(8.0, 8.0, 5.0, 0.0, 0.0), ["jobs-held-back"], "no scheduler");
    let sentence = &told().nodes(8.0, 8.0, 5.0, 0.0, 0.0).found()[0].sentence;
    assert!(sentence.ends_with(char::is_alphanumeric), "what shows it ends it: {sentence}");
    assert_eq!(found(8.0, 8.0, 5.0, 3.0, 0.0), ["jobs-held-back"], "a scheduler that does nothing");
    let none = Vec::<&str>::new();
    assert_eq!(found(8.0, 3.0, 5.0, 3.0, 2.0), none, "they may want more than three nodes");
    assert_eq!(found(8.0, 7.0, 5.0, 3.0, 0.0), none, "one node is down, and may be what they wait for");
    assert_eq!(found(8.0, 8.0, 0.0, 0.0, 0.0), none, "held, or in a queue that is stopped: they may not run");
}

#[test]
fn datagrams_that_are_dropped_are_told_if_they_are_not_a_few() {
    let statsd = |dropped: f64, packets: f64| {
        told().counter("stats-agg.statsd.dropped", 1, dropped).counter("stats-agg.statsd.packets", 1, packets)
    };
    assert_eq!(names(&statsd(100.0, 1000.0).found()), ["statsd-dropping"]);
    assert_eq!((statsd(0.01, 1000.0).found(), statsd(1.0, 100_000.0).found()), (vec![], vec![]));
}

#[test]
fn what_finds_no_room_is_told_and_who_pushes_most_of_it() {
    let refused = |prefix: &str, reason: &str, rate: f64| {
        let told = told().counter("stats-agg.overflow", 1, 2.0);
        let mut told = told.counter("stats-agg.refused", 1, rate);
        told.0["series"][1]["tags"] = json!({ "prefix": prefix, "reason": reason });
        told
    };
    let found = refused("app", "full", 1.0).found();
    assert_eq!(names(&found), ["series-full"]);
    assert!(
        found[0].sentence.ends_with(r#"(max-series), most of those pushed begin with "app""#),
        "{}",
        found[0].sentence
    );
    // Metrics that were malformed have not been lost for want of room.
    let found = refused("app", "name", 1.0).found();
    assert!(found[0].sentence.ends_with("(max-series)"), "{}", found[0].sentence);
    assert_eq!(names(&told().counter("stats-agg.gauges_overflow", 2, 1.0).found()), ["series-full"]);
    assert_eq!(told().counter("stats-agg.overflow", 1, 0.0).found(), []);
}

#[test]
fn an_exporter_that_has_not_worked_for_a_minute_is_told_by_its_name() {
    let exporter = |seconds: f64| {
        let told = told().gauge("stats-agg.export.influx.failing_s", 0, seconds);
        told.gauge("stats-agg.export.influx.buffered_bytes", 0, 2_097_152.0).gauge(
            "stats-agg.export.graphite.failing_s",
            0,
            0.0,
        )
    };
    let found = exporter(300.0).found();
    assert_eq!(names(&found), ["export-failing"]);
    assert!(
        found[0].sentence.starts_with("the exporter influx has not worked for 5m00s"),
        "{}",
        found[0].sentence
    );
    assert_eq!(found[0].query, "'stats-agg.export.influx.*'");
    assert_eq!(found[0].evidence.len(), 2);
    assert_eq!(exporter(20.0).found(), [], "a restart");
}

#[test]
fn ranks_of_which_nothing_is_known_make_a_clean_bill_a_partial_one() {
    let absent = told().ranks("absent", "3").evidence();
    assert!(is_partial(&absent) && findings(&absent).is_empty());
    insta::assert_snapshot!(shown::text(&absent, &[]), @r"
    Nothing is wrong: looked at ranks 0-3 of 4, the last 0s, 0 series.
    Less than a minute is known: what grows or lasts cannot be told yet.
    Nothing is known of some ranks: 3 have no stats-agg (`flux stats load`).
    ");
    assert!(!is_partial(&told().ranks("offline", "3").evidence()));
    assert!(!is_partial(&busy_and_well().evidence()));
}

/// One of each severity.
fn ill() -> Evidence {
    let told = told().gauge("modules.kvs.stalled", 1, 12.0).gauge("modules.kvs.sendq", 1, 6.0);
    let told = told.module("loadgen", 2, 0.93).gauge("modules.loadgen.idle_s", 2, 45.0);
    let told =
        told.counter("stats-agg.statsd.dropped", 1, 100.0).counter("stats-agg.statsd.packets", 1, 1000.0);
    told.growing("broker.rss_anon_bytes", 3, 1e9, 3e6).evidence()
}

/// The same answers as somebody who looks at each of them has them: none looks back.
#[test]
fn a_recording_is_diagnosed_like_what_the_instance_remembers() {
    let answer = |slot: usize| {
        let grown = slot as f64;
        let time = 1_700_000_000.0 + SLOT_S * grown;
        let counter = |name: &str, rate: f64| {
            let max = json!({ "rank": 2, "rate": rate });
            json!({ "name": name, "tags": {}, "type": "counter", "total": rate * SLOT_S * grown, "rate": rate, "max": max })
        };
        let gauge = |name: &str, value: f64| {
            let state = json!({ "value": value, "rank": 2 });
            json!({ "name": name, "tags": {}, "type": "gauge", "count": 1, "sum": value, "min": state, "max": state })
        };
        let mut told = told();
        told.0["time"] = time.into();
        let told = told
            .series(counter("modules.loadgen.work_s", 0.95))
            .series(counter("modules.loadgen.wakeups", 300.0));
        let told = told
            .series(gauge("modules.loadgen.loaded", 1.0))
            .series(gauge("modules.loadgen.idle_s", 2.0 * grown));
        told.series(gauge("modules.kvs.sendq", 50.0 * grown))
            .series(gauge("broker.rss_anon_bytes", 1e9))
            .answer()
    };
    let answers: Vec<Answer> = (0..SLOTS).map(answer).collect();
    let answers: Vec<&Answer> = answers.iter().collect();
    let found = findings(&Evidence::recorded(&answers).unwrap());
    assert_eq!(names(&found), ["module-spinning", "queue-growing"]);
    assert_eq!(found[0].ranks, [2]);
    assert_eq!(findings(&Evidence::recorded(&answers[SLOTS - 5..]).unwrap()), [], "too short");
    assert_eq!(findings(&Evidence::recorded(&answers[SLOTS - 1..]).unwrap()), []);
    assert!(Evidence::recorded(&[]).is_none());
}

#[test]
fn findings_are_told_to_a_person() {
    let evidence = ill();
    insta::assert_snapshot!(shown::text(&evidence, &findings(&evidence)));
}

#[test]
fn findings_are_told_to_a_program() {
    let evidence = ill();
    insta::assert_snapshot!(shown::json(&evidence, &findings(&evidence)).unwrap());
}

#[test]
fn the_rules_are_listed_and_the_page_is_made_of_them() {
    insta::assert_snapshot!(shown::rules());
    let page = include_str!("../../../../docs/doctor.md");
    assert_eq!(shown::page(), page, "make it anew: flux stats doctor --list=markdown > docs/doctor.md");
    let mut all: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), RULES.len());
}

/// What a rank did in several periods arrives at the root in one slot: the rank is asked, though the module is nowhere else.
#[test]
fn a_module_on_one_rank_is_judged_by_what_the_rank_measured_itself() {
    let mut arrived = [0.95; SLOTS];
    arrived[SLOTS - 4] = 0.08;
    arrived[SLOTS - 3] = 7.6;
    let mut turns = arrived;
    turns.iter_mut().for_each(|rate| *rate *= 20.0);
    let whole = told().counter_of("modules.loadgen.work_s", 1, &arrived);
    let whole = whole.counter_of("modules.loadgen.cpu_s", 1, &arrived);
    let whole =
        whole.counter_of("modules.loadgen.wakeups", 1, &turns).gauge("modules.loadgen.loaded", 1, 1.0);
    let whole = whole.gauge("modules.loadgen.idle_s", 1, 0.0).evidence();
    let asked = suspicion(&whole);
    assert!(asked.ranks.contains(&1) && asked.patterns.first().unwrap().starts_with("modules.loadgen."));
    let own = told().module("loadgen", 1, 0.95).gauge("modules.loadgen.idle_s", 1, 0.0).by_rank(1).answer();
    let found = findings(&whole.with(own));
    assert_eq!(names(&found), ["module-busy"]);
    let cpu = found[0].evidence.iter().find(|fact| fact.what == "CPU").unwrap().value;
    assert!((cpu - 0.95).abs() < 1e-9, "{cpu}");
    // What the root measures itself needs no second look.
    assert_eq!(suspicion(&told().module("loadgen", 0, 0.95).evidence()), Suspicion::default());
}

#[test]
fn what_a_graver_finding_explains_is_evidence_of_it() {
    let stalled = || {
        let told = told().module("loadgen", 1, 1.0).gauge("modules.loadgen.stalled", 1, 45.0);
        told.gauge("modules.loadgen.longest_blocked_s", 1, 0.002)
    };
    let found = stalled().found();
    assert_eq!(names(&found), ["module-stalled"]);
    let of = |found: &[Finding], what: &str| {
        found[0].evidence.iter().find(|fact| fact.what == what).map(|fact| fact.value)
    };
    assert_eq!(
        (of(&found, "stalled"), of(&found, "work"), of(&found, "CPU")),
        (Some(45.0), Some(1.0), Some(1.0))
    );
    // A module elsewhere is another cause.
    assert_eq!(names(&stalled().module("other", 1, 0.99).found()), ["module-stalled", "module-busy"]);
    // A call that has not returned is as old as the turn that it is in.
    let mut in_a_call = stalled();
    in_a_call.0["series"].as_array_mut().unwrap().retain(|one| one["name"] != "modules.loadgen.blocked_s");
    let in_a_call = in_a_call.counter("modules.loadgen.blocked_s", 1, 1.0);
    let found = in_a_call.found();
    assert_eq!((names(&found), of(&found, "longest call")), (vec!["module-stalled"], Some(45.0)));
}

#[test]
fn a_file_system_is_told_once_for_all_brokers_of_its_host() {
    let disk = |of: &str, rank: u32, free: f64, size: f64| {
        let told = told().gauge(&format!("broker.{of}_free_bytes"), rank, free);
        told.gauge(&format!("broker.{of}_size_bytes"), rank, size).by_rank(rank).answer().series
    };
    let found = |free: [f64; 4]| {
        let mut whole = told();
        whole.0["instance"]["hostlist"] = "a,a,b,b".into();
        let mut by_rank = told().answer();
        for (free, rank) in free.into_iter().zip(0..) {
            by_rank.series.extend(disk("rundir", rank, free, 1e11));
        }
        by_rank.series.extend(disk("statedir", 1, 3e9, 1e11));
        findings(&whole.evidence().with(by_rank))
    };
    let both = found([3e9, 3e9 - 4096.0, 2e9, 2e9]);
    assert_eq!(names(&both), ["disk-low", "disk-low"]);
    assert_eq!((&both[0].ranks[..], &both[1].ranks[..]), (&[2, 3][..], &[0, 1][..]), "the fullest first");
    assert!(
        both[1].sentence.starts_with("the file system of rundir and statedir has"),
        "{}",
        both[1].sentence
    );
    // Which broker looked last makes no difference.
    let other = found([3e9 - 4096.0, 3e9, 2e9, 2e9]);
    assert_eq!((&other[0].ranks, &other[1].ranks), (&both[0].ranks, &both[1].ranks));
}

#[test]
fn of_ranks_that_are_as_bad_the_lowest_is_named() {
    let told = |ranks: [(u32, f64); 2]| {
        let of = |(rank, work)| told().module("kvs", rank, work).found().remove(0);
        let (mut one, other) = (of(ranks[0]), of(ranks[1]));
        one.absorb(other);
        one.ranks
    };
    for ranks in [[(3, 0.95), (1, 0.95)], [(1, 0.95), (3, 0.951)], [(3, 0.951), (1, 0.95)]] {
        assert_eq!(told(ranks), [1, 3], "{ranks:?}");
    }
    assert_eq!(told([(1, 0.88), (3, 0.95)]), [3, 1]);
}
