//! One broker: peers, routes, services.

mod config;
mod modules;
mod peer;
mod services;

use crate::message::{self, CONTROL, EVENT, Message, NODEID_ANY, NODEID_UPSTREAM, REQUEST, RESPONSE};
use crate::reactor::{Kind, POLLIN, Reactor, Watcher, run};
use config::Configuration;
use modules::Module;
use peer::{Peer, Role};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

/// Lines of log that are kept.
const LOG_MAX: usize = 1000;
/// How long the modules have to end when the broker does.
const SHUTDOWN_S: f64 = 2.0;

pub(crate) struct Broker {
    rank: u32,
    /// The parent of each rank; rank 0 is its own.
    parents: Vec<u32>,
    rundir: PathBuf,
    reactor: *mut Reactor,
    peers: BTreeMap<String, Peer>,
    numbers: u64,
    /// The peer of each service.
    services: BTreeMap<String, String>,
    modules: BTreeMap<String, Module>,
    attributes: BTreeMap<String, String>,
    configuration: Configuration,
    log: VecDeque<LogLine>,
    /// Known to rank 0 alone.
    online: BTreeSet<u32>,
    event_seq: u32,
    listeners: Vec<UnixListener>,
    ending: bool,
}

/// A line of a broker's log.
struct LogLine {
    name: String,
    /// As in syslog, an index of [`LEVELS`].
    level: usize,
    text: String,
}

const LEVELS: [&str; 8] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];

impl LogLine {
    /// As `flux dmesg` shows it.
    fn shown(&self, rank: u32) -> String {
        format!("{}.{}[{rank}]: {}", self.name, LEVELS[self.level], self.text)
    }

    /// As brokers keep it (RFC 5424, as user-level messages); the double knows no times.
    fn syslog(&self, rank: u32) -> String {
        const USER: usize = 1;
        format!("<{}>1 - {rank} {} - - - {}", 8 * USER + self.level, self.name, self.text)
    }
}

struct Options {
    rank: u32,
    parents: Vec<u32>,
    topology: String,
    rundir: PathBuf,
}

fn options(words: &[String]) -> Result<Options, String> {
    let value = |key: &str| {
        let at = words.iter().position(|word| word == key).ok_or_else(|| format!("missing {key}"))?;
        words.get(at + 1).ok_or_else(|| format!("{key}: missing value"))
    };
    let number = |key: &str| value(key)?.parse::<u32>().map_err(|_| format!("{key}: expected a number"));
    let (rank, size, topology) = (number("--rank")?, number("--size")?, value("--topo")?.clone());
    let fanout = topology.strip_prefix("kary:").and_then(|fanout| fanout.parse::<u32>().ok());
    let fanout = fanout.ok_or_else(|| format!("--topo {topology}: expected kary:K, where 0 is flat"))?;
    if rank >= size {
        return Err(format!("--rank {rank}: expected less than --size {size}"));
    }
    let parent = |rank: u32| rank.saturating_sub(1).checked_div(fanout).unwrap_or(0);
    Ok(Options {
        rank,
        parents: (0..size).map(parent).collect(),
        topology,
        rundir: value("--rundir")?.into(),
    })
}

/// Runs a broker; as `options` has it.
///
/// # Safety
/// `argv` holds `argc` C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn embedded_broker_main(argc: c_int, argv: *const *const c_char) -> c_int {
    let count = usize::try_from(argc).unwrap_or(0);
    let words: Vec<String> =
        (0..count).map(|i| unsafe { CStr::from_ptr(*argv.add(i)) }.to_string_lossy().into_owned()).collect();
    let started = options(&words).and_then(|options| Broker::start(&options));
    match started {
        Ok(broker) => unsafe { run((*broker).reactor, 0) },
        Err(why) => {
            eprintln!("embedded-broker: {why}");
            2
        }
    }
}

