//! Exporters at rank 0: what they are given, in slices of the reactor's time, and what they say of themselves.

use crate::agg::StatsAgg;
use crate::config::Config;
use crate::recorded::whole;
use flux::{Level, Scope, Watcher};
use serde_json::{Value, json};
use stats_core::{Amount, Key, Kind, Node, Query, SeriesId, Unit, Walk, Walked};
use stats_export::{Counts, Exporter, Plan, Raw, Setting, Wanted};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The longest that a turn of the reactor is spent on a snapshot.
const SLICE: Duration = Duration::from_millis(1);
/// Series between two looks at the clock.
const STEP: usize = 64;
/// How long the end of the module waits for what is still to be sent.
const END: Duration = Duration::from_secs(1);
/// One exporter's troubles are logged so often at most.
const LOGGED: Duration = Duration::from_secs(60);

/// See the module's description.
#[derive(Default)]
pub(crate) struct Exports {
    exporter: Option<Exporter>,
    /// By name; those that are set no more, too, until the thread has let go of them.
    sinks: BTreeMap<String, Sink>,
    gathering: Option<Gathering>,
    /// Fires for the next slice of it.
    slicer: Option<Watcher>,
    /// How often somebody wants numbers; `None`: nobody does, but at the end perhaps.
    every: Option<Duration>,
    gathered: Option<Instant>,
    /// How many series there were.
    series: usize,
    missed: Told,
    failures: Told,
}

/// A snapshot that is being made.
enum Gathering {
    /// In the next turn: that of the end of a period has enough to do.
    Due,
    Begun(Raw, Box<Walk>),
}

/// One exporter.
struct Sink {
    /// `None`: it is set no more.
    setting: Option<Setting>,
    counts: Arc<Counts>,
    series: Option<Series>,
    logged: Option<Instant>,
    failing: bool,
    /// When ranks are asked again, where it tells by rank; and whether they are being asked.
    asks_at: Option<Instant>,
    asking: bool,
}

/// What an exporter says of itself.
struct Series {
    counters: [(SeriesId, Told); 5],
    latency: SeriesId,
    failing: SeriesId,
    buffered: SeriesId,
}

/// How much of a count is recorded.
#[derive(Default)]
struct Told(u64);

impl Told {
    /// What came since the last time.
    fn more(&mut self, count: u64) -> Amount {
        let before = std::mem::replace(&mut self.0, count);
        whole(count.saturating_sub(before))
    }
}

fn declare(node: &mut Node, name: &str, kind: Kind, unit: Unit) -> Option<SeriesId> {
    node.declare(Key::new(name, &[], kind, unit).ok()?).ok()
}

impl Series {
    fn new(node: &mut Node, name: &str) -> Option<Self> {
        let mut one =
            |what: &str, kind, unit| declare(node, &format!("stats-agg.export.{name}.{what}"), kind, unit);
        let mut counter = |what| Some((one(what, Kind::Counter, Unit::None)?, Told::default()));
        let counters = [
            counter("sent")?,
            counter("retried")?,
            counter("dropped")?,
            counter("clashes")?,
            counter("refused")?,
        ];
        let latency = one("latency_s", Kind::Timer, Unit::Nanoseconds)?;
        let failing = one("failing_s", Kind::Gauge, Unit::Nanoseconds)?;
        let buffered = one("buffered_bytes", Kind::Gauge, Unit::Bytes)?;
        Some(Series { counters, latency, failing, buffered })
    }

    fn record(&mut self, node: &mut Node, counts: &Counts) {
        let Counts { sent, retried, dropped, clashes, refused, buffered_bytes, .. } = counts;
        let present: [&AtomicU64; 5] = [sent, retried, dropped, clashes, refused];
        for ((id, told), count) in self.counters.iter_mut().zip(present) {
            node.add(*id, told.more(count.load(Relaxed)));
        }
        counts.take_latency().iter().for_each(|samples| node.observe(self.latency, samples));
        let failing = counts.failing_for().unwrap_or_default();
        node.set(self.failing, Some(Amount::whole(failing.as_nanos() as i128)));
        node.set(self.buffered, Some(whole(buffered_bytes.load(Relaxed))));
    }

    fn withdraw(&self, node: &mut Node) {
        [self.failing, self.buffered].into_iter().for_each(|id| node.set(id, None));
    }
}

impl Exports {
    /// For an answer to the owner: what exporters there are, and how they do. Null: there are none.
    pub(crate) fn describe(&self) -> Value {
        let set =
            self.sinks.iter().filter_map(|(name, sink)| Some((name, sink.setting.as_ref()?, &sink.counts)));
        let said = set.map(|(name, setting, counts)| {
            let optional = |text: String| if text.is_empty() { Value::Null } else { text.into() };
            json!({
                "name": name,
                "set": setting.to_string(),
                "listening": optional(counts.bound()),
                "failing_s": counts.failing_for().map(|time| time.as_secs_f64()),
                "last_error": optional(counts.last_error()),
            })
        });
        let said: Vec<Value> = said.collect();
        if said.is_empty() { Value::Null } else { said.into() }
    }

