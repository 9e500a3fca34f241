//! The object of this process that holds an address, its GOT, and writing one pointer into it.

use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::elf::{self, GotEntry, Image, Machine};

/// An object mapped in this process, valid only while the loader's lock is held.
struct LoadedObject {
    bias: u64,
    /// (start, end) of the loadable segments, as addresses inside the image.
    loads: Vec<(u64, u64)>,
    dynamic: Option<(u64, u64)>,
}

impl LoadedObject {
    fn holds(&self, address: usize) -> bool {
        let inside = (address as u64).wrapping_sub(self.bias);
        self.loads.iter().any(|(from, to)| *from <= inside && inside < *to)
    }
}

impl Image for LoadedObject {
    fn read(&self, vaddr: u64, out: &mut [u8]) -> bool {
        let Some(end) = vaddr.checked_add(out.len() as u64) else { return false };
        if !self.loads.iter().any(|(from, to)| *from <= vaddr && end <= *to) {
            return false;
        }
        let address = self.bias.wrapping_add(vaddr) as usize as *const u8;
        // SAFETY: the range lies in a loadable segment of an object that the loader keeps mapped while
        // its lock is held; the parts read here (dynamic section, symbols, relocations) are readable.
        unsafe { std::ptr::copy_nonoverlapping(address, out.as_mut_ptr(), out.len()) };
        true
    }

    fn load_bias(&self) -> u64 {
        self.bias
    }
}

/// Runs `visit` on the object that holds `address`, under the loader's lock: the object cannot go away
/// meanwhile, and no other visitor, of another copy of this code either, runs at the same time.
fn with_object_of<R>(address: usize, visit: impl FnOnce(&LoadedObject, &CStr) -> R) -> Option<R> {
    struct Search<F, R> {
        address: usize,
        visit: Option<F>,
        result: Option<R>,
    }
    unsafe extern "C" fn each<F: FnOnce(&LoadedObject, &CStr) -> R, R>(
        info: *mut libc::dl_phdr_info,
        _bytes: usize,
        search: *mut c_void,
    ) -> c_int {
        // SAFETY: dl_iterate_phdr passes a valid info and the pointer that it was given, which is the
        // exclusively borrowed Search below.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search<F, R>>()) };
        let headers = if info.dlpi_phdr.is_null() {
            &[]
        } else {
            // SAFETY: the loader vouches for the program headers of a loaded object.
            unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize) }
        };
        let mut object = LoadedObject { bias: info.dlpi_addr, loads: Vec::new(), dynamic: None };
        for h in headers {
            match h.p_type {
                libc::PT_LOAD => object.loads.push((h.p_vaddr, h.p_vaddr.wrapping_add(h.p_memsz))),
                libc::PT_DYNAMIC => object.dynamic = Some((h.p_vaddr, h.p_memsz)),
                _ => {}
            }
        }
        if !object.holds(search.address) {
            return 0;
        }
        let name = if info.dlpi_name.is_null() {
            c""
        } else {
            // SAFETY: dlpi_name is a NUL-terminated string that lives as long as the object.
            unsafe { CStr::from_ptr(info.dlpi_name) }
        };
        search.result = search.visit.take().map(|visit| visit(&object, name));
        1
    }
    fn callback<F: FnOnce(&LoadedObject, &CStr) -> R, R>(
        _: &Search<F, R>,
    ) -> unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int {
        each::<F, R>
    }
    let mut search = Search { address, visit: Some(visit), result: None };
    let each = callback(&search);
    // SAFETY: the callback matches the type of `search`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut search).cast()) };
    search.result
}

/// One entry that is to be replaced.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patch {
    /// Address of the GOT entry in this process.
    pub(crate) entry: usize,
    /// Index into the list of wanted symbols.
    pub(crate) symbol: usize,
    /// What the entry held.
    pub(crate) was: usize,
    /// It led into the object itself: to its own PLT (lazy binding has not happened yet), or to a function
    /// of its own.
    pub(crate) unbound: bool,
}

/// Looks at every GOT entry of the object that holds `anchor` through which it calls one of `wanted`, and
/// writes what `decide` says: `decide(entry address, symbol, value now)` returns the new value, or None to
/// leave it. Returns the entries found, `was` as before.
pub(crate) fn patch_imports(
    anchor: usize,
    wanted: &[&str],
    mut decide: impl FnMut(Patch) -> Option<usize>,
) -> Result<Vec<Patch>, String> {
    let machine = Machine::host().ok_or("this processor is neither x86-64 nor AArch64")?;
    let visited = with_object_of(anchor, |object, _| {
        let dynamic = object.dynamic.ok_or("the object has no dynamic section")?;
        let found = elf::got_entries(object, machine, dynamic, wanted).map_err(|e| e.to_string())?;
        let mut patches = Vec::new();
        for GotEntry { symbol, vaddr } in found {
            if !object.read(vaddr, &mut [0; 8]) {
                return Err(format!("GOT entry {vaddr:#x} lies outside the object"));
            }
            let entry = object.bias.wrapping_add(vaddr) as usize;
            let was = load(entry);
            patches.push(Patch { entry, symbol, was, unbound: object.holds(was) });
        }
        for patch in &patches {
            if let Some(value) = decide(*patch) {
                store(patch.entry, value)?;
            }
        }
        Ok(patches)
    });
    visited.ok_or_else(|| format!("no loaded object holds the address {anchor:#x}"))?
}

