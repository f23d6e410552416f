//! The log of single changes: the content that `write_file` and `edit_file` replaced, for undo.
//!
//! Owns the segments, which are directories of the journal with one file each. A change is one line of JSON, and after it
//! the old content. The record of a change is written before its file is replaced, but neither is synced: after a crash of
//! the process the change can be undone, and after a power cut the newest changes may be missing. Syncing would take
//! longer than the change.
//!
//! Commands of the session can write there too; see [`super::session_journal`].

use super::journal_dir::JournalDir;
use super::json_forms::{as_optional_text, as_path, as_text};
use super::undo_id::UndoId;
use quackd_protocol::worker::CallOrigin;
use quackd_search::replace::{Digest, MAX_FILE_BYTES};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

/// Maximum size of an old content that is kept, in bytes.
pub(crate) const MAX_ORIGINAL_BYTES: u64 = MAX_FILE_BYTES;

/// Size of a segment at which the next one begins, in bytes.
const SEGMENT_BYTES: u64 = 16 * 1024 * 1024;

/// Number of lines of a segment at which the next one begins.
const SEGMENT_LINES: usize = 2000;

/// Maximum number of segments. A new segment replaces the oldest one.
const MAX_SEGMENTS: usize = 8;

/// Maximum size of a line, in bytes: a path has at most 4096, and JSON may write each as six.
const MAX_LINE_BYTES: u64 = 32 * 1024;

/// Numbers from here on are forged.
const MAX_NUMBER: u64 = 1 << 48;

const PREFIX: &str = "changes-";
const FILE: &str = "changes";

/// A file's content before a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Before {
    /// The file did not exist.
    Absent,
    /// The content is in the log.
    Kept(#[serde(with = "as_text")] Digest),
    /// The content is not in the log, because it was larger than [`MAX_ORIGINAL_BYTES`] or could not be read.
    NotKept,
}

/// Record of one change of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChangeRecord {
    /// Number in the session; replacements count too.
    pub(crate) number: u64,
    /// Time of the change, in milliseconds since 1970.
    pub(crate) at_ms: i64,
    /// Name of the tool.
    pub(crate) tool: String,
    /// Call that changed the file.
    #[serde(default)]
    pub(crate) origin: CallOrigin,
    /// Path relative to the workspace.
    #[serde(with = "as_path")]
    pub(crate) path: PathBuf,
    pub(crate) before: Before,
    /// Digest of the new content. `None`: the file is deleted.
    #[serde(with = "as_optional_text")]
    pub(crate) after: Option<Digest>,
    /// Size of the old content in the log, in bytes.
    #[serde(default)]
    pub(crate) len: u64,
}

/// One line of a segment.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LogLine {
    /// A file is about to get new content. The old content follows the line.
    Change(ChangeRecord),
    /// The change with this number did not happen.
    Void(u64),
    /// The change with the first number was undone by the entry with this id.
    Undone(u64, String),
}

/// A change that is found in the log.
#[derive(Debug, Clone)]
pub(crate) struct LoggedChange {
    pub(crate) id: UndoId,
    pub(crate) record: ChangeRecord,
    /// Id of the entry that undid this change.
    pub(crate) undone_by: Option<String>,
    segment: String,
    /// Offset of the old content in the segment, in bytes.
    at: u64,
}

impl LoggedChange {
    /// Reads the old content. Empty for a file that did not exist.
    ///
    /// # Errors
    /// `InvalidData` if it is not in the log; errors of openat(2) and read(2).
    pub(super) fn original(&self, folder: &JournalDir) -> io::Result<Vec<u8>> {
        match self.record.before {
            Before::Absent => return Ok(Vec::new()),
            Before::NotKept => return Err(io::ErrorKind::InvalidData.into()),
            Before::Kept(_) if MAX_ORIGINAL_BYTES < self.record.len => {
                return Err(io::ErrorKind::InvalidData.into());
            }
            Before::Kept(_) => {}
        }

        let mut file = folder.folder(&self.segment)?.file(FILE)?;
        file.seek(SeekFrom::Start(self.at))?;
        let mut original = Vec::new();
        file.take(self.record.len).read_to_end(&mut original)?;
        Ok(original)
    }
}

