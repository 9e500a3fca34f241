//! The README's commands for an instance of one's own, the admin's first ten minutes, and what authors of modules are told, as
//! they are written there: on real Flux, for the double has no `flux`.

use flux_testbed::{Backend, Instance, Options, Stage, workspace_root};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use tests::{complaints, eventually, real, series};

const LIMIT: Duration = Duration::from_secs(30);

/// What a page has under a heading of the second order.
fn section(page: &str, heading: &str) -> String {
    let text = std::fs::read_to_string(workspace_root().join(page)).unwrap();
    let section = text.split_once(&format!("\n## {heading}\n")).expect("the page has that section").1;
    section.split_once("\n## ").map_or(section, |(section, _)| section).to_owned()
}

/// What a section has before its first heading of the third order.
fn introduction(section: &str) -> &str {
    section.split_once("\n### ").map_or(section, |(introduction, _)| introduction)
}

/// The blocks of a language in a part of a page.
fn blocks<'a>(part: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("```{language}\n");
    part.split(&*begin).skip(1).map(|rest| rest.split_once("```").unwrap().0).collect()
}

/// The shell blocks of the README's section, without what builds and installs.
fn blocks_of_the_readme() -> Vec<String> {
    let section = section("README.md", "On an instance of your own");
    let blocks = blocks(introduction(&section), "sh").into_iter();
    blocks
        .map(|block| block.lines().filter(|line| !line.starts_with("cargo ")).collect::<Vec<_>>().join("\n"))
        .collect()
}

/// With `flux` as the command of that name, and modules found in `modules`.
fn shell(instance: &Instance, flux: &Path, modules: &Path, script: &str) -> String {
    let (folder, modules) = (flux.parent().unwrap().display(), modules.display());
    let command = instance.program("flux-stats");
    let commands = command.parent().unwrap().display();
    let before = format!(
        "set -e; export PATH={folder}:$PATH FLUX_MODULE_PATH_PREPEND={modules} FLUX_EXEC_PATH={commands}\n"
    );
    instance.run(0, "sh", &["-c", &(before + script)]).unwrap()
}

/// An instance of the Flux that is here, whose brokers find the module, and the folder where they do.
fn instance(flux: &Path, size: u32) -> (Instance, tempfile::TempDir) {
    let modules = tempfile::tempdir().unwrap();
    Stage::of_this_build().unwrap().install_stats_agg(modules.path()).unwrap();
    let environment = vec![("FLUX_MODULE_PATH_PREPEND".into(), modules.path().into())];
    let backend = Backend::Real(flux.to_owned());
    let instance = Instance::start(Options { size, environment, ..Options::new(backend) }).unwrap();
    (instance, modules)
}

/// The commands of a page's section, each with what the page says that it prints.
fn commands(section: &str) -> Vec<(String, String)> {
    let blocks = section.split("```\n").skip(1).step_by(2);
    let commands = blocks.flat_map(|block| block.split("$ ").skip(1).map(str::to_owned).collect::<Vec<_>>());
    commands
        .map(|one| one.split_once('\n').map(|(command, said)| (command.to_owned(), said.to_owned())).unwrap())
        .collect()
}

/// What differs from one run to the next taken out: measured numbers, the host, which modules work most, and widths.
fn shape(said: &str) -> Vec<String> {
    let word = |word: &str| {
        let measured = word.contains(|c: char| c.is_ascii_digit())
            && word.contains(|c: char| c == '.' || c == '%' || c.is_ascii_alphabetic());
        match word {
            _ if word.contains('=') => word.to_owned(),
            _ if measured => "#".to_owned(),
            _ if word.starts_with('(') => "(host)".to_owned(),
            _ => word.to_owned(),
        }
    };
    let line = |line: &str| match line.starts_with("modules.") {
        true => "a module".to_owned(),
        false => line.split_whitespace().map(word).collect::<Vec<_>>().join(" "),
    };
    said.lines().map(line).collect()
}

