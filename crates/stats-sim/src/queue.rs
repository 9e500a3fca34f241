//! The events that are to come, in the order of virtual time; of two at the same time, that which was scheduled first.

use crate::network::Letter;
use stats_core::SendFailure;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// What is to happen.
#[derive(Debug)]
pub(crate) enum Event {
    Fault(u32),
    Load(u32),
    Unload(u32),
    /// The deadline of an unload.
    Unloaded {
        rank: u32,
        load: u32,
    },
    Restart(u32),
    /// A planned crash whose message has been sent.
    Crash(u32),
    Tick {
        rank: u32,
        load: u32,
    },
    Push {
        rank: u32,
        load: u32,
    },
    Clear {
        rank: u32,
        generation: u64,
    },
    Arrive(Box<Letter>),
    Outcome {
        rank: u32,
        load: u32,
        token: u64,
        attempt: u32,
        outcome: Outcome,
    },
    FaultsEnd,
    Marker,
}

/// How a request ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    Receipt(Vec<u8>),
    /// The receiver has no such module.
    Absent,
    Failed(SendFailure),
}

struct Scheduled {
    at_ns: u64,
    number: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

#[derive(Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<Scheduled>>,
    numbered: u64,
}

impl Queue {
    pub(crate) fn push(&mut self, at_ns: u64, event: Event) {
        let number = self.numbered;
        self.numbered += 1;
        self.heap.push(Reverse(Scheduled { at_ns, number, event }));
    }

    /// The next event, and when it happens.
    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|Reverse(next)| (next.at_ns, next.event))
    }
}
