//! Nodes, cores and GPUs.

use crate::collector::{Ask, Collector, Described, Ranks, Work};
use crate::host::Place;
use crate::readings::Readings;
use serde_json::Value;
use stats_core::{IdSet, Unit};
use std::collections::BTreeMap;
use std::time::Duration;

/// One kind of resource, in each of its states.
struct Forms {
    total: &'static str,
    up: &'static str,
    down: &'static str,
    allocated: &'static str,
    free: &'static str,
    drained: &'static str,
}

macro_rules! forms {
    ($($kind:ident = $name:literal, $about:literal;)*) => {
        $(const $kind: Forms = Forms {
            total: concat!("resources.", $name, ".total"),
            up: concat!("resources.", $name, ".up"),
            down: concat!("resources.", $name, ".down"),
            allocated: concat!("resources.", $name, ".allocated"),
            free: concat!("resources.", $name, ".free"),
            drained: concat!("resources.", $name, ".drained"),
        };)*
        const SERIES: &[Described] = &[$(
            Described::gauge($kind.total, Unit::None, concat!($about, ", all but those excluded by configuration")),
            Described::gauge($kind.up, Unit::None, concat!($about, " that can be given to jobs, or are")),
            Described::gauge($kind.down, Unit::None, concat!($about, " that cannot: offline or drained")),
            Described::gauge($kind.allocated, Unit::None, concat!($about, " that jobs have (a node: a part of it at least)")),
            Described::gauge($kind.free, Unit::None, concat!($about, " that are up and that no job has (a node: a part of it at least)")),
            Described::gauge($kind.drained, Unit::None, concat!($about, " that are drained, whether online or not")),
        )*];
    };
}

forms! {
    NODES = "nodes", "nodes";
    CORES = "cores", "cores";
    GPUS = "gpus", "GPUs";
}

pub(crate) const RESOURCES: Collector = Collector {
    name: "resources",
    about: "Nodes, cores and GPUs by what they are up to, as `flux resource` counts them",
    ranks: Ranks::Root,
    default: true,
    period: Duration::from_secs(10),
    source: "`resource.sched-status`, `resource.status`",
    cost: "two requests to resource, the first of which asks job-manager: they grow with the number of nodes, hence the longer period",
    series: SERIES,
    work: Work::Ask(&[
        Ask::new("resource.sched-status", read_sched),
        Ask::new("resource.status", read_status),
    ]),
};

/// What each rank has.
#[derive(Default)]
struct Set(BTreeMap<u32, (IdSet, IdSet)>);

impl Set {
    /// From R (RFC 20). Ranks that the instance does not have are nobody's.
    fn of(r: &Value, place: &Place) -> Self {
        let mut set = Set::default();
        let ids =
            |text: &Value| text.as_str().and_then(|text| text.parse::<IdSet>().ok()).unwrap_or_default();
        for group in r["execution"]["R_lite"].as_array().into_iter().flatten() {
            let (cores, gpus) = (ids(&group["children"]["core"]), ids(&group["children"]["gpu"]));
            for rank in ids(&group["rank"]).iter().take_while(|rank| *rank < place.size) {
                let has = set.0.entry(rank).or_default();
                has.0.add(&cores);
                has.1.add(&gpus);
            }
        }
        set
    }

    fn counts(&self) -> [u64; 3] {
        let has = |of: &(IdSet, IdSet)| !(of.0.is_empty() && of.1.is_empty());
        [
            self.0.values().filter(|of| has(of)).count() as u64,
            self.0.values().map(|(cores, _)| cores.len()).sum(),
            self.0.values().map(|(_, gpus)| gpus.len()).sum(),
        ]
    }

    /// Without what `other` has.
    fn minus(&self, other: &Set) -> Set {
        let rest = self.0.iter().map(|(&rank, (cores, gpus))| match other.0.get(&rank) {
            Some(taken) => (rank, (cores.minus(&taken.0), gpus.minus(&taken.1))),
            None => (rank, (cores.clone(), gpus.clone())),
        });
        Set(rest.collect())
    }

    fn only(&self, ranks: &IdSet) -> Set {
        Set(self
            .0
            .iter()
            .filter(|(rank, _)| ranks.contains(**rank))
            .map(|(&rank, of)| (rank, of.clone()))
            .collect())
    }
}

