//! One broker, and the module on it.

use crate::ledger::Units;
use crate::network::Flight;
use crate::workload::Measured;
use stats_core::Node;

/// One broker.
#[derive(Debug)]
pub(crate) struct Rank {
    pub(crate) is_up: bool,
    /// No module before that.
    pub(crate) absent_until_ns: u64,
    /// A dead broker that does not come back.
    pub(crate) is_gone: bool,
    /// The module, while it is loaded.
    pub(crate) module: Option<Node>,
    pub(crate) is_unloading: bool,
    /// Responses to it may be lost while it unloads.
    pub(crate) is_deaf: bool,
    /// What the module left behind, as it lies in the rundir, and what it was when it did.
    pub(crate) saved: Vec<u8>,
    pub(crate) left: Option<Node>,
    /// Counts loads.
    pub(crate) load: u32,
    /// The module's monotonic clock begins here.
    pub(crate) origin_ns: u64,
    pub(crate) wall_step_ns: i64,
    pub(crate) is_foreign: bool,
    /// What happens when it has unloaded.
    pub(crate) reload_in_ns: u64,
    pub(crate) becomes_foreign: bool,
    pub(crate) measured: Option<Measured>,
    pub(crate) pushes: u32,
    pub(crate) shows_state: bool,
    pub(crate) letters: u32,
    /// Of its messages, how many have not arrived yet.
    pub(crate) underway: u32,
    pub(crate) flight: Option<Flight>,
    /// When the last message to each receiver arrives: messages do not overtake each other.
    pub(crate) last_arrival: Vec<(u32, u64)>,
    /// The fault that befalls the next message to a rank, and the last receiver.
    pub(crate) doomed: Option<(u32, u32)>,
    pub(crate) loses_next: Option<u32>,
    /// The fault that kills the module when it has sent its next message.
    pub(crate) dies_sending: Option<u32>,
    pub(crate) last_receiver: Option<u32>,
    pub(crate) last_alive_ns: u64,
    /// Recent pushes, when brokers do nothing but die.
    pub(crate) recent: Vec<(u64, Units)>,
}

impl Rank {
    pub(crate) fn new() -> Self {
        Rank {
            is_up: true,
            absent_until_ns: 0,
            is_gone: false,
            module: None,
            is_unloading: false,
            is_deaf: false,
            saved: Vec::new(),
            left: None,
            load: 0,
            origin_ns: 0,
            wall_step_ns: 0,
            is_foreign: false,
            reload_in_ns: 0,
            becomes_foreign: false,
            measured: None,
            pushes: 0,
            shows_state: false,
            letters: 0,
            underway: 0,
            flight: None,
            last_arrival: Vec::new(),
            doomed: None,
            loses_next: None,
            dies_sending: None,
            last_receiver: None,
            last_alive_ns: 0,
            recent: Vec::new(),
        }
    }

    /// The node, or what it was when it was unloaded.
    pub(crate) fn body(&self) -> Option<&Node> {
        self.module.as_ref().or(self.left.as_ref())
    }
}
