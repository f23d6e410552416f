//! Directories that are shown as private ones with a mount for each allowed entry. A secret that is covered by a mount
//! would be visible again once a program outside replaces it; an entry that is not mounted never is. In turn, entries
//! that are created later are not visible, and a replaced file shows its old content until the next worker.

use super::mount::{Mount, ReadOnlyBind};
use super::toolchains::{CREDENTIALS, SYSTEM_SECRETS, TOOLCHAINS};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Maximum number of entries. A larger directory is mounted as a whole, and its secrets are covered.
const MAX_SYSTEM_ENTRIES: usize = 1024;
const MAX_TOOLCHAIN_ENTRIES: usize = 64;

/// Returns the mounts of the system's directories that can contain secrets.
pub(crate) fn of_system() -> Vec<(PathBuf, Mount)> {
    let secrets: BTreeSet<&Path> = SYSTEM_SECRETS.iter().map(Path::new).collect();
    let above = secrets.iter().filter_map(|secret| secret.parent());
    let directories: BTreeSet<&Path> = above.chain([Path::new(SSH)]).collect();
    let is_secret =
        |path: &Path| secrets.contains(path) || is_host_key(path) || is_closed_to_others(path);
    let built = directories.iter().filter(|at| is_real_directory(at));
    let mounts = built.filter_map(|at| built_of(at, at, MAX_SYSTEM_ENTRIES, is_secret));
    let mut mounts: Vec<_> = mounts.flatten().collect();

    // A directory that is built itself is not mounted as an entry of the one above it.
    let ways = mounts.iter().filter(|(_, mount)| *mount == Mount::Way).map(|(at, _)| at.clone());
    let ways: BTreeSet<PathBuf> = ways.collect();
    mounts.retain(|(at, mount)| *mount == Mount::Way || !ways.contains(at));
    mounts
}

/// Returns the mounts of a shown toolchain whose top can contain tokens. `None` for another directory, such as one of
/// `PATH`, in which programs that are installed later must be visible.
pub(crate) fn of_toolchain(toolchain: &ReadOnlyBind, home: &Path) -> Option<Vec<(PathBuf, Mount)>> {
    let is_top = |root: &str| toolchain.at == home.join(root);
    let is_whole = TOOLCHAINS.iter().any(|one| is_top(one.root) && one.shown.contains(&one.root));
    if !toolchain.is_directory || !is_whole || toolchain.at.ends_with("bin") {
        return None;
    }

    let is_secret = |path: &Path| {
        path.file_name().and_then(OsStr::to_str).is_none_or(|name| CREDENTIALS.contains(&name))
    };
    built_of(&toolchain.at, &toolchain.from, MAX_TOOLCHAIN_ENTRIES, is_secret)
}

/// Directory of the keys of the SSH server.
const SSH: &str = "/etc/ssh";

/// Returns true for a private key of the SSH server.
fn is_host_key(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    path.parent() == Some(Path::new(SSH)) && name.starts_with("ssh_host_") && name.ends_with("_key")
}

/// Returns true if other users cannot read a file or directory. Then it may be a secret of a service.
fn is_closed_to_others(path: &Path) -> bool {
    const READABLE: u32 = 0o004;
    fs::symlink_metadata(path)
        .is_ok_and(|node| !node.is_symlink() && node.permissions().mode() & READABLE == 0)
}

fn is_real_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|node| node.is_dir())
}

/// Returns a directory at `at` with the entries of `from`. `None` if it cannot be read or has too many entries.
fn built_of(
    at: &Path,
    from: &Path,
    most: usize,
    is_secret: impl Fn(&Path) -> bool,
) -> Option<Vec<(PathBuf, Mount)>> {
    let mut mounts = vec![(at.to_path_buf(), Mount::Way)];
    for entry in fs::read_dir(from).ok()? {
        let entry = entry.ok()?;
        if most < mounts.len() {
            return None;
        }

        let (inside, outside) = (at.join(entry.file_name()), entry.path());
        if is_secret(&inside) {
            continue;
        }

        let kind = entry.file_type().ok()?;
        let mount = if kind.is_symlink() {
            let Ok(to) = fs::read_link(&outside) else { continue };
            Mount::Link { to }
        } else if kind.is_dir() || kind.is_file() {
            Mount::Bind {
                from: outside,
                writable: false,
                is_directory: kind.is_dir(),
                required: false,
            }
        } else {
            continue;
        };
        mounts.push((inside, mount));
    }
    Some(mounts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_built_of_entries_without_its_secrets() {
        let mounts = of_system();
        let at = |path: &str| {
            mounts.iter().find(|(at, _)| at == Path::new(path)).map(|(_, mount)| mount)
        };
        assert_eq!(at("/etc"), Some(&Mount::Way));
        assert!(matches!(at("/etc/passwd"), Some(Mount::Bind { is_directory: false, .. })));
        assert!(SYSTEM_SECRETS.iter().all(|secret| at(secret).is_none()));
        let mut paths: Vec<_> = mounts.iter().map(|(at, _)| at).collect();
        paths.sort_unstable();
        let all = paths.len();
        paths.dedup();
        assert_eq!(paths.len(), all, "each path has one mount");
    }

    #[test]
    fn the_top_of_a_toolchain_is_built_of_entries_without_tokens() {
        let home = tempfile::tempdir().unwrap();
        for directory in [".pyenv/versions", ".local/bin", ".pyenv/many"] {
            fs::create_dir_all(home.path().join(directory)).unwrap();
        }
        fs::write(home.path().join(".pyenv/credentials"), "token").unwrap();
        std::os::unix::fs::symlink("versions", home.path().join(".pyenv/current")).unwrap();
        let shown = |name: &str| {
            let at = home.path().join(name);
            ReadOnlyBind { from: at.clone(), at, is_directory: true }
        };
        let mounts = of_toolchain(&shown(".pyenv"), home.path()).unwrap();
        let mut names: Vec<_> =
            mounts.iter().map(|(at, _)| at.strip_prefix(home.path()).unwrap()).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [".pyenv", ".pyenv/current", ".pyenv/many", ".pyenv/versions"].map(Path::new)
        );
        assert_eq!(of_toolchain(&shown(".local/bin"), home.path()), None);
        for n in 0..MAX_TOOLCHAIN_ENTRIES {
            fs::write(home.path().join(format!(".pyenv/{n}")), "").unwrap();
        }
        assert_eq!(of_toolchain(&shown(".pyenv"), home.path()), None);
    }
}