    fn record(&mut self, scope: &Scope<StatsAgg>, node: &mut Node) {
        // Nothing is counted any more when they are recorded for the last time.
        let over = |sink: &Sink| sink.setting.is_none() && Arc::strong_count(&sink.counts) == 1;
        let over: Vec<String> =
            self.sinks.iter().filter(|(_, sink)| over(sink)).map(|(name, _)| name.clone()).collect();
        for (name, sink) in &mut self.sinks {
            if sink.setting.is_none() && sink.series.is_none() {
                continue;
            }
            if sink.series.is_none() {
                sink.series = Series::new(node, name);
            }
            if let Some(series) = &mut sink.series {
                series.record(node, &sink.counts);
                if sink.setting.is_none() {
                    series.withdraw(node);
                }
            }
            sink.log(scope, name);
        }
        self.sinks.retain(|name, _| !over.contains(name));
        let Some(exporter) = &self.exporter else { return };
        if exporter.failures() > self.failures.0 {
            scope.log(Level::Err, "export: the thread failed, and began anew without what waited to be sent");
        }
        let counts = [
            ("stats-agg.exports_missed", exporter.missed(), &mut self.missed),
            ("stats-agg.export_failures", exporter.failures(), &mut self.failures),
        ];
        for (name, count, told) in counts {
            if let Some(id) = declare(node, name, Kind::Counter, Unit::None) {
                node.add(id, told.more(count));
            }
        }
    }
}

impl Sink {
    /// Says when it begins to fail, and when it is well again.
    fn log(&mut self, scope: &Scope<StatsAgg>, name: &str) {
        let failing = self.setting.is_some() && self.counts.failing_for().is_some();
        if failing == self.failing || (failing && self.logged.is_some_and(|at| at.elapsed() < LOGGED)) {
            return;
        }
        self.failing = failing;
        if failing {
            self.logged = Some(Instant::now());
            scope.log(Level::Notice, &format!("export {name}: {}", self.counts.last_error()));
        } else if self.setting.is_some() {
            scope.log(Level::Info, &format!("export {name}: all is well again"));
        }
    }
}

/// Where a Unix socket without a path is. Brokers of a test instance share a rundir, hence the rank.
fn default_path(scope: &Scope<StatsAgg>) -> PathBuf {
    let rundir = scope.attribute("rundir").unwrap_or_default();
    PathBuf::from(rundir).join(format!("{}.{}.metrics", scope.name(), scope.rank().unwrap_or(0)))
}

impl StatsAgg {
    /// Exporters as they are set, at rank 0.
    pub(crate) fn configure_exports(&mut self, scope: &Scope<Self>, config: &Config) {
        if !self.node.is_root() {
            return;
        }
        let exports = &mut self.exports;
        if exports.exporter.is_none() {
            if config.exports.is_empty() {
                return;
            }
            match Exporter::start() {
                Ok(exporter) => exports.exporter = Some(exporter),
                Err(error) => {
                    return scope
                        .log(Level::Err, &format!("export: no thread, nothing is exported: {error}"));
                }
            }
        }
        let before = exports.sinks.iter_mut().map(|(name, sink)| (name.clone(), sink.setting.take()));
        let before: BTreeMap<String, Option<Setting>> = before.collect();
        let mut wanted = Vec::new();
        for setting in &config.exports {
            let sink = exports.sinks.entry(setting.name.clone()).or_insert_with(|| Sink {
                setting: None,
                counts: Arc::default(),
                series: None,
                logged: None,
                failing: false,
                asks_at: None,
                asking: false,
            });
            if before.get(&setting.name).is_some_and(|before| before.as_ref() != Some(setting)) {
                sink.counts.forget_failure();
            }
            sink.asks_at = setting.by_rank.then(Instant::now);
            sink.setting = Some(setting.clone());
            wanted.push(Wanted { setting: setting.clone(), counts: sink.counts.clone() });
        }
        let merged = config.exports.iter().filter(|setting| !setting.by_rank);
        exports.every = merged.filter_map(Setting::wants_every).min();
        let plan = Plan { wanted, private_jobs: config.private_jobs, default_path: default_path(scope) };
        if let Some(exporter) = &mut exports.exporter {
            exporter.plan(plan);
        }
        self.gather_whole();
    }

    /// The end of a period.
    pub(crate) fn export(&mut self, scope: &Scope<Self>) {
        if self.exports.exporter.is_none() {
            return;
        }
        let (now, half) = (Instant::now(), Duration::from_nanos(self.node.period_ns() / 2));
        let due =
            |every: Duration| self.exports.gathered.is_none_or(|at| now.duration_since(at) + half >= every);
        if self.exports.gathering.is_none() && self.exports.every.is_some_and(due) {
            self.exports.gathered = Some(now);
            self.gather_on(scope, Gathering::Due);
        }
        self.ask_ranks(scope, now);
    }

