//! The thread that listens, and how what it adds up is handed over.
//!
//! The owner of a [`Listener`] asks for a hand-over and waits a moment at most: a thread that gets no processor delays
//! numbers, never the owner. What comes late is there the next time. When the listener ends, the thread has ended, and
//! everything that it took has been handed over.

use crate::receive::{BATCH, Buffers, Receiver};
use crate::shard::{HandOver, Limits, Shard};
use crate::socket::{Address, OpenError, Socket};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// The longest that a hand-over is waited for.
const HAND_OVER_WAIT: Duration = Duration::from_millis(5);
/// Full batches of one socket before the next socket's turn.
const BATCHES: usize = 16;
/// How long a thread that has been told to stop may take what waits in its sockets, and each socket may take to close.
const DRAIN_MAX: Duration = Duration::from_millis(100);
/// Between two attempts at sockets that were taken.
const RETRY: Duration = Duration::from_secs(5);
/// After an error of the system that should not be: not at once again.
const AFTER_ERROR: Duration = Duration::from_millis(10);
/// As /proc and `ps` show it.
const THREAD_NAME: &str = "statsd";

/// Listens, on a thread of its own.
pub struct Listener {
    default_path: PathBuf,
    /// Addresses that somebody else listens at.
    taken: Vec<Address>,
    tried: Instant,
    /// Where it listens.
    bound: Vec<Address>,
    limits: Limits,
    started: Instant,
    thread: Option<Thread>,
    /// Taken over from a thread that has ended.
    rest: Vec<HandOver>,
    failures: u64,
}

struct Thread {
    shared: Arc<Shared>,
    handle: JoinHandle<Parts>,
}

/// What a thread works with, and gives back.
struct Parts {
    sockets: Vec<Socket>,
    shard: Shard,
    /// Made by the first thread.
    buffers: Option<Buffers>,
}

struct Shared {
    stop: AtomicBool,
    wanted: AtomicBool,
    failures: AtomicU64,
    wake: EventFd,
    handed: Mutex<Option<HandOver>>,
    filled: Condvar,
}

impl Shared {
    fn handed(&self) -> MutexGuard<'_, Option<HandOver>> {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // It can only fail when it is signalled 2^64 times over.
        let _ = self.wake.write(1);
    }
}

impl Listener {
    /// Listens at `addresses`. One that somebody else listens at is tried again now and then ([`Listener::taken`]); any
    /// other trouble is an error. `default_path` is that of a Unix socket without one.
    pub fn start(addresses: &[Address], default_path: PathBuf, limits: Limits) -> Result<Self, OpenError> {
        let (started, none) = (Instant::now(), Vec::new);
        let mut listener = Listener {
            default_path,
            taken: none(),
            tried: started,
            bound: none(),
            limits,
            started,
            thread: None,
            rest: Vec::new(),
            failures: 0,
        };
        listener.reconfigure(addresses, limits)?;
        Ok(listener)
    }

    /// Listens at these addresses instead; a socket that is in both stays open. On an error all is as it was.
    pub fn reconfigure(&mut self, addresses: &[Address], limits: Limits) -> Result<(), OpenError> {
        let mut parts = self.end_thread();
        let old = parts.sockets.len();
        let is_open = |address: &&Address| parts.sockets.iter().any(|socket| socket.address == **address);
        let new: Vec<Address> = addresses.iter().filter(|address| !is_open(address)).cloned().collect();
        let opened = self.open(&new, &mut parts.sockets);
        match &opened {
            Ok(taken) => {
                let (kept, closed) = std::mem::take(&mut parts.sockets)
                    .into_iter()
                    .partition(|socket| addresses.contains(&socket.address));
                parts.sockets = kept;
                self.close(closed, &mut parts);
                parts.shard.set_limits(limits);
                (self.taken, self.limits) = (taken.clone(), limits);
            }
            Err(_) => parts.sockets.truncate(old),
        }
        self.begin_thread(parts)?;
        opened.map(drop)
    }

