//! The thread that serves and sends to all exporters, and how the reactor hands numbers over to it.
//!
//! One thread, since a broker has better uses for them; so nothing on it may wait for anybody: sockets do not block, and
//! `poll` is the one place where it sleeps. The reactor hands over through a bounded queue that it never waits for: when
//! the thread does not keep up, it misses a snapshot, which is counted. (A file on a file system that hangs is the one
//! thing that can stop it. Then the module ends without it: the code stays mapped.)

use crate::counts::Counts;
use crate::datagram::Datagrams;
use crate::file::Lines;
use crate::push::Push;
use crate::scrape::Scrape;
use crate::setting::{Setting, Type};
use crate::sink::Sink;
use crate::snapshot::{Raw, Snapshot};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Hand-overs that wait for the thread.
const WAITING_MAX: usize = 8;
/// Not longer without a look around.
const NAP_MAX: Duration = Duration::from_secs(60);
/// After a failure of ours: not at once again.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// What each exporter's error is then.
const STUCK: &str = "the exporters' thread has not come back for several periods: a file system holds it, or it cannot keep \
                     up";
/// As /proc and `ps` show it.
const THREAD_NAME: &str = "stats-export";

/// An exporter that is set, and its counts, which outlast what is set.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// What is set.
    pub setting: Setting,
    /// Where it counts.
    pub counts: Arc<Counts>,
}

/// What all exporters are set to.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The exporters.
    pub wanted: Vec<Wanted>,
    /// Whether jobs are nobody's business: `access.private-mode` of the instance.
    pub private_jobs: bool,
    /// Where a Unix socket without a path is.
    pub default_path: PathBuf,
}

enum Order {
    Plan(Plan),
    Numbers(Box<Raw>),
    /// The answer to the question of one exporter that tells by rank, by its name.
    ByRank(String, String),
}

struct Shared {
    wake: EventFd,
    /// The thread is to end, at the latest then, having sent these.
    end: Mutex<Option<(Instant, Option<Box<Raw>>)>>,
    ending: AtomicBool,
    ended: Mutex<bool>,
    has_ended: Condvar,
    failures: AtomicU64,
}

/// The owner's side. Nothing in it waits, but for [`Exporter::end`].
pub struct Exporter {
    shared: Arc<Shared>,
    orders: SyncSender<Order>,
    thread: Option<JoinHandle<()>>,
    /// A plan that found no room: it is never dropped.
    unsent: Option<Plan>,
    /// Of the exporters of the last plan.
    counts: Vec<Arc<Counts>>,
    missed: u64,
    /// The thread did not take what was handed over last.
    stuck: bool,
}

impl Exporter {
    /// Begins, with nothing to do.
    pub fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared {
            wake: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
            end: Mutex::default(),
            ending: AtomicBool::new(false),
            ended: Mutex::new(false),
            has_ended: Condvar::new(),
            failures: AtomicU64::new(0),
        });
        let (orders, theirs) = sync_channel(WAITING_MAX);
        let with = shared.clone();
        let thread = Builder::new().name(THREAD_NAME.to_owned()).spawn(move || {
            run(&with, &theirs);
            *with.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
            with.has_ended.notify_all();
        })?;
        Ok(Exporter {
            shared,
            orders,
            thread: Some(thread),
            unsent: None,
            counts: Vec::new(),
            missed: 0,
            stuck: false,
        })
    }

    /// Exporters as they are wanted from now on. Those that are as they were go on.
    pub fn plan(&mut self, plan: Plan) {
        self.counts = plan.wanted.iter().map(|wanted| wanted.counts.clone()).collect();
        self.unsent = Some(plan);
        self.send_plan();
    }

    fn send_plan(&mut self) {
        if let Some(plan) = self.unsent.take()
            && let Err(Order::Plan(plan)) = self.order(Order::Plan(plan))
        {
            self.unsent = Some(plan);
        }
    }

    /// New numbers. Where the thread has not taken what came before they are missed.
    pub fn offer(&mut self, raw: Raw) {
        self.send_plan();
        let sent = self.order(Order::Numbers(Box::new(raw)));
        self.noted(sent.is_ok());
    }

    /// Whether the thread took it. Where it does not come back, all of its exporters fail.
    fn noted(&mut self, taken: bool) {
        self.missed += u64::from(!taken);
        match (taken, self.stuck) {
            (false, _) => self.counts.iter().for_each(|counts| counts.fail(STUCK)),
            // Each says anew how it does.
            (true, true) => self.counts.iter().for_each(|counts| counts.forget_failure()),
            (true, false) => {}
        }
        self.stuck = !taken;
    }

    /// The answer to [`Setting::by_rank_question`] of the exporter of that name.
    pub fn offer_by_rank(&mut self, name: &str, answer: String) {
        let sent = self.order(Order::ByRank(name.to_owned(), answer));
        self.noted(sent.is_ok());
    }

    fn order(&self, order: Order) -> Result<(), Order> {
        let sent = self.orders.try_send(order).map_err(|error| match error {
            TrySendError::Full(order) | TrySendError::Disconnected(order) => order,
        });
        // It can only fail when it is signalled 2^64 times over.
        let _ = self.shared.wake.write(1);
        sent
    }

    /// Snapshots that the thread did not take in time.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// How often the thread failed and began anew, with the loss of what waited: a fault of ours.
    pub fn failures(&self) -> u64 {
        self.shared.failures.load(Relaxed)
    }

    /// Ends: sends what waits, and the last numbers, as far as that can be done within `limit`. False: the thread could
    /// not be ended, since a file system holds it.
    pub fn end(mut self, last: Option<Raw>, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        *self.shared.end.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((deadline, last.map(Box::new)));
        self.shared.ending.store(true, Relaxed);
        self.join(limit + GRACE)
    }

    fn join(&mut self, limit: Duration) -> bool {
        let Some(thread) = self.thread.take() else { return true };
        let _ = self.shared.wake.write(1);
        let ended = self.shared.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.shared.has_ended.wait_timeout_while(ended, limit, |ended| !*ended);
        let ended = *waited.unwrap_or_else(PoisonError::into_inner).0;
        if ended {
            // It has nothing more to do than return.
            let _ = thread.join();
        }
        ended
    }
}

