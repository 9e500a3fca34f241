//! Answers, as they come, on threads of their own: a handle belongs to its thread, and waits.

use super::subject::{Subject, Wanted, overview, overview_past};
use crate::answer::Answer;
use crate::instance::{Ask, Error, Instance, Reach};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// Without an answer for so long (beyond the interval) the connection is taken for lost, and made anew.
const SILENCE: Duration = Duration::from_secs(60);
/// How soon a lost instance is tried again, and how seldom in the end.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(10);
/// Who answers slowly is asked less often: for that part of the time at most.
const ASKED_PART: u32 = 10;
/// Details come no more often than this.
const DETAIL: Duration = Duration::from_secs(2);

/// What was heard.
#[derive(Debug)]
pub(crate) enum News {
    /// The history of the overview: the beginning of a connection.
    Past(Box<Answer>),
    /// The overview of a period.
    Overview(Box<Answer>),
    /// The history of a subject's lines.
    SubjectPast(Subject, Box<Answer>),
    /// What was asked about a subject, and the history of what is drawn.
    Detail(Subject, Box<Answer>, Option<Box<Answer>>),
    /// No answer about it.
    Trouble(Subject, String),
    /// The instance is out of reach, or has no stats-agg any more. It is tried again.
    Lost(String),
}

/// The threads' end that says what is wanted.
pub(crate) struct Feed {
    wanted: Sender<Option<Wanted>>,
    last: Option<Wanted>,
}

impl Feed {
    /// Begins to hear; `heard` gets what comes, for as long as it takes it. The overview comes every period, or every
    /// `interval`.
    pub(crate) fn start(
        reach: &Reach,
        interval: Option<Duration>,
        heard: impl Fn(News) -> bool + Clone + Send + 'static,
    ) -> Self {
        let (wanted, wants) = mpsc::channel();
        let (reach_of_details, heard_of_details) = (reach.clone(), heard.clone());
        let reach = reach.clone();
        thread::spawn(move || overviews(&reach, interval, &heard));
        thread::spawn(move || details(&reach_of_details, interval, &wants, &heard_of_details));
        Feed { wanted, last: None }
    }

    /// What is to be asked beside the overview from now on.
    pub(crate) fn want(&mut self, wanted: Option<Wanted>) {
        if wanted != self.last {
            self.last.clone_from(&wanted);
            // The thread ends with this process alone.
            let _ = self.wanted.send(wanted);
        }
    }
}

/// The history and the overview, once.
pub(crate) fn once(reach: &Reach) -> Result<(Answer, Answer), Error> {
    let instance = reach.connect()?;
    Ok((instance.ask(&overview_past())?, instance.ask(&overview())?))
}

/// Goes on until nobody listens.
fn overviews(reach: &Reach, interval: Option<Duration>, heard: &impl Fn(News) -> bool) {
    let mut again = AGAIN;
    loop {
        let begun = Instant::now();
        let Err(error) = connected(reach, interval, heard) else { return };
        if !heard(News::Lost(error.to_string())) {
            return;
        }
        again = if begun.elapsed() > AGAIN_MAX { AGAIN } else { (again * 2).min(AGAIN_MAX) };
        thread::sleep(again);
    }
}

/// One connection, until it is lost; `Ok`: nobody listens any more.
fn connected(reach: &Reach, interval: Option<Duration>, heard: &impl Fn(News) -> bool) -> Result<(), Error> {
    let instance = reach.connect()?;
    if !heard(News::Past(Box::new(instance.ask(&overview_past())?))) {
        return Ok(());
    }
    let Some(interval) = interval else { return streamed(&instance, heard) };
    while heard(News::Overview(Box::new(instance.ask(&overview())?))) {
        thread::sleep(interval);
    }
    Ok(())
}

fn streamed(instance: &Instance, heard: &impl Fn(News) -> bool) -> Result<(), Error> {
    let mut watch = instance.watch(&overview())?;
    let mut last = Instant::now();
    loop {
        match watch.next(SILENCE)? {
            Some(answer) => {
                last = Instant::now();
                if !heard(News::Overview(Box::new(answer))) {
                    return Ok(());
                }
            }
            // Also where a stream has ended and was asked for anew.
            None if last.elapsed() < SILENCE => {}
            None => return Err(Error::Silent { rank: 0 }),
        }
    }
}

/// Asks about what is wanted, again and again.
fn details(
    reach: &Reach,
    interval: Option<Duration>,
    wants: &Receiver<Option<Wanted>>,
    heard: &impl Fn(News) -> bool,
) {
    let mut instance = None;
    let mut wanted: Option<Wanted> = None;
    let mut begun: Option<Subject> = None;
    let mut pause = Duration::ZERO;
    loop {
        let next = match &wanted {
            Some(_) => wants.recv_timeout(pause),
            None => wants.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match next {
            // The newest: a line may be held down.
            Ok(next) => wanted = wants.try_iter().last().unwrap_or(next),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let Some(wanted) = &wanted else { continue };
        let asked = Instant::now();
        let is_new = begun.as_ref() != Some(&wanted.subject);
        let goes_on = match ask(reach, &mut instance, wanted, is_new, heard) {
            Ok(goes_on) => {
                begun = Some(wanted.subject.clone());
                goes_on
            }
            Err(error) => {
                instance = None;
                heard(News::Trouble(wanted.subject.clone(), error.to_string()))
            }
        };
        if !goes_on {
            return;
        }
        pause = DETAIL.max(interval.unwrap_or_default()).max(asked.elapsed() * ASKED_PART);
    }
}

fn ask(
    reach: &Reach,
    instance: &mut Option<Instance>,
    wanted: &Wanted,
    is_new: bool,
    heard: &impl Fn(News) -> bool,
) -> Result<bool, Error> {
    let instance = match instance {
        Some(instance) => instance,
        None => instance.insert(reach.connect()?),
    };
    let subject = &wanted.subject;
    let Some(question) = subject.question() else { return Ok(true) };
    let answer = instance.ask(&question)?;
    let chart = wanted.chart().map(|question| instance.ask(&question)).transpose()?;
    if is_new && let Some(question) = subject.past(answer.instance.size) {
        let past = instance.ask(&question)?;
        if !heard(News::SubjectPast(subject.clone(), Box::new(past))) {
            return Ok(false);
        }
    }
    Ok(heard(News::Detail(subject.clone(), Box::new(answer), chart.map(Box::new))))
}
