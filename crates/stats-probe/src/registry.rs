//! All threads of a broker and of its module processes, and what each has done since the last look.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crate::accounts::{Accounts, Who};
use crate::attach;
use crate::clock::{self, Scale};
use crate::ledger::{Held, ReaderId};
use crate::mapping::RemoteTable;
use crate::names::Mark;
use crate::proc::{self, ThreadFiles};
use crate::sample::Source;
use crate::slots::{Slot, Table};
use crate::thread::Thread;

/// A new thread is called like the broker until it names itself. One that never does appears under that
/// name after so long.
const NAMING_NS: u64 = 5_000_000_000;

/// A thread by process and tid.
type Id = (u32, i32);

/// A table is looked for in a process so often, then ever more rarely: its reactor may not exist yet.
const TABLE_TRIES: u32 = 16;

/// A process other than this one.
#[derive(Debug, Default)]
struct Process {
    /// Path of the module that it runs.
    module: String,
    /// Its slots, if a hook was preloaded into it.
    table: Option<RemoteTable>,
    tries: u32,
}

#[derive(Debug)]
pub(crate) struct Registry {
    /// The broker.
    pid: u32,
    /// The table of this process, if it is the broker, and whose hook writes it.
    table: Option<(&'static Table, Source)>,
    scale: Scale,
    threads: HashMap<Id, Thread>,
    processes: HashMap<u32, Process>,
    pub(crate) accounts: Accounts,
    looked: bool,
    /// Who came and went since the last look.
    unseen: Vec<(Mark, Held)>,
}

/// The registry of this process is one, however many probes there are: a slot's end is told but once.
pub(crate) fn own() -> Arc<Mutex<Registry>> {
    static OWN: OnceLock<Arc<Mutex<Registry>>> = OnceLock::new();
    OWN.get_or_init(|| Arc::new(Mutex::new(Registry::new(std::process::id())))).clone()
}

impl Registry {
    pub(crate) fn new(pid: u32) -> Self {
        Self {
            pid,
            table: None,
            scale: Scale::calibrate(false, Duration::ZERO),
            threads: HashMap::new(),
            processes: HashMap::new(),
            accounts: Accounts::default(),
            looked: false,
            unseen: Vec::new(),
        }
    }

    /// Reads turns from a table from now on. All time so far is accounted for by the clock so far.
    pub(crate) fn use_table(&mut self, table: &'static Table, source: Source, scale: Scale) {
        self.update();
        self.table = Some((table, source));
        self.scale = scale;
        let now = self.scale.now();
        for thread in self.threads.values_mut() {
            thread.restart_clock(now);
        }
        self.update();
    }

    /// Ticks are the processor's from now on, or nanoseconds. Before anything is met.
    pub(crate) fn follow_clock(&mut self, use_counter: bool) {
        self.scale = Scale::calibrate(use_counter, attach::CALIBRATION);
    }

    /// CLOCK_MONOTONIC ns of a moment in ticks.
    pub(crate) fn to_monotonic_ns(&self, ticks: u64) -> u64 {
        let ago = clock::to_ns(self.scale.now().wrapping_sub(ticks) as i64, self.scale.per_tick());
        clock::monotonic_ns().saturating_sub(ago.max(0) as u64)
    }

    pub(crate) fn overflow(&self) -> u64 {
        self.table.map_or(0, |(t, _)| t.header.overflow.load(Relaxed))
    }

    pub(crate) fn clock_steps(&self) -> u64 {
        self.scale.steps
    }

    /// All live threads, with whose account each is.
    pub(crate) fn threads(&self) -> impl Iterator<Item = (Who, i32, &Thread)> {
        self.threads.iter().map(|(id, thread)| (self.who(*id), id.1, thread))
    }

    /// A probe comes, for whom all begins now.
    pub(crate) fn enter(&mut self) -> ReaderId {
        self.accounts.enter()
    }

    /// A probe goes. Nothing is kept open for none.
    pub(crate) fn leave(&mut self, reader: ReaderId) {
        self.accounts.leave(reader);
        if !self.accounts.ledger.has_readers() {
            self.threads.values_mut().for_each(Thread::close_files);
        }
    }

    fn who(&self, (pid, tid): Id) -> Who {
        if pid == self.pid { Who::Thread(tid) } else { Who::Process(pid) }
    }

