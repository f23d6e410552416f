//! Names that later programs run or obey, and their changes. Called by `snapshot`, after every command that could
//! write, and by the audit.
//!
//! After a command the worker checks the top of the workspace and the directories near it, the files that settings
//! name, and the tops of the git directories. An audit checks all directories. If such a name is a directory, its
//! direct entries are watched too. Deeper changes are not detected.

use super::manifest;
use super::wanted::Wanted;
use crate::git::open_directory;
use crate::git::stamp::InodeStamp;
use crate::git::visited::Visited;
use crate::hidden::HiddenPaths;
use crate::obeyed::Obeyed;
use quackd_protocol::client::AuditChange;
use quackd_protocol::client::AuditFile as Change;
use quackd_protocol::foreign_text::one_line_cut;
use rustix::fs::{Dir, FileType};
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum number of entries of one directory that are watched individually.
const MAX_ENTRIES: usize = 64;

/// Limits of the check after a command: levels below the top, directories, and total entries.
const NEAR_LEVELS: usize = 2;
const MAX_NEAR: usize = 64;
const MAX_NEAR_ENTRIES: usize = 2048;

/// Directories that are skipped after a command: tools fill them, and the audit checks them.
const NOT_NEAR: [&str; 6] = [".git", "node_modules", "target", "build", "dist", ".venv"];

/// Maximum length of a reported path, in characters.
const MAX_SHOWN: usize = 120;

/// State of the watched names at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedNames {
    found: BTreeMap<PathBuf, WatchedName>,
    /// Wanted paths that do not exist.
    missing: Vec<PathBuf>,
    /// Depth up to which all paths are known. Deeper paths may be missing if there were too many directories.
    whole: usize,
}

