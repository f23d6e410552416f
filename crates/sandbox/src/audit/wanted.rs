//! Paths to compare in addition to the names of the table: files that git's configuration or a listed file names, and unknown
//! names in git directories. Built at a worker's start, within limits.

use super::git_names;
use super::manifest;
use crate::git::openat::{self, Node};
use crate::git::visited::Visited;
use crate::git::{NamedFile, open_directory};
use quackd_protocol::foreign_text::one_line_cut;
use rustix::fs::Dir;
use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Limits of the search for files that a listed file names: files, bytes of one, and names.
const MAX_FILES: usize = 128;
const MAX_BYTES: u64 = 256 * 1024;
const MAX_NAMED: usize = 256;
const MAX_TRIED: usize = 2_048;

/// Maximum number of entries of a git directory, and of linked worktrees.
const MAX_ENTRIES: usize = 2_048;
const MAX_WORKTREES: usize = 128;

/// Endings of a name without which programs find it too.
const ENDINGS: [&str; 6] = ["", ".js", ".cjs", ".mjs", ".ts", "/index.js"];

/// Endings of files that a settings file names without a directory.
const FILES: [&str; 20] = [
    "bash", "cjs", "cts", "exs", "fish", "jar", "js", "json", "lua", "mjs", "mts", "php", "pl",
    "py", "rb", "sh", "so", "ts", "wasm", "zsh",
];

/// Maximum length of a name in a reason, in characters.
const MAX_SHOWN: usize = 80;

/// Effect of an unknown name in a git directory, and of too many of them.
const UNKNOWN: &str = "is in a git directory, and git does not write it";
const TOO_MANY: &str = "has more names than are checked";

/// Paths to compare.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Relative to the workspace, or absolute outside of it.
    files: Vec<(PathBuf, String)>,
    /// Git directories, likewise.
    git: Vec<PathBuf>,
    is_cut: bool,
}

impl Wanted {
    /// Takes the files that git's configuration names, and the git directories. `base` is the path of the workspace.
    pub(super) fn new(base: &Path, named: &[NamedFile], git: Vec<PathBuf>, is_cut: bool) -> Self {
        let of = |one: &NamedFile| {
            let at = one.at.strip_prefix(base).unwrap_or(&one.at);
            (at.to_owned(), of_git(&one.setting))
        };
        Self { files: named.iter().map(of).collect(), git, is_cut }
    }

    /// Returns true if something was left out because of a limit.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Files that a setting of git names, with the setting.
    pub(super) fn of_setting<'a>(&'a self, setting: &str) -> impl Iterator<Item = &'a Path> {
        let why = of_git(setting);
        self.files.iter().filter(move |(_, known)| *known == why).map(|(at, _)| at.as_path())
    }

    /// Adds the files that the watched `files` name, if they exist and are not watched by themselves. The number of a
    /// file is its size in bytes. Returns the added files.
    pub(super) fn add_named(
        &mut self,
        root: impl AsFd,
        files: impl Iterator<Item = (PathBuf, u64)>,
        is_watched: impl Fn(&Path) -> bool,
    ) -> Vec<(PathBuf, String)> {
        let first = self.files.len();
        self.search(root, files, is_watched);
        self.files.get(first..).unwrap_or_default().to_vec()
    }

    fn search(
        &mut self,
        root: impl AsFd,
        files: impl Iterator<Item = (PathBuf, u64)>,
        is_watched: impl Fn(&Path) -> bool,
    ) {
        let files = files.filter(|(_, size)| *size <= MAX_BYTES).map(|(file, _)| file);
        let git = self.git.iter().filter(|git| git.is_relative());
        let hooks: Vec<PathBuf> = git.flat_map(|git| hooks(&root, git)).collect();

        let mut tried = 0;
        let files = files.filter(|file| names_files(file)).chain(hooks);

        for (n, file) in files.enumerate() {
            if n == MAX_FILES {
                return self.is_cut = true;
            }
            let Ok(text) = openat::read(&root, &file) else { continue };
            let text = if file.file_name().is_some_and(manifest::is_one) {
                manifest::programs(&file, &text).unwrap_or(text)
            } else {
                text
            };

            for word in paths(&text) {
                let from = file.parent().unwrap_or_else(|| Path::new(""));
                for path in candidates(from, word) {
                    // Each candidate costs a system call, whether the file exists or not.
                    tried += 1;
                    if MAX_TRIED <= tried || MAX_NAMED <= self.files.len() {
                        return self.is_cut = true;
                    }
                    if openat::node_at(&root, &path) != Ok(Node::File) {
                        continue;
                    }
                    let is_known = self.files.iter().any(|(known, _)| *known == path);
                    if !is_known && !is_watched(&path) {
                        let by = one_line_cut(&file.to_string_lossy(), MAX_SHOWN);
                        self.files.push((path, format!("is named by {by}")));
                    }
                    break;
                }
            }
        }
    }

    /// Returns the paths to compare now. Adds the git directories that it reads to `visited`.
    pub(super) fn all(
        &self,
        root: impl AsFd,
        visited: &mut Visited,
    ) -> Vec<(PathBuf, Cow<'static, str>)> {
        let files = self.files.iter().map(|(at, why)| (at.clone(), why.clone().into()));
        let mut all: Vec<_> = files.collect();

        for git in &self.git {
            unknown_in(&root, git, visited, &mut all);
            let worktrees = git.join("worktrees");
            for name in children(&root, &worktrees, visited).iter().take(MAX_WORKTREES) {
                unknown_in(&root, &worktrees.join(name), visited, &mut all);
            }
        }
        all
    }
}

