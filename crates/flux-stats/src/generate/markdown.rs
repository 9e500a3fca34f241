//! A page of `docs/` as a man page, so that neither can say what the other does not.

use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, TextMergeStream};

/// The sections of `page` from its first heading of the second level on.
pub(crate) fn sections(page: &str) -> Roff {
    let mut sections = Sections::default();
    TextMergeStream::new(Parser::new_ext(page, Options::ENABLE_TABLES))
        .skip_while(|event| !matches!(event, Event::Start(Tag::Heading { level: HeadingLevel::H2, .. })))
        .for_each(|event| sections.take(event));
    sections.roff
}

#[derive(Default)]
struct Sections {
    roff: Roff,
    /// The text since the last block began.
    line: Vec<Inline>,
    strong: bool,
    code: bool,
    /// The cells of the table's first row.
    headings: Vec<Vec<Inline>>,
    /// The cells of the row that is being read.
    row: Vec<Vec<Inline>>,
}

impl Sections {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(Tag::Strong) => self.strong = true,
            Event::End(TagEnd::Strong) => self.strong = false,
            Event::Start(Tag::CodeBlock(_)) => self.code = true,
            Event::Start(Tag::Item) => {
                self.roff.control("IP", ["\u{2022}", "2"]);
            }
            Event::Text(text) if self.code => self.example(&text),
            Event::Text(text) if self.strong => self.line.push(italic(&*text)),
            Event::Text(text) => self.line.push(roman(&*text)),
            Event::Code(text) => self.line.push(bold(&*text)),
            Event::SoftBreak | Event::HardBreak => self.line.push(roman(" ")),
            Event::End(end) => self.end(end),
            _ => (),
        }
    }

    fn end(&mut self, end: TagEnd) {
        match end {
            TagEnd::Heading(level) => self.heading(level),
            TagEnd::Paragraph => {
                let line = std::mem::take(&mut self.line);
                self.roff.control("PP", []).text(line);
            }
            // Of a list without empty lines: an item of another one has a paragraph.
            TagEnd::Item => {
                let line = std::mem::take(&mut self.line);
                self.roff.text(line);
            }
            TagEnd::CodeBlock => self.code = false,
            TagEnd::TableCell => self.row.push(std::mem::take(&mut self.line)),
            TagEnd::TableHead => self.headings = std::mem::take(&mut self.row),
            TagEnd::TableRow => self.entry(),
            _ => (),
        }
    }
    fn heading(&mut self, level: HeadingLevel) {
        let text: String = self
            .line
            .drain(..)
            .map(|part| match part {
                Inline::Roman(text) | Inline::Italic(text) | Inline::Bold(text) => text,
                Inline::LineBreak => " ".to_owned(),
            })
            .collect();
        if level == HeadingLevel::H2 {
            self.roff.control("SH", [text.to_uppercase().as_str()]);
        } else {
            self.roff.control("SS", [text.as_str()]);
        }
    }

    fn example(&mut self, text: &CowStr<'_>) {
        self.roff.control("PP", []).control("RS", ["4"]).control("nf", []);
        for line in text.lines() {
            self.roff.text([roman(line)]);
        }
        self.roff.control("fi", []).control("RE", []);
    }

    /// A row as an entry: its first cell, then the second, and of the others their headings, too.
    fn entry(&mut self) {
        let mut row = std::mem::take(&mut self.row).into_iter();
        let Some(name) = row.next() else { return };
        self.roff.control("TP", []).text(name);
        let mut text = Vec::new();
        for (place, cell) in row.enumerate().filter(|(_, cell)| !cell.is_empty()) {
            if place > 0 {
                text.push(roman("; "));
                text.extend(self.headings.get(place + 1).into_iter().flatten().cloned());
                text.push(roman(": "));
            }
            text.extend(cell);
        }
        self.roff.text(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_text_lists_tables_and_code_become_their_macros() {
        let page = "# Title\n\nnot in it\n\n## A `part`\n\nSee\n`flux stats`\n**and** [here](there.md): [[x]].\n\n\
                    | key | meaning | default |\n|---|---|---|\n| `a` | one \\| two | `1` |\n| `b` | three | |\n\n\
                    ### Below\n\n- first\n- second\n  line\n\n```sh\n.dot \\ end\n\nmore\n```\n";
        insta::assert_snapshot!(sections(page).to_roff(), @r#"
        .SH "A PART"
        .PP
        See \fBflux stats\fR \fIand\fR here: [[x]].
        .TP
        \fBa\fR
        one | two; default: \fB1\fR
        .TP
        \fBb\fR
        three
        .SS Below
        .IP • 2
        first
        .IP • 2
        second line
        .PP
        .RS 4
        .nf
        \&.dot \\ end

        more
        .fi
        .RE
        "#);
    }
}
