//! Where lines are added up between two hand-overs: no I/O, no clock, and for names that are known no allocation.

mod room;
mod series;

use crate::counts::{BadLine, Counts, LastBad, Refusals, Refused};
use crate::identity::Rejected;
use crate::line::{Form, Line, Metric, Plain, Value};
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use room::Room;
use series::{Held, Series, Spelling, hash};
use stats_core::{Amount, Key, Members, Samples};
use std::time::Duration;

/// What a sender can make a shard keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Room for so many series. A timer takes the room of two, a set that of eight; and every further spelling of a
    /// series (its tags in another order, say) that of one more.
    pub series: usize,
    /// Tags of one series.
    pub tags: usize,
    /// How long a series with a `jobid` may be idle.
    pub ttl: Duration,
}

/// What was added up since the last hand-over.
#[derive(Debug, Default)]
pub struct HandOver {
    /// The shard is new: series of earlier hand-overs are gone, and numbers begin anew.
    pub anew: bool,
    /// By series, in the order in which they must be taken.
    pub changes: Vec<Change>,
    /// What was counted.
    pub counts: Counts,
    /// What was refused.
    pub refused: Vec<Refused>,
    /// The last bad line, if there was one.
    pub last_bad: Option<BadLine>,
    /// Series there are.
    pub series: usize,
}

/// A change of one series.
#[derive(Debug)]
pub struct Change {
    /// Its number. Numbers of series that are gone are used again.
    pub number: u32,
    /// With a series' first change.
    pub key: Option<Key>,
    /// How it changed.
    pub delta: Delta,
}

/// How a series changed.
#[derive(Debug)]
pub enum Delta {
    /// A counter's gain.
    Count(Amount),
    /// A gauge's value.
    Gauge(Amount),
    /// A timer's samples.
    Samples(Samples),
    /// A set's members.
    Members(Members),
    /// It is gone.
    Gone,
}

/// See the module's description.
pub struct Shard {
    limits: Limits,
    hasher: DefaultHashBuilder,
    spellings: HashTable<Spelling>,
    series: Vec<Option<Series>>,
    /// Numbers of series that are gone.
    free: Vec<u32>,
    by_key: HashMap<Key, u32>,
    room: Room,
    /// Series that changed since the last hand-over.
    changed: Vec<u32>,
    gone: Vec<u32>,
    counts: Counts,
    refusals: Refusals,
    last_bad: LastBad,
    now_s: u32,
    swept_s: u32,
    /// Nothing has been handed over.
    anew: bool,
}

impl Shard {
    /// An empty one.
    pub fn new(limits: Limits) -> Self {
        Shard {
            limits,
            hasher: DefaultHashBuilder::default(),
            spellings: HashTable::new(),
            series: Vec::new(),
            free: Vec::new(),
            by_key: HashMap::new(),
            room: Room::default(),
            changed: Vec::new(),
            gone: Vec::new(),
            counts: Counts::default(),
            refusals: Refusals::default(),
            last_bad: LastBad::default(),
            now_s: 0,
            swept_s: 0,
            anew: true,
        }
    }

    /// Takes other limits. What is there already stays until it is idle.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// The time, in seconds since whatever moment, for those datagrams that come next.
    pub fn set_time(&mut self, now_s: u32) {
        self.now_s = now_s;
    }

    /// Counts what a socket says of itself.
    pub(crate) fn note(&mut self, truncated: u64, dropped: u64) {
        self.counts.truncated += truncated;
        self.counts.dropped += dropped;
    }

