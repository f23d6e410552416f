//! The names of [`super`] for Linux.

pub(crate) mod cached;
pub(crate) mod flush;

/// False: the usual file systems distinguish case.
pub(crate) const FOLDS_CASE: bool = false;

/// Beginnings of the names of extended attributes that a replaced file keeps: user attributes and the access list. The
/// system creates the others, or only root may set them.
pub(crate) const KEPT_ATTRIBUTES: &[&[u8]] = &[b"user.", b"system.posix_acl_access"];
