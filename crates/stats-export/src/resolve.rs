//! Names of hosts, looked up without waiting: `getaddrinfo` waits for seconds where a name server is gone, and would hold
//! up every exporter; on a thread of its own it would outlive the module. So: /etc/hosts, and the name servers of
//! /etc/resolv.conf over UDP (RFC 1035, by the messages of `simple-dns`). What else a machine may ask (LDAP, mDNS) is not.

use nix::poll::{PollFd, PollFlags};
use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a name server has to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Addresses of a host that are tried.
const ADDRESSES_MAX: usize = 8;
/// A longer answer is cut.
const ANSWER_MAX: usize = 4096;
/// The port of name servers.
const PORT: u16 = 53;

/// Where to look.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    pub(crate) hosts: PathBuf,
    pub(crate) resolv_conf: PathBuf,
    pub(crate) port: u16,
}

impl Default for Places {
    fn default() -> Self {
        Places { hosts: "/etc/hosts".into(), resolv_conf: "/etc/resolv.conf".into(), port: PORT }
    }
}

/// A host that is being looked for.
pub(crate) struct Lookup {
    host: String,
    found: Vec<IpAddr>,
    /// Questions that are still to be asked: a name, and of whom.
    left: VecDeque<(String, SocketAddr)>,
    asked: Option<Asked>,
    why: String,
}

struct Asked {
    name: String,
    socket: UdpSocket,
    /// For addresses of either kind; `None`: it has been answered.
    ids: [Option<u16>; 2],
    deadline: Instant,
}

/// How far it is.
pub(crate) enum Looked {
    Waits,
    Found(Vec<IpAddr>),
    Failed(String),
}

impl Lookup {
    pub(crate) fn new(host: &str, now: Instant) -> Self {
        Self::at(&Places::default(), host, now)
    }

    pub(crate) fn at(places: &Places, host: &str, now: Instant) -> Self {
        let found = in_hosts(&places.hosts, host);
        let mut lookup = Lookup {
            host: host.to_owned(),
            left: if found.is_empty() { questions(places, host) } else { VecDeque::new() },
            found,
            asked: None,
            why: "there is no name server in /etc/resolv.conf, and no such host in /etc/hosts".to_owned(),
        };
        lookup.ask(now);
        lookup
    }

    pub(crate) fn watched(&self) -> Option<PollFd<'_>> {
        self.asked.as_ref().map(|asked| PollFd::new(asked.socket.as_fd(), PollFlags::POLLIN))
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.asked.as_ref().map_or_else(Instant::now, |asked| asked.deadline)
    }

    pub(crate) fn go_on(&mut self, now: Instant) -> Looked {
        loop {
            let Some(asked) = &mut self.asked else {
                if !self.found.is_empty() {
                    self.found.truncate(ADDRESSES_MAX);
                    return Looked::Found(std::mem::take(&mut self.found));
                }
                return Looked::Failed(format!("{}: {}", self.host, self.why));
            };
            let mut bytes = [0; ANSWER_MAX];
            match asked.socket.recv(&mut bytes) {
                Ok(length) => {
                    if let Some(why) = asked.hear(&bytes[..length], &mut self.found) {
                        self.why = why;
                        self.next(now);
                    } else if asked.ids == [None, None] {
                        if self.found.is_empty() {
                            "it has no address".clone_into(&mut self.why);
                            self.next(now);
                        } else {
                            self.asked = None;
                        }
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    if now < asked.deadline {
                        return Looked::Waits;
                    }
                    // One kind of address is enough.
                    if !self.found.is_empty() {
                        self.asked = None;
                        continue;
                    }
                    self.why = format!("the name server does not answer within {ANSWER_TIMEOUT:?}");
                    self.next(now);
                }
                // Nobody is there.
                Err(error) => {
                    self.why = format!("the name server cannot be asked: {error}");
                    self.next(now);
                }
            }
        }
    }

    fn next(&mut self, now: Instant) {
        self.asked = None;
        self.ask(now);
    }

    /// Asks the next question, if there is one that can be.
    fn ask(&mut self, now: Instant) {
        while let Some((name, server)) = self.left.pop_front() {
            match Asked::new(&name, server, now) {
                Ok(asked) => {
                    self.asked = Some(asked);
                    return;
                }
                Err(why) => self.why = why,
            }
        }
    }
}

