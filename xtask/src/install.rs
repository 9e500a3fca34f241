//! `cargo xtask install`: the module, the command with its pages, and the C library under the names that are looked for.

use anyhow::{Context, Result, bail};
use flux_testbed::{Profile, Stage};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn run(prefix: Option<PathBuf>) -> Result<()> {
    let Folders { modules: folder, commands, share, help } = match prefix {
        Some(prefix) => Folders {
            modules: prefix.join("lib/flux/modules"),
            commands: prefix.join("libexec/flux/cmd"),
            share: prefix.join("share"),
            help: prefix.join("share/flux/help.d"),
        },
        None => Folders {
            modules: builtin_folder("module_path")?,
            commands: builtin_folder("exec_path")?,
            share: parent(builtin_folder("man_path")?),
            help: parent(builtin_folder("cmdhelp_pattern")?),
        },
    };
    for folder in [&folder, &commands] {
        std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    let stage = Stage::build(Profile::Release)?;
    for file in stage.install_stats_agg(&folder)? {
        println!("installed {}", file.display());
    }
    let command = commands.join("flux-stats");
    stage.install(&stage.command(), &command)?;
    println!("installed {}", command.display());
    for file in stage.install_pages(&share, &help)? {
        println!("installed {}", file.display());
    }
    if let Some(libraries) = folder.parent() {
        let probe = libraries.join("reactor-probe.so");
        stage.install(&stage.reactor_probe(), &probe)?;
        println!("installed {}", probe.display());
    }
    // PREFIX/lib/flux/modules: the folder of libraries is two above, whatever it is called.
    if let Some(libraries) = folder.parent().and_then(Path::parent) {
        for file in stage.install_metrics(libraries)? {
            println!("installed {}", file.display());
        }
    }
    // Builds that nothing names any more stay: a running broker may have one mapped, and a restart frees it.
    println!("load it with: flux stats load");
    let completion = share.join("bash-completion/completions/flux-stats");
    println!("for `flux stats TAB` in bash: source {}", completion.display());
    Ok(())
}

struct Folders {
    modules: PathBuf,
    commands: PathBuf,
    /// `PREFIX/share`
    share: PathBuf,
    /// Where `flux help` looks for entries.
    help: PathBuf,
}

fn parent(path: PathBuf) -> PathBuf {
    path.parent().map_or(path.clone(), Path::to_owned)
}

/// Where the installed Flux looks for modules (`module_path`), commands (`exec_path`) and so on: the first place.
fn builtin_folder(key: &str) -> Result<PathBuf> {
    let output = Command::new("flux")
        .args(["config", "builtin", key])
        .output()
        .context("asking flux for its folders (name them with --prefix)")?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.trim().split(':').next() {
        Some(first) if output.status.success() && !first.is_empty() => Ok(first.into()),
        _ => bail!("flux config builtin {key} failed: name a folder with --prefix"),
    }
}
