//! Disk space of the private copies of isolated sessions.
//!
//! The sizes are samples: at intervals while calls and background jobs run, and after them. Before a call that may write
//! and after a command, a written copy with a sample older than 5 s is sampled too, for which the call waits up to 5 s. A
//! command can exceed a limit until the next sample. The walks run on the blocking pool, one at a time. A walk that hangs
//! keeps its permit, and the last sizes stay.

use super::command_slots::CommandSlots;
use crate::errors::CopyExcess;
use quackd_config::IsolatedSettings;
use quackd_home::{Home, IsolatedUsage};
use quackd_protocol::SessionId;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore};

/// Minimum pause between two rounds of samples.
const PAUSE: Duration = Duration::from_secs(5);

/// Maximum pause between two rounds of samples.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Pause after a round, as a multiple of its duration: these samples use at most a hundredth of a processor.
const PAUSE_FACTOR: u32 = 100;

/// Maximum wait for a sample before or after a call.
const WAIT: Duration = Duration::from_secs(5);

/// Maximum age of the sample of a copy that was written, when a call begins or a command ends.
const MAX_AGE: Duration = Duration::from_secs(5);

/// Maximum age as a multiple of the duration of the walk, if that is longer: a large copy is not walked all the time.
const MAX_AGE_FACTOR: u32 = 4;

/// Maximum number of samples that one call waits for. Two of them may have begun before the call asked.
const MAX_ROUNDS: usize = 3;

const MIB: u64 = 1024 * 1024;

/// One instance per daemon, on the actors' thread. Clones share its state.
#[derive(Debug, Clone)]
pub(crate) struct CopySizes(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    home: Home,
    /// Limit of one copy in MiB.
    max_mb: u64,
    /// Limit of all copies together in MiB.
    total_mb: u64,
    slots: CommandSlots,
    table: RefCell<SizeTable>,
    changed: Notify,
    /// Whether the sampling task runs. It starts with the first call that may write.
    is_watched: Cell<bool>,
    permit: Arc<Semaphore>,
    /// A requested sample ended.
    ended: Notify,
}

#[derive(Debug, Default)]
struct SizeTable {
    /// The last samples.
    samples: BTreeMap<SessionId, Sample>,
    /// When the last sample of all copies began. `None` before the first one.
    all_begun: Option<Instant>,
    /// Running calls that may write, by session. Contains no zeros.
    writing: BTreeMap<SessionId, usize>,
    /// Sessions that may have written since the last sample, with the time of the last notification.
    due: BTreeMap<SessionId, Instant>,
    /// Samples that calls requested and that have not ended. `None` is that of all copies.
    requested: BTreeSet<Option<SessionId>>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    usage: IsolatedUsage,
    /// When the walk began.
    begun: Instant,
    /// Duration of the walk.
    took: Duration,
}

/// A running call that may write into the copy of its session. Dropping it ends the samples.
#[derive(Debug)]
pub(crate) struct CopyWriter {
    sizes: CopySizes,
    session: SessionId,
}

impl CopySizes {
    /// Creates the table without sizes.
    pub(crate) fn new(home: Home, settings: &IsolatedSettings, slots: CommandSlots) -> Self {
        let mebibytes = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        Self(Rc::new(Inner {
            home,
            max_mb: mebibytes(settings.max_mb.value),
            total_mb: mebibytes(settings.total_mb.value),
            slots,
            table: RefCell::default(),
            changed: Notify::new(),
            is_watched: Cell::new(false),
            permit: Arc::new(Semaphore::new(1)),
            ended: Notify::new(),
        }))
    }

    /// Returns the size of a session's copy at the last sample, in bytes, without its checkpoints.
    pub(crate) fn bytes(&self, session: &SessionId) -> Option<u64> {
        self.0.table.borrow().samples.get(session).map(|sample| sample.usage.files)
    }

    /// Registers a call that may write. The copy is sampled until the result is dropped.
    pub(crate) fn begin_call(&self, session: &SessionId) -> CopyWriter {
        *self.0.table.borrow_mut().writing.entry(session.clone()).or_default() += 1;
        self.notify_write(session);
        CopyWriter { sizes: self.clone(), session: session.clone() }
    }

