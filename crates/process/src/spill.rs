//! Writes a long output to a file. Fed by [`crate::output`], written by a blocking task, so that a slow disk never
//! blocks the worker.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Bytes collected before a chunk goes to the writer.
const CHUNK_BYTES: usize = 64 * 1024;

/// Maximum number of chunks that wait for the disk. Beyond it the command waits.
const CHUNKS_IN_FLIGHT: usize = 8;

/// Maximum number of bytes held in memory before the file is created.
const MAX_THRESHOLD: usize = 1024 * 1024;

/// Bytes written between two checks of the free disk space.
const LOOK_BYTES: usize = 1024 * 1024;

/// Maximum number of directory entries read when old files are deleted.
const MAX_ENTRIES: usize = 4096;

/// File for the complete output, and the output length from which on it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpillTarget {
    /// An existing private directory.
    pub dir: PathBuf,
    /// Name of the file to create: a plain file name that does not exist yet. The part up to and including its first
    /// `-` names the family of spill files to which `max_files` applies.
    pub name: String,
    /// Maximum file size in bytes. Further output is not written.
    pub max_bytes: u64,
    /// Maximum number of files of the family, including the new one. The oldest are deleted.
    pub max_files: usize,
    /// Required free disk space in bytes. With less, writing does not start, or stops.
    pub min_free: u64,
    /// Bytes of both streams together above which the file is written, at most 1 MiB.
    pub threshold: usize,
    /// True to write each piece as it arrives, for readers that follow the file. Otherwise up to 64 KiB are buffered
    /// first.
    pub at_once: bool,
}

/// A file with the output of both streams in the order of arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spilled {
    /// The file.
    pub path: PathBuf,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// True if the file contains the whole output. False if the output was longer than allowed, or the disk was full
    /// or too slow.
    pub complete: bool,
    /// True if the file is incomplete or missing because the disk is almost full.
    pub disk_is_low: bool,
}

/// State of one command's spill file.
#[derive(Debug)]
pub(crate) enum Spill {
    /// The caller requested no file.
    Off,
    /// The output so far is short and is held in memory.
    Holding { target: SpillTarget, held: Vec<u8> },
    /// The output is long and is being written.
    Writing(Writing),
}

#[derive(Debug)]
pub(crate) struct Writing {
    path: PathBuf,
    chunks: mpsc::Sender<Vec<u8>>,
    writer: JoinHandle<io::Result<()>>,
    written: Arc<AtomicU64>,
    disk_is_low: Arc<AtomicBool>,
    gathered: Vec<u8>,
    /// Number of collected bytes that make a chunk.
    chunk_bytes: usize,
    /// Bytes left below the maximum file size.
    room: u64,
    /// True while no output was left out. After a gap nothing more is accepted, so the file is always a prefix of the
    /// output.
    complete: bool,
}

impl Spill {
    pub(crate) fn new(target: Option<SpillTarget>) -> Self {
        target.map_or(Self::Off, |target| Self::Holding { target, held: Vec::new() })
    }

    /// Adds output of one of the streams. Never waits: call [`Spill::make_room`] before the next call.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        match self {
            Self::Off => (),
            Self::Writing(writing) => writing.push(bytes),
            Self::Holding { target, held } => {
                held.extend_from_slice(bytes);
                if target.threshold.min(MAX_THRESHOLD) < held.len() {
                    let mut writing = Writing::begin(target);
                    writing.push(held);
                    *self = Self::Writing(writing);
                }
            }
        }
    }

    /// Waits until the writer can accept more. Cancel-safe.
    pub(crate) async fn make_room(&mut self) {
        let Self::Writing(writing) = self else { return };
        if writing.is_due() {
            if let Ok(permit) = writing.chunks.reserve().await {
                permit.send(std::mem::take(&mut writing.gathered));
                return;
            }
            writing.give_up();
        }
    }

    /// Sends the chunk if the writer can accept it at once, and otherwise drops it. For a command that is being
    /// stopped.
    pub(crate) fn make_room_now(&mut self) {
        let Self::Writing(writing) = self else { return };
        if writing.is_due() {
            if let Ok(permit) = writing.chunks.try_reserve() {
                permit.send(std::mem::take(&mut writing.gathered));
                return;
            }
            writing.give_up();
        }
    }

    /// Writes the remaining output and closes the file. Waits for the disk for at most `limit`. `None` if no file was
    /// needed, or if it could not be created for another reason than free disk space.
    pub(crate) async fn finish(self, limit: Duration) -> Option<Spilled> {
        let Self::Writing(writing) = self else { return None };
        let Writing { path, chunks, writer, written, disk_is_low, gathered, complete, .. } =
            writing;
        let close = async move {
            let all_sent = gathered.is_empty() || chunks.send(gathered).await.is_ok();
            // Ends the writer, which waits for chunks.
            drop(chunks);
            all_sent && matches!(writer.await, Ok(Ok(())))
        };

        let closed = tokio::time::timeout(limit, close).await.unwrap_or(false);
        // Acquire pairs with the Release of the writer, so that the numbers belong together.
        let disk_is_low = disk_is_low.load(Ordering::Acquire);
        match written.load(Ordering::Acquire) {
            0 if !disk_is_low => None,
            bytes => Some(Spilled { path, bytes, complete: complete && closed, disk_is_low }),
        }
    }
}

