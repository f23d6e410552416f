//! Finds names in git directories by which git would write to another file: links, FIFOs, sockets, devices,
//! directories instead of files, and files with a second name. Git opens most of its files by name and follows
//! links. If `COMMIT_EDITMSG` is a link to `config`, the next commit overwrites the settings.
//!
//! [`git_directory`] opens the git directory of a `.git`, and [`look`] searches it within a [`Reach`]. Called by
//! `report`. [`each`] searches several repositories with tighter limits, for `sweep`, and through
//! [`earlier`] for `snapshot`.

use super::repository::{Base, RepositoryLayout, RepositoryLocation};
use crate::git::gitdir::{self, LinkedRepository};
use crate::git::open_directory;
use crate::git::openat::{self, Node};
use crate::git::stamp::InodeStamp;
use crate::git::visited::Visited;
use quackd_protocol::client::PlantedKind;
use rustix::fs::{AtFlags, Dir, FileType, statat};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Files that git writes by name, in the top directory of a repository or of a linked worktree.
pub(super) const FILES: [&str; 40] = [
    "HEAD",
    "index",
    "config",
    "config.worktree",
    "packed-refs",
    "shallow",
    "description",
    "commondir",
    "gitdir",
    "COMMIT_EDITMSG",
    "MERGE_MSG",
    "SQUASH_MSG",
    "TAG_EDITMSG",
    "NOTES_EDITMSG",
    "BRANCH_DESCRIPTION",
    "EDIT_DESCRIPTION",
    "ADD_EDIT.patch",
    "addp-hunk-edit.diff",
    "FETCH_HEAD",
    "ORIG_HEAD",
    "MERGE_HEAD",
    "MERGE_MODE",
    "MERGE_RR",
    "MERGE_AUTOSTASH",
    "AUTO_MERGE",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "NOTES_MERGE_REF",
    "NOTES_MERGE_PARTIAL",
    "BISECT_HEAD",
    "BISECT_LOG",
    "BISECT_NAMES",
    "BISECT_START",
    "BISECT_TERMS",
    "BISECT_EXPECTED_REV",
    "BISECT_ANCESTORS_OK",
    "BISECT_FIRST_PARENT",
    "BISECT_RUN",
    "gc.log",
];

/// Directories to search in a directory that only looks like a repository.
const DIRECTORIES: [&str; 6] = ["info", "logs", "modules", "objects", "refs", "worktrees"];

/// Maximum depth of the search in a git directory.
const MAX_DEPTH: usize = 32;

/// Maximum number of pending directories of one repository.
const MAX_PENDING: usize = 20_000;

/// Prefix of an editor's lock links. Git never creates such a name.
const EDITORS_LOCK: &[u8] = b".#";

/// Socket of git's file system monitor. Git only connects to it.
const MONITOR_SOCKET: &str = "fsmonitor--daemon.ipc";

/// Maximum number of entries that a sweep checks, in one repository and in all. The audit finds the rest.
const ENTRIES_OF_ONE: u64 = 1_500;
const ENTRIES_OF_ALL: u64 = 10_000;

/// Timeout of one sweep, and of one round of setting files aside.
pub(super) const SWEEP_LIMIT: Duration = Duration::from_millis(300);

/// Links and special files that existed when the worker started.
pub(super) type Earlier = BTreeMap<PathBuf, InodeStamp>;

/// Limits of one search.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach {
    /// Remaining number of directory entries.
    pub(super) entries: u64,
    /// Deadline.
    pub(super) until: Instant,
    /// True to find files with a second name, which takes one more system call for each file.
    pub(super) with_files: bool,
}

/// An open directory that git accepts as a repository.
#[derive(Debug)]
pub(super) struct GitDirectory {
    pub(super) handle: OwnedFd,
    /// Relative to the workspace, or absolute if it is outside. For display.
    pub(super) path: PathBuf,
    /// False for a directory that only looks like a repository: it may be a source tree.
    is_whole: bool,
}

/// A name by which git would write to another file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Planted {
    /// Relative to the git directory.
    pub(super) at: PathBuf,
    pub(super) kind: PlantedKind,
    /// Identifies the node. The inode number alone does not: a new link can reuse it.
    pub(super) stamp: InodeStamp,
}

/// Kind of a directory in a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// Top directory of a repository, a submodule or a linked worktree.
    Git,
    /// Top directory of a directory that only looks like a repository. Only known names count.
    Bare,
    /// Contains repositories of submodules, at any depth.
    Modules,
    Worktrees,
    Logs,
    /// Git never overwrites files there, and clones share them by hard links.
    Objects,
    /// Git runs these files and never writes them. `repository` lists them.
    Hooks,
    Plain,
}

