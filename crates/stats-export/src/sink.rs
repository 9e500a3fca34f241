//! What all exporters have in common: what they are given, and how the thread that serves all of them waits for them.

use crate::counts::Counts;
use crate::setting::Setting;
use crate::snapshot::{Snapshot, View};
use nix::poll::{PollFd, PollFlags};
use stats_collect::{Access, access, described};
use stats_core::Query;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// One exporter, on the thread of all. Nothing in it waits: it is told when its descriptors are ready, and when its time
/// has come.
pub(crate) trait Sink: Send {
    /// New numbers.
    fn offer(&mut self, snapshot: &Arc<Snapshot>, now: Instant);

    /// The last numbers: whatever there is goes out now, and nothing new is begun.
    fn end(&mut self, snapshot: Option<&Arc<Snapshot>>, now: Instant);

    /// The descriptors that it waits for, each with a number of its own.
    fn watched<'a>(&'a self, out: &mut Vec<(u64, PollFd<'a>)>);

    /// When it wants to be woken at the latest.
    fn wakes_at(&self) -> Option<Instant>;

    /// A descriptor is ready.
    fn ready(&mut self, number: u64, events: PollFlags, now: Instant);

    /// Time has passed.
    fn tick(&mut self, now: Instant);

    /// Whether something still waits to be sent.
    fn is_idle(&self) -> bool;
}

/// What an exporter may tell, and to whom.
#[derive(Debug)]
pub(crate) struct Selection {
    query: Query,
    /// No pattern was set: the names of others are left out.
    all: bool,
    /// The greatest access that may be told.
    most: Access,
}

/// Whether others have exported the same fact by this name: told where it is asked for, since it would be told twice.
pub fn is_of_others(name: &str) -> bool {
    // Others' names have no dots.
    !name.contains('.') && described(name).is_some_and(|row| row.alias)
}

impl Selection {
    /// Of what may be told to the owner, or to anybody on this machine.
    pub(crate) fn new(setting: &Setting, anybody: bool, private_jobs: bool) -> Self {
        let most = match (anybody, private_jobs) {
            (false, _) => Access::Owner,
            (true, false) => Access::Jobs,
            (true, true) => Access::Guest,
        };
        Selection { query: setting.query(), all: setting.patterns.is_empty(), most }
    }

    pub(crate) fn view<'a>(&self, snapshot: &'a Snapshot) -> View<'a> {
        let wanted = |name: &str, tags: &[(String, String)]| {
            let named = if self.all { !is_of_others(name) } else { self.query.matches(name) };
            named
                && (self.most == Access::Owner
                    || access(name, tags.iter().map(|(key, _)| key.as_str())) <= self.most)
        };
        let points = snapshot.points.iter().filter(|point| wanted(&point.name, &point.tags));
        View { snapshot, points: points.collect() }
    }
}

/// When a sink that sends by itself takes numbers next: the first that there are, then once a period.
#[derive(Debug, Default)]
pub(crate) struct Due(Option<Instant>);

impl Due {
    /// Whether those of `now` are taken. Numbers come by the instance's period: a little early is in time.
    pub(crate) fn takes(&mut self, period: Duration, now: Instant) -> bool {
        let due = self.0.is_none_or(|at| now >= at);
        if due {
            self.0 = Some((self.0.unwrap_or(now) + period).max(now + period / 2));
        }
        due
    }
}

/// A secret in a file, read anew now and then.
#[derive(Debug)]
pub(crate) struct Credentials {
    path: PathBuf,
    read: Option<(Instant, Result<String, String>)>,
}

/// How long a secret is believed to be the one in its file.
const SECRET_AGE: Duration = Duration::from_secs(10);
/// A longer file is no secret.
const SECRET_MAX: u64 = 4096;

impl Credentials {
    pub(crate) fn new(path: PathBuf) -> Self {
        Credentials { path, read: None }
    }

