//! Resolves `.git` files: linked worktrees and submodules keep their repository in another directory. Called by
//! `protect` and by the audit.
//!
//! A hostile workspace can name any repository of the user in a `.git` file. The file counts only if that
//! repository names the workspace too. The repository is opened once, without following links, and every read and
//! write in it uses that handle.

use super::openat::{self, Node};
use crate::git_config as config;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The repository of a `.git` file.
#[derive(Debug)]
pub(crate) enum LinkedRepository {
    /// In the workspace, at these relative paths: the repository, and the git directory of a linked worktree that is
    /// not in its `worktrees`.
    Inside(Vec<PathBuf>),
    /// Outside the workspace. The repository names the workspace.
    Outside(Main),
    /// Missing, or a repository that does not name the workspace or belongs to another user.
    Nowhere,
}

/// A repository outside the workspace that belongs to it.
#[derive(Debug)]
pub struct Main {
    /// `O_PATH` handle. While it is open, no other directory gets its device and inode numbers.
    pub handle: OwnedFd,
    /// Absolute path that contained no link when the repository was opened.
    pub path: PathBuf,
}

/// Follows the `.git` file at `at` under `base`, whose canonical path is `base_path`.
pub(crate) fn follow(base: impl AsFd, base_path: &Path, at: &Path) -> LinkedRepository {
    resolve(base, base_path, at).unwrap_or(LinkedRepository::Nowhere)
}

fn resolve(base: impl AsFd, base_path: &Path, at: &Path) -> Option<LinkedRepository> {
    let file = base_path.join(at);
    let worktree = file.parent()?;
    // Git writes resolved paths, so a link on the path is refused.
    let git = target(&base, base_path, at)?;
    if let Ok(inside) = git.strip_prefix(base_path) {
        return inside_of(base, base_path, inside);
    }

    let common = common_of(&git)?;

    // Mounting a directory that contains the workspace would show other files in it.
    if base_path.starts_with(&common) {
        return None;
    }

    // All further checks use this handle.
    let main = Main { handle: openat::hold_directory_blocking(&common).ok()?, path: common };
    let inside_main = git.strip_prefix(&main.path).ok()?;
    let directory = openat::hold(&main.handle, inside_main).ok()?;

    let is_own = openat::is_own(&main.handle) && openat::is_own(&directory);
    let is = |name, node| openat::node_at(&main.handle, Path::new(name)) == Ok(node);
    let is_repository = is("HEAD", Node::File) && is("objects", Node::Directory);
    let is_named = names(&directory, &git, &file, worktree).unwrap_or(false);
    (is_own && is_repository && is_named).then_some(LinkedRepository::Outside(main))
}

/// Returns the absolute path in a `.git` file. Unverified.
pub(crate) fn target(base: impl AsFd, base_path: &Path, at: &Path) -> Option<PathBuf> {
    let text = openat::read(base, at).ok()?;
    let file = base_path.join(at);
    openat::normalise(&file.parent()?.join(text.strip_prefix("gitdir:")?.trim()))
}

/// Returns the `.git` file of the linked worktree with the git directory at `path`, in the repository `base`. Unverified.
pub(crate) fn named_by(base: impl AsFd, base_path: &Path, path: &Path) -> Option<PathBuf> {
    let back = openat::read(base, &path.strip_prefix(base_path).ok()?.join("gitdir")).ok()?;
    openat::normalise(&path.join(back.trim()))
}

/// Names of which a git directory has at least one. A command cannot remove all of them from a protected directory.
const MARKS: [&str; 6] = ["HEAD", "objects", "refs", "commondir", "config", "hooks"];

/// Resolves a git directory in the workspace. Its `commondir` names the repository whose settings and hooks count.
fn inside_of(base: impl AsFd, base_path: &Path, git: &Path) -> Option<LinkedRepository> {
    let common = openat::read(&base, &git.join("commondir")).ok();
    let common = common.and_then(|text| openat::normalise(&base_path.join(git).join(text.trim())));
    let common = common.and_then(|common| Some(common.strip_prefix(base_path).ok()?.to_owned()));
    let common = common.unwrap_or_else(|| git.to_owned());

    // In `worktrees` of the repository, it is protected together with it.
    let is_apart = git != common && git.parent() != Some(&common.join("worktrees"));

    let is_repository = |at: &PathBuf| {
        let has = |mark: &&str| {
            openat::node_at(&base, &at.join(mark)).is_ok_and(|node| node != Node::Missing)
        };
        MARKS.iter().any(has)
    };

    let both = std::iter::once(common).chain(is_apart.then(|| git.to_owned()));
    let repositories: Vec<PathBuf> = both.filter(is_repository).collect();
    (!repositories.is_empty()).then_some(LinkedRepository::Inside(repositories))
}

