//! `flux stats send`: metrics from a shell, to the broker's own stats-agg.

use crate::instance::{self, Instance, Reach};
use crate::outcome::{Ended, Failure, Outcome, complain};
use clap::{Args, ValueEnum};
use flux::Payload;
use serde_json::{Map, Value, json};
use stats_core::{Metric, PUSH_METRICS_MAX, PUSH_VERSION, refusal_text};
use stats_ingest::{HandOver, Limits, Pushing, Shard};
use std::io::{BufRead, BufReader};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How often what is read is sent on.
const PERIOD: Duration = Duration::from_secs(1);
/// Series that one run tells apart.
const SERIES_MAX: usize = 100_000;
/// Lines that wait to be added up.
const WAITING_MAX: usize = 4096;

/// Send a metric, or statsd lines from standard input, to this broker's stats-agg
///
/// It is merged over all ranks with everything else. Other users than the instance owner may send where the module has
/// guest-push=true, and get the prefix guests.UID. Where the module is not loaded a metric is an error; lines that are read
/// are kept and sent when it is, and are an error only if it is not by their end.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flux stats send app.runs 1\n  flux stats send app.depth 17 -t g --tag queue=batch\n  \
                        flux stats send app.fetch_s 12.5 -t ms\n  tail -f statsd.log | flux stats send -"
)]
pub(crate) struct Options {
    /// The name: dotted words of A-Z a-z 0-9 _ -; or `-` for lines NAME:VALUE|TYPE on standard input
    name: String,
    /// A number; for a set, the member
    #[arg(allow_hyphen_values = true)]
    value: Option<String>,
    /// What kind of metric it is
    #[arg(short = 't', long = "type", value_enum, default_value = "c")]
    kind: Kind,
    /// A tag; may be given several times
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = tag)]
    tags: Vec<(String, String)>,
    /// Change the gauge by VALUE instead of setting it
    #[arg(long)]
    add: bool,
    /// After which time the gauge is gone unless it is sent again (the module's `ttl`)
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    ttl: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Kind {
    /// Counter: VALUE is added
    #[value(alias = "counter")]
    C,
    /// Gauge: VALUE is set
    #[value(alias = "gauge")]
    G,
    /// Timer: VALUE is in milliseconds
    #[value(alias = "timer")]
    Ms,
    /// Set: VALUE is a member
    #[value(alias = "set")]
    S,
    /// Histogram: VALUE is a number that is no duration, such as bytes; shown as a timer without a unit
    #[value(alias = "histogram")]
    H,
}

fn duration(text: &str) -> Result<Duration, String> {
    flux::parse_duration("ttl", text).map_err(|error| error.to_string())
}

