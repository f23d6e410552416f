//! The files of the journal of calls: `journal/<start>.jsonl` in the state directory, where `<start>` is the time of
//! the first line in milliseconds since 1970.
//!
//! One writer, in the daemon, appends to the newest file. It begins another one each day and when a file is full, so
//! that old calls can be deleted as whole files. Readers need no daemon.

use crate::own_file::{append_blocking, read_blocking};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A file is full at this fraction of the total size.
const FILES_PER_JOURNAL: u64 = 8;

/// Least and largest size at which a file is full, in bytes.
const FULL_BYTES: (u64, u64) = (64 * 1024, 16 * 1024 * 1024);

/// Largest file that is read, in bytes. The last line of a full file may exceed its limit.
const MAX_FILE_BYTES: u64 = 2 * FULL_BYTES.1;

/// Maximum number of files that are listed.
const MAX_FILES: usize = 10_000;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Retention of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalLimits {
    /// Age at which calls are deleted, on the day on which their whole file has reached it.
    pub kept: Duration,
    /// Total size of the files, in bytes.
    pub max_bytes: u64,
}

/// One file of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalFile {
    /// Absolute path.
    pub path: PathBuf,
    /// Time of its first line, in milliseconds since 1970.
    pub start_ms: i64,
    /// Size in bytes.
    pub n_bytes: u64,
}

/// Lists the files, oldest first. Without the directory there are none.
///
/// # Errors
/// Those of the file system.
pub fn files_blocking(dir: &Path) -> io::Result<Vec<JournalFile>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };

    let mut files = Vec::new();
    for entry in entries.take(MAX_FILES) {
        let entry = entry?;
        let name = entry.file_name();
        let start = name.to_str().and_then(|name| name.strip_suffix(".jsonl"));
        let Some(start_ms) = start.and_then(|start| start.parse().ok()) else { continue };
        // A reader holds no lock, so the daemon may have deleted the file since the listing.
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_file() {
            files.push(JournalFile { path: entry.path(), start_ms, n_bytes: metadata.len() });
        }
    }
    files.sort_by_key(|file| file.start_ms);
    Ok(files)
}

/// Reads one file. A file that was deleted since it was listed is empty.
///
/// # Errors
/// Those of the file system, and of a file that is too large or not ours.
pub fn read_file_blocking(file: &JournalFile) -> io::Result<Vec<u8>> {
    match read_blocking(&file.path, MAX_FILE_BYTES) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        read => read,
    }
}

/// Deletes files whose calls are all too old, and the oldest files beyond the total size. The newest file is kept
/// unless it is too old.
///
/// # Errors
/// Those of the file system. The other files are deleted nevertheless.
pub fn prune_blocking(dir: &Path, limits: JournalLimits, now: SystemTime) -> io::Result<()> {
    let files = files_blocking(dir)?;
    let kept_ms = i64::try_from(limits.kept.as_millis()).unwrap_or(i64::MAX);
    let oldest_ms = milliseconds(now).saturating_sub(kept_ms);
    let mut n_bytes: u64 = files.iter().map(|file| file.n_bytes).sum();
    let mut first_error = Ok(());

    for (at, file) in files.iter().enumerate() {
        let (is_last, end_ms) = match files.get(at + 1) {
            Some(next) => (false, next.start_ms),
            None => (true, last_change_ms(&file.path)),
        };

        let is_too_old = end_ms <= oldest_ms;
        let is_too_much = limits.max_bytes < n_bytes && !is_last;
        if !is_too_old && !is_too_much {
            continue;
        }

        match std::fs::remove_file(&file.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => first_error = Err(error),
            _ => n_bytes = n_bytes.saturating_sub(file.n_bytes),
        }
    }
    first_error
}

/// Returns the time of the last change of a file; the end of time if it is unknown.
fn last_change_ms(path: &Path) -> i64 {
    let changed = std::fs::symlink_metadata(path);
    changed.map_or(i64::MAX, |metadata| metadata.mtime().saturating_mul(1000))
}

fn milliseconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Appends lines to the newest file. A write that fails loses its line; the next one tries again.
#[derive(Debug)]
pub struct JournalWriter {
    dir: PathBuf,
    limits: JournalLimits,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    path: PathBuf,
    start_ms: i64,
    n_bytes: u64,
    /// A write failed in the middle of a line.
    is_torn: bool,
}

impl JournalWriter {
    /// Opens nothing yet.
    #[must_use]
    pub fn new(dir: PathBuf, limits: JournalLimits) -> Self {
        Self { dir, limits, open: None }
    }

    /// Appends one line, which ends with a line break.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn line_blocking(&mut self, line: &[u8], now: SystemTime) -> io::Result<()> {
        let now_ms = milliseconds(now);
        let full = (self.limits.max_bytes / FILES_PER_JOURNAL).clamp(FULL_BYTES.0, FULL_BYTES.1);

        let serves = |open: &Open| {
            let same_day = open.start_ms.div_euclid(DAY_MS) == now_ms.div_euclid(DAY_MS);
            same_day && open.n_bytes < full && open.path.exists()
        };
        if !self.open.as_ref().is_some_and(serves) {
            self.open = None;
            self.open = Some(self.next_file_blocking(now, serves)?);
        }

