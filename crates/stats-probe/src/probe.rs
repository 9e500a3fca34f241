//! The door of the crate: start a probe, read samples, stop it.

use std::collections::HashMap;
use std::ffi::c_void;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::attach::{self, Attached};
use crate::clock::{Clock, Scale};
use crate::ledger::ReaderId;
use crate::mapping::RemoteTable;
use crate::names::{AsOf, Name};
use crate::preload;
use crate::registry::{self, Registry};
use crate::sample::{ModuleSample, Source};

/// How reactors are timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Hook libflux in this process; what cannot be hooked is read from /proc.
    #[default]
    Attach,
    /// Read what the hook of `reactor-probe.so` measures, which was preloaded into the broker. [`Mode::Attach`]
    /// does so too where it finds one.
    Preload,
    /// /proc alone: CPU time, run queue and switches; work and sleep are estimates.
    Proc,
    /// Measure nothing.
    Off,
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// The wish; [`Status::mode`] says what came of it.
    pub mode: Mode,
    /// The address of libflux's `flux_reactor_run`: the object that holds it is hooked. Null: none known.
    pub anchor: *const c_void,
    /// The broker's pid (attribute `broker.pid`). If it is not this process, nothing can be hooked.
    pub broker_pid: u32,
    /// Where the slot table shall be readable from outside (mode 0600). None: nowhere.
    pub slot_path: Option<PathBuf>,
    /// What the hook reads the time from.
    pub clock: Clock,
}

impl Options {
    /// Attach to the libflux that holds `anchor` in this process.
    pub fn attach(anchor: *const c_void) -> Self {
        let (mode, clock) = (Mode::Attach, Clock::Auto);
        Self { mode, anchor, broker_pid: std::process::id(), slot_path: None, clock }
    }
}

/// What a probe does, and what it cannot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The mode in effect.
    pub mode: Mode,
    /// Why that is not the mode wished for, in one sentence.
    pub fallback: Option<String>,
    /// Nested waits are told apart from sleep.
    pub blocked_available: bool,
    /// Why the slot table is not readable from outside, if it was to be.
    pub slots_private: Option<String>,
    /// Threads that are not timed because the table was full, of those that came since this probe started.
    pub overflow: u64,
    /// How often, since then, the processor's counter did not fit the clock (see [`Clock`]).
    pub clock_steps: u64,
}

/// Times a broker's reactors while it lives. All totals of its samples begin when it starts.
#[derive(Debug)]
pub struct Probe {
    status: Status,
    attached: bool,
    /// Where the hook's table is shown.
    shown: Option<PathBuf>,
    registry: Option<(Arc<Mutex<Registry>>, ReaderId)>,
    /// Overflow and clock steps when it started: the registry's go on from probe to probe.
    before: (u64, u64),
    started_ns: u64,
    samples: Vec<ModuleSample>,
}

fn lock(registry: &Mutex<Registry>) -> MutexGuard<'_, Registry> {
    // Totals are sums of independent steps: what a panic interrupted is at worst one look not added.
    registry.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a table is not to be seen at a path, if it is not.
fn not_shown(path: &Path) -> Option<String> {
    (!path.exists()).then(|| format!("{} cannot be made", path.display()))
}

impl Probe {
    /// Starts measuring. Never fails: what does not work is in [`Probe::status`].
    pub fn start(options: Options) -> Self {
        let own = options.broker_pid == std::process::id();
        let mut probe = Self {
            status: Status {
                mode: options.mode,
                fallback: None,
                blocked_available: false,
                slots_private: None,
                overflow: 0,
                clock_steps: 0,
            },
            attached: false,
            shown: None,
            registry: None,
            before: (0, 0),
            started_ns: crate::clock::monotonic_ns(),
            samples: Vec::new(),
        };
        if options.mode == Mode::Off {
            return probe;
        }
        let shared =
            if own { registry::own() } else { Arc::new(Mutex::new(Registry::new(options.broker_pid))) };
        let mut registry = lock(&shared);
        if matches!(options.mode, Mode::Attach | Mode::Preload) && !own {
            match RemoteTable::of_process(options.broker_pid) {
                Some(remote) => {
                    let header = &remote.table().header;
                    registry.follow_clock(header.use_counter.load(Relaxed) == 1);
                    probe.status.mode = Mode::Preload;
                    probe.status.blocked_available = header.blocked_known.load(Relaxed) == 1;
                }
                None => {
                    probe.status.mode = Mode::Proc;
                    let why = "this process is not the broker, and nothing is preloaded into that";
                    probe.status.fallback = Some(why.into());
                }
            }
        } else if matches!(options.mode, Mode::Attach | Mode::Preload) {
            match probe.hook(&options) {
                Ok((attached, source)) => {
                    probe.status.blocked_available = attached.blocked_known;
                    probe.status.slots_private = attached.private;
                    registry.use_table(attached.table, source, attached.scale);
                }
                Err(why) => {
                    probe.status.mode = Mode::Proc;
                    probe.status.fallback = Some(why);
                }
            }
        }
        registry.update();
        let reader = registry.enter();
        probe.before = (registry.overflow(), registry.clock_steps());
        drop(registry);
        probe.registry = Some((shared, reader));
        probe
    }