impl Default for WatchedNames {
    fn default() -> Self {
        Self { found: BTreeMap::new(), missing: Vec::new(), whole: usize::MAX }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct WatchedName {
    stamp: InodeStamp,
    entries: BTreeMap<OsString, InodeStamp>,
    /// True if there are more entries than are watched.
    has_more: bool,
    /// Digest of the keys that name programs, for a file that ordinary work changes.
    keys: Option<u64>,
    /// True if the path is compared at any depth.
    is_wanted: bool,
    /// Effect of the file, to be read after its name.
    why: Cow<'static, str>,
}

impl WatchedNames {
    /// Reads the state of the names in an open directory and in the directories near it.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn look_blocking(root: impl AsFd) -> io::Result<Self> {
        Self::look(root, &Wanted::default(), None, &mut Visited::default())
    }

    /// Like [`WatchedNames::look_blocking`], with the `wanted` files and git directories. Adds the directories that it
    /// reads to `visited`. A file that is unchanged since `before` is not read again.
    pub(super) fn look(
        root: impl AsFd,
        wanted: &Wanted,
        before: Option<&Self>,
        visited: &mut Visited,
    ) -> io::Result<Self> {
        let root = open_directory(root, Path::new(""))?;

        let mut names = Self::default();
        let mut left = MAX_NEAR_ENTRIES;
        let mut n_waiting = 0;
        let mut pending = VecDeque::from([PathBuf::new()]);
        while let Some(directory) = pending.pop_front() {
            let level = directory.components().count();
            let mut add = |name: &OsStr, is_directory: bool| {
                if let Some(row) = Obeyed::watched(&directory, name, is_directory) {
                    names.add(&root, directory.join(name), row.rule.reason().into());
                } else if manifest::is_one(name) {
                    names.add_manifest(&root, directory.join(name), before);
                }
                let is_skipped = || NOT_NEAR.iter().any(|not| name == *not);
                if !is_directory || level == NEAR_LEVELS || is_skipped() {
                    return;
                }
                n_waiting += 1;
                if n_waiting <= MAX_NEAR {
                    pending.push_back(directory.join(name));
                } else {
                    names.whole = names.whole.min(level + 1);
                }
            };

            // An unreadable directory below the top still counts by its own name.
            let looked = each_entry(&root, &directory, &mut left, visited, &mut add);
            match (left, level) {
                // A command must not hide a name behind many others.
                (0, 0) => names.add_by_name(&root),
                (_, 0) => looked?,
                _ => {}
            }
            if left == 0 {
                names.whole = names.whole.min(level.max(1));
                break;
            }
        }

        for (path, why) in wanted.all(&root, visited) {
            names.add_wanted(&root, path, why);
        }
        Ok(names)
    }

    /// Returns true if the found names and their entries are unchanged, and wanted paths are still missing. Does not
    /// search for new names.
    pub(super) fn are_unchanged(&self, root: impl AsFd) -> bool {
        let is_same = |(path, was): (&PathBuf, &WatchedName)| {
            if !was.stamp.is_directory() {
                return InodeStamp::beneath_or_at(&root, path) == Some(was.stamp);
            }
            let now = WatchedName::look(&root, path, was.why.clone());
            now.is_some_and(|now| now.is_same(was))
        };
        let is_missing = |path: &PathBuf| InodeStamp::beneath_or_at(&root, path).is_none();
        self.found.iter().all(is_same) && self.missing.iter().all(is_missing)
    }

    /// Reads the state of names that a walk has found.
    pub(super) fn at_blocking(root: impl AsFd, paths: &[PathBuf]) -> Self {
        let mut names = Self::default();
        for path in paths {
            let row = Obeyed::reported(parent_of(path), path.file_name().unwrap_or_default());
            let why = row.map_or("", |row| row.rule.reason());
            names.add(&root, path.clone(), why.into());
        }
        names
    }

    /// Paths and sizes of the found regular files.
    pub(super) fn files(&self) -> impl Iterator<Item = (PathBuf, u64)> {
        let of = |(path, one): (&PathBuf, &WatchedName)| {
            let inside = one.entries.iter().filter(|(_, stamp)| stamp.is_file());
            let inside: Vec<_> =
                inside.map(|(entry, stamp)| (path.join(entry), stamp.size())).collect();
            let itself = one.stamp.is_file().then(|| (path.clone(), one.stamp.size()));
            itself.into_iter().chain(inside)
        };
        self.found.iter().flat_map(of)
    }

    /// Returns true if a path is watched by itself.
    pub(super) fn contains(&self, path: &Path) -> bool {
        self.found.contains_key(path)
    }

    /// Returns the change of one path since this state. `None` if it is the same.
    pub(super) fn change_of(&self, root: impl AsFd, path: &Path) -> Option<AuditChange> {
        match (self.found.get(path), WatchedName::look(root, path, "".into())) {
            (None, None) => None,
            (None, Some(_)) => Some(AuditChange::Made),
            (Some(_), None) => Some(AuditChange::Removed),
            (Some(was), Some(is)) => (!was.is_same(&is)).then_some(AuditChange::Changed),
        }
    }

    /// Reads the state of each name of the table at the top. For a directory with too many entries to list.
    fn add_by_name(&mut self, root: impl AsFd) {
        for row in Obeyed::all().filter(|row| row.held.is_reported() && !row.name.contains('*')) {
            self.add(&root, PathBuf::from(row.name), row.rule.reason().into());
        }
    }

    fn add(&mut self, root: impl AsFd, path: PathBuf, why: Cow<'static, str>) {
        if let Some(watched) = WatchedName::look(root, &path, why) {
            self.found.insert(path, watched);
        }
    }

    fn add_manifest(&mut self, root: impl AsFd, path: PathBuf, before: Option<&Self>) {
        let Some(mut watched) = WatchedName::look(&root, &path, manifest::WHY.into()) else {
            return;
        };
        let known = before.and_then(|before| before.found.get(&path));
        let known = known.filter(|known| known.stamp == watched.stamp).and_then(|known| known.keys);
        watched.keys = Some(known.unwrap_or_else(|| manifest::digest_blocking(root, &path)));
        self.found.insert(path, watched);
    }

    /// Adds a path that is compared at any depth, existing or not.
    pub(super) fn add_wanted(&mut self, root: impl AsFd, path: PathBuf, why: Cow<'static, str>) {
        if let Some(known) = self.found.get_mut(&path) {
            known.is_wanted = true;
            return;
        }
        match WatchedName::look(root, &path, why) {
            Some(watched) => {
                self.found.insert(path, WatchedName { is_wanted: true, ..watched });
            }
            None => self.missing.push(path),
        }
    }

    /// Returns the differences to `now`, each name once. At depths that one of the two states knows only partly, a
    /// name counts only if both contain it.
    #[must_use]
    pub fn changes(&self, now: &Self) -> Vec<Change> {
        let whole = self.whole.min(now.whole);
        let counts = |path: &Path, one: &WatchedName| {
            // A manifest that names no program may appear and go.
            let is_empty = one.keys.is_some_and(|keys| keys == manifest::NO_KEYS);
            !is_empty && (one.is_wanted || path.components().count() <= whole)
        };

        let gone = self
            .found
            .iter()
            .filter(|(path, was)| !now.found.contains_key(*path) && counts(path, was));
        let gone = gone.map(|(path, was)| was.change(path, None, AuditChange::Removed));

        let there = now.found.iter().filter_map(|(path, is)| match self.found.get(path) {
            None if counts(path, is) => Some(is.change(path, None, AuditChange::Made)),
            None => None,
            Some(was) if was.is_same(is) => None,
            Some(was) => Some(was.inside(path, is)),
        });

        let mut changes: Vec<Change> = gone.chain(there).collect();
        let mut reported = std::collections::BTreeSet::new();
        changes.retain(|one| reported.insert(one.path.clone()));
        changes
    }

    /// Returns the names whose inodes changed at this time since the epoch or later, each once. Whether a name was created
    /// is not known, nor are removed names.
    pub(super) fn changed_since(&self, time: Duration) -> Vec<Change> {
        let is_late = |stamp: &InodeStamp| !stamp.changed_before(time);
        let change = |(path, one): (&PathBuf, &WatchedName)| {
            let inside: Vec<_> = one.entries.iter().filter(|(_, stamp)| is_late(stamp)).collect();
            let entry = match inside.as_slice() {
                _ if one.keys == Some(manifest::NO_KEYS) => return None,
                _ if is_late(&one.stamp) => None,
                [] => return None,
                [(entry, _)] => Some(*entry),
                _ => None,
            };
            Some(one.change(path, entry, AuditChange::Changed))
        };
        self.found.iter().filter_map(change).collect()
    }

    /// Removes the hidden names.
    pub(super) fn without_hidden(mut self, hidden: &HiddenPaths) -> Self {
        self.found.retain(|path, _| !hidden.contains(path));
        self
    }

    /// Removes the names that are missing in `now` although `root` has them: the walk stopped before it reached them.
    pub(super) fn without_unseen(&self, root: impl AsFd, now: &Self) -> Self {
        let is_seen = |path: &Path| {
            now.found.contains_key(path) || InodeStamp::beneath(&root, path).is_none()
        };
        let seen = self.found.iter().filter(|(path, _)| is_seen(path));
        let found = seen.map(|(path, was)| (path.clone(), was.clone())).collect();
        Self { found, missing: Vec::new(), whole: usize::MAX }
    }
}

impl WatchedName {
    fn look(root: impl AsFd, path: &Path, why: Cow<'static, str>) -> Option<Self> {
        let stamp = InodeStamp::beneath_or_at(&root, path)?;
        let (entries, keys) = (BTreeMap::new(), None);
        let mut watched = Self { stamp, entries, has_more: false, keys, is_wanted: false, why };
        if stamp.is_directory() {
            // For an unreadable directory, only its own stamp is compared.
            watched.has_more = list(&root, path, &mut watched.entries).is_none();
        }
        Some(watched)
    }

