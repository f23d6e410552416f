//! Where a walk begins: what each start is, and what the directories around it say of it. Called by `visit`.

use super::list::open_directory;
use super::rules::{Rules, Verdict};
use crate::error::SearchError;
use crate::tree::Tree;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One start.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) path: PathBuf,
    pub(super) is: StartKind,
    /// The rules around it; none if it is ignored itself.
    pub(super) rules: Option<Arc<Rules>>,
    /// The rules leave it out.
    pub(super) is_ignored: bool,
    /// It lies in, or is, a directory with a dot.
    pub(super) is_hidden: bool,
}

#[derive(Debug)]
pub(super) enum StartKind {
    Directory,
    File,
    Unreadable(io::Error),
}

/// Looks at a start.
pub(super) fn look(
    path: &Path,
    above: Option<&Arc<Rules>>,
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

/// Reads the rules of the directories from the root down to the start.
fn descend(start: &mut Start, tree: &dyn Tree) {
    let mut here = PathBuf::new();
    for name in &start.path {
        let Some(rules) = start.rules.take() else { return };
        let handle: io::Result<File> = tree.open_directory(&here);
        let absolute = tree.path().join(&here);
        let rules = match handle {
            Ok(handle) => Rules::enter_unlisted(&rules, &handle, &absolute),
            Err(_) => rules,
        };
        here.push(OsStr::from_bytes(name.as_bytes()));
        let verdict = rules.verdict(tree.path().join(&here).as_os_str().as_bytes(), true);
        if verdict == Verdict::Ignore {
            start.is_ignored = true;
            return;
        }
        start.rules = Some(rules);
    }
}
