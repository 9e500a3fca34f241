//! `flux stats demo`: what the command shows, on a machine without any Flux, or on one that has it.

mod play;

use crate::instance::By;
use crate::outcome::{Ended, Failure, Outcome, print};
use crate::query;
use clap::Args;
use play::Play;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Show what `flux stats` shows, of an instance that is played in this process, or of real brokers
///
/// Without --flux, no Flux is needed: eight ranks merge made-up numbers in virtual time, by the code that the module
/// runs, and every screen says so.
#[derive(Args)]
pub(crate) struct Options {
    /// Start so many real brokers on this machine (`flux start --test-size`), and show those
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, default_missing_value = "4",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    flux: Option<u32>,
}

/// What is asked, in this order, and why one would.
const QUESTIONS: [(&str, &[&str]); 4] = [
    ("Which module is busiest?", &["modules.*.work_s", "--top", "5"]),
    ("Which waits for others inside its work?", &["modules.*.blocked_s", "--since", "30s", "--top", "3"]),
    (
        "On which rank?",
        &[
            "modules.kvs-watch.blocked_s",
            "--by",
            "rank",
            "--since",
            "30s",
            "--sort",
            "since_rate",
            "--top",
            "3",
        ],
    ),
    ("What do programs count?", &["app.*", "-o", "{name:<12} {type:<8} {total:>8} {rate:>8.1f} {p99!U:>8}"]),
];

pub(crate) fn run(options: &Options) -> Ended {
    match options.flux {
        Some(size) => real(size),
        None => simulated(),
    }
}

fn simulated() -> Ended {
    let mut play = Play::new();
    play.go_on_until(play::END_S);
    let mut text = format!("{}\n", play::LABEL);
    for (why, words) in QUESTIONS {
        text += &asked(&play, why, words)?;
    }
    play.silence(play::SILENT);
    play.go_on_until(play::END_S + 10);
    text += &asked(&play, "And when a rank falls silent?", &["modules.broker.wakeups"])?;
    text += "On an instance of your own: flux stats load, then flux stats query. With real brokers: flux stats demo --flux\n";
    print(&text)?;
    Ok(Outcome::Done)
}

/// A question as one would type it, and its answer.
fn asked(play: &Play, why: &str, words: &[&str]) -> Result<String, Failure> {
    let quoted =
        |word: &&str| if word.contains(['*', '{']) { format!("'{word}'") } else { (*word).to_owned() };
    let line = words.iter().map(quoted).collect::<Vec<_>>().join(" ");
    let answer = query::answered(play, words)?;
    Ok(format!("# {why} ({})\n$ flux stats query {line}\n{answer}\n", play::MARK))
}

/// Becomes `flux start`, whose brokers run this command.
fn real(size: u32) -> Ended {
    const SCRIPT: &str = "trap '\"$0\" unload' EXIT; \"$0\" load period=1s && sleep 4 && \
        echo \"# real brokers of this machine\" && \"$0\" query 'modules.*.work_s' --top 8 && \
        \"$0\" query 'modules.broker.wakeups' --by rank";
    let this =
        std::env::current_exe().map_err(|error| Failure::Failed(format!("finding this command: {error}")))?;
    let mut flux = Command::new("flux");
    flux.arg("start").arg(format!("--test-size={size}")).args(["sh", "-c", SCRIPT]).arg(this);
    Err(Failure::Failed(format!("running `flux start`: {}; without --flux no Flux is needed", flux.exec())))
}

/// How the answers of a play may be split up.
fn can_be_played(by: By) -> bool {
    matches!(by, By::None | By::Rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_played_is_the_same_every_time_and_says_what_it_is() {
        let text = || {
            let mut play = Play::new();
            play.go_on_until(play::END_S);
            QUESTIONS.map(|(why, words)| asked(&play, why, words).unwrap()).join("\n")
        };
        let first = text();
        assert_eq!(first, text());
        assert_eq!(first.matches(play::MARK).count(), QUESTIONS.len());
        insta::assert_snapshot!(first);
    }

    #[test]
    fn a_rank_that_falls_silent_is_missing() {
        let mut play = Play::new();
        play.go_on_until(20);
        assert!(!play.answer(By::None, &[]).is_partial());
        play.silence(play::SILENT);
        play.go_on_until(40);
        let answer = play.answer(By::None, &[]);
        assert!(answer.is_partial());
        assert_eq!((answer.ranks.covered.as_str(), answer.ranks.silent.as_str()), ("0-5,7", "6"));
    }
}
