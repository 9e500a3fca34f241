//! What is read of this broker's process and file systems, without asking anybody.

use procfs::Current;
use procfs::process::{LimitValue, Process};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Where a broker is, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its rank.
    pub rank: u32,
    /// How many ranks the instance has.
    pub size: u32,
    /// Its process.
    pub broker_pid: i32,
    /// Flux's version, `0.88.0`; (0, 0) if it is not known.
    pub version: (u32, u32),
    /// The broker attributes of these names.
    pub rundir: Option<PathBuf>,
    /// See `rundir`.
    pub statedir: Option<PathBuf>,
}

impl Place {
    /// A broker of which no more is known than its rank.
    pub fn unknown(rank: u32) -> Self {
        Place { rank, size: rank + 1, broker_pid: 0, version: (0, 0), rundir: None, statedir: None }
    }

    /// Reads a version as the broker attribute `version` has it: `0.88.0-12-gabcdef`.
    pub fn version_of(text: &str) -> (u32, u32) {
        let mut parts = text.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    }
}

/// File systems that answer at once, or not at all: others may be on a server that hangs, and whoever asks would hang with
/// them.
const LOCAL: &[&str] = &[
    "tmpfs", "ramfs", "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "overlay", "jfs", "reiserfs",
    "bcachefs",
];

/// A module that is a process of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModuleProcess {
    pub(crate) name: String,
    pub(crate) pid: i32,
}

/// What is looked at.
pub(crate) struct Host {
    pub(crate) place: Place,
    pub(crate) processes: Vec<ModuleProcess>,
    /// When the last heartbeat came.
    pub(crate) beat: Option<Instant>,
    /// Folders of which it is known whether they may be asked.
    local: Vec<(PathBuf, bool)>,
}

impl Host {
    pub(crate) fn new(place: Place) -> Self {
        Host { place, processes: Vec::new(), beat: None, local: Vec::new() }
    }

    /// Free space for those who are not root, and the size, in bytes; `None` for what is not there or might hang.
    pub(crate) fn space(&mut self, folder: &Path) -> Option<Space> {
        if !self.is_local(folder) {
            return None;
        }
        let of = rustix::fs::statvfs(folder).ok()?;
        Some(Space {
            free: of.f_bavail.saturating_mul(of.f_frsize),
            size: of.f_blocks.saturating_mul(of.f_frsize),
            free_inodes: (of.f_files > 0).then_some(of.f_favail),
        })
    }

    /// The size of a file; `None` where it is not there or asking might hang.
    pub(crate) fn file_bytes(&mut self, file: &Path) -> Option<u64> {
        if !self.is_local(file.parent()?) {
            return None;
        }
        std::fs::metadata(file).ok().map(|file| file.len())
    }

    fn is_local(&mut self, folder: &Path) -> bool {
        if let Some((_, local)) = self.local.iter().find(|(known, _)| known == folder) {
            return *local;
        }
        let local = is_local(folder);
        self.local.push((folder.to_owned(), local));
        local
    }
}

/// Room in a file system.
pub(crate) struct Space {
    pub(crate) free: u64,
    pub(crate) size: u64,
    /// `None` where the file system has no fixed number.
    pub(crate) free_inodes: Option<u64>,
}

/// By the kernel's table of mounts, which it knows without asking a server. A path through links may be elsewhere than it
/// seems: of these, nothing is known.
fn is_local(folder: &Path) -> bool {
    let Ok(mounts) = Process::myself().and_then(|own| own.mountinfo()) else { return false };
    let mut above = folder.ancestors().collect::<Vec<_>>();
    above.reverse();
    // From the top: each folder is looked at (is it a link?) only while what is above it is known to answer.
    let mut local = false;
    for part in above {
        if let Some(mount) = mounts.0.iter().rev().find(|mount| mount.mount_point == *part) {
            local = LOCAL.contains(&mount.fs_type.as_str());
        }
        if !local || part.symlink_metadata().map_or(true, |of| of.file_type().is_symlink()) {
            return false;
        }
    }
    local
}

