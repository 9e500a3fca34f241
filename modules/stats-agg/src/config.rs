//! What an admin can set: `key=value` arguments and the TOML table `[stats-agg]`, the same keys in both.

use flux::{Error, parse_duration};
use serde_json::Value;
use stats_collect::Choice;
use stats_core::{GUEST_SERIES, MAX_SERIES_MOST, TAGS_MAX};
use stats_export::{Setting, settle};
use stats_ingest::Address;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The shortest period: below it the service would measure itself.
const PERIOD_MIN: Duration = Duration::from_millis(100);
const PERIOD_MAX: Duration = Duration::from_secs(3600);
/// Shorter turns are work.
const STALL_MIN: Duration = Duration::from_millis(100);
const STALL_MAX: Duration = Duration::from_secs(86_400);
const HISTORY_MAX: Duration = Duration::from_secs(86_400);
const TTL_MIN: Duration = Duration::from_secs(1);
const TTL_MAX: Duration = Duration::from_secs(30 * 86_400);
const SERIES: RangeInclusive<usize> = 100..=MAX_SERIES_MOST;
const TAGS: RangeInclusive<usize> = 0..=TAGS_MAX;
/// Sockets of one rank.
const ADDRESSES_MAX: usize = 8;
const GUEST_SERIES_RANGE: RangeInclusive<usize> = 1..=10_000;
const TEST_RANKS: RangeInclusive<usize> = 0..=200_000;

/// The keys, as they are named in errors.
const KEYS: &str = "period, probe, stall, collect, statsd, history, max-series, max-tags, ttl, guest-query, \
                    guest-push, guest-series, export";

/// The key that may be there more than once.
const EXPORT: &str = "export";

/// Those of them that are lists: in an argument, separated by commas.
const LISTS: &[&str] = &["collect", "statsd"];

/// Where the numbers of a module's reactor come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeMode {
    /// libflux's reactors are hooked, and /proc is read beside them.
    Attach,
    /// The hook of a `reactor-probe.so` that was preloaded is used, which `Attach` does too; none is put in.
    Preload,
    /// /proc alone.
    Proc,
    /// Nothing.
    Off,
}

impl fmt::Display for ProbeMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProbeMode::Attach => "attach",
            ProbeMode::Preload => "preload",
            ProbeMode::Proc => "proc",
            ProbeMode::Off => "off",
        })
    }
}

/// The settings in force.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Config {
    /// How often this rank sends a batch upstream.
    pub(crate) period: Duration,
    pub(crate) probe: ProbeMode,
    /// How long a module may stay away from its reactor before it is reported as stalled.
    pub(crate) stall: Duration,
    /// How long the root keeps recent periods.
    pub(crate) history: Duration,
    /// Series that this rank keeps, its subtree's included.
    pub(crate) max_series: usize,
    /// What is asked of Flux and the kernel.
    pub(crate) collect: Choice,
    /// Where to listen for statsd lines.
    pub(crate) statsd: Vec<Address>,
    /// Tags that a pushed series may have.
    pub(crate) max_tags: usize,
    /// How long what is pushed may be idle: a gauge, and all series of a job (the tag `jobid`).
    pub(crate) ttl: Duration,
    /// Whether others than the instance owner may query.
    pub(crate) guest_query: bool,
    /// Whether guests may not learn of jobs: `access.private-mode` of the instance.
    pub(crate) private_jobs: bool,
    /// Whether others than the instance owner may push, under names of their own, and how many series each may have.
    pub(crate) guest_push: bool,
    pub(crate) guest_series: usize,
    /// What leaves rank 0.
    pub(crate) exports: Vec<Setting>,
    /// How many the table has that are not used.
    pub(crate) unused_exports: usize,
    /// For tests: batches are taken of ranks up to this, though the instance has fewer. It holds from the load on.
    pub(crate) test_ranks: usize,
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Config {
            period,
            probe,
            stall,
            history,
            max_series,
            collect,
            statsd,
            max_tags,
            ttl,
            guest_query,
            guest_push,
            guest_series,
            private_jobs: _,
            exports,
            unused_exports,
            test_ranks,
        } = self;
        write!(f, "period={period:?} probe={probe} stall={stall:?} collect={collect} history={history:?} ")?;
        write!(f, "max-series={max_series} max-tags={max_tags} ttl={ttl:?} guest-query={guest_query} ")?;
        write!(f, "guest-push={guest_push} guest-series={guest_series}")?;
        exports.iter().try_for_each(|export| write!(f, " export={export}"))?;
        if *unused_exports > 0 {
            write!(f, " ({unused_exports} of the table not used: there is an argument export=)")?;
        }
        let statsd: Vec<String> = statsd.iter().map(Address::to_string).collect();
        if *test_ranks > 0 {
            write!(f, " test-ranks={test_ranks}")?;
        }
        if statsd.is_empty() { Ok(()) } else { write!(f, " statsd={}", statsd.join(",")) }
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            period: Duration::from_secs(2),
            probe: ProbeMode::Attach,
            stall: Duration::from_secs(5),
            history: Duration::from_secs(600),
            max_series: 20_000,
            collect: Choice::default(),
            statsd: Vec::new(),
            max_tags: TAGS_MAX,
            ttl: Duration::from_secs(600),
            guest_query: false,
            private_jobs: false,
            guest_push: false,
            guest_series: GUEST_SERIES,
            exports: Vec::new(),
            unused_exports: 0,
            test_ranks: 0,
        }
    }
}