/// Opens the git directory of the `.git` at `place`: itself, or the directory that it names.
pub(super) fn git_directory(base: Base<'_>, place: &RepositoryLocation) -> Option<GitDirectory> {
    let at = match place.shape {
        RepositoryLayout::Directory | RepositoryLayout::Bare => place.at.clone(),
        // Git follows a link. A link out of the workspace is listed by `repository`.
        RepositoryLayout::Other => {
            let handle = openat::hold_behind_links(base.handle, base.path, &place.at).ok()?;
            return Some(GitDirectory { handle, path: place.at.clone(), is_whole: false });
        }
        RepositoryLayout::File => match gitdir::follow(base.handle, base.path, &place.at) {
            LinkedRepository::Inside(repositories) => repositories.into_iter().next()?,
            LinkedRepository::Outside(main) => {
                let (handle, path) = (main.handle, main.path);
                return Some(GitDirectory { handle, path, is_whole: true });
            }
            LinkedRepository::Nowhere => return None,
        },
    };

    let handle = openat::hold(base.handle, &at).ok()?;
    Some(GitDirectory { handle, path: at, is_whole: place.shape != RepositoryLayout::Bare })
}

/// Searches a git directory, breadth first. Returns the names found, the remaining entries, and whether the search
/// is complete.
/// Adds the directories that it reads to `visited`.
pub(super) fn look(
    git: &GitDirectory,
    reach: Reach,
    visited: &mut Visited,
) -> (Vec<Planted>, u64, bool) {
    let (pending, found) = (VecDeque::new(), Vec::new());
    let mut look = Look { git, reach, pending, found, is_whole: true, visited };
    if git.is_whole {
        look.pending.push_back((PathBuf::new(), Level::Git));
    } else {
        look.known_names(Path::new(""), Level::Bare);
    }

    while let Some((at, level)) = look.pending.pop_front() {
        if look.reach.entries == 0 || reach.until <= Instant::now() {
            look.is_whole = false;
            break;
        }
        look.look_into(&at, level);
    }
    (look.found, look.reach.entries, look.is_whole)
}

struct Look<'a> {
    git: &'a GitDirectory,
    reach: Reach,
    pending: VecDeque<(PathBuf, Level)>,
    found: Vec<Planted>,
    is_whole: bool,
    visited: &'a mut Visited,
}

impl Look<'_> {
    /// Checks the known names of git first, so that a command cannot hide them behind many files.
    fn known_names(&mut self, at: &Path, level: Level) {
        let Ok(directory) = open_directory(&self.git.handle, at) else { return };
        let names: &[&str] = match level {
            Level::Git | Level::Bare => &FILES,
            Level::Logs => &["HEAD"],
            _ => return,
        };
        let directories: &[&str] = if level == Level::Bare { &DIRECTORIES } else { &[] };
        for name in names.iter().chain(directories) {
            self.entry(&directory, at, OsStr::new(name), FileType::Unknown, level);
        }
    }

    fn look_into(&mut self, at: &Path, level: Level) {
        self.known_names(at, level);
        // A directory that was removed since contains nothing.
        let directory = match open_directory(&self.git.handle, at) {
            Ok(directory) => directory,
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return,
            Err(_) => return self.is_whole = false,
        };

        self.visited.note(&self.git.path.join(at), &directory);
        let Ok(entries) = Dir::read_from(&directory) else { return self.is_whole = false };

        for entry in entries {
            let Ok(entry) = entry else { return self.is_whole = false };
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            // `known_names` has checked the files.
            if name == "." || name == ".." || is_file_of(level, name) {
                continue;
            }
            let Some(left) = self.reach.entries.checked_sub(1) else {
                return self.is_whole = false;
            };
            self.reach.entries = left;
            self.entry(&directory, at, name, entry.file_type(), level);
        }
    }

    fn entry(&mut self, parent: &OwnedFd, at: &Path, name: &OsStr, listed: FileType, level: Level) {
        let stat = || statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        let kind = match listed {
            // Some file systems do not report it in the listing.
            FileType::Unknown => stat().map(|stat| FileType::from_raw_mode(stat.st_mode)),
            listed => Some(listed),
        };
        let Some(kind) = kind else { return };

        let planted = match kind {
            FileType::Directory if is_file_of(level, name) => Some(PlantedKind::Directory),
            FileType::Directory => return self.directory(parent, at.join(name), name, level),
            FileType::RegularFile if level == Level::Objects || !self.reach.with_files => None,
            FileType::RegularFile => {
                stat().filter(|stat| 1 < stat.st_nlink).map(|_| PlantedKind::HardLink)
            }
            FileType::Symlink if name.as_bytes().starts_with(EDITORS_LOCK) => None,
            FileType::Symlink if level == Level::Hooks => None,
            FileType::Symlink => Some(PlantedKind::Link),
            FileType::Fifo => Some(PlantedKind::Fifo),
            FileType::Socket if name == MONITOR_SOCKET => None,
            FileType::Socket => Some(PlantedKind::Socket),
            _ => Some(PlantedKind::Device),
        };

        if let Some((kind, stamp)) =
            planted.and_then(|kind| Some((kind, InodeStamp::at(parent, name)?)))
        {
            self.found.push(Planted { at: at.join(name), kind, stamp });
        }
    }

    fn directory(&mut self, parent: &OwnedFd, at: PathBuf, name: &OsStr, level: Level) {
        let below = match level {
            Level::Git | Level::Bare => match name.to_str() {
                Some("objects") => Level::Objects,
                Some("modules") => Level::Modules,
                Some("worktrees") => Level::Worktrees,
                Some("hooks") => Level::Hooks,
                Some("logs") => Level::Logs,
                _ => Level::Plain,
            },
            Level::Worktrees => Level::Git,
            Level::Modules => {
                let has = |mark: &str| {
                    let mark = Path::new(name).join(mark);
                    openat::node_at(parent, &mark).is_ok_and(|node| node != Node::Missing)
                };
                if has("HEAD") || has("objects") { Level::Git } else { Level::Modules }
            }
            // Only the kind of the other directories matters.
            Level::Objects if name != "info" => return,
            Level::Objects => Level::Objects,
            Level::Logs | Level::Hooks | Level::Plain => Level::Plain,
        };

        if at.components().count() < MAX_DEPTH && self.pending.len() < MAX_PENDING {
            self.pending.push_back((at, below));
        } else {
            self.is_whole = false;
        }
    }
}