    fn is_same(&self, other: &Self) -> bool {
        // Ordinary work changes the other keys of a manifest.
        match (self.keys, other.keys) {
            (Some(was), Some(is)) => was == is,
            _ => {
                self.stamp == other.stamp
                    && self.entries == other.entries
                    && self.has_more == other.has_more
            }
        }
    }

    /// Returns the change of a name that still exists: one entry of a directory, or the whole.
    fn inside(&self, path: &Path, now: &Self) -> Change {
        let whole = || now.change(path, None, AuditChange::Changed);
        // The entries of a replaced directory, or of one with more than are watched, cannot be compared.
        if self.stamp.identity() != now.stamp.identity() || self.has_more || now.has_more {
            return whole();
        }

        let mut different = Vec::new();
        for (entry, stamp) in &now.entries {
            match self.entries.get(entry) {
                None => different.push((entry, AuditChange::Made)),
                Some(was) if was != stamp => different.push((entry, AuditChange::Changed)),
                Some(_) => {}
            }
        }
        let gone = self.entries.keys().filter(|entry| !now.entries.contains_key(*entry));
        different.extend(gone.map(|entry| (entry, AuditChange::Removed)));

        match different.as_slice() {
            [(entry, what)] => now.change(path, Some(entry), *what),
            _ => whole(),
        }
    }

