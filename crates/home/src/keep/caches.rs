//! Package caches of workspaces: finds the directories to delete, and deletes them. Called by `find` and `removal`.
//!
//! Commands of sessions write the content, so it is hostile. Links are never followed, and the number of inspected
//! entries is bounded. The monitor of a worker holds a lock on the directory while the worker uses it.

use super::find::{ORPHAN_MIN_AGE, age, bytes, item};
use super::removal::open_dir;
use super::trees::remove_entry;
use super::{Item, Kind, Known};
use crate::ids::workspace_id;
use crate::ownership::is_marked;
use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, RenameFlags, flock, renameat_with, statat,
};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::hash::{BuildHasher as _, RandomState};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, SystemTime};

/// Maximum number of workspaces in one scan.
const MAX_WORKSPACES: usize = 10_000;

/// Maximum number of entries to inspect in one scan.
const MAX_ENTRIES: usize = 2_000_000;

/// Maximum depth of a cache. Each level has two open descriptors.
const MAX_DEPTH: usize = 64;

/// Prefix of directories that are being deleted. Deletion starts with a rename: a worker must not get a part of a cache.
const RETIRED: &str = ".gone-";

/// Directory of the kernel in each cache. Only root can read it, and the next mount empties it.
const WORK: &CStr = c"work";

/// Caches of one workspace.
struct Layer {
    name: CString,
    age: Duration,
    /// Disk usage in bytes. `None` if it could not be measured completely.
    bytes: Option<u64>,
    is_retired: bool,
    is_orphan: bool,
}

/// Returns the caches that no worker uses, and whose workspace does not exist or that exceed the total size `max`: the
/// least recently used first. Caches larger than `max` do not count for the total, so that they do not displace others.
pub(super) fn find(state: &OwnedFd, max: u64, known: Option<&Known>, now: SystemTime) -> Vec<Item> {
    let Ok(caches) = open_dir(state, c"caches", false) else { return Vec::new() };
    if !is_marked(&caches) {
        return Vec::new();
    }
    let ids: Option<HashSet<String>> =
        known.map(|known| known.all_workspaces.iter().map(|path| workspace_id(path)).collect());
    let mut layers = list(&caches, ids.as_ref(), now);
    layers.sort_by_key(|layer| layer.age);
    let mut left = MAX_ENTRIES;
    for layer in &mut layers {
        layer.bytes = measure(caches.as_fd(), &layer.name, &mut left, 0);
    }
    let is_too_large = |layer: &Layer| layer.bytes.is_none_or(|bytes| max < bytes || max == 0);
    let counted = layers.iter().filter(|layer| !layer.is_retired && !is_too_large(layer));
    let mut sum = counted.fold(0_u64, |sum, it| sum.saturating_add(it.bytes.unwrap_or(0)));
    let mut items = Vec::new();
    for layer in layers.iter().rev() {
        let is_too_large = is_too_large(layer);
        let is_due = layer.is_retired || layer.is_orphan || is_too_large || max < sum;
        if !is_due || !layer.is_retired && lock(&caches, &layer.name).is_err() {
            continue;
        }
        let bytes = layer.bytes.unwrap_or(0);
        if !layer.is_retired && !is_too_large {
            sum = sum.saturating_sub(bytes);
        }
        items.push(item(Kind::Caches, &[c"caches".to_owned()], &layer.name, bytes, layer.age));
    }
    items
}

fn list(caches: &OwnedFd, known: Option<&HashSet<String>>, now: SystemTime) -> Vec<Layer> {
    let Ok(entries) = Dir::read_from(caches) else { return Vec::new() };
    let layer = |entry: rustix::fs::DirEntry| {
        let name = entry.file_name().to_owned();
        let stat = statat(caches, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let text = name.to_str().ok()?;
        let is_retired = text.starts_with(RETIRED);
        let is_ours = is_retired || text.len() == 16 && text.bytes().all(is_hex_digit);
        if !is_ours || FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return None;
        }
        let age = age(&stat, now);
        let is_unknown = known.is_some_and(|known| !known.contains(text));
        let is_orphan = is_unknown && ORPHAN_MIN_AGE <= age;
        Some(Layer { name, age, bytes: None, is_retired, is_orphan })
    };
    entries.filter_map(Result::ok).filter_map(layer).take(MAX_WORKSPACES).collect()
}

fn is_hex_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// Returns the disk usage of the directory `name` at `depth`, without the kernel's directories. `None` if an entry
/// cannot be read or a limit is reached.
fn measure(at: BorrowedFd<'_>, name: &CStr, left: &mut usize, depth: usize) -> Option<u64> {
    let dir = match open_dir(at, name, false) {
        // Another process deleted it.
        Err(Errno::NOENT) => return Some(0),
        opened => opened.ok().filter(|_| depth < MAX_DEPTH)?,
    };
    let mut sum = 0_u64;
    for entry in Dir::read_from(&dir).ok()? {
        let entry = entry.ok()?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") || depth == 1 && name == WORK {
            continue;
        }
        *left = left.checked_sub(1)?;
        let stat = match statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            stat => stat.ok()?,
        };
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        // A file with several names counts once: all of them are in this cache.
        let names = if is_directory { 1 } else { u64::from(stat.st_nlink.max(1)) };
        sum = sum.saturating_add(bytes(&stat) / names);
        if is_directory {
            sum = sum.saturating_add(measure(dir.as_fd(), name, left, depth + 1)?);
        }
    }
    Some(sum)
}

/// Locks the caches of a workspace. Fails if a worker uses them.
fn lock(caches: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let dir = open_dir(caches, name, false)?;
    flock(&dir, FlockOperation::NonBlockingLockExclusive)?;
    Ok(dir)
}

/// Deletes the caches of a workspace that no worker uses. Missing ones count as deleted.
///
/// # Errors
/// `WOULDBLOCK` if a worker uses them, or the first error of an entry that could not be deleted. The next garbage
/// collection deletes the rest.
pub(super) fn remove(caches: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    if name.to_bytes().starts_with(RETIRED.as_bytes()) {
        return remove_entry(caches.as_fd(), name);
    }
    let locked = match lock(caches, name) {
        Err(Errno::NOENT) => return Ok(()),
        locked => locked?,
    };
    let random = RandomState::new().hash_one(name.to_bytes());
    let retired = CString::new(format!("{RETIRED}{random:016x}")).map_err(|_nul| Errno::INVAL)?;
    renameat_with(caches, name, caches, &retired, RenameFlags::NOREPLACE)?;
    drop(locked);
    remove_entry(caches.as_fd(), &retired)
}
