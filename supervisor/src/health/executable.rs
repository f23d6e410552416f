//! The program file that this daemon was started from, and whether the file on disk is still the same.
//! [`crate::service::daemon`] records it. `doctor` and `quack.daemon` check it on the blocking pool.
//!
//! The daemon keeps running with its own open file, but the user should know about an upgrade.

use quackd_protocol::client::{ExecutableInfo, ExecutableState};
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum size of a program that is compared byte by byte, in bytes.
const MAX_COMPARED: u64 = 512 * 1024 * 1024;

/// One instance per daemon.
#[derive(Debug, Clone)]
pub(crate) struct Executable {
    path: PathBuf,
    /// The file at startup. `None` if it could not be read.
    recorded: Option<Metadata>,
}

impl Executable {
    /// Records the file of this process. `called` is the first argument of the process. A service manager uses the path
    /// from which it starts the next daemon, which may be a link that an upgrade changes.
    pub(crate) fn record_blocking(called: Option<OsString>) -> Self {
        let running = std::env::current_exe().unwrap_or_default();
        let recorded = running.metadata().ok();

        let called = called.map(PathBuf::from).filter(|path| path.is_absolute());
        // Only a path that leads to the running file: the first argument may be anything.
        let leads_here = |path: &PathBuf| {
            let files = path.metadata().ok().zip(recorded.as_ref());
            files.is_some_and(|(file, recorded)| identity(&file) == identity(recorded))
        };
        Self { path: called.filter(leads_here).unwrap_or(running), recorded }
    }

    /// Returns the path from which the next daemon is started.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn path_text(&self) -> String {
        self.path.display().to_string()
    }

    /// Returns the path, and whether its file was replaced or deleted.
    pub(crate) fn check_blocking(&self) -> ExecutableInfo {
        let state = match (self.path.metadata(), &self.recorded) {
            (Err(error), _) if error.kind() == io::ErrorKind::NotFound => ExecutableState::Deleted,
            (Err(_), _) | (_, None) => ExecutableState::Unknown,
            (Ok(file), Some(recorded)) => self.compared(&file, recorded),
        };
        ExecutableInfo { path: self.path_text(), state }
    }

    fn compared(&self, file: &Metadata, recorded: &Metadata) -> ExecutableState {
        if identity(file) == identity(recorded) {
            return ExecutableState::Current;
        }

        // The same version may have been installed again.
        let may_be_same = file.len() == recorded.len() && file.len() <= MAX_COMPARED;
        // The open program of this process: its path may lead to another file by now.
        let running = Path::new("/proc/self/exe");
        match may_be_same.then(|| has_same_content(&self.path, running)) {
            Some(Ok(true)) => ExecutableState::Current,
            _ => ExecutableState::Replaced,
        }
    }
}

/// Returns device, inode, size and time of the last change, which together change with each upgrade.
fn identity(file: &Metadata) -> (u64, u64, u64, (i64, i64)) {
    (file.dev(), file.ino(), file.len(), (file.mtime(), file.mtime_nsec()))
}

fn has_same_content(first: &Path, other: &Path) -> io::Result<bool> {
    let (mut first, mut other) = (File::open(first)?, File::open(other)?);
    // In chunks, because programs are large.
    let chunk = |file: &mut File| {
        let mut bytes = Vec::new();
        file.take(64 * 1024).read_to_end(&mut bytes).map(|_length| bytes)
    };

    loop {
        let (left, right) = (chunk(&mut first)?, chunk(&mut other)?);
        if left != right {
            return Ok(false);
        }
        if left.is_empty() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::HAS_PROC;

    #[test]
    fn a_program_that_is_replaced_or_gone_is_noticed_and_the_same_once_more_is_not() {
        // Contents are compared where a process finds its own file.
        if !HAS_PROC {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("quack");
        let running = std::env::current_exe().unwrap();
        std::fs::hard_link(&running, &path)
            .or_else(|_| std::fs::copy(&running, &path).map(drop))
            .unwrap();
        let exe = Executable { path: path.clone(), recorded: path.metadata().ok() };
        let state = |exe: &Executable| exe.check_blocking().state;
        assert_eq!(state(&exe), ExecutableState::Current);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(state(&exe), ExecutableState::Deleted);
        std::fs::copy(&running, &path).unwrap();
        assert_eq!(state(&exe), ExecutableState::Current);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "another program").unwrap();
        assert_eq!(state(&exe), ExecutableState::Replaced);
        let nothing = Executable { path, recorded: None };
        assert_eq!(state(&nothing), ExecutableState::Unknown);
    }

    #[test]
    fn a_name_that_leads_to_this_program_is_kept_and_another_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("quack");
        let running = std::env::current_exe().unwrap();
        std::os::unix::fs::symlink(&running, &link).unwrap();
        assert_eq!(Executable::record_blocking(Some(link.clone().into())).path, link);
        for other in [Some(OsString::from("/bin/sh")), Some("quack".into()), None] {
            assert_eq!(Executable::record_blocking(other).path, running);
        }
    }
}
