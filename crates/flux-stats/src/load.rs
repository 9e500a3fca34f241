//! `flux stats load` and `flux stats unload`: the module on all ranks at once, through the brokers themselves.

mod fan;
mod log;
mod place;
mod settings;
mod tree;

use crate::instance::{Instance, Reach};
use crate::outcome::{Ended, Failure, Outcome, complain, print};
use crate::show::{duration, named};
use clap::Args;
use fan::{Progress, each};
use flux::{Node, Payload};
use serde_json::json;
use settings::Compared;
use stats_core::IdSet;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tree::Tree;

/// The name of the module.
const MODULE: &str = "stats-agg";
/// How long a broker may take to load or remove it: a module that ends sends what it has, for two seconds at most.
const TIMEOUT: Duration = Duration::from_secs(30);
// <errno.h>
const EPERM: i32 = 1;
const ENOENT: i32 = 2;
/// All that Flux says of that number by itself.
const NO_FILE: &str = "No such file or directory";
const EEXIST: i32 = 17;
const ETIMEDOUT: i32 = 110;
const EHOSTUNREACH: i32 = 113;

/// Load stats-agg into the brokers
///
/// The module's file is the one that was installed with this command; where there is none, each broker looks for it by
/// name (FLUX_MODULE_PATH). Ranks that have it already keep it, with the settings that they have: those given here are for
/// the ranks that are loaded now. Where both are there, it says which is which, and in what their settings differ.
#[derive(Args)]
#[command(after_help = "Examples:
  flux stats load
  flux stats load -r 0-3 period=1s statsd=127.0.0.1:8125,unix:")]
