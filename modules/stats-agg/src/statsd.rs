//! The statsd listener of this rank: sockets as they are configured, and what arrived at them into the node.

use crate::config::Config;
use flux::{Error, Level, Scope};
use serde_json::{Value, json};
use stats_core::Node;
use stats_ingest::{Address, Limits, Listener, OpenError, Recorder};
use std::path::PathBuf;

/// One of so many parts of `max-series` is the room of what statsd clients send to a rank.
const SHARE: usize = 2;

/// See the module's description.
#[derive(Default)]
pub(crate) struct Statsd {
    listener: Option<Listener>,
    recorder: Recorder,
    /// Failures and taken addresses that were logged.
    failures: u64,
    taken: Vec<Address>,
}

fn limits(config: &Config) -> Limits {
    Limits { series: config.max_series / SHARE, tags: config.max_tags, ttl: config.ttl }
}

/// Where `unix:` is. Brokers of a test instance share a rundir, hence the rank.
fn default_path<T: 'static>(scope: &Scope<T>, rank: u32) -> Result<PathBuf, Error> {
    let rundir = scope.attribute("rundir").map(PathBuf::from);
    let rundir = rundir.ok_or_else(|| Error::invalid("statsd: this broker has no rundir"))?;
    Ok(rundir.join(format!("{}.{rank}.statsd", scope.name())))
}

impl Statsd {
    /// Listens where `config` says, and nowhere else. On an error all is as it was.
    pub(crate) fn configure<T: 'static>(
        &mut self,
        scope: &Scope<T>,
        node: &mut Node,
        config: &Config,
    ) -> Result<(), Error> {
        if config.statsd.is_empty() {
            self.end(node);
            return Ok(());
        }
        let (rank, limits) = (node.config().rank, limits(config));
        let refused = |error: OpenError| {
            let errnum = match &error {
                OpenError::System { error, .. } | OpenError::Thread(error) => error.raw_os_error(),
                OpenError::Taken(_) => Some(libc::EADDRINUSE),
            };
            Error::new(errnum.unwrap_or(libc::EINVAL), format!("statsd: {error}"))
        };
        match &mut self.listener {
            Some(listener) => listener.reconfigure(&config.statsd, limits).map_err(refused)?,
            None => {
                let path = default_path(scope, rank)?;
                self.listener = Some(Listener::start(&config.statsd, path, limits).map_err(refused)?);
            }
        }
        self.log(scope);
        Ok(())
    }

    /// Says what is new: addresses that others hold, and failures of ours.
    fn log<T: 'static>(&mut self, scope: &Scope<T>) {
        let Some(listener) = &self.listener else { return };
        for address in listener.taken().iter().filter(|address| !self.taken.contains(address)) {
            let text =
                format!("statsd: {}; it is tried again now and then", OpenError::Taken(address.clone()));
            scope.log(Level::Notice, &text);
        }
        self.taken = listener.taken().to_vec();
        if listener.failures() > self.failures {
            self.failures = listener.failures();
            scope.log(
                Level::Err,
                "statsd: the listener's thread failed, and began anew without what it had added up",
            );
        }
    }

    /// Records what arrived since the last time.
    pub(crate) fn record<T: 'static>(&mut self, scope: &Scope<T>, node: &mut Node) {
        let Some(listener) = &mut self.listener else { return };
        listener.take().into_iter().for_each(|hand_over| self.recorder.record(node, hand_over));
        self.recorder.record_sockets(node, listener.bound().len(), listener.taken().len());
        self.log(scope);
    }

    /// Ends the listener, and records what it still had.
    pub(crate) fn end(&mut self, node: &mut Node) {
        if let Some(listener) = self.listener.take() {
            listener.stop().into_iter().for_each(|hand_over| self.recorder.record(node, hand_over));
            self.recorder.end(node);
            *self = Statsd::default();
        }
    }

    /// For an answer: where it listens, and the last line that it could not read. Null: it does not listen.
    pub(crate) fn describe(&self) -> Value {
        let Some(listener) = &self.listener else { return Value::Null };
        let texts = |addresses: &[Address]| addresses.iter().map(Address::to_string).collect::<Vec<_>>();
        json!({
            "listening": texts(listener.bound()),
            "taken": texts(listener.taken()),
            "last_bad_line":
                self.recorder.last_bad().map(|line| json!({
                    "reason": line.bad.name(), "expected": line.bad.expected(), "line": line.text
                })),
        })
    }
}