impl Writing {
    fn begin(target: &SpillTarget) -> Self {
        let (chunks, to_write) = mpsc::channel(CHUNKS_IN_FLIGHT);
        let written = Arc::new(AtomicU64::new(0));
        let path = target.dir.join(&target.name);
        let chunk_bytes = if target.at_once { 1 } else { CHUNK_BYTES };
        let disk_is_low = Arc::new(AtomicBool::new(false));
        let (target, room) = (target.clone(), target.max_bytes);
        let progress = (Arc::clone(&written), Arc::clone(&disk_is_low));

        let writer = tokio::task::spawn_blocking(move || {
            write_blocking(&target, to_write, &progress.0).inspect_err(|error| {
                let is_full = error.kind() == io::ErrorKind::StorageFull;
                progress.1.store(is_full, Ordering::Release);
            })
        });

        Self {
            path,
            chunks,
            writer,
            written,
            disk_is_low,
            gathered: Vec::new(),
            chunk_bytes,
            room,
            complete: true,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        if !self.complete {
            return;
        }
        let accepted = usize::try_from(self.room).unwrap_or(usize::MAX).min(bytes.len());
        self.gathered.extend_from_slice(bytes.get(..accepted).unwrap_or_default());
        self.room = self.room.saturating_sub(u64::try_from(accepted).unwrap_or(u64::MAX));
        self.complete = accepted == bytes.len();
    }

    fn is_due(&self) -> bool {
        self.chunk_bytes <= self.gathered.len()
    }

    fn give_up(&mut self) {
        self.gathered = Vec::new();
        self.complete = false;
    }
}

fn write_blocking(
    target: &SpillTarget,
    mut chunks: mpsc::Receiver<Vec<u8>>,
    written: &AtomicU64,
) -> io::Result<()> {
    let name = Path::new(&target.name);
    // The name must not lead to another directory.
    if !matches!(name.components().collect::<Vec<_>>().as_slice(), [Component::Normal(_)]) {
        return Err(io::ErrorKind::InvalidFilename.into());
    }

    has_room(target)?;
    delete_oldest(target)?;
    let path = target.dir.join(name);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;

    let mut unseen = 0;
    while let Some(chunk) = chunks.blocking_recv() {
        if LOOK_BYTES <= unseen {
            has_room(target)?;
            unseen = 0;
        }
        unseen += chunk.len();
        file.write_all(&chunk)?;
        written.fetch_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX), Ordering::Release);
    }
    Ok(())
}

/// Fails if the free disk space is too low. If the system does not report it, assumes enough.
fn has_room(target: &SpillTarget) -> io::Result<()> {
    let Ok(stat) = rustix::fs::statvfs(&target.dir) else { return Ok(()) };
    if stat.f_bavail.saturating_mul(stat.f_frsize) < target.min_free {
        return Err(io::ErrorKind::StorageFull.into());
    }
    Ok(())
}

