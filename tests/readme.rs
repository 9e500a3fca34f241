//! The README's commands for an instance of one's own, as they are written there: on real Flux, for the double has no
//! `flux`.

use flux_testbed::{Backend, Instance, Options, Stage, workspace_root};
use serde_json::Value;
use std::path::Path;
use tests::{complaints, real};

const SECTION: &str = "## On an instance of your own";

/// The shell blocks of the section, without what builds and installs.
fn blocks() -> Vec<String> {
    let text = std::fs::read_to_string(workspace_root().join("README.md")).unwrap();
    let section = text.split_once(SECTION).map(|(_, rest)| rest).expect("the README has that section");
    let section = section.split_once("\n#").map_or(section, |(section, _)| section);
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

#[test]
fn the_commands_of_the_readme_do_what_it_says() {
    let Some(Backend::Real(flux)) = real() else { return };
    let modules = tempfile::tempdir().unwrap();
    Stage::of_this_build().unwrap().install_stats_agg(modules.path()).unwrap();
    let environment = vec![("FLUX_MODULE_PATH_PREPEND".into(), modules.path().into())];
    let backend = Backend::Real(flux.clone());
    let instance = Instance::start(Options { size: 3, environment, ..Options::new(backend) }).unwrap();
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
