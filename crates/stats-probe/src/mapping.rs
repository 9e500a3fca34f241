//! The memory of the slot table, and how others see it.
//!
//! The table is a memfd, never a file of a file system: a shared mapping of a file on a disk becomes
//! read-only at every writeback, and the next store of the hook would wait in the file system; on a full
//! tmpfs it would be a SIGBUS in the broker. The path that is asked for (in the broker's rundir) is a
//! symbolic link to `/proc/PID/fd/N`, which opens like the file itself, even while the process is stopped
//! or hangs, and leads nowhere once it has died. Only the same user and root can open it.

use std::ffi::c_int;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::Ordering::*;

use crate::slots::{MAGIC, SLOTS, Slot, Table, VERSION};

const BYTES: usize = size_of::<Table>();
/// What `/proc/PID/fd/N` of a table points to, up to the first blank.
const LINK: &str = "/memfd:flux-stats-slots";
/// With these seals the file keeps its size: a reader's mapping of it never faults.
const SEALS: c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// The table of this process: mapped once, for ever, since threads keep pointers into it.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) table: &'static Table,
    /// None: anonymous memory, and `private` says why it cannot be seen by others.
    file: Option<File>,
    private: String,
    published: Vec<PathBuf>,
}

impl Mapping {
    /// Maps a table of zeroes and fills in the header.
    pub(crate) fn create() -> io::Result<Self> {
        let (file, private) = match create_file() {
            Ok(file) => (Some(file), String::new()),
            Err(e) => (None, format!("memfd: {e}")),
        };
        let address = map(file.as_ref(), libc::PROT_READ | libc::PROT_WRITE)?;
        // SAFETY: the mapping is BYTES long, page-aligned, zeroed (valid for a Table, which is all
        // atomics) and never unmapped.
        let table = unsafe { address.as_ref() };
        let header = &table.header;
        header.version.store(VERSION, Relaxed);
        header.header_bytes.store(size_of_val(header) as u32, Relaxed);
        header.slot_bytes.store(size_of::<Slot>() as u32, Relaxed);
        header.slot_count.store(SLOTS as u32, Relaxed);
        header.pid.store(std::process::id(), Relaxed);
        header.start_time.store(crate::proc::start_time(std::process::id()).unwrap_or(0), Relaxed);
        header.magic.store(MAGIC, Release);
        Ok(Self { table, file, private, published: Vec::new() })
    }

    /// Shows the table at a path. A link that is there already (of a broker that died) is replaced,
    /// anything else is not. An error says why it cannot be seen there.
    pub(crate) fn publish(&mut self, path: &Path) -> Result<(), String> {
        let Some(file) = &self.file else { return Err(self.private.clone()) };
        let target = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let explain = |e: io::Error| format!("{}: {e}", path.display());
        if fs::symlink_metadata(path).is_ok_and(|m| m.is_symlink()) {
            fs::remove_file(path).map_err(explain)?;
        }
        symlink(target, path).map_err(explain)?;
        if !self.published.iter().any(|published| published == path) {
            self.published.push(path.to_owned());
        }
        Ok(())
    }

