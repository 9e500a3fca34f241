//! Requests of HTTP/1.x, as far as a scraper makes them: read by `httparse`, held within bounds.

use crate::formats::prometheus::Format;

/// The longest head of a request.
pub(crate) const HEAD_MAX: usize = 8192;
/// The most headers of one.
const HEADERS_MAX: usize = 64;

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The numbers.
    Metrics,
    /// Where the numbers are.
    Index,
}

/// A request that is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) wanted: Wanted,
    pub(crate) format: Format,
    pub(crate) gzip: bool,
    /// HEAD: the answer has no body.
    pub(crate) head: bool,
    pub(crate) keep_alive: bool,
    /// Of the `Authorization` header, where it is a bearer's.
    pub(crate) token: Option<Vec<u8>>,
}

/// Why a request is not answered as it would like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// 400.
    Malformed,
    /// 404.
    NotFound,
    /// 405.
    Method,
    /// 431.
    TooLong,
}

/// What the bytes that have arrived amount to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Read {
    /// There must be more.
    Partial,
    /// A request of so many bytes.
    Whole(usize, Request),
    /// Nothing that comes after it can be understood.
    Refused(Refused),
}

/// Reads the request at the beginning of `bytes`.
pub(crate) fn read(bytes: &[u8]) -> Read {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let length = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_MAX => return Read::Partial,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Read::Refused(Refused::TooLong);
        }
        Err(_) => return Read::Refused(Refused::Malformed),
    };
    if length > HEAD_MAX {
        return Read::Refused(Refused::TooLong);
    }
    let all = |name: &str| {
        let named = parsed.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
        let values: Vec<&str> = named.filter_map(|header| std::str::from_utf8(header.value).ok()).collect();
        values.join(",")
    };
    let has = |name: &str| parsed.headers.iter().any(|header| header.name.eq_ignore_ascii_case(name));
    // A body would be taken for the next request: a scraper sends none.
    if has("transfer-encoding") || (has("content-length") && all("content-length").trim() != "0") {
        return Read::Refused(Refused::Malformed);
    }
    let head = match parsed.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Read::Refused(Refused::Method),
    };
    let path = parsed.path.unwrap_or_default();
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let wanted = match path {
        "/metrics" => Wanted::Metrics,
        "/" => Wanted::Index,
        _ => return Read::Refused(Refused::NotFound),
    };
    let connection = all("connection").to_ascii_lowercase();
    let says = |word: &str| connection.split(',').any(|part| part.trim() == word);
    let keep_alive = if parsed.version == Some(1) { !says("close") } else { says("keep-alive") };
    let gzip = accepts(&all("accept-encoding"), "gzip");
    let mut authorization =
        parsed.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("authorization"));
    let token = authorization.next().and_then(|header| {
        let (scheme, token) = header.value.split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii().to_vec())
    });
    let format = Format::accepted(&all("accept"));
    Read::Whole(length, Request { wanted, format, gzip, head, keep_alive, token })
}

/// Whether a list of codings has this one, by its name or else by `*`, with a quality above zero (RFC 9110, 12.5.3).
fn accepts(codings: &str, name: &str) -> bool {
    let quality = |wanted: &str| {
        codings.split(',').find_map(|coding| {
            let mut parts = coding.split(';').map(str::trim);
            let is_it = parts.next()?.eq_ignore_ascii_case(wanted);
            let quality = parts.find_map(|part| {
                let (key, value) = part.split_once('=')?;
                // What is no number asks for nothing.
                key.trim().eq_ignore_ascii_case("q").then(|| value.trim().parse().unwrap_or(0.0_f32))
            });
            is_it.then(|| quality.unwrap_or(1.0))
        })
    };
    quality(name).or_else(|| quality("*")).is_some_and(|quality| quality > 0.0)
}

