//! Names that git and its common extensions write in a git directory. Every other name there is reported, because
//! other programs obey some: lazygit reads `.git/lazygit.yml`. Pure.

use super::planted::FILES;
use std::ffi::OsStr;

/// Names at the top of a git directory, and of the directory of a linked worktree, in addition to [`FILES`]. `remotes`
/// and `branches` are missing: they name addresses.
const KNOWN: [&str; 28] = [
    "NOTES_MERGE_WORKTREE",
    "annex",
    "autosquash",
    "bisect",
    "filter-repo",
    "fsmonitor--daemon",
    "fsmonitor--daemon.ipc",
    "gc.pid",
    "git-daemon-export-ok",
    "hooks",
    "info",
    "lfs",
    "locked",
    "logs",
    "lost-found",
    "modules",
    "objects",
    "prunable",
    "rebase-apply",
    "rebase-merge",
    "rebased-patches",
    "refs",
    "reftable",
    "rr-cache",
    "sequencer",
    "subtree-cache",
    "svn",
    "worktrees",
];

/// Beginnings and ends of names that git makes with a number or for a while.
const FIRST: [&str; 6] = ["sharedindex.", "next-index-", "tmp_", ".tmp-", "index.stash.", ".#"];
const LAST: [&str; 5] = [".lock", "_HEAD", ".swp", "_EDITMSG", "~"];

/// Returns true if no program obeys this name at the top of a git directory.
pub(super) fn is_known(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    KNOWN.contains(&name)
        || FILES.contains(&name)
        || FIRST.iter().any(|first| name.starts_with(first))
        || LAST.iter().any(|last| name.ends_with(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_git_are_known_and_others_are_not() {
        for name in [
            "HEAD",
            "ORIG_HEAD",
            "AUTO_MERGE",
            "index.lock",
            "sharedindex.ab12",
            "COMMIT_EDITMSG",
            "lfs",
        ] {
            assert!(is_known(OsStr::new(name)), "{name}");
        }
        for name in ["lazygit.yml", "remotes", "branches", "lfs-cache", "head", "gitk.cache"] {
            assert!(!is_known(OsStr::new(name)), "{name}");
        }
    }
}
