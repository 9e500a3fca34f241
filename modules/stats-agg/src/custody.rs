//! What survives a reload of the module: the node's totals and what it has in custody, in a file of the rundir.
//!
//! The file exists from an unload to the end of the next load: one that is refused leaves it as it was, and one that
//! cannot remove it is refused, so that nothing is ever counted twice. It names the broker process that wrote it, since a
//! rundir may outlive a broker, whose totals end with it.
//!
//! A rundir can be full, or gone. Then the broker's own memory keeps it: in an anonymous file (memfd_create(2)) that
//! stays open in the broker process, and is found again by its name, by another build of this module too.
//!
//! `docs/custody-file.md` of stats-core has all of the file byte by byte.

use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;

/// The first line, with the broker that wrote the rest.
const HEADER: &str = "flux-stats custody 2";
/// What a file may hold: a guard against taking something else for one.
const BYTES_MAX: u64 = 1 << 30;

/// The place of one module's custody on one rank.
pub(crate) struct CustodyFile {
    path: PathBuf,
    /// What the broker's memory calls it.
    name: String,
    /// The broker process: its pid and when it started.
    broker: String,
    /// Whether this is the broker's process: memory of another ends before it is wanted.
    inside: bool,
}

/// Where [`CustodyFile::leave`] left it.
#[derive(Debug)]
pub(crate) enum Left {
    InFile,
    /// The file could not be written, for this reason.
    InMemory(io::Error),
}

/// What was left, and where.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// `None`: nothing, or what another broker left.
    pub(crate) bytes: Option<Vec<u8>>,
    file: Option<PathBuf>,
    memory: Option<PathBuf>,
}

impl Found {
    /// It has been taken up: whatever happens next, nobody takes it again.
    pub(crate) fn forget(&self) -> io::Result<()> {
        if let Some(memory) = &self.memory {
            OpenOptions::new().write(true).truncate(true).open(memory)?;
        }
        self.file.as_ref().map_or(Ok(()), fs::remove_file)
    }
}

impl CustodyFile {
    /// All brokers of a test instance share one rundir, and a module may be loaded under several names: both are in
    /// the file's name.
    pub(crate) fn new(rundir: &str, name: &str, rank: u32, broker_pid: i32) -> Self {
        let file = format!("{name}.{rank}.custody");
        let broker = format!("{broker_pid} {}", start_time(broker_pid).unwrap_or_default());
        let inside = u32::try_from(broker_pid) == Ok(std::process::id());
        CustodyFile { path: PathBuf::from(rundir).join(&file), name: file, broker, inside }
    }

