//! The loop monitor of the actors' thread: measures how late timers fire, and detects suspends, stops of the process
//! and steps of the wall clock.
//!
//! The wall clock is only used to report steps and to decide whether file ages are reliable
//! ([`LoopMonitor::ages_reliable_since`], which does not wait for a tick). After a suspend or a stop, all timers of
//! children restart ([`crate::children::ResetTimers`]), and the log and `doctor` report it.

use crate::clock::now_text;
use crate::platform::BOOT_CLOCK;
use quackd_protocol::client::{LoopLag, PauseInfo, PauseKind};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime};

/// Tick interval while clients or workers exist, and otherwise.
const TICK_INTERVAL: Duration = Duration::from_millis(500);
const IDLE_TICK_INTERVAL: Duration = Duration::from_secs(2);

/// Time over which the delay of timers is measured. Older ticks do not count.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Maximum number of recorded ticks: those within [`REMEMBERED`], and a margin.
const MAX_SAMPLES: usize = 256;

/// Shorter suspends and clock steps are ignored.
const MIN_GAP: Duration = Duration::from_secs(1);

/// A tick that is later than this means that the process was stopped. A busy process is less late.
const STALL_THRESHOLD: Duration = Duration::from_millis(2500);

/// After a larger forward step of the clock, files look older than they are.
const CLOCK_JUMP_MS: i64 = 60 * 60 * 1000;

/// Maximum number of recorded pauses.
const MAX_CLOCK_EVENTS: usize = 8;

/// Readings of the clocks. Each has its own origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ClockSample {
    /// Does not advance during a suspend. Timers and deadlines use it.
    running: Duration,
    /// Advances during a suspend.
    boot: Duration,
    /// Wall clock, which users may set.
    wall: Duration,
}

/// Reason for an unexpected gap between two ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClockEvent {
    /// The machine was suspended.
    Suspended(Duration),
    /// The process was stopped.
    Stopped(Duration),
    /// The wall clock was set. In milliseconds, negative if it was set back.
    Clock(i64),
}

/// Compares each tick with the previous one. Does no I/O.
#[derive(Debug)]
struct GapDetector {
    /// Clocks at the last tick.
    last: ClockSample,
    /// Clocks at the last check for a clock step, which may be later than `last`.
    looked: ClockSample,
}

impl GapDetector {
    fn since(now: ClockSample) -> Self {
        Self { last: now, looked: now }
    }

    /// Returns the events since the last tick, which was due `expected` ago: a suspend or a stop, and a step of the
    /// clock. Both may occur together.
    fn beat(&mut self, now: ClockSample, expected: Duration) -> [Option<ClockEvent>; 2] {
        let last = std::mem::replace(&mut self.last, now);
        let ran = now.running.saturating_sub(last.running);
        // The clock of timers stops during a suspend, the other one does not.
        let slept = now.boot.saturating_sub(last.boot).saturating_sub(ran);
        let late = ran.saturating_sub(expected);

        let gap = match (MIN_GAP <= slept, STALL_THRESHOLD <= late) {
            (true, _) => Some(ClockEvent::Suspended(slept)),
            (false, true) => Some(ClockEvent::Stopped(late)),
            (false, false) => None,
        };
        [gap, self.step(now)]
    }

    /// Returns the step of the clock since the last call. Only the first caller gets it.
    fn step(&mut self, now: ClockSample) -> Option<ClockEvent> {
        let last = std::mem::replace(&mut self.looked, now);
        // A step is the part of the change of the wall clock that did not pass as time.
        let step = signed_ms(now.wall)
            - signed_ms(last.wall)
            - (signed_ms(now.boot) - signed_ms(last.boot));
        (signed_ms(MIN_GAP) <= step.abs()).then_some(ClockEvent::Clock(step))
    }
}

fn signed_ms(time: Duration) -> i64 {
    // A quarter, so that sums of several do not overflow.
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX / 4)
}

/// Delay of the last ticks. Does no I/O.
#[derive(Debug, Default)]
struct LagSamples {
    /// Time and delay of each tick.
    beats: VecDeque<(Instant, Duration)>,
}

impl LagSamples {
    fn note(&mut self, now: Instant, late: Duration) {
        if MAX_SAMPLES <= self.beats.len() {
            self.beats.pop_front();
        }
        self.beats.push_back((now, late));
    }

    fn describe(&self, now: Instant) -> LoopLag {
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) <= REMEMBERED;
        let recent = self.beats.iter().filter(|(at, _)| is_recent(at));
        let mut late: Vec<Duration> = recent.map(|(_, late)| *late).collect();
        late.sort_unstable();

        let us = |late: Option<&Duration>| {
            late.map_or(0, |late| u64::try_from(late.as_micros()).unwrap_or(u64::MAX))
        };

        // The smallest value that is not below 99% of the values.
        let rank = (late.len() * 99).div_ceil(100).saturating_sub(1);
        LoopLag { max_us: us(late.last()), p99_us: us(late.get(rank)), samples: late.len() }
    }
}

