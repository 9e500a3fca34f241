//! What a process is told that has no usable libflux. Each case runs in a process of its own, since the library is
//! looked for once.

use std::path::Path;
use std::process::Command;

/// Runs the example `version` with `FLUX_STATS_LIBFLUX` naming `library`; what it printed on standard error.
fn version_with(library: &Path) -> String {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["run", "--quiet", "--package", "flux-sys", "--example", "version"])
        .env("FLUX_STATS_LIBFLUX", library)
        .output()
        .unwrap();
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn library_from(folder: &Path, name: &str, source: &str) -> std::path::PathBuf {
    let (c, so) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.so")));
    std::fs::write(&c, source).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(compiler).args(["-shared", "-fPIC", "-o"]).arg(&so).arg(&c).status().unwrap();
    assert!(status.success());
    so
}

#[test]
fn an_unusable_libflux_is_one_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let absent = version_with(&folder.path().join("no-such-lib.so"));
    assert!(absent.contains("libflux not found") && absent.contains("no-such-lib.so"), "{absent}");

    let version = |minor: i32| {
        format!(
            "int flux_core_version (int *a, int *b, int *c) {{ *a = 0; *b = {minor}; *c = 3; return 0; }}\n"
        )
    };
    let old = version_with(&library_from(folder.path(), "old", &version(69)));
    assert!(old.contains("libflux 0.69.3 is too old: flux-core 0.70.0 or newer"), "{old}");

    let partial = version_with(&library_from(folder.path(), "partial", &version(71)));
    assert!(partial.contains("libflux 0.71.3 lacks") && partial.contains("flux_open_ex"), "{partial}");

    let foreign = version_with(&library_from(folder.path(), "foreign", "int x;\n"));
    assert!(foreign.contains("of unknown version lacks"), "{foreign}");
}
