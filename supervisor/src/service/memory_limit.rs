//! The memory limit of a session, `limits.session_memory_mb`. Memory is sampled repeatedly while any worker or Pi runs.
//!
//! The worker has the same limit, checks its commands more often and ends the one with most memory
//! ([`quackd_process::Limits::memory`]). This sampler is for the rest: the worker itself, its MCP servers, and Pi.
//!
//! The limit is sampled. A process that grows faster reaches the OOM killer first, which kills commands before workers.
//! Where the kernel limits the memory of a session's group, the session cannot exceed that higher limit
//! ([`quackd_process::Limits::memory`]).
//!
//! The first, quick scan finds sessions over the limit. It counts memory that a process shares with a child after a
//! fork for both. A second scan of these sessions follows 2 s later and divides shared memory among its processes.
//! The supervisor kills the session's larger process if both scans are over the limit: the worker with its commands, or
//! Pi.

use crate::children::{MemoryLimitExceeded, ProcessKind};
use crate::metrics::process_usage::ProcessTable;
use crate::platform::HAS_PROC;
use crate::pool::memory::MachineMemory;
use crate::pool::sessions::SessionEntry;
use crate::services::Services;
use quackd_process::{MemoryAccounting, memory_kb_blocking, used_memory_kb_blocking};
use quackd_protocol::SessionId;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Minimum time between two scans.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// The pause is this multiple of the last scan's duration, up to [`MAX_SAMPLE_INTERVAL`]. With thousands of processes a
/// scan takes several 10 ms. The bound matters because a scan may also have waited for a processor.
const SAMPLE_COST_FACTOR: u32 = 50;
const MAX_SAMPLE_INTERVAL: Duration = Duration::from_secs(3);

/// Delay between the first and the confirming scan. In this time the worker ends a command that has too much.
const CONFIRM_DELAY: Duration = Duration::from_secs(2);

/// Memory above the limit at which a session is killed, in MiB. The worker counts less than this scan, which includes
/// the worker's process 1 and its monitor: a command just below the limit must not cost the worker.
const RESERVE_MB: u64 = 32;

/// Timeout of a scan. No other scan starts before the old one has ended.
const SCAN_TIMEOUT: Duration = Duration::from_secs(5);

/// Monitors of one session. All processes of the session are their descendants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionMonitors {
    session: SessionId,
    worker: Option<u32>,
    pi: Option<u32>,
}

/// A session over its limit.
#[derive(Debug, PartialEq, Eq)]
struct LimitExceeded {
    monitors: SessionMonitors,
    /// The monitor whose process tree uses more memory.
    larger: u32,
    /// Memory of the session, in MiB.
    mb: u64,
}

/// Samples the memory until the daemon stops.
pub(crate) async fn watch(services: Rc<Services>) {
    let setting = services.daemon.config.limits.session_memory_mb.value;
    if setting == Some(0) {
        return;
    }

    if !HAS_PROC {
        tracing::warn!(
            "limits.session_memory_mb is not enforced: this system does not report memory"
        );
        return;
    }

    let Some(limit_mb) = limit_mb(&services, setting).await else {
        tracing::warn!("limits.session_memory_mb is not enforced: the machine's memory is unknown");
        return;
    };

    let sampler = MemorySampler::new();
    let mut pause = SAMPLE_INTERVAL;
    loop {
        tokio::time::sleep(pause).await;

        let begun = Instant::now();
        let suspects = sampler.scan(monitors(&services), limit_mb, MemoryAccounting::Quick).await;

        pause = (begun.elapsed() * SAMPLE_COST_FACTOR).clamp(SAMPLE_INTERVAL, MAX_SAMPLE_INTERVAL);
        if suspects.is_empty() {
            continue;
        }

        tokio::time::sleep(CONFIRM_DELAY).await;
        let suspects = suspects.into_iter().map(|over| over.monitors).collect();
        for over in sampler.scan(suspects, limit_mb, MemoryAccounting::Shared).await {
            end(&services, &over, limit_mb);
        }
    }
}

/// Returns the limit in MiB. An automatic limit does not depend on the memory that is available: a worker that starts
/// while little is available has a lower limit for its commands.
async fn limit_mb(services: &Services, setting: Option<usize>) -> Option<u64> {
    if let Some(mb) = setting {
        return u64::try_from(mb).ok();
    }
    let group = services.sessions.children.cgroups.as_ref().map(|cgroups| cgroups.directory());
    let read = move || MachineMemory::read_blocking(group.as_deref());
    let memory = actix_rt::task::spawn_blocking(read).await.ok()??;
    Some(memory.session_limit_mb())
}

/// Returns the sessions with a process.
fn monitors(services: &Services) -> Vec<SessionMonitors> {
    let row = |entry: Rc<SessionEntry>| {
        let snapshot = entry.snapshot();
        let (worker, pi) = (&snapshot.worker.process, &snapshot.agent.process);
        let pi = pi.child.monitor_pid.filter(|_| pi.is_alive());
        let worker = worker.child.monitor_pid;
        let has_any = worker.is_some() || pi.is_some();
        has_any.then(|| SessionMonitors { session: entry.id.clone(), worker, pi })
    };
    services.sessions.table.all().into_iter().filter_map(row).collect()
}

