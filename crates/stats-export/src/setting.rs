//! What an admin sets for one exporter: a table `[[stats-agg.export]]`, or an argument `export=TYPE,key=value,...`.

use crate::address::{Http, ListenAt, Remote};
use serde_json::json;
use stats_core::{Query, is_unseen};
use stats_ingest::is_socket_path;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Exporters that there may be.
pub const EXPORTERS_MAX: usize = 16;
/// How often numbers are sent, unless another period is set.
const PERIOD: Duration = Duration::from_secs(10);
const PERIOD_MIN: Duration = Duration::from_secs(1);
const PERIOD_MAX: Duration = Duration::from_secs(86_400);
/// What names begin with, unless another prefix is set.
const PREFIX: &str = "flux";
/// A file of JSON lines is set aside when it has this size, unless another one is set.
const ROTATE: u64 = 64 << 20;
const ROTATE_MIN: u64 = 1 << 20;
const PREFIX_MAX: usize = 100;
const NAME_MAX: usize = 40;
const PATTERNS_MAX: usize = 100;
/// The keys, as they are named in errors.
const KEYS: &str =
    "type, name, listen, target, period, match, prefix, by, credentials-file, beyond-loopback, rotate";

/// What is written, and how it gets there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// Served to whoever scrapes it.
    Prometheus,
    /// Graphite's lines, over TCP.
    Graphite,
    /// Graphite's pickles, over TCP.
    GraphitePickle,
    /// statsd lines, over UDP or a Unix datagram socket.
    Statsd,
    /// InfluxDB's lines, over HTTP.
    Influx,
    /// OTLP as protobuf, over HTTP.
    Otlp,
    /// OTLP as JSON, over HTTP.
    OtlpJson,
    /// JSON lines, into a file.
    Json,
}

const TYPES: [(&str, Type); 8] = [
    ("prometheus", Type::Prometheus),
    ("graphite", Type::Graphite),
    ("graphite-pickle", Type::GraphitePickle),
    ("statsd", Type::Statsd),
    ("influx", Type::Influx),
    ("otlp", Type::Otlp),
    ("otlp-json", Type::OtlpJson),
    ("json", Type::Json),
];

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = TYPES.iter().find(|(_, of)| of == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

/// Where numbers go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Served there.
    Listen(ListenAt),
    /// A TCP or UDP port.
    Remote(Remote),
    /// A Unix datagram socket.
    Unix(PathBuf),
    /// An HTTP resource.
    Http(Http),
    /// A file.
    File(PathBuf),
}

/// One exporter, as it is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// What its own series are named after.
    pub name: String,
    /// What is written.
    pub kind: Type,
    /// Where it goes.
    pub place: Place,
    /// How often; `None`: once, at the end. What is served is what rank 0 has, however often it is asked.
    pub period: Option<Duration>,
    /// Patterns of names; none: all but the names of others.
    pub patterns: Vec<String>,
    /// What names begin with.
    pub prefix: String,
    /// Each rank's own numbers, instead of one for the instance.
    pub by_rank: bool,
    /// A file with a token, or user and password.
    pub credentials_file: Option<PathBuf>,
    /// The size at which a file is set aside.
    pub rotate: u64,
}

/// A setting that makes no sense: the key, what was given and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadSetting(String);

fn bad(text: impl Into<String>) -> BadSetting {
    BadSetting(text.into())
}

impl Setting {
    /// From an argument's text: the type, then `key=value` words, all separated by commas that are not in braces. `match`
    /// may be there more than once.
    pub fn parse(text: &str) -> Result<Self, BadSetting> {
        let mut words = words(text).into_iter();
        let kind = words.next().unwrap_or_default();
        let pairs: Result<Vec<(&str, String)>, BadSetting> = words
            .map(|word| {
                let pair = word.split_once('=').map(|(key, value)| (key, value.to_owned()));
                pair.ok_or_else(|| bad(format!("{word}: expected key=value, where key is one of {KEYS}")))
            })
            .collect();
        let mut pairs = pairs?;
        pairs.insert(0, ("type", kind.to_owned()));
        Self::new(pairs.iter().map(|(key, value)| (*key, value.as_str())))
    }

