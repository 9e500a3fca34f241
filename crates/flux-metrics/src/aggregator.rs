//! The series of one handle, and when they are looked at.

use crate::SERIES_MAX;
use crate::cells::Slot;
use crate::sending::{Mode, Sender};
use flux::{Error, Handle, Reply, Result};
use indexmap::IndexMap;
use stats_core::{Key, Metric, Pushed};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

/// Calls between two looks at the clock, at most, while no timer of a reactor fires: a look costs ten calls.
const STRIDE_MAX: u32 = 32;
/// Calls that nobody looks at the clock for after a timer has fired: the reactor runs, and the timer will fire again.
const STRIDE_OF_REACTOR: u32 = 4096;
/// Calls come fast if this many of them fit into a period.
const FAST: u32 = 256;
/// How long a call may wait for the answer to a push, where no reactor does.
const CALL_WAIT: Duration = Duration::from_millis(100);

/// An aggregator: what is counted, and what sends it.
pub(crate) struct Aggregator {
    me: Weak<Aggregator>,
    /// Calls until the next look at the clock.
    credit: Cell<u32>,
    stride: Cell<u32>,
    looked: Cell<Instant>,
    series: RefCell<IndexMap<Key, Slot>>,
    /// Values that were dropped since the last push.
    dropped: Cell<u64>,
    sender: RefCell<Sender>,
}

impl Drop for Aggregator {
    fn drop(&mut self) {
        // Of no handle: nobody else says that it has ended.
        self.abandon();
    }
}

impl Aggregator {
    /// One for `handle`, that sends every `period`; without a period, as often as the service says; without a handle,
    /// never.
    pub(crate) fn new(handle: Option<&Handle>, period: Option<Duration>) -> Result<Rc<Self>> {
        let sender = Sender::new(handle, period)?;
        Ok(Rc::new_cyclic(|me| Aggregator {
            me: me.clone(),
            credit: Cell::new(0),
            stride: Cell::new(0),
            looked: Cell::new(Instant::now()),
            series: RefCell::default(),
            dropped: Cell::new(0),
            sender: RefCell::new(sender),
        }))
    }

    /// The place where a series is kept; `make` makes it when it is new.
    pub(crate) fn slot(&self, key: Key, make: impl FnOnce() -> Slot) -> Result<Slot> {
        let mut series = self.series.borrow_mut();
        if let Some(slot) = series.get(&key) {
            return Ok(slot.clone());
        }
        if series.len() >= SERIES_MAX {
            let text = format!("{}: a handle keeps {SERIES_MAX} series, and has them", key.name());
            return Err(Error::new(libc::ENOSPC, text));
        }
        let slot = make();
        series.insert(key, slot.clone());
        Ok(slot)
    }

    /// A value cannot be kept.
    #[cold]
    pub(crate) fn drop_value(&self) {
        self.dropped.set(self.dropped.get().saturating_add(1));
    }

    /// Something was counted.
    #[inline]
    pub(crate) fn tick(&self) {
        match self.credit.get().checked_sub(1) {
            Some(left) => self.credit.set(left),
            None => self.look(),
        }
    }

    /// Sends if it is time, and nobody else does.
    #[cold]
    #[inline(never)]
    fn look(&self) {
        // Busy: called from inside a push.
        let Ok(mut sender) = self.sender.try_borrow_mut() else { return };
        let now = Instant::now();
        let fast = now.saturating_duration_since(self.looked.replace(now)) < sender.period() / FAST;
        let stride = if fast { (self.stride.get() * 2).clamp(1, STRIDE_MAX) } else { 0 };
        self.stride.set(stride);
        self.credit.set(stride);
        sender.watch_time(&self.me);
        if sender.is_overdue(now) {
            // Frames of ours are above C's in here.
            // What is not taken is kept, and logged.
            let _ = flux::uncancelled(|| sender.advance(self, Mode::Waiting(now + CALL_WAIT)));
        }
    }

    /// The timer has fired.
    pub(crate) fn on_timer(&self) {
        self.credit.set(STRIDE_OF_REACTOR);
        if let Ok(mut sender) = self.sender.try_borrow_mut()
            && sender.is_due(Instant::now())
        {
            // What is not taken is kept, and logged.
            let _ = sender.advance(self, Mode::Reactor);
        }
    }

    /// A push of the reactor's has its answer.
    pub(crate) fn on_reply(&self, reply: Result<Reply>) {
        if let Ok(mut sender) = self.sender.try_borrow_mut()
            && sender.on_reply(reply)
        {
            let _ = sender.advance(self, Mode::Reactor);
        }
    }

    /// Sends everything and waits until it is acknowledged, at most `timeout`.
    pub(crate) fn flush(&self, timeout: Duration) -> Result<()> {
        let mut sender =
            self.sender.try_borrow_mut().map_err(|_| Error::new(libc::EBUSY, "a push is under way"))?;
        flux::uncancelled(|| sender.advance(self, Mode::Waiting(Instant::now() + timeout)))
    }

    /// As `flush`, and then nothing is sent any more.
    pub(crate) fn close(&self, timeout: Duration) -> Result<()> {
        let flushed = self.flush(timeout);
        if let Ok(mut sender) = self.sender.try_borrow_mut() {
            sender.detach(self, true);
        }
        flushed
    }

    /// The handle is being destroyed: lets go of everything that belongs to it. Nothing can be sent any more.
    pub(crate) fn abandon(&self) {
        if let Ok(mut sender) = self.sender.try_borrow_mut() {
            sender.detach(self, false);
        }
    }

    /// Takes what was gained, as metrics of a push; `each` sees it first.
    pub(crate) fn gather(
        &self,
        now: Instant,
        stale: Option<Instant>,
        mut each: impl FnMut(&Key, &Pushed),
    ) -> (Vec<serde_json::Value>, u64) {
        let mut metrics = Vec::new();
        for (key, slot) in &*self.series.borrow() {
            if let Some(value) = slot.take(now, stale) {
                each(key, &value);
                metrics.push(Metric { key: key.clone(), value, ttl: None }.to_json());
            }
        }
        (metrics, self.dropped.take())
    }

    /// The aggregator, for what must not keep it.
    pub(crate) fn weak(&self) -> Weak<Self> {
        self.me.clone()
    }

    /// Gives the handle to `body`. Not from inside a push.
    pub(crate) fn with_handle<R>(&self, body: impl FnOnce(&Handle) -> R) -> Result<R> {
        let sender = self.sender.try_borrow().map_err(|_| Error::new(libc::EBUSY, "a push is under way"))?;
        sender.with_handle(body)
    }
}
