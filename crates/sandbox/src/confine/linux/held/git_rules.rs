//! Decides by name what a command may change at the top of a git directory. Pure. `objects`, `refs` and `logs` are
//! writable mounts; for every other name, [`super::git_writer`] follows these rules.
//!
//! A rule is about a path as the command wrote it. A wrong path is harmless: a refused call continues in the kernel,
//! which finds a read-only mount.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Names that git rewrites in a git directory, without `.lock`.
const GIT_FILES: &[&str] = &[
    "add_edit.patch",
    "addp-hunk-edit.diff",
    "auto_merge",
    "edit_description",
    "fetch_head",
    "gc.log",
    "gc.pid",
    "head",
    "index",
    "locked",
    "merge_rr",
    "merge_mode",
    "packed-refs",
    "packed-refs.new",
    "shallow",
];

/// Ends and beginnings of more such names.
const GIT_FILE_ENDS: &[&str] = &["_head", "_msg", "_editmsg", "_start"];
const GIT_FILE_BEGINNINGS: &[&str] = &["bisect_", "sharedindex.", "index.stash."];

/// Directories in which git keeps the state of an operation, with everything in them.
const GIT_DIRECTORIES: &[&str] =
    &["lfs", "notes_merge_worktree", "rebase-apply", "rebase-merge", "rr-cache", "sequencer"];

/// Names in `info` that a command may change.
const INFO_FILES: &[&str] = &["exclude", "grafts", "refs", "sparse-checkout"];

/// Names that make git or another program run code, or lead to other settings, besides everything with `config` in
/// its name: editors and `sed -i` replace `config` by a file with a similar name.
const CODE: &[&str] = &["branches", "commondir", "gitdir", "hooks", "remotes"];

/// Permission of a command for one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GitRule {
    /// The kernel decides: the path is in a writable mount, or must not be changed and is in the read-only one.
    Kernel,
    /// The lock of the settings. Git gets a private file in its place, so that `git switch --track` succeeds except
    /// for the upstream.
    SettingsLock,
    /// May be created, changed and removed.
    Git,
    /// May be created. May be changed and removed by the session that created it.
    Own,
    /// Like `Own`, in a directory that the session created. Submodules and linked worktrees have their own settings.
    OwnDirectory,
}

/// The git directories of a worker whose top is read-only. All paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GitLayout {
    /// Git directories: repositories, submodules and linked worktrees. False for one that must not change: a linked
    /// worktree that the session does not see.
    pub directories: BTreeMap<PathBuf, bool>,
    /// Directories in them with a writable mount.
    pub writable: BTreeSet<PathBuf>,
    /// Paths in them that the configuration names.
    pub read_only: BTreeSet<PathBuf>,
}

impl GitLayout {
    /// Adds the git directories of another tree. A directory may be changed if either tree may change it.
    pub fn extend(&mut self, other: Self) {
        for (at, may_change) in other.directories {
            *self.directories.entry(at).or_default() |= may_change;
        }
        self.writable.extend(other.writable);
        self.read_only.extend(other.read_only);
    }

    /// Returns the outermost git directories. Each is one read-only mount.
    pub fn tops(&self) -> impl Iterator<Item = &Path> {
        let is_top = |at: &&PathBuf| {
            !at.ancestors().skip(1).any(|above| self.directories.contains_key(above))
        };
        self.directories.keys().filter(is_top).map(PathBuf::as_path)
    }

    /// Returns the rule of a normalized path.
    pub(crate) fn rule(&self, path: &Path) -> GitRule {
        let is_in = |paths: &BTreeSet<PathBuf>| path.ancestors().any(|at| paths.contains(at));
        let nearest = path.ancestors().find_map(|at| Some((at, self.directories.get(at)?)));
        let Some((directory, true)) = nearest else { return GitRule::Kernel };

        if is_in(&self.read_only) {
            return GitRule::Kernel;
        }
        let Ok(inside) = path.strip_prefix(directory) else { return GitRule::Kernel };

        // A file system may ignore case.
        let names: Vec<_> =
            inside.iter().map(|name| name.as_bytes().to_ascii_lowercase()).collect();
        let names: Vec<_> = names.iter().map(|name| std::str::from_utf8(name).ok()).collect();

        match rule_inside(&names) {
            // Paths in `objects/info` are in the writable mount of `objects`, but also in a separate read-only one.
            rule if names.get(1) == Some(&Some("info")) => rule,
            _ if is_in(&self.writable) => GitRule::Kernel,
            rule => rule,
        }
    }
}

