//! Decides whether a system error is a denial by the session's policy or an ordinary lack of permission.
//!
//! Called by the file tools when an operation failed, and by [`crate::denials`] for the output of commands.
//! Blocks.

use quackd_protocol::denial::{Denial, DenialKind};
use quackd_sandbox::protected_name;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use std::io;
use std::path::Path;

/// Requested access to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessMode {
    Read,
    Write,
}

/// Returns the denial that `error` probably is. `name` is the path relative to the workspace at `root`.
///
/// `None` for errors that are unrelated to permissions, and for files that ordinary permissions protect.
pub(crate) fn denial_blocking(
    error: &io::Error,
    root: &Path,
    name: &Path,
    mode: AccessMode,
) -> Option<Denial> {
    let is_pinned = match Errno::from_io_error(error)? {
        // In a writable workspace, only protected names are separate mounts.
        Errno::ROFS | Errno::BUSY => true,
        Errno::ACCESS | Errno::PERM if is_ordinary_blocking(&root.join(name), mode) => {
            return None;
        }
        Errno::ACCESS | Errno::PERM => protected_name(name).is_some(),
        _ => return None,
    };

    let kind = match mode {
        AccessMode::Read => DenialKind::Read,
        AccessMode::Write if is_pinned => DenialKind::Protected,
        AccessMode::Write => DenialKind::Write,
    };
    Some(Denial::new(kind, Some(&name.to_string_lossy()), true))
}

/// Whether ordinary permissions forbid the access. access(2) ignores Landlock, and returns another error for a
/// read-only mount.
pub(crate) fn is_ordinary_blocking(path: &Path, mode: AccessMode) -> bool {
    let right = match mode {
        AccessMode::Read => Access::READ_OK,
        AccessMode::Write => Access::WRITE_OK,
    };
    // EACCESS checks with the effective ids, as the kernel does for the operation itself.
    let access = |path: &Path, right| accessat(CWD, path, right, AtFlags::EACCESS);
    match (access(path, right), mode) {
        (Err(Errno::ACCESS | Errno::PERM), _) => true,
        // A missing file would be created in the nearest existing directory.
        (Err(Errno::NOENT), AccessMode::Write) => {
            let directory =
                path.ancestors().skip(1).find(|above| access(above, Access::EXISTS).is_ok());
            // Creating a file needs the right to write and to search its directory.
            let right = Access::WRITE_OK | Access::EXEC_OK;
            directory.is_some_and(|above| access(above, right) == Err(Errno::ACCESS))
        }
        _ => false,
    }
}

/// Whether a file, or the directory in which it would be created, is on a read-only mount.
pub(crate) fn is_mounted_read_only_blocking(path: &Path) -> bool {
    let access = |path: &Path| accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS);
    let mut answers = path.ancestors().take(2).map(access);
    answers.find(|answer| *answer != Err(Errno::NOENT)) == Some(Err(Errno::ROFS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    fn told(
        errno: Errno,
        root: &Path,
        name: &str,
        wanted: AccessMode,
    ) -> Option<(DenialKind, bool)> {
        let denial = denial_blocking(&errno.into(), root, Path::new(name), wanted)?;
        assert_eq!(denial.target.as_deref(), Some(name));
        Some((denial.kind, denial.likely))
    }

    #[test]
    fn errors_about_rights_are_denials_and_others_are_not() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "").unwrap();
        let told = |errno, name, wanted| told(errno, dir.path(), name, wanted);
        let protected = Some((DenialKind::Protected, true));
        assert_eq!(told(Errno::ROFS, "f", AccessMode::Write), protected);
        assert_eq!(told(Errno::BUSY, ".githooks/x", AccessMode::Write), protected);
        assert_eq!(told(Errno::ACCESS, ".git/config", AccessMode::Write), protected);
        assert_eq!(told(Errno::ACCESS, "f", AccessMode::Write), Some((DenialKind::Write, true)));
        assert_eq!(told(Errno::PERM, "f", AccessMode::Read), Some((DenialKind::Read, true)));
        assert_eq!(told(Errno::NOSPC, "f", AccessMode::Write), None);
        assert_eq!(told(Errno::NOENT, "f", AccessMode::Read), None);
    }

    #[test]
    fn what_permissions_keep_away_is_no_denial() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, mode| {
            fs::write(dir.path().join(name), "").unwrap();
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(dir.path().join(name), mode).unwrap();
        };
        put("closed", 0o444);
        put("secret", 0o000);
        if fs::File::open(dir.path().join("secret")).is_ok() {
            // Root bypasses permissions.
            assert!(!is_ordinary_blocking(&dir.path().join("secret"), AccessMode::Read));
            return;
        }
        assert_eq!(told(Errno::ACCESS, dir.path(), "closed", AccessMode::Write), None);
        assert_eq!(told(Errno::ACCESS, dir.path(), "secret", AccessMode::Read), None);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o555)).unwrap();
        assert_eq!(told(Errno::ACCESS, dir.path(), "new/file", AccessMode::Write), None);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    }
}