/// Deletes the oldest files of the family, so that one more is within the limit.
fn delete_oldest(target: &SpillTarget) -> io::Result<()> {
    let family = target.name.split_inclusive('-').next().unwrap_or_default();
    let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in target.dir.read_dir()?.take(MAX_ENTRIES) {
        let entry = entry?;
        let is_family = entry.file_name().to_str().is_some_and(|name| name.starts_with(family));
        if is_family && entry.file_type()?.is_file() {
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            files.push((modified.unwrap_or(SystemTime::UNIX_EPOCH), entry.path()));
        }
    }

    files.sort_unstable();
    let excess = (files.len() + 1).saturating_sub(target.max_files.max(1));
    for (_, path) in files.into_iter().take(excess) {
        // Another call may have deleted it since.
        fs::remove_file(path).ok();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn target(dir: &Path, name: &str) -> SpillTarget {
        SpillTarget {
            dir: dir.to_owned(),
            name: name.to_owned(),
            max_bytes: 1_000_000,
            max_files: 3,
            min_free: 0,
            threshold: 10,
            at_once: false,
        }
    }

    async fn spill(target: SpillTarget, chunks: &[&[u8]]) -> Option<Spilled> {
        let mut spill = Spill::new(Some(target));
        for chunk in chunks {
            spill.push(chunk);
            spill.make_room().await;
        }
        spill.finish(LIMIT).await
    }

    #[tokio::test]
    async fn short_output_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(spill(target(dir.path(), "bash-1"), &[b"12345", b"67890"]).await, None);
        assert_eq!(dir.path().read_dir().unwrap().count(), 0);
    }

    #[tokio::test]
    async fn long_output_is_written_from_its_first_byte() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bash-1");
        let spilled = spill(target(dir.path(), "bash-1"), &[b"12345", b"67890", b"!", b"?"]).await;
        let disk_is_low = false;
        let whole = Spilled { path: path.clone(), bytes: 12, complete: true, disk_is_low };
        assert_eq!(spilled, Some(whole));
        assert_eq!(fs::read(path).unwrap(), b"1234567890!?");
    }

    #[tokio::test]
    async fn a_file_for_readers_has_every_piece_soon() {
        let dir = tempfile::tempdir().unwrap();
        let target = SpillTarget { threshold: 0, at_once: true, ..target(dir.path(), "job-1") };
        let mut spill = Spill::new(Some(target));
        for (piece, whole) in [("a", "a"), ("bc", "abc")] {
            spill.push(piece.as_bytes());
            spill.make_room().await;
            let until = std::time::Instant::now() + LIMIT;
            let path = dir.path().join("job-1");
            while fs::read_to_string(&path).unwrap_or_default() != whole {
                assert!(std::time::Instant::now() < until, "no {whole} in time");
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(spill.finish(LIMIT).await.unwrap().bytes, 3);
    }

    #[tokio::test]
    async fn the_file_stops_at_its_limit_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let mut target = target(dir.path(), "bash-1");
        target.max_bytes = 150_000;
        let chunk = vec![b'x'; 60_000];
        let spilled = spill(target, &[&chunk, &chunk, &chunk, &chunk]).await.unwrap();
        assert_eq!((spilled.bytes, spilled.complete), (150_000, false));
        assert_eq!(fs::metadata(spilled.path).unwrap().len(), 150_000);
    }

    #[tokio::test]
    async fn on_a_disk_that_is_almost_full_nothing_is_written_and_nothing_deleted_for_it() {
        let dir = tempfile::tempdir().unwrap();
        for n in 1..=3 {
            fs::write(dir.path().join(format!("bash-{n}")), "kept").unwrap();
        }
        let path = dir.path().join("bash-4");
        let target = SpillTarget { min_free: u64::MAX, ..target(dir.path(), "bash-4") };
        let spilled = spill(target, &[b"12345678901"]).await;
        let none = Spilled { path, bytes: 0, complete: false, disk_is_low: true };
        assert_eq!(spilled, Some(none));
        assert_eq!(dir.path().read_dir().unwrap().count(), 3);
    }

    #[tokio::test]
    async fn only_the_newest_files_of_the_family_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("other"), "").unwrap();
        for (age, name) in [(30, "bash-1"), (40, "bash-2"), (10, "bash-3")] {
            let file = fs::File::create(dir.path().join(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        }
        spill(target(dir.path(), "bash-4"), &[b"12345678901"]).await.unwrap();
        let mut left: Vec<_> =
            dir.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["bash-1", "bash-3", "bash-4", "other"]);
    }

    #[tokio::test]
    async fn a_file_is_never_overwritten_and_never_outside_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("taken"), "mine").unwrap();
        for name in ["taken", "../escaped", "a/b", "", ".."] {
            assert_eq!(spill(target(dir.path(), name), &[b"12345678901"]).await, None, "{name}");
        }
        assert_eq!(fs::read(dir.path().join("taken")).unwrap(), b"mine");
        assert!(!dir.path().parent().unwrap().join("escaped").exists());
    }
}
