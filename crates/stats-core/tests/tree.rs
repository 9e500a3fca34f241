//! Whole trees of nodes on a virtual network: whatever happens to messages and modules, flows are conserved.

use proptest::prelude::*;
use serde_json::Value;
use stats_core::{
    Amount, ENDED, IdSet, JOB_TAG, Key, Kind, Node, NodeConfig, Now, Query, Samples, SendFailure, Steps,
    Unit, Whose, framed,
};
use std::time::Duration;

const STEP_NS: u64 = 100_000_000;
/// How long series of jobs may be idle.
const TTL: Duration = Duration::from_secs(2);
/// A job lasts so long, and so many others later its number comes again.
const JOB_NS: u64 = 10 * STEP_NS;
const JOBS: u64 = 9;

/// One rank: a module that is loaded, or what it left behind.
struct Rank {
    node: Option<Node>,
    saved: Vec<u8>,
    parent: usize,
    pushed: i128,
}

struct Tree {
    ranks: Vec<Rank>,
    mono_ns: u64,
    epochs: u64,
}

/// Flows that are accounted for: of the instance, and of its jobs.
const FLOWS: [&str; 2] = ["pushed", "job.pushed"];

fn of_job(name: &str, job: &str, kind: Kind) -> Key {
    Key::new(name, &[(JOB_TAG, job), ("task", "any")], kind, Unit::None).unwrap()
}

fn key(name: &str, kind: Kind) -> Key {
    Key::new(name, &[], kind, Unit::None).unwrap()
}

impl Tree {
    /// A tree in which rank r's parent is (r - 1) / fanout.
    fn new(size: u32, fanout: u32) -> Self {
        let parent = |rank: u32| (rank.saturating_sub(1) / fanout) as usize;
        let ranks = (0..size).map(|rank| Rank { node: None, saved: vec![], parent: parent(rank), pushed: 0 });
        let mut tree = Tree { ranks: ranks.collect(), mono_ns: 0, epochs: 0 };
        (0..size as usize).for_each(|rank| tree.load(rank));
        tree
    }

    fn now(&self) -> Now {
        Now { mono_ns: self.mono_ns, wall_ns: 1_700_000_000_000_000_000 + self.mono_ns }
    }

    fn level(&self, mut rank: usize) -> u32 {
        let mut level = 0;
        while rank != 0 {
            (rank, level) = (self.ranks[rank].parent, level + 1);
        }
        level
    }

    fn config(&self, rank: usize, epoch: u64) -> NodeConfig {
        NodeConfig {
            rank: rank as u32,
            size: self.ranks.len() as u32,
            level: self.level(rank),
            max_level: self.level(self.ranks.len() - 1),
            epoch,
            period: Duration::from_secs(2),
            max_series: 200,
        }
    }

    fn load(&mut self, rank: usize) {
        self.epochs += 1;
        let config = self.config(rank, self.epochs * 1_000_003);
        let (now, saved) = (self.now(), std::mem::take(&mut self.ranks[rank].saved));
        let restored =
            if saved.is_empty() { None } else { Some(Node::restore(config.clone(), now, &saved).unwrap()) };
        let mut node = restored.unwrap_or_else(|| Node::new(config, now));
        node.set_ttl(TTL);
        self.ranks[rank].node = Some(node);
    }

    /// What is pushed by a job, which others follow.
    fn push_of_job(&mut self, rank: usize, amount: i128) {
        let (job, before) = (self.mono_ns / JOB_NS % JOBS, (self.mono_ns / JOB_NS + JOBS - 1) % JOBS);
        let Some(node) = &mut self.ranks[rank].node else { return };
        let id = node.declare(of_job("job.pushed", &job.to_string(), Kind::Counter)).unwrap();
        node.add(id, Amount::whole(amount));
        let gauge = |node: &mut Node, job: u64, value| {
            let id = node.declare(of_job("job.one", &job.to_string(), Kind::Gauge)).unwrap();
            node.set(id, value);
        };
        gauge(node, job, Some(Amount::whole(1)));
        gauge(node, before, None);
        self.ranks[rank].pushed += amount;
    }

    /// The gauges of jobs go with them.
    fn end_jobs(&mut self) {
        for node in self.ranks.iter_mut().filter_map(|rank| rank.node.as_mut()) {
            for job in 0..JOBS {
                if let Some(id) = node.find(&of_job("job.one", &job.to_string(), Kind::Gauge)) {
                    node.set(id, None);
                }
            }
        }
    }

