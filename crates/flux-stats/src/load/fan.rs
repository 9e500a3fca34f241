//! The same request to many ranks, some of them at a time.

use super::{Node, Outcomes, Payload};
use crate::instance::Instance;
use flux::Rpc;
use serde_json::Value;
use std::collections::VecDeque;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// Requests under way.
const AT_A_TIME: usize = 64;
/// When work is long enough to say how far it is, and how often.
const LONG: Duration = Duration::from_millis(300);

/// Asks each rank, and waits for all of them, `timeout` for each at most.
pub(super) fn each(
    instance: &Instance,
    ranks: impl Iterator<Item = u32>,
    topic: &str,
    payload: &Value,
    timeout: Duration,
    progress: &mut Progress,
) -> Outcomes {
    let mut ranks = ranks.fuse();
    let mut waiting: VecDeque<(u32, Instant, flux::Result<Rpc<'_>>)> = VecDeque::new();
    let mut outcomes = Vec::new();
    loop {
        while waiting.len() < AT_A_TIME
            && let Some(rank) = ranks.next()
        {
            let sent = instance.client().rpc(topic, Payload::Json(payload), Node::Rank(rank));
            waiting.push_back((rank, Instant::now(), sent));
        }
        let Some((rank, since, sent)) = waiting.pop_front() else { return outcomes };
        // All that were sent with it have waited as long.
        let left = timeout.saturating_sub(since.elapsed());
        outcomes.push((rank, sent.and_then(|rpc| rpc.wait(left))));
        progress.step();
    }
}

/// How far long work is, on a terminal's standard error; gone at the end.
pub(super) struct Progress {
    what: &'static str,
    done: u64,
    all: u64,
    next: Instant,
    shown: bool,
    on: bool,
}

impl Progress {
    pub(super) fn new(what: &'static str, all: u64) -> Self {
        let on = stderr().is_terminal();
        Progress { what, done: 0, all, next: Instant::now() + LONG, shown: false, on }
    }

    pub(super) fn none() -> Self {
        Progress { on: false, ..Progress::new("", 0) }
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
        if self.shown {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
