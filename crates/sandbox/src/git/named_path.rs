//! Resolves a path of git's configuration. Pure.

use super::openat;
use std::path::{Path, PathBuf};

/// Resolves a value to an absolute path. `None` if it is empty or in an unknown home.
pub(crate) fn resolve(value: &str, from: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let path = match value.strip_prefix("~/") {
        Some(rest) => home?.join(rest),
        None if value.is_empty() || value.starts_with('~') || value.contains('\0') => return None,
        None => from.join(value),
    };
    openat::normalise(&path)
}
