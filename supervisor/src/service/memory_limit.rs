//! The bound on a session's memory, `limits.session_memory_mb`: looked at again and again while anybody lives.
//!
//! What counts is what the processes have in memory or swapped out and no file on a disk holds, and the memory that
//! they map to share it, as far as it is not swapped out: neither the programs that they run nor files of a disk
//! that they map, which the kernel takes back when it needs room. What lies in a file system in memory and nobody
//! maps belongs to no process and is not counted; its size is bounded where it is made.
//!
//! It is a sample and no wall: who grows faster than it is looked at meets the kernel first, which is told to end
//! commands before others. Control groups cannot do it: those of sessions are threaded, and memory is not counted
//! there.
//!
//! A look finds who has too much by a quick count. It counts what a process shares with a child that it has just
//! forked for each, so it is followed by a second look at those alone, a moment later, which divides what is
//! shared. Whoever has too much at both is ended: the worker with its commands, or the Pi, whichever has more.

use crate::children::Outgrown;
use crate::metrics::process_usage::Processes;
use crate::services::Services;
use quackd_protocol::SessionId;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Time between two looks …
const EVERY: Duration = Duration::from_secs(1);

/// … or so many times as long as the last one took: with thousands of processes that is some hundredths of a
/// second. But no more than this, since one may have had to wait for a processor.
const REST: u32 = 50;
const LONGEST: Duration = Duration::from_secs(3);

/// From a first look to the second.
const MOMENT: Duration = Duration::from_millis(200);

/// A look that takes longer is not waited for. No other begins before it has ended.
const LOOK_LIMIT: Duration = Duration::from_secs(5);

/// The monitors of one session; everything of the session is below them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Monitors {
    session: SessionId,
    worker: Option<u32>,
    pi: Option<u32>,
}

/// Who has too much.
#[derive(Debug, PartialEq, Eq)]
struct Over {
    monitors: Monitors,
    /// The monitor below which there is more.
    larger: u32,
    /// What the session has, in MiB.
    mb: u64,
}

/// Looks again and again. Ends with the daemon.
pub(crate) async fn watch(services: Rc<Services>) {
    let limit_mb =
        u64::try_from(services.daemon.config.limits.session_memory_mb.value).unwrap_or(u64::MAX);
    if limit_mb == 0 {
        return;
    }
    if !cfg!(target_os = "linux") {
        tracing::warn!("limits.session_memory_mb is not kept: this system does not tell memory");
        return;
    }
    let looks = Looks::new();
    let mut pause = EVERY;
    loop {
        tokio::time::sleep(pause).await;
        let begun = Instant::now();
        let suspects = looks.look(living(&services), limit_mb, Count::Quick).await;
        pause = (begun.elapsed() * REST).clamp(EVERY, LONGEST);
        if suspects.is_empty() {
            continue;
        }
        tokio::time::sleep(MOMENT).await;
        let suspects = suspects.into_iter().map(|over| over.monitors).collect();
        for over in looks.look(suspects, limit_mb, Count::Shared).await {
            end(&services, &over, limit_mb);
        }
    }
}

fn living(services: &Services) -> Vec<Monitors> {
    let mut all: Vec<Monitors> = Vec::new();
    for (session, worker) in services.sessions.pool.workers.monitors() {
        let pi = services.sessions.pis.monitor(&session);
        all.push(Monitors { session, worker: Some(worker), pi });
    }
    let has_no_worker = |session: &SessionId| !all.iter().any(|one| one.session == *session);
    let alone: Vec<_> = services.sessions.pis.running().into_iter().filter(has_no_worker).collect();
    for session in alone {
        let pi = services.sessions.pis.monitor(&session);
        all.push(Monitors { session, worker: None, pi });
    }
    all
}

fn end(services: &Services, over: &Over, limit_mb: u64) {
    let (session, mb) = (&over.monitors.session, over.mb);
    tracing::warn!(%session, mb, limit_mb, "a session has more memory than it may");
    let outgrown = Outgrown { monitor: over.larger, mb, limit_mb };
    match over.monitors.pi == Some(over.larger) {
        true => services.sessions.pis.outgrown(session, outgrown),
        false => services.sessions.pool.workers.outgrown(session, outgrown),
    }
}

/// How memory is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Count {
    /// What is shared with others counts for each.
    Quick,
    /// What is shared is divided, where one may look: slower.
    Shared,
}

/// Looks at processes, one look at a time: one that hangs keeps others from the threads that it would take.
#[derive(Debug)]
struct Looks {
    place: Arc<Semaphore>,
}

impl Looks {
    fn new() -> Self {
        Self { place: Arc::new(Semaphore::new(1)) }
    }

    async fn look(&self, all: Vec<Monitors>, limit_mb: u64, count: Count) -> Vec<Over> {
        if all.is_empty() {
            return Vec::new();
        }
        let look = move || {
            let processes = Processes::look_blocking();
            let below = |root: u32| {
                let pids = processes.tree([root]);
                pids.into_iter().filter_map(|pid| own_kb_blocking(pid, count)).sum()
            };
            all.into_iter().filter_map(|monitors| over(monitors, limit_mb, below)).collect()
        };
        self.run(LOOK_LIMIT, look).await.unwrap_or_default()
    }

