//! `flux stats top`: what every module does, as it goes.
//!
//! A number comes onto the screen in three steps that know nothing of each other: `feed` hears answers on threads of its
//! own, `model` is what is known and what is looked at, `view` draws that into cells. Keys come in as actions (`keys`), and
//! `terminal` alone knows of a terminal.

mod feed;
mod keys;
mod lines;
mod look;
mod model;
mod past;
#[cfg(test)]
mod sample;
mod screen;
mod subject;
mod terminal;
mod view;
mod whole;
mod work;

use crate::instance::{Ask, Error, Reach};
use crate::outcome::{Ended, Outcome, print};
use clap::Args;
use lines::Column;
use look::Look;
use model::Model;
use std::time::Duration;

/// Where nothing says how wide a line may be.
const WIDTH: u16 = 80;
/// The narrowest picture.
const WIDTH_MIN: u16 = 40;
const WIDTH_MAX: u16 = 1_000;
/// As the smallest period of the service.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Watch what every module does, as it goes
///
/// A full screen: the instance in some lines, below them a line for each module, the busiest first. Enter shows a module
/// on each rank, Enter again all modules of that rank, c the series of a module over time; ? says what keys do and
/// what columns mean.
#[derive(Args)]
pub(crate) struct Options {
    /// Print one picture as plain text, and exit; 3 if ranks are missing from it
    #[arg(long)]
    once: bool,
    /// By which column lines are sorted
    #[arg(long, value_enum, value_name = "COLUMN", default_value_t = Column::Work)]
    sort: Column,
    /// Show only modules whose names, or busiest hosts, contain TEXT
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,
    /// Renew the picture that often, such as 10s [default: once a period of the instance]
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    interval: Option<Duration>,
}

fn interval(text: &str) -> Result<Duration, String> {
    match flux::parse_duration("--interval", text) {
        Ok(interval) if interval >= INTERVAL_MIN => Ok(interval),
        _ => Err("expected a time of 0.1s or more, such as 500ms, 2s or 1m".to_owned()),
    }
}

/// The picture, once or for as long as the user likes.
pub(crate) fn run(options: &Options, reach: &Reach) -> Ended {
    let interval_s = options.interval.map_or(0.0, |interval| interval.as_secs_f64());
    let mut model = Model::new(options.sort, &options.filter, interval_s);
    if !options.once {
        return terminal::run(model, options.interval, reach);
    }
    let (past, answer) = feed::once(&reach.connect()?)?;
    model.take_past(&past);
    model.take(&answer);
    let look = Look { color: false, ..Look::from_environment() };
    print(&view::text(&model, look, width()))?;
    if answer.is_partial() { Ok(Outcome::Partial) } else { Ok(Outcome::Done) }
}

/// One picture of what plays an instance, as plain text.
pub(crate) fn picture(of: &impl Ask, width: u16) -> Result<String, Error> {
    let (past, answer) = feed::once(of)?;
    let mut model = Model::new(Column::Work, "", 0.0);
    model.take_past(&past);
    model.take(&answer);
    Ok(view::text(&model, Look { color: false, ..Look::from_environment() }, width))
}

/// How wide a line may be: as COLUMNS says, else as wide as the terminal.
fn width() -> u16 {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.trim().parse().ok());
    let terminal = || rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| size.ws_col);
    let width = columns.or_else(terminal).filter(|&columns| columns > 0).unwrap_or(WIDTH);
    width.clamp(WIDTH_MIN, WIDTH_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_a_time_that_makes_sense() {
        assert_eq!(interval("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(interval("250ms"), Ok(Duration::from_millis(250)));
        for wrong in ["0", "1ms", "-1s", "soon", ""] {
            assert!(interval(wrong).unwrap_err().contains("500ms, 2s or 1m"), "{wrong}");
        }
    }
}