#[test]
fn the_first_ten_minutes_of_an_admin_go_as_the_page_says() {
    let Some(Backend::Real(flux)) = real() else { return };
    let (instance, modules) = instance(&flux, 4);
    let commands = commands(&section("docs/admin.md", "Ten minutes"));
    assert_eq!(commands.len(), 8, "{commands:#?}");
    for (command, expected) in commands {
        if command.starts_with("flux stats query") {
            // Who reads takes two periods between a command and the next.
            std::thread::sleep(Duration::from_secs(5));
        }
        // One command is refused: that is seen in what it says.
        let said = shell(&instance, &flux, modules.path(), &format!("{{ {command}; }} 2>&1 || true"));
        // Flux 0.70 says less of it.
        let words = |said: &str| said.replace("load: error updating ", "load: ");
        assert_eq!(shape(&words(&said)), shape(&words(&expected)), "$ {command}\n{said}");
    }
    for rank in 0..4 {
        assert!(!instance.modules(rank).unwrap().contains(&"stats-agg".to_owned()));
    }
    instance.stop().unwrap();
}

#[test]
fn the_commands_of_the_readme_do_what_it_says() {
    let Some(Backend::Real(flux)) = real() else { return };
    let (instance, modules) = instance(&flux, 3);
    let blocks = blocks_of_the_readme();
    assert_eq!(blocks.len(), 4, "{blocks:#?}");

    // Loaded; the tree, then one number of it.
    let said = shell(&instance, &flux, modules.path(), &blocks[0]);
    let (loaded, rest) = said.split_once('\n').unwrap();
    assert!(loaded.starts_with("loaded on ranks 0-2 in "), "{loaded}");
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
    let (tree, one) = (values.next().unwrap().unwrap(), values.next().unwrap().unwrap());
    assert!(tree["modules"]["broker"]["wakeups"].as_f64().unwrap() > 0.0, "{tree:#}");
    assert!(one.is_number(), "{one}");
    assert!(values.next().is_none());

    // The busiest, then the busiest by rank; then the module goes.
    for (block, count) in [(&blocks[1], 5), (&blocks[2], 10)] {
        let said = shell(&instance, &flux, modules.path(), block);
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines.len() == 1 + count && lines[0].starts_with("NAME "), "{said}");
        assert!(lines[1].starts_with("modules.") && lines[1].contains(".work_s "), "{said}");
    }
    shell(&instance, &flux, modules.path(), &blocks[3]);
    for rank in 0..3 {
        assert!(!instance.modules(rank).unwrap().contains(&"stats-agg".to_owned()));
        assert_eq!(complaints(&instance, rank), Vec::<String>::new());
    }
    instance.stop().unwrap();
}

const AUTHORS: &str = "docs/module-author.md";

/// What follows a heading of the third order.
fn subsection<'a>(section: &'a str, heading: &str) -> &'a str {
    let rest = section.split_once(&format!("### {heading}\n")).expect("the section has that heading").1;
    introduction(rest)
}

