//! The synthetic ranks: real nodes of a flat instance, on one connection and the real clock.

use crate::arguments::Live;
use anyhow::Result;
use flux::{Client, Error, Payload, Rpc};
use stats_core::{Amount, Key, Kind, Node, NodeConfig, Now, Samples, SendFailure, SeriesId, Unit};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The names of synthetic series begin like this.
pub(crate) const PREFIX: &str = "sim";
/// Series of one synthetic module, as a real one has: counters, one gauge, one timer.
const OF_MODULE: u32 = 10;
/// Requests under way at once.
const WINDOW: usize = 256;
/// A root that does not answer within this is not there.
const TIMEOUT: Duration = Duration::from_secs(60);
const SERIES_MAX: usize = 20_000;

struct Synthetic {
    node: Node,
    series: Vec<SeriesId>,
    /// Which of them change next.
    turn: usize,
}

struct Flight<'a> {
    rank: usize,
    token: u64,
    sent: Instant,
    rpc: Rpc<'a>,
}

/// What was sent since the beginning.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sent {
    batches: u64,
    pub(crate) values: u64,
    bytes: u64,
    answered: u64,
    waited_s: f64,
    /// How late a batch was sealed at most: more than a little, and this machine is what limits.
    late: Duration,
    pub(crate) took_s: f64,
}

impl Sent {
    pub(crate) fn since(&self, before: &Sent) -> Sent {
        Sent {
            batches: self.batches - before.batches,
            values: self.values - before.values,
            bytes: self.bytes - before.bytes,
            answered: self.answered - before.answered,
            waited_s: self.waited_s - before.waited_s,
            late: self.late,
            took_s: self.took_s - before.took_s,
        }
    }
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |number: u64| number as f64 / self.took_s;
        write!(
            f,
            "{:.0} batches/s, {:.0} values/s, {:.0} bytes/s ({:.1} bytes a value); answered in {:.1} ms on average, sealed \
             {:.0} ms late at most",
            rate(self.batches),
            rate(self.values),
            rate(self.bytes),
            self.bytes as f64 / self.values.max(1) as f64,
            1e3 * self.waited_s / self.answered.max(1) as f64,
            self.late.as_secs_f64() * 1e3
        )
    }
}

pub(crate) struct Ranks<'a> {
    client: &'a Client,
    topic: String,
    first: u32,
    count: u32,
    series: u32,
    changing: usize,
    period: Duration,
    started: Instant,
    ranks: Vec<Synthetic>,
    due: BinaryHeap<Reverse<(u64, usize)>>,
    flights: VecDeque<Flight<'a>>,
    sent: Sent,
    pushed: i64,
    refused: u64,
    first_refusal: String,
}

impl<'a> Ranks<'a> {
    pub(crate) fn new(client: &'a Client, live: &Live, first: u32, period: Duration) -> Self {
        Ranks {
            client,
            topic: format!("{}.merge", live.name),
            first,
            count: live.flux,
            series: live.series(),
            changing: live.changing() as usize,
            period,
            started: Instant::now(),
            ranks: Vec::new(),
            due: BinaryHeap::new(),
            flights: VecDeque::new(),
            sent: Sent::default(),
            pushed: 0,
            refused: 0,
            first_refusal: String::new(),
        }
    }

    fn now(&self) -> Now {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { mono_ns: nanos(self.started.elapsed()), wall_ns: nanos(wall) }
    }

    pub(crate) fn sent(&self) -> Sent {
        Sent { took_s: self.started.elapsed().as_secs_f64(), ..self.sent }
    }

    /// What was sent until now; how late batches are is measured from now on.
    pub(crate) fn begin_measuring(&mut self) -> Sent {
        self.sent.late = Duration::ZERO;
        self.sent()
    }

