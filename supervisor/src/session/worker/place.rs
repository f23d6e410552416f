//! Checks whether the path of a workspace still leads to the directory that the running worker has. The worker cannot check
//! it: in its namespace, the directory stays at the path when a program moves it and creates another one there. Nor does
//! it see a file system that is mounted in the workspace later: its writes would go to the directory under the mount.

use crate::children::ChildActor;
use crate::session::actor::SessionActor;
use crate::session::worker::OfWorker;
use actix::prelude::*;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time for which the last check is valid. A later call waits for another check.
const VALID_FOR: Duration = Duration::from_secs(1);

/// Timeout of a check, because the disk may hang.
const CHECK_LIMIT: Duration = Duration::from_millis(500);

/// List of the mounts that this process sees, see proc_pid_mountinfo(5).
const MOUNTS: &str = "/proc/self/mountinfo";

/// Identity of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DirectoryId {
    device: u64,
    inode: u64,
    /// Hash of the mounts inside of it and of writable directories.
    mounts: u64,
}

impl DirectoryId {
    /// True for the same directory with other mounts in it.
    fn has_other_mounts(self, other: Self) -> bool {
        Self { mounts: other.mounts, ..self } == other && self.mounts != other.mounts
    }
}

/// The directory of the running worker.
#[derive(Debug)]
pub(super) struct Place {
    /// `None` if it could not be read.
    id: Option<DirectoryId>,
    checked_at: Instant,
    /// Calls wait for the result of a check.
    pub(super) is_checking: bool,
    /// The path leads to another directory, or nowhere. Calls wait for another worker.
    pub(super) is_moved: bool,
    /// `is_moved` because a file system was mounted or unmounted inside.
    pub(super) has_other_mounts: bool,
}

impl Place {
    pub(super) fn of(id: Option<DirectoryId>) -> Self {
        Self {
            id,
            checked_at: Instant::now(),
            is_checking: false,
            is_moved: false,
            has_other_mounts: false,
        }
    }
}

/// Returns the identity of a workspace. `roots` are the directories of `--writable`.
pub(super) fn id_blocking(path: &Path, roots: &[PathBuf]) -> io::Result<DirectoryId> {
    let list = std::fs::read(MOUNTS).unwrap_or_default();
    let mounts = mounts_inside(&list, std::iter::once(path).chain(roots.iter().map(|it| &**it)));
    path.metadata().map(|found| DirectoryId { device: found.dev(), inode: found.ino(), mounts })
}

/// Returns the hash of the mounts inside of directories. The kernel creates a new number for each mount.
fn mounts_inside<'a>(list: &[u8], directories: impl Iterator<Item = &'a Path>) -> u64 {
    let inside: Vec<Vec<u8>> =
        directories.map(|at| [at.as_os_str().as_bytes(), b"/"].concat()).collect();
    let mut hash = DefaultHasher::new();
    for line in list.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b' ');
        let (number, device) = (fields.next(), fields.nth(1));
        let Some(at) = fields.nth(1).map(unescaped) else { continue };
        if inside.iter().any(|inside| at.starts_with(inside)) {
            (number, device, at).hash(&mut hash);
        }
    }
    hash.finish()
}

/// Returns a path of the list. The kernel writes blanks, line feeds and backslashes as octal numbers.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| *first == b'\\');
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        path.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { after.get(3..).unwrap_or_default() } else { after };
    }
    path
}

impl SessionActor {
    /// Checks the path of the workspace, unless the last check is still valid. If the path leads elsewhere, the worker is
    /// replaced when no call and no job runs in it.
    pub(super) fn check_place(&mut self, ctx: &mut Context<Self>) {
        let is_ready = self.worker.child.is_ready();
        let place = &mut self.worker.place;
        let Some(id) = place.id.filter(|_| is_ready && !place.is_checking && !place.is_moved)
        else {
            return;
        };
        if place.checked_at.elapsed() < VALID_FOR {
            return;
        }
        place.is_checking = true;
        let (services, path) = (self.services.clone(), PathBuf::from(&self.workspace));
        let generation = self.child(OfWorker).generation;
        let roots = self.worker.running_policy.as_ref();
        let roots = roots.map(|policy| policy.writable_roots.clone()).unwrap_or_default();
        let look = move || id_blocking(&path, &roots);
        let checking = async move { services.look(CHECK_LIMIT, look).await };
        ctx.spawn(checking.into_actor(self).map(move |found, handle, ctx| {
            let place = &mut handle.worker.place;
            (place.is_checking, place.checked_at) = (false, Instant::now());
            let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
            let (is_moved, has_other_mounts) = match found {
                Ok(Ok(found)) => (found != id, found.has_other_mounts(id)),
                Ok(Err(error)) => (is_gone(&error), false),
                // A timeout is no result.
                Err(_) => (false, false),
            };
            // Another worker may run by now.
            if is_moved && handle.worker.child.current(generation).is_some() {
                handle.worker.place.is_moved = true;
                handle.worker.place.has_other_mounts = has_other_mounts;
                handle.worker.workspace_replaced = true;
                handle.restart_if_outdated(ctx);
            }
            handle.send_waiting(ctx);
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mounts_inside_of_the_directory_count() {
        let line =
            |number: u32, at: &str| format!("{number} 1 0:{number} / {at} rw - tmpfs x rw\n");
        let of = |lines: &[String]| {
            mounts_inside(lines.concat().as_bytes(), [Path::new("/a b")].into_iter())
        };
        let none = of(&[]);
        for at in ["/", "/a\\040b", "/a\\040bc", "/a", "/x/a\\040b/c"] {
            assert_eq!(of(&[line(7, at)]), none, "{at}");
        }
        let one = of(&[line(7, "/a\\040b/c")]);
        assert_ne!(one, none);
        assert_eq!(of(&[line(3, "/z"), line(7, "/a\\040b/c")]), one);
        assert_ne!(of(&[line(8, "/a\\040b/c")]), one);
    }

    #[test]
    fn escapes_of_the_list_are_read() {
        assert_eq!(unescaped(b"/a\\040b\\134\\011"), b"/a b\\\t");
        assert_eq!(unescaped(b"/a\\9\\"), b"/a\\9\\");
    }
}
