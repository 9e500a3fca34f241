//! What `cargo xtask install` puts into Flux's start: on real Flux, for the double starts no modules.

use flux_testbed::{Backend, Stage, Start};
use std::path::Path;
use std::process::{Command, Output};
use tests::real;

const EVERYWHERE: &str = "flux exec -r all flux module list | grep -c stats-agg";

/// How this Flux starts, and files of that kind in a folder.
fn installed(flux: &Path) -> (tempfile::TempDir, &'static str) {
    let folder = tempfile::tempdir().unwrap();
    let asked = Command::new(flux).args(["config", "builtin", "rc1_path"]).output().unwrap();
    let (start, variable) = if asked.stdout.starts_with(b"/") {
        (Start::Scripts(folder.path().to_owned()), "FLUX_RC_EXTRA")
    } else {
        let (modules, tasks) = (folder.path().to_owned(), folder.path().to_owned());
        (Start::Modprobe { modules, tasks }, "FLUX_MODPROBE_PATH_APPEND")
    };
    let stage = Stage::of_this_build().unwrap();
    let files = stage.install_start(&start).unwrap();
    assert_eq!(files.len(), 2, "{files:?}");
    let modules = folder.path().join("modules");
    std::fs::create_dir(&modules).unwrap();
    stage.install_stats_agg(&modules).unwrap();
    (folder, variable)
}

/// What `script` and the instance around it said, which must end well.
fn started(flux: &Path, config: &str, modules: &str, script: &str) -> String {
    let (folder, variable) = installed(flux);
    let file = folder.path().join("instance.toml");
    std::fs::write(&file, config).unwrap();
    let Output { status, stdout, stderr } = Command::new(flux)
        .args(["start", "--test-size=2", &format!("-o--config-path={}", file.display()), "sh", "-c", script])
        .env(variable, folder.path())
        .env("FLUX_MODULE_PATH_PREPEND", folder.path().join(modules))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{said}");
    said
}

#[test]
fn one_line_of_configuration_loads_the_module_on_every_rank() {
    let Some(Backend::Real(flux)) = real() else { return };
    let said = started(&flux, "[stats-agg]\n", "modules", EVERYWHERE);
    assert_eq!(said.trim(), "2");
    let said = started(&flux, "[stats-agg]\nperiod = \"7s\"\n", "modules", EVERYWHERE);
    assert_eq!(said.trim(), "2");
}

#[test]
fn without_that_line_nothing_is_loaded() {
    let Some(Backend::Real(flux)) = real() else { return };
    let said = started(&flux, "[resource]\nnoverify = true\n", "modules", &format!("{EVERYWHERE} || true"));
    assert_eq!(said.trim(), "0");
}

#[test]
fn a_bad_setting_is_told_and_the_instance_starts_without_the_module() {
    let Some(Backend::Real(flux)) = real() else { return };
    // What is found last decides: that is in the log.
    let script = format!(
        "{EVERYWHERE}; flux dmesg | grep 'period=7x: expected a duration' && flux dmesg | grep 'stats-agg is not loaded'"
    );
    let said = started(&flux, "[stats-agg]\nperiod = \"7x\"\n", "modules", &script);
    assert!(said.starts_with("0\n"), "{said}");
    let script = format!("{EVERYWHERE}; flux dmesg | grep 'stats-agg is not loaded'");
    let said = started(&flux, "stats-agg = 3\n", "modules", &script);
    assert!(said.starts_with("0\n"), "{said}");
}

#[test]
fn a_module_that_is_not_there_is_told_likewise() {
    let Some(Backend::Real(flux)) = real() else { return };
    let said = started(&flux, "[stats-agg]\n", "elsewhere", &format!("{EVERYWHERE} || true"));
    assert!(said.contains("stats-agg is not loaded"), "{said}");
}
