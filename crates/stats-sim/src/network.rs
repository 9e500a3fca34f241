//! Messages between ranks: each goes to the nearest ancestor that has the module, as `stats-agg` sends them.

use crate::ages::Written;
use crate::dice::For;
use crate::faults::{FaultId, Kind};
use crate::ledger::{Id, Units};
use crate::queue::{Event, Outcome};
use crate::world::{MS, Phase, Violation, World};
use stats_core::{MergeRefused, SendFailure};
use std::rc::Rc;
use std::time::Instant;

/// What a request or its response takes for each hop, at the least and at the most.
const HOP_NS: (u64, u64) = (50_000, 500_000);
/// After this without an answer the outcome of a request is unknown.
pub(crate) const TIMEOUT_NS: u64 = 2_000 * MS;
/// What a slow message takes.
const DELAY_NS: (u64, u64) = (50 * MS, 1_800 * MS);
/// How long after its sender's time-out a late message arrives.
const LATE_NS: (u64, u64) = (MS, 1_500 * MS);
/// What a message waits for a slow root.
const SLOW_NS: (u64, u64) = (100 * MS, 1_000 * MS);

/// The request that a rank awaits the outcome of.
#[derive(Debug)]
pub(crate) struct Flight {
    token: u64,
    payload: Rc<[u8]>,
    written: Rc<Written>,
    to: u32,
    attempt: u32,
    /// The answer is on its way.
    pub(crate) is_answered: bool,
}

/// A request on its way.
#[derive(Debug)]
pub(crate) struct Letter {
    pub(crate) from: u32,
    pub(crate) to: u32,
    load: u32,
    token: u64,
    attempt: u32,
    pub(crate) payload: Rc<[u8]>,
    written: Rc<Written>,
    is_foreign: bool,
    /// Whether the sender will hear what became of it.
    is_answered: bool,
    /// The batches that the sender had in custody when it sent this, and their amounts.
    carried: Vec<(Id, Units)>,
    /// After it has arrived, the receiver unloads.
    unloads: Option<u32>,
}

/// What becomes of a message.
struct Fate {
    is_delivered: bool,
    is_answered: bool,
    extra_ns: u64,
    unloads: Option<u32>,
}

