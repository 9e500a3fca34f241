//! The hook's clock: a tick counter read in user space, and its scale to nanoseconds.
//!
//! A reactor turn reads the clock twice, so the clock is most of what the hook costs. Where the
//! processor has a counter of constant rate that the kernel itself trusts as its clock source (x86 TSC,
//! the generic timer of aarch64), that counter is read directly: half the price of `clock_gettime`.
//! Else a tick is a nanosecond of CLOCK_MONOTONIC, read through the vdso.
//!
//! Counter and CLOCK_MONOTONIC drift apart (NTP slews the latter by up to 500 ppm), so [`Scale`] is
//! measured again at every sample: the nanoseconds of an interval are the counter's ticks times the ratio
//! of that very interval, and the error of a total stays below one sample's reading error for ever.

use std::time::Duration;

/// Fixed point of a scale: nanoseconds per tick times 2^32.
pub(crate) const SCALE_SHIFT: u32 = 32;
/// The scale of a clock whose tick is a nanosecond.
pub(crate) const SCALE_ONE: u64 = 1 << SCALE_SHIFT;

/// Shorter intervals are not used to measure the scale: the two clocks cannot be read at the very same
/// moment, and 1 us in 20 ms is 50 ppm.
const MIN_INTERVAL: Duration = Duration::from_millis(20);
/// A ratio further from the calibration than this (parts per thousand) is not drift: the counter has been
/// stopped, reset or migrated.
const MAX_DRIFT_PERMILLE: u64 = 2;

/// What a tick is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Clock {
    /// The processor's counter where the kernel trusts it, else [`Clock::Monotonic`].
    #[default]
    Auto,
    /// CLOCK_MONOTONIC through the vdso: a tick is a nanosecond.
    Monotonic,
    /// The processor's counter, whatever the kernel thinks of it.
    Counter,
}

/// CLOCK_MONOTONIC in nanoseconds.
#[inline(always)]
pub fn monotonic_ns() -> u64 {
    nanoseconds(libc::CLOCK_MONOTONIC)
}

/// The CPU time of the calling thread in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(libc::CLOCK_THREAD_CPUTIME_ID)
}

#[inline(always)]
fn nanoseconds(clock: libc::clockid_t) -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid, writable timespec for the duration of the call.
    unsafe { libc::clock_gettime(clock, &mut ts) };
    (ts.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(ts.tv_nsec as u64)
}

/// The processor's counter. Not ordered with the instructions around it: off by a few nanoseconds.
#[inline(always)]
pub(crate) fn counter() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86_64 processor has RDTSC; Linux leaves it enabled in user space unless the
        // thread asked for PR_TSC_SIGSEGV, which `counter_usable` excludes.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: Linux lets EL0 read CNTVCT_EL0; the instruction has no other effect.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        ticks
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        monotonic_ns()
    }
}

/// Ticks now, of the counter or of CLOCK_MONOTONIC.
#[inline(always)]
pub(crate) fn ticks(use_counter: bool) -> u64 {
    if use_counter { counter() } else { monotonic_ns() }
}

/// Decides whether the counter is read.
pub(crate) fn use_counter(wish: Clock) -> bool {
    match wish {
        Clock::Monotonic => false,
        Clock::Counter => cfg!(any(target_arch = "x86_64", target_arch = "aarch64")),
        Clock::Auto => counter_trusted(),
    }
}

/// The counter is constant and synchronous over the processors when the kernel keeps its own time by it.
#[cfg(target_arch = "x86_64")]
fn counter_trusted() -> bool {
    // It is safe in newer toolchains than the oldest that is supported.
    // SAFETY: every processor of this architecture has the instruction.
    #[allow(unused_unsafe, reason = "see above")]
    let cpuid = |leaf| unsafe { core::arch::x86_64::__cpuid(leaf) };
    let mut tsc_mode: libc::c_int = 0;
    // SAFETY: PR_GET_TSC stores one int where the argument points.
    let rc = unsafe { libc::prctl(libc::PR_GET_TSC, &mut tsc_mode as *mut libc::c_int) };
    if rc == 0 && tsc_mode == libc::PR_TSC_SIGSEGV {
        return false;
    }
    // "Invariant TSC": CPUID 8000_0007h, EDX bit 8 (Intel SDM volume 3, 18.17.1).
    let invariant = cpuid(0x8000_0000).eax >= 0x8000_0007 && cpuid(0x8000_0007).edx & (1 << 8) != 0;
    let source = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    invariant && source.is_ok_and(|s| s.trim() == "tsc")
}

