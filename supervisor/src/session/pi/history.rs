//! The file with a session's conversation, in Pi's format. Its first line names the directory in which Pi works. Pi
//! itself starts elsewhere: the runtimes below Pi (node, bun, version managers) read settings in their start directory,
//! and commands may write a workspace.

use quackd_home::own_file;
use serde_json::json;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Version of the format. Pi migrates a file with an older one.
const VERSION: u32 = 3;

/// A header holds one path.
const MAX_HEADER_BYTES: u64 = 8 * 1024;

/// Returns the file to resume: `known` if it has a conversation, else one in `dir` whose header names `workspace`.
/// `now` is RFC 3339. Writes the file system.
///
/// # Errors
/// The file cannot be written, or is not a regular file of this user.
pub(crate) fn prepare_blocking(
    dir: &Path,
    known: &str,
    workspace: &str,
    now: &str,
) -> io::Result<PathBuf> {
    let known = (!known.is_empty()).then(|| PathBuf::from(known));
    if let Some(known) = &known
        && known.metadata().is_ok_and(|found| found.is_file() && found.len() != 0)
    {
        return Ok(known.clone());
    }
    // Pi wants an id that begins and ends with a letter or digit.
    let id = quackd_home::new_id()?.replace(['-', '_'], "0");
    let name = format!("{}_{id}.jsonl", now.replace([':', '.'], "-"));
    let path = known.filter(|known| known.parent() == Some(dir)).unwrap_or_else(|| dir.join(name));
    let header = json!({
        "type": "session", "version": VERSION, "id": id, "timestamp": now, "cwd": workspace,
    });
    own_file::append_blocking(&path)?.write_all(format!("{header}\n").as_bytes())?;
    Ok(path)
}

/// Deletes the file of a deleted session if it has no conversation, only the header. Writes the file system.
pub(crate) fn discard_unused_blocking(path: &Path) {
    let is_ours = path.parent().is_some_and(|dir| dir.ends_with("pi-sessions"));
    let Ok(text) = own_file::read_blocking(path, MAX_HEADER_BYTES) else { return };
    let n_lines = text.iter().filter(|byte| **byte == b'\n').count();
    if is_ours && n_lines <= 1 {
        // `quack gc --histories` finds it otherwise.
        std::fs::remove_file(path).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_conversation_is_kept_and_a_missing_one_begun_where_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let now = "2026-01-02T03:04:05Z";
        let prepare = |known: &str| prepare_blocking(dir.path(), known, "/w", now).unwrap();
        let begun = prepare("");
        assert_eq!(begun.parent(), Some(dir.path()));
        let text = fs::read_to_string(&begun).unwrap();
        let header: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
        assert_eq!((&header["type"], &header["cwd"]), (&json!("session"), &json!("/w")));
        assert_eq!(prepare(begun.to_str().unwrap()), begun);
        assert_eq!(fs::read_to_string(&begun).unwrap(), text);
        let gone = dir.path().join("gone.jsonl");
        assert_eq!(prepare(gone.to_str().unwrap()), gone);
        assert!(gone.is_file());
        let elsewhere = prepare("/nowhere/x.jsonl");
        assert_eq!(elsewhere.parent(), Some(dir.path()));
    }

    #[test]
    fn only_a_header_is_deleted_with_its_session() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("pi-sessions");
        fs::create_dir(&dir).unwrap();
        let begun = prepare_blocking(&dir, "", "/w", "2026-01-02T03:04:05Z").unwrap();
        let used = dir.join("used.jsonl");
        fs::write(&used, "{}\n{}\n").unwrap();
        for path in [&begun, &used, &dir.join("none")] {
            discard_unused_blocking(path);
        }
        assert!(!begun.exists() && used.exists());
    }
}
