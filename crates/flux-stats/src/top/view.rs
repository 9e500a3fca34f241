//! The picture: a pure function from the model to a buffer of cells.

mod chart;
mod foot;
mod head;
mod help;
mod table;

use super::lines::Line;
use super::look::Look;
use super::model::Model;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::{Clear, Widget};

/// Of the body, from which height on there is room for a chart above the lines.
const CHART_FROM: u16 = 12;

/// Draws everything into `area`.
pub(crate) fn draw(model: &Model, look: Look, area: Rect, buffer: &mut Buffer) {
    let lines = model.lines();
    let head = head::head(model, look, area.width);
    let head_height = (head.len() as u16).min(area.height);
    for (row, words) in (area.y..area.y + head_height).zip(&head) {
        buffer.set_line(area.x, row, words, area.width);
    }
    if area.height > head_height {
        let row = area.bottom() - 1;
        foot::draw(model, &lines, look, Rect { y: row, height: 1, ..area }, buffer);
        let body = Rect { y: area.y + head_height, height: area.height - head_height - 1, ..area };
        draw_body(model, &lines, look, body, buffer);
        if model.help && area.height > 2 {
            let all = Rect { y: area.y + 1, height: area.height - 2, ..area };
            Clear.render(all, buffer);
            help::draw(model, look, all, buffer);
        }
    }
    if !look.unicode {
        plain(area, buffer);
    }
}

fn draw_body(model: &Model, lines: &[Line], look: Look, body: Rect, buffer: &mut Buffer) {
    let charted = model.charted(lines).filter(|_| body.height >= CHART_FROM);
    let Some(line) = charted else { return table::draw(model, lines, look, body, buffer) };
    let chart_height = body.height / 2;
    chart::draw(model, line, look, Rect { height: chart_height, ..body }, buffer);
    let below = Rect { y: body.y + chart_height, height: body.height - chart_height, ..body };
    table::draw(model, lines, look, below, buffer);
}

/// How many lines of a table a screen of that height shows.
pub(crate) fn page(height: u16) -> usize {
    const AROUND: u16 = 7;
    usize::from(height.saturating_sub(AROUND).max(1))
}

/// One picture without a terminal, as high as it needs to be, and without the keys, which nobody can press there.
pub(crate) fn text(model: &Model, look: Look, width: u16) -> String {
    let rows = head::head(model, look, width).len() + 1 + model.lines().len();
    let height = u16::try_from(rows + 1).unwrap_or(u16::MAX);
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    draw(model, look, buffer.area, &mut buffer);
    let row = |row: u16| (0..width).map(|column| buffer[(column, row)].symbol()).collect::<String>();
    (0..height - 1).map(|number| format!("{}\n", row(number).trim_end())).collect()
}

/// Only ASCII, where the terminal's character set is not known to have more.
fn plain(area: Rect, buffer: &mut Buffer) {
    for position in area.positions() {
        if let Some(cell) = buffer.cell_mut(position).filter(|cell| !cell.symbol().is_ascii()) {
            let symbol = match cell.symbol() {
                "│" => "|",
                "─" => "-",
                "└" => "+",
                "•" => "*",
                _ => "?",
            };
            cell.set_symbol(symbol);
        }
    }
}

#[cfg(test)]
mod tests;
