//! A series over time.

use crate::answer::Values;
use crate::show::{Unit, duration, number};
use crate::top::lines::{Line, What};
use crate::top::look::Look;
use crate::top::model::Model;
use crate::top::subject::CHART_S;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::symbols::Marker;
use ratatui::text::Line as Words;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Widget};

/// Draws the history of a line's series.
pub(crate) fn draw(model: &Model, line: &Line, look: Look, area: Rect, buffer: &mut Buffer) {
    let What::Series(series) = &line.what else { return };
    let now = model.screen().detail.shown().map_or(0.0, |detail| detail.time);
    let past = model.screen().chart(&line.key);
    let points: Vec<(f64, f64)> = past.map_or_else(Vec::new, |past| {
        past.recent(now, CHART_S).map(|(time, rate)| (time - now, rate)).collect()
    });
    let what = match (&series.values, Unit::of_series(series)) {
        (Values::Counter { .. }, Unit::Seconds) => "share of the time",
        (Values::Counter { .. }, _) => "per second",
        (Values::Timer { .. }, _) => "samples per second",
        (Values::Set { .. }, _) => "members, since it is looked at",
        _ => "over time",
    };
    let of = match (series.rank, &series.values) {
        (None, Values::Counter { .. } | Values::Gauge { .. }) => ", the sum over ranks",
        _ => "",
    };
    let value = |value: f64| match (&series.values, Unit::of_series(series)) {
        (Values::Counter { .. }, Unit::Seconds) => format!("{}%", number(round(value * 100.0))),
        (Values::Timer { .. } | Values::Set { .. }, _) => number(value),
        (_, unit) => unit.value(value),
    };
    let least = points.iter().map(|&(_, rate)| rate).fold(0.0, f64::min);
    let most = points.iter().map(|&(_, rate)| rate).fold(0.0, f64::max);
    let most = if most > least { most } else { least + 1.0 };
    let first = points.first().map_or(-CHART_S, |&(time, _)| time.min(-60.0));
    let title = match points.len() {
        0 => format!("{}: no history yet", line.name),
        _ => format!("{}: {what}{of}", line.name),
    };
    Words::styled(super::table::cut(&title, usize::from(area.width), look), look.title())
        .render(area, buffer);
    let data = [Dataset::default()
        .marker(if look.unicode { Marker::Braille } else { Marker::Dot })
        .graph_type(GraphType::Line)
        .style(look.past())
        .data(&points)];
    let ago = |seconds: f64| format!("{} ago", duration(-seconds));
    let below = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    Chart::new(data.to_vec())
        .x_axis(
            Axis::default().bounds([first, 0.0]).labels([ago(first), "now".to_owned()]).style(look.faint()),
        )
        .y_axis(Axis::default().bounds([least, most]).labels([value(least), value(most)]).style(look.faint()))
        .render(below, buffer);
}

/// Without the last digits of a binary fraction.
fn round(percent: f64) -> f64 {
    (percent * 1e6).round() / 1e6
}
