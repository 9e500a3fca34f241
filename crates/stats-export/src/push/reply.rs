//! Answers over HTTP, as far as they say whether numbers were taken.

/// The longest head of an answer, and what is read of a body.
const HEAD_MAX: usize = 16 << 10;
const BODY_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 64;
/// Answers that are not the answer yet (100 Continue): of more, whoever sends them would never be done.
const INTERIM_MAX: u32 = 8;
/// What is told of an answer's body.
const SAID_MAX: usize = 160;

/// What an answer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Taken.
    Taken,
    /// To be sent again later.
    Later(String),
    /// Never to be taken.
    Refused(String),
}

/// An answer, as it arrives.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    bytes: Vec<u8>,
    head: Option<Head>,
    interim: u32,
}

#[derive(Debug, Clone, Copy)]
struct Head {
    status: u16,
    length: usize,
    body: Option<usize>,
    goes_on: bool,
}

impl Reply {
    /// Takes more of it. Once it is whole: what it says, and whether the connection can be used again.
    pub(crate) fn take(&mut self, more: &[u8]) -> Result<Option<(Verdict, bool)>, String> {
        self.bytes.extend_from_slice(more);
        loop {
            let head = match self.head {
                Some(head) => head,
                None => match self.read_head()? {
                    Some(head) if head.status < 200 => {
                        self.interim += 1;
                        if self.interim > INTERIM_MAX {
                            return Err(format!("it answers {} without end", head.status));
                        }
                        self.bytes.drain(..head.length);
                        continue;
                    }
                    Some(head) => *self.head.insert(head),
                    None => return Ok(None),
                },
            };
            let there = self.bytes.len() - head.length;
            return Ok(match head.body {
                Some(body) if there >= body => Some((self.verdict(head), head.goes_on && there == body)),
                Some(body) if body <= BODY_MAX => None,
                // Its status is enough; the rest is not waited for.
                _ => Some((self.verdict(head), false)),
            });
        }
    }

    /// The connection has ended.
    pub(crate) fn ended(&self) -> Result<Verdict, String> {
        self.head
            .map(|head| self.verdict(head))
            .ok_or_else(|| "it closed the connection without an answer".to_owned())
    }

    fn read_head(&self) -> Result<Option<Head>, String> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut parsed = httparse::Response::new(&mut headers);
        let length = match parsed.parse(&self.bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if self.bytes.len() < HEAD_MAX => return Ok(None),
            Ok(httparse::Status::Partial) => return Err("the head of its answer does not end".to_owned()),
            Err(error) => return Err(format!("its answer is not HTTP: {error}")),
        };
        let value = |name: &str| {
            let header = parsed.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
            std::str::from_utf8(header.value).ok().map(str::trim)
        };
        let status = parsed.code.unwrap_or_default();
        let body = match status {
            204 | 304 => Some(0),
            _ => value("content-length").and_then(|length| length.parse().ok()),
        };
        let goes_on = parsed.version == Some(1)
            && !value("connection").is_some_and(|word| word.eq_ignore_ascii_case("close"));
        Ok(Some(Head { status, length, body, goes_on }))
    }

    fn verdict(&self, Head { status, length, .. }: Head) -> Verdict {
        if (200..300).contains(&status) {
            return Verdict::Taken;
        }
        let said = String::from_utf8_lossy(&self.bytes[length..]);
        let said: String =
            said.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(SAID_MAX).collect();
        let text =
            if said.is_empty() { format!("status {status}") } else { format!("status {status}: {said}") };
        match status {
            // Who may not write may be allowed to in a moment; a busy server will not be.
            401 | 403 | 408 | 425 | 429 | 500.. => Verdict::Later(text),
            _ => Verdict::Refused(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn said(text: &str) -> Result<Option<(Verdict, bool)>, String> {
        Reply::default().take(text.as_bytes())
    }

    #[test]
    fn a_status_decides() {
        assert_eq!(said("HTTP/1.1 204 No Content\r\n\r\n"), Ok(Some((Verdict::Taken, true))));
        assert_eq!(said("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"), Ok(None));
        assert_eq!(said("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), Ok(Some((Verdict::Taken, true))));
        let closing =
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(said(closing), Ok(Some((Verdict::Taken, false))));
        let later = Verdict::Later("status 503: busy".into());
        assert_eq!(said("HTTP/1.1 503 X\r\nContent-Length: 5\r\n\r\nbusy\n"), Ok(Some((later, true))));
        let refused = Verdict::Refused("status 400".into());
        assert_eq!(said("HTTP/1.0 400 Bad\r\n\r\n"), Ok(Some((refused, false))));
        // A body of no known length is not waited for.
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n";
        assert_eq!(said(chunked), Ok(Some((Verdict::Taken, false))));
        let long = "HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n";
        assert_eq!(said(long), Ok(Some((Verdict::Taken, false))));
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        assert_eq!(said("SSH-2.0-OpenSSH\r\n").unwrap_err(), "its answer is not HTTP: invalid HTTP version");
        let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(HEAD_MAX));
        assert_eq!(said(&endless).unwrap_err(), "the head of its answer does not end");
        let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(INTERIM_MAX as usize);
        assert_eq!(said(&interim), Ok(None));
        assert_eq!(said(&interim.repeat(2)).unwrap_err(), "it answers 100 without end");
        assert!(Reply::default().ended().is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer_an_error_or_not_whole(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in 0_usize..300) {
            let mut reply = Reply::default();
            let cut = cut.min(bytes.len());
            if reply.take(&bytes[..cut]) == Ok(None) {
                let _ = reply.take(&bytes[cut..]);
            }
        }
    }
}
