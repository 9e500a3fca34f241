//! What the kernel knows of a thread: `/proc/PID/task/TID/{schedstat,status}`, and which processes are
//! modules of a broker. Works on a module that hangs, and without any hook.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What is read at once: `status` has some 1.5 kB.
const READ_BYTES: usize = 4096;
/// No more children of a broker than this are looked at in one sample: jobs' shells are children too.
const MAX_CHILDREN: usize = 4096;
/// The programs that run a module in a process of its own; the module's path is their first argument.
const LOADERS: [&str; 4] =
    ["flux-module-exec", "module-exec", "flux-module-python-exec.py", "flux-module-python-exec"];

/// Cumulative numbers of one thread, as of one read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadStat {
    /// The thread's name, up to 15 characters.
    pub comm: String,
    /// One letter as in `ps`: R running, S sleeping, D in the kernel, T stopped, Z dead.
    pub state: char,
    /// Time on a processor, ns.
    pub cpu_ns: u64,
    /// Time ready to run but waiting for a processor, ns.
    pub runq_wait_ns: u64,
    /// How often it got a processor.
    pub timeslices: u64,
    /// Switches away because it waited.
    pub voluntary: u64,
    /// Switches away because its time was up or somebody more urgent came.
    pub involuntary: u64,
}

/// A thread's files, kept open: they belong to this thread, not to a later one of the same tid, and read
/// as ESRCH once it has ended.
#[derive(Debug)]
pub(crate) struct ThreadFiles {
    pid: u32,
    tid: i32,
    open: Open,
}

#[derive(Debug)]
enum Open {
    Yes {
        status: File,
        /// None where the kernel was built without CONFIG_SCHED_INFO.
        schedstat: Option<File>,
    },
    /// Not between two probes. With when the thread started, which tells it from a later one of the same tid.
    No { started: Option<u64> },
}

impl Open {
    fn of(pid: u32, tid: i32) -> io::Result<Self> {
        let directory = task(pid, tid);
        let status = File::open(directory.join("status"))?;
        Ok(Self::Yes { status, schedstat: File::open(directory.join("schedstat")).ok() })
    }

    /// None: the thread has ended. An error: the kernel does not tell at this moment.
    fn read(&self) -> io::Result<Option<ThreadStat>> {
        let Self::Yes { status, schedstat } = self else { return Ok(None) };
        let read = || {
            let mut buffer = [0; READ_BYTES];
            let bytes = status.read_at(&mut buffer, 0)?;
            let mut stat = parse_status(buffer.get(..bytes).unwrap_or_default());
            if let Some(file) = schedstat {
                let bytes = file.read_at(&mut buffer, 0)?;
                (stat.cpu_ns, stat.runq_wait_ns, stat.timeslices) =
                    parse_schedstat(buffer.get(..bytes).unwrap_or_default()).unwrap_or_default();
            }
            Ok((bytes > 0 && stat.state != 'X' && stat.state != 'Z').then_some(stat))
        };
        unless_gone(read())
    }
}

impl ThreadFiles {
    pub(crate) fn open(pid: u32, tid: i32) -> Option<Self> {
        Some(Self { pid, tid, open: Open::of(pid, tid).ok()? })
    }

    /// None: the thread has ended. An error: the kernel does not tell at this moment. Opens what has been closed.
    pub(crate) fn read(&mut self) -> io::Result<Option<ThreadStat>> {
        if let Open::No { started } = self.open {
            let Some(opened) = unless_gone(Open::of(self.pid, self.tid).map(Some))? else { return Ok(None) };
            if started.is_none() || started != started_of(self.pid, self.tid) {
                return Ok(None);
            }
            self.open = opened;
        }
        self.open.read()
    }

    /// Keeps nothing open until the next read.
    pub(crate) fn close(&mut self) {
        if matches!(self.open, Open::Yes { .. }) {
            let started = started_of(self.pid, self.tid);
            // It is this thread's, if this one lives after it was read.
            let lives = matches!(self.open.read(), Ok(Some(_)));
            self.open = Open::No { started: started.filter(|_| lives) };
        }
    }
}

fn task(pid: u32, tid: i32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/task/{tid}"))
}

