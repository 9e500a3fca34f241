//! Counts known numbers for a while, and says what it counted.
//!
//! `push MODE SECONDS TAG`: MODE is `reactor` (counts from a timer of the handle's reactor), `plain` (no reactor runs) or
//! `once` (counts and exits at once). It prints `{"count":…,"samples":…}`: what `push.count`, with the tag `by=TAG`, has
//! to be, and how many samples `push.wait_s` has to have.

use flux_metrics::{Counter, Metrics, Timer};
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How often something is counted.
const BEAT: Duration = Duration::from_millis(10);

struct Counting {
    count: Counter,
    wait: Timer,
    counted: Cell<i64>,
    beats: Cell<u64>,
}

impl Counting {
    fn beat(&self) {
        let n = 1 + self.counted.get() % 7;
        self.count.add(n);
        self.wait.record(Duration::from_millis(5));
        self.counted.set(self.counted.get() + n);
        self.beats.set(self.beats.get() + 1);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, seconds, tag] = arguments.as_slice() else { return Err("push MODE SECONDS TAG".into()) };
    let time = Duration::from_secs_f64(seconds.parse()?);
    let client = Rc::new(flux::Client::open(None)?);
    let metrics = Metrics::of(&client)?.prefixed("push")?.tagged(&[("by", tag)])?;
    let (count, wait) = (metrics.counter("count")?, metrics.timer("wait_s")?);
    let counting = Rc::new(Counting { count, wait, counted: Cell::new(0), beats: Cell::new(0) });
    let start = Instant::now();
    match mode.as_str() {
        "reactor" => {
            let (beats, stop) = (counting.clone(), Rc::downgrade(&client));
            let timer = client.timer(BEAT, BEAT, move || {
                beats.beat();
                if start.elapsed() >= time
                    && let Some(client) = stop.upgrade()
                {
                    // It can only fail without a reactor.
                    let _ = client.stop();
                }
            })?;
            client.run()?;
            drop(timer);
        }
        "plain" => {
            while start.elapsed() < time {
                counting.beat();
                std::thread::sleep(BEAT);
            }
        }
        "once" => counting.beat(),
        other => return Err(format!("{other}: expected reactor, plain or once").into()),
    }
    println!("{{\"count\":{},\"samples\":{}}}", counting.counted.get(), counting.beats.get());
    // Closing the client delivers what is left.
    Ok(())
}
