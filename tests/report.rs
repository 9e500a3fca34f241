//! `flux stats record` and `flux stats report`: what is recorded, and the page of it in a real browser.

use flux_testbed::{Backend, Instance, Options};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tests::browser::{self, Browser};
use tests::{coverage, eventually, facts, query};

const LIMIT: Duration = Duration::from_secs(30);
const SIZE: u32 = 4;

facts! {
    what_a_killed_recorder_heard_is_in_the_report_of_it_and_the_next,
    a_recorder_marks_the_module_s_absence_and_ends_by_a_signal_in_order,
    a_report_of_the_instance_needs_no_recording,
    a_recorder_that_finds_no_instance_any_more_can_be_ended,
    what_cannot_be_recorded_says_why,
    the_report_is_drawn_in_a_browser_without_a_word,
}

/// Four ranks with stats-agg and loadgen, covered.
fn busy(backend: Backend) -> Instance {
    let instance = Instance::start(Options { size: SIZE, ..Options::new(backend) }).unwrap();
    instance.load(0..SIZE, "stats-agg", &["period=0.5s"]).unwrap();
    instance.load(0..SIZE, "loadgen", &["rate=50"]).unwrap();
    eventually("all ranks", LIMIT, || coverage(&query(&instance, &["none"])), |ranks| ranks.0 == "0-3");
    instance
}

fn end(instance: Instance) {
    instance.remove(0..SIZE, "loadgen").unwrap();
    instance.remove(0..SIZE, "stats-agg").unwrap();
    instance.stop().unwrap();
}

