//! Batches to the nearest ancestor that has the module, and questions to this broker.

use crate::agg::{StatsAgg, UNLOAD_TIMEOUT};
use flux::{Error, Level, Node as To, Payload, PendingRpc, Reply, Scope};
use serde_json::{Value, json};
use stats_core::{IdSet, SendFailure, Transmit};
use stats_probe::{AsOf, Name};
use std::time::{Duration, Instant};

/// The error number by which a receiver says that some of a batch has arrived by another road.
pub(crate) const OVERLAP: i32 = libc::EEXIST;
/// How long a question to this broker may take.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// The same trouble is not logged more often.
const SAME_TROUBLE: Duration = Duration::from_secs(60);
/// How long the answer to a batch may take before its receiver is asked whether it is there: twice as long each time, so
/// that one which stands still finds few such questions when it goes on.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest of these times.
const PATIENCE_MAX: Duration = Duration::from_secs(600);
/// Questions under way at once: a service that does not answer is not asked again and again.
const ASKING_MAX: usize = 8;

/// A batch that is on its way.
pub(crate) struct InFlight {
    /// Dropped, its answer is not waited for any more.
    _answer: PendingRpc,
    token: u64,
    to: u32,
    sent: Instant,
    patience: Duration,
    /// Whether the receiver answers anything at all.
    inquiry: Option<PendingRpc>,
}

impl StatsAgg {
    /// Sends what the node wants to send, from the parent up to the first ancestor that takes it.
    pub(crate) fn transmit(&mut self, scope: &Scope<Self>) {
        while self.in_flight.is_none() {
            let Some(transmit) = self.node.poll_transmit(self.now()) else { return };
            self.ancestors.restart(transmit.to);
            self.send(scope, transmit);
        }
    }

    fn send(&mut self, scope: &Scope<Self>, transmit: Transmit) {
        let topic = format!("{}.merge", scope.name());
        // No time-out while running: an answer comes, or an error when the way is lost, or see `inquire`.
        let timeout = scope.ending().then_some(UNLOAD_TIMEOUT);
        let token = transmit.token;
        let sent = match self.ancestors.current() {
            None => Err(Error::new(libc::ENOSYS, "this broker knows no ancestor")),
            Some(rank) => {
                self.node.sent_to(token, rank);
                let payload = transmit.payload.clone();
                let answer = scope.request(
                    &topic,
                    Payload::Raw(&payload),
                    To::Rank(rank),
                    timeout,
                    move |agg, scope, reply| {
                        agg.in_flight = None;
                        agg.on_reply(scope, transmit, reply);
                    },
                );
                answer.map(|answer| (rank, answer))
            }
        };
        match sent {
            Ok((to, answer)) => {
                let (sent, patience) = (Instant::now(), PATIENCE);
                self.in_flight = Some(InFlight { _answer: answer, token, to, sent, patience, inquiry: None });
            }
            Err(error) => self.on_receipt(scope, token, Err(error)),
        }
    }

    /// A broker without memory loses messages. A receiver that answers what it was asked after the batch has answered the
    /// batch, too, or never will, for messages keep their order: its outcome is unknown then, and no more is waited for. One
    /// that answers nothing stands still, and the batch is where it was.
    pub(crate) fn inquire(&mut self, scope: &Scope<Self>) {
        let Some(flight) = self.in_flight.as_mut() else { return };
        if flight.sent.elapsed() < flight.patience || scope.ending() {
            return;
        }
        flight.patience = (flight.patience * 2).min(flight.patience + PATIENCE_MAX);
        let (topic, token, rank) = (format!("{}.ping", scope.name()), flight.token, flight.to);
        let ping = json!({ "seq": 0, "pad": "" });
        // Whatever is answered, an error as well, is an answer.
        let asked =
            scope.request(&topic, Payload::Json(&ping), To::Rank(rank), None, move |agg, scope, _| {
                agg.give_up(scope, token);
            });
        flight.inquiry = asked.ok();
    }

    fn give_up(&mut self, scope: &Scope<Self>, token: u64) {
        let Some(flight) = self.in_flight.take_if(|flight| flight.token == token) else { return };
        let text = format!(
            "rank {} answers, but not to a batch of {:.0} s ago: kept, and asked about",
            flight.to,
            flight.sent.elapsed().as_secs_f64()
        );
        scope.log(Level::Warning, &text);
        self.node.handle_response(token, Err(SendFailure::Unknown));
        self.transmit(scope);
    }

