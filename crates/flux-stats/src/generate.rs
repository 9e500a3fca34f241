//! `flux-stats generate DIR`, for whoever installs or packages: man pages, completions and the entry of `flux help`, all
//! from what the command line is made of; and the man pages of the module and of the C library, from their references.

mod header;
mod markdown;

use crate::outcome::{Ended, Outcome};
use clap::{Arg, ArgAction, Command, Parser};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// Its name on the command line; it is in no help.
pub(crate) const NAME: &str = "generate";
/// What the files are about.
const COMMAND: &str = "flux-stats";

/// Write man pages, shell completions and the entry of `flux help` below a folder
///
/// DIR/man1/*.1, DIR/man3/*.3, DIR/man5/*.5, DIR/bash/flux-stats, DIR/zsh/_flux-stats, DIR/fish/flux-stats.fish, DIR/help.d/stats.json
#[derive(Parser)]
#[command(name = "flux-stats generate")]
struct Options {
    /// The folder, which is made where there is none
    dir: PathBuf,
}

/// `words` are what follows the name.
pub(crate) fn run(words: impl Iterator<Item = std::ffi::OsString>, command: Command) -> Ended {
    let options = Options::try_parse_from(std::iter::once(NAME.into()).chain(words))
        .map_err(crate::outcome::Failure::usage)?;
    for (path, text) in files(command)? {
        write(&options.dir.join(path), &text)?;
    }
    Ok(Outcome::Done)
}

#[derive(Debug, thiserror::Error)]
#[error("writing {}: {why}", path.display())]
struct Unwritten {
    path: PathBuf,
    why: std::io::Error,
}

fn write(path: &Path, text: &[u8]) -> Result<(), Unwritten> {
    let unwritten = |why| Unwritten { path: path.to_owned(), why };
    path.parent().map_or(Ok(()), fs::create_dir_all).map_err(unwritten)?;
    fs::write(path, text).map_err(unwritten)
}

type File = (PathBuf, Vec<u8>);

fn files(command: Command) -> std::io::Result<Vec<File>> {
    let mut built = command.clone().disable_help_subcommand(true);
    built.build();
    let mut files = Vec::new();
    pages(&built, &see_also(&built), &mut files)?;
    reference(&mut files);
    for (shell, name, ours) in [
        (Shell::Bash, "bash/flux-stats", include_str!("generate/flux.bash")),
        (Shell::Zsh, "zsh/_flux-stats", include_str!("generate/flux.zsh")),
        (Shell::Fish, "fish/flux-stats.fish", include_str!("generate/flux.fish")),
    ] {
        // The generator for bash loses subcommands of a command with a hyphen in its name: it gets one without.
        let called = if shell == Shell::Bash { COMMAND.replace('-', "_") } else { COMMAND.to_owned() };
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command.clone(), &called, &mut text);
        let text = String::from_utf8_lossy(&text).replace(&format!(" {called}\n"), &format!(" {COMMAND}\n"));
        let text = if shell == Shell::Zsh { of_both_commands(&text)? } else { text };
        let text = (text + ours).into_bytes();
        files.push((name.into(), text));
    }
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let help = json!([{
        "name": "instance statistics",
        "description": "see what an instance is doing",
        "commands": [{ "name": "stats", "description": about.to_lowercase().replace("flux", "Flux") }],
    }]);
    files.push(("help.d/stats.json".into(), format!("{help:#}\n").into_bytes()));
    Ok(files)
}

/// The functions for zsh, for both commands, without the lines at the end that call the one for `flux-stats` whatever is
/// completed: ours know better.
fn of_both_commands(zsh: &str) -> std::io::Result<String> {
    let first = format!("#compdef {COMMAND}\n");
    let functions = zsh.split_once("\nif [ \"$funcstack[1]\" =").map(|(functions, _)| functions);
    let functions = functions.and_then(|functions| functions.strip_prefix(&first));
    let functions =
        functions.ok_or_else(|| std::io::Error::other("the completion for zsh has another form"))?;
    Ok(format!("#compdef {COMMAND} flux\n{functions}"))
}

