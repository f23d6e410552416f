//! The git directories of a tree, with those of submodules and linked worktrees. Called by stage 0 in the tiers that
//! protect them by rules about paths: Landlock alone, and the profile of macOS.

use super::gitdir::{self, LinkedRepository};
use super::named::WritableTree;
use super::openat::{self, Node};
use super::protected_names::{MODULE_MARKS, NAMES, PARENTS};
use super::protection_gap::ProtectionGap;
use super::walk::{FoundRepositories, NodeKind};
use rustix::fs::Dir;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Settings for git in a session that does not see every linked worktree. `git gc` would otherwise fail: it shortens the
/// record of each HEAD, and those of unseen worktrees cannot change.
pub const KEEP_WORKTREES: &str = "[gc]\n\treflogExpire = never\n\treflogExpireUnreachable = never\n\tworktreePruneExpire = never\n";

/// Maximum number of submodules, and of linked worktrees, of one repository.
const MAX_CHILDREN: usize = 128;

/// Maximum number of git directories of one tree.
const MAX_DIRECTORIES: usize = 4_096;

/// Maximum number of directories in `modules` and `worktrees` of all repositories of one tree.
const MAX_ALL_CHILDREN: usize = 10_000;

/// Maximum number of troubles.
const MAX_TROUBLES: usize = 64;

/// Maximum depth of a submodule's name: `modules/a/b/c`.
const MAX_MODULE_DEPTH: usize = 4;

/// Returns the git directories of what a walk has found: each `.git`, and the directories in the workspace that `.git`
/// files name. Absolute paths.
pub fn git_directories_blocking(
    workspace: impl AsFd,
    path: &Path,
    found: &FoundRepositories,
) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    for (at, kind) in &found.repositories {
        directories.push(path.join(at));
        if *kind == NodeKind::File
            && let LinkedRepository::Inside(named) = gitdir::follow(&workspace, path, at)
        {
            directories.extend(named.into_iter().map(|git| path.join(git)));
        }
    }

    // Several `.git` files may name one directory.
    directories.sort_unstable();
    directories.dedup();
    directories
}

/// The git directories of writable trees, each once, as absolute paths.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GitDirectories {
    /// Repositories, also those of submodules. Their [`NAMES`] must not change.
    pub repositories: Vec<PathBuf>,
    /// Git directories of linked worktrees. Only the names that lead to their repository must not change.
    pub worktrees: Vec<PathBuf>,
    /// Files and directories of which nothing must change: `.git` files, repositories whose names are links, and git
    /// directories of linked worktrees that are elsewhere.
    pub read_only: Vec<PathBuf>,
    /// True if a linked worktree is elsewhere, so that git needs [`KEEP_WORKTREES`].
    pub has_unseen_worktrees: bool,
    /// Repositories outside of the trees that belong to them. They are also in `repositories`.
    pub outside: Vec<PathBuf>,
    /// Paths that could not be protected, or only by stricter rules. For display to the user.
    pub troubles: Vec<ProtectionGap>,
}

impl GitDirectories {
    /// Adds the git directories of a tree. `visible` are the directories that the session sees. What cannot be read, or is
    /// beyond a limit, is added as read-only as a whole: a session could have made it so.
    pub fn add_blocking(&mut self, tree: &WritableTree<'_>, visible: &[&Path]) {
        // An earlier tree may lead to the same directories.
        let done = self.repositories.iter().chain(&self.read_only).cloned().collect();
        let mut search = Search { found: self, visible, done, n_children: 0 };
        let base = Base { handle: tree.handle, path: tree.path };

        if !tree.found.complete {
            search.trouble(base, Path::new(""), "is too large to find every repository in it");
        }

        for (at, kind) in &tree.found.repositories {
            match kind {
                NodeKind::Directory | NodeKind::File
                    if !openat::is_own_repository(tree.handle, at) =>
                {
                    // Git refuses such a repository.
                    search.read_only(
                        base,
                        at,
                        "or its directory belongs to another user and is read-only",
                    );
                }
                NodeKind::Directory => search.repository(base, at),
                NodeKind::File => search.file(base, at),
                NodeKind::Other => search.trouble(base, at, "is a link and cannot be pinned"),
            }
        }
    }
}

/// A tree that contains repositories.
#[derive(Clone, Copy)]
struct Base<'a> {
    handle: BorrowedFd<'a>,
    path: &'a Path,
}

