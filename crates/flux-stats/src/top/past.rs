//! What one line gained lately, for its sparkline.

use crate::answer::Since;
use std::collections::VecDeque;

/// Points of one line that are kept: ten minutes of two seconds.
const POINTS_MAX: usize = 300;

/// Rates over time, the oldest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Past {
    /// When the slot ended, in seconds since 1970, and what was gained in it, per second.
    points: VecDeque<(f64, f64)>,
}

impl Past {
    /// What the instance remembers itself, until `now`; what was gathered here so far is replaced.
    pub(crate) fn new(since: &Since, now: f64) -> Self {
        let count = since.points.len().max(1) as f64;
        let slot_s = since.seconds / count;
        let ended = |place: usize| now - (count - 1.0 - place as f64) * slot_s;
        let known = |(place, rate): (usize, &Option<f64>)| rate.map(|rate| (ended(place), rate));
        Past { points: since.points.iter().enumerate().filter_map(known).collect() }
    }

    /// A rate that holds until `time`. One of the same moment (a paused stream, two answers to one question) is not
    /// told twice.
    pub(crate) fn push(&mut self, time: f64, rate: f64) {
        if self.points.back().is_some_and(|&(last, _)| time <= last) {
            return;
        }
        if self.points.len() == POINTS_MAX {
            self.points.pop_front();
        }
        self.points.push_back((time, rate));
    }

    /// Adds the rates of another, slot by slot from the newest on.
    pub(crate) fn add(&mut self, other: &Past) {
        let mine = self.points.len();
        for (place, &point) in other.points.iter().rev().enumerate() {
            match mine.checked_sub(place + 1).and_then(|place| self.points.get_mut(place)) {
                Some((_, rate)) => *rate += point.1,
                None => self.points.push_front(point),
            }
        }
    }

    /// The mean of the last `seconds` before `now`.
    pub(crate) fn mean(&self, now: f64, seconds: f64) -> Option<f64> {
        let recent = self.points.iter().filter(|(time, _)| *time > now - seconds && *time <= now);
        let (count, sum) = recent.fold((0.0, 0.0), |(count, sum), (_, rate)| (count + 1.0, sum + rate));
        (count > 0.0).then(|| sum / count)
    }

    /// The last `seconds` before `now` in so many cells of equal length, the oldest first: the mean of what fell into
    /// each; `None` where nothing is known. Cells begin at whole multiples of their length, so that they do not change
    /// while time goes on, but for the last one.
    pub(crate) fn cells(&self, now: f64, seconds: f64, count: usize) -> Vec<Option<f64>> {
        let length = seconds / count.max(1) as f64;
        let last = (now / length).ceil();
        let mut sums = vec![(0.0, 0.0); count];
        for &(time, rate) in self.points.iter().filter(|(time, _)| *time <= now) {
            let back = last - (time / length).ceil();
            let place = (count as f64 - 1.0 - back).max(-1.0);
            if let Some((parts, sum)) = (place >= 0.0).then(|| sums.get_mut(place as usize)).flatten() {
                *parts += 1.0;
                *sum += rate;
            }
        }
        sums.into_iter().map(|(parts, sum)| (parts > 0.0).then(|| sum / parts)).collect()
    }

    /// Moments and rates of the last `seconds` before `now`.
    pub(crate) fn recent(&self, now: f64, seconds: f64) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.points.iter().copied().filter(move |(time, _)| *time > now - seconds && *time <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn since(points: &[f64]) -> Since {
        let points = points.iter().copied().map(Some).collect::<Vec<_>>();
        Since { seconds: 2.0 * points.len() as f64, points, ..Since::default() }
    }

    #[test]
    fn what_the_instance_remembers_goes_on_with_what_is_heard() {
        let mut past = Past::new(&since(&[1.0, 2.0, 3.0]), 100.0);
        past.push(102.0, 4.0);
        past.push(102.0, 9.0);
        let recent: Vec<_> = past.recent(102.0, 100.0).collect();
        assert_eq!(recent, [(96.0, 1.0), (98.0, 2.0), (100.0, 3.0), (102.0, 4.0)]);
        assert_eq!(past.mean(102.0, 4.0), Some(3.5));
        assert_eq!(past.mean(200.0, 4.0), None);
        // A picture that was frozen at 98 shows nothing of what came later.
        assert_eq!(past.recent(98.0, 100.0).count(), 2);
    }

    #[test]
    fn no_more_is_kept_than_ten_minutes() {
        let mut past = Past::default();
        (0..1000).for_each(|second| past.push(f64::from(second), 1.0));
        assert_eq!(past.points.len(), POINTS_MAX);
        assert_eq!(past.points[0].0, 700.0);
    }

    #[test]
    fn cells_are_means_of_equal_times_and_say_where_nothing_is_known() {
        let past = Past::new(&since(&[1.0, 3.0, 5.0, 7.0]), 100.0);
        assert_eq!(past.cells(100.0, 12.0, 3), [None, Some(2.0), Some(6.0)]);
        // A second later the last cell alone is another.
        assert_eq!(past.cells(101.0, 12.0, 3), [Some(2.0), Some(6.0), None]);
        assert_eq!(past.cells(100.0, 12.0, 0), [] as [Option<f64>; 0]);
        assert_eq!(Past::default().cells(100.0, 12.0, 2), [None, None]);
    }

    #[test]
    fn pasts_of_different_lengths_are_added_from_the_newest_on() {
        let mut sum = Past::new(&since(&[1.0]), 100.0);
        sum.add(&Past::new(&since(&[10.0, 20.0]), 100.0));
        assert_eq!(sum.recent(100.0, 50.0).collect::<Vec<_>>(), [(98.0, 10.0), (100.0, 21.0)]);
    }
}
