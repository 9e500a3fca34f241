//! The instance that is asked.

use crate::answer::Answer;
use crate::outcome::complain;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use flux::{Client, Node, Payload, Reply, Stream};
use serde::Serialize;
use std::io;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use wait_timeout::ChildExt;

/// How long rank 0 may take to answer: three seconds of it are for ranks that it asks itself.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A resolver may have to ask a batch system, too.
const RESOLVED_WITHIN: Duration = Duration::from_secs(30);
/// What it is asked.
const QUERY: &str = "stats-agg.query";
/// URIs of libflux's own.
const LOCAL: &str = "local://";
const SSH: &str = "ssh://";
/// The rank that knows all of them.
const ROOT: u32 = 0;

/// Which instance.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct Reach {
    /// The instance: local:// or ssh:// URI, or whatever `flux uri` resolves, such as a job's id [default: FLUX_URI]
    #[arg(value_parser = NonEmptyStringValueParser::new(), long, global = true, value_name = "URI", help_heading = "Instance")]
    uri: Option<String>,
}

/// An instance that cannot be asked, or does not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{0}: is this a node of a running instance? Else name one with --uri")]
    NoInstance(flux::Error),
    #[error(
        "--uri {target}: {reason}; expected local:// or ssh://, or what `flux uri` resolves, such as the id of a running \
         batch job or allocation"
    )]
    Unresolved { target: String, reason: String },
    #[error(
        "--uri {target}: {reason}: it is reached by ssh; where that is not possible, run this on its node, with --uri \
         \"$(flux uri --local {target})\""
    )]
    NoSsh { target: String, reason: flux::Error },
    #[error("stats-agg is not loaded on rank {rank}{}: run `flux stats load`{}", part(*.rank), at(.uri.as_deref()))]
    Absent { rank: u32, uri: Option<String> },
    #[error("{0}")]
    Question(String),
    #[error(
        "rank {rank} has not answered within {} s: try again, or `flux stats peek` on its node",
        TIMEOUT.as_secs()
    )]
    Silent { rank: u32 },
    #[error(
        "{broker} has not answered within {} s: try again, or `flux stats peek` on its node",
        TIMEOUT.as_secs()
    )]
    Stopped { broker: String },
    #[error("the instance's owner alone may do that{}", guests(.topic))]
    Denied { topic: String },
    #[error("the answer of rank {rank} cannot be read: {reason}")]
    Answer { rank: u32, reason: String },
    #[error("{0}")]
    Flux(#[from] flux::Error),
}

/// Why that rank is asked, whichever ranks are asked about.
fn part(rank: u32) -> &'static str {
    if rank == ROOT { ", which answers for all ranks" } else { "" }
}

fn at(uri: Option<&str>) -> String {
    uri.map(|uri| format!(" (with --uri {uri})")).unwrap_or_default()
}

/// What lets others do it.
fn guests(topic: &str) -> &'static str {
    match topic {
        QUERY => ": guests are answered where stats-agg has guest-query=true",
        "stats-agg.push" => ": guests may push where stats-agg has guest-push=true",
        _ => "",
    }
}

impl Reach {
    /// How the instance is named: by option, else by the environment.
    pub(crate) fn uri(&self) -> Option<String> {
        self.uri.clone().or_else(|| std::env::var("FLUX_URI").ok())
    }

    pub(crate) fn connect(&self) -> Result<Instance, Error> {
        let uri = self.uri.as_deref().map(resolve).transpose()?;
        greeted(uri.clone().or_else(|| self.uri()))?;
        let waiting = uri.as_ref().filter(|uri| uri.starts_with(SSH)).map(|uri| told_if_slow(uri));
        // <errno.h>: no libflux, of which the error says all.
        const ELIBACC: i32 = 79;
        let client =
            Client::open(uri.as_deref()).map_err(|error| match (error.errnum(), &self.uri, &uri) {
                (ELIBACC, ..) => Error::Flux(error),
                (_, Some(target), Some(uri)) if uri.starts_with(SSH) => {
                    Error::NoSsh { target: target.clone(), reason: error }
                }
                _ => Error::NoInstance(error),
            })?;
        drop(waiting);
        Ok(Instance { client, uri: self.uri.clone() })
    }
}

/// Says what is waited for, unless what is returned is dropped soon: ssh may ask for a password, and is not to be hurried.
fn told_if_slow(uri: &str) -> mpsc::Sender<()> {
    let (here, gone) = mpsc::channel();
    let line = format!("waiting for ssh to reach {uri}; Ctrl-C ends that");
    std::thread::spawn(move || {
        if let Err(RecvTimeoutError::Timeout) = gone.recv_timeout(TIMEOUT) {
            complain(&line);
        }
    });
    here
}

