//! Detects that another program has replaced `metadata.json`.
//!
//! Watches the directory on Linux, because every replacement is a new inode, and the file itself on macOS
//! ([`Subject`]). An event is only a hint to check the file. The thread also polls: every 10 s with a watch, and
//! every 1 s without one. So a lost watch only delays the detection.
//!
//! Owns the thread `metadata-watch` and the watcher's thread. Both stop when the [`FileWatcher`] is dropped.

use crate::platform::WATCHES_FILES;
use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Poll intervals with a watch and without one. A change must be detected within 2 s.
const WATCHED_POLL_INTERVAL: Duration = Duration::from_secs(if cfg!(test) { 600 } else { 10 });
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Debounce: time without events before a check, and the maximum delay of a check.
const QUIET_TIME: Duration = Duration::from_millis(50);
const MAX_DELAY: Duration = Duration::from_millis(250);

/// Interval between attempts to create a watch. A new file is watched at once.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Inode that is watched. Tests on Linux use both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The directory. It stays when the file is replaced.
    Directory,
    /// The file. Its removal and its replacement end the watch, and the next round watches the new file.
    ///
    /// For kqueue, which reports a write to a directory without the name of the entry. For that, notify would name an
    /// unrelated entry, and it would open and watch one more entry at every change.
    File,
}

impl Subject {
    /// The one that this system needs.
    pub(crate) const CURRENT: Self = if WATCHES_FILES { Self::File } else { Self::Directory };
}

/// Detection of external changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Watching {
    /// No watch was attempted yet.
    Starting,
    /// By events of the operating system.
    Told,
    /// By polling every second.
    Polling {
        /// Reason why events are not available.
        why: String,
    },
}

/// Watches one file. Dropping it stops the threads.
#[derive(Debug)]
pub(crate) struct FileWatcher {
    is_closed: Arc<AtomicBool>,
    wake: SyncSender<()>,
    thread: Option<JoinHandle<()>>,
}

impl FileWatcher {
    /// Calls `look` on a separate thread whenever the file at `path` may have been replaced. Stops when
    /// `look` returns false.
    pub(crate) fn start(
        subject: Subject,
        path: &Path,
        look: impl FnMut() -> bool + Send + 'static,
    ) -> std::io::Result<(Self, watch::Receiver<Watching>)> {
        let (wake, wakes) = sync_channel(1);
        let is_closed = Arc::<AtomicBool>::default();
        let (mode, mode_changes) = watch::channel(Watching::Starting);
        let directory = path.parent().map_or_else(|| PathBuf::from("."), Path::to_owned);

        let poller = PollThread {
            subject,
            path: match subject {
                Subject::Directory => directory.clone(),
                Subject::File => path.to_owned(),
            },
            directory,
            name: path.file_name().unwrap_or_default().to_owned(),
            wake: wake.clone(),
            is_lost: Arc::default(),
            is_closed: Arc::clone(&is_closed),
            mode,
            watched: None,
        };

        let thread = std::thread::Builder::new().name("metadata-watch".to_owned());
        let thread = Some(thread.spawn(move || poller.run_blocking(&wakes, look))?);
        Ok((Self { is_closed, wake, thread }, mode_changes))
    }
}

impl Drop for FileWatcher {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Release);
        // A pending wake-up is sufficient.
        self.wake.try_send(()).ok();
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has already aborted the process.
            thread.join().ok();
        }
    }
}

struct PollThread {
    subject: Subject,
    /// Path of the subject.
    path: PathBuf,
    directory: PathBuf,
    name: OsString,
    wake: SyncSender<()>,
    /// True if the watcher lost events or its subject is gone.
    is_lost: Arc<AtomicBool>,
    is_closed: Arc<AtomicBool>,
    mode: watch::Sender<Watching>,
    watched: Option<Watched>,
}

/// A watch and the identity of its subject: the path may become another inode.
struct Watched {
    subject: (u64, u64),
    /// Dropping it ends the watch.
    _watcher: RecommendedWatcher,
}

