//! Datagrams, many with one system call.

use crate::socket::Socket;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, MultiHeaders, recvmmsg};
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd};

/// Datagrams that one call takes.
pub const BATCH: usize = 64;
/// The longest that is taken whole: UDP has no longer ones.
const DATAGRAM_MAX: usize = 65_536;
/// The beginning of a datagram, which is all of most: these are side by side, so that a batch of short datagrams touches
/// few pages.
const START: usize = 2048;
/// From one beginning to the next. Not a power of two: they would share a few sets of the caches.
const START_STRIDE: usize = START + 64;
const REST: usize = DATAGRAM_MAX - START;

/// Room for datagrams: shared by all sockets of a thread. Pages are touched as far as datagrams are long.
pub struct Buffers {
    starts: Vec<u8>,
    rests: Vec<u8>,
    /// Where a long datagram is put together.
    whole: Vec<u8>,
}

impl Default for Buffers {
    fn default() -> Self {
        Buffers { starts: vec![0; BATCH * START_STRIDE], rests: vec![0; BATCH * REST], whole: Vec::new() }
    }
}

/// What the kernel fills in for one socket.
pub struct Receiver {
    headers: MultiHeaders<()>,
}

/// What one call received.
#[derive(Debug, Default)]
pub struct Received {
    /// How many.
    pub datagrams: usize,
    /// Of them, those that were cut off.
    pub truncated: u64,
    /// Dropped since the last time that the kernel said so.
    pub dropped: u64,
}

fn headers() -> MultiHeaders<()> {
    MultiHeaders::preallocate(BATCH, Some(nix::cmsg_space!(u32)))
}

impl Default for Receiver {
    fn default() -> Self {
        Receiver { headers: headers() }
    }
}

impl Receiver {
    /// Gives `take` the datagrams that are there, at most [`BATCH`]; does not wait.
    pub fn receive(
        &mut self,
        socket: &Socket,
        buffers: &mut Buffers,
        mut take: impl FnMut(&[u8]),
    ) -> Result<Received, Errno> {
        let Buffers { starts, rests, whole } = buffers;
        let mut starts = starts.chunks_exact_mut(START_STRIDE).map(|room| &mut room[..START]);
        let mut rests = rests.chunks_exact_mut(REST);
        let mut slices: [[IoSliceMut<'_>; 2]; BATCH] = std::array::from_fn(|_| {
            [starts.next(), rests.next()].map(|room| IoSliceMut::new(room.unwrap_or_default()))
        });
        let fd = socket.as_fd().as_raw_fd();
        let results = recvmmsg(fd, &mut self.headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None);
        let results = match results {
            Ok(results) => results,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(Received::default()),
            Err(error) => return Err(error),
        };
        let (mut received, mut dropped, mut unheard) = (Received::default(), socket.dropped.get(), false);
        for message in results {
            received.datagrams += 1;
            let truncated = message.flags.contains(MsgFlags::MSG_TRUNC);
            received.truncated += u64::from(truncated);
            unheard |= message.flags.contains(MsgFlags::MSG_CTRUNC);
            for control in message.cmsgs().into_iter().flatten() {
                if let ControlMessageOwned::RxqOvfl(count) = control {
                    dropped = count;
                }
            }
            let mut parts = message.iovs();
            let start = parts.next().unwrap_or_default();
            let datagram = match parts.next() {
                None | Some([]) => start,
                Some(rest) => {
                    whole.clear();
                    whole.extend_from_slice(start);
                    whole.extend_from_slice(rest);
                    whole.as_slice()
                }
            };
            take(if truncated { whole_lines(datagram) } else { datagram });
        }
        received.dropped = u64::from(dropped.wrapping_sub(socket.dropped.replace(dropped)));
        // nix leaves in its headers the length of control messages that the kernel wrote: zero where it had nothing to
        // say, and so no room when it has. It says that it had none, and its count of drops comes again with the next
        // datagram.
        if unheard {
            self.headers = headers();
        }
        Ok(received)
    }
}

