//! The last line: what is being typed, else keys.

use super::head::Parts;
use super::table::title;
use crate::top::lines::Line;
use crate::top::look::Look;
use crate::top::model::{Model, Purpose};
use crate::top::subject::Subject;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line as Words, Span};

pub(crate) fn draw(model: &Model, lines: &[Line], look: Look, area: Rect, buffer: &mut Buffer) {
    let words = match &model.typing {
        Some(typing) => {
            let asked = match typing.purpose {
                Purpose::Filter { .. } => "names that contain: ",
                Purpose::Pattern => "series like (jobs.*, modules.kvs.**): ",
            };
            let cursor = Span::styled(" ", look.header());
            Words::from(vec![Span::styled(asked, look.title()), Span::raw(typing.text.clone()), cursor])
        }
        None => keys(model, lines, look, area.width),
    };
    buffer.set_line(area.x, area.y, &words, area.width);
}

fn keys(model: &Model, lines: &[Line], look: Look, width: u16) -> Words<'static> {
    let screen = model.screen();
    let mut parts = Parts::new();
    let mut key = |key: &'static str, what: &'static str| {
        parts.spans(vec![Span::styled(key, look.key()), Span::styled(format!(" {what}"), look.faint())]);
    };
    if model.help {
        key("Esc", "back");
        return parts.fit(width);
    }
    key("q", "quit");
    key("?", "help");
    match screen.subject {
        Subject::Modules => key("Enter", "ranks"),
        Subject::Ranks(_) => key("Enter", "modules"),
        Subject::Rank(_) => key("Enter", "chart"),
        Subject::Series { .. } => {}
    }
    if matches!(screen.subject, Subject::Modules | Subject::Ranks(_)) {
        key("c", "chart");
    }
    if model.path().count() > 1 {
        key("Esc", "back");
    }
    key("/", "filter");
    key("Space", "hold");
    let way = if screen.order.reversed { ", reversed" } else { "" };
    parts.spans(vec![
        Span::styled("< >", look.key()),
        Span::styled(format!(" by {}{way}", title(screen.order.column, &screen.subject)), look.faint()),
    ]);
    if !screen.filter.is_empty() {
        parts.add(format!("only \"{}\": {}", screen.filter, lines.len()), look.warning());
    }
    parts.fit(width)
}
