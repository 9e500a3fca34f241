//! `flux_metric_count(3)`, from the header that is its reference: the comment at its top, then each comment with the
//! functions below it.

use clap_mangen::roff::{Roff, bold, roman};

/// The page's name, and its first function.
pub(crate) const PAGE: &str = "flux_metric_count";

/// The page, and the names of all functions that it is about.
pub(crate) fn page(header: &str) -> (Roff, Vec<String>) {
    let parts = parts(header);
    let names: Vec<String> =
        parts.iter().flat_map(|part| &part.prototypes).filter_map(|prototype| name(prototype)).collect();
    let mut roff = Roff::new();
    roff.control("SH", ["NAME"]).text([roman(format!("{} - metrics of your own", names.join(", ")))]);
    roff.control("SH", ["SYNOPSIS"]).control("nf", []).text([bold("#include <flux-metrics.h>")]);
    roff.text([roman("cc \u{2026} $(pkg-config --cflags --libs flux-metrics)")]).control("fi", []);
    roff.control("SH", ["DESCRIPTION"]);
    for part in parts {
        if let Some(heading) = part.heading {
            roff.control("SH", [heading.to_uppercase().as_str()]);
        }
        if !part.prototypes.is_empty() {
            roff.control("PP", []).control("nf", []);
            for prototype in &part.prototypes {
                roff.text([bold(prototype.as_str())]);
            }
            roff.control("fi", []);
            roff.control("RS", ["4"]);
        }
        comment(&mut roff, &part.comment);
        if !part.prototypes.is_empty() {
            roff.control("RE", []);
        }
    }
    (roff, names)
}

/// A comment, and what is declared below it.
#[derive(Default)]
struct Part {
    /// Of a comment `---- heading ----`, which has nothing else.
    heading: Option<String>,
    comment: Vec<String>,
    prototypes: Vec<String>,
}

fn parts(header: &str) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut lines = header.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("/* ") {
            let mut line = line;
            let mut comment = vec![plain(line)];
            while !line.ends_with("*/") {
                let Some(next) = lines.next() else { break };
                line = next;
                comment.push(plain(line));
            }
            parts.push(part(comment));
        } else if line.ends_with(");")
            && let Some(part) = parts.last_mut()
        {
            part.prototypes.push(line.to_owned());
        }
    }
    // What is said in a line of a type, or of the include guard, is of no function.
    parts.retain(|part| part.heading.is_some() || !part.prototypes.is_empty() || part.comment.len() > 1);
    parts
}

/// A line of a comment, without what makes it one.
fn plain(line: &str) -> String {
    let line = line.strip_suffix("*/").unwrap_or(line).trim_end();
    let text = line.strip_prefix("/*").or_else(|| line.strip_prefix(" *")).unwrap_or(line);
    text.strip_prefix(' ').unwrap_or(text).to_owned()
}

fn part(comment: Vec<String>) -> Part {
    let heading = comment.first().and_then(|line| line.strip_prefix("---- ")?.strip_suffix(" ----"));
    match heading.map(str::to_owned) {
        Some(heading) => Part { heading: Some(heading), ..Part::default() },
        None => Part { comment, ..Part::default() },
    }
}

/// The function that a prototype declares.
fn name(prototype: &str) -> Option<String> {
    let word = prototype.split_once(" (")?.0.rsplit([' ', '*']).next()?;
    Some(word.to_owned())
}

/// Paragraphs are filled; what is indented stays as it is.
fn comment(roff: &mut Roff, lines: &[String]) {
    let mut kept = false;
    roff.control("PP", []);
    for line in lines {
        let indented = line.starts_with("  ");
        if indented != kept && !line.is_empty() {
            roff.control(if indented { "nf" } else { "fi" }, []);
            kept = indented;
        }
        match line.as_str() {
            "" => roff.control("PP", []),
            line => roff.text([roman(line)]),
        };
    }
    if kept {
        roff.control("fi", []);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_of_the_header_is_in_the_page_with_what_it_does() {
        let header = include_str!("../../../../include/flux-metrics.h");
        let (roff, names) = page(header);
        let declared: Vec<&str> = header
            .lines()
            .filter(|line| line.ends_with(");") && !line.starts_with([' ', '*']))
            .filter_map(|line| line.split_once(" (")?.0.rsplit([' ', '*']).next())
            .collect();
        assert!(declared.len() > 20, "{declared:?}");
        assert_eq!(names, declared);
        let text = roff.to_roff();
        for part in ["Add n, which may be negative", "ENOSPC", "SH \"BY NAME", "Put a member (UTF\\-8"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        for of_the_compiler in ["#ifndef", "extern", "/*", "*/"] {
            assert!(!text.contains(of_the_compiler), "{of_the_compiler}: {text}");
        }
    }
}
