//! An instance that is made up: ranks of [`stats_core`], as the module runs them, in virtual time, with a workload of no
//! other truth than that it looks like one.

use super::can_be_played;
use crate::instance::{Ask, By, Error, Question};
use serde_json::json;
use stats_core::{
    Amount, IdSet, Key, Kind, Node, NodeConfig, Now, Query, Samples, SeriesId, Steps, Unit, Whose, framed,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// What every screen says.
pub(super) const MARK: &str = "SIMULATED";
pub(super) const LABEL: &str = "SIMULATED: eight ranks in a binary tree, played in this process in virtual time. \
No Flux is involved, and none of these numbers was measured.\nOn rank 5 the module kvs-watch has waited in synchronous \
calls for the last half minute.\n";
/// How long it is played.
pub(super) const END_S: u64 = 60;
/// The rank that falls silent in the end.
pub(super) const SILENT: u32 = 6;

const SIZE: u32 = 8;
/// In a binary tree of eight.
const DEPTH: u32 = 3;
const PERIOD: Duration = Duration::from_secs(2);
/// Where something is wrong, and since when.
const SICK: (&str, u32, u64) = ("kvs-watch", 5, 30);
/// When it begins, in seconds since 1970.
const BEGIN_S: u64 = 1_700_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// Series that a node keeps, and that one step of an answer makes.
const SERIES_MAX: usize = 1000;

/// A module: wakeups a second, work in each in microseconds, and whether it is on every rank or on rank 0 alone.
const MODULES: [(&str, f64, f64, bool); 8] = [
    ("broker", 180.0, 45.0, true),
    ("heartbeat", 0.5, 30.0, false),
    ("job-exec", 12.0, 220.0, false),
    ("job-manager", 40.0, 310.0, false),
    ("kvs", 25.0, 120.0, true),
    ("kvs-watch", 18.0, 90.0, true),
    ("resource", 2.0, 150.0, false),
    ("sched-fluxion-qmanager", 9.0, 4_200.0, false),
];

pub(super) struct Play {
    nodes: Vec<Node>,
    /// By name: what a rank's series is called inside.
    ids: Vec<BTreeMap<String, SeriesId>>,
    silent: IdSet,
    now_s: u64,
}

impl Play {
    pub(super) fn new() -> Self {
        let level = |rank: u32| (rank + 1).ilog2();
        let nodes = (0..SIZE).map(|rank| {
            let epoch = 1 + u64::from(rank);
            let config = NodeConfig {
                rank,
                size: SIZE,
                level: level(rank),
                max_level: DEPTH,
                epoch,
                period: PERIOD,
                max_series: SERIES_MAX,
            };
            Node::new(config, at(0))
        });
        let mut nodes: Vec<Node> = nodes.collect();
        nodes[0].set_online(IdSet::range(0, SIZE - 1));
        Play { nodes, ids: vec![BTreeMap::new(); SIZE as usize], silent: IdSet::new(), now_s: 0 }
    }

    /// That rank's module hangs from now on.
    pub(super) fn silence(&mut self, rank: u32) {
        self.silent.insert(rank);
    }

    /// Lets a second after the other pass.
    pub(super) fn go_on_until(&mut self, end_s: u64) {
        while self.now_s < end_s {
            for rank in 0..SIZE {
                if !self.silent.contains(rank) {
                    self.work(rank);
                }
            }
            self.now_s += 1;
            self.exchange();
        }
    }

    fn series(&mut self, rank: u32, name: &str, kind: Kind, unit: Unit) -> Option<SeriesId> {
        let (node, ids) = (self.nodes.get_mut(rank as usize)?, self.ids.get_mut(rank as usize)?);
        if let Some(id) = ids.get(name) {
            return Some(*id);
        }
        let id = node.declare(Key::new(name, &[], kind, unit).ok()?).ok()?;
        ids.insert(name.to_owned(), id);
        Some(id)
    }

    fn add(&mut self, rank: u32, name: &str, unit: Unit, value: f64) {
        let id = self.series(rank, name, Kind::Counter, unit);
        if let (Some(id), Some(amount)) = (id, Amount::nearest(value.round())) {
            self.nodes[rank as usize].add(id, amount);
        }
    }

    /// What a rank does in a second.
    fn work(&mut self, rank: u32) {
        for (at, (module, wakeups, work_us, everywhere)) in MODULES.into_iter().enumerate() {
            if rank != 0 && !everywhere {
                continue;
            }
            // Rank 0 has more to do, and no second is like the other.
            let more = if rank == 0 { 3.0 } else { 1.0 };
            let wakeups = (wakeups * more * self.chance(rank, at as u64)).round();
            let work_ns = wakeups * work_us * 1e3 * self.chance(rank, 100 + at as u64);
            let sick = module == SICK.0 && rank == SICK.1 && self.now_s >= SICK.2;
            let blocked_ns = if sick { 4.1e8 * self.chance(rank, 200) } else { 0.0 };
            let second_ns = SECOND_NS as f64;
            for (name, unit, value) in [
                ("wakeups", Unit::None, wakeups),
                ("work_s", Unit::Nanoseconds, work_ns),
                ("blocked_s", Unit::Nanoseconds, blocked_ns),
                ("sleep_s", Unit::Nanoseconds, second_ns - work_ns - blocked_ns),
            ] {
                self.add(rank, &format!("modules.{module}.{name}"), unit, value);
            }
        }
        let steps = (20.0 * self.chance(rank, 300)).round();
        self.add(rank, "app.steps", Unit::None, steps);
        if let Some(id) = self.series(rank, "app.step_s", Kind::Timer, Unit::Nanoseconds) {
            let mut samples = Samples::default();
            for step in 0..steps as u64 {
                samples.add((2.5e7 * self.chance(rank, 400 + step)) as u64, 1);
            }
            self.nodes[rank as usize].observe(id, &samples);
        }
    }

    /// Between a half and one and a half, the same every time (SplitMix64, Steele, Lea and Flood, 2014).
    fn chance(&self, rank: u32, what: u64) -> f64 {
        let mut z = (self.now_s << 32 ^ u64::from(rank) << 16 ^ what).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        0.5 + (z ^ (z >> 31)) as f64 / u64::MAX as f64
    }

    /// Batches that are due, towards rank 0, the deepest first.
    fn exchange(&mut self) {
        let now = at(self.now_s * SECOND_NS);
        let loud = (0..SIZE).rev().filter(|rank| !self.silent.contains(*rank));
        for rank in loud.map(|rank| rank as usize) {
            if self.nodes[rank].next_deadline_ns() <= now.mono_ns {
                self.nodes[rank].tick(now);
            }
            while let Some(transmit) = self.nodes[rank].poll_transmit(now) {
                let parent = (rank - 1) / 2;
                if let Ok(receipt) = self.nodes[parent].handle_merge(now, &transmit.payload) {
                    self.nodes[rank].handle_response(transmit.token, Ok(&receipt));
                }
            }
        }
    }

    #[cfg(test)]
    pub(super) fn answer(&self, by: By, patterns: &[&str]) -> crate::answer::Answer {
        self.ask(&Question::new(patterns.iter().copied()).by(by)).unwrap()
    }
}

impl Ask for Play {
    fn size(&self) -> Result<u32, Error> {
        Ok(SIZE)
    }

    fn ask_text(&self, question: &Question) -> Result<String, Error> {
        let bad = |why: String| Error::Question(why);
        if !can_be_played(question.by) {
            return Err(bad("a simulated instance answers as a whole and by rank alone".to_owned()));
        }
        let payload = serde_json::to_value(question).unwrap_or_default();
        let query = Query::parse(&payload).map_err(|error| bad(error.to_string()))?;
        let now = at(self.now_s * SECOND_NS);
        let mut frame = self.nodes[0].frame(now);
        frame["instance"] = json!({ "size": SIZE, "hostlist": format!("node[0-{}]", SIZE - 1) });
        let list = |rank: u32, whose| {
            let node = &self.nodes[rank as usize];
            let mut steps = Steps::list(node, query.clone(), whose);
            while !steps.go_on(node, now, SERIES_MAX) {}
            steps.into_text()
        };
        let lists = match question.by {
            By::Rank => {
                let asked = |rank: &u32| query.ranks().is_none_or(|ranks| ranks.contains(*rank));
                (0..SIZE).filter(asked).map(|rank| list(rank, Whose::Own)).collect()
            }
            _ => vec![list(0, Whose::Subtree)],
        };
        Ok(framed(&frame, &lists))
    }
}

fn at(mono_ns: u64) -> Now {
    Now { mono_ns, wall_ns: BEGIN_S * SECOND_NS + mono_ns }
}
