//! Package caches of workspaces: finds the directories to delete, and deletes them. Called by `find` and `removal`.
//!
//! Commands of sessions write the content, so it is hostile. Links are never followed, and the number of inspected
//! entries is bounded. The monitor of a worker holds a lock on the directory while the worker uses it.

use super::handles::{age, bytes, open_dir};
use super::trees::remove_entry;
use super::{Item, Kind, Known, ORPHAN_MIN_AGE};
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
    /// Disk usage in bytes, as far as it was measured.
    bytes: u64,
    /// True if an entry could not be read or a limit stopped the measurement.
    is_cut: bool,
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
        let measured = measure(caches.as_fd(), &layer.name, &mut left, &mut layer.bytes, 0);
        layer.is_cut = measured.is_none();
    }

    let is_too_large = |layer: &Layer| layer.is_cut || max < layer.bytes || max == 0;
    let counted = layers.iter().filter(|layer| !layer.is_retired && !is_too_large(layer));
    let mut sum = counted.fold(0_u64, |sum, layer| sum.saturating_add(layer.bytes));

    let mut items = Vec::new();
    for layer in layers.iter().rev() {
        let is_too_large = is_too_large(layer);
        let is_due = layer.is_retired || layer.is_orphan || is_too_large || max < sum;
        // A locked cache is in use by a worker.
        if !is_due || !layer.is_retired && lock(&caches, &layer.name).is_err() {
            continue;
        }

        if !layer.is_retired && !is_too_large {
            sum = sum.saturating_sub(layer.bytes);
        }
        items.push(Item::new(
            Kind::Caches,
            &[c"caches".to_owned()],
            &layer.name,
            layer.bytes,
            layer.age,
        ));
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
        Some(Layer { name, age, bytes: 0, is_cut: false, is_retired, is_orphan })
    };
    entries.filter_map(Result::ok).filter_map(layer).take(MAX_WORKSPACES).collect()
}

