//! A broker module of known behaviour, to hold measurements against.
//!
//! | argument | meaning | default |
//! |---|---|---|
//! | `rate=` | wakeups a second, by a timer | 0: none |
//! | `busy=` | time of work in each wakeup (FSD) | 0 |
//! | `block=` | time in a synchronous RPC in a wakeup (FSD) | 0 |
//! | `every=` | one in so many wakeups makes that RPC | 1 |
//! | `holder=` | the service that answers that RPC: this module, loaded a second time under that name | `holder` |
//! | `push=` | in each wakeup, add so much to the counter `loadgen.pushed`, and record a sample in `loadgen.beat_s` | 0 |
//! | `fds=` | so many descriptors held open, until the module ends | 0 |
//! | `leak=` | in each wakeup, so many bytes of memory that are never freed | 0 |
//! | `spin=` | once, in a wakeup right after the load, work for so long (FSD) | 0 |
//!
//! `NAME.stats-get` says what it did, by its own clock: `{"wakeups":…,"busy_s":…,"spun_s":…,"calls":…,"blocked_s":…,
//! "waited_s":…,"queued_s":…,"cpu_s":…,"runq_wait_s":…,"age_s":…,"pushed":…,"errors":…}`. Of `blocked_s`, the time in
//! RPCs, `waited_s` was spent asleep and `queued_s` waiting for a processor (before it slept or after: nobody inside can
//! tell); `cpu_s` is all of its thread's time on a processor, `runq_wait_s` all of its time waiting for one, `age_s` the
//! time since its load. `NAME.turns` says how long each wakeup worked, at least and at most (whether what was queued is
//! work is as uncertain), each in ascending order: `{"least_s":[…],"most_s":[…]}`. `NAME.hold {"seconds":s}` is answered
//! after that time. `NAME.work {"seconds":s}` works for that time and answers. `NAME.panic` panics in its handler.
//! `NAME.merge` is never answered: under the name `stats-agg`, this module is a receiver that loses what is sent to it.
//! `NAME.stop` ends its wakeups, delivers what it pushed, and answers as `stats-get` does (an error: not delivered yet).
//!
//! ```sh
//! flux module load loadgen.so rate=100 busy=2ms
//! flux module load --name=holder loadgen.so && flux module load loadgen.so rate=20 block=5ms
//! ```
#![forbid(unsafe_code)]

use flux::{
    Answer, Error, KeptRequest, Level, Method, Module, Node, Payload, Request, Scope, Watcher, parse_duration,
};
use flux_metrics::{Counter, Metrics, Timer};
use serde_json::json;
use std::collections::HashMap;
use std::fs::File;
use std::time::{Duration, Instant};

/// The fastest timer that is asked for: beyond it a wakeup costs more than the time between two.
const RATE_MAX: f64 = 10_000.0;
/// The longest that `hold` holds.
const HOLD_MAX: Duration = Duration::from_secs(60);
/// How long a stop waits for what was pushed to be delivered.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// Wakeups whose work is remembered one by one.
const TURNS_MAX: usize = 10_000;
/// Time on a processor, time waiting for one, and how often it got one, of the thread that reads it.
const SCHEDSTAT: &str = "/proc/thread-self/schedstat";
/// Descriptors that are held at most.
const FDS_MAX: u32 = 10_000;
/// The most that is leaked in a wakeup.
const LEAK_MAX: u32 = 64 << 20;
/// What the holder may add to `block` before the wait is given up.
const HOLDER_SLACK: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq)]
struct Plan {
    interval: Option<Duration>,
    busy: Duration,
    block: Duration,
    every: u64,
    holder: String,
    spin: Duration,
    push: u32,
    fds: u32,
    leak: u32,
}

