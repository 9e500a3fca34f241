//! Names under which others have exported the same facts: what watches those goes on.

use crate::access::Access;
use crate::collector::Described;
use stats_core::Unit;

/// Another name for a series without tags.
pub(crate) struct Alias {
    pub(crate) as_: Described,
    /// The values of its tags.
    pub(crate) tags: &'static [(&'static str, &'static str)],
    pub(crate) of: &'static str,
}

const STATE: &[&str] = &["state"];

macro_rules! aliases {
    ($(($as_:literal $(, $state:literal)?) = $of:literal, $access:ident;)*) => {
        pub(crate) static ALIASES: &[Alias] = &[$(aliases!(@one $as_ $(, $state)?; $of, $access)),*];
        static DESCRIBED: &[Described] = &[$(aliases!(@described $as_ $(, $state)?; $of, $access)),*];
    };
    (@described $as_:literal; $of:literal, $access:ident) => {
        Described::gauge($as_, Unit::None, concat!("`", $of, "`")).only(Access::$access)
    };
    (@described $as_:literal, $state:literal; $of:literal, $access:ident) => {
        Described::gauge($as_, Unit::None, concat!("`", $of, "`, with `state=", $state, "`"))
            .tagged(STATE)
            .only(Access::$access)
    };
    (@one $as_:literal; $of:literal, $access:ident) => {
        Alias { as_: aliases!(@described $as_; $of, $access), tags: &[], of: $of }
    };
    (@one $as_:literal, $state:literal; $of:literal, $access:ident) => {
        Alias { as_: aliases!(@described $as_, $state; $of, $access), tags: &[("state", $state)], of: $of }
    };
}

// flux-metrics-api, then prometheus-flux. What they got wrong they got wrong by their own counting (at most 1,000 jobs; "free"
// cores that were those up; states that never fell to zero): these are the same series as ours.
aliases! {
    ("node_up_count") = "resources.nodes.up", Guest;
    ("node_free_count") = "resources.nodes.free", Guest;
    ("node_cores_up_count") = "resources.cores.up", Guest;
    ("node_cores_free_count") = "resources.cores.free", Guest;
    ("job_queue_state_new_count") = "jobs.new", Jobs;
    ("job_queue_state_depend_count") = "jobs.depend", Jobs;
    ("job_queue_state_priority_count") = "jobs.priority", Jobs;
    ("job_queue_state_sched_count") = "jobs.sched", Jobs;
    ("job_queue_state_run_count") = "jobs.run", Jobs;
    ("job_queue_state_cleanup_count") = "jobs.cleanup", Jobs;
    ("job_queue_state_inactive_count") = "jobs.inactive", Jobs;
    ("flux_node_counts", "up") = "resources.nodes.up", Guest;
    ("flux_node_counts", "free") = "resources.nodes.free", Guest;
    ("flux_node_cores_counts", "up") = "resources.cores.up", Guest;
    ("flux_node_cores_counts", "free") = "resources.cores.free", Guest;
    ("flux_queue_state_counts", "new") = "jobs.new", Jobs;
    ("flux_queue_state_counts", "depend") = "jobs.depend", Jobs;
    ("flux_queue_state_counts", "priority") = "jobs.priority", Jobs;
    ("flux_queue_state_counts", "sched") = "jobs.sched", Jobs;
    ("flux_queue_state_counts", "run") = "jobs.run", Jobs;
    ("flux_queue_state_counts", "cleanup") = "jobs.cleanup", Jobs;
    ("flux_queue_state_counts", "inactive") = "jobs.inactive", Jobs;
}

/// The rows of the page.
pub(crate) fn described() -> &'static [Described] {
    DESCRIBED
}