/// When a thread started, in clock ticks since boot.
fn started_of(pid: u32, tid: i32) -> Option<u64> {
    parse_stat(&fs::read(task(pid, tid).join("stat")).ok()?).map(|(_, started)| started)
}

/// None: the error says that there is no such thread (any more).
fn unless_gone<T>(read: io::Result<Option<T>>) -> io::Result<Option<T>> {
    read.or_else(|error| match error.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT) => Ok(None),
        _ => Err(error),
    })
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or("").trim()
}

fn parse_status(status: &[u8]) -> ThreadStat {
    let mut stat = ThreadStat { state: '?', ..ThreadStat::default() };
    for line in status.split(|b| *b == b'\n') {
        let Some(colon) = line.iter().position(|b| *b == b':') else { continue };
        let (key, value) = (line.get(..colon).unwrap_or(b""), line.get(colon + 1..).unwrap_or(b""));
        match key {
            b"Name" => {
                stat.comm = String::from_utf8_lossy(value.strip_prefix(b"\t").unwrap_or(value)).into_owned();
            }
            b"State" => stat.state = text(value).chars().next().unwrap_or('?'),
            b"voluntary_ctxt_switches" => stat.voluntary = text(value).parse().unwrap_or(0),
            b"nonvoluntary_ctxt_switches" => stat.involuntary = text(value).parse().unwrap_or(0),
            _ => {}
        }
    }
    stat
}

fn parse_schedstat(line: &[u8]) -> Option<(u64, u64, u64)> {
    let mut fields = text(line).split_ascii_whitespace().map(|f| f.parse().ok());
    Some((fields.next()??, fields.next()??, fields.next()??))
}

/// The threads of a process. Empty if it is gone.
pub(crate) fn thread_ids(pid: u32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// Whether a thread of this process has ended. A list of threads does not tell: one that lives may be missing from it
/// when another ends while it is read.
pub(crate) fn has_ended(tid: i32) -> bool {
    // SAFETY: signal 0 is none; the kernel looks the thread up and does nothing.
    let rc = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, 0) };
    rc != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// When a process started, in clock ticks since boot: with the pid, its identity.
pub(crate) fn start_time(pid: u32) -> Option<u64> {
    started_of(pid, i32::try_from(pid).ok()?)
}

/// Parent and start time from `/proc/PID/stat`. The name in parentheses may hold anything, even `)`.
fn parse_stat(stat: &[u8]) -> Option<(u32, u64)> {
    let end = stat.iter().rposition(|b| *b == b')')?;
    let mut fields = text(stat.get(end + 1..)?).split_ascii_whitespace();
    // After the name: state is field 3, parent 4, start time 22.
    let parent = fields.nth(1)?.parse().ok()?;
    Some((parent, fields.nth(17)?.parse().ok()?))
}

/// A child of the broker that runs a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleProcess {
    /// Its pid.
    pub pid: u32,
    /// Path of the module, as in `module.list`.
    pub path: String,
}

impl ModuleProcess {
    /// What it may be called by where no list of modules has its name: its file, without folder and ending.
    pub fn stem(&self) -> &str {
        stem(&self.path)
    }
}

/// A module's file without folder and ending, as `flux module load` takes its name from it.
pub(crate) fn stem(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split_once(".so").or(file.split_once(".py")).map_or(file, |(stem, _)| stem)
}

/// The children of `broker` that run a module.
pub fn module_processes(broker: u32) -> Vec<ModuleProcess> {
    let modules = children(broker).into_iter().take(MAX_CHILDREN).filter_map(|pid| {
        let cmdline = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        Some(ModuleProcess { pid, path: module_of_cmdline(&cmdline)? })
    });
    modules.collect()
}

/// The module's path, if the command line is that of a module loader: `… flux-module-exec PATH` or
/// `python3 py-runner.py …/flux-module-python-exec.py PATH`.
fn module_of_cmdline(cmdline: &[u8]) -> Option<String> {
    let mut arguments = cmdline.split(|b| *b == 0).map(String::from_utf8_lossy);
    // Interpreter and runner come first; a loader's name further back is an argument of something else.
    let is_loader = |a: &std::borrow::Cow<'_, str>| LOADERS.contains(&a.rsplit('/').next().unwrap_or(a));
    arguments.by_ref().take(4).find(is_loader)?;
    arguments.find(|a| !a.is_empty() && !a.starts_with("--")).map(|path| path.into_owned())
}

