use super::clock::Clock;
use super::model::{Model, NoteKind};
use super::{from_file, page};
use crate::answer::{Answer, Extreme, Ranks, Series, Shape, Values, Whole};
use crate::recording::{Ended, Mark, Session, Writer};
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::time::Duration;

const START: f64 = 1_700_000_000.0;

/// A recording in the making.
struct Recorded {
    _folder: tempfile::TempDir,
    path: PathBuf,
    writer: Writer,
}

impl Recorded {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.rec");
        let (mut writer, _) = Writer::open(&path).unwrap();
        writer.session(START, &session()).unwrap();
        Recorded { _folder: folder, path, writer }
    }

    fn model(&self, since: Option<u64>) -> Model {
        from_file::model(&self.path, since.map(Duration::from_secs), &Clock::utc()).unwrap().0
    }

    fn page(&self) -> String {
        let (model, findings) = from_file::model(&self.path, None, &Clock::utc()).unwrap();
        page::page(&model, &findings, &Clock::utc(), START)
    }
}

fn session() -> Session {
    Session { recorder: "0.1.0".into(), machine: "node1".into(), ..Session::default() }
}

fn series(name: impl Into<String>, rank: Option<u32>, values: Values) -> Series {
    Series { name: name.into(), tags: Default::default(), rank, ranks: None, unit: None, values, since: None }
}

fn counter(total: f64) -> Values {
    Values::Counter { total, rate: 0.0, max: None }
}

fn gauge(value: f64) -> Values {
    let extreme = Extreme { value, rank: 1, time: None };
    Values::Gauge { count: 1, sum: value, min: extreme, max: extreme }
}

fn answer(at: f64, series: Vec<Series>) -> Answer {
    Answer {
        time: START + at,
        instance: Whole { size: 4, hostlist: Some("n[0-3]".into()) },
        ranks: Ranks { covered: "0-3".into(), oldest: 0.5, ..Ranks::default() },
        period: 2.0,
        unanswered: String::new(),
        series,
    }
}

/// What a module has done by then.
fn module(name: &str, seconds: f64, share: f64) -> Vec<Series> {
    let shape = Shape { min: 1e-6, max: 0.1, stddev: 1e-5, p50: 4e-5, p90: 5e-5, p99: 9e-5 };
    let count = (seconds * 100.0) as u64;
    let timer = Values::Timer {
        count,
        rate: 100.0,
        sum: seconds * share,
        shape: Some(shape),
        relative_error: 0.0078,
    };
    let name = |what: &str| format!("modules.{name}.{what}");
    vec![
        series(name("work_s"), None, counter(seconds * share)),
        series(name("wakeups"), None, counter(seconds * 100.0)),
        series(name("longest_work_s"), None, gauge(0.25)),
        series(name("work_per_wakeup_s"), None, timer),
        series(name("loaded"), None, gauge(4.0)),
    ]
}

#[test]
fn what_was_gained_is_charted_to_the_last_bit_of_it() {
    let mut recorded = Recorded::new();
    for step in 0..=50 {
        let seconds = f64::from(step) * 2.0;
        recorded.writer.answer(answer(seconds, module("kvs", 1000.0 + seconds, 0.25))).unwrap();
    }
    let model = recorded.model(None);
    let track = model.track("modules.kvs.work_s").unwrap();
    assert!((track.gained - 25.0).abs() < 1e-6, "what was before the first answer is not counted");
    assert!((track.slots.iter().sum::<f64>() - 25.0).abs() < 1e-6);
    assert!((model.seconds() - 100.0).abs() < 1e-3);
    assert!(model.rates(track).iter().all(|rate| (rate - 0.25).abs() < 1e-6));
    assert!(model.track("modules.kvs.longest_work_s").unwrap().most.iter().all(|most| *most == 0.25));

    let model = recorded.model(Some(20));
    assert!((model.seconds() - 20.0).abs() < 1e-3);
    assert!((model.track("modules.kvs.work_s").unwrap().gained - 5.0).abs() < 1e-6);
}

