//! `flux stats doctor`: what is wrong with an instance, the worst first, and what shows it.
//!
//! Answers become [`Evidence`], of which rules, a table of pure functions, make [`Finding`]s. So recorded answers can be
//! looked at like live ones.

mod evidence;
mod finding;
mod recorded;
mod rules;
mod shown;

pub(crate) use evidence::Evidence;
pub(crate) use finding::Finding;
pub(crate) use rules::findings;

use crate::instance::{Ask, By, Question, Reach};
use crate::outcome::{Ended, Failure, Outcome, print};
use clap::{Args, ValueEnum};
use rules::suspicion;
use stats_core::IdSet;
use std::time::Duration;

/// Of an instance as small as this all ranks are asked for what is suspicious; of a larger one the suspects.
const ASKED_MAX: u64 = 64;
/// Rules look at a minute at most, and at what went offline in the rest.
pub(crate) const SINCE_MIN: Duration = Duration::from_secs(60);

/// Say what is wrong with the instance, the worst first
///
/// Reads the last minutes of the whole instance, asks the ranks that look suspicious, and tells what is wrong in sentences,
/// each with the numbers that it rests on, the ranks, and the query that shows them. What could be a burst of work is told
/// once it has lasted for half a minute or more; a silent rank, a module that stalls, or a limit that is near at once.
/// --list shows the rules and their thresholds.
#[derive(Args)]
#[command(
    after_help = "Exits with 0 where nothing is wrong, 4 with findings, 3 where nothing is found and the numbers of some \
running ranks are missing."
)]
pub(crate) struct Options {
    /// How much of the past to look at, a minute or more: as far as the module's history reaches
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    since: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// List the rules, and ask nobody
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "text", conflicts_with = "json")]
    list: Option<List>,
}

/// How the rules are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum List {
    /// For a person
    Text,
    /// As docs/doctor.md has them
    Markdown,
}

pub(crate) fn run(options: &Options, reach: &Reach) -> Ended {
    match options.list {
        Some(List::Text) => print(&shown::rules())?,
        Some(List::Markdown) => print(&shown::page())?,
        None => return look(options, reach),
    }
    Ok(Outcome::Done)
}

fn look(options: &Options, reach: &Reach) -> Ended {
    let since = flux::parse_duration("--since", &options.since).map_err(Failure::usage)?;
    if since < SINCE_MIN {
        return Err(Failure::Usage(format!("--since={}: expected a minute or more", options.since)));
    }
    let evidence = gather(&reach.connect()?, since.as_secs_f64())?;
    let found = findings(&evidence);
    print(&if options.json { shown::json(&evidence, &found)? } else { shown::text(&evidence, &found) })?;
    Ok(match found.is_empty() {
        false => Outcome::Findings,
        true if is_partial(&evidence) => Outcome::Partial,
        true => Outcome::Done,
    })
}

/// What is found wrong with what plays an instance, as a person sees it.
pub(crate) fn opinion(of: &impl Ask, seconds: f64) -> Result<String, Failure> {
    let evidence = gather(of, seconds)?;
    Ok(shown::text(&evidence, &findings(&evidence)))
}

/// Whether a rank that runs is not in it.
fn is_partial(evidence: &Evidence) -> bool {
    evidence.whole().is_partial() || !evidence.unanswered().is_empty()
}

/// What an instance says of the last `seconds`: of itself, and by rank of what looks suspicious.
pub(crate) fn gather(instance: &dyn Ask, seconds: f64) -> Result<Evidence, Failure> {
    let whole = instance.ask(&Question::new(evidence::PATTERNS).since(seconds))?;
    let covered: IdSet = whole.ranks.covered.parse().unwrap_or_default();
    let evidence = Evidence::new(whole, None);
    let suspicion = suspicion(&evidence);
    if suspicion.patterns.is_empty() {
        return Ok(evidence);
    }
    let mut question = Question::new(suspicion.patterns).since(seconds).by(By::Rank);
    if covered.len() > ASKED_MAX {
        question.ranks = Some(suspicion.ranks.into_iter().collect::<IdSet>().to_string());
    }
    let by_rank = instance.ask(&question)?;
    Ok(evidence.with(by_rank))
}

#[cfg(test)]
mod tests;
