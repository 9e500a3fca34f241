//! A disk that is full, of run directories and of what is written to: a filesystem of its own, which root alone can mount.

use flux_testbed::{Backend, Instance, Options};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use tests::{eventually, facts, query, say, series};

const LIMIT: Duration = Duration::from_secs(40);

facts! { on_a_full_disk_nothing_is_lost_and_all_goes_on_when_there_is_room }

/// Unmounted when it is dropped.
struct Disk(tempfile::TempDir);

impl Disk {
    /// None, and a line that says so, where nothing can be mounted.
    fn new() -> Option<Disk> {
        let folder = tempfile::Builder::new().prefix("disk-").tempdir().unwrap();
        match mount("tmpfs", folder.path(), "tmpfs", MountFlags::empty(), c"size=4m") {
            Ok(()) => Some(Disk(folder)),
            Err(error) => {
                say(&format!("skipped: a full disk, for none can be mounted: {error}"));
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn fill(&self) {
        let mut file = File::create(self.path().join("full")).unwrap();
        for size in [4096, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    fn free(&self) {
        fs::remove_file(self.path().join("full")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = unmount(self.path(), UnmountFlags::DETACH);
    }
}

fn on_a_full_disk_nothing_is_lost_and_all_goes_on_when_there_is_room(backend: Backend) {
    let Some(disk) = Disk::new() else { return };
    let folder = Some(disk.path().to_owned());
    let instance = Instance::start(Options { size: 2, folder, ..Options::new(backend) }).unwrap();
    disk.fill();
    let lines = disk.path().join("lines.jsonl");
    let export = format!("export=json,target={},period=1s,match=app.*", lines.display());
    let load = |rank| instance.load([rank], "stats-agg", &["period=300ms", &export]).unwrap();
    (0..2).for_each(load);
    let push = |rank: u32| {
        let metric = json!({ "name": "app.units", "type": "counter", "value": 5 });
        instance.rpc(rank, "stats-agg.push", json!({ "version": 1, "metrics": [metric] })).unwrap();
    };
    let total = || series(&instance, "app.units")["total"].clone();
    (0..2).for_each(push);
    eventually("10", LIMIT, total, |total| *total == 10);
    // What a node hands to its next load has no room in the run directory.
    for rank in [1, 0] {
        instance.remove([rank], "stats-agg").unwrap();
        load(rank);
        push(rank);
    }
    eventually("20", LIMIT, total, |total| *total == 20);
    eventually(
        "turns are counted",
        LIMIT,
        || series(&instance, "modules.broker.wakeups")["total"].clone(),
        |total| total.as_i64().is_some_and(|total| total > 0),
    );

    let exporter = || query(&instance, &["none"])["export"][0].clone();
    let failing = eventually("the exporter says why", LIMIT, exporter, |one| one["last_error"].is_string());
    let why = failing["last_error"].as_str().unwrap();
    assert!(why.contains("No space left on device"), "{why}");
    let recording = disk.path().join("some.rec").to_string_lossy().into_owned();
    let record = || {
        let program = instance.program("flux-stats");
        instance.command(0, program).args(["record", "-o", &recording, "--for", "1s"]).output().unwrap()
    };
    let refused = record();
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && told.contains("No space left on device"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");

    disk.free();
    let written = || {
        let text = fs::read_to_string(&lines).unwrap_or_default();
        let last = text.lines().rev().find(|line| line.contains("\"app.units\""));
        last.and_then(|line| serde_json::from_str::<Value>(line).ok()).unwrap_or_default()
    };
    eventually("the exporter goes on", LIMIT, written, |line| line["total"] == 20);
    let fine = record();
    assert!(fine.status.success(), "{}", String::from_utf8_lossy(&fine.stderr));
    // What cannot be taken away stays, for a load that can: one that took it nevertheless would be followed by another.
    instance.remove([0], "stats-agg").unwrap();
    let custody = instance.rundir().join("stats-agg.0.custody");
    mount_bind(&custody, &custody).unwrap();
    let refused = instance.load([0], "stats-agg", &["period=300ms"]).unwrap_err();
    assert_eq!(refused.errnum(), Some(30), "{refused}");
    unmount(&custody, UnmountFlags::empty()).unwrap();
    load(0);
    eventually("what was kept", LIMIT, total, |total| *total == 20);
    for rank in [1, 0] {
        instance.remove([rank], "stats-agg").unwrap();
    }
    instance.stop().unwrap();
}
