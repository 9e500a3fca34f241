//! Pushes: one at a time, each again with the same number until it is answered.

use crate::aggregator::Aggregator;
use crate::dump::Dump;
use flux::{Error, Handle, Level, Node, Payload, PendingRpc, Reply, Result, Watcher, WeakHandle};
use serde_json::{Value, json};
use stats_core::{PUSH_VERSION, refusal_text};
use std::collections::VecDeque;
use std::rc::Weak;
use std::time::{Duration, Instant};

/// Where pushes go: to this broker's own module. Always the same one, so that it knows a repeat.
const TOPIC: &str = "stats-agg.push";
/// How often is pushed before the service has said how often it is worth to.
const PERIOD: Duration = Duration::from_secs(2);
/// What a service may ask for.
const PERIOD_MIN: Duration = Duration::from_millis(100);
const PERIOD_MAX: Duration = Duration::from_secs(3600);
/// While nobody takes pushes the time between two attempts doubles, up to so many periods.
const PATIENCE: u32 = 4;
/// Metrics in one push; more are several, one after the other.
const METRICS_MAX: usize = 1000;

/// Who waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The reactor.
    Reactor,
    /// The caller, until then.
    Waiting(Instant),
}

/// What sends.
pub(crate) struct Sender {
    /// `None`: closed.
    handle: Option<WeakHandle>,
    rank: Option<u32>,
    timer: Option<Watcher>,
    /// The push that is under way.
    pending: Option<PendingRpc>,
    /// Pushes that have no answer yet, the oldest first.
    queue: VecDeque<String>,
    id: String,
    seq: u64,
    period: Duration,
    /// Whether the service may change it.
    adopts: bool,
    /// When a gauge that is not pushed again is gone, as the service said.
    ttl: Option<Duration>,
    due: Instant,
    failures: u32,
    /// What was logged last, so that it is logged once.
    complaint: Option<(Level, String)>,
    dump: Option<Dump>,
}

impl Sender {
    /// One for `handle`; without one nothing is ever sent.
    pub(crate) fn new(handle: Option<&Handle>, period: Option<Duration>) -> Result<Self> {
        let id = getrandom::u64().map_err(|error| Error::new(libc::EIO, format!("no random id: {error}")))?;
        let adopts = period.is_none();
        let period = period.unwrap_or(PERIOD).clamp(PERIOD_MIN, PERIOD_MAX);
        Ok(Sender {
            handle: handle.map(Handle::downgrade).transpose()?,
            rank: None,
            timer: None,
            pending: None,
            queue: VecDeque::new(),
            id: format!("{id:016x}"),
            seq: 0,
            period,
            adopts,
            ttl: None,
            due: Instant::now() + period,
            failures: 0,
            complaint: None,
            dump: Dump::from_environment(),
        })
    }

    pub(crate) fn period(&self) -> Duration {
        self.period
    }

    pub(crate) fn with_handle<R>(&self, body: impl FnOnce(&Handle) -> R) -> Result<R> {
        self.handle.as_ref().and_then(|handle| handle.with(body)).ok_or_else(closed)
    }

    /// Makes the timer, once the handle has a reactor. It is not known whether that runs: see `is_overdue`.
    pub(crate) fn watch_time(&mut self, aggregator: &Weak<Aggregator>) {
        if self.timer.is_some() {
            return;
        }
        let (period, aggregator) = (self.period, aggregator.clone());
        let made = self.handle.as_ref().and_then(|handle| {
            handle.with(|handle| {
                handle.has_reactor().then(|| {
                    handle.timer(period, period, move || {
                        if let Some(aggregator) = aggregator.upgrade() {
                            aggregator.on_timer();
                        }
                    })
                })
            })?
        });
        if let Some(Ok(timer)) = made {
            timer.unreference();
            self.timer = Some(timer);
        }
    }

