//! `flux stats record`: what an instance says, into a file.

use crate::answer::Answer;
use crate::instance::{self, By, Instance, Question, Reach};
use crate::outcome::{Ended, Failure, Outcome, complain};
use crate::query;
use crate::recording::{self, Mark, Session, Writer};
use crate::show;
use clap::Args;
use stats_core::{IdSet, Query};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// What the report shows by rank.
const BY_RANK: [&str; 2] = ["modules.*.work_s", "modules.*.longest_work_s"];
/// Ranks that are asked for what they measured themselves, with each answer of the instance. So what that costs, for rank 0
/// and for the file, does not grow with the instance: 1,024 ranks are heard of in turn, every 16 answers. Nothing is missed
/// by that, since totals and maxima stay; what is told of a rank is then the mean of 16 periods.
const RANKS_AT_A_TIME: usize = 64;
/// How long an instance that was lost is looked for.
const GIVE_UP: Duration = Duration::from_secs(60);
/// How soon a signal is noticed.
const NOTICE: Duration = Duration::from_millis(200);
const AGAIN: Duration = Duration::from_secs(1);
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Record what the instance says to a file, for `flux stats report`
///
/// Each period's answer is appended as it comes, as what changed. The file can be read at any time, and recorded onto again;
/// a recorder that is killed loses nothing that it had heard. It ends in order by SIGINT or SIGTERM. Where the instance is
/// lost it is looked for, for a minute.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flux stats record -o night.rec                 # all series, until Ctrl-C\n  \
                  flux stats record -o run.rec --for 10m 'modules.**' 'jobs.*'\n  flux stats report night.rec -o night.html"
)]
pub(crate) struct Options {
    /// Series to record [default: all]
    #[arg(value_name = "PATTERN")]
    patterns: Vec<String>,
    /// The file: made, or recorded onto
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Ask so often, instead of taking every period's answer
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    interval: Option<Duration>,
    /// Series to record of each rank, 64 ranks with each answer; may be given several times
    #[arg(long, value_name = "PATTERN", default_values = BY_RANK)]
    by_rank: Vec<String>,
    /// Record nothing by rank: the report then has no heat map
    #[arg(long)]
    no_by_rank: bool,
    /// End after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    limit: Option<Duration>,
}

fn duration(text: &str) -> Result<Duration, String> {
    flux::parse_duration("duration", text).map_err(|error| error.to_string())
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if interval < INTERVAL_MIN { Err("expected 100ms or more".to_owned()) } else { Ok(interval) }
}

/// Set by SIGINT and SIGTERM.
static TOLD: AtomicBool = AtomicBool::new(false);

pub(crate) fn run(options: &Options, reach: &Reach) -> Ended {
    checked(&Question::new(&options.patterns), "PATTERN")?;
    checked(&Question::new(&options.by_rank).by(By::Rank), "--by-rank")?;
    ctrlc::set_handler(|| TOLD.store(true, Ordering::Relaxed))?;
    let mut recorder = Recorder::new(options, reach);
    loop {
        let followed = match reach.connect() {
            Ok(instance) => recorder.follow(&instance)?,
            Err(error) => Err(error),
        };
        let ended = match followed {
            Ok(ended) => Some(ended),
            Err(error) if recorder.file.is_none() => return Err(error.into()),
            Err(error) => recorder.lost(error)?,
        };
        if let Some(ended) = ended {
            return recorder.end(ended);
        }
    }
}

/// What the module would refuse is refused before anybody is asked. `what` names the patterns.
fn checked(question: &Question, what: &str) -> Result<(), Failure> {
    let payload = serde_json::to_value(question)?;
    match Query::parse(&payload) {
        Ok(_) => Ok(()),
        Err(error) => {
            let error = error.to_string();
            Err(Failure::Usage(format!("{what} {}", error.strip_prefix("match: ").unwrap_or(&error))))
        }
    }
}

