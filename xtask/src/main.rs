//! The one door for a maintainer: `cargo xtask COMMAND`.
#![forbid(unsafe_code)]

mod bench;
#[cfg(feature = "bindings")]
mod bindings;
mod demo;
mod dist;
mod install;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::Command;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Builds, shows, tests, measures, installs and packages flux-stats")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Starts an instance (real Flux where one is found, else the embedded double) and shows every module at work
    Demo(demo::Options),
    /// Runs what CI runs of Rust: format, lints, tests, documentation
    Test,
    /// Runs every benchmark and prints each figure beside its rival
    Bench(bench::Options),
    /// Regenerates flux-sys/src/bindings.rs from include/libflux.h (needs libclang)
    Bindings {
        /// Only say whether the file is what would be generated
        #[arg(long)]
        check: bool,
    },
    /// Installs the module, what loads it when an instance starts, and the command `flux stats`
    Install {
        #[command(flatten)]
        build: install::Build,
        /// Puts everything below this folder, for a package: the files name each other without it
        #[arg(long)]
        destdir: Option<PathBuf>,
    },
    /// Makes target/dist: the sources of the last commit as a tarball, and a Debian package of what `install` installs
    Dist(install::Build),
}

fn main() -> Result<()> {
    match Arguments::parse().task {
        Task::Demo(options) => demo::run(&options),
        Task::Test => test(),
        Task::Bench(options) => bench::run(&options),
        Task::Bindings { check } => bindings(check),
        Task::Install { build, destdir } => install::run(build, destdir.as_deref()),
        Task::Dist(build) => dist::run(build),
    }
}

fn cargo(arguments: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    println!("+ cargo {}", arguments.join(" "));
    let mut command = Command::new(program);
    command.current_dir(flux_testbed::workspace_root()).args(arguments).envs(environment.iter().copied());
    let status = command.status().context("running cargo")?;
    if status.success() { Ok(()) } else { bail!("cargo {} failed", arguments.join(" ")) }
}

fn test() -> Result<()> {
    cargo(&["fmt", "--all", "--check"], &[])?;
    cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])?;
    cargo(&["test", "--workspace"], &[])?;
    cargo(&["doc", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")])
}

#[cfg(feature = "bindings")]
fn bindings(check: bool) -> Result<()> {
    bindings::run(flux_testbed::workspace_root(), check)
}

/// Without the feature that links libclang: runs itself again with it.
#[cfg(not(feature = "bindings"))]
fn bindings(check: bool) -> Result<()> {
    let mut arguments =
        vec!["run", "--quiet", "--package", "xtask", "--features", "bindings", "--", "bindings"];
    arguments.extend(check.then_some("--check"));
    cargo(&arguments, &[])
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        super::Arguments::command().debug_assert();
    }
}