    /// Uses the hook that was preloaded, else attaches one.
    fn hook(&mut self, options: &Options) -> Result<(Attached, Source), String> {
        let path = options.slot_path.as_deref();
        if let Some(table) = preload::find(path, true) {
            let use_counter = table.header.use_counter.load(Relaxed) == 1;
            let attached = Attached {
                table,
                scale: Scale::calibrate(use_counter, attach::CALIBRATION),
                blocked_known: table.header.blocked_known.load(Relaxed) == 1,
                private: path.and_then(not_shown),
            };
            self.status.mode = Mode::Preload;
            self.shown = options.slot_path.clone();
            return Ok((attached, Source::Preload));
        }
        if options.mode == Mode::Preload {
            return Err("reactor-probe.so is not preloaded into the broker".into());
        }
        if options.anchor.is_null() {
            return Err("flux_reactor_run was not found in this process".into());
        }
        let attached = attach::attach(options.anchor as usize, path, options.clock)?;
        self.attached = true;
        self.shown = options.slot_path.clone();
        Ok((attached, Source::Attach))
    }

    /// Shows the table again where somebody has removed what shows it: who cleans up old files, say.
    fn show_again(&mut self) {
        let Some(path) = &self.shown else { return };
        if matches!(std::fs::symlink_metadata(path), Err(error) if error.kind() == ErrorKind::NotFound) {
            if self.attached {
                attach::show(Some(path), true)
            } else {
                preload::find(Some(path), true)
            };
            self.status.slots_private = not_shown(path);
        }
    }

    /// What is measured, and what is not and why.
    pub fn status(&self) -> Status {
        let mut status = self.status.clone();
        if let Some((registry, _)) = &self.registry {
            let registry = lock(registry);
            status.overflow = registry.overflow().saturating_sub(self.before.0);
            status.clock_steps = registry.clock_steps().saturating_sub(self.before.1);
        }
        status
    }

    /// Whether a list of the modules that are loaded would tell more than the last one: somebody has come
    /// whose name it does not tell, and whose numbers wait for that.
    pub fn wants_names(&self) -> bool {
        self.registry.as_ref().is_some_and(|(registry, _)| lock(registry).accounts.want_names())
    }

    /// The modules that are loaded, from `module.list`, and when it was asked for: restores names that the
    /// kernel cut to 15 characters and tells which process is which module.
    pub fn set_names(&mut self, modules: &[Name], as_of: AsOf) {
        if let Some((registry, _)) = &self.registry {
            lock(registry).accounts.names.set(modules, as_of);
        }
    }

    /// For the last sample: whose name is not known for certain yet is called by what is known.
    pub fn settle_names(&mut self) {
        if let Some((registry, _)) = &self.registry {
            let mut registry = lock(registry);
            registry.update();
            registry.accounts.settle_all(crate::clock::monotonic_ns());
        }
    }

    /// Reads everything: one entry a name, in the order of names, totals since this probe started. Names
    /// stay when their threads end.
    pub fn sample(&mut self) -> &[ModuleSample] {
        self.show_again();
        self.samples.clear();
        let Some((registry, reader)) = &self.registry else { return &[] };
        let mut registry = lock(registry);
        registry.update();
        let read = registry.accounts.ledger.read(*reader);
        self.samples
            .extend(read.map(|(name, named, base)| ModuleSample::new(name, named, base, self.started_ns)));
        let places: HashMap<String, usize> =
            self.samples.iter().enumerate().map(|(place, sample)| (sample.name.clone(), place)).collect();
        for (who, tid, thread) in registry.threads() {
            let place = registry.accounts.name(who).and_then(|name| places.get(name));
            if let Some(sample) = place.and_then(|place| self.samples.get_mut(*place)) {
                sample.add_thread(tid, thread, |ticks| registry.to_monotonic_ns(ticks));
            }
        }
        &self.samples
    }

    /// Takes the hook out, if no other probe of the process needs it. [`Probe::sample`] goes on with the
    /// numbers of /proc. May be called again, and is by `drop`.
    pub fn stop(&mut self) {
        if let Some(path) = self.shown.take().filter(|_| !self.attached) {
            preload::find(Some(&path), false);
        }
        if std::mem::take(&mut self.attached) {
            if let Some((registry, _)) = &self.registry {
                lock(registry).update();
            }
            attach::detach();
            self.status.mode = Mode::Proc;
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.stop();
        if let Some((registry, reader)) = &self.registry {
            lock(registry).leave(*reader);
        }
    }
}
