//! Jobs by state, and what waits for the services that make jobs.

use crate::access::Access;
use crate::collector::{Ask, Collector, Described, Ranks, Work};
use crate::host::Place;
use crate::readings::{Readings, Total};
use crate::sources::{int, number};
use serde_json::Value;
use stats_core::Unit;
use std::time::Duration;

/// Each state as job-list names it, in the instance, and in one queue.
const STATES: [(&str, &str, &str); 7] = [
    ("new", "jobs.new", "jobs.by_queue.new"),
    ("depend", "jobs.depend", "jobs.by_queue.depend"),
    ("priority", "jobs.priority", "jobs.by_queue.priority"),
    ("sched", "jobs.sched", "jobs.by_queue.sched"),
    ("run", "jobs.run", "jobs.by_queue.run"),
    ("cleanup", "jobs.cleanup", "jobs.by_queue.cleanup"),
    ("inactive", "jobs.inactive", "jobs.by_queue.inactive"),
];

/// How inactive jobs have ended.
const RESULTS: [(&str, &str, &str); 4] = [
    ("successful", "jobs.successful", "jobs.by_queue.successful"),
    ("failed", "jobs.failed", "jobs.by_queue.failed"),
    ("canceled", "jobs.canceled", "jobs.by_queue.canceled"),
    ("timeout", "jobs.timeout", "jobs.by_queue.timeout"),
];

const fn job(name: &'static str, about: &'static str) -> Described {
    Described::gauge(name, Unit::None, about).only(Access::Jobs)
}

const fn of_queue(name: &'static str, about: &'static str) -> Described {
    job(name, about).tagged(&["queue"])
}

pub(crate) const JOBS: Collector = Collector {
    name: "jobs",
    about: "Jobs by state, in the instance and in each queue that has had one; zeros are told",
    ranks: Ranks::Root,
    default: true,
    period: Duration::from_secs(5),
    source: "`job-list.job-stats`",
    cost: "one request; job-list keeps these counts and lists no job for it",
    series: &[
        job("jobs.new", "jobs in NEW: job-list tells of none, for it hears of jobs when they have left it"),
        job("jobs.depend", "jobs that wait for others"),
        job("jobs.priority", "jobs that wait for their priority"),
        job("jobs.sched", "jobs that wait for resources"),
        job("jobs.run", "jobs that run"),
        job("jobs.cleanup", "jobs whose resources are being given back"),
        job("jobs.inactive", "jobs that are over, as far as Flux still knows them"),
        job("jobs.total", "jobs that Flux knows, in any state"),
        job("jobs.successful", "of the inactive, those that succeeded"),
        job("jobs.failed", "of the inactive, those that failed"),
        job("jobs.canceled", "of the inactive, those that were cancelled"),
        job("jobs.timeout", "of the inactive, those that ran out of time"),
        job("jobs.purged", "jobs that are over and no longer known"),
        of_queue("jobs.by_queue.new", "as `jobs.new`"),
        of_queue("jobs.by_queue.depend", "as `jobs.depend`"),
        of_queue("jobs.by_queue.priority", "as `jobs.priority`"),
        of_queue("jobs.by_queue.sched", "as `jobs.sched`"),
        of_queue("jobs.by_queue.run", "as `jobs.run`"),
        of_queue("jobs.by_queue.cleanup", "as `jobs.cleanup`"),
        of_queue("jobs.by_queue.inactive", "as `jobs.inactive`"),
        of_queue("jobs.by_queue.successful", "as `jobs.successful`"),
        of_queue("jobs.by_queue.failed", "as `jobs.failed`"),
        of_queue("jobs.by_queue.canceled", "as `jobs.canceled`"),
        of_queue("jobs.by_queue.timeout", "as `jobs.timeout`"),
    ],
    work: Work::Ask(&[Ask::new("job-list.job-stats", read)]),
};

/// Queues of which jobs are told.
const QUEUES_MAX: usize = 256;