impl Base<'_> {
    fn path_of(self, at: &Path) -> PathBuf {
        if at.as_os_str().is_empty() { self.path.into() } else { self.path.join(at) }
    }
}

/// Directories in a directory of a repository.
enum Children {
    All(Vec<PathBuf>),
    /// There are too many, or they cannot be read.
    Unknown,
}

struct Search<'a> {
    found: &'a mut GitDirectories,
    visible: &'a [&'a Path],
    /// Git directories that were added.
    done: BTreeSet<PathBuf>,
    /// Number of directories that were found in `modules` and `worktrees`.
    n_children: usize,
}

impl Search<'_> {
    fn trouble(&mut self, base: Base<'_>, at: &Path, what: &'static str) {
        if self.found.troubles.len() < MAX_TROUBLES {
            self.found.troubles.push(ProtectionGap { path: base.path_of(at), what });
        }
    }

    /// Adds a path that is read-only as a whole.
    fn read_only(&mut self, base: Base<'_>, at: &Path, why: &'static str) {
        self.found.read_only.push(base.path_of(at));
        self.trouble(base, at, why);
    }

    /// Adds a repository, its submodules and its linked worktrees.
    fn repository(&mut self, base: Base<'_>, at: &Path) {
        let path = base.path_of(at);
        // A `.git` file often names a directory of a repository that was found before.
        if !self.done.insert(path.clone()) {
            return;
        }

        match has_link(base, at) {
            _ if MAX_DIRECTORIES <= self.done.len() => {
                self.read_only(base, at, "is one repository too many and is read-only");
            }
            Ok(true) => {
                self.read_only(base, at, "has links in place of protected names and is read-only");
            }
            Err(_) => self.read_only(base, at, "cannot be read and is read-only"),
            Ok(false) => {
                self.found.repositories.push(path);
                self.modules(base, &at.join("modules"), MAX_MODULE_DEPTH);
                self.worktrees(base, &at.join("worktrees"));
            }
        }
    }

    /// Adds a `.git` file and the repository that it names.
    fn file(&mut self, base: Base<'_>, at: &Path) {
        self.found.read_only.push(base.path.join(at));
        match gitdir::follow(base.handle, base.path, at) {
            LinkedRepository::Inside(directories) => {
                directories.iter().for_each(|git| self.repository(base, git));
            }
            LinkedRepository::Outside(main) => {
                let outside = Base { handle: main.handle.as_fd(), path: &main.path };
                self.repository(outside, Path::new(""));

                let is_protected = self.found.repositories.contains(&main.path);
                if is_protected && !self.found.outside.contains(&main.path) {
                    self.found.outside.push(main.path.clone());
                }
            }
            LinkedRepository::Nowhere => {
                let what = "names no repository of this workspace, and git does not work there";
                self.trouble(base, at, what);
            }
        }
    }

    /// Adds submodules: directories at any depth of `modules` that look like a repository.
    fn modules(&mut self, base: Base<'_>, at: &Path, depth: usize) {
        let Children::All(children) = self.children(base, at) else {
            let why = "has too many directories, or some that cannot be read, and is read-only";
            return self.read_only(base, at, why);
        };

        for child in children {
            let has =
                |mark: &&str| openat::node_at(base.handle, &child.join(mark)) != Ok(Node::Missing);
            if MODULE_MARKS.iter().any(has) {
                self.repository(base, &child);
            } else if let Some(depth) = depth.checked_sub(1) {
                self.modules(base, &child, depth);
            } else {
                self.read_only(base, &child, "is too deep for a submodule and is read-only");
            }
        }
    }

    /// Adds the git directories of linked worktrees. Those of worktrees that the session does not see are read-only.
    fn worktrees(&mut self, base: Base<'_>, at: &Path) {
        let Children::All(children) = self.children(base, at) else {
            let why = "has too many directories, or some that cannot be read, and is read-only";
            return self.read_only(base, at, why);
        };

        for worktree in children {
            let path = base.path.join(worktree);
            let file = gitdir::named_by(base.handle, base.path, &path);
            let sees = |file: &PathBuf| self.visible.iter().any(|root| file.starts_with(root));
            if file.as_ref().is_some_and(sees) {
                self.found.worktrees.push(path);
            } else {
                self.found.has_unseen_worktrees = true;
                self.found.read_only.push(path);
            }
        }
    }

    /// Returns the directories in a directory, which need not exist.
    fn children(&mut self, base: Base<'_>, at: &Path) -> Children {
        let names = match openat::open_directory(base.handle, at) {
            Ok(directory) => names_in(&directory).ok(),
            Err(Errno::NOENT | Errno::NOTDIR) => Some(Vec::new()),
            Err(_) => None,
        };
        self.n_children += names.as_ref().map_or(0, Vec::len);

        match names {
            Some(names) if self.n_children <= MAX_ALL_CHILDREN && names.len() <= MAX_CHILDREN => {
                Children::All(names.iter().map(|name| at.join(name)).collect())
            }
            _ => Children::Unknown,
        }
    }
}

