//! Which ranks a node has heard of, and when.

use crate::idset::IdSet;
use crate::schedule::Now;
use std::collections::BTreeMap;

/// When each rank of a subtree last contributed, and which have said goodbye.
#[derive(Debug, Clone)]
pub(crate) struct Coverage {
    size: u32,
    heard_ns: BTreeMap<u32, u64>,
    closed: IdSet,
    /// Ranks whose brokers are up; `None` when nobody has said.
    online: Option<IdSet>,
}

/// The ranks of an instance, by what is known of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) covered: IdSet,
    /// The broker is down.
    pub(crate) offline: IdSet,
    /// The broker is up, and has not sent anything, or has unloaded the module.
    pub(crate) absent: IdSet,
    /// The broker is up, and stopped sending.
    pub(crate) silent: IdSet,
    /// The age of the oldest contribution among the covered.
    pub(crate) oldest_ns: u64,
}

impl Coverage {
    pub(crate) fn new(rank: u32, size: u32, now: Now) -> Self {
        let heard_ns = BTreeMap::from([(rank, now.mono_ns)]);
        Coverage { size, heard_ns, closed: IdSet::new(), online: None }
    }

    pub(crate) fn heard(&mut self, ranks: &IdSet, now: Now) {
        for rank in ranks.iter() {
            self.heard_ns.insert(rank, now.mono_ns);
            self.closed.remove(rank);
        }
    }

    pub(crate) fn close(&mut self, ranks: &IdSet) {
        for rank in ranks.iter() {
            self.heard_ns.remove(&rank);
            self.closed.insert(rank);
        }
    }

    pub(crate) fn set_online(&mut self, online: IdSet) {
        self.online = Some(online);
    }

    pub(crate) fn status(&self, now: Now, expiry_ns: u64) -> Status {
        let mut status = Status::default();
        for (&rank, &heard) in &self.heard_ns {
            let age = now.mono_ns.saturating_sub(heard);
            if age <= expiry_ns {
                status.covered.insert(rank);
                status.oldest_ns = status.oldest_ns.max(age);
            }
        }
        let all = if self.size == 0 { IdSet::new() } else { IdSet::range(0, self.size - 1) };
        let missing = all.minus(&status.covered);
        let up = match &self.online {
            Some(online) => missing.both(online),
            None => missing.clone(),
        };
        status.offline = missing.minus(&up);
        for rank in up.iter() {
            let known = self.heard_ns.contains_key(&rank);
            if known {
                status.silent.insert(rank)
            } else {
                status.absent.insert(rank)
            };
        }
        status
    }
}
