//! What keys mean.

use super::lines::Column;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What the user wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Quit,
    Suspend,
    Redraw,
    Help,
    Hold,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Open,
    OpenSeries,
    Back,
    Sort(Column),
    SortBeside {
        right: bool,
    },
    Reverse,
    /// Begin to type.
    Filter,
    Pattern,
    /// While typing.
    Type(char),
    Rub,
    RubAll,
    Accept,
    Abandon,
}

/// Columns by the key that sorts by them, and a word in which that is the capital.
pub(crate) const SORTS: [(char, Column, &str); 12] = [
    ('N', Column::Name, "Name"),
    ('T', Column::Wakeups, "Turns"),
    ('W', Column::Work, "Work"),
    ('M', Column::Max, "Max"),
    ('B', Column::Blocked, "Blocked"),
    ('C', Column::Cpu, "Cpu"),
    ('P', Column::P99, "P99"),
    ('L', Column::Longest, "Longest"),
    ('S', Column::Sendq, "Sendq"),
    ('R', Column::Recvq, "Recvq"),
    ('K', Column::Busiest, "ranK"),
    ('V', Column::Value, "Value"),
];

/// What a key means, while text is being typed or not.
pub(crate) fn action(key: KeyEvent, typing: bool) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(Action::Quit),
            KeyCode::Char('z') => Some(Action::Suspend),
            KeyCode::Char('l') => Some(Action::Redraw),
            KeyCode::Char('u') if typing => Some(Action::RubAll),
            // What some terminals send for the key that rubs.
            KeyCode::Char('h') if typing => Some(Action::Rub),
            _ => None,
        };
    }
    if typing {
        return match key.code {
            KeyCode::Char(c) => Some(Action::Type(c)),
            KeyCode::Backspace => Some(Action::Rub),
            KeyCode::Enter => Some(Action::Accept),
            KeyCode::Esc => Some(Action::Abandon),
            _ => None,
        };
    }
    Some(match key.code {
        KeyCode::Char('q') => Action::Quit,
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => Action::Help,
        KeyCode::Char(' ' | 'p') => Action::Hold,
        KeyCode::Char('k') | KeyCode::Up => Action::Up,
        KeyCode::Char('j') | KeyCode::Down => Action::Down,
        KeyCode::PageUp => Action::PageUp,
        KeyCode::PageDown => Action::PageDown,
        KeyCode::Char('g') | KeyCode::Home => Action::First,
        KeyCode::Char('G') | KeyCode::End => Action::Last,
        KeyCode::Enter | KeyCode::Right => Action::Open,
        KeyCode::Char('c') => Action::OpenSeries,
        KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => Action::Back,
        KeyCode::Char('<' | ',') => Action::SortBeside { right: false },
        KeyCode::Char('>' | '.') => Action::SortBeside { right: true },
        KeyCode::Char('r') => Action::Reverse,
        KeyCode::Char('/') => Action::Filter,
        KeyCode::Char('s') => Action::Pattern,
        KeyCode::Char(c) => Action::Sort(SORTS.iter().find(|(key, ..)| *key == c)?.1),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: KeyCode, modifiers: KeyModifiers, typing: bool) -> Option<Action> {
        action(KeyEvent::new(code, modifiers), typing)
    }

    #[test]
    fn a_key_means_text_while_text_is_typed() {
        let none = KeyModifiers::NONE;
        assert_eq!(of(KeyCode::Char('q'), none, false), Some(Action::Quit));
        assert_eq!(of(KeyCode::Char('q'), none, true), Some(Action::Type('q')));
        assert_eq!(of(KeyCode::Char('W'), KeyModifiers::SHIFT, false), Some(Action::Sort(Column::Work)));
        assert_eq!(of(KeyCode::Char('x'), none, false), None);
        for typing in [false, true] {
            assert_eq!(of(KeyCode::Char('c'), KeyModifiers::CONTROL, typing), Some(Action::Quit));
            assert_eq!(of(KeyCode::Char('z'), KeyModifiers::CONTROL, typing), Some(Action::Suspend));
        }
    }

    #[test]
    fn a_key_that_sorts_means_nothing_else() {
        for (key, column, word) in SORTS {
            assert!(word.contains(key));
            assert_eq!(
                of(KeyCode::Char(key), KeyModifiers::SHIFT, false),
                Some(Action::Sort(column)),
                "{key}"
            );
        }
    }
}
