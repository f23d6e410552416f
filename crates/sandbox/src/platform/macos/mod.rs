//! The names of [`super`] for macOS.

pub(crate) mod cached;
pub(crate) mod flush;

/// True: the usual file systems ignore case.
pub(crate) const FOLDS_CASE: bool = true;

/// Beginnings of the names of extended attributes that a replaced file keeps: all.
pub(crate) const KEPT_ATTRIBUTES: &[&[u8]] = &[b""];
