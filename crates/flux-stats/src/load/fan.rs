//! The same request to many ranks, some of them at a time.

use super::{Node, Outcomes, Payload};
use crate::instance::Instance;
use crate::outcome::say;
use crate::show::named;
use flux::PendingRpc;
use serde_json::Value;
use stats_core::IdSet;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stderr};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Requests under way.
const AT_A_TIME: usize = 64;
/// When work is long enough to say how far it is, and how often.
const LONG: Duration = Duration::from_millis(300);
/// When it is said whom the work waits for: a broker that runs answers sooner.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it is seen who is waited for. Ranks that were asked within that time are told of together.
const TICK: Duration = Duration::from_millis(100);

/// Asks each rank, and waits for all of them, `timeout` for each at most. Whom it waits for is said, once.
///
/// Responses are taken by the reactor: a wait for one rank that ends in vain keeps to itself what has come for others.
pub(super) fn each(
    instance: &Instance,
    ranks: impl Iterator<Item = u32>,
    topic: &str,
    payload: &Value,
    timeout: Duration,
    progress: &mut Progress,
) -> flux::Result<Outcomes> {
    let client = instance.client();
    let _tick = client.timer(TICK, TICK, || ())?;
    let mut ranks = ranks.fuse();
    let mut waiting: BTreeMap<u32, Asked> = BTreeMap::new();
    let arrived = Rc::new(RefCell::new(Outcomes::new()));
    let mut outcomes = Outcomes::new();
    loop {
        while waiting.len() < AT_A_TIME
            && let Some(rank) = ranks.next()
        {
            let arrived = Rc::clone(&arrived);
            let take = move |outcome| arrived.borrow_mut().push((rank, outcome));
            match client.request(topic, Payload::Json(payload), Node::Rank(rank), Some(timeout), take) {
                Ok(rpc) => drop(waiting.insert(rank, Asked { since: Instant::now(), _rpc: rpc })),
                Err(error) => outcomes.push((rank, Err(error))),
            }
        }
        if waiting.is_empty() {
            return Ok(outcomes);
        }
        client.run_once()?;
        for (rank, outcome) in arrived.take() {
            waiting.remove(&rank);
            outcomes.push((rank, outcome));
            progress.step();
        }
        progress.waits_for(slow(&waiting));
    }
}

/// Those that have not answered for so long that it is said; with the first of them those that were asked with it.
fn slow(waiting: &BTreeMap<u32, Asked>) -> IdSet {
    let longer = |time| waiting.iter().filter(move |(_, asked)| asked.since.elapsed() >= time);
    match longer(PATIENCE).next() {
        Some(_) => longer(PATIENCE.saturating_sub(TICK)).map(|(rank, _)| *rank).collect(),
        None => IdSet::new(),
    }
}

/// A request under way.
struct Asked {
    since: Instant,
    /// Dropped, its response is not awaited.
    _rpc: PendingRpc,
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
