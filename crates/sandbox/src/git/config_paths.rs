//! Reads the settings of a repository that name files: programs, hooks and further settings. Called by the mounts
//! that protect repositories, and by `named`.

use super::named_path::resolve;
use super::openat;
use super::settings as git_settings;
use crate::git_config::{self as config, Entry};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Maximum number of configuration files that are read for one repository.
const MAX_FILES: usize = 32;

/// Maximum number of settings of one repository that name files.
const MAX_SETTINGS: usize = 1024;

/// Directories whose regular files are no files of a disk. Reading one may have effects.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];

/// A setting that names files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    /// Name as git writes it.
    pub(super) name: String,
    pub(super) value: String,
    /// True if the value is one path, false if it is a command line.
    pub(super) is_path: bool,
    /// True if git reads the file as further settings.
    pub(super) is_include: bool,
    /// Directory of relative paths. `None` for the directory in which git runs programs.
    pub(super) from: Option<PathBuf>,
}

/// Returns the setting if it names files. `directory` contains the file with the setting.
pub(super) fn setting(entry: &Entry, directory: Option<&Path>) -> Option<Setting> {
    let name = git_settings::dangerous(entry)?;
    let is_include =
        (entry.section == "include" || entry.section == "includeif") && entry.key == "path";
    Some(Setting {
        name,
        value: entry.value.clone()?,
        is_path: git_settings::is_path(entry),
        is_include,
        from: directory.filter(|_| is_include).map(Path::to_owned),
    })
}

/// Returns the settings of the repository at `git_at` that name files, and true if all were read. `base_path` is the
/// path of `base`. Reads included files outside of `base` only with the user's `home`.
///
/// # Errors
/// Another program holds a lease on a file.
pub(super) fn settings(
    base: impl AsFd,
    base_path: &Path,
    git_at: &Path,
    home: Option<&Path>,
) -> io::Result<(Vec<Setting>, bool)> {
    let git = base_path.join(git_at);
    let mut files = VecDeque::from([git.join("config"), git.join("config.worktree")]);
    let (mut found, mut n_read) = (Vec::<Setting>::new(), 0);
    while let Some(file) = files.pop_front() {
        if n_read == MAX_FILES || MAX_SETTINGS <= found.len() {
            return Ok((found, false));
        }
        n_read += 1;
        let text = match file.strip_prefix(base_path) {
            Ok(inside) => openat::read(&base, inside),
            Err(_) if home.is_none() || KERNEL.iter().any(|kernel| file.starts_with(kernel)) => {
                continue;
            }
            Err(_) => openat::read_own(&file, openat::MAX_FILE)
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        };
        let text = match text {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
            // The file is missing, is not a regular file, or is a link. `protect` reports the last two.
            Err(_) => continue,
        };
        for one in config::parse(&text).iter().filter_map(|entry| setting(entry, file.parent())) {
            if found.contains(&one) {
                continue;
            }
            let from = file.parent().unwrap_or(&git);
            let next = one.is_include.then(|| resolve(&one.value, from, home)).flatten();
            files.extend(next);
            found.push(one);
        }
    }
    Ok((found, true))
}

/// Returns the paths under `base` that the configuration in `git_at` includes or names as directories of hooks,
/// without duplicates. `worktree_at` is the directory in which hooks run.
///
/// # Errors
/// Another program holds a lease on a file.
pub(crate) fn leads(
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
