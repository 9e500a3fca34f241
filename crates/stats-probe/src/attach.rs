//! Puts the hook into libflux's GOT and takes it out again.
//!
//! One hook a process and copy of this code, counted: two modules that load the same code under different
//! names share it. Two *versions* of this code may be mapped at once, each with a hook of its own in the
//! same chain. So an entry is only ever put back while it still holds our pointer; else somebody's hook
//! lies above ours, and ours stays where it is as a plain pass-through, to be woken up by the next attach.
//! Putting it in a second time would make a ring of the two.

use std::ffi::CString;
use std::path::Path;
use std::sync::atomic::Ordering::*;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::{self, Clock, Scale};
use crate::hook::{self, EPOLL_PWAIT, EPOLL_PWAIT2, EPOLL_WAIT, HOOK, INACTIVE, REACTOR_RUN, SYMBOLS};
use crate::mapping::Mapping;
use crate::object::{self, Patch};
use crate::slots::{Table, WORKING};

/// How long the counter is calibrated at attach: within 50 ppm, good enough for the histogram.
pub(crate) const CALIBRATION: Duration = Duration::from_millis(2);

extern "C" fn after_fork() {
    HOOK.working.store(INACTIVE, Relaxed);
}

struct Installation {
    users: u32,
    generation: u32,
    anchor: usize,
    /// Entries that hold our pointer, or held it when somebody put another hook above; `was` is what we
    /// replaced.
    entries: Vec<Patch>,
    mapping: Option<Mapping>,
    scale: Option<Scale>,
    key_made: bool,
}

static INSTALLATION: Mutex<Installation> = Mutex::new(Installation {
    users: 0,
    generation: 0,
    anchor: 0,
    entries: Vec::new(),
    mapping: None,
    scale: None,
    key_made: false,
});

fn installation() -> MutexGuard<'static, Installation> {
    // Every state between two statements is one that detach can undo.
    INSTALLATION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What an attach has brought.
#[derive(Debug, Clone)]
pub(crate) struct Attached {
    pub(crate) table: &'static Table,
    pub(crate) scale: Scale,
    /// Nested waits are told apart.
    pub(crate) blocked_known: bool,
    /// Why the table cannot be read from outside, if so.
    pub(crate) private: Option<String>,
}

/// Hooks the object that holds `anchor`, the address of `flux_reactor_run`. An error says in one sentence
/// why that cannot be; nothing is changed then.
pub(crate) fn attach(anchor: usize, slots: Option<&Path>, clock: Clock) -> Result<Attached, String> {
    let mut this = installation();
    if this.users == 0 {
        this.activate(anchor, clock)?;
    } else if this.anchor != anchor {
        return Err("another libflux is hooked in this process already".into());
    }
    this.users += 1;
    let blocked_known = this.blocked_known();
    let this = &mut *this;
    match (&mut this.mapping, &this.scale) {
        (Some(mapping), Some(scale)) => {
            let table = mapping.table;
            let private = slots.and_then(|path| mapping.publish(path).err());
            Ok(Attached { table, scale: scale.clone(), blocked_known, private })
        }
        _ => Err("the slot table is missing".into()),
    }
}

/// The table of this process if its hook is active; shown at `path`, or not any more.
pub(crate) fn show(path: Option<&Path>, show: bool) -> Option<&'static Table> {
    let mut this = installation();
    if this.generation & 1 == 0 {
        return None;
    }
    let mapping = this.mapping.as_mut()?;
    match path {
        // Whoever asked sees for himself whether it worked.
        Some(path) if show => drop(mapping.publish(path)),
        Some(path) => mapping.withdraw(Some(path)),
        None => {}
    }
    Some(mapping.table)
}

/// The last detach takes the hook out.
pub(crate) fn detach() {
    let mut this = installation();
    this.users = this.users.saturating_sub(1);
    if this.users == 0 && this.generation & 1 == 1 {
        this.next_generation();
        this.restore();
        if let Some(mapping) = &mut this.mapping {
            mapping.withdraw(None);
        }
    }
}

