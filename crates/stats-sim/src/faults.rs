//! What may go wrong, how often, and when in one run.

use crate::dice::{Dice, For};
use crate::topology::Shape;
use std::fmt;
use std::str::FromStr;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A message takes long.
    Delay,
    /// A request fails, and its sender is told.
    Fail,
    /// A request or its response is lost: the sender's time-out passes, the outcome is unknown.
    Lost,
    /// A request arrives after its sender's time-out.
    Late,
    /// The module is unloaded on a rank, and loaded again.
    Unload,
    /// A broker dies with its subtree, as in Flux; most come back, knowing nothing.
    Death,
    /// The module is loaded late on a rank.
    Absent,
    /// A response is lost, and its sender's receiver unloads: the repeat comes by another road.
    Road,
    /// The root is slow, and asks for fewer batches.
    SlowRoot,
    /// The wall clock of a rank steps.
    Clock,
    /// Totals are cleared while batches are on their way.
    Clear,
    /// A rank speaks another version, until it is upgraded.
    Version,
    /// The module is unloaded on all ranks at once; half of the responses to the last batches never come.
    Instance,
    /// The module is killed on a rank with children, as one in a process of its own may be: it leaves nothing behind.
    Crash,
}

/// What the probability of a kind is the probability of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Per {
    Message,
    Rank,
    /// A rank that has children.
    Interior,
    Run,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 14] = [
        Kind::Delay,
        Kind::Fail,
        Kind::Lost,
        Kind::Late,
        Kind::Unload,
        Kind::Death,
        Kind::Absent,
        Kind::Road,
        Kind::SlowRoot,
        Kind::Clock,
        Kind::Clear,
        Kind::Version,
        Kind::Instance,
        Kind::Crash,
    ];

    /// As the command line names it.
    pub fn name(self) -> &'static str {
        self.properties().0
    }

    /// The probability under `all`.
    pub fn usual(self) -> f64 {
        self.properties().2
    }

    /// What happens, and how often under `all`.
    pub fn description(self) -> String {
        let per = match self.properties().1 {
            Per::Message => "message",
            Per::Rank => "rank and round",
            Per::Interior => "rank with children and round",
            Per::Run => "round",
        };
        format!("{}: {} per {per}", self.meaning(), self.usual())
    }

    fn meaning(self) -> &'static str {
        match self {
            Kind::Delay => "a message takes up to 1.8 s",
            Kind::Fail => "a request fails, and its sender is told",
            Kind::Lost => "a request or its response is lost, the outcome is unknown",
            Kind::Late => "a request arrives after its sender's time-out",
            Kind::Unload => "the module is unloaded, and loaded again",
            Kind::Death => "a broker dies with its subtree; three of four come back",
            Kind::Absent => "the module is loaded late",
            Kind::Road => "a response is lost and the receiver unloads: the repeat goes another way",
            Kind::SlowRoot => "the root is slow, and asks for fewer batches",
            Kind::Clock => "the wall clock steps by up to ten periods",
            Kind::Clear => "totals are cleared while batches are on their way",
            Kind::Version => "the module speaks another version for a while",
            Kind::Instance => "the module unloads everywhere, half of the last responses are lost",
            Kind::Crash => {
                "the module is killed and leaves nothing; half of the time its last message arrives late"
            }
        }
    }

    fn properties(self) -> (&'static str, Per, f64) {
        match self {
            Kind::Delay => ("delay", Per::Message, 0.05),
            Kind::Fail => ("fail", Per::Message, 0.02),
            Kind::Lost => ("lost", Per::Message, 0.03),
            Kind::Late => ("late", Per::Message, 0.01),
            Kind::Unload => ("unload", Per::Rank, 0.05),
            Kind::Death => ("death", Per::Rank, 0.01),
            Kind::Absent => ("absent", Per::Rank, 0.03),
            Kind::Road => ("road", Per::Interior, 0.1),
            Kind::SlowRoot => ("slow-root", Per::Run, 0.3),
            Kind::Clock => ("clock", Per::Rank, 0.05),
            Kind::Clear => ("clear", Per::Run, 0.5),
            Kind::Version => ("version", Per::Rank, 0.02),
            Kind::Instance => ("instance", Per::Run, 0.3),
            Kind::Crash => ("crash", Per::Interior, 0.1),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The probability of each kind: of each message, of each rank in a round of [`ROUND_PERIODS`], or of a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates([f64; Kind::ALL.len()]);

/// Text that names no faults.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no set of faults: expected all, none, or a list of KIND or KIND=PROBABILITY (0 to 1) with kinds {kinds}", kinds = kinds())]
pub struct BadRates(String);

fn kinds() -> String {
    Kind::ALL.map(Kind::name).join(", ")
}

impl FromStr for Rates {
    type Err = BadRates;

    fn from_str(text: &str) -> Result<Self, BadRates> {
        let bad = || BadRates(text.chars().take(80).collect());
        let mut rates = Rates::none();
        for word in text.split(',') {
            let (name, probability) = match word.split_once('=') {
                Some((name, number)) => (name, Some(number.parse::<f64>().map_err(|_| bad())?)),
                None => (word, None),
            };
            if probability.is_some_and(|p| !(0.0..=1.0).contains(&p)) {
                return Err(bad());
            }
            match (name, probability) {
                ("all", None) => rates = Rates::all(),
                ("none", None) => rates = Rates::none(),
                _ => {
                    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(bad)?;
                    rates.0[kind as usize] = probability.unwrap_or_else(|| kind.usual());
                }
            }
        }
        Ok(rates)
    }
}

/// As it is parsed.
impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Rates::all() {
            return f.write_str("all");
        }
        f.write_str("none")?;
        let selected = Kind::ALL.into_iter().filter(|&kind| self.of(kind) > 0.0);
        selected.into_iter().try_for_each(|kind| match self.of(kind) {
            usual if usual == kind.usual() => write!(f, ",{kind}"),
            other => write!(f, ",{kind}={other}"),
        })
    }
}

