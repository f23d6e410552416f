//! The identity of the directory that the running worker has, with the mounts inside of it. Read when the worker starts,
//! and again by `place_check.rs`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

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
    pub(super) fn has_other_mounts(self, other: Self) -> bool {
        Self { mounts: other.mounts, ..self } == other && self.mounts != other.mounts
    }
}

/// The directory of the running worker.
#[derive(Debug)]
pub(super) struct Place {
    /// `None` if it could not be read.
    pub(super) id: Option<DirectoryId>,
    pub(super) checked_at: Instant,
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
