//! Systems other than Linux. The supervisor's helpers are not confined there: `sandbox-exec` confines the programs that it
//! starts, as it does commands.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Mounts of the host's files. A session makes none here.
#[derive(Debug)]
pub struct MountSources;

impl MountSources {
    /// Returns false.
    #[must_use]
    pub fn have_changed_blocking(&self) -> bool {
        false
    }
}

/// Returns `None`: no name is pinned here.
#[must_use]
pub fn first_unpinned_blocking(_pins: &[PathBuf]) -> Option<&Path> {
    None
}

/// Returns false: the login shell is not confined here.
#[must_use]
pub fn can_confine_login_shell() -> bool {
    false
}

/// Returns `Some(false)`: a session makes no mounts here.
///
/// # Errors
/// Never, unlike on Linux.
pub fn is_mount_point(_directory: impl AsFd, _name: &Path) -> io::Result<Option<bool>> {
    Ok(Some(false))
}

/// Returns the missing layer.
///
/// # Errors
/// Never, unlike on Linux.
pub fn enter_proxy() -> io::Result<Vec<String>> {
    Ok(vec!["this system has no confinement for the network proxy".to_owned()])
}

/// Fails: there are no isolated sessions here.
///
/// # Errors
/// Always, unlike on Linux.
pub fn enter_isolate(_readable: &[PathBuf], _writable: &[PathBuf]) -> io::Result<()> {
    Err(io::Error::other("isolated sessions need Linux"))
}

/// Returns `None`: there are no isolated sessions here.
#[must_use]
pub fn user_excludes_blocking(_home: &Path, _workspace: &Path) -> Option<String> {
    None
}

/// Returns the missing layer.
///
/// # Errors
/// Never, unlike on Linux.
pub fn enter_agent() -> io::Result<Vec<String>> {
    Ok(vec!["this system has no confinement for the agent".to_owned()])
}
