//! A module with one of everything: a request, an event, a timer, a request of its own, and a farewell.
//!
//! ```sh
//! cargo build --package flux --example hello
//! cp target/debug/examples/libhello.so hello.so
//! flux module load ./hello.so greeting=Hi
//! flux python -c 'import flux; print(flux.Flux().rpc("hello.greet").get())'
//! flux module remove hello
//! ```

use flux::{
    Answer, Error, Event, Level, Method, Module, Node, Payload, PendingRpc, Request, Role, Scope, Watcher,
};
use std::time::Duration;

struct Hello {
    greeting: String,
    greeted: u64,
    ticks: u64,
    polls: u64,
    _timer: Watcher,
    poll: Option<PendingRpc>,
}

impl Hello {
    fn greet(&mut self, scope: &Scope<Self>, request: &Request<'_>) -> Result<Answer, Error> {
        self.greeted += 1;
        Ok(Answer::json(serde_json::json!({
            "text": format!("{}, user {}, from rank {}", self.greeting, request.userid(), scope.rank()?),
            "greeted": self.greeted,
            "ticks": self.ticks,
            "polls": self.polls,
        })))
    }

    fn on_hush(&mut self, scope: &Scope<Self>, event: &Event<'_>) -> Result<(), Error> {
        self.greeted = 0;
        scope.log(Level::Info, &format!("hushed by event {}", event.sequence()?));
        Ok(())
    }

    fn on_tick(&mut self, scope: &Scope<Self>) {
        self.ticks += 1;
        let topic = format!("{}.stats-get", scope.name());
        let sent = scope.request(
            &topic,
            Payload::None,
            Node::Any,
            Some(Duration::from_secs(5)),
            |hello, _, reply| {
                hello.poll = None;
                hello.polls += u64::from(reply.is_ok());
            },
        );
        match sent {
            Ok(poll) => self.poll = Some(poll),
            Err(error) => scope.log(Level::Warning, &error.to_string()),
        }
    }
}

impl Module for Hello {
    fn load(scope: &Scope<Self>, arguments: &[String]) -> Result<Self, Error> {
        let mut greeting = "Hello".to_owned();
        for argument in arguments {
            match argument.split_once('=') {
                Some(("greeting", text)) if !text.is_empty() => greeting = text.to_owned(),
                _ => {
                    return Err(Error::invalid(format!("bad argument {argument:?}: expected greeting=WORD")));
                }
            }
        }
        let period = Duration::from_millis(500);
        let timer = scope.timer(period, period, Self::on_tick)?;
        Ok(Hello { greeting, greeted: 0, ticks: 0, polls: 0, _timer: timer, poll: None })
    }

    fn methods() -> Vec<Method<Self>> {
        vec![Method::request("greet", Self::greet).allow(Role::User), Method::event("hush", Self::on_hush)]
    }

    fn unload(&mut self, scope: &Scope<Self>) -> Option<Duration> {
        scope.log(Level::Info, &format!("greeted {} times", self.greeted));
        None
    }
}

flux::module!(Hello);
