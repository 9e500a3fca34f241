//! A TCP connection in the making, and one numbers are sent over. Nothing in it waits.

use super::reply::{Reply, Verdict};
use crate::address::Remote;
use crate::resolve::{Looked, Lookup};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, setsockopt, socket, sockopt,
};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

/// How long a connection may take to come about, a part of a payload to be taken, and an answer to come.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// What the kernel may take of what nobody reads.
const SEND_BUFFER: usize = 256 << 10;

/// See the module's description.
#[derive(Default)]
pub(crate) struct Link {
    state: State,
}

#[derive(Default)]
enum State {
    #[default]
    Closed,
    Failed(String),
    Looking(Box<Lookup>, u16),
    Connecting {
        stream: TcpStream,
        left: Vec<SocketAddr>,
        deadline: Instant,
    },
    Open {
        stream: TcpStream,
        sending: Option<Sending>,
    },
}

struct Sending {
    head: Vec<u8>,
    sent: usize,
    deadline: Instant,
    reply: Option<Reply>,
}

/// What came of going on.
pub(crate) enum Progress {
    /// Something must happen first.
    Waits,
    /// The kernel has all of the payload, and nobody answers.
    Taken,
    /// Somebody answered.
    Answered(Verdict),
    /// The other side closed a connection over which nothing was being sent.
    Closed,
    /// It did not work.
    Failed(String),
    /// It reads nothing: what was sent before is in the buffers of both systems.
    Stuck(String),
}

impl Link {
    pub(crate) fn open(to: &Remote, now: Instant) -> Self {
        let state = match to.host.parse::<IpAddr>() {
            Ok(ip) => connecting(vec![SocketAddr::new(ip, to.port)], now),
            Err(_) => State::Looking(Box::new(Lookup::new(&to.host, now)), to.port),
        };
        Link { state }
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Whether a payload can be begun.
    pub(crate) fn wants_head(&self) -> bool {
        matches!(self.state, State::Open { sending: None, .. })
    }

    /// Whether a payload is under way, as far as its first byte.
    pub(crate) fn is_sending(&self) -> bool {
        matches!(self.state, State::Open { sending: Some(_), .. })
    }

    pub(crate) fn has_begun(&self) -> bool {
        matches!(&self.state, State::Open { sending: Some(sending), .. } if sending.sent > 0)
    }

    /// Begins a payload, with what goes before it.
    pub(crate) fn begin(&mut self, head: Vec<u8>, now: Instant) {
        if let State::Open { sending, .. } = &mut self.state {
            *sending = Some(Sending { head, sent: 0, deadline: now + WRITE_TIMEOUT, reply: None });
        }
    }

    pub(crate) fn watched(&self) -> Option<PollFd<'_>> {
        match &self.state {
            State::Closed | State::Failed(_) => None,
            State::Looking(lookup, _) => lookup.watched(),
            State::Connecting { stream, .. } => Some(PollFd::new(stream.as_fd(), PollFlags::POLLOUT)),
            State::Open { stream, sending } => {
                let writing = sending.as_ref().is_some_and(|sending| sending.reply.is_none());
                let events = if writing { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN };
                Some(PollFd::new(stream.as_fd(), events))
            }
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Closed | State::Failed(_) => None,
            State::Looking(lookup, _) => Some(lookup.deadline()),
            State::Connecting { deadline, .. } => Some(*deadline),
            State::Open { sending, .. } => sending.as_ref().map(|sending| sending.deadline),
        }
    }

    /// Goes on as far as it can; `body` is the payload, if one has been begun.
    pub(crate) fn go_on(&mut self, body: &[u8], answered: bool, now: Instant) -> Progress {
        loop {
            match &mut self.state {
                State::Closed => return Progress::Waits,
                State::Failed(why) => return Progress::Failed(std::mem::take(why)),
                State::Looking(lookup, port) => match lookup.go_on(now) {
                    Looked::Waits => return Progress::Waits,
                    Looked::Found(found) => {
                        let found = found.into_iter().map(|ip| SocketAddr::new(ip, *port)).collect();
                        self.state = connecting(found, now);
                    }
                    Looked::Failed(why) => return Progress::Failed(why),
                },
                State::Connecting { stream, left, deadline } => {
                    let error = match (stream.take_error(), stream.peer_addr()) {
                        (Ok(Some(error)), _) | (Err(error), _) => error.to_string(),
                        (Ok(None), Ok(_)) => {
                            let Ok(stream) = stream.try_clone() else {
                                return Progress::Failed("no descriptors are left".to_owned());
                            };
                            self.state = State::Open { stream, sending: None };
                            return self.at_open(body, answered, now);
                        }
                        (Ok(None), Err(_)) if now < *deadline => return Progress::Waits,
                        (Ok(None), Err(_)) => format!("no connection within {CONNECT_TIMEOUT:?}"),
                    };
                    if left.is_empty() {
                        return Progress::Failed(error);
                    }
                    self.state = connecting(std::mem::take(left), now);
                }
                State::Open { .. } => return self.at_open(body, answered, now),
            }
        }
    }