    fn push(&mut self, rank: usize, amount: i128) {
        let Some(node) = &mut self.ranks[rank].node else { return };
        let id = node.declare(key("pushed", Kind::Counter)).unwrap();
        node.add(id, Amount::whole(amount));
        let own = node.declare(key(&format!("own.{}", rank % 7), Kind::Counter)).unwrap();
        node.add(own, Amount::whole(1));
        let gauge = node.declare(key("one", Kind::Gauge)).unwrap();
        node.set(gauge, Some(Amount::whole(1)));
        self.ranks[rank].pushed += amount;
    }

    /// The nearest ancestor that has the module; the first to be tried is `to`, or else the parent.
    fn receiver(&self, rank: usize, to: Option<u32>) -> Option<usize> {
        let mut at = to.map_or(self.ranks[rank].parent, |to| to as usize);
        loop {
            if self.ranks[at].node.is_some() {
                return Some(at);
            }
            if at == 0 {
                return None;
            }
            at = self.ranks[at].parent;
        }
    }

    /// Sends what a rank wants to send. `luck` decides: delivered, refused on the way, lost on the way, or answered
    /// into the void.
    fn send(&mut self, rank: usize, luck: u8) {
        let now = self.now();
        while let Some(transmit) = self.ranks[rank].node.as_mut().and_then(|node| node.poll_transmit(now)) {
            let receiver = self.receiver(rank, transmit.to).filter(|_| luck % 8 != 1);
            if let Some(receiver) = receiver {
                let sender = self.ranks[rank].node.as_mut().unwrap();
                sender.sent_to(transmit.token, receiver as u32);
            }
            let merged = receiver.filter(|_| luck % 8 != 3).map(|receiver| {
                self.ranks[receiver].node.as_mut().unwrap().handle_merge(now, &transmit.payload)
            });
            let outcome = match &merged {
                _ if receiver.is_some() && matches!(luck % 8, 2 | 3) => Err(SendFailure::Unknown),
                None => Err(SendFailure::Refused),
                Some(Ok(receipt)) => Ok(receipt.as_slice()),
                Some(Err(refused)) => panic!("{refused}"),
            };
            self.ranks[rank].node.as_mut().unwrap().handle_response(transmit.token, outcome);
        }
    }

    fn unload(&mut self, rank: usize, luck: u8) {
        let now = self.now();
        if let Some(node) = &mut self.ranks[rank].node {
            node.begin_unload(now);
            // Sometimes the module is gone before an answer comes.
            if luck % 16 == 5 {
                if let Some(transmit) = self.ranks[rank].node.as_mut().unwrap().poll_transmit(now)
                    && let Some(receiver) = self.receiver(rank, transmit.to)
                {
                    self.ranks[rank].node.as_mut().unwrap().sent_to(transmit.token, receiver as u32);
                    let _ = self.ranks[receiver].node.as_mut().unwrap().handle_merge(now, &transmit.payload);
                }
            } else {
                self.send(rank, luck);
            }
            self.ranks[rank].saved = self.ranks[rank].node.take().unwrap().save();
        }
    }

    fn step(&mut self, luck: u8) {
        self.mono_ns += STEP_NS;
        let now = self.now();
        for rank in (0..self.ranks.len()).rev() {
            if let Some(node) = &mut self.ranks[rank].node
                && now.mono_ns >= node.next_deadline_ns()
            {
                node.tick(now);
                self.send(rank, luck.wrapping_mul(rank as u8 | 1));
            }
        }
    }

    fn answer(&self) -> Value {
        match &self.ranks[0].node {
            Some(root) => root.answer(&Query::default(), self.now()),
            None => self.inspect(0).answer(&Query::default(), self.now()),
        }
    }

    fn series(&self, name: &str) -> Value {
        self.answer()["series"]
            .as_array()
            .unwrap()
            .iter()
            .find(|s| s["name"] == name)
            .cloned()
            .unwrap_or_default()
    }