/// Asks the owner of the session's larger process to kill it.
fn end(services: &Services, over: &LimitExceeded, limit_mb: u64) {
    let (session, mb) = (&over.monitors.session, over.mb);
    tracing::warn!(%session, mb, limit_mb, "session over its memory limit");

    let exceeded = MemoryLimitExceeded { monitor: over.larger, mb, limit_mb };
    let is_pi = over.monitors.pi == Some(over.larger);
    let kind = if is_pi { ProcessKind::Agent } else { ProcessKind::Worker };
    // If the mailbox is full, the next sample reports it again.
    services.sessions.table.kill_for_memory(session, kind, exceeded);
}

/// Scans processes, one scan at a time. A hanging scan thus occupies only one thread.
#[derive(Debug)]
struct MemorySampler {
    permit: Arc<Semaphore>,
}

impl MemorySampler {
    fn new() -> Self {
        Self { permit: Arc::new(Semaphore::new(1)) }
    }

    async fn scan(
        &self,
        all: Vec<SessionMonitors>,
        limit_mb: u64,
        count: MemoryAccounting,
    ) -> Vec<LimitExceeded> {
        // Without sessions, the processes of the machine need not be read.
        if all.is_empty() {
            return Vec::new();
        }

        let scan = move || {
            // Most of the time the whole machine uses less. Then the processes of the machine need not be read either.
            if used_memory_kb_blocking().is_some_and(|kb| kb / 1024 <= limit_mb) {
                return Vec::new();
            }

            let processes = ProcessTable::read_blocking();
            let below = |root: u32| {
                let pids = processes.tree([root]);
                pids.into_iter().filter_map(|pid| memory_kb_blocking(pid, count)).sum()
            };
            all.into_iter().filter_map(|monitors| over(monitors, limit_mb, below)).collect()
        };
        // Without a result nothing is killed. The next scan decides.
        self.run(SCAN_TIMEOUT, scan).await.unwrap_or_default()
    }

    /// Runs a scan on the blocking pool. Returns `None` after the timeout `limit`, while a hanging scan still runs, or
    /// if the pool has no free thread.
    async fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        scan: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let permit = Arc::clone(&self.permit).try_acquire_owned().ok()?;
        let scan = actix_rt::task::spawn_blocking(move || {
            let result = scan();
            // Here and not when the future ends: a scan that hangs keeps its permit.
            drop(permit);
            result
        });

        let scanned = tokio::time::timeout(limit, scan).await;
        if scanned.is_err() {
            tracing::warn!("memory scan of sessions hangs, the next one waits for it");
        }
        scanned.ok()?.ok()
    }
}

/// Checks a session against its limit. `below` returns the memory of a monitor's process tree in KiB.
fn over(
    monitors: SessionMonitors,
    limit_mb: u64,
    below: impl Fn(u32) -> u64,
) -> Option<LimitExceeded> {
    let [worker, pi] = [monitors.worker, monitors.pi].map(|root| Some((below(root?), root?)));

    let sum =
        [worker, pi].into_iter().flatten().fold(0, |sum: u64, (kb, _)| sum.saturating_add(kb));
    // Pairs compare their first value, the memory.
    let (_, larger) = worker.max(pi)?;

    let mb = sum / 1024;
    (limit_mb.saturating_add(RESERVE_MB) < mb).then_some(LimitExceeded { monitors, larger, mb })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn monitors(worker: Option<u32>, pi: Option<u32>) -> SessionMonitors {
        SessionMonitors { session: SessionId("s".to_owned()), worker, pi }
    }

    #[test]
    fn the_larger_of_worker_and_pi_is_ended_if_both_together_have_too_much() {
        let below = |root: u32| u64::from(root) * 1024;
        let limit_mb = 100 - RESERVE_MB;
        let larger =
            |worker, pi| over(monitors(worker, pi), limit_mb, below).map(|it| (it.larger, it.mb));
        assert_eq!(larger(Some(60), Some(41)), Some((60, 101)));
        assert_eq!(larger(Some(41), Some(60)), Some((60, 101)));
        assert_eq!(larger(Some(60), Some(40)), None, "as much as it may have");
        assert_eq!(larger(None, Some(101)), Some((101, 101)));
        assert_eq!(larger(Some(100), None), None);
        assert_eq!(larger(None, None), None);
    }

    #[tokio::test]
    async fn while_a_look_hangs_no_other_begins() {
        let sampler = MemorySampler::new();
        let (end, hanging) = std::sync::mpsc::channel::<()>();
        let long = Duration::from_secs(60);
        let late = sampler.run(Duration::ZERO, move || hanging.recv()).await;
        assert_eq!(late, None);
        let begun = sampler.run(long, || "begun").await;
        assert_eq!(begun, None, "although it has time");
        end.send(()).unwrap();
        // Wait until the thread has ended.
        drop(tokio::time::timeout(long, sampler.permit.acquire()).await.unwrap().unwrap());
        assert_eq!(sampler.run(long, || "begun").await, Some("begun"));
    }
}