impl Plan {
    fn parse(arguments: &[String]) -> Result<Self, Error> {
        let zero = Duration::ZERO;
        let holder = "holder".into();
        let mut plan = Plan {
            interval: None,
            busy: zero,
            block: zero,
            every: 1,
            holder,
            spin: zero,
            push: 0,
            fds: 0,
            leak: 0,
        };
        for argument in arguments {
            let (key, value) = argument.split_once('=').unwrap_or((argument, ""));
            match key {
                "rate" => plan.interval = interval(value)?,
                "busy" => plan.busy = parse_duration(key, value)?,
                "block" => plan.block = parse_duration(key, value)?,
                "holder" if !value.is_empty() => plan.holder = value.to_owned(),
                "spin" => plan.spin = parse_duration(key, value)?,
                "push" => plan.push = count(key, value, u32::MAX)?,
                "every" => plan.every = count(key, value, u32::MAX)?.max(1).into(),
                "leak" => plan.leak = count(key, value, LEAK_MAX)?,
                "fds" => plan.fds = count(key, value, FDS_MAX)?,
                _ => {
                    let allowed = "rate=N, busy=TIME, block=TIME, every=N, holder=SERVICE, spin=TIME, push=N, fds=N, leak=BYTES";
                    return Err(Error::invalid(format!("{argument}: unknown argument; allowed: {allowed}")));
                }
            }
        }
        Ok(plan)
    }
}

fn interval(value: &str) -> Result<Option<Duration>, Error> {
    match value.parse::<f64>() {
        Ok(0.0) => Ok(None),
        Ok(rate) if rate > 0.0 && rate <= RATE_MAX => Ok(Some(Duration::from_secs_f64(1.0 / rate))),
        _ => Err(Error::invalid(format!("rate={value}: expected wakeups a second, 0 to {RATE_MAX}"))),
    }
}

fn count(key: &str, value: &str, max: u32) -> Result<u32, Error> {
    let number = value.parse().ok().filter(|number| *number <= max);
    number.ok_or_else(|| Error::invalid(format!("{key}={value}: expected a whole number, 0 to {max}")))
}

/// The time that a request asks for.
fn seconds(method: &str, payload: &serde_json::Value) -> Result<Duration, Error> {
    let seconds = payload["seconds"].as_f64().filter(|s| (0.0..=HOLD_MAX.as_secs_f64()).contains(s));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| {
        let max = HOLD_MAX.as_secs();
        Error::invalid(format!("{method}: expected {{\"seconds\": 0 to {max}}}, got {payload}"))
    })
}

#[derive(Default)]
struct Done {
    wakeups: u64,
    busy: Duration,
    /// The work of each wakeup, at least and at most, as far as there is room.
    turns: Vec<(Duration, Duration)>,
    calls: u64,
    blocked: Duration,
    /// Of that, what was spent asleep, and what waiting for a processor.
    waited: Duration,
    queued: Duration,
    spun: Duration,
    pushed: u64,
    errors: u64,
}

