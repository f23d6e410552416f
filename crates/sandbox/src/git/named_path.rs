//! Resolves a path of git's configuration. Pure.

use super::openat;
use std::path::{Path, PathBuf};

/// Resolves a value to an absolute path without `..`. `None` if it is empty or in an unknown home.
pub(crate) fn resolve(value: &str, from: &Path, home: Option<&Path>) -> Option<PathBuf> {
    openat::normalise(&locate(value, from, home)?)
}

/// Like [`resolve`], but keeps `..`, which after a link leads elsewhere.
pub(super) fn locate(value: &str, from: &Path, home: Option<&Path>) -> Option<PathBuf> {
    match value.strip_prefix("~/") {
        Some(rest) => Some(home?.join(rest)),
        None if value.is_empty() || value.starts_with('~') || value.contains('\0') => None,
        None => Some(from.join(value)),
    }
}
