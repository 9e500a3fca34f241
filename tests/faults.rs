//! What happens to an instance, at random and by seed, while every rank is pushed to: the books must balance to the unit
//! afterwards, for all ranks that are there.
//!
//! `FLUX_STATS_FAULTS_SECONDS` (8) says for how long, `FLUX_STATS_FAULTS_SEED` in which order, `FLUX_STATS_FAULTS_RANKS` (8)
//! to how many brokers, `FLUX_STATS_FAULTS_JOBS` (20) how many jobs are run at a time, and `FLUX_STATS_FAULTS_PERIOD_MS`
//! (300) how often they send: 64 brokers of a debug build on two cores are late with less than 1000.

use flux_testbed::{Backend, Error, Instance, Options};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Map, Value, json};
use stats_core::{Amount, IdSet, Key, Kind, Node, NodeConfig, Now, Unit};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tests::{
    Chance, coverage, doctor, eventually, facts, from_environment, has_cancel, ills, query, real, say, series,
};

const LIMIT: Duration = Duration::from_secs(60);
/// Above in the tree, which is binary: of 8 ranks 1 has 3 and 4 below it, 3 has 7; 2 has 5 and 6.
fn parent(rank: u32) -> Option<u32> {
    rank.checked_sub(1).map(|before| before / 2)
}

/// Whether a rank is one of these, or below one.
fn falls_with(rank: u32, dead: &[u32]) -> bool {
    std::iter::successors(Some(rank), |&rank| parent(rank)).any(|rank| dead.contains(&rank))
}

fn load(instance: &Instance, ranks: impl IntoIterator<Item = u32>) -> Result<(), Error> {
    let period = format!("period={}ms", of_environment("FLUX_STATS_FAULTS_PERIOD_MS", 300));
    instance.load(ranks, "stats-agg", &[&period])
}

facts! {
    whatever_happens_to_it_an_instance_loses_nothing_that_a_living_rank_was_told,
    what_a_receiver_lost_without_a_word_arrives_once_it_answers_anything,
}

/// What is pushed on each rank, and what may have happened to it.
struct World {
    instance: Instance,
    /// Jobs of a churn.
    jobs: u32,
    /// The number of the last push to each rank, and how much was pushed in all.
    pushed: BTreeMap<u32, (u64, i64)>,
    cancels: bool,
    done: BTreeMap<&'static str, u32>,
}

/// What may happen. Who is stopped or removed for a while comes back.
#[derive(Clone, Copy)]
enum Fault {
    Reload,
    Absence,
    Cancel,
    Stop,
    Churn,
}

impl Fault {
    /// Each as likely as the other.
    const ALL: [Fault; 5] = [Fault::Reload, Fault::Absence, Fault::Cancel, Fault::Stop, Fault::Churn];
}

fn of_environment(name: &str, or: u32) -> u32 {
    u32::try_from(from_environment(name, or.into())).unwrap()
}

impl World {
    fn new(backend: Backend) -> Self {
        let size = of_environment("FLUX_STATS_FAULTS_RANKS", 8);
        assert!(size >= 8, "FLUX_STATS_FAULTS_RANKS: expected 8 or more, got {size}");
        let instance = Instance::start(Options { size, ..Options::new(backend) }).unwrap();
        load(&instance, 0..size).unwrap();
        let cancels = has_cancel(&instance);
        World {
            instance,
            jobs: of_environment("FLUX_STATS_FAULTS_JOBS", 20),
            pushed: (0..size).map(|rank| (rank, (0, 0))).collect(),
            cancels,
            done: BTreeMap::new(),
        }
    }

    /// Pushes to a rank that has the module: with a number, so that it counts once however often it is sent.
    fn push(&mut self, rank: u32, value: i64) {
        let (seq, sum) = self.pushed.entry(rank).or_default();
        (*seq, *sum) = (*seq + 1, *sum + value);
        let metric = json!({
            "name": "faults.units", "type": "counter", "value": value, "tags": { "by": rank.to_string() }
        });
        let push = json!({ "version": 1, "id": format!("faults-{rank}"), "seq": *seq, "metrics": [metric] });
        let instance = &self.instance;
        let sent = || instance.rpc(rank, "stats-agg.push", push.clone());
        eventually("a push is taken", LIMIT, sent, Result::is_ok).unwrap();
    }

