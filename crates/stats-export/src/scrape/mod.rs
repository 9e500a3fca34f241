//! What Prometheus scrapes: an HTTP server of one resource, within bounds that no client can leave.
//!
//! By hand over `httparse`: `tiny_http` and `rouille` bring threads of their own, which may not outlive the module, and
//! wait for their clients; `hyper` brings a runtime.

mod connection;
mod listener;
pub(crate) mod request;

use crate::counts::Counts;
use crate::formats::prometheus::{Format, expose};
use crate::setting::{Place, Setting};
use crate::sink::{Credentials, Selection, Sink, buffered};
use crate::snapshot::Snapshot;
use connection::{Answer, Connection, Event, GivesWay};
use flate2::Compression;
use flate2::write::GzEncoder;
use listener::Listener;
use nix::poll::{PollFd, PollFlags};
use request::{Refused, Request, Wanted, same};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Connections at once: of more, one gives way ([`GivesWay`]), or if none does the newest.
const CONNECTIONS_MAX: usize = 32;
/// Bodies that are being sent at once: they are of different moments and formats.
const BODIES_MAX: usize = 8;
/// Between two attempts to listen.
const RETRY: Duration = Duration::from_secs(5);
/// After an error of the system that should not be: not at once again.
const AFTER_ERROR: Duration = Duration::from_millis(100);
/// The listener's number; those of connections are greater.
const LISTENER: u64 = 0;

const INDEX: &str = "flux-stats: the numbers of this Flux instance are at /metrics\n";

/// Requests of one connection that are answered before others have their turn.
const REQUESTS_A_TURN: u32 = 4;

/// See the module's description.
pub(crate) struct Scrape {
    setting: Setting,
    default_path: PathBuf,
    selection: Selection,
    credentials: Option<Credentials>,
    counts: Arc<Counts>,
    listener: Option<Listener>,
    /// When to listen again; `None`: it listens, or has ended.
    retry: Option<Instant>,
    /// Until when nobody is let in.
    paused: Option<Instant>,
    connections: BTreeMap<u64, Connection>,
    numbers: u64,
    snapshot: Option<Arc<Snapshot>>,
    /// Bodies of that snapshot.
    bodies: Vec<(Form, Body)>,
    /// All bodies that somebody is being sent.
    alive: Vec<Weak<Vec<u8>>>,
}

type Form = (Format, bool);

#[derive(Clone)]
struct Body {
    bytes: Arc<Vec<u8>>,
    series: u64,
}

impl Scrape {
    pub(crate) fn new(
        setting: &Setting,
        default_path: PathBuf,
        private_jobs: bool,
        counts: Arc<Counts>,
        now: Instant,
    ) -> Self {
        // Whoever is on this machine can reach a port.
        let anybody = matches!(&setting.place, Place::Listen(crate::address::ListenAt::Tcp(_)))
            && setting.credentials_file.is_none();
        let mut scrape = Scrape {
            selection: Selection::new(setting, anybody, private_jobs),
            credentials: setting.credentials_file.clone().map(Credentials::new),
            setting: setting.clone(),
            default_path,
            counts,
            listener: None,
            retry: Some(now),
            paused: None,
            connections: BTreeMap::new(),
            numbers: LISTENER,
            snapshot: None,
            bodies: Vec::new(),
            alive: Vec::new(),
        };
        scrape.listen(now);
        // At once, and not only when somebody asks.
        if let Some(Err(error)) = scrape.credentials.as_mut().map(|credentials| credentials.get(now)) {
            scrape.counts.fail(&error);
        }
        scrape
    }

    fn listen(&mut self, now: Instant) {
        let Place::Listen(at) = &self.setting.place else { return };
        self.retry = Some(now + RETRY);
        match Listener::open(at, &self.default_path) {
            Ok(listener) => {
                self.counts.set_bound(&listener.bound.to_string());
                self.counts.succeed();
                (self.listener, self.retry) = (Some(listener), None);
            }
            Err(error) => {
                self.counts.fail(&format!("listen={at}: {error}; it is tried again every {RETRY:?}"))
            }
        }
    }

