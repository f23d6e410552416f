//! Reads conversations from session files. Used by `quack export`, `quack history` and `quack acp`.

use quackd_agent::transcript::{MAX_FILE_BYTES, Transcript, TranscriptError};
use quackd_home::own_file;
use std::io;
use std::path::Path;

/// Reads a session file. `None` if the file is missing or empty.
///
/// # Errors
/// The path is not a regular file of this user, or the file is not a session file. The text has the path.
pub(crate) fn read_blocking(path: &Path) -> io::Result<Option<Transcript>> {
    let named = |why: String| io::Error::other(format!("{}: {why}", path.display()));

    let bytes = match own_file::read_blocking(path, MAX_FILE_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.map_err(|error| named(error.to_string()))?,
    };

    match Transcript::read(&bytes) {
        Err(TranscriptError::Empty) => Ok(None),
        transcript => transcript.map_err(|error| named(error.to_string())).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_or_empty_file_is_an_empty_conversation() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        assert!(read_blocking(&path).unwrap().is_none());
        std::fs::write(&path, "").unwrap();
        assert!(read_blocking(&path).unwrap().is_none());
        std::fs::write(&path, "not a session\n").unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for bad in [path.as_path(), dir.path(), link.as_path()] {
            let error = read_blocking(bad).unwrap_err().to_string();
            assert!(error.starts_with(&bad.display().to_string()), "{error}");
        }
    }
}
