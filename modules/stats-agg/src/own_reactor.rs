//! The service's own reactor, timed by watchers of its own: what it costs is known without any hook, in whatever process
//! it runs, and a hook's numbers of it can be held against these.

use crate::recorded::whole;
use flux::{Error, Handle};
use stats_core::{Key, Kind, Node, Refused, SeriesId, Unit};
use stats_probe::{Instrumented, ReactorSample, instrument};

struct Ids {
    wakeups: SeriesId,
    work: SeriesId,
    sleep: SeriesId,
    longest_work: SeriesId,
}

pub(crate) struct OwnReactor {
    turns: Instrumented,
    ids: Option<Ids>,
    before: ReactorSample,
}

impl OwnReactor {
    /// Counts from now on.
    pub(crate) fn new(handle: &Handle) -> Result<Self, Error> {
        let turns = instrument(handle)?;
        let before = turns.sample();
        Ok(OwnReactor { turns, ids: None, before })
    }

    /// Records what has been done since the last time, this turn until now included.
    pub(crate) fn record(&mut self, node: &mut Node) {
        if self.ids.is_none() {
            self.ids = ids(node).ok();
        }
        let Some(ids) = &self.ids else { return };
        let now = self.turns.sample();
        for (id, now, before) in [
            (ids.wakeups, now.wakeups, self.before.wakeups),
            (ids.work, now.work_ns, self.before.work_ns),
            (ids.sleep, now.sleep_ns, self.before.sleep_ns),
        ] {
            node.add(id, whole(now.saturating_sub(before)));
        }
        node.set(ids.longest_work, Some(whole(now.longest_work_ns)));
        self.before = now;
    }
}

fn ids(node: &mut Node) -> Result<Ids, Refused> {
    let mut id = |name: &str, kind, unit| {
        node.declare(Key::new(&format!("stats-agg.reactor.{name}"), &[], kind, unit)?)
    };
    Ok(Ids {
        wakeups: id("wakeups", Kind::Counter, Unit::None)?,
        work: id("work_s", Kind::Counter, Unit::Nanoseconds)?,
        sleep: id("sleep_s", Kind::Counter, Unit::Nanoseconds)?,
        longest_work: id("longest_work_s", Kind::Gauge, Unit::Nanoseconds)?,
    })
}
