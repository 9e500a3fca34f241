//! A Unix socket that its owner alone can reach, and its file.

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, bind, socket};
use nix::sys::stat::{Mode, fchmod};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};

/// What comes in by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrivateSocket {
    /// Datagrams.
    Datagram,
    /// Connections, once it listens; without waiting.
    Stream,
}

/// The file of a socket, removed with this if it is still the same.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl PrivateSocket {
    /// Binds one of mode 0600 at `path`, in the place of one whose process is gone. `AddrInUse`: somebody listens there;
    /// `AlreadyExists`: a file that is no socket is there, and stays; `InvalidInput`: the path is too long.
    pub fn bind(self, path: &Path) -> io::Result<(OwnedFd, SocketFile)> {
        self.remove_left_over(path)?;
        let (kind, flags) = match self {
            PrivateSocket::Datagram => (SockType::Datagram, SockFlag::SOCK_CLOEXEC),
            PrivateSocket::Stream => (SockType::Stream, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK),
        };
        let fd = socket(AddressFamily::Unix, kind, flags, None)?;
        // Before it is bound: the file takes the mode of the socket, so that there is no moment with another.
        fchmod(&fd, Mode::S_IRUSR | Mode::S_IWUSR)?;
        let at = UnixAddr::new(path).map_err(|error| match error {
            Errno::ENAMETOOLONG => io::Error::new(
                io::ErrorKind::InvalidInput,
                "the path is longer than a socket's may be (107 bytes)",
            ),
            other => other.into(),
        })?;
        bind(fd.as_raw_fd(), &at)?;
        let made = fs::symlink_metadata(path)?;
        Ok((fd, SocketFile { path: path.to_owned(), device: made.dev(), inode: made.ino() }))
    }

    /// Removes the socket of a process that is gone: nobody listens there.
    fn remove_left_over(self, path: &Path) -> io::Result<()> {
        let Ok(present) = fs::symlink_metadata(path) else { return Ok(()) };
        if !present.file_type().is_socket() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is there"));
        }
        let tried = match self {
            PrivateSocket::Datagram => UnixDatagram::unbound()?.connect(path),
            PrivateSocket::Stream => UnixStream::connect(path).map(drop),
        };
        match tried {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
            // Somebody is there, or (EPROTOTYPE) a socket of the other kind.
            _ => Err(io::ErrorKind::AddrInUse.into()),
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let same = |at: fs::Metadata| at.dev() == self.device && at.ino() == self.inode;
        if fs::symlink_metadata(&self.path).is_ok_and(same) {
            let _ = fs::remove_file(&self.path);
        }
    }
}
