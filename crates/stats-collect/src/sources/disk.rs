//! Room on the file systems that a broker writes to.

use crate::collector::{Collector, Described, Ranks, Work};
use crate::host::{Host, Space};
use crate::readings::Readings;
use stats_core::Unit;
use std::time::Duration;

pub(crate) const DISK: Collector = Collector {
    name: "disk",
    about: "Room for rundir and statedir (which rank 0 alone may have); absent where they are on a file system that might hang (NFS, Lustre, …), which nobody \
            asks from the broker's address space",
    ranks: Ranks::All,
    default: true,
    period: Duration::from_secs(10),
    source: "`statvfs` of the broker attributes `rundir` and `statedir`; `/proc/self/mountinfo`",
    cost: "two system calls",
    series: &[
        Described::gauge("broker.rundir_free_bytes", Unit::Bytes, "free for users other than root"),
        Described::gauge("broker.rundir_size_bytes", Unit::Bytes, "the size of that file system"),
        Described::gauge("broker.rundir_free_inodes", Unit::None, "files that can still be made there"),
        Described::gauge("broker.statedir_free_bytes", Unit::Bytes, "free for users other than root"),
        Described::gauge("broker.statedir_size_bytes", Unit::Bytes, "the size of that file system"),
        Described::gauge("broker.statedir_free_inodes", Unit::None, "files that can still be made there"),
    ],
    work: Work::Look(look),
};

fn look(host: &mut Host, readings: &mut Readings) {
    let (rundir, statedir) = (host.place.rundir.clone(), host.place.statedir.clone());
    let mut tell = |space: Option<Space>, [free, size, inodes]: [&'static str; 3]| {
        if let Some(space) = space {
            readings.set(free, &[], space.free as f64);
            readings.set(size, &[], space.size as f64);
            readings.set_known(inodes, &[], space.free_inodes.map(|free| free as f64));
        }
    };
    tell(
        rundir.and_then(|folder| host.space(&folder)),
        ["broker.rundir_free_bytes", "broker.rundir_size_bytes", "broker.rundir_free_inodes"],
    );
    tell(
        statedir.and_then(|folder| host.space(&folder)),
        ["broker.statedir_free_bytes", "broker.statedir_size_bytes", "broker.statedir_free_inodes"],
    );
}