/// What the thread has beyond its deadline, to notice that it has passed.
const GRACE: Duration = Duration::from_millis(500);

impl Drop for Exporter {
    fn drop(&mut self) {
        if self.thread.is_some() {
            *self.shared.end.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), None));
            self.shared.ending.store(true, Relaxed);
            self.join(GRACE);
        }
    }
}

/// What the thread works with.
#[derive(Default)]
struct Work {
    plan: Plan,
    sinks: BTreeMap<String, Running>,
    latest: Option<Arc<Snapshot>>,
}

struct Running {
    wanted: Wanted,
    sink: Box<dyn Sink>,
}

fn run(shared: &Shared, orders: &Receiver<Order>) {
    let mut plan = Plan::default();
    loop {
        let mut work = Work::default();
        work.follow(plan.clone());
        let worked = catch_unwind(AssertUnwindSafe(|| work.go_on(shared, orders)));
        if worked.is_ok() {
            return;
        }
        shared.failures.fetch_add(1, Relaxed);
        plan = work.plan;
        if shared.ending.load(Relaxed) {
            return;
        }
        std::thread::sleep(AFTER_FAILURE);
    }
}

impl Work {
    fn go_on(&mut self, shared: &Shared, orders: &Receiver<Order>) {
        let mut deadline: Option<Instant> = None;
        loop {
            let now = Instant::now();
            self.take_orders(orders, now);
            if deadline.is_none() && shared.ending.load(Relaxed) {
                let end = shared.end.lock().unwrap_or_else(PoisonError::into_inner).take();
                let (until, last) = end.unwrap_or((now, None));
                deadline = Some(until);
                let last = last.map(|raw| Arc::new(raw.finish()));
                self.sinks.values_mut().for_each(|running| running.sink.end(last.as_ref(), now));
            }
            self.sinks.values_mut().for_each(|running| running.sink.tick(now));
            if let Some(until) = deadline {
                self.sinks.retain(|_, running| !running.sink.is_idle());
                if self.sinks.is_empty() || until <= now {
                    return;
                }
            }
            self.wait(shared, deadline);
        }
    }

