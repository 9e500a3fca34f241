//! What tracers do instead of a hook: a kernel uprobe at the entry of a function and one at its return, here with the
//! cheapest that can follow, a counter of perf.

use std::ffi::{CString, c_void};
use std::fs;
use std::io::{self, Read};
use std::os::fd::FromRawFd;

/// The kernel's list of event sources: uprobes are one, if it has them.
const SOURCE: &str = "/sys/bus/event_source/devices/uprobe";
/// `PERF_ATTR_SIZE_VER1` of perf_event_open(2): up to the offset of the probe.
const ATTRIBUTE_BYTES: u64 = 72;
const FLAG_CLOEXEC: libc::c_ulong = 8;

/// A function's calls and returns by this thread, counted until this is dropped.
pub(crate) struct Uprobe {
    events: [fs::File; 2],
}

impl Uprobe {
    /// An error says in one sentence why it cannot be had here.
    pub(crate) fn at(function: *const c_void) -> Result<Self, String> {
        let kind = fs::read_to_string(format!("{SOURCE}/type")).map_err(|e| format!("{SOURCE}: {e}"))?;
        let kind: u64 = kind.trim().parse().map_err(|_| format!("{SOURCE}/type: {kind}"))?;
        let (path, offset) = place(function as u64).ok_or("the function is in no file")?;
        let path = CString::new(path).map_err(|e| e.to_string())?;
        let open = |config: u64| {
            // struct perf_event_attr: type and size, config (bit 0: at the return), sample period and type, read format,
            // flags, wakeup, config1 (path), config2 (offset).
            let address = path.as_ptr() as u64;
            let attribute = [kind | ATTRIBUTE_BYTES << 32, config, 0, 0, 0, 0, 0, address, offset];
            // SAFETY: the attribute is as long as it says and is only read, as is the path in it; the event is of the
            // calling thread (0), on any processor (-1), in no group (-1).
            let fd = unsafe {
                libc::syscall(libc::SYS_perf_event_open, attribute.as_ptr(), 0, -1, -1, FLAG_CLOEXEC)
            };
            if fd < 0 {
                return Err(format!("perf_event_open: {}", io::Error::last_os_error()));
            }
            // SAFETY: a new descriptor that nobody else owns.
            Ok(unsafe { fs::File::from_raw_fd(fd as i32) })
        };
        Ok(Self { events: [open(0)?, open(1)?] })
    }

    /// How often it was called, and how often it has returned.
    pub(crate) fn counts(&mut self) -> [u64; 2] {
        let [calls, returns] = &mut self.events;
        [calls, returns].map(|event| {
            let mut count = [0; 8];
            event.read_exact(&mut count).map_or(0, |()| u64::from_ne_bytes(count))
        })
    }
}

/// The file that is mapped at an address, and where in it that is.
fn place(address: u64) -> Option<(String, u64)> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (from, to) = fields.next()?.split_once('-')?;
        let number = |hexadecimal| u64::from_str_radix(hexadecimal, 16).ok();
        let (from, to, offset) = (number(from)?, number(to)?, number(fields.nth(1)?)?);
        let path = fields.nth(2)?;
        (from..to).contains(&address).then(|| (path.to_owned(), address - from + offset))
    })
}
