//! `cargo xtask install`: the module and what loads it, the command with its pages, the C library under the names that
//! are looked for, and what a site's monitoring begins from.

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use flux_testbed::{Profile, Stage, Start};
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Args)]
pub(crate) struct Build {
    /// Where Flux is installed; without it `flux` is asked for its folders
    #[arg(long)]
    pub(crate) prefix: Option<PathBuf>,
    /// How it is built
    #[arg(long, default_value = "release")]
    pub(crate) profile: Built,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Built {
    Dev,
    Release,
}

impl From<Built> for Profile {
    fn from(built: Built) -> Self {
        match built {
            Built::Dev => Profile::Debug,
            Built::Release => Profile::Release,
        }
    }
}

pub(crate) fn run(build: Build, destdir: Option<&Path>) -> Result<()> {
    let folders = Folders::find(build.prefix)?;
    for file in folders.install(build.profile.into(), destdir)? {
        println!("installed {}", file.display());
    }
    println!(
        "load it with: flux stats load, or at the start of an instance with the line [stats-agg] in its configuration"
    );
    let completion = folders.share.join("bash-completion/completions/flux-stats");
    println!("for `flux stats TAB` in bash: source {}", completion.display());
    Ok(())
}

/// Where files belong.
pub(crate) struct Folders {
    modules: PathBuf,
    commands: PathBuf,
    /// `PREFIX/share`
    share: PathBuf,
    /// Where `flux help` looks for entries.
    help: PathBuf,
    start: Start,
}

impl Folders {
    /// Below `prefix`, or where the installed Flux looks.
    pub(crate) fn find(prefix: Option<PathBuf>) -> Result<Folders> {
        let (modules, commands, share, help) = match &prefix {
            Some(prefix) => {
                let prefix = std::path::absolute(prefix).context("the prefix")?;
                let help = prefix.join("share/flux/help.d");
                (prefix.join("lib/flux/modules"), prefix.join("libexec/flux/cmd"), prefix.join("share"), help)
            }
            None => {
                let (man, help) = (builtin("man_path")?, builtin("cmdhelp_pattern")?);
                (builtin("module_path")?.into(), builtin("exec_path")?.into(), parent(&man), parent(&help))
            }
        };
        let start = match builtin("rc1_path") {
            // A program of its own; else words of a command line: `flux modprobe rc1`.
            Ok(script) if script.starts_with('/') => Start::Scripts(match &prefix {
                Some(prefix) => prefix.join("etc/flux"),
                None => parent(&script),
            }),
            _ => Start::Modprobe {
                modules: share.join("flux/modprobe"),
                tasks: parent(&commands.to_string_lossy()).join("modprobe"),
            },
        };
        Ok(Folders { modules, commands, share, help, start })
    }

    /// Builds, and puts everything where it belongs, or into the same folders below `destdir`; the files written.
    pub(crate) fn install(&self, profile: Profile, destdir: Option<&Path>) -> Result<Vec<PathBuf>> {
        let within = |path: &Path| match destdir {
            Some(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
            None => path.to_owned(),
        };
        let (modules, commands) = (within(&self.modules), within(&self.commands));
        for folder in [&modules, &commands] {
            std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        }
        let stage = Stage::build(profile)?;
        let mut files = stage.install_stats_agg(&modules)?;
        let command = commands.join("flux-stats");
        stage.install(&stage.command(), &command)?;
        files.push(command);
        files.extend(stage.install_pages(&within(&self.share), &within(&self.help))?);
        files.extend(stage.install_start(&match &self.start {
            Start::Modprobe { modules, tasks } => {
                Start::Modprobe { modules: within(modules), tasks: within(tasks) }
            }
            Start::Scripts(folder) => Start::Scripts(within(folder)),
        })?);
        files.extend(stage.install_monitoring(&within(&self.share.join("flux-stats")))?);
        if let Some(libraries) = self.modules.parent() {
            let probe = within(libraries).join("reactor-probe.so");
            stage.install(&stage.reactor_probe(), &probe)?;
            files.push(probe);
        }
        // PREFIX/lib/flux/modules: the folder of libraries is two above, whatever it is called.
        if let Some(libraries) = self.modules.parent().and_then(Path::parent) {
            files.extend(stage.install_metrics(&within(libraries), libraries)?);
        }
        // Builds that nothing names any more stay: a running broker may have one mapped, and a restart frees it.
        Ok(files)
    }
}

fn parent(path: &str) -> PathBuf {
    Path::new(path).parent().unwrap_or(Path::new(path)).to_owned()
}

/// Where the installed Flux looks for modules (`module_path`), commands (`exec_path`) and so on: the first place.
fn builtin(key: &str) -> Result<String> {
    let output = Command::new("flux")
        .args(["config", "builtin", key])
        .output()
        .context("asking flux for its folders (name them with --prefix)")?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.trim().split(':').next() {
        Some(first) if output.status.success() && !first.is_empty() => Ok(first.to_owned()),
        _ => bail!("flux config builtin {key} failed: name a folder with --prefix"),
    }
}