    fn take_orders(&mut self, orders: &Receiver<Order>, now: Instant) {
        loop {
            match orders.try_recv() {
                Ok(Order::Plan(plan)) => self.follow(plan),
                Ok(Order::Numbers(raw)) => {
                    let snapshot = Arc::new(raw.finish());
                    let merged = self.sinks.values_mut().filter(|running| !running.wanted.setting.by_rank);
                    merged.for_each(|running| running.sink.offer(&snapshot, now));
                    self.latest = Some(snapshot);
                }
                Ok(Order::ByRank(name, answer)) => {
                    let Some(running) = self.sinks.get_mut(&name) else { continue };
                    let read = serde_json::from_str(&answer).map_err(|error| error.to_string());
                    let read = read
                        .and_then(|answer| Snapshot::from_answer(&answer).map_err(|error| error.to_string()));
                    match read {
                        Ok(snapshot) => running.sink.offer(&Arc::new(snapshot), now),
                        Err(error) => running.wanted.counts.fail(&error),
                    }
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
        }
    }

    /// Begins, ends, and leaves alone.
    fn follow(&mut self, plan: Plan) {
        let now = Instant::now();
        let same = plan.private_jobs == self.plan.private_jobs && plan.default_path == self.plan.default_path;
        let stays = |running: &Running| {
            same && plan.wanted.iter().any(|wanted| wanted.setting == running.wanted.setting)
        };
        // First, for another may want the place of one that ends.
        self.sinks.retain(|_, running| stays(running));
        for wanted in &plan.wanted {
            let name = &wanted.setting.name;
            if self.sinks.contains_key(name) {
                continue;
            }
            let mut sink = begin(wanted, &plan, now);
            if let Some(latest) = self.latest.as_ref().filter(|_| !wanted.setting.by_rank) {
                sink.offer(latest, now);
            }
            self.sinks.insert(name.clone(), Running { wanted: wanted.clone(), sink });
        }
        self.plan = plan;
    }

    fn wait(&mut self, shared: &Shared, deadline: Option<Instant>) {
        let mut watched: Vec<(Option<(&String, u64)>, PollFd<'_>)> =
            vec![(None, PollFd::new(shared.wake.as_fd(), PollFlags::POLLIN))];
        let mut wakes_at = Instant::now() + NAP_MAX;
        let mut some = Vec::new();
        for (name, running) in &self.sinks {
            running.sink.watched(&mut some);
            watched.extend(some.drain(..).map(|(number, fd)| (Some((name, number)), fd)));
            wakes_at = running.sink.wakes_at().into_iter().fold(wakes_at, Instant::min);
        }
        wakes_at = deadline.into_iter().fold(wakes_at, Instant::min);
        let (of, mut fds): (Vec<_>, Vec<_>) = watched.into_iter().unzip();
        // Rounded up: a nap that is too short would be followed by others.
        let nap = wakes_at.saturating_duration_since(Instant::now()).as_millis() + 1;
        let timeout = PollTimeout::try_from(nap).unwrap_or(PollTimeout::MAX);
        if poll(&mut fds, timeout).is_err() {
            // Interrupted; or no memory, which a moment may change.
            std::thread::sleep(Duration::from_millis(1));
            return;
        }
        let ready: Vec<(String, u64, PollFlags)> = of
            .iter()
            .zip(&fds)
            .filter_map(|(of, fd)| {
                let (name, number) = (*of)?;
                let events = fd.revents().filter(|events| !events.is_empty())?;
                Some((name.clone(), number, events))
            })
            .collect();
        if fds[0].any() == Some(true) {
            // Back to zero.
            let _ = shared.wake.read();
        }
        let now = Instant::now();
        for (name, number, events) in ready {
            if let Some(running) = self.sinks.get_mut(&name) {
                running.sink.ready(number, events, now);
            }
        }
    }
}

fn begin(wanted: &Wanted, plan: &Plan, now: Instant) -> Box<dyn Sink> {
    let (Wanted { setting, counts }, private_jobs) = (wanted, plan.private_jobs);
    match setting.kind {
        Type::Prometheus => {
            Box::new(Scrape::new(setting, plan.default_path.clone(), private_jobs, counts.clone(), now))
        }
        Type::Statsd => Box::new(Datagrams::new(setting, private_jobs, counts.clone(), now)),
        Type::Json => Box::new(Lines::new(setting, private_jobs, counts.clone())),
        Type::Graphite | Type::GraphitePickle | Type::Influx | Type::Otlp | Type::OtlpJson => {
            Box::new(Push::new(setting, private_jobs, counts.clone(), now))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_thread_does_not_come_back_every_exporter_fails_until_it_does() {
        let counts: Arc<Counts> = Arc::default();
        let setting = Setting::parse("json,target=/nonexistent/x.jsonl,period=at-exit").unwrap();
        let mut exporter = Exporter::start().unwrap();
        let wanted = vec![Wanted { setting, counts: counts.clone() }];
        exporter.plan(Plan { wanted, ..Plan::default() });
        exporter.noted(true);
        assert_eq!(counts.failing_for(), None);
        exporter.noted(false);
        assert!(counts.failing_for().is_some() && exporter.missed() == 1);
        assert_eq!(counts.last_error(), STUCK);
        exporter.noted(true);
        assert_eq!((counts.failing_for(), exporter.missed()), (None, 1));
    }
}
