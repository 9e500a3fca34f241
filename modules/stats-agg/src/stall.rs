//! Modules that do not come back to their reactor: `modules.NAME.stalled`, and a line in the log.
//!
//! A module that works (or is blocked in a call) for longer than `stall` answers nothing and nobody. Its own numbers
//! would show that only when it is over; its slot shows it meanwhile.

use stats_probe::{ModuleSample, State};
use std::collections::HashMap;

/// A module that stalls again and again is logged once in so long.
const LOG_INTERVAL_NS: u64 = 60_000_000_000;
/// Lines in that time, of all modules of this broker.
const LINES_MAX: usize = 8;

/// Something to be logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    /// It has not come back for that long.
    Stalled { module: String, blocked: bool, age_ns: u64 },
    /// It has come back, after at least so long.
    Back { module: String, age_ns: u64 },
}

#[derive(Debug)]
struct Stall {
    age_ns: u64,
    logged: bool,
    seen_ns: u64,
}

/// The stalls of this broker's modules.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    now: HashMap<String, Stall>,
    /// When each module was logged last.
    logged_ns: HashMap<String, u64>,
    notices: Vec<Notice>,
}

/// For how long a module has not come back to its reactor, if it is in a turn.
fn in_turn_for_ns(sample: &ModuleSample, now_ns: u64) -> Option<u64> {
    let in_turn = matches!(sample.state, State::Working | State::Blocked | State::UnknownRunning);
    in_turn.then(|| now_ns.saturating_sub(sample.turn_since_ns))
}

impl Stalls {
    /// Looks at one module; its age if it is stalled. Times in CLOCK_MONOTONIC ns.
    pub(crate) fn look(&mut self, sample: &ModuleSample, now_ns: u64, stall_ns: u64) -> Option<u64> {
        let age_ns = in_turn_for_ns(sample, now_ns).filter(|age_ns| *age_ns >= stall_ns)?;
        let module = sample.name.clone();
        if let Some(stall) = self.now.get_mut(&module) {
            (stall.age_ns, stall.seen_ns) = (age_ns, now_ns);
            return Some(age_ns);
        }
        self.logged_ns.retain(|_, logged| now_ns.saturating_sub(*logged) < LOG_INTERVAL_NS);
        let logged = !self.logged_ns.contains_key(&module) && self.logged_ns.len() < LINES_MAX;
        if logged {
            self.logged_ns.insert(module.clone(), now_ns);
            let blocked = sample.state == State::Blocked;
            self.notices.push(Notice::Stalled { module: module.clone(), blocked, age_ns });
        }
        self.now.insert(module, Stall { age_ns, logged, seen_ns: now_ns });
        Some(age_ns)
    }

    /// All modules have been looked at: what is there to be logged.
    pub(crate) fn finish(&mut self, now_ns: u64) -> Vec<Notice> {
        let over = self.now.extract_if(|_, stall| stall.seen_ns != now_ns).filter(|(_, stall)| stall.logged);
        let back = over.map(|(module, stall)| Notice::Back { module, age_ns: stall.age_ns });
        self.notices.extend(back);
        std::mem::take(&mut self.notices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const STALL: u64 = 5 * S;

    fn sample(name: &str, state: State, turn_since_ns: u64) -> ModuleSample {
        let mut sample = ModuleSample::default();
        (sample.name, sample.state, sample.turn_since_ns) = (name.into(), state, turn_since_ns);
        sample
    }

    fn look(stalls: &mut Stalls, now_ns: u64, samples: &[ModuleSample]) -> (Vec<Option<u64>>, Vec<Notice>) {
        let ages = samples.iter().map(|sample| stalls.look(sample, now_ns, STALL)).collect();
        (ages, stalls.finish(now_ns))
    }

    #[test]
    fn a_stall_is_a_state_while_it_lasts_and_a_line_at_each_end() {
        let mut stalls = Stalls::default();
        let working = [sample("kvs", State::Working, 100 * S), sample("idle", State::Sleeping, 0)];
        assert_eq!(look(&mut stalls, 104 * S, &working), (vec![None, None], vec![]));
        let said = Notice::Stalled { module: "kvs".into(), blocked: false, age_ns: 6 * S };
        assert_eq!(look(&mut stalls, 106 * S, &working), (vec![Some(6 * S), None], vec![said]));
        assert_eq!(look(&mut stalls, 108 * S, &working), (vec![Some(8 * S), None], vec![]));
        let back = Notice::Back { module: "kvs".into(), age_ns: 8 * S };
        assert_eq!(
            look(&mut stalls, 110 * S, &[sample("kvs", State::Sleeping, 0)]),
            (vec![None], vec![back])
        );
    }

    #[test]
    fn time_in_a_call_that_waits_counts_and_sleep_in_the_reactor_does_not() {
        let mut stalls = Stalls::default();
        for (state, stalled) in [
            (State::Blocked, true),
            (State::UnknownRunning, true),
            (State::UnknownIdle, false),
            (State::Sleeping, false),
            (State::Gone, false),
        ] {
            assert_eq!(stalls.look(&sample("m", state, 0), 10 * S, STALL).is_some(), stalled, "{state:?}");
        }
    }

    #[test]
    fn a_module_that_stalls_again_and_again_and_many_at_once_do_not_flood_the_log() {
        let mut stalls = Stalls::default();
        let mut lines = 0;
        // Ten minutes of a stall of six seconds in every ten.
        for second in 0..600 {
            let turn = sample(
                "kvs",
                if second % 10 < 9 { State::Working } else { State::Sleeping },
                second / 10 * 10 * S,
            );
            lines += look(&mut stalls, second * S, &[turn]).1.len();
        }
        assert!((10..=20).contains(&lines), "{lines} lines, two for each of at most ten that are logged");
        let mut stalls = Stalls::default();
        let all: Vec<_> = (0..30).map(|i| sample(&format!("m{i}"), State::Working, 0)).collect();
        let (ages, notices) = look(&mut stalls, 10 * S, &all);
        assert_eq!((ages.iter().flatten().count(), notices.len()), (30, LINES_MAX));
    }
}
