//! Quarantine of bad files: moves them aside and never overwrites them. Keeps the newest five.

use crate::replace::{move_aside_blocking, with_suffix};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of quarantined files; the oldest is deleted first.
const MAX_QUARANTINED: usize = 5;

/// Moves an unusable file to `<path>.corrupt-<n>` and returns the new path.
///
/// # Errors
/// The error of the system call. The file was not moved.
pub fn set_aside_blocking(path: &Path) -> io::Result<PathBuf> {
    quarantine_blocking(path, path)
}

/// Moves `bad` to `<original>.corrupt-<n>` and returns that path. `n` is larger than every existing number.
/// `bad` is in the directory of `original`.
///
/// # Errors
/// The error of the system call. The file was not moved.
pub fn quarantine_blocking(bad: &Path, original: &Path) -> io::Result<PathBuf> {
    let prefix = with_suffix(original, ".corrupt-");
    let mut numbers = quarantined(&prefix)?;
    let next = numbers.iter().max().map_or(1, |n| n.saturating_add(1));
    let to = numbered(&prefix, next);

    // Possible only if the numbers overflow. rename(2) would replace the file.
    if fs::symlink_metadata(&to).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    move_aside_blocking(bad, &to)?;

    numbers.push(next);
    numbers.sort_unstable();
    let surplus = numbers.len().saturating_sub(MAX_QUARANTINED);
    for n in numbers.into_iter().take(surplus) {
        // Ignore failures, such as a directory with entries: an extra file does no harm.
        let old = numbered(&prefix, n);
        fs::remove_file(&old).or_else(|_| fs::remove_dir(&old)).ok();
    }
    Ok(to)
}

/// Returns the numbers of the existing quarantined files.
fn quarantined(prefix: &Path) -> io::Result<Vec<u64>> {
    let (Some(dir), Some(prefix)) = (prefix.parent(), prefix.file_name().and_then(|n| n.to_str()))
    else {
        return Err(io::ErrorKind::InvalidInput.into());
    };

    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(prefix));
        numbers.extend(number.and_then(|n| n.parse::<u64>().ok()));
    }
    Ok(numbers)
}

fn numbered(prefix: &Path, n: u64) -> PathBuf {
    with_suffix(prefix, &n.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_five_are_kept_under_numbers_that_only_grow() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        for n in 1..=12 {
            fs::write(&path, n.to_string()).unwrap();
            let to = set_aside_blocking(&path).unwrap();
            assert_eq!(to, dir.path().join(format!("m.corrupt-{n}")));
        }
        let mut kept: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| {
                (
                    path.file_name().unwrap().to_str().unwrap().to_owned(),
                    fs::read_to_string(path).unwrap(),
                )
            })
            .collect();
        kept.sort_by_key(|(_, text)| text.parse::<u32>().unwrap());
        let expected: Vec<_> =
            (8..=12).map(|n| (format!("m.corrupt-{n}"), n.to_string())).collect();
        assert_eq!(kept, expected);
    }

    #[test]
    fn other_files_are_not_counted_and_a_directory_is_set_aside_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        for other in ["m.corrupt-x", "m.corrupt-", "n.corrupt-9", "m.corrupt--3"] {
            fs::write(dir.path().join(other), "").unwrap();
        }
        fs::create_dir(&path).unwrap();
        fs::write(path.join("content"), "").unwrap();
        let to = quarantine_blocking(&path, &path).unwrap();
        assert_eq!(to, dir.path().join("m.corrupt-1"));
        assert!(to.join("content").exists());
    }

    #[test]
    fn nothing_is_written_over_when_the_numbers_have_run_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        let last = dir.path().join(format!("m.corrupt-{}", u64::MAX));
        fs::write(&last, "old").unwrap();
        fs::write(&path, "new").unwrap();
        quarantine_blocking(&path, &path).unwrap_err();
        assert_eq!(fs::read_to_string(&last).unwrap(), "old");
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }
}
