//! Reads the slots of a broker from outside: while it hangs, is stopped, or its parent link is silent.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;

use thiserror::Error;

use crate::clock;
use crate::histogram::WorkHistogram;
use crate::mapping::RemoteTable;
use crate::proc::{self, ThreadFiles, ThreadStat};
use crate::slots::{BLOCKED, Header, SLEEPING, Slot};
use crate::thread::State;

/// Why there is nothing to read.
#[derive(Debug, Error)]
pub enum PeekError {
    /// The path cannot be opened or is no slot table.
    #[error("{path}: {why}")]
    Path {
        /// What was opened.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The process has no slot table, or it belongs to somebody else.
    #[error(
        "process {0} has no slot table that this user may read: no stats-agg with probe=attach, no reactor-probe.so"
    )]
    Process(u32),
}

/// What the slots of a process say.
#[derive(Debug, Clone)]
pub struct Peek {
    /// The process.
    pub pid: u32,
    /// Its hook is active; if not, the numbers are of the time until it was detached.
    pub active: bool,
    /// Nested waits are told apart from sleep.
    pub blocked_available: bool,
    /// How long ago the process itself looked at its slots, ns; None: never.
    pub sampled_ago_ns: Option<u64>,
    /// Threads that found no slot.
    pub overflow: u64,
    /// Its threads, in the order of slots.
    pub threads: Vec<PeekThread>,
}

/// One thread. Times in ns, totals since the hook saw it first; the state that is going on is in them.
#[derive(Debug, Clone)]
pub struct PeekThread {
    /// Its thread id.
    pub tid: i32,
    /// Its name now, at most 15 characters.
    pub comm: String,
    /// The module, as the process itself knew it when it last looked; None: not yet.
    pub module: Option<String>,
    /// What it does.
    pub state: State,
    /// For how long; None: unknown.
    pub state_for_ns: Option<u64>,
    /// For how long the turn that is going on has lasted; None: sleeping or unknown.
    pub turn_for_ns: Option<u64>,
    /// Turns.
    pub wakeups: u64,
    /// Work, sleep and blocked (all waits are sleep where blocked is not available).
    pub work_ns: u64,
    /// See `work_ns`.
    pub sleep_ns: u64,
    /// See `work_ns`.
    pub blocked_ns: u64,
    /// Calls that waited, and the longest of them.
    pub blocked_calls: u64,
    /// See `blocked_calls`.
    pub longest_blocked_ns: u64,
    /// The longest work of one turn.
    pub longest_work_ns: u64,
    /// Work per wakeup.
    pub work: WorkHistogram,
    /// What the kernel counted; None: the thread has ended.
    pub stat: Option<ThreadStat>,
    /// False if the thread stands in the middle of writing its slot: its numbers may be of two moments.
    pub consistent: bool,
}

/// Reads a table by its path, as given to the probe.
pub fn peek(path: &Path) -> Result<Peek, PeekError> {
    let explain = |why| PeekError::Path { path: path.to_owned(), why };
    RemoteTable::open(path).map(|t| read(&t)).map_err(explain)
}

/// Reads the table of a process: a broker, or a module process under reactor-probe.so.
pub fn peek_process(pid: u32) -> Result<Peek, PeekError> {
    RemoteTable::of_process(pid).map(|t| read(&t)).ok_or(PeekError::Process(pid))
}

fn read(remote: &RemoteTable) -> Peek {
    let table = remote.table();
    let header = &table.header;
    let pid = header.pid.load(Relaxed);
    let generation = header.generation.load(Acquire);
    let sampled_ns = header.sampled_ns.load(Relaxed);
    let taken = table.slots.iter().filter(|s| s.tid() != 0);
    Peek {
        pid,
        active: generation & 1 == 1,
        blocked_available: header.blocked_known.load(Relaxed) == 1,
        sampled_ago_ns: (sampled_ns != 0).then(|| clock::monotonic_ns().saturating_sub(sampled_ns)),
        overflow: header.overflow.load(Relaxed),
        threads: taken.map(|slot| read_slot(header, slot)).collect(),
    }
}

fn read_slot(header: &Header, slot: &Slot) -> PeekThread {
    let (pid, tid) = (header.pid.load(Relaxed), slot.tid());
    let (generation, scale) = (header.generation.load(Acquire), header.scale.load(Relaxed));
    let stat = ThreadFiles::open(pid, tid).and_then(|mut f| f.read().ok()?);
    let snapshot = slot.read();
    // Read after the snapshot: the state has lasted until at least now.
    let now = clock::ticks(header.use_counter.load(Relaxed) == 1);
    let ns = |ticks: u64| clock::to_ns(ticks as i64, scale).max(0) as u64;
    let known = slot.is_known() && generation & 1 == 1 && snapshot.generation == generation;
    let state = match (known, snapshot.state, &stat) {
        (_, _, None) => State::Gone,
        (true, SLEEPING, _) => State::Sleeping,
        (true, BLOCKED, _) => State::Blocked,
        (true, ..) => State::Working,
        (false, _, Some(stat)) if matches!(stat.state, 'R' | 'D') => State::UnknownRunning,
        (false, ..) => State::UnknownIdle,
    };
    let [work, sleep, blocked] = if known { snapshot.at(now) } else { [0; 3] };
    // Where nested reactors cannot be told from others, blocking receives are not told from sleep either.
    let blocked_known = header.blocked_known.load(Relaxed) == 1;
    let (sleep, blocked) = if blocked_known { (sleep, blocked) } else { (sleep.wrapping_add(blocked), 0) };
    let mut histogram = WorkHistogram::default();
    for (index, count) in slot.histogram.iter().enumerate().filter(|_| known) {
        histogram.add(index, u64::from(count.load(Relaxed)));
    }
    // Until then there is what the slot's last owner has left.
    let of_this_thread = |number: u64| if known { number } else { 0 };
    let in_turn = matches!(state, State::Working | State::Blocked);
    PeekThread {
        tid,
        module: Some(slot.module()).filter(|name| !name.is_empty()),
        comm: stat.as_ref().map_or_else(|| slot.comm(), |s| s.comm.clone()),
        state,
        state_for_ns: known.then(|| ns(now.wrapping_sub(snapshot.since))),
        turn_for_ns: in_turn.then(|| ns(now.wrapping_sub(slot.turn_start(&snapshot)))),
        wakeups: of_this_thread(snapshot.wakeups),
        work_ns: ns(work),
        sleep_ns: ns(sleep),
        blocked_ns: ns(blocked),
        blocked_calls: of_this_thread(slot.blocked_calls.load(Relaxed)),
        longest_blocked_ns: ns(of_this_thread(slot.longest_blocked.load(Relaxed))),
        longest_work_ns: ns(of_this_thread(snapshot.longest)),
        work: histogram,
        stat,
        consistent: snapshot.consistent,
    }
}

/// The threads of a process without any table, from /proc alone: name and what the kernel counted.
pub fn threads_of_process(pid: u32) -> Vec<(i32, ThreadStat)> {
    let tids = proc::thread_ids(pid).into_iter();
    tids.filter_map(|tid| Some((tid, ThreadFiles::open(pid, tid)?.read().ok()??))).collect()
}
