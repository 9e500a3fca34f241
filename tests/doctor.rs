//! `flux stats doctor`: what users have run into is named first, and an instance that is well, however busy, hears nothing.

use flux_testbed::{Backend, Instance, Options};
use serde_json::{Value, json};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tests::{doctor, eventually, facts, ills, long, number, query, real, series};

/// Rules want half a minute, or a whole one, of what they tell of; the rest is for a busy machine.
const LIMIT: Duration = Duration::from_secs(240);
/// As much history as any rule wants, and some.
const ENOUGH_S: f64 = 75.0;

facts! {
    a_module_that_spins_is_named_first,
    a_module_that_is_blocked_is_named_first,
    a_module_that_stalls_is_named_first,
    an_idle_instance_hears_nothing_from_its_first_moment_on,
    ranks_without_the_module_leave_a_doubt,
}

fn start(backend: Backend, size: u32) -> Instance {
    start_with(backend, size, &["period=500ms", "stall=2s"])
}

fn start_with(backend: Backend, size: u32, arguments: &[&str]) -> Instance {
    let instance = Instance::start(Options { size, ..Options::new(backend) }).unwrap();
    instance.load(0..size, "stats-agg", arguments).unwrap();
    instance
}

fn end(instance: Instance) {
    instance.remove(0..instance.size(), "stats-agg").unwrap();
    instance.stop().unwrap();
}

/// Waits until the doctor finds it, which must then be the worst; the finding, whose query shows something.
fn named_first(instance: &Instance, name: &str) -> Value {
    let ask = || doctor(instance, &[]);
    let is_named = |told: &Value| ills(told).iter().any(|finding| finding["name"] == name);
    let (status, told) = eventually(name, LIMIT, ask, |(_, told)| is_named(told));
    let finding = ills(&told)[0].clone();
    assert_eq!((status, finding["name"].as_str()), (Some(4), Some(name)), "{told:#}");
    // Whoever has a shell can do as it says.
    let words = finding["query"].as_str().unwrap().strip_prefix("flux stats ").unwrap().to_owned();
    let script = format!("\"$0\" {words}");
    let shown =
        instance.command(0, "sh").args(["-c", &script]).arg(instance.program("flux-stats")).output().unwrap();
    let rows = String::from_utf8_lossy(&shown.stdout).lines().count();
    assert!(matches!(shown.status.code(), Some(0 | 3)) && rows > 1, "{words}: {shown:?}");
    finding
}

/// Asks until there is enough history for every rule: nothing is ever found.
fn hears_nothing(instance: &Instance) {
    let ask = || {
        let (status, told) = doctor(instance, &[]);
        assert_eq!(ills(&told), Vec::<&Value>::new());
        // Whether an answer has come at all is another's concern.
        let well = told["healthy"] == true;
        assert!(told.is_null() || status == Some(if well { 0 } else { 4 }), "{status:?} {told:#}");
        told["looked_at"]["seconds"].as_f64()
    };
    eventually("enough history", LIMIT, ask, |known| known.is_some_and(|seconds| seconds >= ENOUGH_S));
}

/// Waits until nothing is found any more.
fn well_again(instance: &Instance) {
    let ask = || doctor(instance, &[]).1;
    eventually("well again", LIMIT, ask, |told| !told.is_null() && ills(told).is_empty());
}

fn a_module_that_spins_is_named_first(backend: Backend) {
    // The double's broker does not say when it last heard of a module: nobody knows that it gets nowhere.
    let (name, says) = match backend {
        Backend::Real(_) => ("module-spinning", "loadgen spins"),
        Backend::Embedded => ("module-busy", "loadgen works"),
    };
    let instance = start(backend, 3);
    // Busy for nineteen twentieths of its time, or all that it gets.
    instance.load([2], "loadgen", &["rate=300", "busy=3.2ms"]).unwrap();
    let found = named_first(&instance, name);
    assert_eq!(
        (&found["worst_rank"], &found["ranks"], &found["severity"]),
        (&json!(2), &json!("2"), &json!("warning"))
    );
    assert_eq!(found["hosts"].as_array().unwrap().len(), 1);
    assert!(found["sentence"].as_str().unwrap().starts_with(says), "{found}");
    instance.remove([2], "loadgen").unwrap();
    well_again(&instance);
    end(instance);
}

