//! What a listener counts about itself.

use crate::identity::Refusal;
use crate::line::Bad;

/// Prefixes that are told apart among refused lines; what is beyond is counted together.
const PREFIXES_MAX: usize = 16;
/// What stands for the prefixes beyond.
const OTHER: &str = "other";
/// The longest prefix that is told, in bytes (names are ASCII by then).
const PREFIX_BYTES: usize = 40;
/// The longest sample of a bad line that is kept, in characters.
const SAMPLE_CHARS: usize = 120;

/// How often things happened since the last hand-over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams.
    pub packets: u64,
    /// Lines that are not empty.
    pub lines: u64,
    /// Values taken: a line may hold several.
    pub samples: u64,
    /// Bad lines, by [`Bad::ALL`]'s order.
    pub bad: [u64; Bad::ALL.len()],
    /// DogStatsD events, which are ignored.
    pub events: u64,
    /// DogStatsD service checks, which are ignored.
    pub service_checks: u64,
    /// Datagrams that were longer than what is received: their last line is lost.
    pub truncated: u64,
    /// Datagrams that the kernel dropped because the socket's queue was full, or that were still waiting in a flood when
    /// the listener had to end.
    pub dropped: u64,
    /// Tags without a value: their lines count, without them.
    pub tags_dropped: u64,
    /// New series whose name and tags are also those of a series of another type: both are kept.
    pub conflicts: u64,
    /// Series that nothing was sent to for so long that they are gone.
    pub expired: u64,
}

/// Lines that were well formed and do not count, by reason and by the first part of the name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Refusals(Vec<(Refusal, Box<str>, u64)>);

impl Refusals {
    pub(crate) fn count(&mut self, refusal: Refusal, prefix: &str) {
        let prefix = prefix.get(..PREFIX_BYTES).unwrap_or(prefix);
        let found = self.0.iter_mut().find(|(why, of, _)| *why == refusal && **of == *prefix);
        if let Some((_, _, count)) = found {
            *count += 1;
        } else if self.0.len() < PREFIXES_MAX {
            self.0.push((refusal, prefix.into(), 1));
        } else {
            // One more for each reason at most.
            match self.0.iter_mut().find(|(why, of, _)| *why == refusal && **of == *OTHER) {
                Some((_, _, count)) => *count += 1,
                None => self.0.push((refusal, OTHER.into(), 1)),
            }
        }
    }

    /// Those since the last time. Prefixes stay known: they are tags of series.
    pub(crate) fn take(&mut self) -> Vec<Refused> {
        let counted = self.0.iter_mut().filter(|(_, _, count)| *count > 0);
        let taken = counted.map(|(refusal, prefix, count)| Refused {
            refusal: *refusal,
            prefix: prefix.clone(),
            lines: std::mem::take(count),
        });
        taken.collect()
    }
}

/// Lines that were refused for one reason, under one prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub refusal: Refusal,
    /// The first part of their names.
    pub prefix: Box<str>,
    /// How many.
    pub lines: u64,
}

/// The last bad line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// What is wrong with it.
    pub bad: Bad,
    /// Its beginning, printable.
    pub text: String,
}

/// The last bad line, as it came: there may be millions between two hand-overs.
#[derive(Debug, Default)]
pub(crate) struct LastBad {
    bad: Option<Bad>,
    start: Vec<u8>,
}

impl LastBad {
    pub(crate) fn note(&mut self, bad: Bad, line: &[u8]) {
        self.bad = Some(bad);
        self.start.clear();
        // A character is at most four bytes.
        self.start.extend_from_slice(&line[..line.len().min(4 * SAMPLE_CHARS)]);
    }

    pub(crate) fn take(&mut self) -> Option<BadLine> {
        let bad = self.bad.take()?;
        let text = String::from_utf8_lossy(&self.start);
        let printable = text.chars().map(|c| if stats_core::is_unseen(c) { '\u{fffd}' } else { c });
        Some(BadLine { bad, text: printable.take(SAMPLE_CHARS).collect() })
    }
}
