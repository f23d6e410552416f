//! Small files that are replaced as a whole: the daemon's own configuration and the token of remote control.
//! Called by the supervisor on a thread for blocking work; who calls sees to it that nobody else writes.

use crate::quarantine::quarantine_blocking;
use crate::replace::stage_blocking;
use std::io;
use std::path::{Path, PathBuf};

/// Puts `bytes` in the place of the file, mode 0600 and durably. The one before is not kept: it may hold a
/// secret that shall be one no more.
///
/// # Errors
/// The system's. The file is as it was.
pub fn replace_file_blocking(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Dropped, it removes the second name of what was there.
    drop(stage_blocking(path, bytes)?.replace_blocking()?);
    Ok(())
}

/// Moves a file that cannot be used to `<path>.corrupt-<n>`, and gives that path.
///
/// # Errors
/// The system's. The file is where it was.
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