/// Returns true if a link is in place of a protected name of a git directory.
fn has_link(base: Base<'_>, at: &Path) -> Result<bool, Errno> {
    for name in NAMES.into_iter().chain(PARENTS) {
        if openat::node_at(base.handle, &at.join(name))? == Node::Other {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the names of the directories in an open directory, one more than [`MAX_CHILDREN`] at most.
fn names_in(directory: &OwnedFd) -> Result<Vec<OsString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
        let is_directory =
            name != "." && name != ".." && openat::node(directory, &name)? == Node::Directory;
        names.extend(is_directory.then_some(name));
        if MAX_CHILDREN < names.len() {
            break;
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::Walk;
    use quackd_testkit::TestDir;
    use std::fs;

    fn found_in(root: &Path) -> GitDirectories {
        let handle = fs::File::open(root).unwrap();
        let mut walk = Walk::new(&handle).unwrap();
        walk.step(10_000);
        let found = walk.finish();
        let mut directories = GitDirectories::default();
        let tree = WritableTree { handle: handle.as_fd(), path: root, found: &found };
        directories.add_blocking(&tree, &[root]);
        directories
    }

    #[test]
    fn submodules_worktrees_and_repositories_that_files_name_are_found() {
        let root = TestDir::empty();
        for directory in
            [".git/modules/a/b/hooks", ".git/worktrees/w", "z", "app.git/objects", "deep/x/.git"]
        {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        fs::write(root.join("z/.git"), "gitdir: ../app.git\n").unwrap();
        fs::create_dir_all(root.join(".git/worktrees/elsewhere")).unwrap();
        for (name, worktree) in [("w", root.join("w/.git")), ("elsewhere", "/e/.git".into())] {
            let file = root.join(".git/worktrees").join(name).join("gitdir");
            fs::write(file, worktree.display().to_string()).unwrap();
        }
        let found = found_in(&root);
        let mut repositories = found.repositories.clone();
        repositories.sort();
        let expected =
            [".git", ".git/modules/a/b", "app.git", "deep/x/.git"].map(|at| root.join(at));
        assert_eq!(repositories, expected);
        assert_eq!(found.worktrees, [root.join(".git/worktrees/w")]);
        let mut read_only = found.read_only.clone();
        read_only.sort();
        assert_eq!(read_only, [".git/worktrees/elsewhere", "z/.git"].map(|at| root.join(at)));
        assert!(found.has_unseen_worktrees);
        assert!(found.outside.is_empty() && found.troubles.is_empty(), "{found:?}");
    }

    #[test]
    fn a_repository_with_a_link_in_place_of_a_name_is_read_only_as_a_whole() {
        let root = TestDir::with(&[".git"]);
        std::os::unix::fs::symlink("/elsewhere", root.join(".git/hooks")).unwrap();
        let found = found_in(&root);
        assert!(found.repositories.is_empty());
        assert_eq!(found.read_only, [root.join(".git")]);
        assert_eq!(found.troubles.len(), 1);
    }

    #[test]
    fn what_a_session_made_unreadable_or_too_large_is_read_only() {
        let root = TestDir::empty();
        for number in 0..=MAX_CHILDREN {
            fs::create_dir_all(root.join(format!("many/.git/modules/x{number}"))).unwrap();
        }
        fs::create_dir_all(root.join("deep/.git/modules/a/b/c/d/e/f/hooks")).unwrap();
        let found = found_in(&root);
        let mut read_only = found.read_only.clone();
        read_only.sort();
        let expected = ["deep/.git/modules/a/b/c/d/e", "many/.git/modules"];
        assert_eq!(read_only, expected.map(|at| root.join(at)));
        assert_eq!(found.troubles.len(), 2);
    }
}