fn is_hex_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// Adds the disk usage of the directory `name` at `depth` to `sum`, without the kernel's directories. Inspects at most
/// `left` entries. `None` if an entry cannot be read or a limit is reached.
fn measure(
    at: BorrowedFd<'_>,
    name: &CStr,
    left: &mut usize,
    sum: &mut u64,
    depth: usize,
) -> Option<()> {
    let dir = match open_dir(at, name, false) {
        // Another process deleted it.
        Err(Errno::NOENT) => return Some(()),
        opened => opened.ok().filter(|_| depth < MAX_DEPTH)?,
    };
    for entry in Dir::read_from(&dir).ok()? {
        let entry = entry.ok()?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") || depth == 1 && name == WORK {
            continue;
        }

        // The limit bounds the time of a scan of hostile content.
        *left = left.checked_sub(1)?;
        let stat = match statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            stat => stat.ok()?,
        };

        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        // A file with several names counts once: all of them are in this cache.
        #[allow(clippy::useless_conversion, reason = "the type of this field differs by system")]
        let names = if is_directory { 1 } else { u64::from(stat.st_nlink.max(1)) };
        *sum = sum.saturating_add(bytes(&stat) / names);

        if is_directory {
            measure(dir.as_fd(), name, left, sum, depth + 1)?;
        }
    }
    Some(())
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
    // Renamed under the lock, so that no worker starts with a cache that is being deleted.
    renameat_with(caches, name, caches, &retired, RenameFlags::NOREPLACE)?;
    drop(locked);
    remove_entry(caches.as_fd(), &retired)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Home;
    use crate::keep::{Rules, find_blocking, remove_blocking};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::{Path, PathBuf};

    const KIB: usize = 1024;

    fn home(dir: &Path) -> Home {
        let var = |name: &str| (name == "RUBBER_DUCK_APP_SUPPORT").then(|| dir.into());
        let home = Home::resolve_blocking(&var).unwrap();
        home.prepare_blocking().unwrap();
        home
    }

    fn rules(caches_max_bytes: u64) -> Rules {
        let day = Duration::from_secs(24 * 60 * 60);
        let (quarantined, histories) = (None, None);
        Rules {
            is_served: true,
            outputs: day,
            undo: day,
            undo_max_bytes: u64::MAX,
            caches_max_bytes,
            quarantined,
            histories,
            agents: None,
        }
    }

    /// Creates the caches of a workspace, last used `hours` ago, with a file of `kib` KiB.
    fn caches(home: &Home, workspace: &str, hours: u64, kib: usize) -> PathBuf {
        let path = home.prepare_caches_blocking(workspace).unwrap();
        fs::create_dir_all(path.join("x/upper")).unwrap();
        fs::write(path.join("x/upper/file"), vec![b'x'; kib * KIB]).unwrap();
        let used = SystemTime::now() - Duration::from_secs(hours * 60 * 60);
        fs::File::open(&path).unwrap().set_modified(used).unwrap();
        path
    }

    /// Deletes and returns the workspaces that are left, of those with these paths.
    fn left(home: &Home, rules: &Rules, known: Option<&Known>, paths: &[PathBuf]) -> Vec<usize> {
        let found = find_blocking(home, rules, known).unwrap();
        let tally = remove_blocking(home, &found.items);
        assert_eq!((tally.failed, tally.why), (0, None));
        (0..paths.len()).filter(|n| paths[*n].exists()).collect()
    }

    #[test]
    fn the_least_recently_used_caches_go_and_large_ones_displace_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        let sizes =
            [("/a", 5, 100), ("/b", 4, 100), ("/c", 3, 1000), ("/d", 2, 100), ("/e", 1, 100)];
        let paths = sizes.map(|(name, hours, kib)| caches(&home, name, hours, kib));
        let max = |kib: u64| rules(kib * 1024);
        assert_eq!(left(&home, &max(2000), None, &paths), [0, 1, 2, 3, 4]);
        assert_eq!(left(&home, &max(500), None, &paths), [0, 1, 3, 4]);
        assert_eq!(left(&home, &max(350), None, &paths), [1, 3, 4]);
        // A worker uses the oldest.
        let in_use = fs::File::open(&paths[1]).unwrap();
        flock(&in_use, FlockOperation::LockExclusive).unwrap();
        assert_eq!(left(&home, &max(250), None, &paths), [1, 4]);
        drop(in_use);
        assert_eq!(left(&home, &max(0), None, &paths), [0; 0]);
        assert!(home.owns_caches_blocking());
    }

    #[test]
    fn caches_of_unknown_workspaces_go_after_an_hour() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        let paths = [("/known", 9), ("/young", 0), ("/old", 2)];
        let paths = paths.map(|(name, hours)| caches(&home, name, hours, 1));
        let known = Known { all_workspaces: ["/known".to_owned()].into(), ..Known::default() };
        assert_eq!(left(&home, &rules(u64::MAX), None, &paths), [0, 1, 2]);
        assert_eq!(left(&home, &rules(u64::MAX), Some(&known), &paths), [0, 1]);
    }

    #[test]
    fn hostile_caches_are_measured_in_bounds_and_deleted_without_following_links() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("kept"), vec![b'x'; 1000 * KIB]).unwrap();
        let links = caches(&home, "/links", 1, 1);
        symlink(outside.path(), links.join("x/upper/link")).unwrap();
        fs::hard_link(links.join("x/upper/file"), links.join("x/upper/other")).unwrap();
        // A second name and a link cost nothing.
        assert_eq!(left(&home, &rules(64 * 1024), None, std::slice::from_ref(&links)), [0]);
        let deep = caches(&home, "/deep", 1, 1);
        fs::create_dir_all(deep.join("x/upper").join("d/".repeat(2 * MAX_DEPTH))).unwrap();
        let locked = caches(&home, "/locked", 1, 1);
        let secret = locked.join("x/upper/secret");
        fs::create_dir_all(secret.join("deeper")).unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o0)).unwrap();
        let is_root = rustix::process::geteuid().is_root();
        let expected: &[usize] = if is_root { &[0, 2] } else { &[0] };
        let paths = [links, deep, locked];
        assert_eq!(left(&home, &rules(u64::MAX), None, &paths), expected);
        assert_eq!(left(&home, &rules(1), None, &paths), [0; 0]);
        assert!(outside.path().join("kept").exists());
    }

    #[test]
    fn a_directory_of_another_program_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        let foreign = home.caches_dir().join(workspace_id("/a"));
        fs::create_dir_all(&foreign).unwrap();
        assert!(home.prepare_caches_blocking("/a").is_err());
        assert!(!home.owns_caches_blocking());
        assert_eq!(left(&home, &rules(0), None, &[foreign]), [0]);
    }
}
