//! Listing and opening with system calls that only Linux has.

use super::stepwise::step_beneath;
use rustix::fs::{FileType, Mode, OFlags, RawDir, ResolveFlags, openat2};
use rustix::io::Errno;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::path::Path;

/// Buffer size in bytes: space for about 500 entries per system call.
const BUFFER_BYTES: usize = 32 * 1024;

/// Buffer of the listings, which is used again for each directory.
#[derive(Debug, Default)]
pub(crate) struct Buffer(Vec<u8>);

impl Buffer {
    /// Passes each entry to `add`, until it returns false.
    pub(crate) fn read(
        &mut self,
        directory: &File,
        mut add: impl FnMut(&CStr, FileType) -> bool,
    ) -> io::Result<()> {
        self.0.reserve(BUFFER_BYTES);
        let mut reader = RawDir::new(directory, self.0.spare_capacity_mut());
        while let Some(entry) = reader.next() {
            let entry = entry?;
            if !add(entry.file_name(), entry.file_type()) {
                break;
            }
        }
        Ok(())
    }
}

pub(crate) fn open_beneath(directory: &File, path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match openat2(directory, path, flags, Mode::empty(), resolve) {
        // Kernels before 5.6 do not have the call, and the filters of some containers deny it.
        Err(Errno::NOSYS | Errno::PERM) => step_beneath(directory, path),
        opened => Ok(File::from(opened?)),
    }
}
