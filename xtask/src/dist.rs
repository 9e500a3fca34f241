//! `cargo xtask dist`: the sources as a tarball, and a package of what `cargo xtask install` installs. The same commit makes
//! the same bytes.

use crate::install::{Build, Built, Folders};
use anyhow::{Context, Result, bail};
use flux_testbed::workspace_root;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) fn run(build: Build) -> Result<()> {
    let folder = workspace_root().join("target/dist");
    println!("made {}", source(&folder)?.display());
    for package in package(build, &folder)? {
        println!("made {}", package.display());
    }
    Ok(())
}

/// What the last commit has, with its time as the time of every file.
fn source(folder: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    if !git(&["status", "--porcelain"])?.is_empty() {
        println!("what is not committed is not in the tarball");
    }
    let file = folder.join(format!("flux-stats-{VERSION}.tar.gz"));
    // Without -n the time of packing is in it.
    git(&[
        "-c",
        "tar.tar.gz.command=gzip -cn",
        "-c",
        "tar.umask=0022",
        "archive",
        "--format=tar.gz",
        &format!("--prefix=flux-stats-{VERSION}/"),
        &format!("--output={}", file.display()),
        "HEAD",
    ])?;
    Ok(file)
}

/// By cargo-deb, from a manifest that lists what has been staged: so a package has what an installation has.
fn package(build: Build, folder: &Path) -> Result<Vec<PathBuf>> {
    if Command::new("cargo-deb").arg("--version").output().is_err() {
        bail!("no package: cargo-deb is not installed (cargo install cargo-deb --locked)");
    }
    let (made, packages) = (folder.join("deb"), folder.join("deb/packages"));
    let root = made.join("root");
    // What an earlier build staged is not to be in this one.
    if made.exists() {
        std::fs::remove_dir_all(&made).with_context(|| format!("emptying {}", made.display()))?;
    }
    for folder in [&root, &packages, &made.join("src")] {
        std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    let Build { prefix, profile } = build;
    let mut files = Folders::find(prefix)?.install(profile.into(), Some(&root))?;
    files.sort();
    std::fs::write(made.join("Cargo.toml"), manifest(&root, &files)?).context("writing a manifest")?;
    // So that the library is found.
    std::fs::write(made.join("triggers"), "activate-noawait ldconfig\n").context("writing triggers")?;
    // A manifest wants a target; nothing is built of it.
    std::fs::write(made.join("src/lib.rs"), "").context("writing a target")?;

    let mut pack = Command::new("cargo-deb");
    pack.current_dir(&made).args(["--no-build", "--no-strip", "--quiet"]).arg("--output").arg(&packages);
    pack.env("SOURCE_DATE_EPOCH", git(&["log", "-1", "--format=%ct"])?);
    if matches!(profile, Built::Dev) {
        pack.arg("--fast");
    }
    pack.stdout(Stdio::null());
    let status = pack.status().context("running cargo-deb")?;
    if !status.success() {
        bail!("cargo-deb failed");
    }
    let mut moved = Vec::new();
    for entry in std::fs::read_dir(&packages).context("looking for the package")? {
        let entry = entry.context("looking for the package")?;
        let to = folder.join(entry.file_name());
        std::fs::rename(entry.path(), &to).with_context(|| format!("moving to {}", to.display()))?;
        moved.push(to);
    }
    Ok(moved)
}

/// What cargo-deb reads: the files below `root`, each for its own place.
fn manifest(root: &Path, files: &[PathBuf]) -> Result<String> {
    let (mut assets, mut settings) = (String::new(), Vec::new());
    for file in files {
        let place = file.strip_prefix(root).context("a file outside of the stage")?.to_string_lossy();
        let mode = file.metadata().with_context(|| format!("looking at {}", file.display()))?.permissions();
        let mode = if mode.mode() & 0o111 == 0 { "644" } else { "755" };
        assets += &format!("    {},\n", json!([format!("root/{place}"), place, mode]));
        if place.starts_with("etc/") {
            settings.push(format!("/{place}"));
        }
    }
    Ok(format!(
        r#"[package]
name = "flux-stats"
version = "{VERSION}"
edition = "2024"
license = "LGPL-3.0-only"
description = "Statistics of a Flux instance: of every broker module, merged over all ranks"
repository = "https://github.com/flux-framework/flux-stats"

[workspace]

[package.metadata.deb]
maintainer = "flux-stats developers"
section = "admin"
depends = "$auto"
preserve-symlinks = true
license-file = {license}
triggers-file = "triggers"
extended-description = """
A broker module for Flux instances (stats-agg), the command `flux stats`, and
a library with which programs and modules count.
"""
conf-files = {settings}
assets = [
{assets}]
"#,
        license = json!([workspace_root().join("LICENSE"), "0"]),
        settings = json!(settings),
    ))
}

fn git(arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").current_dir(workspace_root()).args(arguments).output();
    let output = output.context("running git")?;
    if !output.status.success() {
        bail!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_commit_makes_the_same_tarball() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [first, second] = folders.each_ref().map(|folder| {
            let bytes = std::fs::read(source(folder.path()).unwrap()).unwrap();
            // gzip's clock has seconds.
            std::thread::sleep(std::time::Duration::from_millis(1100));
            bytes
        });
        assert!(first.len() > 100_000, "{}", first.len());
        assert!(first == second, "two tarballs of one commit differ");
    }

    #[test]
    fn a_package_has_every_staged_file_with_its_mode_and_settings_are_kept() {
        let root = tempfile::tempdir().unwrap();
        let files = ["etc/flux/rc1.d/50-x", "usr/share/x.toml"].map(|file| root.path().join(file));
        for (file, mode) in files.iter().zip([0o700, 0o600]) {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
            std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let text = manifest(root.path(), &files).unwrap();
        let assets = r#"conf-files = ["/etc/flux/rc1.d/50-x"]
assets = [
    ["root/etc/flux/rc1.d/50-x","etc/flux/rc1.d/50-x","755"],
    ["root/usr/share/x.toml","usr/share/x.toml","644"],
]
"#;
        assert!(text.ends_with(assets), "{text}");
    }
}
