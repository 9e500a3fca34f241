//! The reading side: what every module has done since the probe was started.

use crate::attach::{self, AttachError};
use crate::hook;
use crate::procfs::{self, Usage};
use crate::slot::{self, HISTOGRAM_SLOTS, Slot, State, View};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::c_void;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// The name of the broker's own reactor.
const BROKER: &str = "broker";
/// The kernel keeps this many bytes of a thread's name.
const COMM_MAX: usize = 15;

/// How a probe measures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// Hooks in libflux, and /proc.
    Attach,
    /// /proc alone.
    #[default]
    Proc,
    /// Nothing.
    Off,
}

/// What a probe is started with.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How to measure. Where hooks are impossible, `Attach` becomes `Proc`, and [`Status::fallback`] says why.
    pub mode: Mode,
    /// The address of libflux's `flux_reactor_run`; null: unknown.
    pub anchor: *const c_void,
    /// The broker's process, 0 for this one. In a process of our own (`flux module load --exec`) the broker is seen
    /// through /proc alone.
    pub broker_pid: i32,
}

impl Default for Options {
    fn default() -> Self {
        Options { mode: Mode::default(), anchor: std::ptr::null(), broker_pid: 0 }
    }
}

/// Whether time blocked in a nested wait is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocked {
    /// It is.
    Known,
    /// libflux's own calls of `flux_reactor_run` cannot be told: what is blocked would pass as sleep.
    Unknown,
}

/// How a probe measures, as it turned out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The mode in force.
    pub mode: Mode,
    /// Why it is not the mode that was asked for.
    pub fallback: Option<AttachError>,
    /// Whether blocked time is known.
    pub blocked: Blocked,
    /// Waits that were not timed, the table of slots being full.
    pub untimed: u64,
}

/// Where a module's reactor times come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The hook.
    Attach,
    /// /proc: CPU time and switches only, no turns.
    Proc,
}

/// A module as `module.list` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedModule {
    /// Its name, whole.
    pub name: String,
    /// The file it was loaded from.
    pub path: String,
}

/// What one module has done since the probe was started; never falls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleSample {
    /// The module's name; `broker` for the broker's own reactor.
    pub name: String,
    /// Threads (or processes) that it is now.
    pub threads: u32,
    /// Where the reactor times come from.
    pub source: Source,
    /// Turns of its reactor.
    pub wakeups: u64,
    /// Time at work, in nanoseconds.
    pub work_ns: u64,
    /// Time waiting in its reactor, in nanoseconds.
    pub sleep_ns: u64,
    /// Time waiting inside its work, in nanoseconds.
    pub blocked_ns: u64,
    /// How often it waited inside its work.
    pub blocks: u64,
    /// The longest work of one wakeup, in nanoseconds.
    pub longest_work_ns: u64,
    /// Wakeups by work, see [`ModuleSample::work_histogram`].
    histogram: [u64; HISTOGRAM_SLOTS],
    /// CPU time, in nanoseconds.
    pub cpu_ns: u64,
    /// Time runnable and waiting for a processor, in nanoseconds.
    pub runq_wait_ns: u64,
    /// Voluntary context switches.
    pub switches_voluntary: u64,
    /// Involuntary context switches.
    pub switches_involuntary: u64,
}

impl ModuleSample {
    /// The same module when the probe was started: nothing.
    pub fn beginning(&self) -> Self {
        ModuleSample::new(&self.name)
    }

    fn new(name: &str) -> Self {
        ModuleSample {
            name: name.to_owned(),
            threads: 0,
            source: Source::Proc,
            wakeups: 0,
            work_ns: 0,
            sleep_ns: 0,
            blocked_ns: 0,
            blocks: 0,
            longest_work_ns: 0,
            histogram: [0; HISTOGRAM_SLOTS],
            cpu_ns: 0,
            runq_wait_ns: 0,
            switches_voluntary: 0,
            switches_involuntary: 0,
        }
    }

    /// Wakeups by the work that they did: (nanoseconds that stand for a power of two, how many).
    pub fn work_histogram(&self) -> impl Iterator<Item = (u64, u64)> {
        self.histogram.iter().enumerate().map(|(slot, &count)| (slot::slot_ns(slot), count))
    }

    fn add_use(&mut self, used: Usage) {
        self.cpu_ns += used.cpu_ns;
        self.runq_wait_ns += used.runq_wait_ns;
        self.switches_voluntary += used.voluntary;
        self.switches_involuntary += used.involuntary;
    }

