//! Messages, and their frames on a socket: two lengths, a head as JSON, the payload.

use serde::{Deserialize, Serialize};
use std::ffi::CString;

pub(crate) const REQUEST: u8 = 1;
pub(crate) const RESPONSE: u8 = 2;
pub(crate) const EVENT: u8 = 4;
/// Between a broker and its modules and neighbours.
pub(crate) const CONTROL: u8 = 8;

pub(crate) const NODEID_ANY: u32 = u32::MAX;
pub(crate) const NODEID_UPSTREAM: u32 = u32::MAX - 1;
pub(crate) const ROLE_OWNER: u32 = 1;

/// A frame beyond this is no frame.
const FRAME_MAX: usize = 256 << 20;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Message {
    pub(crate) kind: u8,
    pub(crate) topic: String,
    pub(crate) matchtag: u32,
    pub(crate) nodeid: u32,
    pub(crate) upstream: bool,
    pub(crate) noresponse: bool,
    pub(crate) streaming: bool,
    pub(crate) userid: u32,
    pub(crate) rolemask: u32,
    pub(crate) errnum: i32,
    pub(crate) seq: u32,
    /// Who passed it on, the first sender first.
    pub(crate) route: Vec<String>,
    #[serde(skip)]
    pub(crate) payload: Option<Vec<u8>>,
    /// For C, which wants NUL-terminated strings that live as long as the message.
    #[serde(skip)]
    topic_c: CString,
    #[serde(skip)]
    first_c: CString,
}

impl Message {
    pub(crate) fn new(kind: u8, topic: &str, payload: Option<Vec<u8>>) -> Self {
        let mut message = Message { kind, topic: topic.to_owned(), payload, ..Message::default() };
        message.nodeid = NODEID_ANY;
        message
    }

    /// A text payload ends with a NUL, as Flux's do.
    pub(crate) fn text(kind: u8, topic: &str, text: &str) -> Self {
        Self::new(kind, topic, Some(with_nul(text)))
    }

    /// The answer to a request, on its way back.
    pub(crate) fn response(&self, errnum: i32, payload: Option<Vec<u8>>) -> Self {
        Message {
            kind: RESPONSE,
            topic: self.topic.clone(),
            matchtag: self.matchtag,
            streaming: self.streaming,
            route: self.route.clone(),
            errnum,
            payload,
            userid: 0,
            rolemask: ROLE_OWNER,
            ..Message::default()
        }
    }

    /// The message without its payload.
    pub(crate) fn head(&self) -> Self {
        Message { payload: None, ..self.clone() }
    }

    /// The service that a topic belongs to.
    pub(crate) fn service(&self) -> &str {
        self.topic.split('.').next().unwrap_or_default()
    }

    /// Makes the C strings: before the message is shown to C.
    pub(crate) fn for_c(mut self) -> Self {
        self.topic_c = CString::new(self.topic.clone()).unwrap_or_default();
        self.first_c = CString::new(self.route.first().cloned().unwrap_or_default()).unwrap_or_default();
        self
    }

    pub(crate) fn topic_c(&self) -> &CString {
        &self.topic_c
    }

    pub(crate) fn first_c(&self) -> &CString {
        &self.first_c
    }

    /// The payload as JSON; null when it is none.
    pub(crate) fn json(&self) -> serde_json::Value {
        let bytes = self.payload.as_deref().unwrap_or_default();
        serde_json::from_slice(bytes.strip_suffix(b"\0").unwrap_or(bytes)).unwrap_or_default()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let head = serde_json::to_vec(self).unwrap_or_default();
        let payload = self.payload.as_deref();
        let mut frame = Vec::with_capacity(head.len() + payload.map_or(0, <[u8]>::len) + 8);
        frame.extend_from_slice(&(head.len() as u32).to_le_bytes());
        // One more than its length; zero: no payload.
        frame.extend_from_slice(&payload.map_or(0, |bytes| bytes.len() as u32 + 1).to_le_bytes());
        frame.extend_from_slice(&head);
        frame.extend_from_slice(payload.unwrap_or_default());
        frame
    }
}

pub(crate) fn with_nul(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

/// Takes a whole frame from the front of `buffer`. `Err`: the bytes are none.
pub(crate) fn take(buffer: &mut Vec<u8>) -> Result<Option<Message>, ()> {
    let Some((lengths, _)) = buffer.split_first_chunk::<8>() else { return Ok(None) };
    let length = |at: usize| {
        u32::from_le_bytes([lengths[at], lengths[at + 1], lengths[at + 2], lengths[at + 3]]) as usize
    };
    let (head, payload) = (length(0), length(4));
    let end = 8 + head + payload.saturating_sub(1);
    if end > FRAME_MAX {
        return Err(());
    }
    if buffer.len() < end {
        return Ok(None);
    }
    let mut message: Message = serde_json::from_slice(&buffer[8..8 + head]).map_err(drop)?;
    message.payload = (payload > 0).then(|| buffer[8 + head..end].to_vec());
    buffer.drain(..end);
    Ok(Some(message))
}
