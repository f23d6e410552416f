//! Noticing that another program has replaced `metadata.json`.
//!
//! The directory is watched, because every replacement is another file; what comes is only a hint to look.
//! Where there is no watch to be had, and beside it in longer steps, we look without a hint, so that a watch
//! that is lost costs time and nothing else.
//!
//! Owns: the thread `metadata-watch`, and the one of the watcher. Ends: when the [`Watch`] is dropped.

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

/// Between two looks without a hint: with a watch, and without one. A change is to be seen within two seconds.
const PAUSE_WATCHED: Duration = Duration::from_secs(10);
const PAUSE_POLLING: Duration = Duration::from_secs(1);

/// After a hint it has to be quiet for this long, or hints have to have come for that long.
const QUIET: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_millis(250);

/// Between two tries to have a watch.
const RETRY: Duration = Duration::from_secs(60);

/// How changes of another program are noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Watching {
    /// It was not tried yet.
    Starting,
    /// The system tells.
    Told,
    /// We look every second.
    Polling {
        /// Why the system does not tell.
        why: String,
    },
}

/// A watch on one file. Dropped, it ends.
#[derive(Debug)]
pub(crate) struct Watch {
    ends: Arc<AtomicBool>,
    wake: SyncSender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Calls `look` on a thread of its own whenever the file at `path` may be another one, until it answers
    /// that nobody is interested any more.
    pub(crate) fn start(
        path: &Path,
        look: impl FnMut() -> bool + Send + 'static,
    ) -> std::io::Result<(Self, watch::Receiver<Watching>)> {
        let (wake, wakes) = sync_channel(1);
        let ends = Arc::<AtomicBool>::default();
        let (telling, told) = watch::channel(Watching::Starting);
        let directory = path.parent().map_or_else(|| PathBuf::from("."), Path::to_owned);
        let looker = Looker {
            directory,
            name: path.file_name().unwrap_or_default().to_owned(),
            wake: wake.clone(),
            is_lost: Arc::default(),
            ends: Arc::clone(&ends),
            telling,
            watched: None,
        };
        let thread = std::thread::Builder::new().name("metadata-watch".to_owned());
        let thread = Some(thread.spawn(move || looker.run_blocking(&wakes, look))?);
        Ok((Self { ends, wake, thread }, told))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        // A wake that is there already does as well.
        self.wake.try_send(()).ok();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

struct Looker {
    directory: PathBuf,
    name: OsString,
    wake: SyncSender<()>,
    /// The watcher has said that it missed something, or that its directory is gone.
    is_lost: Arc<AtomicBool>,
    ends: Arc<AtomicBool>,
    telling: watch::Sender<Watching>,
    watched: Option<Watched>,
}

/// A watch, and the directory that it is on: a name can become another directory.
struct Watched {
    directory: (u64, u64),
    /// Dropped, it ends.
    _watcher: RecommendedWatcher,
}

impl Looker {
    fn run_blocking(mut self, wakes: &Receiver<()>, mut look: impl FnMut() -> bool) {
        let mut next_try = Instant::now();
        loop {
            self.drop_lost();
            if self.watched.is_none() && next_try <= Instant::now() {
                next_try = Instant::now() + RETRY;
                self.try_to_watch();
            }
            // Also what has happened before there was a watch.
            if self.ends.load(Ordering::Acquire) || !look() {
                return;
            }
            let pause = if self.watched.is_some() { PAUSE_WATCHED } else { PAUSE_POLLING };
            match wakes.recv_timeout(pause) {
                Ok(()) => self.wait_for_quiet(wakes),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// The other program may be in the middle of something, and more may come.
    fn wait_for_quiet(&self, wakes: &Receiver<()>) {
        let until = Instant::now() + LONGEST_WAIT;
        while !self.ends.load(Ordering::Acquire) {
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() || wakes.recv_timeout(rest.min(QUIET)).is_err() {
                return;
            }
        }
    }

    fn drop_lost(&mut self) {
        let was_lost = self.is_lost.swap(false, Ordering::AcqRel);
        let Some(watched) = &self.watched else { return };
        if was_lost || identity(&self.directory) != Some(watched.directory) {
            self.watched = None;
            let why = "the watch was lost".to_owned();
            self.telling.send_replace(Watching::Polling { why });
        }
    }

    fn try_to_watch(&mut self) {
        let told = match self.watch() {
            Ok(watched) => {
                self.watched = Some(watched);
                Watching::Told
            }
            Err(why) => Watching::Polling { why },
        };
        self.telling.send_replace(told);
    }

    fn watch(&self) -> Result<Watched, String> {
        let directory = identity(&self.directory)
            .ok_or_else(|| format!("{} cannot be looked at", self.directory.display()))?;
        let (wake, is_lost) = (self.wake.clone(), Arc::clone(&self.is_lost));
        let (name, parent) = (self.name.clone(), self.directory.clone());
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let heard = hear(event.as_ref().ok(), &name, &parent);
            if heard == Heard::Lost {
                is_lost.store(true, Ordering::Release);
            }
            if heard != Heard::Nothing {
                // One wake that waits is enough for all.
                wake.try_send(()).ok();
            }
        })
        .map_err(|error| error.to_string())?;
        watcher
            .watch(&self.directory, RecursiveMode::NonRecursive)
            .map_err(|error| error.to_string())?;
        Ok(Watched { directory, _watcher: watcher })
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Nothing,
    Hint,
    Lost,
}

/// What an event means; `None` is an error of the watcher.
fn hear(event: Option<&Event>, name: &OsStr, directory: &Path) -> Heard {
    let Some(event) = event else { return Heard::Lost };
    if event.need_rescan() {
        return Heard::Hint;
    }
    let is_read = match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => false,
        EventKind::Access(_) => true,
        _ => false,
    };
    let is_named = event.paths.iter().any(|path| path.file_name() == Some(name));
    if is_named && !is_read {
        return Heard::Hint;
    }
    let is_end = matches!(event.kind, EventKind::Remove(_) | EventKind::Modify(_));
    if is_end && event.paths.iter().any(|path| path == directory) {
        // The next round finds out whether it is still the same directory.
        return Heard::Hint;
    }
    Heard::Nothing
}

fn identity(directory: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(directory).ok().map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::mpsc::{Sender, channel};

    /// Longer than anything here takes.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// What stands at the path at each look.
    fn looking(path: &Path) -> (impl FnMut() -> bool + Send + 'static, Receiver<Option<String>>) {
        let (seen, looks): (Sender<Option<String>>, _) = channel();
        let path = path.to_owned();
        let look = move || seen.send(fs::read_to_string(&path).ok()).is_ok();
        (look, looks)
    }

    #[track_caller]
    fn wait_for(looks: &Receiver<Option<String>>, wanted: &str) -> Duration {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if looks.recv_timeout(PATIENCE).unwrap().as_deref() == Some(wanted) {
                return begin.elapsed();
            }
        }
        panic!("{wanted} was never seen");
    }

    #[track_caller]
    fn wait_until(told: &mut watch::Receiver<Watching>, is_wanted: impl Fn(&Watching) -> bool) {
        let begin = Instant::now();
        while !is_wanted(&told.borrow_and_update()) {
            assert!(begin.elapsed() < PATIENCE, "{told:?}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_replacement_and_a_file_that_is_written_in_place_are_seen_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let (look, looks) = looking(&path);
        let (_watch, mut told) = Watch::start(&path, look).unwrap();
        wait_until(&mut told, |told| *told == Watching::Told);
        fs::write(&path, "one").unwrap();
        let in_place = wait_for(&looks, "one");
        fs::write(dir.path().join("new"), "two").unwrap();
        crate::replace::rename(&dir.path().join("new"), &path).unwrap();
        let replaced = wait_for(&looks, "two");
        // Much sooner than the next look without a hint.
        assert!(in_place.max(replaced) < PAUSE_WATCHED / 2, "{in_place:?} {replaced:?}");
    }

    #[test]
    fn a_directory_that_is_not_there_is_polled_and_one_that_is_replaced_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d/f");
        let (look, looks) = looking(&path);
        let (_watch, mut told) = Watch::start(&path, look).unwrap();
        wait_until(
            &mut told,
            |it| matches!(it, Watching::Polling { why } if why.contains("cannot")),
        );
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(&path, "one").unwrap();
        assert!(wait_for(&looks, "one") < 2 * PAUSE_POLLING + PAUSE_POLLING / 2);
    }

    #[test]
    fn a_watch_that_is_lost_is_told_and_polling_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        let path = dir.path().join("d/f");
        let (look, looks) = looking(&path);
        let (_watch, mut told) = Watch::start(&path, look).unwrap();
        wait_until(&mut told, |told| *told == Watching::Told);
        crate::replace::rename(&dir.path().join("d"), &dir.path().join("old")).unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(&path, "one").unwrap();
        wait_for(&looks, "one");
        wait_until(&mut told, |it| matches!(it, Watching::Polling { why } if why.contains("lost")));
    }

    #[test]
    fn reading_is_no_hint_and_an_error_loses_the_watch() {
        let (name, directory) = (OsStr::new("f"), Path::new("/d"));
        let event = |kind, path: &str| Event::new(kind).add_path(PathBuf::from(path));
        let heard = |event: &Event| hear(Some(event), name, directory);
        let opened = EventKind::Access(AccessKind::Open(AccessMode::Any));
        let written = EventKind::Access(AccessKind::Close(AccessMode::Write));
        let removed = EventKind::Remove(notify::event::RemoveKind::Any);
        assert_eq!(heard(&event(opened, "/d/f")), Heard::Nothing);
        assert_eq!(heard(&event(written, "/d/f")), Heard::Hint);
        assert_eq!(heard(&event(written, "/d/log")), Heard::Nothing);
        assert_eq!(heard(&event(removed, "/d")), Heard::Hint);
        let rescan = Event::new(EventKind::Other).set_flag(notify::event::Flag::Rescan);
        assert_eq!(heard(&rescan), Heard::Hint);
        assert_eq!(hear(None, name, directory), Heard::Lost);
    }
}
