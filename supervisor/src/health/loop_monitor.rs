//! The pulse of the actors' thread: a timer that says how late timers are, and notices when the machine slept,
//! the process was stopped or somebody set the clock.
//!
//! Nothing is decided by the wall clock alone: it is looked at to say that it was set, and since when it can be
//! told from it how old a file is ([`Pulse::even_since`], which does not wait for a beat). After a sleep or a stop every child has its time anew
//! ([`crate::children::Manage::ResetTimers`]), and a person is told.

use crate::clock::now_text;
use quackd_protocol::client::{LoopLag, PauseInfo};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime};

/// Time between two beats while anybody is there, and while nobody is.
const EVERY: Duration = Duration::from_millis(500);
const EVERY_IDLE: Duration = Duration::from_secs(2);

/// How far back lateness is remembered.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Most beats that are remembered: those of that time, and a few that came close together.
const MAX_SAMPLES: usize = 256;

/// A sleep or a step of the clock that is shorter means nothing.
const MIN_GAP: Duration = Duration::from_secs(1);

/// A beat that is later than this tells of a process that was stopped, not of one that is busy.
const STOPPED: Duration = Duration::from_millis(2500);

/// A clock that was set forward by more makes files look older than they are.
const LEAP_MS: i64 = 60 * 60 * 1000;

/// Pauses that are remembered.
const KEPT: usize = 8;

/// What the clocks say, each from a beginning of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Clocks {
    /// Stands still while the machine sleeps: what timers and deadlines count.
    running: Duration,
    /// Goes on while the machine sleeps.
    boot: Duration,
    /// What people call time, and may set.
    wall: Duration,
}

/// Why time went by otherwise than it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pause {
    /// The machine slept.
    Suspended(Duration),
    /// This process did not run.
    Stopped(Duration),
    /// The clock was set, by so many milliseconds.
    Clock(i64),
}

/// Compares each beat with the one before. Pure.
#[derive(Debug)]
struct Gaps {
    /// At the last beat.
    last: Clocks,
    /// When it was last looked whether the clock was set: then, or since.
    looked: Clocks,
}

impl Gaps {
    fn since(now: Clocks) -> Self {
        Self { last: now, looked: now }
    }

    /// What has happened since the last beat, which was to be `expected` ago: a sleep or a stop, and a clock that
    /// was set, which may come together.
    fn beat(&mut self, now: Clocks, expected: Duration) -> [Option<Pause>; 2] {
        let last = std::mem::replace(&mut self.last, now);
        let ran = now.running.saturating_sub(last.running);
        let slept = now.boot.saturating_sub(last.boot).saturating_sub(ran);
        let late = ran.saturating_sub(expected);
        let gap = match (MIN_GAP <= slept, STOPPED <= late) {
            (true, _) => Some(Pause::Suspended(slept)),
            (false, true) => Some(Pause::Stopped(late)),
            (false, false) => None,
        };
        [gap, self.step(now)]
    }

    /// How the clock was set since it was last asked: whoever asks first is told.
    fn step(&mut self, now: Clocks) -> Option<Pause> {
        let last = std::mem::replace(&mut self.looked, now);
        let step = signed_ms(now.wall)
            - signed_ms(last.wall)
            - (signed_ms(now.boot) - signed_ms(last.boot));
        (signed_ms(MIN_GAP) <= step.abs()).then_some(Pause::Clock(step))
    }
}

fn signed_ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX / 4)
}

/// How late the last beats were. Pure.
#[derive(Debug, Default)]
struct Lateness {
    /// When, and how late.
    beats: VecDeque<(Instant, Duration)>,
}

impl Lateness {
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
        // The smallest that 99 of a hundred are not above.
        let rank = (late.len() * 99).div_ceil(100).saturating_sub(1);
        LoopLag { max_us: us(late.last()), p99_us: us(late.get(rank)), samples: late.len() }
    }
}

/// What is remembered. One instance per daemon, on the actors' thread.
#[derive(Debug)]
pub(crate) struct Pulse {
    /// From when the clock that stands still in a sleep counts.
    began: Instant,
    gaps: RefCell<Gaps>,
    lateness: RefCell<Lateness>,
    pauses: RefCell<VecDeque<PauseInfo>>,
    /// When the clock was last set forward by much.
    leapt: Cell<Option<Instant>>,
}