    /// (pushed, in the root's totals, in custody). A batch in doubt is in the custody of whoever has merged it, if
    /// somebody has.
    fn account(&self) -> (i128, i128, i128) {
        let pushed = self.ranks.iter().map(|rank| rank.pushed).sum();
        let answer = self.answer();
        let flows = answer["series"].as_array().unwrap().iter();
        let flows = flows.filter(|series| FLOWS.iter().any(|name| series["name"] == *name));
        let total: i64 = flows.map(|series| series["total"].as_i64().unwrap_or(0)).sum();
        let nodes: Vec<Node> = (0..self.ranks.len()).map(|rank| self.inspect(rank)).collect();
        let counted = |flows: &[(Key, Amount)]| {
            let flows = flows.iter().filter(|(key, _)| FLOWS.contains(&key.name()));
            flows.map(|(_, amount)| amount.parts() / 1_000_000).sum::<i128>()
        };
        let mut custody = 0;
        for (rank, node) in nodes.iter().enumerate() {
            let audit = node.audit();
            custody += counted(&audit.unsealed);
            for held in audit.held {
                let elsewhere = self.above(rank).any(|other| nodes[other].has_merged(held.id));
                assert!(!elsewhere || held.in_doubt, "{rank}: {:?} is not known to have arrived", held.id);
                custody += if elsewhere { 0 } else { counted(&held.flows) };
            }
        }
        (pushed, i128::from(total), custody)
    }

    fn above(&self, rank: usize) -> impl Iterator<Item = usize> {
        let parent = |&rank: &usize| (rank != 0).then(|| self.ranks[rank].parent);
        std::iter::successors(parent(&rank), parent)
    }

    /// A copy of a rank's node, loaded or not.
    fn inspect(&self, rank: usize) -> Node {
        let saved = self.ranks[rank].node.as_ref().map_or_else(|| self.ranks[rank].saved.clone(), Node::save);
        let config = self.config(rank, 1);
        if saved.is_empty() {
            Node::new(config, self.now())
        } else {
            Node::restore(config, self.now(), &saved).unwrap()
        }
    }
}

#[test]
fn a_quiet_tree_is_covered_and_its_flows_arrive_within_a_period() {
    let mut tree = Tree::new(40, 3);
    (0..40).for_each(|rank| tree.push(rank, 10 + rank as i128));
    (0..26).for_each(|_| tree.step(0));
    let (pushed, total, custody) = tree.account();
    assert_eq!((total, custody), (pushed, 0));
    let ranks = &tree.answer()["ranks"];
    assert_eq!((ranks["covered"].as_str(), ranks["missing"].as_str()), (Some("0-39"), Some("")));
    assert_eq!(tree.series("one")["count"], 40);
}

/// The public shape of an answer: what a program reads.
#[test]
fn an_answer_looks_as_documented() {
    let mut tree = Tree::new(3, 2);
    let timer =
        Key::new("modules.kvs.work_per_wakeup_s", &[("side", "a")], Kind::Timer, Unit::Nanoseconds).unwrap();
    let wakeups = key("modules.kvs.wakeups", Kind::Counter);
    let bytes = Key::new("broker.rss_bytes", &[], Kind::Gauge, Unit::Bytes).unwrap();
    for rank in 0..3 {
        let node = tree.ranks[rank].node.as_mut().unwrap();
        let id = node.declare(wakeups.clone()).unwrap();
        node.add(id, Amount::whole(200 * (rank as i128 + 1)));
        let id = node.declare(bytes.clone()).unwrap();
        node.set(id, Some(Amount::whole(1 << (20 + rank))));
        let id = node.declare(timer.clone()).unwrap();
        let mut samples = Samples::default();
        samples.add(1_000_000, 99);
        samples.add(2_000_000_000, 1);
        node.observe(id, &samples);
    }
    (0..7).for_each(|_| tree.step(0));
    insta::assert_json_snapshot!(tree.answer());
    insta::assert_json_snapshot!(tree.ranks[0].node.as_ref().unwrap().tree(tree.now()));
}

#[test]
fn history_begins_anew_with_a_clear() {
    let mut tree = Tree::new(1, 2);
    let since = |tree: &Tree| {
        let query = Query::parse(&serde_json::json!({ "match": ["pushed", "one"], "since": 1e9 })).unwrap();
        tree.ranks[0].node.as_ref().unwrap().answer(&query, tree.now())["series"].clone()
    };
    let go_on = |tree: &mut Tree| {
        for _ in 0..100 {
            tree.push(0, 10);
            tree.step(0);
        }
    };
    go_on(&mut tree);
    let series = since(&tree);
    assert_eq!(series[0]["since"]["points"], serde_json::json!([1.0, 1.0, 1.0, 1.0, 1.0]));
    assert_eq!(series[1]["since"]["seconds"], 10.0);
    tree.ranks[0].node.as_mut().unwrap().handle_clear(7);
    go_on(&mut tree);
    let series = since(&tree);
    assert_eq!(series[0]["since"]["seconds"], series[1]["since"]["seconds"]);
    let since = series[1]["since"].clone();
    assert!((8.0..=10.0).contains(&since["seconds"].as_f64().unwrap()), "{since}");
    assert_eq!(since["rate"], 100.0);
}