fn tag(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, value)| !key.is_empty() && !value.is_empty());
    pair.map(|(key, value)| (key.to_owned(), value.to_owned())).ok_or_else(|| "expected KEY=VALUE".to_owned())
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("VALUE is missing: flux stats send NAME VALUE")]
    NoValue,
    #[error("VALUE {0:?}: expected a number")]
    Number(String),
    #[error("--add and --ttl are for gauges (-t g)")]
    NoGauge,
    #[error("{0}")]
    Instance(#[from] instance::Error),
    #[error("{0}")]
    Flux(#[from] flux::Error),
    #[error("reading standard input: {0}")]
    Input(std::io::Error),
    #[error("{0} metrics were refused, the first: {1}")]
    Refused(u64, String),
    #[error("{bad} of {lines} lines could not be read, {refused} were refused; {last}")]
    Lines { lines: u64, bad: u64, refused: u64, last: String },
}

pub(crate) fn run(options: &Options, reach: &Reach) -> Ended {
    if options.name == "-" {
        let mut sender = Sender::new(reach)?;
        send_lines(BufReader::new(std::io::stdin()), &mut sender)?;
        return Ok(Outcome::Done);
    }
    // What is wrong is said before anybody is asked.
    let metric = metric(options).map_err(|error| Failure::usage(error.to_string()))?;
    Sender::new(reach)?.push(vec![metric])?;
    Ok(Outcome::Done)
}

fn metric(options: &Options) -> Result<Value, Error> {
    if options.kind != Kind::G && (options.add || options.ttl.is_some()) {
        return Err(Error::NoGauge);
    }
    let value = options.value.as_deref().ok_or(Error::NoValue)?;
    let tags: Map<String, Value> =
        options.tags.iter().cloned().map(|(key, value)| (key, value.into())).collect();
    let (kind, field, value) = match options.kind {
        Kind::C => ("counter", "value", number(value)?),
        Kind::G => ("gauge", if options.add { "add" } else { "value" }, number(value)?),
        Kind::Ms => ("timer", "samples", json!([number(value)?.as_f64().unwrap_or_default() / 1000.0])),
        Kind::H => ("histogram", "samples", json!([number(value)?])),
        Kind::S => ("set", "members", json!([value])),
    };
    let mut metric = json!({ "name": options.name, "tags": tags, "type": kind, field: value });
    if let Some(ttl) = options.ttl {
        metric["ttl"] = ttl.as_secs_f64().into();
    }
    Ok(metric)
}

fn number(text: &str) -> Result<Value, Error> {
    if let Ok(whole) = text.parse::<i64>() {
        return Ok(whole.into());
    }
    let real = text.parse::<f64>().ok().filter(|real| real.is_finite());
    real.map(Value::from).ok_or_else(|| Error::Number(text.to_owned()))
}

/// Where pushes go.
trait Push {
    fn push(&mut self, metrics: Vec<Value>) -> Result<(), Error>;
}

/// Pushes to this broker, numbered so that a repeat would count once.
struct Sender {
    instance: Instance,
    rank: u32,
    id: String,
    seq: u64,
}

impl Sender {
    fn new(reach: &Reach) -> Result<Self, Error> {
        let instance = reach.connect()?;
        let rank = instance.client().rank()?;
        let random = getrandom::u64().map_err(|error| flux::Error::new(5, error.to_string()))?;
        Ok(Sender { instance, rank, id: format!("{random:016x}"), seq: 0 })
    }
}

impl Push for Sender {
    fn push(&mut self, metrics: Vec<Value>) -> Result<(), Error> {
        self.seq += 1;
        let count = metrics.len() as u64;
        let push = json!({ "version": PUSH_VERSION, "id": self.id, "seq": self.seq, "metrics": metrics });
        let receipt = self.instance.request("stats-agg.push", Payload::Json(&push), self.rank)?.json()?;
        match receipt["refused"].get(0) {
            None => Ok(()),
            Some(first) => {
                let accepted = receipt["accepted"].as_u64().unwrap_or(0);
                let text = |key: &str| first[key].as_str().unwrap_or("?");
                let first = refusal_text(text("name"), text("reason"));
                Err(Error::Refused(count.saturating_sub(accepted), first))
            }
        }
    }
}

/// Adds lines up and sends what there is once a second. What cannot be read is counted, and is an error in the end.
fn send_lines(input: impl BufRead + Send + 'static, sender: &mut impl Push) -> Result<(), Error> {
    let (lines, waiting) = mpsc::sync_channel(WAITING_MAX);
    // It ends with the input, or with this process.
    std::thread::spawn(move || {
        for line in input.split(b'\n') {
            let failed = line.is_err();
            if lines.send(line).is_err() || failed {
                return;
            }
        }
    });
    let mut shard = Shard::new(Limits { series: SERIES_MAX, tags: 16, ttl: Duration::from_secs(86_400) });
    let mut adding = Adding::default();
    let mut due = Instant::now() + PERIOD;
    loop {
        let ended = match waiting.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                shard.receive(&line.map_err(Error::Input)?);
                false
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => true,
        };
        if ended {
            adding.send_rest(&mut shard, sender)?;
            return adding.end();
        }
        if Instant::now() >= due {
            due = Instant::now() + PERIOD;
            adding.send(&mut shard, sender)?;
        }
    }
}

/// What was handed over so far.
#[derive(Default)]
struct Adding {
    pushing: Pushing,
    /// What was not taken, for the module was not loaded.
    kept: Vec<Value>,
    /// That was said.
    complained: bool,
    lines: u64,
    bad: u64,
    refused: u64,
    last: String,
}

impl Adding {
    /// Sends what there is. While the module is not loaded it is kept, and the shard goes on adding up.
    fn send(&mut self, shard: &mut Shard, sender: &mut impl Push) -> Result<(), Error> {
        match self.send_rest(shard, sender) {
            Err(Error::Instance(error @ instance::Error::Absent { .. })) => {
                if !std::mem::replace(&mut self.complained, true) {
                    complain(&format!("{error}; what is read is kept until then"));
                }
                Ok(())
            }
            sent => {
                self.complained = false;
                sent
            }
        }
    }

    fn send_rest(&mut self, shard: &mut Shard, sender: &mut impl Push) -> Result<(), Error> {
        self.push(sender)?;
        self.take(shard.hand_over());
        self.push(sender)
    }

    fn take(&mut self, hand_over: HandOver) {
        self.lines += hand_over.counts.lines;
        self.bad += hand_over.counts.bad.iter().sum::<u64>();
        self.refused += hand_over.refused.iter().map(|refused| refused.lines).sum::<u64>();
        if let Some(refused) = hand_over.refused.last() {
            self.last = format!("the last: {}: {}", refused.prefix, refused.refusal.text());
        }
        if let Some(bad) = hand_over.last_bad {
            self.last = format!("the last: {:?}: expected {}", bad.text, bad.bad.expected());
        }
        let metrics = self.pushing.metrics(hand_over.changes);
        self.kept = metrics.iter().map(Metric::to_json).collect();
    }

    fn push(&mut self, sender: &mut impl Push) -> Result<(), Error> {
        while !self.kept.is_empty() {
            let some = self.kept.len().min(PUSH_METRICS_MAX);
            sender.push(self.kept[..some].to_vec())?;
            self.kept.drain(..some);
        }
        Ok(())
    }

