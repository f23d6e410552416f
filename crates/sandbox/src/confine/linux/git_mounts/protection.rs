//! Settings and result of the protection of repositories. Called by `protect`, and by stage 0.

use crate::confine::GitLayout;
use crate::git::{Main, ProtectionGap};
use crate::pin::Pin;
use quackd_protocol::tiers::GitProtection;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Settings of [`super::protect_blocking`].
#[derive(Debug, Clone, Copy)]
pub struct ProtectionSettings<'a> {
    /// Kind of protection.
    pub mode: GitProtection,
    /// Deadline for reading the repositories.
    pub until: Instant,
    /// Directories that the session sees. A linked worktree elsewhere must not change.
    pub visible: &'a [&'a Path],
}

/// Pins and mounts that protect the repositories of a workspace.
#[derive(Debug, Default)]
pub struct Protection {
    /// Pins for [`crate::confine::MountPlan::pins`], a directory before its content.
    pub pins: Vec<Pin>,
    /// Repositories outside the workspace that belong to it, to mount writable at their own path. The mount must
    /// show the same directory as the handle.
    pub repositories: Vec<Main>,
    /// Git directories that were found, including submodules.
    pub git_directories: Vec<PathBuf>,
    /// Directories of linked worktrees that the session does not see. Each exists, and its `.git` file names a repository of
    /// the workspace.
    pub unseen_worktrees: Vec<PathBuf>,
    /// Rules of process 1. Empty in [`GitProtection::Names`].
    pub layout: GitLayout,
    /// Paths that could not be protected, or only by stricter rules. For display to the user.
    pub troubles: Vec<ProtectionGap>,
}
