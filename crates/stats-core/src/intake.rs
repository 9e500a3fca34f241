//! Taking what handles push: each push once, names and room checked, refusals counted with whose they are.

mod pushers;

#[cfg(test)]
mod tests;

use crate::amount::Amount;
use crate::node::Node;
use crate::push::{Metric, Push, Pushed, Refusal, name_of, refusal_text};
use crate::schedule::{Now, nanos};
use crate::series::{GUESTS, Key, Kind, PREFIX_TAG, SeriesId, TAGS_MAX, Unit};
use crate::wire::{DecodeError, Reader, Writer, list};
pub use pushers::{GUEST_BYTES_MAX, GUEST_PUSHES_MAX};
use pushers::{Guests, Handles};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::time::Duration;

/// Handles of the owner whose last push is remembered.
const HANDLES_MAX: usize = 4096;
/// Prefixes of refused names that are told apart; the rest is `other`.
const PREFIXES_MAX: usize = 32;
/// Refusals that an answer names.
const TOLD_MAX: usize = 8;
/// The version of what [`Intake::save`] writes.
const VERSION: u8 = 2;
const GAUGES_MAX: usize = 1_000_000;
/// The prefix with which refusals of what guests push are counted.
const GUEST_PREFIX: &str = "guests";

/// What a node remembers of those who push to it.
#[derive(Debug)]
pub struct Intake {
    handles: Handles,
    guests: Guests,
    /// When each pushed gauge is gone unless it is pushed again, in monotonic nanoseconds.
    gauges: BTreeMap<SeriesId, u64>,
    ttl: Duration,
    max_tags: usize,
    own: Option<Own>,
    refused: HashMap<(String, &'static str), SeriesId>,
}

/// Who pushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pusher {
    /// The instance's owner.
    Owner,
    /// Another user, by number: the names of what is pushed get `guests.USER.` before them.
    Guest(u32),
}

impl Pusher {
    fn namespace(self) -> Option<String> {
        match self {
            Pusher::Owner => None,
            Pusher::Guest(user) => Some(format!("{GUESTS}{user}.")),
        }
    }
}

/// The series in which pushes themselves are counted.
#[derive(Debug, Clone, Copy)]
struct Own {
    pushes: SeriesId,
    repeated: SeriesId,
    dropped: SeriesId,
}

impl Intake {
    /// One that has heard of nobody. A gauge that is not pushed again is gone after `ttl`.
    pub fn new(ttl: Duration) -> Self {
        let handles = Handles::new(HANDLES_MAX);
        let (guests, gauges, refused) = (Guests::default(), BTreeMap::new(), HashMap::new());
        Intake { handles, guests, gauges, ttl, max_tags: TAGS_MAX, own: None, refused }
    }

    /// Takes another time to live and another bound on tags, for what is pushed from now on.
    pub fn set_limits(&mut self, ttl: Duration, max_tags: usize) {
        (self.ttl, self.max_tags) = (ttl, max_tags);
    }

    /// Whether a push of that many bytes is taken of a guest at this time: each has a budget. What is not may be sent
    /// again later, which is what `flux-metrics` does.
    pub fn admits_guest(&mut self, user: u32, bytes: usize, now: Now) -> bool {
        self.guests.admits(user, bytes, now)
    }

