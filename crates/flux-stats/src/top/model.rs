//! What is known and what is looked at: changed by answers and by actions, and by nothing else.

use super::keys::Action;
use super::lines::{Column, Key, Line};
use super::past::Past;
use super::screen::{Held, Screen, pasts, push};
use super::subject::{Subject, Wanted};
use super::whole::{Whole, messages_past};
use super::work::Work;
use crate::answer::{Answer, Values};
use crate::hosts::Hosts;
use std::collections::BTreeMap;

/// Screens upon each other.
const SCREENS_MAX: usize = 16;
/// The least time without an answer after which that is said.
const STALE_S: f64 = 5.0;

/// Everything that a picture is made of.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    /// The last one is shown; the first is all modules.
    screens: Vec<Screen>,
    whole: Held<Whole>,
    hostlist: String,
    pub(crate) hosts: Hosts,
    pub(crate) messages: Past,
    /// The picture is held.
    pub(crate) held: bool,
    pub(crate) help: bool,
    pub(crate) typing: Option<Typing>,
    pub(crate) link: Link,
    /// How often a new answer is to be expected at least, in seconds; 0: each period.
    interval_s: f64,
    /// Lines that a page has.
    page: usize,
}

/// Text that is being typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Typing {
    pub(crate) purpose: Purpose,
    pub(crate) text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// What names of lines contain; what it was before.
    Filter { before: String },
    /// A pattern of series.
    Pattern,
}

/// How it is with the connection, by a clock that never steps.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Link {
    pub(crate) now_s: f64,
    pub(crate) heard_s: f64,
    /// Why there is none.
    pub(crate) lost: Option<String>,
}

/// What only the terminal can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Quit,
    Suspend,
    Redraw,
}

impl Model {
    pub(crate) fn new(sort: Column, filter: &str, interval_s: f64) -> Self {
        let mut modules = Screen::new(Subject::Modules);
        modules.order.column = sort;
        modules.filter = filter.to_owned();
        Model {
            screens: vec![modules],
            whole: Held::default(),
            hostlist: String::new(),
            hosts: Hosts::default(),
            messages: Past::default(),
            held: false,
            help: false,
            typing: None,
            link: Link::default(),
            interval_s,
            page: 10,
        }
    }

    /// What is shown of the instance; `None` before the first answer.
    pub(crate) fn whole(&self) -> Option<&Whole> {
        self.whole.shown()
    }

    pub(crate) fn screen(&self) -> &Screen {
        // There is always one: none but those above the first are ever taken away.
        &self.screens[self.screens.len() - 1]
    }

    fn screen_mut(&mut self) -> &mut Screen {
        let last = self.screens.len() - 1;
        &mut self.screens[last]
    }

    /// Screens below the one that is shown, the first of them first.
    pub(crate) fn path(&self) -> impl Iterator<Item = &Subject> {
        self.screens.iter().map(|screen| &screen.subject)
    }

    /// The lines that are shown, in order.
    pub(crate) fn lines(&self) -> Vec<Line> {
        static NONE: BTreeMap<String, Work> = BTreeMap::new();
        self.screen().lines(self.whole().map_or(&NONE, |whole| &whole.modules), &self.hosts)
    }

    /// Which of them is selected.
    pub(crate) fn place(&self, lines: &[Line]) -> Option<usize> {
        let selected = self.screen().selected.as_ref()?;
        lines.iter().position(|line| line.key == *selected)
    }

    /// What is to be asked beside the overview.
    pub(crate) fn wanted(&self) -> Option<Wanted> {
        let screen = self.screen();
        screen.subject.question()?;
        let charted = self.charted(&self.lines()).and_then(|line| match &line.what {
            super::lines::What::Series(series) => match series.values {
                Values::Counter { .. } | Values::Gauge { .. } | Values::Timer { .. } => {
                    Some(series.name.clone())
                }
                _ => None,
            },
            super::lines::What::Work(_) => None,
        });
        Some(Wanted { subject: screen.subject.clone(), charted })
    }

