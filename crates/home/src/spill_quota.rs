//! Quota for spill files, which contain the full output of commands, and for recordings of terminals. The supervisor
//! calls it whenever a worker may have written one.
//!
//! A worker owns its run directory and is not trusted: it may have replaced the directory with a link. So all
//! access uses directory handles that were opened without following links.

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat, unlinkat};
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;

/// Maximum number of files to inspect. A session keeps at most a few dozen.
const MAX_FILES: usize = 200_000;

/// Suffixes of spill files, and of recordings of terminals.
const SUFFIXES: [&[u8]; 2] = [b".log", b".cast"];

/// Spill files found and deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TrimStats {
    /// Disk usage of all spill files before the deletion, in bytes.
    pub found: u64,
    /// Disk usage of the deleted files, in bytes.
    pub deleted: u64,
    /// Number of deleted files.
    pub files: usize,
}

/// Deletes the oldest spill files (`run_dir/SESSION/NAME.log` or `.cast`) until the others use at most `max_bytes`.
/// Files that disappear during the scan are ignored. Blocks on the disk.
///
/// # Errors
/// `run_dir` cannot be read.
pub fn trim_spills_blocking(run_dir: &Path, max_bytes: u64) -> io::Result<TrimStats> {
    let mut files = spill_files(run_dir)?;
    let found = files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.bytes));
    let mut trimmed = TrimStats { found, ..TrimStats::default() };
    if found <= max_bytes {
        return Ok(trimmed);
    }

    files.sort_unstable_by_key(|file| file.modified);
    for file in files {
        if found.saturating_sub(trimmed.deleted) <= max_bytes {
            break;
        }
        if unlinkat(&*file.dir, file.name.as_c_str(), AtFlags::empty()).is_ok() {
            trimmed.deleted = trimmed.deleted.saturating_add(file.bytes);
            trimmed.files += 1;
        }
    }

    Ok(trimmed)
}

struct SpillFile {
    dir: Rc<OwnedFd>,
    name: CString,
    bytes: u64,
    /// Seconds and nanoseconds of the last change.
    modified: (i64, u64),
}

fn spill_files(run_dir: &Path) -> io::Result<Vec<SpillFile>> {
    let root = open_dir(CWD, run_dir)?;
    let mut files = Vec::new();
    for session in Dir::read_from(&root)?.flatten() {
        let name = session.file_name();
        if name.to_bytes().starts_with(b".") {
            continue;
        }

        // Not a directory, or deleted since it was listed.
        let Ok(dir) = open_dir(&root, name) else { continue };
        let Ok(entries) = Dir::read_from(&dir) else { continue };

        let dir = Rc::new(dir);
        for entry in entries.flatten() {
            if MAX_FILES <= files.len() {
                return Ok(files);
            }

            let name = entry.file_name();
            if !SUFFIXES.iter().any(|suffix| name.to_bytes().ends_with(suffix)) {
                continue;
            }

            let Ok(stat) = statat(&*dir, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
                files.push(SpillFile {
                    dir: Rc::clone(&dir),
                    name: name.to_owned(),
                    // Disk usage. Less than the file size if the file has holes.
                    bytes: u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512),
                    modified: modified(&stat),
                });
            }
        }
    }
    Ok(files)
}

fn open_dir<P: rustix::path::Arg>(at: impl std::os::fd::AsFd, path: P) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(at, path, flags, Mode::empty())?)
}

#[expect(clippy::useless_conversion, reason = "the types of these fields differ by system")]
fn modified(stat: &rustix::fs::Stat) -> (i64, u64) {
    (i64::from(stat.st_mtime), u64::try_from(stat.st_mtime_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::{Duration, SystemTime};

    /// Creates a file of `kib` KiB that was changed `age` seconds ago.
    fn file(dir: &Path, name: &str, kib: usize, age: u64) {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join(name), vec![b'x'; kib * 1024]).unwrap();
        let file = fs::File::options().write(true).open(dir.join(name)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
    }

    #[test]
    fn the_oldest_go_first_whosever_they_are_and_nothing_else() {
        let run = tempfile::tempdir().unwrap();
        let (a, b) = (run.path().join("a"), run.path().join("b"));
        file(&a, "bash-1.log", 64, 30);
        file(&a, "bash-2.log", 64, 10);
        file(&b, "job-1.log", 64, 20);
        file(&b, "seen.journal", 640, 90);
        file(run.path(), "stray.log", 640, 90);

        let all = trim_spills_blocking(run.path(), 1 << 30).unwrap();
        assert_eq!(all, TrimStats { found: 192 * 1024, deleted: 0, files: 0 });
        let trimmed = trim_spills_blocking(run.path(), 64 * 1024).unwrap();
        assert_eq!((trimmed.deleted, trimmed.files), (128 * 1024, 2));
        assert!(a.join("bash-2.log").exists());
        assert!(!a.join("bash-1.log").exists() && !b.join("job-1.log").exists());
        assert!(b.join("seen.journal").exists() && run.path().join("stray.log").exists());
    }

    #[test]
    fn a_link_leads_nowhere() {
        let (run, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        file(outside.path(), "precious.log", 64, 90);
        std::os::unix::fs::symlink(outside.path(), run.path().join("session")).unwrap();
        let inside = run.path().join("other");
        fs::create_dir(&inside).unwrap();
        std::os::unix::fs::symlink(outside.path().join("precious.log"), inside.join("x.log"))
            .unwrap();
        assert_eq!(trim_spills_blocking(run.path(), 0).unwrap(), TrimStats::default());
        assert!(outside.path().join("precious.log").exists());
    }
}
