//! What the terminal can show, and how things look on it. Sixteen colours, so that the user's own hold, and no background
//! but by reversal; without colours everything is still told by a mark or a word.

use ratatui::style::{Color, Modifier, Style};
use std::env;

/// How a picture may look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) color: bool,
    /// Other than ASCII characters.
    pub(crate) unicode: bool,
}

impl Look {
    /// As the environment has it: NO_COLOR (no-color.org), and the locale's character set (setlocale(3)).
    pub(crate) fn from_environment() -> Self {
        Look::new(|name| env::var(name).ok())
    }

    fn new(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        Look {
            color: set("NO_COLOR").is_none(),
            unicode: locale.contains("utf-8") || locale.contains("utf8"),
        }
    }

    fn colored(self, color: Color, modifier: Modifier) -> Style {
        let style = Style::new().add_modifier(modifier);
        if self.color { style.fg(color) } else { style }
    }

    pub(crate) fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Names beside numbers.
    pub(crate) fn label(self) -> Style {
        self.colored(Color::Cyan, Modifier::empty())
    }

    /// What is there if one looks for it.
    pub(crate) fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(crate) fn header(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(crate) fn sorted(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
    }

    pub(crate) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD)
    }

    pub(crate) fn key(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Something is wrong.
    pub(crate) fn alarm(self) -> Style {
        self.colored(Color::Red, Modifier::BOLD)
    }

    /// Something may become wrong.
    pub(crate) fn warning(self) -> Style {
        self.colored(Color::Yellow, Modifier::BOLD)
    }

    pub(crate) fn past(self) -> Style {
        self.colored(Color::Green, Modifier::empty())
    }

    /// Eight levels, from the least on.
    pub(crate) fn levels(self) -> [char; 8] {
        if self.unicode {
            ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█']
        } else {
            ['_', '.', ':', '-', '=', '+', '*', '#']
        }
    }

    /// Where a text was cut.
    pub(crate) fn cut(self) -> char {
        if self.unicode { '…' } else { '~' }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(variables: &[(&str, &str)]) -> (bool, bool) {
        let of =
            |name: &str| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| value.to_string());
        let Look { color, unicode } = Look::new(of);
        (color, unicode)
    }

    #[test]
    fn the_environment_decides() {
        assert_eq!(look(&[("LANG", "C.UTF-8")]), (true, true));
        assert_eq!(look(&[("LANG", "en_US.utf8"), ("NO_COLOR", "1")]), (false, true));
        assert_eq!(look(&[("LANG", "C.UTF-8"), ("LC_ALL", "POSIX")]), (true, false));
        assert_eq!(look(&[("NO_COLOR", "")]), (true, false));
    }
}
