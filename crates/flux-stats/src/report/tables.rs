//! The page's tables: all that the charts show, and more, for who cannot see them or wants the number.

use super::charts::Scale;
use super::clock::Clock;
use super::heat::Pair;
use super::model::{Model, NoteKind, Track, module_of};
use crate::answer::Values;
use crate::show;
use maud::{Markup, html};
use std::collections::BTreeMap;

/// Rows of ranks.
const PAIRS_MAX: usize = 25;
/// Rows of series.
const SERIES_MAX: usize = 2000;

/// A table with a caption for who hears it, that scrolls by itself where it is too wide. Columns are their heads, and
/// whether they hold numbers.
pub(super) fn table(
    caption: &str,
    columns: &[(&str, bool)],
    rows: impl IntoIterator<Item = Vec<Markup>>,
) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(caption) {
            table {
                caption { (caption) }
                thead { tr { @for (head, number) in columns { th scope="col" .n[*number] { (head) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            @for (place, (cell, (_, number))) in row.into_iter().zip(columns).enumerate() {
                                @if place == 0 { th scope="row" .n[*number] { (cell) } } @else { td .n[*number] { (cell) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn text(text: impl Into<String>) -> Markup {
    let text: String = text.into();
    html! { (text) }
}

pub(super) fn summary(model: &Model, clock: &Clock) -> Markup {
    let ranks = &model.last.ranks;
    let size = model.last.instance.size;
    let covered = ranks.covered.parse::<stats_core::IdSet>().map_or(0, |ranks| ranks.len());
    let notes = |kind: NoteKind| model.notes.iter().filter(|note| note.kind == kind).count();
    let missing =
        [("offline", &ranks.offline), ("without stats-agg", &ranks.absent), ("silent", &ranks.silent)];
    let missing: Vec<String> = missing
        .iter()
        .filter(|(_, ranks)| !ranks.is_empty())
        .map(|(what, ranks)| format!("{what}: {ranks}"))
        .collect();
    let gaps: f64 =
        model.notes.iter().filter(|note| note.kind == NoteKind::Gap).map(|note| note.to - note.from).sum();
    // The last slot may be longer than what it is of: what is missing was in gaps.
    let heard = if model.seconds() > 0.0 { model.seconds() / (model.seconds() + gaps) } else { 0.0 };
    let card = |name: &str, value: String, more: String| {
        html! { div { dt { (name) } dd { (value) @if !more.is_empty() { small { (more) } } } } }
    };
    let busiest = modules_by_work(model).into_iter().next();
    html! {
        dl.cards {
            (card("Brokers", size.to_string(), super::place(model).unwrap_or_default()))
            (card("Covered at the end", format!("{covered} of {size}"), missing.join("; ")))
            (card("Heard", show::percent(heard), answers(model)))
            @if !model.remembered {
                (card("Gaps, resets", format!("{}, {}", notes(NoteKind::Gap), notes(NoteKind::Reset)), String::new()))
            }
            @if let Some((module, share)) = busiest {
                (card("Busiest module", module, format!("{} of a core, all ranks", show::percent(share))))
            }
            @if let Some(time) = model.notes.iter().filter(|note| note.kind == NoteKind::Gap).map(|note| note.to).next_back() {
                (card("Last gap ended", clock.moment(time), String::new()))
            }
        }
    }
}

/// How many answers it is made from, and how often they come: of one that tells of the past, how long its periods are.
fn answers(model: &Model) -> String {
    let period = show::duration(model.last.period);
    match model.answers {
        1 => format!("1 answer, periods of {period}"),
        answers => format!("{answers} answers, every {period}"),
    }
}

fn modules_by_work(model: &Model) -> Vec<(String, f64)> {
    let mut modules: Vec<(String, f64)> = model
        .tracks
        .iter()
        .filter(|((_, tags), _)| tags.is_empty())
        .filter_map(|((name, _), track)| Some((module_of(name, "work_s")?.to_owned(), model.mean(track))))
        .collect();
    modules.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    modules
}

/// Every module, the busiest first.
pub(super) fn modules(model: &Model) -> Markup {
    // Modules of which nothing but CPU time is known, too.
    let mut names: Vec<String> = modules_by_work(model).into_iter().map(|(name, _)| name).collect();
    let others =
        model.tracks.keys().filter_map(|(name, _)| module_of(name, "cpu_s").or(module_of(name, "loaded")));
    for name in others {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    let mut busiest: BTreeMap<&str, (u32, f64)> = BTreeMap::new();
    for ((rank, module), pair) in &model.heat.pairs {
        let most = busiest.entry(module).or_insert((*rank, pair.share()));
        if pair.share() > most.1 {
            *most = (*rank, pair.share());
        }
    }
    let columns = [
        ("module", false),
        ("ranks", true),
        ("work", true),
        ("busiest rank", true),
        ("blocked", true),
        ("wakeups", true),
        ("CPU", true),
        ("p99 turn", true),
        ("longest turn", true),
        ("sendq", true),
    ];
    let rows = names.iter().map(|name| {
        let track = |what: &str| model.track(&format!("modules.{name}.{what}"));
        let share = |what: &str, scale: Scale| {
            text(track(what).map_or(show::UNKNOWN.to_owned(), |track| scale.text(model.mean(track))))
        };
        let gauge = |what: &str, scale: Scale, most: bool| {
            let value = track(what).and_then(|track| match track.values {
                Values::Gauge { sum, max, .. } => Some(if most { max.value } else { sum }),
                _ => None,
            });
            value.map_or(show::UNKNOWN.to_owned(), |value| scale.text(value))
        };
        let busy = busiest.get(name.as_str()).filter(|(_, share)| *share > 0.0);
        let busy = busy
            .map_or(show::UNKNOWN.to_owned(), |(rank, share)| format!("{} on {rank}", show::percent(*share)));
        let p99 = track("work_per_wakeup_s").and_then(|track| match track.values {
            Values::Timer { shape: Some(shape), .. } => Some(shape.p99),
            _ => None,
        });
        let longest = track("longest_work_s").and_then(|track| match track.values {
            Values::Gauge { max, .. } if max.value > 0.0 => Some((max.value, max.rank)),
            _ => None,
        });
        // A turn that is under way counts as soon as it is the longest.
        let under_way = track("stalled").filter(|track| track.alive).and_then(|track| match track.values {
            Values::Gauge { max, .. } => Some((max.value, max.rank)),
            _ => None,
        });
        let longest = longest.into_iter().chain(under_way).max_by(|a, b| a.0.total_cmp(&b.0));
        let longest = longest.map(|(seconds, rank)| format!("{} on {rank}", show::duration(seconds)));
        vec![
            text(name.as_str()),
            text(gauge("loaded", Scale::Count, false)),
            share("work_s", Scale::Share),
            text(busy),
            share("blocked_s", Scale::Share),
            share("wakeups", Scale::PerSecond),
            share("cpu_s", Scale::Share),
            text(p99.map_or(show::UNKNOWN.to_owned(), show::duration)),
            text(longest.unwrap_or_else(|| show::UNKNOWN.to_owned())),
            text(gauge("sendq", Scale::Count, true)),
        ]
    });
    table(
        "All modules: means while they were heard, summed over the ranks; turns and queues at the end",
        &columns,
        rows,
    )
}

/// The busiest modules of single ranks.
pub(super) fn pairs(model: &Model) -> Markup {
    let mut pairs: Vec<(&(u32, String), &Pair)> =
        model.heat.pairs.iter().filter(|(_, pair)| pair.seconds > 0.0).collect();
    let all = pairs.len();
    pairs.sort_by(|a, b| b.1.share().total_cmp(&a.1.share()).then_with(|| a.0.cmp(b.0)));
    pairs.truncate(PAIRS_MAX);
    let hosts = super::hosts(model);
    let caption = match all {
        all if all > PAIRS_MAX => format!("The {PAIRS_MAX} busiest of {all} modules of single ranks"),
        _ => "Modules of single ranks, the busiest first".to_owned(),
    };
    let columns =
        [("rank", true), ("host", false), ("module", false), ("work", true), ("longest turn", true)];
    let rows = pairs.into_iter().map(|((rank, module), pair)| {
        let longest =
            if pair.longest > 0.0 { show::duration(pair.longest) } else { show::UNKNOWN.to_owned() };
        vec![
            text(rank.to_string()),
            text(hosts.host(*rank).unwrap_or(show::UNKNOWN)),
            text(module.as_str()),
            text(show::percent(pair.share())),
            text(longest),
        ]
    });
    table(&caption, &columns, rows)
}

fn sum(track: Option<&Track>) -> Option<f64> {
    match track?.values {
        Values::Gauge { sum, .. } => Some(sum),
        _ => None,
    }
}

/// Jobs and nodes at the end.
pub(super) fn jobs(model: &Model) -> Markup {
    let row = |(name, what): &(&'static str, &'static str)| {
        sum(model.track(name)).map(|count| vec![text(*what), text(show::number(count))])
    };
    let rows = [
        ("jobs.run", "running"),
        ("jobs.sched", "waiting for resources"),
        ("jobs.depend", "waiting for others"),
        ("jobs.cleanup", "cleaning up"),
        ("jobs.inactive", "over"),
        ("jobs.successful", "of these: successful"),
        ("jobs.failed", "of these: failed"),
        ("jobs.canceled", "of these: cancelled"),
        ("jobs.timeout", "of these: out of time"),
        ("resources.nodes.allocated", "nodes allocated"),
        ("resources.nodes.free", "nodes free"),
        ("resources.nodes.down", "nodes down"),
    ];
    table("Jobs and nodes at the end", &[("jobs", false), ("number", true)], rows.iter().filter_map(row))
}

/// What runs out, at the end.
pub(super) fn room(model: &Model) -> Markup {
    let extremes = |name: &str| match model.track(name)?.values {
        Values::Gauge { min, max, .. } => Some((min, max)),
        _ => None,
    };
    let bytes = |value: f64| show::bytes(value);
    let mut rows = Vec::new();
    if let Some((_, most)) = extremes("broker.rss_bytes") {
        rows.push(("memory of the largest broker", bytes(most.value), Some(most.rank)));
    }
    if let Some((_, most)) = extremes("broker.open_fds") {
        let limit = extremes("broker.max_fds")
            .map_or(String::new(), |(least, _)| format!(" of {}", show::number(least.value)));
        rows.push(("most open descriptors", format!("{}{limit}", show::number(most.value)), Some(most.rank)));
    }
    for (name, what) in [
        ("broker.rundir_free_bytes", "least room for rundir"),
        ("broker.statedir_free_bytes", "least room for statedir"),
    ] {
        if let Some((least, _)) = extremes(name) {
            rows.push((what, bytes(least.value), Some(least.rank)));
        }
    }
    for (name, what) in [
        ("modules.content.cache_bytes", "content caches, all ranks"),
        ("modules.content-sqlite.db_bytes", "content database"),
    ] {
        if let Some(value) = sum(model.track(name)) {
            rows.push((what, bytes(value), None));
        }
    }
    let rows = rows.into_iter().map(|(what, value, rank)| {
        vec![text(what), text(value), text(rank.map_or(show::UNKNOWN.to_owned(), |rank| rank.to_string()))]
    });
    table("At the end", &[("what", false), ("value", true), ("rank", true)], rows)
}

/// Gaps, resets, missing ranks, modules that came and went or stalled, recorders.
pub(super) fn events(model: &Model, clock: &Clock) -> Markup {
    let forgotten = html! {
        @if model.remembered {
            p.hint {
                "Of an instance it is not known which ranks were missing before, whether totals began anew, which modules came \
                 and went, nor of stalls that were not the longest turn of their module: " code { "flux stats record" } " keeps \
                 all of that."
            }
        }
    };
    if model.notes.is_empty() {
        return html! {
            @if model.remembered { p { "Nothing that the instance remembers." } }
            @else { p.good { "No gaps, no resets, no missing ranks, no stalls." } }
            (forgotten)
        };
    }
    let rows = model.notes.iter().map(|note| {
        let length = note.to - note.from;
        let length = if length > 0.0 { show::duration(length.round()) } else { String::new() };
        vec![text(clock.moment(note.from)), text(length), text(note.kind.name()), text(note.text.as_str())]
    });
    html! {
        (table("What happened", &[("when", false), ("for", true), ("kind", false), ("what", false)], rows))
        @if model.notes_left_out > 0 { p.hint { "And " (model.notes_left_out) " more." } }
        (forgotten)
    }
}

/// Every series.
pub(super) fn series(model: &Model) -> Markup {
    let columns = [
        ("series", false),
        ("type", false),
        ("total or sum", true),
        ("mean rate", true),
        ("most", true),
        ("on rank", true),
    ];
    let rows = model.tracks.iter().take(SERIES_MAX).map(|((name, tags), track)| {
        let unit = track.unit;
        let tags: String = tags.iter().map(|(key, value)| format!(" {key}={value}")).collect();
        let dash = || show::UNKNOWN.to_owned();
        let (total, rate, most, rank) = match &track.values {
            Values::Counter { total, .. } => {
                (unit.value(*total), unit.rate(model.mean(track)), dash(), dash())
            }
            Values::Gauge { sum, max, .. } => {
                (unit.value(*sum), dash(), unit.value(max.value), max.rank.to_string())
            }
            Values::Timer { count, shape, .. } => {
                let seconds = model.seconds();
                let rate = if seconds > 0.0 { show::rate(track.samples / seconds) } else { dash() };
                (
                    show::number(*count as f64),
                    rate,
                    shape.map_or_else(dash, |shape| unit.value(shape.max)),
                    dash(),
                )
            }
            Values::Set { estimate, .. } => (show::number(*estimate), dash(), dash(), dash()),
            Values::Other(_) => (dash(), dash(), dash(), dash()),
        };
        let ended = if track.alive { "" } else { " (ended)" };
        vec![
            html! { (name) @if !tags.is_empty() { small { (tags) } } (ended) },
            text(track.values.kind()),
            text(total),
            text(rate),
            text(most),
            text(rank),
        ]
    });
    let all = model.tracks.len();
    html! {
        details {
            summary { (all) " series" }
            (table("Series of the whole instance: totals at the end, rates while it was heard; of timers, samples", &columns, rows))
            @if all > SERIES_MAX { p.hint { "And " (all - SERIES_MAX) " more." } }
        }
    }
}
