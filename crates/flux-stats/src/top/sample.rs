//! An instance, as tests see it.

use crate::answer::Answer;
use serde_json::{Value, json};

/// The moment of the sample.
pub(crate) const TIME: f64 = 1_700_000_000.0;

fn counter(name: &str, total: f64, rate: f64, max: Option<(u32, f64)>) -> Value {
    let mut series = json!({ "name": name, "tags": {}, "type": "counter", "total": total, "rate": rate });
    if let Some((rank, rate)) = max {
        series["max"] = json!({ "rank": rank, "rate": rate });
    }
    series
}

fn gauge(name: &str, count: u64, sum: f64, rank: u32, max: f64) -> Value {
    let (min, max) = (json!({ "value": 0, "rank": 1 }), json!({ "value": max, "rank": rank }));
    json!({ "name": name, "tags": {}, "type": "gauge", "count": count, "sum": sum, "min": min, "max": max })
}

/// Percent of work, of the busiest rank, blocked, CPU; the busiest rank; wakeups, p99, longest, sendq.
type Numbers = ([f64; 4], u32, f64, f64, f64, f64);

const MODULES: [(&str, Numbers); 12] = [
    ("kvs", ([25.0, 20.0, 0.0, 24.0], 0, 310.5, 0.002, 0.25, 12.0)),
    ("job-manager", ([12.5, 12.5, 1.5, 12.4], 0, 96.0, 0.0041, 0.12, 0.0)),
    ("broker", ([9.25, 3.0, 0.0, 9.0], 0, 1_234.0, 0.0003, 0.05, 0.0)),
    ("content", ([100.0, 99.0, 0.0, 40.0], 3, 0.5, 0.5, 17.0, 1_160_000.0)),
    ("job-exec", ([2.0, 1.0, 55.0, 1.9], 5, 40.0, 0.001, 0.09, 0.0)),
    ("connector-local", ([0.4, 0.2, 0.0, 0.4], 1, 21.0, 0.0001, 0.004, 0.0)),
    ("kvs-watch", ([0.3, 0.3, 0.0, 0.2], 0, 12.0, 0.0001, 0.002, 0.0)),
    ("heartbeat", ([0.01, 0.01, 0.0, 0.01], 0, 0.5, 0.00005, 0.0004, 0.0)),
    ("job-info", ([0.02, 0.02, 0.0, 0.02], 0, 1.0, 0.00005, 0.0004, 0.0)),
    ("barrier", ([0.0, 0.0, 0.0, 0.0], 0, 0.0, 0.00001, 0.0001, 0.0)),
    ("sched-fluxion-qmanager", ([1.5, 1.5, 0.0, 1.5], 0, 14.0, 0.003, 0.3, 0.0)),
    ("resource", ([0.75, 0.7, 0.0, 0.7], 0, 4.0, 0.002, 0.04, 0.0)),
];

fn module(
    name: &str,
    &([work, most, blocked, cpu], rank, wakeups, p99, longest, sendq): &Numbers,
) -> Vec<Value> {
    let name = |metric: &str| format!("modules.{name}.{metric}");
    let max = |percent: f64| (percent > 0.0).then_some((rank, percent / 100.0));
    let mut timer = json!({ "name": name("work_per_wakeup_s"), "tags": {}, "type": "timer", "count": 7 });
    for (key, value) in [("rate", wakeups), ("sum", 1.0), ("min", 0.0), ("max", longest), ("p99", p99)] {
        timer[key] = value.into();
    }
    for key in ["stddev", "p50", "p90"] {
        timer[key] = (p99 / 2.0).into();
    }
    vec![
        counter(&name("wakeups"), 1e4, wakeups, max(wakeups)),
        counter(&name("work_s"), 50.0, work / 100.0, max(most)),
        counter(&name("blocked_s"), 5.0, blocked / 100.0, max(blocked)),
        counter(&name("cpu_s"), 48.0, cpu / 100.0, max(cpu)),
        timer,
        gauge(&name("longest_work_s"), 8, longest, rank, longest),
        gauge(&name("sendq"), 8, sendq, rank, sendq),
        gauge(&name("recvq"), 8, 0.0, 0, 0.0),
    ]
}