impl PollThread {
    fn run_blocking(mut self, wakes: &Receiver<()>, mut look: impl FnMut() -> bool) {
        let mut next_try = Instant::now();
        loop {
            if self.drop_lost() && self.subject == Subject::File {
                // A file that was replaced is watched again at once.
                next_try = Instant::now();
            }

            if self.watched.is_none() && next_try <= Instant::now() {
                // An absent file is tried at each poll, so that a new one is watched at once.
                let is_absent = self.subject == Subject::File && self.identity().is_none();
                let pause = if is_absent { Duration::ZERO } else { RETRY_INTERVAL };
                next_try = Instant::now() + pause;
                self.try_to_watch();
            }

            // Also detects changes from before the watch.
            if self.is_closed.load(Ordering::Acquire) || !look() {
                return;
            }

            let pause = if self.watched.is_some() { WATCHED_POLL_INTERVAL } else { POLL_INTERVAL };
            match wakes.recv_timeout(pause) {
                Ok(()) => self.wait_for_quiet(wakes),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Waits until events stop: the other program may be in the middle of several writes.
    fn wait_for_quiet(&self, wakes: &Receiver<()>) {
        let until = Instant::now() + MAX_DELAY;
        while !self.is_closed.load(Ordering::Acquire) {
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() || wakes.recv_timeout(rest.min(QUIET_TIME)).is_err() {
                return;
            }
        }
    }

    /// Drops a watch that reports nothing more. Returns true if it dropped one.
    fn drop_lost(&mut self) -> bool {
        let was_lost = self.is_lost.swap(false, Ordering::AcqRel);
        let Some(watched) = &self.watched else { return false };
        if !was_lost && self.identity() == Some(watched.subject) {
            return false;
        }

        self.watched = None;
        if self.subject == Subject::Directory {
            let why = "the watch was lost".to_owned();
            self.mode.send_replace(Watching::Polling { why });
        }
        true
    }

    fn try_to_watch(&mut self) {
        let mode = match self.watch() {
            Ok(watched) => {
                self.watched = Some(watched);
                Watching::Told
            }
            Err(why) => Watching::Polling { why },
        };
        // An absent file is tried every second, and receivers log each change.
        self.mode.send_if_modified(|old| {
            let has_changed = *old != mode;
            *old = mode;
            has_changed
        });
    }

    fn watch(&self) -> Result<Watched, String> {
        // Before the watch: if the path becomes another inode in between, the next round finds the difference.
        let subject = self
            .identity()
            .ok_or_else(|| format!("{} cannot be inspected", self.path.display()))?;

        let (wake, is_lost) = (self.wake.clone(), Arc::clone(&self.is_lost));
        let (name, parent) = (self.name.clone(), self.directory.clone());
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let signal = classify(event.as_ref().ok(), &name, &parent);
            if signal == WatchSignal::Lost {
                is_lost.store(true, Ordering::Release);
            }
            if signal != WatchSignal::Nothing {
                // One pending wake-up is sufficient for all events.
                wake.try_send(()).ok();
            }
        })
        .map_err(|error| error.to_string())?;

        watcher
            .watch(&self.path, RecursiveMode::NonRecursive)
            .map_err(|error| error.to_string())?;
        Ok(Watched { subject, _watcher: watcher })
    }

    /// Returns device and inode of the subject. `None` for a FIFO in the place of the file, because
    /// kqueue would wait for its writer.
    fn identity(&self) -> Option<(u64, u64)> {
        let metadata = std::fs::metadata(&self.path).ok()?;
        let is_usable = self.subject == Subject::Directory || metadata.is_file();
        is_usable.then(|| (metadata.dev(), metadata.ino()))
    }
}

#[derive(Debug, PartialEq, Eq)]
enum WatchSignal {
    Nothing,
    Hint,
    Lost,
}

/// Classifies an event; `None` is an error of the watcher.
fn classify(event: Option<&Event>, name: &OsStr, directory: &Path) -> WatchSignal {
    let Some(event) = event else { return WatchSignal::Lost };

    let is_write = match event.kind {
        EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
        _ => true,
    };
    let is_of_file = event.paths.iter().any(|path| path.file_name() == Some(name));

    // The next round checks whether it is still the same directory.
    let is_end = matches!(event.kind, EventKind::Remove(_) | EventKind::Modify(_));
    let is_of_directory = event.paths.iter().any(|path| path == directory);

    if event.need_rescan() || (is_write && is_of_file) || (is_end && is_of_directory) {
        WatchSignal::Hint
    } else {
        WatchSignal::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::mpsc::{Sender, channel};

    /// Longer than every expected delay in these tests, and shorter than [`RETRY_INTERVAL`] and than a poll without a hint.
    const PATIENCE: Duration = Duration::from_secs(50);

    /// Records the content of the file at each check.
    fn looking(path: &Path) -> (impl FnMut() -> bool + Send + 'static, Receiver<Option<String>>) {
        let (seen, looks): (Sender<Option<String>>, _) = channel();
        let path = path.to_owned();
        let look = move || seen.send(fs::read_to_string(&path).ok()).is_ok();
        (look, looks)
    }

    #[expect(clippy::disallowed_methods, reason = "it is the other program that renames here")]
    fn rename(from: &Path, to: &Path) {
        fs::rename(from, to).unwrap();
    }

    #[track_caller]
    fn wait_for(looks: &Receiver<Option<String>>, expected: &str) {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if looks.recv_timeout(PATIENCE).unwrap().as_deref() == Some(expected) {
                return;
            }
        }
        panic!("{expected} was never seen");
    }

    #[track_caller]
    fn wait_until(
        mode_changes: &mut watch::Receiver<Watching>,
        is_wanted: impl Fn(&Watching) -> bool,
    ) {
        let begin = Instant::now();
        while !is_wanted(&mode_changes.borrow_and_update()) {
            assert!(begin.elapsed() < PATIENCE, "{mode_changes:?}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_replacement_and_a_file_that_is_written_in_place_are_seen_at_once() {
        for subject in [Subject::Directory, Subject::File] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("f");
            fs::write(&path, "zero").unwrap();
            let (look, looks) = looking(&path);
            let (_watch, mut mode_changes) = FileWatcher::start(subject, &path, look).unwrap();
            wait_until(&mut mode_changes, |mode| *mode == Watching::Told);
            fs::write(&path, "one").unwrap();
            wait_for(&looks, "one");
            // The second replacement shows that the first one did not end the watch.
            for text in ["two", "three"] {
                fs::write(dir.path().join("new"), text).unwrap();
                rename(&dir.path().join("new"), &path);
                wait_for(&looks, text);
            }
            assert_eq!(*mode_changes.borrow_and_update(), Watching::Told);
        }
    }

    #[test]
    fn a_watched_file_may_be_absent_or_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let (look, looks) = looking(&path);
        let (_watch, mut mode_changes) = FileWatcher::start(Subject::File, &path, look).unwrap();
        for text in ["one", "two"] {
            wait_until(
                &mut mode_changes,
                |it| matches!(it, Watching::Polling { why } if why.contains("cannot")),
            );
            fs::write(&path, text).unwrap();
            wait_until(&mut mode_changes, |mode| *mode == Watching::Told);
            wait_for(&looks, text);
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_directory_that_is_not_there_is_polled_and_one_that_is_replaced_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d/f");
        let (look, looks) = looking(&path);
        let (_watch, mut mode_changes) =
            FileWatcher::start(Subject::Directory, &path, look).unwrap();
        wait_until(
            &mut mode_changes,
            |it| matches!(it, Watching::Polling { why } if why.contains("cannot")),
        );
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(&path, "one").unwrap();
        wait_for(&looks, "one");
    }

    #[test]
    fn a_watch_that_is_lost_is_told_and_polling_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        let path = dir.path().join("d/f");
        let (look, looks) = looking(&path);
        let (_watch, mut mode_changes) =
            FileWatcher::start(Subject::Directory, &path, look).unwrap();
        wait_until(&mut mode_changes, |mode| *mode == Watching::Told);
        rename(&dir.path().join("d"), &dir.path().join("old"));
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(&path, "one").unwrap();
        wait_for(&looks, "one");
        wait_until(
            &mut mode_changes,
            |it| matches!(it, Watching::Polling { why } if why.contains("lost")),
        );
    }

    #[test]
    fn reading_is_no_hint_and_an_error_loses_the_watch() {
        let (name, directory) = (OsStr::new("f"), Path::new("/d"));
        let event = |kind, path: &str| Event::new(kind).add_path(PathBuf::from(path));
        let signal = |event: &Event| classify(Some(event), name, directory);
        let opened = EventKind::Access(AccessKind::Open(AccessMode::Any));
        let written = EventKind::Access(AccessKind::Close(AccessMode::Write));
        let removed = EventKind::Remove(notify::event::RemoveKind::Any);
        assert_eq!(signal(&event(opened, "/d/f")), WatchSignal::Nothing);
        assert_eq!(signal(&event(written, "/d/f")), WatchSignal::Hint);
        assert_eq!(signal(&event(written, "/d/log")), WatchSignal::Nothing);
        assert_eq!(signal(&event(removed, "/d")), WatchSignal::Hint);
        let rescan = Event::new(EventKind::Other).set_flag(notify::event::Flag::Rescan);
        assert_eq!(signal(&rescan), WatchSignal::Hint);
        assert_eq!(classify(None, name, directory), WatchSignal::Lost);
    }
}
