//! The command `flux stats`: what a person asks of the statistics of a Flux instance.
//!
//! Installed as `flux-stats` where `flux` looks for commands (`flux config builtin exec_path`, or PATH).
//!
//! ```sh
//! flux stats peek              # what every module of this node's brokers does now, though a broker hangs
//! flux stats send NAME VALUE   # a metric from a shell
//! flux stats top               # what every module of the instance does, as it goes
//! ```
//!
//! It exits with 0, 1 when it could not do what it was asked to, 2 when the arguments make no sense, 3 when some ranks
//! are missing from an answer, 4 when `doctor` has findings.
#![forbid(unsafe_code)]

#[allow(dead_code, reason = "the commands to come ask, too")]
mod answer;
mod hosts;
#[allow(dead_code, reason = "the commands to come ask, too")]
mod instance;
#[allow(dead_code, reason = "the commands to come end otherwise, too")]
mod outcome;
mod peek;
mod send;
#[allow(dead_code, reason = "the commands to come show more")]
mod show;
mod top;

use clap::{Parser, Subcommand};
use outcome::Failure;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "flux stats", bin_name = "flux stats", about = "Statistics of a Flux instance")]
struct Arguments {
    #[command(flatten)]
    reach: instance::Reach,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Peek(peek::Options),
    Send(send::Options),
    Top(top::Options),
}

fn main() -> ExitCode {
    let Arguments { reach, command } = Arguments::parse();
    let ended = match command {
        Command::Peek(options) => peek::run(&options, &reach),
        Command::Send(options) => send::run(&options, &reach),
        Command::Top(options) => top::run(&options, &reach),
    };
    ExitCode::from(match ended {
        Ok(outcome) => outcome.status(),
        Err(failure) => {
            if let Failure::Usage(text) | Failure::Failed(text) = &failure {
                eprintln!("flux-stats: {text}");
            }
            failure.status()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }
}
