//! The way in: the aggregator of a handle, with a prefix and tags.

use crate::aggregator::Aggregator;
use crate::cells::Slot;
use crate::instruments::{Counter, Gauge, Histogram, Set, Timer};
use flux::{Error, Handle, Result, Watcher};
use rustc_hash::FxBuildHasher;
use stats_core::{Key, Kind, Refused, Unit, is_reserved};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

/// How long a handle that closes waits for what it has to be acknowledged.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

type Names<T> = RefCell<HashMap<Box<str>, T, FxBuildHasher>>;

/// The metrics of a handle, perhaps with a prefix and tags. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    view: Rc<View>,
}

/// What a [`Metrics`] is, with what was asked of it by name.
struct View {
    aggregator: Rc<Aggregator>,
    prefix: String,
    tags: Vec<(String, String)>,
    counters: Names<Counter>,
    gauges: Names<Gauge>,
    timers: Names<Timer>,
    histograms: Names<Histogram>,
    sets: Names<Set>,
}

/// What the handle has: its metrics, and further aggregators by prefix and period.
struct OfHandle {
    metrics: Metrics,
    others: RefCell<Vec<(String, Duration, Metrics)>>,
    closed: Cell<bool>,
    /// What times the handle's reactor.
    watchers: RefCell<Option<[Watcher; 2]>>,
}

impl OfHandle {
    fn aggregators(&self) -> Vec<Rc<Aggregator>> {
        let others = self.others.borrow();
        let all = others.iter().map(|(_, _, metrics)| metrics).chain([&self.metrics]);
        all.map(|metrics| metrics.view.aggregator.clone()).collect()
    }

    /// All of them, whatever becomes of the first.
    fn each(&self, what: impl Fn(&Aggregator) -> Result<()>) -> Result<()> {
        self.aggregators().iter().map(|aggregator| what(aggregator)).fold(Ok(()), Result::and)
    }

    fn close(&self, timeout: Duration) -> Result<()> {
        if self.closed.replace(true) {
            return Ok(());
        }
        drop(self.watchers.take());
        self.each(|aggregator| aggregator.close(timeout))
    }
}

impl Drop for OfHandle {
    fn drop(&mut self) {
        self.aggregators().iter().for_each(|aggregator| aggregator.abandon());
    }
}

impl Metrics {
    /// Those of `handle`: the same ones with every call, until they are closed. They end with the handle.
    pub fn of(handle: &Handle) -> Result<Self> {
        if let Some(present) = handle.owned::<OfHandle>()
            && !present.closed.get()
        {
            return Ok(present.metrics.clone());
        }
        let metrics = Metrics::view(Aggregator::new(Some(handle), None)?, String::new(), Vec::new());
        let of = Rc::new(OfHandle {
            metrics: metrics.clone(),
            others: RefCell::default(),
            closed: Cell::new(false),
            watchers: RefCell::default(),
        });
        let last: Weak<OfHandle> = Rc::downgrade(&of);
        handle.own(of)?;
        // What goes wrong then is logged by who sends.
        handle.before_close(move || {
            if let Some(of) = last.upgrade() {
                let _ = of.close(CLOSE_WAIT);
            }
        })?;
        Ok(metrics)
    }

    /// Times the handle's reactor, which is made if there is none: `reactor.work_s`, the time between a wait and the next
    /// one, and `reactor.sleep_s`, that of each wait, both timers, with the tag `name`: the program's name. A module's
    /// reactor is timed by `stats-agg` itself, more cheaply. A second call does nothing.
    pub fn instrument(&self) -> Result<()> {
        let module = self.view.aggregator.with_handle(Handle::module_name)?;
        let metrics = self.tagged(&[("name", &module.unwrap_or_else(program_name))])?.prefixed("reactor")?;
        let (work, sleep) = (metrics.timer("work_s")?, metrics.timer("sleep_s")?);
        self.view.aggregator.with_handle(|handle| {
            let of = handle.owned::<OfHandle>().filter(|of| !of.closed.get()).ok_or_else(closed)?;
            let mut watchers = of.watchers.borrow_mut();
            if watchers.is_none() {
                let since = Rc::new(Cell::new(Instant::now()));
                let record = move |timer: &Timer| {
                    let now = Instant::now();
                    timer.record(now - since.replace(now));
                };
                let (before, after) = (record.clone(), record);
                let watching = handle.around_waits(move || before(&work), move || after(&sleep));
                *watchers = Some(watching?);
            }
            Ok(())
        })?
    }

