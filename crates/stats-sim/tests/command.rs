//! The command: what it prints, and its exit status.

use std::process::{Command, Output};

fn stats_sim(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stats-sim")).args(arguments.split_whitespace()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn each_run_is_a_line_in_the_order_of_seeds_and_then_comes_the_sum() {
    let output = stats_sim("--ranks 20 --fanout 4 --seed 3..8 --faults all --threads 3");
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 7);
    for (line, seed) in lines.iter().zip(3..=8) {
        assert!(line.starts_with(&format!("seed {seed}: ")) && line.ends_with("; ok"), "{line}");
        for part in [" events ", "faults: ", "bytes by level: 1: ", "merge ", "converged in ", "fresh in "] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
    assert!(
        lines[6].starts_with("6 runs of 20 ranks") && lines[6].ends_with("every invariant held"),
        "{said}"
    );
}

#[test]
fn a_violation_is_exit_status_one_and_comes_with_a_trace_and_the_way_to_repeat_it() {
    let output = stats_sim("--ranks 40 --fanout 4 --seed 1..5 --plant double-merge");
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("VIOLATED at") && said.contains("flows are not conserved"), "{said}");
    let repeat = said.lines().find_map(|line| line.trim().strip_prefix("repeat: stats-sim ")).unwrap();
    let again = stats_sim(repeat);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stdout).contains("flows are not conserved"));
    let mended = stats_sim(&repeat.replace("--plant double-merge", ""));
    assert_eq!(mended.status.code(), Some(0), "{}", text(&mended.stdout));
}

#[test]
fn wrong_usage_is_exit_status_two_and_says_what_is_expected() {
    for (arguments, expected) in [
        ("--ranks 0", "1..=16384"),
        ("--ranks 20000", "1..=16384"),
        ("--seed 9..3", "FIRST..LAST"),
        ("--faults everything", "expected all, none"),
        ("--topology ring", "expected kary:N"),
        ("--topology custom:0,5", "must be a lower rank"),
        ("--topology custom:0,0 --ranks 9", "expected 3, as in the custom topology"),
        ("--fanout 3 --topology flat", "cannot be used with"),
        ("--plant typo", "double-merge, lost-on-unload or state-twice"),
        ("--period 1ms", "0.1s to 3600s"),
        ("--only x", "KIND@RANK"),
        ("--nonsense", "unexpected argument"),
    ] {
        let output = stats_sim(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(text(&output.stderr).contains(expected), "{arguments}: {}", text(&output.stderr));
    }
}
