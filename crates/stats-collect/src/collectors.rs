//! The collectors of one rank at work.

use crate::choice::{ALIASES, Choice};
use crate::collector::{Answered, Ask, Collector, Ranks, Work};
use crate::host::{Host, ModuleProcess, Place};
use crate::readings::Readings;
use crate::sources::COLLECTORS;
use crate::task::Task;
use serde_json::Value;
use stats_core::{Amount, Key, Kind, Node, Samples, Unit};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Modules of one broker that are asked; of more, the first by name.
const MODULES_MAX: usize = 256;
/// Sources are first asked within this time after the load, one after the other.
const SPREAD_NS: u64 = 1_000_000_000;

/// A question to a service of this broker.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// To be given with the answer.
    pub id: u64,
    /// The service and its method.
    pub topic: String,
    /// The payload, if there is one.
    pub payload: Option<Value>,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// There is no such service here, which is normal.
    Absent,
    /// Any other.
    Failed,
}

/// What is asked for.
#[derive(Clone, Copy)]
enum Read {
    Ask(&'static Ask),
    Module(fn(&str, &Value, &mut Readings) -> Answered),
    Look(fn(&mut Host, &mut Readings)),
}

struct Source {
    collector: &'static Collector,
    read: Read,
    /// The module that is asked, if it is one.
    module: Option<String>,
    /// It has an answer of its own, or came again after it was away.
    other_form: bool,
    anew: bool,
    task: Task,
}

/// The collectors of one rank.
pub struct Collectors {
    choice: Choice,
    host: Host,
    sources: BTreeMap<u64, Source>,
    next: u64,
    /// What the last list of modules had; `None`: there was none.
    listed: Option<BTreeSet<String>>,
    /// The place of the last heartbeat in the order of events.
    beat: Option<u32>,
}

impl Collectors {
    /// Those that are chosen, on this broker.
    pub fn new(place: Place, choice: Choice) -> Self {
        let mut collectors = Collectors {
            choice,
            host: Host::new(place),
            sources: BTreeMap::new(),
            next: 0,
            listed: None,
            beat: None,
        };
        collectors.start(0);
        collectors
    }

    /// Goes on with another choice. Questions that are under way are answered for nothing.
    pub fn choose(&mut self, node: &mut Node, choice: Choice, now_ns: u64) {
        if choice == self.choice {
            return;
        }
        self.choice = choice;
        std::mem::take(&mut self.sources).values_mut().for_each(|source| source.task.shelf.forget(node));
        for collector in COLLECTORS.iter().filter(|collector| !self.choice.has(collector.name)) {
            set_stretch(node, collector, None);
        }
        self.start(now_ns);
    }

    fn works(&self, collector: &Collector) -> bool {
        let here = collector.ranks == Ranks::All || self.host.place.rank == 0;
        here && self.choice.has(collector.name)
    }

    fn start(&mut self, now_ns: u64) {
        for collector in COLLECTORS {
            if !self.works(collector) {
                continue;
            }
            match &collector.work {
                Work::Ask(asks) => {
                    for ask in *asks {
                        if (ask.here)(&self.host.place) {
                            let period = ask.period.unwrap_or(collector.period);
                            self.add(collector, Read::Ask(ask), None, period, now_ns);
                        }
                    }
                }
                Work::Look(look) => self.add(collector, Read::Look(*look), None, collector.period, now_ns),
                // As modules are listed.
                Work::AskModules { .. } => {}
            }
        }
        if let Some(listed) = self.listed.take() {
            self.list(listed, now_ns);
        }
    }

    fn add(
        &mut self,
        collector: &'static Collector,
        read: Read,
        module: Option<String>,
        period: Duration,
        now_ns: u64,
    ) {
        // The first few at once, then with some way between them.
        let due_ns = now_ns.saturating_add((self.next * SPREAD_NS / 8) % SPREAD_NS);
        // What is only looked at is no trouble for anybody.
        let due_ns = if matches!(read, Read::Look(_)) || self.next == 0 { now_ns } else { due_ns };
        let anew = module.is_some() && self.listed.is_some();
        let source =
            Source { collector, read, module, other_form: false, anew, task: Task::new(period, due_ns) };
        self.sources.insert(self.next, source);
        self.next += 1;
    }

    /// The modules of this broker as they are now.
    fn list(&mut self, now: BTreeSet<String>, now_ns: u64) {
        for collector in COLLECTORS {
            let Work::AskModules { about, read } = &collector.work else { continue };
            if !self.works(collector) {
                continue;
            }
            let before = self.listed.clone().unwrap_or_default();
            let new = now.iter().filter(|name| !before.contains(*name) && about(&self.choice, name));
            let new: Vec<String> = new.cloned().collect();
            for name in new {
                self.add(collector, Read::Module(*read), Some(name), collector.period, now_ns);
            }
        }
        self.listed = Some(now);
    }

    /// Takes the answer of `module.list`, whoever has asked for it.
    pub fn take_list(&mut self, node: &mut Node, answer: &Value, now_ns: u64) {
        let modules = answer["mods"].as_array().into_iter().flatten();
        let names = modules.filter_map(|module| module["name"].as_str().map(str::to_owned));
        let names: BTreeSet<String> = names.take(MODULES_MAX).collect();
        // Who is gone answers no more; and who comes again under the name counts from zero.
        self.sources.retain(|_, source| {
            let stays = source.module.as_ref().is_none_or(|module| names.contains(module));
            if !stays {
                source.task.shelf.forget(node);
            }
            stays
        });
        self.listed = self.listed.take().map(|listed| listed.intersection(&names).cloned().collect());
        self.list(names, now_ns);
    }

