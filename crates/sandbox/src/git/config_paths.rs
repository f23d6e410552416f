//! Reads the settings of a repository that name files: programs, hooks and further settings. Called by `named`,
//! and by the mounts that protect repositories.

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
pub(crate) struct Setting {
    /// Name as git writes it.
    pub(crate) name: String,
    pub(crate) value: String,
    /// True if the value is one path, false if it is a command line.
    pub(crate) is_path: bool,
    /// True if git reads the file as further settings.
    pub(crate) is_include: bool,
    /// Directory of relative paths. `None` for the directory in which git runs programs.
    pub(crate) from: Option<PathBuf>,
}

/// Returns the setting if it names files. `directory` contains the file with the setting.
pub(crate) fn setting(entry: &Entry, directory: Option<&Path>) -> Option<Setting> {
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
pub(crate) fn settings(
    base: impl AsFd,
    base_path: &Path,
    git_at: &Path,
    home: Option<&Path>,
) -> io::Result<(Vec<Setting>, bool)> {
    let git = base_path.join(git_at);
    let mut files = VecDeque::from([git.join("config"), git.join("config.worktree")]);
    let (mut named, mut n_read) = (Vec::<Setting>::new(), 0);
    while let Some(file) = files.pop_front() {
        if n_read == MAX_FILES || MAX_SETTINGS <= named.len() {
            return Ok((named, false));
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
            // Another program holds a lease. The file must not count as missing.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
            // The file is missing, is not a regular file, or is a link. `protect` reports the last two.
            Err(_) => continue,
        };

        for one in config::parse(&text).iter().filter_map(|entry| setting(entry, file.parent())) {
            if named.contains(&one) {
                continue;
            }
            let from = file.parent().unwrap_or(&git);
            let next = one.is_include.then(|| resolve(&one.value, from, home)).flatten();
            files.extend(next);
            named.push(one);
        }
    }
    Ok((named, true))
}
