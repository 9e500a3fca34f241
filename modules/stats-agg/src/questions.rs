//! Questions of others: answered in slices, so that the reactor hears everybody else between them, and from below where
//! an answer is by rank or by subtree.
//!
//! Per-rank numbers stay where they are measured. `by: "rank"` asks each rank for its own, `by: "subtree"` each sender
//! for what its subtree amounts to; who does not answer in time is named in the answer, which goes out without it.

use crate::agg::StatsAgg;
use crate::allowance::{Allowances, BURST, PER_SECOND};
use crate::collect::{hidden_from_guests, hidden_in_private_mode};
use flux::{Answer, Error, KeptRequest, Level, Node as To, Payload, PendingRpc, Reply, Request, Scope};
use serde_json::{Value, json};
use stats_core::{By, Hidden, IdSet, Query, Steps, Whose, framed, series_text};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// The longest that a slice of the reactor is spent on answers at a time.
const SLICE: Duration = Duration::from_millis(2);
/// Series between two looks at the clock.
const STEP: usize = 16;
/// Questions under way at once; more are refused.
const QUESTIONS_MAX: usize = 256;
/// Ranks that one question asks at a time, and all questions together.
const ASKED_MAX: usize = 64;
const ALL_ASKED_MAX: usize = 512;
/// How long ranks have to answer, all of them together.
const GATHER_TIMEOUT: Duration = Duration::from_secs(3);
/// A longer answer is refused.
const ANSWER_MAX: usize = 64 << 20;
/// How often it is there while it is sent: in parts, as a whole, for libflux, and in its message.
const COPIES: usize = 4;
/// Streams that are open at once; more are refused.
const STREAMS_MAX: usize = 64;
/// Of both, guests together may have one in so many, and each of them one in so many.
const OF_GUESTS: usize = 2;
const OF_A_GUEST: usize = 8;
/// What one stream may send before it ends. A client that does not read leaves what it is sent in the broker's memory,
/// of which Flux tells nobody; one that does reads the end and asks again.
const STREAM_MAX: usize = 4 << 20;

/// What a question may have: a hundred patterns and a set of ranks are far less.
const PAYLOAD_MAX: usize = 1 << 20;

/// All questions.
#[derive(Default)]
pub(crate) struct Questions {
    under_way: BTreeMap<u64, Question>,
    streams: BTreeMap<u64, Stream>,
    numbers: u64,
    guests: Allowances,
    /// A timer is set for the next slice.
    awake: bool,
}

impl Questions {
    pub(crate) fn open_streams(&self) -> usize {
        self.streams.len()
    }
}

/// One that awaits its answer.
struct Question {
    to: Asker,
    /// The answer without its series; null for a tree.
    frame: Value,
    /// This rank's own part, in the making.
    steps: Option<Steps>,
    gather: Option<Gather>,
    /// Parts that are whole, by rank.
    parts: BTreeMap<u32, String>,
    bytes: usize,
    /// Why there will be no answer.
    refused: Option<Error>,
}

enum Asker {
    /// A streaming request that wants but one answer is told that there is no more (RFC 6).
    Once { request: KeptRequest, streaming: bool, guest: Option<u32> },
    /// One of the streams.
    Stream(u64),
    /// An exporter of that name.
    Export(String),
}

/// A question that is answered anew at the end of each period.
struct Stream {
    request: KeptRequest,
    query: Query,
    payload: Value,
    /// Its last answer is not whole yet.
    busy: bool,
    /// Bytes that it has sent.
    sent: usize,
    /// The user who asks; `None`: the instance's owner.
    guest: Option<u32>,
}

/// What is asked of other ranks.
struct Gather {
    payload: Value,
    subtrees: bool,
    /// What is kept from who asks: other ranks answer us, and know of nobody else.
    hidden: Option<Hidden>,
    /// Ranks that are still to be asked, the next one last.
    left: Vec<u32>,
    asked: HashMap<u32, PendingRpc>,
    unanswered: IdSet,
    begun: Option<Instant>,
}

impl Gather {
    fn is_whole(&self) -> bool {
        self.left.is_empty() && self.asked.is_empty()
    }

    fn remaining(&self) -> Duration {
        self.begun.map_or(GATHER_TIMEOUT, |begun| GATHER_TIMEOUT.saturating_sub(begun.elapsed()))
    }
}