/// Without Flux it is built, and loaded into the double.
#[test]
fn a_module_made_in_an_empty_folder_as_the_page_says_works() {
    let chapter = section(AUTHORS, "A broker module in Rust");
    let part = subsection(&chapter, "From an empty folder");
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let manifest = blocks(part, "toml")[0];
    assert!(manifest.contains("\"../flux-stats/"));
    let root = workspace_root().canonicalize().unwrap();
    file("Cargo.toml", &manifest.replace("\"../flux-stats/", &format!("\"{}/", root.display())));
    let [build, library] = blocks(part, "rust")[..] else { panic!("{part}") };
    file("build.rs", build);
    std::fs::create_dir(folder.path().join("src")).unwrap();
    file("src/lib.rs", library);
    // The versions that are here, so that it is built without a registry.
    std::fs::copy(root.join("Cargo.lock"), folder.path().join("Cargo.lock")).unwrap();
    let [script] = blocks(part, "sh")[..] else { panic!("{part}") };
    let (cargo, rest) = script.split_once('\n').unwrap();
    assert_eq!(cargo, "cargo build");
    let mut build = std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--offline"]).current_dir(folder.path()).env_remove("CARGO_TARGET_DIR");
    let built = build.output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));

    let Some(Backend::Real(flux)) = real() else {
        let instance = Instance::start(Options { size: 1, ..Options::new(Backend::Embedded) }).unwrap();
        let module = folder.path().join("target/debug/libgreeter.so");
        instance.load_file([0], &module, "greeter", &["greeting=Hi"]).unwrap();
        let answer = instance.rpc(0, "greeter.greet", serde_json::json!({})).unwrap();
        assert!(answer["text"].as_str().unwrap().starts_with("Hi, user "), "{answer}");
        instance.remove([0], "greeter").unwrap();
        return instance.stop().unwrap();
    };
    let (instance, modules) = instance(&flux, 1);
    instance.load([0], "stats-agg", &["period=100ms"]).unwrap();
    let here = format!("cd {}\n", folder.path().display());
    let said = shell(&instance, &flux, modules.path(), &(here + rest));
    assert!(said.starts_with("{'text': 'Hi, user ") && said.ends_with(", from rank 0'}\n"), "{said}");
    let counted = || series(&instance, "greeter.greetings");
    eventually("it was counted", LIMIT, counted, |one| one["total"] == 1);
    instance.remove([0], "stats-agg").unwrap();
    assert_eq!(complaints(&instance, 0), Vec::<String>::new());
    instance.stop().unwrap();
}

#[test]
fn what_authors_are_told_to_type_does_what_the_page_says() {
    let Some(Backend::Real(flux)) = real() else { return };
    let (instance, modules) = instance(&flux, 1);
    let type_in = |script: &str| shell(&instance, &flux, modules.path(), script);
    let total = |name: &str, wanted: f64| {
        let total = || series(&instance, name)["total"].as_f64();
        eventually(name, LIMIT, total, |total| *total == Some(wanted));
    };
    let library = section(AUTHORS, "A library, or the shell");
    let [send] = blocks(&library, "sh")[..] else { panic!("{library}") };
    let statsd = section(AUTHORS, "statsd");
    // The second, what Flux itself sends, is in tests/statsd.rs.
    let [listen, _, job, guests] = blocks(&statsd, "sh")[..] else { panic!("{statsd}") };

    // Its last command asks at once for what the one before it has sent, which arrives within a period.
    let (listen, ask) = listen.trim_end().rsplit_once('\n').unwrap();
    type_in(&format!("bash -ec '{}'", listen.replace('\'', "'\\''")));
    total("app.requests", 1.0);
    assert_eq!(type_in(ask).trim().parse::<f64>().unwrap(), 1.0);
    type_in(send);
    total("app.runs", 1.0);
    total("app.lines", 1.0);
    type_in(&format!("export FLUX_JOB_ID=f1234\n{job}"));
    total("app.steps", 1.0);
    type_in("flux module remove stats-agg");

    type_in(guests);
    assert!(type_in("flux dmesg").contains(" guest-push=true "));
    type_in("flux module remove stats-agg");

    let hello = section(AUTHORS, "A broker module in Rust");
    let [hello] = blocks(introduction(&hello), "sh")[..] else { panic!("{hello}") };
    // Built with everything else.
    let (cargo, rest) = hello.split_once('\n').unwrap();
    assert_eq!(cargo, "cargo build --package flux --example hello");
    let (copy, rest) = rest.split_once('\n').unwrap();
    assert_eq!(copy, "cp target/debug/examples/libhello.so hello.so");
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(Stage::of_this_build().unwrap().module("hello"), folder.path().join("hello.so")).unwrap();
    let said = type_in(&format!("cd {}\n{rest}", folder.path().display()));
    assert!(said.contains("'text': 'Hi, user "), "{said}");
    assert_eq!(complaints(&instance, 0), Vec::<String>::new());
    instance.stop().unwrap();
}
