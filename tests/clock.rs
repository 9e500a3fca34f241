//! The clock of a machine is set while an instance runs, by libfaketime: nothing that is counted may notice.

use flux_testbed::{Backend, Instance, Options};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tests::{complaints, coverage, doctor, eventually, facts, ills, number, query, say, series};

const LIMIT: Duration = Duration::from_secs(40);
const SIZE: u32 = 4;
const RATE: f64 = 50.0;

facts! { a_clock_that_is_set_neither_loses_nor_invents_anything }

/// The library, of what Debian and others package.
fn faketime() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    let candidates = folders.chain(["/usr/lib".into(), "/usr/lib64".into()]);
    let library =
        candidates.map(|folder| folder.join("faketime/libfaketimeMT.so.1")).find(|path| path.exists());
    if library.is_none() {
        say("skipped: clocks that are set, for there is no libfaketime here");
    }
    library
}

/// Whose clock goes as `offset` says: it is read anew each time. The clock that never goes back is left alone, as a
/// kernel does.
fn environment(library: &Path, offset: &Path) -> Vec<(OsString, OsString)> {
    let one = |name: &str| (name.into(), "1".into());
    vec![
        ("LD_PRELOAD".into(), library.into()),
        ("FAKETIME_TIMESTAMP_FILE".into(), offset.into()),
        one("FAKETIME_NO_CACHE"),
        one("FAKETIME_DISABLE_SHM"),
        one("FAKETIME_DONT_FAKE_MONOTONIC"),
        one("DONT_FAKE_MONOTONIC"),
    ]
}

fn a_clock_that_is_set_neither_loses_nor_invents_anything(backend: Backend) {
    let Some(library) = faketime() else { return };
    let folder = tempfile::tempdir().unwrap();
    let offset = folder.path().join("offset");
    let set = |text: &str| {
        let next = folder.path().join("next");
        fs::write(&next, format!("{text}\n")).unwrap();
        fs::rename(&next, &offset).unwrap();
    };
    set("+0");
    let environment = environment(&library, &offset);
    let options = Options { size: SIZE, environment: environment.clone(), ..Options::new(backend) };
    let instance = Instance::start(options).unwrap();
    instance.load(0..SIZE, "stats-agg", &["period=500ms"]).unwrap();
    instance.load(0..SIZE, "loadgen", &[&format!("rate={RATE}")]).unwrap();
    let total = |name: &str| series(&instance, name)["total"].as_f64().unwrap_or(0.0);
    let mut pushed = 0.0;
    let mut wakeups: f64 = 0.0;
    for jump in ["+0", "+1h", "-1h", "+300d", "+0"] {
        set(jump);
        for rank in 0..SIZE {
            let metric = json!({ "name": "app.units", "type": "counter", "value": 5 });
            instance.rpc(rank, "stats-agg.push", json!({ "version": 1, "metrics": [metric] })).unwrap();
            pushed += 5.0;
        }
        eventually(&format!("{jump}: all of it"), LIMIT, || total("app.units"), |total| *total == pushed);
        // Two seconds of it, after what came before.
        let before = wakeups.max(total("modules.loadgen.wakeups"));
        let more = 2.0 * RATE * f64::from(SIZE);
        let counts = || total("modules.loadgen.wakeups");
        wakeups = eventually(&format!("{jump}: turns"), LIMIT, counts, |total| *total >= before + more);
        let answer = query(&instance, &["modules.loadgen.wakeups"]);
        assert_eq!(coverage(&answer), ("0-3".into(), String::new()), "{jump}");
        // A jump of an hour that went into a rate would divide it by thousands, or turn it round, at once. Ranks that are
        // late on a busy machine are no longer so in the next period.
        let whole = RATE * f64::from(SIZE);
        let rate_of = |answer: &Value| number(&answer["series"][0]["rate"]);
        assert!((whole / 20.0..whole * 20.0).contains(&rate_of(&answer)), "{jump}: {answer}");
        let rate = || rate_of(&query(&instance, &["modules.loadgen.wakeups"]));
        eventually(&format!("{jump}: the rate"), LIMIT, rate, |rate| {
            (whole / 3.0..whole * 3.0).contains(rate)
        });
        let (status, told) = doctor(&instance, &environment);
        assert_eq!((status, ills(&told)), (Some(0), Vec::<&Value>::new()), "{jump}: {told}");
    }
    for rank in (0..SIZE).rev() {
        instance.remove([rank], "loadgen").unwrap();
        instance.remove([rank], "stats-agg").unwrap();
        // The broker itself takes its peers for silent for a moment.
        let ours: Vec<String> =
            complaints(&instance, rank).into_iter().filter(|line| line.contains("stats-agg")).collect();
        assert_eq!(ours, Vec::<String>::new());
    }
    instance.stop().unwrap();
}
