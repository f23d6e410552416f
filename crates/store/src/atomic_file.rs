//! Atomic replacement of small files: the daemon's `config.json` and the token of remote control.
//! Called by the supervisor on a blocking thread. The caller must be the only writer of the file.

use crate::quarantine::quarantine_blocking;
use crate::replace::stage_blocking;
use std::io;
use std::path::{Path, PathBuf};

/// Replaces the file with `bytes`, durably and with mode 0600. Keeps no backup: the old file may contain a
/// revoked secret.
///
/// # Errors
/// The error of the system call. The old file is intact.
pub fn replace_file_blocking(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Dropping it removes the second name of the old file.
    drop(stage_blocking(path, bytes)?.replace_blocking()?);
    Ok(())
}

/// Moves an unusable file to `<path>.corrupt-<n>` and returns the new path.
///
/// # Errors
/// The error of the system call. The file was not moved.
pub fn set_aside_blocking(path: &Path) -> io::Result<PathBuf> {
    quarantine_blocking(path, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_secret_is_replaced_and_nothing_of_the_old_one_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        for text in ["old", "new"] {
            replace_file_blocking(&path, text.as_bytes()).unwrap();
        }
        let names = std::fs::read_dir(dir.path()).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["token"]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(set_aside_blocking(&path).unwrap(), dir.path().join("token.corrupt-1"));
    }
}
