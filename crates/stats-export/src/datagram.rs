//! Numbers for a statsd: datagrams, which nobody acknowledges.

use crate::counts::Counts;
use crate::formats::statsd::Forward;
use crate::resolve::{Looked, Lookup};
use crate::setting::{Place, Setting};
use crate::sink::{Due, Selection, Sink, buffered};
use crate::snapshot::Snapshot;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What may wait.
const BUFFER_MAX: usize = 16 << 20;
/// After a failure.
const PAUSE: Duration = Duration::from_secs(2);
/// Datagrams in one go, and the time until the next: a receiver's queue is short.
const BURST: usize = 32;
const BETWEEN: Duration = Duration::from_millis(2);
/// A name's address is looked for anew after that: with datagrams nobody says that it has changed.
const LOOK_AGAIN: Duration = Duration::from_secs(300);

enum Socket {
    Closed,
    Looking(Box<Lookup>, u16),
    Udp(UdpSocket),
    Unix(UnixDatagram),
}

/// See the module's description.
pub(crate) struct Datagrams {
    setting: Setting,
    selection: Selection,
    counts: Arc<Counts>,
    forward: Forward,
    /// With the series that its snapshot had, at the last of its datagrams.
    queue: VecDeque<(Vec<u8>, u64, Instant)>,
    socket: Socket,
    opened: Instant,
    /// Nothing is done before.
    again: Instant,
    due: Due,
    ending: bool,
}

impl Datagrams {
    pub(crate) fn new(setting: &Setting, private_jobs: bool, counts: Arc<Counts>, now: Instant) -> Self {
        Datagrams {
            selection: Selection::new(setting, false, private_jobs),
            setting: setting.clone(),
            counts,
            forward: Forward::default(),
            queue: VecDeque::new(),
            socket: Socket::Closed,
            opened: now,
            again: now,
            due: Due::default(),
            ending: false,
        }
    }

    fn enqueue(&mut self, snapshot: &Snapshot, now: Instant) {
        let view = self.selection.view(snapshot);
        let series = view.points.len() as u64;
        let datagrams = self.forward.datagrams(&view, &self.setting.prefix);
        let count = datagrams.len();
        for (at, datagram) in datagrams.into_iter().enumerate() {
            self.queue.push_back((datagram, if at + 1 == count { series } else { 0 }, now));
        }
        let mut waiting = self.waiting();
        while waiting > BUFFER_MAX
            && let Some((datagram, series, _)) = self.queue.pop_front()
        {
            waiting -= datagram.len();
            Counts::add(&self.counts.dropped, series);
        }
        buffered(&self.counts, waiting);
    }

    fn waiting(&self) -> usize {
        self.queue.iter().map(|(datagram, ..)| datagram.len()).sum()
    }

    fn go_on(&mut self, now: Instant) {
        if now < self.again {
            return;
        }
        if matches!(&self.setting.place, Place::Remote(_))
            && now.saturating_duration_since(self.opened) > LOOK_AGAIN
        {
            self.socket = Socket::Closed;
        }
        if self.queue.is_empty() {
            return;
        }
        if let Err(error) = self.open(now) {
            return self.fail(&error, now);
        }
        for _ in 0..BURST {
            let Some((datagram, series, since)) = self.queue.front() else { break };
            let sent = match &self.socket {
                Socket::Closed | Socket::Looking(..) => return,
                Socket::Udp(socket) => socket.send(datagram),
                Socket::Unix(socket) => socket.send(datagram),
            };
            match sent {
                Ok(_) => {
                    if *series > 0 {
                        Counts::add(&self.counts.sent, *series);
                        self.counts.took(now.saturating_duration_since(*since));
                        self.counts.succeed();
                    }
                    self.queue.pop_front();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A Unix socket's receiver does not keep up.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.counts.fail("its queue is full");
                    self.again = now + PAUSE / 8;
                    return;
                }
                Err(error) => return self.fail(&error.to_string(), now),
            }
        }
        buffered(&self.counts, self.waiting());
        if !self.queue.is_empty() {
            self.again = now + BETWEEN;
        }
    }

    fn open(&mut self, now: Instant) -> Result<(), String> {
        let failed = |error: io::Error| error.to_string();
        if let Socket::Closed = self.socket {
            self.opened = now;
            self.socket = match &self.setting.place {
                Place::Unix(path) => {
                    let socket = UnixDatagram::unbound().map_err(failed)?;
                    socket.set_nonblocking(true).map_err(failed)?;
                    socket.connect(path).map_err(failed)?;
                    Socket::Unix(socket)
                }
                Place::Remote(remote) => match remote.host.parse::<IpAddr>() {
                    Ok(ip) => Socket::Udp(udp(SocketAddr::new(ip, remote.port)).map_err(failed)?),
                    Err(_) => Socket::Looking(Box::new(Lookup::new(&remote.host, now)), remote.port),
                },
                _ => return Err(Errno::EINVAL.to_string()),
            };
        }
        if let Socket::Looking(lookup, port) = &mut self.socket {
            match lookup.go_on(now) {
                Looked::Waits => {}
                Looked::Found(found) => {
                    let ip = found.first().copied().ok_or("it has no address")?;
                    self.socket = Socket::Udp(udp(SocketAddr::new(ip, *port)).map_err(failed)?);
                }
                Looked::Failed(why) => return Err(why),
            }
        }
        Ok(())
    }

    fn fail(&mut self, error: &str, now: Instant) {
        self.counts.fail(error);
        self.socket = Socket::Closed;
        self.again = now + PAUSE;
        if self.ending {
            let series = self.queue.drain(..).map(|(_, series, _)| series).sum();
            Counts::add(&self.counts.dropped, series);
        }
    }
}

fn udp(to: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = if to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.set_nonblocking(true)?;
    socket.connect(to)?;
    Ok(socket)
}

impl Sink for Datagrams {
    fn offer(&mut self, snapshot: &Arc<Snapshot>, now: Instant) {
        if !self.ending && self.due.takes(self.setting.period.unwrap_or_default(), now) {
            self.enqueue(snapshot, now);
            self.go_on(now);
        }
    }

    fn end(&mut self, snapshot: Option<&Arc<Snapshot>>, now: Instant) {
        self.ending = true;
        if !self.setting.by_rank {
            snapshot.into_iter().for_each(|snapshot| self.enqueue(snapshot, now));
        }
        self.again = now;
        self.go_on(now);
    }

    fn watched<'a>(&'a self, out: &mut Vec<(u64, PollFd<'a>)>) {
        match &self.socket {
            Socket::Looking(lookup, _) => out.extend(lookup.watched().map(|fd| (0, fd))),
            // An error of the datagram before, which the receiver's machine has told.
            Socket::Udp(socket) => out.push((0, PollFd::new(socket.as_fd(), PollFlags::empty()))),
            Socket::Closed | Socket::Unix(_) => {}
        }
    }

    fn wakes_at(&self) -> Option<Instant> {
        match &self.socket {
            Socket::Looking(lookup, _) => Some(lookup.deadline()),
            _ => (!self.queue.is_empty()).then_some(self.again),
        }
    }

    fn ready(&mut self, _number: u64, _events: PollFlags, now: Instant) {
        if let Socket::Udp(socket) = &self.socket
            && let Ok(Some(error)) = socket.take_error()
        {
            return self.fail(&error.to_string(), now);
        }
        self.go_on(now);
    }

    fn tick(&mut self, now: Instant) {
        self.go_on(now);
    }

    fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }
}
