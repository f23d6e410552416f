//! A tree of files for tests.

use crate::tree::Tree;
use quackd_testkit::TestDir;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// A temporary directory with files.
pub(crate) struct Files(pub(crate) TestDir);

impl Files {
    pub(crate) fn new(files: &[(&str, &[u8])]) -> Self {
        let files_here = Self(TestDir::empty());
        for (name, content) in files {
            files_here.write(name, content);
        }
        files_here
    }

    pub(crate) fn write(&self, name: &str, content: &[u8]) {
        self.0.write(name, content);
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// Opens a path without following a link or waiting for a FIFO.
pub(crate) fn open(path: &Path, flags: rustix::fs::OFlags) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

impl Tree for Files {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn open_file(&self, relative: &Path) -> io::Result<File> {
        open(&self.0.join(relative), rustix::fs::OFlags::empty())
    }

    fn open_directory(&self, relative: &Path) -> io::Result<File> {
        open(&self.0.join(relative), rustix::fs::OFlags::DIRECTORY)
    }
}