struct Recorder<'o> {
    options: &'o Options,
    reach: &'o Reach,
    began: Instant,
    /// Opened at the first answer.
    file: Option<Writer>,
    answers: u64,
    covered: IdSet,
    /// The rank that was asked last.
    turn: Option<u32>,
    /// Since when the instance does not answer, and why.
    lost: Option<(Instant, instance::Error)>,
    terminal: bool,
}

impl<'o> Recorder<'o> {
    fn new(options: &'o Options, reach: &'o Reach) -> Self {
        Recorder {
            options,
            reach,
            began: Instant::now(),
            file: None,
            answers: 0,
            covered: IdSet::new(),
            turn: None,
            lost: None,
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Why to end now.
    fn over(&self) -> Option<recording::Ended> {
        let over = || self.options.limit.is_some_and(|limit| self.began.elapsed() >= limit);
        if TOLD.load(Ordering::Relaxed) {
            Some(recording::Ended::Told)
        } else {
            over().then_some(recording::Ended::Over)
        }
    }

    /// Records answers, until there are no more of them or that is enough.
    fn follow(
        &mut self,
        instance: &Instance,
    ) -> Result<Result<recording::Ended, instance::Error>, recording::Error> {
        let question = Question::new(&self.options.patterns);
        let mut source = match Source::new(instance, question, self.options.interval) {
            Ok(source) => source,
            Err(error) => return Ok(Err(error)),
        };
        loop {
            if let Some(ended) = self.over() {
                return Ok(Ok(ended));
            }
            match source.next() {
                Ok(None) => self.progress(),
                Ok(Some(answer)) => {
                    if self.answers == 0 {
                        self.say_what_fits_nothing(instance, &answer);
                    }
                    self.record(answer)?;
                    if let Err(error) = self.ask_ranks(instance)? {
                        return Ok(Err(error));
                    }
                    self.progress();
                }
                Err(error) => return Ok(Err(error)),
            }
        }
    }

    /// A series may come about later: that none fits yet is no error.
    fn say_what_fits_nothing(&self, instance: &Instance, answer: &Answer) {
        let question = Question::new(&self.options.patterns);
        if let Err(Failure::Failed(why)) = query::fits(instance, &question, answer) {
            self.say(&format!("{why} (recorded as soon as there is one)"));
        }
    }

    fn record(&mut self, answer: Answer) -> Result<(), recording::Error> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let (mut file, before) = Writer::open(&self.options.output)?;
                if before.cut > 0 {
                    complain(&format!("{} torn bytes at the end were cut off", before.cut));
                }
                file.session(now(), &self.options.session(self.reach))?;
                none.insert(file)
            }
        };
        if self.lost.take().is_some() {
            file.mark(now(), &Mark::Found)?;
        }
        self.covered = answer.ranks.covered.parse().unwrap_or_default();
        self.answers += 1;
        file.answer(answer)
    }

    /// The next ranks in turn. An instance that does not answer that will be asked again.
    fn ask_ranks(&mut self, instance: &Instance) -> Result<Result<(), instance::Error>, recording::Error> {
        let Some(file) = self.file.as_mut().filter(|_| !self.options.no_by_rank) else { return Ok(Ok(())) };
        let ranks = next_ranks(&self.covered, self.turn);
        self.turn = ranks.last();
        if ranks.is_empty() {
            return Ok(Ok(()));
        }
        let question = Question::new(&self.options.by_rank).by(By::Rank).ranks(&ranks.to_string());
        match instance.ask(&question) {
            Ok(answer) => file.by_rank(answer, &ranks).map(Ok),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Waits a while after the instance was lost; whether that is long enough.
    fn lost(&mut self, error: instance::Error) -> Result<Option<recording::Ended>, Failure> {
        if self.lost.is_none() {
            if let Some(file) = &mut self.file {
                file.mark(now(), &Mark::Lost(error.to_string()))?;
            }
            self.say(&format!("{error}; looking for it again for {} s", GIVE_UP.as_secs()));
        }
        let since = self.lost.take().map_or_else(Instant::now, |(since, _)| since);
        self.lost = Some((since, error));
        if since.elapsed() >= GIVE_UP {
            return Ok(Some(recording::Ended::Gone));
        }
        let again = Instant::now() + AGAIN;
        while Instant::now() < again {
            if let Some(ended) = self.over() {
                return Ok(Some(ended));
            }
            std::thread::sleep(NOTICE);
        }
        Ok(None)
    }

    fn end(mut self, ended: recording::Ended) -> Ended {
        let Some(file) = &mut self.file else { return Ok(Outcome::Done) };
        file.end(now(), &ended)?;
        let recorded = format!("{} in {}", self.summary(), self.options.output.display());
        match (ended, self.lost.take()) {
            (recording::Ended::Gone, Some((_, error))) => {
                self.clear();
                Err(Failure::Failed(format!("the instance is gone: {error} ({recorded})")))
            }
            _ => {
                self.say(&recorded);
                Ok(Outcome::Done)
            }
        }
    }

    fn summary(&self) -> String {
        let size = self.file.as_ref().map_or(0, Writer::length);
        format!(
            "{} answers of {} ranks, {}, {}",
            self.answers,
            self.covered.len(),
            show::duration(self.began.elapsed().as_secs_f64().round()),
            show::bytes(size as f64)
        )
    }

    fn progress(&self) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[Krecording: {}", self.summary());
        }
    }

    fn clear(&self) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    fn say(&self, line: &str) {
        self.clear();
        complain(line);
    }
}

