//! The truth table: what the probe says of a module of known behaviour, against what that says of itself, by every
//! source and for every kind of module.

use flux_testbed::{Backend, Instance, Options, Stage};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tests::{eventually, facts, has_cancel, number, say, tree};

const LIMIT: Duration = Duration::from_secs(30);
/// What is reported may be off by so much.
const TOLERANCE: f64 = 0.02;
/// What it is told: 30 wakeups a second, each with work, one in ten with a synchronous RPC, and one long slice at the
/// beginning. Calls are few and long, so that the moments in which nobody inside can tell a wait from a want of a
/// processor are few, too.
const PLAN: [&str; 5] = ["rate=30", "busy=10ms", "block=150ms", "every=10", "spin=1s"];
const RUN: Duration = Duration::from_secs(12);
/// Before and after, with nothing to do: what there is to be seen of it has been seen by then.
const IDLE: Duration = Duration::from_millis(1500);
/// Turns for other things than its timer: its start, its end, the requests between; beside one a second, in which a
/// module of ours looks whether it is to be cancelled.
const OTHER_TURNS: f64 = 10.0;

facts! {
    attached_threads_are_reported_as_what_they_do,
    preloaded_modules_of_every_kind_are_reported_as_what_they_do,
    the_kernel_s_account_of_every_kind_is_what_they_do,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Thread,
    Exec,
    Python,
}

impl Kind {
    /// Those that this broker can run.
    fn all(instance: &Instance) -> &'static [Kind] {
        if instance.backend() != &Backend::Embedded && has_cancel(instance) {
            &[Kind::Thread, Kind::Exec, Kind::Python]
        } else {
            say("modules as processes of their own are left out, this broker runs them as threads only");
            &[Kind::Thread]
        }
    }

    fn file(self) -> PathBuf {
        let stage = Stage::of_this_build().unwrap();
        if self == Kind::Python { stage.python_loadgen() } else { stage.module("loadgen") }
    }
}

fn instance(backend: Backend, preload: bool, arguments: &[&str]) -> Instance {
    let probe = Stage::of_this_build().unwrap().reactor_probe();
    let environment = if preload { vec![("LD_PRELOAD".into(), probe.into())] } else { Vec::new() };
    let instance = Instance::start(Options { size: 1, environment, ..Options::new(backend) }).unwrap();
    instance.load([0], "stats-agg", arguments).unwrap();
    instance.load_as([0], "loadgen", "holder", &[]).unwrap();
    instance
}

/// One module's life: what it says of itself, what is reported of it, and for how long it lived, at least and at most.
struct Life {
    own: Value,
    /// How long each wakeup worked, at least and at most, by itself, each in ascending order.
    turns: [Vec<f64>; 2],
    seen: Value,
    seconds: (f64, f64),
}

fn live(instance: &Instance, kind: Kind) -> Life {
    let name = format!("loadgen-{kind:?}").to_lowercase();
    let load = json!({ "path": kind.file(), "name": name, "args": PLAN, "exec": kind == Kind::Exec });
    let start = Instant::now();
    instance.rpc(0, "module.load", load).unwrap();
    std::thread::sleep(RUN);
    let own = instance.rpc(0, &format!("{name}.stop"), json!({})).unwrap();
    let stopped = Instant::now();
    assert_eq!(own["errors"], 0, "{own}");
    let turns = instance.rpc(0, &format!("{name}.turns"), json!({})).unwrap();
    let turns = ["least_s", "most_s"].map(|of| turns[of].as_array().unwrap().iter().map(number).collect());
    // It stays for a while: the kernel's account of a thread ends with the thread.
    let seen = || tree(instance)["modules"][&name].clone();
    let cpu = |seen: &Value| seen["cpu_s"].as_f64().unwrap_or(0.0);
    eventually("it is reported", LIMIT, seen, |seen| cpu(seen) >= number(&own["cpu_s"]));
    std::thread::sleep(IDLE);
    let least = number(&own["age_s"]) + stopped.elapsed().as_secs_f64();
    instance.remove([0], &name).unwrap();
    let seconds = (least, start.elapsed().as_secs_f64());
    // And whatever else comes.
    std::thread::sleep(IDLE);
    Life { own, turns, seen: seen(), seconds }
}

/// Fails unless `seen` is between `least` and `most`, give or take the tolerance.
fn agree(what: &str, kind: Kind, seen: f64, (least, most): (f64, f64)) {
    let off = 100.0 * (seen / seen.clamp(least, most) - 1.0);
    say(&format!("{kind:?} {what}: reported {seen:.4}, itself {least:.4} to {most:.4} ({off:+.2} %)"));
    let (least, most) = (least * (1.0 - TOLERANCE), most * (1.0 + TOLERANCE));
    assert!(seen >= least && seen <= most, "{kind:?} {what}: {seen} is not between {least} and {most}");
}

