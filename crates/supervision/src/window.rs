//! The restart window: number of restarts in the last `period`.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Times of recent restarts. A restart expires after one period.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestartWindow {
    /// Oldest first.
    restarts: VecDeque<Instant>,
}

impl RestartWindow {
    /// Drops expired restarts and returns the number of the others.
    #[must_use]
    pub fn recent(&mut self, period: Duration, now: Instant) -> u32 {
        while self.restarts.front().is_some_and(|t| period <= now.saturating_duration_since(*t)) {
            self.restarts.pop_front();
        }
        u32::try_from(self.restarts.len()).unwrap_or(u32::MAX)
    }

    /// Like [`RestartWindow::recent`], without dropping expired restarts.
    #[must_use]
    pub fn count(&self, period: Duration, now: Instant) -> u32 {
        let is_young = |at: &&Instant| now.saturating_duration_since(**at) < period;
        u32::try_from(self.restarts.iter().filter(is_young).count()).unwrap_or(u32::MAX)
    }

    /// Records a restart. The caller checks [`RestartWindow::recent`] first and never exceeds the intensity,
    /// which bounds the size.
    pub fn record(&mut self, now: Instant) {
        self.restarts.push_back(now);
    }

    /// Drops all restarts.
    pub fn clear(&mut self) {
        self.restarts.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_counts_for_exactly_one_period() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let period = Duration::from_secs(60);
        let mut window = RestartWindow::default();
        assert_eq!(window.recent(period, at(0)), 0);
        window.record(at(0));
        window.record(at(30));
        assert_eq!(window.recent(period, at(59)), 2);
        assert_eq!(window.count(period, at(60)), 1);
        assert_eq!(window.recent(period, at(60)), 1);
        assert_eq!(window.recent(period, at(89)), 1);
        window.clear();
        assert_eq!(window.recent(period, at(89)), 0);
    }
}