/// Children by the kernel's own list, else (no CONFIG_PROC_CHILDREN) by everybody's parent.
fn children(parent: u32) -> Vec<u32> {
    let task = PathBuf::from(format!("/proc/{parent}/task"));
    let own = task.join(parent.to_string()).join("children");
    if own.exists() {
        let lists = thread_ids(parent)
            .into_iter()
            .filter_map(|tid| fs::read_to_string(task.join(tid.to_string()).join("children")).ok());
        return lists
            .flat_map(|l| l.split_ascii_whitespace().flat_map(str::parse).collect::<Vec<u32>>())
            .collect();
    }
    let Ok(entries) = fs::read_dir(Path::new("/proc")) else { return Vec::new() };
    let pids = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
        parse_stat(&stat).is_some_and(|(of, _)| of == parent)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn status_gives_name_state_and_switches() {
        let stat = parse_status(
            b"Name:\tkvs w\nUmask:\t0022\nState:\tS (sleeping)\nvoluntary_ctxt_switches:\t12\n\
              nonvoluntary_ctxt_switches:\t3\n",
        );
        assert_eq!((stat.comm.as_str(), stat.state, stat.voluntary, stat.involuntary), ("kvs w", 'S', 12, 3));
    }

    #[test]
    fn a_process_name_with_parentheses_does_not_shift_the_fields() {
        let stat = b"7 (a) b) (c)) S 42 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 9876 1000 2 3\n";
        assert_eq!(parse_stat(stat), Some((42, 9876)));
        assert_eq!(parse_stat(b"7 (x"), None);
    }

    #[test]
    fn module_loaders_are_told_by_their_command_line() {
        let path = |c: &str| module_of_cmdline(c.replace(' ', "\0").as_bytes());
        let python = "/usr/bin/python3 /x/py-runner.py /x/flux-module-python-exec.py /m/sched-simple.py ";
        assert_eq!(path(python).as_deref(), Some("/m/sched-simple.py"));
        assert_eq!(path("/x/flux-module-exec /m/kvs.so ").as_deref(), Some("/m/kvs.so"));
        assert_eq!(path("flux module-exec --name=a /m/kvs.so ").as_deref(), Some("/m/kvs.so"));
        assert_eq!(path("flux-broker --config=x "), None);
        assert_eq!(path("grep -r a b c d flux-module-exec x "), None);
        assert_eq!(path(""), None);
    }

    #[test]
    fn this_thread_is_read_and_a_dead_one_is_noticed() {
        let pid = std::process::id();
        let (send, receive) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("probe-test".into()).spawn(move || {
            // SAFETY: no preconditions.
            send.send(unsafe { libc::gettid() }).unwrap();
            std::thread::park();
        });
        let (thread, tid) = (thread.unwrap(), receive.recv().unwrap());
        assert!(thread_ids(pid).contains(&tid));
        let mut files = ThreadFiles::open(pid, tid).unwrap();
        assert_eq!(files.read().unwrap().unwrap().comm, "probe-test");
        files.close();
        assert_eq!(files.read().unwrap().unwrap().comm, "probe-test");
        // One that started at another time is another.
        let mut other = ThreadFiles { pid, tid, open: Open::No { started: Some(1) } };
        assert_eq!(other.read().unwrap(), None);
        let mut closed = ThreadFiles::open(pid, tid).unwrap();
        closed.close();
        assert!(!has_ended(tid));
        thread.thread().unpark();
        thread.join().unwrap();
        // The kernel reaps a thread slightly after its join returns.
        while files.read().unwrap().is_some() {
            std::thread::yield_now();
        }
        assert!(has_ended(tid));
        assert_eq!(closed.read().unwrap(), None);
        assert!(ThreadFiles::open(pid, i32::MAX).is_none());
    }

    proptest! {
        #[test]
        fn nothing_in_proc_can_make_a_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            parse_status(&bytes);
            parse_stat(&bytes);
            parse_schedstat(&bytes);
            module_of_cmdline(&bytes);
        }
    }
}
