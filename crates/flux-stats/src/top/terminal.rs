//! The terminal: the only part that has one.

use super::feed::{Feed, News};
use super::keys;
use super::look::Look;
use super::model::{Effect, Model};
use super::view;
use crate::instance::Reach;
use crate::outcome::{Ended, Failure, Outcome};
use crossterm::cursor::Show;
use crossterm::event::{self, Event as Input};
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use ratatui::DefaultTerminal;
use ratatui::layout::{Position, Rect};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::io::{self, IsTerminal, stdout};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// While there is no answer, the time without one is counted that often.
const TICK: Duration = Duration::from_secs(1);

/// What can happen.
#[derive(Debug)]
enum Event {
    News(News),
    Input(Input),
    /// The terminal cannot be read any more.
    Deaf(io::Error),
    Signal(i32),
    /// One of our threads has panicked.
    Broken,
}

/// A thread's way to tell what happens; a panic tells of itself.
#[derive(Clone)]
struct Teller(Sender<Event>);

impl Teller {
    /// `false`: nobody listens any more.
    fn tell(&self, event: Event) -> bool {
        self.0.send(event).is_ok()
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        if thread::panicking() {
            self.tell(Event::Broken);
        }
    }
}

/// Full screen until the user has seen enough.
pub(crate) fn run(model: Model, interval: Option<Duration>, reach: &Reach) -> Ended {
    check()?;
    let (events, inbox) = mpsc::channel();
    let teller = Teller(events);
    listen_to_signals(teller.clone())?;
    let told = teller.clone();
    let feed = Feed::start(reach, interval, move |news| told.tell(Event::News(news)));
    let mut show = Session { model, feed, inbox, begun: Instant::now() };
    // An instance that cannot be asked is a plain line, and no screen.
    if let Some(signal) = show.first_answer()? {
        return as_by_default(signal);
    }
    let mut screen = Screen::enter()?;
    listen_to_terminal(teller);
    let ended = show.go_on(&mut screen);
    drop(screen);
    match (ended?, show.model.link.lost) {
        (Some(signal), _) => as_by_default(signal),
        (None, Some(why)) => Err(Failure::Failed(format!("the instance was lost: {why}"))),
        (None, None) => Ok(Outcome::Done),
    }
}

/// Ends as if nobody had caught the signal, so that who sent it sees what it did.
fn as_by_default(signal: i32) -> Ended {
    emulate_default_handler(signal)?;
    Ok(Outcome::Done)
}

/// Whether there is a terminal that has a full screen.
fn check() -> Result<(), Failure> {
    let refused =
        |why: &str| Err(Failure::Failed(format!("{why}: `flux stats top --once` prints one picture")));
    if !stdout().is_terminal() {
        return refused("standard output is no terminal");
    }
    match std::env::var("TERM").unwrap_or_default().as_str() {
        "" => refused("TERM is not set, so that nothing is known of this terminal"),
        "dumb" => refused("TERM=dumb: this terminal has no full screen"),
        _ => Ok(()),
    }
}

fn listen_to_signals(teller: Teller) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP])?;
    thread::spawn(move || {
        for signal in signals.forever() {
            if !teller.tell(Event::Signal(signal)) {
                return;
            }
        }
    });
    Ok(())
}

fn listen_to_terminal(teller: Teller) {
    thread::spawn(move || {
        loop {
            match event::read() {
                Ok(input) => {
                    if !teller.tell(Event::Input(input)) {
                        return;
                    }
                }
                Err(error) => {
                    teller.tell(Event::Deaf(error));
                    return;
                }
            }
        }
    });
}

/// The full screen; left when dropped, also by a panic.
struct Screen {
    terminal: DefaultTerminal,
    look: Look,
}

impl Screen {
    fn enter() -> io::Result<Self> {
        // It makes panics leave the screen before they are printed, too.
        let terminal = ratatui::try_init().inspect_err(|_| drop(ratatui::try_restore()))?;
        Ok(Screen { terminal, look: Look::from_environment() })
    }

    fn draw(&mut self, model: &mut Model) -> io::Result<()> {
        model.resize(view::page(self.terminal.size()?.height));
        let look = self.look;
        // Shown at once, by terminals that know how.
        queue!(stdout(), BeginSynchronizedUpdate)?;
        self.terminal.draw(|frame| view::draw(model, look, frame.area(), frame.buffer_mut()))?;
        execute!(stdout(), EndSynchronizedUpdate)
    }

    fn leave() -> io::Result<()> {
        ratatui::try_restore()?;
        execute!(stdout(), Show)
    }

