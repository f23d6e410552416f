//! A name that commands of a session must not replace. Planned by the protection of repositories, and enforced by
//! mounts or by the profile of macOS.

use std::path::PathBuf;

/// Path that cannot be renamed, replaced or removed. On Linux it is bind-mounted onto itself after all other mounts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pin {
    /// Absolute path, in a session and on the host.
    pub at: PathBuf,
    /// True to also forbid changes of the content.
    pub read_only: bool,
}