    fn change(&self, path: &Path, entry: Option<&OsString>, change: AuditChange) -> Change {
        let path = entry.map_or_else(|| path.to_owned(), |entry| path.join(entry));
        let path = one_line_cut(&path.to_string_lossy(), MAX_SHOWN);
        Change { path, change, why: self.why.clone().into_owned() }
    }
}

fn parent_of(path: &Path) -> &Path {
    path.parent().unwrap_or_else(|| Path::new(""))
}

/// Calls `add` for each entry of a directory, until `left` entries were seen.
fn each_entry(
    root: impl AsFd,
    path: &Path,
    left: &mut usize,
    visited: &mut Visited,
    add: &mut impl FnMut(&OsStr, bool),
) -> Result<(), Errno> {
    let directory = open_directory(root, path)?;
    visited.note(path, &directory);
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }

        let Some(one_less) = left.checked_sub(1) else { return Ok(()) };
        *left = one_less;
        let name = OsStr::from_bytes(name.to_bytes());
        let is_directory = match entry.file_type() {
            // Some file systems do not report the kind in the listing.
            FileType::Unknown => {
                InodeStamp::at(&directory, name).is_some_and(InodeStamp::is_directory)
            }
            known => known == FileType::Directory,
        };
        add(name, is_directory);
    }
    Ok(())
}

