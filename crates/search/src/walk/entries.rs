//! Sorted entries of a walk. Filled by `walker`, read by search, find and replace.

use super::list::{EntryType, open_directory};
use crate::note::Note;
use crate::outcome::{Skipped, Warning};
use crate::tree::Tree;
use std::cmp::Ordering;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Maximum number of entries that one walk keeps or has queued. One entry takes about 30 to 100 bytes, so a
/// walk takes at most about 100 MB.
pub(super) const MAX_ENTRIES: usize = 1_000_000;

/// Index of a missing parent.
pub(super) const NONE: u32 = u32::MAX;

/// Entries found by a walk.
#[derive(Debug, Default)]
pub(crate) struct WalkResult {
    pub(super) dirs: Vec<Dir>,
    pub(super) places: Vec<EntryIndex>,
    /// Counts of skipped entries.
    pub(crate) skipped: Skipped,
    /// The first paths that could not be read.
    pub(crate) warnings: Vec<Warning>,
    /// The walk stopped at 1,000,000 entries. The file system's order decides which entries are missing.
    pub(crate) too_many_files: bool,
    /// Notes about the selection of files.
    pub(crate) notes: Vec<Note>,
}

/// A directory that was entered, or a file that is a start path.
#[derive(Debug)]
pub(super) struct Dir {
    /// Index of the entry with its name, or [`NONE`] for a start path.
    pub(super) parent: u32,
    pub(super) entry: u32,
    pub(super) top: Option<Box<StartPath>>,
    pub(super) block: Block,
}

/// Paths of a directory that is not simply a child of its parent.
#[derive(Debug)]
pub(super) struct StartPath {
    /// The path of a start path. Empty for a link that was followed.
    pub(super) path: Vec<u8>,
    /// The path to open, if it differs because a link was followed.
    pub(super) real: Option<Vec<u8>>,
}

/// Kept entries of one directory, sorted.
#[derive(Debug, Default)]
pub(super) struct Block {
    pub(super) names: Box<[u8]>,
    pub(super) entries: Box<[WalkEntry]>,
    /// One for each entry if requested, otherwise empty.
    pub(super) metas: Box<[Meta]>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct WalkEntry {
    pub(super) start: u32,
    pub(super) len: u16,
    pub(super) is: EntryRole,
}

/// Role of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryRole {
    File,
    Symlink,
    Directory,
    /// Position of a directory's contents in the order. Contains the directory's index.
    Inside(u32),
}

/// Metadata of an entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) size: u64,
    /// Seconds and nanoseconds since 1970.
    pub(crate) modified: (i64, u32),
    pub(crate) mode: u32,
}

/// Index of an entry of a walk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryIndex {
    pub(super) dir: u32,
    pub(super) entry: u32,
}

impl EntryIndex {
    /// Returns the directory, for [`WalkResult::open`].
    pub(crate) fn directory(self) -> u32 {
        self.dir
    }
}

impl Block {
    fn name(&self, entry: &WalkEntry) -> &[u8] {
        let start = entry.start as usize;
        self.names.get(start..start + usize::from(entry.len)).unwrap_or_default()
    }
}

/// Compares names in byte order. The contents of a directory sort as if a slash followed its name.
pub(super) fn compare(a: (&[u8], bool), b: (&[u8], bool)) -> Ordering {
    let common = a.0.len().min(b.0.len());
    let (a_head, a_rest) = a.0.split_at(common);
    let (b_head, b_rest) = b.0.split_at(common);
    a_head.cmp(b_head).then_with(|| {
        let tail = |rest: &[u8], inside: bool| match rest.first() {
            Some(byte) => Some(*byte),
            None => inside.then_some(b'/'),
        };
        tail(a_rest, a.1).cmp(&tail(b_rest, b.1))
    })
}

impl WalkResult {
    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the entries in order.
    pub(crate) fn places(&self) -> &[EntryIndex] {
        &self.places
    }

