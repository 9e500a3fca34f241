//! `flux stats query`: series of the whole instance, or of its ranks, for a person or a program.

mod fields;
mod format;
mod guess;
mod screen;
mod table;

use crate::answer::Answer;
use crate::hosts::Hosts;
use crate::instance::{Ask, By, Instance, Question, Reach};
use crate::outcome::{Ended, Failure, Outcome, complain, print, say};
use crate::show;
use clap::{Args, Parser};
use fields::{FIELDS, Field, Key, Row};
use format::Format;
use serde_json::Value as Json;
use stats_core::{IdSet, Query};
use std::time::{Duration, Instant};

/// How long a stream may be silent at most: periods are an hour at most, and who is cut off is told earlier.
const SILENCE_MAX: Duration = Duration::from_secs(3700);
/// The field by which `--top` finds the greatest, unless `--sort` names another.
const TOP_KEY: &str = "rate";

/// Show series: totals, rates, maxima and whose they are
///
/// Without a pattern all series are shown. In a pattern `*` is any text within one part of a dotted name, `**` any number
/// of parts, `?` one character, `[ab]` and `{a,b}` alternatives. Counters show their total and the rate in the last
/// period, gauges the sum over the ranks, timers (histograms are timers without a unit) how many samples; MAX is that of a single rank (of a timer: sample).
/// Names that end in _s are seconds, and their rates shares of the time; names that end in _bytes are bytes.
#[derive(Args)]
#[command(after_help = "Examples:
  flux stats query 'modules.*.work_s' --top 10
  flux stats query modules.kvs.wakeups --by rank --since 5m
  flux stats query 'jobs.*' -o '{name:<30} {total:>10} {rate:>8.2f}'

Exits with 1 where a pattern fits nothing, 2 where the question makes no sense, 3 where the
numbers of some running ranks are missing.")]
pub(crate) struct Options {
    /// Which series; all without one
    #[arg(value_name = "PATTERN")]
    patterns: Vec<String>,
    /// How to split them up
    #[arg(long, value_enum, value_name = "WHAT")]
    by: Option<By>,
    /// Ask these ranks alone, as in 0-3,7 (implies --by rank)
    #[arg(long, value_name = "IDSET")]
    rank: Option<String>,
    /// Show what was gained in so much time, too, as in 5m: as far as the module's history reaches
    #[arg(long, value_name = "DURATION")]
    since: Option<String>,
    /// Print the answer as it came, as JSON
    #[arg(long, group = "output", conflicts_with_all = ["sort", "top"])]
    json: bool,
    /// Print a JSON object for each series, one a line
    #[arg(long, group = "output")]
    ndjson: bool,
    /// Print comma-separated values
    #[arg(long, group = "output")]
    csv: bool,
    /// Print a line for each series, as in '{name:<40} {rate:>10.2f}'; `help` lists the fields
    #[arg(short = 'o', long, group = "output", value_name = "FORMAT")]
    format: Option<String>,
    /// Sort by these fields (-o help lists them), from the least; with - before one, from the greatest
    #[arg(long, value_name = "KEY,…", allow_hyphen_values = true)]
    sort: Option<String>,
    /// Show the N series with the greatest rate, or the greatest of what --sort names, the greatest first
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Leave the headings out
    #[arg(short = 'n', long)]
    no_header: bool,
    /// Show a new answer each period, or as often as DURATION says
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    watch: Option<String>,
    /// Do not say which ranks are covered
    #[arg(short = 'q', long)]
    quiet: bool,
}

/// What is asked for, with every option checked.
struct Asked {
    question: Question,
    output: Output,
    sort: Vec<Key>,
    top: Option<usize>,
    heading: bool,
    quiet: bool,
}

enum Output {
    Table,
    Json,
    Ndjson,
    Csv,
    Format(Format),
}

pub(crate) fn run(options: &Options, reach: &Reach) -> Ended {
    if options.format.as_deref() == Some("help") {
        print(&help())?;
        return Ok(Outcome::Done);
    }
    let asked = options.asked()?;
    let every = options.watch.as_deref().map(|every| flux::parse_duration("--watch", every));
    let every = every.transpose().map_err(Failure::usage)?;
    let instance = reach.connect()?;
    if let Some(ranks) = &asked.question.ranks {
        ranks_exist(ranks, instance.size()?)?;
    }
    match every {
        Some(every) => watch(&instance, &asked, every),
        None => once(&instance, &asked),
    }
}

/// The fields that there are.
fn help() -> String {
    let rows = FIELDS.iter().map(|field| vec![field.name.to_owned(), field.what.to_owned()]);
    show::table(&[("FIELD", show::Align::Left), ("WHAT", show::Align::Left)], rows)
}