    /// Where it is, for messages.
    pub(crate) fn path(&self) -> std::path::Display<'_> {
        self.path.display()
    }

    /// What was left, which stays where it is until it is forgotten. Where there is not the memory to take it up, the error
    /// is `OutOfMemory`.
    pub(crate) fn read(&self) -> io::Result<Found> {
        let memory = self.memory().filter(|_| self.inside);
        let in_memory = memory.as_ref().map_or(Ok(None), |path| self.content(File::open(path)?))?;
        // What is in memory was left when no file could be, hence later than any file there may be.
        match (self.read_file(), in_memory) {
            (Ok(in_file), None) => {
                let file = in_file.is_some().then(|| self.path.clone());
                Ok(Found { bytes: in_file.flatten(), file, memory })
            }
            (Err(error), None) => Err(error),
            (in_file, bytes) => {
                let file = matches!(in_file, Ok(Some(_))).then(|| self.path.clone());
                Ok(Found { bytes, file, memory })
            }
        }
    }

    /// `None`: there is no file. `Some(None)`: one of another broker.
    fn read_file(&self) -> io::Result<Option<Option<Vec<u8>>>> {
        // A FIFO must not hold the load up.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        match OpenOptions::new().read(true).custom_flags(flags).open(&self.path) {
            Ok(file) => self.content(file).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn content(&self, file: File) -> io::Result<Option<Vec<u8>>> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        check_memory(metadata.len())?;
        let mut bytes = Vec::new();
        Read::take(file, BYTES_MAX).read_to_end(&mut bytes)?;
        let header = format!("{HEADER} {}\n", self.broker);
        Ok(bytes.starts_with(header.as_bytes()).then(|| {
            bytes.drain(..header.len());
            bytes
        }))
    }

    /// The anonymous file of an earlier load, which is empty once it has been taken. Its descriptor stays open: one
    /// for each name under which the module was ever loaded.
    fn memory(&self) -> Option<PathBuf> {
        let name = format!("/memfd:{} (deleted)", self.name);
        let open = fs::read_dir("/proc/self/fd").ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        open.into_iter()
            .find(|path| fs::read_link(path).is_ok_and(|target| target.as_os_str() == name.as_str()))
    }

    /// Leaves for the next load what `write` writes, for a second time where it could not be written to the file.
    pub(crate) fn leave(&self, write: impl Fn(&mut File) -> io::Result<()>) -> io::Result<Left> {
        let Err(error) = self.leave_file(&write) else { return Ok(Left::InFile) };
        // An older file, if there is one, is not what was left last.
        let _ = fs::remove_file(&self.path);
        match self.inside.then(|| self.leave_memory(write)) {
            Some(Ok(())) => Ok(Left::InMemory(error)),
            _ => Err(error),
        }
    }

    fn leave_memory(&self, write: impl Fn(&mut File) -> io::Result<()>) -> io::Result<()> {
        let mut file = match self.memory() {
            Some(path) => OpenOptions::new().write(true).truncate(true).open(path)?,
            None => {
                let anonymous = memfd_create(self.name.as_str(), MemfdFlags::CLOEXEC)?;
                let file = File::from(anonymous.try_clone()?);
                // Open for as long as the broker runs.
                let _ = anonymous.into_raw_fd();
                file
            }
        };
        writeln!(file, "{HEADER} {}", self.broker)?;
        write(&mut file)
    }

    fn leave_file(&self, write: impl Fn(&mut File) -> io::Result<()>) -> io::Result<()> {
        let temporary = self.path.with_extension("custody.new");
        // A leftover is ours alone to remove: the rundir belongs to the instance owner.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        let mut leave = || {
            file.set_permissions(Permissions::from_mode(0o600))?;
            writeln!(file, "{HEADER} {}", self.broker)?;
            write(&mut file)?;
            fs::rename(&temporary, &self.path)
        };
        leave().inspect_err(|_| drop(fs::remove_file(&temporary)))
    }
}

/// What a byte of it becomes in memory: little more than its size where names are most of it, and up to so much where
/// distributions are.
const GROWTH: u64 = 16;

fn check_memory(length: u64) -> io::Result<()> {
    let bytes = usize::try_from(length.saturating_mul(GROWTH)).unwrap_or(usize::MAX);
    flux::afford(bytes).map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error.to_string()))
}

