//! What a broker itself answers.

use crate::broker::Broker;
use crate::message::{EVENT, Message, ROLE_OWNER, with_nul};
use serde_json::{Value, json};

/// The services that are the broker's own.
const SERVICES: &[&str] = &["attr", "config", "event", "groups", "log", "module", "overlay", "service"];

impl Broker {
    pub(crate) fn serves(&self, service: &str) -> bool {
        SERVICES.contains(&service)
    }

    /// The brokers from `top` down.
    fn topology(&self, top: u32) -> Value {
        let ranks = 1..self.parents.len() as u32;
        let children = ranks.filter(|&rank| self.parents[rank as usize] == top);
        let children: Vec<Value> = children.map(|child| self.topology(child)).collect();
        let size: u64 = 1 + children.iter().filter_map(|child| child["size"].as_u64()).sum::<u64>();
        json!({ "rank": top, "size": size, "children": children })
    }

    pub(crate) fn serve(&mut self, request: &Message) {
        let payload = request.json();
        let text = |key: &str| payload[key].as_str().unwrap_or_default().to_owned();
        let owner = request.rolemask & ROLE_OWNER != 0;
        let from = request.route.last().cloned().unwrap_or_default();
        match request.topic.as_str() {
            "attr.get" => match self.attributes.get(&text("name")).cloned() {
                Some(value) => self.answer(request, &json!({ "value": value, "flags": 0 })),
                None => self.refuse(request, libc::ENOENT, "No such file or directory"),
            },
            "config.get" => {
                let current = self.configuration.current.clone();
                self.answer(request, &current);
            }
            "groups.get" if self.rank != 0 => {
                self.refuse(request, libc::EPROTO, "this RPC is only available on rank 0");
            }
            "groups.get" => {
                // Nobody is torpid here, and there is no other group.
                let online = self.online.iter().filter(|_| text("name") == "broker.online");
                let members: Vec<String> = online.map(u32::to_string).collect();
                self.answer(request, &json!({ "members": members.join(",") }));
            }
            "overlay.topology" => {
                let top = payload["rank"].as_u64().and_then(|rank| u32::try_from(rank).ok()).unwrap_or(0);
                let tree = self.topology(top);
                self.answer(request, &tree);
            }
            _ if !owner => self.refuse(request, libc::EPERM, "Request requires owner credentials"),
            "config.load" => self.load_configuration(request),
            "module.load" => self.load(request),
            "module.remove" => self.remove(request),
            "module.list" => {
                let list = self.list();
                self.answer(request, &list);
            }
            "module.finalize" => self.finalize(request),
            "log.append" => {
                let level = payload["level"].as_i64().unwrap_or(7);
                self.append_log(&text("name"), level, &text("text"));
            }
            // A line in each response, as brokers answer it.
            "log.dmesg" if request.streaming => {
                let lines: Vec<String> = self.log.iter().map(|line| line.syslog(self.rank)).collect();
                for line in lines {
                    self.respond(request, 0, Some(with_nul(&line)));
                }
                self.fail(request, libc::ENODATA);
            }
            // For the testbed.
            "log.dmesg" => {
                let lines: Vec<String> = self.log.iter().map(|line| line.shown(self.rank)).collect();
                self.answer(request, &json!({ "log": lines.join("\n") }));
            }
            "event.subscribe" => {
                if let Some(peer) = self.peers.get_mut(&from) {
                    peer.subscriptions.push(text("topic"));
                }
                self.respond(request, 0, None);
            }
            "event.unsubscribe" => {
                if let Some(peer) = self.peers.get_mut(&from) {
                    peer.subscriptions.retain(|topic| *topic != text("topic"));
                }
                self.respond(request, 0, None);
            }
            "event.publish" if self.rank == 0 => self.publish(request, &payload),
            "service.add" => {
                match self.services.contains_key(&text("service")) || self.serves(&text("service")) {
                    true => self.refuse(request, libc::EEXIST, "service already exists"),
                    false => {
                        self.services.insert(text("service"), from);
                        self.respond(request, 0, None);
                    }
                }
            }
            "service.remove" => {
                let name = text("service");
                if self.services.get(&name) == Some(&from) {
                    self.services.remove(&name);
                }
                self.respond(request, 0, None);
            }
            _ => self.fail(request, libc::ENOSYS),
        }
    }

    /// Gives an event its place in the one order, and sends it down.
    fn publish(&mut self, request: &Message, payload: &Value) {
        self.event_seq += 1;
        let body = payload["payload"].as_str().map(with_nul);
        let mut event = Message::new(EVENT, payload["topic"].as_str().unwrap_or_default(), body);
        (event.seq, event.userid, event.rolemask) = (self.event_seq, request.userid, request.rolemask);
        self.broadcast(&event);
        self.answer(request, &json!({ "seq": self.event_seq }));
    }

    fn answer(&mut self, request: &Message, payload: &Value) {
        self.respond(request, 0, Some(with_nul(&payload.to_string())));
    }
}
