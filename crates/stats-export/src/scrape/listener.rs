//! Where scrapers come in.

use super::connection::Stream;
use crate::address::ListenAt;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use nix::sys::stat::{Mode, fchmod};
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

const BACKLOG: i32 = 32;

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A socket that listens. A Unix socket's file is removed with it.
pub(crate) struct Listener {
    socket: Socket,
    /// As a scraper finds it.
    pub(crate) bound: ListenAt,
    /// The file's path, device and inode.
    file: Option<(PathBuf, u64, u64)>,
}

impl Listener {
    pub(crate) fn open(at: &ListenAt, default_path: &Path) -> io::Result<Self> {
        match at {
            ListenAt::Tcp(address) => {
                let socket = TcpListener::bind(address)?;
                socket.set_nonblocking(true)?;
                let bound = ListenAt::Tcp(socket.local_addr()?);
                Ok(Listener { socket: Socket::Tcp(socket), bound, file: None })
            }
            ListenAt::Unix(path) => Self::unix(path.as_deref().unwrap_or(default_path)),
        }
    }

    fn unix(path: &Path) -> io::Result<Self> {
        remove_left_over(path)?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
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
        listen(&fd, Backlog::new(BACKLOG)?)?;
        let made = fs::symlink_metadata(path)?;
        let file = Some((path.to_owned(), made.dev(), made.ino()));
        let bound = ListenAt::Unix(Some(path.to_owned()));
        Ok(Listener { socket: Socket::Unix(fd.into()), bound, file })
    }

    /// Who has connected; `None`: nobody else.
    pub(crate) fn accept(&self) -> io::Result<Option<Stream>> {
        let stream = match &self.socket {
            Socket::Tcp(socket) => socket.accept().and_then(|(stream, _)| {
                stream.set_nonblocking(true)?;
                Ok(Stream::Tcp(stream))
            }),
            Socket::Unix(socket) => socket.accept().and_then(|(stream, _)| {
                stream.set_nonblocking(true)?;
                Ok(Stream::Unix(stream))
            }),
        };
        match stream {
            Ok(stream) => Ok(Some(stream)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            // It has gone again.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Removes the socket of a process that is gone: nobody listens there.
fn remove_left_over(path: &Path) -> io::Result<()> {
    let Ok(present) = fs::symlink_metadata(path) else { return Ok(()) };
    if !present.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is there"));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        _ => Err(io::ErrorKind::AddrInUse.into()),
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(socket) => socket.as_fd(),
            Socket::Unix(socket) => socket.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some((path, device, inode)) = &self.file {
            // If it is still ours.
            let same = fs::symlink_metadata(path).is_ok_and(|at| at.dev() == *device && at.ino() == *inode);
            if same {
                let _ = fs::remove_file(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_unix_socket_is_its_owner_s_alone_replaces_a_dead_one_and_goes_when_it_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics");
        drop(UnixListener::bind(&path).unwrap());
        let listener = Listener::open(&ListenAt::Unix(None), &path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(listener.accept().unwrap().is_none());
        let second = Listener::open(&ListenAt::Unix(Some(path.clone())), Path::new("/"));
        assert_eq!(second.err().unwrap().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        assert!(!path.exists());
        fs::write(&path, "precious").unwrap();
        assert!(Listener::open(&ListenAt::Unix(None), &path).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }
}
