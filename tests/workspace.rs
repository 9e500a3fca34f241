//! The crates' arrows, as ARCHITECTURE.md has them: a crate uses those above it, never those below.

use flux_testbed::workspace_root;
use serde_json::Value;
use std::process::Command;

/// Lower numbers are used by higher ones.
fn layer(package: &str) -> Option<u32> {
    Some(match package {
        "flux-sys" => 0,
        "flux" => 1,
        "stats-core" | "stats-probe" => 2,
        "flux-metrics" | "stats-collect" | "stats-ingest" | "stats-sim" => 3,
        "stats-export" => 4,
        "stats-agg" | "reactor-probe" | "stats-agg-loader" | "loadgen" | "flux-testbed" | "embedded-flux"
        | "flux-stats" | "flux-metrics-c" => 5,
        "tests" | "xtask" => 6,
        _ => return None,
    })
}

#[test]
fn every_crate_uses_only_crates_above_it() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(workspace_root())
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() >= 10);
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let own = layer(name).unwrap_or_else(|| panic!("{name}: which layer is it in?"));
        for dependency in package["dependencies"].as_array().unwrap() {
            let used = dependency["name"].as_str().unwrap();
            if let Some(theirs) = layer(used).filter(|_| dependency["path"].is_string()) {
                assert!(theirs < own, "{name} uses {used}, which is not above it");
            }
        }
    }
}
