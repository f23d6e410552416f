//! The files of the workspace that git tracks: git ignores no name that it tracks already.

use crate::git;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// Maximum size of the file that names the repository of a linked worktree, in bytes.
const MAX_LINK_BYTES: u64 = 8 * 1024;

/// Returns the directories that git reads besides the workspace: those of the repository of a linked worktree.
pub(crate) fn repository_of(workspace: &Path) -> Vec<PathBuf> {
    let own = read(&workspace.join(".git")).and_then(|text| {
        let own = text.trim_end().strip_prefix("gitdir: ")?.to_owned();
        workspace.join(own).canonicalize().ok()
    });

    let common = own.as_ref().and_then(|own| {
        let common = read(&own.join("commondir"))?;
        own.join(common.trim_end()).canonicalize().ok()
    });

    // Only a repository that lists this workspace. A session could name any other one.
    let lists = |own: &PathBuf| {
        let back = read(&own.join("gitdir")).map(|back| own.join(back.trim_end()));
        let back = back.and_then(|back| back.parent()?.canonicalize().ok());
        back.as_deref() == Some(workspace)
    };

    let is_listed = own.as_ref().is_some_and(lists);
    let all = [Some(workspace.to_owned()), own.filter(|_| is_listed), common.filter(|_| is_listed)];
    all.into_iter().flatten().collect()
}

/// Returns the directories of the repository of the workspace alone, the common one last. Empty without one.
pub(crate) fn git_directories(workspace: &Path) -> Vec<PathBuf> {
    let git = workspace.join(".git");
    match std::fs::symlink_metadata(&git) {
        Ok(metadata) if metadata.is_dir() => vec![git],
        Ok(_) => repository_of(workspace).split_off(1),
        Err(_) => Vec::new(),
    }
}

fn read(path: &Path) -> Option<String> {
    let file = std::fs::File::open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }

    let mut text = String::new();
    file.take(MAX_LINK_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Lists the tracked files. Empty without git or without a repository: then every ignored directory counts as an output.
pub(crate) fn files(workspace: &Path) -> BTreeSet<PathBuf> {
    let listed = git::output(git::command(workspace, &["ls-files", "--cached", "-z"]), &[]);
    let listed = listed.unwrap_or_default();
    let paths = listed.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    paths.map(|path| OsString::from_vec(path.to_vec()).into()).collect()
}