impl Config {
    /// The table `[stats-agg]` of `instance`, the whole configuration of the instance, with `arguments` on top.
    pub(crate) fn new(instance: &Value, arguments: &[String]) -> Result<Self, Error> {
        let private_jobs = instance["access"]["private-mode"].as_bool().unwrap_or(false);
        let mut config = Config { private_jobs, ..Config::default() };
        match instance.get("stats-agg") {
            None | Some(Value::Null) => {}
            Some(Value::Object(table)) => {
                for (key, value) in table {
                    if key == EXPORT {
                        config.exports = exports(value).map_err(|error| in_table(&error))?;
                        continue;
                    }
                    config.set(key, &text(key, value)?).map_err(|error| in_table(&error))?;
                }
            }
            Some(_) => return Err(Error::invalid("[stats-agg] must be a table")),
        }
        // Arguments win here, too: one of them, and the table's exporters are none.
        if arguments.iter().any(|argument| argument.starts_with("export=")) {
            config.unused_exports = config.exports.len();
            config.exports.clear();
        }
        for argument in arguments {
            let (key, value) = argument.split_once('=').ok_or_else(|| {
                Error::invalid(format!("{argument}: expected key=value, where key is one of {KEYS}"))
            })?;
            config.set(key, value)?;
        }
        settle(&mut config.exports).map_err(|error| Error::invalid(format!("{EXPORT}: {error}")))?;
        Ok(config)
    }

    /// Whether the listener has to be told.
    pub(crate) fn statsd_changed(&self, before: &Config) -> bool {
        let concerned =
            |config: &Config| (config.statsd.clone(), config.max_series, config.max_tags, config.ttl);
        concerned(self) != concerned(before)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), Error> {
        match key {
            "period" => self.period = between(key, value, PERIOD_MIN, PERIOD_MAX)?,
            "probe" => {
                self.probe = match value {
                    "attach" => ProbeMode::Attach,
                    "preload" => ProbeMode::Preload,
                    "proc" => ProbeMode::Proc,
                    "off" => ProbeMode::Off,
                    _ => {
                        return Err(Error::invalid(format!(
                            "probe={value}: expected attach, preload, proc or off"
                        )));
                    }
                }
            }
            "stall" => self.stall = between(key, value, STALL_MIN, STALL_MAX)?,
            "history" => self.history = between(key, value, Duration::ZERO, HISTORY_MAX)?,
            "max-series" => self.max_series = whole(key, value, SERIES)?,
            "max-tags" => self.max_tags = whole(key, value, TAGS)?,
            "ttl" => self.ttl = between(key, value, TTL_MIN, TTL_MAX)?,
            "statsd" => self.statsd = addresses(key, value)?,
            "collect" => {
                let choice = value.parse::<Choice>();
                self.collect = choice.map_err(|error| Error::invalid(format!("{key}={value}: {error}")))?;
            }
            "guest-query" => self.guest_query = flag(key, value)?,
            "guest-push" => self.guest_push = flag(key, value)?,
            "guest-series" => self.guest_series = whole(key, value, GUEST_SERIES_RANGE)?,
            EXPORT if value.is_empty() => {}
            EXPORT => {
                let setting = Setting::parse(value);
                self.exports
                    .push(setting.map_err(|error| Error::invalid(format!("{key}={value}: {error}")))?);
            }
            // Not among the keys that are told: nobody sets it on an instance that is for use.
            "test-ranks" => self.test_ranks = whole(key, value, TEST_RANKS)?,
            _ => return Err(Error::invalid(format!("{key}={value}: unknown key; allowed: {KEYS}"))),
        }
        Ok(())
    }
}

