//! Whoever is connected to a broker: modules, clients, the parent, children.

use crate::broker::Broker;
use crate::message::{self, Message};
use crate::reactor::{Kind, POLLIN, POLLOUT, Reactor, Watcher};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A module or a client.
    Local,
    Parent,
    Child(u32),
    /// A child that has not said its rank yet.
    Stranger,
}

pub(crate) struct Peer {
    pub(crate) role: Role,
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    watcher: *mut Watcher,
    watched: *mut Watched,
    pub(crate) subscriptions: Vec<String>,
    /// Requests passed to a neighbour and not answered yet: failed when it is lost.
    tracked: Vec<Message>,
    /// Services that a client used, with a request to each that says that the client is gone.
    used: BTreeMap<(u32, String), Message>,
}

/// What a peer's watcher gets.
struct Watched {
    broker: *mut Broker,
    id: String,
}

impl Peer {
    /// Remembers the service, to be told of the end of whoever asks.
    pub(crate) fn uses(&mut self, request: &Message) {
        let service = (request.nodeid, request.service().to_owned());
        self.used.entry(service).or_insert_with_key(|(_, service)| {
            let mut gone = request.head();
            gone.topic = format!("{service}.disconnect");
            (gone.noresponse, gone.streaming, gone.matchtag) = (true, false, 0);
            gone
        });
    }

    pub(crate) fn track(&mut self, request: &Message) {
        if !request.noresponse {
            self.tracked.push(request.head());
        }
    }

    pub(crate) fn untrack(&mut self, response: &Message) {
        let ended = !response.streaming || response.errnum != 0;
        let same =
            |request: &Message| request.matchtag == response.matchtag && request.route == response.route;
        if ended && let Some(at) = self.tracked.iter().position(same) {
            self.tracked.swap_remove(at);
        }
    }

    /// Sends what fits; the rest when there is room. False: the peer is gone.
    fn flush(&mut self) -> bool {
        while !self.output.is_empty() {
            match (&self.stream).write(&self.output) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        let events = if self.output.is_empty() { POLLIN } else { POLLIN | POLLOUT };
        unsafe { (*self.watcher).set_events(events) };
        true
    }
}

impl Broker {
    pub(crate) fn accept(&mut self, listener: usize, role: Role, kind: &str) {
        while let Some(Ok((stream, _))) =
            self.listeners.get(listener).map(std::os::unix::net::UnixListener::accept)
        {
            self.numbers += 1;
            self.add_peer(format!("{kind}-{}", self.numbers), stream, role);
        }
    }

    pub(crate) fn add_peer(&mut self, id: String, stream: UnixStream, role: Role) {
        let _ = stream.set_nonblocking(true);
        let watched = Box::into_raw(Box::new(Watched { broker: self, id: id.clone() }));
        let kind = Kind::Fd { fd: stream.as_raw_fd(), events: POLLIN };
        let watcher = Reactor::watch(self.reactor, kind, ready, watched.cast());
        unsafe { (*watcher).start() };
        let (input, output, subscriptions, tracked) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let used = BTreeMap::new();
        let peer = Peer { role, stream, input, output, watcher, watched, subscriptions, tracked, used };
        self.peers.insert(id, peer);
    }

    pub(crate) fn rename_peer(&mut self, from: &str, to: String, role: Role) {
        if let Some(mut peer) = self.peers.remove(from) {
            peer.role = role;
            unsafe { (*peer.watched).id.clone_from(&to) };
            self.peers.insert(to, peer);
        }
    }

    pub(crate) fn send(&mut self, to: &str, message: Message) {
        if let Some(peer) = self.peers.get_mut(to) {
            peer.output.extend_from_slice(&message.encode());
            // A peer that is gone is noticed by its watcher.
            peer.flush();
        }
    }

    fn receive(&mut self, id: &str) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        let mut alive = peer.flush();
        let mut buffer = [0; 65_536];
        loop {
            match (&peer.stream).read(&mut buffer) {
                Ok(0) => alive = false,
                Ok(count) => {
                    peer.input.extend_from_slice(&buffer[..count]);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => alive &= error.kind() == ErrorKind::WouldBlock,
            }
            break;
        }
        let mut messages = Vec::new();
        loop {
            match message::take(&mut peer.input) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(()) => {
                    alive = false;
                    break;
                }
            }
        }
        let mut id = id.to_owned();
        for message in messages {
            self.route(&id, message);
            // The first message of a child gives it its name.
            if let Some(rank) = id.starts_with("stranger").then(|| self.child_named_after(&id)).flatten() {
                id = rank;
            }
        }
        if !alive {
            self.lose(&id);
        }
    }

    fn child_named_after(&self, stranger: &str) -> Option<String> {
        if self.peers.contains_key(stranger) {
            return None;
        }
        let children = self.peers.iter().filter(|(_, peer)| matches!(peer.role, Role::Child(_)));
        children.max_by_key(|(_, peer)| peer.stream.as_raw_fd()).map(|(id, _)| id.clone())
    }

    /// A peer is gone.
    fn lose(&mut self, id: &str) {
        let Some(peer) = self.peers.remove(id) else { return };
        unsafe {
            Watcher::destroy(peer.watcher);
            drop(Box::from_raw(peer.watched));
        }
        self.services.retain(|_, of| of != id);
        peer.tracked.iter().for_each(|request| self.fail(request, libc::EHOSTUNREACH));
        match peer.role {
            Role::Parent => self.end(),
            Role::Child(rank) => self.subtree(rank).into_iter().for_each(|rank| self.went_down(rank)),
            Role::Local => peer.used.into_values().for_each(|gone| self.route_request(gone)),
            Role::Stranger => {}
        }
    }
}

unsafe extern "C" fn ready(_: *mut Reactor, _: *mut Watcher, _: c_int, watched: *mut c_void) {
    unsafe {
        let watched = &*watched.cast::<Watched>();
        let (broker, id) = (watched.broker, watched.id.clone());
        (*broker).receive(&id);
    }
}
