//! The broker's process, as the kernel knows it.

use crate::access::Access;
use crate::collector::{Collector, Described, Ranks, Work};
use crate::host::{Host, process_facts};
use crate::readings::{Readings, Total};
use stats_core::Unit;
use std::time::Duration;

pub(crate) const BROKER: Collector = Collector {
    name: "broker",
    about: "Memory, descriptors and threads of the broker's process, and its age",
    ranks: Ranks::All,
    default: true,
    period: Duration::from_secs(2),
    source: "`/proc/PID/{status,stat,limits,fd}`",
    cost: "some 100 µs of our own; nobody is asked, and the kernel counts no pages for it (as it would for PSS)",
    series: &[
        Described::gauge("broker.rss_bytes", Unit::Bytes, "resident memory"),
        Described::gauge(
            "broker.rss_anon_bytes",
            Unit::Bytes,
            "of it, memory of its own: what a leak makes grow",
        ),
        Described::gauge("broker.rss_file_bytes", Unit::Bytes, "of it, mapped files: code and libraries"),
        Described::gauge(
            "broker.rss_shmem_bytes",
            Unit::Bytes,
            "of it, shared memory: what is mapped from a tmpfs",
        ),
        Described::gauge("broker.rss_peak_bytes", Unit::Bytes, "the most that it ever was"),
        Described::gauge("broker.swap_bytes", Unit::Bytes, "memory that is swapped out"),
        Described::gauge("broker.open_fds", Unit::None, "descriptors that are open").only(Access::Owner),
        Described::gauge(
            "broker.max_fds",
            Unit::None,
            "how many may be open (the soft limit); absent where there is no limit",
        ),
        Described::gauge("broker.threads", Unit::None, "threads: of modules, ZeroMQ and others"),
        Described::gauge("broker.uptime_s", Unit::Nanoseconds, "since the process started"),
        Described::counter("broker.page_faults", Unit::None, "page faults"),
        Described::counter("broker.page_faults_major", Unit::None, "page faults that had to read from disk"),
    ],
    work: Work::Look(look),
};

fn look(host: &mut Host, readings: &mut Readings) {
    let Some(facts) = process_facts(host.place.broker_pid) else { return };
    let bytes = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
    readings.set_known("broker.rss_bytes", &[], bytes(facts.rss));
    readings.set_known("broker.rss_anon_bytes", &[], bytes(facts.rss_anon));
    readings.set_known("broker.rss_file_bytes", &[], bytes(facts.rss_file));
    readings.set_known("broker.rss_shmem_bytes", &[], bytes(facts.rss_shmem));
    readings.set_known("broker.rss_peak_bytes", &[], bytes(facts.rss_peak));
    readings.set_known("broker.swap_bytes", &[], bytes(facts.swap));
    readings.set_known("broker.open_fds", &[], bytes(facts.open_fds));
    readings.set_known("broker.max_fds", &[], bytes(facts.fds_max));
    readings.set("broker.threads", &[], facts.threads as f64);
    readings.set_known("broker.uptime_s", &[], facts.uptime);
    readings.total("broker.page_faults", &[], Total::Wide(facts.faults));
    readings.total("broker.page_faults_major", &[], Total::Wide(facts.major_faults));
}