fn read(answer: &Value, _: &Place, readings: &mut Readings) {
    let Some(states) = answer.get("job_states") else { return };
    for (state, form, _) in STATES {
        readings.set(form, &[], number(states, &[state]).unwrap_or(0.0));
    }
    readings.set_known("jobs.total", &[], number(states, &["total"]));
    for (result, form, _) in RESULTS {
        readings.set_known(form, &[], number(answer, &[result]));
    }
    readings.set_known("jobs.purged", &[], number(answer, &["inactive_purged"]));
    for queue in answer["queues"].as_array().into_iter().flatten().take(QUEUES_MAX) {
        let Some(name) = queue["name"].as_str() else { continue };
        let tags = [("queue", name)];
        for (state, _, form) in STATES {
            let count = number(queue, &["job_states", state]).unwrap_or(0.0);
            readings.set_tagged(form, &[], &tags, count);
        }
        for (result, _, form) in RESULTS {
            if let Some(count) = number(queue, &[result]) {
                readings.set_tagged(form, &[], &tags, count);
            }
        }
    }
}

pub(crate) const BACKLOG: Collector = Collector {
    name: "backlog",
    about: "What waits in job-ingest's workers and for the scheduler, and how many jobs job-manager holds",
    ranks: Ranks::Root,
    default: true,
    period: Duration::from_secs(5),
    source: "`job-ingest.stats-get`, `job-manager.stats-get`, `job-manager.alloc-query`",
    cost: "one request each; job-manager lists what is in housekeeping for it",
    series: &[
        Described::gauge(
            "modules.job-ingest.workers",
            Unit::None,
            "processes that check jobs at their submission",
        )
        .only(Access::Jobs),
        Described::gauge("modules.job-ingest.backlog", Unit::None, "submissions that wait for one of them")
            .only(Access::Jobs),
        Described::counter("modules.job-ingest.requests", Unit::None, "submissions that were given to them")
            .only(Access::Jobs),
        Described::counter(
            "modules.job-ingest.errors",
            Unit::None,
            "submissions that they refused or failed to check",
        )
        .only(Access::Jobs),
        job("modules.job-manager.active_jobs", "jobs that are not over"),
        job(
            "modules.job-manager.inactive_jobs",
            "jobs that are over and are kept: some 32 KiB of the broker's memory each",
        ),
        job("modules.job-manager.housekeeping", "allocations in housekeeping"),
        job(
            "modules.job-manager.alloc_queued",
            "jobs that may run and that the scheduler has not been asked about: none that is held, or in a queue that is \
             stopped",
        ),
        job(
            "modules.job-manager.alloc_pending",
            "jobs that the scheduler has been asked about and has not placed",
        ),
    ],
    work: Work::Ask(&[
        Ask::new("job-ingest.stats-get", read_ingest),
        Ask::new("job-manager.stats-get", read_manager),
        Ask::new("job-manager.alloc-query", read_alloc),
    ]),
};

/// Its two stages, frobnicator and validator, are one.
fn read_ingest(answer: &Value, _: &Place, readings: &mut Readings) {
    let stages = ["frobnicator", "validator"];
    let sum = |key: &str| {
        let numbers: Vec<f64> =
            stages.iter().filter_map(|stage| number(answer, &["pipeline", stage, key])).collect();
        (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>())
    };
    readings.set_known("modules.job-ingest.workers", &[], sum("running"));
    readings.set_known("modules.job-ingest.backlog", &[], sum("backlog"));
    for (key, form) in [("requests", "modules.job-ingest.requests"), ("errors", "modules.job-ingest.errors")]
    {
        let counts = stages.iter().filter_map(|stage| int(answer, &["pipeline", stage, key]));
        if let Some(sum) = counts.reduce(i32::wrapping_add) {
            readings.total(form, &[], Total::Int(sum));
        }
    }
}