fn tell(readings: &mut Readings, form: fn(&Forms) -> &'static str, set: &Set) {
    for (kind, count) in [NODES, CORES, GPUS].iter().zip(set.counts()) {
        readings.set(form(kind), &[], count as f64);
    }
}

fn read_sched(answer: &Value, place: &Place, readings: &mut Readings) {
    if answer.get("all").is_none() {
        return;
    }
    let [all, down, allocated] = ["all", "down", "allocated"].map(|part| Set::of(&answer[part], place));
    let up = all.minus(&down);
    tell(readings, |of| of.total, &all);
    tell(readings, |of| of.down, &down);
    tell(readings, |of| of.allocated, &allocated);
    tell(readings, |of| of.free, &up.minus(&allocated));
    tell(readings, |of| of.up, &up);
}

fn read_status(answer: &Value, place: &Place, readings: &mut Readings) {
    let Some(drain) = answer["drain"].as_object() else { return };
    let mut drained = IdSet::new();
    drain.keys().filter_map(|ranks| ranks.parse().ok()).for_each(|ranks: IdSet| drained.add(&ranks));
    tell(readings, |of| of.drained, &Set::of(&answer["R"], place).only(&drained));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::fixture;
    use serde_json::json;

    fn r(groups: &[(&str, &str, &str)]) -> Value {
        let groups = groups.iter().map(|(rank, core, gpu)| match *gpu {
            "" => json!({ "rank": rank, "children": { "core": core } }),
            gpu => json!({ "rank": rank, "children": { "core": core, "gpu": gpu } }),
        });
        json!({ "version": 1, "execution": { "R_lite": groups.collect::<Vec<_>>() } })
    }

    #[test]
    fn free_is_up_and_not_allocated() {
        let answer = json!({
            "all": r(&[("0-2", "0-7", ""), ("3", "0-3", "0-1")]),
            "down": r(&[("2", "0-7", "")]),
            "allocated": r(&[("0", "0-7", ""), ("3", "0", "0"), ("2", "0-3", "")]),
        });
        let read = fixture::read(&RESOURCES, "resource.sched-status", "", &answer);
        let of = |name: &str| {
            ["nodes", "cores", "gpus"].map(|kind| read[format!("resources.{kind}.{name}")].as_f64().unwrap())
        };
        assert_eq!(of("total"), [4.0, 28.0, 2.0]);
        assert_eq!(of("up"), [3.0, 20.0, 2.0]);
        assert_eq!(of("down"), [1.0, 8.0, 0.0]);
        assert_eq!(of("allocated"), [3.0, 13.0, 1.0]);
        assert_eq!(of("free"), [2.0, 11.0, 1.0], "rank 0 has none left, rank 2 is down");
        assert_eq!(read["node_cores_free_count"], 11.0, "and not those that are up");
        assert_eq!(read["flux_node_counts;state=up"], 3.0);
    }

    #[test]
    fn drained_nodes_are_counted_with_what_they_have() {
        let answer = json!({
            "R": r(&[("0-3", "0-7", "0")]), "online": "0-3", "offline": "", "exclude": "",
            "drain": { "1-2": { "timestamp": 1.0, "reason": "x" }, "nonsense": {} },
        });
        let read = fixture::read(&RESOURCES, "resource.status", "", &answer);
        let drained = ["nodes", "cores", "gpus"]
            .map(|kind| read[format!("resources.{kind}.drained")].as_f64().unwrap());
        assert_eq!(drained, [2.0, 16.0, 2.0]);
    }

    #[test]
    fn nonsense_is_no_zero() {
        assert_eq!(fixture::read(&RESOURCES, "resource.sched-status", "", &json!({})), json!({}));
        assert_eq!(fixture::read(&RESOURCES, "resource.status", "", &json!({})), json!({}));
        let huge = json!({ "all": r(&[("0-4294967295", "0", "")]), "down": {}, "allocated": {} });
        let read = fixture::read(&RESOURCES, "resource.sched-status", "", &huge);
        assert_eq!(read["resources.nodes.total"], 8.0, "the size of the instance");
    }
}