    /// Opens what can be opened; what is taken.
    fn open(&mut self, addresses: &[Address], sockets: &mut Vec<Socket>) -> Result<Vec<Address>, OpenError> {
        self.tried = Instant::now();
        let mut taken = Vec::new();
        for address in addresses {
            match Socket::open(address, &self.default_path) {
                Ok(socket) => sockets.push(socket),
                Err(OpenError::Taken(address)) => taken.push(address),
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }

    /// Where it listens.
    pub fn bound(&self) -> &[Address] {
        &self.bound
    }

    /// Where it would listen, did nobody else.
    pub fn taken(&self) -> &[Address] {
        &self.taken
    }

    /// How often the thread failed and began anew, with the loss of what it had added up: a fault of ours.
    pub fn failures(&self) -> u64 {
        let present = self.thread.as_ref().map_or(0, |thread| thread.shared.failures.load(Ordering::Relaxed));
        self.failures + present
    }

    /// What was added up since the last time, in the order in which it must be recorded. Waits for the thread for some
    /// milliseconds at most; now and then tries what was taken.
    pub fn take(&mut self) -> Vec<HandOver> {
        if !self.taken.is_empty() && self.tried.elapsed() >= RETRY {
            self.retry();
        }
        let mut all = std::mem::take(&mut self.rest);
        if let Some(Thread { shared, .. }) = &self.thread {
            let mut handed = shared.handed();
            // What came too late the last time.
            all.extend(handed.take());
            shared.wanted.store(true, Ordering::Release);
            shared.wake();
            handed = match shared.filled.wait_timeout_while(handed, HAND_OVER_WAIT, |handed| handed.is_none())
            {
                Ok((handed, _)) => handed,
                Err(poisoned) => poisoned.into_inner().0,
            };
            all.extend(handed.take());
        }
        all
    }

    /// Tries what was taken again.
    fn retry(&mut self) {
        let (mut opened, taken) = (Vec::new(), std::mem::take(&mut self.taken));
        for address in &taken {
            match self.open(std::slice::from_ref(address), &mut opened) {
                Ok(still) => self.taken.extend(still),
                // Another trouble than before; it may pass, too.
                Err(_) => self.taken.push(address.clone()),
            }
        }
        if !opened.is_empty() {
            let mut parts = self.end_thread();
            parts.sockets.append(&mut opened);
            // Without a thread nothing is received, and the next hand-over is empty.
            let _ = self.begin_thread(parts);
        }
    }

    fn begin_thread(&mut self, parts: Parts) -> Result<(), OpenError> {
        self.bound = parts.sockets.iter().map(|socket| socket.bound.clone()).collect();
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            failures: AtomicU64::new(0),
            wake: wake.map_err(|errno| OpenError::Thread(errno.into()))?,
            handed: Mutex::new(None),
            filled: Condvar::new(),
        });
        let (theirs, started, limits) = (shared.clone(), self.started, self.limits);
        let run = move || run(parts, &theirs, started, limits);
        let handle = Builder::new().name(THREAD_NAME.to_owned()).spawn(run).map_err(OpenError::Thread)?;
        self.thread = Some(Thread { shared, handle });
        Ok(())
    }

    /// Ends the thread, and takes what it had.
    fn end_thread(&mut self) -> Parts {
        let empty = || Parts { sockets: Vec::new(), shard: Shard::new(self.limits), buffers: None };
        let Some(Thread { shared, handle }) = self.thread.take() else { return empty() };
        shared.stop.store(true, Ordering::Release);
        shared.wake();
        let ended = handle.join();
        self.failures += shared.failures.load(Ordering::Relaxed);
        self.rest.extend(shared.handed().take());
        let Ok(mut parts) = ended else { return empty() };
        self.rest.push(parts.shard.hand_over());
        parts
    }

    /// Closes sockets: what they had accepted is taken.
    fn close(&mut self, sockets: Vec<Socket>, parts: &mut Parts) {
        if sockets.is_empty() {
            return;
        }
        let Parts { shard, buffers, .. } = parts;
        // Without a thread there was nothing to be accepted.
        let (Some(buffers), mut receiver) = (buffers, Receiver::default()) else { return };
        for socket in &sockets {
            socket.accept_no_more();
            let begun = Instant::now();
            let take_all = AssertUnwindSafe(|| {
                while begun.elapsed() < DRAIN_MAX {
                    let received = receiver.receive(socket, buffers, |datagram| shard.receive(datagram));
                    let Ok(received) = received else { break };
                    shard.note(received.truncated, received.dropped);
                    if received.datagrams == 0 {
                        break;
                    }
                }
            });
            if catch_unwind(take_all).is_err() {
                self.failures += 1;
                *shard = Shard::new(self.limits);
            }
        }
        self.rest.push(shard.hand_over());
    }

