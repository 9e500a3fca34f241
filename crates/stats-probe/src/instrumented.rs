//! An [`Instrument`] on the reactor of a Flux handle.

use std::cell::RefCell;
use std::rc::Rc;

use flux::{Handle, Watcher};

use crate::instrument::{Instrument, ReactorSample};

/// The account of one handle's reactor, from when it was instrumented until this is dropped.
pub struct Instrumented {
    instrument: Rc<RefCell<Instrument>>,
    _watchers: [Watcher; 2],
}

/// Times the reactor of this handle by watchers of its own, without any hook: for authors of modules and of
/// programs who want their own numbers, wherever they run.
///
/// ```no_run
/// # fn load(handle: &flux::Handle) -> Result<(), flux::Error> {
/// let turns = stats_probe::instrument(handle)?;
/// // … later, from a callback:
/// let so_far = turns.sample();
/// println!("{} wakeups, {} ns of work", so_far.wakeups, so_far.work_ns);
/// # Ok(()) }
/// ```
pub fn instrument(handle: &Handle) -> Result<Instrumented, flux::Error> {
    let instrument = Rc::new(RefCell::new(Instrument::new()));
    let (begins, ends) = (instrument.clone(), instrument.clone());
    // Busy only in a callback of its own, which runs no reactor.
    let begins = move || drop(begins.try_borrow_mut().map(|mut i| i.prepare()));
    let ends = move || drop(ends.try_borrow_mut().map(|mut i| i.check()));
    Ok(Instrumented { _watchers: handle.around_waits(begins, ends)?, instrument })
}

impl Instrumented {
    /// The account until now.
    pub fn sample(&self) -> ReactorSample {
        self.instrument.borrow_mut().sample()
    }
}

impl std::fmt::Debug for Instrumented {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Instrumented").field(&self.instrument.borrow()).finish()
    }
}
