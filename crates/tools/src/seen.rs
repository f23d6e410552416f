//! What this session has seen of its files: the state in which it last read or wrote each of them.
//!
//! A file that others changed since then is not overwritten: who writes it has not read what would be
//! lost. Memory of the process only; after a restart every file counts as not seen.

use quackd_sandbox::FileVersion;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use tokio::sync::Mutex;

/// Files that are remembered; the one that was not read or written for longest is forgotten first.
const MAX_FILES: usize = 4096;

/// The files of a session that were read or written.
#[derive(Debug, Default)]
pub(crate) struct SeenFiles(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    // INVARIANT: at most `MAX_FILES`; names are relative to the workspace, symlinks resolved.
    files: HashMap<PathBuf, Seen>,
    /// Counts up, so that the oldest entry is known.
    clock: u64,
}

#[derive(Debug)]
struct Seen {
    version: FileVersion,
    at: u64,
}

impl SeenFiles {
    /// Remembers the state in which `name` was read or written. Not to be called from async code.
    pub(crate) fn remember_blocking(&self, name: PathBuf, version: FileVersion) {
        self.0.blocking_lock().remember(name, version, MAX_FILES);
    }

    /// The state in which `name` was last read or written. Not to be called from async code.
    pub(crate) fn version_blocking(&self, name: &Path) -> Option<FileVersion> {
        self.0.blocking_lock().files.get(name).map(|seen| seen.version)
    }
}

impl Memory {
    fn remember(&mut self, name: PathBuf, version: FileVersion, max_files: usize) {
        self.clock += 1;
        self.files.insert(name, Seen { version, at: self.clock });
        if max_files < self.files.len() {
            // Some ten microseconds, and only in a session that has read thousands of files.
            let oldest = self.files.iter().min_by_key(|(_, seen)| seen.at);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.files.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_sandbox::Root;

    #[test]
    fn the_oldest_is_forgotten_and_what_is_seen_again_is_young() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let version = |content: &str| {
            std::fs::write(dir.path().join("a"), content).unwrap();
            root.open_file("a").unwrap().version
        };
        let (old, new) = (version("1"), version("22"));
        let mut memory = Memory::default();
        for name in ["a", "b", "a", "c"] {
            memory.remember(name.into(), old, 2);
        }
        memory.remember("c".into(), new, 2);
        let mut left: Vec<_> =
            memory.files.iter().map(|(name, seen)| (name, seen.version)).collect();
        left.sort_by_key(|(name, _)| *name);
        assert_eq!(left, [(&PathBuf::from("a"), old), (&PathBuf::from("c"), new)]);
    }
}
