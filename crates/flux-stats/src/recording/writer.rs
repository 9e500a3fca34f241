//! Recording.

use super::coder::Encoder;
use super::frame::{self, Frame};
use super::reader::{Event, Reader, header};
use super::stored::{self, Ended, Mark, Session};
use super::{Error, io};
use crate::answer::Answer;
use serde::Serialize;
use stats_core::IdSet;
use std::fs::{File, TryLockError};
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// After so many answers the next one can be read without them.
const RESET_EVERY: u32 = 100;

/// A file that is recorded to. It is locked meanwhile.
#[derive(Debug)]
pub(crate) struct Writer {
    path: PathBuf,
    file: File,
    /// All before is whole.
    length: u64,
    encoder: Encoder,
    /// Answers of the instance since the last reset; `None`: there was none.
    since_reset: Option<u32>,
}

/// What was there before.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Before {
    /// Answers of the instance.
    pub(crate) answers: u64,
    /// Bytes of a torn end, which were cut off.
    pub(crate) cut: u64,
}

impl Writer {
    /// Makes a recording, or goes on with one.
    pub(crate) fn open(path: &Path) -> Result<(Self, Before), Error> {
        let io = io(path);
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(Error::NoFile { path: path.to_owned() });
        }
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = opened.map_err(&io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::Busy { path: path.to_owned() }),
            // A file system without locks.
            Err(TryLockError::Error(_)) => {}
        }
        let mut begin = Vec::new();
        (&file).take(frame::HEADER as u64).read_to_end(&mut begin).map_err(&io)?;
        header(&begin, path)?;
        let size = file.metadata().map_err(&io)?.len();
        file.seek(SeekFrom::Start(0)).map_err(&io)?;
        let mut before = Before::default();
        let mut length = 0;
        if begin.len() == frame::HEADER {
            let mut reader = Reader::new(BufReader::new(&file), path)?;
            length = reader.position();
            while let Some((_, event)) = reader.next().map_err(&io)? {
                match event {
                    Event::Torn { .. } => break,
                    Event::Answer(moment) if moment.asked().is_none() => before.answers += 1,
                    _ => {}
                }
                length = reader.position();
            }
        }
        before.cut = size - length;
        file.set_len(length).map_err(&io)?;
        file.seek(SeekFrom::Start(length)).map_err(&io)?;
        let mut writer =
            Writer { path: path.to_owned(), file, length, encoder: Encoder::default(), since_reset: None };
        if length == 0 {
            writer.append(&frame::header())?;
        }
        Ok((writer, before))
    }

    /// The file's size.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    pub(crate) fn session(&mut self, time: f64, session: &Session) -> Result<(), Error> {
        self.since_reset = None;
        self.frame(stored::SESSION, time, session)
    }

    /// An answer of the whole instance.
    pub(crate) fn answer(&mut self, answer: Answer) -> Result<(), Error> {
        let time = answer.time;
        let reset = self.since_reset.is_none_or(|answers| answers >= RESET_EVERY);
        let delta = self.encoder.answer(answer, reset);
        self.frame(stored::ANSWER, time, &delta)?;
        self.since_reset = Some(if reset { 1 } else { self.since_reset.unwrap_or(0) + 1 });
        if reset { self.sync() } else { Ok(()) }
    }

    /// The answer of these ranks, each for itself. Nothing is told of ranks before something was of the instance.
    pub(crate) fn by_rank(&mut self, answer: Answer, asked: &IdSet) -> Result<(), Error> {
        if self.since_reset.is_none() {
            return Ok(());
        }
        let time = answer.time;
        let delta = self.encoder.by_rank(answer, asked);
        self.frame(stored::BY_RANK, time, &delta)
    }

    pub(crate) fn mark(&mut self, time: f64, mark: &Mark) -> Result<(), Error> {
        self.frame(stored::MARK, time, mark)
    }

    pub(crate) fn end(&mut self, time: f64, ended: &Ended) -> Result<(), Error> {
        self.frame(stored::END, time, ended)?;
        self.sync()
    }

    fn frame(&mut self, kind: u8, time: f64, value: &impl Serialize) -> Result<(), Error> {
        let failed = |error: std::io::Error| Error::Full { path: self.path.clone(), source: error };
        let content = postcard::to_stdvec(value).map_err(std::io::Error::other).map_err(failed)?;
        let frame = Frame::new(kind, time, &content).map_err(failed)?;
        self.append(&frame.bytes())
    }

    /// All of it, or nothing. To a file that nobody can find any more, or that somebody else has cut, nothing is worth
    /// writing.
    fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let about = self.file.metadata().map_err(io(&self.path))?;
        if about.nlink() == 0 {
            return Err(Error::Gone { path: self.path.clone() });
        }
        if about.len() != self.length {
            return Err(Error::Changed { path: self.path.clone(), found: about.len(), left: self.length });
        }
        if let Err(source) = self.file.write_all(bytes) {
            // Should that fail, too, the next recorder cuts it off.
            let _ = self.file.set_len(self.length);
            return Err(Error::Full { path: self.path.clone(), source });
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// What was written is in the page cache and survives the recorder; this is for the machine.
    fn sync(&self) -> Result<(), Error> {
        self.file.sync_data().map_err(|source| Error::Full { path: self.path.clone(), source })
    }
}
