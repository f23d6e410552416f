//! The writer thread: no fsync ever runs on the supervisor's own thread.
//!
//! Group commit: while one save is in flight, later snapshots replace each other, and all who wait
//! are answered by the first save that contains theirs. Memory is therefore bounded by two snapshots
//! and [`SAVE_WAITERS`] answers, however slow the disk is.
//!
//! Owns: the thread `store`. Ends: when the [`Writer`] is dropped, after what was handed over is saved.

use crate::{StoreError, save_blocking};
use quackd_protocol::metadata::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot, watch};

/// Requests that may wait for the disk; one more is answered with [`StoreError::Busy`]. Far above what
/// a group of clients does at once, and a waiting request is a few hundred bytes.
pub const SAVE_WAITERS: usize = 4096;

type Answer = oneshot::Sender<Result<(), StoreError>>;

/// The one writer of a metadata file.
#[derive(Debug)]
pub struct Writer {
    /// `None` only while the writer is being dropped.
    channel: Option<Channel>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Channel {
    newest: watch::Sender<Arc<Metadata>>,
    waiters: mpsc::Sender<Answer>,
}

impl Writer {
    /// Starts the thread. Nothing is written before the first [`Writer::save`].
    ///
    /// # Errors
    /// [`StoreError::Io`] if the system has no thread to give.
    pub fn start(path: PathBuf) -> Result<Self, StoreError> {
        let (newest, snapshots) = watch::channel(Arc::new(Metadata::default()));
        let (waiters, waiting) = mpsc::channel(SAVE_WAITERS);
        let no_thread = |source: io::Error| StoreError::write(&path, source);
        let thread = std::thread::Builder::new().name("store".to_owned());
        let thread_path = path.clone();
        let thread = thread.spawn(move || run_blocking(&thread_path, snapshots, waiting));
        let thread = Some(thread.map_err(no_thread)?);
        Ok(Self { channel: Some(Channel { newest, waiters }), thread })
    }

    /// Hands over a snapshot. The answer says whether this snapshot **or a later one** is on disk; it
    /// comes whether or not it is waited for.
    ///
    /// Each snapshot must contain what the ones before it do. Answers come in the order of the saves,
    /// so the last one decides: once none is outstanding, the disk holds the last snapshot that was
    /// answered `Ok`, and memory must be rolled back to it if a later one failed.
    ///
    /// # Errors
    /// The answer is that of [`save_blocking`], or [`StoreError::Busy`] (nothing was handed over), or
    /// [`StoreError::Stopped`].
    pub fn save(
        &self,
        snapshot: Arc<Metadata>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + use<> {
        let answered = self.hand_over(snapshot);
        async move { answered?.await.unwrap_or(Err(StoreError::Stopped)) }
    }

    /// Saves what was handed over and ends the thread; as dropping does.
    pub fn shutdown_blocking(self) {
        drop(self);
    }

    fn hand_over(
        &self,
        snapshot: Arc<Metadata>,
    ) -> Result<oneshot::Receiver<Result<(), StoreError>>, StoreError> {
        let channel = self.channel.as_ref().ok_or(StoreError::Stopped)?;
        let place = channel.waiters.try_reserve().map_err(|error| match error {
            mpsc::error::TrySendError::Full(()) => StoreError::Busy,
            mpsc::error::TrySendError::Closed(()) => StoreError::Stopped,
        })?;
        let (answer, answered) = oneshot::channel();
        // The snapshot first: who is seen waiting has his snapshot there.
        channel.newest.send_replace(snapshot);
        place.send(answer);
        Ok(answered)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The thread saves what is there and ends when nobody can send any more.
        drop(self.channel.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has aborted the process already.
            thread.join().ok();
        }
    }
}

fn run_blocking(
    path: &Path,
    mut snapshots: watch::Receiver<Arc<Metadata>>,
    mut waiting: mpsc::Receiver<Answer>,
) {
    let mut last = Ok(());
    while let Some(first) = waiting.blocking_recv() {
        let mut group = vec![first];
        while let Ok(next) = waiting.try_recv() {
            group.push(next);
        }
        // Unchanged: the save before took this group's snapshot already, between its arrival and its
        // turn. A closed channel is asked like a changed one.
        if snapshots.has_changed().unwrap_or(true) || last.is_err() {
            let snapshot = Arc::clone(&snapshots.borrow_and_update());
            last = save_blocking(path, &snapshot);
        }
        for answer in group {
            // Who does not wait any more does not need the answer.
            answer.send(last.clone()).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Origin, load_blocking};
    use std::fs;

    /// A snapshot that is told from others by one key.
    fn snapshot(n: u64) -> Arc<Metadata> {
        let mut metadata = Metadata::default();
        metadata.other.insert("n".to_owned(), n.into());
        Arc::new(metadata)
    }

    /// A writer whose thread the test plays.
    fn writer_without_thread() -> (Writer, watch::Receiver<Arc<Metadata>>, mpsc::Receiver<Answer>) {
        let (newest, snapshots) = watch::channel(Arc::new(Metadata::default()));
        let (waiters, waiting) = mpsc::channel(SAVE_WAITERS);
        let channel = Some(Channel { newest, waiters });
        (Writer { channel, thread: None }, snapshots, waiting)
    }

    #[tokio::test]
    async fn what_is_answered_ok_is_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metadata.json");
        let writer = Writer::start(path.clone()).unwrap();
        for n in 0..20 {
            writer.save(snapshot(n)).await.unwrap();
            let loaded = load_blocking(&path).unwrap();
            assert_eq!((&loaded.metadata, loaded.origin), (&*snapshot(n), Origin::File));
        }
    }

    #[tokio::test]
    async fn all_who_wait_are_answered_by_one_save_of_the_newest_snapshot() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metadata.json");
        let saved = path.clone();
        let (writer, snapshots, waiting) = writer_without_thread();
        let answers: Vec<_> = (0..100).map(|n| writer.save(snapshot(n))).collect();
        drop(writer);
        std::thread::spawn(move || run_blocking(&path, snapshots, waiting)).join().unwrap();
        for answer in answers {
            answer.await.unwrap();
        }
        assert_eq!(load_blocking(&saved).unwrap().metadata, *snapshot(99));
        // A second save would have kept the first one's file.
        assert!(!dir.path().join("metadata.json.bak").exists());
    }

