//! Whether an error of the system is a denial of the session's policy or an ordinary lack of rights.
//!
//! Called by the file tools when an operation failed, and by [`crate::denied`] for what commands print. Blocks.

use quackd_protocol::denial::{Denial, DenialKind};
use quackd_sandbox::protected_name;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use std::io;
use std::path::Path;

/// What a file was to be opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Read,
    Write,
}

/// The denial that `error` is likely to be. `name` is what the workspace at `root` has under it.
///
/// `None` for what has nothing to do with rights, and for files that permissions alone keep away.
pub(crate) fn denial_blocking(
    error: &io::Error,
    root: &Path,
    name: &Path,
    wanted: Wanted,
) -> Option<Denial> {
    let is_pinned = match Errno::from_io_error(error)? {
        // In a workspace that may be written only what is protected is mounted by itself.
        Errno::ROFS | Errno::BUSY => true,
        Errno::ACCESS | Errno::PERM if is_ordinary_blocking(&root.join(name), wanted) => {
            return None;
        }
        Errno::ACCESS | Errno::PERM => protected_name(name).is_some(),
        _ => return None,
    };
    let kind = match wanted {
        Wanted::Read => DenialKind::Read,
        Wanted::Write if is_pinned => DenialKind::Protected,
        Wanted::Write => DenialKind::Write,
    };
    Some(Denial::new(kind, Some(&name.to_string_lossy()), true))
}

/// Whether permissions alone forbid what is wanted: access(2) does not look at Landlock, and says of a read-only
/// mount something else.
pub(crate) fn is_ordinary_blocking(path: &Path, wanted: Wanted) -> bool {
    let right = match wanted {
        Wanted::Read => Access::READ_OK,
        Wanted::Write => Access::WRITE_OK,
    };
    let asked = |path: &Path, right| accessat(CWD, path, right, AtFlags::EACCESS);
    match (asked(path, right), wanted) {
        (Err(Errno::ACCESS | Errno::PERM), _) => true,
        // What is missing would be made in the nearest directory that is there.
        (Err(Errno::NOENT), Wanted::Write) => {
            let directory =
                path.ancestors().skip(1).find(|above| asked(above, Access::EXISTS).is_ok());
            let right = Access::WRITE_OK | Access::EXEC_OK;
            directory.is_some_and(|above| asked(above, right) == Err(Errno::ACCESS))
        }
        _ => false,
    }
}

/// Whether a file, or what it would be made in, is on a read-only mount.
pub(crate) fn is_mounted_read_only_blocking(path: &Path) -> bool {
    let asked = |path: &Path| accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS);
    let mut answers = path.ancestors().take(2).map(asked);
    answers.find(|answer| *answer != Err(Errno::NOENT)) == Some(Err(Errno::ROFS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    fn told(errno: Errno, root: &Path, name: &str, wanted: Wanted) -> Option<(DenialKind, bool)> {
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
        assert_eq!(told(Errno::ROFS, "f", Wanted::Write), protected);
        assert_eq!(told(Errno::BUSY, ".githooks/x", Wanted::Write), protected);
        assert_eq!(told(Errno::ACCESS, ".git/config", Wanted::Write), protected);
        assert_eq!(told(Errno::ACCESS, "f", Wanted::Write), Some((DenialKind::Write, true)));
        assert_eq!(told(Errno::PERM, "f", Wanted::Read), Some((DenialKind::Read, true)));
        assert_eq!(told(Errno::NOSPC, "f", Wanted::Write), None);
        assert_eq!(told(Errno::NOENT, "f", Wanted::Read), None);
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
            // Root may do everything: permissions keep nothing away.
            assert!(!is_ordinary_blocking(&dir.path().join("secret"), Wanted::Read));
            return;
        }
        assert_eq!(told(Errno::ACCESS, dir.path(), "closed", Wanted::Write), None);
        assert_eq!(told(Errno::ACCESS, dir.path(), "secret", Wanted::Read), None);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o555)).unwrap();
        assert_eq!(told(Errno::ACCESS, dir.path(), "new/file", Wanted::Write), None);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    }
}
