//! The directory of the user, as requests name it.

use std::path::Path;

/// Returns a directory as an absolute path without symlinks, if it is in this workspace and another one than its root.
///
/// Blocks: it asks the file system.
#[must_use]
pub fn directory_in(workspace: &str, directory: &Path) -> Option<String> {
    let directory = directory.canonicalize().ok()?;
    let is_inside = directory.starts_with(workspace) && directory != Path::new(workspace);
    is_inside.then(|| directory.to_str().map(str::to_owned)).flatten()
}