#[test]
fn a_gauge_s_history_is_what_its_states_were_at_the_end_of_each_period() {
    let mut tree = Tree::new(7, 2);
    let level = key("level", Kind::Gauge);
    let since = |tree: &Tree, rank: usize, by_rank: bool| {
        let query = Query::parse(&serde_json::json!({ "match": ["level"], "since": 1e9 })).unwrap();
        let node = tree.ranks[rank].node.as_ref().unwrap();
        let whose = if by_rank { Whose::Own } else { Whose::Subtree };
        let mut steps = Steps::list(node, query, whose);
        while !steps.go_on(node, tree.now(), 16) {}
        let text = framed(&node.frame(tree.now()), &[steps.into_text()]);
        serde_json::from_str::<Value>(&text).unwrap()["series"][0].clone()
    };
    // What there was whenever a period of rank 0 ended: the sum and the greatest.
    let (mut seen, mut sealed_ns) = (Vec::new(), 0);
    for step in 0..400 {
        let of_rank = |rank: usize| Amount::whole(((step / 7 + 3 * rank) % 50) as i128);
        // Rank 0 tells from the beginning, others come and go.
        for rank in 0..7 {
            let node = tree.ranks[rank].node.as_mut().unwrap();
            let id = node.declare(level.clone()).unwrap();
            let told = rank == 0 && step > 50 || rank > 0 && step > 100 + 10 * rank && step < 400 - 20 * rank;
            node.set(id, told.then(|| of_rank(rank)));
        }
        tree.step(0);
        let deadline_ns = tree.ranks[0].node.as_ref().unwrap().next_deadline_ns();
        if std::mem::replace(&mut sealed_ns, deadline_ns) != deadline_ns && sealed_ns > 0 && step > 0 {
            let now = since(&tree, 0, false);
            seen.push((now["sum"].as_f64(), now["max"]["value"].as_f64()));
        }
    }
    let history = since(&tree, 0, false)["since"].clone();
    let list = |key: &str| -> Vec<Option<f64>> {
        history[key].as_array().unwrap().iter().map(Value::as_f64).collect()
    };
    // Of a first period that was short there is none.
    let periods = list("points").len();
    assert!(periods >= 18 && seen.len() - periods <= 1, "{periods} of {}", seen.len());
    let (sums, maxima): (Vec<_>, Vec<_>) = seen[seen.len() - periods..].iter().copied().unzip();
    assert_eq!((list("points"), list("max")), (sums.clone(), maxima));
    assert!(sums[0].is_none() && sums.iter().flatten().any(|sum| *sum > 40.0), "{sums:?}");
    // A rank's own, and nothing where ranks below are not known for long.
    let own = since(&tree, 0, true)["since"].clone();
    assert!(
        own["points"].as_array().unwrap().iter().flat_map(Value::as_f64).all(|point| point < 50.0),
        "{own}"
    );
    assert_eq!(own["points"], own["max"]);
    let node = tree.ranks[1].node.as_mut().unwrap();
    let id = node.find(&level).unwrap();
    node.set(id, Some(Amount::whole(1)));
    let inner = since(&tree, 1, false);
    assert_eq!((&inner["sum"], &inner["since"]), (&1.into(), &Value::Null));
    assert!(
        since(&tree, 1, true)["since"]["points"].as_array().unwrap().iter().any(|point| !point.is_null())
    );
}

#[test]
fn the_peak_names_the_rank_with_the_highest_rate() {
    let mut tree = Tree::new(15, 2);
    let mut seen = false;
    for step in 0..120 {
        (0..15).for_each(|rank| tree.push(rank, if rank == 11 { 50 } else { 10 }));
        tree.step(0);
        if step > 60 {
            let peak = tree.series("pushed")["max"].clone();
            seen = true;
            assert_eq!(peak["rank"], 11, "{peak}");
            assert!((peak["rate"].as_f64().unwrap() - 500.0).abs() < 50.0, "{peak}");
        }
    }
    assert!(seen);
}

#[test]
fn the_greatest_state_names_its_rank_and_when_it_came_about() {
    let mut tree = Tree::new(7, 2);
    let longest = key("longest", Kind::Gauge);
    for (rank, value, time_s) in [(3, 10, 1_000), (6, 30, 2_000), (0, 20, 3_000)] {
        let node = tree.ranks[rank].node.as_mut().unwrap();
        let id = node.declare(longest.clone()).unwrap();
        node.set_since(id, Amount::whole(value), time_s);
    }
    (0..40).for_each(|_| tree.step(0));
    assert_eq!(tree.series("longest")["max"], serde_json::json!({"value": 30, "rank": 6, "time": 2_000}));
    // The next is of a rank that does not say.
    let node = tree.ranks[6].node.as_mut().unwrap();
    let id = node.declare(longest).unwrap();
    node.set(id, Some(Amount::whole(40)));
    (0..40).for_each(|_| tree.step(0));
    assert_eq!(tree.series("longest")["max"], serde_json::json!({"value": 40, "rank": 6}));
}