/// Returns the path of the repository that contains a git directory: itself without a `commondir`. Unverified.
fn common_of(git: &Path) -> Option<PathBuf> {
    let directory = openat::hold_directory_blocking(git).ok()?;
    match openat::read(&directory, Path::new("commondir")) {
        Ok(common) => openat::normalise(&git.join(common.trim())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(git.to_path_buf()),
        Err(_) => None,
    }
}

/// Returns true if the git directory of a linked worktree names the `.git` file, or that of a submodule names the
/// worktree.
fn names(directory: &OwnedFd, git: &Path, file: &Path, worktree: &Path) -> Option<bool> {
    match openat::read(directory, Path::new("gitdir")) {
        Ok(back) => Some(openat::normalise(&git.join(back.trim()))? == file),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let config = openat::read(directory, Path::new("config")).ok()?;
            let entries = config::parse(&config);
            // As in git, the last value counts.
            let back = entries.into_iter().rfind(|entry| entry.is("core", "worktree"))?;
            Some(openat::normalise(&git.join(back.value?))? == worktree)
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_testkit::TestDir;
    use std::fs;

    fn world() -> TestDir {
        let root = TestDir::with(&["main/.git/objects"]);
        root.write("main/.git/HEAD", "ref: refs/heads/m");
        root.write("main/.git/worktrees/w/commondir", "../..\n");
        let text = format!("gitdir: {}\n", root.join("main/.git/worktrees/w").display());
        root.write("ws/.git", text);
        root
    }

    /// Path of the repository outside the workspace.
    fn look(root: &Path) -> Option<PathBuf> {
        let ws = root.join("ws");
        match follow(fs::File::open(&ws).unwrap(), &ws, Path::new(".git")) {
            LinkedRepository::Outside(main) => Some(main.path),
            LinkedRepository::Inside(inside) => panic!("{inside:?}"),
            LinkedRepository::Nowhere => None,
        }
    }

    #[test]
    fn a_worktree_is_followed_if_its_repository_points_back() {
        let root = world();
        assert_eq!(look(&root), None);
        let back = root.join("main/.git/worktrees/w/gitdir");
        fs::write(&back, "/elsewhere/.git\n").unwrap();
        assert_eq!(look(&root), None);
        fs::write(&back, format!("{}\n", root.join("ws/.git").display())).unwrap();
        assert_eq!(look(&root), Some(root.join("main/.git")));
    }

    #[test]
    fn somebody_elses_repository_is_not_had_by_naming_it() {
        let root = world();
        fs::write(root.join("ws/.git"), format!("gitdir: {}", root.join("main/.git").display()))
            .unwrap();
        assert_eq!(look(&root), None);
        fs::write(root.join("main/.git/config"), "[core]\nworktree = ../../ws\n").unwrap();
        assert_eq!(look(&root), Some(root.join("main/.git")));
    }

    #[test]
    fn a_link_on_the_way_and_a_part_outside_of_the_repository_lead_nowhere() {
        let root = world();
        let back = root.join("main/.git/worktrees/w/gitdir");
        fs::write(back, format!("{}\n", root.join("ws/.git").display())).unwrap();
        std::os::unix::fs::symlink("main", root.join("link")).unwrap();
        let text = format!("gitdir: {}", root.join("link/.git/worktrees/w").display());
        fs::write(root.join("ws/.git"), text).unwrap();
        assert_eq!(look(&root), None);
        let text = format!("gitdir: {}", root.join("main/.git/worktrees/w").display());
        fs::write(root.join("ws/.git"), text).unwrap();
        assert_eq!(look(&root), Some(root.join("main/.git")));
        for common in ["../../../..", "../../../../..", "/", "../../objects", ""] {
            fs::write(root.join("main/.git/worktrees/w/commondir"), common).unwrap();
            assert_eq!(look(&root), None, "{common:?}");
        }
    }
}
