//! What is kept for a handle: the metrics that were asked for by name.

use crate::{RawHandle, set_errno};
use flux::{Error, Handle};
use flux_metrics::{Counter, Gauge, Histogram, Metrics, SERIES_MAX, Set, Timer};
use rustc_hash::FxBuildHasher;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::CStr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How many states have ended, on any thread: what a thread remembers of a handle holds while this stays.
static ENDED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The handle that this thread used last, its state, and [`ENDED`] at that time.
    static LAST: Cell<(usize, *const State, u64)> = const { Cell::new((0, std::ptr::null(), 0)) };
}

/// What belongs to one handle.
pub(crate) struct State {
    metrics: Metrics,
    /// Prefixes (with their dots) that have aggregators of their own.
    routes: RefCell<Vec<(String, Metrics)>>,
    pub(crate) counters: Names<Counter>,
    pub(crate) gauges: Names<Gauge>,
    pub(crate) timers: Names<Timer>,
    pub(crate) histograms: Names<Histogram>,
    pub(crate) sets: Names<Set>,
}

impl Drop for State {
    fn drop(&mut self) {
        ENDED.fetch_add(1, Ordering::Release);
    }
}

/// What makes an instrument of a name.
type Find<T> = fn(&Metrics, &str) -> Result<T, Error>;

/// Instruments by name, as C spells it.
pub(crate) struct Names<T> {
    known: RefCell<HashMap<Box<CStr>, T, FxBuildHasher>>,
    find: Find<T>,
}

impl<T: Clone> Names<T> {
    fn new(find: Find<T>) -> Self {
        Names { known: RefCell::default(), find }
    }

    /// The instrument, found anew.
    pub(crate) fn get(&self, state: &State, name: &CStr) -> Result<T, Error> {
        let text = name.to_str().map_err(|_| Error::invalid("a name is not UTF-8"))?;
        state.find(text, self.find)
    }

    /// Gives `body` the instrument.
    #[inline]
    pub(crate) fn with(&self, state: &State, name: &CStr, body: impl FnOnce(&T)) -> Result<(), Error> {
        if let Some(found) = self.known.borrow().get(name) {
            body(found);
            return Ok(());
        }
        let found = self.get(state, name)?;
        body(&found);
        let mut known = self.known.borrow_mut();
        // One series may be spelled in many ways: its tags in any order.
        if known.len() < 2 * SERIES_MAX {
            known.insert(name.into(), found);
        }
        Ok(())
    }
}

impl State {
    fn new(metrics: Metrics) -> Self {
        State {
            metrics,
            routes: RefCell::default(),
            counters: Names::new(Metrics::counter),
            gauges: Names::new(Metrics::gauge),
            timers: Names::new(Metrics::timer),
            histograms: Names::new(Metrics::histogram),
            sets: Names::new(Metrics::set),
        }
    }

    /// `NAME` or `NAME;KEY=VALUE;…`, in the aggregator of the longest prefix that has one.
    fn find<T>(&self, name: &str, find: Find<T>) -> Result<T, Error> {
        let (name, tags) = name.split_once(';').map_or((name, None), |(name, tags)| (name, Some(tags)));
        let routes = self.routes.borrow();
        let route = routes.iter().filter(|(prefix, _)| name.starts_with(prefix.as_str()));
        let (metrics, name) = match route.max_by_key(|(prefix, _)| prefix.len()) {
            Some((prefix, metrics)) => (metrics, &name[prefix.len()..]),
            None => (&self.metrics, name),
        };
        let Some(tags) = tags else { return find(metrics, name) };
        let pair = |tag: &'_ str| tag.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        let pairs: Option<Vec<(String, String)>> = tags.split(';').map(pair).collect();
        let bad = || Error::invalid(format!("tags {tags:?}: expected KEY=VALUE;KEY=VALUE"));
        let pairs = pairs.ok_or_else(bad)?;
        let pairs: Vec<(&str, &str)> =
            pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        find(&metrics.tagged(&pairs)?, name)
    }

    pub(crate) fn route(&self, prefix: &CStr, period: Duration) -> Result<(), Error> {
        let prefix = prefix.to_str().map_err(|_| Error::invalid("a prefix is not UTF-8"))?;
        let dotted = format!("{prefix}.");
        let mut routes = self.routes.borrow_mut();
        if !routes.iter().any(|(present, _)| *present == dotted) {
            routes.push((dotted, self.metrics.aggregator(prefix, period)?));
        }
        Ok(())
    }

    pub(crate) fn instrument(&self) -> Result<(), Error> {
        self.metrics.instrument()
    }

    /// All aggregators, whatever becomes of the first.
    pub(crate) fn flush(&self, timeout: Duration) -> Result<(), Error> {
        let routes = self.routes.borrow();
        let others = routes.iter().map(|(_, metrics)| metrics.flush(timeout));
        others.fold(self.metrics.flush(timeout), Result::and)
    }
}

/// Gives `body` the state of a handle, which is made with the first call.
///
/// # Safety
/// `h` is null or a live handle that no other thread uses meanwhile.
#[inline]
pub(crate) unsafe fn with_state<R>(
    h: RawHandle,
    body: impl FnOnce(&State) -> Result<R, Error>,
) -> Result<R, Error> {
    let (last, state, ended) = LAST.get();
    if last == h as usize && last != 0 && ended == ENDED.load(Ordering::Acquire) {
        // SAFETY: remembered of this very handle, whose state has not ended: no state has since then. The handle is
        // alive and owns it, and `body` does not close it.
        return body(unsafe { &*state });
    }
    // SAFETY: as the caller says.
    body(&*unsafe { remember(h) }?)
}

/// # Safety
/// As [`with_state`].
#[cold]
unsafe fn remember(h: RawHandle) -> Result<Rc<State>, Error> {
    // SAFETY: as the caller says.
    let handle = unsafe { Handle::from_raw(h) }?;
    // Before the look at the handle: what ends from here on makes what is remembered void.
    let ended = ENDED.load(Ordering::Acquire);
    let state = match handle.owned::<State>() {
        Some(state) => state,
        None => {
            let state = Rc::new(State::new(Metrics::of(&handle)?));
            handle.own(state.clone())?;
            state
        }
    };
    LAST.set((h as usize, Rc::as_ptr(&state), ended));
    Ok(state)
}

/// Ends what belongs to a handle.
///
/// # Safety
/// As [`with_state`].
pub(crate) unsafe fn close(h: RawHandle, timeout: Duration) -> Result<(), Error> {
    // SAFETY: as the caller says.
    let handle = unsafe { Handle::from_raw(h) }?;
    let Some(state) = handle.owned::<State>() else { return Ok(()) };
    let closed = state.metrics.close(timeout);
    drop(state);
    handle.disown::<State>();
    closed
}

/// Drops what C gives back, and leaves `errno` as it was.
///
/// # Safety
/// `item` is null or came from `Box::into_raw`, and is not used again.
pub(crate) unsafe fn destroy<T>(item: *mut T) {
    if item.is_null() {
        return;
    }
    let errnum = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    // SAFETY: see above.
    let item = unsafe { Box::from_raw(item) };
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(item)));
    set_errno(errnum);
}