    /// What exporters say of themselves.
    pub(crate) fn record_exports(&mut self, scope: &Scope<Self>) {
        self.exports.record(scope, &mut self.node);
    }

    fn begin_snapshot(&self) -> (Raw, Box<Walk>) {
        let mut frame = self.node.frame(self.now());
        frame["instance"] = self.instance.clone();
        let raw = Raw::with_capacity(frame, self.exports.series + STEP);
        (raw, Box::new(Walk::new(&self.node, Query::default())))
    }

    /// A slice of work on a snapshot.
    fn gather(&mut self, scope: &Scope<Self>) {
        let begun = Instant::now();
        let (mut raw, mut walk) = match self.exports.gathering.take() {
            None => return,
            Some(Gathering::Due) => self.begin_snapshot(),
            Some(Gathering::Begun(raw, walk)) => (raw, walk),
        };
        loop {
            match walk.go_on(&self.node, STEP, |reading| raw.push(reading)) {
                Walked::Whole => return self.hand_over(raw),
                Walked::Anew => raw.clear(),
                Walked::Partly => {}
            }
            if begun.elapsed() > SLICE {
                break;
            }
        }
        self.gather_on(scope, Gathering::Begun(raw, walk));
    }

    /// Goes on in the next turn.
    fn gather_on(&mut self, scope: &Scope<Self>, gathering: Gathering) {
        self.exports.gathering = Some(gathering);
        let timer = match self.exports.slicer.take() {
            // The reactor turns once before a timer of no time at all fires.
            Some(timer) => {
                timer.reset_timer(Duration::ZERO, Duration::ZERO);
                Ok(timer)
            }
            None => scope.timer(Duration::ZERO, Duration::ZERO, |agg: &mut Self, scope| {
                agg.on_own_account(|agg| agg.gather(scope));
            }),
        };
        match timer {
            Ok(timer) => self.exports.slicer = Some(timer),
            Err(error) => {
                self.exports.gathering = None;
                scope.log(Level::Err, &format!("export: no timer, a snapshot is missed: {error}"));
            }
        }
    }

    /// At once: at the beginning, when an exporter must know what there was before it, and at the end.
    fn whole_snapshot(&self) -> Raw {
        let (mut raw, mut walk) = self.begin_snapshot();
        while walk.go_on(&self.node, usize::MAX, |reading| raw.push(reading)) != Walked::Whole {
            raw.clear();
        }
        raw
    }

    fn gather_whole(&mut self) {
        self.exports.gathering = None;
        self.exports.gathered = Some(Instant::now());
        let raw = self.whole_snapshot();
        self.hand_over(raw);
    }

    fn hand_over(&mut self, raw: Raw) {
        self.exports.series = raw.len();
        if let Some(exporter) = &mut self.exports.exporter {
            exporter.offer(raw);
        }
    }

    /// Asks ranks for their own numbers, where an exporter tells by rank.
    fn ask_ranks(&mut self, scope: &Scope<Self>, now: Instant) {
        let mut questions = Vec::new();
        for (name, sink) in &mut self.exports.sinks {
            let (Some(setting), Some(at)) = (&sink.setting, sink.asks_at) else { continue };
            if sink.asking || at > now {
                continue;
            }
            sink.asks_at = Some(now + setting.period.unwrap_or_default());
            sink.asking = true;
            questions.push((name.clone(), setting.by_rank_question()));
        }
        for (name, payload) in questions {
            self.ask_for_export(scope, name, payload);
        }
    }

    /// The ranks' answer, or why there is none.
    pub(crate) fn ranks_answered(&mut self, name: &str, answer: Result<String, String>) {
        if let Some(sink) = self.exports.sinks.get_mut(name) {
            sink.asking = false;
        }
        if let (Ok(answer), Some(exporter)) = (answer, &mut self.exports.exporter) {
            exporter.offer_by_rank(name, answer);
        }
    }

    /// The end: what there is now is the last that is sent.
    pub(crate) fn end_exports(&mut self, scope: &Scope<Self>) {
        let Some(exporter) = self.exports.exporter.take() else { return };
        let last = (!scope.exhausted()).then(|| self.whole_snapshot());
        if !exporter.end(last, END) {
            let text =
                "export: a file system holds the thread, which cannot be ended; it ends when that comes back";
            scope.log(Level::Err, text);
        }
        for (name, sink) in &self.exports.sinks {
            let failing = sink.counts.failing_for().filter(|failing| failing.as_secs() > 0);
            if let Some(failing) = failing.filter(|_| sink.setting.is_some()) {
                let (error, seconds) = (sink.counts.last_error(), failing.as_secs());
                let text = format!("export {name}: has been failing for {seconds}s at the end: {error}");
                scope.log(Level::Notice, &text);
            }
        }
    }
}
