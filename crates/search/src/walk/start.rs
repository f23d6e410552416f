//! Examines the start paths of a walk: their types, and the rules of their parent directories. Called by
//! `walker`.

use super::list::open_directory;
use super::rules::{IgnoreMatch, IgnoreRules};
use crate::error::SearchError;
use crate::tree::Tree;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A start path.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) path: PathBuf,
    pub(super) is: StartKind,
    /// Ignore rules around the start path. `None` if it is ignored itself.
    pub(super) rules: Option<Arc<IgnoreRules>>,
    /// Whether the ignore rules exclude the start path.
    pub(super) is_ignored: bool,
    /// Whether the start path is in a hidden directory or is one.
    pub(super) is_hidden: bool,
}

#[derive(Debug)]
pub(super) enum StartKind {
    Directory,
    File,
    Unreadable(io::Error),
}

/// Examines a start path.
pub(super) fn look(
    path: &Path,
    above: Option<&Arc<IgnoreRules>>,
    tree: &dyn Tree,
) -> Result<Start, SearchError> {
    let opened = open_directory(tree, path.as_os_str().as_bytes()).and_then(|handle| {
        if handle.metadata()?.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
    });

    let is = match opened {
        Ok(()) => StartKind::Directory,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(SearchError::StartNotFound(path.to_path_buf()));
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => match tree.open_file(path) {
            Ok(_) => StartKind::File,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Err(SearchError::StartNotFound(path.to_path_buf()));
            }
            Err(error) => StartKind::Unreadable(error),
        },
        Err(error) => StartKind::Unreadable(error),
    };

    let mut start = Start {
        path: path.to_path_buf(),
        is,
        rules: above.cloned(),
        is_ignored: false,
        is_hidden: path.iter().any(|name| name.as_bytes().starts_with(b".")),
    };

    if matches!(start.is, StartKind::Directory) {
        descend(&mut start, tree);
    }
    Ok(start)
}

/// Reads the rules of the directories from the root down to the start path.
fn descend(start: &mut Start, tree: &dyn Tree) {
    let mut here = PathBuf::new();
    for name in &start.path {
        let Some(rules) = start.rules.take() else { return };
        let handle: io::Result<File> = tree.open_directory(&here);
        let absolute = tree.path().join(&here);

        let rules = match handle {
            Ok(handle) => IgnoreRules::enter_unlisted(&rules, &handle, &absolute),
            // A directory that cannot be opened adds no rules.
            Err(_) => rules,
        };

        here.push(OsStr::from_bytes(name.as_bytes()));
        let verdict = rules.verdict(tree.path().join(&here).as_os_str().as_bytes(), true);
        if verdict == IgnoreMatch::Ignore {
            start.is_ignored = true;
            return;
        }
        start.rules = Some(rules);
    }
}
