//! Finds repositories inside of git directories, which a walk of the workspace does not enter. A remote or a command
//! line can name them, and then git runs their hooks. Called by `report`.

use super::repository::{Base, MainRepository, RepositoryLayout, RepositoryLocation};
use crate::git::openat::{self, Node};
use crate::git::{Walk, open_directory};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Maximum number of repositories inside of one git directory.
const MAX_REPOSITORIES: usize = 256;

/// Number of entries between two checks of the time.
const STEP: u64 = 2000;

/// A git directory to search.
#[derive(Debug)]
pub(super) struct GitTree {
    handle: OwnedFd,
    /// Absolute path.
    path: PathBuf,
}

impl GitTree {
    /// Opens a git directory of the workspace.
    pub(super) fn open(base: Base<'_>, at: &Path) -> Option<Self> {
        let handle = open_directory(base.handle, at).ok()?;
        Some(Self { handle, path: base.path.join(at) })
    }

    /// Opens the git directory of a repository outside.
    pub(super) fn of_main(main: &MainRepository) -> Option<Self> {
        let (base, _) = main.place();
        Self::open(base, Path::new(""))
    }

    pub(super) fn base(&self) -> Base<'_> {
        Base { handle: self.handle.as_fd(), path: &self.path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the repositories inside, and false if the search ended early. Leaves out itself, the git directories in
    /// `known` and those of linked worktrees. Takes the number of read entries off `left`.
    pub(super) fn repositories(
        &self,
        known: &BTreeSet<PathBuf>,
        left: &mut u64,
        until: Instant,
    ) -> (Vec<RepositoryLocation>, bool) {
        let Ok(walk) = Walk::new(&self.handle) else { return (Vec::new(), false) };
        let mut walk = walk.for_up_to(MAX_REPOSITORIES);
        let mut is_done = false;
        while 0 < *left && Instant::now() < until && !is_done {
            is_done = walk.step(STEP.min(*left));
            *left = left.saturating_sub(STEP.min(*left));
        }

        let found = walk.finish();

        let named = found.repositories.into_iter();
        let named = named.map(|(at, kind)| RepositoryLocation { at, shape: kind.into() });

        let bare = found.bare.into_iter().filter(|at| {
            !at.as_os_str().is_empty()
                && !known.contains(&self.path.join(at))
                && !self.is_worktree(at)
        });
        let bare = bare.map(|at| {
            // A submodule without a worktree is ordinary.
            let is_module = at.starts_with("modules");
            let shape =
                if is_module { RepositoryLayout::Directory } else { RepositoryLayout::Bare };
            RepositoryLocation { at, shape }
        });

        (named.chain(bare).collect(), found.complete && !found.has_more_bare)
    }

    /// Returns true for the git directory of a linked worktree. Its settings, hooks and objects are those of the
    /// repository that its `commondir` names.
    fn is_worktree(&self, at: &Path) -> bool {
        let Some(parent) = at.parent().filter(|parent| parent.ends_with("worktrees")) else {
            return false;
        };

        let common = openat::read(&self.handle, &at.join("commondir")).ok();
        let common =
            common.and_then(|text| openat::normalise(&Path::new("/").join(at).join(text.trim())));
        let owner = parent.parent().map(|owner| Path::new("/").join(owner));
        let has_hooks = openat::node_at(&self.handle, &at.join("hooks")) != Ok(Node::Missing);
        !has_hooks && common.is_some() && common == owner
    }
}
