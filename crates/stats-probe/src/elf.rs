//! Finds the GOT entries of imported functions in an ELF image.
//!
//! Pure reading over [`Image`], so that the same code serves the object mapped in this process and the
//! bytes of a file, of either architecture. Sources: System V gABI chapter 5; the psABIs of x86-64 and
//! AArch64 for the numbers of the relocations. Both use Elf64, little-endian, RELA.

use thiserror::Error;

/// More relocations than this are not believed (libflux has some 2,900).
const MAX_RELOCATIONS: u64 = 1 << 20;
const MAX_DYNAMIC: u64 = 4096;
const RELA_BYTES: u64 = 24;
const SYMBOL_BYTES: u64 = 24;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;

/// Why an image's imports cannot be read.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ElfError {
    /// Not Elf64, or not little-endian.
    #[error("not a 64-bit little-endian ELF image")]
    NotElf64,
    /// No relocation numbers are known for the processor.
    #[error("ELF machine {0} is not supported (expected 62, x86-64, or 183, AArch64)")]
    Machine(u16),
    /// Nothing to read imports from: a static program, for example.
    #[error("the image has no {0}")]
    Missing(&'static str),
    /// An address outside the image, or a count beyond reason.
    #[error("malformed {what} at {at:#x}")]
    Malformed {
        /// What was read.
        what: &'static str,
        /// Where it was expected, as an address inside the image.
        at: u64,
    },
    /// Relocations without addend: used by neither architecture.
    #[error("PLT relocations of type {0} (expected 7, DT_RELA)")]
    PltType(u64),
}

/// The architectures whose relocations are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// EM_X86_64.
    X86_64,
    /// EM_AARCH64.
    Aarch64,
}

impl Machine {
    /// From `e_machine`.
    pub fn from_elf(e_machine: u16) -> Result<Self, ElfError> {
        match e_machine {
            62 => Ok(Self::X86_64),
            183 => Ok(Self::Aarch64),
            other => Err(ElfError::Machine(other)),
        }
    }

    /// The machine that this code runs on, if it is one of them.
    pub fn host() -> Option<Self> {
        if cfg!(target_arch = "x86_64") {
            Some(Self::X86_64)
        } else if cfg!(target_arch = "aarch64") {
            Some(Self::Aarch64)
        } else {
            None
        }
    }

    /// JUMP_SLOT (calls through the PLT) and GLOB_DAT (`-fno-plt`, and addresses taken).
    fn is_got_entry(self, relocation: u32) -> bool {
        match self {
            Self::X86_64 => matches!(relocation, 6 | 7),
            Self::Aarch64 => matches!(relocation, 1025 | 1026),
        }
    }
}

/// Read access to an ELF image by the addresses that it was linked for (`p_vaddr`).
pub trait Image {
    /// Copies `out.len()` bytes from `vaddr`; false, with `out` undefined, if they are not all mapped.
    fn read(&self, vaddr: u64, out: &mut [u8]) -> bool;
    /// What has been added to the image's addresses: pointers in the dynamic section are already
    /// relocated in memory (glibc does so in place), but not in a file, where this is 0.
    fn load_bias(&self) -> u64;
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// One GOT entry that holds the address of an imported function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GotEntry {
    /// Index into the list of wanted symbols.
    pub symbol: usize,
    /// Where the entry lies, as an address inside the image (add the load bias).
    pub vaddr: u64,
}

#[derive(Default)]
struct Dynamic {
    symtab: u64,
    strtab: u64,
    strsz: u64,
    rela: (u64, u64),
    jmprel: (u64, u64),
}

/// Finds the GOT entries through which the image at `dynamic` (address and size of its dynamic section)
/// calls the functions named in `wanted`.
pub fn got_entries(
    image: &dyn Image,
    machine: Machine,
    dynamic: (u64, u64),
    wanted: &[&str],
) -> Result<Vec<GotEntry>, ElfError> {
    let d = read_dynamic(image, dynamic)?;
    if d.symtab == 0 || d.strtab == 0 {
        return Err(ElfError::Missing("dynamic symbol table"));
    }
    let mut found = Vec::new();
    for (address, bytes) in [d.jmprel, d.rela] {
        for i in 0..bytes / RELA_BYTES {
            let at = address.wrapping_add(i * RELA_BYTES);
            let mut rela = [0; RELA_BYTES as usize];
            if !image.read(at, &mut rela) {
                return Err(ElfError::Malformed { what: "relocation", at });
            }
            let info = u64_at(&rela, 8);
            if !machine.is_got_entry(info as u32) {
                continue;
            }
            let vaddr = u64_at(&rela, 0);
            if let Some(symbol) = wanted_symbol(image, &d, info >> 32, wanted)? {
                if !vaddr.is_multiple_of(8) {
                    return Err(ElfError::Malformed { what: "GOT entry", at: vaddr });
                }
                let entry = GotEntry { symbol, vaddr };
                if !found.contains(&entry) {
                    found.push(entry);
                }
            }
        }
    }
    Ok(found)
}

