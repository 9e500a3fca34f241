//! brubeck beside us, where its program is to be had: built by whoever wants to compare, named by `FLUX_STATS_BRUBECK`.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// One that runs, with one worker and batches as large as ours.
pub(crate) struct Brubeck {
    process: Child,
    folder: tempfile::TempDir,
    pub(crate) to: SocketAddr,
}

impl Brubeck {
    pub(crate) fn start() -> Option<Brubeck> {
        let program = PathBuf::from(std::env::var_os("FLUX_STATS_BRUBECK")?);
        let port = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).ok()?.port();
        let folder = tempfile::tempdir().ok()?;
        let config = serde_json::json!({
            "sharding": false, "server_name": "b", "dumpfile": folder.path().join("dump"), "capacity": 15, "expire": 20,
            "backends": [{ "type": "carbon", "address": "127.0.0.1", "port": 9, "frequency": 10 }],
            "samplers": [{
                "type": "statsd", "address": "127.0.0.1", "port": port, "workers": 1, "multisock": false, "multimsg": 64,
            }],
        });
        let file = folder.path().join("config.json");
        fs::write(&file, config.to_string()).ok()?;
        let mut command = Command::new(&program);
        command.arg("--config").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process =
            command.spawn().inspect_err(|error| println!("  {}: {error}", program.display())).ok()?;
        std::thread::sleep(Duration::from_millis(500));
        Some(Brubeck { process, folder, to: SocketAddr::from(([127, 0, 0, 1], port)) })
    }

    /// CPU nanoseconds of all its threads: those that do not receive sleep.
    pub(crate) fn cpu_ns(&self) -> u64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id()));
        let read = |task: fs::DirEntry| fs::read_to_string(task.path().join("schedstat")).ok();
        let ns = |line: String| line.split(' ').next().and_then(|ns| ns.parse::<u64>().ok());
        tasks.into_iter().flatten().flatten().filter_map(read).filter_map(ns).sum()
    }

    /// Datagrams that the kernel dropped before it.
    pub(crate) fn dropped(&self) -> u64 {
        let port = format!(":{:04X}", self.to.port());
        let table = fs::read_to_string("/proc/net/udp").unwrap_or_default();
        let own =
            table.lines().find(|line| line.split_whitespace().nth(1).is_some_and(|at| at.ends_with(&port)));
        own.and_then(|line| line.split_whitespace().last()).and_then(|drops| drops.parse().ok()).unwrap_or(0)
    }
}

impl Drop for Brubeck {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(self.folder.path());
    }
}