/// The segment that gets the next change. Used while the journal is locked. After a failed `add` it is dropped: a part of
/// the record may be in it.
#[derive(Debug)]
pub(super) struct OpenSegment {
    mark: u32,
    file: File,
    n_bytes: u64,
    n_lines: usize,
}

impl OpenSegment {
    /// Opens the newest segment if it has room and a complete last line.
    pub(super) fn newest(folder: &JournalDir) -> Option<Self> {
        let (_, name) = segments(folder).ok()?.pop()?;
        let read = read_segment(folder, &name).ok()?;
        let SegmentContent { mark, file, n_bytes, n_lines, is_complete, .. } = read;
        let has_room = is_complete && n_bytes < SEGMENT_BYTES && n_lines < SEGMENT_LINES;
        has_room.then_some(Self { mark, file, n_bytes, n_lines })
    }

    /// Begins a segment and removes the oldest ones beyond the limit.
    pub(super) fn begin(folder: &JournalDir, number: u64) -> io::Result<Self> {
        let names = segments(folder)?;
        let surplus = (names.len() + 1).saturating_sub(MAX_SEGMENTS);
        for (_, name) in names.iter().take(surplus) {
            folder.remove(name)?;
        }
        let id = UndoId::with_random_mark(number)?;
        let file = folder.make_folder(&format!("{PREFIX}{id}"))?.make_file(FILE)?;
        Ok(Self { mark: id.mark, file, n_bytes: 0, n_lines: 0 })
    }

    /// Whether this segment can take a change with an original of this size.
    pub(super) fn has_room(&self, original: u64) -> bool {
        // A command can delete the file of the segment.
        let is_there = self.file.metadata().is_ok_and(|metadata| metadata.nlink() != 0);
        let is_small = self.n_bytes == 0 || self.n_bytes + original <= SEGMENT_BYTES;
        is_there && is_small && self.n_lines < SEGMENT_LINES
    }

    /// Appends a change with its old content.
    pub(super) fn add(&mut self, record: ChangeRecord, original: &[u8]) -> io::Result<UndoId> {
        let id = UndoId { number: record.number, mark: self.mark };
        let mut bytes = line(&LogLine::Change(record))?;
        if !original.is_empty() {
            bytes.extend_from_slice(original);
            bytes.push(b'\n');
        }
        self.write(&bytes)?;
        Ok(id)
    }

    /// Records that a change did not happen.
    pub(super) fn void(&mut self, number: u64) -> io::Result<()> {
        self.write(&line(&LogLine::Void(number))?)
    }

    /// Records which entry undid a change.
    pub(super) fn undone(&mut self, number: u64, by: String) -> io::Result<()> {
        self.write(&line(&LogLine::Undone(number, by))?)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.n_bytes += bytes.len() as u64;
        self.n_lines += 1;
        Ok(())
    }
}

fn line(line: &LogLine) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Returns the highest number of a change in a journal. 0 if there is none.
pub(super) fn newest_number(folder: &JournalDir) -> u64 {
    let Some((id, name)) = segments(folder).ok().and_then(|mut segments| segments.pop()) else {
        return 0;
    };
    let read = read_segment(folder, &name).ok();
    let changes = read.iter().flat_map(|read| &read.changes);
    changes.map(|change| change.record.number).fold(id.number, u64::max)
}

/// Returns the changes of all segments that happened, oldest first.
pub(super) fn changes(folder: &JournalDir) -> Vec<LoggedChange> {
    let mut logged: Vec<LoggedChange> = Vec::new();
    let mut ends: Vec<LogLine> = Vec::new();
    for (_, name) in segments(folder).unwrap_or_default() {
        let Ok(mut read) = read_segment(folder, &name) else { continue };
        logged.append(&mut read.changes);
        ends.append(&mut read.ends);
    }

    // The search below needs this order, and a command can write segments with other numbers.
    logged.sort_by_key(|change| change.record.number);

    for end in ends {
        match end {
            LogLine::Void(number) => logged.retain(|change| change.record.number != number),
            LogLine::Undone(number, by) => {
                let undone = logged.binary_search_by_key(&number, |change| change.record.number);
                if let Some(change) = undone.ok().and_then(|at| logged.get_mut(at)) {
                    change.undone_by = Some(by);
                }
            }
            LogLine::Change(_) => {}
        }
    }

    logged
}

