//! Where to listen and where to send.

use stats_ingest::is_socket_path;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where a scraper finds us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAt {
    /// TCP; port 0 for any that is free.
    Tcp(SocketAddr),
    /// A Unix socket: at that path, or where the exporter's owner says.
    Unix(Option<PathBuf>),
}

impl ListenAt {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Some(ListenAt::Unix(None)),
                path => is_socket_path(path).then(|| ListenAt::Unix(Some(path.into()))),
            };
        }
        let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        numeric.as_deref().unwrap_or(text).parse().ok().map(ListenAt::Tcp)
    }

    pub(crate) fn is_loopback(&self) -> bool {
        match self {
            ListenAt::Tcp(address) => address.ip().is_loopback(),
            ListenAt::Unix(_) => true,
        }
    }

    pub(crate) fn is_any_port(&self) -> bool {
        matches!(self, ListenAt::Tcp(address) if address.port() == 0)
    }
}

impl fmt::Display for ListenAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAt::Tcp(address) => write!(f, "{address}"),
            ListenAt::Unix(None) => f.write_str("unix:"),
            ListenAt::Unix(Some(path)) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A host, by name or number, and a port of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// A name, or an address without brackets.
    pub host: String,
    /// Which port.
    pub port: u16,
}

impl Remote {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok().filter(|port| *port != 0)?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bracketed {
            Some(host) => host.parse::<std::net::Ipv6Addr>().ok()?.to_string(),
            None => {
                let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
                let good = !host.is_empty() && host.len() <= 253 && host.bytes().all(plain);
                good.then(|| host.to_owned())?
            }
        };
        Some(Remote { host, port })
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Remote { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// An `http://` resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    /// Of whom.
    pub to: Remote,
    /// With its query.
    pub path: String,
}

impl Http {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("http://")?;
        let (host, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let to = Remote::parse(host).or_else(|| Remote::parse(&format!("{host}:80")))?;
        let good = path.bytes().all(|b| b.is_ascii_graphic() && b != b'#');
        good.then(|| Http { to, path: path.to_owned() })
    }
}

impl fmt::Display for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.to, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in ["carbon.site:2003", "10.0.0.1:1", "[::1]:2003"] {
            assert_eq!(Remote::parse(text).unwrap().to_string(), text);
        }
        for text in ["", ":1", "a:", "a:0", "a:70000", "a b:1", "::1:5", "[x]:1", "a/b:1", "user@host:1"] {
            assert_eq!(Remote::parse(text), None, "{text}");
        }
        let shown = |text: &str| Http::parse(text).map(|http| http.to_string());
        assert_eq!(shown("http://h:8086/write?db=a"), Some("http://h:8086/write?db=a".into()));
        assert_eq!(shown("http://h"), Some("http://h:80/".into()));
        for text in
            ["h:80", "https://h/", "http://", "http://h/a b", "http://h/#x", "http://u:p@h/", "http://h\r\n/"]
        {
            assert_eq!(shown(text), None, "{text}");
        }
    }
}
