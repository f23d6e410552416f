//! Reads the journal of calls. Used by `quack log` and `quack follow`. Needs no daemon.

use jiff::Timestamp;
use quackd_home::call_journal::{files_blocking, read_file_blocking};
use quackd_protocol::journal::{CallEnd, CallRecord, JOURNAL_GAP, is_beginning_of_job};
use quackd_protocol::limits::MAX_JOURNAL_LINE_BYTES;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

/// Conditions for the calls that are shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CallFilter {
    /// Sessions that a reference means. `None` for all.
    pub(crate) session: Option<SessionFilter>,
    /// Canonical path of a workspace.
    pub(crate) workspace: Option<String>,
    /// Beginning of the client's name.
    pub(crate) agent: Option<String>,
    pub(crate) since: Option<Timestamp>,
}

/// Identification of a session in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SessionFilter {
    /// The id, from the daemon.
    Id(String),
    /// A reference that no daemon resolved: an id, a name, or `<directory>/<name>`.
    Reference(String),
}

impl SessionFilter {
    fn lets(&self, call: &CallRecord) -> bool {
        match self {
            Self::Id(id) => call.session_id.0 == *id,
            Self::Reference(reference) => {
                let name = &call.session_name;
                let in_directory = || {
                    let (directory, of) = reference.rsplit_once('/')?;
                    Some(of == name && Path::new(&call.workspace_path).ends_with(directory))
                };
                call.session_id.0 == *reference
                    || name == reference
                    || call.label == *reference
                    || in_directory().unwrap_or(false)
            }
        }
    }
}

impl CallFilter {
    fn lets(&self, call: &CallRecord) -> bool {
        // The missing calls may be of any session.
        if is_gap(call) {
            let end_ms = i64::try_from(call.duration_ms).map_or(i64::MAX, |ms| call.at_ms + ms);
            return self.since.is_none_or(|since| since.as_millisecond() <= end_ms);
        }

        let client = call.client.as_deref().unwrap_or_default();
        self.session.as_ref().is_none_or(|session| session.lets(call))
            && self.workspace.as_ref().is_none_or(|path| *path == call.workspace_path)
            && self.agent.as_ref().is_none_or(|agent| client.starts_with(agent.as_str()))
            && self.since.is_none_or(|since| since.as_millisecond() <= call.at_ms)
    }
}

/// Position behind the calls that were read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct JournalPosition {
    file_ms: i64,
    offset: usize,
}

/// The journal of calls.
#[derive(Debug)]
pub(crate) struct CallReader {
    dir: PathBuf,
    filter: CallFilter,
}

impl CallReader {
    pub(crate) fn new(dir: PathBuf, filter: CallFilter) -> Self {
        Self { dir, filter }
    }

    /// Returns the last `max` calls, oldest first, and the position behind them.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn last_blocking(
        &self,
        max: usize,
    ) -> io::Result<(Vec<CallRecord>, JournalPosition)> {
        let files = files_blocking(&self.dir)?;
        let mut position = JournalPosition::default();
        let (mut records, mut ended) = (Vec::new(), HashSet::new());

        for (at, file) in files.iter().enumerate().rev() {
            let bytes = read_file_blocking(file)?;
            if at + 1 == files.len() {
                // Taken from the newest file: later calls are behind it.
                position = JournalPosition { file_ms: file.start_ms, offset: whole(&bytes).len() };
            }

            let newest_first = whole(&bytes).rsplit(|byte| *byte == b'\n');
            let calls = newest_first.filter_map(parse).filter(|call| self.filter.lets(call));
            // A long call also has a record of its beginning.
            let calls = calls.filter(|call| match call.outcome {
                CallEnd::Running => !ended.contains(&call.id),
                _ => {
                    ended.insert(call.id.clone());
                    true
                }
            });

            records.extend(calls.take(max - records.len()));

            // Older files have older calls only.
            let since = self.filter.since.map_or(i64::MIN, Timestamp::as_millisecond);
            if max <= records.len() || file.start_ms < since {
                break;
            }
        }
        records.reverse();
        Ok((records, position))
    }

    /// Returns the calls behind a position, and moves it behind them.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn next_blocking(
        &self,
        position: &mut JournalPosition,
    ) -> io::Result<Vec<CallRecord>> {
        let mut records = Vec::new();
        for file in files_blocking(&self.dir)? {
            let n_read = u64::try_from(position.offset).unwrap_or(u64::MAX);
            let offset = match file.start_ms.cmp(&position.file_ms) {
                Ordering::Less => continue,
                Ordering::Equal if file.n_bytes <= n_read => continue,
                Ordering::Equal => position.offset,
                // The file was begun after the last read.
                Ordering::Greater => 0,
            };

            let bytes = read_file_blocking(&file)?;
            let complete = whole(&bytes);
            let lines = complete.get(offset..).unwrap_or_default().split(|byte| *byte == b'\n');
            records.extend(lines.filter_map(parse).filter(|call| self.filter.lets(call)));
            *position = JournalPosition { file_ms: file.start_ms, offset: complete.len() };
        }
        Ok(records)
    }

    /// Returns the newest call with this id.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn call_blocking(&self, id: &str) -> io::Result<Option<CallRecord>> {
        for file in files_blocking(&self.dir)?.iter().rev() {
            let bytes = read_file_blocking(file)?;
            let mut newest_first = bytes.rsplit(|byte| *byte == b'\n').filter_map(parse);
            if let Some(call) = newest_first.find(|call| call.id == id) {
                return Ok(Some(call));
            }
        }
        Ok(None)
    }
}