/// A recording in which everything happens that may.
fn eventful() -> Recorded {
    let mut recorded = Recorded::new();
    let answer_at = |recorded: &mut Recorded, at: f64, total: f64, extra: Option<&str>, silent: &str| {
        let mut series = module("kvs", total, 0.5);
        series.extend(extra.into_iter().flat_map(|name| module(name, total, 0.1)));
        let mut answer = answer(at, series);
        answer.ranks.silent = silent.into();
        recorded.writer.answer(answer).unwrap();
    };
    for step in 0..5 {
        answer_at(&mut recorded, f64::from(step) * 2.0, 100.0 + f64::from(step) * 2.0, None, "");
    }
    // Lost and found.
    recorded.writer.mark(START + 9.0, &Mark::Lost("stats-agg is not loaded".into())).unwrap();
    recorded.writer.mark(START + 20.0, &Mark::Found).unwrap();
    answer_at(&mut recorded, 20.0, 120.0, Some("loadgen"), "3");
    answer_at(&mut recorded, 22.0, 122.0, Some("loadgen"), "3");
    // Cleared.
    answer_at(&mut recorded, 24.0, 1.0, Some("loadgen"), "");
    answer_at(&mut recorded, 26.0, 3.0, None, "");
    // Killed, and recorded onto after a while.
    recorded.writer.session(START + 60.0, &session()).unwrap();
    answer_at(&mut recorded, 60.0, 37.0, None, "");
    answer_at(&mut recorded, 62.0, 39.0, None, "");
    recorded.writer.end(START + 63.0, &Ended::Told).unwrap();
    recorded
}

