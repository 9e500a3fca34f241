//! Numbers that are sent over TCP: to Graphite, where nobody answers, and over HTTP, where somebody does.
//!
//! What is written is kept until it is taken: until the answer, or without one until the kernel has it and the next was
//! written, for a receiver that closes its connection may not have read the last. What was sent and not taken is sent
//! again, which does no harm: all of it names its time. Of what waits, the oldest goes when there is too much.

mod link;
pub(crate) mod reply;

use crate::address::Remote;
use crate::counts::Counts;
use crate::formats::{graphite, influx, otlp};
use crate::setting::{Place, Setting, Type};
use crate::sink::{Credentials, Due, Selection, Sink, buffered};
use crate::snapshot::Snapshot;
use link::{Link, Progress};
use nix::poll::{PollFd, PollFlags};
use reply::Verdict;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What may wait: some minutes of many series.
const BUFFER_MAX: usize = 16 << 20;
/// How long nothing is tried after a failure: twice as long after each, up to the greatest.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(15);

/// One snapshot, as it is sent.
#[derive(Debug)]
pub(crate) struct Payload {
    pub(crate) bytes: Vec<u8>,
    series: u64,
    /// When there was something to send.
    since: Instant,
    /// All of it was taken by the kernel before.
    counted: bool,
}

/// See the module's description.
pub(crate) struct Push {
    setting: Setting,
    selection: Selection,
    credentials: Option<Credentials>,
    counts: Arc<Counts>,
    to: Remote,
    queue: VecDeque<Payload>,
    /// The last one that the kernel took, where nobody says that it arrived.
    unsure: Option<Payload>,
    link: Link,
    /// How much was taken over it, and how much over the last one of which nothing was read in the end: so much goes into
    /// the systems' buffers, and the next one is not well before it has taken more.
    taken_bytes: usize,
    swallowed: usize,
    /// Nothing is begun before.
    again: Instant,
    pause: Duration,
    /// When numbers are taken the next time.
    due: Due,
    ending: bool,
}

impl Push {
    pub(crate) fn new(setting: &Setting, private_jobs: bool, counts: Arc<Counts>, now: Instant) -> Self {
        let to = match &setting.place {
            Place::Http(http) => http.to.clone(),
            Place::Remote(remote) => remote.clone(),
            // No setting of these types has another place.
            _ => Remote { host: String::new(), port: 0 },
        };
        Push {
            selection: Selection::new(setting, false, private_jobs),
            credentials: setting.credentials_file.clone().map(Credentials::new),
            setting: setting.clone(),
            counts,
            to,
            queue: VecDeque::new(),
            unsure: None,
            link: Link::default(),
            taken_bytes: 0,
            swallowed: 0,
            again: now,
            pause: PAUSE_MIN,
            due: Due::default(),
            ending: false,
        }
    }

    fn is_answered(&self) -> bool {
        matches!(self.setting.place, Place::Http(_))
    }

    fn write(&self, snapshot: &Snapshot) -> (Vec<u8>, u64) {
        let (view, prefix) = (self.selection.view(snapshot), self.setting.prefix.as_str());
        let bytes = match self.setting.kind {
            Type::Graphite => graphite::plaintext(&view, prefix).into_bytes(),
            Type::GraphitePickle => graphite::pickle(&view, prefix),
            Type::Influx => influx::lines(&view, prefix).into_bytes(),
            Type::OtlpJson => otlp::json(&view, prefix).into_bytes(),
            Type::Otlp | Type::Prometheus | Type::Statsd | Type::Json => otlp::protobuf(&view, prefix),
        };
        (bytes, view.points.len() as u64)
    }

    fn enqueue(&mut self, snapshot: &Snapshot, now: Instant) {
        let (bytes, series) = self.write(snapshot);
        if bytes.is_empty() {
            return;
        }
        self.queue.push_back(Payload { bytes, series, since: now, counted: false });
        // What is being sent stays: half of it is there already.
        let begun = usize::from(self.link.is_sending());
        while self.waiting() > BUFFER_MAX && self.queue.len() > begun + 1 {
            let dropped = self.queue.remove(begun).map_or(0, |payload| payload.series);
            Counts::add(&self.counts.dropped, dropped);
        }
        self.note();
    }

    fn waiting(&self) -> usize {
        let unsure = self.unsure.as_ref().map_or(0, |payload| payload.bytes.len());
        self.queue.iter().map(|payload| payload.bytes.len()).sum::<usize>() + unsure
    }

    fn note(&self) {
        buffered(&self.counts, self.queue.iter().map(|payload| payload.bytes.len()).sum());
    }

