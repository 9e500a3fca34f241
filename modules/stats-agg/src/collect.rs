//! The collectors at work: their questions to this broker's services, and the answers.

use crate::agg::StatsAgg;
use flux::{Error, Event, Node as To, Payload, PendingRpc, Reply, Scope};
use stats_collect::{Access, Collectors, Failure, Place, Question, access};
use std::collections::HashMap;
use std::path::PathBuf;

/// A longer answer is not read: as JSON it takes many times its size of the broker's memory.
const ANSWER_MAX: usize = 8 << 20;

/// What is asked for, and what is under way.
pub(crate) struct Collect {
    pub(crate) collectors: Collectors,
    under_way: HashMap<u64, PendingRpc>,
}

impl Collect {
    pub(crate) fn new(collectors: Collectors) -> Self {
        Collect { collectors, under_way: HashMap::new() }
    }
}

/// Where this broker is.
pub(crate) fn place(scope: &Scope<StatsAgg>, rank: u32, size: u32, broker_pid: i32) -> Place {
    let folder = |name: &str| scope.attribute(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let version = scope.attribute("version").map_or((0, 0), |text| Place::version_of(&text));
    Place { rank, size, broker_pid, version, rundir: folder("rundir"), statedir: folder("statedir") }
}

impl StatsAgg {
    /// Asks what is due, of services of this broker alone: one that is not here is not somebody else's.
    pub(crate) fn collect(&mut self, scope: &Scope<Self>) {
        if !scope.ending() {
            self.on_own_account(|agg| agg.ask_collected(scope));
        }
    }

    fn ask_collected(&mut self, scope: &Scope<Self>) {
        let (now_ns, rank) = (self.now().mono_ns, self.node.config().rank);
        let Collect { collectors, under_way } = &mut self.collect;
        under_way.retain(|&id, _| collectors.awaits(id));
        for Question { id, topic, payload } in collectors.due(&mut self.node, now_ns) {
            let payload = payload.as_ref().map_or(Payload::None, Payload::Json);
            // Without a time-out: a source that has not answered is not asked again, however long that is. What it has
            // told is withdrawn after a while.
            let asked = scope.request(&topic, payload, To::Rank(rank), None, move |agg, _, reply| {
                agg.on_own_account(|agg| agg.collected(id, reply));
            });
            match asked {
                Ok(pending) => drop(under_way.insert(id, pending)),
                Err(_) => collectors.unasked(id, now_ns),
            }
        }
    }

    fn collected(&mut self, id: u64, reply: Result<Reply, Error>) {
        let now_ns = self.now().mono_ns;
        self.collect.under_way.remove(&id);
        let answer = reply.and_then(|reply| match reply.raw().len() {
            0..=ANSWER_MAX => reply.json(),
            _ => Err(Error::new(libc::EMSGSIZE, "an answer that is too long to be read")),
        });
        let answer = answer.map_err(|error| match error.errnum() {
            libc::ENOSYS => Failure::Absent,
            _ => Failure::Failed,
        });
        let answer = answer.as_ref().map_err(|failure| *failure);
        self.collect.collectors.answered(&mut self.node, id, now_ns, answer);
    }

    /// Looks at what needs no question.
    pub(crate) fn look(&mut self) {
        let now_ns = self.now().mono_ns;
        let collectors = &mut self.collect.collectors;
        collectors.set_processes(self.measure.processes());
        collectors.look(&mut self.node, now_ns);
    }

    pub(crate) fn heartbeat(&mut self, _: &Scope<Self>, event: &Event<'_>) -> Result<(), Error> {
        let number = event.sequence()?;
        self.node.note_event(number.into());
        self.collect.collectors.heartbeat(&mut self.node, number);
        Ok(())
    }
}

/// What a guest is not told, by name and tags.
pub(crate) fn hidden_from_guests(name: &str, tags: &mut dyn Iterator<Item = &str>) -> bool {
    access(name, tags) == Access::Owner
}

/// What a guest is not told where jobs are private.
pub(crate) fn hidden_in_private_mode(name: &str, tags: &mut dyn Iterator<Item = &str>) -> bool {
    access(name, tags) != Access::Guest
}