/// The time that this thread has had on a processor.
fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// The time that this thread has waited for one. Zero where the kernel does not tell.
fn thread_queued() -> Duration {
    let line = std::fs::read_to_string(SCHEDSTAT).unwrap_or_default();
    let ns = line.split_ascii_whitespace().nth(1).and_then(|field| field.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}

/// These in seconds, in ascending order.
fn ascending(times: impl Iterator<Item = Duration>) -> Vec<f64> {
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    times.iter().map(Duration::as_secs_f64).collect()
}

struct Loadgen {
    plan: Plan,
    loaded: Instant,
    done: Done,
    pushes: Option<Pushes>,
    _files: Vec<File>,
    leaked: Vec<Vec<u8>>,
    beat: Option<Watcher>,
    _spin: Option<Watcher>,
    /// Requests being held, by number, with the timer that will answer each.
    held: HashMap<u64, (KeptRequest, Watcher)>,
    holds: u64,
}

/// What is pushed, and by what.
struct Pushes {
    metrics: Metrics,
    pushed: Counter,
    beats: Timer,
}

impl Pushes {
    fn new(scope: &Scope<Loadgen>) -> Result<Self, Error> {
        let metrics = Metrics::of(scope)?.prefixed("loadgen")?;
        Ok(Pushes { pushed: metrics.counter("pushed")?, beats: metrics.timer("beat_s")?, metrics })
    }
}

/// Works for `time`: the loop neither sleeps nor calls the kernel (the clock is read in user space).
fn work(time: Duration) -> Duration {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
    start.elapsed()
}

impl Loadgen {
    fn on_beat(&mut self, scope: &Scope<Self>) {
        self.done.wakeups += 1;
        let beat = self.pushes.as_ref().map(|pushes| pushes.beats.clone());
        let _timing = beat.as_ref().map(Timer::start);
        if let Some(pushes) = &self.pushes {
            pushes.pushed.add(self.plan.push.into());
            self.done.pushed += u64::from(self.plan.push);
        }
        if self.plan.leak > 0 {
            // Not zeros, which the kernel would not give pages for.
            self.leaked.push(vec![1; self.plan.leak as usize]);
        }
        let mut worked = if self.plan.busy.is_zero() { Duration::ZERO } else { work(self.plan.busy) };
        self.done.busy += worked;
        let mut uncertain = Duration::ZERO;
        if !self.plan.block.is_zero() && self.done.wakeups.is_multiple_of(self.plan.every) {
            let [busy, queued] = self.call(scope);
            (worked, uncertain) = (worked + busy, queued);
        }
        if self.done.turns.len() < TURNS_MAX {
            self.done.turns.push((worked, worked + uncertain));
        }
    }

    /// Makes the RPC. What of it was time on a processor, and what time waiting for one.
    fn call(&mut self, scope: &Scope<Self>) -> [Duration; 2] {
        let (start, cpu, queued) = (Instant::now(), thread_cpu(), thread_queued());
        if let Err(error) = self.block(scope) {
            if self.done.errors == 0 {
                let hint = "is it loaded (flux module load --name=HOLDER loadgen.so)?";
                scope.log(Level::Err, &format!("{}.hold: {error}; {hint}", self.plan.holder));
            }
            self.done.errors += 1;
        }
        let (queued, cpu) = (thread_queued().saturating_sub(queued), thread_cpu().saturating_sub(cpu));
        let took = start.elapsed();
        self.done.calls += 1;
        self.done.blocked += took;
        self.done.waited += took.saturating_sub(cpu + queued);
        self.done.queued += queued;
        [cpu, queued]
    }

    fn block(&self, scope: &Scope<Self>) -> Result<(), Error> {
        let payload = json!({ "seconds": self.plan.block.as_secs_f64() });
        let topic = format!("{}.hold", self.plan.holder);
        scope.rpc(&topic, Payload::Json(&payload), Node::Any)?.wait(self.plan.block + HOLDER_SLACK).map(drop)
    }

    fn work(&mut self, _: &Scope<Self>, request: &Request<'_>) -> Result<Answer, Error> {
        self.done.busy += work(seconds("work", &request.json()?)?);
        Ok(Answer::Empty)
    }

    fn hold(&mut self, scope: &Scope<Self>, request: &Request<'_>) -> Result<Answer, Error> {
        let time = seconds("hold", &request.json()?)?;
        let number = self.holds;
        self.holds += 1;
        let timer = scope.timer(time, Duration::ZERO, move |loadgen, _| {
            if let Some((request, _timer)) = loadgen.held.remove(&number) {
                request.respond(Ok(Answer::Empty));
            }
        })?;
        self.held.insert(number, (scope.keep(request)?, timer));
        Ok(Answer::Later)
    }

    fn stop(&mut self, scope: &Scope<Self>, request: &Request<'_>) -> Result<Answer, Error> {
        self.beat = None;
        if let Some(pushes) = &self.pushes {
            pushes.metrics.flush(FLUSH_TIMEOUT)?;
        }
        self.stats_get(scope, request)
    }

    fn stats_get(&mut self, _scope: &Scope<Self>, _request: &Request<'_>) -> Result<Answer, Error> {
        Ok(Answer::json(json!({
            "wakeups": self.done.wakeups,
            "busy_s": self.done.busy.as_secs_f64(),
            "spun_s": self.done.spun.as_secs_f64(),
            "calls": self.done.calls,
            "blocked_s": self.done.blocked.as_secs_f64(),
            "waited_s": self.done.waited.as_secs_f64(),
            "queued_s": self.done.queued.as_secs_f64(),
            "cpu_s": thread_cpu().as_secs_f64(),
            "runq_wait_s": thread_queued().as_secs_f64(),
            "age_s": self.loaded.elapsed().as_secs_f64(),
            "pushed": self.done.pushed,
            "errors": self.done.errors,
        })))
    }

    fn turns(&mut self, _scope: &Scope<Self>, _request: &Request<'_>) -> Result<Answer, Error> {
        let turns = &self.done.turns;
        Ok(Answer::json(json!({
            "least_s": ascending(turns.iter().map(|(least, _)| *least)),
            "most_s": ascending(turns.iter().map(|(_, most)| *most)),
        })))
    }

    fn merge(&mut self, _scope: &Scope<Self>, _request: &Request<'_>) -> Result<Answer, Error> {
        Ok(Answer::Later)
    }

    fn panic(&mut self, _scope: &Scope<Self>, _request: &Request<'_>) -> Result<Answer, Error> {
        panic!("loadgen was asked to panic")
    }
}

impl Module for Loadgen {
    fn load(scope: &Scope<Self>, arguments: &[String]) -> Result<Self, Error> {
        let plan = Plan::parse(arguments)?;
        let beat =
            plan.interval.map(|interval| scope.timer(interval, interval, Self::on_beat)).transpose()?;
        let spin = (!plan.spin.is_zero()).then(|| {
            scope.timer(Duration::ZERO, Duration::ZERO, |loadgen, _| {
                loadgen.done.spun += work(loadgen.plan.spin)
            })
        });
        let spin = spin.transpose()?;
        let pushes = (plan.push > 0).then(|| Pushes::new(scope)).transpose()?;
        let open = |_| File::open("/dev/null");
        let files = (0..plan.fds).map(open).collect::<Result<_, _>>();
        let files = files.map_err(|error| {
            let errnum = error.raw_os_error().unwrap_or(libc::EIO);
            Error::new(errnum, format!("fds={}: opening /dev/null: {error}", plan.fds))
        })?;
        let (loaded, done, held) = (Instant::now(), Done::default(), HashMap::new());
        Ok(Loadgen {
            plan,
            loaded,
            done,
            pushes,
            _files: files,
            leaked: Vec::new(),
            beat,
            _spin: spin,
            held,
            holds: 0,
        })
    }

    fn methods() -> Vec<Method<Self>> {
        vec![
            Method::request("hold", Self::hold),
            Method::request("work", Self::work),
            Method::request("stats-get", Self::stats_get),
            Method::request("stop", Self::stop),
            Method::request("turns", Self::turns),
            Method::request("merge", Self::merge),
            Method::request("panic", Self::panic),
        ]
    }
}

flux::module!(Loadgen);

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Plan, Error> {
        Plan::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_plan_is_what_its_arguments_say() {
        let words = [
            "rate=100",
            "busy=2ms",
            "block=1ms",
            "every=5",
            "holder=h2",
            "spin=3s",
            "push=7",
            "fds=9",
            "leak=3",
        ];
        let plan = parse(&words).unwrap();
        let ms = Duration::from_millis;
        let (interval, holder) = (Some(ms(10)), "h2".into());
        let wanted = Plan {
            interval,
            busy: ms(2),
            block: ms(1),
            every: 5,
            holder,
            spin: ms(3000),
            push: 7,
            fds: 9,
            leak: 3,
        };
        assert_eq!(plan, wanted);
    }

    #[test]
    fn a_bad_argument_is_named_with_what_is_allowed() {
        for (word, part) in [
            ("rate=x", "rate=x: expected wakeups a second"),
            ("rate=-1", "rate=-1: expected"),
            ("rate=NaN", "rate=NaN: expected"),
            ("push=-1", "push=-1: expected a whole number"),
            ("fds=10001", "fds=10001: expected a whole number, 0 to 10000"),
            ("every=x", "every=x: expected a whole number"),
            ("busy=fast", "busy=fast: expected a duration"),
            ("nonsense=1", "nonsense=1: unknown argument; allowed: rate=N"),
            ("holder=", "holder=: unknown argument"),
            ("", ": unknown argument"),
        ] {
            let error = parse(&[word]).unwrap_err().to_string();
            assert!(error.contains(part), "{word}: {error}");
        }
    }
}
