//! What the root costs: questions over many series, and memory.

use peak_alloc::PeakAlloc;
use serde_json::json;
use stats_core::{Amount, Key, Kind, Node, NodeConfig, Now, Query, SeriesId, Steps, Unit, Whose, framed};
use std::hint::black_box;
use std::time::{Duration, Instant};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const PERIOD: Duration = Duration::from_secs(2);
/// Ten minutes of periods.
const PERIODS: u64 = 300;
/// Series between two looks at the clock, as in the module.
const STEP: usize = 16;

fn config(rank: u32) -> NodeConfig {
    let epoch = 9 + u64::from(rank);
    NodeConfig { rank, size: 2, level: rank, max_level: 1, epoch, period: PERIOD, max_series: 30_000 }
}

/// Both ends of a link, and the leaf's counters: `modules.mNNN.*`, a hundred series each.
struct Pair {
    root: Node,
    leaf: Node,
    counters: Vec<SeriesId>,
    now: Now,
}

impl Pair {
    fn new(series: usize) -> Self {
        let now = Now { mono_ns: 0, wall_ns: 1_700_000_000_000_000_000 };
        let (root, mut leaf) = (Node::new(config(0), now), Node::new(config(1), now));
        let what = |of: usize| if of == 0 { "wakeups".to_owned() } else { format!("count{of:02}") };
        let counters = (0..series).map(|number| {
            let name = format!("modules.m{:03}.{}", number / 100, what(number % 100));
            let key = Key::new(&name, &[], Kind::Counter, Unit::None).expect("a valid name");
            leaf.declare(key).expect("room for it")
        });
        Pair { counters: counters.collect(), root, leaf, now }
    }

    /// A period in which every counter grows.
    fn period(&mut self, round: u64) {
        for (number, &id) in self.counters.iter().enumerate() {
            self.leaf.add(id, Amount::whole(1 + (i128::from(round) * 7 + number as i128) % 90_000));
        }
        let passed = self.leaf.next_deadline_ns() - self.now.mono_ns;
        self.now = Now { mono_ns: self.now.mono_ns + passed, wall_ns: self.now.wall_ns + passed };
        self.leaf.tick(self.now);
        while let Some(transmit) = self.leaf.poll_transmit(self.now) {
            let receipt = self.root.handle_merge(self.now, &transmit.payload).expect("a good batch");
            self.leaf.handle_response(transmit.token, Ok(&receipt));
        }
        if self.now.mono_ns >= self.root.next_deadline_ns() {
            self.root.tick(self.now);
        }
    }
}

/// Milliseconds that `answer` takes, the median of several.
fn milliseconds(mut answer: impl FnMut() -> String) -> f64 {
    let mut taken: Vec<f64> = (0..31)
        .map(|_| {
            let begun = Instant::now();
            black_box(answer());
            begun.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    taken.sort_by(f64::total_cmp);
    taken[taken.len() / 2]
}

/// The answer in steps, and the longest of them in milliseconds.
fn whole(mut steps: Steps, pair: &Pair, longest: &mut f64) -> Steps {
    loop {
        let begun = Instant::now();
        let done = steps.go_on(&pair.root, pair.now, STEP);
        *longest = longest.max(begun.elapsed().as_secs_f64() * 1e3);
        if done {
            return steps;
        }
    }
}

fn main() {
    let mut pair = Pair::new(10_000);
    (0..3).for_each(|round| pair.period(round));
    let mut longest = 0.0;
    let list = milliseconds(|| {
        let steps = Steps::list(&pair.root, Query::default(), Whose::Subtree);
        framed(&pair.root.frame(pair.now), &[whole(steps, &pair, &mut longest).into_text()])
    });
    let tree =
        milliseconds(|| whole(Steps::tree(&pair.root, Query::default()), &pair, &mut longest).into_text());
    println!(
        "all of 10,000 series: {list:.1} ms as a list, {tree:.1} ms as a tree (target <= 20 ms: x {:.2} and x {:.2})",
        list / 20.0,
        tree / 20.0
    );
    let begun = Instant::now();
    let steps = Steps::tree(&pair.root, Query::default());
    longest = longest.max(begun.elapsed().as_secs_f64() * 1e3);
    let steps = whole(steps, &pair, &mut longest);
    let begun = Instant::now();
    black_box(steps.into_text());
    longest = longest.max(begun.elapsed().as_secs_f64() * 1e3);
    println!("longest step of those: {longest:.2} ms (target < 5 ms: x {:.2})", longest / 5.0);
    drop(pair);

    let before = HEAP.current_usage();
    let mut pair = Pair::new(20_000);
    let leaf_alone = HEAP.current_usage();
    (0..PERIODS + 1).for_each(|round| pair.period(round));
    let query = Query::parse(&json!({ "match": ["modules.*.wakeups"] })).expect("a good question");
    let one = milliseconds(|| {
        let steps = Steps::list(&pair.root, query.clone(), Whose::Subtree);
        whole(steps, &pair, &mut longest).into_text()
    });
    println!("modules.*.wakeups over 20,000 series: {one:.2} ms (target <= 2 ms: x {:.2})", one / 2.0);
    // What the leaf has is not the root's.
    let both = HEAP.current_usage();
    let Pair { leaf, root, .. } = pair;
    drop(leaf);
    let root_bytes = HEAP.current_usage() - before;
    let (each, mebibytes) = (root_bytes as f64 / 20_000.0, root_bytes as f64 / 1048576.0);
    println!(
        "memory of the root: {each:.0} bytes a counter series with ten minutes of history (target <= 1024: x {:.2}), \
         {mebibytes:.1} MiB at 20,000 (target <= 64: x {:.2}); both ends {:.1} MiB, of which the leaf began with {:.1}",
        each / 1024.0,
        mebibytes / 64.0,
        (both - before) as f64 / 1048576.0,
        (leaf_alone - before) as f64 / 1048576.0,
    );
    drop(root);
}