    /// What somebody is known by, a thread being called `comm`.
    fn mark(&self, (pid, tid): Id, comm: &str) -> Mark {
        if pid != self.pid {
            Mark::Process(self.processes.get(&pid).map(|p| p.module.clone()).unwrap_or_default())
        } else if tid as u32 == pid {
            Mark::Broker
        } else {
            Mark::Comm(comm.to_owned())
        }
    }

    /// Looks at every thread and brings the totals up to date.
    pub(crate) fn update(&mut self) {
        self.scale.follow();
        if let Some((table, _)) = self.table {
            table.header.scale.store(self.scale.per_tick(), Relaxed);
            table.header.sampled_ns.store(clock::monotonic_ns(), Relaxed);
        }
        let asked = self.scale.now();
        // Slots first: one whose tid is in no list read later belongs to a thread that has ended.
        let taken = self.taken_slots();
        let present = self.present();
        self.meet(&present, asked);
        self.assign(&taken);
        let mut ended = self.look(asked);
        // A process is forgotten only after the last account of its threads.
        let alive: HashSet<u32> = self.threads.keys().map(|(pid, _)| *pid).collect();
        let gone = self.processes.extract_if(|pid, _| !alive.contains(pid));
        ended.extend(gone.map(|(pid, _)| Who::Process(pid)));
        let now_ns = clock::monotonic_ns();
        self.accounts.close(ended, std::mem::take(&mut self.unseen), now_ns);
        self.accounts.settle(now_ns);
        self.sign_slots();
        self.looked = true;
    }

    /// Writes into each slot of the broker whose it is, for readers from outside.
    fn sign_slots(&self) {
        let Some((table, _)) = self.table else { return };
        for ((pid, tid), thread) in &self.threads {
            let slot = thread.slot.filter(|_| *pid == self.pid).and_then(|i| table.slots.get(i));
            let name = self.accounts.name(self.who((*pid, *tid)));
            if let (Some(slot), Some(name)) = (slot, name) {
                slot.set_module(name);
            }
        }
    }

    fn taken_slots(&self) -> Vec<(usize, i32)> {
        let slots = self.table.map_or(&[][..], |(t, _)| &t.slots[..]);
        let tids = slots.iter().map(|s| s.tid()).enumerate();
        tids.filter(|(_, tid)| *tid != 0).collect()
    }

    fn present(&mut self) -> Vec<Id> {
        for module in proc::module_processes(self.pid) {
            self.processes.entry(module.pid).or_default().module = module.path;
        }
        if self.table.is_none() && self.pid != std::process::id() {
            self.processes.entry(self.pid).or_default();
        }
        for (pid, process) in &mut self.processes {
            if process.table.is_some() {
                continue;
            }
            process.tries = process.tries.saturating_add(1);
            if process.tries <= TABLE_TRIES || process.tries.is_power_of_two() {
                // Ticks must be of the clock that this registry follows.
                let same_clock = |t: &RemoteTable| {
                    (t.table().header.use_counter.load(Relaxed) == 1) == self.scale.uses_counter()
                };
                process.table = RemoteTable::of_process(*pid).filter(same_clock);
            }
        }
        let others = self.processes.keys().copied().filter(|pid| *pid != self.pid);
        let pids = std::iter::once(self.pid).chain(others);
        pids.flat_map(|pid| proc::thread_ids(pid).into_iter().map(move |tid| (pid, tid))).collect()
    }

    fn meet(&mut self, present: &[Id], asked: u64) {
        let now_ns = clock::monotonic_ns();
        for id in present {
            if !self.threads.contains_key(id) {
                let files = ThreadFiles::open(id.0, id.1);
                if let Some(thread) = files.and_then(|f| Thread::new(f, self.looked, asked, now_ns)) {
                    self.threads.insert(*id, thread);
                }
            }
        }
    }

