//! What a module answers: the table of its methods.

use crate::error::{Error, Result};
use crate::handle::c_string;
use crate::message::{Encoded, Event, Request};
use crate::module::Scope;
use serde_json::Value;

/// Who may call a method besides the instance owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Nobody: the owner only. The default.
    Owner,
    /// Any user that is allowed in the instance.
    User,
    /// Anyone, whatever the message says.
    All,
}

impl Role {
    pub(crate) fn mask(self) -> u32 {
        match self {
            Role::Owner => flux_sys::FLUX_ROLE_OWNER,
            Role::User => flux_sys::FLUX_ROLE_OWNER | flux_sys::FLUX_ROLE_USER,
            Role::All => flux_sys::FLUX_ROLE_ALL,
        }
    }
}

/// What a method answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Success, and nothing to say.
    Empty,
    /// A JSON object.
    Json(Value),
    /// A JSON object, already text.
    Text(String),
    /// Bytes that the caller understands.
    Raw(Vec<u8>),
    /// The handler has kept the request ([`Scope::keep`]) and answers it later.
    Later,
}

impl Answer {
    /// An answer that is a JSON object.
    pub fn json(value: Value) -> Self {
        Answer::Json(value)
    }

    /// `None` for what is answered later.
    pub(crate) fn into_payload(self) -> Result<Option<Encoded>> {
        Ok(Some(match self {
            Answer::Empty => Encoded::Empty,
            Answer::Json(value @ Value::Object(_)) => Encoded::Text(c_string(&value.to_string(), "answer")?),
            Answer::Json(other) => {
                return Err(Error::new(libc::EPROTO, format!("the answer is not a JSON object: {other}")));
            }
            Answer::Text(text) => Encoded::Text(c_string(&text, "answer")?),
            Answer::Raw(bytes) => Encoded::Raw(bytes),
            Answer::Later => return Ok(None),
        }))
    }
}

/// What a method calls.
pub(crate) enum Call<T: 'static> {
    Request(fn(&mut T, &Scope<T>, &Request<'_>) -> Result<Answer>),
    Event(fn(&mut T, &Scope<T>, &Event<'_>) -> Result<()>),
}

impl<T> Clone for Call<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Call<T> {}

/// One row of a module's table.
pub struct Method<T: 'static> {
    pub(crate) name: &'static str,
    /// The name is a whole topic, and not the second part of one of ours.
    pub(crate) foreign: bool,
    pub(crate) role: Role,
    pub(crate) call: Call<T>,
}

impl<T> Method<T> {
    /// Answers requests for `NAME.name`, where `NAME` is the name under which the module was loaded. A method of
    /// ours goes before Flux's own of the same name (`stats-get`, say).
    pub fn request(name: &'static str, call: fn(&mut T, &Scope<T>, &Request<'_>) -> Result<Answer>) -> Self {
        Method { name, foreign: false, role: Role::Owner, call: Call::Request(call) }
    }

    /// Takes the event `NAME.name`; the module is subscribed to it.
    pub fn event(name: &'static str, call: fn(&mut T, &Scope<T>, &Event<'_>) -> Result<()>) -> Self {
        Method { name, foreign: false, role: Role::Owner, call: Call::Event(call) }
    }

    /// Takes the event `topic`, which is somebody else's; the module is subscribed to it.
    pub fn listen(topic: &'static str, call: fn(&mut T, &Scope<T>, &Event<'_>) -> Result<()>) -> Self {
        Method { foreign: true, ..Method::event(topic, call) }
    }

    /// Lets others than the owner call it.
    pub fn allow(mut self, role: Role) -> Self {
        self.role = role;
        self
    }
}