impl Question {
    fn is_whole(&self) -> bool {
        self.steps.is_none() && self.gather.as_ref().is_none_or(Gather::is_whole)
    }

    fn put(&mut self, rank: u32, part: String) {
        self.bytes += part.len();
        self.parts.insert(rank, part);
    }

    /// Ends it where it has become more than may be answered, or than there is memory for.
    fn check_size(&mut self) {
        let bytes = self.bytes + self.steps.as_ref().map_or(0, Steps::len);
        let outcome = if bytes > ANSWER_MAX {
            Err(Error::new(libc::EFBIG, format!("the answer exceeds {ANSWER_MAX} bytes")))
        } else {
            flux::afford(bytes.saturating_mul(COPIES))
        };
        let Err(error) = outcome else { return };
        let text = format!("{error}: ask for fewer series (match) or ranks");
        self.refused = Some(Error::new(error.errnum(), text));
        (self.steps, self.parts) = (None, BTreeMap::new());
        if let Some(gather) = &mut self.gather {
            gather.left.clear();
            gather.asked.clear();
        }
    }
}

impl Asker {
    fn once(scope: &Scope<StatsAgg>, request: &Request<'_>) -> Result<Self, Error> {
        let (streaming, guest) = (request.is_streaming(), guest(request));
        Ok(Asker::Once { request: scope.keep(request)?, streaming, guest })
    }
}

/// The user who sent a request; `None`: the instance's owner.
fn guest(request: &Request<'_>) -> Option<u32> {
    (!request.from_owner()).then(|| request.userid())
}

/// Refuses one more where there are too many, or where guests have what they may have.
fn check_room(
    what: &str,
    max: usize,
    guest: Option<u32>,
    there: impl Iterator<Item = Option<u32>>,
) -> Result<(), Error> {
    let there: Vec<Option<u32>> = there.collect();
    let busy = |text: String| Err(Error::new(libc::EBUSY, text));
    if there.len() >= max {
        return busy(format!("{max} {what} already; ask again in a moment"));
    }
    if guest.is_some() && there.iter().filter(|of| of.is_some()).count() >= max / OF_GUESTS {
        return busy(format!("{} {what} of guests already; ask again in a moment", max / OF_GUESTS));
    }
    if guest.is_some() && there.iter().filter(|of| **of == guest).count() >= max / OF_A_GUEST {
        return busy(format!("{} {what} of yours already", max / OF_A_GUEST));
    }
    Ok(())
}

impl StatsAgg {
    /// The merged tree of this rank's subtree.
    pub(crate) fn ask_tree(&mut self, scope: &Scope<Self>, request: &Request<'_>) -> Result<Answer, Error> {
        self.check_questions(guest(request))?;
        let mut query = Query::default();
        query.hide(self.hidden(request.from_owner()));
        let steps = Steps::tree(&self.node, query);
        self.begin(scope, Asker::once(scope, request)?, Value::Null, Some(steps), None);
        Ok(Answer::Later)
    }

    /// Series with totals, rates and coverage.
    pub(crate) fn ask_series(&mut self, scope: &Scope<Self>, request: &Request<'_>) -> Result<Answer, Error> {
        let mut payload = request.json_within(PAYLOAD_MAX)?;
        let query = Query::parse(&payload).map_err(|error| Error::invalid(error.to_string()))?;
        self.check_questions(guest(request))?;
        if let Value::Object(keys) = &mut payload {
            keys.remove("stream");
        }
        if !query.stream() {
            self.answer(scope, Asker::once(scope, request)?, query, payload, request.from_owner());
            return Ok(Answer::Later);
        }
        if !request.is_streaming() {
            return Err(Error::new(libc::EPROTO, "stream: the request must be a streaming one (RFC 6)"));
        }
        let open = self.questions.streams.values().map(|stream| stream.guest);
        check_room("streams are open", STREAMS_MAX, guest(request), open)?;
        self.questions.numbers += 1;
        let number = self.questions.numbers;
        let stream = Stream {
            request: scope.keep(request)?,
            query,
            payload,
            busy: false,
            sent: 0,
            guest: guest(request),
        };
        self.questions.streams.insert(number, stream);
        self.feed(scope, number);
        Ok(Answer::Later)
    }