/// What the kernel knows of a process.
pub(crate) struct ProcessFacts {
    pub(crate) rss: Option<u64>,
    pub(crate) rss_anon: Option<u64>,
    pub(crate) rss_file: Option<u64>,
    pub(crate) rss_shmem: Option<u64>,
    pub(crate) rss_peak: Option<u64>,
    pub(crate) swap: Option<u64>,
    pub(crate) threads: u64,
    pub(crate) open_fds: Option<u64>,
    /// The soft limit; `None`: no limit.
    pub(crate) fds_max: Option<u64>,
    pub(crate) faults: u64,
    pub(crate) major_faults: u64,
    /// Seconds since it started.
    pub(crate) uptime: Option<f64>,
}

/// `None`: it is gone.
pub(crate) fn process_facts(pid: i32) -> Option<ProcessFacts> {
    let process = Process::new(pid).ok()?;
    let is_own = i32::try_from(std::process::id()) == Ok(pid);
    let (status, stat) = (process.status().ok()?, process.stat().ok()?);
    let bytes = |kib: Option<u64>| kib.map(|kib| kib.saturating_mul(1024));
    let limit = process.limits().ok().map(|limits| limits.max_open_files.soft_limit);
    let ticks = procfs::ticks_per_second();
    let since_boot = procfs::Uptime::current().ok().map(|uptime| uptime.uptime);
    Some(ProcessFacts {
        rss: bytes(status.vmrss),
        rss_anon: bytes(status.rssanon),
        rss_file: bytes(status.rssfile),
        rss_shmem: bytes(status.rssshmem),
        rss_peak: bytes(status.vmhwm),
        swap: bytes(status.vmswap),
        threads: status.threads,
        // Not the one by which we look.
        open_fds: process.fd_count().ok().map(|count| count.saturating_sub(usize::from(is_own)) as u64),
        fds_max: match limit {
            Some(LimitValue::Value(limit)) => Some(limit),
            Some(LimitValue::Unlimited) | None => None,
        },
        faults: stat.minflt.saturating_add(stat.majflt),
        major_faults: stat.majflt,
        uptime: since_boot.map(|boot| boot - stat.starttime as f64 / ticks as f64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_what_the_broker_says() {
        assert_eq!(Place::version_of("0.88.0"), (0, 88));
        assert_eq!(Place::version_of("0.70.0-12-gabcdef"), (0, 70));
        assert_eq!(Place::version_of("1-x"), (1, 0));
        assert_eq!(Place::version_of(""), (0, 0));
    }

    #[test]
    fn this_process_is_as_the_kernel_says() {
        let own = i32::try_from(std::process::id()).unwrap();
        let before = process_facts(own).unwrap();
        let files: Vec<_> = (0..20).map(|_| std::fs::File::open("/proc/self/stat").unwrap()).collect();
        let after = process_facts(own).unwrap();
        // Other tests of this process open and close some at the same time.
        assert!(after.open_fds.unwrap() >= before.open_fds.unwrap() + 20 - 8);
        assert!(after.rss.unwrap() > 500_000 && after.rss_peak.unwrap() > 500_000);
        assert!(after.threads >= 1 && after.fds_max.unwrap() >= 20 && after.uptime.unwrap() >= 0.0);
        drop(files);
        assert!(process_facts(i32::MAX).is_none());
    }

    #[test]
    fn a_folder_that_might_hang_is_not_asked() {
        let mut host = Host::new(Place::unknown(0));
        assert!(host.space(Path::new("/proc")).is_none(), "no file system of files");
        assert!(host.space(Path::new("/nowhere/at/all")).is_none());
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/nowhere", &link).unwrap();
        assert!(host.space(&link).is_none(), "a link may lead to a server");
    }
}
