//! What a node leaves behind when its module unloads, and takes up when it is loaded again: totals, repeat marks, and
//! every flow that nobody upstream has acknowledged.

use crate::amount::Amount;
use crate::batch::{BatchId, Delta, list};
use crate::idset::IdSet;
use crate::marks::Marks;
use crate::node::{Node, NodeConfig, Outgoing, merge_into};
use crate::schedule::Now;
use crate::series::{Key, SeriesId};
use crate::value::{Peak, Samples};
use crate::wire::{DecodeError, Reader, Writer};
use std::collections::BTreeMap;

/// The version of what [`Node::save`] writes.
const VERSION: u8 = 1;
/// Bounds on what is restored.
const SERIES_MAX: usize = 10_000_000;
const BATCHES_MAX: usize = 100_000;
const MARKS_MAX: usize = 10_000_000;

impl Node {
    /// Everything that must survive this node.
    pub fn save(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.byte(VERSION);
        out.uint(self.generation);
        out.count(self.catalog.len());
        self.catalog.iter().for_each(|(_, key)| key.encode(&mut out));
        out.count(self.totals.counters.len());
        for (id, counted) in &self.totals.counters {
            out.uint(u64::from(id.0));
            out.signed(counted.total.parts());
        }
        out.count(self.totals.timers.len());
        for (id, timed) in &self.totals.timers {
            out.uint(u64::from(id.0));
            timed.total.encode(&mut out);
        }
        self.marks.encode(&mut out);
        let kept: Vec<_> = self.upstream.outbox.iter().chain(&self.upstream.parked).collect();
        out.count(kept.len());
        kept.into_iter().for_each(|batch| encode_batch(batch, &mut out));
        encode_open(&self.unsealed(), &self.open.contains, &mut out);
        out.into_bytes()
    }

    /// Flows that are in no batch yet, this rank's own included. At the root there are none: its totals have them.
    fn unsealed(&self) -> BTreeMap<SeriesId, Delta> {
        let mut flows = self.open.flows.clone();
        if !self.is_root() {
            let peak = Peak::default();
            let own = self.local.counters().map(|(id, amount)| (id, Delta::Counter(amount, peak)));
            let timed = self.local.timers().map(|(id, samples)| (id, Delta::Timer(samples.clone())));
            own.chain(timed).for_each(|(id, delta)| merge_into(&mut flows, id, delta));
        }
        flows
    }

    /// A node that goes on where another left off.
    pub fn restore(config: NodeConfig, now: Now, saved: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(saved);
        match from.byte()? {
            VERSION => {}
            found => return Err(DecodeError::Version { found: found.into(), spoken: VERSION.into() }),
        }
        let mut node = Node::new(config, now);
        node.generation = from.uint()?;
        // Numbers in what was saved are the old catalog's.
        let ids = list(&mut from, SERIES_MAX, |from| Ok(node.catalog.declare(Key::decode(from)?).ok()))?;
        node.events.overflow += ids.iter().filter(|id| id.is_none()).count() as u64;
        let id = |from: &mut Reader<'_>| -> Result<Option<SeriesId>, DecodeError> {
            ids.get(from.u32()? as usize).copied().ok_or(DecodeError::Malformed("series beyond the catalog"))
        };
        for (id, total) in
            list(&mut from, SERIES_MAX, |from| Ok((id(from)?, Amount::from_parts(from.signed()?))))?
        {
            if let Some(id) = id {
                node.totals.resume_counter(id, total);
            }
        }
        for (id, total) in list(&mut from, SERIES_MAX, |from| Ok((id(from)?, Samples::decode(from)?)))? {
            if let Some(id) = id {
                node.totals.resume_timer(id, total);
            }
        }
        node.marks = Marks::decode(&mut from)?;
        let batches = list(&mut from, BATCHES_MAX, |from| decode_batch(from, &id))?;
        let (flows, contains) = decode_open(&mut from, &id)?;
        from.end()?;
        if !node.is_root() {
            node.upstream.outbox.extend(batches);
            node.open.flows = flows;
            node.open.contains = contains;
        }
        Ok(node)
    }

    /// What this node has in custody: flows on their way, in batches and not yet in one.
    pub fn custody(&self) -> impl Iterator<Item = (&Key, Amount)> {
        let sealed =
            self.upstream.outbox.iter().chain(&self.upstream.parked).map(|batch| batch.flows.clone());
        let all: Vec<_> = sealed.chain([self.unsealed()]).flatten().collect();
        all.into_iter().filter_map(|(id, delta)| match delta {
            Delta::Counter(amount, _) => Some((self.catalog.key(id)?, amount)),
            Delta::Timer(samples) => {
                Some((self.catalog.key(id)?, Amount::whole(i128::from(samples.count()))))
            }
        })
    }
}

type Ids<'a> = &'a dyn Fn(&mut Reader<'_>) -> Result<Option<SeriesId>, DecodeError>;

fn encode_flows(flows: &BTreeMap<SeriesId, Delta>, out: &mut Writer) {
    out.count(flows.len());
    for (id, delta) in flows {
        out.uint(u64::from(id.0));
        match delta {
            Delta::Counter(amount, peak) => {
                out.byte(0);
                out.signed(amount.parts());
                out.signed(peak.rate.parts());
                out.uint(u64::from(peak.rank));
            }
            Delta::Timer(samples) => {
                out.byte(1);
                samples.encode(out);
            }
        }
    }
}

fn decode_flows(from: &mut Reader<'_>, id: Ids<'_>) -> Result<BTreeMap<SeriesId, Delta>, DecodeError> {
    let flows = list(from, SERIES_MAX, |from| {
        let id = id(from)?;
        let delta = match from.byte()? {
            0 => {
                let amount = Amount::from_parts(from.signed()?);
                let peak = Peak { rate: Amount::from_parts(from.signed()?), rank: from.u32()? };
                Delta::Counter(amount, peak)
            }
            1 => Delta::Timer(Samples::decode(from)?),
            _ => return Err(DecodeError::Malformed("unknown kind of flow")),
        };
        Ok(id.map(|id| (id, delta)))
    })?;
    Ok(flows.into_iter().flatten().collect())
}

fn encode_ids(ids: &[BatchId], out: &mut Writer) {
    out.count(ids.len());
    ids.iter().for_each(|id| id.encode(out));
}

fn encode_open(flows: &BTreeMap<SeriesId, Delta>, contains: &[BatchId], out: &mut Writer) {
    encode_flows(flows, out);
    encode_ids(contains, out);
}

fn decode_open(
    from: &mut Reader<'_>,
    id: Ids<'_>,
) -> Result<(BTreeMap<SeriesId, Delta>, Vec<BatchId>), DecodeError> {
    Ok((decode_flows(from, id)?, list(from, MARKS_MAX, BatchId::decode)?))
}

fn encode_batch(batch: &Outgoing, out: &mut Writer) {
    batch.id.encode(out);
    out.uint(batch.generation);
    out.uint(batch.span_ns);
    encode_open(&batch.flows, &batch.contains, out);
}

/// Of a batch that outlives its load only identity and flows still hold: who was covered or closed is old news.
fn decode_batch(from: &mut Reader<'_>, id: Ids<'_>) -> Result<Outgoing, DecodeError> {
    let batch_id = BatchId::decode(from)?;
    let (generation, span_ns) = (from.uint()?, from.uint()?);
    let (flows, contains) = decode_open(from, id)?;
    let (covered, closed) = (IdSet::new(), IdSet::new());
    Ok(Outgoing { id: batch_id, generation, span_ns, closing: false, covered, closed, contains, flows })
}