#[test]
fn gaps_resets_and_who_was_missing_are_told_and_not_charted() {
    let recorded = eventful();
    let model = recorded.model(None);
    let notes: Vec<String> = model
        .notes
        .iter()
        .map(|note| {
            format!("{} to {} {}: {}", note.from - START, note.to - START, note.kind.name(), note.text)
        })
        .collect();
    insta::assert_snapshot!(notes.join("\n"), @r"
    0 to 0 recorder: flux-stats 0.1.0 on node1 began to record
    9 to 20 gap: stats-agg is not loaded
    20 to 20 module: loaded: loadgen
    20 to 24 missing: silent: ranks 3
    24 to 24 reset: totals began anew: they were cleared, or the instance is another
    26 to 26 module: no longer loaded: loadgen
    26 to 60 gap: no answers
    60 to 60 recorder: the recorder before ended without a word
    60 to 60 recorder: flux-stats 0.1.0 on node1 began to record
    63 to 63 recorder: the recorder was told to end
    ");
    let work = model.track("modules.kvs.work_s").unwrap();
    // 8 s at first, 2 after it was found, 2 after the clear, 2 of the second recorder.
    assert!((model.seconds() - 14.0).abs() < 1e-3);
    assert!((work.gained - 7.0).abs() < 1e-6);
    let rates = model.rates(work);
    assert!(rates[model.axis.slot(START + 40.0)].is_nan());
    assert!(!model.track("modules.loadgen.work_s").unwrap().alive);
    assert_eq!(model.notes.iter().filter(|note| note.kind == NoteKind::Gap).count(), 2);
}

#[test]
fn what_was_wrong_at_any_time_of_a_recording_is_told_with_when() {
    let mut recorded = Recorded::new();
    // For three minutes a module of rank 2 works all the time, then for half an hour it does not.
    let mut work = 0.0;
    for step in 0..1000_u32 {
        let seconds = f64::from(step) * 2.0;
        let share = if (60.0..240.0).contains(&seconds) { 0.99 } else { 0.01 };
        work += share * 2.0;
        let name = |what: &str| format!("modules.sched.{what}");
        let extreme = Extreme { value: 1.0, rank: 2, time: None };
        let loaded = Values::Gauge { count: 1, sum: 1.0, min: extreme, max: extreme };
        let rate = |total: f64, rate: f64| Values::Counter { total, rate, max: Some((2, rate)) };
        let all = vec![
            series(name("work_s"), None, rate(work, share)),
            series(name("cpu_s"), None, rate(work, share)),
            series(name("wakeups"), None, rate(seconds * 50.0, 50.0)),
            series(name("rx.request"), None, rate(seconds * 50.0, 50.0)),
            series(name("loaded"), None, loaded),
        ];
        recorded.writer.answer(answer(seconds, all)).unwrap();
    }
    let (_, findings) = from_file::model(&recorded.path, None, &Clock::utc()).unwrap();
    let told: Vec<String> = findings
        .iter()
        .map(|finding| {
            let place = finding.place.as_deref().unwrap_or("the instance");
            format!("{} {} on {place}: {:?}; {}", finding.severity, finding.name, finding.when, finding.query)
        })
        .collect();
    insta::assert_snapshot!(told.join("\n"), @r#"warning module-busy on rank 2 (n2): Some("seen from 2023-11-14 22:15:20 to 2023-11-14 22:17:20"); flux stats query 'modules.sched.{work_s,wakeups,cpu_s,sendq}' --rank 2 --since 5m"#);
    let page = recorded.page();
    assert!(page.contains("<strong>module-busy</strong> on rank 2 (n2), seen from"), "it is on the page");
    // Of the last ten minutes there is nothing to tell.
    let since = Some(Duration::from_secs(600));
    assert!(from_file::model(&recorded.path, since, &Clock::utc()).unwrap().1.is_empty());
}

#[test]
fn what_lasts_for_seconds_only_is_found_in_a_recording_too() {
    let mut recorded = Recorded::new();
    for step in 0..40_u32 {
        let seconds = f64::from(step) * 2.0;
        let mut all = module("kvs", seconds, 0.1);
        if (40.0..50.0).contains(&seconds) {
            all.push(series("modules.kvs.stalled", None, gauge(seconds - 34.0)));
        }
        let silent = (10.0..26.0).contains(&seconds);
        all.push(series("modules.stats-agg.loaded", None, gauge(if silent { 3.0 } else { 4.0 })));
        let mut answer = answer(seconds, all);
        if silent {
            answer.ranks.silent = "3".into();
        }
        recorded.writer.answer(answer).unwrap();
    }
    let (model, findings) = from_file::model(&recorded.path, None, &Clock::utc()).unwrap();
    let told: Vec<_> =
        findings.iter().map(|finding| (finding.name, finding.when.as_deref().unwrap())).collect();
    assert_eq!(
        told,
        [
            ("ranks-missing", "seen from 2023-11-14 22:13:30 to 2023-11-14 22:13:44"),
            ("module-stalled", "seen from 2023-11-14 22:14:00 to 2023-11-14 22:14:08"),
        ]
    );
    assert!(findings[0].text.contains("sent nothing for 22.0s"), "{}", findings[0].text);
    // As it was at its worst, and that is not where it was seen first.
    assert!(findings[1].text.contains("for 14.0s"), "{}", findings[1].text);
    assert_eq!(model.looks_left_out, 0);
}

#[test]
fn a_recording_in_which_ranks_come_and_go_all_the_time_is_not_looked_at_without_end() {
    let mut recorded = Recorded::new();
    for step in 0..120_u32 {
        let mut answer = answer(f64::from(step) * 2.0, module("kvs", f64::from(step), 0.1));
        answer.ranks.silent = if step % 2 == 1 { "3".into() } else { String::new() };
        recorded.writer.answer(answer).unwrap();
    }
    assert_eq!(recorded.model(None).looks_left_out, 19);
    assert!(recorded.page().contains("19 of these moments were not looked at"));
}

/// Of each element of that name, its attributes and its content.
fn elements<'p>(page: &'p str, name: &str) -> Vec<(&'p str, &'p str)> {
    let (open, close) = (format!("<{name}"), format!("</{name}>"));
    page.split(&open)
        .skip(1)
        .map(|rest| {
            let (attributes, rest) = rest.split_once('>').unwrap();
            (attributes, rest.split_once(&close).unwrap().0)
        })
        .collect()
}

#[test]
fn the_page_is_of_one_piece_and_runs_nothing_but_its_own() {
    let page = eventful().page();
    let policy =
        page.split("Content-Security-Policy\" content=\"").nth(1).unwrap().split('"').next().unwrap();
    let hash = |content: &str| super::script::digest(content);
    let scripts: Vec<String> = elements(&page, "script")
        .into_iter()
        .filter(|(attributes, _)| !attributes.contains("application/json"))
        .map(|(_, content)| format!("'{}'", hash(content)))
        .collect();
    let styles = elements(&page, "style");
    assert_eq!((scripts.len(), styles.len()), (2, 1));
    let expected = format!(
        "default-src 'none'; img-src data:; style-src '{}'; script-src {}",
        hash(styles[0].1),
        scripts.join(" ")
    );
    assert_eq!(policy.replace("&#39;", "'"), expected);
    // Beside what the library's own comment names, no address.
    let own = page.replace(include_str!("../../assets/uPlot.iife.min.js"), "");
    for address in ["http:", "https:", "//", "url(", "@import"] {
        let found =
            own.match_indices(address).map(|(at, _)| &own[at.saturating_sub(30)..at + 30]).find(|text| {
                // Comments of our script, which are no address.
                !text.contains("\n  //") && !text.contains("// Draws") && !text.contains("\n// ")
            });
        assert_eq!(found, None);
    }
}

#[test]
fn names_of_peers_stay_text() {
    const EVIL: &str = "</script><script>alert('\u{2028}')</script><img src=x onerror=alert(1)>";
    let mut recorded = Recorded::new();
    for step in 0..3 {
        let seconds = f64::from(step) * 2.0;
        let mut all = module(EVIL, seconds, 0.5);
        all.push(series(EVIL, None, counter(seconds)));
        all[0].tags.clear();
        let mut tagged = series("tagged", None, counter(1.0));
        tagged.tags.insert(EVIL.into(), EVIL.into());
        all.push(tagged);
        let mut answer = answer(seconds, all);
        answer.instance.hostlist = Some(EVIL.into());
        answer.ranks.silent = EVIL.into();
        recorded.writer.answer(answer).unwrap();
        let ranks = "0".parse().unwrap();
        let by_rank = vec![series(format!("modules.{EVIL}.work_s"), Some(0), counter(seconds))];
        recorded.writer.by_rank(self::answer(seconds, by_rank), &ranks).unwrap();
    }
    recorded.writer.mark(START + 5.0, &Mark::Lost(EVIL.into())).unwrap();
    recorded
        .writer
        .session(START + 5.0, &Session { machine: EVIL.into(), recorder: EVIL.into(), ..session() })
        .unwrap();
    recorded.writer.answer(answer(6.0, module(EVIL, 6.0, 0.5))).unwrap();
    let page = recorded.page();
    assert!(page.contains("&lt;/script&gt;&lt;script&gt;alert"), "it is shown");
    assert!(!page.contains("<script>alert") && !page.contains("<img"));
    let scripts = elements(&page, "script");
    assert_eq!(scripts.len(), 3);
    let data: serde_json::Value = serde_json::from_str(scripts[0].1).unwrap();
    assert_eq!(data["charts"][0]["lines"][0]["label"], EVIL, "whole again as data");
    assert!(!scripts[0].1.contains(['<', '\u{2028}']));
}

#[test]
fn ten_minutes_of_600_series_are_a_page_of_less_than_half_a_megabyte() {
    for (size, steps, limit) in [(8, 300_u32, 500_000), (1024, 100, 500_000)] {
        let mut recorded = Recorded::new();
        for step in 0..=steps {
            let period = 600.0 / f64::from(steps);
            let seconds = f64::from(step) * period;
            let mut all: Vec<Series> = (0..20)
                .flat_map(|place| {
                    module(
                        &format!("module-{place}"),
                        seconds + f64::from(step * 7 % 3),
                        0.01 * f64::from(place),
                    )
                })
                .collect();
            all.extend(
                (0..500).map(|place| series(format!("app.some.number_{place}"), None, counter(seconds))),
            );
            let mut whole = answer(seconds, all);
            whole.instance = Whole { size, hostlist: Some(format!("node[0-{}]", size - 1)) };
            whole.period = period;
            whole.ranks.covered = format!("0-{}", size - 1);
            recorded.writer.answer(whole).unwrap();
            // 64 ranks at a time, as the recorder asks them.
            let first = step * 64 % size;
            let ranks = stats_core::IdSet::range(first, (first + 63).min(size - 1));
            let by_rank = ranks.iter().flat_map(|rank| {
                let share = f64::from(rank % 17) * 0.01;
                (0..20).map(move |place| {
                    let wave = f64::from((rank + step) % 13) * 1e-3;
                    series(
                        format!("modules.module-{place}.work_s"),
                        Some(rank),
                        counter(seconds * share + wave),
                    )
                })
            });
            recorded.writer.by_rank(answer(seconds, by_rank.collect()), &ranks).unwrap();
        }
        let page = recorded.page();
        let recording = std::fs::metadata(&recorded.path).unwrap().len();
        println!("{size} ranks: a recording of {recording} bytes, a page of {}", page.len());
        assert!(page.len() < limit, "{size} ranks: {} bytes", page.len());
        assert!(recorded.model(None).heat.pairs.len() == 20 * size as usize);
    }
}

#[test]
fn the_library_is_as_its_authors_published_it() {
    // dist/uPlot.iife.min.js and dist/uPlot.min.css of the npm package uplot 1.6.32.
    let digest =
        |text: &str| Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let library = include_str!("../../assets/uPlot.iife.min.js");
    assert!(library.starts_with("/*! https://github.com/leeoniya/uPlot (v1.6.32) */"));
    assert_eq!(digest(library), "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f");
    let style = include_str!("../../assets/uPlot.min.css");
    assert_eq!(digest(style), "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04");
}

#[test]
fn times_are_in_the_zone_of_the_reader() {
    let clock = Clock::utc();
    assert_eq!(clock.moment(START), "2023-11-14 22:13:20");
    assert_eq!(clock.span(START, START + 600.0), "2023-11-14 22:13:20 to 22:23:20 UTC, 10m00s");
    assert_eq!(clock.span(START, START + 7200.0), "2023-11-14 22:13:20 to 2023-11-15 00:13:20 UTC, 2h00m");
    assert_eq!(clock.moment(f64::NAN), "1970-01-01 00:00:00");
    assert_eq!(clock.moment(1e300), "-");
}

#[test]
fn a_file_without_answers_makes_no_page() {
    let recorded = Recorded::new();
    let error = from_file::model(&recorded.path, None, &Clock::utc()).err().unwrap().to_string();
    assert!(error.ends_with("some.rec has no answers"), "{error}");
    let mut recorded = eventful();
    drop(std::mem::replace(
        &mut recorded.writer,
        Writer::open(&recorded.path.with_extension("other")).unwrap().0,
    ));
    let mut bytes = std::fs::read(&recorded.path).unwrap();
    for (at, byte) in bytes.iter_mut().enumerate().skip(16) {
        if at % 40 == 0 {
            *byte ^= 0x55;
        }
    }
    std::fs::write(&recorded.path, bytes).unwrap();
    let error = from_file::model(&recorded.path, None, &Clock::utc()).err().unwrap().to_string();
    assert!(error.contains("has no answers"), "{error}");
}

#[test]
fn a_stall_is_told_with_its_rank_and_length_and_is_the_longest_turn_while_it_lasts() {
    let mut recorded = Recorded::new();
    for step in 0..=20 {
        let seconds = f64::from(step) * 2.0;
        let mut all = module("kvs", seconds, 0.25);
        all.extend(module("content", seconds, 0.25));
        // One that is over, and one that is not.
        if (10.0..=20.0).contains(&seconds) {
            all.push(series("modules.kvs.stalled", None, gauge(seconds - 4.0)));
        }
        if seconds >= 30.0 {
            all.push(series("modules.content.stalled", None, gauge(seconds - 24.0)));
        }
        recorded.writer.answer(answer(seconds, all)).unwrap();
    }
    let model = recorded.model(None);
    let stalls: Vec<_> = model.notes.iter().filter(|note| note.kind == NoteKind::Stall).collect();
    assert_eq!(
        stalls.iter().map(|note| (note.from - START, note.to - START)).collect::<Vec<_>>(),
        [(4.0, 20.0), (24.0, 40.0)]
    );
    assert_eq!(stalls[0].text, "kvs on rank 1 did not come back to its reactor for 16.0s at least");
    let most = &model.track("modules.content.longest_work_s").unwrap().most;
    assert_eq!((most[0], most[most.len() - 1]), (0.25, 16.0), "{most:?}");
    let page = recorded.page();
    assert!(page.contains("16.0s on 1"), "the turn that is under way");
    assert!(page.contains("250ms on 1"), "the longest that is over: what it was is in the next answers");
}

#[test]
fn one_answer_is_one_and_what_is_heard_all_the_time_is_all() {
    let mut recorded = Recorded::new();
    for step in 0..=7 {
        let seconds = f64::from(step) * 2.1;
        recorded.writer.answer(answer(seconds, module("kvs", seconds, 0.25))).unwrap();
    }
    let model = recorded.model(None);
    let summary = super::tables::summary(&model, &Clock::utc()).into_string();
    assert!(summary.contains("100.00%") && summary.contains("8 answers, every 2.00s"), "{summary}");
    let one = super::tables::summary(&Model { answers: 1, ..model }, &Clock::utc()).into_string();
    assert!(one.contains("1 answer, periods of 2.00s"), "{one}");
}

#[test]
fn what_an_instance_does_not_remember_is_not_said_not_to_have_happened() {
    let mut recorded = Recorded::new();
    recorded.writer.answer(answer(0.0, module("kvs", 1.0, 0.25))).unwrap();
    let events = |remembered| {
        let model = Model { notes: Vec::new(), remembered, ..recorded.model(None) };
        let of =
            [super::tables::events(&model, &Clock::utc()), super::tables::summary(&model, &Clock::utc())];
        of.map(|of| of.into_string()).concat()
    };
    assert!(events(false).contains("No gaps, no resets") && events(false).contains("Gaps, resets"));
    assert!(!events(true).contains("No gaps") && !events(true).contains("Gaps, resets"));
    assert!(events(true).contains("Of an instance it is not known which ranks were missing before"));
}

#[test]
fn room_on_disk_is_the_mean_of_the_ranks_that_have_the_folder() {
    let mut recorded = Recorded::new();
    for step in 0..=5 {
        // Of four ranks all have a rundir, and one is silent for a while; only rank 0 has a statedir.
        let room = [("rundir", if step == 3 { 3 } else { 4 }), ("statedir", 1)].map(|(name, count)| {
            let extreme = Extreme { value: 1e10, rank: 1, time: None };
            let free = Values::Gauge { count, sum: count as f64 * 1e10, min: extreme, max: extreme };
            series(format!("broker.{name}_free_bytes"), None, free)
        });
        recorded.writer.answer(answer(f64::from(step) * 2.0, room.into())).unwrap();
    }
    let model = recorded.model(None);
    for name in ["broker.rundir_free_bytes", "broker.statedir_free_bytes"] {
        let each = &model.track(name).unwrap().each;
        assert!(each.iter().all(|free| *free == 1e10), "{name}: {each:?}");
    }
}
