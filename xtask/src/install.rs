//! `cargo xtask install`: the module under the names that Flux looks for.

use anyhow::{Context, Result, bail};
use flux_testbed::{Profile, Stage};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn run(prefix: Option<PathBuf>) -> Result<()> {
    let folder = match prefix {
        Some(prefix) => prefix.join("lib/flux/modules"),
        None => module_folder()?,
    };
    std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let stage = Stage::build(Profile::Release)?;
    for file in stage.install_stats_agg(&folder)? {
        println!("installed {}", file.display());
    }
    // Builds that nothing names any more stay: a running broker may have one mapped, and a restart frees it.
    println!("load it with: flux exec -r all flux module load {}", shown(&folder));
    Ok(())
}

fn shown(folder: &Path) -> String {
    folder.join("stats-agg.so").display().to_string()
}

/// Where the installed Flux looks for modules.
fn module_folder() -> Result<PathBuf> {
    let output = Command::new("flux")
        .args(["config", "builtin", "module_path"])
        .output()
        .context("asking flux for its module folder (name one with --prefix)")?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.trim().split(':').next() {
        Some(first) if output.status.success() && !first.is_empty() => Ok(first.into()),
        _ => bail!("flux config builtin module_path failed: name a folder with --prefix"),
    }
}
