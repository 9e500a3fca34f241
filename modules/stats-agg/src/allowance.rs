//! What guests are sent. An answer that its client does not read stays in the broker's memory, of which Flux tells nobody:
//! a guest who asks for more than a reader would is made to wait.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// What a guest may be sent at once.
pub(crate) const BURST: usize = 16 << 20;
/// What it may be sent in each second after that.
pub(crate) const PER_SECOND: usize = 1 << 20;

/// What each guest has been sent, less what it may be sent by now.
#[derive(Debug, Default)]
pub(crate) struct Allowances(HashMap<u32, Sent>);

#[derive(Debug)]
struct Sent {
    bytes: f64,
    as_of: Instant,
}

impl Sent {
    fn bytes(&self, now: Instant) -> f64 {
        self.bytes - now.saturating_duration_since(self.as_of).as_secs_f64() * PER_SECOND as f64
    }
}

impl Allowances {
    /// How long a guest has to wait before it may ask again; `None`: it may ask.
    pub(crate) fn wait(&mut self, guest: u32, now: Instant) -> Option<Duration> {
        self.0.retain(|_, sent| sent.bytes(now) > 0.0);
        let beyond = self.0.get(&guest)?.bytes(now) - BURST as f64;
        (beyond > 0.0).then(|| Duration::from_secs_f64(beyond / PER_SECOND as f64))
    }

    /// It has been sent so many bytes.
    pub(crate) fn note(&mut self, guest: u32, bytes: usize, now: Instant) {
        let before = self.0.get(&guest).map_or(0.0, |sent| sent.bytes(now).max(0.0));
        self.0.insert(guest, Sent { bytes: before + bytes as f64, as_of: now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_who_was_sent_much_waits_and_others_do_not() {
        let (mut allowances, start) = (Allowances::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        for _ in 0..4 {
            assert_eq!(allowances.wait(7, start), None);
            allowances.note(7, BURST / 3, start);
        }
        let wait = allowances.wait(7, start).unwrap().as_secs_f64();
        assert!((wait - 16.0 / 3.0).abs() < 1e-5, "{wait}");
        assert_eq!(allowances.wait(8, start), None);
        assert!(allowances.wait(7, after(5)).is_some());
        assert_eq!(allowances.wait(7, after(6)), None);
        // A steady reader never waits.
        for second in 6..100 {
            allowances.note(7, PER_SECOND, after(second));
            assert_eq!(allowances.wait(7, after(second + 1)), None);
        }
        assert_eq!(allowances.wait(7, after(1000)), None);
        assert!(allowances.0.is_empty());
    }
}