/// Adds the names in a git directory that git does not write.
fn unknown_in(
    root: impl AsFd,
    git: &Path,
    visited: &mut Visited,
    all: &mut Vec<(PathBuf, Cow<'static, str>)>,
) {
    let names = children(root, git, visited);
    if MAX_ENTRIES <= names.len() {
        all.push((git.to_owned(), TOO_MANY.into()));
    }
    let unknown = names.iter().filter(|name| !git_names::is_known(name.as_os_str()));
    all.extend(unknown.map(|name| (git.join(name), UNKNOWN.into())));
}

/// Returns the hooks of a repository. Git runs them at the top of its worktree.
fn hooks(root: impl AsFd, git: &Path) -> Vec<PathBuf> {
    let directory = git.join("hooks");
    let names = children(root, &directory, &mut Visited::default()).into_iter();
    let names = names.filter(|name| name.extension().is_none_or(|end| end != "sample"));
    names.map(|name| directory.join(name)).collect()
}

/// Returns the names in a directory, up to a limit.
fn children(root: impl AsFd, at: &Path, visited: &mut Visited) -> Vec<PathBuf> {
    let opened = match at.strip_prefix("/") {
        Ok(path) => openat::hold_directory_blocking(Path::new("/"))
            .and_then(|slash| Ok(open_directory(slash, path)?)),
        Err(_) => open_directory(root, at).map_err(Into::into),
    };
    let Ok(directory) = opened else { return Vec::new() };

    visited.note(at, &directory);
    let Ok(entries) = Dir::read_from(&directory) else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name().to_bytes().to_vec());
    let names = names.filter(|name| name != b"." && name != b"..");
    names.take(MAX_ENTRIES).map(|name| PathBuf::from(OsStr::from_bytes(&name))).collect()
}

fn of_git(setting: &str) -> String {
    format!("is named by {} of git's configuration", one_line_cut(setting, MAX_SHOWN))
}

/// Returns the paths that a word in a settings file of the directory `from` may mean.
fn candidates(from: &Path, word: &str) -> impl Iterator<Item = PathBuf> {
    let has_ending =
        word.rsplit('/').next().is_some_and(|name| name.trim_matches('.').contains('.'));
    let is_module = !has_ending && word.starts_with('.');
    let endings = if is_module { ENDINGS.get(..) } else { ENDINGS.get(..1) };
    let froms = [from.to_owned(), PathBuf::new()];
    let n_froms = if from.as_os_str().is_empty() { 1 } else { 2 };
    let word = word.to_owned();

    froms.into_iter().take(n_froms).flat_map(move |from| {
        let word = word.clone();
        endings.unwrap_or_default().iter().filter_map(move |ending| {
            let path = openat::normalise(&from.join(format!("{word}{ending}")))?;
            (path.is_relative() && !path.as_os_str().is_empty()).then_some(path)
        })
    })
}

/// Returns true for files that name programs by their paths. Instructions of agents name files without running them.
fn names_files(file: &Path) -> bool {
    let is_text = file.extension().is_some_and(|end| end == "md" || end == "mdc" || end == "txt");
    let name = file.file_name().unwrap_or_default();
    !is_text && name != ".gitattributes" && name != ".gitmodules" && name != ".cursorrules"
}

/// Returns the words of a settings file that look like paths of files.
fn paths(text: &str) -> Vec<&str> {
    let is_break = |c: char| c.is_whitespace() || "\"'`,;=()[]<>|&".contains(c);
    let words = text.split(is_break).filter_map(|word| {
        let word = word.trim_end_matches([':', '}', '{']);
        // The part after a variable, as in `${workspaceFolder}/tools/x`.
        let word = if word.contains('$') || word.starts_with('%') {
            word.split_once('/').map(|(_, rest)| rest)?
        } else {
            word
        };

        let is_file = |(_, end): (&str, &str)| FILES.binary_search(&end).is_ok();
        let is_path = word.contains('/') || word.rsplit_once('.').is_some_and(is_file);
        // Names of packages begin with `@`.
        let is_plain =
            !word.contains("://") && !word.contains(['*', '\0']) && !word.starts_with('@');
        (is_path && is_plain && word.len() <= 256 && !word.starts_with('/')).then_some(word)
    });
    let mut unique: Vec<&str> = words.collect();
    unique.sort_unstable();
    unique.dedup();
    unique
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_look_like_files_are_found() {
        let text = r#"{"plugins": ["./tools/p.js", "pkg"], "command": "${workspaceFolder}/tools/x",
            "a": "q.py", "url": "https://h/x.js", "glob": "src/**/*.ts"}"#;
        assert_eq!(paths(text), ["./tools/p.js", "q.py", "tools/x"]);
        assert_eq!(paths("plugins = ./q.py\n- run: sh tools/y.sh\n"), ["./q.py", "tools/y.sh"]);
    }
}
