//! `flux start --test-size`: real brokers on this machine.

use crate::instance::Options;
use crate::{Error, Result};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// How long an instance may take to come up, and to end.
const UP_TIMEOUT: Duration = Duration::from_secs(120);
const DOWN_TIMEOUT: Duration = Duration::from_secs(60);
/// The initial program: says that the instance is up, and ends, and with it the instance, with its input.
const PROGRAM: &str = "echo up; exec cat";

pub(crate) struct Real {
    flux: PathBuf,
    process: Child,
    libflux: PathBuf,
    messages: Mutex<mpsc::Receiver<String>>,
}

impl Real {
    pub(crate) fn start(flux: &Path, options: &Options, rundir: &Path) -> Result<Real> {
        let mut command = Command::new(flux);
        command
            .arg("start")
            .arg(format!("--test-size={}", options.size))
            .arg(format!("--test-rundir={}", rundir.display()))
            .arg("--test-exit-mode=leader")
            .arg(format!("-Stbon.topo={}", options.topology.name()))
            .args(["sh", "-c", PROGRAM])
            .env_remove("FLUX_URI")
            .envs(options.environment.iter().cloned())
            // A Ctrl-C at the terminal is for whoever started the instance, and ends it in order. And the brokers can
            // be killed, if it comes to that.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = command.spawn().map_err(Error::io(format!("running {}", flux.display())))?;
        let (sender, messages) = mpsc::channel();
        if let Some(stderr) = process.stderr.take() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                BufReader::new(stderr)
                    .lines()
                    .map_while(std::io::Result::ok)
                    .try_for_each(|line| sender.send(line))
            });
        }
        let (up, is_up) = mpsc::channel();
        if let Some(stdout) = process.stdout.take() {
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stdout);
                let mut first = String::new();
                let read = lines.read_line(&mut first);
                let _ = up.send(read.is_ok() && first == "up\n");
                // Read on, so that nobody blocks on a full pipe.
                let _ = lines.read_to_end(&mut Vec::new());
            });
        }
        let mut real =
            Real { flux: flux.to_owned(), process, libflux: PathBuf::new(), messages: Mutex::new(messages) };
        if is_up.recv_timeout(UP_TIMEOUT) != Ok(true) {
            real.end();
            return Err(Error::Start(real.said()));
        }
        real.libflux = libflux_of(flux);
        Ok(real)
    }

    pub(crate) fn flux(&self) -> String {
        self.flux.to_string_lossy().into_owned()
    }

    /// The library of this Flux: the system may have another.
    pub(crate) fn libflux(&self) -> PathBuf {
        self.libflux.clone()
    }

    /// Ends the instance as its user would.
    pub(crate) fn stop(&mut self) -> Result<()> {
        drop(self.process.stdin.take());
        let start = Instant::now();
        while start.elapsed() < DOWN_TIMEOUT {
            match self.process.try_wait().map_err(Error::io("waiting for flux start"))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    let said = format!("{status}: {}", self.said());
                    return Err(Error::Command { command: "flux start".into(), said });
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        self.end();
        Err(Error::Start("the instance did not end".into()))
    }

    /// What it has written to standard error since the last time.
    fn said(&self) -> String {
        let messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        messages.try_iter().collect::<Vec<String>>().join("\n")
    }

    /// Kills it and its brokers, which are in its group.
    fn end(&mut self) {
        let group = format!("-{}", self.process.id());
        // The shell's own: a system may lack the program.
        let _ = Command::new("sh").args(["-c", "kill -s KILL -- \"$0\"", &group]).status();
        let _ = self.process.wait();
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) && self.stop().is_err() {
            self.end();
        }
    }
}

/// `PREFIX/lib*/libflux-core.so.2` beside `PREFIX/bin/flux`, or the system's by name.
fn libflux_of(flux: &Path) -> PathBuf {
    const NAME: &str = "libflux-core.so.2";
    let flux = flux.canonicalize().unwrap_or_else(|_| flux.to_owned());
    let prefix = flux.parent().and_then(Path::parent).unwrap_or(Path::new("/usr"));
    let beside = ["lib", "lib64"].iter().map(|lib| prefix.join(lib).join(NAME)).find(|path| path.is_file());
    beside.unwrap_or_else(|| NAME.into())
}