impl Options {
    fn asked(&self) -> Result<Asked, Failure> {
        let by = match (self.by, &self.rank) {
            (None | Some(By::Rank), Some(_)) => By::Rank,
            (Some(_), Some(_)) => {
                return Err(Failure::Usage("--rank: ranks are asked with --by rank alone".to_owned()));
            }
            (by, None) => by.unwrap_or_default(),
        };
        let mut question = Question::new(&self.patterns).by(by);
        if let Some(ranks) = &self.rank {
            let ranks: IdSet = ranks.parse().map_err(|error| Failure::usage(format!("--rank: {error}")))?;
            if ranks.is_empty() {
                return Err(Failure::Usage("--rank: it names no rank".to_owned()));
            }
            question.ranks = Some(ranks.to_string());
        }
        if let Some(since) = &self.since {
            let time = flux::parse_duration("--since", since).map_err(Failure::usage)?;
            if time.is_zero() {
                return Err(Failure::Usage("--since: expected more than no time".to_owned()));
            }
            question.since = Some(time.as_secs_f64());
        }
        // What the module would refuse is refused before anybody is asked.
        question.check().map_err(Failure::Usage)?;
        let format = self.format.as_deref().map(Format::parse).transpose();
        let format = format.map_err(|error| Failure::usage(format!("-o: {error}")))?;
        let sort = match (&self.sort, &format) {
            (Some(sort), _) => {
                fields::keys(sort).map_err(|error| Failure::Usage(format!("--sort: {error}")))?
            }
            (None, Some(format)) => format.sort.clone(),
            (None, None) => Vec::new(),
        };
        let output = match format {
            Some(format) => Output::Format(format),
            None if self.json => Output::Json,
            None if self.ndjson => Output::Ndjson,
            None if self.csv => Output::Csv,
            None => Output::Table,
        };
        let (top, heading, quiet) = (self.top, !self.no_header, self.quiet);
        Ok(Asked { question, output, sort, top, heading, quiet })
    }
}

fn ranks_exist(ranks: &str, size: u32) -> Result<(), Failure> {
    let last = ranks.parse::<IdSet>().ok().and_then(|ranks| ranks.last());
    match last {
        Some(last) if last >= size => Err(Failure::Usage(format!(
            "--rank: there is no rank {last}: this instance has the ranks {}",
            IdSet::range(0, size.saturating_sub(1))
        ))),
        _ => Ok(()),
    }
}

/// What the words of a command line are answered with, and below it whom that covers.
pub(crate) fn answered(of: &impl Ask, words: &[&str]) -> Result<String, Failure> {
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }
    let line = Line::try_parse_from(std::iter::once(&"query").chain(words)).map_err(Failure::usage)?;
    let asked = line.options.asked()?;
    let shown = Shown::of(of.ask_text(&asked.question)?)?;
    fits(of, &asked.question, &shown.answer)?;
    Ok(format!("{}{}\n", asked.text(&shown, true)?, show::coverage(&shown.answer)))
}

fn once(instance: &Instance, asked: &Asked) -> Ended {
    let shown = Shown::of(instance.ask_text(&asked.question)?)?;
    print(&asked.text(&shown, true)?)?;
    asked.say_coverage(&shown.answer);
    fits(instance, &asked.question, &shown.answer)?;
    Ok(if shown.answer.is_partial() { Outcome::Partial } else { Outcome::Done })
}

fn watch(instance: &Instance, asked: &Asked, every: Duration) -> Ended {
    let mut answers = instance.watch(&asked.question)?;
    let (mut first, mut due) = (true, Instant::now());
    loop {
        let Some(text) = answers.next_text(SILENCE_MAX)? else { continue };
        if Instant::now() < due {
            continue;
        }
        // A little early is better than a whole period late.
        due = Instant::now() + every.mul_f64(0.95);
        let shown = Shown::of(text)?;
        let mut text = asked.text(&shown, first)?;
        if matches!(asked.output, Output::Table | Output::Format(_)) {
            if !asked.quiet {
                text += &format!("{}\n", show::coverage(&shown.answer));
            }
            text = screen::next(&text, first);
        }
        print(&text)?;
        if first {
            fits(instance, &asked.question, &shown.answer)?;
        }
        first = false;
    }
}

/// An answer as it came, and read.
struct Shown {
    text: String,
    answer: Answer,
    hosts: Hosts,
}

impl Shown {
    fn of(text: String) -> Result<Self, crate::instance::Error> {
        let answer = crate::instance::parsed(&text)?;
        let hosts = Hosts::of(answer.instance.hostlist.as_deref());
        Ok(Shown { text, answer, hosts })
    }
}

