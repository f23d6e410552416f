//! Checks whether a session may work in a directory, with the list in [`quackd_protocol::places`]. Resolves links
//! first, and recognizes a listed directory under another path.
//!
//! Runs before the registry records a workspace, before `quack.sandbox` makes a directory writable, and before a worker
//! or a Pi starts. The last check is necessary because another program may have recorded the workspace, or replaced it
//! by a link.

use quackd_process::Writable;
use quackd_protocol::places::{
    HOLDS_SOCKET, SOCKET_IN_HOME, SOCKET_IN_RUNTIME_DIR, SYSTEM, refusal,
};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Reason to refuse a directory with the state directory, or with a link on the way to it.
const HOLDS_STATE: &str = "holds the daemon's state directory or a link on the way to it";

/// A directory in which a session may not work, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} {reason}; name a directory that belongs to you, such as one inside your home")]
pub(crate) struct NoPlace {
    path: String,
    reason: &'static str,
}

/// The user's home directory, which no worker may write as a whole.
pub(crate) fn user_home() -> PathBuf {
    std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from)
}

/// The user's home directory and the daemon's state directory.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    pub(crate) user_home: PathBuf,
    pub(crate) state_dir: PathBuf,
}

impl Places {
    /// Refuses system directories, the home directory, and directories through which a session could change the state
    /// directory. Accepts a path that cannot be resolved: the caller reports that.
    ///
    /// # Errors
    /// See [`NoPlace`].
    pub(crate) fn check_blocking(&self, path: &Path) -> Result<(), NoPlace> {
        check_blocking(path, &self.user_home)?;

        let Ok(real) = path.canonicalize() else { return Ok(()) };
        let one = Writable::of_blocking([real.clone()], &self.user_home);
        match one.way_blocking(&self.state_dir) {
            Some(_) => Err(NoPlace { path: real.display().to_string(), reason: HOLDS_STATE }),
            None => Ok(()),
        }
    }
}

fn check_blocking(path: &Path, home: &Path) -> Result<(), NoPlace> {
    let Ok(real) = path.canonicalize() else { return Ok(()) };
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);

    let reason = refusal(&real, &home)
        .or_else(|| refusal_by_identity(&real, &home))
        .or_else(|| refusal_by_socket(&real, &home, runtime_dir.as_deref()));
    match reason {
        None => Ok(()),
        Some(reason) => Err(NoPlace { path: real.display().to_string(), reason }),
    }
}

/// Refuses the directories that may hold the daemon's socket if they are links or at an unusual path, and their
/// parents.
fn refusal_by_socket(path: &Path, home: &Path, runtime_dir: Option<&Path>) -> Option<&'static str> {
    let in_runtime_dir = runtime_dir.filter(|dir| dir.is_absolute());
    let in_runtime_dir = in_runtime_dir.map(|dir| dir.join(SOCKET_IN_RUNTIME_DIR));
    let mut all = in_runtime_dir.into_iter().chain([home.join(SOCKET_IN_HOME)]);
    let holds_socket = all.any(|place| {
        let real = place.canonicalize();
        real.is_ok_and(|real| path.starts_with(&real) || real.starts_with(path))
    });
    holds_socket.then_some(HOLDS_SOCKET)
}

/// Returns device and inode of a file. `None` if it cannot be inspected.
pub(crate) fn identity_blocking(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|file| (file.dev(), file.ino()))
}

/// Recognizes a listed directory by device and inode, for bind mounts and case-insensitive file systems.
fn refusal_by_identity(path: &Path, home: &Path) -> Option<&'static str> {
    let own = identity_blocking(path)?;
    // A directory above the home contains it.
    if home.ancestors().any(|above| identity_blocking(above) == Some(own)) {
        return refusal(home, home);
    }

    let above: Vec<_> = path.ancestors().map(|above| (above, identity_blocking(above))).collect();
    SYSTEM.iter().find_map(|place| {
        let real = PathBuf::from(place).canonicalize().ok()?;
        let listed = identity_blocking(&real);
        let (same, _) = above.iter().find(|(it, id)| *id == listed && **it != real)?;
        refusal(&real.join(path.strip_prefix(same).ok()?), home)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_testkit::TestDir;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_resolved_first_and_a_name_that_is_not_there_is_no_refusal() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        std::fs::create_dir(&home).unwrap();
        let link = dir.path().join("link");
        symlink("/usr/lib", &link).unwrap();
        let error = check_blocking(&link, &home).unwrap_err();
        assert!(error.to_string().contains("belongs to the system; name a directory"), "{error}");
        symlink(&home, dir.path().join("at-home")).unwrap();
        assert!(check_blocking(&home, &dir.path().join("at-home")).is_err());
        assert!(check_blocking(dir.path(), &home).is_err(), "above the home");
        assert_eq!(check_blocking(&dir.path().join("missing"), &home), Ok(()));
        let work = home.join("work");
        std::fs::create_dir(&work).unwrap();
        assert_eq!(check_blocking(&work, &home), Ok(()));
    }

    #[test]
    fn directories_of_the_socket_are_refused_wherever_they_are() {
        let base = TestDir::with(&["home/work", "run/quackd", "linked/x", "run/other"]);
        symlink(base.join("linked"), base.join("home/.quackd")).unwrap();
        for (name, is_refused) in [
            ("run/quackd", true),
            ("run", true),
            ("linked", true),
            ("linked/x", true),
            ("home/work", false),
            ("run/other", false),
        ] {
            let (home, run) = (base.join("home"), base.join("run"));
            let found = refusal_by_socket(&base.join(name), &home, Some(&run));
            assert_eq!(found.is_some(), is_refused, "{name}");
        }
        assert_eq!(refusal_by_socket(&base.join("run"), &base.join("home"), None), None);
        assert!(check_blocking(&base.join("linked/x"), &base.join("home")).is_err());
    }

    #[test]
    fn a_directory_of_the_system_under_another_name_is_found_by_its_identity() {
        // A link replaces the bind mount, which needs privileges: the same directory under another path.
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        std::fs::create_dir_all(home.join("work")).unwrap();
        for (name, to) in [("usr", Path::new("/usr")), ("etc", Path::new("/etc")), ("h", &home)] {
            symlink(to, dir.path().join(name)).unwrap();
        }
        for (path, is_refused) in [
            ("usr/lib", true),
            ("usr", true),
            ("usr/src", true),
            ("etc", true),
            ("h", true),
            ("h/work", false),
            ("home/work", false),
        ] {
            let reason = refusal_by_identity(&dir.path().join(path), &home);
            assert_eq!(reason.is_some(), is_refused, "{path}: {reason:?}");
        }
    }
}