    /// Schedules a sample, because something may have written into the copy.
    pub(crate) fn notify_write(&self, session: &SessionId) {
        self.0.table.borrow_mut().due.insert(session.clone(), Instant::now());
        self.0.changed.notify_one();
        if !self.0.is_watched.replace(true) {
            actix::spawn(Rc::clone(&self.0).watch());
        }
    }

    /// Removes the samples of a deleted session.
    pub(crate) fn forget(&self, session: &SessionId) {
        let mut table = self.0.table.borrow_mut();
        table.samples.remove(session);
        table.due.remove(session);
    }

    /// Returns the exceeded limits for a session, `isolated.max_mb` first. Samples again if the last samples exceed one,
    /// if the copy was written and its last sample is old, or if there is no sample of all copies yet. Waits up to 5 s.
    pub(crate) async fn excesses(&self, session: &SessionId) -> Vec<CopyExcess> {
        let known = self.0.excesses(session);
        let has_all = self.0.table.borrow().all_begun.is_some();
        if has_all && known.is_empty() && !self.0.is_outdated(session) {
            return known;
        }
        let is_of_all = !has_all || known.iter().any(|it| matches!(it, CopyExcess::All { .. }));
        let wanted = (!is_of_all).then(|| session.clone());
        let requested = self.0.request(wanted, Instant::now());
        tokio::time::timeout(WAIT, requested).await.ok();
        self.0.excesses(session)
    }
}

impl Inner {
    async fn watch(self: Rc<Self>) {
        loop {
            let due = self.due();
            if due.is_empty() {
                self.changed.notified().await;
                continue;
            }
            let started = Instant::now();
            for session in due {
                self.sample(&session, started).await;
            }
            let pause = started.elapsed().saturating_mul(PAUSE_FACTOR);
            tokio::time::sleep(pause.clamp(PAUSE, MAX_PAUSE)).await;
        }
    }

    /// Returns the sessions to sample.
    fn due(&self) -> BTreeSet<SessionId> {
        let table = self.table.borrow();
        table.due.keys().chain(table.writing.keys()).cloned().collect()
    }

    /// Whether a copy was written and its last sample is too old for a call.
    fn is_outdated(&self, session: &SessionId) -> bool {
        let table = self.table.borrow();
        let is_written = table.due.contains_key(session) || table.writing.contains_key(session);
        let is_recent = |sample: &Sample| {
            let max_age = sample.took.saturating_mul(MAX_AGE_FACTOR).max(MAX_AGE);
            sample.begun.elapsed() < max_age
        };
        is_written && !table.samples.get(session).is_some_and(is_recent)
    }

    /// Whether the last sample of a copy, or of all with `None`, began after `asked`.
    fn is_sampled(&self, wanted: Option<&SessionId>, asked: Instant) -> bool {
        let table = self.table.borrow();
        let begun = match wanted {
            Some(session) => table.samples.get(session).map(|sample| sample.begun),
            None => table.all_begun,
        };
        begun.is_some_and(|begun| asked <= begun)
    }

    /// Waits for a sample of a copy, or of all with `None`, that begins after `asked`. Calls share it. It counts for later
    /// calls even if this one stops waiting.
    async fn request(self: &Rc<Self>, wanted: Option<SessionId>, asked: Instant) {
        for _ in 0..MAX_ROUNDS {
            if self.is_sampled(wanted.as_ref(), asked) {
                return;
            }
            if self.table.borrow_mut().requested.insert(wanted.clone()) {
                let (inner, wanted) = (Rc::clone(self), wanted.clone());
                actix::spawn(async move {
                    match &wanted {
                        Some(session) => inner.sample(session, asked).await,
                        None => inner.sample_all(asked).await,
                    }
                    inner.table.borrow_mut().requested.remove(&wanted);
                    inner.ended.notify_waiters();
                });
            }
            while self.table.borrow().requested.contains(&wanted) {
                self.ended.notified().await;
            }
        }
    }