/// What was cut off may have been half of a number.
fn whole_lines(datagram: &[u8]) -> &[u8] {
    &datagram[..memchr::memrchr(b'\n', datagram).map_or(0, |newline| newline + 1)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::Address;
    use std::net::UdpSocket;
    use std::os::unix::net::UnixDatagram;
    use std::path::Path;

    fn udp() -> (Socket, UdpSocket) {
        let socket = Socket::open(&"127.0.0.1:0".parse().unwrap(), Path::new("/")).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let Address::Udp(to) = socket.bound else { panic!("not UDP") };
        sender.connect(to).unwrap();
        (socket, sender)
    }

    #[test]
    fn datagrams_come_in_batches_and_in_order() {
        let (socket, sender) = udp();
        let (mut receiver, mut buffers) = (Receiver::default(), Buffers::default());
        for number in 0..BATCH + 3 {
            sender.send(number.to_string().as_bytes()).unwrap();
        }
        let mut seen = Vec::new();
        let mut take = |datagram: &[u8]| seen.push(String::from_utf8(datagram.to_vec()).unwrap());
        for expected in [BATCH, 3, 0] {
            let received = receiver.receive(&socket, &mut buffers, &mut take).unwrap();
            assert_eq!(received.datagrams, expected);
        }
        assert_eq!(seen, (0..BATCH + 3).map(|number| number.to_string()).collect::<Vec<_>>());
    }

    #[test]
    fn what_the_kernel_drops_is_counted() {
        let (socket, sender) = udp();
        let (mut receiver, mut buffers) = (Receiver::default(), Buffers::default());
        // Headers that were in use before: the kernel had nothing to say, and left no room.
        for round in 0..3 {
            for _ in 0..BATCH {
                sender.send(b"x").unwrap();
            }
            let received = receiver.receive(&socket, &mut buffers, |_| ()).unwrap();
            assert_eq!((received.datagrams, received.dropped), (BATCH, 0), "{round}");
        }
        let flood = 200_000;
        for _ in 0..flood {
            sender.send(b"x").unwrap();
        }
        let (mut got, mut dropped) = (0, 0);
        loop {
            let received = receiver.receive(&socket, &mut buffers, |_| ()).unwrap();
            (got, dropped) = (got + received.datagrams as u64, dropped + received.dropped);
            if received.datagrams == 0 {
                break;
            }
        }
        assert!(got < flood, "nothing was dropped of {flood}");
        // The kernel says it with what comes after.
        for _ in 0..2 {
            sender.send(b"x").unwrap();
            let received = receiver.receive(&socket, &mut buffers, |_| ()).unwrap();
            (got, dropped) = (got + received.datagrams as u64, dropped + received.dropped);
        }
        assert_eq!(got + dropped, flood + 2);
        // The kernel goes on counting, whoever listens: a thread that begins anew hears of none twice.
        sender.send(b"x:1|c").unwrap();
        let received = Receiver::default().receive(&socket, &mut buffers, |_| {}).unwrap();
        assert_eq!((received.datagrams, received.dropped), (1, 0));
    }

    #[test]
    fn datagrams_of_any_length_are_whole() {
        let (socket, sender) = udp();
        let (mut receiver, mut buffers) = (Receiver::default(), Buffers::default());
        for length in [0, 1, START - 1, START, START + 1, 10_000, 65_507, 3] {
            let sent: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            sender.send(&sent).unwrap();
            let mut seen = None;
            let received =
                receiver.receive(&socket, &mut buffers, |datagram| seen = Some(datagram.to_vec())).unwrap();
            assert_eq!((received.datagrams, received.truncated), (1, 0), "{length}");
            assert!(seen.as_ref() == Some(&sent), "{length}");
        }
    }

    #[test]
    fn of_a_datagram_that_is_too_long_whole_lines_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let socket = Socket::open(&Address::Unix(None), &path).unwrap();
        let sender = UnixDatagram::unbound().unwrap();
        let line = b"some.name:123|c\n";
        let long: Vec<u8> = line.iter().copied().cycle().take(line.len() * 5000).collect();
        sender.send_to(&long, &path).unwrap();
        let mut bytes = 0;
        let received =
            Receiver::default().receive(&socket, &mut Buffers::default(), |part| bytes = part.len()).unwrap();
        assert_eq!((received.datagrams, received.truncated), (1, 1));
        assert_eq!(bytes, DATAGRAM_MAX / line.len() * line.len());
    }
}
