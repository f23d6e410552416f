//! Finds every `.git` of a tree, at any depth, in steps with a budget. Called by stage 0.
//! [`FoundRepositories::complete`] is false if the caller stopped early.

use super::openat;
use super::visited::Visited;
use crate::obeyed::{Obeyed, is_same};
use crate::platform::FOLDS_CASE;
use rustix::fs::{Dir, FileType};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum number of directories that wait to be read.
const MAX_PENDING: usize = 200_000;

/// Maximum number of repositories of a workspace. A session that may write does not start with more.
pub const MAX_REPOSITORIES: usize = 2_048;

/// Names by which git recognizes a repository in a directory of any name.
const MARKS: [&str; 4] = ["HEAD", "objects", "refs", "commondir"];

/// Maximum number of remembered paths that programs obey.
const MAX_OBEYED: usize = 4096;

/// Directories of installed packages. Programs run their files anyway.
const PACKAGES: [&str; 2] = ["node_modules", "site-packages"];

/// Maximum depth of a directory.
const MAX_DEPTH: usize = 256;

/// Kind of a `.git`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// A directory: the repository itself.
    Directory,
    /// A file that names the repository's directory.
    File,
    /// A link or something else that cannot be pinned.
    Other,
}

/// Result of a walk so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FoundRepositories {
    /// Paths of the `.git` nodes, relative to the workspace.
    pub repositories: Vec<(PathBuf, NodeKind)>,
    /// Paths of directories that git recognizes as a repository by their content. Empty for the workspace itself.
    pub bare: Vec<PathBuf>,
    /// True if `repositories` omits some because of the limit.
    pub has_more_repositories: bool,
    /// True if `bare` omits some because of the limit.
    pub has_more_bare: bool,
    /// Paths that programs obey later, outside of package directories.
    pub obeyed: Vec<PathBuf>,
    /// True if `obeyed` omits some because of the limit.
    pub has_more_obeyed: bool,
    /// Number of directory entries read.
    pub entries: u64,
    /// False if the walk is incomplete: too many directories or repositories, too deep, an unreadable directory, or
    /// not finished.
    pub complete: bool,
}

/// A walk in steps, which can be stopped early.
#[derive(Debug)]
pub struct Walk {
    root: OwnedFd,
    /// Directories in breadth-first order, because the top levels matter most if the walk stops early.
    pending: VecDeque<PathBuf>,
    found: FoundRepositories,
    most: usize,
    is_cut: bool,
    visited: Option<Visited>,
}

