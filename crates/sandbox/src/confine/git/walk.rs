//! Finding every `.git` of a tree, at any depth, in steps of a budget. Called by stage 0; a caller that
//! stops early knows that it did, and says so.

use super::beneath;
use crate::audit::visited::Visited;
use crate::obeyed::Obeyed;
use rustix::fs::{Dir, FileType};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Most directories that wait to be looked into.
const MAX_PENDING: usize = 200_000;

/// Most repositories of a start: each costs a dozen mounts.
const MAX_REPOSITORIES: usize = 128;

/// Names by which git takes a directory for a repository, whatever it is called.
const MARKS: [&str; 4] = ["HEAD", "objects", "refs", "commondir"];

/// Most names that programs obey of which the place is remembered.
const MAX_OBEYED: usize = 4096;

/// Directories of installed packages. Programs run what is in them anyway.
const PACKAGES: [&str; 2] = ["node_modules", "site-packages"];

/// Deepest directory.
const MAX_DEPTH: usize = 256;

/// What a `.git` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// A directory: the repository itself.
    Directory,
    /// A file that leads to it.
    File,
    /// A link or something else that cannot be pinned.
    Other,
}

/// What a walk has found so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// Paths of the `.git`s beneath the workspace.
    pub repositories: Vec<(PathBuf, NodeKind)>,
    /// Paths of directories that git takes for a repository by what is in them; empty for the workspace
    /// itself.
    pub bare: Vec<PathBuf>,
    /// True if there are more of those than are remembered.
    pub has_more_bare: bool,
    /// Paths of names that programs obey later, outside of directories of packages.
    pub obeyed: Vec<PathBuf>,
    /// True if there are more of those than are remembered.
    pub has_more_obeyed: bool,
    /// Entries of directories that were looked at.
    pub entries: u64,
    /// False if something was left out: too many directories or repositories, too deep, not readable, or
    /// the walk was not finished.
    pub complete: bool,
}

/// A walk that can be interrupted.
#[derive(Debug)]
pub struct Walk {
    root: OwnedFd,
    /// Directories by breadth: what is near the top matters most if the walk ends early.
    pending: VecDeque<PathBuf>,
    found: Found,
    most: usize,
    is_cut: bool,
    visited: Option<Visited>,
}

impl Walk {
    /// A walk of the tree beneath a directory.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn new(directory: impl AsFd) -> io::Result<Self> {
        let root = beneath::open_directory(directory, Path::new(""))?;
        let pending = VecDeque::from([PathBuf::new()]);
        let most = MAX_REPOSITORIES;
        Ok(Self { root, pending, found: Found::default(), most, is_cut: false, visited: None })
    }

    /// The same walk that finds up to `most` repositories of each kind.
    #[must_use]
    pub fn for_up_to(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// The same walk that adds the directories that it reads to `visited`; [`Walk::visited`] returns them.
    pub(crate) fn noting(mut self, visited: Visited) -> Self {
        self.visited = Some(visited);
        self
    }

    /// Takes the directories that were read.
    pub(crate) fn visited(&mut self) -> Visited {
        self.visited.take().unwrap_or_default()
    }

    /// Looks at whole directories until about `budget` more entries were seen. True when nothing is left.
    pub fn step(&mut self, budget: u64) -> bool {
        let until = self.found.entries.saturating_add(budget);
        while self.found.entries < until {
            let Some(directory) = self.pending.pop_front() else { break };
            // A directory that ended meanwhile is no loss; any other that cannot be read is.
            match self.look_into(&directory) {
                Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(_) => self.is_cut = true,
            }
        }
        self.pending.is_empty()
    }

    /// What was found so far.
    #[must_use]
    pub fn finish(mut self) -> Found {
        self.found.complete = self.pending.is_empty() && !self.is_cut;
        self.found
    }

    fn look_into(&mut self, directory: &Path) -> Result<(), Errno> {
        let handle = beneath::open_directory(&self.root, directory)?;
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
                *seen |= name == mark;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => kind_of(&handle, name)?,
                known => known,
            };
            if !in_packages && Obeyed::reported(directory, name).is_some() {
                self.add_obeyed(directory.join(name));
            }
            if name == ".git" {
                self.add(directory.join(name), kind);
            } else if kind == FileType::Directory {
                if depth < MAX_DEPTH && self.pending.len() < MAX_PENDING {
                    self.pending.push_back(directory.join(name));
                } else {
                    self.is_cut = true;
                }
            }
        }
        // Instead of the two directories there may be a file that says where they are.
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
            self.is_cut = true;
        }
    }
}

/// Some file systems do not say in the listing.
fn kind_of(directory: &OwnedFd, name: &OsStr) -> Result<FileType, Errno> {
    Ok(match beneath::node(directory, name)? {
        beneath::Node::Directory => FileType::Directory,
        beneath::Node::File => FileType::RegularFile,
        beneath::Node::Other | beneath::Node::Missing => FileType::Symlink,
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
