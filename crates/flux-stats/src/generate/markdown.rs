//! A page of `docs/` as a man page, so that neither can say what the other does not.
//!
//! Of Markdown it knows what those pages use: headings, paragraphs, tables, fenced code, and in a line of text code, links
//! and bold.

use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

/// The sections of `page` from its first `##` on.
pub(crate) fn sections(page: &str) -> Roff {
    let mut roff = Roff::new();
    let body = page.find("\n## ").map_or("", |at| &page[at..]);
    let mut lines = body.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(heading) = line.strip_prefix("## ") {
            roff.control("SH", [heading.to_uppercase().as_str()]);
        } else if let Some(heading) = line.strip_prefix("### ") {
            roff.control("SS", [heading]);
        } else if line.starts_with("```") {
            code(&mut roff, lines.by_ref().take_while(|line| !line.starts_with("```")));
        } else if line.starts_with('|') {
            let mut rows = vec![cells(line)];
            while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
                rows.push(cells(row));
            }
            table(&mut roff, &rows);
        } else if !line.is_empty() {
            let mut paragraph = line.to_owned();
            while let Some(more) = lines.next_if(|line| goes_on(line)) {
                paragraph.push(' ');
                paragraph.push_str(more);
            }
            roff.control("PP", []).text(inlines(&paragraph));
        }
    }
    roff
}

/// Whether a line belongs to the paragraph of the one before it.
fn goes_on(line: &str) -> bool {
    !(line.is_empty() || line.starts_with(['|', '#']) || line.starts_with("```"))
}

fn code<'a>(roff: &mut Roff, lines: impl Iterator<Item = &'a str>) {
    roff.control("PP", []).control("RS", ["4"]).control("nf", []);
    for line in lines {
        roff.text([roman(line)]);
    }
    roff.control("fi", []).control("RE", []);
}

/// Each row as an entry: its first cell, then the second, and of the others their headings, too.
fn table(roff: &mut Roff, rows: &[Vec<String>]) {
    let headings = rows.first().map_or(&[][..], Vec::as_slice);
    // The second line of a table is its rule.
    for row in rows.iter().skip(2) {
        let Some((name, rest)) = row.split_first() else { continue };
        roff.control("TP", []).text(inlines(name));
        let mut text = Vec::new();
        for (place, cell) in rest.iter().enumerate().filter(|(_, cell)| !cell.is_empty()) {
            if place > 0 {
                let heading = headings.get(place + 1).map_or("", String::as_str);
                text.extend([roman("; ")].into_iter().chain(inlines(heading)).chain([roman(": ")]));
            }
            text.extend(inlines(cell));
        }
        roff.text(text);
    }
}

/// The cells of a row; `\|` is no end of one.
fn cells(row: &str) -> Vec<String> {
    const BAR: &str = "\u{1}";
    let row = row.trim().trim_start_matches('|').replace("\\|", BAR);
    row.trim_end_matches('|').split('|').map(|cell| cell.trim().replace(BAR, "|")).collect()
}

/// Code is bold, a link its text, bold is italic: a page has two faces beside the plain one.
fn inlines(mut text: &str) -> Vec<Inline> {
    let mut found = Vec::new();
    while let Some(at) = text.find(['`', '[', '*']) {
        let (before, rest) = text.split_at(at);
        let marked = between(rest, "`", "`")
            .map(|(code, rest)| (vec![bold(code)], rest))
            .or_else(|| between(rest, "**", "**").map(|(text, rest)| (vec![italic(text)], rest)))
            .or_else(|| link(rest).map(|(text, rest)| (inlines(text), rest)));
        let (inside, after) = marked.unwrap_or_else(|| (vec![roman(&rest[..1])], &rest[1..]));
        found.extend((!before.is_empty()).then(|| roman(before)));
        found.extend(inside);
        text = after;
    }
    found.extend((!text.is_empty()).then(|| roman(text)));
    found
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<(&'a str, &'a str)> {
    text.strip_prefix(start)?.split_once(end)
}

/// The text of `[text](address)`, and what follows it.
fn link(text: &str) -> Option<(&str, &str)> {
    let (inside, rest) = text.strip_prefix('[')?.split_once("](")?;
    (!inside.contains('[')).then_some(())?;
    Some((inside, rest.split_once(')')?.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_text_tables_and_code_become_their_macros() {
        let page = "# Title\n\nnot in it\n\n## A part\n\nSee\n`flux stats`\nand [here](there.md): [[x]].\n\n\
                    | key | meaning | default |\n|---|---|---|\n| `a` | one \\| two | `1` |\n| `b` | three | |\n\n\
                    ### Below\n\n```sh\n.dot \\ end\n```\n";
        insta::assert_snapshot!(sections(page).to_roff(), @r#"
        .SH "A PART"
        .PP
        See \fBflux stats\fR and here: [[x]].
        .TP
        \fBa\fR
        one | two; default: \fB1\fR
        .TP
        \fBb\fR
        three
        .SS Below
        .PP
        .RS 4
        .nf
        \&.dot \\ end
        .fi
        .RE
        "#);
    }
}
