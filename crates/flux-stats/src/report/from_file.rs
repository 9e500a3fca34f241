//! A report from a recording.

use super::axis::Axis;
use super::clock::Clock;
use super::findings::Looking;
use super::gather::Gathering;
use super::model::{Model, NoteKind};
use super::page::Finding;
use crate::recording::{Ended, Error, Event, Mark, Reader};
use crate::show;
use std::path::Path;
use std::time::Duration;

/// Why no report can be made of a file.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error(transparent)]
    Recording(#[from] Error),
    #[error("{0}: {1}")]
    Reading(String, std::io::Error),
    #[error("{0} has no answers{1}")]
    Empty(String, &'static str),
}

/// What there is.
struct Extent {
    start: f64,
    end: f64,
    /// How often answers came, where they came most often.
    step: f64,
    size: u32,
    unread: u64,
}

/// Of all of it, or of its last so many seconds; and what was wrong in that time.
pub(super) fn model(
    path: &Path,
    since: Option<Duration>,
    clock: &Clock,
) -> Result<(Model, Vec<Finding>), Unusable> {
    let name = path.display().to_string();
    let found = extent(path, &name)?;
    let Some(found) = found else {
        return Err(Unusable::Empty(name, ""));
    };
    if found.start > found.end {
        let damaged = if found.unread > 0 { " that can be read: it is damaged" } else { "" };
        return Err(Unusable::Empty(name, damaged));
    }
    let start = since.map_or(found.start, |since| found.start.max(found.end - since.as_secs_f64()));
    let axis = Axis::new(start, found.end, found.step);
    let mut gathering = Gathering::new(axis, found.size);
    let mut looking = Looking::new(found.end - start);
    let mut interval = None;
    let mut reader = Reader::open(path)?;
    // What is told without a time of its own happened when the last thing before it did.
    let mut now = start;
    let mut recording = false;
    while let Some((time, event)) = reader.next().map_err(|error| Unusable::Reading(name.clone(), error))? {
        if time.is_finite() {
            now = time;
        }
        if now < start {
            recording = matches!(event, Event::Session(_)) || (recording && !matches!(event, Event::End(_)));
            continue;
        }
        match event {
            Event::Session(session) => {
                gathering.found(now);
                let mut note = |text: String| gathering.note(now, now, NoteKind::Recorder, text);
                if std::mem::replace(&mut recording, true) {
                    note("the recorder before ended without a word".to_owned());
                }
                let machine = if session.machine.is_empty() { "?" } else { &session.machine };
                note(format!("flux-stats {} on {machine} began to record", session.recorder));
                gathering.session(session.interval_s);
                interval = session.interval_s;
            }
            Event::Answer(moment) => match moment.asked() {
                None => {
                    gathering.answer(&moment.head(), moment.lines());
                    looking.see(&moment, interval);
                }
                Some(_) => gathering.by_rank(time, moment.lines()),
            },
            Event::Mark(Mark::Lost(why)) => gathering.lost(now, why),
            Event::Mark(Mark::Found) => gathering.found(now),
            Event::End(ended) => {
                recording = false;
                gathering.found(now);
                let mut note = |text: String| gathering.note(now, now, NoteKind::Recorder, text);
                note(match ended {
                    Ended::Told => "the recorder was told to end".to_owned(),
                    Ended::Over => "the recorder had recorded for as long as it should".to_owned(),
                    Ended::Gone => "the recorder gave up: the instance was gone".to_owned(),
                });
            }
            Event::Unread => gathering.unread(),
            Event::Damage { at, bytes } => {
                let text =
                    format!("the file is damaged at byte {at}: {} cannot be read", show::bytes(bytes as f64));
                gathering.note(now, now, NoteKind::Recorder, text);
            }
            Event::Torn { at, bytes } => {
                let text =
                    format!("the file ends torn, at byte {at}: {} left out", show::bytes(bytes as f64));
                gathering.note(now, now, NoteKind::Recorder, text);
            }
        }
    }
    let model = Model { looks_left_out: looking.left_out(), ..gathering.finish(name) };
    Ok((model, looking.finish(clock)))
}

/// A first reading. `None`: nobody ever recorded to it.
fn extent(path: &Path, name: &str) -> Result<Option<Extent>, Unusable> {
    let mut reader = Reader::open(path)?;
    let mut found =
        Extent { start: f64::INFINITY, end: f64::NEG_INFINITY, step: f64::INFINITY, size: 0, unread: 0 };
    let (mut any, mut interval) = (false, None);
    while let Some((time, event)) =
        reader.next().map_err(|error| Unusable::Reading(name.to_owned(), error))?
    {
        any = true;
        match event {
            Event::Session(session) => interval = session.interval_s,
            Event::Answer(moment) if moment.asked().is_none() => {
                found.start = found.start.min(time);
                found.end = found.end.max(time);
                found.size = found.size.max(moment.size());
                found.step = found.step.min(interval.unwrap_or(0.0).max(moment.period()));
            }
            Event::Unread => found.unread += 1,
            _ => {}
        }
    }
    found.step = found.step.max(0.1);
    Ok(any.then_some(found))
}
