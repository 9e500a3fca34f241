//! A terminal on which an answer takes the place of the one before.

use rustix::termios::{isatty, tcgetwinsize};
use std::io::stdout;

/// Lines and columns of standard output's window; `None`: it is none.
fn window() -> Option<(usize, usize)> {
    let out = stdout();
    if !isatty(&out) {
        return None;
    }
    let size = tcgetwinsize(&out).ok()?;
    let (rows, columns) = (usize::from(size.ws_row), usize::from(size.ws_col));
    (rows > 2 && columns > 0).then_some((rows, columns))
}

/// What to write so that `text` stands where the last one stood; elsewhere it follows after an empty line.
pub(super) fn next(text: &str, first: bool) -> String {
    match window() {
        Some((rows, columns)) => redrawn(text, rows, columns),
        None if first => text.to_owned(),
        None => format!("\n{text}"),
    }
}

/// From the upper left corner, each line to its end, and nothing below; lines that do not fit are counted, and those that
/// are too long are cut, since a line that goes on in the next would push others out.
fn redrawn(text: &str, rows: usize, columns: usize) -> String {
    const HOME: &str = "\x1b[H";
    const CLEAR_LINE: &str = "\x1b[K";
    const CLEAR_BELOW: &str = "\x1b[J";
    let all = text.lines().count();
    let fits = if all < rows { all } else { rows - 2 };
    let mut out = HOME.to_owned();
    for line in text.lines().take(fits) {
        out.extend(line.chars().take(columns));
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
        assert_eq!(redrawn("a\nb\n", 5, 80), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
        let long = "x\n".repeat(100);
        let frame = redrawn(&long, 10, 80);
        assert_eq!(frame.matches('\n').count(), 9);
        assert!(redrawn("abcdef\n", 10, 3).contains("Habc\x1b[K\n"));
        assert!(frame.contains("… and 92 more lines"), "{frame:?}");
    }
}
