//! The tree of brokers.

use crate::collector::{Ask, Collector, Described, Ranks, Work};
use crate::host::{Host, Place};
use crate::readings::Readings;
use crate::sources::number;
use serde_json::Value;
use stats_core::{IdSet, Unit};
use std::time::Duration;

pub(crate) const HEARTBEAT_NAME: &str = "heartbeat";
pub(crate) const EVENTS: &str = "overlay.events";

pub(crate) const OVERLAY: Collector = Collector {
    name: "overlay",
    about: "The tree of brokers: children, requests under way between brokers, and the queues between the overlay and its broker",
    ranks: Ranks::All,
    default: true,
    period: Duration::from_secs(5),
    source: "`overlay.stats-get`",
    cost: "one request, some 30 µs of the overlay's reactor (before 0.80 or so: of the broker's)",
    series: &[
        Described::gauge(
            "overlay.children",
            Unit::None,
            "children in the tree, summed over the ranks: all ranks but the root",
        ),
        Described::gauge("overlay.children_connected", Unit::None, "of them, those that are connected"),
        Described::gauge("overlay.children_lost", Unit::None, "of them, those that are not"),
        Described::gauge("overlay.child_rpcs", Unit::None, "requests that children have not answered yet"),
        Described::gauge("overlay.parent_rpcs", Unit::None, "requests that the parent has not answered yet"),
        Described::gauge(
            "overlay.sendq",
            Unit::None,
            "messages from the overlay that the broker has not read",
        ),
        Described::gauge(
            "overlay.recvq",
            Unit::None,
            "messages from the broker that the overlay has not read",
        ),
    ],
    work: Work::Ask(&[Ask::new("overlay.stats-get", read)]),
};

pub(crate) const HEARTBEAT: Collector = Collector {
    name: HEARTBEAT_NAME,
    about: "How old the last heartbeat is on each rank, and how many events the instance has published",
    ranks: Ranks::All,
    default: true,
    period: Duration::from_secs(2),
    source: "the event `heartbeat.pulse`, and its place in the order of events",
    cost: "the event itself wakes us once in a heartbeat (2 s)",
    series: &[
        Described::gauge(
            "overlay.heartbeat_age_s",
            Unit::Nanoseconds,
            "since the last heartbeat reached the rank: beyond the heartbeat's period, something holds up events on their way",
        ),
        Described::counter(
            EVENTS,
            Unit::None,
            "events of the instance, each counted once, at rank 0, when the next heartbeat comes",
        ),
    ],
    work: Work::Look(look),
};

pub(crate) const RANKS: Collector = Collector {
    name: "ranks",
    about: "Which brokers are there, as rank 0 knows",
    ranks: Ranks::Root,
    default: true,
    period: Duration::from_secs(5),
    source: "`groups.get` of `broker.online` and `broker.torpid`",
    cost: "two requests, some 20 µs each of the reactor of groups (before 0.80 or so: of the broker's)",
    series: &[
        Described::gauge("overlay.ranks_online", Unit::None, "brokers that are online"),
        Described::gauge("overlay.ranks_offline", Unit::None, "brokers of the instance that are not"),
        Described::gauge(
            "overlay.ranks_torpid",
            Unit::None,
            "brokers that are online and have not been heard of for a while",
        ),
    ],
    work: Work::Ask(&[
        Ask { payload: r#"{"name":"broker.online"}"#, ..Ask::new("groups.get", read_online) },
        Ask { payload: r#"{"name":"broker.torpid"}"#, ..Ask::new("groups.get", read_torpid) },
    ]),
};

fn read(answer: &Value, _: &Place, readings: &mut Readings) {
    let (children, connected) = (number(answer, &["child-count"]), number(answer, &["child-connected"]));
    readings.set_known("overlay.children", &[], children);
    readings.set_known("overlay.children_connected", &[], connected);
    readings.set_known("overlay.children_lost", &[], children.zip(connected).map(|(all, here)| all - here));
    readings.set_known("overlay.child_rpcs", &[], number(answer, &["child-rpc"]));
    readings.set_known("overlay.parent_rpcs", &[], number(answer, &["parent-rpc"]));
    readings.set_known("overlay.sendq", &[], number(answer, &["interthread", "sendq"]));
    readings.set_known("overlay.recvq", &[], number(answer, &["interthread", "recvq"]));
}

fn look(host: &mut Host, readings: &mut Readings) {
    readings.set_known("overlay.heartbeat_age_s", &[], host.beat.map(|beat| beat.elapsed().as_secs_f64()));
}

fn members(answer: &Value) -> Option<f64> {
    let members = answer["members"].as_str()?;
    let ranks = if members.is_empty() { IdSet::new() } else { members.parse::<IdSet>().ok()? };
    Some(ranks.len() as f64)
}

fn read_online(answer: &Value, place: &Place, readings: &mut Readings) {
    let online = members(answer);
    readings.set_known("overlay.ranks_online", &[], online);
    readings.set_known("overlay.ranks_offline", &[], online.map(|online| f64::from(place.size) - online));
}

fn read_torpid(answer: &Value, _: &Place, readings: &mut Readings) {
    readings.set_known("overlay.ranks_torpid", &[], members(answer));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::fixture;
    use serde_json::json;

    #[test]
    fn children_that_are_not_connected_are_lost() {
        let answer = json!({
            "child-count": 2, "child-connected": 1, "parent-count": 1, "parent-rpc": 3, "child-rpc": 4,
            "interthread": { "sendq": 5, "recvq": 6 },
        });
        let read = |answer| fixture::read(&OVERLAY, "overlay.stats-get", "", answer);
        assert_eq!(
            read(&answer),
            json!({
                "overlay.child_rpcs": 4.0, "overlay.children": 2.0, "overlay.children_connected": 1.0,
                "overlay.children_lost": 1.0, "overlay.parent_rpcs": 3.0, "overlay.recvq": 6.0, "overlay.sendq": 5.0,
            })
        );
        // 0.70 has no queues between threads.
        let of_070 = json!({ "child-count": 0, "child-connected": 0, "parent-count": 0, "parent-rpc": 0, "child-rpc": 0 });
        assert!(read(&of_070).get("overlay.sendq").is_none());
    }

    #[test]
    fn who_is_not_online_is_offline() {
        let read =
            |of: &str, members: &str| fixture::read(&RANKS, "groups.get", of, &json!({ "members": members }));
        assert_eq!(
            read("online", "0-4,7"),
            json!({ "overlay.ranks_offline": 2.0, "overlay.ranks_online": 6.0 }),
            "of a size of 8"
        );
        assert_eq!(read("torpid", ""), json!({ "overlay.ranks_torpid": 0.0 }));
        assert_eq!(read("torpid", "x"), json!({}));
    }
}
