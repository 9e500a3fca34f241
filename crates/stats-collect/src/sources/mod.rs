//! The table of collectors, one file for each thing that they are about.

mod broker;
mod content;
mod disk;
mod jobs;
mod kvs;
mod messages;
mod modules;
mod overlay;
mod processes;
mod resources;
mod stats;

use crate::collector::Collector;
use serde_json::Value;

pub(crate) use modules::TOPIC as MODULE_LIST;
pub(crate) use overlay::{EVENTS, HEARTBEAT_NAME as HEARTBEAT};
pub(crate) use stats::NAME as STATS;

/// All of them, in the order of the page.
pub static COLLECTORS: &[Collector] = &[
    modules::MODULES,
    messages::MESSAGES,
    processes::PROCESSES,
    broker::BROKER,
    disk::DISK,
    overlay::OVERLAY,
    overlay::HEARTBEAT,
    overlay::RANKS,
    jobs::JOBS,
    jobs::BACKLOG,
    resources::RESOURCES,
    content::CONTENT,
    content::DATABASE,
    kvs::KVS,
    stats::STATS,
];

/// A number at a path of keys.
fn number(answer: &Value, path: &[&str]) -> Option<f64> {
    path.iter().try_fold(answer, |inner, key| inner.get(key))?.as_f64()
}

/// A count at a path of keys, which Flux keeps as an `int`.
fn int(answer: &Value, path: &[&str]) -> Option<i32> {
    let number = path.iter().try_fold(answer, |inner, key| inner.get(key))?.as_i64()?;
    i32::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::all_series;
    use std::collections::BTreeSet;

    #[test]
    fn every_row_has_a_name_of_its_own_and_says_what_it_is() {
        let names: BTreeSet<&str> = COLLECTORS.iter().map(|collector| collector.name).collect();
        assert_eq!(names.len(), COLLECTORS.len());
        let mut seen = BTreeSet::new();
        for row in all_series() {
            assert!(seen.insert((row.name, row.about)), "{} twice", row.name);
            assert!(row.about.len() > 5 && !row.about.ends_with('.'), "{}: {}", row.name, row.about);
            // By the service's own prefixes or another's name for it.
            let own = stats_core::is_reserved(row.name);
            assert!(
                own || crate::aliases::described().iter().any(|alias| alias.name == row.name),
                "{}",
                row.name
            );
        }
    }
}

/// Reading fixtures: what real brokers have answered.
#[cfg(test)]
pub(crate) mod fixture {
    use crate::collector::{Ask, Collector, Work};
    use crate::host::Place;
    use crate::readings::{Readings, Value as Read};
    use serde_json::{Map, Value, json};

    /// What a question's answer amounts to: values by name and tags.
    pub(crate) fn read(collector: &Collector, topic: &str, payload: &str, answer: &Value) -> Value {
        let Work::Ask(asks) = &collector.work else { panic!("{} asks nothing", collector.name) };
        let is_it = |ask: &&Ask| ask.topic == topic && ask.payload.contains(payload);
        let ask = asks.iter().find(is_it).expect("a question of that topic");
        let mut readings = Readings::new(collector.series, true);
        (ask.read)(answer, &Place { size: 8, ..Place::unknown(0) }, &mut readings);
        shown(readings)
    }

    pub(crate) fn shown(readings: Readings) -> Value {
        let mut map = Map::new();
        for reading in readings.into_list() {
            let tags: String = reading.key.tags().map(|(key, value)| format!(";{key}={value}")).collect();
            let value = match reading.value {
                Read::State(amount) => json!(amount.to_f64()),
                Read::Total(total) => json!(format!("{total:?}")),
            };
            assert!(
                map.insert(format!("{}{tags}", reading.key.name()), value).is_none(),
                "{:?} twice",
                reading.key
            );
        }
        map.sort_keys();
        Value::Object(map)
    }
}