impl Broker {
    fn start(options: &Options) -> Result<*mut Broker, String> {
        let comm = std::ffi::CString::new(format!("flux-broker-{}", options.rank)).unwrap_or_default();
        unsafe { libc::pthread_setname_np(libc::pthread_self(), comm.as_ptr()) };
        let (rank, size) = (options.rank, options.parents.len());
        let level = |rank: u32| {
            std::iter::successors((rank != 0).then_some(rank), |&at| {
                let parent = options.parents[at as usize];
                (parent != 0).then_some(parent)
            })
            .count()
        };
        let start = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let attributes = [
            ("rank", rank.to_string()),
            ("size", size.to_string()),
            ("rundir", options.rundir.to_string_lossy().into_owned()),
            ("version", "0.88.0-embedded".to_owned()),
            ("broker.pid", std::process::id().to_string()),
            ("broker.starttime", format!("{:.2}", start.as_secs_f64())),
            ("tbon.topo", options.topology.clone()),
            ("tbon.level", level(rank).to_string()),
            ("tbon.maxlevel", (0..size as u32).map(level).max().unwrap_or(0).to_string()),
            ("hostlist", vec!["localhost"; size].join(",")),
            ("instance-level", "0".to_owned()),
        ];
        let broker = Box::into_raw(Box::new(Broker {
            rank,
            parents: options.parents.clone(),
            rundir: options.rundir.clone(),
            reactor: Reactor::create_by_name(),
            peers: BTreeMap::new(),
            numbers: 0,
            services: BTreeMap::new(),
            modules: BTreeMap::new(),
            attributes: attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            configuration: Configuration::new(),
            log: VecDeque::new(),
            online: BTreeSet::new(),
            event_seq: 0,
            listeners: Vec::new(),
            ending: false,
        }));
        let this = unsafe { &mut *broker };
        this.listen("local", accept_client)?;
        this.listen("tbon", accept_child)?;
        unsafe {
            (*Reactor::watch(this.reactor, Kind::Fd { fd: 0, events: POLLIN }, input, broker.cast())).start()
        };
        if rank != 0 {
            let parent = this.rundir.join(format!("tbon-{}", this.parents[rank as usize]));
            this.add_peer("parent".into(), connect(&parent)?, Role::Parent);
            this.send("parent", Message::text(CONTROL, "hello", &json!({ "rank": rank }).to_string()));
        }
        for &(name, main) in crate::module::BUILT_IN {
            this.start_module(name, "builtin", (std::ptr::null_mut(), main), Vec::new(), None);
        }
        this.came_up(rank);
        Ok(broker)
    }

    fn listen(&mut self, name: &str, accept: crate::reactor::Callback) -> Result<(), String> {
        let path = self.rundir.join(format!("{name}-{}", self.rank));
        let said = |error: std::io::Error| format!("{}: {error}", path.display());
        let listener = UnixListener::bind(&path).map_err(said)?;
        listener.set_nonblocking(true).map_err(said)?;
        let kind = Kind::Fd { fd: listener.as_raw_fd(), events: POLLIN };
        let this: *mut Broker = self;
        unsafe { (*Reactor::watch(self.reactor, kind, accept, this.cast())).start() };
        self.listeners.push(listener);
        Ok(())
    }

    /// Where a request for `nodeid` goes next: `None` is here.
    fn next_hop(&self, nodeid: u32) -> Result<Option<String>, c_int> {
        if nodeid == self.rank {
            return Ok(None);
        }
        if nodeid as usize >= self.parents.len() {
            return Err(libc::EHOSTUNREACH);
        }
        let mut below = nodeid;
        while below != 0 {
            let parent = self.parents[below as usize];
            if parent == self.rank {
                let child = format!("child-{below}");
                return if self.peers.contains_key(&child) {
                    Ok(Some(child))
                } else {
                    Err(libc::EHOSTUNREACH)
                };
            }
            below = parent;
        }
        Ok(Some("parent".to_owned()))
    }

    /// A message from a peer.
    fn route(&mut self, from: &str, mut message: Message) {
        match message.kind {
            REQUEST => {
                message.route.push(from.to_owned());
                // A client's own requests, and not a module's, whose name is its service's.
                if let Some(client) = self.peers.get_mut(from).filter(|_| from.starts_with("client")) {
                    client.uses(&message);
                }
                self.route_request(message);
            }
            RESPONSE => {
                if let Some(peer) = self.peers.get_mut(from) {
                    peer.untrack(&message);
                }
                self.route_response(message);
            }
            EVENT => self.broadcast(&message),
            _ => self.control(from, &message),
        }
    }

    pub(crate) fn route_request(&mut self, mut message: Message) {
        if message.nodeid == NODEID_UPSTREAM {
            // Away from here, in the name of this rank.
            message.nodeid = self.rank;
            return self.forward("parent", message, libc::EHOSTUNREACH);
        }
        let wherever = message.nodeid == NODEID_ANY || message.upstream;
        let hop = if wherever { Ok(None) } else { self.next_hop(message.nodeid) };
        match hop {
            Ok(Some(peer)) => self.forward(&peer, message, libc::EHOSTUNREACH),
            Err(errnum) => self.fail(&message, errnum),
            Ok(None) => match self.services.get(message.service()).cloned() {
                Some(peer) => self.send(&peer, message),
                None if self.serves(message.service()) => self.serve(&message),
                None if wherever => self.forward("parent", message, libc::ENOSYS),
                None => self.fail(&message, libc::ENOSYS),
            },
        }
    }

    /// Passes a request on to a neighbour; `errnum` when there is none.
    fn forward(&mut self, peer: &str, message: Message, errnum: c_int) {
        match self.peers.get_mut(peer) {
            None => self.fail(&message, errnum),
            Some(neighbour) => {
                neighbour.track(&message);
                self.send(peer, message);
            }
        }
    }

    fn fail(&mut self, request: &Message, errnum: c_int) {
        let text = match errnum {
            libc::ENOSYS => format!("No service matching {} is registered", request.topic),
            _ => unsafe { CStr::from_ptr(libc::strerror(errnum)) }.to_string_lossy().into_owned(),
        };
        self.respond(request, errnum, Some(message::with_nul(&text)));
    }