/// Every option with its value, the command's own before those of all commands, and what may be repeated with `…`.
fn synopsis(command: &Command) -> String {
    let words = std::iter::once(command.get_bin_name().unwrap_or(COMMAND).to_owned());
    let shown = || command.get_arguments().filter(|arg| !arg.is_hide_set());
    let (own, of_all): (Vec<_>, Vec<_>) =
        shown().filter(|arg| !arg.is_positional()).partition(|arg| !arg.is_global_set() && !is_help(arg));
    let options = own.into_iter().chain(of_all).map(option);
    let positionals = shown().filter(|arg| arg.is_positional()).map(positional);
    let below = command.has_subcommands().then(|| "COMMAND …".to_owned());
    words.chain(options).chain(positionals).chain(below).collect::<Vec<_>>().join(" ")
}

fn is_help(arg: &Arg) -> bool {
    matches!(
        arg.get_action(),
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
    )
}

fn option(arg: &Arg) -> String {
    let names =
        [arg.get_short().map(|short| format!("-{short}")), arg.get_long().map(|long| format!("--{long}"))];
    let names = names.into_iter().flatten().collect::<Vec<_>>().join("|");
    let value = match value(arg) {
        _ if !arg.get_action().takes_values() => String::new(),
        value if arg.get_num_args().is_some_and(|count| count.min_values() == 0) => format!("[={value}]"),
        value => format!(" {value}"),
    };
    marked(arg, &format!("{names}{value}"))
}

fn positional(arg: &Arg) -> String {
    marked(arg, &value(arg))
}

