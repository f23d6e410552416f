//! Flushes replaced files to the disk behind the answer of their call, where that is as safe as before it.
//!
//! On ext3 and ext4 with ordered data, a commit of the journal first writes the data of every file whose blocks were
//! allocated in it. [`begin`] has the blocks allocated before the file gets its name, so after a power cut the name has
//! the old content or the complete new one, and never an empty file. How soon the new content is durable no longer
//! matters for that, so the call does not wait for it. Other file systems give no such guarantee (XFS, for example,
//! shows an empty file), so there the caller flushes before the rename.

#![expect(
    clippy::disallowed_types,
    reason = "blocking threads share the table, and no one waits with the lock"
)]

use crate::turns::NameAt;
use cap_std::fs::Dir;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{self as sys, Mode, OFlags, major, minor};
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Maximum number of replaced files that wait for their flush. After that, calls flush their file themselves. A file that
/// is replaced again before is not flushed, and its place is free.
const MAX_WAITING: usize = 64;

/// Most devices whose file systems are remembered.
const MAX_DEVICES: usize = 64;

/// Time from the first waiting file to the flush. Files of that time share one commit of the journal; a commit while
/// files are replaced would delay the calls.
const DELAY: Duration = Duration::from_millis(100);

/// Set after a failed flush. From then on every call flushes its own file, so that its answer has the error.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// A replaced file and its directory.
#[derive(Debug)]
struct Replaced {
    file: File,
    parent: Arc<Dir>,
}

/// Whether the flush of `file` may come after its rename.
pub(crate) fn may_follow(file: &File) -> bool {
    if HAS_FAILED.load(Ordering::Relaxed) {
        return false;
    }
    let Ok(device) = file.metadata().map(|metadata| metadata.dev()) else { return false };

    let mut mounts = lock(&MOUNTS);
    let current = mounts.take().filter(|mounts| !mounts.have_changed());
    let Some(mut current) = current.or_else(|| Mounts::read_blocking().ok()) else { return false };
    let is_ordered = current.is_ordered(device);
    *mounts = Some(current);
    is_ordered
}

/// The mounts of the process, until they change. Reading them for each file would take longer than replacing it.
static MOUNTS: LazyLock<Mutex<Option<Mounts>>> = LazyLock::new(Mutex::default);

#[derive(Debug)]
struct Mounts {
    /// Open `/proc/self/mountinfo`, which reports changes since it was opened (proc_pid_mountinfo(5)).
    file: File,
    text: String,
    devices: HashMap<u64, bool>,
}

impl Mounts {
    fn read_blocking() -> io::Result<Self> {
        let mut file = File::open("/proc/self/mountinfo")?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(Self { file, text, devices: HashMap::new() })
    }

    fn have_changed(&self) -> bool {
        let mut polled = [PollFd::new(&self.file, PollFlags::PRI)];
        let answer = poll(&mut polled, Some(&Timespec::default()));
        let changed = PollFlags::PRI | PollFlags::ERR;
        answer.is_err() || polled.iter().any(|it| it.revents().intersects(changed))
    }

    fn is_ordered(&mut self, device: u64) -> bool {
        if let Some(known) = self.devices.get(&device) {
            return *known;
        }
        let name = format!("{}:{}", major(device), minor(device));
        let is_ordered = is_ordered(&self.text, &name);
        if MAX_DEVICES <= self.devices.len() {
            self.devices.clear();
        }
        self.devices.insert(device, is_ordered);
        is_ordered
    }
}

/// Whether `mounts`, in the form of `/proc/self/mountinfo`, show the device with ordered data (proc_pid_mountinfo(5)).
fn is_ordered(mounts: &str, device: &str) -> bool {
    mounts.lines().any(|line| {
        let Some((mount, system)) = line.split_once(" - ") else { return false };
        let mut system = system.split(' ');
        let is_journaled = matches!(system.next(), Some("ext3" | "ext4"));
        // The source is between the type and the options.
        let options = system.nth(1).unwrap_or_default();
        mount.split(' ').nth(2) == Some(device)
            && is_journaled
            && !options.split(',').any(|option| option == "data=writeback")
    })
}

