//! The log's files: the current one, and a fixed number of older ones.
//!
//! Keeps their total size below their number times their maximum size. Called by the log's own thread, through
//! [`super::dedup`].

use quackd_home::own_file::append_blocking;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Interval of the checks whether the path still names the open file.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Writes complete lines to a file, which is rotated when it is full. A failed write drops the line and is counted.
#[derive(Debug)]
pub(super) struct RotatingFile {
    path: PathBuf,
    max_bytes: u64,
    /// Number of older files.
    n_older: usize,
    /// `None` if it could not be opened. The next line tries again.
    file: Option<File>,
    /// Size of the open file.
    bytes: u64,
    looked: Instant,
    failed: Arc<AtomicU64>,
}

impl RotatingFile {
    /// Opens nothing yet. `max_bytes` is the maximum size of a file, and `failed` counts the dropped lines.
    pub(super) fn new(path: &Path, max_bytes: u64, n_older: usize, failed: Arc<AtomicU64>) -> Self {
        Self {
            path: path.to_owned(),
            max_bytes,
            n_older,
            file: None,
            bytes: 0,
            looked: Instant::now(),
            failed,
        }
    }

    /// Writes one line. A full disk may truncate it.
    pub(super) fn line(&mut self, line: &[u8]) {
        if self.try_line(line).is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn try_line(&mut self, line: &[u8]) -> io::Result<()> {
        let n_bytes = line.len() as u64;
        if FILE_CHECK_INTERVAL <= self.looked.elapsed() {
            self.looked = Instant::now();
            // The next line goes to a new file at the path.
            if !self.has_its_name() {
                self.file = None;
            }
        }

        if self.file.is_none() {
            let file = append_blocking(&self.path)?;
            self.bytes = file.metadata()?.len();
            self.file = Some(file);
        }

        // An empty file takes a line of any length.
        if self.bytes != 0 && self.max_bytes < self.bytes.saturating_add(n_bytes) {
            self.rotate()?;
        }

        // Opened above, or by the rotation.
        let Some(file) = &mut self.file else { return Err(io::ErrorKind::NotFound.into()) };
        // The written part of a truncated line counts.
        let written = file.write_all(line);
        match &written {
            Ok(()) => self.bytes = self.bytes.saturating_add(n_bytes),
            Err(_) => self.bytes = file.metadata().map_or(self.bytes, |file| file.len()),
        }
        written
    }

    /// Returns whether the path still names the open file. The user may have deleted or moved it.
    fn has_its_name(&self) -> bool {
        let Some(Ok(ours)) = self.file.as_ref().map(File::metadata) else { return false };
        let named = std::fs::symlink_metadata(&self.path);
        named.is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino()))
    }

    /// Renames each file to the next number. The last file is replaced and thus deleted.
    fn rotate(&mut self) -> io::Result<()> {
        // From the last to the first, so that no rename replaces a file that is still needed.
        for n in (1..=self.n_older).rev() {
            let from = if n == 1 { self.path.clone() } else { older(&self.path, n - 1) };
            #[expect(clippy::disallowed_methods, reason = "a log need not survive a power cut")]
            match std::fs::rename(from, older(&self.path, n)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                // Fewer files than the maximum exist until the log has been full that often.
                _ => {}
            }
        }

        // If opening fails, the next line tries again.
        self.file = None;
        self.file = Some(append_blocking(&self.path)?);
        self.bytes = 0;
        Ok(())
    }
}

/// Returns the path of the `n`th older file, the newest of which is 1.
fn older(path: &Path, n: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{n}"));
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(dir: &Path) -> Vec<(String, u64)> {
        let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
        let mut sizes: Vec<_> = entries
            .map(|it| (it.file_name().into_string().unwrap(), it.metadata().unwrap().len()))
            .collect();
        sizes.sort();
        sizes
    }

    fn file(path: &Path, max_bytes: u64) -> RotatingFile {
        RotatingFile::new(path, max_bytes, 4, Arc::default())
    }

    #[test]
    fn the_newest_lines_are_kept_in_files_of_a_bounded_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("l");
        let mut log = file(&path, 10);
        for n in 0..100 {
            log.line(format!("{n:03}\n").as_bytes());
        }
        let names = ["l", "l.1", "l.2", "l.3", "l.4"];
        assert_eq!(sizes(dir.path()), names.map(|name| (name.to_owned(), 8)));
        let text = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!((text("l"), text("l.4")), ("098\n099\n".into(), "090\n091\n".into()));
        // The next daemon continues in the same file.
        file(&path, 10).line(b"100\n");
        assert_eq!((text("l"), text("l.1")), ("100\n".into(), "098\n099\n".into()));
    }

    #[test]
    fn a_file_that_is_deleted_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("l");
        let mut log = file(&path, 100);
        log.line(b"one\n");
        std::fs::remove_file(&path).unwrap();
        log.looked = Instant::now().checked_sub(FILE_CHECK_INTERVAL).unwrap();
        log.line(b"two\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
    }

    #[test]
    fn a_link_that_is_put_in_its_place_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, victim) = (dir.path().join("l"), dir.path().join("victim"));
        std::fs::write(&victim, "precious").unwrap();
        let mut log = file(&path, 10);
        log.line(b"one\n");
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        log.looked = Instant::now().checked_sub(FILE_CHECK_INTERVAL).unwrap();
        log.line(b"two\n");
        assert_eq!(log.failed.load(Ordering::Relaxed), 1);
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        // Only the user removes such a file.
        std::fs::remove_file(&path).unwrap();
        log.line(b"three\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "three\n");
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_the_next_line_tries_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/l");
        let mut log = file(&path, 100);
        log.line(b"one\n");
        assert_eq!(log.failed.load(Ordering::Relaxed), 1);
        std::fs::create_dir(dir.path().join("deep")).unwrap();
        log.line(b"two\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(log.failed.load(Ordering::Relaxed), 1);
    }
}
