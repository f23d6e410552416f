//! Finds the calls and background jobs that ran when an earlier daemon was killed: the journal has their beginning and no
//! end. Called once after the start, on a blocking thread.

use crate::clock::unix_ms;
use memchr::memmem;
use quackd_home::call_journal::{files_blocking, read_file_blocking};
use quackd_protocol::journal::{CallEnd, CallRecord, JOURNAL_GAP};
use quackd_protocol::limits::MAX_JOURNAL_LINE_BYTES;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::SystemTime;

/// Number of files that are read. A call in an older file has no end in the journal.
const MAX_FILES: usize = 4;

/// Most calls that get an end.
const MAX_UNENDED: usize = 256;

/// Part of each line about a beginning. Within a text the quotation marks are escaped, so no other
/// line contains it.
const BEGINNING: &[u8] = br#""outcome":"running""#;

/// The part of a record that names its call.
#[derive(Debug, Deserialize)]
struct RecordId<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    tool: Cow<'a, str>,
}

/// Returns the beginnings, before a time, of calls and background jobs without an end, oldest first.
///
/// # Errors
/// Those of the file system.
pub(super) fn unended_calls_blocking(
    dir: &Path,
    before: SystemTime,
) -> io::Result<Vec<CallRecord>> {
    let before = unix_ms(before);

    let files = files_blocking(dir)?;
    let mut unended: BTreeMap<String, CallRecord> = BTreeMap::new();
    for file in files.get(files.len().saturating_sub(MAX_FILES)..).unwrap_or_default() {
        let bytes = read_file_blocking(file)?;
        let lines = bytes.split(|byte| *byte == b'\n');
        for line in lines.filter(|line| line.len() <= MAX_JOURNAL_LINE_BYTES) {
            if memmem::find(line, BEGINNING).is_some() {
                let begun = serde_json::from_slice::<CallRecord>(line).ok();
                let begun = begun
                    .filter(|record| record.outcome == CallEnd::Running && record.at_ms < before);
                unended.extend(begun.map(|begun| (begun.id.clone(), begun)));
                continue;
            }

            // Most lines need not be parsed: an end matters only after a beginning.
            if unended.is_empty() {
                continue;
            }

            // A full disk or a crash may have truncated the line.
            let Ok(record) = serde_json::from_slice::<RecordId<'_>>(line) else { continue };
            match &*record.tool {
                // The end of each may be missing.
                JOURNAL_GAP => unended.clear(),
                _ => drop(unended.remove(&*record.id)),
            }
        }

        while MAX_UNENDED < unended.len() {
            unended.pop_first();
        }
    }

    let mut unended: Vec<_> = unended.into_values().collect();
    unended.sort_by_key(|begun| begun.at_ms);
    Ok(unended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::time::Duration;

    fn line(id: &str, at_ms: i64, extra: Value) -> String {
        let mut line = json!({
            "id": id, "atMs": at_ms, "sessionId": "s", "sessionName": "n", "workspacePath": "/w", "tool": "bash",
            "outcome": "ok", "durationMs": 5,
        });
        line.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        format!("{line}\n")
    }

    fn unended(lines: &[String]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let half = lines.len() / 2;
        for (start, lines) in [(1, &lines[..half]), (2, &lines[half..])] {
            std::fs::write(dir.path().join(format!("{start:013}.jsonl")), lines.concat()).unwrap();
        }
        let before = SystemTime::UNIX_EPOCH + Duration::from_millis(1000);
        let found = unended_calls_blocking(dir.path(), before).unwrap();
        found.into_iter().map(|call| call.id).collect()
    }

    #[test]
    fn beginnings_without_an_end_are_found_whatever_lies_between() {
        let begun = |id: &str, at_ms| line(id, at_ms, json!({"outcome": "running"}));
        let job = line("d", 4, json!({"tool": "job_end", "outcome": "running"}));
        let quoting = line("e", 5, json!({"text": "\"outcome\":\"running\""}));
        let lines = [
            begun("b", 1),
            begun("a", 2),
            line("x", 3, json!({})),
            job.clone(),
            quoting,
            "{\"half\n".to_owned(),
            line("a", 2, json!({"outcome": "failed"})),
            begun("new", 1000),
        ];
        assert_eq!(unended(&lines), ["b", "d"]);
        // After a gap nothing is known about those before it.
        let gap = line("g", 6, json!({"tool": "journal_gap", "outcome": "missing"}));
        assert_eq!(unended(&[begun("b", 1), job, gap, begun("c", 7)]), ["c"]);
        assert!(unended(&[]).is_empty());
    }
}
