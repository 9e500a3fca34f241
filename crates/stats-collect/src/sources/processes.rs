//! Modules that are processes of their own.

use crate::access::Access;
use crate::collector::{Collector, Described, Ranks, Work};
use crate::host::{Host, process_facts};
use crate::readings::{Readings, Total};
use stats_core::Unit;
use std::time::Duration;

pub(crate) const PROCESSES: Collector = Collector {
    name: "processes",
    about: "Memory, descriptors and threads of modules that are processes of their own (`--exec`, Python)",
    ranks: Ranks::All,
    default: true,
    period: Duration::from_secs(5),
    source: "`/proc/PID/{status,stat,limits,fd}`",
    cost: "some 100 µs of our own for each such module; the module is not asked",
    series: &[
        Described::gauge("modules.NAME.rss_bytes", Unit::Bytes, "resident memory of the module's process"),
        Described::gauge(
            "modules.NAME.open_fds",
            Unit::None,
            "descriptors that the module's process has open",
        )
        .only(Access::Owner),
        Described::gauge("modules.NAME.threads", Unit::None, "threads of the module's process"),
        Described::counter("modules.NAME.page_faults", Unit::None, "page faults of the module's process"),
        Described::counter(
            "modules.NAME.page_faults_major",
            Unit::None,
            "page faults of the module's process that had to read from disk",
        ),
    ],
    work: Work::Look(look),
};

fn look(host: &mut Host, readings: &mut Readings) {
    for process in &host.processes {
        // It may have ended since.
        let Some(facts) = process_facts(process.pid) else { continue };
        let name: &[&str] = &[&process.name];
        readings.set_known("modules.NAME.rss_bytes", name, facts.rss.map(|bytes| bytes as f64));
        readings.set_known("modules.NAME.open_fds", name, facts.open_fds.map(|count| count as f64));
        readings.set("modules.NAME.threads", name, facts.threads as f64);
        readings.total("modules.NAME.page_faults", name, Total::Wide(facts.faults));
        readings.total("modules.NAME.page_faults_major", name, Total::Wide(facts.major_faults));
    }
}
