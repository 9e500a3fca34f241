//! The few numbers of /proc that the probe needs (proc(5); the kernel's Documentation/scheduler/sched-stats.rst).

use std::fs;

/// This process, in place of a pid.
pub(crate) const SELF: i32 = 0;

/// What /proc says of one thread, since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) cpu_ns: u64,
    pub(crate) runq_wait_ns: u64,
    pub(crate) voluntary: u64,
    pub(crate) involuntary: u64,
}

impl Usage {
    pub(crate) fn plus(self, other: Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns + other.cpu_ns,
            runq_wait_ns: self.runq_wait_ns + other.runq_wait_ns,
            voluntary: self.voluntary + other.voluntary,
            involuntary: self.involuntary + other.involuntary,
        }
    }

    /// What was added since `before`; what has shrunk counts as nothing.
    pub(crate) fn since(self, before: Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            runq_wait_ns: self.runq_wait_ns.saturating_sub(before.runq_wait_ns),
            voluntary: self.voluntary.saturating_sub(before.voluntary),
            involuntary: self.involuntary.saturating_sub(before.involuntary),
        }
    }
}

fn folder(pid: i32) -> String {
    if pid == SELF { "/proc/self".to_owned() } else { format!("/proc/{pid}") }
}

/// The threads of a process; none when it is gone.
pub(crate) fn tids(pid: i32) -> Vec<i32> {
    let Ok(tasks) = fs::read_dir(format!("{}/task", folder(pid))) else { return Vec::new() };
    tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// A thread's name as the kernel has it: at most 15 bytes.
pub(crate) fn comm(pid: i32, tid: i32) -> Option<String> {
    let text = fs::read(format!("{}/task/{tid}/comm", folder(pid))).ok()?;
    Some(String::from_utf8_lossy(&text).trim_end_matches('\n').to_owned())
}

/// Whether a thread runs, or waits for a processor.
pub(crate) fn is_running(pid: i32, tid: i32) -> bool {
    let stat = fs::read(format!("{}/task/{tid}/stat", folder(pid))).unwrap_or_default();
    // The state follows the command, which is in parentheses and may hold anything.
    let text = String::from_utf8_lossy(&stat);
    text.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('R'))
}

/// What a thread has used.
pub(crate) fn usage(pid: i32, tid: i32) -> Option<Usage> {
    let folder = format!("{}/task/{tid}", folder(pid));
    let schedstat = fs::read_to_string(format!("{folder}/schedstat")).ok()?;
    let status = fs::read(format!("{folder}/status")).ok()?;
    parse_usage(&schedstat, &String::from_utf8_lossy(&status))
}

fn parse_usage(schedstat: &str, status: &str) -> Option<Usage> {
    let mut times = schedstat.split_ascii_whitespace().map(str::parse);
    let (cpu_ns, runq_wait_ns) = (times.next()?.ok()?, times.next()?.ok()?);
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':').trim().parse().ok()
    };
    let (voluntary, involuntary) = (field("voluntary_ctxt_switches")?, field("nonvoluntary_ctxt_switches")?);
    Some(Usage { cpu_ns, runq_wait_ns, voluntary, involuntary })
}

/// What all threads of a process have used.
pub(crate) fn process_usage(pid: i32) -> Option<Usage> {
    let tids = tids(pid);
    let used = tids.iter().filter_map(|&tid| usage(pid, tid)).fold(Usage::default(), Usage::plus);
    (!tids.is_empty()).then_some(used)
}

/// The processes that a process has started and not reaped. Needs CONFIG_PROC_CHILDREN, which distributions set.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    let of_thread =
        |tid: i32| fs::read_to_string(format!("{}/task/{tid}/children", folder(pid))).unwrap_or_default();
    let lists: Vec<String> = tids(pid).into_iter().map(of_thread).collect();
    lists
        .iter()
        .flat_map(|list| list.split_ascii_whitespace())
        .filter_map(|child| child.parse().ok())
        .collect()
}

/// The words of a process's command line.
pub(crate) fn command_line(pid: i32) -> Vec<String> {
    let bytes = fs::read(format!("{}/cmdline", folder(pid))).unwrap_or_default();
    let words = bytes.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    words.filter(|word| !word.is_empty()).collect()
}

/// The protection of the page that holds an address of this process, as mprotect(2) takes it.
pub(crate) fn protection(address: usize) -> Option<libc::c_int> {
    protection_in(&fs::read_to_string("/proc/self/maps").ok()?, address)
}

fn protection_in(maps: &str, address: usize) -> Option<libc::c_int> {
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let hex = |text| usize::from_str_radix(text, 16).ok();
        if !(hex(start)?..hex(end)?).contains(&address) {
            return None;
        }
        let flag = |set: bool, bit| if set { bit } else { 0 };
        let mode = rest.as_bytes().get(..3)?;
        let (read, write) = (flag(mode[0] == b'r', libc::PROT_READ), flag(mode[1] == b'w', libc::PROT_WRITE));
        Some(read | write | flag(mode[2] == b'x', libc::PROT_EXEC))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_s_usage_is_read_from_both_files() {
        let status = "Name:\tkvs\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        let usage = parse_usage("1000 200 7\n", status).unwrap();
        assert_eq!(usage, Usage { cpu_ns: 1000, runq_wait_ns: 200, voluntary: 12, involuntary: 3 });
        for (schedstat, status) in [("", status), ("1 x 2", status), ("1 2 3", ""), ("1 2 3", "voluntary")] {
            assert_eq!(parse_usage(schedstat, status), None);
        }
    }

    #[test]
    fn a_page_s_protection_is_read_from_maps() {
        let maps = "1000-3000 r--p 0 0 0 /lib\n3000-4000 rw-p 0 0 0\n\nrubbish\n5000-6000 r-xp 0 0 0\n";
        assert_eq!(protection_in(maps, 0x2fff), Some(libc::PROT_READ));
        assert_eq!(protection_in(maps, 0x3000), Some(libc::PROT_READ | libc::PROT_WRITE));
        assert_eq!(protection_in(maps, 0x5fff), Some(libc::PROT_READ | libc::PROT_EXEC));
        assert_eq!(protection_in(maps, 0x4000), None);
    }

    #[test]
    fn this_process_is_found_in_proc() {
        assert!(!tids(SELF).is_empty() && tids(-1).is_empty());
        assert!(usage(SELF, std::process::id() as i32).is_some() && process_usage(-1).is_none());
        assert!(!command_line(SELF).is_empty() && command_line(-1).is_empty());
        let child = std::process::Command::new("sleep").arg("60").spawn();
        if let Ok(mut child) = child {
            assert!(children(std::process::id() as i32).contains(&(child.id() as i32)));
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