/// Whether the broker of that socket lets anybody in, which libflux waits for without end: on a thread that may be left
/// behind, for handles cannot be passed on. Whether it can be connected to is for libflux to say. By ssh it would be asked
/// for passwords twice.
fn greeted(uri: Option<String>) -> Result<(), Error> {
    if uri.as_ref().is_some_and(|uri| uri.starts_with(SSH)) {
        return Ok(());
    }
    let (done, waiting) = mpsc::channel();
    let socket = uri.clone();
    std::thread::spawn(move || {
        drop(Client::open(socket.as_deref()));
        // Who waits may have given up.
        let _ = done.send(());
    });
    match waiting.recv_timeout(TIMEOUT) {
        Err(RecvTimeoutError::Timeout) => {
            let broker = uri.map_or("this node's broker".to_owned(), |uri| format!("the broker at {uri}"));
            Err(Error::Stopped { broker })
        }
        _ => Ok(()),
    }
}

/// A URI that libflux can open. Others than its own are `flux uri`'s to resolve, as everywhere in Flux.
fn resolve(target: &str) -> Result<String, Error> {
    if [LOCAL, SSH].iter().any(|scheme| target.starts_with(scheme)) {
        return Ok(target.to_owned());
    }
    let unresolved = |reason: String| Error::Unresolved { target: target.to_owned(), reason };
    let mut resolver = Command::new("flux");
    resolver.args(["uri", "--", target]);
    let output = output_within(resolver, RESOLVED_WITHIN)
        .map_err(|error| unresolved(format!("running `flux uri`: {error}")))?;
    let last_line =
        |text: &[u8]| String::from_utf8_lossy(text).trim().lines().last().unwrap_or("").to_owned();
    if output.status.success() {
        let uri = last_line(&output.stdout);
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Ok(on_this_host(&uri, host.trim()).unwrap_or(uri))
    } else {
        Err(unresolved(last_line(&output.stderr)))
    }
}

/// What a command writes, which is ended where that takes too long: `flux uri` may ask a broker that is stopped.
fn output_within(mut command: Command, limit: Duration) -> io::Result<Output> {
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn()?;
    if child.wait_timeout(limit)?.is_none() {
        child.kill()?;
        child.wait()?;
        let text = format!("it has not ended within {} s", limit.as_secs_f64());
        return Err(io::Error::new(io::ErrorKind::TimedOut, text));
    }
    child.wait_with_output()
}

/// The same without ssh, where that would lead to the host that this is.
fn on_this_host(uri: &str, host: &str) -> Option<String> {
    let path = uri.strip_prefix(SSH)?.strip_prefix(host)?;
    (!host.is_empty() && path.starts_with('/')).then(|| format!("{LOCAL}{path}"))
}

/// What is asked of stats-agg: its request, as docs/settings.md documents it.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Question {
    /// Patterns; empty: all series.
    #[serde(rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub(crate) patterns: Vec<String>,
    pub(crate) by: By,
    /// Which ranks are asked, an idset; with [`By::Rank`] alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ranks: Option<String>,
    /// Seconds of history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<f64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream: bool,
}

/// How an answer is split up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum By {
    /// Not: one number for the instance
    #[default]
    None,
    /// What each rank measured itself
    Rank,
    /// One number for each child of rank 0
    Subtree,
}

impl Question {
    pub(crate) fn new<P: Into<String>>(patterns: impl IntoIterator<Item = P>) -> Self {
        Question { patterns: patterns.into_iter().map(Into::into).collect(), ..Question::default() }
    }

    /// With what was gained in the last so many seconds.
    pub(crate) fn since(mut self, seconds: f64) -> Self {
        self.since = Some(seconds);
        self
    }

    pub(crate) fn by(mut self, by: By) -> Self {
        self.by = by;
        self
    }

    /// Of these ranks, an idset; with [`By::Rank`].
    pub(crate) fn ranks(mut self, ranks: &str) -> Self {
        self.ranks = Some(ranks.to_owned());
        self
    }

    /// What the module would refuse of it, in the words of a command line.
    pub(crate) fn check(&self) -> Result<(), String> {
        let payload = serde_json::to_value(self).unwrap_or_default();
        let checked = stats_core::Query::parse(&payload).map(drop).map_err(|error| error.to_string());
        checked.map_err(|why| match why.strip_prefix("match: ") {
            Some(why) => format!("PATTERN {why}"),
            None => why,
        })
    }

    fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Who answers questions: an instance, or what plays one.
pub(crate) trait Ask {
    /// The number of brokers.
    fn size(&self) -> Result<u32, Error>;

    /// The answer of rank 0, as it came.
    fn ask_text(&self, question: &Question) -> Result<String, Error>;

