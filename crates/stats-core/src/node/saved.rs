//! What a node leaves behind when its module unloads, and takes up when it is loaded again: totals, repeat marks, and
//! every flow that nobody upstream has acknowledged. `docs/custody-file.md` has it byte by byte.

use crate::batch::{Numbered, SERIES_MAX, WireFlows, WriteFlows};
use crate::flows::{FlowSource, Sealed, Sum};
use crate::marks::{BatchId, Ids, Marks};
use crate::node::doubt::{Doubt, Held};
use crate::node::upstream::{Outgoing, What};
use crate::node::{Node, NodeConfig};
use crate::schedule::Now;
use crate::series::{Key, SeriesId};
use crate::store::Store;
use crate::wire::{DecodeError, Reader, Writer, list};
use std::io::{self, Write};

/// The version of what [`Node::save`] writes.
const VERSION: u8 = 3;
/// One that is read, too: it does not say since when series are counted.
const VERSION_WITHOUT_TIMES: u8 = 2;
/// Bound on what is restored.
const BATCHES_MAX: usize = 100_000;

impl Node {
    /// Everything that must survive this node. A batch that is in flight is in doubt from now on.
    pub fn save(&self) -> Vec<u8> {
        let mut out = Writer::new();
        self.write(&mut out);
        out.into_bytes()
    }

    /// As [`Node::save`], to a file, with little more memory than the largest value takes.
    pub fn save_to(&self, file: Box<dyn Write>) -> io::Result<()> {
        let mut out = Writer::to(file);
        self.write(&mut out);
        out.finish()
    }

    fn write(&self, out: &mut Writer) {
        out.byte(VERSION);
        out.uint(self.generation);
        out.count(self.catalog.len());
        for (id, key) in self.catalog.iter() {
            key.encode(out);
            let created_s = u64::from(self.catalog.created_s(id).unwrap_or(0));
            out.uint((created_s << 1) | u64::from(self.falls(id)));
        }
        self.encode_flows(&self.own, out);
        self.encode_flows(&self.below, out);
        self.marks.encode(out);
        let held = self.all_held();
        out.count(held.len());
        for (batch, doubt) in held {
            let (code, rank) = match doubt {
                Doubt::None => (0, None),
                Doubt::Somewhere => (1, None),
                Doubt::At(rank) => (2, Some(rank)),
            };
            out.byte(code);
            rank.iter().for_each(|&rank| out.uint(u64::from(rank)));
            self.encode_batch(batch, out);
        }
        out.count(self.upstream.parked.len());
        self.upstream.parked.iter().for_each(|batch| self.encode_batch(batch, out));
        match self.unsealed_flows() {
            Some(flows) => self.encode_flows(&flows, out),
            None => self.encode_flows(&Sealed::default(), out),
        }
        self.open.contains.encode(out);
    }

    /// Sealed batches that nobody has acknowledged.
    fn all_held(&self) -> Vec<(&Outgoing, Doubt)> {
        let upstream = &self.upstream;
        let flight = upstream.in_flight.as_ref();
        let doubted = || Doubt::at(flight.and_then(|flight| flight.to).or(upstream.receiver));
        let sealed = upstream.sealed.iter().map(|batch| {
            let in_flight = flight.is_some_and(|flight| matches!(flight.what, What::Regular { .. }));
            (batch, if in_flight { doubted() } else { Doubt::None })
        });
        let held = upstream.held.iter().map(|held| {
            let in_flight = flight.is_some_and(|flight| flight.what == What::Held(held.batch.id));
            let doubt = if in_flight && !matches!(held.doubt, Doubt::At(_)) { doubted() } else { held.doubt };
            (&held.batch, doubt)
        });
        sealed.chain(held).collect()
    }

