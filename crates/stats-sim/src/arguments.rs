//! The command line.

use clap::Parser;
use stats_sim::{
    BadTopology, Config, FaultId, Kind, Plant, RANKS_MAX, ROUND_PERIODS, Rates, Shape, Topology,
};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// Runs whole instances of ranks in virtual time, with faults, and checks after every event that flows are conserved,
/// states counted once, coverage true and bounds held. Exit status 1: an invariant did not hold.
#[derive(Debug, Parser)]
#[command(name = "stats-sim", version, after_help = kinds())]
pub(crate) struct Arguments {
    /// Ranks of the instance, 1 to 16384; a custom topology has its own number
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(RANKS_MAX)))]
    ranks: Option<u32>,
    /// Children of each rank: short for --topology kary:N
    #[arg(long, value_name = "N", conflicts_with = "topology", value_parser = clap::value_parser!(u32).range(1..))]
    fanout: Option<u32>,
    /// kary:N, flat, or custom:P,P,… with the parent of each rank from 1 on
    #[arg(long, default_value = "kary:32")]
    topology: Topology,
    /// One seed, or the first and the last of several, as in 1..1000
    #[arg(long = "seed", value_name = "SEED|FIRST..LAST", default_value = "1..10")]
    pub(crate) seeds: Seeds,
    /// all, none, or a list of KIND or KIND=PROBABILITY
    #[arg(long, default_value = "all")]
    faults: Rates,
    /// For how many periods faults happen; those of ranks once in six periods at most
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000))]
    periods: u32,
    /// How often a rank sends a batch, in virtual time (as in 2s or 500ms)
    #[arg(long, default_value = "2s", value_parser = period)]
    pub(crate) period: Duration,
    /// Series of each rank: simulated, counters beside those that are followed to the unit [default: 2]; against a real
    /// instance, all [default: 300]
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=500))]
    series: Option<u32>,
    /// A deliberate bug, to see it found: double-merge, lost-on-unload or state-twice
    #[arg(long)]
    plant: Option<Plant>,
    /// Only these faults, as a failing run names them: KIND@RANK or KIND@RANK/ROUND for a planned one, RANK.NUMBER for a message's
    #[arg(long, value_name = "FAULT,…", value_delimiter = ',')]
    only: Option<Vec<FaultId>>,
    /// Tell every event of every run, before its line
    #[arg(long)]
    pub(crate) trace: bool,
    /// Runs at the same time; without it, as many as there are processors
    #[arg(long)]
    pub(crate) threads: Option<NonZeroUsize>,
    #[command(flatten)]
    pub(crate) live: Option<Live>,
}

/// The kinds of faults, as help.
fn kinds() -> String {
    let line = |kind: Kind| format!("  {:10} {}\n", kind.name(), kind.description());
    let kinds: String = Kind::ALL.into_iter().map(line).collect();
    format!("Kinds of faults, and their probability under all (a round is {ROUND_PERIODS} periods):\n{kinds}")
}

/// Against a real instance.
#[derive(Debug, clap::Args)]
#[group(requires = "flux", conflicts_with_all = ["ranks", "fanout", "topology", "seeds", "faults", "periods", "plant", "only", "trace", "threads"])]
pub(crate) struct Live {
    /// Instead: play N ranks beyond the size of a running instance, whose rank 0 has loaded stats-agg with
    /// test-ranks=SIZE+N, and say what that costs rank 0
    #[arg(long, required = false, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) flux: u32,
    /// The instance; without it, the enclosing one (FLUX_URI). Of a rank other than 0, so that the overlay is passed
    #[arg(long)]
    pub(crate) uri: Option<String>,
    /// The name under which stats-agg is loaded
    #[arg(long, default_value = "stats-agg")]
    pub(crate) name: String,
    /// How long it is measured
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// Series of each rank that change in a period; without it, all
    #[arg(long)]
    changing: Option<u32>,
    #[arg(skip)]
    series: u32,
}

/// Series of a synthetic rank against a real instance, unless another number is given.
const LIVE_SERIES: u32 = 300;
/// Series of a simulated rank beside those that are followed, unless another number is given.
const SERIES: u32 = 2;