/// Whether they are equal, in a time that does not tell where they differ.
pub(crate) fn same(given: &[u8], secret: &[u8]) -> bool {
    let differences = given.iter().zip(secret).fold(0, |all, (one, other)| all | (one ^ other));
    given.len() == secret.len() && std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(text: &str) -> Request {
        match read(text.as_bytes()) {
            Read::Whole(length, request) if length == text.len() => request,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn refused(text: &str) -> Refused {
        match read(text.as_bytes()) {
            Read::Refused(refused) => refused,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn what_a_scraper_sends_is_understood() {
        let request = whole(
            "GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nAccept: application/openmetrics-text\r\nAccept-Encoding: br, gzip\r\n\
             Authorization: Bearer  abc \r\n\r\n",
        );
        let expected = Request {
            wanted: Wanted::Metrics,
            format: Format::OpenMetrics,
            gzip: true,
            head: false,
            keep_alive: true,
            token: Some(b"abc".to_vec()),
        };
        assert_eq!(request, expected);
        let old = whole("HEAD / HTTP/1.0\r\nAccept-Encoding: gzip;q=0\r\nAuthorization: Basic x\r\n\r\n");
        let expected = Request {
            wanted: Wanted::Index,
            format: Format::Text,
            gzip: false,
            head: true,
            keep_alive: false,
            token: None,
        };
        assert_eq!(old, expected);
        assert!(whole("GET / HTTP/1.0\r\nConnection: foo, Keep-Alive\r\n\r\n").keep_alive);
        assert!(!whole("GET / HTTP/1.1\r\nConnection: close\r\n\r\n").keep_alive);
    }

    #[test]
    fn a_coding_is_accepted_by_its_name_or_else_by_the_star() {
        for yes in ["gzip", "br, GZIP;q=0.1", "*", "br;q=1, *;q=0.5", "gzip;q=1, *;q=0"] {
            assert!(accepts(yes, "gzip"), "{yes}");
        }
        for no in [
            "",
            "br",
            "gzip;q=0",
            "gzip;q=0, *",
            "gzip; Q = 0.0",
            "gzip;q=-1",
            "gzip;q=nan",
            "gzip;q=x",
            "*;q=0",
        ] {
            assert!(!accepts(no, "gzip"), "{no}");
        }
    }

    #[test]
    fn what_is_no_scrape_is_refused() {
        assert_eq!(refused("POST /metrics HTTP/1.1\r\n\r\n"), Refused::Method);
        assert_eq!(refused("GET /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\n"), Refused::Malformed);
        assert_eq!(
            refused("GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"),
            Refused::Malformed
        );
        assert_eq!(refused("GET /etc/passwd HTTP/1.1\r\n\r\n"), Refused::NotFound);
        assert_eq!(refused("\x16\x03\x01\x02\x00"), Refused::Malformed);
        assert_eq!(refused("GET / HTTP/9.9\r\n\r\n"), Refused::Malformed);
        assert_eq!(refused(&format!("GET /{} HTTP/1.1\r\n", "x".repeat(HEAD_MAX))), Refused::TooLong);
        let many: String = (0..HEADERS_MAX + 1).map(|n| format!("X-{n}: 1\r\n")).collect();
        assert_eq!(refused(&format!("GET / HTTP/1.1\r\n{many}\r\n")), Refused::TooLong);
    }

    #[test]
    fn a_token_is_compared_whole() {
        assert!(same(b"abc", b"abc") && same(b"", b""));
        assert!(!same(b"abd", b"abc") && !same(b"ab", b"abc") && !same(b"abcd", b"abc"));
    }

    proptest! {
        #[test]
        fn a_request_is_the_same_however_its_bytes_arrive(cut in 0_usize..80) {
            let text = "GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: text/plain\r\nUser-Agent: x\r\n\r\n".as_bytes();
            let cut = cut.min(text.len() - 1);
            prop_assert_eq!(read(&text[..cut]), Read::Partial);
            prop_assert!(matches!(read(text), Read::Whole(length, _) if length == text.len()));
        }

        #[test]
        fn any_bytes_are_partial_refused_or_a_request_within_them(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Read::Whole(length, _) = read(&bytes) {
                prop_assert!(length <= bytes.len());
            }
        }
    }
}