impl Asked {
    fn new(name: &str, server: SocketAddr, now: Instant) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("the name server cannot be asked: {error}");
        let any: SocketAddr =
            if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
        let socket = UdpSocket::bind(any).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        // Only that server is heard.
        socket.connect(server).map_err(failed)?;
        // Random keys of the standard hasher, and a random port of the kernel's: not to be guessed from afar.
        let random = std::hash::RandomState::new().build_hasher().finish();
        let ids = [random as u16, !(random as u16)];
        for (id, kind) in ids.into_iter().zip([TYPE::A, TYPE::AAAA]) {
            let question = Name::new(name).map_err(|error| error.to_string())?;
            let mut packet = Packet::new_query(id);
            packet.set_flags(PacketFlag::RECURSION_DESIRED);
            packet.questions.push(Question::new(
                question,
                QTYPE::TYPE(kind),
                QCLASS::CLASS(CLASS::IN),
                false,
            ));
            let bytes = packet.build_bytes_vec().map_err(|error| error.to_string())?;
            socket.send(&bytes).map_err(failed)?;
        }
        Ok(Asked { name: name.to_owned(), socket, ids: ids.map(Some), deadline: now + ANSWER_TIMEOUT })
    }

    /// Takes an answer. A reason: this server does not know, or there is no such name.
    fn hear(&mut self, bytes: &[u8], found: &mut Vec<IpAddr>) -> Option<String> {
        // What cannot be read is nobody's answer.
        let packet = Packet::parse(bytes).ok()?;
        let which = self.ids.iter().position(|id| *id == Some(packet.id()))?;
        if !packet.has_flags(PacketFlag::RESPONSE) {
            return None;
        }
        self.ids[which] = None;
        match packet.rcode() {
            RCODE::NoError => {}
            RCODE::NameError => return Some("there is no such host".to_owned()),
            other => return Some(format!("the name server says {other:?} of {}", self.name)),
        }
        // Names that stand for others lead to addresses in the same answer.
        for answer in &packet.answers {
            match &answer.rdata {
                RData::A(address) => found.push(IpAddr::V4(address.address.into())),
                RData::AAAA(address) => found.push(IpAddr::V6(address.address.into())),
                _ => {}
            }
        }
        None
    }
}

fn in_hosts(hosts: &Path, host: &str) -> Vec<IpAddr> {
    let text = std::fs::read_to_string(hosts).unwrap_or_default();
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|name| name.eq_ignore_ascii_case(host)).then_some(address)
    });
    lines.take(ADDRESSES_MAX).collect()
}

