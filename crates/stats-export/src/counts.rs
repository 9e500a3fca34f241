//! What an exporter says of itself: written by its thread, read by the module once a period.

use stats_core::Samples;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The longest text of an error that is kept.
const ERROR_MAX: usize = 300;

/// One exporter's counts, since it was first set.
#[derive(Debug)]
pub struct Counts {
    began: Instant,
    /// Series that were taken: by a server that scraped them, by one that answered that it has them, or by the kernel
    /// where nobody answers.
    pub sent: AtomicU64,
    /// Series that were sent again, since it was not certain that they had arrived.
    pub retried: AtomicU64,
    /// Series that were given up: refused, or beyond what is kept for one that does not take them.
    pub dropped: AtomicU64,
    /// Series that could not be written, since others have their names in this format.
    pub clashes: AtomicU64,
    /// Requests that were refused: malformed, without the token, too slow or too many.
    pub refused: AtomicU64,
    /// Bytes that wait.
    pub buffered_bytes: AtomicU64,
    /// Since when nothing was taken that should be, in milliseconds after `began`, and one; zero: all is well.
    failing: AtomicU64,
    latency: Mutex<Samples>,
    /// The last error, and where it listens.
    texts: Mutex<Texts>,
}

#[derive(Debug, Default)]
struct Texts {
    error: String,
    bound: String,
}

impl Default for Counts {
    fn default() -> Self {
        let zero = AtomicU64::default;
        Counts {
            began: Instant::now(),
            sent: zero(),
            retried: zero(),
            dropped: zero(),
            clashes: zero(),
            refused: zero(),
            buffered_bytes: zero(),
            failing: zero(),
            latency: Mutex::default(),
            texts: Mutex::default(),
        }
    }
}

impl Counts {
    pub(crate) fn add(count: &AtomicU64, more: u64) {
        count.fetch_add(more, Relaxed);
    }

    fn texts(&self) -> MutexGuard<'_, Texts> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something went wrong.
    pub(crate) fn fail(&self, error: &str) {
        // The reason first: who sees that it fails wants to know why.
        self.texts().error = error.chars().take(ERROR_MAX).collect();
        let since = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        let _ = self.failing.compare_exchange(0, since, Release, Relaxed);
    }

    /// All is well.
    pub(crate) fn succeed(&self) {
        self.failing.store(0, Relaxed);
    }

    /// It is another now: what went wrong with the one before is nothing of its own.
    pub fn forget_failure(&self) {
        self.succeed();
        self.texts().error.clear();
    }

    pub(crate) fn took(&self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.latency.lock().unwrap_or_else(PoisonError::into_inner).add(ns, 1);
    }

    pub(crate) fn set_bound(&self, bound: &str) {
        bound.clone_into(&mut self.texts().bound);
    }

    /// For how long nothing was taken that should be.
    pub fn failing_for(&self) -> Option<Duration> {
        let since = self.failing.load(Acquire).checked_sub(1)?;
        Some(self.began.elapsed().saturating_sub(Duration::from_millis(since)))
    }

    /// How long each took since the last call, from when it could be sent (or was asked for) until it was taken. `None`:
    /// it is being written at this moment, and nobody waits.
    pub fn take_latency(&self) -> Option<Samples> {
        let mut latency = match self.latency.try_lock() {
            Ok(latency) => latency,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(std::mem::take(&mut *latency))
    }

    /// What went wrong last; empty: nothing ever did.
    pub fn last_error(&self) -> String {
        self.texts().error.clone()
    }

    /// Where it listens; empty: nowhere.
    pub fn bound(&self) -> String {
        self.texts().bound.clone()
    }
}
