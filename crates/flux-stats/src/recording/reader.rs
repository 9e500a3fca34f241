//! Reading a recording.

use super::coder::{Decoder, Line};
use super::frame::{self, Frame, Piece, Pieces};
use super::stored::{self, Delta, Ended, Mark, Session};
use super::{Error, io};
use crate::answer::{Answer, Series};
use serde::de::DeserializeOwned;
use stats_core::IdSet;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// What a recording tells, one after another.
pub(crate) enum Event<'r> {
    /// A recorder began.
    Session(Session),
    /// An answer, of the instance or of some ranks.
    Answer(Box<Moment<'r>>),
    /// What happened to the recorder.
    Mark(Mark),
    /// A recorder ended in order.
    End(Ended),
    /// An answer that cannot be read, for what it is told against is missing.
    Unread,
    /// Bytes that were changed or lost, somewhere before what comes next.
    Damage { at: u64, bytes: u64 },
    /// The end of a recorder that was killed while it wrote.
    Torn { at: u64, bytes: u64 },
}

/// An answer.
pub(crate) struct Moment<'r> {
    decoder: &'r Decoder,
    time: f64,
    delta: Delta,
    /// The ranks that were asked; `None`: it is of the instance.
    asked: Option<IdSet>,
}

impl Moment<'_> {
    /// The ranks that were asked; `None`: it is of the instance.
    pub(crate) fn asked(&self) -> Option<&IdSet> {
        self.asked.as_ref()
    }

    /// How many brokers the instance has.
    pub(crate) fn size(&self) -> u32 {
        self.decoder.context().size
    }

    /// How often its ranks send what they have, in seconds.
    pub(crate) fn period(&self) -> f64 {
        self.decoder.context().period
    }

    /// All but the series.
    pub(crate) fn head(&self) -> Answer {
        self.decoder.head(self.time, &self.delta.unanswered)
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        self.decoder.lines(self.asked.as_ref())
    }

    /// As it came.
    #[cfg(test)]
    pub(crate) fn answer(&self) -> Answer {
        Answer { series: self.lines().map(Series::from).collect(), ..self.head() }
    }
}

impl From<Line<'_>> for Series {
    fn from(Line { name, tags, rank, unit, values }: Line<'_>) -> Self {
        Series {
            name: name.to_owned(),
            tags: tags.clone(),
            rank,
            ranks: None,
            unit: unit.map(str::to_owned),
            values,
            since: None,
        }
    }
}

/// A recording that is read.
pub(crate) struct Reader<R> {
    pieces: Pieces<R>,
    decoder: Decoder,
}

impl Reader<BufReader<File>> {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        // Looked at before it is opened: the opening of a FIFO waits for a writer.
        if !std::fs::metadata(path).map_err(io(path))?.is_file() {
            return Err(Error::NoFile { path: path.to_owned() });
        }
        let file = File::open(path).map_err(io(path))?;
        Reader::new(BufReader::new(file), path)
    }
}

impl<R: Read> Reader<R> {
    /// `path` names the input in errors.
    pub(crate) fn new(mut input: R, path: &Path) -> Result<Self, Error> {
        let mut begin = Vec::new();
        (&mut input).take(frame::HEADER as u64).read_to_end(&mut begin).map_err(io(path))?;
        header(&begin, path)?;
        Ok(Reader { pieces: Pieces::new(input), decoder: Decoder::default() })
    }

    /// Where what comes next begins.
    pub(super) fn position(&self) -> u64 {
        self.pieces.position()
    }

    /// What comes next, and when it was; `None`: that was all.
    pub(crate) fn next(&mut self) -> std::io::Result<Option<(f64, Event<'_>)>> {
        loop {
            let at = self.pieces.position();
            let frame = match self.pieces.next()? {
                None => return Ok(None),
                Some(Piece::Frame(frame)) => frame,
                Some(Piece::Damage { at, bytes }) => {
                    self.decoder.lose();
                    return Ok(Some((f64::NAN, Event::Damage { at, bytes })));
                }
                Some(Piece::Torn { at, bytes }) => return Ok(Some((f64::NAN, Event::Torn { at, bytes }))),
            };
            let time = frame.time;
            let bytes = self.pieces.position() - at;
            let read = match frame.kind {
                stored::SESSION => value(&frame).map(Event::Session),
                stored::MARK => value(&frame).map(Event::Mark),
                stored::END => value(&frame).map(Event::End),
                stored::ANSWER | stored::BY_RANK => {
                    let asked = frame.kind == stored::BY_RANK;
                    match value(&frame).and_then(|delta| self.apply(delta, asked)) {
                        None => {
                            self.decoder.lose();
                            None
                        }
                        Some((_, _, false)) => Some(Event::Unread),
                        Some((delta, asked, true)) => Some(Event::Answer(Box::new(Moment {
                            decoder: &self.decoder,
                            time,
                            delta,
                            asked,
                        }))),
                    }
                }
                // Of a later version that is otherwise the same.
                _ => continue,
            };
            return Ok(Some(match read {
                Some(event) => (time, event),
                None => (f64::NAN, Event::Damage { at, bytes }),
            }));
        }
    }

    /// Whether it could be applied, and the ranks that it is of; `None`: it makes no sense.
    fn apply(&mut self, delta: Delta, by_rank: bool) -> Option<(Delta, Option<IdSet>, bool)> {
        let asked = if by_rank { Some(delta.asked.parse().ok()?) } else { None };
        let applied = self.decoder.apply(&delta).ok()?;
        Some((delta, asked, applied))
    }
}

/// Refuses what is no recording. One that is cut off within its first bytes is an empty one.
pub(super) fn header(begin: &[u8], path: &Path) -> Result<(), Error> {
    let whole = frame::header();
    if whole.starts_with(begin) {
        return Ok(());
    }
    let path = path.to_owned();
    match begin.strip_prefix(&frame::SIGNATURE) {
        Some(&[low, high]) => Err(Error::Version { path, found: u16::from_le_bytes([low, high]) }),
        _ => Err(Error::Foreign { path, begin: String::from_utf8_lossy(begin).into_owned() }),
    }
}

fn value<T: DeserializeOwned>(frame: &Frame) -> Option<T> {
    postcard::from_bytes(&frame.content().ok()?).ok()
}
