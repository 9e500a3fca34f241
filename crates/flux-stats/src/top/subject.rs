//! What is looked at, and what has to be asked for it.

use super::work::METRICS;
use crate::instance::{By, Question};

/// What the history of lines is asked for, and shown by their sparklines.
pub(crate) const PAST_S: f64 = 300.0;
/// What a chart shows.
pub(crate) const CHART_S: f64 = 600.0;
/// Of more ranks each one's history is not asked for.
const PAST_RANKS_MAX: u32 = 64;

/// What a screen is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Subject {
    /// All modules, in the whole instance.
    Modules,
    /// One module, on each rank.
    Ranks(String),
    /// All modules, on one rank.
    Rank(u32),
    /// The series that a pattern fits, in the whole instance or on one rank.
    Series { pattern: String, rank: Option<u32> },
}

/// What is asked beside the overview, as often as that comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) subject: Subject,
    /// The name of the series whose history is drawn.
    pub(crate) charted: Option<String>,
}

/// Always asked for: every module, and the instance.
pub(crate) fn overview() -> Question {
    let modules = format!("modules.*.{{{}}}", METRICS.join(","));
    Question::new([
        &modules,
        "modules.*.rx.*",
        "jobs.{depend,priority,sched,run,cleanup,inactive,failed}",
        "resources.nodes.{up,free}",
        "broker.uptime_s",
    ])
}

/// Asked for once: what sparklines begin with, and messages, which are counted more rarely than a period.
pub(crate) fn overview_past() -> Question {
    Question::new(["modules.*.work_s", "modules.*.rx.*"]).since(PAST_S)
}

impl Subject {
    /// What its lines are made of; `None`: of the overview.
    pub(crate) fn question(&self) -> Option<Question> {
        let metrics = METRICS.join(",");
        match self {
            Subject::Modules => None,
            Subject::Ranks(module) => {
                Some(Question::new([format!("modules.{module}.{{{metrics}}}")]).by(By::Rank))
            }
            Subject::Rank(rank) => {
                Some(on_rank(Question::new([format!("modules.*.{{{metrics}}}")]), Some(*rank)))
            }
            Subject::Series { pattern, rank } => Some(on_rank(Question::new([pattern]), *rank)),
        }
    }

    /// What their sparklines begin with, in an instance of that size.
    pub(crate) fn past(&self, size: u32) -> Option<Question> {
        match self {
            Subject::Ranks(module) if size <= PAST_RANKS_MAX => {
                Some(Question::new([format!("modules.{module}.work_s")]).by(By::Rank).since(PAST_S))
            }
            Subject::Rank(rank) => {
                Some(on_rank(Question::new(["modules.*.work_s"]), Some(*rank)).since(PAST_S))
            }
            _ => None,
        }
    }
}

impl Wanted {
    /// The history of what is drawn.
    pub(crate) fn chart(&self) -> Option<Question> {
        match (&self.subject, &self.charted) {
            (Subject::Series { rank, .. }, Some(name)) => {
                Some(on_rank(Question::new([name]), *rank).since(CHART_S))
            }
            _ => None,
        }
    }
}

fn on_rank(question: Question, rank: Option<u32>) -> Question {
    let Some(rank) = rank else { return question };
    let mut question = question.by(By::Rank);
    question.ranks = Some(rank.to_string());
    question
}