/// Begins to write the file's data, which allocates its blocks. Does not wait for the disk.
#[expect(unsafe_code, reason = "sync_file_range(2) has no safe form")]
pub(crate) fn begin(file: &File) -> io::Result<()> {
    // SAFETY: the call takes numbers and an open descriptor.
    let answer = unsafe {
        nix::libc::sync_file_range(file.as_raw_fd(), 0, 0, nix::libc::SYNC_FILE_RANGE_WRITE)
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Files that wait for their flush.
static WAITING: LazyLock<Mutex<HashMap<NameAt, Replaced>>> = LazyLock::new(Mutex::default);

/// Queues the flush of a replaced file, in place of an earlier file at the same name. Returns false if the caller must flush
/// it.
///
/// `file` must be open separately: the handle stays open until the flush, and with it a lock.
pub(crate) fn later(file: File, parent: &Arc<Dir>, at: &NameAt) -> bool {
    static SENDER: OnceLock<Option<SyncSender<()>>> = OnceLock::new();

    let sender = SENDER.get_or_init(|| {
        let (sender, receiver) = sync_channel(1);
        let thread = std::thread::Builder::new().name("flush".to_owned());
        thread.spawn(move || flush_blocking(&receiver)).ok().map(|_thread| sender)
    });
    let Some(sender) = sender else { return false };

    let replaced = Replaced { file, parent: Arc::clone(parent) };
    let mut waiting = lock(&WAITING);
    if MAX_WAITING <= waiting.len() && !waiting.contains_key(at) {
        return false;
    }

    let is_first = waiting.is_empty();
    let earlier = waiting.insert(at.clone(), replaced);
    drop(waiting);

    // Closing the last handle frees the blocks.
    drop(earlier);
    if is_first {
        // A full channel means that the thread has not begun with the last files, and will take this one too.
        sender.try_send(()).ok();
    }
    true
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Flushes replaced files, until the process exits.
fn flush_blocking(queue: &Receiver<()>) {
    while let Ok(()) = queue.recv() {
        #[expect(clippy::disallowed_methods, reason = "this thread does nothing else")]
        std::thread::sleep(DELAY);
        let mut flushed = BTreeSet::new();
        let waiting = std::mem::take(&mut *lock(&WAITING));

        for Replaced { file, parent } in waiting.into_values() {
            // An unreadable directory cannot be flushed, as before an answer.
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = sys::openat(&parent, ".", flags, Mode::empty()).map(File::from);
            let id = directory.as_ref().ok().and_then(|directory| directory.metadata().ok());
            let is_first = id.is_none_or(|id| flushed.insert((id.dev(), id.ino())));
            let synced = file.sync_all().and_then(|()| match directory {
                Ok(directory) if is_first => directory.sync_all(),
                _ => Ok(()),
            });
            if synced.is_err() {
                HAS_FAILED.store(true, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mounts_are_read_once_until_they_change() {
        let mut mounts = Mounts::read_blocking().unwrap();
        assert!(!mounts.have_changed() && !mounts.text.is_empty());
        let device = File::open("/").unwrap().metadata().unwrap().dev();
        let is_ordered = mounts.is_ordered(device);
        mounts.text.clear();
        assert_eq!(mounts.is_ordered(device), is_ordered, "remembered");
        assert!(!mounts.is_ordered(u64::MAX));
    }

    #[test]
    fn only_ext_with_ordered_data_may_be_flushed_later() {
        let line = |system: &str| format!("36 35 98:0 /m1 /m2 rw,noatime master:1 - {system}\n");
        let other = "25 1 0:23 / /tmp rw - tmpfs tmpfs rw\n";
        for (system, device, expected) in [
            ("ext4 /dev/root rw,errors=continue", "98:0", true),
            ("ext3 /dev/root rw", "98:0", true),
            ("ext4 /dev/root rw,data=journal", "98:0", true),
            ("ext4 /dev/root rw,data=writeback", "98:0", false),
            ("ext2 /dev/root rw", "98:0", false),
            ("xfs /dev/root rw", "98:0", false),
            ("btrfs /dev/root rw", "98:0", false),
            ("ext4 /dev/root rw", "98:1", false),
            ("ext4", "98:0", true),
        ] {
            let mounts = format!("{other}garbage\n{}", line(system));
            assert_eq!(is_ordered(&mounts, device), expected, "{system} {device}");
        }
    }
}