    /// Gives each slot to its thread, each thread of the broker a slot, and takes leave of slots whose
    /// thread has come and gone between two looks.
    fn assign(&mut self, taken: &[(usize, i32)]) {
        self.assign_remote();
        let Some((table, _)) = self.table else { return };
        let own = self.threads.iter().filter(|((pid, _), _)| *pid == self.pid);
        let assigned: HashMap<usize, i32> = own.filter_map(|((_, tid), t)| Some((t.slot?, *tid))).collect();
        let had_one: HashSet<i32> = assigned.values().copied().collect();
        for (index, tid) in taken.iter().filter(|(i, _)| !assigned.contains_key(i)) {
            let Some(slot) = table.slots.get(*index) else { continue };
            let Some(thread) = self.threads.get_mut(&(self.pid, *tid)) else {
                // Else it could not be met this time: it was not in the list, or no file can be opened.
                if proc::has_ended(*tid) {
                    self.orphan(slot);
                }
                continue;
            };
            let other = thread.slot.and_then(|i| table.slots.get(i));
            match other {
                None => thread.take_slot(*index),
                // The thread took one of its own at the same time as we made one for it.
                Some(_) if slot.give_back() => {}
                Some(other) if other.give_back() => thread.take_slot(*index),
                // It is of the next thread of that tid, or of this one's last moments: its turn comes when
                // this one's end has been seen, and what it did is accounted for.
                Some(_) if had_one.contains(tid) => {}
                // The tid was given again: the slot that became known first is a dead thread's.
                Some(other) if slot.known_since.load(Relaxed) < other.known_since.load(Relaxed) => {
                    self.orphan(slot);
                }
                Some(other) => {
                    thread.take_slot(*index);
                    self.orphan(other);
                }
            }
        }
        for ((pid, tid), thread) in &mut self.threads {
            if *pid == self.pid && thread.slot.is_none() {
                thread.slot = table.make_slot(*tid);
            }
        }
    }

    /// Slots of other processes are only read.
    fn assign_remote(&mut self) {
        for ((pid, tid), thread) in &mut self.threads {
            let Some(table) = self.processes.get(pid).and_then(|p| p.table.as_ref()) else { continue };
            if thread.slot.is_none() {
                let slots = table.table().slots.iter().enumerate();
                let own = slots.filter(|(_, s)| s.tid() == *tid && s.is_known());
                if let Some((index, _)) = own.max_by_key(|(_, s)| s.known_since.load(Relaxed)) {
                    thread.take_slot(index);
                }
            }
        }
    }

    /// The table that a process's threads have their slots in.
    fn table_of(&self, pid: u32) -> Option<(&Table, Source)> {
        match self.table {
            Some(own) if pid == self.pid => Some(own),
            _ => Some((self.processes.get(&pid)?.table.as_ref()?.table(), Source::Preload)),
        }
    }

    /// Accounts for a thread that came and went between two looks.
    fn orphan(&mut self, slot: &Slot) {
        let Some((table, source)) = self.table else { return };
        let mut held = Held::default();
        held.totals.turns_from(source, table);
        let generation = table.header.generation.load(Acquire);
        Thread::account_orphan(slot, generation, &self.scale, &mut held.totals);
        let mark = Mark::Comm(slot.comm());
        slot.free();
        self.unseen.push((mark, held));
    }

    /// Brings every account up to date; the threads of the broker that have ended.
    fn look(&mut self, asked: u64) -> Vec<Who> {
        let mut ended = Vec::new();
        let main = (self.pid, self.pid as i32);
        let main_comm = self.threads.get(&main).map(|t| t.stat.comm.clone()).unwrap_or_default();
        let now_ns = clock::monotonic_ns();
        let (mut threads, mut accounts) =
            (std::mem::take(&mut self.threads), std::mem::take(&mut self.accounts));
        threads.retain(|id, thread| {
            let table = self.table_of(id.0);
            let generation = table.map_or(0, |(t, _)| t.header.generation.load(Acquire));
            let slot = thread.slot.and_then(|i| table?.0.slots.get(i));
            let stat = thread.read_stat();
            let known = slot.filter(|s| s.is_known());
            let comm = match (&stat, known) {
                (Some(stat), _) => stat.comm.clone(),
                (None, Some(slot)) => slot.comm(),
                (None, None) => thread.stat.comm.clone(),
            };
            let who = self.who(*id);
            let inherited = id.0 == self.pid && *id != main && comm == main_comm;
            let named = match &stat {
                Some(_) => !inherited || now_ns.saturating_sub(thread.first_seen_ns) >= NAMING_NS,
                // What is left of its name may be older than what it was seen under.
                None => !accounts.is_marked(who),
            };
            if named {
                accounts.seen_as(who, self.mark(*id, &comm), now_ns);
            }
            let to = &mut accounts.held(who).totals;
            let turns = known.filter(|s| generation & 1 == 1 && s.generation() == generation);
            if let (Some((table, source)), Some(_)) = (table, turns) {
                to.turns_from(source, table);
            }
            let lives = thread.look(slot, generation, stat, asked, &self.scale, to);
            if !lives && id.0 == self.pid {
                if let (Some(slot), true) = (slot, self.table.is_some()) {
                    slot.free();
                }
                ended.push(who);
            }
            lives
        });
        (self.threads, self.accounts) = (threads, accounts);
        ended
    }
}