        let Some(open) = &mut self.open else { return Ok(()) };
        // Ends the torn line, so that only that one is unreadable.
        let written = if open.is_torn {
            open.file.write_all(b"\n").and_then(|()| open.file.write_all(line))
        } else {
            open.file.write_all(line)
        };

        open.is_torn = written.is_err();
        if written.is_ok() {
            open.n_bytes = open.n_bytes.saturating_add(line.len() as u64);
        }
        written
    }

    /// Opens the newest file if it serves, else a new one. Deletes what is too old or too much.
    fn next_file_blocking(
        &self,
        now: SystemTime,
        serves: impl Fn(&Open) -> bool,
    ) -> io::Result<Open> {
        let mut create = std::fs::DirBuilder::new();
        match create.mode(0o700).create(&self.dir) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }

        // Files that cannot be deleted do not keep the daemon from writing.
        prune_blocking(&self.dir, self.limits, now).ok();

        let newest = files_blocking(&self.dir)?.pop();
        let mut start_ms = milliseconds(now);
        if let Some(newest) = newest {
            let open = Self::opened(newest.path, newest.start_ms)?;
            if serves(&open) {
                return Ok(open);
            }
            // After the clock was set back, the order of the files is that of their lines.
            start_ms = start_ms.max(newest.start_ms.saturating_add(1));
        }
        Self::opened(self.dir.join(format!("{start_ms:013}.jsonl")), start_ms)
    }

    fn opened(path: PathBuf, start_ms: i64) -> io::Result<Open> {
        let file = append_blocking(&path)?;
        let n_bytes = file.metadata()?.len();
        // A daemon that was killed may have left half a line.
        Ok(Open { file, path, start_ms, n_bytes, is_torn: n_bytes != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn limits(days: u32, max_bytes: u64) -> JournalLimits {
        JournalLimits { kept: DAY * days, max_bytes }
    }

    fn names(dir: &Path) -> Vec<String> {
        let files = files_blocking(dir).unwrap();
        files.iter().map(|it| it.path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn each_day_has_its_file_and_old_days_are_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("journal");
        let mut writer = JournalWriter::new(dir.clone(), limits(3, 1 << 20));
        let begin = UNIX_EPOCH + DAY * 20_000;
        for day in 0..10 {
            for line in 0..3 {
                let now = begin + DAY * day + Duration::from_secs(line);
                writer.line_blocking(b"{}\n", now).unwrap();
            }
        }
        let first = 20_000 * DAY_MS + 6 * DAY_MS;
        let kept: Vec<String> =
            (0..4).map(|n| format!("{:013}.jsonl", first + n * DAY_MS)).collect();
        assert_eq!(names(&dir), kept);
        let file = &files_blocking(&dir).unwrap()[0];
        assert_eq!(read_file_blocking(file).unwrap(), b"{}\n{}\n{}\n");
        let mode = file.path.metadata().unwrap().mode() & 0o777;
        assert_eq!((mode, dir.metadata().unwrap().mode() & 0o777), (0o600, 0o700));
    }

    #[test]
    fn the_total_size_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let max_bytes = 8 * FULL_BYTES.0;
        let mut writer = JournalWriter::new(dir.path().to_owned(), limits(30, max_bytes));
        let line = [vec![b'x'; 10_000], vec![b'\n']].concat();
        let now = UNIX_EPOCH + DAY * 20_000;
        for n in 0..500 {
            writer.line_blocking(&line, now + Duration::from_millis(n)).unwrap();
        }
        let n_bytes: u64 = files_blocking(dir.path()).unwrap().iter().map(|it| it.n_bytes).sum();
        assert!(n_bytes <= max_bytes + 2 * FULL_BYTES.0, "{n_bytes}");
        assert!(max_bytes / 2 < n_bytes, "{n_bytes}");
    }

    #[test]
    fn a_new_writer_goes_on_behind_half_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let now = UNIX_EPOCH + DAY * 20_000;
        let write = |line: &[u8], now| {
            let mut writer = JournalWriter::new(dir.path().to_owned(), limits(30, 1 << 20));
            writer.line_blocking(line, now).unwrap();
        };
        write(b"{\"half", now);
        write(b"{}\n", now);
        // The clock was set back by a week.
        write(b"{}\n", now - DAY * 7);
        let files = files_blocking(dir.path()).unwrap();
        assert_eq!(read_file_blocking(&files[0]).unwrap(), b"{\"half\n{}\n");
        assert_eq!(files[1].start_ms, files[0].start_ms + 1);
    }

    #[test]
    fn files_of_others_are_neither_listed_nor_deleted() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["notes.txt", "x.jsonl", "12.json"] {
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        std::fs::create_dir(dir.path().join("5.jsonl")).unwrap();
        std::os::unix::fs::symlink("notes.txt", dir.path().join("6.jsonl")).unwrap();
        assert!(files_blocking(dir.path()).unwrap().is_empty());
        prune_blocking(dir.path(), limits(0, 0), SystemTime::now()).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 5);
        assert!(files_blocking(&dir.path().join("none")).unwrap().is_empty());
    }
}