impl Rates {
    /// No faults.
    pub fn none() -> Self {
        Rates([0.0; Kind::ALL.len()])
    }

    /// All kinds, each with its usual probability.
    pub fn all() -> Self {
        Rates(Kind::ALL.map(Kind::usual))
    }

    /// The probability of a kind.
    pub fn of(&self, kind: Kind) -> f64 {
        self.0[kind as usize]
    }

    /// Whether brokers die and nothing else happens: then there is a bound on what is lost.
    pub(crate) fn is_death_alone(&self) -> bool {
        Kind::ALL.into_iter().all(|kind| (self.of(kind) > 0.0) == (kind == Kind::Death))
    }

    /// What becomes of a message.
    pub(crate) fn of_message(&self, dice: &mut Dice) -> Option<Kind> {
        let mut luck = dice.unit();
        let of_messages = Kind::ALL.into_iter().filter(|kind| kind.properties().1 == Per::Message);
        of_messages.into_iter().find(|&kind| {
            luck -= self.of(kind);
            luck < 0.0
        })
    }
}

/// Names one fault of a run, so that the run can be repeated without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultId {
    /// A fault of the plan: its kind, the rank that it befalls, and in which round of periods.
    Planned(Kind, u32, u32),
    /// The fault of a message: its sender, and the how-manieth of that rank's it is.
    Message(u32, u32),
}

impl FaultId {
    /// The rank that it befalls.
    pub fn rank(self) -> u32 {
        match self {
            FaultId::Planned(_, rank, _) | FaultId::Message(rank, _) => rank,
        }
    }
}

/// As in `unload@7`, `unload@7/2` in the second round after the first, or `7.12` for that message of rank 7.
impl fmt::Display for FaultId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultId::Planned(kind, rank, 0) => write!(f, "{kind}@{rank}"),
            FaultId::Planned(kind, rank, round) => write!(f, "{kind}@{rank}/{round}"),
            FaultId::Message(rank, number) => write!(f, "{rank}.{number}"),
        }
    }
}

/// Text that names no fault of a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} names no fault of a run: expected KIND@RANK or KIND@RANK/ROUND, or RANK.NUMBER for that of a message"
)]
pub struct BadFaultId(String);

impl FromStr for FaultId {
    type Err = BadFaultId;

    fn from_str(text: &str) -> Result<Self, BadFaultId> {
        let planned = text.split_once('@').and_then(|(name, rank)| {
            let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name)?;
            let (rank, round) = rank.split_once('/').unwrap_or((rank, "0"));
            Some(FaultId::Planned(kind, rank.parse().ok()?, round.parse().ok()?))
        });
        let message = text
            .split_once('.')
            .and_then(|(rank, number)| Some(FaultId::Message(rank.parse().ok()?, number.parse().ok()?)));
        planned.or(message).ok_or_else(|| BadFaultId(text.chars().take(80).collect()))
    }
}

