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
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Minimum pause between two rounds of samples.
const PAUSE: Duration = Duration::from_secs(5);

/// Maximum pause between two rounds of samples.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Pause after a round, as a multiple of its duration: these samples use at most a hundredth of a processor.
const PAUSE_FACTOR: u32 = 100;

/// Maximum time for which a sample waits for the one before.
const MAX_QUEUED: Duration = Duration::from_secs(60);

/// Maximum wait for a sample before or after a call.
const WAIT: Duration = Duration::from_secs(5);

/// Maximum age of the sample of a copy that was written, when a call begins or a command ends.
const MAX_AGE: Duration = Duration::from_secs(5);

/// Maximum age as a multiple of the duration of the walk, if that is longer: a large copy is not walked all the time.
const MAX_AGE_FACTOR: u32 = 4;

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
    copies: RefCell<BTreeMap<SessionId, PrivateCopy>>,
    /// When the last sample of all copies began. `None` before the first one.
    all_begun: Cell<Option<Instant>>,
    /// Whether the sampling task runs. It starts with a write, and ends when no copy may be written.
    is_watched: Cell<bool>,
    permit: Arc<Semaphore>,
}

/// A copy that was sampled, or may have been written.
#[derive(Debug, Default)]
struct PrivateCopy {
    sample: Option<Sample>,
    /// Running calls that may write.
    writers: usize,
    /// Time of the last notification, if there may be writes after the sample.
    written: Option<Instant>,
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
            copies: RefCell::default(),
            all_begun: Cell::default(),
            is_watched: Cell::default(),
            permit: Arc::new(Semaphore::new(1)),
        }))
    }

    /// Returns the size of a session's copy at the last sample, in bytes, without its checkpoints.
    pub(crate) fn bytes(&self, session: &SessionId) -> Option<u64> {
        self.sample_of(session).map(|sample| sample.usage.files)
    }

    /// Registers a call that may write. The copy is sampled until the result is dropped.
    pub(crate) fn begin_call(&self, session: &SessionId) -> CopyWriter {
        self.0.copies.borrow_mut().entry(session.clone()).or_default().writers += 1;
        self.notify_write(session);
        CopyWriter { sizes: self.clone(), session: session.clone() }
    }

    /// Schedules a sample, because something may have written into the copy.
    pub(crate) fn notify_write(&self, session: &SessionId) {
        let now = Some(Instant::now());
        self.0.copies.borrow_mut().entry(session.clone()).or_default().written = now;
        if !self.0.is_watched.replace(true) {
            actix::spawn(self.clone().watch());
        }
    }

    /// Removes the sample of a deleted session.
    pub(crate) fn forget(&self, session: &SessionId) {
        self.0.copies.borrow_mut().remove(session);
    }

    /// Returns the exceeded limits for a session, `isolated.max_mb` first. Samples again if the last samples exceed one,
    /// if the copy was written and its last sample is old, or if there is no sample of all copies yet. Waits up to 5 s.
    pub(crate) async fn excesses(&self, session: &SessionId) -> Vec<CopyExcess> {
        let last = self.last_excesses(session);
        let is_of_all = self.0.all_begun.get().is_none()
            || last.iter().any(|excess| matches!(excess, CopyExcess::All { .. }));
        let is_outdated = self.0.copies.borrow().get(session).is_some_and(PrivateCopy::is_outdated);
        if !is_of_all && last.is_empty() && !is_outdated {
            return last;
        }

        let copy = (!is_of_all).then_some(session);
        // After a timeout, the last sizes count.
        tokio::time::timeout(WAIT, self.sample(copy, Instant::now())).await.ok();
        self.last_excesses(session)
    }

    /// Returns the limits that the last samples exceed, that of the session's own copy first.
    fn last_excesses(&self, session: &SessionId) -> Vec<CopyExcess> {
        let (max, max_of_all) = (self.0.max_mb, self.0.total_mb);
        let usage = self.sample_of(session).map(|sample| sample.usage);
        // Checkpoints have their own limit, and a command cannot delete them.
        let own = usage.and_then(|usage| exceeds(usage.files, max));
        let unmeasured = usage.filter(|usage| !usage.is_complete);

        let copies = self.0.copies.borrow();
        let usages = copies.values().filter_map(|copy| Some(copy.sample?.usage));
        let parts = usages.flat_map(|usage| [usage.files, usage.checkpoints]);
        let all = exceeds(parts.fold(0, u64::saturating_add), max_of_all);

        let excesses = [
            own.map(|size| CopyExcess::Own { size, max }),
            unmeasured.map(|_| CopyExcess::Unmeasured),
            all.map(|size| CopyExcess::All { size, max: max_of_all }),
        ];
        excesses.into_iter().flatten().collect()
    }

    fn sample_of(&self, session: &SessionId) -> Option<Sample> {
        self.0.copies.borrow().get(session)?.sample
    }

    /// Returns the sessions whose copies may be written.
    fn written(&self) -> Vec<SessionId> {
        let copies = self.0.copies.borrow();
        let written = copies.iter().filter(|(_, copy)| copy.may_be_written());
        written.map(|(session, _)| session.clone()).collect()
    }

    /// Samples the copies that may be written, in rounds, until none is.
    async fn watch(self) {
        loop {
            let due = self.written();
            if due.is_empty() {
                self.0.is_watched.set(false);
                return;
            }

            let started = Instant::now();
            for session in due {
                self.sample(Some(&session), started).await;
            }
            let pause = started.elapsed().saturating_mul(PAUSE_FACTOR);
            tokio::time::sleep(pause.clamp(PAUSE, MAX_PAUSE)).await;
        }
    }

    /// Samples one copy, or all with `None`, unless another such sample began after `since`.
    async fn sample(&self, session: Option<&SessionId>, since: Instant) {
        let (sizes, session) = (self.clone(), session.cloned());
        // A separate task, so that the sample counts for later calls even if this one stops waiting.
        let sampling = actix::spawn(async move {
            let permit = Arc::clone(&sizes.0.permit).acquire_owned();
            // On a disk that hangs the walk before never ends, and each call leaves a task here.
            let Ok(Ok(_permit)) = tokio::time::timeout(MAX_QUEUED, permit).await else { return };

            let begun = match &session {
                Some(session) => sizes.sample_of(session).map(|sample| sample.begun),
                None => sizes.0.all_begun.get(),
            };
            if begun.is_none_or(|begun| begun < since) {
                sizes.walk(session).await;
            }
        });
        // It fails only if the daemon is shutting down.
        sampling.await.ok();
    }

    async fn walk(&self, session: Option<SessionId>) {
        let (home, begun, is_of_all) = (self.0.home.clone(), Instant::now(), session.is_none());
        let walk = move || match session {
            Some(SessionId(id)) => vec![(id.clone(), home.session_isolated_usage_blocking(&id))],
            None => home.isolated_usage_blocking(),
        };

        // It fails only if the daemon is shutting down.
        let Ok(usages) = actix_rt::task::spawn_blocking(walk).await else { return };

        let took = begun.elapsed();
        let mut copies = self.0.copies.borrow_mut();
        if is_of_all {
            self.0.all_begun.set(Some(begun));
            // The samples of deleted sessions do not count any longer.
            copies.values_mut().for_each(|copy| copy.sample = None);
        }

        for (id, usage) in usages {
            let session = SessionId(id);
            // Background jobs write at any time.
            let has_jobs = self.0.slots.has_jobs(&session);
            let copy = copies.entry(session).or_default();
            copy.sample = Some(Sample { usage, begun, took });
            copy.written = copy.written.filter(|written| begun <= *written || has_jobs);
        }
        copies.retain(|_, copy| copy.sample.is_some() || copy.may_be_written());
    }
}

impl PrivateCopy {
    fn may_be_written(&self) -> bool {
        self.writers != 0 || self.written.is_some()
    }

    /// Whether the copy was written and its last sample is too old for a call.
    fn is_outdated(&self) -> bool {
        let is_recent = |sample: Sample| {
            sample.begun.elapsed() < sample.took.saturating_mul(MAX_AGE_FACTOR).max(MAX_AGE)
        };
        self.may_be_written() && !self.sample.is_some_and(is_recent)
    }
}

/// Returns a size in MiB, rounded up, if it exceeds a limit.
fn exceeds(bytes: u64, max_mb: u64) -> Option<u64> {
    (max_mb.saturating_mul(MIB) < bytes).then(|| bytes.div_ceil(MIB))
}

impl Drop for CopyWriter {
    fn drop(&mut self) {
        // A deleted session has no entry.
        if let Some(copy) = self.sizes.0.copies.borrow_mut().get_mut(&self.session) {
            copy.writers = copy.writers.saturating_sub(1);
        }
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
