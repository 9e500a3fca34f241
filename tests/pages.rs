//! The pages for readers: what they name exists, wherever they name it.

use flux_testbed::workspace_root;
use std::path::{Path, PathBuf};

/// All pages, README and its like first.
fn pages() -> Vec<PathBuf> {
    let root = workspace_root();
    let folders = ["", "docs", "docs/monitoring", "crates/stats-core/docs", "crates/stats-probe/docs"];
    folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(root.join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect()
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What is named as code and is `FOLDER/FILE::TEST`.
fn named_tests(page: &str) -> Vec<(&str, &str)> {
    let code = page.split('`').skip(1).step_by(2);
    code.filter_map(|code| code.split_once("::"))
        .filter(|(file, name)| file.contains('/') && !name.contains([':', ' ']))
        .collect()
}

#[test]
fn every_test_that_a_page_names_exists() {
    let root = workspace_root();
    for page in ["SECURITY.md", "docs/maintainer.md"] {
        let page_text = text(&root.join(page));
        let named = named_tests(&page_text);
        assert!(named.len() > 5, "{page}: {named:?}");
        for (file, name) in named {
            // Tests beside the code may be in a file of their own in the module's folder.
            let places = [root.join(format!("{file}.rs")), root.join(file).join("tests.rs")];
            let found = places.iter().filter(|place| place.exists()).any(|place| {
                text(place)
                    .split("fn ")
                    .any(|rest| rest.strip_prefix(name).is_some_and(|rest| rest.starts_with('(')))
            });
            assert!(found, "{page} names {file}::{name}, which is not there");
        }
    }
}

/// As GitHub makes it of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().chars().filter_map(|char| match char {
        ' ' => Some('-'),
        '-' | '_' => Some(char),
        _ => char.is_alphanumeric().then(|| char.to_ascii_lowercase()),
    });
    kept.collect()
}

/// A page without its blocks of code, in which brackets are no links.
fn prose(page: &str) -> String {
    page.split("\n```").step_by(2).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_link_of_a_page_leads_somewhere() {
    for page in pages() {
        let page_text = prose(&text(&page));
        let links = page_text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
        for link in links.filter(|link| !link.contains("://")) {
            let (file, place) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: {link}", page.display());
            if !place.is_empty() {
                let target = prose(&text(&target));
                let mut headings = target.lines().filter(|line| line.starts_with('#'));
                assert!(headings.any(|heading| anchor(heading) == place), "{}: {link}", page.display());
            }
        }
    }
}

#[test]
fn the_programs_that_a_page_shows_are_the_files_that_are_compiled() {
    let root = workspace_root();
    let page = text(&root.join("docs/module-author.md"));
    for file in ["crates/flux-metrics/examples/count.rs", "tests/c/count.c", "python/examples/count.py"] {
        let shown = page.split_once(&format!("[{file}](../{file}):\n\n```")).expect(file).1;
        let shown = shown.split_once('\n').unwrap().1.split_once("```").unwrap().0;
        assert_eq!(shown, text(&root.join(file)), "{file}");
    }
}