    /// Returns the paths of the entries, relative to the root, in order.
    pub(crate) fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.places.iter().map(|place| self.path(*place))
    }

    pub(crate) fn path(&self, place: EntryIndex) -> PathBuf {
        let mut bytes = self.dir_path(place.dir);
        self.push_name(&mut bytes, place);
        PathBuf::from(OsStr::from_bytes(&bytes))
    }

    fn push_name(&self, bytes: &mut Vec<u8>, place: EntryIndex) {
        let name = self.name(place);
        if !bytes.is_empty() && !name.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
    }

    /// Returns the last component of an entry. Empty for a file that is a start path.
    pub(crate) fn name(&self, place: EntryIndex) -> &[u8] {
        self.entry(place).map(|(block, entry)| block.name(entry)).unwrap_or_default()
    }

    pub(crate) fn kind(&self, place: EntryIndex) -> EntryType {
        match self.entry(place).map(|(_, entry)| entry.is) {
            Some(EntryRole::File) => EntryType::File,
            Some(EntryRole::Symlink) => EntryType::Symlink,
            Some(EntryRole::Directory) => EntryType::Directory,
            Some(EntryRole::Inside(_)) | None => EntryType::Other,
        }
    }

    pub(crate) fn meta(&self, place: EntryIndex) -> Option<Meta> {
        self.dirs.get(place.dir as usize)?.block.metas.get(place.entry as usize).copied()
    }

    fn entry(&self, place: EntryIndex) -> Option<(&Block, &WalkEntry)> {
        let block = &self.dirs.get(place.dir as usize)?.block;
        Some((block, block.entries.get(place.entry as usize)?))
    }

    /// Returns the length of an entry's path in bytes.
    pub(crate) fn path_len(&self, place: EntryIndex) -> usize {
        let dir = path_len(&self.dirs, place.dir);
        let name = self.name(place).len();
        dir + name + usize::from(dir != 0 && name != 0)
    }

    /// Returns the path of a directory, relative to the root.
    pub(crate) fn dir_path(&self, dir: u32) -> Vec<u8> {
        dir_path(&self.dirs, dir)
    }

    /// Opens a directory of the walk.
    pub(crate) fn open(&self, dir: u32, tree: &dyn Tree) -> io::Result<File> {
        open_directory(tree, &real_path(&self.dirs, dir))
    }

    /// Opens a file that is a start path. `None` if the entry is not such a file.
    pub(crate) fn open_start(
        &self,
        place: EntryIndex,
        tree: &dyn Tree,
    ) -> Option<io::Result<File>> {
        if !self.name(place).is_empty() {
            return None;
        }
        let path = real_path(&self.dirs, place.dir);
        Some(tree.open_file(Path::new(OsStr::from_bytes(&path))))
    }

    /// Returns the metadata of the entry with this number.
    pub(crate) fn meta_at(&self, n: usize) -> Meta {
        self.places.get(n).and_then(|place| self.meta(*place)).unwrap_or_default()
    }

    /// Reorders the entries by these numbers.
    pub(crate) fn permute(&mut self, order: &[usize]) {
        self.places = order.iter().filter_map(|n| self.places.get(*n).copied()).collect();
    }

    /// Sorts the entries by modification time, newest first. Ties are sorted by path.
    pub(crate) fn sort_by_time(&mut self) {
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_by_cached_key(|n| std::cmp::Reverse(self.meta_at(*n).modified));
        self.permute(&order);
    }

    /// Sorts the entries in byte order of their paths. `tops` are the start paths.
    pub(super) fn arrange(&mut self, mut tops: Vec<u32>) {
        let top = |dirs: &[Dir], dir: u32| {
            let path = dir_path(dirs, dir);
            let is_file = dirs.get(dir as usize).is_some_and(|dir| is_start_file(&dir.block));
            (path, !is_file)
        };

        tops.sort_by(|a, b| {
            let (a, b) = (top(&self.dirs, *a), top(&self.dirs, *b));
            compare((&a.0, a.1), (&b.0, b.1))
        });

        let is_nested = tops.is_sorted_by(|a, b| {
            let (a, b) = (dir_path(&self.dirs, *a), dir_path(&self.dirs, *b));
            !(a.is_empty()
                || b.strip_prefix(a.as_slice()).is_some_and(|rest| rest.starts_with(b"/")))
        });

        let mut places = Vec::new();
        for top in tops {
            // Remaining work in the parent directories, innermost last.
            let mut around = vec![(top, 0_u32)];
            while let Some((dir, entry)) = around.pop() {
                let block = self.dirs.get(dir as usize).map(|dir| &dir.block);
                match block.and_then(|block| block.entries.get(entry as usize)) {
                    None => continue,
                    Some(WalkEntry { is: EntryRole::Inside(inner), .. }) => {
                        around.push((dir, entry + 1));
                        around.push((*inner, 0));
                        continue;
                    }
                    Some(_) => places.push(EntryIndex { dir, entry }),
                }
                around.push((dir, entry + 1));
            }
        }
        self.places = places;

        // A start path inside another start path appears at its position in the outer one.
        if !is_nested {
            let mut places = std::mem::take(&mut self.places);
            places.sort_by_cached_key(|place| self.path(*place).into_os_string());
            self.places = places;
        }
    }
}

fn is_start_file(block: &Block) -> bool {
    matches!(&*block.entries, [WalkEntry { len: 0, is: EntryRole::File, .. }])
}

/// Returns the path of a directory, relative to the root, in the names that led to it.
pub(super) fn dir_path(dirs: &[Dir], dir: u32) -> Vec<u8> {
    path_by(dirs, dir, |top| (!top.path.is_empty() || top.real.is_none()).then_some(&top.path))
}

/// Returns the path by which a directory is opened.
pub(super) fn real_path(dirs: &[Dir], dir: u32) -> Vec<u8> {
    path_by(dirs, dir, |top| Some(top.real.as_ref().unwrap_or(&top.path)))
}

fn path_len(dirs: &[Dir], mut dir: u32) -> usize {
    let mut len = 0;
    while let Some(here) = dirs.get(dir as usize) {
        let base = here.top.as_deref().filter(|top| !top.path.is_empty() || top.real.is_none());
        if let Some(top) = base {
            return if top.path.is_empty() { len.max(1) - 1 } else { len + top.path.len() };
        }

        let Some(parent) = dirs.get(here.parent as usize) else { break };
        len +=
            parent.block.entries.get(here.entry as usize).map_or(0, |entry| usize::from(entry.len));
        len += 1;
        dir = here.parent;
    }
    len
}

fn path_by<'d>(
    dirs: &'d [Dir],
    mut dir: u32,
    base: impl Fn(&'d StartPath) -> Option<&'d Vec<u8>>,
) -> Vec<u8> {
    let mut names: Vec<&[u8]> = Vec::new();
    let mut len = 0;
    while let Some(here) = dirs.get(dir as usize) {
        if let Some(base) = here.top.as_deref().and_then(&base) {
            names.push(base);
            len += base.len() + 1;
            break;
        }

        let Some(parent) = dirs.get(here.parent as usize) else { break };
        if let Some(entry) = parent.block.entries.get(here.entry as usize) {
            let name = parent.block.name(entry);
            names.push(name);
            len += name.len() + 1;
        }
        dir = here.parent;
    }

    let mut path = Vec::with_capacity(len);
    for name in names.iter().rev().filter(|name| !name.is_empty()) {
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
    }
    path
}
