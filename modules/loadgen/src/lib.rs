//! A broker module of known behaviour, to hold measurements against.
//!
//! | argument | meaning | default |
//! |---|---|---|
//! | `rate=` | wakeups a second, by a timer | 0: none |
//! | `busy=` | time of work in each wakeup (FSD) | 0 |
//! | `block=` | time in a synchronous RPC in each wakeup (FSD) | 0 |
//! | `holder=` | the service that answers that RPC: this module, loaded a second time under that name | `holder` |
//! | `push=` | in each wakeup, add so much to the counter `loadgen.pushed`, and record a sample in `loadgen.beat_s` | 0 |
//! | `fds=` | so many descriptors held open, until the module ends | 0 |
//! | `spin=` | once, in a wakeup right after the load, work for so long (FSD) | 0 |
//!
//! `NAME.stats-get` says what it did, by its own clock: `{"wakeups":…,"busy_s":…,"busy_quantiles_s":[…],
//! "blocked_s":…,"waited_s":…,"spun_s":…,"pushed":…,"errors":…}`; the quantiles of work per wakeup are 0.5, 0.9, 0.97, 0.99 and 1,
//! and `waited_s` is what of `blocked_s` was not time on a processor. `NAME.hold {"seconds":s}` is answered after that time. `NAME.panic` panics in its handler.
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
const TURNS_MAX: usize = 100_000;
/// Descriptors that are held at most.
const FDS_MAX: u32 = 10_000;
/// What the holder may add to `block` before the wait is given up.
const HOLDER_SLACK: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq)]
struct Plan {
    interval: Option<Duration>,
    busy: Duration,
    block: Duration,
    holder: String,
    spin: Duration,
    push: u32,
    fds: u32,
}

impl Plan {
    fn parse(arguments: &[String]) -> Result<Self, Error> {
        let zero = Duration::ZERO;
        let holder = "holder".into();
        let mut plan = Plan { interval: None, busy: zero, block: zero, holder, spin: zero, push: 0, fds: 0 };
        for argument in arguments {
            let (key, value) = argument.split_once('=').unwrap_or((argument, ""));
            match key {
                "rate" => plan.interval = interval(value)?,
                "busy" => plan.busy = parse_duration(key, value)?,
                "block" => plan.block = parse_duration(key, value)?,
                "holder" if !value.is_empty() => plan.holder = value.to_owned(),
                "spin" => plan.spin = parse_duration(key, value)?,
                "push" => plan.push = count(key, value, u32::MAX)?,
                "fds" => plan.fds = count(key, value, FDS_MAX)?,
                _ => {
                    let allowed = "rate=N, busy=TIME, block=TIME, holder=SERVICE, spin=TIME, push=N, fds=N";
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

#[derive(Default)]
struct Done {
    wakeups: u64,
    busy: Duration,
    /// The work of each wakeup, as far as there is room.
    turns: Vec<Duration>,
    blocked: Duration,
    /// Of that, what was not time on a processor.
    waited: Duration,
    spun: Duration,
    pushed: u64,
    errors: u64,
}

/// The time that this thread has had on a processor.
fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

impl Done {
    /// 0.5, 0.9, 0.97, 0.99 and 1 of the work of a wakeup, in seconds.
    fn quantiles(&self) -> Option<[f64; 5]> {
        let mut turns = self.turns.clone();
        turns.sort_unstable();
        let last = turns.len().checked_sub(1)?;
        Some([0.5, 0.9, 0.97, 0.99, 1.0].map(|q| turns[(last as f64 * q) as usize].as_secs_f64()))
    }
}

struct Loadgen {
    plan: Plan,
    done: Done,
    pushes: Option<Pushes>,
    _files: Vec<File>,
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
        if !self.plan.busy.is_zero() {
            let worked = work(self.plan.busy);
            self.done.busy += worked;
            if self.done.turns.len() < TURNS_MAX {
                self.done.turns.push(worked);
            }
        }
        if !self.plan.block.is_zero() {
            let (start, cpu) = (Instant::now(), thread_cpu());
            if let Err(error) = self.block(scope) {
                if self.done.errors == 0 {
                    let hint = "is it loaded (flux module load --name=HOLDER loadgen.so)?";
                    scope.log(Level::Err, &format!("{}.hold: {error}; {hint}", self.plan.holder));
                }
                self.done.errors += 1;
            }
            let took = start.elapsed();
            self.done.blocked += took;
            self.done.waited += took.saturating_sub(thread_cpu().saturating_sub(cpu));
        }
    }

    fn block(&self, scope: &Scope<Self>) -> Result<(), Error> {
        let payload = json!({ "seconds": self.plan.block.as_secs_f64() });
        let topic = format!("{}.hold", self.plan.holder);
        scope.rpc(&topic, Payload::Json(&payload), Node::Any)?.wait(self.plan.block + HOLDER_SLACK).map(drop)
    }

    fn hold(&mut self, scope: &Scope<Self>, request: &Request<'_>) -> Result<Answer, Error> {
        let payload = request.json()?;
        let seconds = payload["seconds"].as_f64().filter(|s| (0.0..=HOLD_MAX.as_secs_f64()).contains(s));
        let seconds = seconds.ok_or_else(|| {
            Error::invalid(format!(
                "hold: expected {{\"seconds\": 0 to {}}}, got {payload}",
                HOLD_MAX.as_secs()
            ))
        })?;
        let number = self.holds;
        self.holds += 1;
        let timer = scope.timer(Duration::from_secs_f64(seconds), Duration::ZERO, move |loadgen, _| {
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
            "busy_quantiles_s": self.done.quantiles(),
            "blocked_s": self.done.blocked.as_secs_f64(),
            "waited_s": self.done.waited.as_secs_f64(),
            "spun_s": self.done.spun.as_secs_f64(),
            "pushed": self.done.pushed,
            "errors": self.done.errors,
        })))
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
        let (done, held) = (Done::default(), HashMap::new());
        Ok(Loadgen { plan, done, pushes, _files: files, beat, _spin: spin, held, holds: 0 })
    }

    fn methods() -> Vec<Method<Self>> {
        vec![
            Method::request("hold", Self::hold),
            Method::request("stats-get", Self::stats_get),
            Method::request("stop", Self::stop),
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
        let plan =
            parse(&["rate=100", "busy=2ms", "block=1ms", "holder=h2", "spin=3s", "push=7", "fds=9"]).unwrap();
        let ms = Duration::from_millis;
        let (interval, holder) = (Some(ms(10)), "h2".into());
        let wanted = Plan { interval, busy: ms(2), block: ms(1), holder, spin: ms(3000), push: 7, fds: 9 };
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