    /// A push, as `docs/push.md` has it: the answer, or why all of it is refused.
    pub fn take(
        &mut self,
        node: &mut Node,
        now: Now,
        pusher: Pusher,
        payload: Value,
    ) -> Result<Value, Refusal> {
        let of_guest = pusher.namespace();
        let unnamed = if of_guest.is_some() { GUEST_PREFIX } else { "_" };
        let push = Push::parse(payload).inspect_err(|refusal| self.refuse(node, unnamed, refusal.reason))?;
        let own = self.own(node);
        // Of others it would be but a number that they say.
        if pusher == Pusher::Owner {
            count(node, own.map(|own| own.dropped), push.dropped);
        }
        if let Some((id, seq)) = push.identity
            && !self.is_new(pusher, id, seq)
        {
            count(node, own.map(|own| own.repeated), 1);
            return Ok(self.receipt(node, 0, true, Vec::new()));
        }
        count(node, own.map(|own| own.pushes), 1);
        let (all, mut accepted, mut told) = (push.metrics.len(), 0, Vec::new());
        for metric in push.metrics {
            let (name, prefix) = name_of(&metric);
            let prefix = if of_guest.is_some() { GUEST_PREFIX } else { &prefix };
            let parsed = Metric::parse_for(metric, of_guest.as_deref());
            let recorded = parsed.and_then(|mut metric| {
                if of_guest.is_some() {
                    metric.ttl = metric.ttl.map(|ttl| ttl.min(self.ttl));
                }
                self.record(node, now, metric)
            });
            match recorded {
                Ok(()) => accepted += 1,
                Err(refusal) => {
                    self.refuse(node, prefix, refusal.reason);
                    if told.len() < TOLD_MAX {
                        told.push((name, refusal));
                    }
                }
            }
        }
        match told.first() {
            Some((name, refusal)) if accepted == 0 => {
                let others = if all > 1 { format!(" (and {} more)", all - 1) } else { String::new() };
                let text = refusal_text(name, &refusal.text) + &others;
                Err(Refusal { reason: refusal.reason, text })
            }
            _ => Ok(self.receipt(node, accepted, false, told)),
        }
    }

    /// Records one metric.
    pub fn record(&mut self, node: &mut Node, now: Now, metric: Metric) -> Result<(), Refusal> {
        let tags = metric.key.tags().count();
        if tags > self.max_tags {
            let text = format!("{tags} tags: at most {} are allowed (max-tags)", self.max_tags);
            return Err(Refusal { reason: "tags", text });
        }
        let id = node.declare(metric.key)?;
        let gauge = match metric.value {
            Pushed::Count(amount) => {
                node.add(id, amount);
                None
            }
            Pushed::Samples(samples) => {
                node.observe(id, &samples);
                None
            }
            Pushed::Members(members) => {
                node.insert_all(id, &members);
                None
            }
            Pushed::Set(value) => Some(value),
            Pushed::Add(change) => Some(node.gauge(id).unwrap_or(Amount::ZERO).plus(change)),
        };
        if gauge.is_some() {
            node.set(id, gauge);
            let ttl = metric.ttl.unwrap_or(self.ttl);
            self.keep_gauge(node, id, now.mono_ns.saturating_add(nanos(ttl)));
        }
        Ok(())
    }

    fn keep_gauge(&mut self, node: &mut Node, id: SeriesId, due_ns: u64) {
        if self.gauges.insert(id, due_ns).is_none() {
            node.retain(id);
        }
    }

    /// Counts a refusal of something whose name begins with `prefix`.
    pub fn refuse(&mut self, node: &mut Node, prefix: &str, reason: &'static str) {
        let known = self.refused.keys().any(|(known, _)| known == prefix);
        let prefixes =
            || self.refused.keys().map(|(prefix, _)| prefix).collect::<std::collections::BTreeSet<_>>();
        let prefix = if known || prefixes().len() < PREFIXES_MAX { prefix } else { "other" };
        let id = match self.refused.get(&(prefix.to_owned(), reason)) {
            Some(&id) => Some(id),
            None => {
                let tags = [(PREFIX_TAG, prefix), ("reason", reason)];
                let key = Key::new("stats-agg.refused", &tags, Kind::Counter, Unit::None);
                let id = key.and_then(|key| node.declare(key)).ok();
                self.refused.extend(id.map(|id| ((prefix.to_owned(), reason), id)));
                id
            }
        };
        count(node, id, 1);
    }

    /// Whether this push has not been taken before; it is remembered as taken.
    fn is_new(&mut self, pusher: Pusher, id: String, seq: u64) -> bool {
        match pusher {
            Pusher::Owner => self.handles.is_new(id, seq),
            Pusher::Guest(user) => self.guests.is_new(user, id, seq),
        }
    }