/// Whether a record is in place of missing calls.
pub(crate) fn is_gap(call: &CallRecord) -> bool {
    call.tool == JOURNAL_GAP
}

/// Returns the complete lines.
fn whole(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    bytes.get(..end).unwrap_or_default()
}

/// Parses a line. A line that a full disk or a kill has cut is no call.
fn parse(line: &[u8]) -> Option<CallRecord> {
    if line.is_empty() || MAX_JOURNAL_LINE_BYTES < line.len() {
        return None;
    }
    // The end of a background job is shown, its beginning is the call that started it.
    serde_json::from_slice(line).ok().filter(|call| !is_beginning_of_job(call))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::Write;

    fn line(id: &str, at_ms: i64, session: &str, client: &str) -> String {
        let line = json!({
            "id": id, "atMs": at_ms, "sessionId": session, "sessionName": "review",
            "workspacePath": "/home/ada/app", "client": client, "tool": "bash", "outcome": "ok",
            "durationMs": 5,
        });
        format!("{line}\n")
    }

    fn write(dir: &Path, start: i64, text: &str) {
        let path = dir.join(format!("{start:013}.jsonl"));
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn ids(calls: &[CallRecord]) -> Vec<&str> {
        calls.iter().map(|call| call.id.as_str()).collect()
    }

    #[test]
    fn the_last_calls_are_found_over_several_files_and_then_the_next_ones() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        write(dir, 100, &[line("a", 100, "s", "x"), line("b", 101, "t", "claude-code")].concat());
        write(dir, 200, &format!("{}half a line", line("c", 200, "s", "claude-code")));
        write(dir, 200, &format!("\n{}{{\"cut", line("d", 201, "s", "x")));
        let reader = |filter| CallReader::new(dir.to_owned(), filter);
        let all = reader(CallFilter::default());
        let (calls, mut position) = all.last_blocking(3).unwrap();
        assert_eq!(ids(&calls), ["b", "c", "d"]);

        write(dir, 200, &format!("\n{}", line("e", 202, "s", "x")));
        write(dir, 300, &line("f", 300, "s", "x"));
        assert_eq!(ids(&all.next_blocking(&mut position).unwrap()), ["e", "f"]);
        assert!(all.next_blocking(&mut position).unwrap().is_empty());

        let agent = Some("claude".to_owned());
        let of_agent = reader(CallFilter { agent, ..CallFilter::default() });
        assert_eq!(ids(&of_agent.last_blocking(10).unwrap().0), ["b", "c"]);
        let since = Some(Timestamp::from_millisecond(201).unwrap());
        let since = reader(CallFilter { since, ..CallFilter::default() });
        assert_eq!(ids(&since.last_blocking(10).unwrap().0), ["d", "e", "f"]);
        assert_eq!(all.call_blocking("b").unwrap().unwrap().session_id.0, "t");
        assert!(all.call_blocking("z").unwrap().is_none());
    }

    #[test]
    fn without_a_daemon_a_session_is_its_id_its_name_or_its_label() {
        let call: CallRecord = serde_json::from_str(&line("a", 1, "id7", "x")).unwrap();
        for (reference, is_it) in [
            ("id7", true),
            ("review", true),
            ("app/review", true),
            ("ada/app/review", true),
            ("pp/review", false),
            ("app", false),
            ("other/review", false),
        ] {
            let filter = SessionFilter::Reference(reference.to_owned());
            assert_eq!(filter.lets(&call), is_it, "{reference}");
        }
    }
}
