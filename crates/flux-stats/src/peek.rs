//! `flux stats peek`: brokers read from outside, through the slot tables that their probes keep. No broker is asked:
//! it may be stopped, or a module may hang, or its link upstream may be silent.

mod shown;

use crate::instance::Reach;
use crate::outcome::{Ended, Outcome, complain, print};
use clap::Args;
use serde::Serialize;
use stats_probe::peek::{Peek, PeekError, PeekThread, peek, peek_process, threads_of_process};
use stats_probe::{State, ThreadStat, module_processes};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The end of the names of slot tables in a rundir: `NAME.RANK.slots`.
const SLOTS: &str = ".slots";
/// Of the system instance, where no `FLUX_URI` says otherwise.
const SYSTEM_RUNDIR: &str = "/run/flux";
/// The version of what `--json` prints.
const VERSION: u32 = 1;
/// What brokers call their main threads, before the rank.
const BROKER: &str = "flux-broker";

/// Show what each module of this node's brokers does now, though a broker is stopped or hangs
///
/// Reads the slot tables that stats-agg keeps (probe=attach), without asking any broker. Without an argument: the
/// brokers in the rundir of FLUX_URI, else of the system instance.
#[derive(Args)]
pub(crate) struct Options {
    /// The rundir of an instance, or the process of one broker
    #[arg(value_name = "RUNDIR|PID")]
    target: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{0} is on another node: log in there, or name a rundir or a broker's pid")]
    Remote(String),
    #[error(
        "FLUX_URI is not set, and there is no system instance here ({SYSTEM_RUNDIR}): run this in an instance, or name a \
         rundir or a broker's pid"
    )]
    NoInstance,
    #[error("{}: {why}", path.display())]
    Rundir { path: PathBuf, why: std::io::Error },
    #[error(
        "{}: no slot table here (NAME.RANK.slots): is stats-agg loaded, with probe=attach? A broker without it can be \
         named by its pid",
        .0.display()
    )]
    NoTable(PathBuf),
    #[error("process {0} does not exist")]
    NoProcess(u32),
    #[error("process {pid} ({comm}) is no broker, and has no slot table: name a broker's pid, or a rundir")]
    NoBroker { pid: u32, comm: String },
    #[error("nothing could be read: {0}")]
    Unreadable(String),
}