/// When a process started, in clock ticks since boot: field 22 of /proc/PID/stat (proc(5)).
fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command, field 2, is in parentheses and may hold anything: count from its end.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::left::{self, split};

    fn here(folder: &tempfile::TempDir, rank: u32) -> CustodyFile {
        CustodyFile::new(folder.path().to_str().unwrap(), "stats-agg", rank, std::process::id() as i32)
    }

    fn take(file: &CustodyFile) -> Option<Vec<u8>> {
        let found = file.read().unwrap();
        found.forget().unwrap();
        found.bytes
    }

    /// The bytes of the page's table after `title`.
    fn bytes_of_the_page(title: &str) -> Vec<u8> {
        let page = include_str!("../../../crates/stats-core/docs/custody-file.md");
        let table = page.split_once(title).unwrap().1.split_once("| bytes | what |\n|---|---|\n").unwrap().1;
        let rows = table.lines().take_while(|row| row.starts_with('|'));
        let cells = rows.filter_map(|row| row.split('`').nth(1));
        cells.flat_map(str::split_whitespace).map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
    }

    #[test]
    fn the_file_of_the_page_is_what_is_left_and_taken() {
        let titles = ["## The first line", "## The length", "## The node's part", "## The intake's part"];
        let [line, length, node, intake] = titles.map(bytes_of_the_page);
        let folder = tempfile::tempdir().unwrap();
        let file = CustodyFile { broker: "4242 98765".to_owned(), ..here(&folder, 1) };
        let both =
            |file: &mut File| left::write(file, |mut to| to.write_all(&node), |mut to| to.write_all(&intake));
        file.leave(both).unwrap();
        assert_eq!(fs::read(&file.path).unwrap(), [line, length, node.clone(), intake.clone()].concat());
        let taken = take(&file).unwrap();
        assert_eq!(split(&taken), Some((&node[..], &intake[..])));
        assert_eq!(BYTES_MAX, 1 << 30, "as the page says");
    }

    #[test]
    fn what_was_left_is_taken_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = here(&folder, 0);
        assert_eq!(take(&file), None);
        file.leave(|file| file.write_all(b"first")).unwrap();
        file.leave(|file| file.write_all(b"second\n\0")).unwrap();
        // Who reads it and is refused leaves it.
        assert_eq!(file.read().unwrap().bytes.as_deref(), Some(&b"second\n\0"[..]));
        assert_eq!(take(&here(&folder, 1)), None);
        assert_eq!(take(&file).as_deref(), Some(&b"second\n\0"[..]));
        assert_eq!(take(&file), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn without_a_rundir_the_broker_s_memory_keeps_it_and_gives_it_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = CustodyFile { name: format!("memory-test-{}", std::process::id()), ..here(&folder, 5) };
        fs::remove_dir(folder.path()).unwrap();
        for round in ["first", "second"] {
            assert!(matches!(file.leave(|file| file.write_all(round.as_bytes())), Ok(Left::InMemory(_))));
            assert_eq!(file.read().unwrap().bytes.as_deref(), Some(round.as_bytes()));
            assert_eq!(take(&file).as_deref(), Some(round.as_bytes()));
            assert_eq!(take(&file), None);
        }
        let outside = CustodyFile { inside: false, ..file };
        assert!(outside.leave(|file| file.write_all(b"x")).is_err());
    }

    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = here(&folder, 6);
        rustix::fs::mkfifoat(rustix::fs::CWD, &file.path, rustix::fs::Mode::RUSR).unwrap();
        assert_eq!(file.read().unwrap_err().to_string(), "not a regular file");
    }

    #[test]
    fn a_disk_that_is_full_leaves_no_remains() {
        let folder = tempfile::tempdir().unwrap();
        let file = CustodyFile { name: format!("full-test-{}", std::process::id()), ..here(&folder, 7) };
        // A folder in the way of the rename: the last step that can fail.
        fs::create_dir_all(file.path.join("in the way")).unwrap();
        assert!(matches!(file.leave(|file| file.write_all(b"kept")), Ok(Left::InMemory(_))));
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, std::slice::from_ref(&file.path));
    }

    #[test]
    fn another_broker_s_custody_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        here(&folder, 0).leave(|file| file.write_all(b"old")).unwrap();
        let parent = CustodyFile::new(folder.path().to_str().unwrap(), "stats-agg", 0, 1);
        assert_eq!(take(&parent), None);
    }

    #[test]
    fn only_the_owner_can_read_it_and_no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let file = here(&folder, 0);
        file.leave(|file| file.write_all(b"x")).unwrap();
        assert_eq!(fs::metadata(&file.path).unwrap().permissions().mode() & 0o777, 0o600);
        let target = folder.path().join("target");
        fs::write(&target, "precious").unwrap();
        fs::remove_file(&file.path).unwrap();
        std::os::unix::fs::symlink(&target, &file.path).unwrap();
        assert!(file.read().is_err());
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    }
}
