//! `testbed-rpc URI [--guest]`: one request a line on standard input, one answer a line on standard output, as JSON.
//!
//! A request is `{"node":RANK or null,"topic":…,"payload":{…}}`, an answer `{"ok":{…}}` or `{"errnum":…,"text":…}`.
//! With `"responses":N` it is a streaming one, and its answer a list of the first N responses; the rest is forgotten.
//! With `"tell":true` nobody answers it. With `"file":PATH` instead of a payload it is what that file holds, as it is, and
//! so is the answer: a list of its bytes.

use flux::{Client, Error, Node, Payload};
use serde_json::{Value, json};
use std::io::{BufRead, Write};
use std::time::Duration;

/// A broker that does not answer within this is an error, whatever a test waits for.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Any user id that is not the owner's, with the role of a guest.
const GUEST: (u32, u32) = (65_534, 2);

fn ask(client: &Client, line: &str) -> Result<Value, Error> {
    let request: Value = serde_json::from_str(line).map_err(|error| Error::invalid(error.to_string()))?;
    let node = request["node"].as_u64().and_then(|rank| u32::try_from(rank).ok());
    let topic = request["topic"].as_str().unwrap_or_default();
    let payload = match &request["payload"] {
        Value::Null => Payload::None,
        object => Payload::Json(object),
    };
    let node = node.map_or(Node::Any, Node::Rank);
    if let Some(file) = request["file"].as_str() {
        let bytes = std::fs::read(file).map_err(|error| Error::invalid(format!("{file}: {error}")))?;
        return Ok(client.rpc(topic, Payload::Raw(&bytes), node)?.wait(TIMEOUT)?.raw().into());
    }
    if request["tell"] == true {
        return client.tell(topic, payload, node).map(|()| Value::Null);
    }
    let Some(responses) = request["responses"].as_u64() else {
        return client.rpc(topic, payload, node)?.wait(TIMEOUT)?.json();
    };
    let (mut stream, mut answers) = (client.stream(topic, payload, node)?, Vec::new());
    while (answers.len() as u64) < responses
        && let Some(reply) = stream.next(TIMEOUT)?
    {
        answers.push(reply.json()?);
    }
    Ok(Value::Array(answers))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let client = Client::open(arguments.next().as_deref())?;
    if arguments.next().as_deref() == Some("--guest") {
        client.pretend(GUEST.0, GUEST.1)?;
    }
    for line in std::io::stdin().lock().lines() {
        let answer = match ask(&client, &line?) {
            Ok(payload) => json!({ "ok": payload }),
            Err(error) => json!({ "errnum": error.errnum(), "text": error.to_string() }),
        };
        let mut output = std::io::stdout().lock();
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
}
