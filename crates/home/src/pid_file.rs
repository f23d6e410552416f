//! `duck-daemon.pid`: process id of the daemon, for the user and for upstream's programs. Those consider the
//! daemon running if a process with this id exists. Quackd does not use the file.

use crate::own_file::read_blocking;
use crate::{Home, HomeError};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes the process id in decimal, without a newline. Call this only with the instance lock held, so that
/// an existing file must be stale.
///
/// # Errors
/// [`HomeError::Io`]. The daemon works without this file.
pub fn write_pid_file_blocking(home: &Home) -> Result<(), HomeError> {
    let path = home.pid_file();

    // Another file and a rename: a reader sees the old id or the new one, and the old file may be a link.
    let new = path.with_extension("pid.tmp");
    let write = || {
        remove_if_there(&new)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(std::process::id().to_string().as_bytes())?;
        #[expect(
            clippy::disallowed_methods,
            reason = "nothing durable: the next daemon writes it again"
        )]
        fs::rename(&new, &path)
    };

    write().map_err(|e| HomeError::io("write", &path, e))
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes the file if it still contains our process id.
///
/// # Errors
/// [`HomeError::Io`]. A missing file, or one with another id, is fine.
pub fn remove_pid_file_blocking(home: &Home) -> Result<(), HomeError> {
    let path = home.pid_file();
    let text = read_blocking(&path, 32).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    if text.and_then(|text| text.trim().parse().ok()) != Some(std::process::id()) {
        return Ok(());
    }
    remove_if_there(&path).map_err(|e| HomeError::io("remove", &path, e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn home(dir: &std::path::Path) -> Home {
        let var = |name: &str| (name == "RUBBER_DUCK_APP_SUPPORT").then(|| dir.into());
        Home::resolve_blocking(&var).unwrap()
    }

    #[test]
    fn the_file_holds_our_pid_and_replaces_a_leftover() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        fs::write(dir.path().join("victim"), "precious").unwrap();
        symlink("victim", home.pid_file()).unwrap();
        write_pid_file_blocking(&home).unwrap();
        assert_eq!(fs::read_to_string(home.pid_file()).unwrap(), std::process::id().to_string());
        assert_eq!(fs::read_to_string(dir.path().join("victim")).unwrap(), "precious");

        remove_pid_file_blocking(&home).unwrap();
        assert!(!home.pid_file().exists());
        remove_pid_file_blocking(&home).unwrap();
    }

    #[test]
    fn the_file_of_another_daemon_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let home = home(dir.path());
        for text in ["1", "", "not a number", "1\u{0}"] {
            fs::write(home.pid_file(), text).unwrap();
            remove_pid_file_blocking(&home).unwrap();
            assert_eq!(fs::read_to_string(home.pid_file()).unwrap(), text);
        }
    }
}
