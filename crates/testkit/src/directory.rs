//! Temporary directories and their files.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A temporary directory by its path without links. It is used like that path, and deleted when it is dropped.
#[derive(Debug)]
pub struct TestDir {
    path: PathBuf,
    _owner: TempDir,
}

impl TestDir {
    /// Creates a directory with these directories in it, whose parents need not be named.
    #[track_caller]
    pub fn with(directories: &[&str]) -> Self {
        let owner = tempfile::tempdir().expect("a directory");
        let path = fs::canonicalize(owner.path()).expect("a path");
        for name in directories {
            fs::create_dir_all(path.join(name)).expect("create a directory");
        }
        Self { path, _owner: owner }
    }

    /// Creates an empty directory.
    #[track_caller]
    pub fn empty() -> Self {
        Self::with(&[])
    }

    /// Path without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file, and creates its parent directories.
    #[track_caller]
    pub fn write(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        write_file(self.path.join(name), content);
    }

    /// Content of a file.
    #[track_caller]
    pub fn read(&self, name: impl AsRef<Path>) -> String {
        let path = self.path.join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

impl Deref for TestDir {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl AsRef<Path> for TestDir {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

/// Writes a file, and creates its parent directories.
#[track_caller]
pub fn write_file(path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
    let path = path.as_ref();
    fs::create_dir_all(path.parent().expect("a parent")).expect("create a directory");
    fs::write(path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