    fn push_all(&mut self, ranks: impl Iterator<Item = u32>, chance: &mut Chance) {
        for rank in ranks {
            self.push(rank, i64::from(chance.below(1000)));
        }
    }

    /// A module's thread may take a moment to end after it was told to.
    fn load(&self, rank: u32) {
        let load = || load(&self.instance, [rank]);
        eventually("the module is loaded again", LIMIT, load, Result::is_ok).unwrap();
    }

    fn strike(&mut self, fault: Fault, rank: u32, chance: &mut Chance) {
        let while_it_lasts = Duration::from_millis(u64::from(chance.below(1500)));
        let others = (0..self.instance.size()).filter(move |&other| other != rank);
        let name = match fault {
            Fault::Reload => {
                self.instance.remove([rank], "stats-agg").unwrap();
                self.load(rank);
                "reload"
            }
            Fault::Absence => {
                self.instance.remove([rank], "stats-agg").unwrap();
                self.push_all(others, chance);
                std::thread::sleep(while_it_lasts);
                self.load(rank);
                "absence"
            }
            Fault::Cancel if self.cancels => {
                self.instance.cancel(rank, "stats-agg").unwrap();
                self.load(rank);
                "cancel"
            }
            // Rank 0 is who is asked.
            Fault::Stop if rank != 0 => {
                let pid = self.instance.broker_pid(rank).unwrap().to_string();
                let signal = |name: &str| {
                    let kill = ["-c", "kill -s \"$0\" \"$1\"", name, &pid];
                    self.instance.run(0, "sh", &kill).unwrap();
                };
                signal("STOP");
                std::thread::sleep(while_it_lasts);
                signal("CONT");
                "stop"
            }
            Fault::Churn => {
                self.instance.churn(self.jobs).unwrap();
                "churn"
            }
            Fault::Cancel | Fault::Stop => return,
        };
        *self.done.entry(name).or_default() += 1;
    }

    /// What rank 0 knows of what was pushed on each rank.
    fn known(&self) -> BTreeMap<u32, i64> {
        let answer = query(&self.instance, &["faults.units"]);
        let of = |one: &Value| Some((one["tags"]["by"].as_str()?.parse().ok()?, one["total"].as_i64()?));
        answer["series"].as_array().into_iter().flatten().filter_map(of).collect()
    }

    fn pushed(&self, ranks: &[u32]) -> BTreeMap<u32, i64> {
        ranks.iter().map(|&rank| (rank, self.pushed[&rank].1)).collect()
    }

    /// The books of these ranks balance, and stay so.
    fn balances(&self, ranks: &[u32]) {
        let of_ranks = || {
            let mut known = self.known();
            known.retain(|rank, _| ranks.contains(rank));
            known
        };
        let wanted = self.pushed(ranks);
        eventually("the books balance", LIMIT, of_ranks, |known| *known == wanted);
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(of_ranks(), wanted, "nothing is counted twice later");
    }
}

/// What the doctor says, asked anew each time.
fn told_of(world: &World) -> impl FnMut() -> Value {
    || doctor(&world.instance, &[]).1
}

