//! Evidence from a recording: answers that came one after another, none of which looks back.

use super::Evidence;
use crate::answer::{Answer, Series, Since, Values};
use std::collections::{BTreeMap, HashMap};

type Key<'a> = (&'a str, &'a BTreeMap<String, String>);

fn key(series: &Series) -> Key<'_> {
    (&series.name, &series.tags)
}

impl Evidence {
    /// From answers for the whole instance, the oldest first, about as far apart as its period: what the last one says,
    /// and what each series was in those before. `None`: there is none.
    pub(crate) fn recorded(answers: &[&Answer]) -> Option<Self> {
        let (last, _) = answers.split_last()?;
        let places: Vec<HashMap<Key<'_>, &Series>> = answers
            .iter()
            .map(|answer| {
                answer.series.iter().filter(|one| one.rank.is_none()).map(|one| (key(one), one)).collect()
            })
            .collect();
        let mut whole = (*last).clone();
        whole.series.retain(|series| series.rank.is_none());
        for series in &mut whole.series {
            let course: Vec<Option<&Series>> =
                places.iter().map(|place| place.get(&key(series)).copied()).collect();
            let since = since(answers, &course);
            series.since = since;
        }
        Some(Evidence::new(whole, None))
    }
}

/// The course of one series, an answer a slot; of the first, nothing is known to have been gained.
fn since(answers: &[&Answer], course: &[Option<&Series>]) -> Option<Since> {
    let seconds = answers.last()?.time - answers.first()?.time;
    if seconds <= 0.0 {
        return None;
    }
    let pairs = || answers.windows(2).zip(course.windows(2));
    let gained = |pair: &[Option<&Series>]| match pair {
        [Some(before), Some(after)] => match (&before.values, &after.values) {
            (Values::Counter { total: before, .. }, Values::Counter { total: after, .. }) => {
                Some(after - before)
            }
            (Values::Timer { count: before, .. }, Values::Timer { count: after, .. }) => {
                Some(*after as f64 - *before as f64)
            }
            _ => None,
        }
        // A clear, or another load: what was gained is not known.
        .filter(|gained| *gained >= 0.0),
        _ => None,
    };
    let state = |series: Option<&Series>| match series.map(|series| &series.values) {
        Some(Values::Gauge { sum, max, .. }) => Some((*sum, max.value)),
        _ => None,
    };
    if matches!(course.last()?.map(|series| &series.values), Some(Values::Gauge { .. })) {
        let states: Vec<_> = course[1..].iter().map(|series| state(*series)).collect();
        let points = states.iter().map(|state| state.map(|(sum, _)| sum)).collect();
        let max = states.iter().map(|state| state.map(|(_, max)| max)).collect();
        return Some(Since { seconds, points, max, ..Since::default() });
    }
    let rate = |(answers, pair): (&[&Answer], &[Option<&Series>])| {
        let time = answers[1].time - answers[0].time;
        gained(pair).filter(|_| time > 0.0).map(|gained| gained / time)
    };
    let total = pairs().filter_map(|(_, pair)| gained(pair)).sum();
    let points = pairs().map(rate).collect();
    Some(Since { seconds, total, rate: total / seconds, points, ..Since::default() })
}
