//! Finds the workspace files that git reads as configuration or runs as hooks because of a repository's own
//! configuration. Called by `protect`.

use super::config;
use super::openat;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Maximum number of configuration files that are read for one repository.
const MAX_FILES: usize = 32;

/// Returns the paths under `base` that the configuration in `git_at` names, without duplicates. `base_path` is the
/// path of `base`, and `worktree_at` is the directory in which hooks run.
///
/// # Errors
/// Another program holds a lease on a file.
pub(crate) fn leads(
    base: impl AsFd,
    base_path: &Path,
    git_at: &Path,
    worktree_at: &Path,
) -> io::Result<Vec<PathBuf>> {
    let mut files = VecDeque::from([git_at.join("config"), git_at.join("config.worktree")]);
    let mut leads: Vec<PathBuf> = Vec::new();
    for _ in 0..MAX_FILES {
        let Some(file) = files.pop_front() else { break };
        let text = match openat::read(&base, &file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
            // The file is missing, is not a regular file, or is a link. `protect` reports the last two.
            Err(_) => continue,
        };
        for entry in config::parse(&text) {
            let is_include =
                (entry.section == "include" || entry.section == "includeif") && entry.key == "path";
            let is_hooks = entry.is("core", "hookspath");
            let Some(value) = entry.value.filter(|_| is_include || is_hooks) else { continue };
            let from = if is_include { file.parent().unwrap_or(git_at) } else { worktree_at };
            let Some(lead) = inside(base_path, from, &value) else { continue };
            if leads.contains(&lead) {
                continue;
            }
            if is_include {
                files.push_back(lead.clone());
            }
            leads.push(lead);
        }
    }
    Ok(leads)
}

/// Resolves a value to a path under the base. `None` for a path outside, which cannot be written anyway.
fn inside(base_path: &Path, from: &Path, value: &str) -> Option<PathBuf> {
    if value.is_empty() || value.starts_with('~') || value.starts_with("%(") {
        return None;
    }
    let absolute = openat::normalise(&base_path.join(from).join(value))?;
    let lead = absolute.strip_prefix(base_path).ok()?;
    (!lead.as_os_str().is_empty()).then(|| lead.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn includes_and_hooks_are_followed_inside_only() {
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
