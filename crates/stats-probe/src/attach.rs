//! Putting the hooks into libflux's GOT, and taking them out again.

use crate::elf::{self, ElfError, Entry, Image, Machine};
use crate::hook;
use crate::procfs;
use crate::slot::{self, State};
use libc::{c_int, c_void, dl_phdr_info, size_t};
use parking_lot::Mutex;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32};

/// Why a process's reactors cannot be hooked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// No entry point of libflux was given.
    #[error("libflux is not in this process")]
    NoLibflux,
    /// The broker is another process.
    #[error("the module runs in a process of its own, outside the broker")]
    Outside,
    /// The hook is not made for this architecture.
    #[error("the hook knows x86_64 and aarch64 only")]
    Architecture,
    /// The address belongs to no shared object.
    #[error("flux_reactor_run belongs to no shared object")]
    NoObject,
    /// The object's image cannot be read.
    #[error("libflux cannot be read: {0}")]
    Elf(String),
    /// The object does not import what the hook replaces.
    #[error("libflux does not import epoll_wait")]
    NoImport,
    /// A page could not be made writable.
    #[error("the page of a GOT entry cannot be written: {0}")]
    Protect(String),
    /// There is no memory for the slots.
    #[error("no memory for the slots")]
    NoMemory,
}

impl From<ElfError> for AttachError {
    fn from(error: ElfError) -> Self {
        AttachError::Elf(error.to_string())
    }
}

/// The hook as it is in this process. Two loads of the module under different names share it.
struct Hooked {
    /// Probes that are attached.
    users: u32,
    /// Counts attaches, so that what a thread kept of an earlier one is known as old.
    generations: u32,
    /// Whether the entries lead to the hooks. They may do so without users: another version of this code, attached
    /// later, goes on through ours, and its entries are not ours to change.
    entries: Vec<Patched>,
    /// Whether libflux's own calls of flux_reactor_run can be told.
    nested_known: bool,
}

/// A GOT entry that leads to a hook.
struct Patched {
    /// Its address.
    entry: usize,
    hook: usize,
    before: usize,
}

static HOOKED: Mutex<Hooked> =
    Mutex::new(Hooked { users: 0, generations: 0, entries: Vec::new(), nested_known: false });

/// The number of attached probes, for the retirement of dead threads' slots.
pub(crate) static USERS: AtomicU32 = AtomicU32::new(0);

/// Attaches; whether blocked waits can be told from sleep. `anchor` is the address of `flux_reactor_run`.
pub(crate) fn attach(anchor: *const c_void) -> Result<bool, AttachError> {
    let mut hooked = HOOKED.lock();
    if hooked.users == 0 {
        slot::table().ok_or(AttachError::NoMemory)?;
        if hooked.entries.is_empty() {
            install(&mut hooked, anchor)?;
        }
        hooked.generations = hooked.generations.wrapping_add(1).max(1);
        open_slots(hooked.generations);
        hook::GENERATION.store(hooked.generations, Release);
    }
    hooked.users += 1;
    USERS.store(hooked.users, Release);
    Ok(hooked.nested_known)
}

/// Ends one attach. With the last, the hooks only pass on, and are taken out where nobody has put another before.
pub(crate) fn detach() {
    let mut hooked = HOOKED.lock();
    hooked.users = hooked.users.saturating_sub(1);
    USERS.store(hooked.users, Release);
    if hooked.users > 0 {
        return;
    }
    hook::GENERATION.store(0, Release);
    hooked.entries.retain(|patched| !restore(patched));
}

/// Every thread gets its slot now: one that is hung, or idle for an hour, would not come by to claim it.
fn open_slots(generation: u32) {
    let now_ns = hook::now_ns();
    for tid in procfs::tids(procfs::SELF) {
        let state = if procfs::is_running(procfs::SELF, tid) { State::Work } else { State::Sleep };
        slot::claim(tid, generation, state, now_ns);
    }
}

fn install(hooked: &mut Hooked, anchor: *const c_void) -> Result<(), AttachError> {
    let machine = Machine::own().ok_or(AttachError::Architecture)?;
    let object = Object::holding(anchor as usize)?;
    let wanted: Vec<&'static str> = hook::hooks().iter().map(|&(symbol, ..)| symbol).collect();
    let entries = elf::got_entries(&object, machine, object.dynamic, object.base, &wanted)?;
    if !entries.iter().any(|entry| entry.symbol == "epoll_wait") {
        return Err(AttachError::NoImport);
    }
    hooked.nested_known = entries.iter().any(|entry| entry.symbol == "flux_reactor_run");
    // flux_reactor_run first: no wait is timed before it can be told whether it is nested.
    let ours_last = |entry: &&Entry| entry.symbol != "flux_reactor_run";
    for entry in entries.iter().filter(|entry| !ours_last(entry)).chain(entries.iter().filter(ours_last)) {
        match patch(&object, entry, anchor) {
            Ok(patched) => hooked.entries.push(patched),
            Err(error) => {
                hooked.entries.retain(|patched| !restore(patched));
                return Err(error);
            }
        }
    }
    Ok(())
}

