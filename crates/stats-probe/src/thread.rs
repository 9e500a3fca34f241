//! One thread under observation: its slot, its files in /proc, and up to when its time is accounted for.

use std::sync::atomic::Ordering::*;

use crate::clock::{SCALE_SHIFT, Scale, to_ns};
use crate::histogram::BUCKETS;
use crate::proc::{ThreadFiles, ThreadStat};
use crate::slots::{BLOCKED, SLEEPING, Slot, Snapshot};
use crate::totals::{Longest, Totals};

/// What a thread does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// No thread is there (any more).
    Gone,
    /// In the outermost reactor's wait.
    Sleeping,
    /// Not seen in a turn yet; /proc says that it sleeps, in whatever wait.
    UnknownIdle,
    /// In a nested wait: a synchronous RPC, a blocking receive.
    Blocked,
    /// Not seen in a turn yet; /proc says that it runs.
    UnknownRunning,
    /// Between two waits.
    Working,
}

/// Ticks to nanoseconds with the remainder carried over: no rounding error adds up.
#[derive(Debug, Clone, Copy, Default)]
struct Carry(i64);

impl Carry {
    fn ns(&mut self, ticks: i64, scale: u64) -> i64 {
        let exact = ticks as i128 * scale as i128 + i128::from(self.0);
        self.0 = (exact & ((1 << SCALE_SHIFT) - 1)) as i64;
        (exact >> SCALE_SHIFT) as i64
    }
}

/// What of a slot has been added to totals already.
#[derive(Debug)]
struct Added {
    generation: u32,
    times: [u64; 3],
    wakeups: u64,
    blocked_calls: u64,
    histogram: Box<[u32; BUCKETS]>,
}

/// The account of a thread's time.
#[derive(Debug, Default)]
struct Turns {
    added: Option<Added>,
    /// Ticks up to which the time is accounted for; at first, when the thread was met.
    until: u64,
    /// Something has been accounted for.
    begun: bool,
    carry: [Carry; 3],
}

#[derive(Debug)]
pub(crate) struct Thread {
    files: ThreadFiles,
    pub(crate) stat: ThreadStat,
    pub(crate) slot: Option<usize>,
    turns: Turns,
    pub(crate) state: State,
    /// Ticks at which the state, and the turn, began.
    pub(crate) since: u64,
    pub(crate) turn_since: u64,
    pub(crate) first_seen_ns: u64,
}

impl Thread {
    /// `born`: it was not there at the last look, so all of its CPU time is new. `asked`: as for [`Thread::look`].
    pub(crate) fn new(mut files: ThreadFiles, born: bool, asked: u64, now_ns: u64) -> Option<Self> {
        let stat = files.read().ok()??;
        let counted = if born { ThreadStat { comm: stat.comm, ..ThreadStat::default() } } else { stat };
        Some(Self {
            files,
            stat: counted,
            slot: None,
            turns: Turns { until: asked, ..Turns::default() },
            state: State::UnknownIdle,
            since: asked,
            turn_since: asked,
            first_seen_ns: now_ns,
        })
    }

    /// The unit of ticks changes.
    pub(crate) fn restart_clock(&mut self, now: u64) {
        self.turns.until = now;
        self.since = now;
        self.turn_since = now;
        self.turns.added = None;
    }

    /// The thread's slot, found or made.
    pub(crate) fn take_slot(&mut self, index: usize) {
        self.slot = Some(index);
        self.turns.added = None;
    }

    /// Reads the kernel's numbers; None: the thread has ended. Where they cannot be read they are those of the last look.
    pub(crate) fn read_stat(&mut self) -> Option<ThreadStat> {
        self.files.read().unwrap_or_else(|_| Some(self.stat.clone()))
    }

    /// Nobody looks for a while.
    pub(crate) fn close_files(&mut self) {
        self.files.close();
    }