    fn add_turns(&mut self, now: &View, before: &View) {
        let gained = |state: State| {
            let index = state as usize;
            now.spent_ns[index].saturating_sub(before.spent_ns[index])
        };
        self.source = Source::Attach;
        self.wakeups += now.wakeups.saturating_sub(before.wakeups);
        self.work_ns += gained(State::Work);
        self.sleep_ns += gained(State::Sleep);
        self.blocked_ns += gained(State::Blocked);
        self.blocks += now.blocks.saturating_sub(before.blocks);
        self.longest_work_ns = self.longest_work_ns.max(now.longest_ns);
        for (sum, (now, before)) in self.histogram.iter_mut().zip(now.histogram.iter().zip(&before.histogram))
        {
            *sum += now.saturating_sub(*before);
        }
    }
}

/// What was last seen of one thread.
struct Thread {
    comm: String,
    usage: Usage,
    view: Option<View>,
}

/// Measures a broker's modules.
pub struct Probe {
    status: Status,
    pid: i32,
    main_tid: i32,
    named: Vec<NamedModule>,
    threads: HashMap<i32, Thread>,
    /// Processes of modules, by pid, with what was last seen.
    processes: HashMap<i32, (String, Usage)>,
    modules: BTreeMap<String, ModuleSample>,
    /// The slots of dead threads that this probe has read out.
    read_out: HashSet<i32>,
    /// A thread takes turns and no name fits it.
    unnamed: bool,
}

impl Probe {
    /// Starts to measure.
    pub fn start(options: Options) -> Self {
        let own_pid = std::process::id() as i32;
        let outside = options.broker_pid != 0 && options.broker_pid != own_pid;
        let (mut mode, mut fallback, mut blocked) = (options.mode, None, Blocked::Unknown);
        if mode == Mode::Attach {
            let attached = if outside { Err(AttachError::Outside) } else { attach::attach(options.anchor) };
            match attached {
                Ok(nested_known) => {
                    blocked = if nested_known { Blocked::Known } else { Blocked::Unknown };
                }
                Err(error) => (mode, fallback) = (Mode::Proc, Some(error)),
            }
        }
        let mut probe = Probe {
            status: Status { mode, fallback, blocked, untimed: 0 },
            pid: if outside { options.broker_pid } else { procfs::SELF },
            main_tid: if outside { options.broker_pid } else { own_pid },
            named: Vec::new(),
            threads: HashMap::new(),
            processes: HashMap::new(),
            modules: BTreeMap::new(),
            read_out: HashSet::new(),
            unnamed: false,
        };
        // What was before does not count: it is where the first differences start.
        probe.sample();
        probe.modules.clear();
        probe
    }

    /// How it measures.
    pub fn status(&self) -> Status {
        Status { untimed: hook::UNTIMED.load(Relaxed), ..self.status.clone() }
    }

    /// Names modules in full, and those that are processes: as `module.list` does.
    pub fn set_names(&mut self, named: Vec<NamedModule>) {
        self.named = named;
        if self.status.mode != Mode::Off {
            self.find_processes();
        }
    }

    /// Whether the last sample met a thread that takes turns and that no name fits: the list is old. What the thread has
    /// done so far counts as soon as it is named.
    pub fn wants_names(&self) -> bool {
        self.unnamed
    }

    /// Every module that was ever seen, in the order of names, as of the last [`Probe::sample`].
    pub fn modules(&self) -> impl Iterator<Item = &ModuleSample> {
        self.modules.values()
    }

    /// Reads everything.
    pub fn sample(&mut self) {
        if self.status.mode == Mode::Off {
            return;
        }
        self.modules.values_mut().for_each(|module| module.threads = 0);
        let alive: HashSet<i32> = procfs::tids(self.pid).into_iter().collect();
        let slots = self.slots();
        let now_ns = hook::now_ns();
        self.unnamed = false;
        for &tid in &alive {
            let view = slots.get(&tid).and_then(|slot| slot.read(now_ns));
            self.sample_thread(tid, view);
        }
        self.retire(&alive, &slots);
        self.sample_processes();
    }

