//! What the end-to-end suites share: facts that hold on every backend, and what is read out of an answer.
#![forbid(unsafe_code)]

pub mod browser;

use flux_testbed::{Backend, Instance};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::Write;
use std::sync::Once;
use std::time::{Duration, Instant};

/// Makes a module of tests for each backend, one test for each fact. A backend that the machine lacks says so in one
/// line and holds nothing.
#[macro_export]
macro_rules! facts {
    ($($fact:ident),* $(,)?) => {
        mod real {
            $(#[test] fn $fact() {
                if let Some(backend) = $crate::real() {
                    super::$fact(backend);
                }
            })*
        }
        mod embedded {
            $(#[test] fn $fact() { super::$fact(::flux_testbed::Backend::Embedded) })*
        }
    };
}

/// Real Flux; where there is none, one line on standard error says so, past what captures the output of tests.
pub fn real() -> Option<Backend> {
    static SAID: Once = Once::new();
    let backend = Backend::real().unwrap();
    if backend.is_none() {
        SAID.call_once(|| say("skipped: real Flux, for there is no flux here (PATH, FLUX_STATS_FLUX)"));
    }
    backend
}

/// A line that is seen even when the test passes.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Asks until `done` says yes, and fails with the last answer when it has not within `limit`.
pub fn eventually<T: std::fmt::Debug>(
    what: &str,
    limit: Duration,
    mut ask: impl FnMut() -> T,
    done: impl Fn(&T) -> bool,
) -> T {
    let start = Instant::now();
    loop {
        let answer = ask();
        if done(&answer) {
            return answer;
        }
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}; last: {answer:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A number that a maintainer may set.
pub fn from_environment(name: &str, or: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(or)
}

/// Whether what takes minutes runs, too: `FLUX_STATS_LONG=1`. If not, one line says that `what` does not.
pub fn long(what: &str) -> bool {
    let long = from_environment("FLUX_STATS_LONG", 0) != 0;
    if !long {
        say(&format!("skipped: {what} takes minutes (FLUX_STATS_LONG=1)"));
    }
    long
}

/// For how many seconds programs push known numbers: `FLUX_STATS_PUSH_SECONDS`.
pub fn push_seconds() -> u64 {
    from_environment("FLUX_STATS_PUSH_SECONDS", 5)
}

/// SplitMix64 (Steele, Lea and Flood, 2014): reproducible, and good enough to choose a rank.
pub struct Chance(u64);

impl Chance {
    /// Everything that follows, follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Chance(seed)
    }

    /// Any of 0 to `bound` - 1.
    pub fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % u64::from(bound)) as u32
    }
}

/// The whole answer of rank 0 to a question for these series.
pub fn query(instance: &Instance, patterns: &[&str]) -> Value {
    instance.rpc(0, "stats-agg.query", json!({ "match": patterns })).unwrap()
}

/// One series of rank 0; null when it is not there.
pub fn series(instance: &Instance, name: &str) -> Value {
    query(instance, &[name])["series"][0].clone()
}

/// The merged tree of rank 0.
pub fn tree(instance: &Instance) -> Value {
    instance.rpc(0, "stats-agg.stats-get", json!({})).unwrap()
}

/// A number of an answer.
pub fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// The ranks that an answer covers, and those that are missing.
pub fn coverage(answer: &Value) -> (String, String) {
    let text = |key: &str| answer["ranks"][key].as_str().unwrap_or("?").to_owned();
    (text("covered"), text("missing"))
}

/// How `flux stats doctor` ended, and what it said as JSON.
pub fn doctor(instance: &Instance, environment: &[(OsString, OsString)]) -> (Option<i32>, Value) {
    let mut command = instance.command(0, instance.program("flux-stats"));
    let said = command.args(["doctor", "--json"]).envs(environment.iter().cloned()).output().unwrap();
    (said.status.code(), serde_json::from_slice(&said.stdout).unwrap_or(Value::Null))
}

/// What it found, but for what is true of the machine that this runs on.
pub fn ills(told: &Value) -> Vec<&Value> {
    let all = told["findings"].as_array().into_iter().flatten();
    all.filter(|finding| finding["name"] != "disk-low").collect()
}

/// What Flux's broker says of an event that comes while any module is at its end: it is muted then, and takes none. (Of one
/// that comes from another rank, it says `event` first.)
const MUTED: &str = "mcast failed to broker modules: Function not implemented";
/// With more such lines a module stays at its end, or events come to it for longer than they must.
const MUTED_MAX: usize = 3;

/// Lines of a broker's log at a level that is a complaint, but for a few that are Flux's own.
pub fn complaints(instance: &Instance, rank: u32) -> Vec<String> {
    let bad =
        |line: &String| [".err[", ".crit[", ".warning[", ".alert["].iter().any(|level| line.contains(level));
    let all: Vec<String> = instance.log(rank).unwrap().into_iter().filter(bad).collect();
    let (muted, others): (Vec<_>, Vec<_>) = all.iter().cloned().partition(|line| line.ends_with(MUTED));
    if muted.len() > MUTED_MAX { all } else { others }
}

/// Whether this is real Flux and newer than the oldest that is supported, which lacks `remove --cancel`.
pub fn has_cancel(instance: &Instance) -> bool {
    match instance.backend() {
        Backend::Embedded => true,
        Backend::Real(flux) => {
            // Flux's commands write their help to standard error.
            let script = "\"$0\" module remove --help 2>&1";
            let help = instance.run(0, "sh", &["-c", script, &flux.to_string_lossy()]);
            help.is_ok_and(|help| help.contains("--cancel"))
        }
    }
}