    /// Accounts for the time from the last look until now. `stat` is what the kernel says, None if the
    /// thread has ended. `asked`: before slots were looked for. A thread that has none is accounted for until then, so
    /// that turns of which the slot tells later are not told by an estimate before. Returns whether it lives.
    pub(crate) fn look(
        &mut self,
        slot: Option<&Slot>,
        generation: u32,
        stat: Option<ThreadStat>,
        asked: u64,
        scale: &Scale,
        to: &mut Totals,
    ) -> bool {
        let Some(stat) = stat else {
            self.end(slot, generation, scale, to);
            return false;
        };
        let run_ns =
            (stat.cpu_ns + stat.runq_wait_ns).saturating_sub(self.stat.cpu_ns + self.stat.runq_wait_ns);
        to.add_stat(&self.stat, &stat);
        let running = matches!(stat.state, 'R' | 'D');
        // Whoever has waited meanwhile has not been running all the time.
        let has_waited = stat.voluntary != self.stat.voluntary;
        self.stat = stat;
        let snapshot =
            slot.map(|s| (s, s.read())).filter(|(_, n)| generation & 1 == 1 && n.generation == generation);
        // Read after the snapshot: the state that is going on has lasted until at least now.
        let now = scale.now();
        match snapshot {
            Some((slot, snapshot)) => {
                self.turns.add(slot, &snapshot, now, scale, to, run_ns);
                self.state = match snapshot.state {
                    SLEEPING => State::Sleeping,
                    BLOCKED => State::Blocked,
                    _ => State::Working,
                };
                self.since = snapshot.since;
                self.turn_since = slot.turn_start(&snapshot);
                self.turns.until = now;
            }
            None => {
                self.turns.estimate(asked, run_ns, scale, to);
                let state = if running { State::UnknownRunning } else { State::UnknownIdle };
                if state != self.state || running && has_waited {
                    (self.since, self.turn_since) = (now, now);
                }
                self.state = state;
                self.turns.added = None;
            }
        }
        self.turns.begun = true;
        true
    }

    /// Accounts for a thread that has ended: its last state is extended no further than it was already.
    fn end(&mut self, slot: Option<&Slot>, generation: u32, scale: &Scale, to: &mut Totals) {
        let Some(slot) = slot else { return };
        let snapshot = slot.read();
        if generation & 1 == 1 && snapshot.generation == generation && slot.is_known() {
            let last = if (snapshot.since.wrapping_sub(self.turns.until) as i64) > 0 {
                snapshot.since
            } else {
                self.turns.until
            };
            self.turns.add(slot, &snapshot, last, scale, to, 0);
        }
    }

    /// Accounts for a thread that came and went between two looks: all that there is is its slot.
    pub(crate) fn account_orphan(slot: &Slot, generation: u32, scale: &Scale, to: &mut Totals) {
        let snapshot = slot.read();
        if generation & 1 == 1 && snapshot.generation == generation && slot.is_known() {
            let mut turns = Turns { until: slot.known_since.load(Relaxed), ..Turns::default() };
            turns.add(slot, &snapshot, snapshot.since, scale, to, 0);
        }
    }
}