fn turns_agree(kind: Kind, life: &Life) {
    let of = |key: &str| number(&life.seen[key]);
    let own = |key: &str| number(&life.own[key]);
    let (turns, calls) = (own("wakeups"), own("calls"));
    // What a module does around its known work: a tenth of a millisecond a turn, Python's start a good deal more.
    let aside = if kind == Kind::Python { 0.5 } else { 0.05 } + 1e-4 * turns;
    // Time in a call in which it had no processor is waiting if it waited already, else work.
    let (waited, queued) = (own("waited_s"), own("queued_s"));
    let work = own("busy_s") + own("spun_s") + own("blocked_s") - waited - queued;
    agree("wakeups", kind, of("wakeups"), (turns, turns + OTHER_TURNS + life.seconds.1));
    agree("work", kind, of("work_s"), (work, work + queued + aside));
    // It waits for a moment, too, to be told who it is.
    agree("blocked", kind, of("blocked_s"), (waited, waited + queued + 0.05));
    let both = work + waited + queued;
    agree("work and blocked", kind, of("work_s") + of("blocked_s"), (both, both + aside + 0.05));
    agree("blocked calls", kind, of("blocked_calls"), (calls, calls + OTHER_TURNS));
    let wall = of("work_s") + of("blocked_s") + of("sleep_s");
    // A process exists for some time before its module, and nobody sees its last moments.
    agree("wall", kind, wall, life.seconds);
    agree("sleep", kind, of("sleep_s"), (wall - both - aside - 0.05, wall - both));
    agree(
        "longest",
        kind,
        number(&life.seen["longest_work_s"]["max"]),
        (own("spun_s"), own("spun_s") + 0.001),
    );
    quantiles_agree(kind, life);
}

/// Of all turns that are reported its own are known one by one. Of the others one is the long slice, longer than any, and
/// the rest have next to no work, less than any. So each quantile is that of one of its own turns, give or take a rank.
fn quantiles_agree(kind: Kind, life: &Life) {
    let all = number(&life.seen["work_per_wakeup_s"]["count"]);
    let [least, most] = &life.turns;
    let shorter = all - least.len() as f64 - 1.0;
    for (name, q) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
        let rank = (q * all).ceil() - shorter;
        assert!(
            rank >= 1.0 && rank <= least.len() as f64,
            "{name} of {all} turns is none of its {}",
            least.len()
        );
        let next = most.get(rank as usize).copied().unwrap_or_else(|| number(&life.own["spun_s"]));
        let bounds = (least[(rank as usize).saturating_sub(2)], next + 2e-4);
        agree(name, kind, number(&life.seen["work_per_wakeup_s"][name]), bounds);
    }
}

/// Where a module's numbers come from.
fn source(seen: &Value) -> Vec<&String> {
    seen["source"].as_object().map(|sources| sources.keys().collect()).unwrap_or_default()
}

fn attached_threads_are_reported_as_what_they_do(backend: Backend) {
    let instance = instance(backend, false, &["period=500ms"]);
    let life = live(&instance, Kind::Thread);
    assert_eq!(source(&life.seen), ["attach"]);
    turns_agree(Kind::Thread, &life);
    end(instance);
}

fn preloaded_modules_of_every_kind_are_reported_as_what_they_do(backend: Backend) {
    let instance = instance(backend, true, &["period=500ms"]);
    for &kind in Kind::all(&instance) {
        let life = live(&instance, kind);
        assert_eq!(source(&life.seen), ["preload"], "{kind:?}");
        turns_agree(kind, &life);
    }
    end(instance);
}

/// What the host has taken of this machine's processors so far (proc(5), `steal`), in seconds.
fn stolen_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let steal: f64 = stat.lines().next().unwrap().split_ascii_whitespace().nth(8).unwrap().parse().unwrap();
    // The unit of /proc/stat, on all architectures.
    steal / 100.0
}

/// It knows no turns: time on a processor, and waiting for one.
fn the_kernel_s_account_of_every_kind_is_what_they_do(backend: Backend) {
    let instance = instance(backend, false, &["period=500ms", "probe=proc"]);
    for &kind in Kind::all(&instance) {
        let stolen = stolen_s();
        let Life { own, seen, .. } = live(&instance, kind);
        let stolen = stolen_s() - stolen;
        assert_eq!(source(&seen), ["proc"], "{kind:?}");
        assert!(["wakeups", "work_s", "blocked_s"].iter().all(|key| seen[*key].is_null()), "{seen}");
        let (cpu, queue) = (number(&seen["cpu_s"]), number(&seen["runq_wait_s"]));
        let own = |key: &str| number(&own[key]);
        // Its answer, and its end.
        let after = if kind == Kind::Python { 0.1 } else { 0.02 };
        agree("CPU", kind, cpu, (own("cpu_s"), own("cpu_s") + after));
        // Of its calls and its sleep, too.
        agree("queue", kind, queue, (own("runq_wait_s"), own("runq_wait_s") + 0.5));
        // Work is time on a processor or waiting for one, or what the host of a virtual machine took of it.
        let (work, all) = (own("busy_s") + own("spun_s"), cpu + queue + stolen);
        say(&format!("{kind:?} work: {work:.4} of {cpu:.4} CPU, {queue:.4} queue, {stolen:.2} stolen"));
        assert!(all >= work * (1.0 - TOLERANCE), "{kind:?}: {cpu}, {queue} and {stolen} of {work}");
        assert!(number(&seen["switches_voluntary"]) >= own("calls"), "{seen}");
    }
    end(instance);
}

fn end(instance: Instance) {
    instance.remove([0], "holder").unwrap();
    instance.remove([0], "stats-agg").unwrap();
    instance.stop().unwrap();
}
