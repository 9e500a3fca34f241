//! Requests to a broker, through a process of their own: one test may speak to a real and to an embedded instance,
//! and one process can have only one libflux.

use crate::{Error, Result};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A `testbed-rpc` that is connected to one broker.
pub(crate) struct Client {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Client {
    /// Connects to the broker at `uri`; as a guest if `guest`.
    pub(crate) fn start(
        program: &Path,
        environment: &[(OsString, OsString)],
        uri: &str,
        guest: bool,
    ) -> Result<Client> {
        let mut command = Command::new(program);
        command.arg(uri).envs(environment.iter().cloned()).stdin(Stdio::piped()).stdout(Stdio::piped());
        // A Ctrl-C at the terminal is for whoever started the instance.
        command.process_group(0);
        if guest {
            command.arg("--guest");
        }
        let mut process = command.spawn().map_err(Error::io(format!("running {}", program.display())))?;
        let (input, output) = (process.stdin.take(), process.stdout.take());
        let Some(output) = output else { return Err(Error::Start("testbed-rpc has no output".into())) };
        Ok(Client { process, input, output: BufReader::new(output) })
    }

    pub(crate) fn request(&mut self, node: Option<u32>, topic: &str, payload: &Value) -> Result<Value> {
        self.ask(topic, &json!({ "node": node, "topic": topic, "payload": payload }))
    }

    /// A request whose payload is what a file holds; the answer is a list of bytes.
    pub(crate) fn request_file(&mut self, node: u32, topic: &str, file: &Path) -> Result<Value> {
        self.ask(topic, &json!({ "node": node, "topic": topic, "file": file }))
    }

    /// A request that nobody answers.
    pub(crate) fn tell(&mut self, node: u32, topic: &str, payload: &Value) -> Result<()> {
        self.ask(topic, &json!({ "node": node, "topic": topic, "payload": payload, "tell": true })).map(drop)
    }

    /// The first responses of a stream.
    pub(crate) fn stream(
        &mut self,
        node: u32,
        topic: &str,
        payload: &Value,
        responses: u32,
    ) -> Result<Value> {
        let request = json!({ "node": node, "topic": topic, "payload": payload, "responses": responses });
        self.ask(topic, &request)
    }

    fn ask(&mut self, topic: &str, request: &Value) -> Result<Value> {
        let line = request.to_string() + "\n";
        let lost =
            |what: &str| Error::Rpc { topic: topic.into(), errnum: 5, text: format!("testbed-rpc {what}") };
        let input = self.input.as_mut().ok_or_else(|| lost("has ended"))?;
        input.write_all(line.as_bytes()).map_err(|error| lost(&format!("takes no request: {error}")))?;
        let mut answer = String::new();
        self.output.read_line(&mut answer).map_err(|error| lost(&format!("gives no answer: {error}")))?;
        let answer: Value = serde_json::from_str(&answer).map_err(|_| lost("has ended"))?;
        match answer.get("ok") {
            Some(payload) => Ok(payload.clone()),
            None => {
                let errnum =
                    answer["errnum"].as_i64().and_then(|number| i32::try_from(number).ok()).unwrap_or(5);
                Err(Error::Rpc {
                    topic: topic.into(),
                    errnum,
                    text: answer["text"].as_str().unwrap_or("").into(),
                })
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The end of its input is its end.
        drop(self.input.take());
        let _ = self.process.wait();
    }
}
