//! A module that panics wherever a module can: the broker must not notice.
//!
//! Its argument says where else than in its request handler: `load`, `timer`, `response` or `unload`.

use flux::{Answer, Error, Event, Method, Module, Node, Payload, PendingRpc, Request, Scope, Watcher};
use std::time::Duration;

struct Panics {
    at_unload: bool,
    _timer: Option<Watcher>,
    _response: Option<PendingRpc>,
}

impl Panics {
    fn now(&mut self, _scope: &Scope<Self>, _request: &Request<'_>) -> Result<Answer, Error> {
        panic!("as requested")
    }

    fn caught(&mut self, scope: &Scope<Self>, _request: &Request<'_>) -> Result<Answer, Error> {
        Ok(Answer::json(serde_json::json!({ "panics": scope.panics() })))
    }

    fn on_event(&mut self, _scope: &Scope<Self>, _event: &Event<'_>) -> Result<(), Error> {
        panic!("at an event")
    }
}

impl Module for Panics {
    fn load(scope: &Scope<Self>, arguments: &[String]) -> Result<Self, Error> {
        let place = arguments.first().map_or("", String::as_str);
        let soon = Duration::from_millis(10);
        let timer = match place {
            "load" => panic!("at load"),
            "timer" => Some(scope.timer(soon, soon, |_, _| panic!("at a timer"))?),
            _ => None,
        };
        let topic = format!("{}.caught", scope.name());
        let response = match place {
            "response" => Some(
                scope.request(&topic, Payload::None, Node::Any, None, |_, _, _| panic!("at a response"))?,
            ),
            _ => None,
        };
        Ok(Panics { at_unload: place == "unload", _timer: timer, _response: response })
    }

    fn methods() -> Vec<Method<Self>> {
        vec![
            Method::request("now", Self::now),
            Method::request("caught", Self::caught),
            Method::event("event", Self::on_event),
        ]
    }

    fn unload(&mut self, _scope: &Scope<Self>) -> Option<Duration> {
        assert!(!self.at_unload, "at unload");
        None
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        assert!(!self.at_unload, "at drop");
    }
}

flux::module!(Panics);