/// A fault that does not belong to a message.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    pub(crate) kind: Kind,
    pub(crate) rank: u32,
    round: u32,
    pub(crate) at_ns: u64,
    /// For what else is to be decided about it.
    pub(crate) dice: Dice,
}

impl Planned {
    pub(crate) fn id(&self) -> FaultId {
        FaultId::Planned(self.kind, self.rank, self.round)
    }
}

/// Periods of a round: each kind of fault befalls a rank once a round at most.
pub const ROUND_PERIODS: u32 = 6;

/// The faults of one run that do not belong to messages: in each round of so many periods, from the second period on.
pub(crate) fn plan(seed: u64, rates: &Rates, shape: &Shape, period_ns: u64, periods: u32) -> Vec<Planned> {
    let mut plan = Vec::new();
    for round in 0..periods.div_ceil(ROUND_PERIODS) {
        let first = round * ROUND_PERIODS;
        let last = (first + ROUND_PERIODS).min(periods);
        let within = [u64::from(first) + 1, u64::from(last) + 1].map(|period| period * period_ns);
        for kind in Kind::ALL {
            // Absent is who has not been there yet.
            if round == 0 || kind != Kind::Absent {
                plan_kind(&mut plan, seed, rates, shape, kind, round, within);
            }
        }
    }
    plan
}

fn plan_kind(
    plan: &mut Vec<Planned>,
    seed: u64,
    rates: &Rates,
    shape: &Shape,
    kind: Kind,
    round: u32,
    [begin_ns, end_ns]: [u64; 2],
) {
    let per = kind.properties().1;
    let ranks = match per {
        Per::Message => return,
        Per::Run => 0..1,
        // The root's broker is the instance's.
        Per::Rank if kind == Kind::Death => 1..shape.ranks(),
        Per::Rank | Per::Interior => 0..shape.ranks(),
    };
    for rank in ranks {
        let interior = !shape.children(rank).is_empty() && rank != 0;
        let what = (u64::from(round) << 32) | u64::from(rank);
        let mut dice = Dice::new(seed, For::Plan, kind as u64, what);
        if (per != Per::Interior || interior) && dice.chance(rates.of(kind)) {
            let at_ns = if kind == Kind::Absent { 0 } else { dice.between(begin_ns, end_ns) };
            let dice = Dice::new(seed, For::Scheduled, kind as u64, what);
            plan.push(Planned { kind, rank, round, at_ns, dice });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_selected_by_name_and_probability() {
        let rates: Rates = "none,lost,unload=0.5".parse().unwrap();
        assert_eq!((rates.of(Kind::Lost), rates.of(Kind::Unload)), (Kind::Lost.usual(), 0.5));
        assert_eq!(rates.of(Kind::Death), 0.0);
        assert_eq!("all".parse::<Rates>().unwrap(), Rates::all());
        assert_eq!(
            (rates.to_string().as_str(), Rates::all().to_string().as_str()),
            ("none,lost,unload=0.5", "all")
        );
        assert!("all,death=0".parse::<Rates>().unwrap().of(Kind::Death) == 0.0);
        assert!("death".parse::<Rates>().unwrap().is_death_alone() && !Rates::all().is_death_alone());
        for text in ["", "everything", "lost=2", "lost=x", "lost=", "all=1"] {
            let said = text.parse::<Rates>().unwrap_err().to_string();
            assert!(said.contains("expected all, none") && said.contains("slow-root"), "{said}");
        }
    }

    #[test]
    fn a_fault_is_named_so_that_a_run_can_be_repeated_with_it_alone() {
        for fault in [
            FaultId::Planned(Kind::SlowRoot, 0, 0),
            FaultId::Planned(Kind::Death, 9, 3),
            FaultId::Message(7, 12),
        ] {
            assert_eq!(fault.to_string().parse(), Ok(fault));
        }
        for text in ["", "unload", "unload@x", "unload@1/", "sleep@3", "7.", "7"] {
            assert!(text.parse::<FaultId>().is_err(), "{text}");
        }
    }
}
