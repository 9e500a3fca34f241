//! What `docs/monitoring` names is what is exported.

use serde_json::{Value, json};
use stats_collect::all_series;
use stats_core::Kind;
use stats_export::Snapshot;
use stats_export::formats::prometheus::{Format, expose};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/monitoring")
}

fn read(file: &str) -> String {
    std::fs::read_to_string(folder().join(file)).unwrap()
}

/// The names of all samples of all series that the service makes by itself.
fn exported() -> BTreeSet<String> {
    let gauge = json!({ "value": 1, "rank": 0 });
    // Of some names there is a row for each value of a tag.
    let mut seen = BTreeSet::new();
    let series: Vec<Value> = all_series()
        .filter(|row| seen.insert(row.name))
        .map(|row| {
            let tags: serde_json::Map<String, Value> =
                row.tags.iter().map(|tag| ((*tag).into(), json!("x"))).collect();
            let name = row.filled(&["kvs", "x", "y"]);
            let unit = match row.unit {
                stats_core::Unit::Nanoseconds => "seconds",
                stats_core::Unit::Bytes => "bytes",
                _ => "none",
            };
            let mut series = json!({ "name": name, "tags": tags, "type": row.kind.name(), "unit": unit });
            let values = match row.kind {
                Kind::Counter => json!({ "total": 1, "max": { "rank": 0, "rate": 0.5 } }),
                Kind::Gauge => json!({ "count": 1, "sum": 1, "min": gauge, "max": gauge }),
                Kind::Timer => json!({ "count": 0, "sum": 0 }),
                Kind::Set => json!({ "estimate": 1 }),
            };
            series.as_object_mut().unwrap().extend(values.as_object().unwrap().clone());
            series
        })
        .collect();
    let snapshot = Snapshot::from_answer(&json!({ "version": 1, "series": series })).unwrap();
    let exposition = expose(&snapshot.view(), "flux", Format::Text);
    assert_eq!(exposition.clashes, 0, "two series of ours have one name");
    let names = exposition.text.lines().filter(|line| !line.starts_with('#'));
    let mut names: BTreeSet<String> =
        names.map(|line| line.split(['{', ' ']).next().unwrap().to_owned()).collect();
    // Of live numbers timers are histograms, too.
    let timers: Vec<String> = names
        .iter()
        .filter_map(|name| Some(format!("{}_bucket", name.strip_suffix("_count")?.replace("_quantiles", ""))))
        .collect();
    names.extend(timers);
    names
}

fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|char: char| !(char.is_ascii_alphanumeric() || char == '_'));
    words.filter(|word| word.starts_with("flux_")).map(str::to_owned).collect()
}

#[test]
fn rules_and_dashboard_name_what_is_exported() {
    let exported = exported();
    for file in ["alerts.yml", "alerts.test.yml", "grafana.json"] {
        let named = named(&read(file));
        assert!(named.len() > 10, "{file}: {named:?}");
        let unknown: Vec<&String> = named.difference(&exported).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
}

#[test]
fn every_finding_of_doctor_has_a_rule() {
    let rules = read("alerts.yml");
    // The page is compared with the doctor's own table by its tests.
    let page = std::fs::read_to_string(folder().join("../doctor.md")).unwrap();
    let findings: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert!(findings.len() > 12, "{findings:?}");
    for finding in findings {
        assert!(rules.contains(&format!("finding: {finding} }}")), "{finding}");
        assert!(read("alerts.test.yml").contains(&format!("  - name: {finding}\n")), "{finding}");
    }
}

#[test]
fn the_rules_fire_where_they_should_as_promtool_says() {
    let check = |what: &[&str]| Command::new("promtool").args(what).current_dir(folder()).output();
    match check(&["check", "rules", "alerts.yml"]) {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(_) => {
            eprintln!("skipped: promtool test rules, it is not installed here");
            return;
        }
    }
    let output = check(&["test", "rules", "alerts.test.yml"]).unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn the_dashboard_is_one() {
    let dashboard: Value = serde_json::from_str(&read("grafana.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty() && targets.iter().all(|target| target["expr"].is_string()), "{panel}");
    }
}

#[test]
fn kubernetes_files_are_what_they_say_and_name_what_is_exported() {
    let documents = |file: &str| -> Vec<Value> {
        let text = read(&format!("kubernetes/{file}"));
        serde_yaml_ng::Deserializer::from_str(&text)
            .map(|document| serde::Deserialize::deserialize(document).unwrap())
            .collect()
    };
    let kinds = |documents: &[Value]| -> Vec<String> {
        documents.iter().map(|one| one["kind"].as_str().unwrap().to_owned()).collect()
    };
    let sidecar = documents("sidecar.yml");
    assert_eq!(kinds(&sidecar), ["Pod", "Service"]);
    let containers = sidecar[0]["spec"]["containers"].as_array().unwrap();
    let volume = &sidecar[0]["spec"]["volumes"][0]["name"];
    // Both have the folder of the socket, and mean the same one.
    let socket = "/run/flux-stats/metrics";
    for container in containers {
        let mounts = container["volumeMounts"].as_array().unwrap();
        let mount = mounts.iter().find(|mount| mount["name"] == *volume).unwrap();
        assert!(socket.starts_with(mount["mountPath"].as_str().unwrap()));
        assert!(container["args"].to_string().contains(socket), "{container}");
    }
    let argument = containers[0]["args"].to_string();
    let setting = argument.split("export=").nth(1).unwrap().split("\\n").next().unwrap();
    assert!(stats_export::Setting::parse(setting).is_ok(), "{setting}");

    let hpa = documents("hpa.yml");
    assert_eq!(kinds(&hpa), ["ConfigMap", "HorizontalPodAutoscaler"]);
    let rules: Value = serde_yaml_ng::from_str(hpa[0]["data"]["config.yaml"].as_str().unwrap()).unwrap();
    assert!(rules["rules"][0]["seriesQuery"].as_str().unwrap().contains("node_(up|free)_count"));
    let exported = exported();
    for scaler in &hpa[1..] {
        let object = &scaler["spec"]["metrics"][0]["object"];
        assert!(exported.contains(object["metric"]["name"].as_str().unwrap()), "{object}");
        let service = &object["describedObject"]["name"];
        assert_eq!(*service, sidecar[1]["metadata"]["name"]);
    }
}
