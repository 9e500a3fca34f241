//! One scraper's connection: what it has sent, and what it is still to be sent.

use super::request::{HEAD_MAX, Read, Refused, Request, read};
use std::io::{self, ErrorKind, Read as _, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a request may take to arrive once it has begun, and an answer to be taken.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may be idle: some scrape every two minutes.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(150);

/// From when on a client that reads an answer is slow: over a network most take milliseconds.
const SLOW: Duration = Duration::from_secs(1);

/// What a connection that gives way to others is at, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GivesWay {
    Idle,
    Asking,
    Reading,
}

/// A socket that somebody has connected to.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&mut &*stream).read(into),
            Stream::Unix(stream) => (&mut &*stream).read(into),
        }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&mut &*stream).write(bytes),
            Stream::Unix(stream) => (&mut &*stream).write(bytes),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

/// What is sent: a head of its own, and a body that others may be sent, too.
pub(crate) struct Answer {
    pub(crate) head: Vec<u8>,
    pub(crate) body: Arc<Vec<u8>>,
    /// Series in it.
    pub(crate) series: u64,
    /// When it was asked for.
    pub(crate) asked: Instant,
    /// The connection goes on after it.
    pub(crate) keep_alive: bool,
}

struct Sending {
    answer: Answer,
    sent: usize,
}

/// What happened on a connection.
pub(crate) enum Event {
    /// Nothing more for now.
    None,
    /// A request, to be answered.
    Asked(Request),
    /// One that is refused, after which the connection ends.
    Refused(Refused),
    /// An answer was taken whole.
    Taken(Answer),
    /// It is over.
    Over,
}

/// See the module's description.
pub(crate) struct Connection {
    stream: Stream,
    received: Vec<u8>,
    sending: Option<Sending>,
    deadline: Instant,
}

impl Connection {
    pub(crate) fn new(stream: Stream, now: Instant) -> Self {
        Connection { stream, received: Vec::new(), sending: None, deadline: now + REQUEST_TIMEOUT }
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether it waits for room to write.
    pub(crate) fn is_sending(&self) -> bool {
        self.sending.is_some()
    }

    /// Whether nothing of a request has come, nor is one being answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.sending.is_none() && self.received.is_empty()
    }

    /// How it may be ended where others need the room: less is done to who is idle than to who has begun a request, and to
    /// that one less than to who takes too long to read an answer. `None`: not now.
    pub(crate) fn gives_way(&self, now: Instant) -> Option<(GivesWay, Instant)> {
        let way = match &self.sending {
            None if self.received.is_empty() => GivesWay::Idle,
            None => GivesWay::Asking,
            Some(sending) if now.saturating_duration_since(sending.answer.asked) >= SLOW => GivesWay::Reading,
            Some(_) => return None,
        };
        Some((way, self.deadline))
    }

    pub(crate) fn send(&mut self, answer: Answer, now: Instant) {
        self.deadline = now + ANSWER_TIMEOUT;
        self.sending = Some(Sending { answer, sent: 0 });
    }

    /// Goes on as far as it can without waiting.
    pub(crate) fn go_on(&mut self, now: Instant) -> Event {
        match self.write(now) {
            Ok(None) => {}
            Ok(Some(event)) => return event,
            Err(_) => return Event::Over,
        }
        if self.is_sending() {
            return Event::None;
        }
        loop {
            // What came with the request before, perhaps.
            if !self.received.is_empty() {
                match read(&self.received) {
                    Read::Whole(length, request) => {
                        self.received.drain(..length);
                        return Event::Asked(request);
                    }
                    Read::Refused(refused) => return Event::Refused(refused),
                    Read::Partial => {}
                }
            }
            let mut some = [0; 2048];
            match self.stream.read(&mut some) {
                Ok(0) => return Event::Over,
                Ok(length) => {
                    if self.received.is_empty() {
                        self.deadline = now + REQUEST_TIMEOUT;
                    }
                    // The reader refuses what is longer than a head may be.
                    debug_assert!(self.received.len() < HEAD_MAX);
                    self.received.extend_from_slice(&some[..length]);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Event::None,
                Err(_) => return Event::Over,
            }
        }
    }

    fn write(&mut self, now: Instant) -> io::Result<Option<Event>> {
        let Some(sending) = &mut self.sending else { return Ok(None) };
        let Sending { answer, sent } = sending;
        let length = answer.head.len() + answer.body.len();
        while *sent < length {
            let rest = match sent.checked_sub(answer.head.len()) {
                None => &answer.head[*sent..],
                Some(of_body) => &answer.body[of_body..],
            };
            match self.stream.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => *sent += written,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        // What has come of the next request is a request that has begun.
        self.deadline = now + if self.received.is_empty() { IDLE_TIMEOUT } else { REQUEST_TIMEOUT };
        Ok(self.sending.take().map(|sending| Event::Taken(sending.answer)))
    }
}