/// The tables `[[stats-agg.export]]`.
fn exports(value: &Value) -> Result<Vec<Setting>, Error> {
    let tables = value
        .as_array()
        .ok_or_else(|| Error::invalid("export: expected tables, each of them [[stats-agg.export]]"))?;
    tables
        .iter()
        .enumerate()
        .map(|(place, table)| {
            one_export(table).map_err(|error| Error::invalid(format!("export {}: {error}", place + 1)))
        })
        .collect()
}

fn one_export(table: &Value) -> Result<Setting, String> {
    let table = table.as_object().ok_or("expected a table")?;
    let mut pairs = Vec::new();
    for (key, value) in table {
        let list = std::slice::from_ref(value);
        let values = value.as_array().filter(|_| key == "match").map_or(list, Vec::as_slice);
        for value in values {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                Value::Bool(flag) => flag.to_string(),
                _ => return Err(format!("{key}: expected a string, a number or a boolean, not {value}")),
            };
            pairs.push((key.as_str(), text));
        }
    }
    Setting::new(pairs.iter().map(|(key, text)| (*key, text.as_str()))).map_err(|error| error.to_string())
}

/// A TOML value as the text that an argument would have.
fn text(key: &str, value: &Value) -> Result<String, Error> {
    match value {
        Value::Array(list) if LISTS.contains(&key) => {
            let words: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
            let words = words.ok_or_else(|| {
                Error::invalid(format!("[stats-agg] {key}: expected a list of strings, not {value}"))
            })?;
            Ok(words.join(","))
        }
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        _ => Err(Error::invalid(format!(
            "[stats-agg] {key}: expected a string, a number or a boolean, not {value}"
        ))),
    }
}

fn in_table(error: &Error) -> Error {
    Error::new(error.errnum(), format!("[stats-agg] {error}"))
}

fn flag(key: &str, value: &str) -> Result<bool, Error> {
    value.parse().map_err(|_| Error::invalid(format!("{key}={value}: expected true or false")))
}

fn whole(key: &str, value: &str, range: RangeInclusive<usize>) -> Result<usize, Error> {
    value.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
        let form = format!("a whole number, {} to {}", range.start(), range.end());
        Error::invalid(format!("{key}={value}: expected {form}"))
    })
}

/// A list, each of them once. Nothing: an empty list.
fn addresses(key: &str, value: &str) -> Result<Vec<Address>, Error> {
    let mut addresses = Vec::new();
    for word in value.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let address = word.parse().map_err(|error| Error::invalid(format!("{key}={word}: {error}")))?;
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.len() > ADDRESSES_MAX {
        return Err(Error::invalid(format!("{key}={value}: expected at most {ADDRESSES_MAX} addresses")));
    }
    Ok(addresses)
}

