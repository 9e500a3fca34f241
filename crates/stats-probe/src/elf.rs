//! Finding GOT entries by symbol in the memory image of a shared object: the dynamic section, its relocations and its
//! symbols (ELF gABI; psABI of x86_64 and aarch64). A pure function over something that can be read, so that images of
//! both architectures are tested anywhere.

/// Where the dynamic section and what it points to are read from; addresses are relative to the object's base.
pub(crate) trait Image {
    /// Fills `buffer` from `address`; false when that is not all readable.
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool;
}

/// The architecture of an image: which relocations are GOT entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Machine {
    X86_64,
    Aarch64,
}

impl Machine {
    /// The machine that this code runs on, if it is one of those.
    pub(crate) const fn own() -> Option<Self> {
        if cfg!(target_arch = "x86_64") {
            Some(Machine::X86_64)
        } else if cfg!(target_arch = "aarch64") {
            Some(Machine::Aarch64)
        } else {
            None
        }
    }

    /// (R_*_GLOB_DAT, R_*_JUMP_SLOT)
    fn got_relocations(self) -> (u64, u64) {
        match self {
            Machine::X86_64 => (6, 7),
            Machine::Aarch64 => (1025, 1026),
        }
    }
}

/// A GOT entry: where the address of `symbol` is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) symbol: &'static str,
    /// Relative to the base.
    pub(crate) address: u64,
}

/// Why an image cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ElfError {
    #[error("the dynamic section is not readable")]
    Unreadable,
    #[error("it has no symbol table")]
    NoSymbols,
    #[error("its relocations are in the REL form, which this architecture does not use")]
    Rel,
}

const DT_NULL: u64 = 0;
const DT_PLTRELSZ: u64 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_PLTREL: u64 = 20;
const DT_JMPREL: u64 = 23;
/// Entries that a dynamic section and a relocation table may have: what has more is not one.
const DYNAMIC_MAX: u64 = 1_000;
const RELOCATIONS_MAX: u64 = 1_000_000;
const RELA_SIZE: u64 = 24;
const SYMBOL_SIZE: u64 = 24;
/// Longer than any symbol that is looked for.
const NAME_MAX: usize = 64;

fn word(image: &dyn Image, address: u64) -> Result<u64, ElfError> {
    let mut bytes = [0; 8];
    if image.read(address, &mut bytes) { Ok(u64::from_le_bytes(bytes)) } else { Err(ElfError::Unreadable) }
}

/// The tables that the dynamic section names; addresses relative to the base.
#[derive(Default)]
struct Dynamic {
    strings: u64,
    symbols: u64,
    relocations: [(u64, u64); 2],
    plt_form: u64,
}

/// `base`: what the dynamic linker has added to the addresses in the section, or zero.
fn dynamic(image: &dyn Image, section: u64, base: u64) -> Result<Dynamic, ElfError> {
    let mut found = Dynamic { plt_form: DT_RELA, ..Dynamic::default() };
    let relative = |value: u64| if value >= base { value - base } else { value };
    for index in 0..DYNAMIC_MAX {
        let (tag, value) = (word(image, section + 16 * index)?, word(image, section + 16 * index + 8)?);
        match tag {
            DT_NULL => break,
            DT_STRTAB => found.strings = relative(value),
            DT_SYMTAB => found.symbols = relative(value),
            DT_RELA => found.relocations[0].0 = relative(value),
            DT_RELASZ => found.relocations[0].1 = value,
            DT_JMPREL => found.relocations[1].0 = relative(value),
            DT_PLTRELSZ => found.relocations[1].1 = value,
            DT_PLTREL => found.plt_form = value,
            _ => {}
        }
    }
    if found.strings == 0 || found.symbols == 0 {
        return Err(ElfError::NoSymbols);
    }
    if found.plt_form != DT_RELA {
        return Err(ElfError::Rel);
    }
    Ok(found)
}

