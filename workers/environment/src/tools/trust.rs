//! The directories that sessions may write, and what leads into them. Used by [`super::asking`].

use quackd_process::held_on_the_way_blocking;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Directories that sessions may write, canonical.
#[derive(Debug, Default)]
pub(super) struct Untrusted(BTreeSet<PathBuf>);

impl Untrusted {
    /// Leaves out directories that contain the home: no worker starts there, and no tool could be asked.
    pub(super) fn new(directories: &[String], home: &Path) -> Self {
        let canonical = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let home = canonical(home);
        let directories = directories.iter().map(|directory| canonical(Path::new(directory)));
        Self(directories.filter(|directory| !home.starts_with(directory)).collect())
    }

    /// Returns true if the path is in such a directory or leads through one.
    pub(super) fn has(&self, path: &Path) -> bool {
        held_on_the_way_blocking(path, |at| self.0.contains(at)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn every_way_into_a_workspace_counts() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        let at = |path: &str| root.join(path);
        for name in ["ws/bin", "ok/bin"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        symlink(at("ws/bin"), at("in")).unwrap();
        symlink(at("ok/bin"), at("ws/out")).unwrap();
        symlink(at("ws/out"), at("through")).unwrap();
        let text = |path: &str| at(path).display().to_string();
        let untrusted = Untrusted::new(&[text("ws"), text("")], &at("ok"));
        for path in ["ws", "ws/x", "in", "in/not/there", "through", "ok/../ws/z"] {
            assert!(untrusted.has(&at(path)), "{path}");
        }
        for path in ["ok", "ok/bin", "wsx", "ws/.."] {
            assert_eq!(untrusted.has(&at(path)), path == "ws/..", "{path}");
        }
    }
}