    #[tokio::test]
    async fn a_snapshot_that_was_saved_with_an_earlier_group_is_not_saved_again() {
        let dir = tempfile::tempdir().unwrap();
        let writer = Writer::start(dir.path().join("metadata.json")).unwrap();
        writer.save(snapshot(1)).await.unwrap();
        let (answer, answered) = oneshot::channel();
        writer.channel.as_ref().unwrap().waiters.try_send(answer).unwrap();
        answered.await.unwrap().unwrap();
        assert!(!dir.path().join("metadata.json.bak").exists());
    }

    #[tokio::test]
    async fn a_failed_save_is_answered_and_the_next_one_succeeds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("later/metadata.json");
        let writer = Writer::start(path.clone()).unwrap();
        let failed = writer.save(snapshot(1)).await;
        assert!(matches!(failed, Err(StoreError::Io { .. })), "{failed:?}");
        fs::create_dir(dir.path().join("later")).unwrap();
        writer.save(snapshot(2)).await.unwrap();
        assert_eq!(load_blocking(&path).unwrap().metadata, *snapshot(2));
    }

    #[tokio::test]
    async fn a_snapshot_whose_save_failed_is_saved_for_the_next_who_waits_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("later/metadata.json");
        let writer = Writer::start(path.clone()).unwrap();
        writer.save(snapshot(1)).await.unwrap_err();
        fs::create_dir(dir.path().join("later")).unwrap();
        let (answer, answered) = oneshot::channel();
        writer.channel.as_ref().unwrap().waiters.try_send(answer).unwrap();
        answered.await.unwrap().unwrap();
        assert_eq!(load_blocking(&path).unwrap().metadata, *snapshot(1));
    }

    #[tokio::test]
    async fn more_waiters_than_may_wait_are_refused_without_handing_over_their_snapshot() {
        let (writer, snapshots, waiting) = writer_without_thread();
        let limit = u64::try_from(SAVE_WAITERS).unwrap();
        let answers: Vec<_> = (0..limit).map(|n| writer.save(snapshot(n))).collect();
        assert!(matches!(writer.save(snapshot(limit)).await, Err(StoreError::Busy)));
        assert_eq!(**snapshots.borrow(), *snapshot(limit - 1));
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
        let path = dir.path().join("metadata.json");
        let writer = Writer::start(path.clone()).unwrap();
        for n in 0..10 {
            drop(writer.save(snapshot(n)));
        }
        writer.shutdown_blocking();
        assert_eq!(load_blocking(&path).unwrap().metadata, *snapshot(9));
    }
}
