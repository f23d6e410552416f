//! Resolves a directory to the path of its workspace.
//!
//! The path is canonical, so that two spellings of a directory are one workspace. Inside a git repository of
//! the user, it is the repository's root.

use crate::foreign::{Foreign, User};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// Reason why a path has no workspace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkspaceError {
    /// The path does not exist, or is not a directory.
    #[error("not a directory: {0}")]
    NotADirectory(PathBuf),
    /// The canonical path is not UTF-8, which the protocol requires.
    #[error("path is not valid UTF-8: {0}")]
    NotUtf8(PathBuf),
    /// The path starts with `~` and `HOME` is not usable.
    #[error("cannot expand ~: HOME is not set to an absolute path")]
    NoHome,
    /// The path cannot be inspected, so it may be a directory.
    #[error("cannot access {path}")]
    Inaccessible {
        /// Absolute path.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
}

/// The workspace of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    /// Canonical absolute path.
    pub path: String,
    /// Repository of another user that contains the directory. It is not the workspace.
    pub foreign: Option<Foreign>,
    /// True if `path` is the root of a repository.
    pub is_repository: bool,
}

/// Returns the workspace of `path`: the nearest directory upwards that contains `.git`, itself included and `/`
/// excluded, else the directory itself. Ignores a repository that belongs to another user, because another user's
/// `.git` must not widen the files that a session may write. Expands `~` and `~/x` to `$HOME`, and resolves relative
/// paths against the working directory.
///
/// # Errors
/// [`WorkspaceError`], which names the absolute path.
pub fn look_up_workspace_blocking(path: &Path) -> Result<Workspace, WorkspaceError> {
    resolve(path, std::env::var_os("HOME").as_deref(), User::effective())
}

/// Returns the path of [`look_up_workspace_blocking`].
///
/// # Errors
/// As [`look_up_workspace_blocking`].
pub fn resolve_workspace_blocking(path: &Path) -> Result<String, WorkspaceError> {
    look_up_workspace_blocking(path).map(|workspace| workspace.path)
}

/// Returns true for `/` and `$HOME`, which the user must confirm: a faulty tool could reach everything there.
/// `path` must come from [`resolve_workspace_blocking`].
#[must_use]
pub fn is_risky_workspace(path: &str) -> bool {
    is_risky(Path::new(path), std::env::var_os("HOME").as_deref())
}

fn resolve(path: &Path, home: Option<&OsStr>, us: User) -> Result<Workspace, WorkspaceError> {
    let absolute = match path.strip_prefix("~") {
        Ok(rest) => home_dir(home).ok_or(WorkspaceError::NoHome)?.join(rest),
        // Fails only for an empty path, which is not a directory either.
        Err(_) => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
    };

    let canonical = match absolute.canonicalize() {
        Ok(canonical) if canonical.is_dir() => canonical,
        Err(source) if !says_not_there(source.kind()) => {
            return Err(WorkspaceError::Inaccessible { path: absolute, source });
        }
        _ => return Err(WorkspaceError::NotADirectory(absolute)),
    };

    let is_root = |dir: &&Path| dir.parent().is_some() && dir.join(".git").exists();

    // A repository at the home directory or above contains settings, and the home directory must not become a
    // workspace.
    let home = home_dir(home).and_then(|home| home.canonicalize().ok());
    let is_above_home = |dir: &&Path| home.as_ref().is_some_and(|home| home.starts_with(dir));

    let repository = canonical.ancestors().find(is_root).filter(|dir| !is_above_home(dir));
    let foreign = repository.and_then(|repository| Foreign::look_blocking(repository, us));
    let own = repository.filter(|_| foreign.is_none());
    let is_repository = own.is_some();

    let workspace = own.unwrap_or(&canonical);
    let text = workspace.to_str().map(str::to_owned);
    let path = text.ok_or_else(|| WorkspaceError::NotUtf8(workspace.to_owned()))?;
    Ok(Workspace { path, foreign, is_repository })
}

fn is_risky(path: &Path, home: Option<&OsStr>) -> bool {
    let is_home = |home: &Path| {
        // The workspace is canonical, but HOME may not be.
        path == home || home.canonicalize().is_ok_and(|canonical| path == canonical)
    };
    path == Path::new("/") || home_dir(home).is_some_and(is_home)
}

fn home_dir(home: Option<&OsStr>) -> Option<&Path> {
    home.map(Path::new).filter(|path| path.is_absolute())
}

