//! Detects memory pressure. Evicts idle processes during pressure, the longest idle first.
//!
//! Memory is short (Linux) in three cases:
//! - Less than `worker.evict_below_mb` is available in the whole machine.
//! - Less than [`NEAR`] times that is available, and programs wait for memory (`/proc/pressure/memory`). Programs
//!   also wait in machines with much free memory: the limit of a control group or a slow disk delays them.
//!   Evicting workers would not free memory that these programs could use.
//! - The limit of the daemon's own control group was hit since the last sample, and little of it is left.
//!
//! Pressure ends only when memory is plentiful again. Otherwise workers would be evicted and started in turns.

use crate::pool::memory::{GroupMemory, available_mb, group_memory_blocking, sum_after};
use crate::services::Services;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Interval of the checks.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Timeout of a check. The next one starts at its regular time.
const SCAN_TIMEOUT: Duration = Duration::from_secs(1);

/// Minimum idle time before eviction. Otherwise consecutive calls would each start a worker.
const MIN_IDLE: Duration = Duration::from_secs(2);

/// Thresholds for the share of the last 10 s in which a program waited for memory, in percent: start and end of the
/// pressure.
const PRESSURE_HIGH_PERCENT: f64 = 20.0;
const PRESSURE_LOW_PERCENT: f64 = 10.0;

/// Waiting programs count only while less than this multiple of `worker.evict_below_mb` is available.
const NEAR: u64 = 4;

/// Fraction of a control group's limit below which the rest counts as little, unless `worker.evict_below_mb` is
/// smaller.
const LITTLE: u64 = 8;

/// Measurements of one check.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct MemorySample {
    /// Available memory in MiB.
    available_mb: Option<u64>,
    /// `some avg10` of the whole machine.
    waiting: Option<f64>,
    /// Number of times that the limit of the daemon's control group, or of a group in it, was hit since its creation.
    hits: Option<u64>,
    /// Memory of the daemon's control group, if it has a limit.
    group: Option<GroupMemory>,
}

/// Decides whether there is memory pressure. Does no I/O.
#[derive(Debug)]
struct PressureDetector {
    /// Pressure starts below this amount of available memory, in MiB. 0 disables this check.
    below_mb: u64,
    hits: Option<u64>,
    is_short: bool,
}

impl PressureDetector {
    fn new(below_mb: u64) -> Self {
        Self { below_mb, hits: None, is_short: false }
    }

    /// Returns a description of the pressure, if there is any.
    fn update(&mut self, reading: MemorySample) -> Option<String> {
        // Pressure ends a quarter above the threshold at which it starts.
        let below = if self.is_short { self.below_mb + self.below_mb / 4 } else { self.below_mb };
        let pressed = if self.is_short { PRESSURE_LOW_PERCENT } else { PRESSURE_HIGH_PERCENT };

        let hits = reading.hits.zip(self.hits).map(|(now, before)| now.saturating_sub(before));
        // Kept if a reading fails, so that the next one is compared with an older number.
        self.hits = reading.hits.or(self.hits);

        let scarce = reading
            .available_mb
            .filter(|mb| *mb < below)
            .map(|mb| format!("{mb} MiB of memory are available"));

        let why = scarce
            .or_else(|| {
                let mb = reading.available_mb.filter(|mb| *mb < below.saturating_mul(NEAR))?;
                let waiting = reading.waiting.filter(|share| pressed <= *share)?;
                Some(format!(
                    "{mb} MiB of memory are available, and programs waited for it {waiting:.0}% of the time"
                ))
            })
            .or_else(|| {
                let hits = hits.filter(|hits| *hits != 0)?;
                // The limit of a group inside the daemon's group does not matter: the daemon's group still has memory.
                let group = reading.group?;
                let left = group.limit_mb.saturating_sub(group.used_mb);
                if below.min(group.limit_mb / LITTLE) <= left {
                    return None;
                }
                Some(format!("the memory limit of our control group was hit {hits} times"))
            });

        self.is_short = why.is_some();
        why
    }
}