fn read_dynamic(image: &dyn Image, (address, bytes): (u64, u64)) -> Result<Dynamic, ElfError> {
    let mut d = Dynamic::default();
    let mut plt_type = 7;
    let pointer = |value: u64| -> u64 {
        let mut probe = [0];
        // Relocated in place or not: whichever lies inside the image.
        if image.load_bias() != 0 && image.read(value.wrapping_sub(image.load_bias()), &mut probe) {
            value.wrapping_sub(image.load_bias())
        } else {
            value
        }
    };
    for i in 0..(bytes / 16).min(MAX_DYNAMIC) {
        let at = address.wrapping_add(i * 16);
        let mut entry = [0; 16];
        if !image.read(at, &mut entry) {
            return Err(ElfError::Malformed { what: "dynamic section", at });
        }
        let value = u64_at(&entry, 8);
        match u64_at(&entry, 0) {
            0 => break,
            2 => d.jmprel.1 = value,           // DT_PLTRELSZ
            5 => d.strtab = pointer(value),    // DT_STRTAB
            6 => d.symtab = pointer(value),    // DT_SYMTAB
            7 => d.rela.0 = pointer(value),    // DT_RELA
            8 => d.rela.1 = value,             // DT_RELASZ
            10 => d.strsz = value,             // DT_STRSZ
            20 => plt_type = value,            // DT_PLTREL
            23 => d.jmprel.0 = pointer(value), // DT_JMPREL
            _ => {}
        }
    }
    if plt_type != 7 && d.jmprel.1 != 0 {
        return Err(ElfError::PltType(plt_type));
    }
    for (at, bytes) in [d.rela, d.jmprel] {
        if bytes / RELA_BYTES > MAX_RELOCATIONS {
            return Err(ElfError::Malformed { what: "relocation table", at });
        }
    }
    Ok(d)
}

fn wanted_symbol(
    image: &dyn Image,
    d: &Dynamic,
    index: u64,
    wanted: &[&str],
) -> Result<Option<usize>, ElfError> {
    let at = d.symtab.wrapping_add(index.wrapping_mul(SYMBOL_BYTES));
    let mut symbol = [0; SYMBOL_BYTES as usize];
    if !image.read(at, &mut symbol) {
        return Err(ElfError::Malformed { what: "symbol", at });
    }
    let name = u64::from(u32_at(&symbol, 0));
    if name == 0 {
        return Ok(None);
    }
    for (i, want) in wanted.iter().enumerate() {
        let mut text = [0; 64];
        let bytes = want.len() + 1;
        let Some(text) = text.get_mut(..bytes) else { continue };
        // A shorter string may end the table: not being readable just means that it differs.
        if name + bytes as u64 <= d.strsz && image.read(d.strtab.wrapping_add(name), text) {
            let (last, head) = (text[bytes - 1], &text[..bytes - 1]);
            if last == 0 && head == want.as_bytes() {
                return Ok(Some(i));
            }
        }
    }
    Ok(None)
}

/// The bytes of an ELF file, read as if mapped at the addresses that it was linked for.
pub struct FileImage<'a> {
    file: &'a [u8],
    /// (address, offset in the file, bytes) of the loadable segments.
    loads: Vec<(u64, u64, u64)>,
    /// What the file is for.
    pub machine: Machine,
    /// Address and size of the dynamic section.
    pub dynamic: (u64, u64),
}

impl<'a> FileImage<'a> {
    /// Reads the program headers.
    pub fn parse(file: &'a [u8]) -> Result<Self, ElfError> {
        // e_ident: magic, ELFCLASS64, ELFDATA2LSB.
        if file.len() < 64 || !file.starts_with(b"\x7fELF\x02\x01") {
            return Err(ElfError::NotElf64);
        }
        let machine = Machine::from_elf(u32_at(file, 18) as u16)?;
        let (start, entry_bytes, count) =
            (u64_at(file, 32), u64::from(u32_at(file, 54) as u16), u64::from(u32_at(file, 56) as u16));
        let (mut loads, mut dynamic) = (Vec::new(), None);
        for i in 0..count {
            let at = start.wrapping_add(i * entry_bytes);
            let header = usize::try_from(at).ok().and_then(|at| file.get(at..)?.get(..56));
            let header = header.ok_or(ElfError::Malformed { what: "program header", at })?;
            let (offset, vaddr, bytes) = (u64_at(header, 8), u64_at(header, 16), u64_at(header, 32));
            match u32_at(header, 0) {
                PT_LOAD => loads.push((vaddr, offset, bytes)),
                PT_DYNAMIC => dynamic = Some((vaddr, bytes)),
                _ => {}
            }
        }
        let dynamic = dynamic.ok_or(ElfError::Missing("dynamic section"))?;
        Ok(Self { file, loads, machine, dynamic })
    }
}

impl Image for FileImage<'_> {
    fn read(&self, vaddr: u64, out: &mut [u8]) -> bool {
        let wanted = out.len() as u64;
        for (start, offset, bytes) in &self.loads {
            let Some(into) = vaddr.checked_sub(*start) else { continue };
            if into.checked_add(wanted).is_some_and(|end| end <= *bytes) {
                let at = offset.checked_add(into).and_then(|at| usize::try_from(at).ok());
                if let Some(from) = at.and_then(|at| self.file.get(at..)?.get(..out.len())) {
                    out.copy_from_slice(from);
                    return true;
                }
            }
        }
        false
    }

    fn load_bias(&self) -> u64 {
        0
    }
}
