//! Who may see what, beside the instance's owner.

use crate::collector::rows_of;
use stats_core::{GUESTS, JOB_TAG, is_reserved};

/// Who may see a series, beside the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Guests, where guests may ask.
    Guest,
    /// Guests, unless jobs are private (`access.private-mode`).
    Jobs,
    /// Nobody: its source answers the owner alone.
    Owner,
}

/// The tags by which a pushed series is somebody's job.
const JOB_TAGS: [&str; 2] = [JOB_TAG, "user"];

/// Who may see a series of this name and these tag keys. Names of the service that no table describes are for the owner.
pub fn access<'a>(name: &str, mut tag_keys: impl Iterator<Item = &'a str>) -> Access {
    let described = rows_of(name).map(|row| row.described.access);
    // A name that fits two rows is as open as the stricter one.
    match described.max() {
        Some(access) => access,
        // What other users push: they are jobs, as a rule.
        None if name.starts_with(GUESTS) => Access::Jobs,
        None if is_reserved(name) => Access::Owner,
        None if tag_keys.any(|key| JOB_TAGS.contains(&key)) => Access::Jobs,
        None => Access::Guest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_the_owner_is_told_is_never_for_guests() {
        let of = |name: &str, tags: &[&str]| access(name, tags.iter().copied());
        assert_eq!(of("modules.kvs.wakeups", &[]), Access::Guest);
        assert_eq!(of("modules.content.cache_bytes", &[]), Access::Owner, "content.stats-get is the owner's");
        assert_eq!(of("modules.job-exec.stats.jobs", &[]), Access::Owner);
        assert_eq!(of("modules.kvs.something_new", &[]), Access::Owner, "unknown, and ours");
        assert_eq!(of("jobs.run", &[]), Access::Jobs);
        assert_eq!(of("job_queue_state_run_count", &[]), Access::Jobs);
        assert_eq!(of("guests.1000.app.steps", &[]), Access::Jobs);
        assert_eq!(of("app.steps", &[]), Access::Guest);
        assert_eq!(of("app.steps", &["host", "jobid"]), Access::Jobs);
    }
}
