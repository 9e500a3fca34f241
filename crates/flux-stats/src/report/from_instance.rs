//! A report from what an instance remembers.

use super::axis::Axis;
use super::heat::Heat;
use super::model::{Model, Note, NoteKind, Track, is_charted, module_of, stall, turn};
use crate::answer::{Answer, Series, Since, Values};
use crate::instance::{By, Error, Instance, Question};
use crate::show::{self, Unit};
use stats_core::IdSet;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// What is asked of the ranks, some at a time: so many series stay below what an answer may hold.
const BY_RANK: [&str; 3] = ["modules.*.work_s", "modules.*.longest_work_s", "modules.*.stalled"];
const RANKS_AT_A_TIME: usize = 64;

/// Each rank that is covered has one of it, whatever else it has.
const COVERED: &str = "modules.stats-agg.loaded";

/// Of the last so many seconds, as far as the instance's `history` reaches.
pub(super) fn model(instance: &Instance, name: String, since: Duration) -> Result<Model, Error> {
    let seconds = since.as_secs_f64();
    let answer = instance.ask(&Question::default().since(seconds))?;
    let history = answer.series.iter().filter_map(|series| series.since.as_ref());
    let longest = history.max_by(|a, b| a.seconds.total_cmp(&b.seconds)).cloned().unwrap_or_default();
    let reach = if longest.seconds > 0.0 { longest.seconds } else { answer.period };
    let step = reach / longest.points.len().max(1) as f64;
    let axis = Axis::new(answer.time - reach, answer.time, step);
    let mut heard = vec![0.0; axis.count];
    axis.parts(answer.time - reach, answer.time).for_each(|(slot, seconds)| heard[slot] += seconds);
    let covered: IdSet = answer.ranks.covered.parse().unwrap_or_default();
    let whole = answer.series(COVERED).map_or_else(Vec::new, whole);
    let tracks = answer.series.iter().map(|series| {
        let key = (series.name.clone(), series.tags.clone());
        (key, track(series, &axis, answer.time, &whole))
    });
    let mut model = Model {
        source: name,
        heard,
        answers: 1,
        tracks: tracks.collect(),
        heat: Heat::new(&axis, answer.instance.size),
        notes: missing(&answer),
        remembered: true,
        notes_left_out: 0,
        looks_left_out: 0,
        last: Answer::default(),
        axis,
    };
    answer.series.iter().for_each(|series| under_way(series, answer.time, &mut model));
    model.last = Answer { series: Vec::new(), ..answer };
    ask_ranks(instance, &covered, seconds, &mut model)?;
    model.notes.sort_by(|a, b| a.from.total_cmp(&b.from));
    Ok(model)
}

/// When each slot of a history began and ended, and what it has; what is not known left out.
fn points<'s>(
    since: &'s Since,
    values: &'s [Option<f64>],
    now: f64,
) -> impl Iterator<Item = (f64, f64, f64)> + 's {
    let width = since.seconds / values.len().max(1) as f64;
    let start = now - since.seconds;
    let slot = move |(place, value): (usize, &Option<f64>)| {
        let from = start + width * place as f64;
        value.map(|value| (from, from + width, value))
    };
    values.iter().enumerate().filter_map(slot)
}

/// The slots, the newest first, at whose ends as many ranks were covered as are now.
fn whole(covered: &Series) -> Vec<bool> {
    let now = covered.sum();
    let points = covered.since.iter().flat_map(|since| since.points.iter().rev());
    points.map(|point| point.is_some() && *point == now).collect()
}