/// State of the loop monitor. One instance per daemon, on the actors' thread.
#[derive(Debug)]
pub(crate) struct LoopMonitor {
    /// Origin of the clock that does not advance during a suspend.
    began: Instant,
    gaps: RefCell<GapDetector>,
    lateness: RefCell<LagSamples>,
    pauses: RefCell<VecDeque<PauseInfo>>,
    /// When the clock was last set forward by more than [`CLOCK_JUMP_MS`].
    jumped: Cell<Option<Instant>>,
}

impl LoopMonitor {
    /// Starts with the current clock readings.
    pub(crate) fn new() -> Self {
        let began = Instant::now();
        Self {
            began,
            gaps: RefCell::new(GapDetector::since(clocks(began))),
            lateness: RefCell::default(),
            pauses: RefCell::default(),
            jumped: Cell::default(),
        }
    }

    /// Returns the delay of the thread's timers in the last minute.
    pub(crate) fn lag(&self) -> LoopLag {
        self.lateness.borrow().describe(Instant::now())
    }

    /// Returns the recorded pauses, oldest first.
    pub(crate) fn pauses(&self) -> Vec<PauseInfo> {
        self.pauses.borrow().iter().cloned().collect()
    }

    /// Returns the time of the last large forward step of the clock. Includes a step since the last
    /// tick. Files that look older than the time since then may be younger.
    pub(crate) fn ages_reliable_since(&self) -> Option<Instant> {
        self.check_step(clocks(self.began));
        self.jumped.get()
    }

    /// Waits until the next tick and evaluates it. Returns whether the process or the machine stood still since the
    /// last tick, so that deadlines must restart.
    pub(crate) async fn tick(&self, is_used: bool) -> bool {
        let every = if is_used { TICK_INTERVAL } else { IDLE_TICK_INTERVAL };
        let due = Instant::now() + every;
        tokio::time::sleep_until(due.into()).await;

        let now = Instant::now();
        let late = now.saturating_duration_since(due);
        self.lateness.borrow_mut().note(now, late);

        let pauses = self.gaps.borrow_mut().beat(clocks(self.began), every);
        let mut stood_still = false;
        for pause in pauses.into_iter().flatten() {
            self.note(pause);
            // Deadlines do not use the wall clock.
            stood_still |= !matches!(pause, ClockEvent::Clock(_));
        }
        stood_still
    }

    /// Checks for a clock step between two ticks.
    fn check_step(&self, now: ClockSample) {
        let step = self.gaps.borrow_mut().step(now);
        if let Some(step) = step {
            self.note(step);
        }
    }

    /// Records and logs a pause.
    fn note(&self, pause: ClockEvent) {
        if matches!(pause, ClockEvent::Clock(ms) if CLOCK_JUMP_MS < ms) {
            self.jumped.set(Some(Instant::now()));
        }

        let (kind, ms) = match pause {
            ClockEvent::Clock(ms) => {
                tracing::info!(ms, "wall clock was set, deadlines unchanged");
                (PauseKind::Clock, ms)
            }
            ClockEvent::Suspended(time) => {
                let slept_s = time.as_secs();
                tracing::warn!(slept_s, "resumed from suspend, deadlines restarted");
                (PauseKind::Suspended, signed_ms(time))
            }
            ClockEvent::Stopped(time) => {
                let stopped_s = time.as_secs();
                tracing::warn!(stopped_s, "resumed after a stop, deadlines restarted");
                (PauseKind::Stopped, signed_ms(time))
            }
        };

        let mut pauses = self.pauses.borrow_mut();
        if MAX_CLOCK_EVENTS <= pauses.len() {
            pauses.pop_front();
        }
        pauses.push_back(PauseInfo { at: now_text(), kind, ms });
    }
}

fn clocks(began: Instant) -> ClockSample {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let running = began.elapsed();
    ClockSample { running, boot: boot(wall), wall }
}

