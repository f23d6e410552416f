//! Tracks the versions of files that this session has read or written.
//!
//! A tool refuses to overwrite a file that changed since then, because the agent has not read the changes. The
//! versions are kept in the session's run directory, so that they survive an idle eviction or a crash of the
//! worker. They are not durable: a restart of the daemon clears them. If the file cannot be written, they are
//! kept in memory only.

use quackd_sandbox::FileVersion;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tokio::sync::Mutex;

/// Maximum number of tracked files. The least recently used file is dropped first.
const MAX_FILES: usize = 4096;

/// Number of lines at which the file is rewritten with one line per tracked file.
const MAX_LINES: usize = 4 * MAX_FILES;

/// Maximum number of bytes read from the file. Commands of the session can write it too.
const MAX_BYTES: u64 = 8 * 1024 * 1024;

/// Versions of the files that a session has read or written.
#[derive(Debug)]
pub(crate) struct ReadTracker(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    // INVARIANT: at most `MAX_FILES`; names are relative to the workspace, symlinks resolved.
    files: HashMap<PathBuf, TrackedVersion>,
    /// Counter that orders the entries by use.
    clock: u64,
    journal: Journal,
}

#[derive(Debug)]
struct TrackedVersion {
    version: FileVersion,
    at: u64,
}

/// Storage of the versions for the next worker.
#[derive(Debug, Default)]
enum Journal {
    /// No storage.
    #[default]
    Off,
    /// A file that is not read yet.
    At(PathBuf),
    /// An open file.
    Open { path: PathBuf, file: File, lines: usize },
}

/// One line of the file. A name that is not UTF-8 is not stored.
#[derive(Serialize, Deserialize)]
struct TrackerLine<'a>(std::borrow::Cow<'a, str>, FileVersion);

impl ReadTracker {
    /// Loads the versions from `path`, and stores new ones there.
    pub(crate) fn kept_at(path: PathBuf) -> Self {
        Self(Mutex::new(Memory { journal: Journal::At(path), ..Memory::default() }))
    }

    /// Records the version of `name` that was read or written. Do not call from async code.
    pub(crate) fn remember_blocking(&self, name: PathBuf, version: FileVersion) {
        let mut memory = self.0.blocking_lock();
        memory.read_journal();
        // A file that is read again costs no write.
        if memory.files.get(&name).is_none_or(|seen| seen.version != version) {
            memory.note(&name, version);
        }
        memory.remember(name, version, MAX_FILES);
    }

    /// Records that this version of `name` was read again. Waits for nothing. Returns false if the version is new, or if
    /// another call uses the tracker: then it has to be recorded with [`ReadTracker::remember_blocking`].
    pub(crate) fn is_known(&self, name: &Path, version: FileVersion) -> bool {
        let Ok(mut memory) = self.0.try_lock() else { return false };
        let at = memory.clock + 1;
        let seen = memory.files.get_mut(name).filter(|seen| seen.version == version);
        let is_known = seen.map(|seen| seen.at = at).is_some();
        memory.clock = at;
        is_known
    }

    /// Returns the version of `name` that was last read or written. Do not call from async code.
    pub(crate) fn version_blocking(&self, name: &Path) -> Option<FileVersion> {
        let mut memory = self.0.blocking_lock();
        memory.read_journal();
        memory.files.get(name).map(|seen| seen.version)
    }
}