    /// What is to be asked now.
    pub fn due(&mut self, node: &mut Node, now_ns: u64) -> Vec<Question> {
        let mut questions = Vec::new();
        for (&id, source) in &mut self.sources {
            if source.task.has_become_late(now_ns) {
                source.task.shelf.withdraw(node);
                count(node, source.collector, "late");
            }
            if source.other_form || matches!(source.read, Read::Look(_)) || !source.task.ask(now_ns) {
                continue;
            }
            let question = match (source.read, &source.module) {
                (Read::Ask(ask), _) => Question {
                    id,
                    topic: ask.topic.to_owned(),
                    payload: serde_json::from_str(ask.payload).ok(),
                },
                (_, Some(module)) => Question { id, topic: format!("{module}.stats-get"), payload: None },
                _ => continue,
            };
            questions.push(question);
        }
        questions
    }

    /// Takes the answer to a question; the question is void if its collector works no more.
    pub fn answered(&mut self, node: &mut Node, id: u64, now_ns: u64, answer: Result<&Value, Failure>) {
        let aliases = self.choice.has(ALIASES);
        let Some(source) = self.sources.get_mut(&id) else { return };
        let took_ns = source.task.answered(now_ns);
        let collector = source.collector;
        note_reply(node, collector, took_ns);
        match answer {
            Ok(answer) => {
                let mut readings = Readings::new(source.collector.series, aliases);
                match source.read {
                    Read::Ask(ask) => (ask.read)(answer, &self.host.place, &mut readings),
                    Read::Module(read) => {
                        let module = source.module.as_deref().unwrap_or_default();
                        source.other_form = read(module, answer, &mut readings) == Answered::OtherForm;
                    }
                    Read::Look(_) => {}
                }
                source.task.shelf.put(node, readings.into_list(), std::mem::take(&mut source.anew));
                if matches!(source.read, Read::Ask(ask) if ask.topic == crate::sources::MODULE_LIST) {
                    self.take_list(node, answer, now_ns);
                }
            }
            Err(failure) => {
                source.task.shelf.withdraw(node);
                if failure == Failure::Failed {
                    count(node, collector, "failed");
                }
            }
        }
        self.tell_stretch(node, collector);
    }

    fn tell_stretch(&self, node: &mut Node, collector: &'static Collector) {
        let of_it = self.sources.values().filter(|source| source.collector.name == collector.name);
        let stretch = of_it.map(|source| source.task.stretch()).reduce(f64::max);
        set_stretch(node, collector, stretch);
    }

    /// A question could not be sent.
    pub fn unasked(&mut self, id: u64, now_ns: u64) {
        if let Some(source) = self.sources.get_mut(&id) {
            source.task.abandon(now_ns);
        }
    }

    /// Whether a question still waits for its answer.
    pub fn awaits(&self, id: u64) -> bool {
        self.sources.contains_key(&id)
    }

    /// Looks at what needs no question, as far as it is due.
    pub fn look(&mut self, node: &mut Node, now_ns: u64) {
        let aliases = self.choice.has(ALIASES);
        for source in self.sources.values_mut() {
            let Read::Look(look) = source.read else { continue };
            if !source.task.ask(now_ns) {
                continue;
            }
            let begun = Instant::now();
            let mut readings = Readings::new(source.collector.series, aliases);
            look(&mut self.host, &mut readings);
            source.task.shelf.put(node, readings.into_list(), false);
            let took_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            source.task.answered(now_ns.saturating_add(took_ns));
            note_reply(node, source.collector, took_ns);
            set_stretch(node, source.collector, Some(source.task.stretch()));
        }
    }

    /// Modules that are processes of their own, and their pids.
    pub fn set_processes<'a>(&mut self, processes: impl Iterator<Item = (&'a str, i32)>) {
        self.host.processes = processes
            .take(MODULES_MAX)
            .map(|(name, pid)| ModuleProcess { name: name.to_owned(), pid })
            .collect();
    }

    /// A heartbeat, with its place in the order of all events of the instance.
    pub fn heartbeat(&mut self, node: &mut Node, sequence: u32) {
        self.host.beat = Some(Instant::now());
        let before = self.beat.replace(sequence);
        let counts = COLLECTORS.iter().any(|c| c.name == crate::sources::HEARTBEAT && self.works(c));
        if counts && self.host.place.rank == 0 {
            let gained = before.map_or(0, |before| sequence.wrapping_sub(before));
            add(node, crate::sources::EVENTS, gained.into());
        }
    }
}

fn own(collector: &Collector, what: &str) -> String {
    format!("stats-agg.collect.{}.{what}", collector.name)
}

fn count(node: &mut Node, collector: &Collector, what: &str) {
    add(node, &own(collector, what), 1);
}

fn add(node: &mut Node, name: &str, amount: u64) {
    let key = Key::new(name, &[], Kind::Counter, Unit::None);
    if let Ok(id) = key.and_then(|key| node.declare(key)) {
        node.add(id, Amount::whole(amount.into()));
    }
}

/// How long a source took.
fn note_reply(node: &mut Node, collector: &Collector, took_ns: u64) {
    let reply = Key::new(&own(collector, "reply_s"), &[], Kind::Timer, Unit::Nanoseconds);
    if let Ok(id) = reply.and_then(|key| node.declare(key)) {
        let mut samples = Samples::default();
        samples.add(took_ns, 1);
        node.observe(id, &samples);
    }
}

/// How many times its period the slowest source of a collector is left alone.
fn set_stretch(node: &mut Node, collector: &Collector, stretch: Option<f64>) {
    let Ok(key) = Key::new(&own(collector, "stretch"), &[], Kind::Gauge, Unit::None) else { return };
    let id = if stretch.is_some() { node.declare(key).ok() } else { node.find(&key) };
    if let Some(id) = id {
        node.set(id, stretch.and_then(Amount::nearest));
    }
}
