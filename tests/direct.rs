//! A libflux that was linked to call its own functions directly (`-Bsymbolic-functions`): there is no entry by which
//! nested reactors could be told from others.

use flux_testbed::{Backend, Instance, Options, Stage};
use object::LittleEndian;
use object::elf::{FileHeader64, R_AARCH64_RELATIVE, R_X86_64_RELATIVE};
use object::read::elf::{FileHeader, Rela, SectionHeader, Sym};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;
use tests::{complaints, eventually, facts, number, say, tree};

const LIMIT: Duration = Duration::from_secs(30);
const FUNCTION: &[u8] = b"flux_reactor_run";
const RELA_BYTES: usize = 24;

facts! {
    where_nested_reactors_cannot_be_told_one_line_says_so_and_all_waits_are_sleep,
}

/// A copy of a libflux as it would be then: its entry for the function is not bound by name, but holds the address of its
/// own. (It stays an entry; that nobody can tell it from others is what counts.)
fn made_direct(library: &Path, copy: &Path) -> object::Result<()> {
    let mut bytes = std::fs::read(library).unwrap();
    let data = bytes.as_slice();
    let header = FileHeader64::<LittleEndian>::parse(data)?;
    let endian = header.endian()?;
    let relative = match header.e_machine(endian) {
        object::elf::EM_AARCH64 => R_AARCH64_RELATIVE,
        _ => R_X86_64_RELATIVE,
    };
    let sections = header.sections(endian, data)?;
    let symbols = sections.symbols(endian, data, object::elf::SHT_DYNSYM)?;
    let mut patches = Vec::new();
    for section in sections.iter() {
        let Some((relocations, _)) = section.rela(endian, data)? else { continue };
        let offset = section.sh_offset(endian) as usize;
        for (index, relocation) in relocations.iter().enumerate() {
            let Some(symbol) = relocation.symbol(endian, false) else { continue };
            let symbol = symbols.symbol(symbol)?;
            if symbols.symbol_name(endian, symbol)? == FUNCTION {
                patches.push((offset + index * RELA_BYTES, symbol.st_value(endian)));
            }
        }
    }
    assert!(!patches.is_empty(), "{} has an entry for it", library.display());
    for (at, address) in patches {
        bytes[at + 8..at + 16].copy_from_slice(&u64::from(relative).to_le_bytes());
        bytes[at + 16..at + 24].copy_from_slice(&address.to_le_bytes());
    }
    std::fs::write(copy, bytes).unwrap();
    Ok(())
}

fn instance(backend: &Backend, environment: Vec<(OsString, OsString)>) -> Instance {
    Instance::start(Options { size: 1, environment, ..Options::new(backend.clone()) }).unwrap()
}

fn where_nested_reactors_cannot_be_told_one_line_says_so_and_all_waits_are_sleep(backend: Backend) {
    const CALLS: f64 = 50.0;
    const CALL_S: f64 = 0.02;
    let ordinary = instance(&backend, Vec::new());
    let library = ordinary.libflux();
    ordinary.stop().unwrap();
    if !library.is_file() {
        return say("skipped: where the libflux of this flux is cannot be told");
    }
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("libflux-core.so.2");
    made_direct(&library, &copy).unwrap();
    let copy = OsString::from(copy);
    let instance = instance(
        &backend,
        match backend {
            Backend::Embedded => vec![("FLUX_STATS_LIBFLUX".into(), copy)],
            // Lazily bound, an entry must be one for a name.
            Backend::Real(_) => vec![("LD_PRELOAD".into(), copy), ("LD_BIND_NOW".into(), "1".into())],
        },
    );
    instance.load([0], "stats-agg", &["period=500ms"]).unwrap();
    instance.load_as([0], "loadgen", "holder", &[]).unwrap();
    let block = format!("block={CALL_S}s");
    instance.load([0], "loadgen", &["rate=20", &block]).unwrap();
    let own = || instance.rpc(0, "loadgen.stats-get", json!({})).unwrap();
    eventually("it calls", LIMIT, own, |own| number(&own["calls"]) >= CALLS);
    let own = instance.rpc(0, "loadgen.stop", json!({})).unwrap();
    let waited = number(&own["waited_s"]);
    let loadgen = || tree(&instance)["modules"]["loadgen"].clone();
    let seen = eventually("it is reported", LIMIT, loadgen, |seen| {
        seen["sleep_s"].as_f64().is_some_and(|sleep_s| sleep_s >= waited)
    });
    let names: Vec<&String> = seen.as_object().unwrap().keys().collect();
    assert!(!names.iter().any(|name| name.contains("blocked")), "{seen}");
    // Each turn of a nested reactor is one to the hook.
    assert!(number(&seen["wakeups"]) >= 2.0 * number(&own["calls"]), "{seen} {own}");
    let lines: Vec<String> =
        instance.log(0).unwrap().into_iter().filter(|line| line.contains("blocked_s is not known")).collect();
    assert!(lines.len() == 1 && lines[0].contains("stats-agg.info[0]"), "{lines:?}");
    say(&format!("{}: {}", instance.backend(), lines[0]));

    let command = Stage::of_this_build().unwrap().command();
    let rundir = instance.rundir().to_string_lossy();
    let peek = |arguments: &[&str]| instance.run(0, &command.to_string_lossy(), arguments).unwrap();
    assert!(peek(&["peek", &rundir]).contains("blocked cannot be told from sleep"));
    let json: Value = serde_json::from_str(&peek(&["peek", "--json", &rundir])).unwrap();
    let threads = json["brokers"][0]["threads"].as_array().unwrap();
    let thread = threads.iter().find(|thread| thread["module"] == "loadgen").unwrap();
    assert!(
        thread["turns"]["blocked_s"].is_null() && number(&thread["turns"]["sleep_s"]) >= waited,
        "{thread}"
    );

    assert_eq!(complaints(&instance, 0), Vec::<String>::new());
    ["loadgen", "holder", "stats-agg"].iter().for_each(|name| instance.remove([0], name).unwrap());
    instance.stop().unwrap();
}