    /// Takes the lines of a datagram. Nothing in it can do more than be counted.
    pub fn receive(&mut self, datagram: &[u8]) {
        self.counts.packets += 1;
        let ascii = datagram.is_ascii();
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', datagram) {
            self.line(&datagram[start..end], ascii);
            start = end + 1;
        }
        if start < datagram.len() {
            self.line(&datagram[start..], ascii);
        }
    }

    #[inline]
    fn line(&mut self, line: &[u8], ascii: bool) {
        self.counts.lines += 1;
        let plain = if ascii { Plain::parse(line) } else { None };
        let taken = match &plain {
            Some(plain) => {
                self.take(plain.name, &[], plain.form, |held, spelling| held.take(spelling, plain.value()))
            }
            None => self.general(line, ascii),
        };
        if let Err(Rejected::Bad(bad)) = taken {
            self.counts.bad[bad as usize] += 1;
            self.last_bad.note(bad, line);
        }
    }

    #[inline(never)]
    fn general(&mut self, line: &[u8], ascii: bool) -> Result<(), Rejected> {
        match if ascii { Line::parse_text(line)? } else { Line::parse(line)? } {
            Line::Metric(metric) => return self.metric(&metric),
            // No line at all.
            Line::Empty => self.counts.lines -= 1,
            Line::Event => self.counts.events += 1,
            Line::ServiceCheck => self.counts.service_checks += 1,
        }
        Ok(())
    }

    #[inline]
    fn metric(&mut self, metric: &Metric<'_>) -> Result<(), Rejected> {
        let mut result = Ok(());
        metric.for_each(|form, value| {
            if result.is_ok() {
                result = self.value(metric, form, value);
            }
        });
        result
    }

    #[inline]
    fn value(&mut self, metric: &Metric<'_>, form: Form, value: Value<'_>) -> Result<(), Rejected> {
        self.take(metric.name, metric.tags, form, |held, spelling| held.take(spelling, value))
    }

    /// Gives `add` what a spelling's series holds.
    #[inline]
    fn take(
        &mut self,
        name: &[u8],
        tags: &[u8],
        form: Form,
        add: impl FnOnce(&mut Held, &mut Spelling),
    ) -> Result<(), Rejected> {
        let hash = hash(&self.hasher, form, name, tags);
        let same = |spelling: &Spelling| spelling.is(form, name, tags);
        let spelling = match self.spellings.find_mut(hash, same) {
            Some(spelling) => spelling,
            None => {
                self.spell(hash, name, tags, form)?;
                let Some(spelling) = self.spellings.find_mut(hash, same) else { return Ok(()) };
                spelling
            }
        };
        spelling.sent_s = self.now_s;
        self.counts.samples += 1;
        self.counts.tags_dropped += u64::from(spelling.dropped_tags);
        if let Some(Some(series)) = self.series.get_mut(spelling.series as usize) {
            add(&mut series.held, spelling);
            if !series.changed {
                series.changed = true;
                self.changed.push(spelling.series);
            }
        }
        Ok(())
    }

    /// All that was added up since the last time, and who is gone since.
    pub fn hand_over(&mut self) -> HandOver {
        self.expire();
        let mut changes: Vec<Change> = Vec::with_capacity(self.gone.len() + self.changed.len());
        // First, for their numbers may be in use again.
        changes.extend(self.gone.drain(..).map(|number| Change { number, key: None, delta: Delta::Gone }));
        for number in self.changed.drain(..) {
            let Some(Some(series)) = self.series.get_mut(number as usize) else { continue };
            series.changed = false;
            let key = (!std::mem::replace(&mut series.known, true)).then(|| (*series.key).clone());
            let delta = match &mut series.held {
                Held::Counter(gain) => Delta::Count(std::mem::take(gain)),
                Held::Gauge(value) => Delta::Gauge(*value),
                Held::Timer(timer) => Delta::Samples(std::mem::take(&mut timer.0)),
                Held::Set(members) => Delta::Members(std::mem::take(&mut **members)),
            };
            changes.push(Change { number, key, delta });
        }
        HandOver {
            anew: std::mem::take(&mut self.anew),
            changes,
            counts: std::mem::take(&mut self.counts),
            refused: self.refusals.take(),
            last_bad: self.last_bad.take(),
            series: self.by_key.len(),
        }
    }
}