    /// The line whose history is drawn.
    pub(crate) fn charted<'l>(&self, lines: &'l [Line]) -> Option<&'l Line> {
        let is_drawn = matches!(self.screen().subject, Subject::Series { .. });
        is_drawn.then(|| lines.get(self.place(lines).unwrap_or(0))).flatten()
    }

    /// How long nothing has been heard, if that is longer than it should be.
    pub(crate) fn silent_s(&self) -> Option<f64> {
        let silent_s = self.link.now_s - self.link.heard_s;
        (self.link.lost.is_some() || silent_s > self.patience_s()).then_some(silent_s)
    }

    /// How long to wait for an answer before saying that there is none.
    pub(crate) fn patience_s(&self) -> f64 {
        let period_s = self.whole().map_or(0.0, |whole| whole.period).max(self.interval_s);
        (3.0 * period_s).max(STALE_S)
    }

    // What comes from outside.

    pub(crate) fn tick(&mut self, now_s: f64) {
        self.link.now_s = now_s;
    }

    /// What the instance remembers, on connecting.
    pub(crate) fn take_past(&mut self, answer: &Answer) {
        self.messages = messages_past(answer);
        self.screens[0].pasts = pasts(&Subject::Modules, answer);
    }

    /// The overview of a period.
    pub(crate) fn take(&mut self, answer: &Answer) {
        (self.link.heard_s, self.link.lost) = (self.link.now_s, None);
        let whole = Whole::new(answer);
        if whole.hostlist != self.hostlist {
            self.hosts = Hosts::of(Some(&whole.hostlist));
            self.hostlist.clone_from(&whole.hostlist);
        }
        for (name, work) in &whole.modules {
            if let Some(percent) = work.work.or(work.cpu) {
                push(&mut self.screens[0].pasts, Key::Module(name.clone()), whole.time, percent);
            }
        }
        if let Some(messages) = whole.messages {
            self.messages.push(whole.time, messages);
        }
        self.whole.take(whole, self.held);
    }

    /// What the lines of a screen have behind them.
    pub(crate) fn take_screen_past(&mut self, subject: &Subject, answer: &Answer) {
        self.about(subject, |screen, _| screen.take_past(answer));
    }

    /// An answer about the subject of a screen, and the history of what is drawn there.
    pub(crate) fn take_detail(&mut self, subject: &Subject, answer: Answer, chart: Option<Answer>) {
        self.about(subject, |screen, held| screen.take(answer, chart, held));
    }

    /// No answer about it, and why.
    pub(crate) fn take_trouble(&mut self, subject: &Subject, why: String) {
        self.about(subject, |screen, _| screen.trouble = Some(why));
    }

    fn about(&mut self, subject: &Subject, take: impl FnOnce(&mut Screen, bool)) {
        let held = self.held;
        // It may have been left meanwhile.
        if self.screen().subject == *subject {
            take(self.screen_mut(), held);
        }
    }

    pub(crate) fn lose(&mut self, why: String) {
        self.link.lost = Some(why);
    }

    pub(crate) fn resize(&mut self, page: usize) {
        self.page = page.max(1);
    }

    // What the user wants.

    pub(crate) fn act(&mut self, action: Action) -> Option<Effect> {
        match action {
            Action::Quit => return Some(Effect::Quit),
            Action::Suspend => return Some(Effect::Suspend),
            Action::Redraw => return Some(Effect::Redraw),
            Action::Help => self.help = !self.help,
            Action::Hold => self.hold(!self.held),
            // Whatever is asked for is behind the help.
            Action::Back if self.help => self.help = false,
            Action::Up | Action::Down | Action::PageUp | Action::PageDown | Action::First | Action::Last => {
                self.step(action)
            }
            Action::Open => self.open(),
            Action::OpenSeries => self.open_series(),
            Action::Back => self.back(),
            Action::Sort(column) => self.screen_mut().sort_by(column),
            Action::SortBeside { right } => self.screen_mut().sort_beside(right),
            Action::Reverse => {
                let order = &mut self.screen_mut().order;
                order.reversed = !order.reversed;
            }
            Action::Filter => {
                let text = self.screen().filter.clone();
                self.typing = Some(Typing { purpose: Purpose::Filter { before: text.clone() }, text });
            }
            Action::Pattern => {
                self.typing = Some(Typing { purpose: Purpose::Pattern, text: String::new() });
            }
            Action::Type(_) | Action::Rub | Action::RubAll | Action::Accept | Action::Abandon => {
                self.edit(action);
            }
        }
        None
    }

    fn hold(&mut self, held: bool) {
        self.held = held;
        if !held {
            self.whole.release();
            self.screens.iter_mut().for_each(|screen| screen.detail.release());
        }
    }

    /// Selects another line. The first key shows where one is: on the first line.
    fn step(&mut self, action: Action) {
        let lines = self.lines();
        let Some(last) = lines.len().checked_sub(1) else { return };
        let place = match (action, self.place(&lines)) {
            (Action::Last, _) => last,
            (Action::First, _) | (_, None) => 0,
            (Action::Up, Some(place)) => place.saturating_sub(1),
            (Action::PageUp, Some(place)) => place.saturating_sub(self.page),
            (Action::PageDown, Some(place)) => place + self.page,
            (_, Some(place)) => place + 1,
        };
        self.screen_mut().selected = lines.get(place.min(last)).map(|line| line.key.clone());
    }

    /// The selected line, else the first.
    fn current(&self) -> Option<Key> {
        let lines = self.lines();
        lines.get(self.place(&lines).unwrap_or(0)).map(|line| line.key.clone())
    }

    fn open(&mut self) {
        match (self.screen().subject.clone(), self.current()) {
            (Subject::Modules, Some(Key::Module(module))) => self.show(Subject::Ranks(module)),
            (Subject::Ranks(module), Some(Key::Rank(rank))) => {
                self.show(Subject::Rank(rank));
                self.screen_mut().selected = Some(Key::Module(module));
            }
            (Subject::Rank(_), Some(_)) => self.open_series(),
            _ => {}
        }
    }

    fn open_series(&mut self) {
        let (module, rank) = match (self.screen().subject.clone(), self.current()) {
            (Subject::Modules, Some(Key::Module(module))) => (module, None),
            (Subject::Rank(rank), Some(Key::Module(module))) => (module, Some(rank)),
            (Subject::Ranks(module), Some(Key::Rank(rank))) => (module, Some(rank)),
            _ => return,
        };
        self.show(Subject::Series { pattern: format!("modules.{module}.**"), rank });
        self.screen_mut().selected = Some(Key::Series(format!("modules.{module}.work_s")));
    }

    fn show(&mut self, subject: Subject) {
        if self.screens.len() < SCREENS_MAX {
            self.screens.push(Screen::new(subject));
        }
    }

    fn back(&mut self) {
        if !self.screen().filter.is_empty() {
            self.screen_mut().filter.clear();
        } else if self.screens.len() > 1 {
            self.screens.pop();
        } else {
            self.screen_mut().selected = None;
        }
    }

    fn edit(&mut self, action: Action) {
        let Some(mut typing) = self.typing.take() else { return };
        match action {
            Action::Type(c) if !c.is_control() => typing.text.push(c),
            Action::Rub => drop(typing.text.pop()),
            Action::RubAll => typing.text.clear(),
            _ => {}
        }
        match (action, &typing.purpose) {
            (Action::Abandon, Purpose::Filter { before }) => self.screen_mut().filter.clone_from(before),
            (Action::Abandon, Purpose::Pattern) => {}
            (Action::Accept, Purpose::Filter { .. }) => self.screen_mut().filter = typing.text,
            (Action::Accept, Purpose::Pattern) => {
                let pattern = typing.text.trim().to_owned();
                if !pattern.is_empty() {
                    self.show(Subject::Series { pattern, rank: None });
                }
            }
            (_, Purpose::Filter { .. }) => {
                self.screen_mut().filter.clone_from(&typing.text);
                self.typing = Some(typing);
            }
            (_, Purpose::Pattern) => self.typing = Some(typing),
        }
    }
}

#[cfg(test)]
mod tests;