    /// What is kept from whoever asks.
    fn hidden(&self, owner: bool) -> Option<Hidden> {
        match (owner, self.config.private_jobs) {
            (true, _) => None,
            (false, true) => Some(hidden_in_private_mode),
            (false, false) => Some(hidden_from_guests),
        }
    }

    fn check_questions(&mut self, guest: Option<u32>) -> Result<(), Error> {
        if let Some(wait) = guest.and_then(|guest| self.questions.guests.wait(guest, Instant::now())) {
            let text = format!(
                "a guest may be sent {BURST} bytes at once and {PER_SECOND} in each second after: ask again in {:.0} s",
                wait.as_secs_f64().ceil()
            );
            return Err(Error::new(libc::EAGAIN, text));
        }
        let under_way = self.questions.under_way.values().map(|question| match question.to {
            Asker::Once { guest, .. } => guest,
            Asker::Stream(_) | Asker::Export(_) => None,
        });
        check_room("questions are under way", QUESTIONS_MAX, guest, under_way)
    }

    /// A client is gone, and so are its streams and what it waits for.
    pub(crate) fn end_streams_of(&mut self, request: &Request<'_>) {
        self.questions.streams.retain(|_, stream| !stream.request.is_ended_by(request));
        self.questions.under_way.retain(|_, question| match &question.to {
            Asker::Once { request: of, .. } => !of.is_ended_by(request),
            Asker::Stream(_) | Asker::Export(_) => true,
        });
    }

    /// A stream is no longer wanted.
    pub(crate) fn cancel_stream(&mut self, request: &Request<'_>) {
        self.end_streams_if(
            |stream| stream.request.is_cancelled_by(request),
            &Error::new(libc::ECANCELED, "cancelled"),
        );
    }

    /// Guests may not ask any more: nor are those answered who have asked for more than one answer.
    pub(crate) fn end_streams_of_guests(&mut self) {
        let why = Error::new(libc::EPERM, "guests may not ask any more (guest-query)");
        self.end_streams_if(|stream| stream.guest.is_some(), &why);
    }

    /// The module ends: all streams do, in order.
    pub(crate) fn end_streams(&mut self) {
        self.end_streams_if(|_| true, &Error::new(libc::ENODATA, "the module is being unloaded"));
    }

    fn end_streams_if(&mut self, ends: impl Fn(&Stream) -> bool, why: &Error) {
        let streams = std::mem::take(&mut self.questions.streams);
        let (ended, kept): (BTreeMap<_, _>, BTreeMap<_, _>) =
            streams.into_iter().partition(|(_, stream)| ends(stream));
        self.questions.streams = kept;
        ended.into_values().for_each(|stream| stream.request.respond(Err(why.clone())));
    }

    /// The end of a period: every stream gets an answer, unless its last one is still in the making.
    pub(crate) fn feed_streams(&mut self, scope: &Scope<Self>) {
        let waiting: Vec<u64> = self
            .questions
            .streams
            .iter()
            .filter(|(_, stream)| !stream.busy)
            .map(|(&number, _)| number)
            .collect();
        waiting.into_iter().for_each(|number| self.feed(scope, number));
    }

    fn feed(&mut self, scope: &Scope<Self>, number: u64) {
        if let Some(stream) = self.questions.streams.get_mut(&number) {
            stream.busy = true;
            let (query, payload, owner) =
                (stream.query.clone(), stream.payload.clone(), stream.guest.is_none());
            self.answer(scope, Asker::Stream(number), query, payload, owner);
        }
    }

