//! reactor-probe.so preloaded into processes that use a libflux (a stand-in), or none.

#[allow(dead_code)]
#[path = "../../../crates/stats-probe/tests/standin/mod.rs"]
mod standin;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use stats_probe::State;
use stats_probe::peek::{Peek, peek_process};

fn reactor_probe() -> PathBuf {
    // Cargo builds the library before its tests, beside or above their directory.
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let candidates = [deps.join("libreactor_probe.so"), deps.parent().unwrap().join("libreactor_probe.so")];
    candidates.into_iter().find(|p| p.exists()).expect("libreactor_probe.so is built")
}

/// Runs a program until it says READY, and looks at its slots.
fn look_at(program: &Path, argument: Option<&Path>) -> Option<Peek> {
    let mut child: Child = Command::new(program)
        .args(argument)
        .env("LD_PRELOAD", reactor_probe())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 6];
    child.stdout.take().unwrap().read_exact(&mut said).unwrap();
    assert_eq!(&said, b"READY\n");
    let seen = peek_process(child.id()).ok();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    seen
}

#[test]
fn turns_are_counted_from_the_first_on_linked_or_loaded_late() {
    let dir = tempfile::tempdir().unwrap();
    let Some(library) = standin::build(dir.path(), "libflux-core.so.2", &["-Wl,-soname,libflux-core.so.2"])
    else {
        return;
    };
    let rpath = format!("-Wl,-rpath,{}", dir.path().display());
    let linked = standin::compile(
        "host.c",
        &dir.path().join("linked"),
        &["-DLINKED", library.to_str().unwrap(), &rpath],
    );
    let late = standin::compile("host.c", &dir.path().join("late"), &["-ldl"]);
    for program in [linked, late].map(Option::unwrap) {
        let seen = look_at(&program, Some(&library)).unwrap_or_else(|| panic!("{program:?}: no slots"));
        assert!(seen.active && seen.blocked_available && seen.threads.len() == 1, "{program:?} {seen:?}");
        let thread = &seen.threads[0];
        // Not one more: the child that it forked has not written into its slot.
        assert_eq!((thread.wakeups, thread.state), (20, State::Working), "{program:?}");
        assert!(thread.sleep_ns >= 10_000_000, "{thread:?}");
    }
}

#[test]
fn a_process_that_creates_no_reactor_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = standin::compile("host.c", &dir.path().join("idle"), &["-ldl"]) else { return };
    assert!(look_at(&program, None).is_none());
}