/// The generic timer is constant and system-wide by architecture (Arm ARM, D12).
#[cfg(target_arch = "aarch64")]
fn counter_trusted() -> bool {
    true
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn counter_trusted() -> bool {
    false
}

/// Converts ticks to nanoseconds and follows the drift between the two clocks.
#[derive(Debug, Clone)]
pub(crate) struct Scale {
    use_counter: bool,
    /// Nanoseconds per tick, times 2^32.
    scale: u64,
    /// The calibration against which drift is judged.
    calibrated: u64,
    /// The ratio of the last interval, if it was refused as no drift.
    refused: Option<u64>,
    /// The pair of readings up to which time has been accounted, and the CLOCK_MONOTONIC time that the
    /// accounted ticks add up to.
    last_ticks: u64,
    accounted_ns: u64,
    /// How often a ratio was refused.
    pub(crate) steps: u64,
}

impl Scale {
    /// Calibrates for `duration` (it sleeps for so long when the counter is used).
    pub(crate) fn calibrate(use_counter: bool, duration: Duration) -> Self {
        let (t0, n0) = pair(use_counter);
        let scale = if use_counter {
            std::thread::sleep(duration);
            let (t1, n1) = pair(true);
            ratio(t1.wrapping_sub(t0), n1.wrapping_sub(n0)).unwrap_or(SCALE_ONE)
        } else {
            SCALE_ONE
        };
        let (last_ticks, accounted_ns) = pair(use_counter);
        Self { use_counter, scale, calibrated: scale, refused: None, last_ticks, accounted_ns, steps: 0 }
    }

    /// Nanoseconds per tick, times 2^32, as of the last [`Scale::follow`].
    pub(crate) fn per_tick(&self) -> u64 {
        self.scale
    }

    pub(crate) fn uses_counter(&self) -> bool {
        self.use_counter
    }

    pub(crate) fn now(&self) -> u64 {
        ticks(self.use_counter)
    }

    /// Measures the ratio of the interval since the last call and corrects what the totals are off by.
    pub(crate) fn follow(&mut self) {
        if self.use_counter {
            let (ticks, ns) = pair(true);
            self.follow_to(ticks, ns);
        }
    }

    fn follow_to(&mut self, ticks: u64, ns: u64) {
        let elapsed = ticks.wrapping_sub(self.last_ticks);
        let owed = ns.wrapping_sub(self.accounted_ns);
        let counted = to_ns(elapsed as i64, self.calibrated).max(0) as u64;
        if counted < MIN_INTERVAL.as_nanos() as u64 && owed < MIN_INTERVAL.as_nanos() as u64 {
            return;
        }
        let measured = ratio(elapsed, owed);
        match (measured, self.refused.take()) {
            (Some(scale), _) if is_drift(scale, self.calibrated) => self.scale = scale,
            // The same twice in a row: it has another rate now (on another host, or the calibration was disturbed).
            (Some(scale), Some(before)) if is_drift(scale, before) => {
                (self.scale, self.calibrated) = (scale, scale);
                self.steps += 1;
            }
            _ => {
                (self.scale, self.refused) = (self.calibrated, measured);
                self.steps += 1;
            }
        }
        self.last_ticks = ticks;
        self.accounted_ns = ns;
    }
}

fn is_drift(scale: u64, calibrated: u64) -> bool {
    scale.abs_diff(calibrated) <= calibrated / 1000 * MAX_DRIFT_PERMILLE
}

/// `ticks` in nanoseconds (may be negative).
pub(crate) fn to_ns(ticks: i64, scale: u64) -> i64 {
    ((ticks as i128 * scale as i128) >> SCALE_SHIFT) as i64
}

fn ratio(ticks: u64, ns: u64) -> Option<u64> {
    let scale = ((ns as u128) << SCALE_SHIFT).checked_div(ticks as u128)?;
    u64::try_from(scale).ok().filter(|s| *s > 0)
}

/// Both clocks at as nearly one moment as user space can have it: the tightest of a few tries.
fn pair(use_counter: bool) -> (u64, u64) {
    if !use_counter {
        let ns = monotonic_ns();
        return (ns, ns);
    }
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..8 {
        let before = counter();
        let ns = monotonic_ns();
        let width = counter().wrapping_sub(before);
        if width < best.0 {
            best = (width, before.wrapping_add(width / 2), ns);
        }
    }
    (best.1, best.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale_at(ticks: u64, ns: u64, scale: u64) -> Scale {
        Scale {
            use_counter: true,
            scale,
            calibrated: scale,
            refused: None,
            last_ticks: ticks,
            accounted_ns: ns,
            steps: 0,
        }
    }

    #[test]
    fn drift_of_500_ppm_never_accumulates() {
        // A 2 GHz counter; CLOCK_MONOTONIC runs 500 ppm fast for an hour, sampled every two seconds.
        let mut s = scale_at(0, 0, SCALE_ONE / 2);
        let (mut ticks, mut ns, mut total) = (0u64, 0u64, 0i64);
        for _ in 0..1800 {
            let step = 4_000_000_000u64;
            ticks += step;
            ns += 2_001_000_000;
            s.follow_to(ticks, ns);
            total += to_ns(step as i64, s.per_tick());
        }
        assert!(total.abs_diff(ns as i64) < 2 * 1800, "{total} {ns}");
        assert_eq!(s.steps, 0);
    }

    #[test]
    fn a_stopped_or_reset_counter_is_a_step_and_not_a_scale() {
        let mut s = scale_at(10_000_000_000, 0, SCALE_ONE / 2);
        s.follow_to(10_000_000_001, 5_000_000_000);
        s.follow_to(3, 6_000_000_000);
        assert_eq!(s.steps, 2);
        assert_eq!(s.per_tick(), SCALE_ONE / 2);
    }

    #[test]
    fn a_counter_of_another_rate_is_believed_at_the_second_interval() {
        let mut s = scale_at(0, 0, SCALE_ONE / 2);
        let (mut ticks, mut ns) = (0u64, 0u64);
        let mut pass = |s: &mut Scale, ticks_per_ns: u64| {
            (ticks, ns) = (ticks + ticks_per_ns * 2_000_000_000, ns + 2_000_000_000);
            s.follow_to(ticks, ns);
            (s.per_tick(), s.steps)
        };
        assert_eq!(pass(&mut s, 2), (SCALE_ONE / 2, 0));
        assert_eq!(pass(&mut s, 3), (SCALE_ONE / 2, 1));
        assert_eq!(pass(&mut s, 3), (SCALE_ONE / 3, 2));
        assert_eq!(pass(&mut s, 3), (SCALE_ONE / 3, 2));
        // One odd interval changes nothing.
        assert_eq!(pass(&mut s, 7), (SCALE_ONE / 3, 3));
        assert_eq!(pass(&mut s, 3), (SCALE_ONE / 3, 3));
    }

    #[test]
    fn counter_and_monotonic_clock_agree_over_a_real_interval() {
        let wanted = use_counter(Clock::Auto);
        let mut s = Scale::calibrate(wanted, Duration::from_millis(2));
        let (t0, n0) = pair(wanted);
        std::thread::sleep(Duration::from_millis(60));
        s.follow();
        let (t1, n1) = pair(wanted);
        let (counted, real) = (to_ns((t1 - t0) as i64, s.per_tick()), (n1 - n0) as i64);
        assert!(counted.abs_diff(real) < real as u64 / 1000, "{counted} {real}");
    }
}