    fn on_reply(&mut self, scope: &Scope<Self>, transmit: Transmit, reply: Result<Reply, Error>) {
        let absent = reply.as_ref().is_err_and(|error| error.errnum() == libc::ENOSYS);
        if absent && self.ancestors.advance() {
            self.send(scope, transmit);
        } else {
            if absent {
                self.explore_ancestors(scope);
            }
            self.on_receipt(scope, transmit.token, reply);
            self.transmit(scope);
        }
        if scope.ending() && self.in_flight.is_none() && self.node.is_drained() {
            scope.finish();
        }
    }

    fn on_receipt(&mut self, scope: &Scope<Self>, token: u64, reply: Result<Reply, Error>) {
        match reply {
            Ok(reply) => {
                self.node.handle_response(token, Ok(reply.raw()));
            }
            Err(error) => {
                self.node.handle_response(token, Err(failure(error.errnum())));
                self.log_trouble(scope, &error);
            }
        }
    }

    /// Nobody upstream has the module: normal while modules are being loaded, hence no more than a line for debugging.
    fn log_trouble(&mut self, scope: &Scope<Self>, error: &Error) {
        let errnum = error.errnum();
        // The text has numbers that change: the same trouble is known by its number.
        let again = self
            .upstream_trouble
            .is_some_and(|(known, logged)| known == errnum && logged.elapsed() < SAME_TROUBLE);
        if !again {
            self.upstream_trouble = Some((errnum, Instant::now()));
            let absent = matches!(errnum, libc::ENOSYS | libc::EHOSTUNREACH | libc::ETIMEDOUT);
            let level = if absent { Level::Debug } else { Level::Err };
            let then = match failure(errnum) {
                SendFailure::Overlap => "set aside, see stats-agg.batches_parked",
                SendFailure::Refused => "kept, and sent again",
                SendFailure::Unknown => "kept, and asked about",
            };
            scope.log(level, &format!("batch not taken upstream: {error}; {then}"));
        }
    }

    /// What each period needs to know of this broker.
    pub(crate) fn ask_around(&mut self, scope: &Scope<Self>) {
        self.explore_parent(scope);
        if self.measure.wants_names() {
            self.ask_for_modules(scope);
        }
        if self.instance["start_time"].is_null() {
            // The only rank where it is that of the instance.
            let attribute = json!({ "name": "broker.starttime" });
            self.ask(scope, "attr.get", Payload::Json(&attribute), To::Rank(0), |agg, _, answer| {
                let seconds = answer["value"].as_str().and_then(|seconds| seconds.parse::<f64>().ok());
                agg.instance["start_time"] = seconds.into();
            });
        }
        if self.node.is_root() {
            let group = json!({ "name": "broker.online" });
            self.ask(scope, "groups.get", Payload::Json(&group), To::Any, |agg, _, answer| {
                if let Some(online) = answer["members"].as_str().and_then(|ranks| ranks.parse::<IdSet>().ok())
                {
                    agg.node.set_online(online);
                }
            });
        }
    }

    /// The names of modules, which the kernel cuts, and the files of those that are processes.
    pub(crate) fn ask_for_modules(&mut self, scope: &Scope<Self>) {
        let as_of = AsOf::now();
        self.ask(scope, "module.list", Payload::None, To::Any, move |agg, _, answer| {
            let text = |module: &Value, key: &str| module[key].as_str().map(str::to_owned);
            let modules = answer["mods"].as_array().into_iter().flatten();
            let named: Vec<Name> = modules
                .filter_map(|module| Some(Name { name: text(module, "name")?, path: text(module, "path") }))
                .collect();
            agg.measure.set_names(&named, as_of);
            let now_ns = agg.now().mono_ns;
            agg.collect.collectors.take_list(&mut agg.node, &answer, now_ns);
        });
    }

    pub(crate) fn ask(
        &mut self,
        scope: &Scope<Self>,
        topic: &str,
        payload: Payload<'_>,
        to: To,
        take: impl FnOnce(&mut Self, &Scope<Self>, Value) + 'static,
    ) {
        if self.asking.len() >= ASKING_MAX || scope.ending() {
            return;
        }
        self.asked += 1;
        let number = self.asked;
        let asked = scope.request(topic, payload, to, Some(ASK_TIMEOUT), move |agg, scope, reply| {
            agg.asking.remove(&number);
            if let Ok(answer) = reply.and_then(|reply| reply.json()) {
                take(agg, scope, answer);
            }
        });
        if let Ok(pending) = asked {
            self.asking.insert(number, pending);
        }
    }
}

fn failure(errnum: i32) -> SendFailure {
    match errnum {
        OVERLAP => SendFailure::Overlap,
        libc::ETIMEDOUT => SendFailure::Unknown,
        _ => SendFailure::Refused,
    }
}
