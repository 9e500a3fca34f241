//! The command `flux stats`, as a person or a program meets it.

use flux_testbed::{Backend, Instance, Options, Stage, Topology};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tests::{coverage, eventually, facts, number, query};

const LIMIT: Duration = Duration::from_secs(30);
const SIZE: u32 = 3;

facts! {
    a_query_is_a_table_with_the_ranks_it_covers,
    a_query_says_the_same_in_every_format,
    series_are_exported_once_in_the_formats_of_others,
    what_is_watched_is_shown_each_period,
    a_question_that_makes_no_sense_says_what_does,
    ranks_that_are_missing_are_said_and_make_the_status,
    the_module_is_loaded_and_removed_everywhere_with_a_word_for_each_rank,
}

/// How a command ended, and what it wrote.
struct Ended {
    status: Option<i32>,
    out: String,
    err: String,
}

fn ended(output: Output) -> Ended {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { status: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

fn stats(instance: &Instance, words: &[&str]) -> Ended {
    ended(instance.command(0, instance.program("flux-stats")).args(words).output().unwrap())
}

/// Three ranks with stats-agg and a loadgen that pushes, covered, and the series of loadgen there.
fn busy(backend: Backend) -> Instance {
    let instance = Instance::start(Options { size: SIZE, ..Options::new(backend) }).unwrap();
    instance.load(0..SIZE, "stats-agg", &["period=0.5s"]).unwrap();
    instance.load(0..SIZE, "loadgen", &["rate=50", "push=3"]).unwrap();
    let answer = || query(&instance, &["loadgen.pushed", "modules.loadgen.work_s"]);
    eventually("what loadgen pushes", LIMIT, answer, |answer| {
        let series = answer["series"].as_array().unwrap();
        let all = series.len() == 2 && series.iter().all(|series| number(&series["rate"]) > 0.0);
        all && coverage(answer).0 == "0-2"
    });
    instance
}

fn end(instance: Instance) {
    instance.remove(0..SIZE, "loadgen").unwrap();
    instance.remove(0..SIZE, "stats-agg").unwrap();
    instance.stop().unwrap();
}

/// Words that are numbers become `#`, hosts `(HOST)`, and columns are two spaces apart.
fn redacted(text: &str) -> String {
    let is_number =
        |word: &str| word.trim_start_matches(['-', '~']).starts_with(|c: char| c.is_ascii_digit());
    let word = |word: &str| match word {
        _ if word.starts_with('(') => "(HOST)".to_owned(),
        // Of the line that says what is covered, the ranks are facts.
        _ if is_number(word) && !word.contains(['-', ';']) => "#".to_owned(),
        _ => word.to_owned(),
    };
    let line = |line: &str| line.split_whitespace().map(word).collect::<Vec<_>>().join("  ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn a_query_is_a_table_with_the_ranks_it_covers(backend: Backend) {
    let instance = busy(backend);
    instance.run_own(0, "flux-stats", &["send", "app.users", "jane", "-t", "s"]).unwrap();
    eventually(
        "the set",
        LIMIT,
        || query(&instance, &["app.users"])["series"].clone(),
        |series| series.as_array().is_some_and(|series| !series.is_empty()),
    );
    let patterns = ["modules.loadgen.{wakeups,work_s,work_per_wakeup_s}", "loadgen.pushed", "app.*"];
    let said = stats(&instance, &[&["query"][..], &patterns, &["--since", "10m"]].concat());
    assert_eq!(said.status, Some(0), "{}", said.err);
    insta::allow_duplicates! {
        insta::assert_snapshot!(redacted(&said.out), @r"
        NAME  TYPE  TOTAL  RATE  LAST  #  AVERAGE  P50  P99  MAX  ON  RANK
        app.users  set  #  -  -  -  -  -  -  -
        loadgen.pushed  counter  #  #  #  #  -  -  #  #  (HOST)
        modules.loadgen.wakeups  counter  #  #  #  #  -  -  #  #  (HOST)
        modules.loadgen.work_per_wakeup_s  timer  #  #  #  #  #  #  #  -
        modules.loadgen.work_s  counter  #  #  #  #  -  -  #  #  (HOST)
        ");
        insta::assert_snapshot!(redacted(&said.err), @"ranks  0-2  of  3;  oldest  #  ago,  period  #");
    }

    let said = stats(&instance, &["query", "modules.loadgen.loaded"]);
    insta::allow_duplicates! {
        insta::assert_snapshot!(redacted(&said.out), @r"
        NAME  TYPE  TOTAL  MAX  ON  RANK
        modules.loadgen.loaded  gauge  #  #  #  (HOST)
        ");
    }

    let host = stats(&instance, &["query", "modules.loadgen.wakeups", "--rank", "1", "-nqo", "{host}"]).out;
    let named = |text: &str| redacted(&text.replace(&format!(" {} ", host.trim()), " HOST "));
    let said = stats(&instance, &["query", "modules.loadgen.wakeups", "--rank", "1-2", "-q"]);
    assert_eq!((said.status, said.err.as_str()), (Some(0), ""));
    insta::allow_duplicates! {
        insta::assert_snapshot!(named(&said.out), @r"
        NAME  RANK  HOST  TYPE  TOTAL  RATE
        modules.loadgen.wakeups  #  HOST  counter  #  #
        modules.loadgen.wakeups  #  HOST  counter  #  #
        ");
    }
    let said = stats(&instance, &["query", "modules.loadgen.wakeups", "--by", "subtree"]);
    insta::allow_duplicates! {
        insta::assert_snapshot!(named(&said.out), @r"
        NAME  RANK  HOST  RANKS  TYPE  TOTAL  RATE  MAX  ON  RANK
        modules.loadgen.wakeups  #  HOST  -  counter  #  #  #  #  (HOST)
        modules.loadgen.wakeups  #  HOST  #  counter  #  #  #  #  (HOST)
        modules.loadgen.wakeups  #  HOST  #  counter  #  #  #  #  (HOST)
        ");
    }

    // The busiest first, and no more than asked for; without headings.
    let said = stats(&instance, &["query", "modules.*.wakeups", "--top", "2", "--no-header"]);
    let names: Vec<&str> = said.out.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert!(names.len() == 2 && names.iter().all(|name| name.ends_with(".wakeups")), "{}", said.out);
    let said = stats(&instance, &["query", "modules.*.wakeups", "--sort", "-name", "-o", "{name}", "-n"]);
    let names: Vec<&str> = said.out.lines().collect();
    assert!(names.len() > 2 && names.is_sorted_by(|a, b| a >= b), "{names:?}");
    end(instance);
}

fn a_query_says_the_same_in_every_format(backend: Backend) {
    let instance = busy(backend);
    // What nothing is added to any more.
    instance.run_own(0, "flux-stats", &["send", "app.runs", "17", "--tag", "queue=batch,x"]).unwrap();
    instance.run_own(1, "flux-stats", &["send", "app.runs", "25", "--tag", "queue=batch,x"]).unwrap();
    let total = || number(&query(&instance, &["app.runs"])["series"][0]["total"]);
    eventually(
        "both",
        LIMIT,
        || query(&instance, &["app.runs"]),
        |answer| answer["series"][0]["total"].as_f64() == Some(42.0),
    );
    assert_eq!(total(), 42.0);

    let said = stats(&instance, &["query", "app.runs", "--json"]);
    let json: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((number(&json["series"][0]["total"]), coverage(&json).0.as_str()), (42.0, "0-2"));
    let said = stats(&instance, &["query", "app.runs", "loadgen.pushed", "--ndjson"]);
    let lines: Vec<Value> = said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0]["total"] == 42 && lines[0]["tags"]["queue"] == "batch,x" && lines[0]["time"].is_f64());
    let said = stats(&instance, &["query", "app.runs", "--csv"]);
    let rows: Vec<&str> = said.out.lines().collect();
    assert!(rows.len() == 2 && rows[0].starts_with("time,name,tags,type,rank,host,ranks,total,rate,"));
    assert!(rows[1].contains(",app.runs,\"queue=batch,x\",counter,,,,42,"), "{}", rows[1]);
    let said = stats(&instance, &["query", "app.runs", "-o", "{name:<10}|{tags:>15}|{total:08.2f}|{p99:h}"]);
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(lines, ["NAME      |           TAGS|   TOTAL|P99", "app.runs  |  queue=batch,x|00042.00|-"]);
    end(instance);
}

fn series_are_exported_once_in_the_formats_of_others(backend: Backend) {
    let instance = busy(backend);
    for (format, expected) in [
        ("prometheus", "# TYPE flux_loadgen_pushed_total counter\n"),
        ("openmetrics", "# TYPE flux_loadgen_pushed counter\n"),
        ("graphite", "flux.loadgen.pushed "),
        ("influx", "flux.loadgen.pushed"),
        ("otlp-json", "\"flux.loadgen.pushed\""),
        ("jsonl", "\"loadgen.pushed\""),
    ] {
        let said = stats(&instance, &["export", "--format", format, "loadgen.pushed"]);
        assert_eq!((said.status, said.err.as_str()), (Some(0), ""), "{format}");
        assert!(said.out.contains(expected), "{format}: {}", said.out);
    }
    let said =
        stats(&instance, &["export", "-f", "graphite", "--by", "rank", "--prefix", "hpc", "loadgen.pushed"]);
    let ranks: Vec<&str> = said.out.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(
        ranks,
        ["hpc.loadgen.pushed;rank=0", "hpc.loadgen.pushed;rank=1", "hpc.loadgen.pushed;rank=2"]
    );
    for (words, status, why) in [
        (&["export"][..], 2, "the following required arguments were not provided:\n  --format <FORMAT>"),
        (&["export", "-f", "xml"], 2, "invalid value 'xml' for '--format <FORMAT>'"),
        (&["export", "-f", "influx", "["], 2, "PATTERN \"[\": [ without ]"),
        (&["export", "-f", "influx", "no.such"], 1, "no series fits no.such: "),
    ] {
        let said = stats(&instance, words);
        assert_eq!((said.status, said.out.as_str()), (Some(status), ""), "{words:?}");
        assert!(said.err.starts_with(&format!("flux-stats: {why}")), "{}", said.err);
    }
    end(instance);
}

fn what_is_watched_is_shown_each_period(backend: Backend) {
    let instance = busy(backend);
    // Whoever reads has seen enough after six lines, which is two answers.
    let script = "\"$0\" query loadgen.pushed --watch | head -n 7; echo \"${PIPESTATUS[0]}\"";
    let program = instance.program("flux-stats");
    let said = ended(instance.command(0, "bash").args(["-c", script]).arg(&program).output().unwrap());
    insta::allow_duplicates! {
        insta::assert_snapshot!(redacted(&said.out), @r"
        NAME  TYPE  TOTAL  RATE  MAX  ON  RANK
        loadgen.pushed  counter  #  #  #  #  (HOST)
        ranks  0-2  of  3;  oldest  #  ago,  period  #

        NAME  TYPE  TOTAL  RATE  MAX  ON  RANK
        loadgen.pushed  counter  #  #  #  #  (HOST)
        ranks  0-2  of  3;  oldest  #  ago,  period  #
        #
        ");
    }
    assert_eq!(said.err, "");
    // Killed, it leaves nothing behind, neither here nor there.
    let mut watching = instance
        .command(0, &program)
        .args(["query", "loadgen.pushed", "--watch", "--csv"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let streams = || query(&instance, &["stats-agg.streams"])["series"][0]["sum"].clone();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("time,name,"));
    for _ in 0..2 {
        assert!(lines.next().unwrap().unwrap().contains(",loadgen.pushed,,counter,"));
    }
    eventually("a stream", LIMIT, streams, |open| *open == 1);
    watching.kill().unwrap();
    let said = ended(watching.wait_with_output().unwrap());
    assert_eq!((said.status, said.err.as_str()), (None, ""));
    eventually("no stream", LIMIT, streams, |open| *open == 0);
    // The module goes: the end is an error, and says why.
    let watching = instance
        .command(0, &program)
        .args(["query", "loadgen.pushed", "--watch"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("a stream", LIMIT, streams, |open| *open == 1);
    instance.remove(0..SIZE, "loadgen").unwrap();
    instance.remove(0..SIZE, "stats-agg").unwrap();
    let said = ended(watching.wait_with_output().unwrap());
    assert_eq!((said.status, said.err.lines().count()), (Some(1), 1), "{}", said.err);
    assert!(said.err.starts_with("flux-stats: "), "{}", said.err);
    instance.stop().unwrap();
}

fn a_question_that_makes_no_sense_says_what_does(backend: Backend) {
    let instance = busy(backend);
    for (words, status, said) in [
        (&["loadgen.pushd"][..], 1, "no series fits loadgen.pushd; did you mean loadgen.pushed?"),
        (&["loadgen.pushed", "xyz"], 1, "no series fits xyz; names begin with "),
        (
            &["loadgen.pushed", "--rank", "7"],
            2,
            "--rank: there is no rank 7: this instance has the ranks 0-2",
        ),
        (&["--rank", "x"], 2, "--rank: \"x\" is no idset: expected ranks and ranges of them"),
        (&["--rank", "1", "--by", "subtree"], 2, "--rank: ranks are asked with --by rank alone"),
        (&["--since", "5x"], 2, "--since=5x: expected a duration: "),
        (&["--since", "0"], 2, "--since: expected more than no time"),
        (&["["], 2, "PATTERN \"[\": [ without ]"),
        (&["-o", "{nam}"], 2, "-o: no field \"nam\"; there are name, tags, "),
        (&["--sort", "nam"], 2, "--sort: no field \"nam\" to sort by; there are name, "),
        (&["--by", "host"], 2, "invalid value 'host' for '--by <WHAT>'"),
        (&["--json", "--csv"], 2, "the argument '--json' cannot be used with '--csv'"),
    ] {
        let ended = stats(&instance, &[&["query", "-q"], words].concat());
        assert_eq!(ended.status, Some(status), "{words:?}: {}", ended.err);
        assert!(ended.err.starts_with(&format!("flux-stats: {said}")), "{words:?}: {}", ended.err);
    }
    // A full disk is an error; nobody to read is none.
    let program = instance.program("flux-stats");
    let script = "\"$0\" query >/dev/full; echo $?; \"$0\" query | true; echo \"${PIPESTATUS[0]}\"; \
                  \"$0\" query nothing >/dev/null 2>/dev/full; echo $?";
    let said = ended(instance.command(0, "bash").args(["-c", script]).arg(&program).output().unwrap());
    assert_eq!(said.out, "1\n0\n1\n", "{}", said.err);
    assert!(
        said.err.contains("flux-stats: writing to standard output: No space left on device"),
        "{}",
        said.err
    );
    assert!(!said.err.contains("panicked"), "{}", said.err);
    // A job that is no instance; an instance that ssh does not lead to.
    let uri = |uri: &str| {
        let mut query = instance.command(0, &program);
        ended(query.args(["query", "--uri", uri]).env("FLUX_SSH", "/bin/false").output().unwrap())
    };
    if instance.backend().is_real() {
        let said = uri("ssh://n1/nonexistent/local-0");
        assert!(
            said.status == Some(1) && said.err.contains("it is reached by ssh; where that is not"),
            "{}",
            said.err
        );
        let said = uri("nonsense");
        assert!(said.err.contains("or what `flux uri` resolves, such as the id of a"), "{}", said.err);
    }
    // What is refused is named once.
    let said = stats(&instance, &["send", "modules.x", "1"]);
    let why = "flux-stats: \"modules.x\": names that begin with modules. are the service's own\n";
    assert_eq!((said.status, said.err.as_str()), (Some(1), why));
    // Not this instance, and none at all.
    let said = ended(
        Command::new(&program)
            .args(["query", "--uri", "local:///nonexistent/local-0"])
            .env("FLUX_STATS_LIBFLUX", instance.libflux())
            .output()
            .unwrap(),
    );
    assert_eq!(said.status, Some(1));
    assert!(
        said.err.contains("is this a node of a running instance? Else name one with --uri"),
        "{}",
        said.err
    );
    end(instance);
}

fn ranks_that_are_missing_are_said_and_make_the_status(backend: Backend) {
    let instance = busy(backend);
    instance.remove([2], "stats-agg").unwrap();
    let answer = || query(&instance, &["loadgen.pushed"]);
    eventually("rank 2 is missed", LIMIT, answer, |answer| coverage(answer).1 == "2");
    let said = stats(&instance, &["query", "loadgen.pushed"]);
    assert_eq!(said.status, Some(3), "{}", said.err);
    assert!(said.err.starts_with("PARTIAL: ranks 0-1 of 3; 2 without stats-agg; oldest "), "{}", said.err);
    assert!(said.out.contains("loadgen.pushed"));
    // Nothing of the rank that was asked about: it is that which is missing, and not the series.
    let said = stats(&instance, &["query", "-q", "loadgen.pushed", "--rank", "2"]);
    let why = "flux-stats: rank 2: stats-agg is not loaded there: run `flux stats load`\n";
    assert_eq!((said.status, said.err.as_str()), (Some(3), why));
    let said = stats(&instance, &["query", "-q", "loadgen.push", "--rank", "2"]);
    assert_eq!(said.status, Some(1));
    assert!(said.err.contains("no series fits loadgen.push; did you mean loadgen.pushed?"), "{}", said.err);
    // On rank 0 it answers nobody.
    instance.remove([0, 1], "stats-agg").unwrap();
    let said = stats(&instance, &["query"]);
    assert_eq!(said.status, Some(1));
    let absent =
        "flux-stats: stats-agg is not loaded on rank 0, which answers for all ranks: run `flux stats load`\n";
    assert_eq!(said.err, absent);
    // Though the rank that is asked about has it.
    instance.load([1], "stats-agg", &[]).unwrap();
    let said = stats(&instance, &["query", "--rank", "1"]);
    assert_eq!((said.status, said.err.as_str()), (Some(1), absent));
    instance.remove([1], "stats-agg").unwrap();
    let said = stats(&instance, &["send", "app.runs", "1"]);
    assert_eq!((said.status, said.err.as_str()), (Some(1), absent));
    instance.remove(0..SIZE, "loadgen").unwrap();
    instance.stop().unwrap();
}

fn the_module_is_loaded_and_removed_everywhere_with_a_word_for_each_rank(backend: Backend) {
    let instance = Instance::start(Options { size: 4, ..Options::new(backend) }).unwrap();
    let said = |words: &[&str]| {
        let Ended { status, out, err } = stats(&instance, words);
        // How long it took is another every time.
        let out = out.lines().map(|line| line.split(" in ").next().unwrap());
        (status.unwrap(), out.collect::<Vec<_>>().join("\n") + &err)
    };
    let loaded = || -> Vec<u32> {
        (0..4).filter(|&rank| instance.modules(rank).unwrap().contains(&"stats-agg".to_owned())).collect()
    };
    let none = (1, "flux-stats: stats-agg is not loaded on ranks 0-3\n".to_owned());
    assert_eq!(said(&["unload"]), none);

    // What the module refuses is told in its own words, which the broker keeps in its log.
    let (status, why) = said(&["load", "period=x"]);
    assert_eq!(status, 1);
    assert!(
        why.starts_with("flux-stats: ranks 0-3: cannot load it: period=x: expected a duration: "),
        "{why}"
    );
    let (status, why) = said(&["load", "-r", "2", "bogus=1"]);
    assert_eq!(status, 1);
    assert!(why.starts_with("flux-stats: rank 2: cannot load it: bogus=1: unknown key; allowed: "), "{why}");
    let (status, why) = said(&["load", "--module", "/nonexistent/stats-agg.so"]);
    assert_eq!(status, 1);
    assert!(
        why.contains("ranks 0-3: cannot load it: /nonexistent/stats-agg.so: cannot open shared"),
        "{why}"
    );
    // And what the part of it that loads the rest is missing.
    let folder = tempfile::tempdir().unwrap();
    Stage::of_this_build().unwrap().install_stats_agg(folder.path()).unwrap();
    let rest = folder.path().join("stats-agg-impl.so");
    std::fs::remove_file(&rest).unwrap();
    let (status, why) = said(&["load", "--module", folder.path().join("stats-agg.so").to_str().unwrap()]);
    assert_eq!(status, 1);
    let wanted = format!("ranks 0-3: cannot load it: {}: No such file or directory", rest.display());
    assert!(why.contains(&wanted), "{why}");
    assert_eq!(loaded(), [0; 0]);

    assert_eq!(said(&["load", "-r", "1-2", "period=0.5s"]), (0, "loaded on ranks 1-2".into()));
    assert_eq!(loaded(), [1, 2]);
    let kept = "loaded on ranks 0,3\nalready loaded on ranks 1-2, with the settings of that load: the defaults and the \
                table [stats-agg] hold for ranks 0,3 alone";
    let differ = "flux-stats: settings differ: ranks 1-2 have period=500ms, and ranks 0,3 have period=2s: for the same \
                  everywhere, `flux stats unload`, then load all ranks at once\n";
    assert_eq!(said(&["load"]), (0, format!("{kept}{differ}")));
    assert_eq!(said(&["load"]), (0, "already loaded on ranks 0-3".into()));
    let (status, why) = said(&["load", "period=1s"]);
    assert_eq!(status, 1);
    assert!(why.contains("ranks 0-3: stats-agg is loaded already and keeps its settings: "), "{why}");
    // A rank that comes back with what the others have is no reason to warn, nor to speak of settings where none is given.
    assert_eq!(said(&["unload", "-r", "0"]).0, 0);
    assert_eq!(said(&["load", "-r", "0,3"]), (0, "loaded on rank 0\nalready loaded on rank 3".into()));
    assert_eq!(said(&["unload", "-r", "1"]).0, 0);
    let (status, why) = said(&["load", "-r", "1-2", "period=0.5s"]);
    assert_eq!(status, 1);
    assert!(
        why.starts_with(
            "loaded on rank 1\nalready loaded on rank 2, with the settings of that load: period=0.5s \
                             holds for rank 1 alone"
        ),
        "{why}"
    );
    assert!(!why.contains("differ"), "{why}");
    let ranks = || coverage(&query(&instance, &["none"])).0;
    eventually("all ranks", LIMIT, ranks, |covered| covered == "0-3");

    assert_eq!(said(&["unload", "-r", "3"]), (0, "removed from rank 3".into()));
    assert_eq!(said(&["unload"]), (0, "removed from ranks 0-2\nwas not loaded on rank 3".into()));
    assert_eq!((loaded(), said(&["unload"])), (vec![], none));

    for (words, why) in [
        (["load", "-r", "7"], "--rank: there is no rank 7: this instance has the ranks 0-3"),
        (["unload", "-r", "1-9"], "--rank: there is no rank 4-9: this instance has the ranks 0-3"),
        (
            ["unload", "-r", "x"],
            "--rank: \"x\" is no idset: expected ranks and ranges of them, ascending or not, as in 0-3,7",
        ),
    ] {
        assert_eq!(said(&words), (2, format!("flux-stats: {why}\n")));
    }
    // Where a broker is dead the others have what they should.
    instance.kill(3).unwrap();
    let group = json!({ "name": "broker.online" });
    let online = || instance.rpc(0, "groups.get", group.clone()).unwrap()["members"].clone();
    eventually("rank 3 is known to be dead", LIMIT, online, |online| {
        // The double writes no ranges.
        *online == "0-2" || *online == "0,1,2"
    });
    let down = "flux-stats: rank 3: cannot load it: its broker is down, or its link to this one\n";
    assert_eq!(said(&["load", "-r", "2-3"]), (1, format!("loaded on rank 2{down}")));
    assert_eq!(loaded_but(&instance, 3), [2]);
    let said = said(&["unload"]);
    let told = "left out, for they are offline: rank 3\nremoved from rank 2\nwas not loaded on ranks 0-1";
    assert_eq!(said, (0, told.into()));
}

/// The brokers of real Flux are processes, which can be stopped.
#[test]
fn a_broker_that_is_stopped_is_waited_for_aloud_and_does_what_it_was_asked_when_it_goes_on() {
    let Some(backend) = tests::real() else { return };
    let options = Options { size: 4, topology: Topology::Kary(0), ..Options::new(backend) };
    let instance = Instance::start(options).unwrap();
    let start = |words: &[&str]| {
        let mut command = instance.command(0, instance.program("flux-stats"));
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    // Asked for now: a stopped one does not say. It is not the last one, and others answer after it.
    let pid = instance.broker_pid(1).unwrap().to_string();
    let signal =
        |signal: &str| instance.run(0, "sh", &["-c", "kill -s \"$0\" \"$1\"", signal, &pid]).unwrap();
    let loaded = || loaded_but(&instance, u32::MAX);
    let waiting = "waiting for rank 1, whose broker has not answered for 2 s\n";
    signal("STOP");
    let mut load = start(&["load"]);
    let mut line = String::new();
    BufReader::new(load.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, waiting);
    signal("CONT");
    let said = ended(load.wait_with_output().unwrap());
    assert!(said.status == Some(0) && said.out.starts_with("loaded on ranks 0-3 in "), "{}", said.out);

    // Rank 0 would lose what a leaf sends when it goes on.
    signal("STOP");
    let said = ended(start(&["unload"]).wait_with_output().unwrap());
    assert_eq!(loaded_but(&instance, 1), [0]);
    signal("CONT");
    assert_eq!(said.status, Some(1), "{}", said.err);
    assert!(said.out.starts_with("removed from ranks 2-3 in "), "{}", said.out);
    let why = "flux-stats: rank 1: cannot remove it: no answer within 30 s: the request waits there, and is carried out \
               when the broker goes on; ";
    assert!(said.err.starts_with(&format!("{waiting}{why}")), "{}", said.err);
    assert!(said.err.contains("\nflux-stats: rank 0: not removed, for what the ranks below"), "{}", said.err);
    eventually("it is carried out", LIMIT, loaded, |loaded| *loaded == [0]);
    let said = stats(&instance, &["unload"]);
    assert!(said.out.starts_with("removed from rank 0 in "), "{}{}", said.out, said.err);
    instance.stop().unwrap();
}

#[test]
fn a_command_whose_own_broker_is_stopped_says_so_and_does_not_hang() {
    let Some(backend) = tests::real() else { return };
    let instance = Instance::start(Options { size: 1, ..Options::new(backend) }).unwrap();
    let pid = instance.broker_pid(0).unwrap().to_string();
    let signal = |signal: &str| {
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    };
    let commands = [&["query"][..], &["send", "app.runs", "1"], &["doctor"], &["top", "--once"], &["load"]];
    signal("STOP");
    let all = commands.map(|words| {
        let mut command = instance.command(0, instance.program("flux-stats"));
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    let all = all.map(|command| ended(command.wait_with_output().unwrap()));
    signal("CONT");
    for (words, said) in commands.iter().zip(all) {
        assert_eq!(said.status, Some(1), "{words:?}: {}", said.err);
        let why = "has not answered within 10 s: try again, or `flux stats peek` on its node\n";
        assert!(said.err.starts_with("flux-stats: the broker at local://"), "{words:?}: {}", said.err);
        assert!(said.err.ends_with(why), "{words:?}: {}", said.err);
    }
    instance.stop().unwrap();
}

/// The ranks that have the module, but for a dead one.
fn loaded_but(instance: &Instance, dead: u32) -> Vec<u32> {
    let ranks = (0..instance.size()).filter(|&rank| rank != dead);
    ranks.filter(|&rank| instance.modules(rank).unwrap().contains(&"stats-agg".to_owned())).collect()
}

#[test]
fn flux_help_knows_the_command_and_its_pages() {
    let Some(Backend::Real(flux)) = tests::real() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (share, help) = (folder.path().join("share"), folder.path().join("help.d"));
    let files = Stage::of_this_build().unwrap().install_pages(&share, &help).unwrap();
    for file in [
        "man/man1/flux-stats-query.1",
        "man/man5/flux-stats-agg.5",
        "man/man3/flux_metric_set.3",
        "bash-completion/completions/flux-stats",
    ] {
        assert!(files.contains(&share.join(file)), "{files:?}");
    }
    let pattern = help.join("*.json");
    let listed =
        ended(Command::new(&flux).arg("help").env("FLUX_CMDHELP_PATTERN", pattern).output().unwrap());
    let listed = listed.out + &listed.err;
    assert!(listed.contains("\n   stats              statistics of a Flux instance\n"), "{listed}");
    // `flux help stats` is `man flux-stats`, where Flux has been built with its manual.
    let man =
        Command::new("man").args(["-P", "cat", "-M"]).arg(share.join("man")).arg("flux-stats-query").output();
    let Ok(page) = man else { return tests::say("skipped: the pages, there is no man here") };
    let page = ended(page);
    let words = page.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("NAME flux-stats-query - Show series"), "{}{}", page.out, page.err);
}

#[test]
fn without_any_flux_there_is_help_and_an_error_that_says_what_was_looked_for() {
    let program = Stage::of_this_build().unwrap().command();
    let alone = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words).env_clear().env("PATH", "").env("FLUX_STATS_LIBFLUX", "/nonexistent/libflux.so");
        ended(command.output().unwrap())
    };
    for words in [
        &["--help"][..],
        &["query", "--help"],
        &["--version"],
        &["help", "load"],
        &["query", "-o", "help"],
        &["demo"],
    ] {
        let said = alone(words);
        assert_eq!((said.status, said.err.as_str()), (Some(0), ""), "{words:?}");
        assert!(!said.out.is_empty());
    }
    for words in [&["query"][..], &["load"], &["unload"], &["send", "a", "1"]] {
        let said = alone(words);
        assert_eq!(said.status, Some(1), "{words:?}");
        assert!(
            said.err.starts_with("flux-stats: libflux not found: looked in the running process, then for "),
            "{}",
            said.err
        );
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    }
    for (words, why) in
        [(&["quer"][..], "unrecognized subcommand 'quer'"), (&[], "Statistics of a Flux instance")]
    {
        let said = alone(words);
        assert_eq!(said.status, Some(2), "{words:?}");
        assert!(said.err.starts_with(&format!("flux-stats: {why}")), "{}", said.err);
    }
}

#[test]
fn a_demo_shows_real_brokers_where_there_is_a_flux_and_says_what_it_plays_where_there_is_none() {
    let program = Stage::of_this_build().unwrap().command();
    let alone = ended(Command::new(&program).arg("demo").env("PATH", "").output().unwrap());
    assert!(alone.out.starts_with("SIMULATED: "), "{}", alone.out);
    let without = ended(Command::new(&program).args(["demo", "--flux"]).env("PATH", "").output().unwrap());
    assert_eq!(without.status, Some(1));
    assert!(without.err.starts_with("flux-stats: running `flux start`: No such file"), "{}", without.err);

    let Some(Backend::Real(flux)) = tests::real() else { return };
    // One instance at a time on this machine, whose libflux is this Flux's.
    let instance = Instance::start(Options { size: 1, ..Options::new(Backend::Real(flux.clone())) }).unwrap();
    let path = format!("{}:{}", flux.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut demo = instance.command(0, &program);
    let said = ended(demo.args(["demo", "--flux=2"]).env("PATH", path).output().unwrap());
    assert_eq!(said.status, Some(0), "{}", said.err);
    assert!(
        said.out.contains("loaded on ranks 0-1 in ") && said.out.contains("# real brokers"),
        "{}",
        said.out
    );
    assert!(
        said.out.contains("removed from ranks 0-1 in ") && !said.out.contains("SIMULATED"),
        "{}",
        said.out
    );
    instance.stop().unwrap();
}
