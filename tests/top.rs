//! `flux stats top` on whole instances: one picture as text, and a full screen in a terminal (tmux, where there is one).

use flux_testbed::{Backend, Instance, Options};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Once;
use std::time::Duration;
use tests::{eventually, facts, say};

/// Far beyond what is awaited: a test fails by what it sees, not by how long it took.
const LIMIT: Duration = Duration::from_secs(30);
const RANKS: u32 = 4;

facts! {
    one_picture_is_plain_text_and_its_status_says_whether_ranks_are_missing,
    a_module_that_stalls_is_marked_with_its_rank,
    without_a_terminal_there_is_one_line_that_says_what_to_do,
    keys_do_what_they_say,
    the_terminal_is_left_as_it_was_whatever_ends_or_stops_it,
    a_picture_fits_every_size_and_has_colours_only_where_they_are_wanted,
    an_instance_that_is_lost_is_said_to_be_and_found_again,
}

/// The module on all ranks, and one that is always the busiest.
fn instance(backend: Backend) -> Instance {
    let instance = Instance::start(Options { size: RANKS, ..Options::new(backend) }).unwrap();
    instance.load(0..RANKS, "stats-agg", &["period=500ms", "stall=1s"]).unwrap();
    instance.load([2], "loadgen", &["rate=20", "busy=20ms"]).unwrap();
    instance
}

/// In order, as Flux wants it of modules.
fn end(instance: Instance) {
    for rank in 0..RANKS {
        let ours = |name: &String| ["stats-agg", "loadgen", "stuck"].contains(&name.as_str());
        for module in instance.modules(rank).unwrap().into_iter().filter(ours) {
            instance.remove([rank], &module).unwrap();
        }
    }
    instance.stop().unwrap();
}

/// Standard output, standard error and status of `flux stats top`, with this in its environment.
fn top(instance: &Instance, environment: &[&str], arguments: &[&str]) -> (String, String, String) {
    let program = instance.program("flux-stats");
    let script =
        "errors=$(mktemp); \"$@\" 2>\"$errors\"; echo \"status $?\"; cat \"$errors\"; rm \"$errors\"";
    let program = program.to_string_lossy();
    let mut words = vec!["-c", script, "sh", "env"];
    words.extend(environment);
    words.extend([&program, "top"]);
    words.extend(arguments);
    let said = instance.run(0, "sh", &words).unwrap();
    let (out, rest) = said.rsplit_once("status ").unwrap();
    let (status, errors) = rest.split_once('\n').unwrap();
    (out.to_owned(), errors.to_owned(), status.to_owned())
}