/// Ranks that were missing, as the history of how many were covered and how many offline tells; which they are is known of
/// those that still are.
fn missing(answer: &Answer) -> Vec<Note> {
    let course = |name: &str| -> Vec<(f64, f64, f64)> {
        let since = answer.series(name).and_then(|series| series.since.as_ref());
        since.map_or_else(Vec::new, |since| points(since, &since.points, answer.time).collect())
    };
    let offline = course("overlay.ranks_offline");
    let is_offline = |time: f64| {
        offline.iter().find(|(from, to, _)| (*from..*to).contains(&time)).map_or(0.0, |(.., count)| *count)
    };
    let size = f64::from(answer.instance.size);
    let unheard: Vec<(f64, f64, f64)> = course(COVERED)
        .into_iter()
        .map(|(from, to, covered)| (from, to, size - covered - is_offline((from + to) / 2.0)))
        .collect();
    let ranks = &answer.ranks;
    let still = [&ranks.silent, &ranks.absent].map(String::as_str).join(",");
    let mut notes = spells(&offline, "offline", &ranks.offline, answer.time);
    notes.extend(spells(&unheard, "silent or without stats-agg", still.trim_matches(','), answer.time));
    notes
}

/// When how many ranks were what, of a course of their number; `still`: those that are.
fn spells(course: &[(f64, f64, f64)], what: &str, still: &str, now: f64) -> Vec<Note> {
    /// Slots that follow one another, whatever was rounded.
    const NEAR_S: f64 = 1e-3;
    let text = |count: f64| {
        let ranks = if count < 2.0 { "rank" } else { "ranks" };
        format!("{what}: {} {ranks}", show::number(count))
    };
    let mut notes: Vec<Note> = Vec::new();
    for (from, to, count) in course.iter().copied().filter(|(.., count)| *count >= 1.0) {
        let text = text(count);
        match notes.last_mut() {
            Some(last) if last.text == text && from - last.to < NEAR_S => last.to = to,
            _ => notes.push(Note { from, to, kind: NoteKind::Missing, text }),
        }
    }
    if !still.is_empty() {
        let text = format!("{what}: ranks {still}");
        match notes.last_mut() {
            Some(last) if now - last.to < NEAR_S => last.text = text,
            _ => notes.push(Note { from: now, to: now, kind: NoteKind::Missing, text }),
        }
    }
    notes
}

fn track(series: &Series, axis: &Axis, now: f64, whole: &[bool]) -> Track {
    let slots = if is_charted(&series.name, &series.tags) { axis.count } else { 0 };
    let mut track = Track::new(series.values.clone(), Unit::of_series(series), slots);
    let Some(since) = &series.since else { return track };
    match series.values {
        Values::Counter { .. } => {
            track.gained = since.total;
            if slots > 0 {
                for (from, to, rate) in points(since, &since.points, now) {
                    axis.parts(from, to).for_each(|(slot, seconds)| track.slots[slot] += rate * seconds);
                }
            }
        }
        Values::Timer { .. } => track.samples = since.total,
        Values::Gauge { count, .. } if slots > 0 => {
            // How many ranks had it then is not remembered: as many as now, where as many were covered.
            let known = since.points.iter().rev().zip(whole).map(|(sum, whole)| sum.filter(|_| *whole));
            let mut known: Vec<Option<f64>> = known.collect();
            known.reverse();
            let width = since.seconds / since.points.len().max(1) as f64;
            let known_s = Since { seconds: width * known.len() as f64, ..Since::default() };
            for (from, to, sum) in points(&known_s, &known, now) {
                axis.parts(from, to).for_each(|(slot, _)| track.each[slot] = sum / count as f64);
            }
            for (place, (from, to, value)) in points(since, &since.points, now)
                .map(|point| (false, point))
                .chain(points(since, &since.max, now).map(|point| (true, point)))
            {
                let held = if place { &mut track.most } else { &mut track.slots };
                axis.parts(from, to).for_each(|(slot, _)| held[slot] = value);
            }
        }
        _ => {}
    }
    track
}

/// A turn that is under way, as long as it was in each slot.
fn under_way(series: &Series, now: f64, model: &mut Model) {
    if let (Some(module), Some(since)) = (module_of(&series.name, "stalled"), &series.since) {
        for (from, to, age) in points(since, &since.max, now) {
            model.axis.parts(from, to).for_each(|(slot, _)| model.see_turn(module, slot, age));
        }
    }
}