/// One broker, as it is now.
#[derive(Debug, Serialize)]
pub(crate) struct Broker {
    /// Unknown where a pid was named.
    pub(crate) rank: Option<u32>,
    pub(crate) pid: u32,
    /// It is stopped by a signal or a debugger.
    pub(crate) stopped: bool,
    /// What its probe says of itself; nothing where there is none.
    pub(crate) probe: Option<ProbeState>,
    pub(crate) threads: Vec<Thread>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ProbeState {
    /// Its hook is in; if not, times are of when it was.
    pub(crate) active: bool,
    /// Waits in calls are told from sleep.
    pub(crate) blocked_available: bool,
    /// How long ago the broker looked at its slots itself.
    pub(crate) looked_s: Option<f64>,
    /// Threads that found no slot.
    pub(crate) overflow: u64,
}

/// A thread of a broker or of a module that is a process of its own. Times in seconds.
#[derive(Debug, Serialize)]
pub(crate) struct Thread {
    /// The module, or what the kernel calls the thread.
    pub(crate) module: String,
    /// Of a module that is a process of its own.
    pub(crate) pid: Option<u32>,
    pub(crate) tid: i32,
    pub(crate) state: &'static str,
    pub(crate) state_s: Option<f64>,
    /// How long the turn that is going on has lasted.
    pub(crate) turn_s: Option<f64>,
    /// What its turns amount to; nothing where none are timed.
    pub(crate) turns: Option<Turns>,
    pub(crate) cpu_s: Option<f64>,
    /// It stands in the middle of writing its slot: numbers may be of two moments.
    pub(crate) torn: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct Turns {
    pub(crate) wakeups: u64,
    pub(crate) work_s: f64,
    pub(crate) sleep_s: f64,
    pub(crate) blocked_s: Option<f64>,
    pub(crate) blocked_calls: u64,
    pub(crate) longest_blocked_s: f64,
    pub(crate) work_p50_s: Option<f64>,
    pub(crate) work_p99_s: Option<f64>,
    pub(crate) longest_work_s: f64,
}

pub(crate) fn run(options: &Options, reach: &Reach) -> Ended {
    print(&shown(options, reach)?)?;
    Ok(Outcome::Done)
}

fn shown(options: &Options, reach: &Reach) -> Result<String, Error> {
    let brokers = match &options.target {
        Some(target) => match target.parse() {
            Ok(pid) => vec![process(pid)?],
            Err(_) => rundir(Path::new(target))?,
        },
        None => {
            let uri = reach.uri();
            let (named, path) = (uri.is_some(), default_rundir(uri, &host())?);
            if !named && !path.exists() {
                return Err(Error::NoInstance);
            }
            rundir(&path)?
        }
    };
    if options.json {
        let json = serde_json::json!({ "version": VERSION, "brokers": brokers });
        return Ok(format!("{json:#}\n"));
    }
    Ok(brokers.iter().map(shown::broker).collect::<Vec<_>>().join("\n"))
}

/// `local://RUNDIR/local-RANK`, or `local:///run/flux/local` of the system instance; of a job on this node what `flux uri`
/// makes of its id, `ssh://HOST/RUNDIR/local-RANK`.
fn default_rundir(uri: Option<String>, host: &str) -> Result<PathBuf, Error> {
    let Some(uri) = uri else { return Ok(SYSTEM_RUNDIR.into()) };
    let here = |rest: &str| {
        let (authority, _) = rest.split_once('/')?;
        let named = authority.rsplit('@').next().unwrap_or_default().split(':').next().unwrap_or_default();
        let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        let same = named == host || (!named.is_empty() && short(named) == short(host));
        same.then(|| rest[authority.len()..].to_owned())
    };
    let socket = match uri.strip_prefix("ssh://") {
        Some(rest) => here(rest),
        None => uri.strip_prefix("local://").map(str::to_owned),
    };
    let rundir = socket.as_deref().map(Path::new).and_then(Path::parent).map(Path::to_owned);
    rundir.ok_or(Error::Remote(uri))
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// All brokers that show their slots in a rundir. Two modules of a broker may show the same.
fn rundir(path: &Path) -> Result<Vec<Broker>, Error> {
    let failed = |why| Error::Rundir { path: path.to_owned(), why };
    let entries = std::fs::read_dir(path).map_err(failed)?;
    let tables = entries.flatten().map(|entry| entry.path());
    let tables: Vec<PathBuf> =
        tables.filter(|path| path.to_string_lossy().ends_with(SLOTS) && path.is_symlink()).collect();
    if tables.is_empty() {
        return Err(Error::NoTable(path.to_owned()));
    }
    let (mut brokers, mut failures) = (BTreeMap::new(), Vec::new());
    for table in tables {
        match peek(&table) {
            Ok(seen) => drop(brokers.insert((rank_of(&table), seen.pid), seen)),
            Err(error) => failures.push(error.to_string()),
        }
    }
    if brokers.is_empty() {
        return Err(Error::Unreadable(failures.join("; ")));
    }
    for failure in failures {
        complain(&failure);
    }
    Ok(brokers.into_iter().map(|((rank, pid), seen)| broker(rank, pid, Some(&seen))).collect())
}

fn rank_of(table: &Path) -> Option<u32> {
    let name = table.file_name()?.to_str()?.strip_suffix(SLOTS)?;
    name.rsplit('.').next()?.parse().ok()
}

fn process(pid: u32) -> Result<Broker, Error> {
    let seen = match peek_process(pid) {
        Ok(seen) => Some(seen),
        Err(error @ (PeekError::Process(_) | PeekError::Path { .. })) => {
            let mut threads = threads_of_process(pid).into_iter();
            let main = threads.find(|(tid, _)| is_main(pid, *tid));
            let comm = main.map(|(_, stat)| stat.comm).ok_or(Error::NoProcess(pid))?;
            if !comm.starts_with(BROKER) {
                return Err(Error::NoBroker { pid, comm });
            }
            complain(&format!("{error}; here is what the kernel knows"));
            None
        }
    };
    Ok(broker(None, pid, seen.as_ref()))
}

fn is_main(pid: u32, tid: i32) -> bool {
    u32::try_from(tid) == Ok(pid)
}

fn broker(rank: Option<u32>, pid: u32, seen: Option<&Peek>) -> Broker {
    let kernel = threads_of_process(pid);
    let stopped = kernel.iter().any(|(tid, stat)| is_main(pid, *tid) && matches!(stat.state, 'T' | 't'));
    let mut threads = threads(None, seen, kernel);
    for module in module_processes(pid) {
        let seen = peek_process(module.pid).ok();
        let mut its = self::threads(Some(module.pid), seen.as_ref(), threads_of_process(module.pid));
        // Its main thread stands for it, if none has turns.
        if !its.iter().any(|thread| thread.turns.is_some()) {
            its.retain(|thread| is_main(module.pid, thread.tid));
        }
        for thread in &mut its {
            thread.module = module.stem().to_owned();
        }
        threads.append(&mut its);
    }
    // Who is in a turn for longest is first.
    let key =
        |t: &Thread| (std::cmp::Reverse((t.turn_s.unwrap_or(-1.0) * 1e9) as i64), t.module.clone(), t.tid);
    threads.sort_by_cached_key(key);
    let probe = seen.map(|seen| ProbeState {
        active: seen.active,
        blocked_available: seen.blocked_available,
        looked_s: seen.sampled_ago_ns.map(seconds),
        overflow: seen.overflow,
    });
    Broker { rank, pid, stopped, probe, threads }
}

/// The threads of a process: those that have a slot, and the rest from the kernel.
fn threads(pid: Option<u32>, seen: Option<&Peek>, kernel: Vec<(i32, ThreadStat)>) -> Vec<Thread> {
    let timed = seen.map_or(&[][..], |seen| &seen.threads);
    let blocked_known = seen.is_some_and(|seen| seen.blocked_available);
    let alive = timed.iter().filter(|thread| thread.state != State::Gone);
    let mut threads: Vec<Thread> = alive.map(|thread| timed_thread(pid, thread, blocked_known)).collect();
    let others = kernel.into_iter().filter(|(tid, _)| !timed.iter().any(|thread| thread.tid == *tid));
    threads.extend(others.map(|(tid, stat)| Thread {
        module: stat.comm,
        pid,
        tid,
        state: if matches!(stat.state, 'R' | 'D') { "runs" } else { "waits" },
        state_s: None,
        turn_s: None,
        turns: None,
        cpu_s: Some(seconds(stat.cpu_ns)),
        torn: false,
    }));
    threads
}

fn timed_thread(pid: Option<u32>, seen: &PeekThread, blocked_known: bool) -> Thread {
    let unseen = matches!(seen.state, State::UnknownIdle | State::UnknownRunning);
    let quantile = |q| seen.work.quantile(q).map(seconds);
    Thread {
        module: seen.module.clone().unwrap_or_else(|| seen.comm.clone()),
        pid,
        tid: seen.tid,
        state: match seen.state {
            State::Working => "working",
            State::Sleeping => "sleeping",
            State::Blocked => "blocked",
            State::UnknownRunning => "runs",
            State::UnknownIdle | State::Gone => "waits",
        },
        state_s: seen.state_for_ns.map(seconds),
        turn_s: seen.turn_for_ns.map(seconds),
        turns: (!unseen).then(|| Turns {
            wakeups: seen.wakeups,
            work_s: seconds(seen.work_ns),
            sleep_s: seconds(seen.sleep_ns),
            blocked_s: blocked_known.then(|| seconds(seen.blocked_ns)),
            blocked_calls: seen.blocked_calls,
            longest_blocked_s: seconds(seen.longest_blocked_ns),
            work_p50_s: quantile(0.5),
            work_p99_s: quantile(0.99),
            longest_work_s: seconds(seen.longest_work_ns),
        }),
        cpu_s: seen.stat.as_ref().map(|stat| seconds(stat.cpu_ns)),
        torn: !seen.consistent,
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rundir_is_that_of_flux_uri_or_of_the_system() {
        let of = |uri: Option<&str>| {
            default_rundir(uri.map(str::to_owned), "node3.example").map_err(|e| e.to_string())
        };
        assert_eq!(of(None), Ok("/run/flux".into()));
        assert_eq!(of(Some("local:///tmp/flux-abc/local-3")), Ok("/tmp/flux-abc".into()));
        for here in ["node3", "node3.example", "me@node3:22"] {
            assert_eq!(of(Some(&format!("ssh://{here}/tmp/flux-abc/local-0"))), Ok("/tmp/flux-abc".into()));
        }
        assert!(of(Some("ssh://node7/tmp/x")).unwrap_err().contains("ssh://node7/tmp/x is on another node"));
    }

    #[test]
    fn a_table_says_its_rank() {
        assert_eq!(rank_of(Path::new("/x/stats-agg.17.slots")), Some(17));
        assert_eq!(rank_of(Path::new("/x/a.b.0.slots")), Some(0));
        assert_eq!(rank_of(Path::new("/x/stats-agg.slots")), None);
    }

    #[test]
    fn where_there_is_nothing_to_read_the_error_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let error = rundir(folder.path()).unwrap_err().to_string();
        assert!(error.contains("is stats-agg loaded, with probe=attach?"), "{error}");
        std::os::unix::fs::symlink("/proc/0/fd/3", folder.path().join("stats-agg.0.slots")).unwrap();
        let error = rundir(folder.path()).unwrap_err().to_string();
        assert!(
            error.starts_with("nothing could be read: ") && error.contains("stats-agg.0.slots"),
            "{error}"
        );
        assert!(matches!(process(1_999_999_999), Err(Error::NoProcess(_))));
        assert!(matches!(rundir(Path::new("/nonexistent")), Err(Error::Rundir { .. })));
    }

    #[test]
    fn a_process_without_a_table_is_shown_as_the_kernel_knows_it() {
        let broker = broker(None, std::process::id(), None);
        assert!(broker.probe.is_none() && !broker.stopped);
        assert!(broker.threads.iter().any(|thread| thread.cpu_s.is_some() && thread.turns.is_none()));
    }

    #[test]
    fn a_process_that_is_no_broker_is_refused() {
        let pid = std::process::id();
        let error = process(pid).unwrap_err().to_string();
        assert!(error.starts_with(&format!("process {pid} (")), "{error}");
        assert!(error.ends_with(") is no broker, and has no slot table: name a broker's pid, or a rundir"));
    }
}
