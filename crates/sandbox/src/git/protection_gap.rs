//! What a session has of the files that git runs or reads, although it should not. Called by the search for named
//! files and by the protection of repositories.

use std::path::PathBuf;

/// A path that could not be protected in the usual way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectionGap {
    /// Absolute path.
    pub path: PathBuf,
    /// Description of the gap, to be read after the path.
    pub what: &'static str,
}
