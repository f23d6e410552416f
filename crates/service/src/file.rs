//! The files that managers read: put there as a whole, never over one that is not ours. Used by the command
//! line.
//!
//! Whose a file is says a mark in it, so that a person who writes a unit of their own keeps it.

use quackd_protocol::VERSION;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Stands in the first lines of every file of ours.
pub const MARK: &str = "Written by `quack service install`";

/// The file with variables for the daemon, in the state directory: made by a person, if at all.
pub const VARIABLES: &str = "service.env";

/// Longest file that is looked at, in bytes.
const MAX_BYTES: u64 = 64 * 1024;

/// How far down the mark may stand, in lines: above it is what a format wants to come first.
const MARK_LINES: usize = 4;

/// Readable by all: it says nothing that is secret.
const MODE: u32 = 0o644;

pub(crate) fn unit_mark() -> String {
    format!("# {MARK}, quackd {VERSION}. `quack service uninstall` removes it.")
}

pub(crate) fn plist_mark() -> String {
    format!("<!-- {MARK}, quackd {VERSION}. `quack service uninstall` removes it. -->")
}

/// What stands where a file shall be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Nothing.
    Absent,
    /// The very file.
    Same,
    /// A file of ours that says something else: of another version, or changed by hand.
    Ours,
    /// Another one's.
    Foreign,
}

/// Looks at what stands at `path`, where `text` is wanted.
///
/// # Errors
/// It cannot be read.
pub fn look_blocking(path: &Path, text: &str) -> io::Result<Standing> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Standing::Absent),
        Err(error) => return Err(error),
        // A link to `/dev/null` is how a unit is masked; whatever it is, it is not ours.
        Ok(found) if !found.is_file() => return Ok(Standing::Foreign),
        Ok(_) => {}
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
    let found = String::from_utf8_lossy(&bytes);
    Ok(if found == text {
        Standing::Same
    } else if found.lines().take(MARK_LINES).any(|line| line.contains(MARK)) {
        Standing::Ours
    } else {
        Standing::Foreign
    })
}

/// Puts `text` at `path`, as a whole and durably, and makes the directories above it. What stands there is
/// replaced: look first.
///
/// # Errors
/// The system refuses; what was there is there still.
pub fn write_blocking(path: &Path, text: &str) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    make_directory_blocking(directory)?;
    let mut file = tempfile::Builder::new().prefix(".quackd-").tempfile_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(Permissions::from_mode(MODE))?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|refused| refused.error)?;
    File::open(directory)?.sync_all()
}

/// Makes the directory and those above it. A link that leads nowhere is named: the system only says that
/// something is there.
fn make_directory_blocking(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory).map_err(|error| {
        let leads_nowhere = |path: &&Path| path.is_symlink() && !path.exists();
        match directory.ancestors().find(leads_nowhere) {
            Some(link) => {
                let target = fs::read_link(link).unwrap_or_default();
                let (link, target) = (link.display(), target.display());
                let text =
                    format!("{link} is a link to {target}, which is not there: make that, or remove the link");
                io::Error::new(error.kind(), text)
            }
            None => error,
        }
    })
}

/// Removes the file if it is ours. Returns whether it was.
///
/// # Errors
/// The system refuses.
pub fn remove_blocking(path: &Path) -> io::Result<bool> {
    let is_ours = matches!(look_blocking(path, "")?, Standing::Ours);
    if is_ours {
        fs::remove_file(path)?;
    }
    Ok(is_ours)
}

/// Removes a link to the unit of the same name that lies in the directory above the link's, and that link's
/// directory if nothing else is in it. Returns whether there was one.
///
/// # Errors
/// The system refuses.
pub fn remove_link_blocking(link: &Path) -> io::Result<bool> {
    let Ok(target) = fs::read_link(link) else { return Ok(false) };
    if target.file_name() != link.file_name() {
        return Ok(false);
    }
    fs::remove_file(link)?;
    if let Some(directory) = link.parent() {
        // Only an empty one can be removed, and that is what is wanted.
        drop(fs::remove_dir(directory));
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
        // Nothing is left beside it either.
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
