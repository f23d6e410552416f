//! Flushes replaced files to the disk behind the answer of their call, where that is as safe as before it.
//!
//! On ext3 and ext4 with ordered data, a commit of the journal first writes the data of every file whose blocks were
//! allocated in it. [`begin`] has the blocks allocated before the file gets its name, so after a power cut the name has
//! the old content or the complete new one, and never an empty file. How soon the new content is durable no longer
//! matters for that, so the call does not wait for it. Other file systems give no such guarantee (XFS, for example,
//! shows an empty file), so there the caller flushes before the rename.

use cap_std::fs::Dir;
use rustix::fs::{self as sys, Mode, OFlags, major, minor};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Maximum number of replaced files that wait for their flush. After that, calls flush their file themselves.
const QUEUE: usize = 64;

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
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    is_ordered(&mounts, &format!("{}:{}", major(device), minor(device)))
}

/// Whether `mounts`, in the form of `/proc/self/mountinfo`, show the device with ordered data (proc_pid_mountinfo(5)).
fn is_ordered(mounts: &str, device: &str) -> bool {
    mounts.lines().any(|line| {
        let Some((mount, system)) = line.split_once(" - ") else { return false };
        let mut system = system.split(' ');
        let is_journaled = matches!(system.next(), Some("ext3" | "ext4"));
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

/// Queues the flush of a replaced file. Returns false if the caller must flush it.
///
/// `file` must be open separately: the handle stays open until the flush, and with it a lock.
pub(crate) fn later(file: File, parent: &Arc<Dir>) -> bool {
    static SENDER: OnceLock<Option<SyncSender<Replaced>>> = OnceLock::new();

    let sender = SENDER.get_or_init(|| {
        let (sender, receiver) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new().name("flush".to_owned());
        thread.spawn(move || flush_blocking(&receiver)).ok().map(|_thread| sender)
    });
    let replaced = Replaced { file, parent: Arc::clone(parent) };
    sender.as_ref().is_some_and(|sender| sender.try_send(replaced).is_ok())
}

/// Flushes files in the order of their replacement, until the process exits.
fn flush_blocking(queue: &Receiver<Replaced>) {
    while let Ok(first) = queue.recv() {
        #[expect(clippy::disallowed_methods, reason = "this thread does nothing else")]
        std::thread::sleep(DELAY);
        let mut flushed = BTreeSet::new();
        for Replaced { file, parent } in std::iter::once(first).chain(queue.try_iter().take(QUEUE))
        {
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
