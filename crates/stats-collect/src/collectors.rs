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

impl Read {
    /// Whether both ask the same.
    fn is(&self, other: &Read) -> bool {
        match (self, other) {
            (Read::Ask(a), Read::Ask(b)) => (a.topic, a.payload) == (b.topic, b.payload),
            (Read::Module(_), Read::Module(_)) | (Read::Look(_), Read::Look(_)) => true,
            _ => false,
        }
    }
}

struct Source {
    /// It is chosen. One that is not any more keeps its place: chosen again it is not asked sooner than it would have been.
    chosen: bool,
    collector: &'static Collector,
    read: Read,
    /// The module that is asked, if it is one.
    module: Option<String>,
    /// It has an answer of its own, which is not what is asked for.
    other_form: bool,
    /// It has come since the last list of modules: its counts began at zero.
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

    /// Goes on with another choice. Who goes on being chosen notices nothing.
    pub fn choose(&mut self, node: &mut Node, choice: Choice, now_ns: u64) {
        if choice == self.choice {
            return;
        }
        self.choice = choice;
        let mut sources = std::mem::take(&mut self.sources);
        for source in sources.values_mut() {
            source.chosen = self.works(source.collector)
                && match (&source.collector.work, &source.module) {
                    (Work::AskModules { about, .. }, Some(module)) => about(&self.choice, module),
                    _ => true,
                };
            if !source.chosen {
                source.task.shelf.forget(node);
            }
        }
        self.sources = sources;
        for collector in COLLECTORS.iter().filter(|collector| !self.choice.has(collector.name)) {
            set_stretch(node, collector, None);
        }
        self.start(now_ns);
        self.list(self.listed.clone().unwrap_or_default(), now_ns);
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
    }