fn whatever_happens_to_it_an_instance_loses_nothing_that_a_living_rank_was_told(backend: Backend) {
    let time = Duration::from_secs(from_environment("FLUX_STATS_FAULTS_SECONDS", 8));
    let seed = from_environment("FLUX_STATS_FAULTS_SEED", u64::from(std::process::id()));
    say(&format!("FLUX_STATS_FAULTS_SECONDS={} FLUX_STATS_FAULTS_SEED={seed}", time.as_secs()));
    let (mut world, mut chance) = (World::new(backend), Chance::new(seed));
    let size = world.instance.size();
    let (begun, mut seen) = (Instant::now(), 0);
    world.push_all(0..size, &mut chance);
    while begun.elapsed() < time {
        let (fault, rank) = (Fault::ALL[chance.below(5) as usize], chance.below(size));
        world.strike(fault, rank, &mut chance);
        world.push_all(0..size, &mut chance);
        let sum = world.known().values().sum::<i64>();
        assert!(sum >= seen, "the total fell from {seen} to {sum}");
        seen = sum;
    }
    let everyone: Vec<u32> = (0..size).collect();
    world.balances(&everyone);
    let whom = |world: &World| coverage(&query(&world.instance, &["none"]));
    let all = IdSet::from_iter(everyone).to_string();
    eventually("all are covered", LIMIT, || whom(&world), |whom| *whom == (all.clone(), String::new()));
    eventually("nothing is wrong", LIMIT, told_of(&world), |told| !told.is_null() && ills(told).is_empty());

    // A broker dies, then one nearer to the root; each takes those below it along.
    let before = world.known();
    let killed = [6, 1];
    killed.iter().for_each(|&rank| world.instance.kill(rank).unwrap());
    let (dead, living): (Vec<u32>, Vec<u32>) = (0..size).partition(|&rank| falls_with(rank, &killed));
    world.push_all(living.iter().copied(), &mut chance);
    let text = |ranks: &[u32]| ranks.iter().copied().collect::<IdSet>().to_string();
    let wanted = (text(&living), text(&dead));
    eventually("who is left", LIMIT, || whom(&world), |whom| *whom == wanted);
    world.balances(&living);
    // Of the dead nothing goes that was known, and nothing comes that they were not told.
    let after = world.known();
    for rank in dead {
        assert_eq!(after[&rank], before[&rank], "rank {rank}");
    }
    // The double does not say that a broker is lost, only that it is silent.
    eventually("the doctor misses them", LIMIT, told_of(&world), |told| {
        ills(told)
            .first()
            .is_some_and(|first| first["name"] == "ranks-missing" && first["ranks"] == *wanted.1)
    });
    say(&format!("{:?}; {} pushed", world.done, after.values().sum::<i64>()));
    world.instance.remove(living.into_iter().rev(), "stats-agg").unwrap();
    // That brokers were killed is an error for `flux start`, rightly.
    drop(world.instance);
}

fn what_a_receiver_lost_without_a_word_arrives_once_it_answers_anything(backend: Backend) {
    let instance = Instance::start(Options { size: 2, ..Options::new(backend) }).unwrap();
    // It takes batches under our name, and answers none.
    instance.load_as([0], "loadgen", "stats-agg", &[]).unwrap();
    load(&instance, [1]).unwrap();
    let metric = json!({ "name": "lost.units", "type": "counter", "value": 7, "tags": {} });
    let push = json!({ "version": 1, "id": "lost", "seq": 1, "metrics": [metric] });
    instance.rpc(1, "stats-agg.push", push).unwrap();
    let waits =
        |log: &Vec<String>| log.iter().any(|line| line.contains("rank 0 answers, but not to a batch"));
    eventually("it is not waited for without end", LIMIT, || instance.log(1).unwrap(), waits);
    instance.remove([0], "stats-agg").unwrap();
    let load = || load(&instance, [0]);
    eventually("the module is loaded", LIMIT, load, Result::is_ok).unwrap();
    eventually("what it counts", LIMIT, || series(&instance, "lost.units"), |one| one["total"] == 7);
    let doubted = || series(&instance, "stats-agg.batches_doubted");
    eventually("that it was in doubt", LIMIT, doubted, |one| one["total"].as_f64() >= Some(1.0));
    instance.remove([1, 0], "stats-agg").unwrap();
    instance.stop().unwrap();
}

/// How much address space a process may have (`RLIMIT_AS`); what it has now and so much more, or without end.
fn limit_memory(pid: u32, more: Option<u64>) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let now = kib.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024;
    let limit = Rlimit { current: more.map(|more| now + more), maximum: None };
    prlimit(Pid::from_raw(pid.try_into().unwrap()), Resource::As, limit).unwrap();
}