/// Returns the rule of a path in a git directory. A name is `None` if it is not UTF-8.
fn rule_inside(names: &[Option<&str>]) -> GitRule {
    let (first, rest) = match names {
        // A file system that ignores case may also fold other characters to ASCII.
        [Some(first), rest @ ..] if first.is_ascii() => (*first, rest),
        _ => return GitRule::Kernel,
    };
    let plain = first.strip_suffix(".lock").unwrap_or(first);

    if rest.is_empty() && matches!(first, "config.lock" | "config.worktree.lock") {
        return GitRule::SettingsLock;
    }
    if CODE.contains(&plain) || first.contains("config") {
        return GitRule::Kernel;
    }
    if GIT_DIRECTORIES.contains(&first) {
        return GitRule::Git;
    }

    match (first, rest) {
        ("info", [name]) => rule_of_info(*name),
        ("info", [_, ..]) => GitRule::Kernel,
        // A separate mount, which moving the directory would remove.
        ("objects", [Some("info")]) => GitRule::Kernel,
        ("objects", [Some("info"), name, ..])
            if name.is_none_or(|name| !name.is_ascii() || name.contains("alternates")) =>
        {
            GitRule::Kernel
        }
        ("objects" | "refs" | "logs", [_, ..]) => GitRule::Git,
        ("modules" | "worktrees", [_]) => GitRule::Own,
        ("modules" | "worktrees", [_, ..]) => GitRule::OwnDirectory,
        (_, []) if is_git_file(plain) => GitRule::Git,
        _ => GitRule::Own,
    }
}

fn rule_of_info(name: Option<&str>) -> GitRule {
    let plain = name.map(|name| name.strip_suffix(".lock").unwrap_or(name));
    match plain {
        // Git writes `refs` through a temporary file next to it.
        Some(plain) if INFO_FILES.contains(&plain) || plain.starts_with("refs_") => GitRule::Git,
        _ => GitRule::Kernel,
    }
}

fn is_git_file(plain: &str) -> bool {
    GIT_FILES.contains(&plain)
        || GIT_FILE_ENDS.iter().any(|end| plain.ends_with(end))
        || GIT_FILE_BEGINNINGS.iter().any(|beginning| plain.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> GitLayout {
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect();
        GitLayout {
            directories: [
                ("/ws/.git", true),
                ("/ws/.git/modules/m", true),
                ("/ws/.git/worktrees/mine", true),
                ("/ws/.git/worktrees/theirs", false),
            ]
            .map(|(at, may)| (PathBuf::from(at), may))
            .into(),
            writable: paths(&["/ws/.git/objects", "/ws/.git/refs", "/ws/.git/modules/m/refs"]),
            read_only: paths(&["/ws/.git/shared"]),
        }
    }

    #[track_caller]
    fn all(rule: GitRule, names: &[&str]) {
        for name in names {
            assert_eq!(layout().rule(&Path::new("/ws/.git").join(name)), rule, "{name}");
        }
    }

    #[test]
    fn names_that_run_code_are_left_to_the_read_only_mount() {
        let code = [
            "",
            "config",
            "Config",
            "config.worktree",
            "config~",
            ".config.swp",
            "#config#",
            "config.lock/x",
            "hooks",
            "hooks/x",
            "HOOKS/x",
            "hoo\u{212a}s/x",
            "hooks.lock",
            "commondir",
            "commondir.lock",
            "gitdir",
            "remotes/x",
            "branches/x",
            "info/attributes",
            "info/x",
            "info/exclude/x",
            "objects/info",
            "objects/info/alternates",
            "objects/info/alternates.lock",
            "objects/INFO/http-alternates",
            "shared",
            "shared/x",
            "modules/m",
            "modules/m/config",
            "modules/m/hooks/x",
            "worktrees/mine/gitdir",
            "worktrees/mine/commondir",
            "worktrees/theirs",
            "worktrees/theirs/HEAD",
            "worktrees/theirs/index.lock",
            "\u{fffd}",
        ];
        all(GitRule::Kernel, &code);
        assert_eq!(layout().rule(Path::new("/ws/x")), GitRule::Kernel);
    }

    #[test]
    fn names_that_git_rewrites_may_change() {
        let git = [
            "HEAD",
            "HEAD.lock",
            "index",
            "index.lock",
            "ORIG_HEAD",
            "MERGE_MSG",
            "COMMIT_EDITMSG",
            "FETCH_HEAD",
            "packed-refs.lock",
            "packed-refs.new",
            "rebase-merge",
            "rebase-merge/git-rebase-todo",
            "rr-cache/ab/preimage",
            "info/exclude",
            "info/sparse-checkout.lock",
            "info/refs_x1",
            "objects/info/commit-graphs/x",
            "objects/info/packs",
            "logs/HEAD",
            "modules/m/HEAD.lock",
            "modules/m/logs/HEAD",
            "worktrees/mine/index",
            "worktrees/mine/refs/bisect/x",
            "lfs/tmp/x",
            "BISECT_LOG",
        ];
        all(GitRule::Git, &git);
    }

    #[test]
    fn other_names_belong_to_the_session_that_makes_them() {
        all(
            GitRule::Own,
            &[
                "sedAbC",
                "info",
                "logs",
                "next-index-1.lock",
                "modules/new",
                "worktrees",
                "x/y",
                "description",
            ],
        );
        all(
            GitRule::OwnDirectory,
            &["modules/new/config", "modules/a/b/HEAD", "worktrees/new/gitdir"],
        );
        all(
            GitRule::SettingsLock,
            &["config.lock", "config.worktree.lock", "modules/m/config.lock"],
        );
        all(GitRule::Kernel, &["objects/ab/cd", "refs/heads/x", "refs", "modules/m/refs/heads/x"]);
    }

    #[test]
    fn nested_git_directories_have_no_mount_of_their_own() {
        assert_eq!(layout().tops().collect::<Vec<_>>(), [Path::new("/ws/.git")]);
    }
}