/// Returns the segments of a journal with their names, oldest first.
fn segments(folder: &JournalDir) -> io::Result<Vec<(UndoId, String)>> {
    let named = |name: String| Some((UndoId::parse(name.strip_prefix(PREFIX)?)?, name));
    let mut segments: Vec<_> = folder.names()?.into_iter().filter_map(named).collect();
    segments.sort();
    Ok(segments)
}

/// Content of a segment.
struct SegmentContent {
    mark: u32,
    file: File,
    changes: Vec<LoggedChange>,
    /// Lines that are not changes.
    ends: Vec<LogLine>,
    n_bytes: u64,
    n_lines: usize,
    /// Whether the last line is complete.
    is_complete: bool,
}

/// Reads a segment up to its end or its first invalid line, which a crash may have cut.
fn read_segment(folder: &JournalDir, name: &str) -> io::Result<SegmentContent> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let mark = name.strip_prefix(PREFIX).and_then(UndoId::parse).ok_or_else(invalid)?.mark;
    let file = folder.folder(name)?.file(FILE)?;
    let n_bytes = file.metadata()?.len();

    let mut content = SegmentContent {
        mark,
        file: file.try_clone()?,
        changes: Vec::new(),
        ends: Vec::new(),
        n_bytes,
        n_lines: 0,
        is_complete: false,
    };

    let mut reader = BufReader::new(file);
    let (mut at, mut line) = (0, Vec::new());

    while at < n_bytes && content.n_lines < 2 * SEGMENT_LINES {
        line.clear();
        let read = reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
        at += read as u64;
        let parsed = serde_json::from_slice(&line).ok().filter(|_| line.ends_with(b"\n"));
        let Some(parsed) = parsed else { return Ok(content) };

        content.n_lines += 1;
        match parsed {
            LogLine::Change(record) if MAX_NUMBER <= record.number => return Ok(content),
            LogLine::Change(record) => {
                // A line break follows the content.
                let skipped = if record.len == 0 { 0 } else { record.len.saturating_add(1) };
                let begin = at;
                at = at.saturating_add(skipped);
                if n_bytes < at {
                    return Ok(content);
                }
                // Only an undo reads the content.
                reader.seek_relative(i64::try_from(skipped).map_err(|_| invalid())?)?;
                let id = UndoId { number: record.number, mark };
                let (segment, undone_by) = (name.to_owned(), None);
                content.changes.push(LoggedChange { id, record, undone_by, segment, at: begin });
            }
            end @ (LogLine::Void(_) | LogLine::Undone(..)) => content.ends.push(end),
        }
    }

    content.is_complete = at == n_bytes;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::super::{Journal, NewChange};
    use super::*;
    use std::fs;

    fn journal() -> (tempfile::TempDir, Journal) {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::kept_in(dir.path().to_owned());
        (dir, journal)
    }

    fn add(journal: &Journal, path: &str, old: &[u8], new: &[u8]) -> UndoId {
        let change = NewChange {
            tool: "write_file",
            origin: &CallOrigin::default(),
            path: path.into(),
            before: Before::Kept(Digest::of(old)),
            original: old,
            after: Some(Digest::of(new)),
        };
        journal.record_change_blocking(change).unwrap()
    }

    fn paths(journal: &Journal) -> Vec<String> {
        let changes = journal.changes_blocking();
        changes.iter().map(|it| it.record.path.display().to_string()).collect()
    }

    #[test]
    fn the_next_worker_goes_on_where_the_last_one_ended() {
        let (dir, journal) = journal();
        let first = add(&journal, "a", b"old\nwith a line", b"new");
        let void = add(&journal, "void", b"", b"x");
        journal.void_change_blocking(&void);
        journal.changes_undone_blocking(&[first.number], "9-00000000");
        drop(journal);

        let journal = Journal::kept_in(dir.path().to_owned());
        let third = add(&journal, "c", b"", b"y");
        assert_eq!((third.number, third.mark), (first.number + 2, first.mark));
        assert_eq!(paths(&journal), ["a", "c"]);
        let changes = journal.changes_blocking();
        assert_eq!(changes[0].undone_by.as_deref(), Some("9-00000000"));
        let folder = journal.folder().unwrap();
        assert_eq!(changes[0].original(&folder).unwrap(), b"old\nwith a line");
        assert_eq!(changes[1].original(&folder).unwrap(), b"");
    }

    /// A crash may cut a segment anywhere. What is complete is found, and later changes are too.
    #[test]
    fn a_cut_segment_keeps_what_is_complete() {
        let (dir, journal) = journal();
        add(&journal, "a", b"one", b"1");
        add(&journal, "b", b"two", b"2");
        drop(journal);
        let segment = fs::read_dir(dir.path().join("journal")).unwrap().next().unwrap().unwrap();
        let file = segment.path().join(FILE);
        let whole = fs::read(&file).unwrap();
        let first = whole.len() / 2;
        for end in 0..whole.len() {
            for other in fs::read_dir(dir.path().join("journal")).unwrap().map(Result::unwrap) {
                if other.path() != segment.path() {
                    fs::remove_dir_all(other.path()).unwrap();
                }
            }
            fs::write(&file, &whole[..end]).unwrap();
            let journal = Journal::kept_in(dir.path().to_owned());
            add(&journal, "c", b"three", b"3");
            let found = paths(&journal);
            let complete = if first <= end { 1 } else { 0 };
            assert_eq!(found.len(), complete + 1, "{end}: {found:?}");
            assert_eq!(found.last().unwrap(), "c", "{end}");
        }
    }

    #[test]
    fn the_oldest_changes_go_first_and_the_size_is_bounded() {
        let (dir, journal) = journal();
        let large = vec![b'x'; 6 * 1024 * 1024];
        for n in 0..30 {
            add(&journal, &n.to_string(), &large, b"new");
        }
        let folder = dir.path().join("journal");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), MAX_SEGMENTS);
        let found = paths(&journal);
        assert_eq!(found.len(), 2 * MAX_SEGMENTS);
        assert_eq!(found.last().unwrap(), "29");
    }

    #[test]
    fn a_segment_that_was_deleted_is_replaced() {
        let (dir, journal) = journal();
        add(&journal, "a", b"old", b"new");
        fs::remove_dir_all(dir.path().join("journal")).unwrap();
        let later = add(&journal, "b", b"old", b"new");
        assert_eq!(paths(&journal), ["b"]);
        assert_eq!(later.number, 2, "numbers are not used again");
    }

    /// Commands of the session can write the log.
    #[test]
    fn forged_segments_are_read_within_limits() {
        let (dir, journal) = journal();
        add(&journal, "a", b"old", b"new");
        let forged = dir.path().join("journal").join("changes-7-00000001");
        fs::create_dir(&forged).unwrap();
        for content in [
            "{\"change\":{\"number\":18446744073709551615,\"at_ms\":0,\"tool\":\"t\",\"path\":\"p\",\"before\":\"absent\",\"after\":null}}\n".to_owned(),
            "{\"change\":{\"number\":8,\"at_ms\":0,\"tool\":\"t\",\"path\":\"p\",\"before\":\"absent\",\"after\":null,\"len\":18446744073709551615}}\n".to_owned(),
            "{\"void\":1".to_owned(),
            "x".repeat(100_000),
            String::new(),
        ] {
            fs::write(forged.join(FILE), &content).unwrap();
            let found = journal.changes_blocking();
            assert!(found.iter().any(|change| change.record.path.as_os_str() == "a"), "{content:.80}");
            let next = Journal::kept_in(dir.path().to_owned());
            assert!(next.changes_blocking().len() <= 2);
        }
        fs::remove_file(forged.join(FILE)).unwrap();
        nix::unistd::mkfifo(&forged.join(FILE), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(paths(&journal), ["a"]);
    }
}