/// Reads the entries of a directory. `None` if there are too many or they cannot be read.
fn list(root: impl AsFd, path: &Path, entries: &mut BTreeMap<OsString, InodeStamp>) -> Option<()> {
    let directory = open_directory(root, path).ok()?;
    for entry in Dir::read_from(&directory).ok()? {
        let entry = entry.ok()?;
        let file = entry.file_name();
        if file == c"." || file == c".." {
            continue;
        }

        if entries.len() == MAX_ENTRIES {
            return None;
        }
        if let Some(stamp) = InodeStamp::at(&directory, file) {
            // For a directory inside it, only its identity is compared, not changes of its content.
            let stamp = if stamp.is_directory() { stamp.identity() } else { stamp };
            entries.insert(OsString::from_vec(file.to_bytes().to_vec()), stamp);
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct World(tempfile::TempDir);

    impl World {
        fn at(&self, path: &str) -> PathBuf {
            self.0.path().join(path)
        }

        fn look(&self) -> WatchedNames {
            WatchedNames::look_blocking(fs::File::open(self.0.path()).unwrap()).unwrap()
        }

        fn write(&self, path: &str, text: &str) {
            fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
            fs::write(self.at(path), text).unwrap();
        }
    }

    fn told(was: &WatchedNames, is: &WatchedNames) -> Vec<String> {
        let changes = was.changes(is);
        changes.iter().map(|c| format!("{} {}", c.path, c.change.name())).collect()
    }

    #[test]
    fn what_is_made_changed_and_removed_is_told_by_name() {
        let world = World(tempfile::tempdir().unwrap());
        world.write(".npmrc", "a");
        world.write(".vscode/settings.json", "{}");
        world.write(".husky/pre-commit", "x");
        world.write("src/main.rs", "x");
        let start = world.look();
        assert_eq!(told(&start, &world.look()), [""; 0]);
        world.write("src/main.rs", "y");
        world.write("node_modules/a/.envrc", "of a package");
        world.write("a/b/c/.envrc", "too deep");
        assert_eq!(told(&start, &world.look()), [""; 0]);
        world.write("packages/a/.envrc", "near the top");
        world.write(".envrc", "x");
        world.write(".vscode/tasks.json", "{}");
        fs::remove_file(world.at(".npmrc")).unwrap();
        let now = world.look();
        let expected =
            [".npmrc removed", ".envrc made", ".vscode/tasks.json made", "packages/a/.envrc made"];
        assert_eq!(told(&start, &now), expected);
        world.write(".husky/pre-commit", "another");
        world.write(".husky/pre-push", "x");
        assert_eq!(told(&now, &world.look()), [".husky changed"]);
    }

    #[test]
    fn of_too_many_directories_only_those_near_the_top_are_told() {
        let world = World(tempfile::tempdir().unwrap());
        for n in 0..MAX_NEAR {
            world.write(&format!("a/{n}/x"), "");
        }
        let start = world.look();
        world.write("a/.envrc", "complete");
        world.write("a/1/.envrc", "not complete");
        assert_eq!(told(&start, &world.look()), ["a/.envrc made"]);
        // Too many entries to list: each name is checked instead.
        for n in 0..MAX_NEAR_ENTRIES {
            world.write(&format!("{n}"), "");
        }
        world.write(".pi/settings.json", "{}");
        assert!(told(&start, &world.look()).contains(&".pi made".to_owned()));
    }

    #[test]
    fn a_change_with_the_old_size_and_time_is_seen() {
        let world = World(tempfile::tempdir().unwrap());
        world.write(".envrc", "abc");
        let modified = fs::metadata(world.at(".envrc")).unwrap().modified().unwrap();
        let start = world.look();
        world.write(".envrc", "xyz");
        let file = fs::File::options().write(true).open(world.at(".envrc")).unwrap();
        file.set_modified(modified).unwrap();
        assert_eq!(told(&start, &world.look()), [".envrc changed"]);
    }

    #[test]
    fn a_directory_with_many_files_is_told_as_one() {
        let world = World(tempfile::tempdir().unwrap());
        for n in 0..=MAX_ENTRIES {
            world.write(&format!(".claude/{n}"), "");
        }
        let start = world.look();
        assert_eq!(told(&start, &world.look()), [""; 0]);
        world.write(".claude/new", "");
        assert_eq!(told(&start, &world.look()), [".claude changed"]);
    }

    #[test]
    #[ignore = "prints how long a look takes"]
    #[expect(clippy::print_stderr, reason = "that is what it is for")]
    fn a_look_is_timed() {
        let world = World(tempfile::tempdir().unwrap());
        let time = |what: &str| {
            let root = fs::File::open(world.0.path()).unwrap();
            let start = std::time::Instant::now();
            for _ in 0..1000 {
                WatchedNames::look_blocking(&root).unwrap();
            }
            eprintln!("{what}: {:?}", start.elapsed() / 1000);
        };
        time("nothing there");
        for directory in [".vscode", ".husky", ".claude", ".cargo"] {
            for n in 0..MAX_ENTRIES {
                world.write(&format!("{directory}/{n}"), "");
            }
        }
        time("four full directories");
        for n in 0..MAX_NEAR * 16 {
            world.write(&format!("src/{}/{n}.rs", n % MAX_NEAR), "");
        }
        time("as many directories as are looked into, too");
    }

    #[test]
    fn a_link_in_the_place_of_a_name_is_a_change_and_is_not_followed() {
        let world = World(tempfile::tempdir().unwrap());
        world.write(".claude/a", "");
        let start = world.look();
        fs::remove_dir_all(world.at(".claude")).unwrap();
        std::os::unix::fs::symlink("/etc", world.at(".claude")).unwrap();
        let now = world.look();
        assert_eq!(told(&start, &now), [".claude changed"]);
        assert!(now.found[Path::new(".claude")].entries.is_empty());
    }
}