impl Pulse {
    /// What comes later is compared with the clocks as they are now.
    pub(crate) fn new() -> Self {
        let began = Instant::now();
        Self {
            began,
            gaps: RefCell::new(Gaps::since(clocks(began))),
            lateness: RefCell::default(),
            pauses: RefCell::default(),
            leapt: Cell::default(),
        }
    }

    /// How late the thread's timers were in the last minute.
    pub(crate) fn lag(&self) -> LoopLag {
        self.lateness.borrow().describe(Instant::now())
    }

    /// The last pauses, the newest last.
    pub(crate) fn pauses(&self) -> Vec<PauseInfo> {
        self.pauses.borrow().iter().cloned().collect()
    }

    /// When the clock was last set forward by much, as far as can be seen now: nothing that looks older than the
    /// time since then is certain to be.
    pub(crate) fn even_since(&self) -> Option<Instant> {
        self.look(clocks(self.began));
        self.leapt.get()
    }

    /// Waits until the next tick and evaluates it. Returns whether the process or the machine stood still since the
    /// last tick, so that deadlines must restart.
    pub(crate) async fn tick(&self, is_used: bool) -> bool {
        let every = if is_used { EVERY } else { EVERY_IDLE };
        let due = Instant::now() + every;
        tokio::time::sleep_until(due.into()).await;
        let now = Instant::now();
        let late = now.saturating_duration_since(due);
        self.lateness.borrow_mut().note(now, late);
        let pauses = self.gaps.borrow_mut().beat(clocks(self.began), every);
        let mut stood_still = false;
        for pause in pauses.into_iter().flatten() {
            self.note(pause);
            stood_still |= !matches!(pause, Pause::Clock(_));
        }
        stood_still
    }

    /// Between two beats, whether the clock was set.
    fn look(&self, now: Clocks) {
        let step = self.gaps.borrow_mut().step(now);
        if let Some(step) = step {
            self.note(step);
        }
    }

    /// Remembers and tells it.
    fn note(&self, pause: Pause) {
        tell(pause);
        if matches!(pause, Pause::Clock(ms) if LEAP_MS < ms) {
            self.leapt.set(Some(Instant::now()));
        }
        let (kind, ms) = match pause {
            Pause::Suspended(time) => ("suspended", signed_ms(time)),
            Pause::Stopped(time) => ("stopped", signed_ms(time)),
            Pause::Clock(ms) => ("clock", ms),
        };
        let mut pauses = self.pauses.borrow_mut();
        if KEPT <= pauses.len() {
            pauses.pop_front();
        }
        pauses.push_back(PauseInfo { at: now_text(), kind: kind.to_owned(), ms });
    }
}

fn tell(pause: Pause) {
    match pause {
        Pause::Clock(ms) => {
            tracing::info!(ms, "the clock was set; no deadline, delay or limit is moved by it");
        }
        Pause::Suspended(time) => {
            let slept_s = time.as_secs();
            tracing::warn!(slept_s, "the machine slept: everybody has their time anew");
        }
        Pause::Stopped(time) => {
            let stopped_s = time.as_secs();
            tracing::warn!(stopped_s, "this process was stopped: everybody has their time anew");
        }
    }
}

fn clocks(began: Instant) -> Clocks {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let running = began.elapsed();
    Clocks { running, boot: boot(wall), wall }
}

/// The time since the machine was started, with that in which it slept, whatever the wall clock is set to.
#[cfg(any(target_os = "linux", target_os = "macos"))]
fn boot(wall: Duration) -> Duration {
    use nix::time::{ClockId, clock_gettime};
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
    // It goes on in a sleep there; the one that stands still is CLOCK_UPTIME_RAW, which `Instant` reads.
    #[cfg(target_os = "macos")]
    const CLOCK: ClockId = ClockId::from_raw(nix::libc::CLOCK_MONOTONIC_RAW);
    clock_gettime(CLOCK).map_or(wall, Duration::from)
}

