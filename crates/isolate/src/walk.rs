//! Walks a tree: every file and link outside of repositories and of directories that the visitor does not enter.

use crate::copy::is_git;
use crate::error::IsolateError;
use crate::ignored::IgnoreRules;
use crate::tree::{Listed, Tree, list, open_directory};
use rustix::fs::FileType;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

/// Maximum number of entries of one directory, and the maximum depth. Each level has an open directory.
const MAX_ENTRIES: usize = 200_000;
const MAX_DEPTH: usize = 200;

/// Receives the nodes of a tree.
pub(crate) trait Visit {
    /// Whether the directory is walked.
    fn enters(&mut self, at: &Path, rules: &IgnoreRules) -> bool;

    /// Receives a file, a link or a special file.
    fn node(
        &mut self,
        directory: BorrowedFd<'_>,
        entry: &Listed,
        at: PathBuf,
        rules: &IgnoreRules,
    ) -> Result<(), IsolateError>;

    /// Receives a directory whose content cannot be read.
    fn unreadable(&mut self, at: &Path, why: &str);
}

/// Walks the whole tree.
pub(crate) fn walk(
    tree: &Tree,
    user_excludes: Option<&str>,
    visit: &mut impl Visit,
) -> Result<(), IsolateError> {
    let mut walk = Walk { rules: IgnoreRules::of_tree(tree, user_excludes), visit };
    walk.directory(tree.top(), Path::new(""), 0)
}

struct Walk<'a, V> {
    rules: IgnoreRules,
    visit: &'a mut V,
}

impl<V: Visit> Walk<'_, V> {
    fn directory(
        &mut self,
        directory: BorrowedFd<'_>,
        path: &Path,
        depth: usize,
    ) -> Result<(), IsolateError> {
        let listed = match list(directory, MAX_ENTRIES) {
            Ok(listed) => listed,
            Err(error) => {
                self.visit.unreadable(path, &format!("cannot be listed: {error}"));
                return Ok(());
            }
        };

        self.rules.enter(directory, path);
        for entry in listed.iter().filter(|entry| !is_git(&entry.name)) {
            let at = path.join(&entry.name);
            match entry.kind() {
                FileType::Directory => self.subdirectory(directory, &at, depth)?,
                _ => self.visit.node(directory, entry, at, &self.rules)?,
            }
        }
        self.rules.leave();
        Ok(())
    }

    fn subdirectory(
        &mut self,
        above: BorrowedFd<'_>,
        at: &Path,
        depth: usize,
    ) -> Result<(), IsolateError> {
        if !self.visit.enters(at, &self.rules) {
            return Ok(());
        }
        if MAX_DEPTH <= depth {
            self.visit.unreadable(at, "is too deep to be compared");
            return Ok(());
        }

        match open_directory(above, at.file_name().unwrap_or_default()) {
            Ok(directory) => self.directory(directory.as_fd(), at, depth + 1),
            Err(error) => {
                self.visit.unreadable(at, &format!("cannot be opened: {error}"));
                Ok(())
            }
        }
    }
}