fn a_module_that_is_blocked_is_named_first(backend: Backend) {
    let instance = start(backend, 2);
    instance.load_as([1], "loadgen", "holder", &[]).unwrap();
    instance.load([1], "loadgen", &["rate=10", "block=80ms"]).unwrap();
    let found = named_first(&instance, "module-blocked");
    assert_eq!(found["worst_rank"], 1);
    assert!(found["sentence"].as_str().unwrap().starts_with("loadgen is blocked"), "{found}");
    instance.remove([1], "loadgen").unwrap();
    instance.remove([1], "holder").unwrap();
    end(instance);
}

fn a_module_that_stalls_is_named_first(backend: Backend) {
    let instance = start(backend, 2);
    instance.load([1], "loadgen", &["spin=30s"]).unwrap();
    let found = named_first(&instance, "module-stalled");
    assert_eq!((&found["worst_rank"], &found["severity"]), (&json!(1), &json!("critical")));
    instance.remove([1], "loadgen").unwrap();
    end(instance);
}

fn an_idle_instance_hears_nothing_from_its_first_moment_on(backend: Backend) {
    let instance = start_with(backend, 4, &[]);
    let all = || query(&instance, &["none"])["ranks"]["covered"].clone();
    eventually("all ranks", LIMIT, all, |covered| covered == "0-3");
    hears_nothing(&instance);
    end(instance);
}

fn ranks_without_the_module_leave_a_doubt(backend: Backend) {
    let instance = start(backend, 3);
    instance.remove([2], "stats-agg").unwrap();
    let ask = || doctor(&instance, &[]);
    let (status, told) = eventually("a doubt", LIMIT, ask, |(_, told)| told["looked_at"]["absent"] == "2");
    assert_eq!(ills(&told), Vec::<&Value>::new());
    assert_eq!(status, Some(if told["healthy"] == true { 3 } else { 4 }));
    let said = instance.command(0, instance.program("flux-stats")).arg("doctor").output().unwrap();
    let text = String::from_utf8(said.stdout).unwrap();
    assert!(text.contains("looked at ranks 0-1 of 3") && text.contains("2 have no stats-agg"), "{text}");
    // Without it at all there is no answer.
    instance.remove([0, 1], "stats-agg").unwrap();
    let said = instance.command(0, instance.program("flux-stats")).arg("doctor").output().unwrap();
    let text = String::from_utf8(said.stderr).unwrap();
    assert_eq!((said.status.code(), text.contains("run `flux stats load`")), (Some(1), true), "{text}");
    instance.stop().unwrap();
}

/// 6009, 7533: a service that is kept busy by what others ask of it.
#[test]
fn a_service_under_constant_load_is_named_first() {
    if !long("a_service_under_constant_load_is_named_first") {
        return;
    }
    let Some(backend) = real() else { return };
    let instance = start(backend, 2);
    instance.load([1], "loadgen", &[]).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    instance.rpc(1, "loadgen.work", json!({ "seconds": 0.5 })).unwrap();
                }
            });
        }
        let found =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| named_first(&instance, "module-busy")));
        done.store(true, Ordering::Relaxed);
        assert_eq!(found.unwrap()["worst_rank"], 1);
    });
    instance.remove([1], "loadgen").unwrap();
    end(instance);
}

/// Ends with its owner.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn flux(instance: &Instance) -> String {
    match instance.backend() {
        Backend::Real(flux) => flux.to_string_lossy().into_owned(),
        Backend::Embedded => panic!("no flux"),
    }
}