fn read_manager(answer: &Value, _: &Place, readings: &mut Readings) {
    readings.set_known("modules.job-manager.active_jobs", &[], number(answer, &["active_jobs"]));
    readings.set_known("modules.job-manager.inactive_jobs", &[], number(answer, &["inactive_jobs"]));
    let housekeeping = answer["housekeeping"]["running"].as_object().map(|running| running.len() as f64);
    readings.set_known("modules.job-manager.housekeeping", &[], housekeeping);
}

fn read_alloc(answer: &Value, _: &Place, readings: &mut Readings) {
    readings.set_known("modules.job-manager.alloc_queued", &[], number(answer, &["queue_length"]));
    readings.set_known("modules.job-manager.alloc_pending", &[], number(answer, &["alloc_pending"]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::fixture;
    use serde_json::json;

    #[test]
    fn every_state_is_told_and_zeros_are_too() {
        let states = json!({ "depend": 0, "priority": 0, "sched": 4, "run": 2, "cleanup": 0, "inactive": 1500, "total": 1506 });
        let answer = json!({
            "job_states": states, "successful": 1400, "failed": 60, "canceled": 30, "timeout": 10, "inactive_purged": 7,
            "queues": [
                { "name": "debug", "job_states": { "sched": 1, "total": 1 }, "successful": 2 },
                { "name": "pbatch", "job_states": {} }, { "nameless": 1 },
            ],
        });
        let read = fixture::read(&JOBS, "job-list.job-stats", "", &answer);
        let of = |name: &str| read[name].as_f64();
        assert_eq!(
            (of("jobs.sched"), of("jobs.depend"), of("jobs.inactive")),
            (Some(4.0), Some(0.0), Some(1500.0))
        );
        assert_eq!(
            (of("jobs.by_queue.sched;queue=debug"), of("jobs.by_queue.run;queue=pbatch")),
            (Some(1.0), Some(0.0))
        );
        assert_eq!((of("jobs.purged"), of("jobs.failed")), (Some(7.0), Some(60.0)));
        // Under the names of others, with the right values.
        assert_eq!(of("job_queue_state_inactive_count"), Some(1500.0), "more than a list of 1,000 has");
        assert_eq!(of("flux_queue_state_counts;state=run"), Some(2.0));
        assert_eq!(of("flux_queue_state_counts;state=cleanup"), Some(0.0), "which prometheus-flux never did");
        assert_eq!(
            fixture::read(&JOBS, "job-list.job-stats", "", &json!({})),
            json!({}),
            "no answer is no zero"
        );
    }

    #[test]
    fn jobs_that_may_run_are_those_that_wait_for_the_scheduler() {
        let answer = json!({ "queue_length": 3, "alloc_pending": 8, "running": 1 });
        assert_eq!(
            fixture::read(&BACKLOG, "job-manager.alloc-query", "", &answer),
            json!({ "modules.job-manager.alloc_pending": 8.0, "modules.job-manager.alloc_queued": 3.0 })
        );
        assert_eq!(fixture::read(&BACKLOG, "job-manager.alloc-query", "", &json!({})), json!({}));
    }

    #[test]
    fn both_stages_of_ingest_are_added_up() {
        let stage =
            json!({ "running": 2, "requests": 10, "errors": 1, "trash": 0, "backlog": 3, "pids": [1, 2] });
        let answer = json!({ "pipeline": { "frobnicator": stage, "validator": stage } });
        assert_eq!(
            fixture::read(&BACKLOG, "job-ingest.stats-get", "", &answer),
            json!({
                "modules.job-ingest.backlog": 6.0, "modules.job-ingest.errors": "Int(2)",
                "modules.job-ingest.requests": "Int(20)", "modules.job-ingest.workers": 4.0,
            })
        );
        assert_eq!(
            fixture::read(&BACKLOG, "job-ingest.stats-get", "", &json!({ "pipeline": null })),
            json!({})
        );
    }
}