fn says_not_there(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{InvalidInput, NotADirectory, NotFound};
    matches!(kind, NotFound | NotADirectory | InvalidInput)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn resolve(path: &Path, home: Option<&OsStr>) -> Result<String, WorkspaceError> {
        super::resolve(path, home, User::effective()).map(|workspace| workspace.path)
    }

    /// Creates a canonical directory that the guard deletes.
    fn scratch() -> (tempfile::TempDir, PathBuf) {
        let guard = tempfile::tempdir().unwrap();
        let path = guard.path().canonicalize().unwrap();
        (guard, path)
    }

    fn text(path: &Path) -> String {
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn the_workspace_is_the_nearest_directory_upwards_with_a_git_entry() {
        let (_guard, dir) = scratch();
        fs::create_dir_all(dir.join("outer/inner/deep")).unwrap();
        fs::create_dir(dir.join("outer/.git")).unwrap();
        let outer = text(&dir.join("outer"));
        assert_eq!(resolve(&dir.join("outer"), None).unwrap(), outer);
        assert_eq!(resolve(&dir.join("outer/inner/deep"), None).unwrap(), outer);
        // Work trees and submodules have a `.git` file.
        fs::write(dir.join("outer/inner/.git"), "gitdir: x").unwrap();
        let inner = text(&dir.join("outer/inner"));
        assert_eq!(resolve(&dir.join("outer/inner/deep"), None).unwrap(), inner);
    }

    #[test]
    fn a_repository_of_the_home_takes_in_no_directory_below_it() {
        let (_guard, dir) = scratch();
        fs::create_dir_all(dir.join("home/src/project")).unwrap();
        fs::create_dir(dir.join("home/.git")).unwrap();
        symlink("home", dir.join("link")).unwrap();
        let project = dir.join("home/src/project");
        for home in ["home", "link"] {
            let home = dir.join(home);
            assert_eq!(resolve(&project, Some(home.as_os_str())).unwrap(), text(&project));
        }
    }

    #[test]
    fn two_spellings_of_a_directory_are_one_workspace() {
        let (_guard, dir) = scratch();
        fs::create_dir(dir.join("real")).unwrap();
        symlink("real", dir.join("link")).unwrap();
        for spelling in ["real", "real/", "./real/.", "link", "link/../real"] {
            assert_eq!(resolve(&dir.join(spelling), None).unwrap(), text(&dir.join("real")));
        }
    }

    #[test]
    fn a_tilde_is_the_home_directory_and_nothing_else() {
        let (_guard, dir) = scratch();
        fs::create_dir(dir.join("x")).unwrap();
        let home = Some(dir.as_os_str());
        assert_eq!(resolve(Path::new("~"), home).unwrap(), text(&dir));
        assert_eq!(resolve(Path::new("~/x"), home).unwrap(), text(&dir.join("x")));
        let cwd = std::env::current_dir().unwrap();
        match resolve(Path::new("~x"), home) {
            Err(WorkspaceError::NotADirectory(path)) => assert_eq!(path, cwd.join("~x")),
            other => panic!("{other:?}"),
        }
        for home in [None, Some(OsStr::new("")), Some(OsStr::new("relative"))] {
            let error = resolve(Path::new("~"), home).unwrap_err();
            assert!(matches!(error, WorkspaceError::NoHome), "{home:?}: {error}");
        }
    }

    #[test]
    fn what_is_not_an_existing_directory_is_refused_with_its_absolute_path() {
        let (_guard, dir) = scratch();
        fs::write(dir.join("file"), "").unwrap();
        symlink("nowhere", dir.join("dangling")).unwrap();
        for name in ["missing", "file", "file/below", "dangling"] {
            match resolve(&dir.join(name), None) {
                Err(WorkspaceError::NotADirectory(path)) => assert_eq!(path, dir.join(name)),
                other => panic!("{name}: {other:?}"),
            }
        }
        assert!(matches!(resolve(Path::new(""), None), Err(WorkspaceError::NotADirectory(_))));
        assert!(matches!(resolve(Path::new("a\0b"), None), Err(WorkspaceError::NotADirectory(_))));
    }

    #[test]
    fn a_loop_of_links_is_an_error_and_not_a_hang() {
        let (_guard, dir) = scratch();
        symlink("loop", dir.join("loop")).unwrap();
        let error = resolve(&dir.join("loop"), None).unwrap_err();
        assert!(matches!(error, WorkspaceError::Inaccessible { .. }), "{error}");
    }

    #[test]
    fn a_path_that_is_not_text_is_refused() {
        use rustix::io::Errno;
        use std::os::unix::ffi::OsStrExt;
        let (_guard, dir) = scratch();
        let odd = dir.join(OsStr::from_bytes(b"\xff"));
        match fs::create_dir(&odd) {
            // macOS refuses to make such a name.
            Err(error) if error.raw_os_error() == Some(Errno::ILSEQ.raw_os_error()) => return,
            made => made.unwrap(),
        }
        assert!(matches!(resolve(&odd, None), Err(WorkspaceError::NotUtf8(path)) if path == odd));
    }

    #[test]
    fn the_root_and_the_home_directory_are_risky() {
        let (_guard, dir) = scratch();
        symlink(&dir, dir.join("home")).unwrap();
        let home = dir.join("home");
        let home = Some(home.as_os_str());
        assert!(is_risky(Path::new("/"), None));
        assert!(is_risky(&dir, home));
        assert!(!is_risky(&dir.join("project"), home));
        assert!(!is_risky(&dir, None));
    }

    #[test]
    fn a_repository_of_somebody_else_is_not_the_workspace() {
        let (_guard, dir) = scratch();
        fs::create_dir_all(dir.join("outer/.git")).unwrap();
        fs::create_dir_all(dir.join("outer/inner")).unwrap();
        let owner = rustix::process::geteuid().as_raw();
        let other = User { effective: owner + 1, sudo: None };
        let inner = super::resolve(&dir.join("outer/inner"), None, other).unwrap();
        assert_eq!(inner.path, text(&dir.join("outer/inner")));
        let outer = text(&dir.join("outer"));
        assert_eq!(
            inner.foreign.unwrap().to_string(),
            format!(
                "The repository {outer} is not the workspace: {outer} belongs to user {owner}, not to you (user {})",
                owner + 1
            )
        );
    }
}
