//! The instance's configuration, and its way to the modules: as flux-core 0.88 has it, but for each rank by itself.

use crate::broker::Broker;
use crate::message::{Message, NODEID_ANY, REQUEST, ROLE_OWNER};
use serde_json::{Value, json};
use std::ffi::c_int;

/// The hop by which answers to requests of the broker itself come back.
pub(crate) const SELF: &str = "self";

/// The configuration of a broker.
pub(crate) struct Configuration {
    pub(crate) current: Value,
    change: Option<Change>,
}

/// A configuration that some modules have not answered yet.
struct Change {
    request: Message,
    wanted: Value,
    /// Answers to come.
    open: usize,
    taken: Vec<String>,
    /// The error number, and whose it is with what was said.
    refused: Option<(c_int, String)>,
}

impl Configuration {
    pub(crate) fn new() -> Self {
        Configuration { current: json!({}), change: None }
    }
}

impl Broker {
    /// `config.load`: the payload is the configuration, once every module has taken it.
    pub(crate) fn load_configuration(&mut self, request: &Message) {
        let wanted = request.json();
        if !wanted.is_object() {
            return self.refuse(request, libc::EPROTO, "error decoding config.load request");
        }
        if self.configuration.change.is_some() {
            return self.refuse(request, libc::EBUSY, "a change of configuration is under way");
        }
        let names: Vec<String> = self.modules.keys().cloned().collect();
        let (taken, refused) = (Vec::new(), None);
        let change = Change { request: request.clone(), wanted, open: names.len(), taken, refused };
        let wanted = change.wanted.clone();
        self.configuration.change = Some(change);
        names.iter().for_each(|name| self.offer_configuration(name, &wanted, false));
        self.end_change();
    }

    fn offer_configuration(&mut self, name: &str, wanted: &Value, noresponse: bool) {
        let mut offer = Message::text(REQUEST, &format!("{name}.config-reload"), &wanted.to_string());
        (offer.noresponse, offer.rolemask, offer.nodeid) = (noresponse, ROLE_OWNER, NODEID_ANY);
        offer.route.push(SELF.to_owned());
        match self.services.get(name).cloned() {
            Some(peer) => self.forward(&peer, offer, libc::ENOSYS),
            None => self.fail(&offer, libc::ENOSYS),
        }
    }

    /// A module's answer.
    pub(crate) fn answered(&mut self, response: &Message) {
        let Some(change) = &mut self.configuration.change else { return };
        change.open = change.open.saturating_sub(1);
        let name = response.service().to_owned();
        match response.errnum {
            0 => change.taken.push(name),
            // A module without the method, or one that has gone meanwhile.
            libc::ENOSYS | libc::EHOSTUNREACH => {}
            errnum => {
                let bytes = response.payload.as_deref().unwrap_or_default();
                let said = String::from_utf8_lossy(bytes.strip_suffix(b"\0").unwrap_or(bytes)).into_owned();
                change.refused.get_or_insert((errnum, format!("error updating {name}: {said}")));
            }
        }
        self.end_change();
    }

    /// Once all have answered: taken by all, or by none.
    fn end_change(&mut self) {
        let Some(change) = self.configuration.change.take_if(|change| change.open == 0) else { return };
        match change.refused {
            None => {
                self.configuration.current = change.wanted;
                self.respond(&change.request, 0, None);
            }
            Some((errnum, said)) => {
                let before = self.configuration.current.clone();
                change.taken.iter().for_each(|name| self.offer_configuration(name, &before, true));
                self.refuse(&change.request, errnum, &said);
            }
        }
    }
}
