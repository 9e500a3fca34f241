//! The truth table: what the probe says of a module of known behaviour, against what that says of itself, by every
//! source and for every kind of module.

use flux_testbed::{Backend, Instance, Options, Stage};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tests::{eventually, facts, has_cancel, say, tree};

const LIMIT: Duration = Duration::from_secs(30);
/// What is reported may be off by so much.
const TOLERANCE: f64 = 0.02;
/// What it is told: 15 wakeups a second, each with work and a synchronous RPC, and one long slice at the beginning.
const PLAN: [&str; 4] = ["rate=15", "busy=20ms", "block=20ms", "spin=1s"];
const RUN: Duration = Duration::from_secs(12);
/// Turns for other things than its timer: its start, its end, the request between; beside one a second, in which a
/// module of ours looks whether it is to be cancelled.
const OTHER_TURNS: f64 = 8.0;

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

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// One module's life: what it says of itself, what is reported of it, and for how long it lived.
struct Life {
    own: Value,
    seen: Value,
    seconds: f64,
}

fn live(instance: &Instance, kind: Kind) -> Life {
    let name = format!("loadgen-{kind:?}").to_lowercase();
    let load = json!({ "path": kind.file(), "name": name, "args": PLAN, "exec": kind == Kind::Exec });
    let start = Instant::now();
    instance.rpc(0, "module.load", load).unwrap();
    std::thread::sleep(RUN);
    let own = instance.rpc(0, &format!("{name}.stop"), json!({})).unwrap();
    assert_eq!(own["errors"], 0, "{own}");
    instance.remove([0], &name).unwrap();
    let seconds = start.elapsed().as_secs_f64();
    let enough = number(&own["busy_s"]) * (1.0 - TOLERANCE);
    let seen = || tree(instance)["modules"][&name].clone();
    let cpu =
        |seen: &Value| seen["cpu_s"].as_f64().unwrap_or(0.0) + seen["runq_wait_s"].as_f64().unwrap_or(0.0);
    eventually("it is reported", LIMIT, seen, |seen| cpu(seen) >= enough);
    // And whatever else comes.
    std::thread::sleep(Duration::from_secs(2));
    Life { own, seen: seen(), seconds }
}

/// Fails unless `seen` is `own`, give or take the tolerance, and what is known to lie between the two.
fn agree(what: &str, kind: Kind, seen: f64, own: f64, less: f64, more: f64) {
    say(&format!(
        "{kind:?} {what}: reported {seen:.4}, itself {own:.4} ({:+.2} %)",
        100.0 * (seen / own - 1.0)
    ));
    let (least, most) = (own * (1.0 - TOLERANCE) - less, own * (1.0 + TOLERANCE) + more);
    assert!(seen >= least && seen <= most, "{kind:?} {what}: {seen} is not between {least} and {most}");
}

fn turns_agree(kind: Kind, life: &Life) {
    let (seen, own) = (&life.seen, &life.own);
    let of = |key: &str| number(&seen[key]);
    let own_of = |key: &str| number(&own[key]);
    // What a module does around its known work: a tenth of a millisecond a turn, Python's start a good deal more.
    let aside = if kind == Kind::Python { 0.5 } else { 0.05 } + 1e-4 * own_of("wakeups");
    // A thread that is taken from its processor inside a call, while it does not wait yet, takes that for waiting.
    let taken = of("runq_wait_s");
    let (waited, called) = (own_of("waited_s"), own_of("blocked_s"));
    let work = own_of("busy_s") + own_of("spun_s") + called - waited;
    agree("wakeups", kind, of("wakeups"), own_of("wakeups"), 0.0, OTHER_TURNS + RUN.as_secs_f64());
    agree("work", kind, of("work_s"), work, 0.0, aside + taken);
    // It waits for a moment, too, to be told who it is.
    agree("blocked", kind, of("blocked_s"), waited, taken, 0.05);
    agree("work and blocked", kind, of("work_s") + of("blocked_s"), work + waited, 0.0, aside + 0.05);
    let calls = own_of("wakeups");
    assert!(of("blocked_calls") >= calls && of("blocked_calls") <= calls + OTHER_TURNS, "{seen}");
    let wall = of("work_s") + of("blocked_s") + of("sleep_s");
    // A process exists for some time before and after its reactor.
    let around = if kind == Kind::Thread { 0.05 } else { 1.5 };
    let (least, most) = (life.seconds * (1.0 - TOLERANCE) - around, life.seconds + 0.05);
    assert!(wall >= least && wall <= most, "{kind:?} wall: {wall} is not between {least} and {most}");
    agree("sleep", kind, of("sleep_s"), wall - work - waited, aside + 0.05, 0.0);
    agree("longest", kind, number(&seen["longest_work_s"]["max"]), own_of("spun_s"), 0.0, 0.001);
    // Its few other turns move ranks a little: each quantile is held between its neighbours, which on a machine that is
    // not busy are the same. Work inside the calls is not in what it says of its turns.
    let quantile = |at: usize| number(&own["busy_quantiles_s"][at]);
    let in_call = (called - waited + taken) / own_of("wakeups");
    for (name, low, itself, high, more) in
        [("p50", 0, 0, 1, in_call), ("p90", 0, 1, 3, in_call), ("p99", 1, 3, 4, taken.min(0.02) + in_call)]
    {
        let seen = number(&seen["work_per_wakeup_s"][name]);
        say(&format!("{kind:?} {name}: reported {seen:.5}, itself {:.5}", quantile(itself)));
        let (least, most) = (quantile(low) * (1.0 - TOLERANCE), quantile(high) * (1.0 + TOLERANCE) + more);
        assert!(seen >= least && seen <= most, "{kind:?} {name}: {seen} is not between {least} and {most}");
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

/// It knows no turns. Work is time on a processor or waiting for one.
fn the_kernel_s_account_of_every_kind_is_what_they_do(backend: Backend) {
    let instance = instance(backend, false, &["period=500ms", "probe=proc"]);
    for &kind in Kind::all(&instance) {
        let Life { own, seen, .. } = live(&instance, kind);
        assert_eq!(source(&seen), ["proc"], "{kind:?}");
        assert!(["wakeups", "work_s", "blocked_s"].iter().all(|key| seen[*key].is_null()), "{seen}");
        let (busy, turns) = (number(&own["busy_s"]) + number(&own["spun_s"]), number(&own["wakeups"]));
        // Around its known work it does little; a process starts, too.
        let aside = turns * 1e-3 + if kind == Kind::Thread { 0.05 } else { 1.0 };
        let (cpu, queue) = (number(&seen["cpu_s"]), number(&seen["runq_wait_s"]));
        agree("CPU", kind, cpu, busy, queue, aside);
        assert!(number(&seen["switches_voluntary"]) >= 2.0 * turns * (1.0 - TOLERANCE), "{seen}");
    }
    end(instance);
}

fn end(instance: Instance) {
    instance.remove([0], "holder").unwrap();
    instance.remove([0], "stats-agg").unwrap();
    instance.stop().unwrap();
}