/// What the ranks did, each for itself.
fn ask_ranks(instance: &Instance, covered: &IdSet, seconds: f64, model: &mut Model) -> Result<(), Error> {
    let ranks: Vec<u32> = covered.iter().collect();
    let terminal = std::io::stderr().is_terminal();
    for (place, some) in ranks.chunks(RANKS_AT_A_TIME).enumerate() {
        if terminal && ranks.len() > RANKS_AT_A_TIME {
            let _ = write!(
                std::io::stderr(),
                "\r\x1b[Kasking the ranks: {} of {}",
                place * RANKS_AT_A_TIME,
                ranks.len()
            );
        }
        let some: IdSet = some.iter().copied().collect();
        let question = Question::new(BY_RANK).by(By::Rank).ranks(&some.to_string()).since(seconds);
        let answer = instance.ask(&question)?;
        if !answer.unanswered.is_empty() {
            let unanswered = &mut model.last.unanswered;
            *unanswered =
                [unanswered.as_str(), &answer.unanswered].join(if unanswered.is_empty() { "" } else { "," });
        }
        see(&answer, model);
    }
    if terminal && ranks.len() > RANKS_AT_A_TIME {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    Ok(())
}

/// A stall that a rank tells of: one that is under way; or the longest turn, where it began that late. Of one that is over
/// nothing else is remembered.
fn stalls(series: &Series, rank: u32, now: f64, start: f64) -> Option<Note> {
    /// As long as the setting `stall` of stats-agg is by default.
    const STALL_S: f64 = 5.0;
    let (module, age) = turn(&series.name, &series.values)?;
    let to = match (&series.values, module_of(&series.name, "stalled")) {
        (_, Some(_)) => now,
        (Values::Gauge { max, .. }, None) if age >= STALL_S => max.time.filter(|time| *time > start)?,
        _ => return None,
    };
    Some(Note { from: to - age, to, kind: NoteKind::Stall, text: stall(module, rank, age) })
}

fn see(answer: &Answer, model: &mut Model) {
    // Of each rank, what all modules did in each slot.
    let mut sums: BTreeMap<u32, BTreeMap<usize, (f64, f64, f64)>> = BTreeMap::new();
    for series in &answer.series {
        let Some(rank) = series.rank else { continue };
        if let Some((module, longest)) = turn(&series.name, &series.values)
            && let Some(pair) = model.heat.pair(rank, module)
        {
            pair.longest = pair.longest.max(longest);
        }
        model.notes.extend(stalls(series, rank, answer.time, model.axis.start));
        let (Some(module), Some(since)) = (module_of(&series.name, "work_s"), &series.since) else {
            continue;
        };
        if let Some(pair) = model.heat.pair(rank, module) {
            pair.work += since.total;
            pair.seconds += since.seconds;
        }
        for (place, (from, to, share)) in points(since, &since.points, answer.time).enumerate() {
            model.heat.see(rank, Some(module), from, to, share);
            // Counted from the newest, since histories may differ in length.
            let age = since.points.len() - place;
            let sum = sums.entry(rank).or_default().entry(age).or_insert((from, to, 0.0));
            sum.2 += share;
        }
    }
    for (rank, slots) in sums {
        for (from, to, share) in slots.into_values() {
            model.heat.see(rank, None, from, to, share);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Extreme;

    fn gauge(name: &str, points: &[Option<f64>]) -> Series {
        let last = points[points.len() - 1].unwrap_or(0.0);
        let extreme = Extreme { value: last, rank: 0, time: None };
        let since = Since { seconds: 2.0 * points.len() as f64, points: points.to_vec(), ..Since::default() };
        Series {
            name: name.into(),
            tags: BTreeMap::new(),
            rank: None,
            ranks: None,
            unit: None,
            values: Values::Gauge { count: last as u64, sum: last, min: extreme, max: extreme },
            since: Some(since),
        }
    }

    fn answer(size: u32, series: Vec<Series>) -> Answer {
        let instance = crate::answer::Whole { size, hostlist: None };
        Answer { time: 1000.0, period: 2.0, instance, series, ..Answer::default() }
    }

    fn told(answer: &Answer) -> Vec<String> {
        missing(answer).iter().map(|note| format!("{} to {} {}", note.from, note.to, note.text)).collect()
    }

    #[test]
    fn ranks_that_were_missing_are_told_from_history_and_named_where_they_still_are() {
        let covered = [4.0, 3.0, 3.0, 4.0, 4.0, 3.0, 3.0].map(Some);
        let offline = [Some(0.0), Some(0.0), None, Some(0.0), Some(0.0), Some(1.0), Some(1.0)];
        let series = || vec![gauge(COVERED, &covered), gauge("overlay.ranks_offline", &offline)];
        let mut answer = answer(4, series());
        answer.ranks.offline = "3".into();
        assert_eq!(
            told(&answer),
            ["996 to 1000 offline: ranks 3", "988 to 992 silent or without stats-agg: 1 rank"]
        );
        // What is missing since the last period.
        answer.ranks.silent = "2".into();
        answer.ranks.absent = "1".into();
        assert_eq!(told(&answer)[2], "1000 to 1000 silent or without stats-agg: ranks 2,1");
        assert_eq!(told(&self::answer(4, Vec::new())), Vec::<String>::new(), "nothing is known");
    }

    #[test]
    fn what_a_series_counts_is_what_its_answer_says() {
        let mut pushed = gauge("app.fetch", &[Some(0.12)]);
        pushed.unit = Some("seconds".into());
        let axis = Axis::new(998.0, 1000.0, 2.0);
        assert_eq!(track(&pushed, &axis, 1000.0, &[]).unit.value(0.12), "120ms");
        assert_eq!(track(&gauge("app.fetch", &[None]), &axis, 1000.0, &[]).unit.value(0.12), "0.120");
    }

    #[test]
    fn a_mean_of_ranks_is_told_only_of_when_it_is_known_of_how_many() {
        let covered = gauge(COVERED, &[4.0, 3.0, 4.0].map(Some));
        let mut statedir = gauge("broker.statedir_free_bytes", &[10.0, 10.0, 10.0].map(Some));
        if let Values::Gauge { count, .. } = &mut statedir.values {
            *count = 1;
        }
        let axis = Axis::new(994.0, 1000.0, 2.0);
        let each = track(&statedir, &axis, 1000.0, &whole(&covered)).each;
        let each: Vec<Option<f64>> =
            each.into_iter().map(|mean| Some(mean).filter(|mean| !mean.is_nan())).collect();
        assert_eq!(each[..3], [Some(10.0), None, Some(10.0)]);
        assert!(track(&statedir, &axis, 1000.0, &[]).each.iter().all(|mean| mean.is_nan()));
    }

    #[test]
    fn a_stall_is_under_way_or_was_the_longest_turn_of_the_time_that_is_told_of() {
        let told = |name: &str, value: f64, time: Option<f64>| {
            let extreme = Extreme { value, rank: 3, time };
            let values = Values::Gauge { count: 1, sum: value, min: extreme, max: extreme };
            let name = format!("modules.kvs.{name}");
            let series = Series {
                name,
                tags: BTreeMap::new(),
                rank: Some(3),
                ranks: None,
                values,
                since: None,
                unit: None,
            };
            stalls(&series, 3, 1000.0, 400.0).map(|note| (note.from, note.to, note.text))
        };
        let text = "kvs on rank 3 did not come back to its reactor for 40.0s".to_owned();
        assert_eq!(told("stalled", 40.0, Some(960.0)), Some((960.0, 1000.0, text.clone())));
        assert_eq!(told("longest_work_s", 40.0, Some(800.0)), Some((760.0, 800.0, text)));
        assert_eq!(told("longest_work_s", 40.0, Some(300.0)), None, "before");
        assert_eq!(told("longest_work_s", 0.2, Some(800.0)), None, "short");
        assert_eq!(told("longest_work_s", 40.0, None), None, "nobody knows when");
    }
}