impl Asked {
    /// The answer as it is to be printed; the first of several or one of the rest.
    fn text(&self, shown: &Shown, first: bool) -> Result<String, Failure> {
        let Shown { text, answer, hosts } = shown;
        let heading = self.heading;
        match &self.output {
            Output::Json => {
                let json: Json = serde_json::from_str(text)?;
                Ok(format!("{json:#}\n"))
            }
            Output::Ndjson => {
                let mut json: Json = serde_json::from_str(text)?;
                let time = json["time"].clone();
                let mut lines = String::new();
                for place in self.places(answer, hosts) {
                    let Json::Object(series) = json["series"][place].take() else { continue };
                    let mut line = serde_json::Map::from_iter([("time".to_owned(), time.clone())]);
                    line.extend(series);
                    lines += &format!("{}\n", Json::Object(line));
                }
                Ok(lines)
            }
            Output::Csv => csv(answer, hosts, &self.places(answer, hosts), heading && first),
            Output::Format(format) => {
                let places = self.places(answer, hosts);
                let rows = places.iter().map(|&place| Row { series: &answer.series[place], hosts });
                Ok(format.lines(rows, heading))
            }
            Output::Table => {
                Ok(table::series(answer, hosts, &self.places(answer, hosts), &self.question, heading))
            }
        }
    }

    /// Which series, in which order.
    fn places(&self, answer: &Answer, hosts: &Hosts) -> Vec<usize> {
        let Some(top) = self.top else {
            return fields::sorted(answer, hosts, &self.sort);
        };
        let mut keys = self.sort.clone();
        if keys.is_empty() {
            keys.extend(Field::find(TOP_KEY).map(|field| Key { field, descending: true }));
        }
        keys.iter_mut().for_each(|key| key.descending = true);
        let mut places = fields::sorted(answer, hosts, &keys);
        places.truncate(top);
        places
    }

    fn say_coverage(&self, answer: &Answer) {
        if !self.quiet {
            say(&show::coverage(answer));
        }
    }
}

fn csv(answer: &Answer, hosts: &Hosts, places: &[usize], heading: bool) -> Result<String, Failure> {
    let mut out = csv::Writer::from_writer(Vec::new());
    if heading {
        out.write_record(std::iter::once("time").chain(FIELDS.iter().map(|field| field.name)))?;
    }
    let time = answer.time.to_string();
    for &place in places {
        let row = Row { series: &answer.series[place], hosts };
        out.write_record(
            std::iter::once(time.clone()).chain(FIELDS.iter().map(|field| field.of(row).plain())),
        )?;
    }
    Ok(String::from_utf8_lossy(&out.into_inner()?).into_owned())
}

/// An error for the patterns that fit none of the answer's series, with what may have been meant. Where ranks that were
/// asked have not answered, they might have one: that is said, and is no error.
pub(crate) fn fits(instance: &impl Ask, question: &Question, answer: &Answer) -> Result<(), Failure> {
    let unfit: Vec<&String> = question.patterns.iter().filter(|pattern| !fits_any(pattern, answer)).collect();
    if unfit.is_empty() {
        return Ok(());
    }
    let all = instance.ask(&Question::default())?;
    let unanswered = unanswered(answer)?;
    let said = unfit.into_iter().filter_map(|pattern| match &question.ranks {
        Some(ranks) if fits_any(pattern, &all) => {
            unanswered.is_empty().then(|| format!("no series of rank {ranks} fits {pattern}"))
        }
        _ => Some(unknown(pattern, &all)),
    });
    let said: Vec<String> = said.collect();
    if said.is_empty() {
        unanswered.iter().for_each(|why| complain(why));
        return Ok(());
    }
    Err(Failure::Failed(said.join("; ")))
}

/// Which ranks were asked in vain, and why.
fn unanswered(answer: &Answer) -> Result<Vec<String>, Failure> {
    let all: IdSet = answer.unanswered.parse()?;
    let (offline, absent) = (answer.ranks.offline.parse()?, answer.ranks.absent.parse()?);
    let said = [
        (all.both(&offline), "offline"),
        (all.both(&absent), "stats-agg is not loaded there: run `flux stats load`"),
        (all.minus(&offline).minus(&absent), "no answer: try again, or `flux stats peek` on its node"),
    ];
    let said = said.into_iter().filter(|(ranks, _)| !ranks.is_empty());
    Ok(said.map(|(ranks, why)| format!("{}: {why}", show::named(&ranks))).collect())
}

fn unknown(pattern: &str, all: &Answer) -> String {
    let names = || all.series.iter().map(|series| series.name.as_str());
    let near = guess::near(pattern, names());
    if !near.is_empty() {
        return format!("no series fits {pattern}; did you mean {}?", near.join(" or "));
    }
    // Those that are one word are names of old, and would fill the line.
    let mut families: Vec<&str> = names().filter_map(|name| Some(name.split_once('.')?.0)).collect();
    families.dedup();
    match families.is_empty() {
        true => format!("no series fits {pattern}: there is none yet, try again after a period"),
        false => format!("no series fits {pattern}; names begin with {}", families.join(", ")),
    }
}

fn fits_any(pattern: &str, answer: &Answer) -> bool {
    let query = Query::parse(&serde_json::json!({ "match": [pattern] }));
    query.is_ok_and(|query| answer.series.iter().any(|series| query.matches(&series.name)))
}
