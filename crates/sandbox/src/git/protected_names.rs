//! Names in a git directory that decide what a later git runs or where it reads. Used by the mounts of Linux and by the
//! profile of macOS.

/// Names that must not change.
pub(crate) const NAMES: [&str; 8] = [
    "hooks",
    // Remotes of an old format, which git still reads.
    "remotes",
    "branches",
    "config",
    "config.worktree",
    "commondir",
    "info/attributes",
    "objects/info/alternates",
];

/// Directories above these names. They are pinned too, because a command could otherwise move the whole directory away.
pub(crate) const PARENTS: [&str; 3] = ["info", "objects", "objects/info"];

/// Names in the git directory of a linked worktree that must not change.
pub(crate) const WORKTREE_NAMES: [&str; 3] = ["gitdir", "commondir", "config.worktree"];

/// Names in the git directory of a submodule of which it has at least one.
pub(crate) const MODULE_MARKS: [&str; 4] = ["HEAD", "config", "hooks", "objects"];