impl Walk {
    /// Creates a walk of the tree under a directory.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn new(directory: impl AsFd) -> io::Result<Self> {
        let root = openat::open_directory(directory, Path::new(""))?;
        let pending = VecDeque::from([PathBuf::new()]);
        let most = MAX_REPOSITORIES;
        Ok(Self {
            root,
            pending,
            found: FoundRepositories::default(),
            most,
            is_cut: false,
            visited: None,
        })
    }

    /// Sets the maximum number of repositories of each kind.
    #[must_use]
    pub fn for_up_to(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// Records the directories that the walk reads in `visited`. [`Walk::visited`] returns them.
    pub(crate) fn noting(mut self, visited: Visited) -> Self {
        self.visited = Some(visited);
        self
    }

    /// Takes the recorded directories.
    pub(crate) fn visited(&mut self) -> Visited {
        self.visited.take().unwrap_or_default()
    }

    /// Reads complete directories until about `budget` more entries were read. Returns true when no directory is
    /// left.
    pub fn step(&mut self, budget: u64) -> bool {
        let until = self.found.entries.saturating_add(budget);
        while self.found.entries < until {
            let Some(directory) = self.pending.pop_front() else { break };
            // A directory that was removed since contains nothing. Any other unreadable directory makes the walk
            // incomplete.
            match self.look_into(&directory) {
                Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(_) => self.is_cut = true,
            }
        }
        self.pending.is_empty()
    }

    /// Returns the result so far.
    #[must_use]
    pub fn finish(mut self) -> FoundRepositories {
        self.found.complete = self.pending.is_empty() && !self.is_cut;
        self.found
    }

    fn look_into(&mut self, directory: &Path) -> Result<(), Errno> {
        let handle = openat::open_directory(&self.root, directory)?;
        if let Some(visited) = &mut self.visited {
            visited.note(directory, &handle);
        }

        let depth = directory.components().count();
        let in_packages = directory.iter().any(|name| PACKAGES.iter().any(|known| name == *known));
        let mut marks = [false; MARKS.len()];
        for entry in Dir::read_from(&handle)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            self.found.entries = self.found.entries.saturating_add(1);
            for (seen, mark) in marks.iter_mut().zip(MARKS) {
                *seen |= is_same(name, mark, FOLDS_CASE);
            }
            let kind = match entry.file_type() {
                FileType::Unknown => kind_of(&handle, name)?,
                known => known,
            };

            if !in_packages && Obeyed::reported(directory, name).is_some() {
                self.add_obeyed(directory.join(name));
            }
            if is_same(name, ".git", FOLDS_CASE) {
                self.add(directory.join(name), kind);
            } else if kind == FileType::Directory {
                if depth < MAX_DEPTH && self.pending.len() < MAX_PENDING {
                    self.pending.push_back(directory.join(name));
                } else {
                    self.is_cut = true;
                }
            }
        }

        // A `commondir` file may replace the two directories.
        let [has_head, has_objects, has_refs, has_common] = marks;
        if has_head && (has_common || has_objects && has_refs) {
            if self.found.bare.len() < self.most {
                self.found.bare.push(directory.to_path_buf());
            } else {
                self.found.has_more_bare = true;
            }
        }
        Ok(())
    }

    fn add_obeyed(&mut self, at: PathBuf) {
        if self.found.obeyed.len() < MAX_OBEYED {
            self.found.obeyed.push(at);
        } else {
            self.found.has_more_obeyed = true;
        }
    }

    fn add(&mut self, at: PathBuf, kind: FileType) {
        let kind = match kind {
            FileType::Directory => NodeKind::Directory,
            FileType::RegularFile => NodeKind::File,
            _ => NodeKind::Other,
        };
        if self.found.repositories.len() < self.most {
            self.found.repositories.push((at, kind));
        } else {
            self.found.has_more_repositories = true;
            self.is_cut = true;
        }
    }
}

/// Reads the kind of an entry, for file systems that omit it in the listing.
fn kind_of(directory: &OwnedFd, name: &OsStr) -> Result<FileType, Errno> {
    Ok(match openat::node(directory, name)? {
        openat::Node::Directory => FileType::Directory,
        openat::Node::File => FileType::RegularFile,
        // The caller treats all other kinds alike, and a removed entry like them.
        openat::Node::Other | openat::Node::Missing => FileType::Symlink,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn repositories_are_found_at_any_depth_and_not_through_links() {
        let tree = tempfile::tempdir().unwrap();
        for directory in [".git/objects", "a/b/c/.git", "wt", "outside/.git"] {
            fs::create_dir_all(tree.path().join("ws").join(directory)).unwrap();
        }
        let ws = tree.path().join("ws");
        rustix::fs::rename(ws.join("outside"), tree.path().join("outside")).unwrap();
        fs::write(ws.join("wt/.git"), "gitdir: x").unwrap();
        symlink(tree.path().join("outside"), ws.join("link")).unwrap();
        let mut walk = Walk::new(fs::File::open(&ws).unwrap()).unwrap();
        assert!(walk.step(1000));
        let found = walk.finish();
        assert!(found.complete);
        let expected = [
            (PathBuf::from(".git"), NodeKind::Directory),
            ("wt/.git".into(), NodeKind::File),
            ("a/b/c/.git".into(), NodeKind::Directory),
        ];
        assert_eq!(found.repositories, expected);
    }

    #[test]
    fn a_walk_that_stops_early_says_so() {
        let tree = tempfile::tempdir().unwrap();
        for n in 0..50 {
            fs::create_dir_all(tree.path().join(format!("d{n}/e"))).unwrap();
        }
        let mut walk = Walk::new(fs::File::open(tree.path()).unwrap()).unwrap();
        assert!(!walk.step(10));
        assert!(!walk.finish().complete);
    }
}
