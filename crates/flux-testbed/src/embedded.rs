//! The embedded broker: one process for each rank.

use crate::instance::Options;
use crate::stage::Stage;
use crate::{Error, Result};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const UP_TIMEOUT: Duration = Duration::from_secs(30);
const DOWN_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct Embedded {
    /// By rank.
    brokers: Vec<Child>,
}

impl Embedded {
    pub(crate) fn start(stage: &Stage, options: &Options, rundir: &Path) -> Result<Embedded> {
        let (up, is_up) = mpsc::channel();
        let mut embedded = Embedded { brokers: Vec::new() };
        for rank in 0..options.size {
            let mut command = Command::new(stage.program("embedded-broker"));
            command
                .args(["--rank", &rank.to_string(), "--size", &options.size.to_string()])
                .args(["--topo", &options.topology.name(), "--rundir"])
                .arg(rundir)
                .env("FLUX_STATS_LIBFLUX", stage.libflux())
                .envs(options.environment.iter().cloned())
                // A Ctrl-C at the terminal is for whoever started the instance, and ends it in order.
                .process_group(0)
                // A broker ends when its input does: when this process ends, however.
                .stdin(Stdio::piped())
                .stdout(if rank == 0 { Stdio::piped() } else { Stdio::null() });
            let mut broker = command.spawn().map_err(Error::io("running embedded-broker"))?;
            if let Some(stdout) = broker.stdout.take() {
                let up = up.clone();
                std::thread::spawn(move || {
                    let ready =
                        BufReader::new(stdout).lines().any(|line| line.is_ok_and(|line| line == "ready"));
                    let _ = up.send(ready);
                });
            }
            embedded.brokers.push(broker);
        }
        match is_up.recv_timeout(UP_TIMEOUT) {
            Ok(true) => Ok(embedded),
            _ => Err(Error::Start("embedded-broker: rank 0 did not become ready".into())),
        }
    }

    /// Ends rank 0, and so all.
    pub(crate) fn stop(&mut self) -> Result<()> {
        if let Some(root) = self.brokers.first_mut() {
            drop(root.stdin.take());
        }
        let start = Instant::now();
        while start.elapsed() < DOWN_TIMEOUT {
            if self.brokers.iter_mut().all(|broker| matches!(broker.try_wait(), Ok(Some(_)))) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(Error::Start("the instance did not end".into()))
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        for broker in &mut self.brokers {
            if matches!(broker.try_wait(), Ok(None)) {
                let _ = broker.kill();
            }
            let _ = broker.wait();
        }
    }
}
