//! Paths that the configuration of a repository includes or names as directories of hooks. Called by `protect`.

use crate::git::config_paths::settings;
use crate::git::named_path::resolve;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Returns the paths under `base` that the configuration in `git_at` includes or names as directories of hooks,
/// without duplicates. `worktree_at` is the directory in which hooks run.
///
/// # Errors
/// Another program holds a lease on a file.
pub(super) fn leads(
    base: impl AsFd,
    base_path: &Path,
    git_at: &Path,
    worktree_at: &Path,
) -> io::Result<Vec<PathBuf>> {
    let (settings, _) = settings(base, base_path, git_at, None)?;

    let worktree = base_path.join(worktree_at);
    let mut leads: Vec<PathBuf> = Vec::new();
    for one in settings.iter().filter(|one| one.is_include || one.name == "core.hooksPath") {
        let from = one.from.as_deref().unwrap_or(&worktree);
        let Some(path) = resolve(&one.value, from, None) else { continue };
        let Ok(lead) = path.strip_prefix(base_path) else { continue };
        if !lead.as_os_str().is_empty() && !leads.iter().any(|known| known == lead) {
            leads.push(lead.to_owned());
        }
    }
    Ok(leads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn includes_and_hooks_are_followed() {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir_all(tree.path().join(".git")).unwrap();
        let absolute = tree.path().join("abs").display().to_string();
        let text = format!(
            "[include]\npath=../shared\npath=~/x\npath=/etc/x\n[includeIf \"gitdir:x\"]\npath={absolute}\n\
             [core]\nhooksPath=.githooks\n"
        );
        fs::write(tree.path().join(".git/config"), text).unwrap();
        fs::write(tree.path().join("shared"), "[include]\npath=deep/more\npath=shared\n").unwrap();
        let base = fs::File::open(tree.path()).unwrap();
        let found = leads(&base, tree.path(), Path::new(".git"), Path::new("")).unwrap();
        assert_eq!(found, ["shared", "abs", ".githooks", "deep/more"].map(PathBuf::from));
    }
}
