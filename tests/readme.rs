//! The README's commands for an instance of one's own, and the admin's first ten minutes, as they are written there: on real
//! Flux, for the double has no `flux`.

use flux_testbed::{Backend, Instance, Options, Stage, workspace_root};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use tests::{complaints, real};

/// What a page has under a heading.
fn section(page: &str, heading: &str) -> String {
    let text = std::fs::read_to_string(workspace_root().join(page)).unwrap();
    let section = text.split_once(&format!("\n## {heading}\n")).expect("the page has that section").1;
    section.split_once("\n#").map_or(section, |(section, _)| section).to_owned()
}

/// The shell blocks of the README's section, without what builds and installs.
fn blocks() -> Vec<String> {
    let section = section("README.md", "On an instance of your own");
    let blocks = section.split("```sh\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
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
        assert_eq!(shape(&said), shape(&expected), "$ {command}\n{said}");
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
    let blocks = blocks();
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
