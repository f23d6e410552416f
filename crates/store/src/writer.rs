//! The writer thread: no fsync ever runs on the supervisor's own thread.
//!
//! Group commit: while one save is in flight, later snapshots replace each other, and all who wait
//! are answered by the first save that contains theirs. Memory is therefore bounded by two snapshots
//! and [`SAVE_WAITERS`] answers, however slow the disk is.
//!
//! Between saves it looks whether another program has written the metadata, when there is a hint, and tells.
//! What was written there is read and merged by the save that whoever was told asks for.
//!
//! Owns: the thread `store`, and those of the watch. Ends: when the [`Writer`] is dropped, after what was
//! handed over is saved.

use crate::watch::Watch;
use crate::{Files, Paths, Saved, Snapshot, StoreError, Watching};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::{Notify, mpsc, oneshot, watch};

/// Requests that may wait for the disk; one more is answered with [`StoreError::Busy`]. Far above what
/// a group of clients does at once, and a waiting request is a few hundred bytes.
pub const SAVE_WAITERS: usize = 4096;

type Answer = oneshot::Sender<Result<Saved, StoreError>>;

/// What the thread is asked for.
#[derive(Debug)]
enum Request {
    /// To save the newest snapshot.
    Save(Answer),
    /// To look whether another program has written.
    Look,
}

/// The one writer of the two files.
#[derive(Debug)]
pub struct Writer {
    /// `None` only while the writer is being dropped.
    channel: Option<Channel>,
    thread: Option<JoinHandle<()>>,
    changed: Arc<Notify>,
    /// `None` if the system has no thread for it: other programs are heard at our next save.
    watch: Option<Watch>,
    watching: watch::Receiver<Watching>,
}

#[derive(Debug)]
struct Channel {
    newest: watch::Sender<Snapshot>,
    waiters: mpsc::Sender<Request>,
}

impl Writer {
    /// Starts the thread. Nothing is written before the first [`Writer::save`]. `loaded` is what was read
    /// from the files: the writer knows from it which entries go with their sessions.
    ///
    /// # Errors
    /// [`StoreError::Io`] if the system has no thread to give.
    pub fn start(paths: Paths, loaded: Snapshot) -> Result<Self, StoreError> {
        let (newest, snapshots) = watch::channel(loaded.clone());
        let (waiters, waiting) = mpsc::channel(SAVE_WAITERS);
        let metadata_path = paths.metadata.clone();
        let no_thread = |source: io::Error| StoreError::write(&metadata_path, source);
        let files = Files::new(paths, loaded);
        let changed = Arc::<Notify>::default();
        let telling = Arc::clone(&changed);
        let thread = std::thread::Builder::new().name("store".to_owned());
        let thread = thread.spawn(move || run_blocking(files, snapshots, waiting, &telling));
        let thread = Some(thread.map_err(no_thread)?);
        // Weak: the thread ends when the writer's own one is gone.
        let requests = waiters.downgrade();
        let look = move || match requests.upgrade() {
            // Full: those who wait have their saves, and each looks.
            Some(requests) => !matches!(
                requests.try_send(Request::Look),
                Err(mpsc::error::TrySendError::Closed(_))
            ),
            None => false,
        };
        let (watch, watching) = match Watch::start(&metadata_path, look) {
            Ok((watch, watching)) => (Some(watch), watching),
            Err(error) => (None, watch::channel(Watching::Polling { why: error.to_string() }).1),
        };
        let channel = Some(Channel { newest, waiters });
        Ok(Self { channel, thread, changed, watch, watching })
    }

    /// Somebody who waits on this is told, once for all there was before, that another program has written
    /// the metadata. A [`Writer::save`] of what is in memory takes it over.
    #[must_use]
    pub fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// How that is noticed, now and later.
    #[must_use]
    pub fn watching(&self) -> watch::Receiver<Watching> {
        self.watching.clone()
    }

