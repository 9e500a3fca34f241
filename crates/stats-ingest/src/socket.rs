//! Where lines arrive: loopback UDP, and Unix datagram sockets that the instance's owner alone can send to.

use crate::private_socket::{PrivateSocket, SocketFile, is_socket_path};
use nix::sys::socket::{Shutdown, setsockopt, shutdown, sockopt};
use std::cell::Cell;
use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What is asked of the kernel as room for datagrams that wait; it gives at most `net.core.rmem_max`.
const QUEUE_BYTES: usize = 8 << 20;

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// UDP on the loopback; port 0 for any that is free.
    Udp(SocketAddr),
    /// A Unix datagram socket: at that path, or where the listener's owner says.
    Unix(Option<PathBuf>),
}

/// What is not an address to listen at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected HOST:PORT with a loopback address (127.0.0.1:8125), unix: or unix:/PATH of at most 107 bytes"
)]
pub struct ParseAddressError;

impl FromStr for Address {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, ParseAddressError> {
        if text == "unix" || text == "unix:" {
            return Ok(Address::Unix(None));
        }
        if let Some(path) = text.strip_prefix("unix:") {
            let good = is_socket_path(path);
            return good.then(|| Address::Unix(Some(path.into()))).ok_or(ParseAddressError);
        }
        let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        let address: SocketAddr =
            numeric.as_deref().unwrap_or(text).parse().map_err(|_| ParseAddressError)?;
        // Whoever reaches the socket is counted: nobody from another machine.
        if address.ip().is_loopback() { Ok(Address::Udp(address)) } else { Err(ParseAddressError) }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Udp(address) => write!(f, "{address}"),
            Address::Unix(None) => f.write_str("unix:"),
            Address::Unix(Some(path)) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Somebody listens there already: another rank on the same machine, say.
    #[error("{0} is taken: another rank on this machine, or another program, listens there")]
    Taken(Address),
    /// The system said no.
    #[error("{address}: {error}")]
    System {
        /// Where.
        address: Address,
        /// What it said.
        error: io::Error,
    },
    /// There is no thread to listen.
    #[error("no thread and descriptors to listen with: {0}")]
    Thread(io::Error),
}

/// A bound socket. A Unix socket's file is removed with it.
#[derive(Debug)]
pub struct Socket {
    /// As it was asked for.
    pub address: Address,
    /// As a sender finds it: with the port and the path.
    pub bound: Address,
    fd: OwnedFd,
    /// The kernel's own count of datagrams that it dropped here, as it was last heard. It wraps.
    pub(crate) dropped: Cell<u32>,
    _file: Option<SocketFile>,
}

impl Socket {
    /// `default_path` is that of a Unix socket without one.
    pub fn open(address: &Address, default_path: &Path) -> Result<Self, OpenError> {
        let opened = match address {
            Address::Udp(at) => Self::udp(address, *at),
            Address::Unix(path) => Self::unix(address, path.as_deref().unwrap_or(default_path)),
        };
        let opened = opened.and_then(|socket| {
            // As much as there is to be had.
            let _ = setsockopt(&socket.fd, sockopt::RcvBuf, &QUEUE_BYTES);
            setsockopt(&socket.fd, sockopt::RxqOvfl, &1)?;
            Ok(socket)
        });
        opened.map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => OpenError::Taken(address.clone()),
            _ => OpenError::System { address: address.clone(), error },
        })
    }

    fn udp(address: &Address, at: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(at)?;
        let bound = Address::Udp(socket.local_addr()?);
        Ok(Socket::new(address, bound, socket.into(), None))
    }

    fn unix(address: &Address, path: &Path) -> io::Result<Self> {
        let (fd, file) = PrivateSocket::Datagram.bind(path)?;
        let bound = Address::Unix(Some(path.to_owned()));
        Ok(Socket::new(address, bound, fd, Some(file)))
    }

    fn new(address: &Address, bound: Address, fd: OwnedFd, file: Option<SocketFile>) -> Self {
        Socket { address: address.clone(), bound, fd, dropped: Cell::new(0), _file: file }
    }

    /// From now on senders to a Unix socket get an error; what has been accepted of them is still there. UDP has no such
    /// thing: its senders learn nothing anyway.
    pub(crate) fn accept_no_more(&self) {
        if let Address::Unix(_) = self.bound {
            let _ = shutdown(self.fd.as_raw_fd(), Shutdown::Read);
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixDatagram;

    fn parse(text: &str) -> Result<Address, ParseAddressError> {
        text.parse()
    }

    #[test]
    fn only_this_machine_can_send() {
        assert!(parse(&format!("unix:/{}", "x".repeat(106))).is_ok());
        assert!(parse(&format!("unix:/{}", "x".repeat(107))).is_err());
        for good in ["127.0.0.1:8125", "127.0.0.1:0", "[::1]:8125", "unix:", "unix:/run/x"] {
            assert_eq!(parse(good).unwrap().to_string(), good);
        }
        assert_eq!(parse("localhost:8125"), parse("127.0.0.1:8125"));
        assert_eq!(parse("unix"), parse("unix:"));
        for bad in
            ["", "8125", ":8125", "0.0.0.0:8125", "10.0.0.1:8125", "[::]:1", "unix:relative", "127.0.0.1"]
        {
            assert_eq!(parse(bad), Err(ParseAddressError), "{bad}");
        }
    }

    #[test]
    fn a_unix_socket_is_its_owner_s_alone_and_goes_when_it_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stats-agg.3.statsd");
        let socket = Socket::open(&Address::Unix(None), &path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(socket.bound, Address::Unix(Some(path.clone())));
        // Who comes second learns it.
        assert!(matches!(Socket::open(&Address::Unix(None), &path), Err(OpenError::Taken(_))));
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn a_dead_process_s_socket_is_replaced_and_other_files_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        drop(UnixDatagram::bind(&path).unwrap());
        assert!(path.exists());
        let first = Socket::open(&Address::Unix(Some(path.clone())), Path::new("/")).unwrap();
        // One that is not ours any more stays.
        fs::remove_file(&path).unwrap();
        let _second = UnixDatagram::bind(&path).unwrap();
        drop(first);
        assert!(path.exists());
        let file = folder.path().join("file");
        fs::write(&file, "precious").unwrap();
        let refused = Socket::open(&Address::Unix(Some(file.clone())), Path::new("/")).unwrap_err();
        assert!(refused.to_string().contains("no socket"), "{refused}");
        assert_eq!(fs::read(&file).unwrap(), b"precious");
    }

    #[test]
    fn a_taken_port_is_told_from_other_trouble() {
        let first = Socket::open(&parse("127.0.0.1:0").unwrap(), Path::new("/")).unwrap();
        let taken = Socket::open(&first.bound, Path::new("/")).unwrap_err();
        assert!(matches!(&taken, OpenError::Taken(address) if *address == first.bound), "{taken}");
        let long = PathBuf::from(format!("/tmp/{}", "x".repeat(120)));
        let refused = Socket::open(&Address::Unix(Some(long)), Path::new("/")).unwrap_err();
        assert!(refused.to_string().contains("107 bytes"), "{refused}");
    }
}
