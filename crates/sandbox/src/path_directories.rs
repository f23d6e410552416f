//! Directories of `PATH` that the macOS profile shows, and directories of packages next to them.

use crate::names::follow_trusted_links;
use rustix::fs::{Access, AtFlags, CWD, accessat, stat};
use rustix::process::geteuid;
use std::path::{Path, PathBuf};

/// Most directories of `PATH` that are shown.
const MAX_DIRECTORIES: usize = 256;

/// Returns the directory of the packages whose programs npm links in this directory of `PATH`: `PREFIX/bin` and
/// `PREFIX/lib/node_modules`. It may be missing.
pub(crate) fn npm_packages(directory: &Path) -> Option<PathBuf> {
    let prefix = directory.parent().filter(|_| directory.ends_with("bin"))?;
    Some(prefix.join("lib/node_modules"))
}

/// Returns the directories of `PATH` and of npm's packages next to them, with every link resolved. Leaves out those behind
/// a link that a session can have made: it could lead to any directory of the user.
#[must_use]
pub fn path_directories_blocking(path: &str, home: &Path) -> Vec<PathBuf> {
    let is_trusted = |link: &Path| is_trusted_blocking(link, home);
    let directories = path.split(':').take(MAX_DIRECTORIES).map(Path::new);
    let absolute = directories.filter(|directory| directory.is_absolute());
    let resolved = |at: &Path| follow_trusted_links(Path::new("/"), at, is_trusted).ok();
    let packages = |at: &Path| resolved(&npm_packages(at)?).filter(|packages| packages.is_dir());
    absolute.flat_map(|at| [resolved(at), packages(at)]).flatten().collect()
}

/// Whether no session can have made this link. The home and `/` are never workspaces. A session cannot write a directory
/// of another user that this one cannot write; in a directory of its own user it can have taken the right away later.
fn is_trusted_blocking(link: &Path, home: &Path) -> bool {
    let Some(directory) = link.parent() else { return false };
    let is_foreign = || {
        let owner = stat(directory).map(|stat| stat.st_uid);
        owner.is_ok_and(|owner| owner != geteuid().as_raw())
            && accessat(CWD, directory, Access::WRITE_OK, AtFlags::EACCESS).is_err()
    };
    directory == home || directory.parent().is_none() || is_foreign()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_testkit::TestDir;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn a_link_that_a_session_can_have_made_leads_nowhere() {
        let root = TestDir::with(&["home/ws/bin", "home/keys", "home/npm/bin"]);
        root.write("home/npm/lib/node_modules/a/b.js", "");
        let home = root.join("home");
        symlink("../keys", home.join("ws/planted")).unwrap();
        symlink("ws/bin", home.join("own")).unwrap();
        let read_only = std::fs::Permissions::from_mode(0o555);
        std::fs::set_permissions(home.join("ws"), read_only).unwrap();
        let text = ["ws/bin", "ws/planted", "own", "npm/bin"]
            .map(|one| home.join(one).display().to_string());
        let shown = path_directories_blocking(&format!("bin:{}", text.join(":")), &home);
        let expected = ["ws/bin", "ws/bin", "npm/bin", "npm/lib/node_modules"];
        assert_eq!(shown, expected.map(|one| home.join(one)));
    }
}