    fn receipt(&self, node: &Node, accepted: usize, repeat: bool, told: Vec<(String, Refusal)>) -> Value {
        let refused: Vec<Value> =
            told.into_iter().map(|(name, refusal)| json!({ "name": name, "reason": refusal.text })).collect();
        json!({
            "version": 1,
            "rank": node.config().rank,
            "accepted": accepted,
            "repeat": repeat,
            "refused": refused,
            "period": node.config().period.as_secs_f64(),
            "ttl": self.ttl.as_secs_f64(),
        })
    }

    fn own(&mut self, node: &mut Node) -> Option<Own> {
        if self.own.is_none() {
            let mut id = |name: &str| {
                let key = Key::new(&format!("stats-agg.{name}"), &[], Kind::Counter, Unit::None);
                key.and_then(|key| node.declare(key)).ok()
            };
            let ids = (id("pushes"), id("pushes_repeated"), id("dropped_by_handles"));
            if let (Some(pushes), Some(repeated), Some(dropped)) = ids {
                self.own = Some(Own { pushes, repeated, dropped });
            }
        }
        self.own
    }

    /// Lets time pass: gauges that nobody has pushed again are gone.
    pub fn expire(&mut self, node: &mut Node, now: Now) {
        let gone: Vec<SeriesId> =
            self.gauges.iter().filter(|(_, due)| **due <= now.mono_ns).map(|(&id, _)| id).collect();
        for id in gone {
            self.gauges.remove(&id);
            node.set(id, None);
            node.release(id);
        }
    }

    /// What must survive: the numbers of pushes, and pushed gauges with the time that they have left.
    pub fn save(&self, node: &Node, now: Now) -> Vec<u8> {
        let mut out = Writer::new();
        self.write(node, now, &mut out);
        out.into_bytes()
    }

    /// As [`Intake::save`], to a file.
    pub fn save_to(&self, node: &Node, now: Now, file: Box<dyn Write>) -> io::Result<()> {
        let mut out = Writer::to(file);
        self.write(node, now, &mut out);
        out.finish()
    }

    fn write(&self, node: &Node, now: Now, out: &mut Writer) {
        out.byte(VERSION);
        self.handles.encode(out);
        self.guests.encode(out);
        let gauges: Vec<_> = self
            .gauges
            .iter()
            .filter_map(|(&id, &due)| Some((node.catalog.key(id)?, node.gauge(id)?, due)))
            .collect();
        out.count(gauges.len());
        for (key, value, due) in gauges {
            key.encode(out);
            value.encode(out);
            out.uint(due.saturating_sub(now.mono_ns));
        }
    }

    /// Goes on where another left off; `node` gets the gauges.
    pub fn restore(ttl: Duration, node: &mut Node, now: Now, saved: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(saved);
        match from.byte()? {
            VERSION => {}
            found => return Err(DecodeError::Version { found: found.into(), spoken: VERSION.into() }),
        }
        let handles = Handles::decode(&mut from, HANDLES_MAX)?;
        let guests = Guests::decode(&mut from)?;
        let gauges = list(&mut from, GAUGES_MAX, |from| {
            Ok((Key::decode(from)?, Amount::decode(from)?, from.uint()?))
        })?;
        from.end()?;
        let mut intake = Intake { handles, guests, ..Intake::new(ttl) };
        for (key, value, left_ns) in gauges {
            // Refused for want of room: counted by the node.
            if let Ok(id) = node.declare(key) {
                node.set(id, Some(value));
                intake.keep_gauge(node, id, now.mono_ns.saturating_add(left_ns));
            }
        }
        Ok(intake)
    }
}

fn count(node: &mut Node, id: Option<SeriesId>, times: u64) {
    if let Some(id) = id {
        node.add(id, Amount::whole(times.into()));
    }
}