    fn at_open(&mut self, body: &[u8], answered: bool, now: Instant) -> Progress {
        let State::Open { stream, sending } = &mut self.state else { return Progress::Waits };
        let Some(under_way) = sending else {
            return match hears_end(stream) {
                None => Progress::Waits,
                Some(Ok(())) => Progress::Closed,
                // With bytes of ours unread.
                Some(Err(error)) => broken(&error),
            };
        };
        // An answer may come before all is sent: a refusal, as a rule.
        if answered {
            match read_reply(stream, &mut under_way.reply) {
                Ok(Some((verdict, goes_on))) => {
                    let whole = under_way.sent == under_way.head.len() + body.len();
                    *sending = None;
                    if !goes_on || !whole {
                        self.state = State::Closed;
                    }
                    return Progress::Answered(verdict);
                }
                Ok(None) => {}
                Err(why) => return Progress::Failed(why),
            }
        } else if let Some(ended) = hears_end(stream) {
            return match ended {
                Ok(()) => Progress::Failed("it closed the connection".to_owned()),
                Err(error) => broken(&error),
            };
        }
        let length = under_way.head.len() + body.len();
        while under_way.sent < length {
            let rest = match under_way.sent.checked_sub(under_way.head.len()) {
                None => &under_way.head[under_way.sent..],
                Some(of_body) => &body[of_body..],
            };
            match stream.write(rest) {
                Ok(0) => return Progress::Failed("it takes nothing".to_owned()),
                Ok(written) => {
                    under_way.sent += written;
                    under_way.deadline = now + WRITE_TIMEOUT;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let late = now >= under_way.deadline;
                    let why = || format!("it has read nothing for {WRITE_TIMEOUT:?}");
                    return if late { Progress::Stuck(why()) } else { Progress::Waits };
                }
                Err(error) => return broken(&error),
            }
        }
        if !answered {
            *sending = None;
            return Progress::Taken;
        }
        if under_way.reply.is_none() {
            under_way.reply = Some(Reply::default());
            under_way.deadline = now + REPLY_TIMEOUT;
        }
        if now >= under_way.deadline {
            return Progress::Failed(format!("no answer within {REPLY_TIMEOUT:?}"));
        }
        Progress::Waits
    }
}

/// Reads away what a receiver that does not answer says, up to its end or error.
fn hears_end(stream: &mut TcpStream) -> Option<io::Result<()>> {
    let mut some = [0; 1024];
    for _ in 0..16 {
        match stream.read(&mut some) {
            Ok(0) => return Some(Ok(())),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(error) => return Some(Err(error)),
        }
    }
    None
}

/// The system ends a connection, too, over which nothing is read for long ([`begin`]).
fn broken(error: &io::Error) -> Progress {
    match error.kind() {
        ErrorKind::TimedOut => Progress::Stuck(error.to_string()),
        _ => Progress::Failed(error.to_string()),
    }
}

fn read_reply(stream: &mut TcpStream, reply: &mut Option<Reply>) -> Result<Option<(Verdict, bool)>, String> {
    let mut some = [0; 4096];
    loop {
        match stream.read(&mut some) {
            Ok(0) => {
                let reply = reply.get_or_insert_default();
                return reply.ended().map(|verdict| Some((verdict, false)));
            }
            Ok(length) => {
                let reply = reply.get_or_insert_default();
                if let Some(done) = reply.take(&some[..length])? {
                    return Ok(Some(done));
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// The first of `addresses` to which a connection can be begun.
fn connecting(mut addresses: Vec<SocketAddr>, now: Instant) -> State {
    let mut why = "it has no address".to_owned();
    while !addresses.is_empty() {
        let address = addresses.remove(0);
        match begin(address) {
            Ok(stream) => {
                return State::Connecting { stream, left: addresses, deadline: now + CONNECT_TIMEOUT };
            }
            Err(errno) => why = errno.desc().to_owned(),
        }
    }
    State::Failed(why)
}

fn begin(address: SocketAddr) -> nix::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(family, SockType::Stream, flags, None)?;
    setsockopt(&fd, sockopt::SndBuf, &SEND_BUFFER)?;
    setsockopt(&fd, sockopt::KeepAlive, &true)?;
    // A peer that is gone without a word is noticed.
    setsockopt(&fd, sockopt::TcpUserTimeout, &(2 * WRITE_TIMEOUT.as_millis() as u32))?;
    match connect(fd.as_raw_fd(), &SockaddrStorage::from(address)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(TcpStream::from(fd)),
        Err(errno) => Err(errno),
    }
}