fn questions(places: &Places, host: &str) -> VecDeque<(String, SocketAddr)> {
    let text = std::fs::read(&places.resolv_conf).unwrap_or_default();
    let conf = resolv_conf::Config::parse(text).unwrap_or_default();
    let servers: Vec<SocketAddr> =
        conf.nameservers.iter().map(|server| SocketAddr::new(IpAddr::from(server), places.port)).collect();
    let own = host.trim_end_matches('.').to_owned();
    let in_domains = conf.get_last_search_or_domain().map(|domain| format!("{own}.{domain}"));
    let in_domains = in_domains.filter(|_| !host.ends_with('.'));
    let absolute_first = own.matches('.').count() >= conf.ndots as usize;
    let names: Vec<String> = if absolute_first {
        std::iter::once(own.clone()).chain(in_domains).collect()
    } else {
        in_domains.chain(std::iter::once(own.clone())).collect()
    };
    names.into_iter().flat_map(|name| servers.iter().map(move |server| (name.clone(), *server))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use simple_dns::ResourceRecord;
    use simple_dns::rdata::A;
    use std::fs;

    struct Stand {
        folder: tempfile::TempDir,
        server: UdpSocket,
        places: Places,
    }

    /// A name server on this machine that is played by the test.
    fn stand(hosts: &str, conf: &str) -> Stand {
        let folder = tempfile::tempdir().unwrap();
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let port = server.local_addr().unwrap().port();
        let (hosts_file, conf_file) = (folder.path().join("hosts"), folder.path().join("resolv.conf"));
        fs::write(&hosts_file, hosts).unwrap();
        fs::write(&conf_file, conf).unwrap();
        Stand { folder, server, places: Places { hosts: hosts_file, resolv_conf: conf_file, port } }
    }

    fn answer(server: &UdpSocket, ip: Option<[u8; 4]>, rcode: RCODE) -> String {
        let mut bytes = [0; 600];
        let (length, from) = server.recv_from(&mut bytes).unwrap();
        let question = Packet::parse(&bytes[..length]).unwrap();
        let name = question.questions[0].qname.to_string();
        let mut reply = Packet::new_reply(question.id());
        *reply.rcode_mut() = rcode;
        if let (Some(ip), QTYPE::TYPE(TYPE::A)) = (ip, question.questions[0].qtype) {
            let data = RData::A(A::from(std::net::Ipv4Addr::from(ip)));
            reply.answers.push(ResourceRecord::new(
                Name::new_unchecked(&name).into_owned(),
                CLASS::IN,
                9,
                data,
            ));
        }
        // Rubbish and answers to nobody's question before it.
        server.send_to(b"\x00\x01garbage", from).unwrap();
        server.send_to(&Packet::new_reply(question.id() ^ 0x0f0f).build_bytes_vec().unwrap(), from).unwrap();
        server.send_to(&reply.build_bytes_vec().unwrap(), from).unwrap();
        name
    }

    fn outcome(lookup: &mut Lookup) -> Result<Vec<IpAddr>, String> {
        let begun = Instant::now();
        loop {
            match lookup.go_on(Instant::now()) {
                Looked::Found(found) => return Ok(found),
                Looked::Failed(why) => return Err(why),
                Looked::Waits => assert!(begun.elapsed() < Duration::from_secs(20)),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn a_host_is_found_in_the_file_without_a_name_server() {
        let stand = stand("127.0.0.1 localhost\n10.0.0.7\tcarbon carbon.site # monitoring\n", "");
        let mut lookup = Lookup::at(&stand.places, "CARBON", Instant::now());
        assert_eq!(outcome(&mut lookup), Ok(vec![[10, 0, 0, 7].into()]));
        let mut lookup = Lookup::at(&stand.places, "monitoring", Instant::now());
        assert!(outcome(&mut lookup).unwrap_err().contains("no name server"));
        drop(stand.folder);
    }

    #[test]
    fn a_name_server_is_asked_in_the_domains_that_are_searched() {
        let stand = stand("", "search site.example\nnameserver 127.0.0.1\n");
        let mut lookup = Lookup::at(&stand.places, "carbon", Instant::now());
        let names = [(); 2].map(|()| answer(&stand.server, Some([127, 0, 0, 9]), RCODE::NoError));
        assert_eq!(names, ["carbon.site.example", "carbon.site.example"]);
        assert_eq!(outcome(&mut lookup), Ok(vec![[127, 0, 0, 9].into()]));
    }

    #[test]
    fn a_host_that_there_is_not_and_a_server_that_is_silent_are_errors_in_time() {
        let stand = stand("", "nameserver 127.0.0.1\n");
        let mut lookup = Lookup::at(&stand.places, "gone.example", Instant::now());
        answer(&stand.server, None, RCODE::NameError);
        assert_eq!(outcome(&mut lookup), Err("gone.example: there is no such host".into()));
        let mut lookup = Lookup::at(&stand.places, "gone.example", Instant::now());
        let begun = Instant::now();
        assert!(outcome(&mut lookup).unwrap_err().contains("does not answer within 2s"));
        assert!(begun.elapsed() < ANSWER_TIMEOUT + Duration::from_secs(3));
    }
}
