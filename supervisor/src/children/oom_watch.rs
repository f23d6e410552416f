//! Decides whether the OOM killer has probably killed a child. Used by the main thread, see [`super::spawner`].

use quackd_process::{Exit as ProcessExit, OomKills};
use quackd_supervision::Exit;
use std::time::{Duration, Instant};

/// Interval of the samples. A kill within one to two intervals before the exit of a child counts as its reason.
pub(super) const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);

/// The last samples of the kernel's number of kills for lack of memory.
#[derive(Debug)]
pub(super) struct OomWatch {
    kills: OomKills,
    previous: Option<u64>,
    last: Option<u64>,
    at: Instant,
}

impl OomWatch {
    pub(super) fn start_blocking() -> Self {
        let kills = OomKills::find_blocking();
        let now = kills.count_blocking();
        Self { kills, previous: now, last: now, at: Instant::now() }
    }

    /// Takes a sample if one is due.
    pub(super) fn sample_blocking(&mut self) {
        let since = self.at.elapsed();
        if SAMPLE_INTERVAL <= since {
            self.note(self.kills.count_blocking(), since);
            self.at = Instant::now();
        }
    }

    fn note(&mut self, kills: Option<u64>, since: Duration) {
        // No child ran for a while, so kills during that time do not count.
        self.previous = if since < 2 * SAMPLE_INTERVAL { self.last } else { kills };
        self.last = kills;
    }

    /// Returns the exit of a child that was just reaped, with its probable reason.
    pub(super) fn exit_blocking(&self, exit: ProcessExit) -> Exit {
        self.exit(exit, || self.kills.count_blocking())
    }

    fn exit(&self, exit: ProcessExit, kills: impl FnOnce() -> Option<u64>) -> Exit {
        match exit {
            ProcessExit::Code(code) => Exit::Code(code),
            ProcessExit::Signal(nix::libc::SIGKILL)
                if self.previous.zip(kills()).is_some_and(|(before, now)| before < now) =>
            {
                Exit::OutOfMemory
            }
            ProcessExit::Signal(signal) => Exit::Signal(signal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_kill_at_about_the_same_time_counts() {
        let killed = ProcessExit::Signal(nix::libc::SIGKILL);
        let mut watch = OomWatch::start_blocking();
        watch.note(Some(7), SAMPLE_INTERVAL);
        watch.note(Some(7), SAMPLE_INTERVAL);
        let of = |watch: &OomWatch, exit, kills| watch.exit(exit, || kills);
        assert_eq!(of(&watch, killed, Some(7)), Exit::Signal(9));
        assert_eq!(of(&watch, killed, None), Exit::Signal(9));
        assert_eq!(of(&watch, killed, Some(8)), Exit::OutOfMemory);
        assert_eq!(of(&watch, ProcessExit::Signal(15), Some(8)), Exit::Signal(15));
        assert_eq!(of(&watch, ProcessExit::Code(137), Some(8)), Exit::Code(137));

        // The sample just after the kill is not the reference.
        watch.note(Some(8), SAMPLE_INTERVAL);
        assert_eq!(of(&watch, killed, Some(8)), Exit::OutOfMemory);
        watch.note(Some(8), SAMPLE_INTERVAL);
        assert_eq!(of(&watch, killed, Some(8)), Exit::Signal(9));

        watch.note(Some(9), 100 * SAMPLE_INTERVAL);
        assert_eq!(of(&watch, killed, Some(9)), Exit::Signal(9));
        watch.note(None, SAMPLE_INTERVAL);
        watch.note(Some(10), SAMPLE_INTERVAL);
        assert_eq!(of(&watch, killed, Some(11)), Exit::Signal(9));
    }
}