    fn accept(&mut self, now: Instant) {
        // As many as fit, in one go; whoever is left waits in the backlog.
        for _ in 0..CONNECTIONS_MAX {
            let Some(listener) = &self.listener else { return };
            match listener.accept() {
                Ok(Some(stream)) => {
                    if self.connections.len() >= CONNECTIONS_MAX && !self.make_room(now, GivesWay::Idle) {
                        Counts::add(&self.counts.refused, 1);
                        continue;
                    }
                    self.numbers += 1;
                    self.connections.insert(self.numbers, Connection::new(stream, now));
                    self.go_on(self.numbers, now);
                }
                Ok(None) => return,
                Err(error) => {
                    // No descriptors are left, say: the socket stays ready, and would keep us turning.
                    self.counts.fail(&format!("accept: {error}"));
                    self.paused = Some(now + AFTER_ERROR);
                    return;
                }
            }
        }
    }

    /// Ends one of those that give way; false: none does. An honest client's request comes at once, and so does its answer.
    fn make_room(&mut self, now: Instant, from: GivesWay) -> bool {
        let ways = self.connections.iter().filter_map(|(number, connection)| {
            connection.gives_way(now).filter(|(way, _)| *way >= from).map(|way| (way, *number))
        });
        let Some(((way, _), number)) = ways.min() else { return false };
        if way != GivesWay::Idle {
            Counts::add(&self.counts.refused, 1);
        }
        self.connections.remove(&number);
        true
    }

    fn go_on(&mut self, number: u64, now: Instant) {
        let mut asked = 0;
        loop {
            let Some(connection) = self.connections.get_mut(&number) else { return };
            match connection.go_on(now) {
                Event::None => return,
                Event::Over => {
                    self.connections.remove(&number);
                    return;
                }
                Event::Taken(answer) => {
                    if answer.series > 0 {
                        Counts::add(&self.counts.sent, answer.series);
                        self.counts.took(now.saturating_duration_since(answer.asked));
                        self.counts.succeed();
                    }
                    if !answer.keep_alive {
                        self.connections.remove(&number);
                        return;
                    }
                }
                Event::Asked(request) => {
                    let answer = self.answer(&request, now);
                    if let Some(connection) = self.connections.get_mut(&number) {
                        connection.send(answer, now);
                    }
                    // Of a client that sends many requests at once, others have their turn in between: what is being
                    // sent comes to be ready again, which what has been read does not.
                    asked += 1;
                    if asked == REQUESTS_A_TURN {
                        return;
                    }
                }
                Event::Refused(refused) => {
                    let (status, text) = match refused {
                        Refused::Malformed => {
                            ("400 Bad Request", "expected a GET or HEAD request of HTTP/1.1\n")
                        }
                        Refused::NotFound => ("404 Not Found", INDEX),
                        Refused::Method => {
                            ("405 Method Not Allowed\r\nAllow: GET, HEAD", "expected GET or HEAD\n")
                        }
                        Refused::TooLong => {
                            ("431 Request Header Fields Too Large", "the request is too long\n")
                        }
                    };
                    Counts::add(&self.counts.refused, 1);
                    if let Some(connection) = self.connections.get_mut(&number) {
                        connection.send(plain(status, text, false, false, now), now);
                    }
                }
            }
        }
    }

    fn answer(&mut self, request: &Request, now: Instant) -> Answer {
        let (head, keep_alive) = (request.head, request.keep_alive);
        let refuse = |scrape: &mut Self, status: &str, text: &str| {
            Counts::add(&scrape.counts.refused, 1);
            plain(status, text, head, keep_alive, now)
        };
        if request.wanted == Wanted::Index {
            return plain("200 OK", INDEX, head, keep_alive, now);
        }
        match self.credentials.as_mut().map(|credentials| credentials.get(now)) {
            Some(Err(error)) => {
                self.counts.fail(&error);
                return refuse(self, "503 Service Unavailable", "the token of this server cannot be read\n");
            }
            Some(Ok(secret))
                if !request.token.as_ref().is_some_and(|token| same(token, secret.as_bytes())) =>
            {
                let status = "401 Unauthorized\r\nWWW-Authenticate: Bearer";
                return refuse(self, status, "expected a bearer token\n");
            }
            _ => {}
        }
        let Some(body) = self.body((request.format, request.gzip), now) else {
            let text = "there are no numbers yet, or too many clients are slow to read theirs\n";
            return refuse(self, "503 Service Unavailable\r\nRetry-After: 2", text);
        };
        let mut headers =
            format!("Content-Type: {}\r\nVary: Accept, Accept-Encoding\r\n", request.format.content_type());
        if request.gzip {
            headers.push_str("Content-Encoding: gzip\r\n");
        }
        let mut answer = whole("200 OK", &headers, body.bytes, head, keep_alive, now);
        answer.series = if head { 0 } else { body.series };
        answer
    }

