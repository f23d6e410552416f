//! Finds the paths that git ignores, by the rules of a tree that is read through its handles.

use crate::tree::{Tree, open_file};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// Maximum size of a file with rules, in bytes. A larger one counts as empty.
const MAX_RULES_BYTES: u64 = 1024 * 1024;

/// Rules of the directories from the top to one directory.
#[derive(Debug)]
pub(crate) struct IgnoreRules {
    /// The user's own rules and those of the repository, the strongest last. Then one for each directory.
    levels: Vec<(PathBuf, Gitignore)>,
}

impl IgnoreRules {
    /// Reads the rules that hold for a whole tree: the user's own, and `.git/info/exclude`.
    pub(crate) fn of_tree(tree: &Tree, user: Option<&str>) -> Self {
        let own = user.map(rules_of).unwrap_or_else(Gitignore::empty);
        let exclude = tree.file(Path::new(".git/info/exclude")).ok();
        let exclude = exclude.and_then(read).map_or_else(Gitignore::empty, |text| rules_of(&text));
        Self { levels: vec![(PathBuf::new(), own), (PathBuf::new(), exclude)] }
    }

    /// Enters a directory: its rules come first until [`Self::leave`].
    pub(crate) fn enter(&mut self, directory: BorrowedFd<'_>, path: &Path) {
        let file = open_file(directory, OsStr::new(".gitignore")).ok();
        let rules = file.and_then(read).map_or_else(Gitignore::empty, |text| rules_of(&text));
        self.levels.push((path.to_owned(), rules));
    }

    /// Leaves the directory that was entered last.
    pub(crate) fn leave(&mut self) {
        self.levels.pop();
    }

    /// Whether git ignores the node at `path` if it does not know it. Directories above count only as far as the caller
    /// has asked for them.
    pub(crate) fn ignore(&self, path: &Path, is_directory: bool) -> bool {
        let decided = self.levels.iter().rev().find_map(|(above, rules)| {
            // The rules are compiled for `/`, whatever the directory of their file.
            let below = path.strip_prefix(above).ok()?;
            let matched = rules.matched(Path::new("/").join(below), is_directory);
            (!matched.is_none()).then(|| matched.is_ignore())
        });
        decided.unwrap_or(false)
    }
}

/// Compiles rules for paths below `/`. Lines that git cannot read are skipped.
fn rules_of(text: &str) -> Gitignore {
    let mut builder = GitignoreBuilder::new("/");
    for line in text.lines() {
        builder.add_line(None, line).ok();
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

fn read(file: std::fs::File) -> Option<String> {
    let mut bytes = Vec::new();
    file.take(MAX_RULES_BYTES + 1).read_to_end(&mut bytes).ok()?;
    let is_small = bytes.len() as u64 <= MAX_RULES_BYTES;
    is_small.then(|| String::from_utf8_lossy(&bytes).into_owned())
}
