//! The command `flux stats`: what a person asks of the statistics of a Flux instance.
//!
//! Installed as `flux-stats` where `flux` looks for commands (`flux config builtin exec_path`, or PATH).
//!
//! ```sh
//! flux stats peek              # what every module of this node's brokers does now, though a broker hangs
//! flux stats send NAME VALUE   # a metric from a shell
//! ```
#![forbid(unsafe_code)]

mod peek;
mod send;
mod show;

use clap::{Parser, Subcommand};
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "flux stats", bin_name = "flux stats", about = "Statistics of a Flux instance")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Peek(peek::Options),
    Send(send::Options),
}

fn main() -> ExitCode {
    let text = match Arguments::parse().command {
        Command::Peek(options) => peek::run(&options).map_err(|error| error.to_string()),
        Command::Send(options) => send::run(&options).map_err(|error| error.to_string()),
    };
    let text = match text {
        Ok(text) => text,
        Err(error) => {
            eprintln!("flux-stats: {error}");
            return ExitCode::FAILURE;
        }
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        // Whoever reads has seen enough.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("flux-stats: writing: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
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
