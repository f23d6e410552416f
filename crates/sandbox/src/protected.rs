//! Names in a workspace that the file tools refuse to write: the refused rows of [`crate::obeyed`], and the names
//! inside `.git` that a commit does not change. Pure. Called by `crates/tools`.
//!
//! The kernel pins the names inside `.git` (see [`crate::confine`]). For the other names this is the only protection.

use crate::obeyed::{Obeyed, Rule, is_same};
use crate::platform::FOLDS_CASE;
use std::ffi::OsStr;
use std::path::{Component, Path};

/// First names inside a `.git` that may be written, because a commit changes them.
const IN_GIT: &[&str] = &[
    "objects",
    "refs",
    "logs",
    "index",
    "HEAD",
    "ORIG_HEAD",
    "FETCH_HEAD",
    "MERGE_HEAD",
    "MERGE_MSG",
    "MERGE_MODE",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "COMMIT_EDITMSG",
    "packed-refs",
    "description",
];

/// Returns the rule that protects a path in the workspace, if any. The path is relative and normalized, with every
/// link resolved, so the spelling does not matter.
#[must_use]
pub fn protected_name(path: &Path) -> Option<Rule> {
    protected(path, FOLDS_CASE)
}

/// Returns true for the name of a repository in any spelling: a repository may be moved to a file system that ignores
/// case.
#[must_use]
pub fn is_git_directory(name: &OsStr) -> bool {
    is_same(name, ".git", true)
}

fn protected(path: &Path, folds_case: bool) -> Option<Rule> {
    let names: Vec<&OsStr> = path.components().filter_map(normal).collect();
    // `.GIT` is refused on every system: a repository may be moved to a file system that ignores case.
    let git = names.iter().position(|name| is_same(name, ".git", true));
    let (before, inside) = names.split_at(git.unwrap_or(names.len()));
    let refused = Obeyed::refused(before, folds_case).map(|row| row.rule);
    refused.or_else(|| match inside {
        [] => None,
        [_git, first, rest @ ..] if may_be_written(first, rest) => None,
        [..] => Some(Rule::Git),
    })
}

fn normal(component: Component<'_>) -> Option<&OsStr> {
    match component {
        Component::Normal(name) => Some(name),
        _ => None,
    }
}

fn may_be_written(first: &OsStr, rest: &[&OsStr]) -> bool {
    let is_alternates =
        first == "objects" && rest.first().is_some_and(|name| is_same(name, "info", true));
    !is_alternates && IN_GIT.iter().any(|known| first == *known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(path: &str) -> Option<Rule> {
        protected(Path::new(path), false)
    }

    #[test]
    fn what_runs_code_later_is_protected_at_any_depth() {
        for path in [
            ".git",
            ".git/hooks/pre-commit",
            ".git/config",
            "a/b/.git/config.worktree",
            ".git/commondir",
            ".git/info/attributes",
            ".git/objects/info/alternates",
            ".git/modules/m/hooks/x",
            ".git/new-thing",
            ".GIT/hooks/x",
            ".g\u{200c}it/config",
        ] {
            assert_eq!(rule(path), Some(Rule::Git), "{path}");
        }
        assert_eq!(rule("x/.husky/pre-commit"), Some(Rule::Hooks));
        assert_eq!(rule(".vscode/settings.json"), Some(Rule::Editor));
        assert_eq!(rule("pkg/.envrc"), Some(Rule::StartUp));
        assert_eq!(rule(".mcp.json"), Some(Rule::Agent));
        assert_eq!(rule("packages/a/.pi/extensions/x.ts"), Some(Rule::Agent));
        assert_eq!(rule("sub/.hg/hgrc"), Some(Rule::Git));
        assert_eq!(rule(".vscode/.git/index"), Some(Rule::Editor));
        assert_eq!(rule(".config/fish/config.fish"), Some(Rule::StartUp));
    }

    #[test]
    fn ordinary_files_are_not() {
        for path in [
            "",
            "src/main.rs",
            ".gitignore",
            ".github/workflows/ci.yml",
            "git/config",
            ".gitattributes",
            ".git/index",
            ".git/refs/heads/main",
            ".git/objects/ab/cdef",
            "vscode/x",
            ".vscodex",
            "rust-toolchain.toml",
            ".cargo/config.toml",
            "lefthook.yml",
            "mise.toml",
            "AGENTS.md",
            ".config/other/fish",
            ".git/refs/heads/.pi",
        ] {
            assert_eq!(rule(path), None, "{path}");
        }
    }

    #[test]
    fn case_counts_where_the_file_system_says_so() {
        assert_eq!(protected(Path::new(".VSCode/x"), false), None);
        assert_eq!(protected(Path::new(".VSCode/x"), true), Some(Rule::Editor));
        assert_eq!(protected(Path::new(".Git/HOOKS/x"), true), Some(Rule::Git));
    }
}
