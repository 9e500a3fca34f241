use super::*;
use crate::top::keys::Action;
use crate::top::lines::Column;
use crate::top::sample;
use crate::top::subject::Subject;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};

const LOOK: Look = Look { color: true, unicode: true };
const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 50)];

fn model() -> Model {
    let mut model = Model::new(Column::Work, "", 0.0);
    model.take_past(&sample::past());
    model.take(&sample::answer());
    model
}

/// All pictures that there are, by name.
fn pictures() -> Vec<(&'static str, Model)> {
    let (ranks, rank) = (Subject::Ranks("kvs".into()), Subject::Rank(3));
    let mut by_rank = model();
    by_rank.act(Action::First);
    by_rank.act(Action::Down);
    by_rank.act(Action::Open);
    by_rank.take_detail(&ranks, sample::by_rank(), None);
    let mut of_rank = by_rank.clone();
    of_rank.act(Action::Last);
    of_rank.act(Action::Up);
    of_rank.act(Action::Up);
    of_rank.act(Action::Open);
    of_rank.take_detail(&rank, sample::of_rank(3), None);
    let mut series = model();
    series.act(Action::First);
    series.act(Action::Down);
    series.act(Action::OpenSeries);
    let of_kvs = Subject::Series { pattern: "modules.kvs.**".into(), rank: None };
    series.take_detail(&of_kvs, sample::series(), Some(sample::past()));
    let mut help = model();
    help.act(Action::Help);
    let mut typing = model();
    typing.act(Action::Filter);
    for c in "job".chars() {
        typing.act(Action::Type(c));
    }
    let mut lost = model();
    lost.tick(12.3);
    lost.lose("connecting to Flux: Connection refused".into());
    vec![
        ("modules", model()),
        ("by_rank", by_rank),
        ("of_rank", of_rank),
        ("series", series),
        ("help", help),
        ("typing", typing),
        ("lost", lost),
    ]
}

fn buffer(model: &Model, look: Look, (width, height): (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(model, look, frame.area(), frame.buffer_mut())).unwrap();
    terminal.backend().buffer().clone()
}

fn row(buffer: &Buffer, row: u16) -> String {
    let text: String = (0..buffer.area.width).map(|column| buffer[(column, row)].symbol()).collect();
    text.trim_end().to_owned()
}

fn picture(model: &Model, look: Look, size: (u16, u16)) -> String {
    let buffer = buffer(model, look, size);
    (0..size.1).map(|number| row(&buffer, number)).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_picture_at_every_size() {
    for (name, model) in pictures() {
        for size in SIZES {
            let name = format!("{name}_{}x{}", size.0, size.1);
            insta::assert_snapshot!(name, picture(&model, LOOK, size));
        }
    }
}

#[test]
fn without_colours_nothing_has_one_and_the_same_is_told() {
    for (name, model) in pictures() {
        for size in SIZES {
            let plain = buffer(&model, Look { color: false, ..LOOK }, size);
            assert!(
                plain.content.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset),
                "{name}"
            );
            let colored = buffer(&model, LOOK, size);
            assert!(colored.content.iter().any(|cell| cell.fg != Color::Reset) || name == "help", "{name}");
            assert!(colored.content.iter().all(|cell| cell.bg == Color::Reset), "{name}");
            let symbols =
                |buffer: &Buffer| buffer.content.iter().map(|cell| cell.symbol().to_owned()).collect();
            let (plain, colored): (Vec<_>, Vec<_>) = (symbols(&plain), symbols(&colored));
            assert_eq!(plain, colored, "{name}");
        }
    }
}

#[test]
fn a_terminal_without_unicode_gets_ascii_alone() {
    for (name, model) in pictures() {
        let buffer = buffer(&model, Look { color: false, unicode: false }, (80, 24));
        assert!(buffer.content.iter().all(|cell| cell.symbol().is_ascii()), "{name}");
        // What has no ASCII likeness would be a question mark, as the key for help is.
        let marks = buffer.content.iter().filter(|cell| cell.symbol() == "?").count();
        assert!(marks <= 1, "{name}: {marks}");
    }
}

#[test]
fn a_module_that_stalls_is_red_and_marked() {
    let buffer = buffer(&model(), LOOK, (80, 24));
    let at = (0..24).find(|&number| row(&buffer, number).starts_with("!content")).unwrap();
    assert_eq!(buffer[(1, at)].fg, Color::Red);
    let head = (0..24).find(|&number| row(&buffer, number).starts_with("STALLED")).unwrap();
    assert_eq!(row(&buffer, head), "STALLED  content on rank 3 (node04) for 12.5s");
}

#[test]
fn the_selected_line_is_shown_however_far_down_it_is() {
    let mut model = model();
    model.act(Action::Last);
    let lines = model.lines();
    let last = &lines.last().unwrap().name;
    let buffer = buffer(&model, LOOK, (80, 14));
    let at = (0..14).find(|&number| row(&buffer, number).trim_start().starts_with(last.as_str())).unwrap();
    assert!(buffer[(2, at)].modifier.contains(Modifier::REVERSED));
}

#[test]
fn the_column_by_which_is_sorted_is_always_there() {
    for column in Column::MODULES.into_iter().filter(|column| column.sorts() && *column != Column::Host) {
        let model = sorted(column);
        let title = table::title(column, &Subject::Modules);
        assert!(picture(&model, LOOK, (80, 24)).contains(title), "{title}");
    }
}

fn sorted(column: Column) -> Model {
    let mut model = Model::new(column, "", 0.0);
    model.take(&sample::answer());
    model
}

#[test]
fn no_size_is_too_small() {
    for (_, model) in pictures() {
        for size in [(1, 1), (5, 3), (20, 5), (40, 8), (79, 6), (300, 3)] {
            buffer(&model, LOOK, size);
        }
    }
}

#[test]
fn one_picture_as_text() {
    let plain = Look { color: false, unicode: false };
    insta::assert_snapshot!("once", text(&model(), plain, 80));
    insta::assert_snapshot!("once_wide", text(&model(), LOOK, 132));
}