    /// The answer of rank 0.
    fn ask(&self, question: &Question) -> Result<Answer, Error> {
        parsed(&self.ask_text(question)?)
    }
}

impl Ask for Instance {
    fn size(&self) -> Result<u32, Error> {
        Ok(self.client.size()?)
    }

    fn ask_text(&self, question: &Question) -> Result<String, Error> {
        Instance::ask_text(self, question)
    }
}

/// A connection to an instance.
pub(crate) struct Instance {
    client: Client,
    /// As it was named, for hints.
    uri: Option<String>,
}

impl Instance {
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The answer of rank 0, as it came.
    pub(crate) fn ask_text(&self, question: &Question) -> Result<String, Error> {
        let reply = self.request(QUERY, Payload::Text(&question.text()), ROOT)?;
        Ok(reply.text()?.to_owned())
    }

    /// The answer of rank 0.
    pub(crate) fn ask(&self, question: &Question) -> Result<Answer, Error> {
        parsed(&self.ask_text(question)?)
    }

    /// The answer of stats-agg on `rank` to a request, whose failure says what to do.
    pub(crate) fn request(&self, topic: &str, payload: Payload<'_>, rank: u32) -> Result<Reply, Error> {
        let sent = self.client.rpc(topic, payload, Node::Rank(rank))?;
        sent.wait(TIMEOUT).map_err(|error| self.refused(error, topic, rank))
    }

    /// An answer for each period to come, the first at once.
    pub(crate) fn watch(&self, question: &Question) -> Result<Watch<'_>, Error> {
        let question = Question { stream: true, ..question.clone() };
        Ok(Watch { stream: self.open(&question)?, instance: self, question })
    }

    fn open(&self, question: &Question) -> Result<Stream<'_>, Error> {
        Ok(self.client.stream(QUERY, Payload::Text(&question.text()), Node::Rank(ROOT))?)
    }

    fn refused(&self, error: flux::Error, topic: &str, rank: u32) -> Error {
        // <errno.h>; what flux(3) functions and RFC 6 return.
        const EPERM: i32 = 1;
        const EINVAL: i32 = 22;
        const ENOSYS: i32 = 38;
        const ETIMEDOUT: i32 = 110;
        match error.errnum() {
            ENOSYS => Error::Absent { rank, uri: self.uri.clone() },
            EPERM => Error::Denied { topic: topic.to_owned() },
            EINVAL => Error::Question(error.to_string()),
            ETIMEDOUT => Error::Silent { rank },
            _ => Error::Flux(error),
        }
    }
}

/// An answer of rank 0.
pub(crate) fn parsed(text: &str) -> Result<Answer, Error> {
    serde_json::from_str(text).map_err(|error| Error::Answer { rank: ROOT, reason: error.to_string() })
}

/// Answers, one a period.
pub(crate) struct Watch<'i> {
    instance: &'i Instance,
    question: Question,
    stream: Stream<'i>,
}

impl Watch<'_> {
    /// Waits for the next answer, at most `timeout`; `None`: there was none in that time.
    pub(crate) fn next_text(&mut self, timeout: Duration) -> Result<Option<String>, Error> {
        const ETIMEDOUT: i32 = 110;
        match self.stream.next(timeout) {
            Ok(Some(reply)) => Ok(Some(reply.text()?.to_owned())),
            // A stream ends when it has sent its share, so that one who does not read holds no memory: ask again.
            Ok(None) => {
                self.stream = self.instance.open(&self.question)?;
                Ok(None)
            }
            Err(error) if error.errnum() == ETIMEDOUT => Ok(None),
            Err(error) => Err(self.instance.refused(error, QUERY, ROOT)),
        }
    }

    /// The same, read.
    pub(crate) fn next(&mut self, timeout: Duration) -> Result<Option<Answer>, Error> {
        self.next_text(timeout)?.map(|text| parsed(&text)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resolver_that_does_not_end_is_ended() {
        let mut sleeper = Command::new("sleep");
        sleeper.arg("1000");
        let error = output_within(sleeper, Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        let mut speaker = Command::new("echo");
        speaker.arg("local:///x");
        assert_eq!(output_within(speaker, RESOLVED_WITHIN).unwrap().stdout, b"local:///x\n");
    }

    #[test]
    fn a_job_on_this_host_is_reached_without_ssh() {
        let local = |uri| on_this_host(uri, "n1");
        assert_eq!(local("ssh://n1/run/flux/local-0").as_deref(), Some("local:///run/flux/local-0"));
        for other in
            ["ssh://n12/run/flux/local-0", "ssh://me@n1/run/flux/local-0", "local:///run/flux/local-0"]
        {
            assert_eq!(local(other), None, "{other}");
        }
        assert_eq!(on_this_host("ssh:///run", ""), None);
    }
}
