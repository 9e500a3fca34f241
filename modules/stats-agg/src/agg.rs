//! The module: what it holds, and its life.

use crate::ancestors::Ancestors;
use crate::collect::{Collect, place};
use crate::config::{Config, ProbeMode};
use crate::cost::Cost;
use crate::custody::{CustodyFile, Found, Left};
use crate::exports::Exports;
use crate::left::{self, split};
use crate::measure::Measure;
use crate::methods;
use crate::own_reactor::OwnReactor;
use crate::questions::Questions;
use crate::stall::Notice;
use crate::statsd::Statsd;
use crate::upstream::InFlight;
use flux::{Error, Level, Method, Module, Node as To, Payload, PendingRpc, Scope, Watcher};
use serde_json::Value;
use stats_collect::Collectors;
use stats_core::{DecodeError, Intake, Node, NodeConfig, Now};
use stats_probe::{Mode, Options, Probe};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What the load waits for an answer of this broker.
const LOAD_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an unload keeps the reactor, for the last batch to be acknowledged.
pub(crate) const UNLOAD_TIMEOUT: Duration = Duration::from_secs(2);

/// The module's state.
pub(crate) struct StatsAgg {
    pub(crate) config: Config,
    arguments: Vec<String>,
    pub(crate) node: Node,
    pub(crate) intake: Intake,
    pub(crate) ancestors: Ancestors,
    pub(crate) measure: Measure,
    pub(crate) statsd: Statsd,
    pub(crate) collect: Collect,
    pub(crate) exports: Exports,
    custody: Option<CustodyFile>,
    own_reactor: Option<OwnReactor>,
    started: Instant,
    /// Fires at the node's next deadline.
    timer: Option<Watcher>,
    /// The batch that is on its way.
    pub(crate) in_flight: Option<InFlight>,
    /// Requests of our own that are on their way, by number.
    pub(crate) asking: HashMap<u64, PendingRpc>,
    pub(crate) asked: u64,
    /// The error number that was last logged of the way upstream, and when.
    pub(crate) upstream_trouble: Option<(i32, Instant)>,
    pub(crate) instance: Value,
    pub(crate) questions: Questions,
    /// Fires for the next slice of work on answers.
    pub(crate) slicer: Option<Watcher>,
    /// What children cost this rank.
    cost: Cost,
}

impl StatsAgg {
    /// The time, as the node wants it.
    pub(crate) fn now(&self) -> Now {
        let since = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { mono_ns: since(self.started.elapsed()), wall_ns: since(wall) }
    }

    /// Sets the timer to the node's next deadline.
    pub(crate) fn schedule(&mut self, scope: &Scope<Self>) {
        let wait = self.node.next_deadline_ns().saturating_sub(self.now().mono_ns);
        // The reactor turns once before a timer of no time at all fires.
        let wait = Duration::from_nanos(if self.node.has_history_to_keep() { 0 } else { wait });
        match &self.timer {
            Some(timer) => timer.reset_timer(wait, Duration::ZERO),
            None => match scope.timer(wait, Duration::ZERO, Self::on_period) {
                Ok(timer) => self.timer = Some(timer),
                Err(error) => scope.log(Level::Err, &format!("no timer, nothing will be sent: {error}")),
            },
        }
    }

    /// The end of a period, or a libev timer that fired a little early.
    fn on_period(&mut self, scope: &Scope<Self>) {
        let now = self.now();
        if now.mono_ns >= self.node.next_deadline_ns() {
            self.record(scope);
            self.note_busy();
            self.intake.expire(&mut self.node, now);
            self.node.tick(self.now());
            self.transmit(scope);
            self.inquire(scope);
            self.ask_around(scope);
            self.collect(scope);
            self.on_own_account(|agg| {
                agg.feed_streams(scope);
                agg.export(scope);
            });
        } else {
            self.node.keep_history();
        }
        self.schedule(scope);
    }

    /// Tells the node what its children cost, and it itself.
    fn note_busy(&mut self) {
        let (now, merged) = (self.now(), self.node.events().merged);
        let busy = self.cost.of_period(now.mono_ns, self.measure.broker(), merged);
        self.node.note_busy(busy, now);
    }