    /// Hands over a snapshot. The answer says whether this snapshot **or a later one** is on disk; it
    /// comes whether or not it is waited for.
    ///
    /// What another program has changed meanwhile is merged into it, and comes with the answer: memory must
    /// have it before the next snapshot is made of it, so there should be one save under way at a time.
    ///
    /// Each snapshot must contain what the ones before it do. Answers come in the order of the saves,
    /// so the last one decides: once none is outstanding, the disk holds the last snapshot that was
    /// answered `Ok`, and memory must be rolled back to it if a later one failed.
    ///
    /// # Errors
    /// The answer is that of [`Files::save_blocking`], or [`StoreError::Busy`] (nothing was handed over), or
    /// [`StoreError::Stopped`].
    pub fn save(
        &self,
        snapshot: Snapshot,
    ) -> impl Future<Output = Result<Saved, StoreError>> + Send + use<> {
        let answered = self.hand_over(snapshot);
        async move { answered?.await.unwrap_or(Err(StoreError::Stopped)) }
    }

    /// Saves what was handed over and ends the thread; as dropping does.
    pub fn shutdown_blocking(self) {
        drop(self);
    }

    fn hand_over(
        &self,
        snapshot: Snapshot,
    ) -> Result<oneshot::Receiver<Result<Saved, StoreError>>, StoreError> {
        let channel = self.channel.as_ref().ok_or(StoreError::Stopped)?;
        let place = channel.waiters.try_reserve().map_err(|error| match error {
            mpsc::error::TrySendError::Full(()) => StoreError::Busy,
            mpsc::error::TrySendError::Closed(()) => StoreError::Stopped,
        })?;
        let (answer, answered) = oneshot::channel();
        // The snapshot first: who is seen waiting has his snapshot there.
        channel.newest.send_replace(snapshot);
        place.send(Request::Save(answer));
        Ok(answered)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.watch.take());
        // The thread saves what is there and ends when nobody can send any more.
        drop(self.channel.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has aborted the process already.
            thread.join().ok();
        }
    }
}

