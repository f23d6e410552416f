//! Reads and replaces a client's configuration file.
//!
//! The replacement is atomic: a new file in the same directory, synced, with the old mode and group, is renamed over the
//! old one. A symbolic link is followed, so that it stays a link.

use crate::display::full_path;
use crate::exit::CliError;
use anyhow::Context;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Size limit of a configuration file, in bytes.
pub(super) const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Mode of a new file. Such files often contain keys.
const NEW_MODE: u32 = 0o600;

/// File with its content at the time of the plan.
#[derive(Debug)]
pub(super) struct ConfigFile {
    /// The path that the client uses.
    pub(super) path: PathBuf,
    /// The path without links.
    real: PathBuf,
    /// `None` if the file does not exist.
    pub(super) text: Option<String>,
}

impl ConfigFile {
    /// # Errors
    /// The file is not a regular file of this user, is larger than [`MAX_BYTES`], is not UTF-8, or cannot be read.
    pub(super) fn read_blocking(path: PathBuf) -> anyhow::Result<Self> {
        let name = full_path(&path);
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { real: path.clone(), path, text: None });
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read {name}")),
            // The owner of a link chooses the file.
            Ok(status) if ![0, rustix::process::geteuid().as_raw()].contains(&status.uid()) => {
                let text = format!("cannot use {name}: it belongs to another user");
                return Err(CliError::failed(text).into());
            }
            Ok(_) => {}
        }

        let real = fs::canonicalize(&path).with_context(|| format!("cannot follow {name}"))?;
        let text = read_blocking(&real).with_context(|| format!("cannot use {name}"))?;
        Ok(Self { path, real, text: Some(text) })
    }

    /// Returns the directories that a write would create, the innermost first.
    pub(super) fn missing_directories_blocking(&self) -> Vec<PathBuf> {
        let above = self.real.ancestors().skip(1);
        above.take_while(|path| path.symlink_metadata().is_err()).map(Path::to_owned).collect()
    }

    /// Replaces, creates or (with `None`) removes the file.
    ///
    /// # Errors
    /// The file changed since it was read, or the error of the system call. The old file is intact.
    pub(super) fn write_blocking(&self, text: Option<&str>) -> anyhow::Result<()> {
        let name = full_path(&self.path);
        let now = match self.real.symlink_metadata() {
            Ok(status) => Some((read_blocking(&self.real)?, status)),
            Err(_) => None,
        };

        // An editor may have saved it since the plan was made.
        if now.as_ref().map(|(text, _)| text) != self.text.as_ref() {
            let text = format!("another program just changed {name}; run the command again");
            return Err(CliError::failed(text).into());
        }

        let old = now.map(|(_, status)| status);
        let done = match text {
            Some(text) => replace_blocking(&self.real, text.as_bytes(), old.as_ref()),
            None => remove_blocking(&self.real),
        };
        done.with_context(|| format!("cannot write {name}"))
    }
}

fn read_blocking(path: &Path) -> anyhow::Result<String> {
    // Before the open, which would block on a named pipe.
    let status = path.metadata()?;
    if !status.is_file() {
        return Err(CliError::failed("not a regular file").into());
    }
    if status.uid() != rustix::process::geteuid().as_raw() {
        return Err(CliError::failed("the file belongs to another user").into());
    }

    let mut bytes = Vec::new();
    // One byte more than the limit shows that the file is larger.
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if MAX_BYTES < u64::try_from(bytes.len()).unwrap_or(u64::MAX) {
        return Err(CliError::failed("the file is larger than 4 MiB").into());
    }
    String::from_utf8(bytes).map_err(|_| CliError::failed("the file is not UTF-8").into())
}

/// Replaces the file with `bytes`. Creates missing directories.
fn replace_blocking(path: &Path, bytes: &[u8], old: Option<&Metadata>) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(directory)?;

    let mut file = tempfile::Builder::new().prefix(".quackd-").tempfile_in(directory)?;
    file.write_all(bytes)?;
    if let Some(old) = old {
        let new = file.as_file().metadata()?;
        if new.gid() != old.gid() {
            let group = rustix::fs::Gid::from_raw(old.gid());
            rustix::fs::fchown(file.as_file(), None, Some(group))?;
        }
    }

    let mode = old.map_or(NEW_MODE, |old| old.mode() & 0o7777);
    file.as_file().set_permissions(Permissions::from_mode(mode))?;
    file.as_file().sync_all()?;

    file.persist(path).map_err(|failure| failure.error)?;
    // A name is on the disk when its directory is.
    File::open(directory)?.sync_all()
}

fn remove_blocking(path: &Path) -> io::Result<()> {
    fs::remove_file(path)?;
    File::open(path.parent().ok_or(io::ErrorKind::InvalidInput)?)?.sync_all()
}