    /// Does what children have no part in.
    pub(crate) fn on_own_account<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let begun = self.cost.begin_own();
        let result = work(self);
        self.cost.end_own(&begun);
        result
    }

    /// Records what was measured since the last time.
    pub(crate) fn record(&mut self, scope: &Scope<Self>) {
        self.on_own_account(|agg| agg.measure_all(scope));
    }

    fn measure_all(&mut self, scope: &Scope<Self>) {
        let (panics, streams) = (scope.panics(), self.questions.open_streams());
        if let Some(own) = &mut self.own_reactor {
            own.record(&mut self.node);
        }
        let (stall, wall_ns) = (self.config.stall, self.now().wall_ns);
        for notice in self.measure.record(&mut self.node, panics, streams, stall, wall_ns) {
            log_stall(scope, notice);
        }
        self.statsd.record(scope, &mut self.node);
        self.record_exports(scope);
        self.look();
    }

    /// Takes a configuration that has been checked. An error changes nothing.
    pub(crate) fn apply(&mut self, scope: &Scope<Self>, config: Config) -> Result<(), Error> {
        // First, for it alone can fail: of the rest it is known that it can be had.
        if config.statsd_changed(&self.config) {
            self.statsd.configure(scope, &mut self.node, &config)?;
        }
        if config.probe != self.config.probe {
            self.record(scope);
            self.measure.replace_probe(start_probe(scope, config.probe));
            self.log_probe(scope);
            self.ask_for_modules(scope);
        }
        if config != self.config {
            scope.log(Level::Info, &format!("now {config}"));
        }
        self.node.reconfigure(config.period, config.max_series, self.now());
        self.intake.set_limits(config.ttl, config.max_tags);
        let now_ns = self.now().mono_ns;
        self.collect.collectors.choose(&mut self.node, config.collect.clone(), now_ns);
        self.node.set_ttl(config.ttl);
        self.node.set_guest_series(config.guest_series);
        if !config.guest_query {
            self.end_streams_of_guests();
        }
        if config.history != self.config.history {
            self.node.set_history(config.history);
        }
        if (&config.exports, config.private_jobs) != (&self.config.exports, self.config.private_jobs) {
            self.configure_exports(scope, &config);
        }
        self.config = config;
        self.schedule(scope);
        Ok(())
    }

    /// The settings that `instance`, the whole configuration, and our arguments amount to.
    pub(crate) fn configured_by(&self, instance: &Value) -> Result<Config, Error> {
        Config::new(instance, &self.arguments)
    }

    fn log_probe(&self, scope: &Scope<Self>) {
        if let Some(why) = self.measure.fallback() {
            let wish = self.config.probe;
            let text = format!("probe={wish} is not possible here ({why}): falling back to probe=proc");
            scope.log(Level::Info, &text);
        }
        if self.measure.blocked_unavailable() {
            let text = "blocked_s is not known here: this libflux runs its nested reactors past its GOT; sleep_s holds \
                        their waits, and wakeups counts them";
            scope.log(Level::Info, text);
        }
        if let Some(why) = self.measure.slots_private() {
            scope
                .log(Level::Info, &format!("flux stats peek will not find this broker by its rundir: {why}"));
        }
    }

    fn leave_custody(&mut self, scope: &Scope<Self>) {
        let Some(custody) = self.custody.take() else { return };
        let (path, now) = (custody.path(), self.now());
        let outcome = custody.leave(|file| {
            let intake = |file| self.intake.save_to(&self.node, now, file);
            left::write(file, |file| self.node.save_to(file), intake)
        });
        match outcome {
            Ok(Left::InFile) => {}
            Ok(Left::InMemory(error)) => {
                let text = format!("totals and unsent batches are kept in memory: {path}: {error}");
                scope.log(Level::Warning, &text);
            }
            Err(error) => {
                scope.log(Level::Err, &format!("totals and unsent batches are lost: {path}: {error}"));
            }
        }
    }
}

/// Where it happens: other ranks see the series.
fn log_stall(scope: &Scope<StatsAgg>, notice: Notice) {
    let seconds = |ns: u64| ns as f64 / 1e9;
    match notice {
        Notice::Stalled { module, blocked, age_ns } => {
            let state = if blocked { "blocked in a call" } else { "working" };
            let text = format!(
                "module {module} has been {state} for {:.1}s and answers nothing (flux stats peek shows it)",
                seconds(age_ns)
            );
            scope.log(Level::Warning, &text);
        }
        Notice::Back { module, age_ns } => {
            let text =
                format!("module {module} is back, having been away for {:.1}s or more", seconds(age_ns));
            scope.log(Level::Info, &text);
        }
    }
}

