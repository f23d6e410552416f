//! Listing and opening with system calls that every system has.

use rustix::fs::{Dir, FileType};
use std::ffi::CStr;
use std::fs::File;
use std::io;

pub(crate) use super::stepwise::step_beneath as open_beneath;

/// Buffer of the listings: none, because `Dir` has its own.
#[derive(Debug, Default)]
pub(crate) struct Buffer;

impl Buffer {
    /// Passes each entry to `add`, until it returns false.
    #[expect(clippy::unused_self, reason = "as on Linux")]
    pub(crate) fn read(
        &mut self,
        directory: &File,
        mut add: impl FnMut(&CStr, FileType) -> bool,
    ) -> io::Result<()> {
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            if !add(entry.file_name(), entry.file_type()) {
                break;
            }
        }
        Ok(())
    }
}
