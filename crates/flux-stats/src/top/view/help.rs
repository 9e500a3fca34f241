//! What keys do and what columns mean.

use super::table::cut;
use crate::top::keys::SORTS;
use crate::top::look::Look;
use crate::top::model::Model;
use crate::top::subject::Subject;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line as Words, Span};

const KEYS: [(&str, &str); 9] = [
    ("Up Down", "PgUp PgDn Home End: select a line; it stays so wherever it goes"),
    ("Enter", "a module by rank; a rank's modules; a module's series"),
    ("c", "the series of the selected module, and a chart"),
    ("s", "any series, by a pattern like jobs.*"),
    ("Esc", "back"),
    ("/", "only lines whose names or hosts contain a text"),
    ("< > r", "sort by the column to the left or right; reversed"),
    ("Space", "hold the picture, and go on"),
    ("q", "quit, as Ctrl-C; Ctrl-Z suspends, Ctrl-L draws anew"),
];

const COLUMNS: [(&str, &str); 11] = [
    ("WAKE/S", "turns of the module's reactor per second, summed over ranks"),
    ("WORK%", "time at work, summed over ranks: 100 is one thread without a rest"),
    ("MAX%", "the same of the busiest rank, RANK: at 100 it can do no more"),
    ("BLOCK%", "waiting inside its work (synchronous RPCs), summed over ranks"),
    ("CPU%", "of a processor, summed over ranks"),
    ("P99", "99 of 100 turns work no longer than this, since the totals began"),
    ("LONGEST", "the longest work of one turn, since the module was loaded"),
    ("SENDQ", "messages that the module has not read, on the rank with the most"),
    ("RECVQ", "messages of it that the broker has not read, likewise"),
    ("LAST 5 MIN", "work over time, each line to its own scale (1% at least)"),
    ("!", "has not come back to its reactor for longer than `stall`"),
];

pub(crate) fn draw(model: &Model, look: Look, area: Rect, buffer: &mut Buffer) {
    let columns = model.screen().columns();
    let sorts = SORTS.iter().filter(|(_, column, _)| columns.contains(column));
    let sorts: Vec<&str> = sorts.map(|&(_, _, word)| word).collect();
    let sorts = format!("sort by {}", sorts.join(" "));
    let wide = area.width >= 160;
    let row = |what: &(&'static str, &'static str)| (what.0, what.1.to_owned());
    let keys: Vec<(&str, String)> = KEYS.iter().map(row).chain([("Capitals", sorts)]).collect();
    let columns: Vec<(&str, String)> = match model.screen().subject {
        Subject::Series { .. } => Vec::new(),
        _ => COLUMNS.iter().map(row).collect(),
    };
    let mut put = |rows: &[(&str, String)], x: u16, y: u16, width: u16| {
        for ((key, what), y) in rows.iter().zip(y..area.bottom()) {
            let key = format!("{key:<11} ");
            let words = format!("{key}{what}");
            let text = cut(&words, usize::from(width), look);
            let split = text.char_indices().nth(key.chars().count()).map_or(text.len(), |(at, _)| at);
            let (key, what) = text.split_at(split);
            let line =
                Words::from(vec![Span::styled(key.to_owned(), look.key()), Span::raw(what.to_owned())]);
            buffer.set_line(x, y, &line, width);
        }
    };
    if wide {
        let half = area.width / 2;
        put(&keys, area.x, area.y + 1, half);
        put(&columns, area.x + half, area.y + 1, area.width - half);
    } else {
        put(&columns, area.x, area.y, area.width);
        put(&keys, area.x, area.y + columns.len() as u16, area.width);
    }
}