/// On real Flux alone: the double's own broker is no better than Rust, and aborts where an allocation of its own fails.
#[test]
fn where_the_process_gets_no_more_memory_the_module_ends_in_order_and_the_broker_lives() {
    let Some(backend) = real() else { return };
    /// Series in a push, and pushes at most: far more than fit.
    const SERIES: u32 = 1000;
    const PUSHES: u32 = 500;
    let instance = Instance::start(Options { size: 1, ..Options::new(backend) }).unwrap();
    let load = || instance.load([0], "stats-agg", &["period=300ms", "max-series=200000"]);
    load().unwrap();
    let push = |name: &str, from: u32, count: u32| {
        let metric = |n: u32| json!({ "name": format!("{name}{n}"), "type": "counter", "value": 1 });
        let metrics: Vec<Value> = (from..from + count).map(metric).collect();
        instance.rpc(0, "stats-agg.push", json!({ "version": 1, "metrics": metrics }))
    };
    push("first", 0, 1).unwrap();
    // What it knows is more than what it has held back for its end.
    let large: Vec<String> = ('a'..='p').map(String::from).collect();
    let tags: Map<String, Value> = large.iter().map(|key| (key.clone(), "x".repeat(200).into())).collect();
    for group in 0..12 {
        let metric =
            |n| json!({ "name": format!("large{group}.n{n}"), "type": "counter", "value": 1, "tags": tags });
        let metrics: Vec<Value> = (0..1000).map(metric).collect();
        instance.rpc(0, "stats-agg.push", json!({ "version": 1, "metrics": metrics })).unwrap();
    }
    let pid = instance.broker_pid(0).unwrap();
    limit_memory(pid, Some(16 << 20));
    let name = format!("memory.{}", "x".repeat(180));
    let gone = || instance.modules(0).is_ok_and(|all| all.iter().all(|name| name != "stats-agg"));
    // Whoever asks may get no memory either, and is told so: it is asked on.
    let ended = (0..PUSHES).any(|n| push(&name, n * SERIES, SERIES).is_err() && gone());
    assert!(ended || gone(), "the limit was never reached, or the broker is gone: {:?}", instance.log(0));
    let said = instance.log(0).unwrap().into_iter().filter(|line| line.contains("no more memory")).count();
    assert_eq!(said, 1);
    // What it knew is kept, for a load that has room: for its end, too.
    limit_memory(pid, Some(150 << 20));
    let refused = load().unwrap_err();
    assert_eq!(refused.errnum(), Some(12), "{refused}");
    limit_memory(pid, None);
    eventually("it is loaded again", LIMIT, load, Result::is_ok).unwrap();
    assert_eq!(series(&instance, "first0")["total"], 1);
    assert_eq!(query(&instance, &["large11.n*"])["series"].as_array().unwrap().len(), 1000);
    instance.remove([0], "stats-agg").unwrap();
    instance.stop().unwrap();
}

/// What rank 1 would send, had it `series` series of 16 tags each.
fn full_batch(series: u32) -> Vec<u8> {
    let start = Now { mono_ns: 0, wall_ns: 0 };
    let period = Duration::from_millis(300);
    let config =
        NodeConfig { rank: 1, size: 2, level: 1, max_level: 1, epoch: 77, period, max_series: 1_000_000 };
    let mut leaf = Node::new(config, start);
    let keys: Vec<String> = ('a'..='p').map(String::from).collect();
    let tags: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "x")).collect();
    for number in 0..series {
        let key = Key::new(&format!("modules.{number:x}.n"), &tags, Kind::Counter, Unit::None).unwrap();
        let id = leaf.declare(key).unwrap();
        leaf.add(id, Amount::whole(1));
    }
    let now = Now { mono_ns: leaf.next_deadline_ns(), wall_ns: 0 };
    leaf.tick(now);
    leaf.poll_transmit(now).unwrap().payload
}

/// On real Flux alone, as above.
#[test]
fn a_batch_that_there_is_no_memory_for_is_refused_and_taken_once_there_is() {
    let Some(backend) = real() else { return };
    let instance = Instance::start(Options { size: 2, ..Options::new(backend) }).unwrap();
    instance.load([0], "stats-agg", &["period=300ms", "max-series=1000000"]).unwrap();
    let (pid, batch) = (instance.broker_pid(0).unwrap(), full_batch(20_000));
    assert!(batch.len() > 1 << 20, "{} bytes", batch.len());
    let merge = || instance.rpc_raw(0, "stats-agg.merge", &batch);
    for more in [16, 100] {
        limit_memory(pid, Some(more << 20));
        let refused = merge().unwrap_err();
        assert_eq!(refused.errnum(), Some(12), "{refused}");
        let wanted = format!("a batch of {} bytes: the process does not have the memory", batch.len());
        assert!(refused.to_string().contains(&wanted), "{refused}");
        limit_memory(pid, None);
    }
    assert!(!merge().unwrap().is_empty());
    eventually("what it counts", LIMIT, || series(&instance, "modules.0.n"), |one| one["total"] == 1);
    instance.remove([0], "stats-agg").unwrap();
    instance.stop().unwrap();
}
