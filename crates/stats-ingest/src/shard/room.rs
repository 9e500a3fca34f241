//! Who gets room for new series, and what becomes of those that nothing is sent to.

use super::series::{Held, Series, Spelling, cost, hash, minus};
use super::{Limits, Shard};
use crate::identity::{Identity, Refusal, Rejected, kind_of, prefix};
use crate::line::Form;
use hashbrown::HashMap;
use stats_core::{Kind, Unit};

/// How long series that are no job's may be idle: long, for a gauge that is set once stays true.
const IDLE_MAX_S: u32 = 86_400;
/// Within a time to live it is looked that often who is idle.
const SWEEPS: u32 = 8;

/// Which source has how much of a shard's room.
///
/// A source may hold at most as much as is still free (the dynamic threshold by which switches share their buffers,
/// Choudhury and Hahne, 1998): alone it gets half, beside another one that wants everything a third, and whoever comes
/// after n of those still finds 1/(n + 1) free.
#[derive(Default)]
pub(super) struct Room {
    sources: Vec<Source>,
    numbers: HashMap<Box<str>, u32>,
    /// Places of sources that hold nothing any more.
    free: Vec<u32>,
    used: usize,
}

struct Source {
    name: Box<str>,
    used: usize,
}

impl Room {
    /// Takes `cost` for `source`; its number, or `None`: there is no room for it.
    fn take(&mut self, source: &str, cost: usize, all: usize) -> Option<u32> {
        let number = self.numbers.get(source).copied();
        let used = number.map_or(0, |number| self.sources[number as usize].used);
        if used + cost > all.saturating_sub(self.used) {
            return None;
        }
        let number = number.unwrap_or_else(|| self.add(source));
        self.sources[number as usize].used += cost;
        self.used += cost;
        Some(number)
    }

    fn add(&mut self, name: &str) -> u32 {
        let source = Source { name: name.into(), used: 0 };
        let number = match self.free.pop() {
            Some(number) => {
                self.sources[number as usize] = source;
                number
            }
            None => {
                self.sources.push(source);
                (self.sources.len() - 1) as u32
            }
        };
        self.numbers.insert(name.into(), number);
        number
    }

    fn give_back(&mut self, number: u32, cost: usize) {
        let source = &mut self.sources[number as usize];
        source.used -= cost;
        self.used -= cost;
        if source.used == 0 {
            self.numbers.remove(&std::mem::take(&mut source.name));
            self.free.push(number);
        }
    }
}

/// All that a name can be kept as: to tell whether it is in use as something else.
const KINDS: [(Kind, Unit); 5] = [
    (Kind::Counter, Unit::None),
    (Kind::Gauge, Unit::None),
    (Kind::Timer, Unit::Nanoseconds),
    (Kind::Timer, Unit::Millionths),
    (Kind::Set, Unit::None),
];

impl Shard {
    /// A name and tags that were not sent before, for that type.
    #[cold]
    pub(super) fn spell(
        &mut self,
        hash_value: u64,
        name: &[u8],
        tags: &[u8],
        form: Form,
    ) -> Result<(), Rejected> {
        let identity = Identity::of(name, tags, self.limits.tags);
        let identity = identity.inspect_err(|rejected| self.count_refusal(*rejected, name))?;
        let series = self.series_of(&identity, form).inspect_err(|&rejected| {
            if let Rejected::Refused(refusal) = rejected {
                self.refusals.count(refusal, prefix(&identity.name));
            }
        })?;
        let spelling = Spelling {
            text: [name, tags].concat().into(),
            name_bytes: name.len() as u32,
            series,
            form,
            dropped_tags: identity.dropped_tags,
            of_rank: identity.of_rank,
            sent_s: self.now_s,
            last: None,
        };
        let hasher = &self.hasher;
        let rehash = |spelling: &Spelling| {
            let (name, tags) = spelling.parts();
            hash(hasher, spelling.form, name, tags)
        };
        self.spellings.insert_unique(hash_value, spelling, rehash);
        Ok(())
    }

    fn count_refusal(&mut self, rejected: Rejected, name: &[u8]) {
        if let Rejected::Refused(refusal) = rejected {
            // Its name may be anything, up to the length of a datagram.
            let name = String::from_utf8_lossy(&name[..name.len().min(200)]);
            self.refusals.count(refusal, prefix(&crate::identity::clean(&name)));
        }
    }

    /// The series, for one more spelling of it: new, if it is not there.
    fn series_of(&mut self, identity: &Identity, form: Form) -> Result<u32, Rejected> {
        let (kind, unit) = kind_of(form);
        let key = identity.key(kind, unit)?;
        let Limits { series: all, .. } = self.limits;
        let full = Rejected::Refused(Refusal::Series);
        if let Some(&number) = self.by_key.get(&key) {
            self.room.take(&identity.source(), 1, all).ok_or(full)?;
            if let Some(Some(series)) = self.series.get_mut(number as usize) {
                series.spellings += 1;
            }
            return Ok(number);
        }
        let source = self.room.take(&identity.source(), cost(kind), all).ok_or(full)?;
        let in_use = |&(kind, unit): &(Kind, Unit)| {
            identity.key(kind, unit).is_ok_and(|other| self.by_key.contains_key(&other))
        };
        self.counts.conflicts += u64::from(KINDS.iter().any(in_use));
        let job = identity.job().is_some();
        let held = Held::new(kind);
        let new = Series {
            key: Box::new(key.clone()),
            source,
            job,
            spellings: 1,
            known: false,
            changed: false,
            held,
        };
        let number = self.free.pop().unwrap_or_else(|| {
            self.series.push(None);
            (self.series.len() - 1) as u32
        });
        self.series[number as usize] = Some(new);
        self.by_key.insert(key, number);
        Ok(number)
    }

    /// Lets go of what has been idle for its time to live.
    pub(super) fn expire(&mut self) {
        let ttl_s = u32::try_from(self.limits.ttl.as_secs()).unwrap_or(u32::MAX).max(1);
        if self.now_s.saturating_sub(self.swept_s) < (ttl_s / SWEEPS).max(1) {
            return;
        }
        self.swept_s = self.now_s;
        let Shard { spellings, series, room, gone, free, changed, by_key, counts, now_s, .. } = self;
        spellings.retain(|spelling| {
            let Some(place) = series.get_mut(spelling.series as usize) else { return false };
            let Some(of) = place else { return false };
            let limit_s = if of.job { ttl_s } else { IDLE_MAX_S };
            // What has changed since the last hand-over is not idle.
            if now_s.saturating_sub(spelling.sent_s) < limit_s || of.changed {
                return true;
            }
            of.spellings -= 1;
            if of.spellings > 0 {
                room.give_back(of.source, 1);
                if let (Held::Gauge(sum), Some(part), true) = (&mut of.held, spelling.last, spelling.of_rank)
                {
                    *sum = minus(*sum, part);
                    of.changed = true;
                    changed.push(spelling.series);
                }
                return false;
            }
            room.give_back(of.source, cost(of.key.kind()));
            counts.expired += 1;
            by_key.remove(&*of.key);
            // Nobody has heard of it otherwise.
            if of.known {
                gone.push(spelling.series);
            }
            *place = None;
            free.push(spelling.series);
            false
        });
    }
}