fn value(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn marked(arg: &Arg, text: &str) -> String {
    let more = if matches!(arg.get_action(), ArgAction::Append) { "…" } else { "" };
    if arg.is_required_set() { format!("{text}{more}") } else { format!("[{text}{more}]") }
}

/// The section that ends every page, in roff.
fn see_also(command: &Command) -> String {
    let below = command.get_subcommands().map(|below| format!("{COMMAND}-{}", below.get_name()));
    let flux = ["flux-module", "flux-uri"].map(str::to_owned);
    let names = std::iter::once(COMMAND.to_owned()).chain(below).chain(flux);
    let lines: Vec<String> = names.map(|name| format!(".BR {} (1)", name.replace('-', "\\-"))).collect();
    format!(".SH \"SEE ALSO\"\n{}\n", lines.join(",\n"))
}

/// How what help has after the options begins where it is examples.
const EXAMPLES: &str = "Examples:\n";

/// The page of a command, and those of its subcommands; `end` is the end of each.
fn pages(command: &Command, end: &str, files: &mut Vec<File>) -> std::io::Result<()> {
    for below in command.get_subcommands() {
        pages(below, end, files)?;
    }
    // What help has after the options is a section of no name to clap_mangen.
    let shown = command.clone().override_usage(synopsis(command)).after_help(None);
    let man = Man::new(shown).manual("Flux statistics");
    let mut text = Vec::new();
    man.render(&mut text)?;
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (examples, notes): (Vec<&str>, Vec<&str>) =
        after.split("\n\n").filter(|part| !part.is_empty()).partition(|part| part.starts_with(EXAMPLES));
    for part in examples {
        let lines = part.trim_start_matches(EXAMPLES).lines().map(|line| roman(line.trim_start()));
        let mut section = Roff::new();
        section.control("SH", ["EXAMPLES"]).control("nf", []);
        for line in lines {
            section.text([line]);
        }
        text.extend(section.control("fi", []).to_roff().bytes());
    }
    text.extend(include_bytes!("generate/exit.roff"));
    if ["flux-stats", "doctor"].contains(&command.get_name()) {
        text.extend(b".TP\n4\n.B flux stats doctor\nhas findings.\n");
    }
    for part in notes {
        text.extend(Roff::new().control("PP", []).text([roman(part.replace('\n', " "))]).to_roff().bytes());
    }
    text.extend(include_bytes!("generate/environment.roff"));
    text.extend(end.bytes());
    files.push((Path::new("man1").join(man.get_filename()), text));
    Ok(())
}

/// flux-stats-agg(5), and flux_metric_count(3) with a page for each other function that leads to it.
fn reference(files: &mut Vec<File>) {
    let settings = markdown::sections(include_str!("../../../docs/settings.md"));
    let mut page = title("flux-stats-agg", "5");
    page.control("SH", ["NAME"])
        .text([roman("flux-stats-agg - settings and requests of the module stats-agg")]);
    let (see, end) = (".SH \"SEE ALSO\"\n", ".BR flux\\-stats (1),\n.BR flux\\-config (1)\n");
    let text = page.to_roff() + &settings.to_roff() + see + end;
    files.push(("man5/flux-stats-agg.5".into(), text.into_bytes()));

    let (functions, names) = header::page(include_str!("../../../include/flux-metrics.h"));
    let text =
        title(header::PAGE, "3").to_roff() + &functions.to_roff() + see + ".BR flux\\-stats\\-send (1)\n";
    let link = format!(".so man3/{}.3\n", header::PAGE);
    for name in names {
        let text = if name == header::PAGE { &text } else { &link };
        files.push((format!("man3/{name}.3").into(), text.clone().into_bytes()));
    }
}

fn title(name: &str, section: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("TH", [name, section, "", "flux-stats", "Flux statistics"]);
    roff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arguments;
    use clap::CommandFactory;
    use std::process::{Command as Process, Output};

    fn generated() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        run([folder.path().into()].into_iter(), Arguments::command()).unwrap();
        folder
    }

    /// `None`: this machine has no such program, which is said.
    fn ran(program: &str, words: &[&str]) -> Option<Output> {
        match Process::new(program).args(words).output() {
            Ok(output) => Some(output),
            Err(_) => {
                eprintln!("skipped: there is no {program} here");
                None
            }
        }
    }

    fn fine(program: &str, words: &[&str]) -> String {
        let Some(output) = ran(program, words) else { return String::new() };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{program} {words:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[test]
    fn every_command_has_a_page_that_groff_reads_without_a_warning() {
        let folder = generated();
        let mut names: Vec<String> = Arguments::command()
            .get_subcommands()
            .map(|command| format!("-{}", command.get_name()))
            .collect();
        names.push(String::new());
        for name in names {
            let page = folder.path().join(format!("man1/flux-stats{name}.1"));
            let text = fs::read_to_string(&page).unwrap_or_else(|_| panic!("{} is missing", page.display()));
            for section in
                [".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH \"EXIT STATUS\"", ".SH \"SEE ALSO\""]
            {
                assert!(text.contains(section), "{name} has no {section}");
            }
            let shown = fine("groff", &["-man", "-Kutf8", "-Tutf8", "-ww", page.to_str().unwrap()]);
            assert!(shown.is_empty() || shown.contains("flux"), "{shown}");
        }
    }

    #[test]
    fn the_module_and_the_c_library_have_pages_that_groff_reads_without_a_warning() {
        let folder = generated();
        for (page, said) in [
            ("man5/flux-stats-agg.5", ["guest-series", "stats-clear", "how long rank 0 remembers"]),
            ("man3/flux_metric_count.3", ["flux_metric_close", "EPERM", "gauge of this rank"]),
        ] {
            let page = folder.path().join(page);
            let shown =
                fine("groff", &["-man", "-Kutf8", "-Tutf8", "-ww", "-P-cbou", page.to_str().unwrap()]);
            // Hyphens that groff has put into words are no part of them.
            let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(shown.is_empty() || said.iter().all(|said| shown.contains(said)), "{shown}");
        }
        let link = fs::read_to_string(folder.path().join("man3/flux_metric_gauge.3")).unwrap();
        assert_eq!(link, ".so man3/flux_metric_count.3\n");
    }

    #[test]
    fn a_synopsis_has_values_and_marks_and_ends_with_what_all_commands_have() {
        let mut command = Arguments::command().disable_help_subcommand(true);
        command.build();
        let of = |name: &str| synopsis(command.find_subcommand(name).unwrap());
        insta::assert_snapshot!([synopsis(&command), of("load"), of("query"), of("send")].join("\n"), @r"
        flux stats [--uri URI] [-h|--help] [-V|--version] COMMAND …
        flux stats load [-r|--rank IDSET] [--module PATH] [--uri URI] [-h|--help] [KEY=VALUE…]
        flux stats query [--by WHAT] [--rank IDSET] [--since DURATION] [--json] [--ndjson] [--csv] [-o|--format FORMAT] [--sort KEY,…] [--top N] [-n|--no-header] [--watch[=DURATION]] [-q|--quiet] [--uri URI] [-h|--help] [PATTERN…]
        flux stats send [-t|--type KIND] [--tag KEY=VALUE…] [--add] [--ttl DURATION] [--uri URI] [-h|--help] NAME [VALUE]
        ");
    }

    #[test]
    fn flux_help_has_an_entry_of_the_form_that_it_reads() {
        let folder = generated();
        insta::assert_snapshot!(fs::read_to_string(folder.path().join("help.d/stats.json")).unwrap(), @r#"
        [
          {
            "name": "instance statistics",
            "description": "see what an instance is doing",
            "commands": [
              {
                "name": "stats",
                "description": "statistics of a Flux instance"
              }
            ]
          }
        ]
        "#);
    }

    #[test]
    fn completions_are_programs_of_their_shells() {
        let folder = generated();
        for (shell, file) in
            [("bash", "bash/flux-stats"), ("zsh", "zsh/_flux-stats"), ("fish", "fish/flux-stats.fish")]
        {
            fine(shell, &["-n", folder.path().join(file).to_str().unwrap()]);
        }
    }

    #[test]
    fn bash_completes_both_commands_and_leaves_others_to_flux() {
        let file = generated();
        let completed = |words: &[&str]| {
            let script = "_flux_core() { COMPREPLY=(of-flux); }; complete -F _flux_core flux; . \"$0\"; \
                          COMP_WORDS=(\"$@\"); COMP_CWORD=$(( $# - 1 )); COMP_LINE=\"$*\"; COMP_POINT=${#COMP_LINE}; \
                          function=$(complete -p \"$1\" | sed 's/.*-F \\([^ ]*\\).*/\\1/'); \
                          \"$function\" \"$1\" \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"; \
                          echo \"${COMPREPLY[*]}\"";
            let path = file.path().join("bash/flux-stats");
            let mut all = vec!["-c", script, path.to_str().unwrap()];
            all.extend(words);
            fine("bash", &all).trim().to_owned()
        };
        if ran("bash", &["-c", "true"]).is_none() {
            return;
        }
        assert_eq!(completed(&["flux-stats", "que"]), "query");
        assert_eq!(completed(&["flux", "stats", "que"]), "query");
        assert_eq!(completed(&["flux", "stats", "query", "--by", "ra"]), "rank");
        assert_eq!(completed(&["flux", "-v", "stats", "query", "--no-h"]), "--no-header");
        assert_eq!(completed(&["flux", "jobs", "--no"]), "of-flux");
    }

    /// What is seen on a terminal where zsh is typed to, up to a Tab; `own`: the completion that Flux might have.
    fn completed_by_zsh(folder: &Path, own: Option<&str>, typed: &str, wanted: &str) -> Option<String> {
        const SCRIPT: &str = r#"
            zmodload zsh/zpty
            zpty -b z zsh -fi
            zpty -w z "PS1='> '; stty -echo; fpath=($1 $2 \$fpath); autoload -Uz compinit; compinit -D -u; print RE'ADY'"
            zpty -r z line '*READY*'
            zpty -w -n z "$3"$'\t'
            repeat 50; do
                while zpty -r -t z line; do seen+=$line; done
                [[ $seen == *$4* ]] && break
                sleep 0.1
            done
            zpty -d z
            print -r -- $seen"#;
        ran("zsh", &["-c", "true"])?;
        let functions = folder.join(if own.is_some() { "with-own" } else { "without" });
        fs::create_dir_all(&functions).unwrap();
        if let Some(own) = own {
            fs::write(functions.join("_flux"), own).unwrap();
        }
        let paths = [folder.join("zsh"), functions];
        let [ours, functions] = paths.each_ref().map(|path| path.to_str().unwrap());
        Some(fine("zsh", &["-fc", SCRIPT, "zsh", ours, functions, typed, wanted]))
    }

    #[test]
    fn zsh_completes_flux_stats_from_the_first_use_and_leaves_the_rest_to_flux() {
        let folder = generated();
        let of_flux = Some("#compdef flux\n_flux() { compadd of-flux-itself }\n_flux \"$@\"\n");
        for (own, typed, wanted) in [
            (None, "flux stats que", "stats query"),
            (None, "flux -v stats query --by ra", "--by rank"),
            (None, "flux-stats que", "flux-stats query"),
            (of_flux, "flux of-f", "flux of-flux-itself"),
            (of_flux, "flux jobs of-f", "jobs of-flux-itself"),
            (of_flux, "flux stats que", "stats query"),
        ] {
            let Some(seen) = completed_by_zsh(folder.path(), own, typed, wanted) else { return };
            assert!(seen.contains(wanted), "{typed}: {seen:?}");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error() {
        let ended = run(["/proc/nothing".into()].into_iter(), Arguments::command());
        assert!(
            matches!(ended, Err(crate::outcome::Failure::Failed(text)) if text.starts_with("writing /proc/nothing"))
        );
    }
}