fn answer_of(series: Vec<Value>) -> Answer {
    serde_json::from_value(json!({
        "version": 1, "time": TIME, "period": 2.0,
        "instance": { "size": 8, "hostlist": "node[01-08]" },
        "ranks": {
            "covered": "0-5", "missing": "6-7", "offline": "6", "absent": "", "silent": "7", "oldest": 1.2
        },
        "series": series
    }))
    .unwrap()
}

/// The answer to the overview: a module that stalls, one whose turns are not known, two ranks missing.
pub(crate) fn answer() -> Answer {
    let mut series: Vec<Value> = MODULES.iter().flat_map(|(name, numbers)| module(name, numbers)).collect();
    series.push(gauge("modules.content.stalled", 1, 12.5, 3, 12.5));
    series.push(counter("modules.sched-simple.cpu_s", 9.0, 0.019, Some((0, 0.019))));
    series.push(counter("modules.cron.rx.request", 9_000.0, 300.0, Some((0, 300.0))));
    series.push(counter("modules.cron.rx.event", 600.0, 20.0, Some((0, 20.0))));
    for (name, jobs) in [
        ("sched", 3.0),
        ("depend", 0.0),
        ("run", 12.0),
        ("cleanup", 1.0),
        ("inactive", 5_021.0),
        ("failed", 4.0),
    ] {
        series.push(gauge(&format!("jobs.{name}"), 1, jobs, 0, jobs));
    }
    series.push(gauge("resources.nodes.up", 1, 7.0, 0, 7.0));
    series.push(gauge("resources.nodes.free", 1, 3.0, 0, 3.0));
    series.push(gauge("broker.uptime_s", 8, 29_000.0, 0, 3_723.0));
    answer_of(series)
}

/// What the instance remembers of `kvs` (a wave) and of messages.
pub(crate) fn past() -> Answer {
    let points: Vec<f64> = (0..150).map(|slot| 0.125 + 0.125 * (f64::from(slot) / 8.0).sin()).collect();
    let mut kvs = counter("modules.kvs.work_s", 50.0, 0.25, Some((0, 0.2)));
    kvs["since"] = json!({ "seconds": 300.0, "total": 37.5, "rate": 0.125, "points": points });
    let mut messages = counter("modules.cron.rx.request", 9_000.0, 300.0, Some((0, 300.0)));
    let points: Vec<f64> = (0..150).map(|slot| if slot % 5 == 0 { 1_500.0 } else { 0.0 }).collect();
    messages["since"] = json!({ "seconds": 300.0, "total": 90_000, "rate": 300.0, "points": points });
    answer_of(vec![kvs, messages])
}

/// One module on each of six ranks; two do not answer.
pub(crate) fn by_rank() -> Answer {
    let ranks = 0..6_u32;
    let series = ranks.flat_map(|rank| {
        let part = f64::from(6 - rank);
        let numbers = ([part * 2.0, part * 2.0, 0.0, part], rank, 10.0 * part, 0.001, 0.1 * part, 0.0);
        let of_rank = move |mut series: Value| {
            series["rank"] = rank.into();
            series
        };
        module("kvs", &numbers).into_iter().map(of_rank)
    });
    Answer { unanswered: "6-7".into(), ..answer_of(series.collect()) }
}

/// All series of one module.
pub(crate) fn series() -> Answer {
    answer_of(MODULES.iter().take(1).flat_map(|(name, numbers)| module(name, numbers)).collect())
}

/// All modules on one rank.
pub(crate) fn of_rank(rank: u32) -> Answer {
    let series = MODULES.iter().flat_map(|(name, numbers)| module(name, numbers));
    let of_rank = |mut series: Value| {
        series["rank"] = rank.into();
        series
    };
    answer_of(series.map(of_rank).collect())
}