impl Memory {
    fn remember(&mut self, name: PathBuf, version: FileVersion, max_files: usize) {
        self.clock += 1;
        self.files.insert(name, TrackedVersion { version, at: self.clock });
        if max_files < self.files.len() {
            // Takes about 10 µs, and only in a session that has read thousands of files.
            let oldest = self.files.iter().min_by_key(|(_, seen)| seen.at);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.files.remove(&oldest);
            }
        }
    }

    /// Loads the versions of the previous worker at the first use.
    fn read_journal(&mut self) {
        if !matches!(self.journal, Journal::At(_)) {
            return;
        }

        // `take` turns the journal off. It stays off if the file cannot be opened.
        let Journal::At(path) = std::mem::take(&mut self.journal) else { return };
        let Ok(file) = open(&path) else { return };

        let mut lines = 0;
        let mut reader = BufReader::new((&file).take(MAX_BYTES));
        let mut line = Vec::new();

        while matches!(reader.read_until(b'\n', &mut line), Ok(1..)) {
            // A crash may have cut a line. Skip it.
            if let Ok(TrackerLine(name, version)) = serde_json::from_slice(&line) {
                self.remember(PathBuf::from(&*name), version, MAX_FILES);
            }
            lines += 1;
            line.clear();
        }

        self.journal = Journal::Open { path, file, lines };
    }

    /// Stores one entry for the next worker. After the first failure nothing more is stored.
    fn note(&mut self, name: &Path, version: FileVersion) {
        let Journal::Open { path, file, lines } = &mut self.journal else { return };
        *lines += 1;
        let written = if *lines <= MAX_LINES {
            write_line(file, name, version)
        } else {
            write_anew(path, &self.files).and_then(|(anew, n_lines)| {
                (*file, *lines) = (anew, n_lines + 1);
                write_line(file, name, version)
            })
        };

        if written.is_err() {
            self.journal = Journal::Off;
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    // O_NONBLOCK: opening a FIFO of that name would block.
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits();
    let flags = i32::try_from(flags).unwrap_or(0);
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600).custom_flags(flags);
    let file = options.open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

fn write_line(mut file: &File, name: &Path, version: FileVersion) -> io::Result<()> {
    let Some(name) = name.to_str() else { return Ok(()) };
    let mut line = serde_json::to_vec(&TrackerLine(name.into(), version))?;
    line.push(b'\n');
    // In one call, so that only a full disk can cut the line.
    file.write_all(&line)
}

/// Replaces the file by one with the latest version of each name, oldest first.
fn write_anew(path: &Path, files: &HashMap<PathBuf, TrackedVersion>) -> io::Result<(File, usize)> {
    let staged = path.with_extension("new");
    // `open` appends, so the file of an interrupted rewrite must go first.
    match std::fs::remove_file(&staged) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let anew = open(&staged)?;

    let mut latest: Vec<(&PathBuf, &TrackedVersion)> = files.iter().collect();
    latest.sort_by_key(|(_, seen)| seen.at);
    for (name, seen) in &latest {
        write_line(&anew, name, seen.version)?;
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "not durable: a lost file only clears the versions"
    )]
    std::fs::rename(&staged, path)?;
    Ok((anew, latest.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_sandbox::Root;

    /// Returns two versions of one file.
    fn versions() -> (FileVersion, FileVersion) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let version = |content: &str| {
            std::fs::write(dir.path().join("a"), content).unwrap();
            root.open_file("a").unwrap().version
        };
        (version("1"), version("22"))
    }

    #[test]
    fn the_oldest_is_forgotten_and_what_is_seen_again_is_young() {
        let (old, new) = versions();
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

    #[test]
    fn the_next_worker_knows_what_this_one_has_seen() {
        let (old, new) = versions();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("seen.jsonl");
        let first = ReadTracker::kept_at(path.clone());
        first.remember_blocking("a".into(), old);
        first.remember_blocking("b \"\n".into(), old);
        first.remember_blocking("a".into(), new);
        // The last line was cut off.
        let mut torn = OpenOptions::new().append(true).open(&path).unwrap();
        torn.write_all(b"[\"a\",{\"fi").unwrap();
        let second = ReadTracker::kept_at(path.clone());
        assert_eq!(second.version_blocking(Path::new("a")), Some(new));
        assert_eq!(second.version_blocking(Path::new("b \"\n")), Some(old));
        assert_eq!(second.version_blocking(Path::new("c")), None);
        let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn the_kept_file_stays_bounded() {
        let (old, new) = versions();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("seen.jsonl");
        let seen = ReadTracker::kept_at(path.clone());
        for n in 0..=MAX_LINES {
            let version = if n / 10 % 2 == 0 { old } else { new };
            seen.remember_blocking(format!("file {}", n % 10).into(), version);
        }
        seen.remember_blocking("last".into(), new);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.lines().count() < 20, "{}", text.lines().count());
        let next = ReadTracker::kept_at(path);
        assert_eq!(next.version_blocking(Path::new("file 3")), Some(old));
        assert_eq!(next.version_blocking(Path::new("last")), Some(new));
    }

    #[test]
    fn whatever_stands_in_its_place_is_not_waited_for_and_not_followed() {
        let (old, _) = versions();
        let dir = tempfile::tempdir().unwrap();
        let [fifo, link, folder] = ["fifo", "link", "folder"].map(|name| dir.path().join(name));
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::os::unix::fs::symlink(dir.path().join("outside"), &link).unwrap();
        std::fs::create_dir(&folder).unwrap();
        for path in [fifo, link, folder, dir.path().join("no/such")] {
            let seen = ReadTracker::kept_at(path.clone());
            seen.remember_blocking("a".into(), old);
            assert_eq!(seen.version_blocking(Path::new("a")), Some(old), "{}", path.display());
        }
        assert!(!dir.path().join("outside").exists());
    }
}
