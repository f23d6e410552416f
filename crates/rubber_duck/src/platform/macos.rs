//! The names of [`super`] for macOS.

/// True: a file itself is watched. kqueue reports a write to a directory without the name of the entry.
pub(crate) const WATCHES_FILES: bool = true;
