//! One instance, whatever it is made of.

use crate::backend::Backend;
use crate::client::Client;
use crate::embedded::Embedded;
use crate::real::Real;
use crate::stage::{Profile, Stage};
use crate::{Error, Result};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// `<errno.h>`
const EINVAL: i32 = 22;
const EPROTO: i32 = 71;
/// How long the configuration may take from rank 0 to another.
const CONFIGURED_TIMEOUT: Duration = Duration::from_secs(10);

/// The shape of the tree of brokers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// Each broker has that many children.
    Kary(u32),
    /// All brokers are children of rank 0.
    Flat,
    /// What Flux does when nothing is said.
    Default,
}

/// Flux's own default, for the double.
const DEFAULT_FANOUT: u32 = 32;

impl Topology {
    pub(crate) fn name(self) -> String {
        match self {
            Topology::Kary(fanout) => format!("kary:{fanout}"),
            Topology::Flat => "kary:0".to_owned(),
            Topology::Default => format!("kary:{DEFAULT_FANOUT}"),
        }
    }
}

/// What an instance is started with.
#[derive(Debug, Clone)]
pub struct Options {
    /// What it is made of.
    pub backend: Backend,
    /// The number of brokers.
    pub size: u32,
    /// Their tree.
    pub topology: Topology,
    /// The instance's configuration: TOML tables, as JSON. Null: none.
    pub config: Value,
    /// Added to the environment of the brokers.
    pub environment: Vec<(OsString, OsString)>,
    /// How the modules that it loads are built.
    pub profile: Profile,
    /// Where its run directory is made. None: in the temporary folder.
    pub folder: Option<PathBuf>,
}

impl Options {
    /// Four brokers in a binary tree.
    pub fn new(backend: Backend) -> Self {
        Options {
            backend,
            size: 4,
            topology: Topology::Kary(2),
            config: Value::Null,
            environment: Vec::new(),
            profile: Profile::OWN,
            folder: None,
        }
    }
}

enum Running {
    Real(Real),
    Embedded(Embedded),
}

/// A running instance; it ends when it is dropped.
pub struct Instance {
    backend: Backend,
    size: u32,
    stage: &'static Stage,
    running: Running,
    rundir: tempfile::TempDir,
    /// By rank and whether as a guest.
    clients: Mutex<HashMap<(u32, bool), Client>>,
    _machine: File,
}

impl Instance {
    /// Starts one, and waits until every broker is up.
    pub fn start(options: Options) -> Result<Instance> {
        let stage = Stage::of(options.profile)?;
        let machine = std::env::temp_dir().join("flux-testbed.lock");
        let machine = File::create(&machine).map_err(Error::io(format!("creating {}", machine.display())))?;
        machine.lock().map_err(Error::io("waiting for another instance to end"))?;
        // Short: the paths of sockets are.
        let folder = options.folder.clone().unwrap_or_else(std::env::temp_dir);
        let rundir = tempfile::Builder::new()
            .prefix("fluxtb-")
            .tempdir_in(folder)
            .map_err(Error::io("making a rundir"))?;
        let running = match &options.backend {
            Backend::Real(flux) => Running::Real(Real::start(flux, &options, rundir.path())?),
            Backend::Embedded => Running::Embedded(Embedded::start(stage, &options, rundir.path())?),
        };
        let clients = Mutex::new(HashMap::new());
        let (backend, size) = (options.backend, options.size);
        let instance = Instance { backend, size, stage, running, rundir, clients, _machine: machine };
        if !options.config.is_null() {
            instance.configure(&options.config)?;
        }
        Ok(instance)
    }

    /// Replaces the instance's configuration (TOML tables, as JSON) on all ranks, as `flux config load` does, and tells
    /// every module. An error when a module refuses it.
    pub fn configure(&self, config: &Value) -> Result<()> {
        for rank in 0..self.size {
            match self.rpc(rank, "config.load", config.clone()) {
                // Newer than 0.70: it is changed on rank 0 alone, and the others follow in a while.
                Err(error) if rank != 0 && error.errnum() == Some(EINVAL) => self.follows(rank, config)?,
                answer => drop(answer?),
            }
        }
        Ok(())
    }