    /// From keys and their values as texts; `match` once for each pattern.
    pub fn new<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, BadSetting> {
        let mut given = Given::default();
        for (key, value) in pairs {
            given.take(key, value)?;
        }
        given.whole()
    }

    /// Whether a series of this name is exported. Names under which others have exported what we export too are left
    /// out, unless a pattern asks for them.
    pub(crate) fn query(&self) -> Query {
        // The patterns have been parsed before.
        Query::parse(&json!({ "match": self.patterns })).unwrap_or_default()
    }

    /// How often it wants numbers of the instance; zero: whenever there are new ones. `None`: at the end alone.
    pub fn wants_every(&self) -> Option<Duration> {
        if self.kind == Type::Prometheus { Some(Duration::ZERO) } else { self.period }
    }

    /// The question for each rank's own numbers.
    pub fn by_rank_question(&self) -> serde_json::Value {
        json!({ "match": self.patterns, "by": "rank" })
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { name, kind, place, period, patterns, prefix, by_rank, credentials_file, rotate } = self;
        write!(f, "{kind}")?;
        match place {
            Place::Listen(at) if at.is_loopback() => write!(f, ",listen={at}")?,
            Place::Listen(at) => write!(f, ",listen={at},beyond-loopback=true")?,
            Place::Remote(to) => write!(f, ",target={to}")?,
            Place::Unix(path) => write!(f, ",target=unix:{}", path.display())?,
            Place::Http(to) => write!(f, ",target={to}")?,
            Place::File(path) => write!(f, ",target={}", path.display())?,
        }
        match period {
            Some(period) => write!(f, ",period={}s", period.as_secs_f64())?,
            None => write!(f, ",period=at-exit")?,
        }
        patterns.iter().try_for_each(|pattern| write!(f, ",match={pattern}"))?;
        if prefix != PREFIX {
            write!(f, ",prefix={prefix}")?;
        }
        if *rotate != ROTATE {
            write!(f, ",rotate={rotate}")?;
        }
        // Where the secret is, is none.
        credentials_file.iter().try_for_each(|path| write!(f, ",credentials-file={}", path.display()))?;
        if *by_rank { write!(f, ",by=rank,name={name}") } else { write!(f, ",name={name}") }
    }
}

/// Gives those that have no name of their own one, and refuses what two cannot share.
pub fn settle(settings: &mut [Setting]) -> Result<(), BadSetting> {
    if settings.len() > EXPORTERS_MAX {
        return Err(bad(format!("{} exporters: expected at most {EXPORTERS_MAX}", settings.len())));
    }
    for at in 0..settings.len() {
        let (before, rest) = settings.split_at_mut(at);
        let setting = &mut rest[0];
        let taken = |name: &str| before.iter().any(|other| other.name == name);
        if setting.name.is_empty() {
            let kind = setting.kind.to_string();
            let numbered = std::iter::once(kind.clone()).chain((2..).map(|n| format!("{kind}-{n}")));
            setting.name = numbered.into_iter().find(|name| !taken(name)).unwrap_or_default();
        } else if taken(&setting.name) {
            return Err(bad(format!("name={}: expected a name that no other exporter has", setting.name)));
        }
        let shared = |other: &&Setting| match (&other.place, &setting.place) {
            (Place::Listen(one), Place::Listen(other)) => one == other && !one.is_any_port(),
            (Place::File(one), Place::File(other)) => one == other,
            _ => false,
        };
        if let Some(other) = before.iter().find(shared) {
            let text = format!("{setting}: expected a place that no other exporter has ({})", other.name);
            return Err(bad(text));
        }
    }
    Ok(())
}