fn one_picture_is_plain_text_and_its_status_says_whether_ranks_are_missing(backend: Backend) {
    let instance = instance(backend);
    let seen = |(out, _, status): &(String, String, String)| {
        // Wherever else work is, here is most.
        let first = out.lines().skip_while(|line| !line.starts_with(" MODULE")).nth(1);
        status == "0"
            && out.contains(" 4 of 4 covered ")
            && first.is_some_and(|line| line.starts_with(" loadgen "))
    };
    let ask = || top(&instance, &["COLUMNS=80", "LC_ALL=C"], &["--once"]);
    let (out, errors, _) = eventually("all ranks are there, the busiest module first", LIMIT, ask, seen);
    assert_eq!(errors, "");
    assert!(out.is_ascii() && !out.contains('\x1b'), "{out:?}");
    assert!(out.lines().all(|line| line.len() <= 80), "{out}");
    assert!(out.starts_with("flux stats top  4 ranks "), "{out}");
    let line = out.lines().find(|line| line.starts_with(" loadgen ")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    let (work, most): (f64, f64) = (words[2].parse().unwrap(), words[3].parse().unwrap());
    // By the clocks of two ranks, of which one may have been late.
    assert!(work > 5.0 && most > 15.0 && words[4] == "2", "{line}");

    let (wide, ..) =
        top(&instance, &["COLUMNS=200", "LC_ALL=C.UTF-8"], &["--once", "--sort", "name", "--filter", "LOAD"]);
    assert!(wide.contains(" RECVQ LAST 5 MIN\n loadgen ") && !wide.contains("\n broker "), "{wide}");
    let (_, errors, status) = top(&instance, &[], &["--once", "--sort", "beauty"]);
    assert!(status == "2" && errors.contains("beauty") && errors.contains("longest"), "{errors}");
    let (_, errors, status) = top(&instance, &[], &["--interval", "1ms"]);
    assert!(status == "2" && errors.contains("--interval") && errors.contains("0.1s or more"), "{errors}");

    instance.remove([3], "stats-agg").unwrap();
    let partial = |(out, _, status): &(String, String, String)| status == "3" && out.contains("  absent 3");
    eventually("a rank is missing", LIMIT, || top(&instance, &[], &["--once"]), partial);
    instance.remove(0..3, "stats-agg").unwrap();
    let (out, errors, status) = top(&instance, &[], &["--once"]);
    assert_eq!((out.as_str(), status.as_str()), ("", "1"));
    assert!(errors.contains("stats-agg is not loaded on rank 0, which answers for all ranks: run `flux stats load`"), "{errors}");
    end(instance);
}

fn a_module_that_stalls_is_marked_with_its_rank(backend: Backend) {
    let instance = instance(backend);
    instance.load_as([1], "loadgen", "stuck", &["rate=10", "spin=8s"]).unwrap();
    let stalled = |(out, ..): &(String, String, String)| {
        out.contains("\n!stuck ") && out.contains("\nSTALLED  stuck on rank 1")
    };
    eventually("it stalls", LIMIT, || top(&instance, &[], &["--once"]), stalled);
    let ended = |(out, ..): &(String, String, String)| out.contains("\n stuck ") && !out.contains("STALLED");
    eventually("it does no more", LIMIT, || top(&instance, &[], &["--once"]), ended);
    end(instance);
}

fn without_a_terminal_there_is_one_line_that_says_what_to_do(backend: Backend) {
    let instance = instance(backend);
    let (out, errors, status) = top(&instance, &["TERM=xterm"], &[]);
    let said = "flux-stats: standard output is no terminal: `flux stats top --once` prints one picture\n";
    assert_eq!((out.as_str(), errors.as_str(), status.as_str()), ("", said, "1"));
    let Some(terminal) = Terminal::start(&instance, (80, 24), &[]) else { return };
    terminal.line("TERM=dumb \"$TOP\" top");
    terminal
        .eventually("it is refused", |screen| screen.contains("TERM=dumb: this terminal has no full screen"));
    terminal.line("FLUX_URI=local:///nowhere \"$TOP\" top; echo status $?");
    let screen = terminal.eventually("it ends", |screen| screen.contains("status 1"));
    assert!(screen.contains("Else name one with --uri") || screen.contains("--uri"), "{screen}");
    assert_eq!(terminal.state("#{alternate_on}"), "0");
    end(instance);
}

/// A shell in a terminal of tmux, in which `$TOP` is the command.
struct Terminal {
    folder: tempfile::TempDir,
}

impl Terminal {
    /// `None`, and one line says so: there is no tmux.
    fn start(instance: &Instance, (width, height): (u16, u16), environment: &[&str]) -> Option<Self> {
        static SAID: Once = Once::new();
        if Command::new("tmux").arg("-V").output().is_err() {
            SAID.call_once(|| say("skipped: top in a terminal, for there is no tmux here"));
            return None;
        }
        let terminal = Terminal { folder: tempfile::tempdir().unwrap() };
        let (program, socket) = (instance.program("flux-stats"), terminal.socket());
        let program = format!("TOP={}", program.display());
        let (width, height, socket) = (width.to_string(), height.to_string(), socket.to_string_lossy());
        let mut words = vec!["LC_ALL=C.UTF-8", &program];
        words.extend(environment);
        words.extend(["tmux", "-u", "-S", &socket, "-f", "/dev/null", "new-session", "-d"]);
        words.extend(["-x", &width, "-y", &height, "sh"]);
        instance.run(0, "env", &words).unwrap();
        terminal.eventually("the shell is there", |screen| !screen.trim().is_empty());
        Some(terminal)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    fn tmux(&self, words: &[&str]) -> String {
        let output =
            Command::new("tmux").arg("-u").arg("-S").arg(self.socket()).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Types a line.
    fn line(&self, line: &str) {
        self.tmux(&["send-keys", "-l", line]);
        self.keys(&["Enter"]);
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    fn state(&self, format: &str) -> String {
        self.tmux(&["display-message", "-p", format]).trim().to_owned()
    }

    fn resize(&self, (width, height): (u16, u16)) {
        self.tmux(&["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]);
    }

    fn eventually(&self, what: &str, seen: impl Fn(&str) -> bool) -> String {
        eventually(what, LIMIT, || self.screen(), |screen| seen(screen))
    }

    /// Starts it, and waits for all ranks; its process.
    fn top(&self, arguments: &str) -> u32 {
        self.line(&format!("clear; sh -c 'echo pid $$; exec \"$TOP\" top {arguments}'"));
        self.eventually("all ranks are shown, and what is loaded on them", |screen| {
            screen.contains(" 4 of 4 covered ") && names(screen).contains(&"loadgen".into())
        });
        let children =
            std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.state("#{pane_pid}")));
        children.unwrap().trim().parse().unwrap()
    }

    /// Waits until the shell is back, and whether the terminal is as it should be.
    fn check_sane(&self, what: &str) {
        eventually(what, LIMIT, || self.state("#{alternate_on} #{cursor_flag}"), |state| state == "0 1");
        self.line("clear; stty -a; echo sane");
        let screen = self.eventually("the terminal's settings", |screen| screen.contains("\nsane"));
        for setting in [" icanon", " echo ", " isig", " opost", " icrnl"] {
            let words = format!(" {} ", screen.replace(['\n', ';'], " "));
            assert!(words.contains(setting), "after {what}: no{setting}: {screen}");
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The shell may have ended, and the server with it.
        let _ = Command::new("tmux").arg("-S").arg(self.socket()).arg("kill-server").output();
    }
}

/// The first words of the lines of the table.
fn names(screen: &str) -> Vec<String> {
    let lines = screen.lines().skip_while(|line| !line.starts_with(" MODULE") && !line.starts_with(" RANK"));
    let rows = lines.skip(1).take_while(|line| line.starts_with([' ', '!']));
    rows.filter_map(|line| Some(line.split_whitespace().next()?.trim_start_matches('!').to_owned())).collect()
}

fn keys_do_what_they_say(backend: Backend) {
    let instance = instance(backend);
    let Some(terminal) = Terminal::start(&instance, (80, 24), &[]) else { return };
    terminal.top("");
    terminal.eventually("the busiest is first", |screen| {
        names(screen).first().is_some_and(|name| name == "loadgen")
    });

    // Order.
    terminal.keys(&["N"]);
    let is_sorted = |screen: &str| {
        let names = names(screen);
        names.len() > 2 && names.is_sorted() && screen.contains("by MODULE")
    };
    terminal.eventually("sorted by name", is_sorted);
    terminal.keys(&["r"]);
    terminal.eventually("reversed", |screen| {
        let mut names = names(screen);
        names.reverse();
        names.len() > 2 && names.is_sorted() && screen.contains("by MODULE, reversed")
    });
    terminal.keys(&[">"]);
    terminal.eventually("the next column", |screen| screen.contains("by WAKE/S"));
    terminal.keys(&["W"]);

    // Filter.
    terminal.keys(&["/"]);
    terminal.tmux(&["send-keys", "-l", "broke"]);
    terminal.eventually("only what is typed", |screen| {
        names(screen) == ["broker"] && screen.contains("names that contain: broke")
    });
    terminal.keys(&["Enter"]);
    terminal.eventually("it is kept", |screen| {
        names(screen) == ["broker"] && screen.contains("only \"broke\": 1")
    });
    terminal.keys(&["Escape"]);
    terminal.eventually("it is gone", |screen| names(screen).contains(&"loadgen".to_owned()));

    // A module by rank, a rank's modules, a series, and back.
    terminal.keys(&["/"]);
    terminal.tmux(&["send-keys", "-l", "loadgen"]);
    terminal.keys(&["Enter", "Down", "Enter"]);
    let screen = terminal.eventually("its ranks", |screen| names(screen) == ["2"]);
    assert!(screen.contains("loadgen by rank"), "{screen}");
    terminal.keys(&["Enter"]);
    terminal.eventually("the rank's modules", |screen| {
        screen.contains("modules on rank 2")
            && ["loadgen", "broker"].iter().all(|name| names(screen).contains(&(*name).into()))
    });
    terminal.keys(&["Enter"]);
    let is_chart = |screen: &str| screen.contains("work_s: share of the time") && screen.contains("now");
    let screen = terminal.eventually("a chart", is_chart);
    assert!(screen.contains("modules.loadgen.** on rank 2") && screen.contains('│'), "{screen}");
    terminal.keys(&["Escape"]);
    terminal.eventually("back to the rank", |screen| screen.contains("modules on rank 2"));
    terminal.keys(&["Escape"]);
    terminal.eventually("back to the ranks", |screen| screen.contains("loadgen by rank"));
    terminal.keys(&["Escape"]);
    terminal.eventually("back to what was filtered", |screen| {
        screen.contains("MODULES") && names(screen) == ["loadgen"]
    });
    terminal.keys(&["Escape"]);
    terminal.eventually("back to all", |screen| names(screen).contains(&"broker".into()));
    terminal.keys(&["s"]);
    terminal.tmux(&["send-keys", "-l", "broker.*"]);
    terminal.keys(&["Enter"]);
    terminal.eventually("series by a pattern", |screen| {
        screen.contains("\n rss_bytes ") && screen.contains("MiB")
    });
    terminal.keys(&["Escape"]);
    // Escape and a key at once would be another key.
    terminal.eventually("back to all again", |screen| names(screen).contains(&"broker".into()));

    // Hold.
    terminal.keys(&["Space"]);
    terminal.eventually("held", |screen| screen.contains("HELD"));
    let uptime = |screen: &str| screen.lines().next().unwrap_or_default().replace("HELD: Space goes on", "");
    let held = terminal.screen();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(names(&terminal.screen()), names(&held));
    assert_eq!(uptime(&terminal.screen()), uptime(&held));
    terminal.keys(&["Space"]);
    terminal.eventually("it goes on", |screen| screen.contains("period 500ms"));

    terminal.keys(&["?"]);
    terminal.eventually("help", |screen| screen.contains("LONGEST     the longest work of one turn"));
    terminal.keys(&["?"]);
    terminal.eventually("no help", |screen| names(screen).contains(&"broker".into()));
    terminal.keys(&["q"]);
    terminal.check_sane("q");
    end(instance);
}

fn the_terminal_is_left_as_it_was_whatever_ends_or_stops_it(backend: Backend) {
    let instance = instance(backend);
    let Some(terminal) = Terminal::start(&instance, (80, 24), &[]) else { return };
    let kill = |pid: u32, signal: &str| {
        drop(instance.run(0, "sh", &["-c", &format!("kill -s {signal} {pid}")]).unwrap())
    };
    for (signal, status) in [("TERM", "143"), ("INT", "130"), ("HUP", "129")] {
        let pid = terminal.top("");
        assert_eq!(terminal.state("#{alternate_on} #{cursor_flag}"), "1 0");
        kill(pid, signal);
        // What is typed before would be its own.
        eventually(signal, LIMIT, || terminal.state("#{alternate_on}"), |state| state == "0");
        terminal.line("echo status $?");
        let said = format!("status {status}");
        terminal.eventually(signal, |screen| screen.contains(&said));
        terminal.check_sane(signal);
    }
    terminal.top("");
    terminal.keys(&["C-c"]);
    terminal.check_sane("Ctrl-C");

    let stopped = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(')').unwrap().1.trim_start().starts_with('T')
    };
    let pid = terminal.top("--interval 200ms");
    for by_key in [true, false] {
        if by_key {
            terminal.keys(&["C-z"])
        } else {
            kill(pid, "TSTP")
        }
        eventually("it stops", LIMIT, || stopped(pid), |stopped| *stopped);
        terminal.check_sane("a stop");
        terminal.line("fg");
        terminal.eventually("it goes on", |screen| {
            screen.starts_with("flux stats top") && screen.contains(" covered ")
        });
        eventually("on its own screen", LIMIT, || terminal.state("#{alternate_on}"), |state| state == "1");
    }
    // Its keys still come to it.
    terminal.keys(&["?"]);
    terminal.eventually("help", |screen| screen.contains("LONGEST     "));
    terminal.keys(&["q"]);
    terminal.check_sane("q after all that");
    end(instance);
}

fn a_picture_fits_every_size_and_has_colours_only_where_they_are_wanted(backend: Backend) {
    let instance = instance(backend);
    let Some(terminal) = Terminal::start(&instance, (80, 24), &[]) else { return };
    let pid = terminal.top("");
    let is_colored = || {
        let screen = terminal.tmux(&["capture-pane", "-p", "-e"]);
        screen.contains(";5;") || (30..38).any(|color| screen.contains(&format!("[{color}m")))
    };
    assert!(is_colored(), "{:?}", terminal.tmux(&["capture-pane", "-p", "-e"]));
    let narrow = terminal.screen();
    assert!(!narrow.contains("RECVQ"), "{narrow}");
    for (size, title) in
        [((200, 50), "RECVQ"), ((120, 40), "RECVQ"), ((80, 24), "SENDQ"), ((30, 5), "flux stats top")]
    {
        terminal.resize(size);
        terminal.eventually(&format!("{size:?}"), |screen| {
            let lines: Vec<&str> = screen.lines().collect();
            let foot = lines.get(usize::from(size.1) - 1).is_some_and(|line| line.starts_with("q quit"));
            screen.contains(title) && foot && screen.starts_with("flux stats top")
        });
    }
    terminal.resize((80, 24));
    terminal.eventually("as before", |screen| {
        screen.contains("SENDQ") && names(screen).contains(&"broker".into())
    });

    // It sleeps between answers: two a second, and the pictures, of a build that is not optimized.
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        // proc(5): utime and stime, fields 14 and 15, in hundredths of a second.
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let before = ticks();
    std::thread::sleep(Duration::from_secs(5));
    let used = ticks() - before;
    assert!(used <= 100, "{used} ticks of 500");
    terminal.keys(&["q"]);
    terminal.check_sane("q");

    terminal.line("export NO_COLOR=1");
    terminal.top("");
    assert!(!is_colored(), "{:?}", terminal.tmux(&["capture-pane", "-p", "-e"]));
    end(instance);
}

fn an_instance_that_is_lost_is_said_to_be_and_found_again(backend: Backend) {
    let instance = instance(backend);
    let Some(terminal) = Terminal::start(&instance, (80, 24), &[]) else { return };
    terminal.top("");
    instance.remove([0], "stats-agg").unwrap();
    let lost =
        |screen: &str| screen.contains(" LOST ") && screen.contains("stats-agg is not loaded on rank 0");
    let screen = terminal.eventually("it is lost", lost);
    assert!(names(&screen).contains(&"loadgen".into()), "what was known is still shown: {screen}");
    instance.load([0], "stats-agg", &["period=500ms"]).unwrap();
    let found = |screen: &str| screen.contains("period 500ms") && screen.contains(" 4 of 4 covered ");
    terminal.eventually("it is found", found);

    // The broker is gone for good: the last picture stays until one has seen enough.
    instance.kill(0).unwrap();
    terminal.eventually("it is lost", |screen| {
        screen.contains(" LOST ") && names(screen).contains(&"loadgen".into())
    });
    terminal.keys(&["q"]);
    terminal.eventually("it says so", |screen| screen.contains("flux-stats: the instance was lost: "));
    terminal.line("echo status $?");
    terminal.eventually("it ends", |screen| screen.contains("status 1"));
    terminal.check_sane("a loss");
}