    fn add(
        &mut self,
        collector: &'static Collector,
        read: Read,
        module: Option<(String, bool)>,
        period: Duration,
        now_ns: u64,
    ) {
        let (module, anew) = module.map_or((None, false), |(name, anew)| (Some(name), anew));
        let known = self.sources.values().any(|source| {
            source.collector.name == collector.name && source.module == module && source.read.is(&read)
        });
        if known {
            return;
        }
        // The first few at once, then with some way between them.
        let due_ns = now_ns.saturating_add((self.next * SPREAD_NS / 8) % SPREAD_NS);
        // What is only looked at is no trouble for anybody.
        let due_ns = if matches!(read, Read::Look(_)) || self.next == 0 { now_ns } else { due_ns };
        let source = Source {
            chosen: true,
            collector,
            read,
            module,
            other_form: false,
            anew,
            task: Task::new(period, due_ns),
        };
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
            let about: Vec<String> = now.iter().filter(|name| about(&self.choice, name)).cloned().collect();
            for name in about {
                // One that has come since the last list counts from zero.
                let anew = self.listed.as_ref().is_some_and(|listed| !listed.contains(&name));
                self.add(collector, Read::Module(*read), Some((name, anew)), collector.period, now_ns);
            }
        }
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
        self.list(names.clone(), now_ns);
        self.listed = Some(names);
    }

    /// What is to be asked now.
    pub fn due(&mut self, node: &mut Node, now_ns: u64) -> Vec<Question> {
        let mut questions = Vec::new();
        for (&id, source) in &mut self.sources {
            if source.chosen && source.task.has_become_late(now_ns) {
                source.task.shelf.withdraw(node);
                count(node, source.collector, "late");
            }
            let asks = source.chosen && !source.other_form && !matches!(source.read, Read::Look(_));
            if !asks || !source.task.ask(now_ns) {
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
        // Last, so that what else we ask has been read when our own queue is looked at.
        questions.sort_by_key(|question| question.topic == crate::sources::MODULE_LIST);
        questions
    }

    /// Takes the answer to a question; the question is void if its collector works no more.
    pub fn answered(&mut self, node: &mut Node, id: u64, now_ns: u64, answer: Result<&Value, Failure>) {
        let aliases = self.choice.has(ALIASES);
        let Some(source) = self.sources.get_mut(&id) else { return };
        let collector = source.collector;
        match answer {
            Ok(answer) => {
                let took_ns = source.task.answered(now_ns);
                if !source.chosen {
                    return;
                }
                note_reply(node, collector, took_ns);
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
                // It says nothing of how long an answer takes: whoever was asked may be gone, and another in its place.
                source.task.abandon(now_ns);
                if !source.chosen {
                    return;
                }
                source.task.shelf.withdraw(node);
                if failure == Failure::Failed {
                    count(node, collector, "failed");
                }
            }
        }
        self.tell_stretch(node, collector);
    }

    fn tell_stretch(&self, node: &mut Node, collector: &'static Collector) {
        let of_it =
            self.sources.values().filter(|source| source.chosen && source.collector.name == collector.name);
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
            if !source.chosen || !source.task.ask(now_ns) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use stats_core::{NodeConfig, Now, Query};

    const S: u64 = 1_000_000_000;

    fn node() -> Node {
        let (epoch, period) = (1, Duration::from_secs(2));
        let config = NodeConfig { rank: 0, size: 1, level: 0, max_level: 0, epoch, period, max_series: 1000 };
        Node::new(config, Now { mono_ns: 0, wall_ns: 0 })
    }

    fn collectors(choice: &str) -> Collectors {
        Collectors::new(Place::unknown(0), choice.parse().unwrap())
    }

    fn total(node: &Node, name: &str) -> Value {
        let query = Query::parse(&json!({ "match": [name] })).unwrap();
        node.answer(&query, Now { mono_ns: 0, wall_ns: 0 })["series"][0]["total"].clone()
    }

    fn list(names: &[&str]) -> Value {
        json!({ "mods": names.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>() })
    }

    fn counts(count: i32) -> Value {
        let counts = json!({ "request": count, "response": 0, "event": 0, "control": 0 });
        json!({ "tx": counts, "rx": counts })
    }

    #[test]
    fn a_source_is_not_asked_again_because_the_choice_has_changed() {
        let (mut node, mut some) = (node(), collectors("overlay"));
        let asked = some.due(&mut node, 0);
        assert_eq!(asked.len(), 1);
        for choice in ["none", "overlay", "jobs", "overlay,jobs"] {
            some.choose(&mut node, choice.parse().unwrap(), S);
            let topics: Vec<String> = some.due(&mut node, 2 * S).into_iter().map(|ask| ask.topic).collect();
            let wanted: &[&str] = if choice == "jobs" { &["job-list.job-stats"] } else { &[] };
            assert_eq!(topics, wanted, "{choice}: the overlay has not answered yet");
        }
        some.answered(&mut node, asked[0].id, 3 * S, Ok(&json!({ "child-count": 1 })));
        assert!(some.due(&mut node, 4 * S).is_empty() && !some.due(&mut node, 10_000 * S).is_empty());
    }

    #[test]
    fn who_is_away_is_asked_again_in_time_however_long_the_question_was_open() {
        let (mut node, mut some) = (node(), collectors("overlay"));
        let asked = some.due(&mut node, 0);
        some.answered(&mut node, asked[0].id, 100 * S, Err(Failure::Absent));
        assert_eq!(some.due(&mut node, 106 * S).len(), 1);
    }

    #[test]
    fn a_module_that_comes_counts_from_zero_and_one_that_was_there_from_when_it_is_first_asked() {
        let (mut node, mut some) = (node(), collectors("messages"));
        let mut now = 0;
        let mut ask = |some: &mut Collectors, node: &mut Node, count: i32| {
            now += 20 * S;
            for question in some.due(node, now) {
                some.answered(node, question.id, now, Ok(&counts(count)));
            }
        };
        some.take_list(&mut node, &list(&["cron", "kvs"]), 0);
        ask(&mut some, &mut node, 1000);
        assert_eq!(total(&node, "modules.cron.rx.request"), 0, "what was before is not known to be new");
        assert_eq!(total(&node, "modules.kvs.rx.request"), Value::Null, "it has numbers of its own");
        ask(&mut some, &mut node, 1005);
        assert_eq!(total(&node, "modules.cron.rx.request"), 5);
        some.take_list(&mut node, &list(&["cron", "late"]), 0);
        ask(&mut some, &mut node, 1006);
        assert_eq!(total(&node, "modules.late.rx.request"), 1006);
        assert_eq!(total(&node, "modules.cron.rx.request"), 6);
        // Gone and back: it began anew.
        some.take_list(&mut node, &list(&[]), 0);
        some.take_list(&mut node, &list(&["cron"]), 0);
        ask(&mut some, &mut node, 3);
        assert_eq!(total(&node, "modules.cron.rx.request"), 9);
        // Another choice and back: what was counted meanwhile is not known.
        some.choose(&mut node, Choice::none(), 0);
        some.choose(&mut node, "messages".parse().unwrap(), 0);
        ask(&mut some, &mut node, 500);
        ask(&mut some, &mut node, 501);
        assert_eq!(total(&node, "modules.cron.rx.request"), 10);
    }
}