fn start_probe(scope: &Scope<StatsAgg>, mode: ProbeMode) -> Probe {
    let mode = match mode {
        ProbeMode::Attach => Mode::Attach,
        ProbeMode::Preload => Mode::Preload,
        ProbeMode::Proc => Mode::Proc,
        ProbeMode::Off => Mode::Off,
    };
    let broker_pid = u32::try_from(broker_pid(scope)).unwrap_or(0);
    let slot_path = slot_path(scope);
    Probe::start(Options { mode, broker_pid, slot_path, ..Options::attach(flux::reactor_run_address()) })
}

fn own_reactor(scope: &Scope<StatsAgg>) -> Option<OwnReactor> {
    let own = OwnReactor::new(scope);
    own.inspect_err(|error| scope.log(Level::Err, &format!("stats-agg.reactor is not known: {error}"))).ok()
}

/// Where `flux stats peek` finds this broker's slots. Brokers of a test instance share a rundir, hence the rank.
fn slot_path(scope: &Scope<StatsAgg>) -> Option<PathBuf> {
    let (rundir, rank) = (scope.attribute("rundir")?, scope.rank().ok()?);
    Some(Path::new(&rundir).join(format!("{}.{rank}.slots", scope.name())))
}

/// The broker's process: ours, unless the module was loaded with `--exec`.
fn broker_pid(scope: &Scope<StatsAgg>) -> i32 {
    let named = scope.attribute("broker.pid").and_then(|pid| pid.parse().ok());
    named.unwrap_or_else(|| i32::try_from(std::process::id()).unwrap_or(0))
}

fn attribute_number(scope: &Scope<StatsAgg>, name: &str) -> Option<u32> {
    scope.attribute(name)?.parse().ok()
}

/// This broker's place in the tree, or what to assume when an attribute is missing: that it is as deep as any.
fn level(scope: &Scope<StatsAgg>) -> (u32, u32) {
    let max_level = attribute_number(scope, "tbon.maxlevel").unwrap_or(1);
    (attribute_number(scope, "tbon.level").unwrap_or(max_level), max_level)
}

/// The instance's configuration; nothing where no configuration service answers.
fn instance_configuration(scope: &Scope<StatsAgg>) -> Value {
    let answer = scope.rpc("config.get", Payload::None, To::Any).and_then(|rpc| rpc.wait(LOAD_TIMEOUT));
    answer.and_then(|reply| reply.json()).unwrap_or_else(|error| {
        scope.log(Level::Debug, &format!("config.get: {error}: arguments and defaults alone hold"));
        Value::Null
    })
}

/// What an answer says of the instance.
fn instance(scope: &Scope<StatsAgg>, size: u32) -> Value {
    serde_json::json!({
        "size": size,
        // Rank 0 is asked.
        "start_time": null,
        "hostlist": scope.attribute("hostlist"),
        "level": attribute_number(scope, "instance-level"),
        "jobid": scope.attribute("jobid"),
    })
}

/// What an earlier load left stays for a load that can take it: this one would write over it in the end.
fn not_taken(error: io::Error) -> Error {
    let errnum = if error.kind() == io::ErrorKind::OutOfMemory { libc::ENOMEM } else { libc::EROFS };
    Error::new(errnum, format!("what an earlier load left cannot be taken: {error}"))
}

/// Why what an earlier load left stays where it is.
const STAYS: [io::ErrorKind; 3] =
    [io::ErrorKind::OutOfMemory, io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::PermissionDenied];

