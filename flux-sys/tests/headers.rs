//! include/libflux.h against Flux's own headers, where a C compiler finds them.

use std::path::Path;
use std::process::Command;

/// Compiles `source` without output; `Err` holds what the compiler said.
fn compile(source: &Path) -> Result<(), String> {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
    let mut command = Command::new(&compiler);
    command.args(["-std=c11", "-Wall", "-Werror", "-fsyntax-only"]).arg("-I").arg(include).arg(source);
    if let Some(flux_include) = std::env::var_os("FLUX_STATS_FLUX_INCLUDE") {
        command.arg("-I").arg(flux_include);
    }
    let output = command.output().unwrap_or_else(|error| panic!("running {compiler}: {error}"));
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

#[test]
fn our_declarations_agree_with_installed_headers() {
    let folder = tempfile::tempdir().unwrap();
    let probe = folder.path().join("probe.c");
    std::fs::write(&probe, "#include <flux/core.h>\n").unwrap();
    if let Err(why) = compile(&probe) {
        println!("skipped: no flux/core.h on this machine ({})", why.lines().next().unwrap_or_default());
        return;
    }
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    compile(&tests.join("headers.c")).expect("include/libflux.h differs from flux/core.h");

    // The check can fail: the same file with one wrong type is an error.
    let wrong = std::fs::read_to_string(tests.join("headers.c")).unwrap() + "\nvoid flux_close (int h);\n";
    let broken = folder.path().join("broken.c");
    std::fs::write(&broken, wrong).unwrap();
    assert!(compile(&broken).unwrap_err().contains("flux_close"));
}

#[test]
fn our_declarations_stand_on_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("alone.c");
    std::fs::write(&alone, "#include \"libflux.h\"\nflux_t *h;\n").unwrap();
    compile(&alone).unwrap();
}