/// Elsewhere the wall clock stands in: a step of it passes for a sleep, which gives everybody some time and does
/// no harm.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn boot(wall: Duration) -> Duration {
    wall
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Clocks after a time of running, of sleep, and a step of the wall clock.
    fn clocks_at(ran: Duration, slept: Duration, step: i64) -> Clocks {
        let begin = Duration::from_secs(1_000_000_000);
        let boot = ran + slept;
        let wall = (begin + boot).checked_add_signed_ms(step);
        Clocks { running: ran, boot, wall }
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
        let mut gaps = Gaps::since(clocks_at(SECOND, Duration::ZERO, 0));
        let hour = 3_600_000;
        for (now, expected) in [
            // On time, and a little late.
            (clocks_at(2 * SECOND, Duration::ZERO, 0), None),
            (clocks_at(5 * SECOND, Duration::ZERO, 0), None),
            // The machine slept for an hour: timers stood still.
            (clocks_at(6 * SECOND, 3600 * SECOND, 0), Some(Pause::Suspended(3600 * SECOND))),
            (clocks_at(7 * SECOND, 3600 * SECOND, 0), None),
            // The process was stopped for a minute: timers went on.
            (clocks_at(68 * SECOND, 3600 * SECOND, 0), Some(Pause::Stopped(60 * SECOND))),
            // Somebody set the clock back by an hour, and forward by two.
            (clocks_at(69 * SECOND, 3600 * SECOND, -hour), Some(Pause::Clock(-hour))),
            (clocks_at(70 * SECOND, 3600 * SECOND, -hour), None),
            (clocks_at(71 * SECOND, 3600 * SECOND, hour), Some(Pause::Clock(2 * hour))),
            // Slewing is no step.
            (clocks_at(72 * SECOND, 3600 * SECOND, hour + 500), None),
        ] {
            let found = gaps.beat(now, SECOND);
            assert_eq!(found.into_iter().flatten().next(), expected, "{now:?}");
            assert!(found.iter().flatten().count() <= 1, "{now:?}: {found:?}");
        }
        // Set while the machine slept, or while the process was stopped: both are told.
        let found = gaps.beat(clocks_at(73 * SECOND, 7200 * SECOND, 0), SECOND);
        let slept = Some(Pause::Suspended(3600 * SECOND));
        assert_eq!(found, [slept, Some(Pause::Clock(-hour - 500))]);
        let found = gaps.beat(clocks_at(99 * SECOND, 7200 * SECOND, hour), SECOND);
        assert_eq!(found, [Some(Pause::Stopped(25 * SECOND)), Some(Pause::Clock(hour))]);
    }

    #[test]
    fn a_clock_that_is_set_between_two_beats_is_seen_by_who_looks_and_told_once() {
        let mut gaps = Gaps::since(clocks_at(SECOND, Duration::ZERO, 0));
        let hour = 3_600_000;
        let set = clocks_at(SECOND + SECOND / 4, 600 * SECOND, hour);
        assert_eq!(gaps.step(set), Some(Pause::Clock(hour)));
        assert_eq!(gaps.step(set), None);
        // The sleep is told by the beat, which alone gives everybody time.
        let beat = gaps.beat(clocks_at(2 * SECOND, 600 * SECOND, hour), SECOND);
        assert_eq!(beat, [Some(Pause::Suspended(600 * SECOND)), None]);

        let pulse = Pulse::new();
        assert_eq!(pulse.even_since(), None);
        let now = clocks(pulse.began);
        pulse.look(Clocks { wall: now.wall + 3601 * SECOND, ..now });
        assert!(pulse.leapt.get().is_some());
        assert_eq!(pulse.pauses().len(), 1);
    }

    #[test]
    fn only_a_clock_that_is_set_far_forward_makes_ages_uncertain() {
        let pulse = Pulse::new();
        pulse.note(Pause::Clock(-10 * LEAP_MS));
        pulse.note(Pause::Clock(LEAP_MS / 2));
        pulse.note(Pause::Suspended(36_000 * SECOND));
        assert_eq!(pulse.even_since(), None);
        pulse.note(Pause::Clock(LEAP_MS + 1));
        let first = pulse.even_since().unwrap();
        assert!(first.elapsed() < 60 * SECOND);
        pulse.note(Pause::Clock(-LEAP_MS - 1));
        assert_eq!(pulse.even_since(), Some(first), "what it did is not undone by setting it back");
    }

    #[test]
    fn lateness_is_that_of_the_last_minute() {
        let (mut lateness, start) = (Lateness::default(), Instant::now());
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