fn stats(instance: &Instance, words: &[&str]) -> Command {
    let mut command = instance.command(0, instance.program("flux-stats"));
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// How a command ended, and what it said.
fn said(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn size(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |found| found.len())
}

/// Waits until that many bytes more have been recorded.
fn recorded(file: &Path, more: u64) {
    let before = size(file);
    eventually("a recording that grows", LIMIT, || size(file), |size| *size >= before + more);
}

fn signal(process: &Child, name: &str) {
    let pid = process.id().to_string();
    assert!(Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", name, &pid]).status().unwrap().success());
}

/// A report of a file, made where there is no Flux, and what is in it as data.
fn report(instance: &Instance, file: &Path) -> (String, Value) {
    report_of(instance, file, &[])
}

fn report_of(instance: &Instance, file: &Path, words: &[&str]) -> (String, Value) {
    let output = Command::new(instance.program("flux-stats"))
        .args(["report", &file.to_string_lossy(), "-o", "-"])
        .args(words)
        .env_clear()
        .env("FLUX_STATS_LIBFLUX", "/nonexistent")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = String::from_utf8(output.stdout).unwrap();
    let data = page.split("type=\"application/json\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data = serde_json::from_str(data).unwrap();
    (page, data)
}

/// The numbers of a line of a chart; empty when there is none.
fn line(data: &Value, chart: &str, label: &str) -> Vec<f64> {
    let find = |list: &Value, key: &str, value: &str| {
        list.as_array().into_iter().flatten().find(|entry| entry[key] == value).cloned().unwrap_or_default()
    };
    let line = find(&find(&data["charts"], "id", chart)["lines"], "label", label);
    line["data"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

fn notes(data: &Value) -> Vec<String> {
    let notes = data["notes"].as_array().unwrap().iter();
    notes
        .map(|note| format!("{}: {}", note["kind"].as_str().unwrap(), note["text"].as_str().unwrap()))
        .collect()
}

fn file() -> (tempfile::TempDir, PathBuf, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("some.rec");
    let name = file.to_string_lossy().into_owned();
    (folder, file, name)
}

fn what_a_killed_recorder_heard_is_in_the_report_of_it_and_the_next(backend: Backend) {
    let instance = busy(backend);
    let (_folder, file, name) = file();
    let mut recorder = stats(&instance, &["record", "-o", &name]).spawn().unwrap();
    recorded(&file, 1);
    let busy = said(&mut stats(&instance, &["record", "-o", &name, "--for", "1s"]));
    assert_eq!(busy, (Some(1), format!("flux-stats: {name}: somebody else is recording to it\n")));
    instance.churn(20).unwrap();
    recorded(&file, 4000);
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let (_, data) = report(&instance, &file);
    assert!(!line(&data, "wakeups", "broker").is_empty(), "{data}");
    // Half a frame more, as a recorder leaves that was killed while it wrote.
    let mut bytes = fs::read(&file).unwrap();
    let half = bytes[16..60].to_vec();
    bytes.extend(half);
    fs::write(&file, &bytes).unwrap();
    let (_, data) = report(&instance, &file);
    assert!(
        notes(&data).iter().any(|note| note.starts_with("recorder: the file ends torn")),
        "{:?}",
        notes(&data)
    );

    let (status, told) = said(&mut stats(&instance, &["record", "-o", &name, "--for", "6s"]));
    assert_eq!(status, Some(0), "{told}");
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "flux-stats: 44 torn bytes at the end were cut off");
    assert!(lines[1].contains(" answers of 4 ranks, 6.0") && lines[1].ends_with(&name), "{told}");
    let (page, data) = report(&instance, &file);
    // 50 turns a second on each rank, and some for messages. Half or twice of that is no error: on a busy machine a rank's
    // period is told late, before the window or after it.
    let (_, quiet) = report_of(&instance, &file, &["--since", "5s"]);
    let wakeups = line(&quiet, "wakeups", "loadgen");
    let mean = wakeups.iter().sum::<f64>() / wakeups.len() as f64;
    assert!((100.0..400.0).contains(&mean), "{wakeups:?}");
    assert_eq!(data["heat"]["rows"].as_array().unwrap().len(), 4);
    let notes = notes(&data);
    assert!(notes.contains(&"recorder: the recorder before ended without a word".to_owned()), "{notes:?}");
    assert_eq!(notes.last().unwrap(), "recorder: the recorder had recorded for as long as it should");
    assert!(page.contains(">loadgen<") && page.contains("modules.loadgen.wakeups"));
    end(instance);
}

fn a_recorder_marks_the_module_s_absence_and_ends_by_a_signal_in_order(backend: Backend) {
    let instance = busy(backend);
    let (_folder, file, name) = file();
    let recorder = stats(&instance, &["record", "-o", &name, "modules.**"]).spawn().unwrap();
    recorded(&file, 4000);
    instance.remove([0], "stats-agg").unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let before = size(&file);
    instance.load([0], "stats-agg", &["period=0.5s"]).unwrap();
    eventually("answers again", LIMIT, || size(&file), |size| *size > before + 2000);
    signal(&recorder, "INT");
    let output = recorder.wait_with_output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{told}");
    assert!(told.contains("looking for it again for 60 s"), "{told}");
    assert!(told.trim_end().ends_with(&format!(" in {name}")), "{told}");
    let (_, data) = report(&instance, &file);
    let notes = notes(&data);
    assert!(notes.iter().any(|note| note.starts_with("gap: ")), "{notes:?}");
    assert_eq!(notes.last().unwrap(), "recorder: the recorder was told to end");
    assert!(line(&data, "jobs", "running").is_empty(), "it was not asked for");
    end(instance);
}

fn a_report_of_the_instance_needs_no_recording(backend: Backend) {
    let instance = busy(backend);
    std::thread::sleep(Duration::from_secs(4));
    let (folder, ..) = file();
    let page = folder.path().join("report.html");
    let (status, told) =
        said(&mut stats(&instance, &["report", "--since", "1m", "-o", &page.to_string_lossy()]));
    assert_eq!((status, told.as_str()), (Some(0), ""));
    let page = fs::read_to_string(page).unwrap();
    let data = page.split("type=\"application/json\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    let wakeups = line(&data, "wakeups", "loadgen");
    assert!(wakeups.len() >= 2 && wakeups.iter().any(|rate| (150.0..350.0).contains(rate)), "{wakeups:?}");
    assert_eq!(data["heat"]["rows"].as_array().unwrap().len(), 4);
    assert!(!line(&data, "memory", "broker").is_empty());
    end(instance);
}

fn a_recorder_that_finds_no_instance_any_more_can_be_ended(backend: Backend) {
    let instance = busy(backend);
    let (_folder, file, name) = file();
    let mut recorder = stats(&instance, &["record", "-o", &name]).spawn().unwrap();
    recorded(&file, 4000);
    let program = instance.program("flux-stats");
    instance.remove(0..SIZE, "loadgen").unwrap();
    instance.remove(0..SIZE, "stats-agg").unwrap();
    instance.stop().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert!(recorder.try_wait().unwrap().is_none(), "it looks for the instance");
    signal(&recorder, "TERM");
    assert!(recorder.wait().unwrap().success());
    let page = Command::new(program).args(["report", &name, "-o", "-"]).output().unwrap();
    assert!(String::from_utf8(page.stdout).unwrap().contains("the recorder was told to end"));
}

fn what_cannot_be_recorded_says_why(backend: Backend) {
    let instance = busy(backend);
    let (folder, file, name) = file();
    fs::write(&file, "not a recording").unwrap();
    let foreign = said(&mut stats(&instance, &["record", "-o", &name, "--for", "1s"]));
    let expected =
        format!("flux-stats: {name} is no recording of flux stats: it begins with \"not a recording\"\n");
    assert_eq!(foreign, (Some(1), expected));
    assert_eq!(fs::read_to_string(&file).unwrap(), "not a recording");
    fs::remove_file(&file).unwrap();
    let pattern = said(&mut stats(&instance, &["record", "-o", &name, "["]));
    assert_eq!(pattern.0, Some(2), "{}", pattern.1);
    assert!(!file.exists(), "a recording begins with the first answer");
    for words in [
        &["record"][..],
        &["record", "-o", &name, "--interval", "1ms"],
        &["record", "-o", &name, "--for", "x"],
        &["report", &name],
        &["report", "-o", "-", "--since", "0"],
    ] {
        let (status, told) = said(&mut stats(&instance, words));
        assert_eq!(status, Some(2), "{words:?}: {told}");
    }
    for (words, expected) in [
        (["report", "/nonexistent/x.rec", "-o", "-"], "/nonexistent/x.rec: No such file or directory"),
        (["report", "/etc/passwd", "-o", "-"], "/etc/passwd is no recording of flux stats: it begins with"),
        (["report", "/", "-o", "-"], "/: expected a file"),
        (["record", "-o", "/nonexistent/x.rec", "--for=1s"], "/nonexistent/x.rec: No such file or directory"),
    ] {
        let (status, told) = said(&mut stats(&instance, &words));
        assert_eq!(status, Some(1), "{words:?}: {told}");
        assert!(told.starts_with(&format!("flux-stats: {expected}")), "{told}");
    }
    // No room: what is there stays whole. (A limit of the shell stands for a full disk.)
    let script = "trap '' XFSZ; ulimit -f 40; exec \"$0\" record -o \"$1\" --interval 100ms";
    let program = instance.program("flux-stats");
    let (status, told) =
        said(instance.command(0, "bash").args(["-c", script]).arg(program).arg(&name).stderr(Stdio::piped()));
    assert_eq!(status, Some(1), "{told}");
    assert!(told.starts_with(&format!("flux-stats: writing {name}: File too large")), "{told}");
    assert!(told.trim_end().ends_with("what was recorded before is whole"), "{told}");
    let (_, data) = report(&instance, &file);
    assert!(notes(&data).iter().all(|note| !note.contains("torn")), "{:?}", notes(&data));
    // A page cannot be written where there is no folder.
    let nowhere = folder.path().join("no/report.html");
    let (status, told) = said(&mut stats(&instance, &["report", &name, "-o", &nowhere.to_string_lossy()]));
    assert_eq!(status, Some(1));
    assert!(told.contains("No such file or directory"), "{told}");
    end(instance);
}

fn the_report_is_drawn_in_a_browser_without_a_word(backend: Backend) {
    let Some(program) = browser::found() else { return };
    let is_real = backend != Backend::Embedded;
    let instance = busy(backend);
    let (_folder, file, name) = file();
    let recorder = stats(&instance, &["record", "-o", &name]).spawn().unwrap();
    recorded(&file, 1);
    for _ in 0..4 {
        instance.churn(25).unwrap();
        std::thread::sleep(Duration::from_secs(1));
    }
    instance.rpc(0, "stats-agg.stats-clear", json!({})).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    signal(&recorder, "INT");
    assert!(recorder.wait_with_output().unwrap().status.success());
    let (page, _) = report(&instance, &file);
    end(instance);

    let kind = if is_real { "report-real" } else { "report-embedded" };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(kind);
    fs::create_dir_all(&folder).unwrap();
    let html = folder.join("report.html");
    fs::write(&html, page).unwrap();
    let mut browser = Browser::start(&program);
    for (width, dark) in [(1280, false), (1280, true), (375, false), (375, true)] {
        browser.window(width, 900, dark);
        browser.open(&html);
        assert_eq!(browser.complaints(), [] as [String; 0]);
        assert_eq!(browser.requests(), [format!("file://{}", html.display())], "nothing but itself");
        assert_eq!(
            browser.evaluate("document.documentElement.scrollWidth"),
            width,
            "nothing is wider than the window"
        );
        let drawn = browser.evaluate(DRAWN);
        let drawn = drawn.as_array().unwrap();
        assert!(drawn.len() >= 5, "{drawn:?}");
        assert!(
            drawn.iter().all(|chart| chart[1].as_u64().unwrap() > 10),
            "each has more than a few colours: {drawn:?}"
        );
        let ground = browser.evaluate("getComputedStyle(document.body).backgroundColor");
        assert_eq!(ground == "rgb(255, 255, 255)", !dark, "{ground}");
        let shot = folder.join(format!("report-{width}-{}.png", if dark { "dark" } else { "light" }));
        fs::write(shot, browser.picture()).unwrap();
    }
    // The cursor tells of a cell of the map, and the choice of a module changes it: one that all ranks have.
    let most = "document.getElementById('heat-most').textContent";
    let all = browser.evaluate(most);
    browser.evaluate(
        "(choice => { choice.selectedIndex = [...choice.options].findIndex(option => option.text == 'stats-agg'); \
         choice.dispatchEvent(new Event('change')); })(document.getElementById('heat-layer'))",
    );
    assert_ne!(browser.evaluate(most), all);
    browser.evaluate("document.getElementById('chart-heat').scrollIntoView({ block: 'center' })");
    let place = browser.evaluate(
        "(box => [box.left, box.width, box.top + box.height / 2])\
         (document.querySelector('#chart-heat .u-over').getBoundingClientRect())",
    );
    let [left, width, y] = [0, 1, 2].map(|of| place[of].as_f64().unwrap());
    // Not of all times is it known what a rank did: around a clear, and before it was asked for the second time.
    let told = (1..10).map(|tenth| {
        let x = left + width * f64::from(tenth) / 10.0;
        browser.ask("Input.dispatchMouseEvent", json!({ "type": "mouseMoved", "x": x, "y": y }));
        browser.settle();
        let here = browser.evaluate("document.getElementById('heat-here').textContent");
        here.as_str().unwrap().to_owned()
    });
    let told: Vec<String> = told.collect();
    assert!(told.iter().all(|here| here.starts_with("rank ")), "{told:?}");
    assert!(told.iter().any(|here| here.ends_with(" of a core")), "{told:?}");
    // On paper it is light, whoever looks.
    let paper = browser.print();
    assert!(paper.starts_with(b"%PDF-") && paper.len() > 20_000);
    fs::write(folder.join("report.pdf"), paper).unwrap();
    assert_eq!(browser.complaints(), [] as [String; 0]);
}

/// Of each chart, its name and how many colours are in its picture.
const DRAWN: &str = "[...document.querySelectorAll('.chart')].map(chart => { \
    const canvas = chart.querySelector('canvas'); \
    const pixels = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer); \
    return [chart.id, new Set(pixels).size]; })";