    /// Samples one copy, unless another sample of it began after `asked`.
    async fn sample(&self, session: &SessionId, asked: Instant) {
        let Ok(permit) = Arc::clone(&self.permit).acquire_owned().await else { return };
        if self.is_sampled(Some(session), asked) {
            return;
        }
        let (home, id, begun) = (self.home.clone(), session.clone(), Instant::now());
        let walk = move || (home.session_isolated_usage_blocking(id.as_str()), permit);
        // It fails only if the daemon is shutting down. The permit is held until the result is stored.
        if let Ok((usage, _permit)) = actix_rt::task::spawn_blocking(walk).await {
            let sample = Sample { usage, begun, took: begun.elapsed() };
            let mut table = self.table.borrow_mut();
            table.samples.insert(session.clone(), sample);
            table.due.retain(|id, written| id != session || self.stays_due(id, *written, begun));
        }
    }

    /// As [`Self::sample`], for all copies.
    async fn sample_all(&self, asked: Instant) {
        let Ok(permit) = Arc::clone(&self.permit).acquire_owned().await else { return };
        if self.is_sampled(None, asked) {
            return;
        }
        let (home, begun) = (self.home.clone(), Instant::now());
        let walk = move || (home.isolated_usage_blocking(), permit);
        if let Ok((all, _permit)) = actix_rt::task::spawn_blocking(walk).await {
            let took = begun.elapsed();
            let sampled = |(id, usage)| (SessionId(id), Sample { usage, begun, took });
            let mut table = self.table.borrow_mut();
            // Without the copies of deleted sessions.
            table.samples = all.into_iter().map(sampled).collect();
            table.all_begun = Some(begun);
            table.due.retain(|id, written| self.stays_due(id, *written, begun));
        }
    }

    /// Whether a session is sampled again after the sample of `begun`. Background jobs write at any time.
    fn stays_due(&self, session: &SessionId, written: Instant, begun: Instant) -> bool {
        begun <= written || self.slots.has_jobs(session)
    }

    /// Returns the limits that the last samples exceed, that of the session's own copy first.
    fn excesses(&self, session: &SessionId) -> Vec<CopyExcess> {
        let (max, max_of_all) = (self.max_mb, self.total_mb);
        let table = self.table.borrow();
        // Checkpoints have their own limit, and a command cannot delete them.
        let sample = table.samples.get(session);
        let own = sample.map_or(0, |sample| sample.usage.files);
        let is_incomplete = sample.is_some_and(|sample| !sample.usage.is_complete);
        let usages = table.samples.values().map(|sample| sample.usage);
        let parts = usages.flat_map(|usage| [usage.files, usage.checkpoints]);
        let all = parts.fold(0_u64, u64::saturating_add);
        let own = exceeds(own, max).map(|size| CopyExcess::Own { size, max });
        let all = exceeds(all, max_of_all).map(|size| CopyExcess::All { size, max: max_of_all });
        let unmeasured = is_incomplete.then_some(CopyExcess::Unmeasured);
        own.into_iter().chain(unmeasured).chain(all).collect()
    }
}

/// Returns a size in MiB, rounded up, if it exceeds a limit.
fn exceeds(bytes: u64, max_mb: u64) -> Option<u64> {
    (max_mb.saturating_mul(MIB) < bytes).then(|| bytes.div_ceil(MIB))
}

impl Drop for CopyWriter {
    fn drop(&mut self) {
        let mut table = self.sizes.0.table.borrow_mut();
        match table.writing.get(&self.session).copied().unwrap_or(0) {
            0 | 1 => drop(table.writing.remove(&self.session)),
            n => drop(table.writing.insert(self.session.clone(), n - 1)),
        }
        drop(table);
        // The last writes of the call come after the last sample.
        self.sizes.notify_write(&self.session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_exceeds_only_a_smaller_limit() {
        assert_eq!(exceeds(MIB, 1), None);
        assert_eq!(exceeds(MIB + 1, 1), Some(2));
    }

    #[test]
    fn commands_run_until_a_copy_exceeds_its_limit_by_a_quarter() {
        let own = |size| CopyExcess::Own { size, max: 100 };
        assert!(!own(101).refuses_commands() && !own(125).refuses_commands());
        assert!(own(126).refuses_commands());
        let of_one = |size| CopyExcess::Own { size, max: 1 };
        assert!(!of_one(2).refuses_commands() && of_one(3).refuses_commands());
        assert!(CopyExcess::Unmeasured.refuses_commands());
        assert!(CopyExcess::All { size: 2, max: 1 }.refuses_commands());
    }
}