    /// Flows that are in no batch yet, this rank's own included. At the root there are none: its totals have them.
    pub(super) fn unsealed_flows(&self) -> Option<Sum<'_>> {
        (!self.is_root()).then_some(Sum(&self.open.flows, &self.unsealed))
    }

    fn encode_flows(&self, flows: &impl FlowSource, out: &mut Writer) {
        Numbered::new(flows, |id| self.catalog.number(id)).write(true, out);
    }

    fn encode_batch(&self, batch: &Outgoing, out: &mut Writer) {
        batch.id.encode(out);
        out.uint(batch.generation);
        out.uint(batch.span_ns);
        batch.contains.encode(out);
        self.encode_flows(&batch.flows, out);
    }

    /// A node that goes on where another left off. `config` has an epoch of its own.
    pub fn restore(config: NodeConfig, now: Now, saved: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(saved);
        let with_times = match from.byte()? {
            VERSION => true,
            VERSION_WITHOUT_TIMES => false,
            found => return Err(DecodeError::Version { found: found.into(), spoken: VERSION.into() }),
        };
        let max_series = config.max_series;
        let mut node = Node::new(config, now);
        // What was kept is kept, whatever the bound on what comes is now.
        node.catalog.set_max(usize::MAX);
        node.generation = u64::from(from.u32()?);
        // Numbers in what was saved are the old catalog's.
        let keys = list(&mut from, SERIES_MAX, |from| {
            Ok((Key::decode(from)?, if with_times { Some(from.uint()?) } else { None }))
        })?;
        let mut ids = Vec::with_capacity(keys.len());
        for (key, created) in keys {
            let id = node.catalog.restore(key).ok();
            if let (Some(id), Some(created)) = (id, created) {
                node.catalog.set_created(id, u32::try_from(created >> 1).unwrap_or(u32::MAX));
                node.own.resume_falls(id, created & 1 == 1);
            }
            ids.push(id);
        }
        node.catalog.set_max(max_series);
        let (own, below) = (decode_flows(&mut from, &ids)?, decode_flows(&mut from, &ids)?);
        resume(&mut node.own, &own);
        resume(&mut node.below, &below);
        node.marks = Marks::decode(&mut from)?;
        let held = list(&mut from, BATCHES_MAX, |from| {
            let doubt = match from.byte()? {
                0 => Doubt::None,
                1 => Doubt::Somewhere,
                2 => Doubt::At(from.u32()?),
                _ => return Err(DecodeError::Malformed("unknown doubt")),
            };
            Ok(Held::new(decode_batch(from, &ids)?, doubt))
        })?;
        let parked = list(&mut from, BATCHES_MAX, |from| decode_batch(from, &ids))?;
        let unsealed = decode_flows(&mut from, &ids)?;
        let contains = Ids::decode(&mut from)?;
        from.end()?;
        if !node.is_root() {
            node.upstream.held.extend(held);
            node.upstream.parked = parked;
            node.open.flows.add(&unsealed);
            node.open.contains = contains;
        }
        Ok(node)
    }
}

fn resume(store: &mut Store, totals: &Sealed) {
    totals.counters.iter().for_each(|&(id, gain)| store.resume(id, gain.amount));
    totals.timers.iter().for_each(|(id, samples)| store.resume_timer(*id, samples));
    totals.sets.iter().for_each(|(id, members)| store.insert(*id, members));
}

fn decode_flows(from: &mut Reader<'_>, ids: &[Option<SeriesId>]) -> Result<Sealed, DecodeError> {
    let flows = WireFlows::decode(true, from)?;
    Ok(flows.translated(|number| *ids.get(number as usize)?).0.normalized())
}

fn decode_batch(from: &mut Reader<'_>, ids: &[Option<SeriesId>]) -> Result<Outgoing, DecodeError> {
    let id = BatchId::decode(from)?;
    let (generation, span_ns) = (from.uint()?, from.uint()?);
    let contains = Ids::decode(from)?;
    Ok(Outgoing { id, generation, span_ns, contains, flows: decode_flows(from, ids)? })
}

#[cfg(test)]
mod documented;