    /// Does what can be done without waiting.
    fn go_on(&mut self, now: Instant) {
        let answered = self.is_answered();
        loop {
            if self.queue.is_empty() && self.link.is_closed() {
                return;
            }
            if self.link.is_closed() {
                if now < self.again {
                    return;
                }
                self.link = Link::open(&self.to, now);
                self.taken_bytes = 0;
            }
            if self.link.wants_head() && !self.queue.is_empty() {
                match self.head(now) {
                    Ok(head) => self.link.begin(head, now),
                    Err(error) => return self.fail(&error, now),
                }
            }
            let body = self.queue.front().map_or(&[][..], |payload| payload.bytes.as_slice());
            match self.link.go_on(body, answered, now) {
                // The connection has come about, perhaps.
                Progress::Waits if self.link.wants_head() && !self.queue.is_empty() => {}
                Progress::Waits => return,
                Progress::Taken => self.taken(now),
                Progress::Answered(Verdict::Taken) => self.taken(now),
                Progress::Answered(Verdict::Refused(why)) => {
                    self.counts.fail(&format!("{}: {why}", self.to));
                    let series = self.queue.pop_front().map_or(0, |payload| payload.series);
                    Counts::add(&self.counts.dropped, series);
                    self.note();
                }
                Progress::Answered(Verdict::Later(why)) | Progress::Failed(why) => {
                    return self.fail(&why, now);
                }
                Progress::Stuck(why) => {
                    self.swallowed = self.swallowed.max(self.taken_bytes);
                    return self.fail(&why, now);
                }
                // The last may not have been read. The next is sent at once: to close is anybody's right.
                Progress::Closed => self.put_back(false),
            }
        }
    }

    /// What goes before the numbers.
    fn head(&mut self, now: Instant) -> Result<Vec<u8>, String> {
        let Place::Http(http) = &self.setting.place else { return Ok(Vec::new()) };
        let content = match self.setting.kind {
            Type::Influx => "text/plain; charset=utf-8",
            Type::OtlpJson => "application/json",
            _ => "application/x-protobuf",
        };
        let length = self.queue.front().map_or(0, |payload| payload.bytes.len());
        let authorization = match &mut self.credentials {
            Some(credentials) => {
                let secret = credentials.get(now)?;
                match (secret.contains(':'), self.setting.kind) {
                    (true, _) => format!("Authorization: Basic {}\r\n", base64(secret.as_bytes())),
                    (false, Type::Influx) => format!("Authorization: Token {secret}\r\n"),
                    (false, _) => format!("Authorization: Bearer {secret}\r\n"),
                }
            }
            None => String::new(),
        };
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: flux-stats/{}\r\n{authorization}Content-Type: {content}\r\n\
             Content-Length: {length}\r\n\r\n",
            http.path,
            http.to,
            env!("CARGO_PKG_VERSION"),
        );
        Ok(head.into_bytes())
    }

    fn taken(&mut self, now: Instant) {
        let Some(payload) = self.queue.pop_front() else { return };
        if !payload.counted {
            Counts::add(&self.counts.sent, payload.series);
        }
        self.counts.took(now.saturating_duration_since(payload.since));
        self.taken_bytes += payload.bytes.len();
        if self.taken_bytes > self.swallowed {
            self.counts.succeed();
            self.pause = PAUSE_MIN;
            self.swallowed = 0;
        }
        if !self.is_answered() {
            self.unsure = Some(payload);
        }
        self.note();
    }

    /// What was sent last goes again: it is not known to have arrived. Where the connection ended in order, once: there are
    /// receivers that end it after each payload.
    fn put_back(&mut self, in_disorder: bool) {
        if let Some(payload) = self.queue.front().filter(|_| self.link.has_begun()) {
            Counts::add(&self.counts.retried, payload.series);
        }
        self.link = Link::default();
        if let Some(mut payload) = self.unsure.take().filter(|payload| in_disorder || !payload.counted) {
            payload.counted = true;
            Counts::add(&self.counts.retried, payload.series);
            self.queue.push_front(payload);
        }
    }

    fn fail(&mut self, error: &str, now: Instant) {
        self.counts.fail(&format!("{}: {error}", self.to));
        self.put_back(true);
        self.again = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        if self.ending {
            self.give_up();
        }
    }

    fn give_up(&mut self) {
        let series = self.queue.drain(..).map(|payload| payload.series).sum();
        Counts::add(&self.counts.dropped, series);
        self.note();
    }
}

impl Sink for Push {
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
        out.extend(self.link.watched().map(|fd| (0, fd)));
    }

    fn wakes_at(&self) -> Option<Instant> {
        let again = (self.link.is_closed() && !self.queue.is_empty()).then_some(self.again);
        self.link.deadline().into_iter().chain(again).min()
    }

    fn ready(&mut self, _number: u64, _events: PollFlags, now: Instant) {
        self.go_on(now);
    }

    fn tick(&mut self, now: Instant) {
        self.go_on(now);
    }

    fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }
}

/// RFC 4648.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits =
            three.iter().fold(0_u32, |bits, &byte| (bits << 8) | u32::from(byte)) << (8 * (3 - three.len()));
        for digit in 0..4 {
            let at = (bits >> (18 - 6 * digit)) as usize & 63;
            text.push(if digit <= three.len() { char::from(DIGITS[at]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn credentials_are_written_as_basic_authentication_has_them() {
        let of = |text: &str| base64(text.as_bytes());
        assert_eq!(of("Aladdin:open sesame"), "QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!(["", "f", "fo", "foo"].map(of), ["", "Zg==", "Zm8=", "Zm9v"]);
    }
}