impl Installation {
    fn activate(&mut self, anchor: usize, clock: Clock) -> Result<(), String> {
        if !self.entries.is_empty() && self.anchor != anchor {
            return Err("a hook of an earlier attach is still in another libflux".into());
        }
        object::pin(hook::replacement(EPOLL_WAIT))?;
        if !self.key_made {
            let mut key = 0;
            // SAFETY: `key` is writable; the key gets no destructor.
            if unsafe { libc::pthread_key_create(&mut key, None) } != 0 {
                return Err("the process has no pthread key left".into());
            }
            // A child of fork that does not exec shares the table but must not write into its parent's slots.
            // SAFETY: the handler stores one word; its code is never unmapped.
            unsafe { libc::pthread_atfork(None, None, Some(after_fork)) };
            HOOK.key.store(key, Relaxed);
            self.key_made = true;
        }
        if self.mapping.is_none() {
            let mapping = Mapping::create().map_err(|e| format!("slot table: {e}"))?;
            HOOK.table.store((mapping.table as *const Table).cast_mut(), Release);
            self.mapping = Some(mapping);
        }
        let use_counter = clock::use_counter(clock);
        let scale = Scale::calibrate(use_counter, CALIBRATION);
        HOOK.use_counter.store(use_counter, Relaxed);
        HOOK.scale.store(scale.per_tick(), Relaxed);
        if let Some(header) = self.mapping.as_ref().map(|m| &m.table.header) {
            header.use_counter.store(use_counter.into(), Relaxed);
            header.scale.store(scale.per_tick(), Relaxed);
        }
        self.scale = Some(scale);
        self.anchor = anchor;
        if let Err(e) = self.install(anchor) {
            self.restore();
            return Err(e);
        }
        let blocked_known = self.blocked_known();
        if let Some(header) = self.mapping.as_ref().map(|m| &m.table.header) {
            header.blocked_known.store(blocked_known.into(), Relaxed);
        }
        self.next_generation();
        Ok(())
    }

    fn blocked_known(&self) -> bool {
        self.entries.iter().any(|e| e.symbol == REACTOR_RUN)
    }

    fn install(&mut self, anchor: usize) -> Result<(), String> {
        // Where the entries lead that are not bound yet; looked up before the loader's lock is taken.
        let mut unbound = [0; SYMBOLS.len()];
        for (name, address) in SYMBOLS.iter().zip(&mut unbound) {
            *address = object::default_symbol(&CString::new(*name).map_err(|e| e.to_string())?);
        }
        unbound[REACTOR_RUN] = anchor;
        let before = &self.entries;
        let mut put = Vec::new();
        let result = object::patch_imports(anchor, &SYMBOLS, |patch| {
            let ours = hook::replacement(patch.symbol);
            // Covered by another hook: we put our pointer there, and what is there now is neither ours, nor what we
            // replaced, nor the function itself (the loader bound the entry at the very moment of our writing).
            let replaced = before.iter().find(|e| e.entry == patch.entry);
            let covered = replaced.is_some_and(|e| ![e.was, unbound[patch.symbol]].contains(&patch.was));
            let real = if patch.unbound { unbound[patch.symbol] } else { patch.was };
            if patch.was == ours || covered || real == 0 {
                return None;
            }
            HOOK.real[patch.symbol].store(real, Release);
            put.push(patch);
            Some(ours)
        });
        for patch in put {
            self.entries.retain(|e| e.entry != patch.entry);
            self.entries.push(patch);
        }
        result?;
        if self.entries.iter().any(|e| matches!(e.symbol, EPOLL_WAIT | EPOLL_PWAIT | EPOLL_PWAIT2)) {
            Ok(())
        } else {
            Err("libflux does not import epoll_wait (is libev a library of its own there?)".into())
        }
    }

    /// Puts back what still holds our pointer; what another hook covers is left.
    fn restore(&mut self) {
        let mut left = self.entries.clone();
        let result = object::patch_imports(self.anchor, &SYMBOLS, |patch| {
            let place = left.iter().position(|e| e.entry == patch.entry)?;
            let (was, ours) = (left.get(place)?.was, hook::replacement(patch.symbol));
            if patch.was == ours || patch.was == was {
                left.swap_remove(place);
            }
            (patch.was == ours).then_some(was)
        });
        if result.is_ok() {
            self.entries = left;
        }
    }

    /// Odd generations are active.
    fn next_generation(&mut self) {
        self.generation = self.generation.wrapping_add(1) & hook::GENERATION_MASK;
        if let Some(mapping) = &self.mapping {
            mapping.table.header.generation.store(self.generation, Release);
        }
        let active = self.generation & 1 == 1;
        HOOK.working.store(if active { self.generation << 8 | WORKING } else { INACTIVE }, Release);
    }
}