/// Returns the time since the machine was started, including suspends. Independent of the wall
/// clock. Without the clock, a step of the wall clock counts as a suspend, which only extends
/// deadlines.
fn boot(wall: Duration) -> Duration {
    nix::time::clock_gettime(BOOT_CLOCK).map_or(wall, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Clocks after a time of running, a suspend, and a step of the wall clock.
    fn clocks_at(ran: Duration, slept: Duration, step: i64) -> ClockSample {
        let begin = Duration::from_secs(1_000_000_000);
        let boot = ran + slept;
        let wall = (begin + boot).checked_add_signed_ms(step);
        ClockSample { running: ran, boot, wall }
    }

    trait AddMs {
        fn checked_add_signed_ms(self, ms: i64) -> Duration;
    }

    impl AddMs for Duration {
        fn checked_add_signed_ms(self, ms: i64) -> Duration {
            let step = Self::from_millis(ms.unsigned_abs());
            if ms < 0 { self - step } else { self + step }
        }
    }

    #[test]
    fn sleep_stop_and_a_set_clock_are_told_apart_and_nothing_else_is_told() {
        let mut gaps = GapDetector::since(clocks_at(SECOND, Duration::ZERO, 0));
        let hour = 3_600_000;
        for (now, expected) in [
            // On time, and slightly late.
            (clocks_at(2 * SECOND, Duration::ZERO, 0), None),
            (clocks_at(5 * SECOND, Duration::ZERO, 0), None),
            // The machine was suspended for an hour: timers did not advance.
            (clocks_at(6 * SECOND, 3600 * SECOND, 0), Some(ClockEvent::Suspended(3600 * SECOND))),
            (clocks_at(7 * SECOND, 3600 * SECOND, 0), None),
            // The process was stopped for a minute: timers advanced.
            (clocks_at(68 * SECOND, 3600 * SECOND, 0), Some(ClockEvent::Stopped(60 * SECOND))),
            // The user set the clock back by an hour, and forward by two.
            (clocks_at(69 * SECOND, 3600 * SECOND, -hour), Some(ClockEvent::Clock(-hour))),
            (clocks_at(70 * SECOND, 3600 * SECOND, -hour), None),
            (clocks_at(71 * SECOND, 3600 * SECOND, hour), Some(ClockEvent::Clock(2 * hour))),
            // Slewing is not a step.
            (clocks_at(72 * SECOND, 3600 * SECOND, hour + 500), None),
        ] {
            let found = gaps.beat(now, SECOND);
            assert_eq!(found.into_iter().flatten().next(), expected, "{now:?}");
            assert!(found.iter().flatten().count() <= 1, "{now:?}: {found:?}");
        }
        // Set during a suspend, or while the process was stopped: both are reported.
        let found = gaps.beat(clocks_at(73 * SECOND, 7200 * SECOND, 0), SECOND);
        let slept = Some(ClockEvent::Suspended(3600 * SECOND));
        assert_eq!(found, [slept, Some(ClockEvent::Clock(-hour - 500))]);
        let found = gaps.beat(clocks_at(99 * SECOND, 7200 * SECOND, hour), SECOND);
        assert_eq!(found, [Some(ClockEvent::Stopped(25 * SECOND)), Some(ClockEvent::Clock(hour))]);
    }

    #[test]
    fn a_clock_that_is_set_between_two_beats_is_seen_by_who_looks_and_told_once() {
        let mut gaps = GapDetector::since(clocks_at(SECOND, Duration::ZERO, 0));
        let hour = 3_600_000;
        let set = clocks_at(SECOND + SECOND / 4, 600 * SECOND, hour);
        assert_eq!(gaps.step(set), Some(ClockEvent::Clock(hour)));
        assert_eq!(gaps.step(set), None);
        // The tick reports the suspend. Only the tick resets the timers.
        let beat = gaps.beat(clocks_at(2 * SECOND, 600 * SECOND, hour), SECOND);
        assert_eq!(beat, [Some(ClockEvent::Suspended(600 * SECOND)), None]);

        let loop_monitor = LoopMonitor::new();
        assert_eq!(loop_monitor.ages_reliable_since(), None);
        let now = clocks(loop_monitor.began);
        loop_monitor.check_step(ClockSample { wall: now.wall + 3601 * SECOND, ..now });
        assert!(loop_monitor.jumped.get().is_some());
        assert_eq!(loop_monitor.pauses().len(), 1);
    }

    #[test]
    fn only_a_clock_that_is_set_far_forward_makes_ages_uncertain() {
        let loop_monitor = LoopMonitor::new();
        loop_monitor.note(ClockEvent::Clock(-10 * CLOCK_JUMP_MS));
        loop_monitor.note(ClockEvent::Clock(CLOCK_JUMP_MS / 2));
        loop_monitor.note(ClockEvent::Suspended(36_000 * SECOND));
        assert_eq!(loop_monitor.ages_reliable_since(), None);
        loop_monitor.note(ClockEvent::Clock(CLOCK_JUMP_MS + 1));
        let first = loop_monitor.ages_reliable_since().unwrap();
        assert!(first.elapsed() < 60 * SECOND);
        loop_monitor.note(ClockEvent::Clock(-CLOCK_JUMP_MS - 1));
        assert_eq!(
            loop_monitor.ages_reliable_since(),
            Some(first),
            "a step back does not undo the jump"
        );
    }

    #[test]
    fn lateness_is_that_of_the_last_minute() {
        let (mut lateness, start) = (LagSamples::default(), Instant::now());
        assert_eq!(lateness.describe(start), LoopLag::default());
        lateness.note(start, 9 * SECOND);
        for n in 1..=100 {
            lateness.note(start + 61 * SECOND, Duration::from_micros(n));
        }
        let lag = lateness.describe(start + 62 * SECOND);
        assert_eq!(lag, LoopLag { max_us: 100, p99_us: 99, samples: 100 });
        for _ in 0..10_000 {
            lateness.note(start, SECOND);
        }
        assert_eq!(lateness.beats.len(), MAX_SAMPLES);
    }
}