    fn respond(&mut self, request: &Message, errnum: c_int, payload: Option<Vec<u8>>) {
        if !request.noresponse {
            self.route_response(request.response(errnum, payload));
        }
    }

    fn route_response(&mut self, mut response: Message) {
        match response.route.pop() {
            Some(to) if to == config::SELF => self.answered(&response),
            Some(to) => self.send(&to, response),
            None => {}
        }
    }

    /// An event on its way down: to whoever has asked for it, and to the children.
    fn broadcast(&mut self, event: &Message) {
        let wants = |peer: &Peer| match peer.role {
            Role::Child(_) => true,
            Role::Parent | Role::Stranger => false,
            Role::Local => peer.subscriptions.iter().any(|prefix| event.topic.starts_with(prefix.as_str())),
        };
        let to: Vec<String> =
            self.peers.iter().filter(|(_, peer)| wants(peer)).map(|(id, _)| id.clone()).collect();
        to.iter().for_each(|id| self.send(id, event.clone()));
    }

    fn control(&mut self, from: &str, message: &Message) {
        let payload = message.json();
        let rank = payload["rank"].as_u64().and_then(|rank| u32::try_from(rank).ok());
        match (message.topic.as_str(), rank) {
            ("hello", Some(rank)) => self.rename_peer(from, format!("child-{rank}"), Role::Child(rank)),
            ("up", Some(rank)) => self.came_up(rank),
            ("down", Some(rank)) => self.went_down(rank),
            ("module.status", _) => self.module_status(from, &payload),
            _ => {}
        }
    }

    fn came_up(&mut self, rank: u32) {
        if self.rank != 0 {
            return self.send("parent", Message::text(CONTROL, "up", &json!({ "rank": rank }).to_string()));
        }
        self.online.insert(rank);
        if self.online.len() == self.parents.len() {
            println!("ready");
        }
    }

    fn went_down(&mut self, rank: u32) {
        if self.rank != 0 {
            return self.send("parent", Message::text(CONTROL, "down", &json!({ "rank": rank }).to_string()));
        }
        self.online.remove(&rank);
    }

    /// Ranks at and below `top`.
    fn subtree(&self, top: u32) -> Vec<u32> {
        let below = |mut rank: u32| loop {
            if rank == top {
                return true;
            }
            if rank == 0 {
                return false;
            }
            rank = self.parents[rank as usize];
        };
        (0..self.parents.len() as u32).filter(|&rank| below(rank)).collect()
    }

    pub(crate) fn append_log(&mut self, name: &str, level: i64, text: &str) {
        let level = usize::try_from(level).ok().filter(|level| *level < LEVELS.len()).unwrap_or(7);
        if self.log.len() == LOG_MAX {
            self.log.pop_front();
        }
        self.log.push_back(LogLine { name: name.to_owned(), level, text: text.to_owned() });
    }

    /// Ends the modules, then the process.
    fn end(&mut self) {
        if self.ending {
            return;
        }
        self.ending = true;
        let names: Vec<String> = self.modules.keys().cloned().collect();
        names.iter().for_each(|name| self.stop_module(name, None, false));
        self.exit_if_done();
        let this: *mut Broker = self;
        let kind = Kind::Timer { due: crate::reactor::now() + SHUTDOWN_S, repeat: 0.0 };
        unsafe { (*Reactor::watch(self.reactor, kind, give_up, this.cast())).start() };
    }

    fn exit_if_done(&self) {
        if self.ending && self.modules.is_empty() {
            std::process::exit(0);
        }
    }
}

unsafe extern "C" fn give_up(_: *mut Reactor, _: *mut Watcher, _: c_int, _: *mut c_void) {
    std::process::exit(0);
}

/// The end of standard input is the end of the broker: whoever started it is gone, or wants it gone.
unsafe extern "C" fn input(_: *mut Reactor, watcher: *mut Watcher, _: c_int, broker: *mut c_void) {
    let mut buffer = [0; 256];
    if std::io::stdin().read(&mut buffer).unwrap_or(0) == 0 {
        unsafe {
            (*watcher).stop();
            (*broker.cast::<Broker>()).end();
        }
    }
}

unsafe extern "C" fn accept_client(_: *mut Reactor, _: *mut Watcher, _: c_int, broker: *mut c_void) {
    unsafe { (*broker.cast::<Broker>()).accept(0, Role::Local, "client") };
}

unsafe extern "C" fn accept_child(_: *mut Reactor, _: *mut Watcher, _: c_int, broker: *mut c_void) {
    unsafe { (*broker.cast::<Broker>()).accept(1, Role::Stranger, "stranger") };
}

fn connect(path: &std::path::Path) -> Result<UnixStream, String> {
    const TRIES: u32 = 2000;
    let mut last = String::new();
    for _ in 0..TRIES {
        match UnixStream::connect(path) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = format!("{}: {error}", path.display()),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(last)
}
