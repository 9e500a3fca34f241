//! Built artifacts under the names that Flux expects: used by tests, the demo and the installation alike.

use crate::{Error, Result};
use sha2::{Digest, Sha256};
use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The packages that make modules and what runs them.
const PACKAGES: &[&str] = &[
    "stats-agg",
    "stats-agg-loader",
    "loadgen",
    "reactor-probe",
    "flux-stats",
    "flux-metrics-c",
    "stats-sim",
    "flux-testbed",
    "embedded-flux",
];
/// The example modules of the crate `flux`.
const EXAMPLES: &[&str] = &["hello", "panics"];
/// The example programs of the crate `flux-metrics`.
const PROGRAMS: &[&str] = &["push", "count"];

/// libflux-metrics as programs load it, and as they link it.
const LIBRARY: &str = "libflux-metrics.so.0";
const LIBRARY_LINK: &str = "libflux-metrics.so";

/// How artifacts are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Quickly.
    Debug,
    /// For use.
    Release,
}

impl Profile {
    /// As the running program itself is.
    pub const OWN: Profile = if cfg!(debug_assertions) { Profile::Debug } else { Profile::Release };
}

/// A folder of modules, and what stands beside it.
#[derive(Debug, Clone)]
pub struct Stage {
    folder: PathBuf,
}

/// How an instance that starts loads the module, and removes it at its end: the sources are in `etc/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// flux-modprobe(1), which newer versions of Flux start with: what describes modules and what runs are in folders
    /// of their own.
    Modprobe {
        /// `PREFIX/share/flux/modprobe`
        modules: PathBuf,
        /// `PREFIX/libexec/flux/modprobe`
        tasks: PathBuf,
    },
    /// Scripts of older ones, in the folder that has `rc1.d` and `rc3.d` (`PREFIX/etc/flux`).
    Scripts(PathBuf),
}

impl Start {
    /// Each source, and where it belongs.
    fn files(&self) -> Vec<(&'static str, PathBuf)> {
        match self {
            Start::Modprobe { modules, tasks } => vec![
                ("etc/modprobe/modprobe.d/stats-agg.toml", modules.join("modprobe.d/stats-agg.toml")),
                ("etc/modprobe/rc1.d/stats-agg.py", tasks.join("rc1.d/stats-agg.py")),
            ],
            Start::Scripts(folder) => vec![
                ("etc/rc1.d/50-stats-agg", folder.join("rc1.d/50-stats-agg")),
                ("etc/rc3.d/50-stats-agg", folder.join("rc3.d/50-stats-agg")),
            ],
        }
    }
}

/// An implementation of stats-agg that suites load instead of the one that is built: one with a sanitizer, say.
const OTHER: &str = "FLUX_STATS_IMPLEMENTATION";

/// The root of the workspace that this crate was built in.
pub fn workspace_root() -> &'static Path {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.unwrap_or_else(|| Path::new("."))
}

