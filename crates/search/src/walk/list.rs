//! Lists one directory. Called by `walker`.

use crate::platform::{Buffer, open_beneath};
use rustix::fs::{AtFlags, FileType, Stat, statat};
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Type of a listed entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryType {
    File,
    Directory,
    Symlink,
    /// FIFO, socket, device, or unknown type.
    Other,
}

/// One name of a listing, as a range of [`Listing::names`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListedName {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) kind: EntryType,
}

impl ListedName {
    /// Returns the length of the name in bytes.
    pub(crate) fn len(self) -> usize {
        self.end - self.start
    }
}

/// Entries of one directory. Reused for the next directory to save allocations.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) names: Vec<u8>,
    pub(crate) items: Vec<ListedName>,
    buffer: Buffer,
}

impl Listing {
    pub(crate) fn name(&self, item: ListedName) -> &[u8] {
        self.names.get(item.start..item.end).unwrap_or_default()
    }

    /// Keeps the entries whose names `is_kept` selects.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&OsStr) -> bool) {
        let names = &self.names;
        let name = |item: &ListedName| names.get(item.start..item.end).unwrap_or_default();
        self.items.retain(|item| is_kept(OsStr::from_bytes(name(item))));
    }

    /// Reads the entries of `directory`, until `is_enough` returns true for their number. Entries read before
    /// an error are kept.
    pub(crate) fn read(
        &mut self,
        directory: &File,
        mut is_enough: impl FnMut(usize) -> bool,
    ) -> io::Result<()> {
        self.names.clear();
        self.items.clear();
        let (names, items) = (&mut self.names, &mut self.items);

        let add = |name: &CStr, kind: FileType| {
            let name = name.to_bytes();
            if matches!(name, b"." | b"..") {
                return true;
            }

            let start = names.len();
            names.extend_from_slice(name);
            items.push(ListedName {
                start,
                end: names.len(),
                kind: kind_of(directory.as_fd(), name, kind),
            });
            !is_enough(items.len())
        };

        self.buffer.read(directory, add)
    }
}

fn kind_of(directory: BorrowedFd<'_>, name: &[u8], listed: FileType) -> EntryType {
    let kind = match listed {
        // Some file systems do not report the type in the listing.
        FileType::Unknown => statat(directory, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW)
            .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
        kind => kind,
    };

    match kind {
        FileType::RegularFile => EntryType::File,
        FileType::Directory => EntryType::Directory,
        FileType::Symlink => EntryType::Symlink,
        _ => EntryType::Other,
    }
}

/// Returns the metadata of an entry without opening it. `None` if the entry vanished.
pub(crate) fn stat(directory: &File, name: &[u8]) -> Option<Stat> {
    statat(directory, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW).ok()
}

/// Maximum length in bytes of a path that is opened in one call: below `PATH_MAX`, with space for the root.
const MAX_OPEN_BYTES: usize = 2048;

/// Opens a directory with a path of any length. A path that is too long for the kernel is opened piece by
/// piece.
pub(crate) fn open_directory(tree: &dyn crate::tree::Tree, relative: &[u8]) -> io::Result<File> {
    let path = |bytes| Path::new(OsStr::from_bytes(bytes));
    if relative.len() <= MAX_OPEN_BYTES {
        return tree.open_directory(path(relative));
    }

    let (head, mut rest) = split(relative);
    let mut directory = tree.open_directory(path(head))?;
    while !rest.is_empty() {
        let (piece, next) = split(rest);
        directory = open_beneath(&directory, path(piece))?;
        rest = next;
    }
    Ok(directory)
}

/// Splits a path into the leading components that can be opened in one call, and the rest.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    if path.len() <= MAX_OPEN_BYTES {
        return (path, b"");
    }
    let head = path.get(..MAX_OPEN_BYTES).unwrap_or(path);
    let at = head.iter().rposition(|byte| *byte == b'/').unwrap_or(head.len());
    (path.get(..at).unwrap_or(path), path.get(at + 1..).unwrap_or_default())
}