pub(crate) struct LoadOptions {
    /// Load it on these ranks alone, as in 0-3,7 [default: all that are online]
    #[arg(short = 'r', long, value_name = "IDSET")]
    rank: Option<String>,
    /// The module's file, or the name by which brokers find it
    #[arg(long, value_name = "PATH")]
    module: Option<String>,
    /// Its settings, as in period=1s
    #[arg(value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

/// Remove stats-agg from the brokers, leaves of the tree first, so that nothing it has is lost
///
/// Ranks above one that does not answer keep it: they are removed by another `flux stats unload`, when that one goes on.
#[derive(Args)]
pub(crate) struct UnloadOptions {
    /// Remove it from these ranks alone, as in 0-3,7 [default: all that are online]
    #[arg(short = 'r', long, value_name = "IDSET")]
    rank: Option<String>,
}

pub(crate) fn load(options: &LoadOptions, reach: &Reach) -> Ended {
    let instance = reach.connect()?;
    let ranks = ranks(&instance, options.rank.as_deref())?;
    let start = Instant::now();
    let mut progress = Progress::new("loading", ranks.len());
    let file = options.module.clone().or_else(|| Some(place::beside_this()?.to_string_lossy().into_owned()));
    let path = match &file {
        // The broker runs in another folder than this command.
        Some(file) if file.contains('/') => absolute(file)?,
        file => file.clone().unwrap_or_else(|| MODULE.to_owned()),
    };
    let request = |path: &str| json!({ "path": path, "name": MODULE, "args": options.settings });
    let mut outcomes = each(&instance, ranks.iter(), "module.load", &request(&path), TIMEOUT, &mut progress)?;
    // A node that has no such file may have the module elsewhere.
    if options.module.is_none() && path.contains('/') {
        let elsewhere = outcomes.iter().filter(|(_, outcome)| errnum(outcome) == Some(ENOENT));
        let elsewhere: Vec<u32> = elsewhere.map(|(rank, _)| *rank).collect();
        let mut silent = Progress::none();
        let by_name = request(MODULE);
        for (rank, outcome) in
            each(&instance, elsewhere.into_iter(), "module.load", &by_name, TIMEOUT, &mut silent)?
        {
            // What was wrong with the file is the better reason.
            if errnum(&outcome) != Some(ENOENT) {
                outcomes.retain(|(of, _)| *of != rank);
                outcomes.push((rank, outcome));
            }
        }
    }
    drop(progress);
    let mut told = Told::new(outcomes);
    let (done, already) = (told.done(), told.take(EEXIST));
    say_done("loaded on", &done, start)?;
    let compared = settings::compared(&instance, &done, &already);
    if !already.is_empty() && (options.settings.is_empty() || !done.is_empty()) {
        let kept = kept(&done, &options.settings, &compared);
        print(&format!("already loaded on {}{kept}\n", named(&already)))?;
    }
    let mut failed = told.complain(&instance, "cannot load it");
    if let Compared::Differ(difference) = &compared {
        complain(&format!(
            "{difference}: for the same everywhere, `flux stats unload`, then load all ranks at once"
        ));
    }
    if !already.is_empty() && !options.settings.is_empty() {
        complain(&format!(
            "{}: {MODULE} is loaded already and keeps its settings: `flux stats unload` first, or change the table \
             [{MODULE}] of Flux's configuration and run `flux config reload`",
            named(&already)
        ));
        failed = true;
    }
    ending(failed)
}

/// What holds for the ranks that are loaded now, where others were loaded before: nothing to tell where none was given
/// and the others have the same.
fn kept(now: &IdSet, settings: &[String], compared: &Compared) -> String {
    let given = match settings {
        _ if now.is_empty() => return String::new(),
        [] if *compared == Compared::Same => return String::new(),
        [] => "the defaults and the table [stats-agg] hold".to_owned(),
        settings => format!("{} holds", settings.join(" ")),
    };
    format!(", with the settings of that load: {given} for {} alone", named(now))
}

pub(crate) fn unload(options: &UnloadOptions, reach: &Reach) -> Ended {
    let instance = reach.connect()?;
    let ranks = ranks(&instance, options.rank.as_deref())?;
    let start = Instant::now();
    let mut progress = Progress::new("unloading", ranks.len());
    let mut outcomes = Vec::new();
    let tree = Tree::of(&instance)?;
    let mut needed = IdSet::new();
    for level in tree.leaves_first(&ranks) {
        let request = json!({ "name": MODULE, "cancel": false });
        let level = level.minus(&needed);
        let ended = each(&instance, level.iter(), "module.remove", &request, TIMEOUT, &mut progress)?;
        let silent = ended.iter().filter(|(_, outcome)| errnum(outcome) == Some(ETIMEDOUT));
        needed.add(&silent.flat_map(|(rank, _)| tree.above(*rank)).collect());
        outcomes.extend(ended);
    }
    let needed = needed.both(&ranks);
    drop(progress);
    let mut told = Told::new(outcomes);
    let (done, absent) = (told.done(), told.take(ENOENT));
    say_done("removed from", &done, start)?;
    let failed = told.complain(&instance, "cannot remove it");
    if !needed.is_empty() {
        complain(&format!(
            "{}: not removed, for what the ranks below still have goes through there: `flux stats unload` again when \
             they have answered",
            named(&needed)
        ));
    }
    if !absent.is_empty() && !done.is_empty() {
        print(&format!("was not loaded on {}\n", named(&absent)))?;
    }
    if !absent.is_empty() && done.is_empty() && !failed {
        return Err(Failure::Failed(format!("{MODULE} is not loaded on {}", named(&absent))));
    }
    ending(failed)
}

fn ending(failed: bool) -> Ended {
    // What failed has been said.
    if failed { Err(Failure::Said) } else { Ok(Outcome::Done) }
}

fn say_done(what: &str, done: &IdSet, start: Instant) -> Result<(), Failure> {
    if done.is_empty() {
        return Ok(());
    }
    print(&format!("{what} {} in {}\n", named(done), duration(start.elapsed().as_secs_f64())))
}

/// The ranks that are meant: without a word all that are online, and a line about the others.
fn ranks(instance: &Instance, asked: Option<&str>) -> Result<IdSet, Failure> {
    let size = instance.client().size()?;
    let all = IdSet::range(0, size.saturating_sub(1));
    if let Some(asked) = asked.filter(|asked| *asked != "all") {
        let ranks: IdSet = asked.parse().map_err(|error| Failure::usage(format!("--rank: {error}")))?;
        return match ranks.minus(&all).is_empty() {
            _ if ranks.is_empty() => Err(Failure::Usage("--rank: it names no rank".to_owned())),
            true => Ok(ranks),
            false => Err(Failure::Usage(format!(
                "--rank: there is no rank {}: this instance has the ranks {all}",
                ranks.minus(&all)
            ))),
        };
    }
    let group = json!({ "name": "broker.online" });
    let online = instance.request("groups.get", Payload::Json(&group), 0)?.json()?;
    let online: IdSet = online["members"].as_str().unwrap_or_default().parse()?;
    let offline = all.minus(&online);
    if !offline.is_empty() {
        print(&format!("left out, for they are offline: {}\n", named(&offline)))?;
    }
    Ok(online)
}

fn absolute(file: &str) -> Result<String, Failure> {
    let path = std::path::absolute(file).map_err(|error| Failure::Failed(format!("{file}: {error}")))?;
    Ok(path.to_string_lossy().into_owned())
}

type Outcomes = Vec<(u32, flux::Result<flux::Reply>)>;

fn errnum(outcome: &flux::Result<flux::Reply>) -> Option<i32> {
    outcome.as_ref().err().map(flux::Error::errnum)
}

/// What became of it, by rank.
struct Told {
    done: IdSet,
    /// The ranks of each error number and text.
    failed: BTreeMap<(i32, String), IdSet>,
}

impl Told {
    fn new(outcomes: Outcomes) -> Self {
        let mut told = Told { done: IdSet::new(), failed: BTreeMap::new() };
        for (rank, outcome) in outcomes {
            match outcome {
                Ok(_) => drop(told.done.insert(rank)),
                Err(error) => {
                    let key = (error.errnum(), error.to_string());
                    told.failed.entry(key).or_default().insert(rank);
                }
            }
        }
        told
    }

    fn done(&self) -> IdSet {
        self.done.clone()
    }

    /// The ranks that failed with that number, which are then told of by the caller.
    fn take(&mut self, errnum: i32) -> IdSet {
        let mut ranks = IdSet::new();
        self.failed.retain(|(of, _), set| {
            let take = *of == errnum;
            if take {
                ranks.add(set);
            }
            !take
        });
        ranks
    }

    /// Says what failed where, and why; whether there was anything.
    fn complain(&self, instance: &Instance, what: &str) -> bool {
        for ((errnum, text), ranks) in &self.failed {
            let why = match *errnum {
                EPERM => "the instance's owner alone may do that".to_owned(),
                EHOSTUNREACH => "its broker is down, or its link to this one".to_owned(),
                ETIMEDOUT => format!(
                    "no answer within {} s: the request waits there, and is carried out when the broker goes on; `flux \
                     stats peek` on its node shows what it does",
                    TIMEOUT.as_secs()
                ),
                // The broker has not found the module, and says what it looked for. The bare text is the module's own number,
                // which misses a file that belongs to it.
                ENOENT if text != NO_FILE => text.clone(),
                // The module itself has refused, and its broker knows no more than the number.
                _ => {
                    let said = ranks.iter().next().and_then(|rank| log::last_refusal(instance, rank, MODULE));
                    said.unwrap_or_else(|| text.clone())
                }
            };
            complain(&format!("{}: {what}: {why}", named(ranks)));
        }
        !self.failed.is_empty()
    }
}