    /// Those of no handle: they are counted, and sent nowhere (only `FLUX_METRICS_DUMP` prints them when they are
    /// dropped). For programs that may run without an instance, and for tests of what counts.
    pub fn detached() -> Result<Self> {
        Ok(Metrics::view(Aggregator::new(None, None)?, String::new(), Vec::new()))
    }

    fn view(aggregator: Rc<Aggregator>, prefix: String, tags: Vec<(String, String)>) -> Self {
        let view = View {
            aggregator,
            prefix,
            tags,
            counters: Names::default(),
            gauges: Names::default(),
            timers: Names::default(),
            histograms: Names::default(),
            sets: Names::default(),
        };
        Metrics { view: Rc::new(view) }
    }

    /// The same, with `prefix` and a dot before every name.
    pub fn prefixed(&self, prefix: &str) -> Result<Self> {
        let prefix = self.full_name(prefix);
        self.key_of(&prefix, Kind::Counter, Unit::None)?;
        Ok(Metrics::view(self.view.aggregator.clone(), prefix, self.view.tags.clone()))
    }

    /// The same, with these tags for every series, beside those that it has; of two with one key the later holds.
    pub fn tagged(&self, tags: &[(&str, &str)]) -> Result<Self> {
        let mut all = self.view.tags.clone();
        all.extend(tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        let tagged = Metrics::view(self.view.aggregator.clone(), self.view.prefix.clone(), all);
        tagged.key_of("any", Kind::Counter, Unit::None)?;
        Ok(tagged)
    }

    /// Another aggregator of the same handle, with `prefix` and a dot before every name, that pushes every `period`
    /// (0.1 s to 1 h) whatever the service says: for a part of a program that shares the handle with others. The same
    /// one for the same prefix and period.
    pub fn aggregator(&self, prefix: &str, period: Duration) -> Result<Self> {
        let prefix = self.full_name(prefix);
        self.key_of(&prefix, Kind::Counter, Unit::None)?;
        self.view.aggregator.with_handle(|handle| {
            let of = handle.owned::<OfHandle>().filter(|of| !of.closed.get()).ok_or_else(closed)?;
            let mut others = of.others.borrow_mut();
            let same = others.iter().find(|(of, every, _)| *of == prefix && *every == period);
            if let Some((_, _, metrics)) = same {
                return Ok(metrics.clone());
            }
            let aggregator = Aggregator::new(Some(handle), Some(period))?;
            let metrics = Metrics::view(aggregator, prefix.clone(), self.view.tags.clone());
            others.push((prefix, period, metrics.clone()));
            Ok(metrics)
        })?
    }

    fn full_name(&self, name: &str) -> String {
        if self.view.prefix.is_empty() { name.to_owned() } else { format!("{}.{name}", self.view.prefix) }
    }

    fn key_of(&self, full_name: &str, kind: Kind, unit: Unit) -> Result<Key> {
        if is_reserved(full_name) {
            let text = format!("{full_name}: names of this prefix are the service's own");
            return Err(Error::new(libc::EPERM, text));
        }
        let tags: Vec<(&str, &str)> =
            self.view.tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        Key::new(full_name, &tags, kind, unit).map_err(|refused: Refused| Error::invalid(refused.to_string()))
    }

    fn slot(&self, name: &str, kind: Kind, unit: Unit, make: impl FnOnce() -> Slot) -> Result<Slot> {
        let key = self.key_of(&self.full_name(name), kind, unit)?;
        self.view.aggregator.slot(key, make)
    }

    /// A counter. `EINVAL`: the name is malformed; `EPERM`: it is the service's own; `ENOSPC`: there are
    /// [`SERIES_MAX`](crate::SERIES_MAX) series already. So are all that follow.
    pub fn counter(&self, name: &str) -> Result<Counter> {
        match self.slot(name, Kind::Counter, Unit::None, || Slot::Counter(Rc::default()))? {
            Slot::Counter(cell) => Ok(Counter { cell, aggregator: self.view.aggregator.clone() }),
            _ => Err(mismatch(name)),
        }
    }

    /// A gauge.
    pub fn gauge(&self, name: &str) -> Result<Gauge> {
        match self.slot(name, Kind::Gauge, Unit::None, || Slot::Gauge(Rc::default()))? {
            Slot::Gauge(cell) => Ok(Gauge { cell, aggregator: self.view.aggregator.clone() }),
            _ => Err(mismatch(name)),
        }
    }

    /// A timer: durations. Its name ends in `_s` by convention, since answers are in seconds.
    pub fn timer(&self, name: &str) -> Result<Timer> {
        match self.slot(name, Kind::Timer, Unit::Nanoseconds, || Slot::Samples(Rc::default()))? {
            Slot::Samples(cell) => Ok(Timer { cell, aggregator: self.view.aggregator.clone() }),
            _ => Err(mismatch(name)),
        }
    }

    /// A histogram: numbers that are no durations, such as bytes. What a statsd client sends of that name as `h` or `d` is
    /// the same series.
    pub fn histogram(&self, name: &str) -> Result<Histogram> {
        match self.slot(name, Kind::Timer, Unit::Millionths, || Slot::Samples(Rc::default()))? {
            Slot::Samples(cell) => Ok(Histogram { cell, aggregator: self.view.aggregator.clone() }),
            _ => Err(mismatch(name)),
        }
    }

    /// A set: how many different members there are.
    pub fn set(&self, name: &str) -> Result<Set> {
        match self.slot(name, Kind::Set, Unit::None, || Slot::Set(Rc::default()))? {
            Slot::Set(cell) => Ok(Set { cell, aggregator: self.view.aggregator.clone() }),
            _ => Err(mismatch(name)),
        }
    }

    /// Adds to a counter. A name that is not allowed is dropped, and counted as such; so with all that follow.
    #[inline]
    pub fn count(&self, name: &str, n: i64) {
        self.named(&self.view.counters, name, Metrics::counter, |counter| counter.add(n));
    }

    /// Sets a gauge.
    #[inline]
    pub fn set_gauge(&self, name: &str, value: f64) {
        self.named(&self.view.gauges, name, Metrics::gauge, |gauge| gauge.set(value));
    }

    /// Changes a gauge.
    #[inline]
    pub fn add_to_gauge(&self, name: &str, by: f64) {
        self.named(&self.view.gauges, name, Metrics::gauge, |gauge| gauge.add(by));
    }

    /// Records a duration.
    #[inline]
    pub fn timing(&self, name: &str, duration: Duration) {
        self.named(&self.view.timers, name, Metrics::timer, |timer| timer.record(duration));
    }

    /// Records a number that is no duration.
    #[inline]
    pub fn sample(&self, name: &str, sample: f64) {
        self.named(&self.view.histograms, name, Metrics::histogram, |histogram| histogram.record(sample));
    }

    /// Puts a member into a set.
    #[inline]
    pub fn member(&self, name: &str, member: &str) {
        self.named(&self.view.sets, name, Metrics::set, |set| set.insert(member));
    }

    #[inline]
    fn named<T>(
        &self,
        names: &Names<T>,
        name: &str,
        find: impl FnOnce(&Self, &str) -> Result<T>,
        record: impl FnOnce(&T),
    ) {
        if let Some(found) = names.borrow().get(name) {
            return record(found);
        }
        match find(self, name) {
            Ok(found) => {
                record(&found);
                names.borrow_mut().insert(name.into(), found);
            }
            Err(_) => self.view.aggregator.drop_value(),
        }
    }

    /// Sends what this aggregator has and waits until it is acknowledged, at most `timeout`. An error says why it is
    /// not; what was not taken is kept.
    pub fn flush(&self, timeout: Duration) -> Result<()> {
        self.view.aggregator.flush(timeout)
    }

    /// Sends what all aggregators of the handle have, waits until it is acknowledged, at most `timeout` for each, and
    /// ends them: what is counted by them from then on is lost, and [`Metrics::of`] begins anew. For a handle that C
    /// closes; a [`flux::Client`] and a module do it themselves.
    pub fn close(&self, timeout: Duration) -> Result<()> {
        let of = self.view.aggregator.with_handle(|handle| handle.owned::<OfHandle>())?;
        of.ok_or_else(closed)?.close(timeout)
    }
}

/// As the kernel has it.
fn program_name() -> String {
    let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let name: String = name.trim().chars().filter(|c| !c.is_control()).collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

fn closed() -> Error {
    Error::new(libc::ESHUTDOWN, "the handle's metrics are closed")
}

/// It cannot be: kind and unit are in the key.
fn mismatch(name: &str) -> Error {
    Error::new(libc::EEXIST, format!("{name}: is of another type already"))
}