/// Returns true if git writes a file of this name in such a directory.
fn is_file_of(level: Level, name: &OsStr) -> bool {
    match level {
        Level::Git | Level::Bare => FILES.iter().any(|file| name == *file),
        Level::Logs => name == "HEAD",
        _ => false,
    }
}

/// Removes a name if it is a link or a special file, never a regular file or a directory. Returns true on success.
pub(super) fn remove(git: &GitDirectory, at: &Path) -> bool {
    let (Some(parent), Some(name)) = (at.parent(), at.file_name()) else { return false };
    let Ok(parent) = openat::hold(&git.handle, parent) else { return false };
    openat::node(&parent, name) == Ok(Node::Other)
        && rustix::fs::unlinkat(&parent, name, AtFlags::empty()).is_ok()
}

/// Full path of a name in a git directory, for display.
pub(super) fn shown(git: &GitDirectory, at: &Path) -> OsString {
    git.path.join(at).into_os_string()
}

/// Collects the links and special files in the repositories of `places`.
pub(super) fn earlier(base: Base<'_>, places: &BTreeSet<RepositoryLocation>) -> Earlier {
    let mut earlier = Earlier::new();
    each(base, places, &mut Visited::default(), |git, one| {
        earlier.insert(git.path.join(&one.at), one.stamp);
    });
    earlier
}

/// Searches each repository once and calls `report` for each name found.
pub(super) fn each(
    base: Base<'_>,
    places: &BTreeSet<RepositoryLocation>,
    visited: &mut Visited,
    mut report: impl FnMut(&GitDirectory, &Planted),
) {
    let until = Instant::now() + SWEEP_LIMIT;
    let mut left = ENTRIES_OF_ALL;
    let mut seen: Vec<PathBuf> = Vec::new();
    for place in places {
        // The directory may be a source tree. Only the audit reports names in it.
        if place.shape == RepositoryLayout::Bare {
            continue;
        }
        if place.shape != RepositoryLayout::Directory {
            visited.note_name(base.handle, &place.at);
        }
        let Some(git) = git_directory(base, place) else { continue };
        // The git directory of a submodule is in that of its repository, and was searched with it.
        if seen.iter().any(|seen| git.path.starts_with(seen)) {
            continue;
        }

        let entries = left.min(ENTRIES_OF_ONE);
        let reach = Reach { entries, until, with_files: false };
        let (found, rest, _) = look(&git, reach, visited);
        left = left.saturating_sub(entries.saturating_sub(rest));
        found.iter().for_each(|one| report(&git, one));
        seen.push(git.path);
    }
}