    /// After others have used the terminal.
    fn come_back(&mut self) -> io::Result<()> {
        // It may have been set otherwise meanwhile, of which crossterm knows nothing.
        disable_raw_mode()?;
        enable_raw_mode()?;
        execute!(stdout(), EnterAlternateScreen)?;
        self.terminal.hide_cursor()?;
        self.clear()
    }

    /// Everything is drawn anew. (`Terminal::clear` asks the terminal where its cursor is, and would have to read the
    /// answer, which is what another thread does.)
    fn clear(&mut self) -> io::Result<()> {
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::from((Position::ORIGIN, size)))
    }

    fn suspend(&mut self) -> io::Result<()> {
        Screen::leave()?;
        emulate_default_handler(SIGTSTP)?;
        self.come_back()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // There may be no terminal any more.
        let _ = Screen::leave();
    }
}

/// How it goes on.
enum Next {
    Draw,
    /// By a signal, or as the user wants.
    End(Option<i32>),
}

struct Session {
    model: Model,
    feed: Feed,
    inbox: Receiver<Event>,
    begun: Instant,
}

impl Session {
    fn tick(&mut self) {
        self.model.tick(self.begun.elapsed().as_secs_f64());
    }

    /// Waits for the first overview; a signal that ends us may come first.
    fn first_answer(&mut self) -> Result<Option<i32>, Failure> {
        while self.model.whole().is_none() {
            let event = self.inbox.recv().map_err(|_| broken())?;
            self.tick();
            match event {
                Event::News(News::Lost(why)) => return Err(Failure::Failed(why)),
                Event::News(news) => self.hear(news),
                Event::Signal(SIGTSTP) => emulate_default_handler(SIGTSTP)?,
                Event::Signal(SIGCONT) | Event::Input(_) => {}
                Event::Signal(signal) => return Ok(Some(signal)),
                Event::Deaf(error) => return Err(error.into()),
                Event::Broken => return Err(broken()),
            }
        }
        Ok(None)
    }

    /// Until the end, and which signal it came by.
    fn go_on(&mut self, screen: &mut Screen) -> Result<Option<i32>, Failure> {
        loop {
            self.tick();
            self.feed.want(self.model.wanted());
            screen.draw(&mut self.model)?;
            let mut event = match self.inbox.recv_timeout(self.patience()) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Err(broken()),
            };
            self.tick();
            // Whatever has come meanwhile is in the next picture.
            while let Some(one) = event {
                if let Next::End(signal) = self.happen(one, screen)? {
                    return Ok(signal);
                }
                event = self.inbox.try_recv().ok();
            }
        }
    }

    /// How long a picture holds if nothing happens.
    fn patience(&self) -> Duration {
        let model = &self.model;
        match model.silent_s() {
            Some(_) => TICK,
            None => {
                let silent_s = model.link.now_s - model.link.heard_s;
                Duration::from_secs_f64((model.patience_s() - silent_s).max(0.0)) + TICK / 10
            }
        }
    }

    fn happen(&mut self, event: Event, screen: &mut Screen) -> Result<Next, Failure> {
        match event {
            Event::News(news) => self.hear(news),
            Event::Input(Input::Key(key)) => {
                let action = keys::action(key, self.model.typing.is_some());
                match action.and_then(|action| self.model.act(action)) {
                    Some(Effect::Quit) => return Ok(Next::End(None)),
                    Some(Effect::Suspend) => screen.suspend()?,
                    Some(Effect::Redraw) => screen.clear()?,
                    None => {}
                }
            }
            // A new size is found by drawing.
            Event::Input(_) => {}
            Event::Signal(SIGTSTP) => screen.suspend()?,
            Event::Signal(SIGCONT) => screen.come_back()?,
            Event::Signal(signal) => return Ok(Next::End(Some(signal))),
            Event::Deaf(error) => return Err(Failure::Failed(format!("reading the terminal: {error}"))),
            Event::Broken => return Err(broken()),
        }
        Ok(Next::Draw)
    }

    fn hear(&mut self, news: News) {
        let model = &mut self.model;
        match news {
            News::Past(answer) => model.take_past(&answer),
            News::Overview(answer) => model.take(&answer),
            News::SubjectPast(subject, answer) => model.take_screen_past(&subject, &answer),
            News::Detail(subject, answer, chart) => {
                model.take_detail(&subject, *answer, chart.map(|chart| *chart));
            }
            News::Trouble(subject, why) => model.take_trouble(&subject, why),
            News::Lost(why) => model.lose(why),
        }
    }
}

/// What the panic itself has said is above.
fn broken() -> Failure {
    Failure::Failed("a part of this program has failed; please report what is above".to_owned())
}