#[test]
fn a_rank_that_falls_silent_is_missing_and_its_states_expire() {
    let mut tree = Tree::new(7, 2);
    (0..7).for_each(|rank| tree.push(rank, 1));
    (0..40).for_each(|_| tree.step(0));
    tree.ranks[0].node.as_mut().unwrap().set_online((0..6).collect::<IdSet>());
    tree.ranks[6].node = None;
    tree.ranks[5].node = None;
    (0..80).for_each(|_| tree.step(0));
    let ranks = tree.answer()["ranks"].clone();
    assert_eq!((ranks["covered"].as_str(), ranks["missing"].as_str()), (Some("0-4"), Some("5-6")));
    assert_eq!((ranks["silent"].as_str(), ranks["offline"].as_str()), (Some("5"), Some("6")));
    assert_eq!(tree.series("one")["count"], 5);
}

#[test]
fn an_unloaded_rank_is_absent_at_once_and_its_states_are_withdrawn() {
    let mut tree = Tree::new(7, 2);
    (0..7).for_each(|rank| tree.push(rank, 1));
    (0..40).for_each(|_| tree.step(0));
    tree.unload(2, 0);
    (0..25).for_each(|_| tree.step(0));
    let ranks = tree.answer()["ranks"].clone();
    assert_eq!((ranks["covered"].as_str(), ranks["absent"].as_str()), (Some("0-1,3-6"), Some("2")));
    assert_eq!(tree.series("one")["count"], 6);
    assert_eq!(tree.series("pushed")["total"], 7);
}

#[test]
fn a_clear_is_exact_even_for_batches_on_their_way() {
    let mut tree = Tree::new(15, 2);
    for step in 0..100 {
        (0..15).for_each(|rank| tree.push(rank, 1));
        if step == 50 {
            // The event reaches rank after rank; the others learn it from batches and receipts.
            tree.ranks.iter_mut().for_each(|rank| rank.pushed = 0);
            for rank in [0, 1, 7, 14] {
                tree.ranks[rank].node.as_mut().unwrap().handle_clear(9);
            }
            for rank in 0..15 {
                tree.ranks[rank].node.as_mut().unwrap().handle_clear(9);
            }
        }
        tree.step(0);
    }
    (0..60).for_each(|_| tree.step(0));
    let (pushed, total, custody) = tree.account();
    assert_eq!((total, custody), (pushed, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]
    #[test]
    fn flows_are_conserved_under_lost_messages_and_reloads(
        fanout in 1_u32..5,
        steps in proptest::collection::vec((any::<u8>(), 0_usize..12, 0_u8..8), 50..300),
    ) {
        let mut tree = Tree::new(12, fanout);
        for (luck, rank, what) in steps {
            tree.push(rank, i128::from(luck));
            tree.push_of_job((rank + usize::from(what)) % 12, i128::from(luck));
            match what {
                0 => tree.unload(rank, luck),
                1 | 2 if tree.ranks[rank].node.is_none() => tree.load(rank),
                _ => {}
            }
            tree.step(luck);
        }
        let (pushed, total, custody) = tree.account();
        prop_assert_eq!(total + custody, pushed, "{} in custody", custody);
        tree.end_jobs();
        (0..12).filter(|&rank| tree.ranks[rank].node.is_none()).collect::<Vec<_>>().into_iter().for_each(|r| tree.load(r));
        (0..12).for_each(|rank| tree.push(rank, 0));
        (0..400).for_each(|_| tree.step(0));
        prop_assert_eq!(tree.account(), (pushed, pushed, 0));
        prop_assert_eq!(&tree.series("one")["count"], 12);
        // Of the jobs' series nothing is left, on any rank, but the sums.
        for node in tree.ranks.iter().filter_map(|rank| rank.node.as_ref()) {
            let answer = node.answer(&Query::parse(&serde_json::json!({ "match": ["job.*"] })).unwrap(), tree.now());
            for series in answer["series"].as_array().unwrap() {
                prop_assert_eq!(&series["tags"], &serde_json::json!({ JOB_TAG: ENDED }));
            }
        }
    }
}