/// Checks repeatedly, and evicts idle processes under pressure, until the daemon stops.
pub(crate) async fn watch(services: Rc<Services>) {
    let below =
        u64::try_from(services.daemon.config.worker.evict_below_mb.value).unwrap_or(u64::MAX);
    if below == 0 {
        return;
    }

    let mut detector = PressureDetector::new(below);
    let group = services.sessions.children.cgroups.as_ref().map(|cgroups| cgroups.directory());
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;

        // Without an idle process, nothing could be evicted.
        let free = services.sessions.table.n_evictable();
        if free == 0 && !detector.is_short {
            continue;
        }

        let group = group.clone();
        let look = actix_rt::task::spawn_blocking(move || read_blocking(group.as_deref()));
        // If the pool has no free thread, skip this check.
        let Ok(Ok(reading)) = tokio::time::timeout(SCAN_TIMEOUT, look).await else { continue };

        let was_short = detector.is_short;
        let why = detector.update(reading);
        if let Some(why) = why.as_deref().filter(|_| !was_short) {
            tracing::warn!(why, free, "memory is short, evicting idle workers");
        }

        if why.is_some() {
            // Evict one at a time, because freed memory shows up with a delay. Evict an eighth if there are many.
            let n = (free / 8).max(1);
            if let Some(before) = Instant::now().checked_sub(MIN_IDLE) {
                services.sessions.table.evict(n, before);
            }
        } else if was_short {
            tracing::info!("memory pressure ended");
        }

        services.health.memory_pressure.replace(why);
    }
}

fn read_blocking(group: Option<&Path>) -> MemorySample {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let events = |group: &Path| std::fs::read_to_string(group.join("memory.events")).ok();
    MemorySample {
        available_mb: read("/proc/meminfo").as_deref().and_then(available_mb),
        waiting: read("/proc/pressure/memory").as_deref().and_then(waiting),
        hits: group.and_then(events).as_deref().map(hits),
        group: group.and_then(group_memory_blocking),
    }
}

/// Returns `some avg10` of `/proc/pressure/memory`, in percent.
fn waiting(pressure: &str) -> Option<f64> {
    let some = pressure.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?.parse().ok()
}

/// Returns how often processes of a control group were throttled or refused because of its limit.
fn hits(events: &str) -> u64 {
    sum_after(&["high ", "max ", "oom "], events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_texts_are_read() {
        let pressure = "some avg10=12.34 avg60=1.00 avg300=0.00 total=5\nfull avg10=1.00\n";
        assert_eq!(waiting(pressure), Some(12.34));
        assert_eq!(waiting(""), None);
        assert_eq!(hits("low 9\nhigh 3\nmax 2\noom 1\noom_kill 7\n"), 6);
        assert_eq!(hits(""), 0);
    }

    #[test]
    fn what_has_begun_ends_only_when_memory_is_plenty_again() {
        let mut detector = PressureDetector::new(400);
        let mut is_short = |mb| {
            detector
                .update(MemorySample { available_mb: Some(mb), ..MemorySample::default() })
                .is_some()
        };
        let seen: Vec<bool> = [900, 400, 399, 450, 499, 500, 450, 399].map(&mut is_short).into();
        assert_eq!(seen, [false, false, true, true, true, false, false, true]);
    }

    #[test]
    fn programs_that_wait_and_limits_that_are_hit_are_signs_too() {
        let mut detector = PressureDetector::new(100);
        let waiting = |share| MemorySample {
            waiting: Some(share),
            available_mb: Some(399),
            ..MemorySample::default()
        };
        let seen: Vec<bool> =
            [19.9, 20.0, 10.0, 9.9].map(|share| detector.update(waiting(share)).is_some()).into();
        assert_eq!(seen, [false, true, true, false]);

        let mut detector = PressureDetector::new(100);
        let group = Some(GroupMemory { limit_mb: 400, used_mb: 351 });
        let hit = |hits| MemorySample { hits: Some(hits), group, ..MemorySample::default() };
        let seen: Vec<bool> = [7, 7, 9, 9].map(|hits| detector.update(hit(hits)).is_some()).into();
        assert_eq!(seen, [false, false, true, false], "what was hit before is not counted");
        assert_eq!(
            PressureDetector::new(1).update(MemorySample::default()),
            None,
            "nothing is known elsewhere"
        );
    }

    #[test]
    fn no_sign_counts_while_there_is_enough_memory() {
        let mut detector = PressureDetector::new(256);
        let waiting = |mb| MemorySample {
            waiting: Some(90.0),
            available_mb: Some(mb),
            ..MemorySample::default()
        };
        for (mb, expected) in
            [(21_000, false), (1024, false), (1023, true), (1279, true), (1280, false)]
        {
            assert_eq!(detector.update(waiting(mb)).is_some(), expected, "{mb}");
        }
        let groups = [
            None,
            Some(GroupMemory { limit_mb: 8192, used_mb: 8192 - 256 }),
            Some(GroupMemory { limit_mb: 800, used_mb: 700 }),
        ];
        for group in groups {
            let mut detector = PressureDetector::new(256);
            for hits in [1, 9, 99] {
                let reading = MemorySample { hits: Some(hits), group, ..MemorySample::default() };
                assert_eq!(detector.update(reading), None, "{group:?}");
            }
        }
    }
}