    /// Bodies that somebody is being sent.
    fn still_alive(&mut self) -> usize {
        self.alive.retain(|body| body.strong_count() > 0);
        self.alive.len()
    }

    /// Made once for all who ask for the same.
    fn body(&mut self, form: Form, now: Instant) -> Option<Body> {
        if let Some((_, body)) = self.bodies.iter().find(|(present, _)| *present == form) {
            return Some(body.clone());
        }
        while self.still_alive() >= BODIES_MAX {
            if !self.make_room(now, GivesWay::Reading) {
                return None;
            }
        }
        let snapshot = self.snapshot.clone()?;
        let (format, gzip) = form;
        let exposition = expose(&self.selection.view(&snapshot), &self.setting.prefix, format);
        if self.bodies.is_empty() {
            Counts::add(&self.counts.clashes, exposition.clashes);
        }
        let bytes = Arc::new(if gzip {
            compressed(exposition.text.as_bytes())
        } else {
            exposition.text.into_bytes()
        });
        self.alive.push(Arc::downgrade(&bytes));
        let body = Body { bytes, series: exposition.series };
        self.bodies.push((form, body.clone()));
        buffered(&self.counts, self.alive.iter().filter_map(Weak::upgrade).map(|body| body.len()).sum());
        Some(body)
    }
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 8), Compression::fast());
    // It writes to memory, which does not fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

fn plain(status: &str, text: &str, head: bool, keep_alive: bool, now: Instant) -> Answer {
    let body = Arc::new(text.as_bytes().to_vec());
    whole(status, "Content-Type: text/plain; charset=utf-8\r\n", body, head, keep_alive, now)
}

fn whole(
    status: &str,
    headers: &str,
    body: Arc<Vec<u8>>,
    head: bool,
    keep_alive: bool,
    asked: Instant,
) -> Answer {
    let connection = if keep_alive { "keep-alive" } else { "close" };
    let length = body.len();
    let text =
        format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: {connection}\r\n\r\n");
    let body = if head { Arc::default() } else { body };
    Answer { head: text.into_bytes(), body, series: 0, asked, keep_alive }
}

impl Sink for Scrape {
    fn offer(&mut self, snapshot: &Arc<Snapshot>, now: Instant) {
        if self.listener.as_ref().is_some_and(|listener| !listener.is_there()) {
            // First, so that it is not in the way of the next.
            self.listener = None;
            self.listen(now);
        }
        self.snapshot = Some(snapshot.clone());
        self.bodies.clear();
    }

    fn end(&mut self, _snapshot: Option<&Arc<Snapshot>>, _now: Instant) {
        (self.listener, self.retry) = (None, None);
        self.connections.retain(|_, connection| connection.is_sending());
    }

    fn watched<'a>(&'a self, out: &mut Vec<(u64, PollFd<'a>)>) {
        if let Some(listener) = &self.listener
            && self.paused.is_none()
        {
            out.push((LISTENER, PollFd::new(listener.as_fd(), PollFlags::POLLIN)));
        }
        for (number, connection) in &self.connections {
            let events = if connection.is_sending() { PollFlags::POLLOUT } else { PollFlags::POLLIN };
            out.push((*number, PollFd::new(connection.stream().as_fd(), events)));
        }
    }

    fn wakes_at(&self) -> Option<Instant> {
        let deadlines = self.connections.values().map(Connection::deadline);
        deadlines.chain(self.retry).chain(self.paused).min()
    }

    fn ready(&mut self, number: u64, _events: PollFlags, now: Instant) {
        if number == LISTENER { self.accept(now) } else { self.go_on(number, now) }
    }

    fn tick(&mut self, now: Instant) {
        let late: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.deadline() <= now)
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            let connection = self.connections.remove(&number);
            if connection.is_some_and(|connection| !connection.is_idle()) {
                Counts::add(&self.counts.refused, 1);
            }
        }
        if self.retry.is_some_and(|at| at <= now) {
            self.listen(now);
        }
        if self.paused.is_some_and(|until| until <= now) {
            self.paused = None;
        }
    }

    fn is_idle(&self) -> bool {
        !self.connections.values().any(Connection::is_sending)
    }
}
