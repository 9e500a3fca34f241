//! The page of all series, made from the tables.

use crate::access::Access;
use crate::aliases;
use crate::collector::{Described, Ranks};
use crate::sources::COLLECTORS;
use stats_core::{Kind, Unit};
use std::fmt::Write;

/// Series that are not collected: of the probe, and of the service itself.
struct Section {
    title: &'static str,
    about: &'static str,
    series: &'static [Described],
}

const NS: Unit = Unit::Nanoseconds;
const N: Unit = Unit::None;

static BUILT_IN: &[Section] = &[
    Section {
        title: "probe",
        about: "Measured by the hook in libflux's reactors and from `/proc/PID/task/TID`, at the end of each period, on all ranks \
                (`probe`). The broker's own reactor is the module `broker`. Cost: some 20 ns a turn, and two reads a thread and period.",
        series: &[
            Described::counter("modules.NAME.wakeups", N, "turns of the module's reactor"),
            Described::counter("modules.NAME.work_s", NS, "at work"),
            Described::counter("modules.NAME.sleep_s", NS, "waiting in its reactor"),
            Described::counter(
                "modules.NAME.blocked_s",
                NS,
                "waiting inside its work: a synchronous RPC, a blocking receive",
            ),
            Described::timer("modules.NAME.work_per_wakeup_s", NS, "the work of each turn"),
            Described::gauge(
                "modules.NAME.longest_work_s",
                NS,
                "the longest work of one turn since the module was loaded or the totals were cleared; its maximum names the rank, and \
                 when that was",
            ),
            Described::counter("modules.NAME.blocked_calls", N, "calls that waited"),
            Described::gauge("modules.NAME.longest_blocked_s", NS, "the longest of them, likewise"),
            Described::gauge(
                "modules.NAME.source.attach",
                N,
                "1 on ranks where these numbers come from the hook",
            ),
            Described::gauge(
                "modules.NAME.source.preload",
                N,
                "1 where they come from a hook that was preloaded",
            ),
            Described::gauge(
                "modules.NAME.source.proc",
                N,
                "1 where they come from /proc alone: CPU time and switches",
            ),
            Described::counter("modules.NAME.cpu_s", NS, "CPU time"),
            Described::counter("modules.NAME.runq_wait_s", NS, "runnable, and waiting for a processor"),
            Described::counter("modules.NAME.switches_voluntary", N, "context switches because it waited"),
            Described::counter(
                "modules.NAME.switches_involuntary",
                N,
                "context switches because its time was up",
            ),
            Described::gauge(
                "modules.NAME.stalled",
                NS,
                "only while a module has not come back to its reactor for longer than `stall`: for how long; its maximum names the rank",
            ),
            Described::gauge(
                "modules.NAME.ambiguous",
                N,
                "1 on ranks where NAME may stand for more than one module: the kernel cuts a thread's name to 15 characters, and these \
                 were loaded before anybody looked",
            ),
        ],
    },
    Section {
        title: "the service",
        about: "What stats-agg says of itself, on all ranks, each period.",
        series: &[
            Described::counter("stats-agg.batches_merged", N, "batches of other ranks that were taken"),
            Described::counter(
                "stats-agg.batches_repeated",
                N,
                "batches that had been taken before, and were not counted again",
            ),
            Described::counter(
                "stats-agg.batches_refused",
                N,
                "batches that were malformed (none should be)",
            ),
            Described::counter(
                "stats-agg.batches_parked",
                N,
                "batches that the receiver had in part, by another road, and were set aside (none should be)",
            ),
            Described::counter(
                "stats-agg.batches_doubted",
                N,
                "batches of which no answer came; they are asked about, and counted once",
            ),
            Described::counter(
                "stats-agg.reactor.wakeups",
                N,
                "turns of its own reactor, timed by watchers and not by the hook",
            ),
            Described::counter("stats-agg.reactor.work_s", NS, "at work, likewise"),
            Described::counter("stats-agg.reactor.sleep_s", NS, "waiting, likewise"),
            Described::gauge(
                "stats-agg.reactor.longest_work_s",
                NS,
                "the longest work of one turn, likewise",
            ),
            Described::counter("stats-agg.sent_bytes", Unit::Bytes, "sent upstream"),
            Described::counter("stats-agg.overflow", N, "values of series beyond `max-series`"),
            Described::counter(
                "stats-agg.gauges_overflow",
                N,
                "gauges of other ranks beyond the memory for them",
            ),
            Described::counter(
                "stats-agg.flows_before_clear",
                N,
                "values that were dropped for being from before a clear",
            ),
            Described::counter("stats-agg.pushes", N, "pushes of handles that were taken"),
            Described::counter(
                "stats-agg.pushes_repeated",
                N,
                "pushes that had been taken before, and were not counted again",
            ),
            Described::counter(
                "stats-agg.refused",
                N,
                "metrics that were refused, by the first part of their name and why",
            )
            .tagged(&["prefix", "reason"]),
            Described::counter(
                "stats-agg.dropped_by_handles",
                N,
                "values that handles dropped themselves: a bad name, a number that is not finite",
            ),
            Described::gauge("stats-agg.streams", N, "streaming queries that are open"),
            Described::counter("stats-agg.panics", N, "panics that were contained (none should be)"),
            Described::counter("stats-agg.untimed_threads", N, "threads beyond the probe's slots"),
            Described::counter(
                "stats-agg.clock_steps",
                N,
                "how often the processor's counter did not fit the clock: stopped, reset, or on another host",
            ),
            Described::counter(
                "stats-agg.series_ended",
                N,
                "series of jobs and of guests that were gone after `ttl`, on each rank that had them",
            ),
            Described::timer(
                "stats-agg.collect.COLLECTOR.reply_s",
                NS,
                "how long the sources of a collector take to answer",
            ),
            Described::gauge(
                "stats-agg.collect.COLLECTOR.stretch",
                N,
                "how many times its period the slowest source of a collector is left alone: 1, or more where it is slow",
            ),
            Described::counter(
                "stats-agg.collect.COLLECTOR.late",
                N,
                "answers that took longer than 10 s; what was known is withdrawn",
            ),
            Described::counter(
                "stats-agg.collect.COLLECTOR.failed",
                N,
                "answers that were errors, other than that there is no such service",
            ),
        ],
    },
    Section {
        title: "the statsd listener",
        about: "What it says of itself, on ranks that have one (`statsd`), each period.",
        series: &[
            Described::counter("stats-agg.statsd.packets", N, "datagrams that arrived"),
            Described::counter("stats-agg.statsd.lines", N, "lines that arrived"),
            Described::counter("stats-agg.statsd.samples", N, "values that arrived"),
            Described::counter("stats-agg.statsd.bad_lines", N, "lines that could not be read, and why").tagged(&["reason"]),
            Described::counter(
                "stats-agg.statsd.refused",
                N,
                "lines that were well formed and not counted: `reserved`, `series` (no room), `catalog` (`max-series`), `tags`, `name` \
                 (too long); and the first part of their names",
            )
            .tagged(&["reason", "prefix"]),
            Described::counter(
                "stats-agg.statsd.dropped",
                N,
                "datagrams that the kernel dropped because the listener did not keep up (it tells with the next datagram)",
            ),
            Described::counter("stats-agg.statsd.truncated", N, "datagrams longer than 64 KiB, which lost their last line"),
            Described::counter("stats-agg.statsd.events_ignored", N, "DogStatsD events"),
            Described::counter("stats-agg.statsd.service_checks_ignored", N, "DogStatsD service checks"),
            Described::counter("stats-agg.statsd.tags_dropped", N, "tags without a value"),
            Described::counter(
                "stats-agg.statsd.conflicts",
                N,
                "series whose name is that of a series of another type, too: both are kept",
            ),
            Described::counter("stats-agg.statsd.expired", N, "series that nothing was sent to, and that are gone"),
            Described::gauge("stats-agg.statsd.series", N, "series that there are"),
            Described::gauge("stats-agg.statsd.sockets", N, "sockets that are open"),
            Described::gauge("stats-agg.statsd.sockets_taken", N, "addresses that somebody else has"),
        ],
    },
    Section {
        title: "exporters",
        about: "What they say of themselves, at rank 0, each period; by the name of the exporter (`export`). What went wrong last is in the \
                answer of `stats-agg.query` under `export`, for the owner.",
        series: &[
            Described::counter(
                "stats-agg.export.SINK.sent",
                N,
                "series that were taken: scraped, acknowledged, or, where nobody answers (Graphite, statsd), handed to the kernel",
            ),
            Described::counter(
                "stats-agg.export.SINK.retried",
                N,
                "series that were sent again, since it was not certain that they had arrived",
            ),
            Described::counter(
                "stats-agg.export.SINK.dropped",
                N,
                "series that were given up: refused, or more than 16 MiB that waited",
            ),
            Described::counter(
                "stats-agg.export.SINK.clashes",
                N,
                "series that a Prometheus server cannot tell from another, and that were left out",
            ),
            Described::counter(
                "stats-agg.export.SINK.refused",
                N,
                "requests that were malformed, without the token, too slow, or too many",
            ),
            Described::timer(
                "stats-agg.export.SINK.latency_s",
                NS,
                "from when there was something to send, or it was asked for, until it was taken",
            ),
            Described::gauge("stats-agg.export.SINK.failing_s", NS, "for how long it has not worked; zero: it does"),
            Described::gauge("stats-agg.export.SINK.buffered_bytes", Unit::Bytes, "what waits to be taken"),
            Described::counter(
                "stats-agg.exports_missed",
                N,
                "snapshots that the exporters' thread did not take in time",
            ),
            Described::counter("stats-agg.export_failures", N, "failures of that thread (none should be)"),
        ],
    },
];

