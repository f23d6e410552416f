//! Names in a workspace that make a later program run code on the user's side: the file tools refuse to write
//! them, and an audit after commands looks for them. Pure. Called by `crates/tools` and the audit.
//!
//! The kernel pins the names inside `.git` (see [`crate::confine`]); for the others this is what holds.

use std::ffi::OsStr;
use std::path::{Component, Path};

/// Why a name is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The repository's own node, settings or hooks.
    Git,
    /// Hooks that a tool runs on commits.
    Hooks,
    /// Settings of an editor or of its tasks.
    Editor,
    /// Settings of an agent: what it may do, and what it runs.
    Agent,
    /// Read by a shell or a tool when it starts.
    StartUp,
    /// The daemon's own settings of a project.
    Own,
}

impl Rule {
    /// What such a file does, to be read after its name.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Git => "decides what git runs",
            Self::Hooks => "is run on commits",
            Self::Editor => "decides what an editor runs",
            Self::Agent => "decides what an agent may do",
            Self::StartUp => "is run when a shell or a tool starts",
            Self::Own => "decides what this daemon allows",
        }
    }
}

/// True if names that differ only in case are one name on this system's usual file systems.
const FOLDS_CASE: bool = cfg!(target_os = "macos");

/// Directories and files that are protected wherever they are, with all that is in them.
const ANYWHERE: &[(&str, Rule)] = &[
    (".husky", Rule::Hooks),
    (".vscode", Rule::Editor),
    (".idea", Rule::Editor),
    (".zed", Rule::Editor),
    (".devcontainer", Rule::Editor),
    (".cursor", Rule::Agent),
    (".claude", Rule::Agent),
    (".codex", Rule::Agent),
    (".agents", Rule::Agent),
    (".gemini", Rule::Agent),
    (".mcp.json", Rule::Agent),
    (".envrc", Rule::StartUp),
    (".bashrc", Rule::StartUp),
    (".bash_profile", Rule::StartUp),
    (".bash_login", Rule::StartUp),
    (".bash_logout", Rule::StartUp),
    (".profile", Rule::StartUp),
    (".zshrc", Rule::StartUp),
    (".zshenv", Rule::StartUp),
    (".zprofile", Rule::StartUp),
    (".zlogin", Rule::StartUp),
    (".gitconfig", Rule::Git),
    (".gitmodules", Rule::Git),
    (".ripgreprc", Rule::StartUp),
    (".npmrc", Rule::StartUp),
    (".quack", Rule::Own),
    ("quackd.toml", Rule::Own),
];

/// What an audit looks at besides, at the top of a workspace: ordinary work writes these, so that the file tools
/// may, and later programs run what stands there all the same.
#[cfg(target_os = "linux")]
const LOOKED_AT: &[(&str, Rule)] = &[
    (".pre-commit-config.yaml", Rule::Hooks),
    ("lefthook.yml", Rule::Hooks),
    (".lefthook.yml", Rule::Hooks),
    (".devcontainer.json", Rule::Editor),
    (".cargo", Rule::StartUp),
    (".yarnrc", Rule::StartUp),
    (".yarnrc.yml", Rule::StartUp),
    (".pnpmfile.cjs", Rule::StartUp),
    (".bazelrc", Rule::StartUp),
    (".tool-versions", Rule::StartUp),
    ("mise.toml", Rule::StartUp),
    (".mise.toml", Rule::StartUp),
];

/// The names at the top of a workspace that an audit compares with what they were.
#[cfg(target_os = "linux")]
pub(crate) fn watched() -> impl Iterator<Item = (&'static str, Rule)> {
    ANYWHERE.iter().chain(LOOKED_AT).copied()
}

/// What may be written inside a `.git`, by its first name there: what a commit changes.
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

/// The rule that protects a path beneath the workspace, if any. The path is relative and normalised, with every
/// link on it resolved: the rule is about the place and not its spelling.
#[must_use]
pub fn protected_name(path: &Path) -> Option<Rule> {
    protected(path, FOLDS_CASE)
}

fn protected(path: &Path, folds_case: bool) -> Option<Rule> {
    let mut names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    while let Some(name) = names.next() {
        // `.GIT` is refused everywhere: a repository may be moved to a file system that folds case.
        if is_same(name, ".git", true) {
            let Some(first) = names.next() else { return Some(Rule::Git) };
            let rest = names.collect::<Vec<_>>();
            return (!may_be_written(first, &rest)).then_some(Rule::Git);
        }
        let rule = ANYWHERE.iter().find(|(known, _)| is_same(name, known, folds_case));
        if let Some((_, rule)) = rule {
            return Some(*rule);
        }
    }
    None
}

fn may_be_written(first: &OsStr, rest: &[&OsStr]) -> bool {
    let is_alternates =
        first == "objects" && rest.first().is_some_and(|name| is_same(name, "info", true));
    !is_alternates && IN_GIT.iter().any(|known| first == *known)
}

fn is_same(name: &OsStr, known: &str, folds_case: bool) -> bool {
    match name.to_str() {
        Some(name) if folds_case => {
            // What HFS+ ignores in names must not hide one.
            let plain = name.chars().filter(|c| !is_ignorable(*c)).flat_map(char::to_lowercase);
            plain.eq(known.chars().flat_map(char::to_lowercase))
        }
        _ => name == known,
    }
}

fn is_ignorable(one: char) -> bool {
    matches!(one, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
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
