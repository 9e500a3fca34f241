//! `stats-sim`: runs simulated instances by seed, and says of each whether every invariant held.
#![forbid(unsafe_code)]

mod arguments;
mod live;
mod many;

use arguments::Arguments;
use clap::{CommandFactory, Parser, error::ErrorKind};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if let Some(live) = arguments.take_live() {
        return match live::run(&arguments, &live) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => failure(&error),
        };
    }
    let config = match arguments.config() {
        Ok(config) => config,
        // Ends with status 2, as all wrong usage does.
        Err(error) => Arguments::command().error(ErrorKind::ValueValidation, error).exit(),
    };
    match many::run_all(&arguments, &config) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => failure(&error),
    }
}

fn failure(error: &anyhow::Error) -> ExitCode {
    eprintln!("flux-stats: stats-sim: {error:#}");
    ExitCode::FAILURE
}
