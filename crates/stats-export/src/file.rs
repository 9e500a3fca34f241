//! JSON lines in a file, which is set aside when it is large; and, at the end, the last numbers.
//!
//! Files cannot be written without waiting. Where a file system hangs, exporters do; the reactor does not.

use crate::counts::Counts;
use crate::formats::jsonl;
use crate::setting::{Place, Setting};
use crate::sink::{Due, Selection, Sink};
use crate::snapshot::Snapshot;
use nix::poll::{PollFd, PollFlags};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Files that were set aside, of which the oldest goes: `NAME.1` is the newest of them.
const KEPT: u32 = 3;

/// See the module's description.
pub(crate) struct Lines {
    setting: Setting,
    selection: Selection,
    counts: Arc<Counts>,
    due: Due,
}

impl Lines {
    pub(crate) fn new(setting: &Setting, private_jobs: bool, counts: Arc<Counts>) -> Self {
        let selection = Selection::new(setting, false, private_jobs);
        Lines { setting: setting.clone(), selection, counts, due: Due::default() }
    }

    fn write(&mut self, snapshot: &Snapshot, now: Instant) {
        let Place::File(pattern) = &self.setting.place else { return };
        let view = self.selection.view(snapshot);
        let (path, text) = (filled(pattern, snapshot), jsonl::lines(&view));
        let series = view.points.len() as u64;
        match append(&path, text.as_bytes(), self.setting.rotate) {
            Ok(()) => {
                Counts::add(&self.counts.sent, series);
                self.counts.took(now.elapsed());
                self.counts.succeed();
            }
            Err(error) => {
                Counts::add(&self.counts.dropped, series);
                self.counts.fail(&format!("{}: {error}", path.display()));
            }
        }
    }
}

/// `{jobid}` is the job that the instance is, `{pid}` this process.
fn filled(pattern: &Path, snapshot: &Snapshot) -> PathBuf {
    let jobid = snapshot.instance.jobid.as_deref().unwrap_or("0").replace('/', "_");
    let text = pattern.to_string_lossy();
    text.replace("{jobid}", &jobid).replace("{pid}", &std::process::id().to_string()).into()
}

fn append(path: &Path, bytes: &[u8], rotate: u64) -> io::Result<()> {
    let mut file = open(path)?;
    let length = file.metadata()?.len();
    if length > 0 && length + bytes.len() as u64 > rotate {
        for number in (1..KEPT).rev() {
            let _ = fs::rename(aside(path, number), aside(path, number + 1));
        }
        fs::rename(path, aside(path, 1))?;
        file = open(path)?;
    }
    let before = file.metadata()?.len();
    // Half a line would spoil those after it.
    file.write_all(bytes).inspect_err(|_| drop(file.set_len(before)))
}

/// The owner's alone, as what guests may not see is in it; a pipe in its place does not stop us.
fn open(path: &Path) -> io::Result<File> {
    let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOFOLLOW;
    let file = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no regular file")) }
}

fn aside(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

impl Sink for Lines {
    fn offer(&mut self, snapshot: &Arc<Snapshot>, now: Instant) {
        if self.setting.period.is_some_and(|period| self.due.takes(period, now)) {
            self.write(snapshot, now);
        }
    }

    fn end(&mut self, snapshot: Option<&Arc<Snapshot>>, now: Instant) {
        if !self.setting.by_rank {
            snapshot.into_iter().for_each(|snapshot| self.write(snapshot, now));
        }
    }

    fn watched<'a>(&'a self, _: &mut Vec<(u64, PollFd<'a>)>) {}

    fn wakes_at(&self) -> Option<Instant> {
        None
    }

    fn ready(&mut self, _: u64, _: PollFlags, _: Instant) {}

    fn tick(&mut self, _: Instant) {}

    fn is_idle(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::sample;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_large_file_is_set_aside_and_few_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.jsonl");
        for round in 0..6 {
            append(&path, format!("{round}\n").as_bytes(), 2).unwrap();
        }
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read(&path), "5\n");
        assert_eq!([1, 2, 3].map(|number| read(&aside(&path, number))), ["4\n", "3\n", "2\n"]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
    }

    #[test]
    fn at_exit_there_is_one_dump_and_it_names_the_job() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("{jobid}.jsonl");
        let setting = Setting::parse(&format!("json,target={},period=at-exit", target.display())).unwrap();
        let (now, counts) = (Instant::now(), Arc::<Counts>::default());
        let mut lines = Lines::new(&setting, false, counts.clone());
        let snapshot = Arc::new(sample::snapshot());
        lines.offer(&snapshot, now);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        lines.end(Some(&snapshot), now);
        let text = fs::read_to_string(folder.path().join("ƒ7.jsonl")).unwrap();
        assert_eq!(text.lines().count(), 9, "the names of others are not asked for");
        assert_eq!(counts.sent.load(std::sync::atomic::Ordering::Relaxed), 9);
    }

    #[test]
    fn what_is_no_file_is_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        assert!(append(folder.path(), b"x\n", 100).is_err());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        assert!(append(&link, b"x\n", 100).is_err());
    }
}
