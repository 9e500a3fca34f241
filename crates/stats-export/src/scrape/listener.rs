//! Where scrapers come in.

use super::connection::Stream;
use crate::address::ListenAt;
use nix::sys::socket::{Backlog, listen};
use stats_ingest::{PrivateSocket, SocketFile};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

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
    file: Option<SocketFile>,
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
        let (fd, file) = PrivateSocket::Stream.bind(path)?;
        listen(&fd, Backlog::new(BACKLOG)?)?;
        let bound = ListenAt::Unix(Some(path.to_owned()));
        Ok(Listener { socket: Socket::Unix(fd.into()), bound, file: Some(file) })
    }

    /// Whether scrapers can still find it: somebody may have removed the file.
    pub(crate) fn is_there(&self) -> bool {
        self.file.as_ref().is_none_or(SocketFile::is_there)
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

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(socket) => socket.as_fd(),
            Socket::Unix(socket) => socket.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
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