impl World<'_> {
    /// Sends what a rank wants to send.
    pub(crate) fn transmit(&mut self, rank: u32) {
        let now = self.time_of(rank);
        let state = self.rank(rank);
        if state.flight.is_some() {
            return;
        }
        let Some(transmit) = state.module.as_mut().and_then(|node| node.poll_transmit(now)) else { return };
        let level = self.config.shape.level(rank) as usize;
        self.report.bytes[level] += transmit.payload.len() as u64;
        self.report.messages += 1;
        let shape = &self.config.shape;
        let first = transmit.to.filter(|&to| shape.above(rank).any(|above| above == to));
        let Some(to) = first.or(shape.parent(rank)) else { return };
        let (payload, written) = (Rc::from(transmit.payload), self.written(rank));
        self.rank(rank).flight =
            Some(Flight { token: transmit.token, payload, written, to, attempt: 0, is_answered: false });
        self.send(rank);
    }

    /// Sends the request in flight to the ancestor whose turn it is.
    fn send(&mut self, rank: u32) {
        let number = self.rank(rank).letters;
        let state = &mut self.ranks[rank as usize];
        let (Some(node), Some(flight)) = (&mut state.module, &mut state.flight) else { return };
        state.letters += 1;
        (flight.attempt, flight.is_answered) = (number, false);
        let (to, token) = (flight.to, flight.token);
        let (payload, written) = (flight.payload.clone(), flight.written.clone());
        node.sent_to(token, to);
        let (load, is_foreign) = (state.load, state.is_foreign);
        let hops = self.config.shape.level(rank) - self.config.shape.level(to);
        let mut dice = self.dice(For::Letter, rank, number);
        let way_ns = u64::from(hops) * dice.between(HOP_NS.0, HOP_NS.1);
        let Some(fate) = self.fate(rank, to, number) else {
            self.tell(rank, || format!("-> {to}: request fails on the way"));
            let outcome = Outcome::Failed(SendFailure::Refused);
            let event = Event::Outcome { rank, load, token, attempt: number, outcome };
            return self.schedule(self.now_ns + way_ns, event);
        };
        let mut at_ns = self.now_ns + way_ns + fate.extra_ns;
        if to == 0 && self.now_ns < self.slow_until_ns {
            at_ns += dice.between(SLOW_NS.0, SLOW_NS.1);
        }
        if fate.is_delivered {
            at_ns = self.in_order(rank, to, at_ns);
            self.longest_way_ns = self.longest_way_ns.max(at_ns - self.now_ns);
            let carried = self.carried(rank);
            self.tell(rank, || format!("-> {to}: {} bytes; in custody: {}", payload.len(), listed(&carried)));
            let letter = Letter {
                from: rank,
                to,
                load,
                token,
                attempt: number,
                payload,
                written,
                is_foreign,
                is_answered: fate.is_answered,
                carried,
                unloads: fate.unloads,
            };
            self.rank(rank).underway += 1;
            self.schedule(at_ns, Event::Arrive(Box::new(letter)));
        }
        let is_ending = self.rank(rank).is_unloading;
        if !fate.is_answered || is_ending {
            let outcome = Outcome::Failed(SendFailure::Unknown);
            let event = Event::Outcome { rank, load, token, attempt: number, outcome };
            self.schedule(self.now_ns + TIMEOUT_NS, event);
        }
    }

    /// Messages of one rank to another arrive in the order in which they were sent.
    fn in_order(&mut self, rank: u32, to: u32, at_ns: u64) -> u64 {
        let last = &mut self.rank(rank).last_arrival;
        match last.iter_mut().find(|(known, _)| *known == to) {
            Some((_, last_ns)) => {
                *last_ns = at_ns.max(*last_ns + 1);
                *last_ns
            }
            None => {
                last.push((to, at_ns));
                at_ns
            }
        }
    }

    /// `None`: it fails, and the sender is told.
    fn fate(&mut self, rank: u32, to: u32, number: u32) -> Option<Fate> {
        let ordinary = Fate { is_delivered: true, is_answered: true, extra_ns: 0, unloads: None };
        if self.phase != Phase::Faults {
            return Some(ordinary);
        }
        if let Some((_, planned)) = self.rank(rank).doomed.take_if(|doom| doom.0 == to) {
            self.tell(rank, || format!("-> {to}: the response will be lost, then {to} unloads"));
            return Some(Fate { is_answered: false, unloads: Some(planned), ..ordinary });
        }
        if let Some(number) = self.rank(rank).dies_sending.take() {
            let period_ns = self.config.period_ns();
            let extra_ns = period_ns + self.plan[number as usize].dice.clone().below(period_ns);
            self.schedule(self.now_ns + MS, Event::Crash(number));
            self.tell(rank, || format!("-> {to}: takes long, and its sender is killed"));
            return Some(Fate { is_answered: false, extra_ns, ..ordinary });
        }
        if self.rank(rank).loses_next.take().is_some() {
            self.tell(rank, || format!("-> {to}: lost on the way"));
            return Some(Fate { is_delivered: false, is_answered: false, ..ordinary });
        }
        let mut dice = self.dice(For::Letter, rank, number.wrapping_add(1 << 30));
        if self.rank(rank).is_deaf && dice.chance(0.5) {
            self.tell(rank, || format!("-> {to}: the response will be lost"));
            return Some(Fate { is_answered: false, ..ordinary });
        }
        let fault = FaultId::Message(rank, number);
        let kind = self.config.faults.of_message(&mut dice).filter(|_| self.allows(fault));
        let Some(kind) = kind else { return Some(ordinary) };
        self.befalls(kind, fault);
        self.tell(rank, || format!("-> {to}: {kind}"));
        match kind {
            Kind::Fail => None,
            Kind::Lost => {
                let is_delivered = dice.chance(0.5);
                Some(Fate { is_delivered, is_answered: false, ..ordinary })
            }
            Kind::Late => {
                let extra_ns = TIMEOUT_NS + dice.between(LATE_NS.0, LATE_NS.1);
                Some(Fate { is_answered: false, extra_ns, ..ordinary })
            }
            _ => Some(Fate { extra_ns: dice.between(DELAY_NS.0, DELAY_NS.1), ..ordinary }),
        }
    }

    /// The batches that a rank has in custody.
    pub(crate) fn carried(&self, rank: u32) -> Vec<(Id, Units)> {
        let (mut carried, state) = (Vec::new(), &self.ranks[rank as usize]);
        if let (Some(node), Some(measured)) = (state.body(), &state.measured) {
            node.survey(measured.followed(node).groups(), |batch, amounts| {
                carried.extend(batch.map(|(id, _)| (id, Units(amounts.map(|amount| amount.parts())))));
            });
        }
        carried
    }

    pub(crate) fn arrive(&mut self, letter: Letter) -> Result<(), Violation> {
        let (rank, to) = (letter.from, letter.to);
        self.rank(rank).underway -= 1;
        if !self.rank(to).is_up {
            return Ok(());
        }
        let now = self.time_of(to);
        let known_before = self.known(to, &letter.written);
        let differs = letter.is_foreign != self.rank(to).is_foreign;
        let state = &mut self.ranks[to as usize];
        let Some(node) = &mut state.module else {
            self.tell(to, || format!("has no module for rank {rank}"));
            self.answer(&letter, Outcome::Absent);
            return Ok(());
        };
        let mut payload = letter.payload.clone();
        if differs {
            // Another version of the format begins with another number.
            let mut other = payload.to_vec();
            other[0] ^= 0x40;
            payload = other.into();
        }
        let before = node.events();
        let known: Vec<bool> = if self.ledger.is_awaiting_orphans() {
            letter.carried.iter().map(|&(id, _)| node.has_merged(id)).collect()
        } else {
            Vec::new()
        };
        let begin = Instant::now();
        let merged = node.handle_merge(now, &payload);
        self.report.merge_ns += u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let after = node.events();
        self.report.merged_values += after.merged_values - before.merged_values;
        let found: Vec<Id> = letter
            .carried
            .iter()
            .zip(&known)
            .filter(|&(&(id, _), &had)| !had && node.has_merged(id))
            .map(|(&(id, _), _)| id)
            .collect();
        let is_unloading = state.is_unloading;
        for id in found {
            self.ledger.found(id);
        }
        if after.repeats > before.repeats {
            self.report.repeats += 1;
            self.plant_double_merge(to, &letter.carried);
        }
        let outcome = match merged {
            Ok(receipt) => {
                let former = self.rank(rank).last_receiver.replace(to);
                if let Some(former) = former.filter(|&former| former != to) {
                    self.plant_state_twice(rank, former);
                }
                Outcome::Receipt(receipt)
            }
            Err(MergeRefused::Decode(stats_core::DecodeError::Version { .. })) if differs => {
                Outcome::Failed(SendFailure::Refused)
            }
            Err(refused) => {
                return Err(self.violation(to, format!("a message of rank {rank} is refused: {refused}")));
            }
        };
        self.tell(to, || {
            format!(
                "{} of rank {rank}{}",
                verb(&outcome),
                if letter.is_answered { "" } else { ", which will not hear of it" }
            )
        });
        self.account(to);
        self.account(rank);
        self.check_ages(rank, to, &letter.written, &known_before)?;
        self.check_merged(to)?;
        self.answer(&letter, outcome);
        if let Some(number) = letter.unloads {
            self.road_taken(to, number)?;
        } else if is_unloading {
            self.transmit(to);
        }
        Ok(())
    }

    fn answer(&mut self, letter: &Letter, outcome: Outcome) {
        if letter.is_answered {
            let hops = self.config.shape.level(letter.from) - self.config.shape.level(letter.to);
            let mut dice = self.dice(For::Letter, letter.from, letter.attempt.wrapping_add(2 << 30));
            let at_ns = self.now_ns + u64::from(hops) * dice.between(HOP_NS.0, HOP_NS.1);
            let (rank, load, token, attempt) = (letter.from, letter.load, letter.token, letter.attempt);
            let flight = self.rank(rank).flight.as_mut().filter(|flight| flight.attempt == attempt);
            flight.into_iter().for_each(|flight| flight.is_answered = true);
            self.schedule(at_ns, Event::Outcome { rank, load, token, attempt, outcome });
        }
    }

    pub(crate) fn outcome(
        &mut self,
        rank: u32,
        token: u64,
        attempt: u32,
        outcome: Outcome,
    ) -> Result<(), Violation> {
        let above = |to: u32| self.config.shape.parent(to);
        let state = &mut self.ranks[rank as usize];
        // An answer after the time-out finds nobody who waits for it.
        let Some(flight) = state.flight.as_mut().filter(|flight| flight.attempt == attempt) else {
            return Ok(());
        };
        if let (Outcome::Absent, Some(next)) = (&outcome, above(flight.to)) {
            flight.to = next;
            self.send(rank);
            return Ok(());
        }
        state.flight = None;
        if let Some(node) = &mut state.module {
            node.handle_response(
                token,
                match &outcome {
                    Outcome::Receipt(receipt) => Ok(receipt),
                    Outcome::Absent => Err(SendFailure::Refused),
                    Outcome::Failed(failure) => Err(*failure),
                },
            );
        }
        self.tell(rank, || format!("hears: {}", verb(&outcome)));
        self.account(rank);
        self.transmit(rank);
        self.end_unload_if_drained(rank)
    }
}

/// Batches by rank, the beginning of the epoch, and number.
fn listed(batches: &[(Id, Units)]) -> String {
    let name =
        |&((rank, epoch, seq), units): &(Id, Units)| format!("{rank}/{:04x}/{seq} ({units})", epoch >> 48);
    let names: Vec<_> = batches.iter().map(name).collect();
    if names.is_empty() { "no batch".to_owned() } else { names.join(", ") }
}

fn verb(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Receipt(_) => "a receipt",
        Outcome::Absent => "no module anywhere above",
        Outcome::Failed(SendFailure::Unknown) => "nothing, time-out",
        Outcome::Failed(_) => "a refusal",
    }
}
