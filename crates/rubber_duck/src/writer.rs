//! The writer thread: keeps fsyncs off the supervisor's own thread.
//!
//! Group commit: while a save runs, a newer snapshot replaces the waiting one. The first save that contains a
//! caller's snapshot answers that caller. So memory is bounded by two snapshots and [`SAVE_WAITERS`] callers,
//! regardless of the disk's speed.
//!
//! Between saves, a hint from the watch makes the thread check for external writes and notify
//! [`Writer::changed`]. The save that the notified task then requests imports them.
//!
//! Owns the thread `store` and the threads of the watch. They stop when the [`Writer`] is dropped, after the
//! last snapshot is saved.

use crate::watch::{FileWatcher, Subject};
use crate::{Files, Saved, Watching};
use quackd_store::{Snapshot, StoreError};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::{Notify, mpsc, oneshot, watch};

/// Maximum number of waiting requests. One more fails with [`StoreError::Busy`]. Far above the number of
/// simultaneous requests in practice; each takes a few hundred bytes.
pub const SAVE_WAITERS: usize = 4096;

type SaveResult = oneshot::Sender<Result<Saved, StoreError>>;

/// Request to the writer thread.
#[derive(Debug)]
enum WriterRequest {
    /// Save the newest snapshot.
    Save(SaveResult),
    /// Check whether another program has written the file.
    Look,
}

/// The only writer of the two files.
#[derive(Debug)]
pub struct Writer {
    /// `None` only while the writer is being dropped.
    channel: Option<Channel>,
    thread: Option<JoinHandle<()>>,
    changed: Arc<Notify>,
    /// `None` if no thread could be started. Then external changes are imported only at the next save.
    watch: Option<FileWatcher>,
    watching: watch::Receiver<Watching>,
}

#[derive(Debug)]
struct Channel {
    newest: watch::Sender<Snapshot>,
    waiters: mpsc::Sender<WriterRequest>,
}

impl Writer {
    /// Starts the thread. Writes nothing before the first [`Writer::save`].
    ///
    /// # Errors
    /// [`StoreError::Io`] if a thread cannot be started.
    pub fn start(files: Files) -> Result<Self, StoreError> {
        let (newest, snapshots) = watch::channel(files.durable());
        let (waiters, waiting) = mpsc::channel(SAVE_WAITERS);
        let metadata_path = files.paths().metadata.clone();
        let no_thread = |source: io::Error| StoreError::write(&metadata_path, source);

        let changed = Arc::<Notify>::default();
        let notifier = Arc::clone(&changed);
        let thread = std::thread::Builder::new().name("store".to_owned());
        let thread = thread.spawn(move || run_blocking(files, snapshots, waiting, &notifier));
        let thread = Some(thread.map_err(no_thread)?);

        // A weak sender, so that dropping the writer's sender stops the thread.
        let requests = waiters.downgrade();
        let look = move || match requests.upgrade() {
            // A full queue contains saves, and each save checks the file.
            Some(requests) => !matches!(
                requests.try_send(WriterRequest::Look),
                Err(mpsc::error::TrySendError::Closed(_))
            ),
            None => false,
        };

        let (watch, watching) = match FileWatcher::start(Subject::CURRENT, &metadata_path, look) {
            Ok((watch, watching)) => (Some(watch), watching),
            Err(error) => (None, watch::channel(Watching::Polling { why: error.to_string() }).1),
        };

        let channel = Some(Channel { newest, waiters });
        Ok(Self { channel, thread, changed, watch, watching })
    }

    /// Returns the notifier that fires when another program has written the metadata. Several
    /// writes may cause one notification. A [`Writer::save`] of the content in memory imports them.
    #[must_use]
    pub fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Returns how external changes are detected, with updates.
    #[must_use]
    pub fn watching(&self) -> watch::Receiver<Watching> {
        self.watching.clone()
    }

