//! Delay of a restart. Grows with the number of recent restarts.

use std::time::Duration;

/// Exponential delay with jitter, so that children that crashed together do not restart together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Delay of the first restart.
    pub min: Duration,
    /// Maximum delay, including jitter.
    pub max: Duration,
    /// Growth from one restart to the next.
    pub factor: u32,
    /// Maximum deviation in both directions, in percent. More than 100 counts as 100.
    pub jitter_percent: u32,
}

impl Backoff {
    /// Returns the delay of the next restart after `recent` restarts in the window. `random` is any number
    /// that differs between children.
    #[must_use]
    pub fn delay(&self, recent: u32, random: u64) -> Duration {
        let growth = self.factor.saturating_pow(recent);
        let delay = self.min.saturating_mul(growth).min(self.max);

        // Between -jitter and +jitter percent.
        let jitter = self.jitter_percent.min(100);
        let step = u32::try_from(random % u64::from(2 * jitter + 1)).unwrap_or(jitter);
        // Divide by 100 first, so that the product cannot overflow.
        (delay / 100).saturating_mul(100 - jitter + step).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SESSION_WORKER;

    #[test]
    fn delays_double_from_the_least_to_the_most() {
        let plain = Backoff { jitter_percent: 0, ..SESSION_WORKER.backoff };
        let delays: Vec<u128> = (0..10).map(|n| plain.delay(n, 7).as_millis()).collect();
        assert_eq!(delays, [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
        assert_eq!(plain.delay(u32::MAX, u64::MAX), plain.max);
    }

    #[test]
    fn jitter_stays_within_its_share_and_uses_all_of_it() {
        let delays: Vec<u128> =
            (0..21).map(|random| SESSION_WORKER.backoff.delay(0, random).as_millis()).collect();
        assert_eq!(delays, (180..=220).step_by(2).collect::<Vec<_>>());
        let longest = (0..21).map(|random| SESSION_WORKER.backoff.delay(20, random)).max();
        assert_eq!(longest, Some(SESSION_WORKER.backoff.max));
    }

    #[test]
    fn extreme_numbers_do_not_overflow() {
        let extreme = Backoff {
            min: Duration::MAX,
            max: Duration::MAX,
            factor: u32::MAX,
            jitter_percent: 500,
        };
        assert!(extreme.delay(u32::MAX, u64::MAX) <= Duration::MAX);
    }
}
