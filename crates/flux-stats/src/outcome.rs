//! How the command ends, and what it prints.

use stats_core::is_unseen;
use std::error::Error;
use std::io::{ErrorKind, Write};

/// How a subcommand ended that did what it was asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With everything.
    Done,
    /// With an answer that some ranks are missing from.
    Partial,
    /// With findings.
    Findings,
}

impl Outcome {
    pub(crate) fn status(self) -> u8 {
        match self {
            Outcome::Done => 0,
            Outcome::Partial => 3,
            Outcome::Findings => 4,
        }
    }
}

/// Why a subcommand could not do what it was asked to.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments make no sense.
    Usage(String),
    /// Anything else: the cause and what to do, on one line.
    Failed(String),
    /// What it was has been said.
    Said,
    /// Whoever reads has seen enough.
    Closed,
}

impl Failure {
    pub(crate) fn usage(error: impl std::fmt::Display) -> Self {
        Failure::Usage(error.to_string())
    }

    pub(crate) fn status(&self) -> u8 {
        match self {
            Failure::Usage(_) => 2,
            Failure::Failed(_) | Failure::Said => 1,
            Failure::Closed => 0,
        }
    }
}

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::Failed(error.to_string())
    }
}

/// What every subcommand returns.
pub(crate) type Ended = Result<Outcome, Failure>;

/// Prints to standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Failure::Closed),
        Err(error) => Err(Failure::Failed(format!("writing to standard output: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// A line on standard error, which may be closed or full: nobody is left to be told. What it quotes may be anything, and
/// does nothing to a terminal.
pub(crate) fn say(line: &str) {
    let shown = |c: char| if c != '\n' && is_unseen(c) { char::REPLACEMENT_CHARACTER } else { c };
    let line: String = line.chars().map(shown).collect();
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// What went wrong, in the name of this command.
pub(crate) fn complain(what: &str) {
    say(&format!("flux-stats: {what}"));
}