    /// The secret, or why there is none.
    pub(crate) fn get(&mut self, now: Instant) -> Result<String, String> {
        let old = self.read.as_ref().is_none_or(|(at, _)| now.saturating_duration_since(*at) >= SECRET_AGE);
        if old {
            self.read = Some((now, read_secret(&self.path)));
        }
        self.read.as_ref().map_or(Err(String::new()), |(_, secret)| secret.clone())
    }
}

fn read_secret(path: &std::path::Path) -> Result<String, String> {
    use std::io::Read;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    let failed = |why: &str| format!("credentials-file={}: {why}", path.display());
    // A pipe in its place must not stop the thread.
    let file = std::fs::OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path);
    let file = file.map_err(|error| failed(&error.to_string()))?;
    let about = file.metadata().map_err(|error| failed(&error.to_string()))?;
    if !about.is_file() {
        return Err(failed("expected a regular file"));
    }
    if about.mode() & 0o007 != 0 {
        return Err(failed(&format!(
            "others may access it (mode {:o}): expected 600, or 640 for a group",
            about.mode() & 0o777
        )));
    }
    let mut text = String::new();
    file.take(SECRET_MAX + 1).read_to_string(&mut text).map_err(|error| failed(&error.to_string()))?;
    if text.len() as u64 > SECRET_MAX {
        return Err(failed(&format!("expected at most {SECRET_MAX} bytes")));
    }
    let secret = text.trim();
    let plain = !secret.is_empty() && secret.bytes().all(|b| b.is_ascii_graphic());
    plain.then(|| secret.to_owned()).ok_or_else(|| failed("expected a token, or USER:PASSWORD, on one line"))
}

/// Notes what waits.
pub(crate) fn buffered(counts: &Counts, bytes: usize) {
    counts.buffered_bytes.store(bytes as u64, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::sample;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_others_may_not_see_is_not_told_to_anybody() {
        let mut snapshot = sample::snapshot();
        snapshot.points[0].name = "modules.content.cache_bytes".into();
        let names = |patterns: &str, anybody, private| {
            let setting = Setting::parse(&format!("prometheus,listen=unix:{patterns}")).unwrap();
            let view = Selection::new(&setting, anybody, private).view(&snapshot);
            view.points.iter().map(|point| point.name.clone()).collect::<Vec<_>>()
        };
        let has = |names: &[String], name: &str| names.iter().any(|one| one == name);
        let (all, guest, private) = (names("", false, true), names("", true, false), names("", true, true));
        assert!(has(&all, "modules.content.cache_bytes") && has(&all, "jobs.run"));
        assert!(!has(&guest, "modules.content.cache_bytes") && has(&guest, "jobs.run"));
        assert!(!has(&private, "jobs.run") && has(&private, "modules.kvs.wakeups"));
        // Names of others where they are asked for.
        assert!(!has(&all, "node_up_count"));
        assert_eq!(names(",match=node_*", false, false), ["node_up_count"]);
    }

    #[test]
    fn a_secret_that_others_may_read_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let of = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            read_secret(&path).map_err(|error| error.split(": ").skip(1).collect::<Vec<_>>().join(": "))
        };
        assert_eq!(of("abc\n", 0o600), Ok("abc".into()));
        assert_eq!(
            of("abc", 0o644),
            Err("others may access it (mode 644): expected 600, or 640 for a group".into())
        );
        assert_eq!(of(&"a".repeat(5000), 0o600), Err("expected at most 4096 bytes".into()));
        assert_eq!(of("", 0o600), Err("expected a token, or USER:PASSWORD, on one line".into()));
        assert_eq!(of("a b", 0o640), Err("expected a token, or USER:PASSWORD, on one line".into()));
        assert!(read_secret(folder.path()).unwrap_err().ends_with("expected a regular file"));
        assert!(read_secret(&folder.path().join("none")).unwrap_err().contains("No such file"));
    }
}