    fn answer(&mut self, scope: &Scope<Self>, to: Asker, mut query: Query, mut payload: Value, owner: bool) {
        query.hide(self.hidden(owner));
        let now = self.now();
        let mut frame = self.node.frame(now);
        frame["instance"] = self.instance.clone();
        // A line that somebody sent is for the owner's eyes alone.
        let told = |what: Value| if owner { what } else { Value::Null };
        for (key, what) in
            [("statsd", told(self.statsd.describe())), ("export", told(self.exports.describe()))]
        {
            if !what.is_null() {
                frame[key] = what;
            }
        }
        let (own, wanted) = match query.by() {
            By::None => {
                let steps = Steps::list(&self.node, query, Whose::Subtree);
                return self.begin(scope, to, frame, Some(steps), None);
            }
            By::Subtree => (true, self.node.senders()),
            By::Rank => {
                let covered = self.node.covered(now);
                let wanted = query.ranks().cloned().unwrap_or_else(|| covered.clone());
                let rank = self.node.config().rank;
                let unheard = wanted.minus(&covered);
                frame["unanswered"] = unheard.to_string().into();
                let mut others = wanted.both(&covered);
                others.remove(rank);
                (wanted.contains(rank), others)
            }
        };
        let (subtrees, hidden) = (query.by() == By::Subtree, query.hidden());
        if subtrees {
            payload["by"] = json!("none");
        }
        let steps = own.then(|| Steps::list(&self.node, query, Whose::Own));
        let mut left: Vec<u32> = wanted.iter().collect();
        left.reverse();
        let unanswered = frame["unanswered"].as_str().and_then(|ranks| ranks.parse().ok());
        let unanswered = unanswered.unwrap_or_default();
        let gather =
            Gather { payload, subtrees, hidden, left, asked: HashMap::new(), unanswered, begun: None };
        self.begin(scope, to, frame, steps, Some(gather));
    }

    /// Asks ranks for an exporter.
    pub(crate) fn ask_for_export(&mut self, scope: &Scope<Self>, name: String, payload: Value) {
        match Query::parse(&payload) {
            Ok(query) => self.answer(scope, Asker::Export(name), query, payload, true),
            Err(error) => self.ranks_answered(&name, Err(error.to_string())),
        }
    }

    fn begin(
        &mut self,
        scope: &Scope<Self>,
        to: Asker,
        frame: Value,
        steps: Option<Steps>,
        gather: Option<Gather>,
    ) {
        self.questions.numbers += 1;
        let number = self.questions.numbers;
        let question = Question { to, frame, steps, gather, parts: BTreeMap::new(), bytes: 0, refused: None };
        self.questions.under_way.insert(number, question);
        self.gather_more(scope);
        // What is short is answered at once; with others before it, it waits for its turn.
        if !self.questions.awake {
            self.slice(scope);
        }
        // Nobody may be there to be asked.
        self.finish_if_whole(number);
    }

    /// A slice of work on answers, and a timer for the next one if there is more to do.
    fn slice(&mut self, scope: &Scope<Self>) {
        let (begun, now, rank) = (Instant::now(), self.now(), self.node.config().rank);
        self.questions.awake = false;
        let busy: Vec<u64> = self
            .questions
            .under_way
            .iter()
            .filter(|(_, question)| question.steps.is_some())
            .map(|(&number, _)| number)
            .collect();
        for number in busy {
            let Some(question) = self.questions.under_way.get_mut(&number) else { continue };
            while let Some(steps) = &mut question.steps {
                if begun.elapsed() > SLICE {
                    return self.wake(scope);
                }
                if steps.go_on(&self.node, now, STEP)
                    && let Some(steps) = question.steps.take()
                {
                    question.put(rank, steps.into_text());
                }
                question.check_size();
            }
            self.finish_if_whole(number);
        }
    }

    fn wake(&mut self, scope: &Scope<Self>) {
        // The reactor turns once before a timer of no time at all fires.
        let timer = match self.slicer.take() {
            Some(timer) => {
                timer.reset_timer(Duration::ZERO, Duration::ZERO);
                Ok(timer)
            }
            None => scope.timer(Duration::ZERO, Duration::ZERO, |agg: &mut Self, scope| {
                agg.on_own_account(|agg| agg.slice(scope));
            }),
        };
        match timer {
            Ok(timer) => {
                self.slicer = Some(timer);
                self.questions.awake = true;
            }
            Err(error) => scope.log(Level::Err, &format!("answers wait for the next question: {error}")),
        }
    }