impl Module for StatsAgg {
    fn load(scope: &Scope<Self>, arguments: &[String]) -> Result<Self, Error> {
        // A wrong argument is refused before anything is asked or touched.
        Config::new(&Value::Null, arguments)?;
        let config = Config::new(&instance_configuration(scope), arguments)?;
        let (rank, size) = (scope.rank()?, scope.size()?);
        let (level, max_level) = level(scope);
        let epoch =
            getrandom::u64().map_err(|error| Error::new(libc::EIO, format!("no random epoch: {error}")))?;
        let (period, max_series) = (config.period, config.max_series);
        let taken = size.max(u32::try_from(config.test_ranks).unwrap_or(0));
        let node_config = NodeConfig { rank, size: taken, level, max_level, epoch, period, max_series };

        let rundir = scope.attribute("rundir");
        let custody = rundir.map(|rundir| CustodyFile::new(&rundir, &scope.name(), rank, broker_pid(scope)));
        let found = match custody.as_ref().map_or_else(|| Ok(Found::default()), CustodyFile::read) {
            Ok(found) => found,
            Err(error) if STAYS.contains(&error.kind()) => {
                return Err(not_taken(error));
            }
            Err(error) => {
                scope.log(Level::Err, &format!("what an earlier load left cannot be read: {error}"));
                Found::default()
            }
        };
        let started = Instant::now();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Now { mono_ns: 0, wall_ns: u64::try_from(wall.as_nanos()).unwrap_or(0) };
        let lost = |error: &DecodeError| {
            scope.log(Level::Err, &format!("what an earlier load left is lost: {error}"));
        };
        let left = found.bytes.as_deref().and_then(|left| {
            if split(left).is_none() {
                lost(&DecodeError::Truncated);
            }
            split(left)
        });
        let restored =
            left.and_then(|(left, _)| Node::restore(node_config.clone(), now, left).inspect_err(lost).ok());
        let mut node = restored.unwrap_or_else(|| Node::new(node_config, now));
        let remembered = left
            .and_then(|(_, left)| Intake::restore(config.ttl, &mut node, now, left).inspect_err(lost).ok());
        let mut intake = remembered.unwrap_or_else(|| Intake::new(config.ttl));
        intake.set_limits(config.ttl, config.max_tags);

        let place = place(scope, rank, size, broker_pid(scope));
        let mut agg = StatsAgg {
            own_reactor: own_reactor(scope),
            measure: Measure::new(start_probe(scope, config.probe)),
            statsd: Statsd::default(),
            collect: Collect::new(Collectors::new(place, config.collect.clone())),
            exports: Exports::default(),
            config,
            arguments: arguments.to_vec(),
            node,
            intake,
            ancestors: Ancestors::new(rank, level, scope.attribute("tbon.topo").as_deref()),
            custody,
            started,
            timer: None,
            in_flight: None,
            asking: HashMap::new(),
            asked: 0,
            upstream_trouble: None,
            instance: instance(scope, size),
            questions: Questions::default(),
            slicer: None,
            cost: Cost::new(),
        };
        agg.node.set_history(agg.config.history);
        agg.node.set_ttl(agg.config.ttl);
        agg.node.set_guest_series(agg.config.guest_series);
        agg.statsd.configure(scope, &mut agg.node, &agg.config)?;
        // Nothing after it refuses the load: what was left is ours now, or it stays for the next one.
        found.forget().map_err(not_taken)?;
        let config = agg.config.clone();
        agg.configure_exports(scope, &config);
        agg.tell_ancestors();
        agg.log_probe(scope);
        // A line from one rank is enough.
        let level = if agg.node.is_root() { Level::Info } else { Level::Debug };
        scope.log(level, &format!("loaded: {}", agg.config));
        agg.schedule(scope);
        agg.explore_parent(scope);
        agg.ask_around(scope);
        agg.ask_for_modules(scope);
        agg.collect(scope);
        Ok(agg)
    }

    fn methods() -> Vec<Method<Self>> {
        methods::table()
    }

    fn unload(&mut self, scope: &Scope<Self>) -> Option<Duration> {
        self.end_streams();
        self.measure.settle_names();
        self.record(scope);
        self.statsd.end(&mut self.node);
        self.node.begin_unload(self.now());
        self.transmit(scope);
        if self.node.is_drained() { None } else { Some(UNLOAD_TIMEOUT) }
    }

    fn ended(&mut self, scope: &Scope<Self>) {
        // When the thread was cancelled there was no farewell.
        self.statsd.end(&mut self.node);
        // What is sent last is what the next load goes on from.
        self.end_exports(scope);
        self.leave_custody(scope);
    }
}
