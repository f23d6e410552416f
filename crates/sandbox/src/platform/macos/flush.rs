//! Systems whose file systems promise no order of data and names: the caller flushes each replaced file.

use crate::turns::NameAt;
use cap_std::fs::Dir;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// Whether the flush of `file` may come after its rename. Never.
pub(crate) fn may_follow(_file: &File) -> bool {
    false
}

/// Does nothing.
pub(crate) fn begin(_file: &File) -> io::Result<()> {
    Ok(())
}

/// Leaves the flush to the caller.
pub(crate) fn later(_file: File, _parent: &Arc<Dir>, _at: &NameAt) -> bool {
    false
}