    /// Hands over a snapshot. The result shows whether this snapshot **or a later one** is on disk. The save
    /// runs even if the future is dropped.
    ///
    /// The result contains external changes that were imported. The caller must apply them to its memory before
    /// it takes the next snapshot, so only one save should be in flight.
    ///
    /// Each snapshot must include the changes of the previous ones. Results arrive in the order of the saves.
    /// When none is outstanding, the disk contains the last snapshot with an `Ok` result. If a later save
    /// failed, the caller must roll its memory back to that snapshot.
    ///
    /// # Errors
    /// Errors of [`Files::save_blocking`]. [`StoreError::Busy`]: the snapshot was not handed over.
    /// [`StoreError::Stopped`]: the thread has stopped.
    pub fn save(
        &self,
        snapshot: Snapshot,
    ) -> impl Future<Output = Result<Saved, StoreError>> + Send + use<> {
        let answered = self.hand_over(snapshot);
        async move { answered?.await.unwrap_or(Err(StoreError::Stopped)) }
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
        // Send the snapshot first: the thread must find it when it sees the request.
        channel.newest.send_replace(snapshot);
        place.send(WriterRequest::Save(answer));
        Ok(answered)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // First, because its thread sends requests to the channel.
        drop(self.watch.take());
        // Without senders, the thread saves the last snapshot and stops.
        drop(self.channel.take());
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has already aborted the process.
            thread.join().ok();
        }
    }
}

fn run_blocking(
    mut files: Files,
    mut snapshots: watch::Receiver<Snapshot>,
    mut waiting: mpsc::Receiver<WriterRequest>,
    changed: &Notify,
) {
    let mut last = Ok(Saved::default());
    while let Some(first) = waiting.blocking_recv() {
        let mut group = Vec::new();
        let mut next = Some(first);

        // All requests that arrived during the last save share the next one.
        while let Some(request) = next {
            if let WriterRequest::Save(answer) = request {
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

        // If unchanged, the previous save already took this group's snapshot, after it arrived and before its
        // turn. An error means a closed channel, which still holds the last snapshot.
        if snapshots.has_changed().unwrap_or(true) || last.is_err() {
            let snapshot = snapshots.borrow_and_update().clone();
            last = files.save_blocking(&snapshot);
        }

        for answer in group {
            // Ignore callers that stopped waiting.
            answer.send(last.clone()).ok();
        }
    }
    files.finish_blocking();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Paths, open_blocking};
    use quackd_protocol::metadata::Metadata;
    use quackd_protocol::state::DaemonState;
    use std::fs;
    use std::path::Path;

    /// Returns a snapshot that differs from others by one key in each file.
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
        Writer::start(open_blocking(paths(dir)).files.unwrap()).unwrap()
    }

    fn on_disk(dir: &Path) -> Snapshot {
        open_blocking(paths(dir)).snapshot
    }

    /// Returns a writer without its thread; the test takes the requests.
    fn writer_without_thread() -> (Writer, watch::Receiver<Snapshot>, mpsc::Receiver<WriterRequest>)
    {
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
        let files = open_blocking(paths(dir.path())).files.unwrap();
        let (writer, snapshots, waiting) = writer_without_thread();
        let answers: Vec<_> = (0..100).map(|n| writer.save(snapshot(n))).collect();
        drop(writer);
        let run = move || run_blocking(files, snapshots, waiting, &Notify::new());
        std::thread::spawn(run).join().unwrap();
        for answer in answers {
            answer.await.unwrap();
        }
        assert_eq!(on_disk(dir.path()), snapshot(99));
        // A second save would have made the first one's file the backup.
        assert!(!dir.path().join("metadata.json.bak").exists());
    }

    #[tokio::test]
    async fn a_snapshot_that_was_saved_with_an_earlier_group_is_not_saved_again() {
        let dir = tempfile::tempdir().unwrap();
        let writer = start(dir.path());
        writer.save(snapshot(1)).await.unwrap();
        let (answer, answered) = oneshot::channel();
        writer.channel.as_ref().unwrap().waiters.try_send(WriterRequest::Save(answer)).unwrap();
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
        writer.channel.as_ref().unwrap().waiters.try_send(WriterRequest::Save(answer)).unwrap();
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
        // Without the thread, every caller gets an error.
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
        drop(writer);
        assert_eq!(on_disk(dir.path()), snapshot(9));
    }
}
