//! Names that git and its common extensions write in a git directory. Every other name there is reported, because
//! other programs obey some: lazygit reads `.git/lazygit.yml`. Pure.

use std::ffi::OsStr;

/// Names at the top of a git directory, and of the directory of a linked worktree. `remotes` and `branches` are
/// missing: they name addresses.
const KNOWN: [&str; 60] = [
    "ADD_EDIT.patch",
    "BISECT_ANCESTORS_OK",
    "BISECT_EXPECTED_REV",
    "BISECT_FIRST_PARENT",
    "BISECT_LOG",
    "BISECT_NAMES",
    "BISECT_RUN",
    "BISECT_START",
    "BISECT_TERMS",
    "BRANCH_DESCRIPTION",
    "COMMIT_EDITMSG",
    "COMMIT_EDITMSG~",
    "EDIT_DESCRIPTION",
    "HEAD",
    "MERGE_AUTOSTASH",
    "MERGE_MODE",
    "MERGE_MSG",
    "MERGE_RR",
    "NOTES_EDITMSG",
    "NOTES_MERGE_PARTIAL",
    "NOTES_MERGE_REF",
    "NOTES_MERGE_WORKTREE",
    "SQUASH_MSG",
    "TAG_EDITMSG",
    "addp-hunk-edit.diff",
    "annex",
    "autosquash",
    "bisect",
    "commondir",
    "config",
    "config.worktree",
    "description",
    "filter-repo",
    "fsmonitor--daemon",
    "fsmonitor--daemon.ipc",
    "gc.log",
    "gc.pid",
    "gitdir",
    "hooks",
    "index",
    "info",
    "lfs",
    "locked",
    "logs",
    "lost-found",
    "modules",
    "objects",
    "packed-refs",
    "prunable",
    "rebase-apply",
    "rebase-merge",
    "rebased-patches",
    "refs",
    "reftable",
    "rr-cache",
    "sequencer",
    "shallow",
    "subtree-cache",
    "svn",
    "worktrees",
];

/// Beginnings and ends of names that git makes with a number or for a while.
const FIRST: [&str; 6] = ["sharedindex.", "next-index-", "tmp_", ".tmp-", "index.stash.", ".#"];
const LAST: [&str; 4] = [".lock", "_HEAD", ".swp", "_EDITMSG"];

/// Returns true if no program obeys this name at the top of a git directory.
pub(super) fn is_known(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    KNOWN.contains(&name)
        || FIRST.iter().any(|first| name.starts_with(first))
        || LAST.iter().any(|last| name.ends_with(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_git_are_known_and_others_are_not() {
        for name in ["HEAD", "ORIG_HEAD", "index.lock", "sharedindex.ab12", "COMMIT_EDITMSG", "lfs"]
        {
            assert!(is_known(OsStr::new(name)), "{name}");
        }
        for name in ["lazygit.yml", "remotes", "branches", "lfs-cache", "head", "gitk.cache"] {
            assert!(!is_known(OsStr::new(name)), "{name}");
        }
    }
}