impl Options {
    fn session(&self, reach: &Reach) -> Session {
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Session {
            recorder: env!("CARGO_PKG_VERSION").to_owned(),
            machine: machine.trim().to_owned(),
            uri: reach.uri(),
            patterns: self.patterns.clone(),
            by_rank: if self.no_by_rank { Vec::new() } else { self.by_rank.clone() },
            interval_s: self.interval.map(|interval| interval.as_secs_f64()),
        }
    }
}

/// The ranks after that one, and where there are none, the first.
fn next_ranks(covered: &IdSet, after: Option<u32>) -> IdSet {
    let behind = |rank: &u32| after.is_none_or(|after| *rank > after);
    let next: IdSet = covered.iter().filter(behind).take(RANKS_AT_A_TIME).collect();
    if next.is_empty() { covered.iter().take(RANKS_AT_A_TIME).collect() } else { next }
}

fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Where answers come from.
enum Source<'i> {
    /// One each period.
    Told(instance::Watch<'i>),
    /// One each interval.
    Asked { instance: &'i Instance, question: Question, interval: Duration, next: Instant },
}

impl<'i> Source<'i> {
    fn new(
        instance: &'i Instance,
        question: Question,
        interval: Option<Duration>,
    ) -> Result<Self, instance::Error> {
        match interval {
            None => Ok(Source::Told(instance.watch(&question)?)),
            Some(interval) => Ok(Source::Asked { instance, question, interval, next: Instant::now() }),
        }
    }

    /// The next answer, if there is one soon.
    fn next(&mut self) -> Result<Option<Answer>, instance::Error> {
        match self {
            Source::Told(watch) => watch.next(NOTICE),
            Source::Asked { instance, question, interval, next } => {
                let wait = next.saturating_duration_since(Instant::now());
                if wait > NOTICE {
                    std::thread::sleep(NOTICE);
                    return Ok(None);
                }
                std::thread::sleep(wait);
                // On the beat; after a long answer, the next one of it.
                while *next <= Instant::now() {
                    *next += *interval;
                }
                instance.ask(question).map(Some)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_have_their_turn() {
        let covered: IdSet = "0-99,200".parse().unwrap();
        let mut turn = None;
        let turns: Vec<String> = (0..3)
            .map(|_| {
                let ranks = next_ranks(&covered, turn);
                turn = ranks.last();
                ranks.to_string()
            })
            .collect();
        assert_eq!(turns, ["0-63", "64-99,200", "0-63"]);
        assert_eq!(next_ranks(&"0-3".parse().unwrap(), Some(3)).to_string(), "0-3");
        assert!(next_ranks(&IdSet::new(), None).is_empty());
    }
}