    fn follows(&self, rank: u32, config: &Value) -> Result<()> {
        let start = Instant::now();
        while self.rpc(rank, "config.get", Value::Null)? != *config {
            if start.elapsed() > CONFIGURED_TIMEOUT {
                return Err(Error::Start(format!("rank {rank} does not take the configuration of rank 0")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// What it is made of.
    pub fn backend(&self) -> &Backend {
        &self.backend
    }

    /// The number of brokers that were started.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The folder of its brokers' sockets.
    pub fn rundir(&self) -> &Path {
        self.rundir.path()
    }

    /// Where programs find the broker of that rank.
    pub fn uri(&self, rank: u32) -> String {
        format!("local://{}/local-{rank}", self.rundir.path().display())
    }

    /// The libflux of this instance: a path, or the name by which the system finds it.
    pub fn libflux(&self) -> std::path::PathBuf {
        match &self.running {
            Running::Real(real) => real.libflux(),
            Running::Embedded(_) => self.stage.libflux(),
        }
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        vec![("FLUX_STATS_LIBFLUX".into(), self.libflux().into())]
    }

    /// Asks that rank, at its own socket.
    pub fn rpc(&self, rank: u32, topic: &str, payload: Value) -> Result<Value> {
        self.request(rank, false, rank, topic, payload)
    }

    /// Asks `rank` at the socket of rank `via`.
    pub fn rpc_via(&self, via: u32, rank: u32, topic: &str, payload: Value) -> Result<Value> {
        self.request(via, false, rank, topic, payload)
    }

    /// Asks that rank with a payload of bytes, and is answered with bytes.
    pub fn rpc_raw(&self, rank: u32, topic: &str, payload: &[u8]) -> Result<Vec<u8>> {
        let file = tempfile::NamedTempFile::new().map_err(Error::io("making a file"))?;
        std::fs::write(file.path(), payload).map_err(Error::io("writing a payload"))?;
        let answer = self.with_client(rank, false, |client| client.request_file(rank, topic, file.path()))?;
        let bytes = answer.as_array().into_iter().flatten().filter_map(Value::as_u64);
        Ok(bytes.filter_map(|byte| u8::try_from(byte).ok()).collect())
    }

    /// Asks as a user who is not the instance's owner.
    pub fn rpc_as_guest(&self, rank: u32, topic: &str, payload: Value) -> Result<Value> {
        self.request(rank, true, rank, topic, payload)
    }

    /// Tells that rank, as a user who is not the instance's owner, what nobody answers.
    pub fn tell_as_guest(&self, rank: u32, topic: &str, payload: &Value) -> Result<()> {
        self.with_client(rank, true, |client| client.tell(rank, topic, payload))
    }

    /// The first `responses` of a stream, as a client of its own asks that then goes.
    pub fn stream(&self, rank: u32, topic: &str, payload: &Value, responses: u32) -> Result<Vec<Value>> {
        self.stream_of(false, rank, topic, payload, responses)
    }

    /// As [`Instance::stream`], with the role of a guest.
    pub fn stream_as_guest(
        &self,
        rank: u32,
        topic: &str,
        payload: &Value,
        responses: u32,
    ) -> Result<Vec<Value>> {
        self.stream_of(true, rank, topic, payload, responses)
    }

    fn stream_of(
        &self,
        guest: bool,
        rank: u32,
        topic: &str,
        payload: &Value,
        responses: u32,
    ) -> Result<Vec<Value>> {
        let program = self.stage.program("testbed-rpc");
        let mut client = Client::start(&program, &self.environment(), &self.uri(rank), guest)?;
        match client.stream(rank, topic, payload, responses)? {
            Value::Array(answers) => Ok(answers),
            other => Err(Error::Rpc { topic: topic.into(), errnum: EPROTO, text: other.to_string() }),
        }
    }

    fn request(&self, via: u32, guest: bool, rank: u32, topic: &str, payload: Value) -> Result<Value> {
        self.with_client(via, guest, |client| client.request(Some(rank), topic, &payload))
    }

    fn with_client<R>(&self, via: u32, guest: bool, ask: impl FnOnce(&mut Client) -> Result<R>) -> Result<R> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let client = match clients.entry((via, guest)) {
            std::collections::hash_map::Entry::Occupied(present) => present.into_mut(),
            std::collections::hash_map::Entry::Vacant(free) => {
                let program = self.stage.program("testbed-rpc");
                free.insert(Client::start(&program, &self.environment(), &self.uri(via), guest)?)
            }
        };
        ask(client)
    }

    /// A command with `FLUX_URI` leading to that rank, to be run.
    pub fn command(&self, rank: u32, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("FLUX_URI", self.uri(rank)).envs(self.environment());
        command
    }

    /// Runs a command with `FLUX_URI` leading to that rank; what it wrote to standard output.
    pub fn run(&self, rank: u32, program: &str, arguments: &[&str]) -> Result<String> {
        let mut command = self.command(rank, program);
        let output = command.args(arguments).output().map_err(Error::io(format!("running {program}")))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Error::Command { command: format!("{program} {}", arguments.join(" ")), said })
    }

    /// The file of a program of this project.
    pub fn program(&self, name: &str) -> std::path::PathBuf {
        self.stage.program(name)
    }

    /// Runs a program of this project (an example of `flux-metrics`, say), as [`Instance::run`] does.
    pub fn run_own(&self, rank: u32, program: &str, arguments: &[&str]) -> Result<String> {
        self.run(rank, &self.stage.program(program).to_string_lossy(), arguments)
    }

    /// Loads a module of this project on each of `ranks`.
    pub fn load(&self, ranks: impl IntoIterator<Item = u32>, module: &str, arguments: &[&str]) -> Result<()> {
        self.load_as(ranks, module, module, arguments)
    }

    /// Loads a module under another name.
    pub fn load_as(
        &self,
        ranks: impl IntoIterator<Item = u32>,
        module: &str,
        name: &str,
        arguments: &[&str],
    ) -> Result<()> {
        self.load_file(ranks, &self.stage.module(module), name, arguments)
    }

    /// Loads a module from a file.
    pub fn load_file(
        &self,
        ranks: impl IntoIterator<Item = u32>,
        file: &Path,
        name: &str,
        arguments: &[&str],
    ) -> Result<()> {
        let payload = json!({ "path": file.to_string_lossy(), "name": name, "args": arguments });
        ranks.into_iter().try_for_each(|rank| self.rpc(rank, "module.load", payload.clone()).map(drop))
    }

    /// Removes a module from each of `ranks`.
    pub fn remove(&self, ranks: impl IntoIterator<Item = u32>, name: &str) -> Result<()> {
        let payload = json!({ "name": name, "cancel": false });
        ranks.into_iter().try_for_each(|rank| self.rpc(rank, "module.remove", payload.clone()).map(drop))
    }

    /// Cancels a module's thread, as `flux module remove --cancel` does.
    pub fn cancel(&self, rank: u32, name: &str) -> Result<()> {
        self.rpc(rank, "module.remove", json!({ "name": name, "cancel": true })).map(drop)
    }

    /// The modules of a broker.
    pub fn modules(&self, rank: u32) -> Result<Vec<String>> {
        let list = self.rpc(rank, "module.list", json!({}))?;
        let mods = list["mods"].as_array().into_iter().flatten();
        Ok(mods.filter_map(|module| module["name"].as_str().map(str::to_owned)).collect())
    }

    /// The process of a broker.
    pub fn broker_pid(&self, rank: u32) -> Result<u32> {
        let answer = self.rpc(rank, "attr.get", json!({ "name": "broker.pid" }))?;
        let pid = answer["value"].as_str().and_then(|pid| pid.parse().ok());
        pid.ok_or_else(|| Error::Start(format!("rank {rank} names no broker.pid: {answer}")))
    }

    /// Kills a broker (SIGKILL).
    pub fn kill(&self, rank: u32) -> Result<()> {
        self.signal(rank, "KILL")?;
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).retain(|&(of, _), _| of != rank);
        Ok(())
    }

    /// Sends a broker a signal, by its name without SIG.
    pub fn signal(&self, rank: u32, signal: &str) -> Result<()> {
        let pid = self.broker_pid(rank)?.to_string();
        // The shell's own: a system may lack the program.
        self.run(0, "sh", &["-c", "kill -s \"$0\" \"$1\"", signal, &pid]).map(drop)
    }

    /// What a broker has logged, a line each.
    pub fn log(&self, rank: u32) -> Result<Vec<String>> {
        let text = match &self.running {
            Running::Real(real) => self.run(rank, &real.flux(), &["dmesg"])?,
            Running::Embedded(_) => {
                let answer = self.rpc(rank, "log.dmesg", json!({}))?;
                answer["log"].as_str().unwrap_or_default().to_owned()
            }
        };
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Makes brokers and modules busy for a while: `jobs` jobs on real Flux; on the double, which has none, as many
    /// requests to its stand-in for the KVS.
    pub fn churn(&self, jobs: u32) -> Result<()> {
        match &self.running {
            Running::Real(real) => {
                let copies = format!("--cc=1-{jobs}");
                self.run(0, &real.flux(), &["submit", "--quiet", "--wait", &copies, "true"]).map(drop)
            }
            Running::Embedded(_) => {
                (0..jobs).try_for_each(|seq| self.rpc(0, "kvs.ping", json!({ "seq": seq })).map(drop))
            }
        }
    }

    /// Makes the instance forget the jobs that are over. The double has none.
    pub fn forget_jobs(&self) -> Result<()> {
        match &self.running {
            Running::Real(real) => {
                self.run(0, &real.flux(), &["job", "purge", "--force", "--num-limit=0"]).map(drop)
            }
            Running::Embedded(_) => Ok(()),
        }
    }

    /// Ends the instance, and says if it ended badly.
    pub fn stop(mut self) -> Result<()> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).clear();
        match &mut self.running {
            Running::Real(real) => real.stop(),
            Running::Embedded(embedded) => embedded.stop(),
        }
    }
}