fn run_blocking(
    mut files: Files,
    mut snapshots: watch::Receiver<Snapshot>,
    mut waiting: mpsc::Receiver<Request>,
    changed: &Notify,
) {
    let mut last = Ok(Saved::default());
    while let Some(first) = waiting.blocking_recv() {
        let mut group = Vec::new();
        let mut next = Some(first);
        while let Some(request) = next {
            if let Request::Save(answer) = request {
                group.push(answer);
            }
            next = waiting.try_recv().ok();
        }
        if group.is_empty() {
            if files.has_changed_blocking() {
                changed.notify_one();
            }
            continue;
        }
        // Unchanged: the save before took this group's snapshot already, between its arrival and its
        // turn. A closed channel is asked like a changed one.
        if snapshots.has_changed().unwrap_or(true) || last.is_err() {
            let snapshot = snapshots.borrow_and_update().clone();
            last = files.save_blocking(&snapshot);
        }
        for answer in group {
            // Who does not wait any more does not need the answer.
            answer.send(last.clone()).ok();
        }
    }
    files.finish_blocking();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{load_blocking, load_state_blocking};
    use quackd_protocol::metadata::Metadata;
    use quackd_protocol::state::DaemonState;
    use std::fs;
    use std::path::Path;

    /// A snapshot that is told from others by one key in each file.
    fn snapshot(n: u64) -> Snapshot {
        let mut metadata = Metadata::default();
        metadata.other.insert("n".to_owned(), n.into());
        let mut state = DaemonState::default();
        state.other.insert("n".to_owned(), n.into());
        Snapshot { metadata: metadata.into(), state: state.into() }
    }

    fn paths(dir: &Path) -> Paths {
        Paths { metadata: dir.join("metadata.json"), state: dir.join("quackd-state.json") }
    }

    fn start(dir: &Path) -> Writer {
        Writer::start(paths(dir), Snapshot::default()).unwrap()
    }

    fn on_disk(dir: &Path) -> Snapshot {
        let Paths { metadata, state } = paths(dir);
        Snapshot {
            metadata: load_blocking(&metadata).unwrap().metadata.into(),
            state: load_state_blocking(&state).unwrap().state.into(),
        }
    }

    /// A writer whose thread the test plays.
    fn writer_without_thread() -> (Writer, watch::Receiver<Snapshot>, mpsc::Receiver<Request>) {
        let (newest, snapshots) = watch::channel(Snapshot::default());
        let (waiters, waiting) = mpsc::channel(SAVE_WAITERS);
        let channel = Some(Channel { newest, waiters });
        let (_, watching) = watch::channel(Watching::Told);
        let writer =
            Writer { channel, thread: None, changed: Arc::default(), watch: None, watching };
        (writer, snapshots, waiting)
    }

    #[tokio::test]
    async fn what_is_answered_ok_is_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        let writer = start(dir.path());
        for n in 0..20 {
            writer.save(snapshot(n)).await.unwrap();
            assert_eq!(on_disk(dir.path()), snapshot(n));
        }
    }

    #[tokio::test]
    async fn all_who_wait_are_answered_by_one_save_of_the_newest_snapshot() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::new(paths(dir.path()), Snapshot::default());
        let (writer, snapshots, waiting) = writer_without_thread();
        let answers: Vec<_> = (0..100).map(|n| writer.save(snapshot(n))).collect();
        drop(writer);
        let run = move || run_blocking(files, snapshots, waiting, &Notify::new());
        std::thread::spawn(run).join().unwrap();
        for answer in answers {
            answer.await.unwrap();
        }
        assert_eq!(on_disk(dir.path()), snapshot(99));
        // A second save would have kept the first one's file.
        assert!(!dir.path().join("metadata.json.bak").exists());
    }

    #[tokio::test]
    async fn a_snapshot_that_was_saved_with_an_earlier_group_is_not_saved_again() {
        let dir = tempfile::tempdir().unwrap();
        let writer = start(dir.path());
        writer.save(snapshot(1)).await.unwrap();
        let (answer, answered) = oneshot::channel();
        writer.channel.as_ref().unwrap().waiters.try_send(Request::Save(answer)).unwrap();
        answered.await.unwrap().unwrap();
        assert!(!dir.path().join("metadata.json.bak").exists());
    }

    #[tokio::test]
    async fn a_failed_save_is_answered_and_the_next_one_succeeds() {
        let dir = tempfile::tempdir().unwrap();
        let later = dir.path().join("later");
        let writer = start(&later);
        let failed = writer.save(snapshot(1)).await;
        assert!(matches!(failed, Err(StoreError::Io { .. })), "{failed:?}");
        fs::create_dir(&later).unwrap();
        writer.save(snapshot(2)).await.unwrap();
        assert_eq!(on_disk(&later), snapshot(2));
    }

    #[tokio::test]
    async fn a_snapshot_whose_save_failed_is_saved_for_the_next_who_waits_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let later = dir.path().join("later");
        let writer = start(&later);
        writer.save(snapshot(1)).await.unwrap_err();
        fs::create_dir(&later).unwrap();
        let (answer, answered) = oneshot::channel();
        writer.channel.as_ref().unwrap().waiters.try_send(Request::Save(answer)).unwrap();
        answered.await.unwrap().unwrap();
        assert_eq!(on_disk(&later), snapshot(1));
    }

    #[tokio::test]
    async fn more_waiters_than_may_wait_are_refused_without_handing_over_their_snapshot() {
        let (writer, snapshots, waiting) = writer_without_thread();
        let limit = u64::try_from(SAVE_WAITERS).unwrap();
        let answers: Vec<_> = (0..limit).map(|n| writer.save(snapshot(n))).collect();
        assert!(matches!(writer.save(snapshot(limit)).await, Err(StoreError::Busy)));
        assert_eq!(*snapshots.borrow(), snapshot(limit - 1));
        // The thread ends without an answer: everybody is told.
        drop(waiting);
        for answer in answers {
            assert!(matches!(answer.await, Err(StoreError::Stopped)));
        }
        assert!(matches!(writer.save(snapshot(0)).await, Err(StoreError::Stopped)));
    }

    #[test]
    fn dropping_the_writer_saves_what_nobody_waits_for() {
        let dir = tempfile::tempdir().unwrap();
        let writer = start(dir.path());
        for n in 0..10 {
            drop(writer.save(snapshot(n)));
        }
        writer.shutdown_blocking();
        assert_eq!(on_disk(dir.path()), snapshot(9));
    }
}