    /// Ends. What was still to be handed over.
    pub fn stop(mut self) -> Vec<HandOver> {
        let mut parts = self.end_thread();
        let sockets = std::mem::take(&mut parts.sockets);
        self.close(sockets, &mut parts);
        std::mem::take(&mut self.rest)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        drop(self.end_thread());
    }
}

/// The thread: until it is told to stop, and whatever happens in it.
fn run(mut parts: Parts, shared: &Shared, started: Instant, limits: Limits) -> Parts {
    let mut receivers: Vec<Receiver> = parts.sockets.iter().map(|_| Receiver::default()).collect();
    loop {
        let Parts { sockets, shard, buffers } = &mut parts;
        let buffers = buffers.get_or_insert_default();
        let work = AssertUnwindSafe(|| work(sockets, &mut receivers, buffers, shard, shared, started));
        if catch_unwind(work).is_ok() {
            return parts;
        }
        shared.failures.fetch_add(1, Ordering::Relaxed);
        // Whatever state that one is in.
        parts.shard = Shard::new(limits);
    }
}

fn work(
    sockets: &[Socket],
    receivers: &mut [Receiver],
    buffers: &mut Buffers,
    shard: &mut Shard,
    shared: &Shared,
    started: Instant,
) {
    let sources = std::iter::once(shared.wake.as_fd()).chain(sockets.iter().map(AsFd::as_fd));
    let mut ready: Vec<PollFd<'_>> = sources.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    // What was sent before the end is taken, as far as there is time.
    let mut deadline: Option<Instant> = None;
    loop {
        let last = shared.stop.load(Ordering::Acquire);
        hand_over_if_wanted(shard, shared);
        if !last {
            match poll(&mut ready, PollTimeout::NONE) {
                Ok(_) => {}
                Err(Errno::EINTR) => continue,
                Err(_) => std::thread::sleep(AFTER_ERROR),
            }
        }
        if ready[0].any() == Some(true) {
            // Back to zero. It is there to be read.
            let _ = shared.wake.read();
        }
        shard.set_time(u32::try_from(started.elapsed().as_secs()).unwrap_or(u32::MAX));
        for ((socket, receiver), ready) in sockets.iter().zip(&mut *receivers).zip(&ready[1..]) {
            if ready.any() != Some(true) && !last {
                continue;
            }
            for _ in 0..BATCHES {
                let mut late = 0;
                let take = |datagram: &[u8]| {
                    if shared.stop.load(Ordering::Relaxed)
                        && Instant::now() > *deadline.get_or_insert_with(|| Instant::now() + DRAIN_MAX)
                    {
                        late += 1;
                        return;
                    }
                    shard.receive(datagram);
                    hand_over_if_wanted(shard, shared);
                };
                let full = match receiver.receive(socket, buffers, take) {
                    Ok(received) => {
                        shard.note(received.truncated, received.dropped + late);
                        received.datagrams == BATCH
                    }
                    Err(_) => {
                        std::thread::sleep(AFTER_ERROR);
                        false
                    }
                };
                if !full || late > 0 || (!last && shared.stop.load(Ordering::Acquire)) {
                    break;
                }
            }
        }
        if last {
            return;
        }
    }
}

fn hand_over_if_wanted(shard: &mut Shard, shared: &Shared) {
    if shared.wanted.load(Ordering::Relaxed) && shared.wanted.swap(false, Ordering::Acquire) {
        // What was asked for before and came too late is still there: whoever takes it asks again.
        let empty = shared.handed().is_none();
        if empty {
            let hand_over = shard.hand_over();
            *shared.handed() = Some(hand_over);
            shared.filled.notify_one();
        }
    }
}
