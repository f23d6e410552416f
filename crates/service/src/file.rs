//! Unit files and property lists: written atomically, and never over a file that quackd did not write. Used
//! by the command line.
//!
//! A marker comment in the file identifies quackd's files, so that a user's own unit is kept.

use quackd_protocol::VERSION;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Marker in the first lines of each of quackd's files.
pub const MARK: &str = "Written by `quack service install`";

/// Optional file of the user in the state directory, with environment variables for the daemon.
pub const VARIABLES: &str = "service.env";

/// Maximum number of bytes to inspect.
const MAX_BYTES: u64 = 64 * 1024;

/// Number of lines to search for the marker. The file format may require other lines first.
const MARK_LINES: usize = 4;

/// World-readable: the file contains no secrets.
const MODE: u32 = 0o644;

pub(crate) fn unit_mark() -> String {
    format!("# {MARK}, quackd {VERSION}. `quack service uninstall` removes it.")
}

pub(crate) fn plist_mark() -> String {
    format!("<!-- {MARK}, quackd {VERSION}. `quack service uninstall` removes it. -->")
}

/// Existing content at the path of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// No file.
    Absent,
    /// The expected file.
    Same,
    /// One of quackd's files with other content: of another version, or edited.
    Ours,
    /// A file that quackd did not write.
    Foreign,
}

/// Compares the file at `path` with the expected `text`.
///
/// # Errors
/// The file cannot be read.
pub fn look_blocking(path: &Path, text: &str) -> io::Result<Standing> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Standing::Absent),
        Err(error) => return Err(error),
        // A link to `/dev/null` masks a unit. quackd writes only regular files.
        Ok(metadata) if !metadata.is_file() => return Ok(Standing::Foreign),
        Ok(_) => {}
    }

    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
    let content = String::from_utf8_lossy(&bytes);
    Ok(if content == text {
        Standing::Same
    } else if content.lines().take(MARK_LINES).any(|line| line.contains(MARK)) {
        Standing::Ours
    } else {
        Standing::Foreign
    })
}

/// Writes `text` to `path`, atomically and durably, and creates the parent directories. Overwrites any file:
/// call [`look_blocking`] first.
///
/// # Errors
/// The error of the system call. The old file is intact.
pub fn write_blocking(path: &Path, text: &str) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    make_directory_blocking(directory)?;
    let mut file = tempfile::Builder::new().prefix(".quackd-").tempfile_in(directory)?;
    file.write_all(text.as_bytes())?;
    // A temporary file is private.
    file.as_file().set_permissions(Permissions::from_mode(MODE))?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|refused| refused.error)?;
    // The new name lasts only after a sync of its directory.
    File::open(directory)?.sync_all()
}

/// Creates the directory and its parents. The error names a dangling link, for which the system only reports
/// `EEXIST`.
fn make_directory_blocking(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory).map_err(|error| {
        let leads_nowhere = |path: &&Path| path.is_symlink() && !path.exists();
        match directory.ancestors().find(leads_nowhere) {
            Some(link) => {
                let target = fs::read_link(link).unwrap_or_default();
                let (link, target) = (link.display(), target.display());
                let text =
                    format!("{link} is a link to {target}, which is not there: create it, or remove the link");
                io::Error::new(error.kind(), text)
            }
            None => error,
        }
    })
}

/// Removes the file if quackd wrote it. Returns true if it did.
///
/// # Errors
/// The error of the system call.
pub fn remove_blocking(path: &Path) -> io::Result<bool> {
    let is_ours = matches!(look_blocking(path, "")?, Standing::Ours);
    if is_ours {
        fs::remove_file(path)?;
    }
    Ok(is_ours)
}

/// Removes a link to the unit of the same name in the parent directory, and the link's directory if it is
/// empty then. Returns true if the link existed.
///
/// # Errors
/// The error of the system call.
pub fn remove_link_blocking(link: &Path) -> io::Result<bool> {
    let Ok(target) = fs::read_link(link) else { return Ok(false) };
    if target.file_name() != link.file_name() {
        return Ok(false);
    }
    fs::remove_file(link)?;
    if let Some(directory) = link.parent() {
        // Fails if the directory is not empty, which is intended.
        fs::remove_dir(directory).ok();
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_of_ours_is_told_from_another_ones_and_only_ours_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/user/quackd.service");
        let text = format!("{}\n[Unit]\n", unit_mark());
        assert_eq!(look_blocking(&path, &text).unwrap(), Standing::Absent);
        write_blocking(&path, &text).unwrap();
        assert_eq!(look_blocking(&path, &text).unwrap(), Standing::Same);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o644);
        let older = text.replace("quackd ", "quackd 0.0.1 ");
        assert_eq!(look_blocking(&path, &older).unwrap(), Standing::Ours);
        assert!(remove_blocking(&path).unwrap());
        // No temporary file is left.
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);

        let far_down = format!("{}{text}", "\n".repeat(MARK_LINES));
        for foreign in ["[Unit]\nDescription=mine\n", "", &far_down] {
            fs::write(&path, foreign).unwrap();
            assert_eq!(look_blocking(&path, &text).unwrap(), Standing::Foreign, "{foreign}");
            assert!(!remove_blocking(&path).unwrap());
        }
        fs::remove_file(&path).unwrap();
        symlink("/dev/null", &path).unwrap();
        assert_eq!(look_blocking(&path, &text).unwrap(), Standing::Foreign);
    }

    #[test]
    fn a_directory_that_is_a_link_to_nowhere_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("user");
        symlink("/nowhere/at/all", &link).unwrap();
        let text = write_blocking(&link.join("quackd.service"), "x").unwrap_err().to_string();
        let expected =
            format!("{} is a link to /nowhere/at/all, which is not there", link.display());
        assert!(text.starts_with(&expected), "{text}");
    }

    #[test]
    fn only_a_link_to_the_unit_of_its_name_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let wants = dir.path().join("default.target.wants");
        fs::create_dir(&wants).unwrap();
        let (link, other) = (wants.join("quackd.service"), wants.join("other.service"));
        symlink("../quackd.service", &link).unwrap();
        symlink("/somewhere/quackd.service", &other).unwrap();
        assert!(remove_link_blocking(&link).unwrap());
        assert!(!remove_link_blocking(&link).unwrap());
        assert!(!remove_link_blocking(&other).unwrap() && wants.exists());
        fs::remove_file(&other).unwrap();
        symlink("../quackd.service", &link).unwrap();
        assert!(remove_link_blocking(&link).unwrap() && !wants.exists());
    }
}