fn entry_at(address: usize) -> &'static AtomicUsize {
    // SAFETY: callers pass addresses of GOT entries: aligned, inside a mapped data segment, and the
    // loader's lock keeps the object. Other threads read the entry by ordinary loads of one word.
    unsafe { AtomicUsize::from_ptr(address as *mut usize) }
}

fn load(entry: usize) -> usize {
    entry_at(entry).load(Ordering::Acquire)
}

/// Writes one pointer. The page gets back the protection it had: read-only under full RELRO, writable in
/// a lazily bound object, where the loader itself still writes.
fn store(entry: usize, value: usize) -> Result<(), String> {
    // SAFETY: sysconf has no preconditions.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let page = entry & !(page_bytes - 1);
    let prior = protection_of(page)?;
    let writable = prior & libc::PROT_WRITE != 0;
    if !writable {
        protect(page, page_bytes, prior | libc::PROT_WRITE)?;
    }
    entry_at(entry).store(value, Ordering::Release);
    if !writable {
        protect(page, page_bytes, prior)?;
    }
    Ok(())
}

fn protect(page: usize, bytes: usize, protection: c_int) -> Result<(), String> {
    // SAFETY: the page is part of a data segment; it only ever gains PROT_WRITE and goes back to what it
    // was, so no other code's assumption about it breaks.
    match unsafe { libc::mprotect(page as *mut c_void, bytes, protection) } {
        0 => Ok(()),
        _ => Err(format!("mprotect of the GOT: {}", std::io::Error::last_os_error())),
    }
}

/// The protection of the page at an address, from `/proc/self/maps`.
pub(crate) fn protection_of(address: usize) -> Result<c_int, String> {
    let maps = std::fs::read("/proc/self/maps").map_err(|e| format!("/proc/self/maps: {e}"))?;
    parse_protection(&maps, address).ok_or_else(|| format!("/proc/self/maps does not list {address:#x}"))
}

fn parse_protection(maps: &[u8], address: usize) -> Option<c_int> {
    for line in maps.split(|b| *b == b'\n') {
        // A path may hold any bytes; the fields before it are ASCII.
        let mut fields = line.splitn(3, |b| *b == b' ').map(|f| std::str::from_utf8(f).unwrap_or(""));
        let (range, flags) = (fields.next()?, fields.next().unwrap_or(""));
        let Some((from, to)) = range.split_once('-') else { continue };
        let (Ok(from), Ok(to)) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16)) else {
            continue;
        };
        if (from..to).contains(&address) {
            let mut protection = 0;
            for (letter, bit) in [('r', libc::PROT_READ), ('w', libc::PROT_WRITE), ('x', libc::PROT_EXEC)] {
                if flags.contains(letter) {
                    protection |= bit;
                }
            }
            return Some(protection);
        }
    }
    None
}

/// Keeps the object that holds `address` mapped for the life of the process, as `-z nodelete` would: a
/// thread that sleeps in the hook must find its way back after an unload.
pub(crate) fn pin(address: usize) -> Result<(), String> {
    let name = with_object_of(address, |_, name| name.to_owned());
    let name = name.ok_or("the hook's own object is not known to the loader")?;
    if name.is_empty() {
        return Ok(()); // The main program is never unmapped.
    }
    let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: the name is that of a loaded object; NOLOAD runs no code of it.
    if unsafe { libc::dlopen(name.as_ptr(), flags) }.is_null() {
        return Err(format!("{} cannot be kept mapped", name.to_string_lossy()));
    }
    Ok(())
}

/// The path of the first object whose path contains `part`.
pub(crate) fn path_with(part: &str) -> Option<CString> {
    struct Search<'a> {
        part: &'a [u8],
        found: Option<CString>,
    }
    unsafe extern "C" fn each(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
        // SAFETY: dl_iterate_phdr passes a valid info and the pointer that it was given, which is the
        // exclusively borrowed Search below.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search<'_>>()) };
        if info.dlpi_name.is_null() {
            return 0;
        }
        // SAFETY: dlpi_name is a NUL-terminated string that lives as long as the object.
        let name = unsafe { CStr::from_ptr(info.dlpi_name) };
        if name.to_bytes().windows(search.part.len()).any(|w| w == search.part) {
            search.found = Some(name.to_owned());
        }
        search.found.is_some().into()
    }
    let mut search = Search { part: part.as_bytes(), found: None };
    // SAFETY: the callback matches the type of `search`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut search).cast()) };
    search.found
}

/// The function of a name that this process would call, or 0.
pub(crate) fn default_symbol(name: &CStr) -> usize {
    // SAFETY: the name is NUL-terminated.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) as usize }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protection_is_read_from_the_line_of_the_page() {
        let maps = b"7f00-7f10 r--p 0 00:00 0 /a b\xff\n7f10-7f20 rw-p 0\n8000-9000 r-xp 0\nbogus\n";
        assert_eq!(parse_protection(maps, 0x7f05), Some(libc::PROT_READ));
        assert_eq!(parse_protection(maps, 0x7f10), Some(libc::PROT_READ | libc::PROT_WRITE));
        assert_eq!(parse_protection(maps, 0x8fff), Some(libc::PROT_READ | libc::PROT_EXEC));
        assert_eq!(parse_protection(maps, 0x9000), None);
    }

    #[test]
    fn an_address_is_found_in_its_own_object_only() {
        let here = an_address_is_found_in_its_own_object_only as fn() as usize;
        let there = default_symbol(c"epoll_wait");
        assert_eq!(with_object_of(here, |o, _| (o.holds(here), o.holds(there))), Some((true, false)));
        assert_eq!(pin(here), Ok(()));
        assert!(patch_imports(8, &["epoll_wait"], |_| None).is_err());
    }
}