/// All rows of all tables.
pub fn all_series() -> impl Iterator<Item = &'static Described> {
    let built_in = BUILT_IN.iter().flat_map(|section| section.series);
    let collected = COLLECTORS.iter().flat_map(|collector| collector.series);
    built_in.chain(collected).chain(aliases::described())
}

fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::None | Unit::Millionths => "",
        Unit::Nanoseconds => "seconds",
        Unit::Bytes => "bytes",
    }
}

fn access(access: Access) -> &'static str {
    match access {
        Access::Guest => "guests",
        Access::Jobs => "guests, unless jobs are private",
        Access::Owner => "owner",
    }
}

fn rows(page: &mut String, series: &[Described]) {
    page.push_str("\n| series | type | unit | who may see it | what it says |\n|---|---|---|---|---|\n");
    for row in series {
        let tags: String = row.tags.iter().map(|tag| format!(" `{tag}`")).collect();
        let tags = if tags.is_empty() { tags } else { format!("; by{tags}") };
        let (name, kind, unit, access, about) =
            (row.name, kind(row.kind), unit(row.unit), access(row.access), row.about);
        let _ = writeln!(page, "| `{name}` | {kind} | {unit} | {access} | {about}{tags} |");
    }
}

fn kind(kind: Kind) -> &'static str {
    kind.name()
}