fn patch(object: &Object, entry: &Entry, anchor: *const c_void) -> Result<Patched, AttachError> {
    let found = hook::hooks().into_iter().find(|&(symbol, ..)| symbol == entry.symbol);
    let (symbol, hook, next) = found.ok_or(AttachError::NoImport)?;
    let address = (object.base + entry.address) as usize;
    // SAFETY: the dynamic section says that this is a GOT entry: an aligned pointer, mapped as long as libflux is,
    // which this process keeps. Others write it, if at all, atomically as well (lazy binding).
    let slot = unsafe { AtomicPtr::from_ptr(address as *mut *mut c_void) };
    // An entry that is not bound yet leads to the resolver, which would put the function over the hook with the first
    // call: go on to the function itself. libflux may be outside the default scope (Python), but its own is known.
    let function = if symbol == "flux_reactor_run" { Some(anchor.cast_mut()) } else { resolve(symbol) };
    let former = slot.load(Acquire);
    let before = match function {
        Some(function) if !is_bound(former, object) => function,
        None if !is_bound(former, object) => return Err(AttachError::NoImport),
        // Bound to the function, or to somebody else's hook, which ours goes on to.
        _ => former,
    };
    next.store(before, Release);
    write(slot, address, hook)?;
    Ok(Patched { entry: address, hook: hook as usize, before: before as usize })
}

/// Whether an entry holds a function's address rather than that of its own object's resolver stub.
fn is_bound(content: *mut c_void, object: &Object) -> bool {
    let address = content as u64;
    let within =
        object.loads.iter().any(|&(start, end)| (object.base + start..object.base + end).contains(&address));
    !content.is_null() && !within
}

/// The function that a symbol means in the scope of the whole process.
fn resolve(symbol: &str) -> Option<*mut c_void> {
    let name = std::ffi::CString::new(symbol).ok()?;
    // SAFETY: a C string, looked up in the default scope.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

/// Puts the former content back, unless the entry no longer leads to our hook. Whether it is done with.
fn restore(patched: &Patched) -> bool {
    // SAFETY: as in `patch`.
    let slot = unsafe { AtomicPtr::from_ptr(patched.entry as *mut *mut c_void) };
    let (ours, before) = (patched.hook as *mut c_void, patched.before as *mut c_void);
    if slot.load(Acquire) != ours {
        return false;
    }
    with_writable(patched.entry, || slot.compare_exchange(ours, before, AcqRel, Acquire).is_ok())
        .unwrap_or(false)
}

fn write(slot: &AtomicPtr<c_void>, address: usize, content: *mut c_void) -> Result<(), AttachError> {
    with_writable(address, || slot.store(content, Release))
}

/// Runs `body` while the page of `address` is writable; afterwards it has the protection that it had before. A page
/// that is writable stays untouched: with lazy binding other threads write it too.
fn with_writable<R>(address: usize, body: impl FnOnce() -> R) -> Result<R, AttachError> {
    let protection = procfs::protection(address)
        .ok_or_else(|| AttachError::Protect("not in /proc/self/maps".to_owned()))?;
    if protection & libc::PROT_WRITE != 0 {
        return Ok(body());
    }
    // SAFETY: a number that every system has.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let start = (address & !(page - 1)) as *mut c_void;
    let set = |protection: c_int| {
        // SAFETY: a whole page of a mapped object; only its protection changes, and only to more and back.
        match unsafe { libc::mprotect(start, page, protection) } {
            0 => Ok(()),
            _ => Err(AttachError::Protect(std::io::Error::last_os_error().to_string())),
        }
    };
    set(protection | libc::PROT_WRITE)?;
    let result = body();
    // The entry is right whatever this says.
    let _ = set(protection);
    Ok(result)
}

/// A shared object of this process.
struct Object {
    base: u64,
    /// Its dynamic section, relative to the base.
    dynamic: u64,
    /// Readable ranges, relative to the base.
    loads: Vec<(u64, u64)>,
}

impl Object {
    fn holding(address: usize) -> Result<Self, AttachError> {
        if address == 0 {
            return Err(AttachError::NoLibflux);
        }
        let mut search = Search { address: address as u64, found: None };
        let data: *mut Search = &mut search;
        // SAFETY: the callback gets this pointer, and is not called after the return.
        unsafe { libc::dl_iterate_phdr(Some(visit), data.cast()) };
        search.found.ok_or(AttachError::NoObject)
    }
}

impl Image for Object {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        let Some(end) = address.checked_add(buffer.len() as u64) else { return false };
        if !self.loads.iter().any(|&(start, stop)| start <= address && end <= stop) {
            return false;
        }
        // SAFETY: within a readable segment of an object that stays loaded.
        unsafe {
            let source = (self.base + address) as *const u8;
            ptr::copy_nonoverlapping(source, buffer.as_mut_ptr(), buffer.len());
        }
        true
    }
}

struct Search {
    address: u64,
    found: Option<Object>,
}

unsafe extern "C" fn visit(info: *mut dl_phdr_info, _: size_t, data: *mut c_void) -> c_int {
    // SAFETY: what dl_iterate_phdr passes, and the search that `holding` passed to it.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<Search>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: that many program headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let readable = headers.iter().filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_R != 0);
    let loads: Vec<(u64, u64)> = readable.map(|h| (h.p_vaddr, h.p_vaddr + h.p_memsz)).collect();
    let base = info.dlpi_addr;
    let holds = loads.iter().any(|&(start, end)| (base + start..base + end).contains(&search.address));
    let dynamic = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC).map(|h| h.p_vaddr);
    if let (true, Some(dynamic)) = (holds, dynamic) {
        search.found = Some(Object { base, dynamic, loads });
        return 1;
    }
    0
}
