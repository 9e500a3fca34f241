//! `flux stats report`: one page of what an instance did.

mod axis;
mod charts;
mod clock;
mod findings;
mod from_file;
mod from_instance;
mod gather;
mod heat;
mod model;
mod page;
mod script;
mod tables;

#[cfg(test)]
mod tests;

use crate::doctor;
use crate::hosts::Hosts;
use crate::instance::Reach;
use crate::outcome::{self, Ended, Failure, Outcome};
use crate::show;
use clap::Args;
use clock::Clock;
use model::Model;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What `history` is unless somebody sets it.
const SINCE: Duration = Duration::from_secs(600);

/// Make one HTML page of a recording, or of what the instance remembers
///
/// Charts of modules, ranks, jobs and memory, what `flux stats doctor` finds (of a recording: what it would have found all
/// along), and what was missing. The page is one file and
/// loads nothing. No Flux is needed for a recording.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flux stats report -o report.html                  # the last 10 minutes\n  \
                  flux stats report night.rec -o night.html\n  flux stats report night.rec --since 1h -o - | gzip > hour.html.gz"
)]
pub(crate) struct Options {
    /// What `flux stats record` recorded [default: ask the instance]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Only the last so much; of an instance as far as its `history` reaches [default: 10m of an instance, all of a file]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    since: Option<Duration>,
    /// Where the page goes; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

fn duration(text: &str) -> Result<Duration, String> {
    match flux::parse_duration("duration", text) {
        Ok(duration) if duration.is_zero() => Err("expected more than nothing".to_owned()),
        Ok(duration) => Ok(duration),
        Err(error) => Err(error.to_string()),
    }
}

pub(crate) fn run(options: &Options, reach: &Reach) -> Ended {
    let clock = Clock::local();
    let (model, findings) = match &options.file {
        Some(file) => from_file::model(file, options.since, &clock)?,
        None => {
            let (instance, since) = (reach.connect()?, options.since.unwrap_or(SINCE));
            let name = reach.uri().map_or("the enclosing instance".to_owned(), |uri| uri);
            let evidence = doctor::gather(&instance, since.max(doctor::SINCE_MIN).as_secs_f64())?;
            (from_instance::model(&instance, name, since)?, findings::now(&evidence))
        }
    };
    let now =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let page = page::page(&model, &findings, &clock, now);
    match options.output.to_str() {
        Some("-") => outcome::print(&page)?,
        _ => write(&options.output, &page)?,
    }
    if options.file.is_some() || !model.last.is_partial() {
        return Ok(Outcome::Done);
    }
    outcome::say(&show::coverage(&model.last));
    Ok(Outcome::Partial)
}

/// The whole page, or what was there before.
fn write(path: &Path, page: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Failed(format!("writing {}: {error}", path.display()));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // A device or a pipe is written to, not replaced.
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return std::fs::write(path, page).map_err(failed);
    }
    // As any file that is made: what the umask says.
    let mode = std::fs::Permissions::from_mode(0o666);
    let mut file =
        tempfile::Builder::new().prefix(".report").permissions(mode).tempfile_in(folder).map_err(failed)?;
    file.write_all(page.as_bytes()).map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

fn hosts(model: &Model) -> Hosts {
    Hosts::of(model.last.instance.hostlist.as_deref())
}

/// Where all brokers are, for a title: one host, or the list of them.
fn place(model: &Model) -> Option<String> {
    let hosts = hosts(model);
    let first = hosts.host(0)?;
    if (0..model.last.instance.size).all(|rank| hosts.host(rank) == Some(first)) {
        return Some(first.to_owned());
    }
    model.last.instance.hostlist.clone()
}