    /// Whether a call has to send: it is time, and where there is a timer it should have fired by now.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        let grace = if self.timer.is_some() { self.period / 8 } else { Duration::ZERO };
        self.handle.is_some() && now >= self.due + grace
    }

    /// Whether the timer has to send: not while nobody takes pushes, but now and then.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        // A timer may fire a little early.
        now + self.period / 2 >= self.due
    }

    /// Sends what there is. Waiting, until all of it is acknowledged; an error says why it is not.
    pub(crate) fn advance(&mut self, aggregator: &Aggregator, mode: Mode) -> Result<()> {
        let now = Instant::now();
        self.due = now + self.period * (1 << self.failures.min(8)).min(PATIENCE);
        if mode == Mode::Reactor && self.pending.is_some() {
            return Ok(());
        }
        let Some(handle) = self.handle.take() else { return Err(closed()) };
        let advanced = handle.with(|handle| self.advance_with(handle, aggregator, mode, now));
        // Closed by what was called: it stays closed.
        self.handle = Some(handle);
        advanced.unwrap_or_else(|| Err(closed()))
    }

    fn advance_with(
        &mut self,
        handle: &Handle,
        aggregator: &Aggregator,
        mode: Mode,
        now: Instant,
    ) -> Result<()> {
        if let (Some(pending), Mode::Waiting(until)) = (self.pending.take(), mode) {
            let outcome = pending.wait(until.saturating_duration_since(Instant::now()));
            self.settle(handle, outcome)?;
        }
        loop {
            if self.queue.is_empty() {
                self.gather(aggregator, now);
            }
            let Some(payload) = self.queue.front() else { return Ok(()) };
            let rank = match self.rank {
                Some(rank) => rank,
                None => *self.rank.insert(handle.rank()?),
            };
            let payload = Payload::Text(payload);
            match mode {
                Mode::Reactor => {
                    let aggregator = aggregator.weak();
                    let sent = handle.request(TOPIC, payload, Node::Rank(rank), None, move |reply| {
                        if let Some(aggregator) = aggregator.upgrade() {
                            aggregator.on_reply(reply);
                        }
                    });
                    self.pending = Some(sent?);
                    return Ok(());
                }
                Mode::Waiting(until) => {
                    // Nothing to wait with is no time for a first attempt either.
                    let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
                    let sent = handle.rpc(TOPIC, payload, Node::Rank(rank));
                    let outcome = sent.and_then(|sent| sent.wait(left));
                    self.settle(handle, outcome)?;
                }
            }
        }
    }

    fn gather(&mut self, aggregator: &Aggregator, now: Instant) {
        let stale = self.ttl.and_then(|ttl| now.checked_sub(ttl / 2));
        let dump = &mut self.dump;
        let (mut metrics, mut dropped) = aggregator.gather(now, stale, |key, value| {
            if let Some(dump) = dump {
                dump.add(key, value);
            }
        });
        while !metrics.is_empty() || dropped > 0 {
            let rest = metrics.split_off(metrics.len().min(METRICS_MAX));
            self.seq += 1;
            let (id, seq, dropped) = (&self.id, self.seq, std::mem::take(&mut dropped));
            let push = json!({
                "version": PUSH_VERSION, "id": id, "seq": seq, "dropped": dropped, "metrics": metrics,
            });
            self.queue.push_back(push.to_string());
            metrics = rest;
        }
    }

    /// An answer to the reactor's push. Whether to go on with what is left at once.
    pub(crate) fn on_reply(&mut self, reply: Result<Reply>) -> bool {
        self.pending = None;
        let Some(handle) = self.handle.take() else { return false };
        let settled = handle.with(|handle| self.settle(handle, reply));
        self.handle = Some(handle);
        matches!(settled, Some(Ok(()))) && !self.queue.is_empty()
    }

    /// The oldest push has this outcome; an error: it is kept, to be sent again.
    fn settle(&mut self, handle: &Handle, outcome: Result<Reply>) -> Result<()> {
        match outcome {
            Ok(reply) => {
                self.queue.pop_front();
                self.failures = 0;
                self.complaint = None;
                if let Ok(receipt) = reply.json() {
                    self.heed(handle, &receipt);
                }
                Ok(())
            }
            // It was read, and would be refused again.
            Err(error) if matches!(error.errnum(), libc::EINVAL | libc::EPROTO | libc::EPERM) => {
                self.queue.pop_front();
                self.complain(handle, Level::Warning, &format!("metrics refused: {error}"));
                Ok(())
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                // Normal where the module is not loaded, and on a busy machine.
                let normal = matches!(error.errnum(), libc::ENOSYS | libc::ETIMEDOUT);
                let level = if normal { Level::Debug } else { Level::Warning };
                self.complain(handle, level, &format!("metrics not taken: {error}; kept, and sent again"));
                Err(error)
            }
        }
    }

    /// What the service says of its period, of gauges, and of what it refused.
    fn heed(&mut self, handle: &Handle, receipt: &Value) {
        let seconds = |key: &str| Duration::try_from_secs_f64(receipt[key].as_f64()?).ok();
        self.ttl = seconds("ttl").or(self.ttl);
        let period = seconds("period").filter(|_| self.adopts).unwrap_or(self.period);
        let period = period.clamp(PERIOD_MIN, PERIOD_MAX);
        if period != self.period {
            self.period = period;
            self.due = Instant::now() + period;
            if let Some(timer) = &self.timer {
                timer.reset_timer(period, period);
            }
        }
        if let Some(refused) = receipt["refused"].get(0) {
            let text = |key: &str| refused[key].as_str().unwrap_or("?");
            let text = format!("metric refused: {}", refusal_text(text("name"), text("reason")));
            self.complain(handle, Level::Warning, &text);
        }
    }

    fn complain(&mut self, handle: &Handle, level: Level, text: &str) {
        if self.complaint.as_ref().is_none_or(|(_, last)| last != text) {
            handle.log(level, text);
            self.complaint = Some((level, text.to_owned()));
        }
    }

    /// Lets go of the handle. What is not sent is lost, which is logged where the handle still can (`says`).
    pub(crate) fn detach(&mut self, aggregator: &Aggregator, says: bool) {
        let handle = self.handle.take();
        if handle.is_some() || self.dump.is_some() {
            self.gather(aggregator, Instant::now());
        }
        drop((self.timer.take(), self.pending.take()));
        if let Some(dump) = self.dump.take() {
            dump.write(&self.id);
        }
        let Some(handle) = handle else { return };
        let lost = self.queue.len();
        if lost > 0 && says {
            let unknown = (Level::Warning, "closed without flushing".to_owned());
            let (level, why) = self.complaint.take().unwrap_or(unknown);
            handle.with(|handle| handle.log(level, &format!("{lost} pushes of metrics are lost: {why}")));
        }
    }
}

fn closed() -> Error {
    Error::new(libc::ESHUTDOWN, "the handle is closed: its metrics are not sent any more")
}
