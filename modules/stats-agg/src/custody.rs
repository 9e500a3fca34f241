//! What survives a reload of the module: the node's totals and what it has in custody, and what is remembered of those
//! who push, in a file of the rundir.
//!
//! The file exists from an unload to the next load. Taking it removes it first, so that nothing is ever counted twice;
//! it names the broker process that wrote it, since a rundir may outlive a broker, whose totals end with it.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;

/// The first line, with the broker that wrote the rest.
const HEADER: &str = "flux-stats custody 2";
/// What a file may hold: a guard against taking something else for one.
const BYTES_MAX: u64 = 1 << 30;

/// What a load leaves to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Custody {
    pub(crate) node: Vec<u8>,
    pub(crate) intake: Vec<u8>,
}

/// The place of one module's custody on one rank.
pub(crate) struct CustodyFile {
    path: PathBuf,
    /// The broker process: its pid and when it started.
    broker: String,
}

impl CustodyFile {
    /// All brokers of a test instance share one rundir, and a module may be loaded under several names: both are in
    /// the file's name.
    pub(crate) fn new(rundir: &str, name: &str, rank: u32, broker_pid: i32) -> Self {
        let path = PathBuf::from(rundir).join(format!("{name}.{rank}.custody"));
        CustodyFile { path, broker: format!("{broker_pid} {}", start_time(broker_pid).unwrap_or_default()) }
    }

    /// Where it is, for messages.
    pub(crate) fn path(&self) -> std::path::Display<'_> {
        self.path.display()
    }

    /// Takes what was left, if this broker left it. `Ok(None)`: nothing, or another broker's (which is removed).
    pub(crate) fn take(&self) -> io::Result<Option<Custody>> {
        let file = match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        // Gone before it is used: whatever happens next, nobody takes it again.
        fs::remove_file(&self.path)?;
        let mut bytes = Vec::new();
        Read::take(file, BYTES_MAX).read_to_end(&mut bytes)?;
        let header = format!("{HEADER} {}\n", self.broker);
        let Some(rest) = bytes.strip_prefix(header.as_bytes()) else { return Ok(None) };
        let cut = || io::Error::new(io::ErrorKind::InvalidData, "it ends before its time");
        let (length, rest) = rest.split_first_chunk().ok_or_else(cut)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| cut())?;
        let (node, intake) = rest.split_at_checked(length).ok_or_else(cut)?;
        Ok(Some(Custody { node: node.to_vec(), intake: intake.to_vec() }))
    }

    /// Leaves `custody` for the next load.
    pub(crate) fn leave(&self, custody: &Custody) -> io::Result<()> {
        let temporary = self.path.with_extension("custody.new");
        // A leftover is ours alone to remove: the rundir belongs to the instance owner.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        writeln!(file, "{HEADER} {}", self.broker)?;
        file.write_all(&(custody.node.len() as u64).to_le_bytes())?;
        file.write_all(&custody.node)?;
        file.write_all(&custody.intake)?;
        fs::rename(&temporary, &self.path)
    }
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

    fn here(folder: &tempfile::TempDir, rank: u32) -> CustodyFile {
        CustodyFile::new(folder.path().to_str().unwrap(), "stats-agg", rank, std::process::id() as i32)
    }

    fn custody(node: &[u8]) -> Custody {
        Custody { node: node.to_vec(), intake: b"\nintake".to_vec() }
    }

    #[test]
    fn what_was_left_is_taken_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = here(&folder, 0);
        assert_eq!(file.take().unwrap(), None);
        file.leave(&custody(b"first")).unwrap();
        file.leave(&custody(b"second\n\0")).unwrap();
        assert_eq!(here(&folder, 1).take().unwrap(), None);
        assert_eq!(file.take().unwrap(), Some(custody(b"second\n\0")));
        assert_eq!(file.take().unwrap(), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_was_cut_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = here(&folder, 0);
        file.leave(&custody(b"whole")).unwrap();
        let bytes = fs::read(&file.path).unwrap();
        let header = bytes.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        for length in [header, header + 7, header + 12] {
            fs::write(&file.path, &bytes[..length]).unwrap();
            assert!(file.take().is_err(), "{length}");
        }
    }

    #[test]
    fn another_broker_s_custody_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        here(&folder, 0).leave(&custody(b"old")).unwrap();
        let parent = CustodyFile::new(folder.path().to_str().unwrap(), "stats-agg", 0, 1);
        assert_eq!(parent.take().unwrap(), None);
    }

    #[test]
    fn only_the_owner_can_read_it_and_no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let file = here(&folder, 0);
        file.leave(&custody(b"x")).unwrap();
        assert_eq!(fs::metadata(&file.path).unwrap().permissions().mode() & 0o777, 0o600);
        let target = folder.path().join("target");
        fs::write(&target, "precious").unwrap();
        fs::remove_file(&file.path).unwrap();
        std::os::unix::fs::symlink(&target, &file.path).unwrap();
        assert!(file.take().is_err());
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    }
}