/// 6114, 6116, 3505: messages come faster than a module reads them.
#[test]
fn a_queue_that_grows_is_named_first() {
    let Some(backend) = real() else { return };
    let instance = start(backend, 2);
    // Longer than its timer waits: each turn has a tick in it, and reads one message.
    instance.load([1], "loadgen", &["rate=20", "busy=60ms"]).unwrap();
    let arguments = ["ping", "--interval=0.03", "--count=100000", "loadgen"];
    let mut ping = instance.command(1, flux(&instance));
    let ping = Background(ping.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let found = named_first(&instance, "queue-growing");
    assert_eq!(found["worst_rank"], 1);
    assert!(found["sentence"].as_str().unwrap().contains("wait for loadgen"), "{found}");
    drop(ping);
    // That it shall end is in the queue, too.
    let queue = || series(&instance, "modules.loadgen.sendq")["sum"].as_f64();
    eventually("an empty queue", LIMIT, queue, |queue| *queue == Some(0.0));
    instance.remove([1], "loadgen").unwrap();
    end(instance);
}

/// What a rank did while the root was away arrives at once: it is not taken for what the rank does in a second.
#[test]
fn what_arrives_late_is_not_told_as_more_than_there_is_time_for() {
    let Some(backend) = real() else { return };
    let instance = start(backend, 2);
    instance.load([1], "loadgen", &["rate=20", "busy=49ms"]).unwrap();
    named_first(&instance, "module-spinning");
    let root = instance.broker_pid(0).unwrap().to_string();
    instance.run(1, "kill", &["-STOP", &root]).unwrap();
    std::thread::sleep(Duration::from_secs(15));
    instance.run(1, "kill", &["-CONT", &root]).unwrap();
    let late = || series(&instance, "modules.loadgen.wakeups")["total"].as_f64();
    let before = late();
    eventually("what came late", LIMIT, late, |now| *now > before);
    let found = named_first(&instance, "module-spinning");
    let wakeups =
        found["evidence"].as_array().unwrap().iter().find(|fact| fact["name"] == "wakeups").unwrap();
    assert!(wakeups["value"].as_f64().unwrap() <= 21.0, "{found}");
    instance.remove([1], "loadgen").unwrap();
    end(instance);
}

/// 3505, 7803: descriptors that run out.
#[test]
fn descriptors_that_run_out_are_named_first() {
    let Some(backend) = real() else { return };
    let instance = start(backend, 2);
    let pid = instance.broker_pid(1).unwrap();
    let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    // Of this rank alone: what the other one may open is another number.
    instance.run(0, "prlimit", &[&format!("--pid={pid}"), &format!("--nofile={}:", fds + 500)]).unwrap();
    instance.load([1], "loadgen", &["fds=450"]).unwrap();
    let found = named_first(&instance, "descriptors-low");
    assert_eq!((&found["worst_rank"], &found["ranks"]), (&json!(1), &json!("1")));
    instance.remove([1], "loadgen").unwrap();
    end(instance);
}

/// 4086, 6939: brokers that are lost, and one that says nothing any more.
#[test]
fn a_lost_broker_and_a_silent_one_are_named_first() {
    let Some(backend) = real() else { return };
    let instance = start(backend, 5);
    let known = || series(&instance, "overlay.ranks_offline")["sum"].clone();
    eventually("all there", LIMIT, known, |offline| *offline == json!(0));
    let history = || doctor(&instance, &[]).1["looked_at"]["seconds"].as_f64();
    eventually("a while in which they were", LIMIT, history, |seconds| seconds.is_some_and(|s| s >= 15.0));
    // A broker that is stopped does not say which process it is.
    let stopped = instance.broker_pid(3).unwrap().to_string();
    let signal = |name: &str| {
        instance.run(0, "sh", &["-c", "kill -s \"$0\" \"$1\"", name, &stopped]).unwrap();
    };
    signal("STOP");
    let found = named_first(&instance, "ranks-missing");
    assert_eq!((&found["severity"], &found["ranks"]), (&json!("critical"), &json!("3")));
    signal("CONT");
    well_again(&instance);
    instance.kill(4).unwrap();
    named_first(&instance, "ranks-missing");
    let lost = |told: &Value| {
        let first = &ills(told)[..1];
        first.iter().any(|first| first["ranks"] == "4" && first["sentence"].to_string().contains("lost"))
    };
    let ask = || doctor(&instance, &[]).1;
    eventually("which one", LIMIT, ask, |told| !ills(told).is_empty() && lost(told));
    instance.remove(0..4, "stats-agg").unwrap();
    // That a broker was killed is an error for `flux start`, rightly.
    drop(instance);
}

/// 6114, 7809: memory that grows by more than jobs explain.
#[test]
fn memory_that_leaks_is_named_first_and_what_jobs_leave_behind_is_not() {
    if !long("memory_that_leaks_is_named_first_and_what_jobs_leave_behind_is_not") {
        return;
    }
    let Some(backend) = real() else { return };
    let instance = start(backend, 2);
    instance.load([1], "loadgen", &["rate=2", "leak=1500000"]).unwrap();
    let found = named_first(&instance, "memory-growing");
    assert_eq!(found["worst_rank"], 1);
    let grown = |name: &str| {
        let facts = found["evidence"].as_array().unwrap();
        facts.iter().find(|fact| fact["name"] == name).map(|fact| number(&fact["value"])).unwrap()
    };
    let rate = grown("growth rate");
    assert!(rate > 1e6 && rate < 6e6, "three million bytes a second: {found}");
    instance.remove([1], "loadgen").unwrap();
    end(instance);
}

/// 5909 and what admins do on purpose: jobs that are held may not run, jobs without a scheduler could.
#[test]
fn jobs_that_no_scheduler_takes_are_named_first_and_held_ones_are_not() {
    if !long("jobs_that_no_scheduler_takes_are_named_first_and_held_ones_are_not") {
        return;
    }
    let Some(backend) = real() else { return };
    let instance = start_with(backend, 2, &[]);
    let flux = flux(&instance);
    instance.run(0, &flux, &["submit", "--quiet", "--cc=1-5", "--urgency=hold", "true"]).unwrap();
    hears_nothing(&instance);
    instance.run(0, &flux, &["module", "remove", "sched-simple"]).unwrap();
    instance.run(0, &flux, &["submit", "--quiet", "--cc=1-3", "true"]).unwrap();
    let found = named_first(&instance, "jobs-held-back");
    assert!(found["sentence"].as_str().unwrap().starts_with("3 jobs may run, and no scheduler"), "{found}");
    instance.run(0, &flux, &["cancel", "--all", "--states=active"]).unwrap();
    instance.run(0, &flux, &["module", "load", "sched-simple"]).unwrap();
    end(instance);
}

/// Datagrams that nobody has read when the kernel has no more room for them.
#[test]
fn datagrams_that_are_dropped_are_named_first() {
    let Some(backend) = real() else { return };
    let instance = start_with(backend, 1, &["period=500ms", "statsd=127.0.0.1:0"]);
    let answer = query(&instance, &["none"]);
    let text = answer["statsd"].to_string();
    let port = text.split("127.0.0.1:").nth(1).and_then(|rest| {
        rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|port| port.parse::<u16>().ok())
    });
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(("127.0.0.1", port.unwrap_or_else(|| panic!("no port: {text}")))).unwrap();
    let pid = instance.broker_pid(0).unwrap().to_string();
    let signal = |name: &str| {
        // The shell's own: a system may lack the program.
        let script = ["-c", "kill -s \"$0\" \"$1\"", name, &pid];
        assert!(Command::new("sh").args(script).status().unwrap().success(), "kill -s {name} {pid}");
    };
    signal("STOP");
    let datagram = format!("app.requests:1|c{}", "\napp.requests:1|c".repeat(60));
    for _ in 0..40_000 {
        let _ = socket.send(datagram.as_bytes());
    }
    signal("CONT");
    // The kernel tells with the next one that it has room for.
    let dropped = || {
        socket.send(b"app.requests:1|c").unwrap();
        series(&instance, "stats-agg.statsd.dropped")["total"].as_f64()
    };
    eventually("what the kernel tells", LIMIT, dropped, |dropped| dropped.is_some_and(|n| n > 1000.0));
    let found = named_first(&instance, "statsd-dropping");
    assert_eq!(found["severity"], "notice");
    end(instance);
}

/// As in flux-core's own throughput test no job is really executed: then the brokers are what limits it.
#[test]
fn an_instance_that_runs_as_many_jobs_as_it_can_hears_nothing() {
    if !long("an_instance_that_runs_as_many_jobs_as_it_can_hears_nothing") {
        return;
    }
    let Some(backend) = real() else { return };
    let instance = start_with(backend, 4, &[]);
    let flux = flux(&instance);
    let done = AtomicBool::new(false);
    let submit = [
        "submit",
        "--quiet",
        "--wait",
        "--cc=1-400",
        "--setattr=system.exec.test.run_duration=0.001s",
        "true",
    ];
    let store = "for i in 1 2 3 4 5 6 7 8; do head -c 1000000 /dev/urandom | \"$0\" content store >/dev/null || exit 1; done";
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                instance.run(0, &flux, &submit).unwrap();
            }
        });
        let heard = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            instance.run(0, "sh", &["-c", store, &flux]).unwrap();
            hears_nothing(&instance);
        }));
        done.store(true, Ordering::Relaxed);
        heard.unwrap();
    });
    end(instance);
}
