//! From hand-overs to a node's series: what was sent, and what the listener says of itself as `stats-agg.statsd.*`.

use crate::counts::{BadLine, Counts, Refusals};
use crate::identity::{Refusal, prefix};
use crate::line::Bad;
use crate::shard::{Change, Delta, HandOver};
use stats_core::{Amount, Key, Kind, Node, SeriesId, Unit};
use std::collections::HashMap;

/// Where its own series are.
const OWN: &str = "stats-agg.statsd";

/// Records hand-overs of one [`Listener`](crate::Listener).
#[derive(Debug, Default)]
pub struct Recorder {
    /// By the shard's number; `None` for what the node has no room for.
    series: Vec<Option<Recorded>>,
    /// Lines refused and bad lines, by name and tags.
    tagged: HashMap<(&'static str, String, String), SeriesId>,
    last_bad: Option<BadLine>,
    /// Changes for which the node has no room.
    refusals: Refusals,
}

#[derive(Debug)]
struct Recorded {
    key: Key,
    /// `None`: the node had no room.
    id: Option<SeriesId>,
}

impl Recorder {
    /// Records what was handed over.
    pub fn record(&mut self, node: &mut Node, hand_over: HandOver) {
        if hand_over.anew {
            let gone: Vec<_> = self.series.drain(..).flatten().collect();
            gone.iter().for_each(|recorded| withdraw(node, recorded));
        }
        // First of all, so that a full catalog can still say that it is full.
        self.record_counts(node, &hand_over.counts);
        self.gauge(node, "series", hand_over.series);
        for change in hand_over.changes {
            self.change(node, change);
        }
        for refused in hand_over.refused.into_iter().chain(self.refusals.take()) {
            let tags = [("prefix", &*refused.prefix), ("reason", refused.refusal.name())];
            self.count(node, "refused", &tags, refused.lines);
        }
        if hand_over.last_bad.is_some() {
            self.last_bad = hand_over.last_bad;
        }
    }

    /// The last bad line since the load.
    pub fn last_bad(&self) -> Option<&BadLine> {
        self.last_bad.as_ref()
    }

    /// How many sockets are open, and how many are taken by somebody else.
    pub fn record_sockets(&mut self, node: &mut Node, open: usize, taken: usize) {
        self.gauge(node, "sockets", open);
        self.gauge(node, "sockets_taken", taken);
    }

    /// The listener has ended: its gauges go.
    pub fn end(&mut self, node: &mut Node) {
        let gone: Vec<_> = self.series.drain(..).flatten().collect();
        gone.iter().for_each(|recorded| withdraw(node, recorded));
        for name in ["series", "sockets", "sockets_taken"] {
            if let Ok(key) = Key::new(&format!("{OWN}.{name}"), &[], Kind::Gauge, Unit::None)
                && let Some(id) = node.find(&key)
            {
                node.set(id, None);
            }
        }
    }

    fn change(&mut self, node: &mut Node, change: Change) {
        let number = change.number as usize;
        if let Some(key) = change.key {
            if number >= self.series.len() {
                self.series.resize_with(number + 1, || None);
            }
            self.series[number] = Some(Recorded { key, id: None });
        }
        if matches!(change.delta, Delta::Gone) {
            if let Some(recorded) = self.series.get_mut(number).and_then(Option::take) {
                withdraw(node, &recorded);
            }
            return;
        }
        let Some(Some(recorded)) = self.series.get_mut(number) else { return };
        if recorded.id.is_none() {
            recorded.id = node.declare(recorded.key.clone()).ok();
            recorded.id.into_iter().for_each(|id| node.retain(id));
        }
        let Some(id) = recorded.id else {
            return self.refusals.count(Refusal::Catalog, prefix(recorded.key.name()));
        };
        match change.delta {
            Delta::Count(gain) => node.add(id, gain),
            Delta::Gauge(value) => node.set(id, Some(value)),
            Delta::Samples(samples) => node.observe(id, &samples),
            Delta::Members(members) => node.insert_all(id, &members),
            Delta::Gone => {}
        }
    }

    fn record_counts(&mut self, node: &mut Node, counts: &Counts) {
        // Those that are zero, too: a series that is there says that nothing happened.
        let plain = [
            ("packets", counts.packets),
            ("lines", counts.lines),
            ("samples", counts.samples),
            ("events_ignored", counts.events),
            ("service_checks_ignored", counts.service_checks),
            ("truncated", counts.truncated),
            ("dropped", counts.dropped),
            ("tags_dropped", counts.tags_dropped),
            ("conflicts", counts.conflicts),
            ("expired", counts.expired),
        ];
        for (name, count) in plain {
            self.count(node, name, &[], count);
        }
        for (bad, &count) in Bad::ALL.iter().zip(&counts.bad) {
            if count > 0 {
                self.count(node, "bad_lines", &[("reason", bad.name())], count);
            }
        }
    }

    fn count(&mut self, node: &mut Node, name: &'static str, tags: &[(&str, &str)], count: u64) {
        let tag = |at: usize| tags.get(at).map_or_else(String::new, |(_, value)| (*value).to_owned());
        let place = (name, tag(0), tag(1));
        let id = self.tagged.get(&place).copied().or_else(|| {
            let key = Key::new(&format!("{OWN}.{name}"), tags, Kind::Counter, Unit::None).ok()?;
            node.declare(key).ok()
        });
        if let Some(id) = id {
            self.tagged.insert(place, id);
            node.add(id, Amount::whole(count.into()));
        }
    }

    fn gauge(&mut self, node: &mut Node, name: &str, value: usize) {
        let Ok(key) = Key::new(&format!("{OWN}.{name}"), &[], Kind::Gauge, Unit::None) else { return };
        if let Ok(id) = node.declare(key) {
            node.set(id, Some(Amount::whole(value as i128)));
        }
    }
}

fn withdraw(node: &mut Node, recorded: &Recorded) {
    if let Some(id) = recorded.id {
        // On what is no gauge it does nothing.
        node.set(id, None);
        node.release(id);
    }
}
