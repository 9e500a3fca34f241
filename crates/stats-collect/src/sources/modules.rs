//! The broker's list of modules.

use crate::collector::{Ask, Collector, Described, Ranks, Work};
use crate::host::Place;
use crate::readings::Readings;
use crate::sources::number;
use serde_json::Value;
use stats_core::Unit;
use std::time::Duration;

pub(crate) const TOPIC: &str = "module.list";

/// FLUX_MODSTATE_RUNNING: its reactor runs (RFC 5).
const RUNNING: f64 = 1.0;

pub(crate) const MODULES: Collector = Collector {
    name: "modules",
    about: "The queues between the broker and its modules, and which modules there are",
    ranks: Ranks::All,
    default: true,
    period: Duration::from_secs(2),
    source: "`module.list`",
    cost: "one request to the broker, which looks at every module: some 50 µs of its reactor; no module is woken",
    series: &[
        Described::gauge(
            "modules.NAME.loaded",
            Unit::None,
            "1 where the module is loaded: the sum is on how many ranks",
        ),
        Described::gauge(
            "modules.NAME.running",
            Unit::None,
            "1 where its reactor runs, 0 while it is loading or ending",
        ),
        Described::gauge(
            "modules.NAME.sendq",
            Unit::None,
            "messages that the broker has sent to the module and the module has not read: a module that falls behind",
        ),
        Described::gauge(
            "modules.NAME.recvq",
            Unit::None,
            "messages that the module has sent and the broker has not read: a broker that falls behind",
        ),
        Described::gauge(
            "modules.NAME.idle_s",
            Unit::Nanoseconds,
            "since the broker last heard from the module, in whole seconds",
        ),
    ],
    work: Work::Ask(&[Ask::new(TOPIC, read)]),
};

fn read(answer: &Value, _: &Place, readings: &mut Readings) {
    for module in answer["mods"].as_array().into_iter().flatten() {
        let Some(name) = module["name"].as_str() else { continue };
        readings.set("modules.NAME.loaded", &[name], 1.0);
        let running = number(module, &["status"]).map(|status| f64::from(u8::from(status == RUNNING)));
        readings.set_known("modules.NAME.running", &[name], running);
        readings.set_known("modules.NAME.sendq", &[name], number(module, &["sendqueue"]));
        readings.set_known("modules.NAME.recvq", &[name], number(module, &["recvqueue"]));
        readings.set_known("modules.NAME.idle_s", &[name], number(module, &["idle"]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::fixture;
    use serde_json::json;

    #[test]
    fn the_list_is_queues_and_states() {
        let answer = json!({ "mods": [
            { "name": "kvs", "path": "x", "idle": 3, "status": 1, "services": [], "sendqueue": 5, "recvqueue": 2 },
            { "name": "loading", "idle": 0, "status": 0 },
            { "path": "nameless" }, 5,
        ] });
        let read = fixture::read(&MODULES, TOPIC, "", &answer);
        assert_eq!(
            read,
            json!({
                "modules.kvs.idle_s": 3e9, "modules.kvs.loaded": 1.0, "modules.kvs.recvq": 2.0,
                "modules.kvs.running": 1.0, "modules.kvs.sendq": 5.0,
                "modules.loading.idle_s": 0.0, "modules.loading.loaded": 1.0, "modules.loading.running": 0.0,
            })
        );
        assert_eq!(fixture::read(&MODULES, TOPIC, "", &json!({ "mods": 7 })), json!({}));
    }
}
