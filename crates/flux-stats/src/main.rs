//! The command `flux stats`: what a person asks of the statistics of a Flux instance.
//!
//! Installed as `flux-stats` where `flux` looks for commands (`flux config builtin exec_path`, or PATH).
//!
//! ```sh
//! flux stats query 'modules.*.work_s' --top 10   # series of the whole instance
//! flux stats demo              # what it shows, without any Flux
//! flux stats doctor            # what is wrong, where, and what shows it
//! flux stats load              # the module on every rank
//! flux stats peek              # what every module of this node's brokers does now, though a broker hangs
//! flux stats send NAME VALUE   # a metric from a shell
//! flux stats record -o FILE    # what the instance says, period by period
//! flux stats report FILE -o report.html
//! flux stats top               # what every module of the instance does, as it goes
//! ```
//!
//! It exits with 0, 1 when it could not do what it was asked to, 2 when the arguments make no sense, 3 when some ranks
//! are missing from an answer, 4 when `doctor` has findings.
#![forbid(unsafe_code)]

#[allow(dead_code, reason = "the commands to come ask more")]
mod answer;
mod demo;
mod doctor;
mod generate;
mod hosts;
#[allow(dead_code, reason = "the commands to come ask more")]
mod instance;
mod load;
#[allow(dead_code, reason = "the commands to come end otherwise, too")]
mod outcome;
mod peek;
mod query;
mod record;
mod recording;
mod report;
mod send;
#[allow(dead_code, reason = "the commands to come show more")]
mod show;
mod top;

use clap::{CommandFactory, Parser, Subcommand};
use outcome::{Ended, Failure, Outcome, complain, print};
use std::process::ExitCode;

/// Statistics of a Flux instance
///
/// What every broker module does, how long it works, sleeps and is blocked, and what modules, programs and jobs push: for
/// the whole instance, merged exactly by the module stats-agg, which `flux stats load` loads.
#[derive(Parser)]
#[command(name = "flux-stats", bin_name = "flux stats", version)]
struct Arguments {
    #[command(flatten)]
    reach: instance::Reach,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Options),
    Doctor(doctor::Options),
    Load(load::LoadOptions),
    Peek(peek::Options),
    Query(query::Options),
    Record(record::Options),
    Report(report::Options),
    Send(send::Options),
    Top(top::Options),
    Unload(load::UnloadOptions),
}

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let ended = match Arguments::try_parse() {
        // Whoever installs it wants the files that are made from it; nobody else.
        _ if words.nth(1).is_some_and(|word| word == generate::NAME) => {
            generate::run(words, Arguments::command())
        }
        Ok(arguments) => run(&arguments),
        // clap writes its errors as it likes, and leaves out that it could not.
        Err(error) if error.use_stderr() => Err(Failure::Usage(error.to_string())),
        Err(help) => print(&help.to_string()).map(|()| Outcome::Done),
    };
    ExitCode::from(match ended {
        Ok(outcome) => outcome.status(),
        Err(failure) => {
            if let Failure::Usage(text) | Failure::Failed(text) = &failure {
                complain(text.trim_end().trim_start_matches("error: "));
            }
            failure.status()
        }
    })
}

fn run(Arguments { reach, command }: &Arguments) -> Ended {
    match command {
        Command::Demo(options) => demo::run(options),
        Command::Doctor(options) => doctor::run(options, reach),
        Command::Load(options) => load::load(options, reach),
        Command::Peek(options) => peek::run(options, reach),
        Command::Query(options) => query::run(options, reach),
        Command::Record(options) => record::run(options, reach),
        Command::Report(options) => report::run(options, reach),
        Command::Send(options) => send::run(options, reach),
        Command::Top(options) => top::run(options, reach),
        Command::Unload(options) => load::unload(options, reach),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }
}