/// `docs/series.md`: every series that the service makes by itself, and where it comes from.
pub fn page() -> String {
    let mut page = String::from(
        "# Series that stats-agg makes by itself\n\n\
         Made from the tables in `crates/stats-collect` by `cargo run -p stats-collect --example page`.\n\n\
         A counter adds up over ranks, and has a total and a rate; a gauge has the count, sum, least and greatest of the ranks' \
         values; a timer is the distribution of all ranks' samples. A part of a name in capitals stands for any text. What is not known \
         is absent, never zero. Collectors are chosen by `collect`; a source is asked less often than its period says where it is slow \
         to answer, so that it is busy with us for at most a thousandth of its time. Guests are answered at all only with `guest-query`.\n",
    );
    for section in BUILT_IN {
        let _ = write!(page, "\n## {}\n\n{}\n", section.title, section.about);
        rows(&mut page, section.series);
    }
    for collector in COLLECTORS {
        let ranks = match collector.ranks {
            Ranks::All => "all ranks",
            Ranks::Root => "rank 0",
        };
        let on = if collector.default { "on" } else { "off" };
        let _ = write!(
            page,
            "\n## collector `{}` ({on} by default)\n\n{}.\n\n* Source: {}\n* Where and when: {ranks}, every {} s\n* Cost: {}\n",
            collector.name,
            collector.about.trim_end_matches('.'),
            collector.source,
            collector.period.as_secs(),
            collector.cost,
        );
        rows(&mut page, collector.series);
    }
    page.push_str(
        "\n## `aliases` (on by default)\n\nNames under which flux-metrics-api and prometheus-flux exported the same, with the values of \
         the series that they stand for: at rank 0, where their collectors work.\n",
    );
    rows(&mut page, aliases::described());
    page
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_is_what_the_tables_say() {
        let page = include_str!("../../../docs/series.md");
        assert!(
            page == super::page(),
            "make it anew: cargo run -p stats-collect --example page > docs/series.md"
        );
    }
}