/// Parts between commas that are not within braces.
fn words(text: &str) -> Vec<&str> {
    let (mut words, mut depth, mut start) = (Vec::new(), 0_u32, 0);
    for (at, char) in text.char_indices() {
        match char {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                words.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    words.push(&text[start..]);
    words
}

/// Keys as they come.
#[derive(Default)]
struct Given {
    kind: Option<Type>,
    name: Option<String>,
    listen: Option<String>,
    target: Option<String>,
    period: Option<Option<Duration>>,
    patterns: Vec<String>,
    prefix: Option<String>,
    by_rank: Option<bool>,
    credentials_file: Option<PathBuf>,
    beyond_loopback: Option<bool>,
    rotate: Option<u64>,
}

fn once<T>(slot: &mut Option<T>, key: &str, value: T) -> Result<(), BadSetting> {
    if slot.replace(value).is_some() { Err(bad(format!("{key}: given more than once"))) } else { Ok(()) }
}

impl Given {
    fn take(&mut self, key: &str, value: &str) -> Result<(), BadSetting> {
        let wrong = |expected: &str| bad(format!("{key}={value}: expected {expected}"));
        match key {
            "type" => {
                let kind = TYPES.iter().find(|(name, _)| *name == value).map(|(_, kind)| *kind);
                let names = TYPES.map(|(name, _)| name).join(", ");
                once(&mut self.kind, key, kind.ok_or_else(|| wrong(&format!("one of {names}")))?)
            }
            "name" => {
                let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
                let good = !value.is_empty() && value.len() <= NAME_MAX && value.bytes().all(plain);
                let expected = format!("1 to {NAME_MAX} of A-Z a-z 0-9 _ -");
                once(&mut self.name, key, good.then(|| value.to_owned()).ok_or_else(|| wrong(&expected))?)
            }
            "listen" => once(&mut self.listen, key, value.to_owned()),
            "target" => once(&mut self.target, key, value.to_owned()),
            "period" => {
                let period = if value == "at-exit" {
                    None
                } else {
                    Some(duration(value).ok_or_else(|| wrong("a duration from 1s to 1d, or at-exit"))?)
                };
                once(&mut self.period, key, period)
            }
            "match" => {
                if self.patterns.len() == PATTERNS_MAX {
                    return Err(bad(format!("match: expected at most {PATTERNS_MAX} patterns")));
                }
                Query::parse(&json!({ "match": [value] })).map_err(|error| bad(error.to_string()))?;
                self.patterns.push(value.to_owned());
                Ok(())
            }
            "prefix" => {
                let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
                let good = value.len() <= PREFIX_MAX && value.bytes().all(plain) && !value.ends_with('.');
                let expected = format!("at most {PREFIX_MAX} of A-Z a-z 0-9 _ - ., with no dot at the end");
                once(&mut self.prefix, key, good.then(|| value.to_owned()).ok_or_else(|| wrong(&expected))?)
            }
            "by" => once(
                &mut self.by_rank,
                key,
                match value {
                    "rank" => true,
                    "none" => false,
                    _ => return Err(wrong("rank or none")),
                },
            ),
            "credentials-file" => {
                if !value.starts_with('/') {
                    return Err(wrong("an absolute path"));
                }
                once(&mut self.credentials_file, key, value.into())
            }
            "beyond-loopback" => {
                let flag = value.parse().map_err(|_| wrong("true or false"))?;
                once(&mut self.beyond_loopback, key, flag)
            }
            "rotate" => {
                let bytes = bytes(value).filter(|bytes| *bytes >= ROTATE_MIN);
                once(
                    &mut self.rotate,
                    key,
                    bytes.ok_or_else(|| wrong("a size of at least 1M, such as 64M or 2G"))?,
                )
            }
            _ => Err(bad(format!("{key}={value}: unknown key of an exporter; allowed: {KEYS}"))),
        }
    }

    fn whole(self) -> Result<Setting, BadSetting> {
        let kind = self.kind.ok_or_else(|| bad("type: expected one, such as prometheus"))?;
        let place = self.place(kind)?;
        let only = |given: bool, key: &str, of: &str| {
            let text = format!("{key}: only with type={of}, not with type={kind}");
            if given { Err(bad(text)) } else { Ok(()) }
        };
        if kind != Type::Json {
            only(self.rotate.is_some(), "rotate", "json")?;
            only(self.period == Some(None), "period=at-exit", "json")?;
        }
        if !matches!(kind, Type::Prometheus | Type::Influx | Type::Otlp | Type::OtlpJson) {
            only(
                self.credentials_file.is_some(),
                "credentials-file",
                "prometheus, influx, otlp or otlp-json",
            )?;
        }
        let by_rank = self.by_rank.unwrap_or(false);
        if by_rank && self.patterns.is_empty() {
            return Err(bad("by=rank: expected match, too, with the series that are wanted of each rank"));
        }
        if kind == Type::Prometheus && !by_rank && self.period.is_some() {
            return Err(bad(
                "period: with type=prometheus only with by=rank; the server decides when it scrapes",
            ));
        }
        if by_rank && self.period == Some(None) {
            return Err(bad("by=rank: not with period=at-exit, when other ranks may be gone"));
        }
        Ok(Setting {
            name: self.name.unwrap_or_default(),
            kind,
            place,
            period: self.period.unwrap_or(Some(PERIOD)),
            patterns: self.patterns,
            prefix: self.prefix.unwrap_or_else(|| PREFIX.to_owned()),
            by_rank,
            credentials_file: self.credentials_file,
            rotate: self.rotate.unwrap_or(ROTATE),
        })
    }

    fn place(&self, kind: Type) -> Result<Place, BadSetting> {
        let (key, value, other) = match kind {
            Type::Prometheus => ("listen", &self.listen, &self.target),
            _ => ("target", &self.target, &self.listen),
        };
        if let Some(other) = other {
            let wrong = if key == "listen" { "target" } else { "listen" };
            return Err(bad(format!("{wrong}={other}: type={kind} has {key} instead")));
        }
        if kind != Type::Prometheus && self.beyond_loopback.is_some() {
            return Err(bad(format!("beyond-loopback: only with type=prometheus, not with type={kind}")));
        }
        let form = match kind {
            Type::Prometheus => {
                "HOST:PORT with a loopback address (127.0.0.1:9464), unix: or unix:/PATH of at most 107 bytes"
            }
            Type::Graphite => "HOST:PORT (carbon's is 2003)",
            Type::GraphitePickle => "HOST:PORT (carbon's is 2004)",
            Type::Statsd => "HOST:PORT (as a rule 8125) or unix:/PATH of at most 107 bytes",
            Type::Influx => {
                "http://HOST:PORT/write?db=NAME or http://HOST:PORT/api/v2/write?org=ORG&bucket=BUCKET"
            }
            Type::Otlp | Type::OtlpJson => "http://HOST:PORT/v1/metrics",
            Type::Json => {
                "an absolute path without control or other unseen characters ({jobid} in it is the instance's job, {pid} the broker's process)"
            }
        };
        let value = value.as_deref().ok_or_else(|| bad(format!("{key}: expected {form}")))?;
        let place = match kind {
            Type::Prometheus => ListenAt::parse(value).map(Place::Listen),
            Type::Graphite | Type::GraphitePickle => Remote::parse(value).map(Place::Remote),
            Type::Statsd => match value.strip_prefix("unix:") {
                Some(path) => is_socket_path(path).then(|| Place::Unix(path.into())),
                None => Remote::parse(value).map(Place::Remote),
            },
            Type::Influx => Http::parse(value)
                .filter(|http| http.path.starts_with("/write?") || http.path.starts_with("/api/v2/write?"))
                .map(Place::Http),
            Type::Otlp | Type::OtlpJson => Http::parse(value).map(|http| {
                let path = if http.path == "/" { "/v1/metrics".to_owned() } else { http.path };
                Place::Http(Http { path, ..http })
            }),
            Type::Json => Some(Path::new(value))
                .filter(|path| path.is_absolute() && path.file_name().is_some())
                .filter(|_| !value.chars().any(is_unseen))
                .map(|path| Place::File(path.to_owned())),
        };
        let place = place.ok_or_else(|| {
            let tls = if value.starts_with("https:") {
                "; TLS is for a collector on this machine to speak"
            } else {
                ""
            };
            bad(format!("{key}={value}: expected {form}{tls}"))
        })?;
        match &place {
            Place::Listen(at) if !at.is_loopback() && self.beyond_loopback != Some(true) => {
                Err(bad(format!(
                    "{key}={value}: expected a loopback address, or beyond-loopback=true beside it, and credentials-file: \
                     without it others on the network see what guests may"
                )))
            }
            _ => Ok(place),
        }
    }
}

/// As Flux writes durations; within bounds.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    let duration = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit).ok()?;
    (PERIOD_MIN..=PERIOD_MAX).contains(&duration).then_some(duration)
}

fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = match text.chars().last()? {
        'K' => (&text[..text.len() - 1], 1 << 10),
        'M' => (&text[..text.len() - 1], 1 << 20),
        'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Setting::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn an_exporter_is_read_whole() {
        let text =
            "prometheus,listen=127.0.0.1:9464,match=modules.{kvs,broker}.*,match=jobs.*,prefix=hpc,name=p";
        let setting = Setting::parse(text).unwrap();
        assert_eq!(setting.patterns, ["modules.{kvs,broker}.*", "jobs.*"]);
        assert_eq!((setting.name.as_str(), setting.prefix.as_str(), setting.by_rank), ("p", "hpc", false));
        let graphite = Setting::parse("graphite,target=carbon:2003,period=1m").unwrap();
        assert_eq!((graphite.kind, graphite.period), (Type::Graphite, Some(Duration::from_secs(60))));
        assert_eq!(graphite.to_string(), "graphite,target=carbon:2003,period=60s,name=");
        let whole = "json,target=/x,period=1s,match=a.*,prefix=b,rotate=2097152,by=rank,name=c";
        assert_eq!(Setting::parse(whole).unwrap().to_string(), whole);
        let whole = "influx,target=http://h:1/write?db=a,period=1s,credentials-file=/x,name=c";
        assert_eq!(Setting::parse(whole).unwrap().to_string(), whole);
        let json = Setting::parse("json,target=/tmp/x.jsonl,period=at-exit").unwrap();
        assert_eq!((json.period, json.rotate), (None, 64 << 20));
        let otlp = Setting::parse("otlp,target=http://[::1]:4318").unwrap();
        assert_eq!(otlp.to_string(), "otlp,target=http://[::1]:4318/v1/metrics,period=10s,name=");
    }

    #[test]
    fn a_wrong_exporter_is_refused_with_key_value_and_what_is_allowed() {
        let long = format!("prometheus,listen=unix:/{}", "x".repeat(107));
        for (text, said) in [
            (long.as_str(), "listen=unix:/xx"),
            (&long.replace("prometheus,listen", "statsd,target"), "target=unix:/xx"),
            ("", "type=: expected one of prometheus, graphite, "),
            ("zabbix,target=a:1", "type=zabbix: expected one of prometheus"),
            ("prometheus", "listen: expected HOST:PORT with a loopback address"),
            ("prometheus,target=a:1", "target=a:1: type=prometheus has listen instead"),
            ("prometheus,listen=0.0.0.0:9464", "listen=0.0.0.0:9464: expected a loopback address"),
            ("prometheus,listen=unix:relative", "listen=unix:relative: expected HOST:PORT"),
            ("prometheus,listen=unix:,period=5s", "period: with type=prometheus only with by=rank"),
            ("prometheus,listen=unix:,by=rank", "by=rank: expected match, too"),
            ("prometheus,listen=unix:,match=", "match: \"\": expected a pattern of series"),
            ("prometheus,listen=unix:,match=a[", "match: \"a[\": [ without ]"),
            (
                "prometheus,listen=unix:,colour=red",
                "colour=red: unknown key of an exporter; allowed: type, name",
            ),
            ("prometheus,listen=unix:,listen=unix:", "listen: given more than once"),
            ("prometheus,listen=unix:,nonsense", "nonsense: expected key=value, where key is one of type"),
            (
                "prometheus,listen=unix:,credentials-file=token",
                "credentials-file=token: expected an absolute path",
            ),
            ("graphite,target=carbon", "target=carbon: expected HOST:PORT (carbon's is 2003)"),
            (
                "graphite,target=carbon:2003,period=0",
                "period=0: expected a duration from 1s to 1d, or at-exit",
            ),
            ("graphite,target=carbon:2003,period=at-exit", "period=at-exit: only with type=json"),
            (
                "graphite,target=carbon:2003,credentials-file=/x",
                "credentials-file: only with type=prometheus",
            ),
            ("graphite,target=carbon:2003,rotate=1G", "rotate: only with type=json"),
            (
                "graphite,target=carbon:2003,beyond-loopback=true",
                "beyond-loopback: only with type=prometheus",
            ),
            ("influx,target=http://h:8086", "target=http://h:8086: expected http://HOST:PORT/write?db=NAME"),
            (
                "influx,target=https://h:8086/write?db=x",
                "target=https://h:8086/write?db=x: expected http://HOST",
            ),
            ("json,target=x.jsonl", "target=x.jsonl: expected an absolute path"),
            ("json,target=/x\u{7}", "target=/x\u{7}: expected an absolute path without control"),
            ("json,target=/x,rotate=5", "rotate=5: expected a size of at least 1M"),
            ("statsd,target=unix:x", "target=unix:x: expected HOST:PORT"),
            ("statsd,target=h:1,prefix=a b", "prefix=a b: expected at most 100 of"),
            ("statsd,target=h:1,name=a.b", "name=a.b: expected 1 to 40 of"),
        ] {
            let error = refused(text);
            assert!(error.starts_with(said), "{text}: {error}");
        }
    }

    #[test]
    fn names_are_given_and_places_are_not_shared() {
        let parse = |text: &str| Setting::parse(text).unwrap();
        let mut some = ["graphite,target=a:1", "graphite,target=b:1", "json,target=/x"].map(parse);
        settle(&mut some).unwrap();
        assert_eq!(some.each_ref().map(|one| one.name.as_str()), ["graphite", "graphite-2", "json"]);
        let mut twice = ["json,target=/x", "json,target=/x,period=at-exit"].map(parse);
        let said = settle(&mut twice).unwrap_err().to_string();
        assert!(said.ends_with("expected a place that no other exporter has (json)"), "{said}");
        let mut named = ["json,target=/x,name=a", "json,target=/y,name=a"].map(parse);
        assert!(settle(&mut named).unwrap_err().to_string().starts_with("name=a: expected a name"));
        let mut any = ["prometheus,listen=127.0.0.1:0", "prometheus,listen=127.0.0.1:0"].map(parse);
        settle(&mut any).unwrap();
        let mut many = vec![parse("graphite,target=a:1"); EXPORTERS_MAX + 1];
        assert!(settle(&mut many).is_err());
    }

    #[test]
    fn the_reference_has_every_key_every_type_and_the_defaults() {
        let page = include_str!("../../../docs/settings.md");
        let section = page.split_once("## Exporters").unwrap().1.split_once("\n## ").unwrap().0;
        let rows: Vec<Vec<&str>> = section
            .lines()
            .filter(|line| line.starts_with("| `"))
            .map(|row| row.split('|').map(|cell| cell.trim().trim_matches('`')).skip(1).collect())
            .collect();
        let mut documented: Vec<&str> = rows.iter().map(|row| row[0]).collect();
        let mut keys: Vec<&str> = KEYS.split(", ").collect();
        documented.sort_unstable();
        keys.sort_unstable();
        assert_eq!(documented, keys);
        for (kind, _) in TYPES {
            assert!(section.contains(&format!("`{kind}`")), "{kind}");
        }
        let default = |key: &str| rows.iter().find(|row| row[0] == key).unwrap()[2].to_owned();
        let words: String =
            ["period", "prefix", "rotate"].iter().map(|key| format!(",{key}={}", default(key))).collect();
        let plain = "json,target=/tmp/x";
        let set = Setting::parse(&format!("{plain}{words},by={}", default("by"))).unwrap();
        assert_eq!(set, Setting::parse(plain).unwrap());
    }
}