    /// Removes one link, or all, where they are still ours.
    pub(crate) fn withdraw(&mut self, only: Option<&Path>) {
        let ours = self.file.as_ref().and_then(|f| f.metadata().ok()).map(|m| (m.dev(), m.ino()));
        for path in self.published.extract_if(.., |p| only.is_none_or(|only| p == only)) {
            let there = fs::metadata(&path).map(|m| (m.dev(), m.ino())).ok();
            let is_link = fs::symlink_metadata(&path).is_ok_and(|m| m.is_symlink());
            if is_link && ours.is_some() && ours == there {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// A memfd with all of its bytes allocated.
fn create_file() -> io::Result<File> {
    let create = |flags| {
        // SAFETY: the name is NUL-terminated.
        unsafe {
            libc::memfd_create(
                c"flux-stats-slots".as_ptr(),
                flags | libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING,
            )
        }
    };
    // Some systems insist on MFD_NOEXEC_SEAL, older ones do not know it.
    let mut fd = create(libc::MFD_NOEXEC_SEAL);
    if fd < 0 {
        fd = create(0);
    }
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_permissions(Permissions::from_mode(0o600))?;
    // SAFETY: the descriptor is open for writing.
    match unsafe { libc::posix_fallocate(fd, 0, BYTES as libc::off_t) } {
        0 => {}
        errno => return Err(io::Error::from_raw_os_error(errno)),
    }
    // SAFETY: a memfd that allows seals.
    match unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) } {
        0 => Ok(file),
        _ => Err(io::Error::last_os_error()),
    }
}

fn map(file: Option<&File>, protection: c_int) -> io::Result<NonNull<Table>> {
    let (fd, flags) = match file {
        Some(file) => (file.as_raw_fd(), libc::MAP_SHARED),
        None => (-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS),
    };
    // SAFETY: the kernel chooses free addresses.
    let address = unsafe { libc::mmap(null_mut(), BYTES, protection, flags, fd, 0) };
    let address = NonNull::new(address.cast()).filter(|_| address != libc::MAP_FAILED);
    address.ok_or_else(io::Error::last_os_error)
}

/// The table of another process, mapped for reading.
#[derive(Debug)]
pub(crate) struct RemoteTable {
    address: NonNull<Table>,
}

// SAFETY: a read-only mapping of atomics, owned by this value.
unsafe impl Send for RemoteTable {}

impl RemoteTable {
    /// Finds the table among a process's descriptors.
    pub(crate) fn of_process(pid: u32) -> Option<Self> {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        let tables = descriptors.flatten().map(|d| d.path()).filter(|path| {
            fs::read_link(path).is_ok_and(|target| target.to_str().is_some_and(|t| t.starts_with(LINK)))
        });
        tables
            .into_iter()
            .find_map(|path| Self::open(&path).ok().filter(|t| t.table().header.pid.load(Relaxed) == pid))
    }

    /// Opens a table by its path.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let file = File::open(path).map_err(|e| e.to_string())?;
        // SAFETY: an open descriptor.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        let bytes = file.metadata().map_err(|e| e.to_string())?.len();
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 || bytes < size_of_val(&MAGIC) as u64 * 2 {
            return Err("this is no slot table (a sealed memfd was expected)".into());
        }
        // Magic and version say whether the size is one that we know.
        let mut start = [0; 12];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut start, 0).map_err(|e| e.to_string())?;
        let version = start.last_chunk::<4>().map_or(0, |v| u32::from_ne_bytes(*v));
        if !start.starts_with(&MAGIC.to_ne_bytes()) || version != VERSION || bytes < BYTES as u64 {
            return Err(format!(
                "slot table of layout version {version} ({bytes} bytes); version {VERSION} is known"
            ));
        }
        map(Some(&file), libc::PROT_READ).map(|address| Self { address }).map_err(|e| e.to_string())
    }

    pub(crate) fn table(&self) -> &Table {
        // SAFETY: mapped for the life of self; BYTES long and sealed against shrinking; all atomics, which
        // are only loaded through this reference.
        unsafe { self.address.as_ref() }
    }
}

impl Drop for RemoteTable {
    fn drop(&mut self) {
        // SAFETY: our own mapping; no reference into it outlives self.
        unsafe { libc::munmap(self.address.as_ptr().cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_readable_at_every_path_where_it_is_published() {
        let dir = tempfile::tempdir().unwrap();
        let mut mapping = Mapping::create().unwrap();
        for name in ["slots", "again"] {
            let path = dir.path().join(name);
            mapping.publish(&path).unwrap();
            mapping.table.header.overflow.store(7, Relaxed);
            let remote = RemoteTable::open(&path).unwrap();
            assert_eq!(remote.table().header.overflow.load(Relaxed), 7);
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o077, 0);
            mapping.withdraw(None);
            assert!(fs::symlink_metadata(&path).is_err());
        }
        assert!(RemoteTable::of_process(std::process::id()).is_some());
    }

    #[test]
    fn a_dead_brokers_link_is_replaced_and_somebodys_file_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (link, file) = (dir.path().join("link"), dir.path().join("file"));
        symlink("/proc/0/fd/5", &link).unwrap();
        fs::write(&file, "theirs").unwrap();
        let mut mapping = Mapping::create().unwrap();
        assert!(mapping.publish(&file).unwrap_err().contains("file"));
        mapping.publish(&link).unwrap();
        fs::remove_file(&link).unwrap();
        fs::write(&link, "theirs").unwrap();
        mapping.withdraw(None);
        assert_eq!(fs::read(&link).unwrap(), b"theirs");
    }

    #[test]
    fn what_is_no_table_is_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        assert!(RemoteTable::open(&path).is_err());
        fs::write(&path, vec![0; 2 * BYTES]).unwrap();
        assert!(RemoteTable::open(&path).unwrap_err().contains("sealed"));
        let mut mapping = Mapping::create().unwrap();
        let link = dir.path().join("link");
        mapping.publish(&link).unwrap();
        mapping.table.header.version.store(99, Relaxed);
        assert!(RemoteTable::open(&link).unwrap_err().contains("version 99"));
    }
}
