//! The table: which columns fit, and what they look like.

use crate::hosts::Hosts;
use crate::top::lines::{Column, Key, Line, What};
use crate::top::look::Look;
use crate::top::model::Model;
use crate::top::past::Past;
use crate::top::screen::Screen;
use crate::top::subject::{PAST_S, Subject};
use ratatui::buffer::Buffer;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::style::Style;
use ratatui::text::Line as Words;
use ratatui::widgets::{Cell, Row, Table, Widget};

/// Percent from which a rank's share is a warning, and an alarm.
const BUSY: f64 = 50.0;
const FULL: f64 = 90.0;
/// Unread messages from which a queue is a warning.
const QUEUE: f64 = 1_000.0;
/// A sparkline is no longer than there are periods.
const PAST_MAX: u16 = (PAST_S / 2.0) as u16;

/// How a column is shown.
struct Spec {
    title: &'static str,
    /// The least width.
    width: u16,
    /// What is less important goes first where there is no room: the greater number.
    importance: u8,
    left: bool,
}

fn spec(column: Column, subject: &Subject) -> Spec {
    let (title, width, importance) = match (column, subject) {
        (Column::Name, Subject::Ranks(_)) => (" RANK", 7, 0),
        (Column::Name, Subject::Series { .. }) => (" SERIES", 24, 0),
        (Column::Name, _) => (" MODULE", 16, 0),
        (Column::Max, Subject::Series { .. }) => ("MAX", 9, 2),
        (Column::Max, _) => ("MAX%", 6, 0),
        (Column::Work, _) => ("WORK%", 6, 0),
        (Column::Busiest, _) => ("RANK", 5, 2),
        (Column::Wakeups, _) => ("WAKE/S", 6, 1),
        (Column::Blocked, _) => ("BLOCK%", 6, 1),
        (Column::Longest, _) => ("LONGEST", 7, 3),
        (Column::Cpu, _) => ("CPU%", 5, 3),
        (Column::Sendq, _) => ("SENDQ", 6, 4),
        (Column::Past, _) => ("LAST 5 MIN", 8, 5),
        (Column::P99, _) => ("P99", 6, 6),
        (Column::Recvq, _) => ("RECVQ", 6, 7),
        (Column::Host, _) => ("HOST", 8, 8),
        (Column::Kind, _) => ("TYPE", 7, 5),
        (Column::Value, _) => ("TOTAL", 9, 0),
        (Column::Rate, _) => ("RATE", 10, 1),
    };
    let left = matches!(column, Column::Name | Column::Host | Column::Kind | Column::Past);
    Spec { title, width, importance, left }
}

/// The title of a column.
pub(crate) fn title(column: Column, subject: &Subject) -> &'static str {
    spec(column, subject).title.trim()
}

/// The columns that fit into `width`, and how wide they are.
fn columns(screen: &Screen, lines: &[Line], hosts: &Hosts, width: u16) -> Vec<(Column, u16)> {
    let subject = &screen.subject;
    let no_host =
        hosts.is_one() || matches!(subject, Subject::Rank(_) | Subject::Series { rank: Some(_), .. });
    let no_rank = matches!(subject, Subject::Series { rank: Some(_), .. });
    let wanted = screen.columns().iter().copied().filter(|column| match column {
        Column::Host => !no_host,
        Column::Busiest | Column::Max => !no_rank,
        _ => true,
    });
    let mut by_importance: Vec<(usize, Column)> = wanted.enumerate().collect();
    by_importance.sort_by_key(|&(place, column)| {
        let importance = if column == screen.order.column { 0 } else { spec(column, subject).importance };
        (importance, place)
    });
    let mut left = width;
    let mut kept = Vec::new();
    for (place, column) in by_importance {
        let needed = spec(column, subject).width + u16::from(!kept.is_empty());
        if needed <= left {
            left -= needed;
            kept.push((place, column, spec(column, subject).width));
        }
    }
    kept.sort_by_key(|&(place, ..)| place);
    // What is left goes to names, hosts and the past, in this order, as far as they can use it.
    let longest =
        |text: fn(&Line) -> &str| lines.iter().map(|line| text(line).chars().count()).max().unwrap_or(0);
    let useful = [
        (Column::Name, longest(|line| &line.name) as u16 + 1),
        (Column::Host, longest(|line| &line.host) as u16),
        (Column::Past, PAST_MAX),
    ];
    for (column, useful) in useful {
        if let Some((_, _, width)) = kept.iter_mut().find(|(_, of, _)| *of == column) {
            let more = useful.saturating_sub(*width).min(left);
            *width += more;
            left -= more;
        }
    }
    kept.into_iter().map(|(_, column, width)| (column, width)).collect()
}

