//! A terminal on which an answer takes the place of the one before.

use rustix::termios::{isatty, tcgetwinsize};
use std::io::stdout;

/// Lines of standard output's window; `None`: it is none.
fn window() -> Option<usize> {
    let out = stdout();
    if !isatty(&out) {
        return None;
    }
    tcgetwinsize(&out).ok().map(|size| usize::from(size.ws_row)).filter(|rows| *rows > 1)
}

/// What to write so that `text` stands where the last one stood; elsewhere it follows after an empty line.
pub(super) fn next(text: &str, first: bool) -> String {
    match window() {
        Some(rows) => redrawn(text, rows),
        None if first => text.to_owned(),
        None => format!("\n{text}"),
    }
}

/// From the upper left corner, each line to its end, and nothing below; what does not fit is counted.
fn redrawn(text: &str, rows: usize) -> String {
    const HOME: &str = "\x1b[H";
    const CLEAR_LINE: &str = "\x1b[K";
    const CLEAR_BELOW: &str = "\x1b[J";
    let all = text.lines().count();
    let fits = if all < rows { all } else { rows - 2 };
    let mut out = HOME.to_owned();
    for line in text.lines().take(fits) {
        out += line;
        out += CLEAR_LINE;
        out += "\n";
    }
    if fits < all {
        out += &format!("… and {} more lines (--top shows the first){CLEAR_LINE}\n", all - fits);
    }
    out + CLEAR_BELOW
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_never_scrolls() {
        assert_eq!(redrawn("a\nb\n", 5), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
        let long = "x\n".repeat(100);
        let frame = redrawn(&long, 10);
        assert_eq!(frame.matches('\n').count(), 9);
        assert!(frame.contains("… and 92 more lines"), "{frame:?}");
    }
}
