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
        last: Answer { series: Vec::new(), ..answer },
        axis,
    };
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
        if let (Some(module), Values::Gauge { max, .. }) = (module_of(&series.name, "stalled"), &series.values) {
            let (from, text) = (answer.time - max.value, stall(module, rank, max.value));
            model.notes.push(Note { from, to: answer.time, kind: NoteKind::Stall, text });
        }
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
