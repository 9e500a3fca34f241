//! The same request to many ranks, some of them at a time.

use super::{Node, Outcomes, Payload, named};
use crate::instance::Instance;
use crate::outcome::say;
use flux::Rpc;
use serde_json::Value;
use stats_core::IdSet;
use std::collections::VecDeque;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// Requests under way.
const AT_A_TIME: usize = 64;
/// When work is long enough to say how far it is, and how often.
const LONG: Duration = Duration::from_millis(300);
/// When it is said whom the work waits for: a broker that runs answers sooner.
const PATIENCE: Duration = Duration::from_secs(2);
/// What is enough to take a response that is there.
const GLANCE: Duration = Duration::from_millis(1);

/// Asks each rank, and waits for all of them, `timeout` for each at most. Whom it waits for is said, once.
pub(super) fn each(
    instance: &Instance,
    ranks: impl Iterator<Item = u32>,
    topic: &str,
    payload: &Value,
    timeout: Duration,
    progress: &mut Progress,
) -> Outcomes {
    let mut ranks = ranks.fuse();
    let mut waiting: VecDeque<Asked<'_>> = VecDeque::new();
    let mut outcomes = Vec::new();
    loop {
        while waiting.len() < AT_A_TIME
            && let Some(rank) = ranks.next()
        {
            let sent = instance.client().rpc(topic, Payload::Json(payload), Node::Rank(rank));
            waiting.push_back(Asked { rank, since: Instant::now(), sent });
        }
        let Some(asked) = waiting.pop_front() else { return outcomes };
        if !asked.answered(PATIENCE.min(timeout).saturating_sub(asked.since.elapsed())) {
            let silent = waiting.iter().filter(|other| !other.answered(GLANCE)).map(|other| other.rank);
            progress.waits_for(std::iter::once(asked.rank).chain(silent).collect());
        }
        // All that were sent with it have waited as long.
        let left = timeout.saturating_sub(asked.since.elapsed());
        outcomes.push((asked.rank, asked.sent.and_then(|rpc| rpc.wait(left))));
        progress.step();
    }
}

/// A request under way.
struct Asked<'i> {
    rank: u32,
    since: Instant,
    sent: flux::Result<Rpc<'i>>,
}

impl Asked<'_> {
    /// Whether it is known within that time what came of it.
    fn answered(&self, within: Duration) -> bool {
        self.sent.as_ref().map_or(true, |rpc| rpc.answered(within.max(GLANCE)))
    }
}

/// How far long work is, on a terminal's standard error, gone at the end; and, anywhere, whom it waits for.
pub(super) struct Progress {
    what: &'static str,
    /// Ranks that were said to be waited for.
    awaited: IdSet,
    done: u64,
    all: u64,
    next: Instant,
    shown: bool,
    on: bool,
}

impl Progress {
    pub(super) fn new(what: &'static str, all: u64) -> Self {
        Self::shown_if(stderr().is_terminal(), what, all)
    }

    fn shown_if(on: bool, what: &'static str, all: u64) -> Self {
        Progress { what, awaited: IdSet::new(), done: 0, all, next: Instant::now() + LONG, shown: false, on }
    }

    pub(super) fn none() -> Self {
        Self::shown_if(false, "", 0)
    }

    /// One line for each rank that is slow, whoever reads.
    fn waits_for(&mut self, ranks: IdSet) {
        let new = ranks.minus(&self.awaited);
        if new.is_empty() {
            return;
        }
        self.clear();
        say(&format!(
            "waiting for {}, whose broker has not answered for {} s",
            named(&new),
            PATIENCE.as_secs()
        ));
        self.awaited.add(&new);
    }

    /// What was said of ranks in earlier work is not said again.
    pub(super) fn go_on_from(&mut self, earlier: &Progress) {
        self.awaited.add(&earlier.awaited);
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }

    fn step(&mut self) {
        self.done += 1;
        if self.on && Instant::now() >= self.next {
            (self.next, self.shown) = (Instant::now() + LONG, true);
            let _ = write!(stderr(), "\r{}: {} of {} ranks", self.what, self.done, self.all);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