impl Turns {
    fn add(
        &mut self,
        slot: &Slot,
        snapshot: &Snapshot,
        now: u64,
        scale: &Scale,
        to: &mut Totals,
        run_ns: u64,
    ) {
        let per_tick = scale.per_tick();
        let times = snapshot.at(now);
        if self.added.as_ref().is_none_or(|a| a.generation != snapshot.generation) {
            let known_since = slot.known_since.load(Relaxed);
            let earlier = (self.until.wrapping_sub(known_since) as i64) > 0;
            let mut counted = [0; 3];
            if earlier && self.begun {
                // The slot has been found late: the times in it are accounted for by estimates already.
                self.estimate(now, run_ns, scale, to);
                counted = times;
            } else if earlier {
                // Its time begins with the slot.
                self.until = known_since;
            } else {
                // It has become known since the last look. The time before that is told from /proc, less
                // what the turns have worked since.
                let worked_ns = to_ns(times[0] as i64, per_tick).max(0) as u64;
                self.estimate(known_since, run_ns.saturating_sub(worked_ns), scale, to);
                self.until = known_since;
            }
            self.added = Some(Added {
                generation: snapshot.generation,
                times: counted,
                wakeups: 0,
                blocked_calls: 0,
                histogram: Box::new([0; BUCKETS]),
            });
        }
        let Some(added) = &mut self.added else { return };
        let gained = times.iter().zip(added.times).map(|(now, before)| now.wrapping_sub(before) as i64);
        for (state, (gained, carry)) in gained.zip(&mut self.carry).enumerate() {
            let sum = match state {
                0 => &mut to.work,
                2 if to.blocked_known => &mut to.blocked,
                // Where nested reactors cannot be told from others, blocking receives are not told from sleep either.
                _ => &mut to.sleep,
            };
            sum.add(carry.ns(gained, per_tick));
        }
        added.times = times;
        to.wakeups += snapshot.wakeups.saturating_sub(added.wakeups);
        added.wakeups = snapshot.wakeups;
        let calls = slot.blocked_calls.load(Relaxed);
        to.blocked_calls += calls.saturating_sub(added.blocked_calls);
        added.blocked_calls = calls;
        for (i, (cell, before)) in slot.histogram.iter().zip(added.histogram.iter_mut()).enumerate() {
            let count = cell.load(Relaxed);
            // The slot's counts wrap at 2^32.
            to.histogram.add(i, u64::from(count.wrapping_sub(*before)));
            *before = count;
        }
        let now_ns = crate::clock::monotonic_ns();
        let longest = |ticks: u64, at: u64| Longest {
            ns: to_ns(ticks as i64, per_tick).max(0) as u64,
            at_ns: now_ns.saturating_sub(to_ns(now.wrapping_sub(at) as i64, per_tick).max(0) as u64),
        };
        to.longest_work.see(longest(snapshot.longest, snapshot.longest_at));
        let blocked = (slot.longest_blocked.load(Relaxed), slot.longest_blocked_at.load(Relaxed));
        to.longest_blocked.see(longest(blocked.0, blocked.1));
    }

    /// Time that no turn tells of: on or waiting for a processor is work, the rest sleep.
    fn estimate(&mut self, now: u64, run_ns: u64, scale: &Scale, to: &mut Totals) {
        let wall = now.wrapping_sub(self.until) as i64;
        if wall <= 0 {
            return;
        }
        let wall_ns = self.carry[1].ns(wall, scale.per_tick());
        let work_ns = i64::try_from(run_ns).unwrap_or(i64::MAX).min(wall_ns);
        to.work.add(work_ns);
        to.sleep.add(wall_ns - work_ns);
        to.estimated.add(wall_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A process's slots are looked for, are not there, and are there a moment later, before its thread is looked at.
    #[test]
    fn turns_between_the_search_for_slots_and_the_look_are_told_by_the_slot_and_not_by_an_estimate() {
        let scale = Scale::calibrate(false, Duration::ZERO);
        // SAFETY: no preconditions.
        let files = ThreadFiles::open(std::process::id(), unsafe { libc::gettid() }).unwrap();
        let asked = scale.now();
        let mut thread = Thread::new(files, true, asked, crate::clock::monotonic_ns()).unwrap();
        let slot = Slot::boxed();
        slot.become_known(1, asked + 100);
        slot.work_to_blocked(asked + 300);
        slot.blocked_to_work(asked + 1_000_300);
        slot.any_work_to_sleep(asked + 1_000_400, scale.per_tick());
        std::thread::sleep(Duration::from_millis(2));
        let mut totals = Totals { blocked_known: true, ..Totals::default() };
        let look = |thread: &mut Thread, slot, asked, totals: &mut Totals| {
            let stat = thread.read_stat();
            assert!(thread.look(slot, 1, stat, asked, &scale, totals));
        };
        look(&mut thread, None, asked, &mut totals);
        assert_eq!((totals.blocked.get(), totals.estimated.get()), (0, 0));
        thread.take_slot(0);
        look(&mut thread, Some(&*slot), scale.now(), &mut totals);
        assert_eq!((totals.blocked.get(), totals.estimated.get()), (1_000_000, 100));
        // Its work, and whatever the estimate takes for work of the hundred before.
        assert!((300..=400).contains(&totals.work.get()), "{totals:?}");
        assert_eq!(thread.state, State::Sleeping);
    }
}