    /// Asks more ranks, of as many questions as may.
    fn gather_more(&mut self, scope: &Scope<Self>) {
        let gathering = |(&number, question): (&u64, &Question)| {
            question.gather.as_ref().is_some_and(|gather| !gather.is_whole()).then_some(number)
        };
        let numbers: Vec<u64> = self.questions.under_way.iter().filter_map(gathering).collect();
        let asked = |question: &Question| question.gather.as_ref().map_or(0, |gather| gather.asked.len());
        let asked: usize = self.questions.under_way.values().map(asked).sum();
        let mut free = ALL_ASKED_MAX.saturating_sub(asked);
        let topic = format!("{}.query", scope.name());
        for number in numbers {
            let Some(gather) =
                self.questions.under_way.get_mut(&number).and_then(|question| question.gather.as_mut())
            else {
                continue;
            };
            if free == 0 {
                break;
            }
            gather.begun.get_or_insert_with(Instant::now);
            let remaining = gather.remaining();
            while free > 0
                && gather.asked.len() < ASKED_MAX
                && let Some(rank) = gather.left.pop()
            {
                let payload = if gather.subtrees {
                    Payload::Json(&gather.payload)
                } else {
                    gather.payload["ranks"] = rank.to_string().into();
                    Payload::Json(&gather.payload)
                };
                let asked = if remaining.is_zero() {
                    Err(Error::new(libc::ETIMEDOUT, "no time is left"))
                } else {
                    scope.request(
                        &topic,
                        payload,
                        To::Rank(rank),
                        Some(remaining),
                        move |agg, scope, reply| {
                            agg.on_own_account(|agg| agg.gathered(scope, number, rank, reply));
                        },
                    )
                };
                match asked {
                    Ok(pending) => {
                        gather.asked.insert(rank, pending);
                        free -= 1;
                    }
                    Err(_) => drop(gather.unanswered.insert(rank)),
                }
            }
            self.finish_if_whole(number);
        }
    }

    /// A rank's answer to a part of a question.
    fn gathered(&mut self, scope: &Scope<Self>, number: u64, rank: u32, reply: Result<Reply, Error>) {
        let Some(question) = self.questions.under_way.get_mut(&number) else { return };
        let Some(gather) = question.gather.as_mut() else { return };
        gather.asked.remove(&rank);
        match reply.and_then(|reply| reply.json()) {
            Ok(answer) => {
                let part = series_text(answer, gather.subtrees.then_some(rank), gather.hidden);
                question.put(rank, part);
                question.check_size();
            }
            Err(_) => drop(gather.unanswered.insert(rank)),
        }
        self.finish_if_whole(number);
        self.gather_more(scope);
    }

    fn finish_if_whole(&mut self, number: u64) {
        let whole = self.questions.under_way.get(&number).is_some_and(Question::is_whole);
        let Some(question) = whole.then(|| self.questions.under_way.remove(&number)).flatten() else {
            return;
        };
        let bytes = question.bytes;
        let guest = match &question.to {
            Asker::Once { guest, .. } => *guest,
            Asker::Stream(number) => self.questions.streams.get(number).and_then(|stream| stream.guest),
            Asker::Export(_) => None,
        };
        if let Some(guest) = guest.filter(|_| question.refused.is_none()) {
            self.questions.guests.note(guest, bytes, Instant::now());
        }
        let answer = match question.refused {
            Some(error) => Err(error),
            None => Ok(Answer::Text(question_text(question.frame, question.gather, question.parts))),
        };
        match question.to {
            Asker::Once { request, streaming: true, .. } if answer.is_ok() => {
                answer.into_iter().for_each(|answer| request.send(answer));
                request.respond(Err(Error::new(libc::ENODATA, "that was all")));
            }
            Asker::Once { request, .. } => request.respond(answer),
            Asker::Export(name) => {
                let text = answer.map_err(|error| error.to_string()).map(|answer| match answer {
                    Answer::Text(text) => text,
                    _ => String::new(),
                });
                self.ranks_answered(&name, text);
            }
            Asker::Stream(number) => {
                let Some(mut stream) = self.questions.streams.remove(&number) else { return };
                stream.busy = false;
                stream.sent += bytes;
                match answer {
                    Ok(answer) if stream.sent < STREAM_MAX => {
                        stream.request.send(answer);
                        self.questions.streams.insert(number, stream);
                    }
                    Ok(answer) => {
                        stream.request.send(answer);
                        let text = format!("{STREAM_MAX} bytes have been sent: ask again to go on");
                        stream.request.respond(Err(Error::new(libc::ENODATA, text)));
                    }
                    Err(error) => stream.request.respond(Err(error)),
                }
            }
        }
    }
}

fn question_text(mut frame: Value, gather: Option<Gather>, parts: BTreeMap<u32, String>) -> String {
    if frame.is_null() {
        return parts.into_values().next().unwrap_or_default();
    }
    if let Some(gather) = gather {
        frame["unanswered"] = gather.unanswered.to_string().into();
    }
    let parts: Vec<String> = parts.into_values().collect();
    framed(&frame, &parts)
}