    pub(crate) fn pushed(&self) -> i64 {
        self.pushed
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    pub(crate) fn first_refusal(&self) -> &str {
        &self.first_refusal
    }

    /// The longest period that a rank has been granted.
    pub(crate) fn period(&self) -> Duration {
        Duration::from_nanos(self.ranks.iter().map(|rank| rank.node.period_ns()).max().unwrap_or(0))
    }

    /// All ranks load, one after the other.
    pub(crate) fn join(&mut self, within: Duration) -> Result<()> {
        let begin = Instant::now();
        for number in 0..self.count {
            let at = begin + within.mul_f64(f64::from(number) / f64::from(self.count));
            self.play(at.saturating_duration_since(Instant::now()))?;
            self.load(number)?;
        }
        Ok(())
    }

    fn load(&mut self, number: u32) -> Result<()> {
        let now = self.now();
        let rank = self.first + number;
        let config = NodeConfig {
            rank,
            size: self.first + self.count,
            level: 1,
            max_level: 1,
            // Any that no earlier run has had.
            epoch: now.wall_ns ^ (u64::from(rank) << 40),
            period: self.period,
            max_series: SERIES_MAX,
        };
        let mut node = Node::new(config, now);
        node.set_history(Duration::ZERO);
        let series = (0..self.series).map(|place| {
            let (module, place) = (place / OF_MODULE, place % OF_MODULE);
            let (name, kind) = match place {
                8 => ("g".to_owned(), Kind::Gauge),
                9 => ("t".to_owned(), Kind::Timer),
                _ => (format!("c{place}"), Kind::Counter),
            };
            node.declare(Key::new(&format!("{PREFIX}.module{module}.{name}"), &[], kind, Unit::None)?)
        });
        let series: Result<Vec<_>, _> = series.collect();
        self.due.push(Reverse((node.next_deadline_ns(), self.ranks.len())));
        self.ranks.push(Synthetic { node, series: series?, turn: 0 });
        Ok(())
    }

    /// Lets time pass: seals and sends what is due, and takes answers.
    pub(crate) fn play(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            let now = self.now();
            match self.due.peek() {
                Some(&Reverse((at_ns, rank))) if at_ns <= now.mono_ns => {
                    self.due.pop();
                    self.sent.late = self.sent.late.max(Duration::from_nanos(now.mono_ns - at_ns));
                    self.measure(rank);
                    self.ranks[rank].node.tick(now);
                    self.due.push(Reverse((self.ranks[rank].node.next_deadline_ns(), rank)));
                    self.transmit(rank)?;
                    if self.flights.len() >= WINDOW {
                        self.take_answer()?;
                    }
                }
                _ if !self.flights.is_empty() => self.take_answer()?,
                next => {
                    let next_ns = next.map_or(u64::MAX, |next| next.0.0);
                    let wait = Duration::from_nanos(next_ns.saturating_sub(now.mono_ns));
                    std::thread::sleep(wait.min(end.saturating_duration_since(Instant::now())));
                }
            }
        }
        Ok(())
    }

    /// Some series gain something.
    fn measure(&mut self, rank: usize) {
        let Synthetic { node, series, turn } = &mut self.ranks[rank];
        let count = self.changing.min(series.len());
        for step in 0..count {
            let place = (*turn + step) % series.len();
            let amount = 1 + ((place + rank) % 1000) as i64;
            match place as u32 % OF_MODULE {
                8 => node.set(series[place], Some(Amount::whole(amount.into()))),
                9 => {
                    let mut samples = Samples::default();
                    samples.add(amount.unsigned_abs() * 1000, 3);
                    node.observe(series[place], &samples);
                }
                _ => {
                    node.add(series[place], Amount::whole(amount.into()));
                    self.pushed += amount;
                }
            }
        }
        *turn = (*turn + count) % series.len().max(1);
        self.sent.values += count as u64;
    }

    fn transmit(&mut self, rank: usize) -> Result<()> {
        let now = self.now();
        let node = &mut self.ranks[rank].node;
        if let Some(transmit) = node.poll_transmit(now) {
            node.sent_to(transmit.token, 0);
            let payload = Payload::Raw(&transmit.payload);
            let rpc = self.client.rpc(&self.topic, payload, flux::Node::Rank(0))?;
            self.sent.batches += 1;
            self.sent.bytes += transmit.payload.len() as u64;
            self.flights.push_back(Flight { rank, token: transmit.token, sent: Instant::now(), rpc });
        }
        Ok(())
    }

    /// The outcome of the oldest request.
    fn take_answer(&mut self) -> Result<()> {
        let Some(flight) = self.flights.pop_front() else { return Ok(()) };
        let outcome = flight.rpc.wait(TIMEOUT);
        self.sent.answered += 1;
        self.sent.waited_s += flight.sent.elapsed().as_secs_f64();
        let node = &mut self.ranks[flight.rank].node;
        match outcome {
            Ok(reply) => node.handle_response(flight.token, Ok(reply.raw())),
            Err(error) => {
                node.handle_response(flight.token, Err(SendFailure::Refused));
                self.refuse(&error);
            }
        }
        self.transmit(flight.rank)
    }

    fn refuse(&mut self, error: &Error) {
        if self.refused == 0 {
            self.first_refusal = format!(
                "{error} (rank 0 takes ranks beyond the size of the instance only up to test-ranks=N)"
            );
        }
        self.refused += 1;
    }

    /// All ranks unload: what is left is flushed, and what they showed is withdrawn.
    pub(crate) fn leave(&mut self) -> Result<()> {
        while !self.flights.is_empty() {
            self.take_answer()?;
        }
        for rank in 0..self.ranks.len() {
            let now = self.now();
            self.ranks[rank].node.begin_unload(now);
            self.transmit(rank)?;
            while self.flights.len() >= WINDOW {
                self.take_answer()?;
            }
        }
        while !self.flights.is_empty() {
            self.take_answer()?;
        }
        Ok(())
    }
}