    fn end(self) -> Result<(), Error> {
        if self.bad + self.refused == 0 {
            return Ok(());
        }
        let (lines, bad, refused, last) = (self.lines, self.bad, self.refused, self.last);
        Err(Error::Lines { lines, bad, refused, last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn of(words: &[&str]) -> Result<Value, Error> {
        metric(&Line::try_parse_from([&["send"], words].concat()).unwrap().options)
    }

    #[test]
    fn a_metric_is_what_the_words_say() {
        let counter = json!({ "name": "a.b", "tags": { "k": "v=w" }, "type": "counter", "value": -3 });
        assert_eq!(of(&["a.b", "-3", "--tag", "k=v=w"]).unwrap(), counter);
        assert_eq!(of(&["a", "1.5"]).unwrap()["value"], 1.5);
        let gauge = json!({ "name": "a", "tags": {}, "type": "gauge", "add": 2, "ttl": 5.0 });
        assert_eq!(of(&["a", "2", "-t", "g", "--add", "--ttl", "5"]).unwrap(), gauge);
        assert_eq!(of(&["a", "250", "-t", "ms"]).unwrap()["samples"], json!([0.25]));
        assert_eq!(of(&["a", "7", "--type", "histogram"]).unwrap()["samples"], json!([7]));
        assert_eq!(of(&["a", "x y", "-t", "s"]).unwrap()["members"], json!(["x y"]));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused = |words: &[&str]| of(words).unwrap_err().to_string();
        assert_eq!(refused(&["a", "x"]), "VALUE \"x\": expected a number");
        assert_eq!(refused(&["a", "NaN"]), "VALUE \"NaN\": expected a number");
        assert_eq!(refused(&["a", "1", "--add"]), "--add and --ttl are for gauges (-t g)");
        assert_eq!(refused(&["a"]), "VALUE is missing: flux stats send NAME VALUE");
        for words in [&["send", "a", "1", "-t", "x"][..], &["send", "a", "1", "--tag", "k"], &["send"]] {
            assert!(Line::try_parse_from(words).is_err(), "{words:?}");
        }
    }

    /// Where the module is not loaded for the first pushes.
    struct Away(u32, Kept);

    impl Push for Away {
        fn push(&mut self, metrics: Vec<Value>) -> Result<(), Error> {
            if self.0 == 0 {
                return self.1.push(metrics);
            }
            self.0 -= 1;
            Err(instance::Error::Absent { rank: 0, uri: None }.into())
        }
    }

    #[test]
    fn lines_wait_for_the_module_and_are_lost_with_an_error_alone() {
        let mut shard = Shard::new(Limits { series: 10, tags: 16, ttl: PERIOD });
        let (mut adding, mut away) = (Adding::default(), Away(2, Kept::default()));
        for _ in 0..3 {
            shard.receive(b"a:1|c");
            adding.send(&mut shard, &mut away).unwrap();
        }
        let total: i64 = away.1.0.iter().flatten().map(|metric| metric["value"].as_i64().unwrap()).sum();
        assert_eq!(total, 3);
        let error = send_lines("a:1|c".as_bytes(), &mut Away(2, Kept::default())).unwrap_err().to_string();
        assert!(error.starts_with("stats-agg is not loaded on rank 0"), "{error}");
    }

    #[derive(Default)]
    struct Kept(Vec<Vec<Value>>);

    impl Push for Kept {
        fn push(&mut self, metrics: Vec<Value>) -> Result<(), Error> {
            self.0.push(metrics);
            Ok(())
        }
    }

    #[test]
    fn lines_are_added_up_and_what_cannot_be_read_is_said() {
        let mut kept = Kept::default();
        let lines = "a:1|c\na:2|c|#k:v\n\na:4|c\nt:250|ms\ng:5|g\ng:-2|g\ns:x|s\r\na:8|c";
        send_lines(lines.as_bytes(), &mut kept).unwrap();
        let found: Vec<(&str, &Value)> = kept
            .0
            .iter()
            .flatten()
            .map(|metric| (metric["name"].as_str().unwrap(), &metric["value"]))
            .collect();
        assert_eq!(found[0], ("a", &json!(13)));
        assert_eq!(found.iter().find(|(name, _)| *name == "g").unwrap().1, &json!(3));
        assert_eq!(kept.0.iter().flatten().filter(|metric| metric["type"] == "timer").count(), 1);
        let error =
            send_lines("a:1|c\nnonsense\nmodules.x:1|c".as_bytes(), &mut kept).unwrap_err().to_string();
        assert_eq!(
            error,
            "1 of 3 lines could not be read, 1 were refused; the last: \"nonsense\": expected NAME:VALUE|TYPE"
        );
        let error = send_lines("modules.x:1|c".as_bytes(), &mut kept).unwrap_err().to_string();
        assert!(
            error.ends_with("the last: modules: names that begin like this are the service's own"),
            "{error}"
        );
        assert_eq!(kept.0.last().unwrap()[0]["value"], 1);
        // A histogram is one, and no timer.
        send_lines("h:1.5|h".as_bytes(), &mut kept).unwrap();
        assert_eq!(kept.0.last().unwrap()[0]["type"], "histogram");
    }
}
