//! Finding GOT entries: in images made byte by byte for both architectures, and in what a compiler makes.

#[allow(dead_code)]
mod standin;

use proptest::prelude::*;
use stats_probe::elf::{ElfError, FileImage, GotEntry, Machine, got_entries};

const WANTED: [&str; 3] = ["epoll_wait", "flux_reactor_run", "poll"];
const PAGE: u64 = 0x1000;

/// A shared object with one page of dynamic section, symbols and relocations, and one of GOT.
struct Fixture {
    machine: u16,
    plt_type: u64,
    /// (symbol's name, relocation type, whether it stands in the PLT's table)
    imports: Vec<(&'static str, u32, bool)>,
}

impl Fixture {
    fn bytes(&self) -> Vec<u8> {
        let mut strings = vec![0u8];
        let mut symbols = vec![0u8; 24];
        let (mut plt, mut other) = (Vec::new(), Vec::new());
        for (i, (name, relocation, in_plt)) in self.imports.iter().enumerate() {
            symbols.extend((strings.len() as u32).to_le_bytes());
            symbols.extend([0u8; 20]);
            strings.extend(name.bytes());
            strings.push(0);
            let rela = if *in_plt { &mut plt } else { &mut other };
            rela.extend((2 * PAGE + 8 * i as u64).to_le_bytes());
            rela.extend((((i as u64 + 1) << 32) | u64::from(*relocation)).to_le_bytes());
            rela.extend(0u64.to_le_bytes());
        }
        // In the file, the first page follows the headers' page; it is mapped at PAGE.
        let mut page = vec![0u8; 0x200];
        let mut place = |bytes: &[u8]| {
            let at = PAGE + page.len() as u64;
            page.extend(bytes);
            at
        };
        let (strtab, symtab) = (place(&strings), place(&symbols));
        let (jmprel, rela) = (place(&plt), place(&other));
        let entries = [
            (5, strtab),
            (10, strings.len() as u64),
            (6, symtab),
            (20, self.plt_type),
            (23, jmprel),
            (2, plt.len() as u64),
            (7, rela),
            (8, other.len() as u64),
            (0, 0),
        ];
        let dynamic: Vec<u8> = entries
            .iter()
            .flat_map(|(tag, value): &(u64, u64)| [tag.to_le_bytes(), value.to_le_bytes()])
            .flatten()
            .collect();
        page[..dynamic.len()].copy_from_slice(&dynamic);
        page.resize(PAGE as usize, 0);

        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        file.extend(3u16.to_le_bytes());
        file.extend(self.machine.to_le_bytes());
        file.resize(32, 0);
        file.extend(64u64.to_le_bytes());
        file.resize(54, 0);
        file.extend(56u16.to_le_bytes());
        file.extend(3u16.to_le_bytes());
        file.resize(64, 0);
        let mut header = |kind: u32, offset: u64, vaddr: u64, bytes: u64| {
            file.extend(kind.to_le_bytes());
            file.extend(4u32.to_le_bytes());
            for field in [offset, vaddr, vaddr, bytes, bytes, 8] {
                file.extend(field.to_le_bytes());
            }
        };
        header(1, PAGE, PAGE, PAGE);
        header(1, 2 * PAGE, 2 * PAGE, PAGE);
        header(2, PAGE, PAGE, dynamic.len() as u64);
        file.resize(PAGE as usize, 0);
        file.extend(page);
        file.resize(3 * PAGE as usize, 0);
        file
    }
}

fn find(bytes: &[u8]) -> Result<Vec<GotEntry>, ElfError> {
    let image = FileImage::parse(bytes)?;
    got_entries(&image, image.machine, image.dynamic, &WANTED)
}

fn entry(symbol: usize, index: u64) -> GotEntry {
    GotEntry { symbol, vaddr: 2 * PAGE + 8 * index }
}

#[test]
fn calls_and_addresses_taken_are_found_on_both_architectures() {
    for (machine, jump_slot, glob_dat, absolute) in [(62, 7, 6, 1), (183, 1026, 1025, 257)] {
        let fixture = Fixture {
            machine,
            plt_type: 7,
            imports: vec![
                ("epoll_wait", jump_slot, true),
                ("epoll_wait_", jump_slot, true),
                ("flux_reactor_run", jump_slot, true),
                ("poll", glob_dat, false),
                ("epoll_wait", glob_dat, false),
                ("poll", absolute, false),
                ("pol", jump_slot, true),
            ],
        };
        let found = find(&fixture.bytes()).unwrap();
        assert_eq!(found, [entry(0, 0), entry(1, 2), entry(2, 3), entry(0, 4)], "machine {machine}");
    }
}

#[test]
fn the_numbers_of_one_architecture_mean_nothing_on_the_other() {
    let imports = vec![("epoll_wait", 1026, true), ("poll", 1025, false)];
    assert_eq!(find(&Fixture { machine: 62, plt_type: 7, imports }.bytes()), Ok(vec![]));
    let imports = vec![("epoll_wait", 7, true), ("poll", 6, false)];
    assert_eq!(find(&Fixture { machine: 183, plt_type: 7, imports }.bytes()), Ok(vec![]));
}

#[test]
fn a_library_bound_to_itself_has_no_entry_for_its_own_function() {
    let imports = vec![("epoll_wait", 7, true)];
    assert_eq!(find(&Fixture { machine: 62, plt_type: 7, imports }.bytes()), Ok(vec![entry(0, 0)]));
}

#[test]
fn what_is_no_such_image_is_refused_with_the_reason() {
    let fixture = |machine, plt_type| Fixture { machine, plt_type, imports: vec![("poll", 7, true)] }.bytes();
    assert_eq!(find(b"#!/bin/sh"), Err(ElfError::NotElf64));
    assert_eq!(find(&fixture(243, 7)), Err(ElfError::Machine(243)));
    assert_eq!(find(&fixture(62, 17)), Err(ElfError::PltType(17)));
    let mut elf32 = fixture(62, 7);
    elf32[4] = 1;
    assert_eq!(find(&elf32), Err(ElfError::NotElf64));
    let mut truncated = fixture(62, 7);
    truncated.truncate(PAGE as usize + 0x200);
    assert!(matches!(find(&truncated), Err(ElfError::Malformed { .. })));
}

proptest! {
    #[test]
    fn no_damage_makes_the_reader_panic(
        machine in prop::sample::select(vec![62u16, 183]),
        damage in prop::collection::vec((0usize..0x1400, any::<u8>()), 1..20),
        cut in 0usize..0x3000,
    ) {
        let imports = vec![("epoll_wait", 7, true), ("flux_reactor_run", 6, false), ("poll", 1026, true)];
        let mut bytes = Fixture { machine, plt_type: 7, imports }.bytes();
        for (at, byte) in damage {
            bytes[at] ^= byte;
        }
        let _ = find(&bytes);
        bytes.truncate(cut);
        let _ = find(&bytes);
    }
}

#[test]
fn what_the_compiler_links_is_found_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    for (i, (variant, flags)) in standin::VARIANTS.iter().enumerate() {
        let Some(object) = standin::build(dir.path(), &format!("libelf{i}.so"), flags) else { return };
        let bytes = std::fs::read(object).unwrap();
        assert_eq!(Some(FileImage::parse(&bytes).unwrap().machine), Machine::host());
        let found = find(&bytes).unwrap();
        let has = |symbol| found.iter().any(|e: &GotEntry| e.symbol == symbol);
        assert_eq!((has(0), has(1), has(2)), (true, *variant != "bound to itself", true), "{variant}");
    }
}