fn between(key: &str, value: &str, min: Duration, max: Duration) -> Result<Duration, Error> {
    let duration = parse_duration(key, value)?;
    if duration < min || duration > max {
        let (min, max) = (min.as_secs_f64(), max.as_secs_f64());
        return Err(Error::invalid(format!("{key}={value}: expected a duration from {min}s to {max}s")));
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with(instance: Value, arguments: &[&str]) -> Result<Config, Error> {
        Config::new(&instance, &arguments.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn nothing_set_is_the_documented_default() {
        let config = with(json!({ "resource": {} }), &[]).unwrap();
        assert_eq!(config, Config::default());
        assert_eq!((config.period.as_secs(), config.probe), (2, ProbeMode::Attach));
    }

    #[test]
    fn arguments_win_over_the_table() {
        let instance =
            json!({"stats-agg": {"period": "5s", "probe": "proc", "max-series": 1000, "guest-query": true}});
        let config = with(instance, &["period=500ms", "stall=1m"]).unwrap();
        assert_eq!((config.period.as_millis(), config.probe), (500, ProbeMode::Proc));
        assert_eq!(config.stall, Duration::from_secs(60));
        assert_eq!((config.max_series, config.guest_query), (1000, true));
    }

    #[test]
    fn exporters_of_the_table_that_an_argument_replaces_are_named_in_what_holds() {
        let exports = json!({"stats-agg": {"export": [{ "type": "json", "target": "/x" }]}});
        let config = with(exports.clone(), &["export=prometheus,listen=unix:"]).unwrap();
        let told = " (1 of the table not used: there is an argument export=)";
        assert!(config.exports.len() == 1 && config.to_string().contains(told), "{config}");
        assert!(!with(exports, &[]).unwrap().to_string().contains("not used"));
    }

    #[test]
    fn a_list_is_a_list_in_the_table_and_separated_by_commas_as_an_argument() {
        let table = json!({"stats-agg": {"statsd": ["127.0.0.1:8125", "unix:"], "ttl": "1h", "max-tags": 4}});
        let from_table = with(table.clone(), &[]).unwrap();
        let shown = |config: &Config| config.statsd.iter().map(Address::to_string).collect::<Vec<_>>();
        assert_eq!(shown(&from_table), ["127.0.0.1:8125", "unix:"]);
        assert_eq!((from_table.ttl.as_secs(), from_table.max_tags), (3600, 4));
        let from_arguments = with(json!({}), &["statsd=127.0.0.1:8125,unix:,unix"]).unwrap();
        assert_eq!(from_arguments.statsd, from_table.statsd);
        assert!(with(table, &["statsd="]).unwrap().statsd.is_empty(), "an argument can switch it off");
    }

    #[test]
    fn a_wrong_setting_is_refused_with_key_value_and_what_is_allowed() {
        for (word, said) in [
            ("period=abc", "period=abc: expected a duration"),
            ("period=-1", "period=-1: expected a duration"),
            ("period=0", "period=0: expected a duration from 0.1s to 3600s"),
            ("probe=magic", "probe=magic: expected attach, preload, proc or off"),
            (
                "nonsense=1",
                "nonsense=1: unknown key; allowed: period, probe, stall, collect, statsd, history",
            ),
            ("nonsense", "nonsense: expected key=value, where key is one of period"),
            ("max-series=-5", "max-series=-5: expected a whole number, 100 to 1000000"),
            ("guest-query=maybe", "guest-query=maybe: expected true or false"),
            ("collect=jobs,job", "collect=jobs,job: \"job\" is no collector: expected modules, messages"),
            ("guest-push=", "guest-push=: expected true or false"),
            ("guest-series=0", "guest-series=0: expected a whole number, 1 to 10000"),
            ("statsd=8125", "statsd=8125: expected HOST:PORT with a loopback address"),
            ("statsd=0.0.0.0:8125", "statsd=0.0.0.0:8125: expected HOST:PORT with a loopback address"),
            ("max-tags=17", "max-tags=17: expected a whole number, 0 to 16"),
            ("ttl=0s", "ttl=0s: expected a duration from 1s"),
            ("stall=0", "stall=0: expected a duration from 0.1s to 86400s"),
            ("test-ranks=many", "test-ranks=many: expected a whole number, 0 to 200000"),
            ("history=2d", "history=2d: expected a duration from 0s to 86400s"),
            ("ttl=0.5", "ttl=0.5: expected a duration from 1s to 2592000s"),
        ] {
            let error = with(json!({}), &[word]).unwrap_err().to_string();
            assert!(error.starts_with(said), "{word}: {error}");
        }
    }

    #[test]
    fn a_wrong_table_says_that_it_is_the_table() {
        for (table, said) in [
            (json!({"period": "abc"}), "[stats-agg] period=abc: expected a duration"),
            (json!({"perriod": "1s"}), "[stats-agg] perriod=1s: unknown key"),
            (json!({"statsd": [8125]}), "[stats-agg] statsd: expected a list of strings, not [8125]"),
            (json!({"statsd": ["10.0.0.1:8125"]}), "[stats-agg] statsd=10.0.0.1:8125: expected HOST:PORT"),
            (json!({"probe": ["attach"]}), "[stats-agg] probe: expected a string"),
            (json!("x"), "[stats-agg] must be a table"),
        ] {
            let error = with(json!({ "stats-agg": table }), &[]).unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }

    /// The rows of the table of settings in the reference, as cells without their backquotes.
    fn documented() -> Vec<Vec<String>> {
        let page = include_str!("../../../docs/settings.md");
        let section = page.split_once("## Settings").unwrap().1.split_once("\n## ").unwrap().0;
        let rows = section.lines().filter(|line| line.starts_with("| `"));
        rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect())
            .collect()
    }

    #[test]
    fn the_reference_has_every_key_and_no_other() {
        let rows = documented();
        let mut documented: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
        let mut keys: Vec<&str> = KEYS.split(", ").collect();
        documented.sort_unstable();
        keys.sort_unstable();
        assert_eq!(documented, keys);
    }

    #[test]
    fn a_default_of_the_reference_is_what_nothing_set_amounts_to() {
        for row in documented() {
            let (key, default) = (&row[0], &row[2]);
            let word = match default.as_str() {
                "empty" | "none" => format!("{key}="),
                value => format!("{key}={value}"),
            };
            assert_eq!(with(json!({}), &[&word]).unwrap(), Config::default(), "{word}");
        }
    }

    #[test]
    fn a_range_of_the_reference_is_taken_to_its_ends_and_not_beyond() {
        let mut ranges = 0;
        for row in documented() {
            let (key, range) = (&row[0], &row[3]);
            let set = |value: &str| with(json!({}), &[&format!("{key}={value}")]);
            if let Some((least, most)) = range.split_once(" to ") {
                let duration = least.ends_with('s');
                let beyond = if duration {
                    [format!("{}ms", seconds(least) * 1e3 - 1.0), format!("{}s", seconds(most) + 1.0)]
                } else {
                    let number = |text: &str| text.parse::<i64>().unwrap();
                    [(number(least) - 1).to_string(), (number(most) + 1).to_string()]
                };
                for value in [least, most] {
                    set(value).unwrap_or_else(|error| panic!("{key}={value}: {error}"));
                }
                for value in &beyond {
                    assert!(set(value).is_err(), "{key}={value} is taken");
                }
                ranges += 1;
            } else if range.contains(", ") {
                for value in range.split(", ") {
                    set(value).unwrap_or_else(|error| panic!("{key}={value}: {error}"));
                }
            }
        }
        assert_eq!(ranges, 7, "of so many keys");
    }

    fn seconds(text: &str) -> f64 {
        parse_duration("", text).unwrap().as_secs_f64()
    }

    #[test]
    fn the_table_that_the_reference_shows_is_taken() {
        let page = include_str!("../../../docs/settings.md");
        let block = page.split_once("```toml\n").unwrap().1.split_once("```").unwrap().0;
        let lines = block.lines().filter_map(|line| line.split_once(" = "));
        let table: serde_json::Map<String, Value> =
            lines.map(|(key, value)| (key.to_owned(), serde_json::from_str(value).unwrap())).collect();
        assert_eq!(table.len(), 4);
        with(json!({ "stats-agg": table }), &[]).unwrap();
    }
}