impl Stage {
    /// The artifacts of this build, built if need be: once for each process.
    pub fn of_this_build() -> Result<&'static Stage> {
        Stage::of(Profile::OWN)
    }

    /// The artifacts of `profile`, likewise.
    pub fn of(profile: Profile) -> Result<&'static Stage> {
        static STAGES: [OnceLock<Stage>; 2] = [const { OnceLock::new() }; 2];
        let place = &STAGES[usize::from(profile == Profile::Release)];
        if let Some(stage) = place.get() {
            return Ok(stage);
        }
        let stage = Stage::build(profile)?;
        Ok(place.get_or_init(|| stage))
    }

    /// Builds everything and puts it where it belongs.
    pub fn build(profile: Profile) -> Result<Stage> {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.current_dir(workspace_root()).args(["build", "--quiet"]);
        PACKAGES.iter().for_each(|package| {
            command.args(["--package", package]);
        });
        run(&mut command, profile)?;
        let mut examples = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        examples.current_dir(workspace_root()).args(["build", "--quiet", "--examples"]);
        examples.args(["--package", "flux", "--package", "flux-metrics"]);
        run(&mut examples, profile)?;

        let target =
            env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace_root().join("target"), PathBuf::from);
        let built =
            workspace_root().join(target).join(if profile == Profile::Debug { "debug" } else { "release" });
        let stage = Stage { folder: built.join("stage") };
        fs::create_dir_all(&stage.folder)
            .map_err(Error::io(format!("creating {}", stage.folder.display())))?;
        // Another process may stage the same files at the same time.
        let lock = fs::File::create(stage.folder.join(".lock")).map_err(Error::io("creating a lock"))?;
        lock.lock().map_err(Error::io("locking"))?;
        place(&built.join("libloadgen.so"), &stage.folder.join("loadgen.so"))?;
        for example in EXAMPLES {
            let module = format!("{example}.so");
            place(&built.join("examples").join(format!("lib{module}")), &stage.folder.join(module))?;
        }
        for program in PROGRAMS {
            place(&built.join("examples").join(program), &stage.program(program))?;
        }
        // What is installed is always what was built.
        let other = env::var_os(OTHER).filter(|_| profile == Profile::Debug);
        let implementation = other.map_or_else(|| built.join("libstats_agg.so"), PathBuf::from);
        place_pair(&implementation, &built.join("libstats_agg_loader.so"), &stage.folder)?;
        place(&built.join("libflux_core.so"), &stage.libflux())?;
        place(&built.join("embedded-broker"), &stage.program("embedded-broker"))?;
        place(&built.join("testbed-rpc"), &stage.program("testbed-rpc"))?;
        place(&built.join("libreactor_probe.so"), &stage.reactor_probe())?;
        place(&built.join("flux-stats"), &stage.command())?;
        let libraries = stage.libraries();
        fs::create_dir_all(&libraries).map_err(Error::io(format!("creating {}", libraries.display())))?;
        stage.install_library(&built.join("libflux_metrics_c.so"), &libraries)?;
        place(&built.join("stats-sim"), &stage.simulator())?;
        Ok(stage)
    }

    /// The file of a module.
    pub fn module(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.so"))
    }

    /// The double's libflux.
    pub(crate) fn libflux(&self) -> PathBuf {
        self.folder.join("libflux-core.so.2")
    }

    /// What `flux` runs as `flux stats`.
    pub fn command(&self) -> PathBuf {
        self.folder.join("flux-stats")
    }

    /// What plays ranks that an instance does not have.
    pub fn simulator(&self) -> PathBuf {
        self.program("stats-sim")
    }

    /// The object to be preloaded into brokers.
    pub fn reactor_probe(&self) -> PathBuf {
        self.folder.join("reactor-probe.so")
    }

    /// loadgen as a module in Python.
    pub fn python_loadgen(&self) -> PathBuf {
        workspace_root().join("modules/loadgen/loadgen.py")
    }

    /// The folder in which libflux-metrics is, for programs in C. The double's libflux is in another: a program of
    /// real Flux must not find it.
    pub fn libraries(&self) -> PathBuf {
        self.folder.join("lib")
    }

    /// Installs what loads the module when an instance starts; the files written.
    pub fn install_start(&self, start: &Start) -> Result<Vec<PathBuf>> {
        install_sources(start.files())
    }

    /// Installs the dashboard and the alert rules into `folder` (`PREFIX/share/flux-stats`); the files written.
    pub fn install_monitoring(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        install_sources(vec![
            ("docs/monitoring/alerts.yml", folder.join("alerts.yml")),
            ("docs/monitoring/grafana.json", folder.join("grafana.json")),
        ])
    }

    /// Installs libflux-metrics into `libraries` (`PREFIX/lib`), its header into `PREFIX/include` and what pkg-config
    /// asks for into `libraries/pkgconfig`; the files written. `named` is what `libraries` is called where it is used:
    /// the same, unless it is staged for a package.
    pub fn install_metrics(&self, libraries: &Path, named: &Path) -> Result<Vec<PathBuf>> {
        let prefix = libraries.parent().unwrap_or(libraries);
        let (include, config) = (prefix.join("include"), libraries.join("pkgconfig"));
        for folder in [libraries, &include, &config] {
            fs::create_dir_all(folder).map_err(Error::io(format!("creating {}", folder.display())))?;
        }
        let mut files = self.install_library(&self.libraries().join(LIBRARY), libraries)?;
        let (header, config) = (include.join("flux-metrics.h"), config.join("flux-metrics.pc"));
        place(&workspace_root().join("include/flux-metrics.h"), &header)?;
        let template = workspace_root().join("crates/flux-metrics-c/flux-metrics.pc.in");
        let text = fs::read_to_string(&template)
            .map_err(Error::io(format!("reading {}", template.display())))?
            .replace("@prefix@", &named.parent().unwrap_or(named).to_string_lossy())
            .replace("@libdir@", &named.to_string_lossy())
            .replace("@version@", env!("CARGO_PKG_VERSION"));
        fs::write(&config, text).map_err(Error::io(format!("writing {}", config.display())))?;
        files.extend([header, config]);
        Ok(files)
    }

    /// Installs what `flux-stats generate` makes: man pages, completions below `share` (`PREFIX/share`), and the entry of
    /// `flux help` in `help`; the files written.
    pub fn install_pages(&self, share: &Path, help: &Path) -> Result<Vec<PathBuf>> {
        let made = tempfile::tempdir().map_err(Error::io("making a folder"))?;
        let mut generate = Command::new(self.command());
        generate.arg("generate").arg(made.path());
        let output = generate.output().map_err(Error::io("running flux-stats"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::Command { command: format!("{generate:?}"), said });
        }
        let mut files = Vec::new();
        for (from, to) in [
            ("man1", share.join("man/man1")),
            ("man3", share.join("man/man3")),
            ("man5", share.join("man/man5")),
            ("bash", share.join("bash-completion/completions")),
            ("zsh", share.join("zsh/site-functions")),
            ("fish", share.join("fish/vendor_completions.d")),
            ("help.d", help.to_owned()),
        ] {
            let doing = |folder: &Path| Error::io(format!("installing into {}", folder.display()));
            fs::create_dir_all(&to).map_err(doing(&to))?;
            let from = made.path().join(from);
            for entry in fs::read_dir(&from).map_err(doing(&to))? {
                let entry = entry.map_err(doing(&to))?;
                let file = to.join(entry.file_name());
                place(&entry.path(), &file)?;
                files.push(file);
            }
        }
        files.sort();
        Ok(files)
    }

    fn install_library(&self, from: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
        let (library, link) = (folder.join(LIBRARY), folder.join(LIBRARY_LINK));
        place(from, &library)?;
        replace_link(LIBRARY, &link)?;
        Ok(vec![library, link])
    }

    /// Copies a file of this stage to `to`, whole or not at all.
    pub fn install(&self, from: &Path, to: &Path) -> Result<()> {
        place(from, to)
    }

    /// The file of a program.
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Copies `stats-agg` into `folder`, in an order in which a load at any moment finds a whole one; the files written.
    pub fn install_stats_agg(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let implementation = fs::canonicalize(self.module("stats-agg-impl"))
            .map_err(Error::io("looking for the implementation of stats-agg"))?;
        place_pair(&implementation, &self.module("stats-agg"), folder)
    }
}