/// The GOT entries of `wanted` symbols: in lazily bound tables and in those bound at load.
pub(crate) fn got_entries(
    image: &dyn Image,
    machine: Machine,
    section: u64,
    base: u64,
    wanted: &[&'static str],
) -> Result<Vec<Entry>, ElfError> {
    let dynamic = dynamic(image, section, base)?;
    let (glob_dat, jump_slot) = machine.got_relocations();
    let mut entries = Vec::new();
    for (table, size) in dynamic.relocations {
        for index in 0..(size / RELA_SIZE).min(RELOCATIONS_MAX) {
            let at = table + index * RELA_SIZE;
            let (address, info) = (word(image, at)?, word(image, at + 8)?);
            let (symbol, kind) = (info >> 32, info & 0xffff_ffff);
            if symbol == 0 || (kind != glob_dat && kind != jump_slot) {
                continue;
            }
            let name = word(image, dynamic.symbols + symbol * SYMBOL_SIZE)? & 0xffff_ffff;
            if let Some(symbol) = wanted.iter().find(|symbol| is_at(image, dynamic.strings + name, symbol)) {
                entries.push(Entry { symbol, address });
            }
        }
    }
    Ok(entries)
}

/// Whether the C string at `address` is `text`.
fn is_at(image: &dyn Image, address: u64, text: &str) -> bool {
    let mut buffer = [0; NAME_MAX];
    let Some(buffer) = buffer.get_mut(..=text.len()) else { return false };
    image.read(address, buffer) && buffer.split_last() == Some((&0, text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image that is bytes.
    struct Bytes(Vec<u8>);

    impl Image for Bytes {
        fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
            let start = usize::try_from(address).unwrap_or(usize::MAX);
            match start.checked_add(buffer.len()).and_then(|end| self.0.get(start..end)) {
                Some(bytes) => {
                    buffer.copy_from_slice(bytes);
                    true
                }
                None => false,
            }
        }
    }

    const SECTION: u64 = 0x40;

    /// An object that imports `names`, each once by JUMP_SLOT and once by GLOB_DAT, at GOT addresses from 0x2000 on;
    /// the addresses in its dynamic section are raised by `base`, as a dynamic linker does.
    fn image(machine: Machine, base: u64, names: &[&str]) -> Bytes {
        let (glob_dat, jump_slot) = machine.got_relocations();
        let mut bytes = vec![0_u8; 0x1000];
        let mut put = |at: u64, value: u64| {
            bytes[at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
        };
        let (strings, symbols, rela, jmprel) = (0x200, 0x400, 0x600, 0x800);
        let size = names.len() as u64 * RELA_SIZE;
        let tags = [
            (DT_STRTAB, strings + base),
            (DT_SYMTAB, symbols + base),
            (DT_RELA, rela + base),
            (DT_RELASZ, size),
            (DT_JMPREL, jmprel + base),
            (DT_PLTRELSZ, size),
            (DT_PLTREL, DT_RELA),
            (DT_NULL, 0),
        ];
        for (index, (tag, value)) in tags.into_iter().enumerate() {
            put(SECTION + 16 * index as u64, tag);
            put(SECTION + 16 * index as u64 + 8, value);
        }
        let mut text = vec![0_u8];
        for (index, name) in names.iter().enumerate() {
            let index = index as u64;
            put(symbols + (index + 1) * SYMBOL_SIZE, text.len() as u64);
            text.extend_from_slice(name.as_bytes());
            text.push(0);
            for (table, got, kind) in [(rela, 0x2000, glob_dat), (jmprel, 0x3000, jump_slot)] {
                put(table + index * RELA_SIZE, got + 8 * index);
                put(table + index * RELA_SIZE + 8, ((index + 1) << 32) | kind);
            }
        }
        bytes[strings as usize..strings as usize + text.len()].copy_from_slice(&text);
        Bytes(bytes)
    }

    #[test]
    fn both_kinds_of_entry_are_found_on_both_architectures_and_at_any_base() {
        for machine in [Machine::X86_64, Machine::Aarch64] {
            for base in [0, 0x7f00_0000_0000] {
                let image = image(machine, base, &["epoll_create", "epoll_wait", "epoll_wait2"]);
                let found = got_entries(&image, machine, SECTION, base, &["epoll_wait"]).unwrap();
                let addresses: Vec<u64> = found.iter().map(|entry| entry.address).collect();
                assert_eq!(addresses, [0x2008, 0x3008], "{machine:?}");
            }
        }
    }

    #[test]
    fn relocations_of_another_architecture_are_no_entries() {
        let image = image(Machine::Aarch64, 0, &["epoll_wait"]);
        assert_eq!(got_entries(&image, Machine::X86_64, SECTION, 0, &["epoll_wait"]).unwrap(), []);
    }

    #[test]
    fn a_broken_image_is_an_error_and_not_a_crash() {
        let whole = image(Machine::X86_64, 0, &["epoll_wait"]);
        for length in (0..whole.0.len()).step_by(40) {
            let cut = Bytes(whole.0[..length].to_vec());
            let found = got_entries(&cut, Machine::X86_64, SECTION, 0, &["epoll_wait"]);
            assert!(found.is_err() || length > 0x800, "{length}");
        }
        let empty = Bytes(vec![0; 0x1000]);
        assert_eq!(got_entries(&empty, Machine::X86_64, SECTION, 0, &[]), Err(ElfError::NoSymbols));
    }
}
