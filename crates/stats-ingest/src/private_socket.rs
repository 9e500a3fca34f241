//! A Unix socket that its owner alone can reach, and its file.

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, bind, connect, socket};
use nix::sys::stat::{Mode, fchmod};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
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
        let fd = self.socket(match self {
            PrivateSocket::Datagram => SockFlag::empty(),
            PrivateSocket::Stream => SockFlag::SOCK_NONBLOCK,
        })?;
        // Before it is bound: the file takes the mode of the socket, so that there is no moment with another.
        fchmod(&fd, Mode::S_IRUSR | Mode::S_IWUSR)?;
        let at = UnixAddr::new(path).map_err(too_long)?;
        bind(fd.as_raw_fd(), &at)?;
        let made = fs::symlink_metadata(path)?;
        Ok((fd, SocketFile { path: path.to_owned(), device: made.dev(), inode: made.ino() }))
    }

    /// Removes the socket of a process that is gone: nobody listens there.
    fn remove_left_over(self, path: &Path) -> io::Result<()> {
        let Ok(present) = fs::symlink_metadata(path) else { return Ok(()) };
        if !present.file_type().is_socket() {
            let said = format!("{}: a file that is no socket is there", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, said));
        }
        // Without waiting: one whose owner accepts nobody would hold us up, and its owner may be us.
        let probe = self.socket(SockFlag::SOCK_NONBLOCK)?;
        match connect(probe.as_raw_fd(), &UnixAddr::new(path).map_err(too_long)?) {
            Err(Errno::ECONNREFUSED) => fs::remove_file(path),
            // Somebody is there, or (EPROTOTYPE) a socket of the other kind.
            _ => Err(io::ErrorKind::AddrInUse.into()),
        }
    }

    fn socket(self, flags: SockFlag) -> nix::Result<OwnedFd> {
        let kind = match self {
            PrivateSocket::Datagram => SockType::Datagram,
            PrivateSocket::Stream => SockType::Stream,
        };
        socket(AddressFamily::Unix, kind, flags | SockFlag::SOCK_CLOEXEC, None)
    }
}

/// Whether a socket can be at that path: it is absolute, since a broker's working directory is nobody's business, and has at
/// most 107 bytes.
pub fn is_socket_path(path: &str) -> bool {
    path.starts_with('/') && UnixAddr::new(path).is_ok()
}

fn too_long(error: Errno) -> io::Error {
    match error {
        Errno::ENAMETOOLONG => io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path is longer than a socket's may be (107 bytes)",
        ),
        other => other.into(),
    }
}

impl SocketFile {
    /// Whether it is there still, and the same.
    pub fn is_there(&self) -> bool {
        let same = |at: fs::Metadata| at.dev() == self.device && at.ino() == self.inode;
        fs::symlink_metadata(&self.path).is_ok_and(same)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_there() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{Backlog, listen};

    #[test]
    fn a_socket_whose_owner_accepts_nobody_is_in_use_and_holds_up_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let (fd, _file) = PrivateSocket::Stream.bind(&path).unwrap();
        listen(&fd, Backlog::new(0).unwrap()).unwrap();
        // One fits, of the second a connection would wait for the first to be accepted.
        for _ in 0..3 {
            let again = PrivateSocket::Stream.bind(&path).unwrap_err();
            assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
        }
        assert!(path.exists());
        drop(fd);
        PrivateSocket::Stream.bind(&path).unwrap();
    }
}