    /// Does it on the blocking pool. `None` if it takes longer than `limit`, while one that did is not done yet,
    /// and if the pool has no thread for it.
    async fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let place = Arc::clone(&self.place).try_acquire_owned().ok()?;
        let look = actix_rt::task::spawn_blocking(move || {
            let found = look();
            drop(place);
            found
        });
        let looked = tokio::time::timeout(limit, look).await;
        if looked.is_err() {
            tracing::warn!("a look at the memory of sessions hangs; the next one waits for it");
        }
        looked.ok()?.ok()
    }
}

/// Whether a session has too much; `below` says what everything below a monitor has, in KiB.
fn over(monitors: Monitors, limit_mb: u64, below: impl Fn(u32) -> u64) -> Option<Over> {
    let [worker, pi] = [monitors.worker, monitors.pi].map(|root| Some((below(root?), root?)));
    let sum =
        [worker, pi].into_iter().flatten().fold(0, |sum: u64, (kb, _)| sum.saturating_add(kb));
    let (_, larger) = worker.max(pi)?;
    let mb = sum / 1024;
    (limit_mb < mb).then_some(Over { monitors, larger, mb })
}

/// What a process has, in KiB; `None` if it is gone.
fn own_kb_blocking(pid: u32, count: Count) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
    let shared = (count == Count::Shared).then(|| read("smaps_rollup")).flatten();
    // An older kernel, or a process that lets nobody look.
    let divided = shared.as_deref().and_then(|text| kb(text, DIVIDED));
    divided.or_else(|| kb(&read("status")?, QUICK))
}

/// Lines that are added up: of `/proc/<pid>/smaps_rollup`, and of `status`.
const DIVIDED: [&str; 3] = ["Pss_Anon:", "Pss_Shmem:", "SwapPss:"];
const QUICK: [&str; 3] = ["RssAnon:", "RssShmem:", "VmSwap:"];

/// The sum of lines; all but the first may be missing.
fn kb(text: &str, [first, others @ ..]: [&str; 3]) -> Option<u64> {
    let line = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    let others = others.into_iter().filter_map(line);
    Some(others.fold(line(first)?, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn monitors(worker: Option<u32>, pi: Option<u32>) -> Monitors {
        Monitors { session: SessionId("s".to_owned()), worker, pi }
    }

    #[test]
    fn the_larger_of_worker_and_pi_is_ended_if_both_together_have_too_much() {
        let below = |root: u32| u64::from(root) * 1024;
        let larger =
            |worker, pi| over(monitors(worker, pi), 100, below).map(|it| (it.larger, it.mb));
        assert_eq!(larger(Some(60), Some(41)), Some((60, 101)));
        assert_eq!(larger(Some(41), Some(60)), Some((60, 101)));
        assert_eq!(larger(Some(60), Some(40)), None, "as much as it may have");
        assert_eq!(larger(None, Some(101)), Some((101, 101)));
        assert_eq!(larger(Some(100), None), None);
        assert_eq!(larger(None, None), None);
    }

    #[test]
    fn what_the_kernel_tells_is_read() {
        let status = "VmRSS:\t  999 kB\nRssAnon:\t     700 kB\nRssFile:\t 200 kB\n\
            RssShmem:\t    6000 kB\nVmSwap:\t  50 kB\n";
        assert_eq!(kb(status, QUICK), Some(6750));
        let rollup = "Pss:  99 kB\nPss_Anon:  7 kB\nPss_File:  9 kB\nPss_Shmem:  20 kB\n\
            Swap:  99 kB\nSwapPss:  300 kB\n";
        assert_eq!(kb(rollup, DIVIDED), Some(327));
        assert_eq!(kb("RssAnon:\t 7 kB\n", QUICK), Some(7));
        // A thread of the kernel has none, an older kernel does not say.
        assert_eq!(kb("Name:\tkthreadd\n", QUICK), None);
        assert_eq!(kb("Pss_Anon: x kB\nPss_Shmem:  20 kB\n", DIVIDED), None);
    }

    #[tokio::test]
    async fn while_a_look_hangs_no_other_begins() {
        let looks = Looks::new();
        let (end, hanging) = std::sync::mpsc::channel::<()>();
        let long = Duration::from_secs(60);
        let late = looks.run(Duration::ZERO, move || hanging.recv()).await;
        assert_eq!(late, None);
        let begun = looks.run(long, || "begun").await;
        assert_eq!(begun, None, "although it has time");
        end.send(()).unwrap();
        // Until the thread has ended.
        drop(tokio::time::timeout(long, looks.place.acquire()).await.unwrap().unwrap());
        assert_eq!(looks.run(long, || "begun").await, Some("begun"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_of_our_own_is_counted_in_both_ways() {
        // Touched, so that it is there.
        let hoard = vec![1_u8; 64 << 20];
        for count in [Count::Quick, Count::Shared] {
            let kb = own_kb_blocking(std::process::id(), count).unwrap();
            assert!((64 << 10..4 << 20).contains(&kb), "{count:?}: {kb}");
        }
        assert_eq!(hoard.iter().filter(|byte| **byte == 1).count(), 64 << 20);
    }
}