    /// Slots in use, by thread.
    fn slots(&self) -> HashMap<i32, &'static Slot> {
        if self.status.mode != Mode::Attach {
            return HashMap::new();
        }
        let generation = hook::GENERATION.load(Acquire);
        let in_use = slot::table().into_iter().flatten().filter(|slot| slot.generation() == generation);
        in_use.map(|slot| (slot.tid(), slot)).filter(|&(tid, _)| tid != 0).collect()
    }

    fn sample_thread(&mut self, tid: i32, view: Option<View>) {
        let (Some(comm), Some(usage)) = (procfs::comm(self.pid, tid), procfs::usage(self.pid, tid)) else {
            return;
        };
        let turning = view.as_ref().is_some_and(|view| view.wakeups > 0);
        let Some(name) = self.module_of(tid, &comm, turning) else {
            self.unnamed |= turning;
            return;
        };
        // A thread that is new began after the last sample: all of it counts.
        let known = self.threads.get(&tid);
        let (used, before) = match known {
            Some(thread) => (usage.since(thread.usage), thread.view.clone()),
            None => (usage, None),
        };
        let module = self.modules.entry(name).or_insert_with_key(|name| ModuleSample::new(name));
        module.threads += 1;
        module.add_use(used);
        if let Some(view) = &view {
            module.add_turns(view, &before.clone().unwrap_or_else(|| view.beginning()));
        }
        let view = view.or(before);
        self.threads.insert(tid, Thread { comm, usage, view });
    }

    /// The module that a thread is; `None` for a thread that is none (ZeroMQ's, say). One that takes turns is one.
    fn module_of(&self, tid: i32, comm: &str, turning: bool) -> Option<String> {
        if tid == self.main_tid {
            return Some(BROKER.to_owned());
        }
        if self.named.is_empty() {
            return Some(comm.to_owned());
        }
        let cut = |name: &str| {
            let mut end = name.len().min(COMM_MAX);
            while !name.is_char_boundary(end) {
                end -= 1;
            }
            name[..end].to_owned()
        };
        let mut matching = self.named.iter().filter(|module| cut(&module.name) == comm);
        match (matching.next(), matching.next()) {
            (Some(module), None) => Some(module.name.clone()),
            // Two names with the same first 15 bytes: the threads cannot be told apart, and share what is known.
            (Some(_), Some(_)) => Some(comm.to_owned()),
            // Gone from the list, or not yet in it: known before under this name, or else its name is what the kernel
            // has, unless that may be cut.
            (None, _) => {
                let whole = || (turning && comm.len() < COMM_MAX).then(|| comm.to_owned());
                self.modules.keys().find(|name| cut(name) == comm).cloned().or_else(whole)
            }
        }
    }

    /// The last of threads that have ended.
    fn retire(&mut self, alive: &HashSet<i32>, slots: &HashMap<i32, &'static Slot>) {
        for (tid, slot) in slots.iter().filter(|(tid, _)| !alive.contains(tid)) {
            if !self.read_out.insert(*tid) {
                continue;
            }
            // It ended in the state that the slot is in, which therefore took no more time: read it as of then.
            let last = slot.read(0);
            let known = self.threads.get(tid);
            let name = known.and_then(|thread| self.module_of(*tid, &thread.comm, true));
            let before = known.and_then(|thread| thread.view.clone());
            if let (Some(name), Some(last)) = (name, last) {
                let before = before.unwrap_or_else(|| last.beginning());
                if let Some(module) = self.modules.get_mut(&name) {
                    module.add_turns(&last, &before);
                }
            }
            slot.read_out(attach::USERS.load(Acquire));
        }
        self.read_out.retain(|tid| slots.contains_key(tid) && !alive.contains(tid));
        self.threads.retain(|tid, _| alive.contains(tid));
    }

    /// Modules that are processes: the broker's children whose command line names a module's file.
    fn find_processes(&mut self) {
        let pid = if self.pid == procfs::SELF { self.main_tid } else { self.pid };
        let mut found = HashMap::new();
        for child in procfs::children(pid) {
            let words = procfs::command_line(child);
            let module =
                self.named.iter().find(|module| module.path.contains('/') && words.contains(&module.path));
            if let Some(module) = module {
                let known = self.processes.get(&child).map(|&(_, usage)| usage);
                // One that is new to us began before: its past does not count, as with threads at the start.
                let usage = known.or_else(|| procfs::process_usage(child)).unwrap_or_default();
                self.modules.entry(module.name.clone()).or_insert_with_key(|name| ModuleSample::new(name));
                found.insert(child, (module.name.clone(), usage));
            }
        }
        self.processes = found;
    }

    fn sample_processes(&mut self) {
        for (&pid, (name, before)) in &mut self.processes {
            // Gone: the next list of names will tell.
            let Some(usage) = procfs::process_usage(pid) else { continue };
            if let Some(module) = self.modules.get_mut(name) {
                module.threads += 1;
                module.add_use(usage.since(*before));
            }
            *before = usage;
        }
    }
}

impl View {
    /// The same thread when its slot was opened.
    fn beginning(&self) -> View {
        View { wakeups: 0, spent_ns: [0; 3], blocks: 0, histogram: [0; HISTOGRAM_SLOTS], ..self.clone() }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if self.status.mode == Mode::Attach {
            attach::detach();
        }
    }
}
