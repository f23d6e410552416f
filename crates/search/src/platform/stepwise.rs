//! Opens a directory name by name. Both systems use it.

use rustix::fs::{Mode, OFlags, openat};
use std::fs::File;
use std::io;
use std::path::Path;

/// Opens a directory under another one and follows no link.
pub(crate) fn step_beneath(directory: &File, path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut here: Option<File> = None;
    for name in path {
        let from = here.as_ref().unwrap_or(directory);
        here = Some(File::from(openat(from, name, flags, Mode::empty())?));
    }
    here.ok_or_else(|| io::ErrorKind::NotFound.into())
}
