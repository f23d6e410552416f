//! Reads the history that the Rubber Duck app appends to a file for each session. Used by [`super::session_view`]. The
//! format is the app's (docs/protocol.md, `appHistoryFile`).
//!
//! Another program owns the file: it may be missing, truncated, replaced, or not a regular file.

use quackd_protocol::client::FollowData;
use rustix::fs::{Mode, OFlags};
use serde_json::Value;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

/// Polling interval, the same as upstream's.
const INTERVAL: Duration = Duration::from_millis(350);

/// Maximum number of bytes per poll. The rest is read by the next poll.
const MAX_READ: u64 = 256 * 1024;

/// Maximum length of a line, in bytes. A longer line is skipped.
const MAX_LINE: usize = 1024 * 1024;

/// Capacity of the queue of batches. While it is full, nothing is read.
const WAITING: usize = 2;

/// Read position in the history file.
#[derive(Debug)]
struct HistoryTail {
    path: PathBuf,
    session: String,
    offset: u64,
    /// Device and inode of the file that `offset` refers to. `None` before the first poll that found it.
    identity: Option<(u64, u64)>,
    /// Incomplete last line.
    rest: Vec<u8>,
    /// Whether the current line is too long and is skipped.
    skips: bool,
}

/// Starts reading entries appended from now on, or all entries if the file did not exist yet. The channel closes if
/// there is no path. Reading stops when the receiver is dropped.
pub(super) fn read(followed: &FollowData) -> mpsc::Receiver<Vec<Value>> {
    let (sender, entries) = mpsc::channel(WAITING);
    let path = PathBuf::from(&followed.app_history_file);
    if path.is_absolute() {
        let offset = if followed.app_history_exists { followed.app_history_size_bytes } else { 0 };
        let session = followed.session_id.0.clone();
        tokio::spawn(run(HistoryTail::new(path, session, offset), sender));
    }
    entries
}

async fn run(mut tail: HistoryTail, sender: mpsc::Sender<Vec<Value>>) {
    let mut ticks = interval(INTERVAL);
    // A slow disk must not cause a burst of polls.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let poll = tokio::task::spawn_blocking(move || {
            // An unreadable file may become readable later.
            let entries = tail.look_blocking().unwrap_or_default();
            (tail, entries)
        });

        let Ok((same_tail, entries)) = poll.await else { return };
        tail = same_tail;
        // The receiver is gone if the view has ended.
        if sender.is_closed() || !entries.is_empty() && sender.send(entries).await.is_err() {
            return;
        }
    }
}

impl HistoryTail {
    fn new(path: PathBuf, session: String, offset: u64) -> Self {
        Self { path, session, offset, identity: None, rest: Vec::new(), skips: false }
    }

    /// Returns the entries appended since the last poll.
    fn look_blocking(&mut self) -> io::Result<Vec<Value>> {
        // Without NONBLOCK, opening a FIFO would block until a writer opens it.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::open(&self.path, flags, Mode::empty())?);

        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(Vec::new());
        }

        let identity = (metadata.dev(), metadata.ino());
        let is_another = self.identity.is_some_and(|known| known != identity);
        self.identity = Some(identity);
        // The app has started a new file.
        if is_another || metadata.len() < self.offset {
            (self.offset, self.skips) = (0, false);
            self.rest.clear();
        }

        file.seek(SeekFrom::Start(self.offset))?;
        let mut new = Vec::new();
        self.offset += u64::try_from(file.take(MAX_READ).read_to_end(&mut new)?).unwrap_or(0);
        Ok(self.entries(&new))
    }

    fn entries(&mut self, new: &[u8]) -> Vec<Value> {
        let mut entries = Vec::new();
        for piece in new.split_inclusive(|byte| *byte == b'\n') {
            if !self.skips {
                self.rest.extend_from_slice(piece);
            }

            // A line that is too long is skipped up to its end.
            if MAX_LINE < self.rest.len() {
                self.skips = true;
                self.rest.clear();
            }

            if piece.last() == Some(&b'\n') {
                let entry = serde_json::from_slice::<Value>(&self.rest).ok();
                entries.extend(entry.filter(|entry| self.is_ours(entry)));
                self.rest.clear();
                self.skips = false;
            }
        }
        entries
    }

    fn is_ours(&self, entry: &Value) -> bool {
        entry.get("sessionID").and_then(Value::as_str) == Some(self.session.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, OpenOptions};
    use std::io::Write;

    fn line(text: &str) -> String {
        format!("{{\"sessionID\":\"s\",\"type\":\"user_text\",\"text\":\"{text}\"}}\n")
    }

    fn texts(tail: &mut HistoryTail) -> Vec<String> {
        let entries = tail.look_blocking().unwrap();
        entries.iter().map(|entry| entry["text"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn only_whole_lines_of_the_session_that_are_new_are_taken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.jsonl");
        let old = line("old");
        let mut tail =
            HistoryTail::new(path.clone(), "s".to_owned(), u64::try_from(old.len()).unwrap());
        assert!(tail.look_blocking().is_err(), "it is not there yet");
        fs::write(&path, &old).unwrap();
        assert_eq!(texts(&mut tail), [""; 0]);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        let other = line("other").replace("\"s\"", "\"t\"");
        let new = format!("{}{other}nonsense\n\n{}", line("new"), &line("half")[..20]);
        file.write_all(new.as_bytes()).unwrap();
        assert_eq!(texts(&mut tail), ["new"]);
        file.write_all(&line("half").as_bytes()[20..]).unwrap();
        assert_eq!(texts(&mut tail), ["half"]);
        assert_eq!(texts(&mut tail), [""; 0]);
    }

    #[test]
    fn a_file_that_is_cut_short_or_replaced_is_read_from_its_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.jsonl");
        fs::write(&path, line("one").repeat(3)).unwrap();
        let mut tail = HistoryTail::new(path.clone(), "s".to_owned(), 0);
        assert_eq!(texts(&mut tail), ["one"; 3]);
        fs::write(&path, line("two")).unwrap();
        assert_eq!(texts(&mut tail), ["two"]);
        let new = dir.path().join("new");
        fs::write(&new, line("three").repeat(2)).unwrap();
        #[expect(clippy::disallowed_methods, reason = "as another program replaces its file")]
        fs::rename(&new, &path).unwrap();
        assert_eq!(texts(&mut tail), ["three"; 2]);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(texts(&mut tail), [""; 0]);
    }

    #[test]
    fn a_line_without_end_and_a_large_file_cost_bounded_memory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.jsonl");
        let long = "x".repeat(3 * MAX_LINE);
        fs::write(&path, format!("{long}\n{}", line("after"))).unwrap();
        let mut tail = HistoryTail::new(path, "s".to_owned(), 0);
        let mut entries = Vec::new();
        for _ in 0..20 {
            entries.extend(texts(&mut tail));
            assert!(tail.rest.len() <= MAX_LINE + usize::try_from(MAX_READ).unwrap());
        }
        assert_eq!(entries, ["after"]);
    }
}