impl Live {
    pub(crate) fn series(&self) -> u32 {
        self.series
    }

    pub(crate) fn changing(&self) -> u32 {
        self.changing.unwrap_or(self.series).min(self.series)
    }
}

/// The shortest and the longest period, as of the module.
const PERIODS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3600));

fn period(text: &str) -> Result<Duration, String> {
    let period = flux::parse_duration("period", text).map_err(|error| error.to_string())?;
    if period < PERIODS.0 || period > PERIODS.1 {
        return Err("expected a duration from 0.1s to 3600s".to_owned());
    }
    Ok(period)
}

impl Arguments {
    /// What to simulate.
    pub(crate) fn config(&self) -> Result<Config, BadTopology> {
        let topology = self.fanout.map_or_else(|| self.topology.clone(), Topology::Kary);
        let ranks = match topology {
            Topology::Custom(_) => self.ranks,
            _ => Some(self.ranks.unwrap_or(4096)),
        };
        let shape = Arc::new(Shape::new(&topology, ranks)?);
        let (faults, periods, period) = (self.faults, self.periods, self.period);
        let series = self.series.unwrap_or(SERIES);
        Ok(Config { shape, faults, periods, period, series, plant: self.plant })
    }

    /// What to do with a real instance, if that is wanted.
    pub(crate) fn take_live(&mut self) -> Option<Live> {
        let series = self.series.unwrap_or(LIVE_SERIES);
        self.live.take().map(|live| Live { series, ..live })
    }

    /// The faults that may happen; `None`: all.
    pub(crate) fn only(&self) -> Option<BTreeSet<FaultId>> {
        self.only.as_ref().map(|only| only.iter().copied().collect())
    }

    /// How a run of this configuration is repeated with less.
    pub(crate) fn repeated(&self, ranks: u32, seed: u64, faults: &BTreeSet<FaultId>) -> String {
        let mut words = vec!["stats-sim".to_owned()];
        let fanout = self.fanout.map(Topology::Kary);
        words.push(match fanout.as_ref().unwrap_or(&self.topology) {
            Topology::Kary(fanout) => format!("--ranks {ranks} --fanout {fanout}"),
            Topology::Flat => format!("--ranks {ranks} --topology flat"),
            Topology::Custom(parents) => {
                let parents: Vec<_> = parents.iter().take(ranks as usize - 1).map(u32::to_string).collect();
                format!("--topology custom:{}", parents.join(","))
            }
        });
        let rates = if faults.is_empty() { Rates::none() } else { self.faults };
        words.push(format!("--seed {seed} --faults {rates}"));
        let series = self.series.unwrap_or(SERIES);
        if (self.periods, self.period, series) != (6, Duration::from_secs(2), SERIES) {
            let period_ms = self.period.as_millis();
            words.push(format!("--periods {} --period {period_ms}ms --series {series}", self.periods));
        }
        words.extend(self.plant.map(|plant| format!("--plant {plant}")));
        let faults: Vec<_> = faults.iter().map(FaultId::to_string).collect();
        if !faults.is_empty() {
            words.push(format!("--only {}", faults.join(",")));
        }
        words.join(" ") + " --trace"
    }
}

/// First and last, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seeds {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let number = |text: &str| text.parse::<u64>().ok();
        // Some write an included end so.
        match (number(first), number(last.strip_prefix('=').unwrap_or(last))) {
            (Some(first), Some(last)) if first <= last => Ok(Seeds { first, last }),
            _ => Err("expected a seed, or FIRST..LAST with both included, as in 1..1000".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn seeds_are_one_or_a_range_with_both_ends() {
        assert_eq!("7".parse(), Ok(Seeds { first: 7, last: 7 }));
        assert_eq!("1..1000".parse(), Ok(Seeds { first: 1, last: 1000 }));
        assert_eq!("3..=4".parse(), Ok(Seeds { first: 3, last: 4 }));
        for text in ["", "x", "5..4", "1..", "..3", "-1"] {
            assert!(text.parse::<Seeds>().is_err(), "{text}");
        }
    }
}
