//! A report from what an instance remembers.

use super::axis::Axis;
use super::heat::Heat;
use super::model::{Model, Note, NoteKind, Track, is_charted, module_of, stall, turn};
use crate::answer::{Answer, Series, Since, Values};
use crate::instance::{By, Error, Instance, Question};
use stats_core::IdSet;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// What is asked of the ranks, some at a time: so many series stay below what an answer may hold.
const BY_RANK: [&str; 3] = ["modules.*.work_s", "modules.*.longest_work_s", "modules.*.stalled"];
const RANKS_AT_A_TIME: usize = 64;

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
    let tracks = answer.series.iter().map(|series| {
        let key = (series.name.clone(), series.tags.clone());
        (key, track(series, &axis, answer.time))
    });
    let mut model = Model {
        source: name,
        heard,
        answers: 1,
        covered: vec![None; axis.count],
        tracks: tracks.collect(),
        heat: Heat::new(&axis, answer.instance.size),
        notes: Vec::new(),
        notes_left_out: 0,
        looks_left_out: 0,
        last: Answer::default(),
        axis,
    };
    answer.series.iter().for_each(|series| under_way(series, answer.time, &mut model));
    model.last = Answer { series: Vec::new(), ..answer };
    ask_ranks(instance, &covered, seconds, &mut model)?;
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

fn track(series: &Series, axis: &Axis, now: f64) -> Track {
    let slots = if is_charted(&series.name, &series.tags) { axis.count } else { 0 };
    let mut track = Track::new(series.values.clone(), slots);
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
        Values::Gauge { .. } if slots > 0 => {
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
