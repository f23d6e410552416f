//! Ownership check of repositories, by git's rule (`safe.directory` in git-config(1)). The effective user must own the
//! directory, its `.git` and the repository that a `.git` file names. Root may also use the files of the user that
//! called sudo. Git's setting for exceptions is not read. Called by `workspace`.

use crate::platform::open_regular;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Maximum size of a `.git` file, in bytes. It contains one path.
const MAX_GIT_FILE: u64 = 8 * 1024;

/// User ids of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) effective: u32,
    /// `SUDO_UID`. Counts for root only.
    pub(crate) sudo: Option<u32>,
}

impl User {
    /// Returns the user of this process.
    pub(crate) fn effective() -> Self {
        let sudo = std::env::var("SUDO_UID").ok().and_then(|number| number.parse().ok());
        Self { effective: rustix::process::geteuid().as_raw(), sudo }
    }

    fn owns(self, owner: u32) -> bool {
        owner == self.effective || self.effective == 0 && Some(owner) == self.sudo
    }
}

/// A repository that belongs to another user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "The repository {} is not the workspace: {} belongs to user {owner}, not to you (user {us})",
    repository.display(),
    what.display()
)]
pub struct Foreign {
    /// Directory that contains the `.git`.
    pub repository: PathBuf,
    /// Path with the wrong owner: the directory, its `.git` or the named repository.
    pub what: PathBuf,
    /// User id of the owner.
    pub owner: u32,
    /// Effective user id of this process.
    pub us: u32,
}

impl Foreign {
    /// Checks the repository whose `.git` is in `directory`. `None` if the user owns it.
    pub(crate) fn look_blocking(directory: &Path, us: User) -> Option<Self> {
        let git = directory.join(".git");
        let mut parts = vec![directory.to_owned(), git.clone()];
        parts.extend(fs::canonicalize(&git).ok().filter(|real| *real != git));
        parts.extend(gitdir(directory, &git));

        parts.into_iter().find_map(|what| {
            let owner = fs::symlink_metadata(&what).ok()?.uid();
            let repository = directory.to_owned();
            (!us.owns(owner)).then_some(Self { repository, what, owner, us: us.effective })
        })
    }
}

/// Returns the repository that a `.git` file names.
fn gitdir(directory: &Path, git: &Path) -> Option<PathBuf> {
    let file = open_regular(git).ok()?;
    let mut text = String::new();
    file.take(MAX_GIT_FILE).read_to_string(&mut text).ok()?;
    Some(directory.join(text.strip_prefix("gitdir:")?.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_may_use_what_belongs_to_the_user_of_sudo_and_nobody_else_may() {
        for (effective, sudo, owner, expected) in [
            (1000, None, 1000, true),
            (1000, None, 0, false),
            (1000, Some(7), 7, false),
            (0, Some(7), 7, true),
            (0, Some(7), 0, true),
            (0, Some(7), 8, false),
            (0, None, 7, false),
        ] {
            let is = User { effective, sudo }.owns(owner);
            assert_eq!(is, expected, "{effective} {sudo:?} {owner}");
        }
    }

    #[test]
    fn every_part_of_a_repository_counts_and_a_fifo_is_not_waited_for() {
        let tree = tempfile::tempdir().unwrap();
        let us = User::effective();
        let git = tree.path().join(".git");
        fs::write(&git, "gitdir: /proc/1\n").unwrap();
        let named = gitdir(tree.path(), &git);
        assert_eq!(named, Some("/proc/1".into()));
        fs::remove_file(&git).unwrap();
        nix::unistd::mkfifo(&git, nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert_eq!(Foreign::look_blocking(tree.path(), us), None);
        let other = User { effective: us.effective + 1, sudo: None };
        assert!(Foreign::look_blocking(tree.path(), other).is_some());
    }
}