/// Draws the lines around the selected one.
pub(crate) fn draw(model: &Model, lines: &[Line], look: Look, area: Rect, buffer: &mut Buffer) {
    let screen = model.screen();
    let columns = columns(screen, lines, &model.hosts, area.width);
    let height = usize::from(area.height.saturating_sub(1));
    let selected = model.place(lines);
    // The selected line is in the middle, but at the ends.
    let first = selected.unwrap_or(0).saturating_sub(height / 2).min(lines.len().saturating_sub(height));
    let now = model.whole().map_or(0.0, |whole| whole.time);
    let shown = lines.iter().enumerate().skip(first).take(height);
    let rows = shown.map(|(place, line)| {
        let cells = columns.iter().map(|&(column, width)| {
            let past = screen.pasts.get(&line.key);
            cell(line, column, width, past.map(|past| (past, now)), look)
        });
        let style = match line.stalled() {
            Some(_) => look.alarm(),
            None => Style::new(),
        };
        let style = if Some(place) == selected { style.patch(look.selected()) } else { style };
        Row::new(cells).style(style)
    });
    let header = columns.iter().map(|&(column, width)| {
        let Spec { title, left, .. } = spec(column, &screen.subject);
        let title = if title.len() > usize::from(width) { title.trim_start_matches("LAST ") } else { title };
        let style = if column == screen.order.column { look.sorted() } else { Style::new() };
        Cell::new(Words::styled(title, style).alignment(alignment(left)))
    });
    let widths = columns.iter().map(|&(_, width)| Constraint::Length(width));
    Table::new(rows, widths)
        .header(Row::new(header).style(look.header()))
        .column_spacing(1)
        .render(area, buffer);
}

fn alignment(left: bool) -> Alignment {
    if left { Alignment::Left } else { Alignment::Right }
}

fn cell<'a>(line: &Line, column: Column, width: u16, past: Option<(&Past, f64)>, look: Look) -> Cell<'a> {
    let width = usize::from(width);
    let (text, style) = match column {
        Column::Past => {
            let text = past.map(|(past, now)| sparkline(past, now, width, look)).unwrap_or_default();
            (text, look.past())
        }
        Column::Name => {
            let mark = if line.stalled().is_some() { '!' } else { ' ' };
            (format!("{mark}{}", line.name), Style::new())
        }
        _ => (line.text(column), severity(line, column, look)),
    };
    let left = matches!(column, Column::Name | Column::Host | Column::Kind | Column::Past);
    Cell::new(Words::styled(cut(&text, width, look), style).alignment(alignment(left)))
}

/// Text that fits, with a mark where it was cut.
pub(crate) fn cut(text: &str, width: usize, look: Look) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain([look.cut()]).collect()
}

fn severity(line: &Line, column: Column, look: Look) -> Style {
    let What::Work(work) = &line.what else { return Style::new() };
    // Of a rank there is no other than its own.
    let share = match (column, &line.key) {
        (Column::Max | Column::Busiest, _) => work.max,
        (Column::Work, Key::Rank(_)) => work.work,
        (Column::Blocked, _) => {
            return if work.blocked >= Some(BUSY) { look.warning() } else { Style::new() };
        }
        (Column::Sendq, _) => return if work.sendq >= Some(QUEUE) { look.warning() } else { Style::new() },
        (Column::Recvq, _) => return if work.recvq >= Some(QUEUE) { look.warning() } else { Style::new() },
        _ => None,
    };
    match share {
        Some(share) if share >= FULL => look.alarm(),
        Some(share) if share >= BUSY => look.warning(),
        _ => Style::new(),
    }
}

/// The last minutes, scaled to their highest; of one percent at least, so that what is idle looks idle.
fn sparkline(past: &Past, now: f64, width: usize, look: Look) -> String {
    let cells = past.cells(now, PAST_S, width);
    let highest = cells.iter().flatten().fold(1.0_f64, |highest, &rate| highest.max(rate));
    let levels = look.levels();
    let level = |rate: f64| levels[((rate.max(0.0) / highest * 7.0).round() as usize).min(7)];
    cells.into_iter().map(|cell| cell.map_or(' ', level)).collect()
}