fn run(command: &mut Command, profile: Profile) -> Result<()> {
    if profile == Profile::Release {
        command.arg("--release");
    }
    let output = command.output().map_err(Error::io("running cargo"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(Error::Command { command: format!("{command:?}"), said })
}

/// The implementation under a name that says what is in it, the link that names it, then the loader (the crate
/// `stats-agg-loader` says why).
fn place_pair(implementation: &Path, loader: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    let content =
        fs::read(implementation).map_err(Error::io(format!("reading {}", implementation.display())))?;
    let digest: String = Sha256::digest(&content).iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    let name = format!("stats-agg-impl-{digest}.so");
    place(implementation, &folder.join(&name))?;
    let link = folder.join("stats-agg-impl.so");
    replace_link(&name, &link)?;
    place(loader, &folder.join("stats-agg.so"))?;
    Ok(vec![folder.join(name), link, folder.join("stats-agg.so")])
}

/// Copies files of the workspace; the files written.
fn install_sources(files: Vec<(&'static str, PathBuf)>) -> Result<Vec<PathBuf>> {
    for (source, file) in &files {
        let folder = file.parent().unwrap_or(file);
        fs::create_dir_all(folder).map_err(Error::io(format!("creating {}", folder.display())))?;
        place(&workspace_root().join(source), file)?;
    }
    Ok(files.into_iter().map(|(_, file)| file).collect())
}

/// Makes `link` lead to `target`: at any moment it leads somewhere.
fn replace_link(target: &str, link: &Path) -> Result<()> {
    let doing = || format!("linking {} to {target}", link.display());
    let mut temporary = link.as_os_str().to_owned();
    temporary.push(".new");
    let _ = fs::remove_file(&temporary);
    std::os::unix::fs::symlink(target, &temporary).map_err(Error::io(doing()))?;
    fs::rename(&temporary, link).map_err(Error::io(doing()))
}

/// Copies a file and renames the copy: a process that has the old one mapped keeps it whole. What is the same already
/// stays.
fn place(from: &Path, to: &Path) -> Result<()> {
    let doing = || format!("copying {} to {}", from.display(), to.display());
    let content = fs::read(from).map_err(Error::io(doing()))?;
    if fs::read(to).is_ok_and(|present| present == content) {
        return Ok(());
    }
    let mut temporary = to.as_os_str().to_owned();
    temporary.push(".new");
    let mut file = fs::File::create(&temporary).map_err(Error::io(doing()))?;
    file.write_all(&content).map_err(Error::io(doing()))?;
    let mode = fs::metadata(from).map_err(Error::io(doing()))?.permissions();
    file.set_permissions(mode).map_err(Error::io(doing()))?;
    drop(file);
    fs::rename(&temporary, to).map_err(Error::io(doing()))
}
